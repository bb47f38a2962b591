"""The writer for everyday use: the method names of tensorboardX, one event a call."""

import os
import re
import socket
import time
from pathlib import Path
from types import TracebackType
from typing import Self, SupportsFloat

import numpy as np

from summaries import encode
from summaries._arrays import to_numpy
from summaries._warn import warn_once
from summaries.event_log import EventLog
from summaries.steps import Step
from summaries.tags import TagBook

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"  # %b would follow the locale
_LAYOUTS = ("HW", "HWC", "CHW")


class SummaryWriter:
    """Writes scalars, histograms, texts and images of one run for TensorBoard.

    A method takes `global_step` (None: the step of the newest event) and `walltime` (None: now).
    Two names that clean to one tag are warned of, as is a scalar that is not finite: once each. It
    may be used from any thread, and as a context manager.

    Args:
        logdir: the directory of the run; None is `runs/<month><day>_<time>_<host><comment>`.
        comment: ends the name of that directory; characters that are not safe in names become `-`.
        purge_step: the step at which a resumed run goes on, see `EventLog`.
        flush_secs: how long events may be gathered before they are written; 0 writes each at once.
        filename_suffix: ends the name of the event file.

    Raises:
        OSError: the directory cannot be created or written.
        ValueError: an argument is out of its range.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str] | None = None,
        comment: str = "",
        purge_step: Step | None = None,
        *,
        flush_secs: float = 0.0,
        filename_suffix: str = "",
    ) -> None:
        self._log = EventLog(
            _default_directory(comment) if logdir is None else logdir,
            filename_suffix=filename_suffix,
            flush_secs=flush_secs,
            start_step=purge_step,
        )
        self._tags = TagBook()

    @property
    def log(self) -> EventLog:
        """The event log behind the writer."""
        return self._log

    @property
    def logdir(self) -> Path:
        """The directory of the run."""
        return self._log.logdir

    def add_scalar(
        self,
        tag: str,
        scalar_value: object,
        global_step: Step | None = None,
        walltime: SupportsFloat | None = None,
    ) -> None:
        """Write one number; see `encode_scalar` for what it may be, and for the errors."""
        tag = self._tags.clean(tag)
        value = encode.real_scalar(tag, scalar_value)
        summary = encode.encode_scalar(tag, value)
        self._log.add_summary(summary, global_step, walltime)
        if not abs(value) <= _FLOAT32_MAX:
            warn_once("scalar", tag, message=f"the scalar {tag!r} is {value} as a float32")

    def add_histogram(
        self,
        tag: str,
        values: object,
        global_step: Step | None = None,
        buckets: str = "fast",
        walltime: SupportsFloat | None = None,
    ) -> None:
        """Write the distribution of an array; see `encode_histogram`, also for the errors."""
        summary = encode.encode_histogram(self._tags.clean(tag), values, buckets)
        self._log.add_summary(summary, global_step, walltime)

    def add_text(
        self,
        tag: str,
        text_string: object,
        global_step: Step | None = None,
        walltime: SupportsFloat | None = None,
    ) -> None:
        """Write a text in Markdown; see `encode_text`, also for the errors."""
        summary = encode.encode_text(self._tags.clean(tag), text_string)
        self._log.add_summary(summary, global_step, walltime)

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
        tag = self._tags.clean(tag)
        if dataformats not in _LAYOUTS:
            raise ValueError(f"dataformats must be one of {', '.join(_LAYOUTS)}: {dataformats!r}")
        image = to_numpy(img_tensor)
        if image.ndim != len(dataformats):
            raise ValueError(f"{tag!r} takes an image [{dataformats}], not shape {image.shape}")
        if dataformats == "CHW":
            image = np.moveaxis(image, 0, -1)
        elif dataformats == "HW":
            image = image[..., np.newaxis]
        self._log.add_summary(encode.image_bytes([tag], image[np.newaxis]), global_step, walltime)

    def add_summary(
        self,
        summary: bytes,
        global_step: Step | None = None,
        walltime: SupportsFloat | None = None,
    ) -> None:
        """Write the bytes of a Summary message; see `EventLog.add_summary`, also for the errors."""
        self._log.add_summary(summary, global_step, walltime)

    def flush(self) -> None:
        """Return when everything written so far is in the file, for any process to read."""
        self._log.flush()

    def close(self) -> None:
        """Close the file; what is called later, except `flush` and `close`, raises ValueError."""
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _default_directory(comment: str) -> Path:
    now = time.localtime()
    month = _MONTHS[3 * now.tm_mon - 3 : 3 * now.tm_mon]
    name = f"{month}{time.strftime('%d_%H-%M-%S', now)}_{socket.gethostname()}{comment}"
    return Path("runs", re.sub(r"[^A-Za-z0-9._=-]", "-", name)[:99])
