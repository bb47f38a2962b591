"""Telling, once, that a device waits for the host: steps too small to be worth one."""

from __future__ import annotations

import logging

__all__ = ["Pace"]

_FIRST = 100
"""Steps before a program is looked at: kernels are compiled and memory is pooled by then."""
_COUNT = 20
"""Steps it is looked at, of which each waits for the device."""
_SHARE = 4
"""How many times longer queueing must take than waiting afterwards."""

_log = logging.getLogger("optkit")
_told = False


class Pace:
    """How the time of a program's steps is spent.

    While a step queues its kernels the device works on them; what is left to do when the last one
    has been queued is what the host then waits for. Where that is little, the device has waited for
    the host, and a program for NumPy may well be faster.
    """

    def __init__(self) -> None:
        self._steps = 0
        self._queueing = 0.0
        self._waiting = 0.0

    def looks(self) -> bool:
        """Whether the step that begins is to be timed."""
        self._steps += 1
        return not _told and _FIRST <= self._steps < _FIRST + _COUNT

    def note(self, queueing: float, waiting: float) -> None:
        """What a timed step took, in seconds; gives the advice after the last one."""
        global _told
        self._queueing += queueing
        self._waiting += waiting
        if self._steps == _FIRST + _COUNT - 1 and self._queueing > _SHARE * self._waiting:
            _told = True
            _log.warning(
                "a step queues kernels for %.2g ms and the device is done %.2g ms later: it waits "
                "for the host. Larger batches use it better; for tensors of this size "
                "Session(backend='numpy') may be faster",
                1e3 * self._queueing / _COUNT,
                1e3 * self._waiting / _COUNT,
            )
