"""What `fit` does when something goes wrong, or when it is interrupted."""

import contextlib
import importlib
import math
import signal

import numpy as np
import pytest

import optkit as tf
from optkit.train import nonfinite
from optkit.train.batches import batches
from optkit.train.fit import fit
from tests.train.fit_models import Model, X, Y, create, scalars

F = np.float32


@pytest.fixture
def model(graph):
    return Model()


BAD = X.copy()
BAD[37, 1] = np.nan


def state_of(session):
    return session.export_state()


def same(a, b):
    return a.counters == b.counters and all(
        np.array_equal(a.variables[k], b.variables[k]) for k in a.variables
    )


def test_p050_p051_raise_names_the_culprit_and_changes_nothing(model, tmp_path):
    data = batches((BAD, Y), 10, shuffle=False)
    session = tf.Session()
    with pytest.raises(tf.errors.NonFiniteError) as caught:
        model.fit(data, steps=20, session=session, logdir=tmp_path / "run")
    text = str(caught.value)
    for part in (
        "LossTensor is inf or nan",
        "at step 4: the loss is nan",
        "it came with what is fed for 'x' (Placeholder), built at",
        "x:0: float32 (10, 3), 1 NaN of 30",
        "in row 7 of the batch",
        "bad examples: 37",
        "the first variable whose gradient is not finite is 'w'",
        "optkit debug",
    ):
        assert part in text
    assert isinstance(caught.value, tf.errors.NanLossDuringTrainingError)
    assert caught.value.path == tmp_path / "run/nonfinite-4.safetensors"
    assert caught.value.path.exists()
    assert session.value(model.step) == 3
    expected = tf.Session()
    model.fit(data, steps=3, session=expected)
    assert same(state_of(session), state_of(expected))
    # No checkpoint holds what is not finite, and no event is of the step.
    assert all(step <= 3 for points in scalars(tmp_path / "run").values() for step, _ in points)


def test_p050_check_numerics_of_create_train_op_is_explained_too(graph):
    x = tf.placeholder(tf.float32, [None], name="x")
    w = tf.get_variable("w", [], initializer=tf.ones_initializer())
    loss = tf.reduce_mean(tf.log(x * w, name="culprit"))
    train_op = tf.contrib.training.create_train_op(loss, tf.train.AdamOptimizer(0.1))
    with pytest.raises(tf.errors.NonFiniteError, match=r"'culprit' \(Log\), built at"):
        fit(train_op, [F([1]), F([-1])], x, steps=3, progress=False)
    with pytest.raises(tf.errors.NonFiniteError, match="LossTensor is inf or nan"):
        fit(train_op, [F([1]), F([0])], x, steps=3, progress=False, on_nonfinite="raise")


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda m: tf.train.FtrlOptimizer(0.1),
        lambda m: tf.train.AdagradDAOptimizer(0.1, m.step),
        lambda m: tf.train.AdamOptimizer(0.1),
        lambda m: tf.train.MomentumOptimizer(0.1, 0.9),
    ],
    ids=["Ftrl", "AdagradDA", "Adam", "Momentum"],
)
def test_skip_moves_nothing_whatever_the_optimizer(optimizer, caplog):
    def run(x, steps):
        tf.reset_default_graph()
        model = Model(lambda m: create(optimizer(m))(m))
        data = batches((x, Y[: len(x)]), 10, shuffle=False, epochs=1)
        history = model.fit(data, steps=steps, on_nonfinite="skip")
        return history, state_of(history.session)

    history, state = run(BAD, 20)
    assert history.skipped == [4]
    assert history.steps.tolist() == [1, 2, 3, 4, 5]  # a step that is left out does not count
    assert "step 4 is left out: the loss is nan" in caplog.text
    good = np.concatenate([X[:30], X[40:]])
    tf.reset_default_graph()
    model = Model(lambda m: create(optimizer(m))(m))
    data = batches((good, np.concatenate([Y[:30], Y[40:]])), 10, shuffle=False, epochs=1)
    expected = model.fit(data, steps=20)
    assert same(state, state_of(expected.session))


def test_skip_ends_when_nothing_else_comes(model, monkeypatch):
    monkeypatch.setattr(nonfinite, "LIMIT", 5)
    with pytest.raises(tf.errors.NonFiniteError, match="the loss is nan"):
        model.fit([(X * np.nan, Y)], steps=20, on_nonfinite="skip")


def test_rollback_goes_back_and_takes_other_data(tmp_path, caplog):
    model = Model(summaries=["loss"])
    data = batches((BAD, Y), 10, shuffle=False)
    history = model.fit(
        data,
        steps=12,
        on_nonfinite="rollback",
        rollback_steps=2,
        logdir=tmp_path,
        save_summaries_steps=1,
    )
    assert history.steps.tolist() == list(range(1, 13))
    assert np.isfinite(history["loss"]).all()
    assert "going back to step 2" in caplog.text
    assert history.session.value(model.step) == 12
    found = [step for step, _ in scalars(tmp_path)["OptimizeLoss/loss"]]
    assert found == list(range(1, 13))


def test_rollback_gives_up(model):
    with pytest.raises(tf.errors.NonFiniteError):
        model.fit([(X * np.nan, Y)], steps=20, on_nonfinite="rollback")


@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_a_step_in_a_branch_is_explained_like_any_other(graph, policy):
    x = tf.placeholder(tf.float32, [None], name="x")
    wanted = tf.placeholder(tf.bool, [], name="wanted")
    step = tf.train.get_or_create_global_step()
    w = tf.get_variable("w", [], initializer=tf.ones_initializer())

    def take():
        loss = tf.reduce_mean(tf.log(x * w, name="culprit"))
        return tf.train.GradientDescentOptimizer(0.1).minimize(loss, step)

    train_op = tf.cond(wanted, take, tf.no_op)
    data = [{x: F([value]), wanted: taken} for value, taken in ((1, True), (-1, False), (-1, True))]
    session = tf.Session()
    if policy == "raise":
        with pytest.raises(tf.errors.NonFiniteError, match=r"'cond/culprit' \(Log\), built at"):
            fit(train_op, data, session=session, progress=False)
    else:
        history = fit(train_op, data, session=session, progress=False, on_nonfinite="skip")
        assert (history.steps.tolist(), history.skipped) == ([1], [2])
    assert (session.value(step), session.value(w)) == (1, F(0.9))


def test_ignore_looks_at_nothing(model):
    history = model.fit([(X * np.nan, Y)], steps=2, on_nonfinite="ignore")
    assert math.isnan(history.final["loss"])
    assert np.isnan(history.session.value(model.w)).all()


def test_p051_weights_that_are_not_finite_are_not_saved(model, tmp_path, caplog):
    model.fit(steps=2, logdir=tmp_path)
    with tf.Session():
        model.fit([(X * np.nan, Y)], steps=4, logdir=tmp_path, on_nonfinite="ignore")
    assert tf.train.latest_checkpoint(tmp_path).endswith("model.ckpt-2")
    assert "no checkpoint at step 4: not finite: w" in caplog.text


def test_gradients_too_large_for_a_norm_are_no_failure(graph):
    w = tf.get_variable("w", [2], initializer=tf.zeros_initializer())
    train_op = tf.train.GradientDescentOptimizer(1e-30).minimize(1e25 * tf.reduce_sum(w))
    history = fit(train_op, [{}], steps=2, progress=False)
    np.testing.assert_allclose(history.session.value(w), [-2e-5, -2e-5], rtol=1e-5)


def test_a_loss_that_explodes_is_told(graph):
    model = Model(lambda m: create(tf.train.GradientDescentOptimizer(10.0))(m))
    with pytest.raises(tf.errors.DivergedError, match=r"step 2: the loss is .* 3 times the least"):
        model.fit(steps=50, divergence=3.0)


def test_a_loss_that_explodes_goes_back(graph, caplog):
    spike = [(X, Y)] * 5 + [(X * 100, Y)] + [(X, Y)] * 20
    model = Model(lambda m: create(tf.train.GradientDescentOptimizer(0.05))(m))
    history = model.fit(
        iter(spike), steps=15, divergence=10.0, on_nonfinite="rollback", rollback_steps=1
    )
    assert history.steps.tolist() == list(range(1, 16))
    assert "times the least so far" in caplog.text
    assert history.final["loss"] < history["loss"][0]


def test_errors_of_the_data_and_of_runs_come_through(model, tmp_path):
    def broken():
        yield X, Y
        raise OSError("the file is gone")

    with pytest.raises(OSError, match="the file is gone"):
        model.fit(broken(), steps=5, logdir=tmp_path)
    # All is closed: the events are on disk, and the directory is free.
    assert [step for step, _ in scalars(tmp_path)["loss"]] == [1]
    with pytest.raises(ValueError, match=r"expected shape \(\?, 3\)"):
        model.fit([(Y, Y)], steps=5, logdir=tmp_path, resume=False)
    assert len(model.fit(steps=2, logdir=tmp_path, resume=False)) == 2


class Breaking:
    """Batches of which one cannot be had at the first try."""

    def __init__(self, at):
        self.at = at

    def __iter__(self):
        for i, batch in enumerate(batches((X, Y), 10, seed=3)):
            if i == self.at:
                self.at = None
                raise OSError("the file is gone")
            yield batch


@pytest.mark.filterwarnings("ignore:data. Breaking cannot be told where to go on")
@pytest.mark.parametrize("prefetch", [0, 2])
def test_an_error_of_the_data_loses_no_step(tmp_path, prefetch):
    def run(folder, data):
        tf.reset_default_graph()
        model = Model(summaries=["loss"])
        options = {"steps": 9, "prefetch": prefetch, "save_summaries_steps": 1}
        return model.fit(data, logdir=tmp_path / folder, **options)

    whole = run("whole", Breaking(None))
    data = Breaking(6)
    with pytest.raises(OSError, match="the file is gone"):
        run("broken", data)
    rest = run("broken", data)
    assert rest.steps.tolist() == [7, 8, 9]
    assert same(state_of(rest.session), state_of(whole.session))
    assert scalars(tmp_path / "broken") == scalars(tmp_path / "whole")


def test_an_error_of_the_data_is_what_is_told_where_nothing_can_be_saved(
    model, tmp_path, monkeypatch, caplog
):
    def full(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr(tf.train.Saver, "save", full)
    with pytest.raises(OSError, match="the file is gone"):
        model.fit(Breaking(2), steps=5, logdir=tmp_path)
    assert "no checkpoint at step 2: no space left" in caplog.text


# -- signals --------------------------------------------------------------------------------------


class Raising(tf.train.SessionRunHook):
    """Sends a signal during a step."""

    def __init__(self, number, at):
        self.number, self.at = number, at

    def after_run(self, run_context, run_values):
        self.at -= 1
        if self.at == 0:
            signal.raise_signal(self.number)


def test_ctrl_c_ends_the_step_saves_and_returns(model, tmp_path, capsys):
    history = model.fit(
        steps=1000, logdir=tmp_path, hooks=[Raising(signal.SIGINT, 5)], progress=True
    )
    assert (history.stopped, history.steps[-1]) == ("interrupt", 5)
    assert tf.train.latest_checkpoint(tmp_path).endswith("model.ckpt-5")
    assert "Ctrl-C: stopping after this step" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert model.fit(steps=7, logdir=tmp_path).steps.tolist() == [6, 7]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_last_step_leaves_its_evaluation(model, tmp_path, number):
    history, ends = None, contextlib.nullcontext()
    if number == signal.SIGTERM:
        ends = pytest.raises(SystemExit)
    with ends:
        history = model.fit(
            steps=5,
            logdir=tmp_path,
            eval=((X, Y), 2, {"loss": model.loss}),
            hooks=[Raising(number, 5)],
        )
    assert history is None or history.stopped == "steps"
    assert tf.train.latest_checkpoint(tmp_path).endswith("model.ckpt-5")
    assert [step for step, _ in scalars(tmp_path / "eval")["loss"]] == [2, 4, 5]


def test_a_killed_end_is_not_the_end(model, tmp_path, monkeypatch):
    evaluation = importlib.import_module("optkit.train.evaluation").Evaluation
    run = evaluation.run

    def broken(self, session):
        if session.value(model.step) == 7:
            raise OSError("killed")
        return run(self, session)

    options = {
        "steps": 7,
        "logdir": tmp_path,
        "eval": ((X, Y), 3, {"loss": model.loss}),
        "save_checkpoint_steps": 1,
    }
    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "run", broken)
        with pytest.raises(OSError, match="killed"):
            model.fit(**options)
    with tf.Session():
        assert model.fit(**options).steps.tolist() == [7]
    assert [step for step, _ in scalars(tmp_path / "eval")["loss"]] == [3, 6, 7]


def test_sigterm_saves_and_ends_with_143(model, tmp_path):
    with pytest.raises(SystemExit) as caught:
        model.fit(steps=1000, logdir=tmp_path, hooks=[Raising(signal.SIGTERM, 5)])
    assert caught.value.code == 143
    assert tf.train.latest_checkpoint(tmp_path).endswith("model.ckpt-5")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


# -- the bar --------------------------------------------------------------------------------------


class Shown:
    """A progress that remembers what it was told."""

    every = 0.0

    def __init__(self):
        self.steps, self.closed = [], 0

    def show(self, step, values):
        self.steps.append(step)

    def write(self, text):
        pass

    def close(self):
        self.closed += 1


@pytest.mark.parametrize("end", ["steps", "error", "interrupt", "nan"])
def test_the_bar_is_closed_however_it_ends(model, monkeypatch, end):
    shown = Shown()
    module = importlib.import_module("optkit.train.fit")
    monkeypatch.setattr(module, "new_progress", lambda *_: shown)
    hooks, data = [], [(X, Y)]
    if end == "interrupt":
        hooks = [Raising(signal.SIGINT, 2)]
    elif end == "error":
        hooks = [tf.train.FeedFnHook(lambda: 1 / 0)]
    elif end == "nan":
        data = [(X, Y), (X * np.nan, Y)]
    expected = {"error": ZeroDivisionError, "nan": tf.errors.NonFiniteError}.get(end)
    with pytest.raises(expected) if expected else contextlib.nullcontext():
        model.fit(data, steps=3, hooks=hooks)
    assert shown.closed == 1
    assert shown.steps == {"steps": [1, 2, 3, 3], "interrupt": [1, 2, 2], "nan": [1]}.get(end, [])
