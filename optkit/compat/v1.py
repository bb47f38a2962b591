"""`import optkit.compat.v1 as tf`: all of optkit under this name too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import optkit

if TYPE_CHECKING:  # editors and type checkers see all names, and none that is not there
    from optkit import *  # noqa: F403
else:

    def __getattr__(name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(optkit, name)


def __dir__() -> list[str]:
    return sorted(optkit.__all__)
