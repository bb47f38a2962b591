"""Choosing NumPy or CuPy.

"auto" takes CuPy when a device answers, else NumPy; "numpy" and "cupy" insist. Being importable
is not being usable: CuPy imports without a driver and fails at its first use, so the probe runs a
kernel, once a process and only when CuPy is wanted.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import warnings
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any

import numpy as np

from optkit.backend.arrays import to_numpy
from optkit.backend.cuda.device import Device

__all__ = ["BACKENDS", "Backend", "get_backend", "resolve", "use_backend"]

BACKENDS = ("auto", "numpy", "cupy")
"""The names a backend is asked for by."""

_log = logging.getLogger("optkit")


@dataclass(frozen=True)
class Backend:
    """An array module and how values get to and from it.

    Attributes:
        name: "numpy" or "cupy".
        xp: the module.
        index: the device that was asked for; None takes the current one.
    """

    name: str
    xp: Any
    index: int | None = None

    def asarray(self, array: np.ndarray[Any, Any]) -> Any:
        """A host array on this backend; the same array on NumPy. Texts are always on the host."""
        return array if self.xp is np or array.dtype.kind == "O" else self.xp.asarray(array)

    def here(self, array: Any) -> Any:
        """An array of any backend as this one's; the same array if it is."""
        on_host = isinstance(array, np.ndarray | np.generic)
        if self.xp is np:
            return array if on_host else to_numpy(array)
        return self.asarray(array) if on_host else array

    def shared(self, value: Any) -> Any:
        """An array of another library that is on a device, as the backend's: the same memory.

        It comes by `__cuda_array_interface__` or DLPack; from another device than the current one
        it is copied. None if it is on the host.
        """
        if hasattr(value, "__cuda_array_interface__"):
            array = self.xp.asarray(value)
        elif hasattr(value, "__dlpack_device__") and value.__dlpack_device__()[0] in _CUDA:
            array = self.xp.from_dlpack(value)
        else:
            return None
        here = self.xp.cuda.runtime.getDevice()
        return array if array.device.id == here else array.copy()

    def device(self, stream: Any = None) -> Device | None:
        """Where a session works; None on the host.

        Raises:
            ValueError: there is no such stream.
        """
        if self.xp is np:
            if stream is not None:
                raise ValueError(f"stream: the backend 'numpy' has no streams, got {stream!r}")
            return None
        return Device(self.index, stream)

    def to_numpy(self, array: Any) -> np.ndarray[Any, Any]:
        """An array of this backend on the host."""
        return to_numpy(array)


_CUDA = frozenset({2, 13})
"""DLPack's numbers of memory on CUDA devices."""
_NUMPY = Backend("numpy", np)
_cupy: tuple[Backend | None, Exception | None] | None = None
_told = False


def _probe() -> tuple[Backend | None, Exception | None]:
    """CuPy as a backend, or the reason why it is not usable; found out once a process."""
    global _cupy
    if _cupy is None:
        try:
            _check_packages()
            xp = importlib.import_module("cupy")
            if xp.cuda.runtime.getDeviceCount() < 1:
                raise RuntimeError("CuPy sees no CUDA device")
            # Proves the driver, NVRTC, the headers and some memory, none of which an import needs.
            (xp.arange(4, dtype="float32") * 2).get()
            _cupy = Backend("cupy", xp), None
        except Exception as error:  # noqa: BLE001 - whatever a broken install raises is the reason
            _cupy = None, error
    return _cupy


def _check_packages() -> None:
    """Refuse several CuPy packages at once: they hold the same files and overwrite each other."""
    from importlib.metadata import distributions  # takes milliseconds to import

    names = {str(found.name).lower() for found in distributions()}
    several = sorted(name for name in names if re.fullmatch(r"cupy(-(cuda|rocm).*)?", name))
    if len(several) > 1:
        raise RuntimeError(
            f"several CuPy packages are installed ({', '.join(several)}), which overwrite each "
            "other; uninstall all of them and install one extra, cuda12 or cuda13"
        )


def _checked(name: Any, argument: str = "backend") -> str:
    """The name, "cupy:<index>" included.

    Raises:
        ValueError: there is no such backend.
    """
    if name in BACKENDS or (isinstance(name, str) and re.fullmatch(r"cupy:\d+", name)):
        return name  # type: ignore[no-any-return]
    raise ValueError(
        f"{argument}: expected one of {', '.join(BACKENDS)}, got {name!r}; the number of a device "
        "may follow, as in cupy:1"
    )


_chosen: str | None = None


def _current() -> str:
    if _chosen is not None:
        return _chosen
    return _checked(os.environ.get("OPTKIT_BACKEND", "auto"), "OPTKIT_BACKEND")


def resolve(name: str | None = None) -> Backend:
    """The backend called `name`, or the current one.

    Raises:
        ValueError: there is no such backend or device.
        RuntimeError: "cupy" was asked for and is not usable; the cause is attached.
    """
    global _told
    name = _current() if name is None else _checked(name)
    if name == "numpy":
        return _NUMPY
    backend, error = _probe()
    name, _, index = name.partition(":")
    if backend is not None:
        return on_device(backend, int(index)) if index else backend
    if name == "cupy":
        raise RuntimeError(
            f"backend 'cupy' is not usable: {type(error).__name__}: {error}; install the extra "
            "cuda12 or cuda13 and check the driver, or use the backend 'numpy'"
        ) from error
    if not _told:
        _told = True
        if isinstance(error, ModuleNotFoundError) and error.name == "cupy":
            _log.info("CuPy is not installed; arrays are NumPy's")
        else:
            warnings.warn(
                f"CuPy is installed but not usable ({type(error).__name__}: {error}); using NumPy",
                RuntimeWarning,
                stacklevel=3,
            )
    return _NUMPY


def on_device(backend: Backend, index: int) -> Backend:
    """The backend on a certain device.

    Raises:
        ValueError: there is no such device.
    """
    count = backend.xp.cuda.runtime.getDeviceCount()
    if not 0 <= index < count:
        raise ValueError(f"backend: CuPy sees {count} devices, there is no device {index}")
    return replace(backend, index=index)


def get_backend() -> str:
    """The name of the backend that a new session gets: "numpy", "cupy" or "cupy:<device>"."""
    backend = resolve()
    return backend.name if backend.index is None else f"{backend.name}:{backend.index}"


class use_backend:  # noqa: N801 - a function to its users, and a context manager
    """Set the backend of sessions created from now on: "auto", "numpy", "cupy", "cupy:<device>".

    In a `with` statement the previous one returns at the end, also when the body raises.

    Raises:
        ValueError: there is no such backend.
        RuntimeError: "cupy" is not usable; the cause is attached.
    """

    def __init__(self, name: str) -> None:
        global _chosen
        _checked(name)
        if name.startswith("cupy"):
            resolve(name)
        self._name = name
        self._previous = _chosen
        _chosen = name

    def __enter__(self) -> None:
        global _chosen
        _chosen = self._name

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        global _chosen
        _chosen = self._previous
