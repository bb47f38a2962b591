"""What was built once and is kept: the simulator, a stand-in cuBLAS, a library for each kernel."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

NATIVE = Path(__file__).parent / "native"
COMPILER = ("g++", "-std=c++17", "-O1", "-w", "-fPIC")


class CusimError(ImportError):
    """The simulator cannot be set up here."""


def folder() -> Path:
    """Where built parts are kept: OPTKIT_CUSIM_CACHE, else ~/.cache/optkit/cusim."""
    chosen = os.environ.get("OPTKIT_CUSIM_CACHE")
    path = Path(chosen) if chosen else Path.home() / ".cache" / "optkit" / "cusim"
    path.mkdir(parents=True, exist_ok=True)
    return path


def digest(*parts: str | bytes) -> str:
    """A name for what is made from these parts."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part.encode() if isinstance(part, str) else part)
        whole.update(b"\0")
    return whole.hexdigest()[:20]


def sources() -> str:
    """The digest of the headers that kernels are compiled with."""
    headers = sorted(path for path in NATIVE.rglob("*") if path.suffix in (".hpp", ".h", ".cuh"))
    return digest(*(path.read_bytes() for path in headers))


def built(target: Path, command: Sequence[str]) -> Path:
    """`target`, made by a compiler's command line, without its -o, unless it is there.

    Several processes may ask for the same file: each builds its own and the last one stays.

    Raises:
        CusimError: there is no such compiler, or it refuses; with its words.
    """
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".building-") as scratch:
        made = Path(scratch) / target.name
        try:
            done = subprocess.run(
                [*command, "-o", str(made)], capture_output=True, text=True, check=False
            )
        except FileNotFoundError as error:
            raise CusimError(f"cusim needs the compiler {command[0]}: {error}") from error
        if done.returncode:
            raise CusimError(f"{' '.join(command)}\n{done.stderr[:6000]}")
        made.replace(target)
    return target
