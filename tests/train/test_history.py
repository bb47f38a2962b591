import sys

import numpy as np
import pytest

from optkit.train.history import History


@pytest.fixture
def history():
    made = History()
    loss = made.dense("loss")
    for step in range(1, 101):
        made._steps.append(step)
        loss.append(1 / step)
        if step % 40 == 0:
            made.record(step, "eval/loss", step / 10)
    made.stopped, made.seconds = "steps", 2.0
    return made


def test_columns_have_a_value_a_step(history):
    assert history.steps.tolist() == list(range(1, 101))
    assert history["loss"][9] == 0.1
    column = history.columns["eval/loss"]
    assert column.shape == (100,)
    assert np.flatnonzero(~np.isnan(column)).tolist() == [39, 79]
    assert column[79] == 8.0
    assert list(history) == ["loss", "eval/loss"]
    assert len(history) == 100
    assert history.final == {"loss": 0.01, "eval/loss": 8.0}
    assert history.steps_per_second == 50.0


def test_an_evaluation_before_the_first_step_is_in_its_curve_alone(history):
    early = History()
    early.record(0, "eval/loss", 5.0)
    early._steps.append(1)
    early.dense("loss").append(2.0)
    assert np.isnan(early["eval/loss"]).all()
    steps, values = early.curve("eval/loss")
    assert (steps.tolist(), values.tolist()) == ([0], [5.0])
    assert history.curve("loss")[0].tolist() == history.steps.tolist()


def test_rewind_forgets_what_came_after(history):
    history.rewind(50)
    assert history.steps[-1] == 50
    assert history.curve("eval/loss")[0].tolist() == [40]
    assert len(history["loss"]) == 50


def test_an_unknown_column_names_those_there_are(history):
    with pytest.raises(KeyError, match=r"no column 'lost'; there are loss, eval/loss"):
        history["lost"]


def test_repr_shows_a_few_rows(history):
    lines = repr(history).splitlines()
    assert lines[0] == "<optkit.History: 100 steps in 2 s, 50 steps/s; ended by steps"
    assert lines[1].split() == ["step", "loss", "eval/loss"]
    assert len(lines) == 10
    assert lines[2].split() == ["1", "1"]
    assert lines[-1].split() == ["100", "0.01", "8>"]
    assert repr(History()).startswith("<optkit.History: 0 steps")


def test_html_shows_the_same(history):
    assert "<th>eval/loss</th>" in history._repr_html_()
    assert history._repr_html_().count("<tr>") == 9


def test_pandas(history, monkeypatch):
    frame = history.to_pandas()
    assert frame.index.name == "step"
    assert frame.loc[80, "eval/loss"] == 8.0
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'optkit\[notebook\]'"):
        history.to_pandas()
