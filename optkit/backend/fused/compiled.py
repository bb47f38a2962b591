"""Loops compiled by Numba, where the `jit` extra is installed.

The source is written to a cache folder and imported from there, since Numba keeps compiled code
on disk for functions of real files only.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["available", "compiled"]


@functools.cache
def available() -> bool:
    """Whether Numba is installed."""
    return importlib.util.find_spec("numba") is not None


@functools.cache
def compiled(source: str, number: str) -> Callable[..., None]:
    """`loop` of a source, compiled; `number` is the NumPy type of its constants.

    Raises:
        ImportError: Numba is not installed.
    """
    import numba

    text = f"import numpy as np\n\nnumber = np.{number}\n\n\n{source}"
    path = _cached_file(text, numba.__version__)
    options = {"nogil": True, "error_model": "numpy"}
    if path is None:
        namespace: dict[str, Any] = {}
        exec(compile(text, "<optkit update>", "exec"), namespace)
        return _njit(numba, namespace["loop"], options)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Numba finds the file of a cached function through its module.
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return _njit(numba, module.loop, {**options, "cache": True})


def _njit(
    numba: Any, function: Callable[..., None], options: dict[str, Any]
) -> Callable[..., None]:
    made: Callable[..., None] = numba.njit(**options)(function)
    return made


def _cached_file(text: str, version: str) -> Path | None:
    """The file that holds `text`, written if need be; None where no folder can be written."""
    digest = hashlib.sha256(f"{version}\n{text}".encode()).hexdigest()[:24]
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    folder = Path(base) / "optkit" / "updates"
    path = folder / f"optkit_update_{digest}.py"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            # Renamed into place: another process never imports half of it.
            with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".tmp", delete=False) as file:
                file.write(text)
            Path(file.name).replace(path)
    except OSError:
        return None
    return path
