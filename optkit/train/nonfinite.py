"""What to do about a step whose loss or gradients are not finite, and how to explain it."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from optkit import logging
from optkit.errors import NonFiniteError, OpError
from optkit.runtime.diagnosis import CHECKS, Report, observe, report
from optkit.train.guard import Anatomy
from optkit.train.reproduction import save_reproduction

__all__ = [
    "LIMIT",
    "POLICIES",
    "ROLLBACKS",
    "check_policy",
    "explain",
    "explained",
    "is_last",
    "is_nonfinite",
]

POLICIES = ("raise", "skip", "rollback", "ignore")
"""The values of `on_nonfinite`."""

LIMIT = 100
"""Failed steps in a row after which the last one is explained and raised."""

ROLLBACKS = 10
"""How often training goes back to one state before what is wrong is raised."""


def check_policy(value: Any) -> str:
    """Refuse what is no policy with a ValueError."""
    if value not in POLICIES:
        raise ValueError(f"on_nonfinite: expected one of {', '.join(POLICIES)}, got {value!r}")
    return str(value)


def is_last(policy: str, in_a_row: int, rollbacks: int) -> bool:
    """Whether a failed step is to be explained and raised: by its policy, or as it goes on so."""
    return policy == "raise" or in_a_row >= LIMIT or rollbacks >= ROLLBACKS


def is_nonfinite(error: BaseException) -> bool:
    """Whether an error is that of an operation that checks for finite values."""
    return isinstance(error, OpError) and error.op is not None and error.op.kind.name in CHECKS


def explain(
    session: Any,
    parts: Anatomy,
    feeds: Mapping[Any, Any],
    *,
    step: int | None,
    batch: Callable[[Sequence[int]], str],
    folder: Path | None,
    keep: bool = True,
) -> tuple[Report, Path | None]:
    """Find out where the values of a step that was not taken went wrong.

    Args:
        session: the session, as it was when the step failed.
        parts: the train op.
        feeds: what the step was fed.
        step: the number that the step would have had.
        batch: tells which batch it was, given the rows of it that are not finite.
        folder: where to leave the file that runs the step again; a temporary one if None.
        keep: whether to leave that file.

    Returns:
        The explanation, and the path of the file.
    """
    gradients = {name: tensor.name for name, tensor in parts.gradients.items()}
    trace = observe(session, [*parts.losses, *parts.gradients.values()], feeds)
    losses = [loss.name for loss in parts.losses]
    loss = next(filter(trace.bad, losses), losses[0] if losses else None)
    found = report(trace, loss, gradients, step)
    if not keep or found.origin is None:
        return found, None
    place = Path(tempfile.mkdtemp(prefix="optkit-")) if folder is None else folder
    path = place / f"nonfinite-{step if step is not None else 0}.safetensors"
    try:
        place.mkdir(parents=True, exist_ok=True)
        save_reproduction(path, trace, loss, gradients, found, batch(found.rows))
    except (OSError, TypeError, ValueError) as error:  # the explanation must not be lost over it
        logging.warning("no file to run the step again could be written: %s", error)
        return found, None
    return found, path


def explained(found: Report, path: Path | None, batch: str) -> NonFiniteError:
    """The error to raise: the explanation, which batch it was, and what to do next."""
    lines = [f"LossTensor is inf or nan, or a gradient is, at {found}"]
    lines.append(f"it was {batch}")
    lines.append("nothing has changed: no variable, slot, step or summary")
    if path is not None:
        lines.append(f"to run this step again: optkit debug {path}")
    return NonFiniteError("\n  ".join(lines), found, path)
