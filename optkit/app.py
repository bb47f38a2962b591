"""`tf.app`: running a script's main function, and its flags."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from optkit import flags

__all__ = ["flags", "run"]


def run(main: Callable[[list[str]], Any] | None = None, argv: Sequence[str] | None = None) -> None:
    """Read the flags, call `main` with what is left of the command line, and exit with its result.

    Args:
        main: the function; `main` of the script that was started if None.
        argv: the command line; the process's if None.

    Raises:
        ValueError: there is no main function.
        SystemExit: at the end, as TF.
    """
    if main is None:
        main = getattr(sys.modules["__main__"], "main", None)
        if main is None:
            raise ValueError("main: expected a function, and the script has none called main")
    sys.exit(main(flags.FLAGS(argv)))
