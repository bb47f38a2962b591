"""Graph nodes that yield TensorBoard summaries, and the writer of event files (`tf.summary`).

A summary node's value is a serialised Summary message as bytes; `FileWriter.add_summary` writes
it. Tags follow TF1: the name in its name scope, cleaned, made unique in the graph.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import summaries
from optkit.graph import Graph, GraphKeys, Operation, Tensor, get_default_graph
from optkit.names import missing
from optkit.ops import summary_ops
from optkit.ops.core import as_tensor, composite
from summaries.event_log import GraphNode
from summaries.metadata import Annotator, SummaryBytes
from summaries.tags import clean_tag

__all__ = [
    "FileWriter",
    "FileWriterCache",
    "Summary",
    "condition",
    "histogram",
    "image",
    "merge",
    "merge_all",
    "scalar",
    "tagged_histogram",
    "tagged_scalar",
    "text",
    "written_when",
]


@contextlib.contextmanager
def _summary_scope(name: str, family: str | None) -> Iterator[tuple[str, str]]:
    """The tag, and the scope to name the node by."""
    if not isinstance(name, str):
        raise TypeError(f"name: expected a string, got {name!r}")
    tag = clean_tag(name)
    if family is not None:
        family = clean_tag(family)
        tag = f"{family}/{tag}"
    with get_default_graph().name_scope(tag) as scope:
        # TF repeats the family in front, so that the dashboard groups by it whatever the scope.
        yield (f"{family}/{scope[:-1]}" if family is not None else scope[:-1]), scope


_CONDITION: ContextVar[Tensor | None] = ContextVar("condition", default=None)


@contextlib.contextmanager
def written_when(condition: Tensor | None) -> Iterator[None]:
    """Summaries made in the block are empty in runs in which the bool `condition` does not hold.

    So an event for each run has only what is news in that run. None is no condition.
    """
    token = _CONDITION.set(condition)
    try:
        yield
    finally:
        _CONDITION.reset(token)


def condition() -> Tensor | None:
    """The condition of the innermost `written_when` block; None is no condition."""
    return _CONDITION.get()


def _collected(node: Tensor, collections: Iterable[str] | None) -> Tensor:
    when = condition()
    if when is not None and when.graph is node.graph:
        node = summary_ops.only_when(when, node)
    names = [GraphKeys.SUMMARIES] if collections is None else list(collections)
    node.graph.add_to_collections(names, node)
    return node


def scalar(
    name: str, tensor: Any, collections: Iterable[str] | None = None, family: str | None = None
) -> Tensor:
    """A summary of one number.

    Args:
        name: the tag, below the current name scope.
        tensor: shape (), any numeric dtype; written as float32, NaN and infinity as they are.
        collections: where to list the node; [GraphKeys.SUMMARIES] if None.
        family: a further prefix of the tag, by which dashboards group.

    Raises:
        ValueError: the tensor is not scalar, or nothing is left of the name.
        InvalidArgumentError: when run, the tensor turns out not to be scalar.
    """
    with get_default_graph().all_or_nothing(), _summary_scope(name, family) as (tag, scope):
        return _collected(_scalar_node(tag, tensor, scope), collections)


def _scalar_node(
    tag: str,
    tensor: Any,
    name: str,
    metadata: bytes | None = None,
    norm_of: Tensor | None = None,
) -> Tensor:
    values = as_tensor(tensor, name="values")
    if values.sizes not in ((), None):
        raise ValueError(f"summary {tag!r}: tensor: expected a scalar, got {values!r}")
    return summary_ops.scalar(tag, values, name, metadata, norm_of)


def histogram(
    name: str, values: Any, collections: Iterable[str] | None = None, family: str | None = None
) -> Tensor:
    """A summary of how values are distributed.

    Non-finite values are left out of the histogram and counted under the tag `<tag>_nonfinite`.

    Args:
        name: the tag, below the current name scope.
        values: any shape and numeric dtype.
        collections: where to list the node; [GraphKeys.SUMMARIES] if None.
        family: a further prefix of the tag.

    Raises:
        ValueError: nothing is left of the name.
    """
    with get_default_graph().all_or_nothing(), _summary_scope(name, family) as (tag, scope):
        return _collected(summary_ops.histogram(tag, values, scope), collections)


def noted_scalar(name: str, tensor: Any, metadata: bytes, norm_of: Tensor | None = None) -> Tensor:
    """As `scalar`, of a quantity of a training step; see `tagged_scalar`."""
    with get_default_graph().all_or_nothing(), _summary_scope(name, None) as (tag, scope):
        return _collected(_scalar_node(tag, tensor, scope, metadata, norm_of), None)


def noted_histogram(name: str, values: Any, scale: Tensor | None, metadata: bytes) -> Tensor:
    """As `histogram`, of scale·values, a quantity of a training step; see `tagged_scalar`."""
    with get_default_graph().all_or_nothing(), _summary_scope(name, None) as (tag, scope):
        return _collected(summary_ops.histogram(tag, values, scope, scale, metadata), None)


@composite
def tagged_scalar(
    tag: str, tensor: Any, metadata: bytes | None = None, norm_of: Tensor | None = None
) -> Tensor:
    """A scalar summary under exactly this tag, whatever other names the graph has in use.

    Args:
        tag: the tag.
        tensor: shape ().
        metadata: tells TensorBoard which quantity of an optimizer's step it is.
        norm_of: see `summary_ops.scalar`.
    """
    return _collected(_scalar_node(tag, tensor, _node_name(tag), metadata, norm_of), None)


@composite
def tagged_histogram(
    tag: str, values: Any, scale: Tensor | None = None, metadata: bytes | None = None
) -> Tensor:
    """A histogram summary of scale·values under exactly this tag; see `tagged_scalar`."""
    node = summary_ops.histogram(tag, values, _node_name(tag), scale, metadata)
    return _collected(node, None)


def _node_name(tag: str) -> str:
    """The tag as a name inside the current scope, which it usually starts with."""
    scope = get_default_graph().get_name_scope()
    return tag.removeprefix(f"{scope}/") if scope else tag


def image(
    name: str,
    tensor: Any,
    max_outputs: int = 3,
    collections: Iterable[str] | None = None,
    family: str | None = None,
) -> Tensor:
    """A summary of images, under `<tag>/image` or `<tag>/image/0`, `/1`, ...

    Args:
        name: the tag, below the current name scope.
        tensor: shape (batch, height, width, channels) with 1, 3 or 4 channels; uint8 as it is, or
            floats, of which each image is scaled as in TF: the largest becomes 255 and 0 stays 0,
            or is the middle, 128, where some are negative. What is not finite is red.
        max_outputs: how many images of the batch to write, at least 1.
        collections: where to list the node; [GraphKeys.SUMMARIES] if None.
        family: a further prefix of the tag.

    Raises:
        ValueError: the tensor is not of rank 4, or max_outputs is below 1.
    """
    with get_default_graph().all_or_nothing(), _summary_scope(name, family) as (tag, scope):
        pictures = as_tensor(tensor, name="tensor")
        if pictures.shape.ndims not in (None, 4):
            raise ValueError(
                f"summary {tag!r}: tensor: expected shape (batch, height, width, channels), got "
                f"{pictures!r}"
            )
        if max_outputs < 1:
            raise ValueError(f"summary {tag!r}: max_outputs: expected >= 1, got {max_outputs}")
        node = summary_ops.image(tag, pictures, max_outputs, scope)
        return _collected(node, collections)


def text(name: str, tensor: Any, collections: Iterable[str] | None = None) -> Tensor:
    """A summary of text, shown as Markdown.

    Args:
        name: the tag, below the current name scope.
        tensor: a string tensor of any shape; tables for rank 1 and 2.
        collections: where to list the node; [GraphKeys.SUMMARIES] if None.

    Raises:
        TypeError: the tensor is no text.
    """
    with get_default_graph().all_or_nothing(), _summary_scope(name, None) as (tag, scope):
        return _collected(summary_ops.text(tag, tensor, scope), collections)


def merge(
    inputs: Sequence[Any], collections: Iterable[str] | None = None, name: str | None = None
) -> Tensor:
    """One summary with all that `inputs` have.

    Raises:
        ValueError: there are no inputs.
        TypeError: an input is no summary.
    """
    nodes = list(inputs)
    if not nodes:
        raise ValueError("inputs: expected at least one summary, got none")
    with get_default_graph().all_or_nothing():
        merged = summary_ops.merged(nodes, name or "Merge/MergeSummary")
        return _collected(merged, () if collections is None else collections)


def merge_all(
    key: str = GraphKeys.SUMMARIES, scope: str | None = None, name: str | None = None
) -> Tensor | None:
    """One summary with all that the collection `key` holds now; None when it holds none.

    It is a snapshot: summaries built later, by `optimize_loss` say, are not in it.
    """
    nodes = get_default_graph().get_collection(key, scope)
    return merge(nodes, name=name) if nodes else None


class FileWriter:
    """Writes summaries to an event file in `logdir`, for TensorBoard.

    Args:
        logdir: the directory of the run; made if need be, `~` is expanded.
        graph: a graph to write for TensorBoard's graph page.
        max_queue: accepted as in TF.
        flush_secs: seconds that an event may wait before it is written, at most.
        graph_def: accepted as in TF; give `graph`.
        filename_suffix: appended to the file's name.
        session: a session whose graph to write.
        layout: arrange an optimizer's scalars on TensorBoard's page of custom scalars: loss,
            learning rate, global norms, and the norms of all gradients.
    """

    def __init__(
        self,
        logdir: Any,
        graph: Graph | None = None,
        max_queue: int = 10,
        flush_secs: float = 120,
        graph_def: Any = None,
        filename_suffix: str | None = None,
        session: Any = None,
        *,
        layout: bool = True,
    ) -> None:
        self._layout = layout
        self._open = partial(
            summaries.EventLog,
            logdir,
            filename_suffix=filename_suffix or "",
            flush_secs=flush_secs,
        )
        self._log = self._open()
        self._annotated = Annotator(layout=layout)
        if graph is None and session is not None:
            graph = session.graph
        if graph is not None:
            self.add_graph(graph)

    def __repr__(self) -> str:
        return f"<optkit.summary.FileWriter {self.get_logdir()!r}>"

    def get_logdir(self) -> str:
        """The directory of the event file."""
        return str(Path(self._log.logdir))

    @property
    def lost(self) -> bool:
        """Whether the event file has been deleted, with its directory perhaps."""
        return self._log.path is not None and not self._log.path.exists()

    def add_summary(self, summary: Any, global_step: Any = None) -> None:
        """Write a fetched summary (bytes, or a Summary message) as one event.

        Raises:
            TypeError: it is neither.
            ValueError: the step is no non-negative integer, or the writer is closed.
        """
        if hasattr(summary, "SerializeToString"):
            summary = summary.SerializeToString()
        if isinstance(summary, SummaryBytes):  # a merged summary's, which need no parsing
            self._log.add_encoded(self._annotated(summary), global_step)
        else:
            self._log.add_summary(summary, global_step)

    def add_graph(self, graph: Graph, global_step: Any = None) -> None:
        """Write the graph's operations, for TensorBoard's graph page.

        Raises:
            TypeError: `graph` is no Graph.
        """
        if not isinstance(graph, Graph):
            raise TypeError(f"graph: expected a Graph, got {graph!r}")
        nodes = [_graph_node(operation) for operation in graph.get_operations()]
        self._log.add_graph(nodes, global_step)

    def add_run_metadata(self, run_metadata: Any, tag: str, global_step: Any = None) -> None:
        """Accepted as in TF; writes nothing, as a `RunMetadata` holds nothing."""

    def add_session_start(self, global_step: Any) -> None:
        """Mark the step that a session starts with: what was written from it on counts no more.

        What goes on has its layout in the file of the first step.
        """
        self._log.add_session_start(global_step)
        if global_step > 1:
            self._annotated = Annotator(layout=False)

    def flush(self, *, durable: bool = False) -> None:
        """Return when everything added is in the file; with `durable`, when it is on the disk."""
        self._log.flush()
        path = self._log.path
        if durable and path is not None:
            with contextlib.suppress(FileNotFoundError):  # what somebody deleted need not last
                _sync(path)

    def close(self) -> None:
        """Write what is left and close the file."""
        self._log.close()

    def reopen(self) -> None:
        """Go on in a new file after `close`."""
        if self._log.closed:
            self._log = self._open()
            self._annotated = Annotator(layout=self._layout)

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _graph_node(operation: Operation) -> GraphNode:
    inputs = [t.op.name if t.value_index == 0 else t.name for t in operation.inputs]
    # A read or write of a variable is an edge of the picture too.
    inputs += [variable.name for variable in operation.variables]
    inputs += [f"^{control.name}" for control in operation.control_inputs]
    return GraphNode(operation.name, operation.type, tuple(inputs), operation.device)


class FileWriterCache:
    """One FileWriter a directory."""

    _writers: dict[str, FileWriter] = {}  # noqa: RUF012 - one for the process, as in TF

    @staticmethod
    def get(logdir: Any) -> FileWriter:
        """The writer of a directory, made at the first call, and anew after it was deleted."""
        key = str(Path(logdir).expanduser().resolve())
        writer = FileWriterCache._writers.get(key)
        if writer is not None and writer.lost:
            with contextlib.suppress(OSError):
                writer.close()
            writer = None
        if writer is None:
            writer = FileWriterCache._writers[key] = FileWriter(logdir)
        writer.reopen()
        return writer

    @staticmethod
    def flush(*, durable: bool = False) -> None:
        """Return when everything added to any of the writers is in its file, or on the disk."""
        for writer in FileWriterCache._writers.values():
            writer.flush(durable=durable)

    @staticmethod
    def clear() -> None:
        """Close all writers and forget them."""
        for writer in FileWriterCache._writers.values():
            writer.close()
        FileWriterCache._writers.clear()


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:
    Summary: Any
else:  # a type checker would believe that every name exists
    __getattr__ = missing("summary", __all__, {"Summary": "summaries._proto"})
