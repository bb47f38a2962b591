"""TensorBoard beside a script or a notebook: started, shown, asked, and ended with it."""

import atexit
import json
import math
import os
import queue
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
import weakref
from collections.abc import Sequence
from contextlib import suppress
from html import escape
from importlib import import_module
from importlib.util import find_spec
from numbers import Integral, Real
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from summaries._optional import optional
from summaries._warn import warn
from summaries.charts import plot

StrPath: TypeAlias = str | os.PathLike[str]

_LOOPBACK = "127.0.0.1"
_INFO = ".tensorboard-info"
_ADDRESS = re.compile(r"https?://[^\s/]+?:(\d+)(/\S*)?")
# The server ends when its input does, that is with the process that started it, however that ends.
_SERVER = """
import os, sys, threading


def watch():
    sys.stdin.buffer.read()
    os._exit(0)


threading.Thread(target=watch, daemon=True).start()
from tensorboard.main import run_main

run_main()
"""
_running: dict[tuple[str, ...], "Dashboard"] = {}


class Dashboard:
    """A TensorBoard server of this process. It ends with `close`, a `with` block or the process."""

    def __init__(self, logdir: str, process: subprocess.Popen[str], port: int, height: int) -> None:
        self.logdir = logdir
        self.port = port
        self.height = height
        self._process = process
        self._owner = os.getpid()
        self._finalizer = weakref.finalize(self, _end, process, self._owner)

    def __repr__(self) -> str:
        state = f"at {self.url}" if self.running else "closed"
        return f"<summaries.Dashboard of {self.logdir} {state}>"

    @property
    def pid(self) -> int:
        """The number of the server's process."""
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the server's process is there."""
        if os.getpid() != self._owner:
            return _is_process(self.pid)  # a forked child; only its parent may wait for the server
        return self._process.poll() is None

    @property
    def url(self) -> str:
        """Where this machine reaches it."""
        return f"http://{_LOOPBACK}:{self.port}/"

    @property
    def public_url(self) -> str:
        """Where a browser reaches it: by way of TENSORBOARD_PROXY_URL, with the port for %PORT%.

        Without that variable it is `url`.
        """
        proxy = os.environ.get("TENSORBOARD_PROXY_URL")
        return proxy.replace("%PORT%", str(self.port)) if proxy else self.url

    def query(self, route: str, *, timeout: float = 10.0, **parameters: Any) -> Any:
        """What the server answers: JSON as Python objects, anything else as bytes.

        Args:
            route: such as "data/runs" or "data/plugin/scalars/scalars".
            timeout: in seconds.
            parameters: the query, such as `run` and `tag`.

        Raises:
            OSError: it does not answer, or answers with an error (urllib.error.HTTPError).
        """
        url = f"{self.url}{route}"
        if parameters:
            url += f"?{urllib.parse.urlencode(parameters, doseq=True)}"
        return _fetch(url, timeout)

    def show(self, height: int | None = None) -> None:
        """Show it below a notebook's cell, `height` pixels high.

        Raises:
            ImportError: IPython is not installed.
        """
        display = optional("IPython.display", "notebook")
        display.display(display.HTML(self.html(height)))

    def html(self, height: int | None = None) -> str:
        """A frame with the dashboard, and a link for where no frame is shown."""
        url = escape(self.public_url, quote=True)
        return (
            f'<iframe src="{url}" width="100%" height="{height or self.height}" '
            'style="border: 0" title="TensorBoard"></iframe>'
            f'<p><a href="{url}" target="_blank" rel="noopener">TensorBoard of '
            f"{escape(self.logdir)}</a></p>"
        )

    def close(self) -> None:
        """End the server; a second call does nothing."""
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def dashboard(
    logdir: StrPath,
    *,
    port: int = 0,
    height: int = 800,
    show: bool | None = None,
    reload_interval: float = 2.0,
    arguments: Sequence[str] = (),
    timeout: float = 60.0,
) -> Dashboard | None:
    """Start TensorBoard on this machine's loopback address and, in Jupyter, show it.

    A second call with the same arguments, as a cell that is run again, shows the same server. The
    server keeps its files in a directory of this user alone, and what dead servers left is removed.

    In Jupyter, where TensorBoard is not installed or does not start, a chart of the scalars is
    shown instead, with a warning, and None is returned.

    Args:
        logdir: the directory with the runs; it need not be there yet.
        port: the port; 0 is a free one.
        height: of the frame in a notebook, in pixels.
        show: whether to show it below the cell; None does so in Jupyter.
        reload_interval: seconds between two looks at the event files.
        arguments: further arguments of `tensorboard`, such as "--load_fast=false".
        timeout: how many seconds the server may take to start.

    Raises:
        ImportError: TensorBoard is not installed.
        RuntimeError: it does not start; the message has what it said.
        TypeError, ValueError: an argument is not as it should be.
    """
    if not (isinstance(port, Integral) and 0 <= port < 1 << 16):
        raise ValueError(f"port: expected 0 to 65535, got {port!r}")
    for name, seconds in (("reload_interval", reload_interval), ("timeout", timeout)):
        if not (isinstance(seconds, Real) and 0 < seconds < math.inf):
            raise ValueError(f"{name}: expected seconds above 0, got {seconds!r}")
    arguments = [arguments] if isinstance(arguments, str) else [*arguments]
    for text in arguments:
        if not isinstance(text, str) or "\0" in text:
            raise TypeError(f"arguments: expected texts such as '--load_fast=false', got {text!r}")
    if not isinstance(logdir, str | os.PathLike) or "\0" in str(logdir):
        raise TypeError(f"logdir: expected a path, got {logdir!r:.60}")
    path = str(Path(logdir).expanduser().absolute())
    show = in_jupyter() if show is None else show
    key = (path, str(port), str(reload_interval), *arguments)
    found = _running.get(key)
    if found is None or not found.running or not _answers(found.port):
        try:
            found = _start(path, port, height, reload_interval, arguments, timeout)
        except (ImportError, RuntimeError) as error:
            if not show:
                raise
            if not _show_chart(path, error):
                raise
            return None
        _running[key] = found
    if show:
        found.show(height)
    return found


def _start(
    logdir: str,
    port: int,
    height: int,
    reload_interval: float,
    arguments: Sequence[str],
    timeout: float,
) -> Dashboard:
    if find_spec("tensorboard") is None:
        raise ImportError("tensorboard is not installed: pip install 'optkit[dashboard]'")
    folder = own_directory()
    clean_info(folder / _INFO)
    # Where `%tensorboard` looks for servers: an entry of a dead one makes it wait for it.
    clean_info(Path(tempfile.gettempdir()) / _INFO)
    interval = f"{reload_interval:g}"
    command = [sys.executable, "-P", "-c", _SERVER, "--logdir", logdir, "--host", _LOOPBACK]
    command += ["--port", str(port), "--reload_interval", interval, *arguments]
    process = subprocess.Popen(
        command,
        env=os.environ | {"TMPDIR": str(folder), "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C and a kernel's interrupt are for this process alone
    )
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=_read_lines, args=(process, lines), daemon=True).start()
    try:
        found = _await_port(lines, timeout)
    except BaseException:
        _end(process, os.getpid())
        raise
    return Dashboard(logdir, process, found, height)


def _read_lines(process: subprocess.Popen[str], lines: "queue.SimpleQueue[str | None]") -> None:
    """Hand on what the server says, to its end, so that it never waits for a reader."""
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            if lines.qsize() < 1000:
                lines.put(line)
    lines.put(None)


def _await_port(lines: "queue.SimpleQueue[str | None]", timeout: float) -> int:
    end = time.monotonic() + timeout
    said: list[str] = []
    while True:
        try:
            line = lines.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            text = "".join(said)
            raise RuntimeError(f"TensorBoard did not start in {timeout:g} s:\n{text}") from None
        if line is None:
            raise RuntimeError(f"TensorBoard ended as it started:\n{''.join(said)}")
        said.append(line)
        address = _ADDRESS.search(line)
        if address and "TensorBoard" in line:
            return int(address[1])


def _end(process: subprocess.Popen[str], owner: int) -> None:
    """End the server and wait for it, so that it leaves nothing behind."""
    if os.getpid() != owner:
        return  # a forked child ends; the server is its parent's
    process.terminate()
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(5)
    if process.stdin is not None:
        process.stdin.close()


def own_directory() -> Path:
    """A directory for temporary files that belongs to this user alone, the same each time."""
    user = os.getuid() if hasattr(os, "getuid") else "user"
    folder = Path(tempfile.gettempdir()) / f"summaries-{user}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        state = folder.lstat()
        own = stat.S_ISDIR(state.st_mode) and (user == "user" or state.st_uid == user)
        if own and os.access(folder, os.W_OK | os.X_OK):
            return folder
    except OSError:
        pass
    # Somebody else has that name, or the place cannot be written.
    made = Path(tempfile.mkdtemp(prefix="summaries-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


def clean_info(folder: Path) -> None:
    """Remove entries of TensorBoard servers that are gone: no such process, or no answer."""
    try:
        entries = [each for each in folder.iterdir() if each.suffix == ".info"]
    except OSError:
        return
    for entry in entries:
        try:
            if not stat.S_ISREG(entry.lstat().st_mode):
                continue  # no server leaves a pipe, which to read would wait for its writer
            info = json.loads(entry.read_text(encoding="utf-8"))
            alive = _is_process(int(info["pid"])) and _answers(int(info["port"]))
        except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
            alive = False  # whatever it holds, no server wrote it
        except OSError:
            continue  # another user's, or removed meanwhile
        if not alive:
            with suppress(OSError):
                entry.unlink()


def _is_process(pid: int) -> bool:
    if os.name == "nt":
        return True  # a signal would end it; the port tells
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _answers(port: int) -> bool:
    """Whether a TensorBoard answers at a port of this machine."""
    try:
        answer = _fetch(f"http://{_LOOPBACK}:{port}/data/logdir", 2.0)
    except (OSError, OverflowError, ValueError):
        return False
    return isinstance(answer, dict) and "logdir" in answer


def _fetch(url: str, timeout: float) -> Any:
    request = import_module("urllib.request")  # slow to import
    # A proxy of the environment has no business between this machine and itself.
    opener = request.build_opener(request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=timeout) as answer:
            body = answer.read()
            json_type = "json" in answer.headers.get("Content-Type", "")
    except import_module("http.client").HTTPException as error:
        raise OSError(f"{url} does not answer as a web server does: {error!r}") from error
    return json.loads(body) if json_type else body


def in_jupyter() -> bool:
    """Whether this runs in a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and getattr(shell, "kernel", None) is not None


def _show_chart(logdir: str, error: Exception) -> bool:
    """Show the scalars without a server and say why; whether there were any."""
    try:
        chart = plot(logdir)
    except (FileNotFoundError, ImportError, KeyError):
        return False
    warn(f"no dashboard, so a chart is shown: {error}")
    chart.show()
    return True
