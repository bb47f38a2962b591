"""Why a step is not finite: its run is repeated with all values kept, and explained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from optkit.graph import Tensor
from optkit.runtime.execution import Run
from optkit.runtime.fetches import as_feeds
from optkit.runtime.plan import Plan, Step
from optkit.runtime.trace import Node, Trace, is_float, traced

__all__ = ["CHECKS", "Report", "describe_values", "observe", "report"]

CHECKS = ("CheckNumerics", "CheckFinite")
"""The types of operations that raise when a value is not finite."""

_SHOWN_ROWS = 16


class _Kept(Run):
    """A run that lets what is not finite pass, and is never made the session's state."""

    def _results(self, step: Step) -> Sequence[Any]:
        if step.op.kind.name in CHECKS:
            return (self.values[step.inputs[0]],)
        return super()._results(step)


def observe(session: Any, fetches: Sequence[Tensor], feed_dict: Mapping[Any, Any]) -> Trace:
    """Run `fetches` as the session would now, keep every value and change nothing.

    An operation that raises ends it; its error is in the trace.
    """
    graph, backend = session.graph, session._backend
    with session._lock:
        feeds = as_feeds(graph, backend, feed_dict)
        plan = Plan(graph, list(fetches), list(feeds))
        run = _Kept(graph, backend, plan, session._state, session._entropy, list(feeds.values()))
        error: Exception | None = None
        try:
            run.compute()
        except Exception as failure:  # noqa: BLE001 - it is the result
            error = failure
        trace = traced(plan, run.values, backend)
        trace.error = error
    return trace


# -- what is told ---------------------------------------------------------------------------------


def describe_values(name: str, value: np.ndarray[Any, Any] | None) -> str:
    """A tensor in words: dtype, shape, how much of it is not finite, the range of the rest."""
    if value is None:
        return f"{name}: not computed"
    text = f"{name}: {value.dtype} {value.shape}"
    if value.dtype == object or not value.size:
        return text
    if not is_float(value):
        return f"{text}, from {value.min()} to {value.max()}"
    wide = value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)
    if wide.dtype.kind == "c":
        return text
    nan, inf = int(np.isnan(wide).sum()), int(np.isinf(wide).sum())
    counts = [f"{count} {what}" for count, what in ((nan, "NaN"), (inf, "infinite")) if count]
    if counts:
        text += f", {' and '.join(counts)} of {value.size}"
    finite = wide[np.isfinite(wide)]
    if finite.size:
        rest = "the rest " if counts else ""
        low, high = finite.min(), finite.max()
        text += f", {rest}all {low:.6g}" if low == high else f", {rest}from {low:.6g} to {high:.6g}"
        zeros = int((finite == 0).sum())
        if zeros and not (low == high == 0):
            text += f", {zeros} zero{'' if zeros == 1 else 's'}"
    return text


@dataclass(frozen=True)
class Report:
    """What was not finite, and where it came from; its `str` is the explanation.

    Attributes:
        what: e.g. "the loss is nan".
        step: the global step that was not taken, or None.
        origin: the operation, fed array or variable that it came from; None where all values
            were finite when the run was repeated.
        rows: the rows of the batch that are not finite at the origin, where it has rows.
        variable: the variable whose gradient broke first, or None.
        lines: the rest of the explanation.
    """

    what: str
    step: int | None
    origin: Node | None
    rows: tuple[int, ...]
    variable: str | None
    lines: tuple[str, ...]

    def __str__(self) -> str:
        begin = "" if self.step is None else f"step {self.step}: "
        return "\n  ".join([begin + self.what, *self.lines])


def report(
    trace: Trace,
    loss: str | None,
    gradients: Mapping[str, str],
    step: int | None,
) -> Report:
    """Explain what is not finite in a trace.

    Args:
        trace: the repeated run.
        loss: the name of the loss's tensor.
        gradients: the name of a variable -> that of its gradient's tensor.
        step: the global step that would have been taken.
    """
    order = {tensor: i for i, node in enumerate(trace.nodes) for tensor in node.outputs}
    broken = [(order.get(g, 0), v, g) for v, g in gradients.items() if trace.bad(g)]
    variable = min(broken)[1] if broken else None
    if loss is not None and trace.bad(loss):
        what, targets = f"the loss is {_shown(trace.values[loss])}", [loss]
    elif broken:
        what, targets = f"the gradient of variable {variable!r} is not finite", [min(broken)[2]]
    else:
        why = "the norm of the gradients is beyond the range of its dtype"
        return Report(f"loss and gradients are finite, but {why}", step, None, (), None, ())
    origin = trace.origin(targets)
    lines: list[str] = []
    rows: tuple[int, ...] = ()
    if origin is not None:
        rows = _rows(trace, origin)
        lines += _told(trace, origin, rows)
    if variable is not None:
        lines.append(
            f"the first variable whose gradient is not finite is {variable!r}: "
            f"{describe_values('gradient', trace.values.get(gradients[variable]))}"
        )
    return Report(what, step, origin, rows, variable, tuple(lines))


def _shown(value: np.ndarray[Any, Any]) -> str:
    return str(value[()]) if value.ndim == 0 else "not finite"


def _told(trace: Trace, origin: Node, rows: tuple[int, ...]) -> list[str]:
    if origin.source == "fed":
        lines = [f"it came with {origin.told}"]
    elif origin.source == "variable":
        lines = [f"it came from {origin.told}, which was not finite before the step"]
    elif origin.forward:
        lines = [
            f"the first value that is not finite is in the gradient of {origin.forward}",
            f"in {origin.told}" if origin.told != origin.forward else "",
        ]
    else:
        lines = [f"the first value that is not finite came from {origin.told}"]
    lines = [line for line in lines if line]
    for name in dict.fromkeys(origin.inputs):
        lines.append(f"  input  {describe_values(name, trace.values.get(name))}")
    for name in origin.outputs:
        lines.append(f"  output {describe_values(name, trace.values.get(name))}")
    if rows:
        shown = ", ".join(map(str, rows[:_SHOWN_ROWS]))
        more = f" and {len(rows) - _SHOWN_ROWS} more" if len(rows) > _SHOWN_ROWS else ""
        lines.append(f"  in row{'' if len(rows) == 1 else 's'} {shown}{more} of the batch")
    return lines


def _rows(trace: Trace, origin: Node) -> tuple[int, ...]:
    """The rows along the first axis that are not finite, where that is the batch's."""
    sizes = {
        value.shape[0]
        for node in trace.nodes
        if node.source == "fed"
        for name in node.outputs
        if (value := trace.values.get(name)) is not None and value.ndim
    }
    for name in origin.outputs:
        value = trace.values.get(name)
        if value is not None and value.ndim and value.shape[0] in sizes and is_float(value):
            flat = value.reshape(len(value), -1)
            return tuple(np.flatnonzero(~np.isfinite(flat).all(axis=1)).tolist())
    return ()
