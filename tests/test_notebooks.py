"""The notebooks run, as a script and in Jupyter, and are committed without outputs."""

import json
import os
import signal
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def is_for_tensorboard(cell):
    return "tensorboard" in cell.metadata.get("tags", ())


def read(path):
    return nbformat.read(path, as_version=4)


def test_there_are_notebooks():
    assert [path.name for path in NOTEBOOKS][:1] == ["01_quickstart.ipynb"]


@every_notebook
def test_a_notebook_is_valid_and_has_no_outputs(path):
    notebook = read(path)
    nbformat.validate(notebook)
    for cell in code_cells(notebook):
        assert cell.outputs == []
        assert cell.execution_count is None


@every_notebook
def test_a_notebook_ends_in_tensorboard(path):
    *cells, last = code_cells(read(path))
    assert is_for_tensorboard(last)
    assert last.source.splitlines()[0] == "%load_ext tensorboard"
    assert not any("%" in line[:1] for cell in cells for line in cell.source.splitlines())


@every_notebook
def test_a_notebook_runs_as_a_script(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "notebook"}
    for number, cell in enumerate(code_cells(read(path))):
        if not is_for_tensorboard(cell):
            exec(compile(cell.source, f"{path.name}[{number}]", "exec"), names)
    assert names["test_accuracy"] > 0.95
    assert list(tmp_path.glob("runs/*/events.out.tfevents.*"))


@pytest.fixture
def info(tmp_path, monkeypatch):
    """Where the TensorBoard of a notebook says who it is; it is ended after the test."""
    folder = tmp_path / ".tensorboard-info"
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("TENSORBOARD_BINARY", str(Path(sys.executable).with_name("tensorboard")))
    yield folder
    for file in folder.glob("*.info"):
        os.kill(json.loads(file.read_text())["pid"], signal.SIGKILL)


def fetch(port, page, **query):
    url = f"http://127.0.0.1:{port}/{page}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        return json.load(answer)


def runs_of(port):
    """The runs that a TensorBoard has loaded, asked for until there are some."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if runs := fetch(port, "data/runs"):
            return runs
    raise AssertionError("TensorBoard found no run in a minute")


@pytest.mark.slow
@every_notebook
def test_a_notebook_runs_in_jupyter_and_tensorboard_shows_it(path, tmp_path, monkeypatch, info):
    monkeypatch.setenv("QUICKSTART_LOGDIR", str(tmp_path / "logs"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = read(path)
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    with client.setup_kernel():
        for index, cell in enumerate(notebook.cells):
            client.execute_cell(cell, index)
        last = code_cells(notebook)[-1]
        pages = [output.data.get("text/html", "") for output in last.outputs if "data" in output]
        assert any("<iframe" in page for page in pages), last.outputs
        (file,) = info.glob("*.info")
        port = json.loads(file.read_text())["port"]
        (run,) = runs_of(port)
        series = fetch(port, "data/plugin/scalars/scalars", run=run, tag="OptimizeLoss/loss")
    assert [step for _, step, _ in series] == list(range(1, 501))
