"""The writer for everyday use: the methods of tensorboardX's, and one event a step."""

import json
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NoReturn, Self, SupportsFloat, get_args

import numpy as np

from summaries import encode
from summaries._arrays import to_numpy
from summaries._foreign import FileWriter, FromTensorboardX, writer_over
from summaries._warn import warn_once
from summaries.cadence import Cadence
from summaries.event_log import EventLog, check_summary
from summaries.event_queue import PATIENCE
from summaries.hparams import Scalar, Status, check_hparam, experiment, session_end, session_start
from summaries.metadata import SCALAR, Annotator, SummaryBytes, metadata_bytes
from summaries.reader import Run
from summaries.step_scope import Defaults, StepScope, innermost
from summaries.steps import Step, check_step
from summaries.tags import TagBook, utf8
from summaries.wire import pack_float, scalar_head

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"  # %b would follow the locale
_LAYOUTS = ("HW", "HWC", "CHW")
# NumPy's ways to choose bins, which tensorboardX takes; the fast grid is finer than what they give.
_BINS = ("auto", "doane", "fd", "rice", "scott", "sqrt", "stone", "sturges")


class SummaryWriter:
    """Writes scalars, histograms, texts, images and more of one run for TensorBoard.

    A method takes `global_step` (None: the step of the newest event) and `walltime` (None: now).
    Two names that clean to one tag are warned of, as is a scalar that is not finite: once each. It
    may be used from any thread, and as a context manager. All goes into one event file; how and
    when, and what happens when the disk fails, see `EventLog`.

    It has every public method of the SummaryWriters of tensorboardX and PyTorch, whose arguments
    go by name where the two have several orders. Those that are not written here
    (figures, audio, video, meshes, precision-recall curves, embeddings, graphs of PyTorch and so
    on) are tensorboardX's own and need the packages that it needs: Pillow, matplotlib, PyTorch.

    Args:
        logdir: the directory of the run; None is `runs/<month><day>_<time>_<host><comment>`.
        comment: ends the name of that directory; characters that are not safe in names become `-`.
        purge_step: the same as `resume_step`.
        max_queue: accepted as in tensorboardX; see `EventLog` for what waits how long.
        flush_secs: see `EventLog`.
        filename_suffix: ends the name of the event file.
        write_to_disk: see `EventLog`.
        log_dir: the same as `logdir`, as PyTorch has it.
        resume_step: the step at which a resumed run goes on, see `EventLog` (`start_step`).
        on_error: "raise", or "warn" to issue warnings for errors of the disk, and for values that
            are refused, and go on.
        layout: whether the tags of an optimizer come with a layout of TensorBoard's page of custom
            scalars.
        every_n_steps: in `with writer.step(n)`, write scalars every so many steps.
        every_secs: the same in seconds.
        histograms_every_n_steps: the same for all that is no scalar.
        histograms_every_secs: the same in seconds.
        fsync: see `EventLog`.
        flush_on_sigterm: see `EventLog`.

    Raises:
        OSError: the directory cannot be created or written.
        ValueError: an argument is out of its range.
    """

    add_audio = FromTensorboardX()
    add_custom_scalars_marginchart = FromTensorboardX()
    add_custom_scalars_multilinechart = FromTensorboardX()
    add_embedding = FromTensorboardX()
    add_figure = FromTensorboardX()
    add_graph = FromTensorboardX()
    add_histogram_raw = FromTensorboardX()
    add_image_with_boxes = FromTensorboardX()
    add_images = FromTensorboardX()
    add_mesh = FromTensorboardX()
    add_onnx_graph = FromTensorboardX()
    add_openvino_graph = FromTensorboardX()
    add_pr_curve = FromTensorboardX()
    add_pr_curve_raw = FromTensorboardX()
    add_video = FromTensorboardX()

    def __init__(
        self,
        logdir: str | os.PathLike[str] | None = None,
        comment: str = "",
        purge_step: Step | None = None,
        max_queue: int = 10,
        flush_secs: float = 2.0,
        filename_suffix: str = "",
        write_to_disk: bool | None = None,
        log_dir: str | os.PathLike[str] | None = None,
        *,
        resume_step: Step | None = None,
        on_error: Literal["raise", "warn"] = "raise",
        layout: bool = True,
        every_n_steps: int | None = None,
        every_secs: float | None = None,
        histograms_every_n_steps: int | None = None,
        histograms_every_secs: float | None = None,
        fsync: bool = False,
        flush_on_sigterm: bool = False,
    ) -> None:
        if logdir is not None and log_dir is not None:
            raise ValueError("give logdir or log_dir, not both")
        if purge_step is not None and resume_step is not None:
            raise ValueError("give resume_step or purge_step, not both")
        self._cadences = (
            Cadence(every_n_steps, every_secs),
            Cadence(histograms_every_n_steps, histograms_every_secs),
        )
        directory = logdir if logdir is not None else log_dir
        self._log = EventLog(
            _default_directory(comment) if directory is None else directory,
            filename_suffix=filename_suffix,
            flush_secs=flush_secs,
            fsync=fsync,
            start_step=purge_step if resume_step is None else resume_step,
            on_error=on_error,
            write_to_disk=write_to_disk,
            flush_on_sigterm=flush_on_sigterm,
        )
        self._writes = self._log.writes
        self._warns = on_error == "warn"
        self._layout = layout
        self._annotated = Annotator(layout=layout)
        self._tags = TagBook()
        self._heads: dict[str, bytes] = {}
        self._hparams: dict[str, Scalar] = {}
        self._group: str | None = None
        self._hparams_wait = False
        self._hparams_written = False

    def __reduce__(self) -> NoReturn:
        self._log.__reduce__()

    @property
    def log(self) -> EventLog:
        """The event log behind the writer."""
        return self._log

    @property
    def logdir(self) -> Path:
        """The directory of the run."""
        return self._log.logdir

    @property
    def log_dir(self) -> str:
        """The directory of the run as a string, as PyTorch has it."""
        return str(self._log.logdir)

    def get_logdir(self) -> str:
        """The directory of the run as a string."""
        return str(self._log.logdir)

    @cached_property
    def file_writer(self) -> FileWriter:
        """What tensorboardX's writer has for its file."""
        return FileWriter(self.logdir, self.add_encoded, self._log.add_event, self._tags)

    @cached_property
    def tensorboardx(self) -> Any:
        """A writer of tensorboardX that writes into the file of this one."""
        return writer_over(self.file_writer)

    # -- steps

    def step(self, n: Step, *, walltime: SupportsFloat | None = None) -> StepScope:
        """A context in which all that is added for this step becomes one event, at its end.

        What is added there needs no step. Steps that the cadence of the writer leaves out cost
        nothing: their values are not even looked at. The context tells what is due, so that they
        need not be made either:

            with writer.step(n) as due:
                writer.add_scalar("loss", loss)
                if due.histograms:
                    writer.add_histogram("h", activations())

        It holds for the thread and the asyncio task it is used in. If the body raises, what was
        added is written.

        Raises:
            TypeError, ValueError: the step is none, or the time.
        """
        return StepScope(
            self,
            n,
            walltime,
            self._cadences if self._writes else None,
            self._log.add_encoded,
        )

    @contextmanager
    def use_metadata(
        self, *, global_step: Step | None = None, walltime: SupportsFloat | None = None
    ) -> Iterator[Self]:
        """A context in which events without step or wall time have these."""
        with Defaults(self, global_step, walltime):
            yield self

    def add_encoded(
        self,
        summary: bytes,
        global_step: Step | None = None,
        walltime: SupportsFloat | None = None,
    ) -> None:
        """As `add_summary`, of bytes that are known to be a Summary message: they are not parsed.

        Raises:
            OSError, TypeError, ValueError: as `EventLog.add_summary` does.
        """
        self._put(summary, self._scope(global_step), global_step, walltime)

    def _put(
        self,
        summary: bytes,
        scope: StepScope | None,
        global_step: Step | None,
        walltime: SupportsFloat | None,
    ) -> None:
        """As `add_encoded`, in the step that `_scope` gives for the call."""
        if self._hparams_wait:
            self._write_hparams()
        if isinstance(summary, SummaryBytes):
            summary = self._annotated(summary)
        if scope is not None:
            scope.parts.append(summary)
            return
        defaults = innermost(Defaults, self)
        if defaults is not None:
            global_step = defaults.step if global_step is None else global_step
            walltime = defaults.wall_time if walltime is None else walltime
        self._log.add_encoded(summary, global_step, walltime)

    def _scope(self, global_step: Step | None) -> StepScope | None:
        """The step that this call is in, unless it names another one."""
        scope = innermost(StepScope, self)
        if scope is None or global_step is None:
            return scope
        return scope if check_step(global_step) == scope.step else None

    @property
    def current_step(self) -> int:
        """What `global_step=None` means now."""
        scope = innermost(StepScope, self)
        if scope is not None:
            return scope.step
        defaults = innermost(Defaults, self)
        if defaults is not None and defaults.step is not None:
            return defaults.step
        return self._log.last_step

    def is_due(self, global_step: Step | None = None, *, scalar: bool = False) -> bool:
        """Whether a scalar, or else anything but a scalar, would be written now.

        It is, unless within a `step` that the cadence leaves out, or where nothing is written.
        """
        scope = self._scope(global_step)
        if scope is not None:
            return scope.scalars if scalar else scope.histograms
        return self._writes

    # -- scalars

    def add_scalar(
        self,
        tag: str,
        scalar_value: object,
        global_step: Step | None = None,
        walltime: SupportsFloat | None = None,
        display_name: str = "",
        summary_description: str = "",
        *,
        new_style: bool = False,
        double_precision: bool = False,
    ) -> None:
        """Write one number; see `encode_scalar` for what it may be, and for the errors.

        With the first value of a tag TensorBoard takes the name and the description, in Markdown,
        that it shows for it. `new_style` stores the number as a tensor, as PyTorch has it, and
        `double_precision` as one of float64; TensorBoard's charts are of float32 all the same.
        """
        scope = self._scope(global_step)
        if not (self._writes if scope is None else scope.scalars):
            return
        if new_style or double_precision:
            metadata = metadata_bytes("scalars", SCALAR, display_name, summary_description)
            self._add(
                _tensor_scalar,
                tag,
                scalar_value,
                global_step,
                walltime,
                double_precision,
                metadata,
            )
            return
        head = self._heads.get(tag)
        if head is None:
            head = self._first_head(tag, display_name, summary_description)
        if type(scalar_value) is float and -_FLOAT32_MAX <= scalar_value <= _FLOAT32_MAX:
            data = head + pack_float(scalar_value)
        else:
            data = self._odd_scalar(tag, scalar_value, head)
        self._put(data, scope, global_step, walltime)

    def _first_head(self, name: str, display_name: str, description: str) -> bytes:
        """What comes before the number, this once with what TensorBoard shows beside it."""
        tag = self._tags.clean(name)
        first = head = scalar_head(tag)
        if display_name or description:
            first = scalar_head(tag, metadata_bytes("scalars", SCALAR, display_name, description))
        self._heads[name] = head
        return first

    def _odd_scalar(self, name: str, scalar_value: object, head: bytes) -> bytes:
        try:
            value = encode.real_scalar(name, scalar_value)
        except (TypeError, ValueError) as error:
            return self._refused(name, error)
        data = head + encode.scalar_bytes("", value)[-4:]
        if not abs(value) <= _FLOAT32_MAX:
            warn_once("scalar", name, message=f"the scalar {name!r} is {value} as a float32")
        return data

    def add_scalars(
        self,
        main_tag: str,
        tag_scalar_dict: Mapping[str, object],
        global_step: Step | None = None,
        walltime: SupportsFloat | None = None,
    ) -> None:
        """Write several numbers in one event, under `<main_tag>/<tag>` each.

        TensorboardX opens a run, a file and threads for each tag instead.
        """
        if not self.is_due(global_step, scalar=True):
            return
        parts = []
        for tag, value in tag_scalar_dict.items():
            name = f"{main_tag}/{tag}"
            head = self._heads.get(name) or self._first_head(name, "", "")
            parts.append(self._odd_scalar(name, value, head))
        self.add_encoded(b"".join(parts), global_step, walltime)

    def export_scalars_to_json(self, path: str | os.PathLike[str]) -> None:
        """Write the scalars of this writer's file as JSON: {name: [[time, step, value], ...], ...}.

        A name is `<directory>/<tag>`, as tensorboardX has it. The file is read back for this.

        Raises:
            OSError: a file cannot be read or written.
        """
        self.flush()
        run = Run([] if self._log.path is None else [self._log.path])
        points = {
            f"{self.logdir}/{tag}": [
                [wall_time.item(), step.item(), value.item()]
                for step, value, wall_time in zip(*columns, strict=True)
            ]
            for tag, columns in run.all_scalars().items()
        }
        Path(path).write_text(json.dumps(points))

    # -- all else

    def add_histogram(
        self,
        tag: str,
        values: object,
        global_step: Step | None = None,
        buckets: str | int = "fast",
        walltime: SupportsFloat | None = None,
        max_bins: int | None = None,
        *,
        bins: str | None = None,
    ) -> None:
        """Write the distribution of an array; see `encode_histogram`, also for the errors.

        `bins`, at the place of `buckets` or by name, takes tensorboardX's values too: "tensorflow"
        is the grid "tf"; NumPy's "auto", "fd" and so on get the fast one, with at most `max_bins`.
        """
        if not self.is_due(global_step):
            return
        grid = buckets if bins is None else bins
        if grid == "tensorflow":
            grid = "tf"
        elif grid in _BINS:
            grid = max_bins or "fast"
        self._add(encode.encode_histogram, tag, values, global_step, walltime, grid)

    def add_tensor(
        self,
        tag: str,
        tensor: object,
        global_step: Step | None = None,
        walltime: SupportsFloat | None = None,
    ) -> None:
        """Write an array as it is, for `read`; see `encode_tensor`, also for the errors."""
        if self.is_due(global_step):
            self._add(encode.encode_tensor, tag, tensor, global_step, walltime)

    def add_text(
        self,
        tag: str,
        text_string: object,
        global_step: Step | None = None,
        walltime: SupportsFloat | None = None,
    ) -> None:
        """Write a text in Markdown; see `encode_text`, also for the errors."""
        if self.is_due(global_step):
            self._add(encode.encode_text, tag, text_string, global_step, walltime)

    def add_image(
        self,
        tag: str,
        img_tensor: object,
        global_step: Step | None = None,
        walltime: SupportsFloat | None = None,
        dataformats: str = "CHW",
    ) -> None:
        """Write one image under its tag, as it is; values as in `encode_image`.

        Raises:
            TypeError: the dtype is neither uint8 nor float.
            ValueError: `dataformats` is not HW, HWC or CHW, or the shape does not fit it.
        """
        if self.is_due(global_step):
            self._add(_image_summary, tag, img_tensor, global_step, walltime, dataformats)

    def add_custom_scalars(self, layout: Mapping[str, Mapping[str, Any]]) -> None:
        """Arrange scalars on TensorBoard's page of custom scalars; no other layout is written.

        Args:
            layout: category -> title of a chart -> ["Multiline" or "Margin", [tags or regular
                expressions of them]], as tensorboardX takes it.
        """
        self._layout = False
        self._annotated = Annotator(layout=False)
        self.tensorboardx.add_custom_scalars(layout)

    def add_summary(
        self,
        summary: Any,
        global_step: Step | None = None,
        walltime: SupportsFloat | None = None,
    ) -> None:
        """Write a Summary, a message or its bytes; as `EventLog.add_summary` takes them."""
        if hasattr(summary, "SerializeToString"):
            summary = summary.SerializeToString()
        checked = summary if isinstance(summary, SummaryBytes) else check_summary(summary)
        self.add_encoded(checked, global_step, walltime)

    def _add(
        self,
        encoded: Callable[..., bytes],
        name: str,
        value: object,
        global_step: Step | None,
        walltime: SupportsFloat | None,
        *options: object,
    ) -> None:
        tag = self._tags.clean(name)
        try:
            data = encoded(tag, value, *options)
        except (TypeError, ValueError) as error:
            data = self._refused(tag, error)
        self.add_encoded(data, global_step, walltime)

    def _refused(self, name: str, error: Exception) -> bytes:
        """No bytes in place of a value that cannot be written, or its error."""
        if not self._warns:
            raise error
        warn_once("refused", name, message=f"{error}; it is left out")
        return b""

    # -- the run

    def hparams(self, values: Mapping[str, object], group: str | None = None) -> None:
        """Set hyper-parameters of the run, for TensorBoard's page of them; no other run is made.

        They are written before the next event, at `flush` or at `close`; further calls add to
        them. TensorBoard keeps what it sees first, so a change after that is warned of.

        Args:
            values: name -> a bool, int, float or str, of Python or NumPy.
            group: the runs of one group share a row of the table: those of several seeds, say.

        Raises:
            TypeError, ValueError: a value is of another kind, or not finite; none is taken then.
        """
        if not isinstance(values, Mapping):
            raise TypeError(f"hyper-parameters are a mapping, not {type(values).__name__}")
        if group is not None:
            utf8("the group of a run", group)
        checked = {name: check_hparam(name, value) for name, value in values.items()}
        merged = self._hparams | checked
        if self._hparams_written and merged != self._hparams:
            warn_once(
                "hparams",
                str(self.logdir),
                message=f"the hyper-parameters of {self.logdir} change after they were written; "
                "TensorBoard shows the first ones; add_hparams(..., run_name=) makes another run",
            )
        self._hparams = merged
        self._group = self._group if group is None else group
        self._hparams_wait = True

    def add_hparams(
        self,
        hparam_dict: Mapping[str, object],
        metric_dict: Mapping[str, object],
        name: str | None = None,
        global_step: Step | None = None,
        *,
        hparam_domain_discrete: Mapping[str, Sequence[object]] | None = None,
        run_name: str | None = None,
    ) -> None:
        """Set hyper-parameters, see `hparams`, and write scalars, both in this run itself.

        Args:
            hparam_dict: name -> value of the hyper-parameters.
            metric_dict: tag -> scalar.
            name: the name of a run below this one, which is written and ended instead of this one;
                of many sets of hyper-parameters, each needs its own.
            global_step: the step of the scalars.
            hparam_domain_discrete: name -> all the values that the hyper-parameter takes; with it
                TensorBoard's page shows these hyper-parameters and scalars, and no others, see
                `write_experiment`.
            run_name: the same as `name`, as PyTorch has it.

        Raises:
            OSError, TypeError, ValueError: as `hparams`, `add_scalar` and `write_experiment` do.
        """
        if name is not None and run_name is not None:
            raise ValueError("give name or run_name, not both")
        run = name if run_name is None else run_name
        if run is not None and not isinstance(run, str):
            raise TypeError(f"the name of a run is a str, not {type(run).__name__} {run!r:.60}")
        if run:
            step = self.current_step if global_step is None else global_step
            with SummaryWriter(
                self.logdir / run,
                write_to_disk=self._writes,
                on_error="warn" if self._warns else "raise",
            ) as below:
                below.add_hparams(
                    hparam_dict,
                    metric_dict,
                    global_step=step,
                    hparam_domain_discrete=hparam_domain_discrete,
                )
            return
        sweep = None
        if hparam_domain_discrete is not None:
            sweep = _sweep(hparam_dict, metric_dict, hparam_domain_discrete)
        self.hparams(hparam_dict)
        if sweep is not None:
            self.add_encoded(sweep, global_step)
        for tag, value in metric_dict.items():
            self.add_scalar(tag, value, global_step)

    def _write_hparams(self) -> None:
        self._log.add_encoded(session_start(self._hparams, self._group))
        self._hparams_wait = False
        self._hparams_written = True

    def flush(self, timeout: float = PATIENCE) -> None:
        """Return when everything written so far is in the file; see `EventLog.flush`."""
        if self._hparams_wait:
            self._write_hparams()
        self._log.flush(timeout)

    def close(self, status: Status | None = None, *, timeout: float = PATIENCE) -> None:
        """Close the file; what is called later, except `flush` and `close`, raises ValueError.

        Args:
            status: how the run ended, for TensorBoard's page of hyper-parameters, where it has any:
                "success", "failure" or "unknown". None is a success, unless an exception is being
                handled: then the run, which may yet be resumed, stays unknown. TensorBoard keeps
                the first one.
            timeout: see `EventLog.close`, also for the errors.

        Raises:
            ValueError: the status is none of these.
        """
        if status is not None and status not in get_args(Status):
            raise ValueError(f"status must be one of {', '.join(get_args(Status))}: {status!r}")
        if self._log.closed:
            return
        if status is None:
            status = "success" if sys.exc_info()[0] is None else "unknown"
        try:
            if self._hparams_wait:
                self._write_hparams()
            if self._hparams_written and status != "unknown":
                self._log.add_encoded(session_end(status))
        finally:
            self._log.close(timeout)

    def reopen(self) -> None:
        """Go on in a new file after `close`; an open writer is left as it is."""
        if self._log.closed:
            self._log.reopen()
            self._heads.clear()
            self._annotated = Annotator(layout=self._layout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close("success" if kind is None else "unknown")


def _tensor_scalar(tag: str, value: object, double: bool, metadata: bytes) -> bytes:
    number = encode.real_scalar(tag, value)
    if not abs(number) <= (sys.float_info.max if double else _FLOAT32_MAX):
        kind = "float64" if double else "float32"
        warn_once("scalar", tag, message=f"the scalar {tag!r} is {number} as a {kind}")
    return encode.scalar_tensor_bytes(tag, number, double, metadata)


def _sweep(
    hparams: Mapping[str, object],
    metrics: Mapping[str, object],
    domains: Mapping[str, Sequence[object]],
) -> bytes:
    """The record of a sweep that takes these values, and any of the other hyper-parameters."""
    unknown = [name for name in domains if name not in hparams]
    if unknown:
        raise ValueError(f"hparam_domain_discrete has {unknown[0]!r}, hparam_dict has not")
    kinds = {name: type(check_hparam(name, value)) for name, value in hparams.items()}
    return experiment({**kinds, **{name: list(each) for name, each in domains.items()}}, metrics)


def _image_summary(tag: str, img_tensor: object, dataformats: str) -> bytes:
    if dataformats not in _LAYOUTS:
        raise ValueError(f"dataformats must be one of {', '.join(_LAYOUTS)}: {dataformats!r}")
    image = to_numpy(img_tensor)
    if image.ndim != len(dataformats):
        raise ValueError(f"{tag!r} takes an image [{dataformats}], not shape {image.shape}")
    if dataformats == "CHW":
        image = np.moveaxis(image, 0, -1)
    elif dataformats == "HW":
        image = image[..., np.newaxis]
    return encode.image_bytes([tag], image[np.newaxis])


def _default_directory(comment: str) -> Path:
    now = time.localtime()
    month = _MONTHS[3 * now.tm_mon - 3 : 3 * now.tm_mon]
    name = f"{month}{time.strftime('%d_%H-%M-%S', now)}_{socket.gethostname()}{comment}"
    return Path("runs", re.sub(r"[^A-Za-z0-9._=-]", "-", name)[:99])
