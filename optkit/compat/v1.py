"""`import optkit.compat.v1 as tf`: all of optkit under this name too."""

from __future__ import annotations

from typing import Any

import optkit


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        return getattr(optkit, name)
    except AttributeError:
        raise AttributeError(f"optkit has no {name!r}") from None


def __dir__() -> list[str]:
    return sorted(optkit.__all__)
