"""Choosing a backend: CuPy that works, that is broken in every way, and that is not there."""

import logging
import os
import subprocess
import sys
import warnings
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from optkit.backend import BACKENDS, get_backend, resolve, select, use_backend
from optkit.ops.core import constant
from optkit.runtime import InteractiveSession, Session


@pytest.fixture(autouse=True)
def untouched(monkeypatch):
    """A process that has not asked for a backend yet."""
    monkeypatch.setattr(select, "_cupy", None)
    monkeypatch.setattr(select, "_told", False)
    monkeypatch.setattr(select, "_chosen", None)
    monkeypatch.delenv("OPTKIT_BACKEND", raising=False)


class DeviceArray:
    """As little of a device array as the probe needs."""

    def __mul__(self, other):
        return self

    def get(self):
        return np.zeros(4)


def module(devices=1, arange=lambda *_, **__: DeviceArray()):
    stub = ModuleType("cupy")
    stub.cuda = SimpleNamespace(runtime=SimpleNamespace(getDeviceCount=lambda: devices))
    stub.arange = arange
    stub.probes = 0
    return stub


def raising(error):
    def function(*_, **__):
        raise error

    return function


def without_driver():
    stub = module()
    stub.cuda.runtime.getDeviceCount = raising(RuntimeError("cudaErrorInsufficientDriver"))
    return stub


# What `import cupy` gives, and what is wrong with it.
BROKEN = {
    "no driver": (without_driver(), RuntimeError, "cudaErrorInsufficientDriver"),
    "no device": (module(devices=0), RuntimeError, "CuPy sees no CUDA device"),
    "no NVRTC": (module(arange=raising(OSError("libnvrtc not found"))), OSError, "libnvrtc"),
    "not CuPy": (ModuleType("cupy"), AttributeError, "cuda"),
}


@pytest.fixture
def installed(monkeypatch):
    """Put a module in CuPy's place."""
    return lambda stub: monkeypatch.setitem(sys.modules, "cupy", stub)


@pytest.fixture
def broken_at_import(monkeypatch, tmp_path):
    """A CuPy whose import fails."""
    monkeypatch.delitem(sys.modules, "cupy", raising=False)
    (tmp_path / "cupy.py").write_text('raise ImportError("libcuda.so.1: no such file")\n')
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


# -- auto -----------------------------------------------------------------------------------------


def test_auto_takes_cupy_where_a_device_answers(installed, recwarn):
    stub = module()
    installed(stub)
    assert resolve("auto").name == get_backend() == "cupy"
    assert resolve().xp is stub
    assert not recwarn.list


@pytest.mark.parametrize("kind", BROKEN)
def test_p106_auto_falls_back_with_one_reasoned_message(installed, kind):
    stub, error, reason = BROKEN[kind]
    installed(stub)
    with pytest.warns(RuntimeWarning) as told:
        names = [resolve("auto").name, get_backend(), Session(backend="auto").backend]
    assert names == ["numpy"] * 3
    (message,) = (str(warning.message) for warning in told)
    assert message.startswith(f"CuPy is installed but not usable ({error.__name__}: ")
    assert reason in message
    assert message.endswith("; using NumPy")


def test_p106_auto_with_a_cupy_that_cannot_be_imported(broken_at_import):
    with pytest.warns(RuntimeWarning, match=r"ImportError: libcuda.so.1: no such file") as told:
        assert resolve("auto").xp is np
    assert len(told) == 1


def test_the_message_points_to_the_users_line(installed):
    installed(module(devices=0))
    with pytest.warns(RuntimeWarning, match="no CUDA device") as told:
        Session()
    assert told[0].filename == __file__


def test_auto_without_cupy_is_no_matter_for_a_warning(installed, caplog):
    installed(None)  # as where it is not installed
    with warnings.catch_warnings(), caplog.at_level(logging.INFO, "optkit"):
        warnings.simplefilter("error")
        for _ in range(3):
            assert resolve("auto").name == "numpy"
    assert caplog.messages == ["CuPy is not installed; arrays are NumPy's"]


def test_a_module_that_cupy_misses_is_a_matter_for_one(broken_at_import):
    (broken_at_import / "cupy.py").write_text("import missing_part_of_cupy\n")
    with pytest.warns(RuntimeWarning, match="ModuleNotFoundError: No module named 'missing_part"):
        assert resolve("auto").name == "numpy"


def test_the_probe_runs_once(installed):
    stub = module()
    calls = []
    stub.cuda.runtime.getDeviceCount = lambda: calls.append(1) or 1
    installed(stub)
    for _ in range(3):
        resolve("auto")
        resolve("cupy")
    assert len(calls) == 1


def test_numpy_asks_nothing_of_cupy(installed):
    stub = module()
    stub.cuda.runtime.getDeviceCount = raising(AssertionError("asked"))
    installed(stub)
    assert resolve("numpy").xp is np
    with use_backend("numpy"):
        assert get_backend() == "numpy"
    assert Session(backend="numpy").run(constant(1.0)) == 1.0


# -- cupy -----------------------------------------------------------------------------------------


def test_cupy_that_works(installed):
    stub = module()
    installed(stub)
    assert resolve("cupy").xp is stub
    session = Session(backend="cupy")
    assert session.backend == "cupy"
    assert session.list_devices() == ["/device:GPU:0"]


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize(
    "ask", [resolve, use_backend, lambda name: Session(backend=name)], ids=["r", "use", "session"]
)
def test_p106_cupy_raises_with_the_cause(installed, kind, ask):
    stub, error, reason = BROKEN[kind]
    installed(stub)
    for _ in range(2):  # the second answer is remembered, with its cause
        with pytest.raises(
            RuntimeError, match=r"backend 'cupy' is not usable: .*extra cuda12"
        ) as at:
            ask("cupy")
        assert type(at.value.__cause__) is error
        assert reason in str(at.value)
    assert get_backend_silently() == "numpy"


def get_backend_silently():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return get_backend()


def test_p106_cupy_that_is_not_installed_or_cannot_be_imported(installed, broken_at_import):
    with pytest.raises(RuntimeError, match=r"ImportError: libcuda.so.1") as caught:
        resolve("cupy")
    assert isinstance(caught.value.__cause__, ImportError)
    select._cupy = None
    installed(None)
    with pytest.raises(RuntimeError, match="not usable: ModuleNotFoundError") as caught:
        resolve("cupy")
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_two_packages_of_cupy_at_once(installed, monkeypatch):
    """They hold the same files: what is imported is a mixture of both."""
    names = ["numpy", "cupy-cuda12x", "cupyx-helpers", "CuPy-CUDA13x"]
    found = [SimpleNamespace(name=name) for name in names]
    monkeypatch.setattr("importlib.metadata.distributions", lambda: found)
    installed(module())
    with pytest.raises(
        RuntimeError, match=r"several CuPy packages .*\(cupy-cuda12x, cupy-cuda13x\)"
    ):
        resolve("cupy")
    with pytest.warns(RuntimeWarning, match="several CuPy packages are installed"):
        assert resolve("auto").xp is np
    monkeypatch.setattr(select, "_cupy", None)
    found.pop()
    assert resolve("cupy").name == "cupy"


# -- devices --------------------------------------------------------------------------------------


def test_devices_have_numbers(installed, monkeypatch):
    installed(module(devices=2))
    assert resolve("cupy").index is None
    assert resolve("cupy:1").index == 1
    assert Session(backend="cupy:1").list_devices() == ["/device:GPU:1"]
    assert Session(backend="cupy:1").backend == "cupy"
    with use_backend("cupy:1"):
        assert get_backend() == "cupy:1"
        assert Session().list_devices() == ["/device:GPU:1"]
    monkeypatch.setenv("OPTKIT_BACKEND", "cupy:0")
    assert get_backend() == "cupy:0"


def test_devices_that_are_not_there(installed):
    installed(module(devices=2))
    for ask in (resolve, use_backend, lambda name: Session(backend=name)):
        with pytest.raises(ValueError, match="CuPy sees 2 devices, there is no device 2"):
            ask("cupy:2")
        for name in ("cupy:", "cupy:-1", "cupy:x", "numpy:0"):
            with pytest.raises(ValueError, match=f"got '{name}'; the number of a device"):
                ask(name)
    assert select._chosen is None


def test_a_device_without_cupy(installed):
    installed(module(devices=0))
    with pytest.raises(RuntimeError, match=r"backend 'cupy' is not usable: .*no CUDA device"):
        resolve("cupy:0")


# -- use_backend ----------------------------------------------------------------------------------


def test_use_backend_sets(installed):
    installed(module())
    assert get_backend() == "cupy"
    use_backend("numpy")
    assert get_backend() == "numpy"
    assert Session().backend == "numpy"
    assert Session(backend="cupy").backend == "cupy"
    use_backend("cupy")
    assert Session().backend == "cupy"
    use_backend("auto")
    assert get_backend() == "cupy"


def test_p109_use_backend_as_a_context_manager(installed):
    installed(module())
    with use_backend("numpy"):
        assert get_backend() == "numpy"
        with use_backend("cupy"):
            assert get_backend() == "cupy"
        assert get_backend() == "numpy"
    assert get_backend() == "cupy"


def fail_inside(name):
    with use_backend(name):
        raise KeyError


def test_p109_the_previous_backend_returns_after_an_error(installed):
    installed(module())
    use_backend("cupy")
    with pytest.raises(KeyError):
        fail_inside("numpy")
    assert get_backend() == "cupy"


def test_a_context_may_be_entered_again(installed):
    installed(module())
    numpy = use_backend("numpy")
    use_backend("cupy")
    with numpy:
        assert get_backend() == "numpy"


@pytest.mark.parametrize("name", ["tpu", "NumPy", "", None, 3])
def test_backends_that_do_not_exist(name):
    with pytest.raises(ValueError, match="backend: expected one of auto, numpy, cupy, got"):
        use_backend(name)
    assert select._chosen is None
    if name is not None:
        with pytest.raises(ValueError, match="backend: expected one of auto, numpy, cupy, got"):
            Session(backend=name)


def test_a_session_that_cannot_be_made_changes_nothing(installed):
    installed(module(devices=0))
    use_backend("numpy")
    with pytest.raises(RuntimeError):
        use_backend("cupy")
    assert get_backend() == "numpy"
    with pytest.raises(RuntimeError):
        InteractiveSession(backend="cupy")
    with pytest.raises(ValueError, match="no default session"):
        constant(1.0).eval()


def test_the_names():
    assert BACKENDS == ("auto", "numpy", "cupy")


# -- OPTKIT_BACKEND -------------------------------------------------------------------------------


SHOW = "import optkit; print(optkit.get_backend(), optkit.Session().backend)"


def in_a_process(code, backend):
    environment = {**os.environ, "OPTKIT_BACKEND": backend}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_environment_presets_the_backend():
    done = in_a_process(SHOW, "numpy")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["numpy", "numpy"]
    set_later = "import optkit; optkit.use_backend('numpy'); print(optkit.get_backend())"
    assert in_a_process(set_later, "cupy").stdout.split() == ["numpy"]


def test_a_backend_in_the_environment_that_does_not_exist(monkeypatch):
    monkeypatch.setenv("OPTKIT_BACKEND", "tpu")
    with pytest.raises(ValueError, match="OPTKIT_BACKEND: expected one of auto, numpy, cupy, got"):
        get_backend()
    use_backend("numpy")
    assert get_backend() == "numpy"


def test_cupy_in_the_environment_is_insisted_on(monkeypatch, installed):
    installed(module(devices=0))
    monkeypatch.setenv("OPTKIT_BACKEND", "cupy")
    with pytest.raises(RuntimeError, match="backend 'cupy' is not usable"):
        Session()
    assert Session(backend="numpy").run(constant(1.0)) == 1.0


def test_importing_asks_for_no_backend():
    code = "import sys, optkit; print('cupy' in sys.modules)"
    done = in_a_process(code, "cupy")  # which is not usable, or is: nothing asks
    assert done.stdout.split() == ["False"], done.stderr
