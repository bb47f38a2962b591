"""What `fit` writes: the event files of a run, and the tags that its measurements have there."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from optkit import summary
from optkit.graph import Graph, Tensor
from optkit.ops.summary_ops import merged_scalars
from summaries import encode_scalar

__all__ = ["RunLog", "Tags"]

_SPEED = "global_step/sec"


class Tags:
    """The tags of measurements: those of the graph's own summaries where it has some.

    Args:
        merged: all summaries that are written, as one; None where there are none.
        loss: the loss of training, where it is known.
    """

    def __init__(self, merged: Tensor | None, loss: Tensor | None) -> None:
        shown = [] if merged is None else merged_scalars(merged)
        self._shown = [(tag, _source(tensor)) for tag, tensor in shown]
        # Much may be called a loss: a tag that only ends so is that of another one.
        self._training = {
            "loss": self._found("loss", loss, loosely=loss is None),
            "learning_rate": self._found("learning_rate"),
            "gradient_norm": self._found("gradient_norm"),
        }

    def written(self, column: str) -> bool:
        """Whether a summary of the graph shows what this column of training has."""
        return self._training.get(column) is not None

    def of_evaluation(self, name: str, tensor: Tensor) -> str:
        """The tag of an evaluation: that which the same quantity has in training."""
        found = self._training["loss"] if name == "loss" else self._found(name, tensor)
        return found or name

    def _found(self, name: str, tensor: Tensor | None = None, loosely: bool = True) -> str | None:
        """The tag that is, or ends with, a name: best one of the tensor, then the name itself."""
        source = None if tensor is None else _source(tensor)
        ranked = [
            (shown is not source, tag != name, place, tag)
            for place, (tag, shown) in enumerate(self._shown)
            if f"/{tag}".endswith(f"/{name}")
        ]
        usable = [found for found in ranked if loosely or not (found[0] and found[1])]
        return min(usable)[-1] if usable else None


def _source(tensor: Tensor) -> Tensor:
    """What a tensor is but for identities, checks and casts."""
    while tensor.op.kind.name in ("Identity", "CheckNumerics", "Cast"):
        (tensor,) = tensor.op.inputs
    return tensor


class RunLog:
    """The event files of a run: its own, and that of its evaluations in `eval` below it.

    Args:
        logdir: the run's directory.
        start: the step that training starts from.
        tags: tells the tags.
        graph: the graph to write, None for a run that goes on.
    """

    def __init__(self, logdir: Path, start: int, tags: Tags, graph: Graph | None) -> None:
        self._logdir = logdir
        self._start = start
        self._tags = tags
        self._timed = start, time.perf_counter()
        self.train = summary.FileWriter(logdir, flush_secs=2)
        self.train.add_session_start(start + 1)
        if graph is not None:
            self.train.add_graph(graph, start)
        self._eval: summary.FileWriter | None = None

    def step(self, number: int, merged: bytes | None, values: Mapping[str, float]) -> None:
        """Write the summaries of a step, what the graph has no summary of, and the speed."""
        data = [] if merged is None else [merged]
        data += [encode_scalar(k, v) for k, v in values.items() if not self._tags.written(k)]
        now = time.perf_counter()
        before, begin = self._timed
        data.append(encode_scalar(_SPEED, (number - before) / (now - begin)))
        self._timed = number, now
        self.train.add_summary(b"".join(data), number)

    def evaluation(self, number: int, values: Mapping[str, tuple[Tensor, float]]) -> None:
        """Write the means of tensors, under the tags of training."""
        if self._eval is None:
            self._eval = summary.FileWriter(self._logdir / "eval", flush_secs=2)
            self._eval.add_session_start(self._start + 1)
        data = [
            encode_scalar(self._tags.of_evaluation(name, tensor), value)
            for name, (tensor, value) in values.items()
        ]
        self._eval.add_summary(b"".join(data), number)

    def back_to(self, step: int) -> None:
        """What was written of later steps counts no more."""
        self._start = step
        self._timed = step, time.perf_counter()
        for writer in (self.train, self._eval):
            if writer is not None:
                writer.add_session_start(step + 1)

    def flush(self) -> None:
        """Have all of it on disk."""
        for writer in (self.train, self._eval):
            if writer is not None:
                writer.flush()

    def close(self) -> None:
        """Have all of it on disk, and end."""
        for writer in (self.train, self._eval):
            if writer is not None:
                writer.close()
