"""The rarer methods of tensorboardX's writer, over an event log of ours."""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn, SupportsFloat

from summaries import _proto
from summaries.steps import Step
from summaries.tags import TagBook


class FileWriter:
    """What tensorboardX's writer takes for its file: it hands each event on.

    Args:
        logdir: the directory of the run.
        put: takes the bytes of a Summary, a step and a wall time.
        put_event: takes an Event.
        tags: cleans the tags.
    """

    def __init__(
        self,
        logdir: Path,
        put: Callable[[bytes, Step | None, SupportsFloat | None], None],
        put_event: Callable[[Any, Step | None, SupportsFloat | None], None],
        tags: TagBook,
    ) -> None:
        self._logdir = logdir
        self._put = put
        self._put_event = put_event
        self._tags = tags

    def get_logdir(self) -> str:
        """The directory, in which some methods write files of their own."""
        return str(self._logdir)

    def add_summary(
        self,
        summary: Any,
        global_step: Step | None = None,
        walltime: SupportsFloat | None = None,
    ) -> None:
        """Write a Summary."""
        for value in summary.value:
            value.tag = self._tags.clean(value.tag)
        self._put(summary.SerializeToString(), global_step, walltime)

    def add_event(
        self, event: Any, step: Step | None = None, walltime: SupportsFloat | None = None
    ) -> None:
        """Write an Event of any kind."""
        self._put_event(event, step, walltime)

    def add_graph(self, graph_profile: Any, walltime: SupportsFloat | None = None) -> None:
        """Write a graph and the statistics of its steps."""
        graph, statistics = graph_profile
        self._put_event(_proto.Event(graph_def=graph.SerializeToString()), None, walltime)
        tagged = _proto.TaggedRunMetadata(tag="step1", run_metadata=statistics.SerializeToString())
        self._put_event(_proto.Event(tagged_run_metadata=tagged), None, walltime)

    def add_onnx_graph(self, graph: Any, walltime: SupportsFloat | None = None) -> None:
        """Write a graph."""
        self._put_event(_proto.Event(graph_def=graph.SerializeToString()), None, walltime)

    add_openvino_graph = add_onnx_graph


def writer_over(file: FileWriter) -> Any:
    """A writer of tensorboardX that writes into this file and opens none of its own."""

    class Writer(_proto.tensorboardx_writer()):  # type: ignore[misc]
        def _get_file_writer(self) -> FileWriter:
            self.file_writer = file
            self.all_writers = {file.get_logdir(): file}
            return file

    return Writer(logdir=file.get_logdir())


# What tensorboardX's methods need beyond its own requirements. It would tell in ways of its own: a
# NameError, or a line that is printed while nothing is written.
_NEEDS = {
    "add_audio": {"soundfile": "soundfile"},
    "add_figure": {"matplotlib": "matplotlib", "PIL": "Pillow"},
    "add_image_with_boxes": {"PIL": "Pillow"},
    "add_images": {"PIL": "Pillow"},
    "add_onnx_graph": {"onnx": "onnx"},
    "add_video": {"moviepy": "moviepy", "PIL": "Pillow"},
}


def _nothing(*_: object, **__: object) -> None:
    """What a method does in a step that is left out."""


def _refuse(method: str, package: str, project: str, *_: object, **__: object) -> NoReturn:
    """What a method does whose package is missing."""
    message = f"{method} needs {package}, which is not installed: pip install {project}"
    raise ModuleNotFoundError(message, name=package)


class FromTensorboardX:
    """A method of tensorboardX's SummaryWriter; what it writes goes into the one file of ours."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, writer: Any, owner: type) -> Callable[..., Any]:
        """The method, bound."""
        if writer is not None and not writer.is_due():
            return _nothing
        for package, project in _NEEDS.get(self._name, {}).items():
            if writer is not None and find_spec(package) is None:
                return partial(_refuse, self._name, package, project)
        source = _proto.tensorboardx_writer() if writer is None else writer.tensorboardx
        method: Callable[..., Any] = getattr(source, self._name)
        return method
