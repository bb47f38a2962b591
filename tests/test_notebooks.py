"""The notebooks run, as a script and in Jupyter, and are committed with their charts."""

import base64
import json
import os
import re
import signal
import time
import urllib.parse
import urllib.request
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

import summaries

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# What the dashboard of each shows: how many runs, and a tag of theirs with its number of points.
SHOWN = {
    "01_quickstart": (2, "OptimizeLoss/loss", 500),
    "02_race": (6, "race/loss", 300),
    "03_sparsity": (4, "digits/sparsity/weights_0", 100),
    "04_gradient_health": (12, "health/global_norm/gradient_norm", 81),
}

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def is_for_tensorboard(cell):
    return "tensorboard" in cell.metadata.get("tags", ())


def read(path):
    return nbformat.read(path, as_version=4)


def pictures(notebook):
    """The PNG files among the outputs of a notebook's cells."""
    return [
        base64.b64decode(output.data["image/png"])
        for cell in code_cells(notebook)
        for output in cell.outputs
        if "image/png" in output.get("data", {})
    ]


def test_every_notebook_is_known():
    assert [path.stem for path in NOTEBOOKS] == list(SHOWN)


@every_notebook
def test_a_notebook_is_saved_with_its_charts(path):
    """P122: the pictures are in the file, and are there without a kernel or a server."""
    notebook = read(path)
    nbformat.validate(notebook)
    *cells, last = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert last.outputs == []  # a frame would point at a server that is gone
    found = pictures(notebook)
    assert len(found) >= 2
    for picture in found:
        assert picture.startswith(b"\x89PNG")
        assert 5_000 < len(picture) < 250_000
    kinds = {output.output_type for cell in cells for output in cell.outputs}
    assert kinds <= {"stream", "execute_result", "display_data"}
    texts = json.dumps([cell.outputs for cell in cells])
    assert not re.search(r"/(home|tmp|root|work)/", texts)


@every_notebook
def test_a_notebook_ends_in_a_dashboard(path):
    *cells, last = code_cells(read(path))
    assert is_for_tensorboard(last)
    assert last.source == "board = summaries.dashboard(LOGDIR)"
    assert not any("%" in line[:1] for cell in cells for line in cell.source.splitlines())


def test_the_quickstart_runs_as_a_script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPTKIT_LOGDIR", raising=False)
    names = {"__name__": "notebook"}
    path = NOTEBOOKS[0]
    for number, cell in enumerate(code_cells(read(path))):
        if not is_for_tensorboard(cell):
            exec(compile(cell.source, f"{path.name}[{number}]", "exec"), names)
    assert names["test_accuracy"] > 0.95
    assert list(tmp_path.glob("runs/quickstart/*/events.out.tfevents.*"))


@pytest.fixture
def info(tmp_path, monkeypatch):
    """Where the TensorBoards of a notebook say who they are; they are ended after the test."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PATH", os.defpath)  # as where a virtual environment is not activated
    monkeypatch.delenv("TENSORBOARD_PROXY_URL", raising=False)

    def files():
        return [*tmp_path.glob("**/.tensorboard-info/*.info")]

    yield files
    for file in files():
        os.kill(json.loads(file.read_text())["pid"], signal.SIGKILL)


def fetch(port, page, **query):
    url = f"http://127.0.0.1:{port}/{page}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def tags_of(port, count):
    """The scalar tags of each run that a TensorBoard has loaded, asked for until all are there."""
    end = time.monotonic() + 60
    while True:
        tags = fetch(port, "data/plugin/scalars/tags")
        if len(tags) == count:
            return tags
        assert time.monotonic() < end, tags


@pytest.mark.slow
@every_notebook
def test_a_notebook_runs_in_jupyter_and_a_dashboard_shows_it(path, tmp_path, monkeypatch, info):
    """P117: each cell twice, as people do; then the frame below the last, and what is behind it."""
    monkeypatch.setenv("OPTKIT_LOGDIR", str(tmp_path / "logs"))
    monkeypatch.setenv("OPTKIT_BACKEND", "numpy")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = read(path)
    saved = len(pictures(notebook))
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    count, tag, points = SHOWN[path.stem]
    spent = 0.0
    with client.setup_kernel():
        for index, cell in enumerate(notebook.cells):
            begin = time.monotonic()
            client.execute_cell(cell, index)
            spent += time.monotonic() - begin
            client.execute_cell(cell, index)
        assert spent < 60
        assert len(pictures(notebook)) == saved
        last = code_cells(notebook)[-1]
        pages = [output.data.get("text/html", "") for output in last.outputs if "data" in output]
        assert any("<iframe" in page for page in pages), last.outputs
        (file,) = info()
        port = json.loads(file.read_text())["port"]
        runs = tags_of(port, count)
        series = [fetch(port, "data/plugin/scalars/scalars", run=run, tag=tag) for run in runs]
    assert {len(each) for each in series} == {points}
    written = summaries.read(tmp_path / "logs")
    assert len(written) == count
    assert written.damage == {}


WRITER_CELL = """
import summaries

writer = summaries.SummaryWriter("logs")
for step in range(1000):
    writer.add_scalar("loss", step, step)
writer.flush()
"""


@pytest.mark.slow
def test_p073_a_kernel_that_is_killed_loses_nothing_that_was_flushed(tmp_path, monkeypatch):
    """The cell is run twice, so that two writers are open, and neither file harms the other."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    cell = nbformat.v4.new_code_cell(WRITER_CELL)
    notebook = nbformat.v4.new_notebook(cells=[cell])
    client = NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(tmp_path)}})
    with client.setup_kernel():
        client.execute_cell(cell, 0)
        client.execute_cell(cell, 0)
        os.kill(client.km.provisioner.process.pid, signal.SIGKILL)
    written = summaries.read(tmp_path / "logs")
    assert len(written.paths) == 2
    assert written.damage == {}
    assert list(written.scalars("loss").steps) == 2 * list(range(1000))
