import io
import sys
import types

import pytest

from optkit.train import progress as module
from optkit.train.progress import Lines, NoProgress, progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_lines_where_there_is_no_terminal(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    shown = progress(None, 0, 10)
    assert isinstance(shown, Lines)
    shown.show(5, {"loss": 0.12345678, "rate": 0.001})
    shown.write("a line")
    shown.close()
    first, second = stream.getvalue().splitlines()
    assert first.startswith("step 5/10: loss 0.1235, rate 0.001, ")
    assert first.endswith(" steps/s")
    assert second == "a line"


def test_lines_go_on_when_nobody_reads():
    class Closed(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    shown = Lines(0, None, Closed())
    shown.show(1, {})
    assert shown.every == float("inf")


def test_a_bar_in_a_terminal(monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    shown = progress(True, 3, 10)
    shown.show(7, {"loss": 0.5})
    shown.write("above")
    shown.close()
    shown.close()
    text = stream.getvalue()
    assert "7/10" in text
    assert "loss 0.5" in text
    assert "above\n" in text


def test_a_notebook_has_a_bar(monkeypatch, capsys):
    class ZMQInteractiveShell:
        pass

    class Shell(ZMQInteractiveShell):
        """As in Colab."""

    shell = types.SimpleNamespace(get_ipython=lambda: Shell())
    monkeypatch.setitem(sys.modules, "IPython", shell)
    assert module._in_notebook()
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: None))
    assert not module._in_notebook()


@pytest.mark.parametrize("variable", ["RANK", "OMPI_COMM_WORLD_RANK"])
def test_only_rank_0_shows_progress(monkeypatch, variable):
    monkeypatch.setenv(variable, "1")
    assert isinstance(progress(True, 0, 1), NoProgress)
    monkeypatch.setenv(variable, "0")
    assert not isinstance(progress(True, 0, 1), NoProgress)
    assert isinstance(progress(False, 0, 1), NoProgress)


def test_a_program_without_a_console(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    assert isinstance(progress(None, 0, 1), NoProgress)
