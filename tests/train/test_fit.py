"""`optkit.fit`: a train op and data in, a trained session and its measurements out."""

import importlib
import itertools
import logging
from types import SimpleNamespace

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import optkit as tf
import summaries
from optkit.train import fitting, run_log
from optkit.train.batches import batches
from optkit.train.fit import fit
from optkit.train.history import History
from optkit.train.stopping import EarlyStopping
from tests.train.fit_models import SPEED, Model, X, Y, create, scalars

F = np.float32


@pytest.fixture
def model(graph):
    return Model()


# -- training -------------------------------------------------------------------------------------


def test_it_trains_and_tells_what_it_measured(model):
    history = model.fit(steps=300)
    assert isinstance(history, History)
    assert history.stopped == "steps"
    assert history.steps.tolist() == list(range(1, 301))
    assert list(history) == ["loss", "learning_rate", "gradient_norm"]
    assert history["loss"][0] > 1 > 1e-3 > history.final["loss"]
    assert (history["learning_rate"] == F(0.1)).all()
    assert history["gradient_norm"][0] > 0
    np.testing.assert_allclose(history.session.run(model.w), [1, -2, 0.5], atol=1e-2)
    assert 0 < history.data_seconds < history.seconds


def test_it_takes_the_same_steps_as_a_loop_by_hand(model):
    history = model.fit(steps=25, prefetch=3)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        iterator = iter(model.data())
        losses = []
        for _ in range(25):
            x, y = next(iterator)
            losses.append(session.run(model.train_op, {model.x: x, model.y: y}))
        assert history["loss"].tolist() == [float(v) for v in losses]
        assert (session.value(model.w) == history.session.value(model.w)).all()


@pytest.mark.parametrize(
    "make",
    [
        create(tf.train.FtrlOptimizer(0.5)),
        lambda m: tf.train.MomentumOptimizer(0.1, 0.9).minimize(m.loss, global_step=m.step),
        lambda m: tf.contrib.slim.learning.create_train_op(
            m.loss, tf.train.AdamOptimizer(0.1), clip_gradient_norm=1.0
        ),
    ],
    ids=["create_train_op", "minimize", "slim"],
)
def test_every_kind_of_train_op(graph, make):
    model = Model(make)
    history = model.fit(steps=100)
    assert history.final["loss"] < 0.1
    assert history.final["learning_rate"] in (0.5, 0.1)
    assert "gradient_norm" in history


def grouped(model):
    step = tf.train.GradientDescentOptimizer(0.1).minimize(model.loss)
    return tf.group(step, tf.assign_add(tf.get_variable("n", [], dtype=tf.int32), 1))


def applied(model):
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    return optimizer.apply_gradients(optimizer.compute_gradients(model.loss))


def test_the_loss_of_minimize_is_known_in_a_group_too(graph):
    assert "loss" in Model(grouped).fit(steps=1)


def test_an_operation_without_a_loss_trains_too(graph):
    model = Model(applied)
    assert "loss" in model.fit(steps=1, loss=model.loss)
    history = model.fit(steps=100)
    assert "loss" not in history
    assert len(history) == 100
    np.testing.assert_allclose(history.session.run(model.w), [1, -2, 0.5], atol=1e-2)


def test_data_of_all_kinds(model):
    pairs = [(X[:30], Y[:30]), (X[30:], Y[30:])]
    for data in (
        pairs,
        (pair for pair in pairs * 3),
        ({model.x: x, "y:0": y} for x, y in pairs * 3),
        (X, Y),
        {model.x: X, model.y: Y},
        np.concatenate([X, Y[:, None]], axis=1)[:, None],
    ):
        inputs = model.inputs
        if isinstance(data, np.ndarray):
            whole = tf.placeholder(tf.float32, [None, 4])
            train_op = tf.train.GradientDescentOptimizer(0.1).minimize(
                tf.reduce_mean(tf.square(tf.reduce_sum(whole[:, :3] * model.w, 1) - whole[:, 3]))
            )
            assert len(fit(train_op, data, whole, steps=5, progress=False)) == 5
        else:
            assert len(fit(model.train_op, data, inputs, steps=5, progress=False)) == 5


def test_a_data_loader_of_pytorch():
    torch = pytest.importorskip("torch")
    model = Model()
    dataset = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    history = model.fit(torch.utils.data.DataLoader(dataset, batch_size=10), steps=20)
    assert history["loss"][19] < history["loss"][0]


def test_without_steps_the_data_is_gone_through_once(model):
    assert len(model.fit(model.data(epochs=2))) == 12
    assert model.fit([(X, Y)] * 3).stopped == "data"
    with pytest.raises(ValueError, match="steps: needed, since the data never ends"):
        model.fit()
    with pytest.raises(ValueError, match="steps: needed"):
        model.fit((X, Y))


def test_data_that_ends_early_is_told(model, caplog):
    history = model.fit(iter([(X, Y)] * 3), steps=10)
    assert (history.stopped, len(history)) == ("data", 3)
    assert "the data ended at step 3, before steps=10" in caplog.text


@pytest.mark.parametrize("prefetch", [0, 2])
def test_data_without_a_batch_is_a_mistake(model, prefetch):
    used_up = iter([(X, Y)])
    model.fit(used_up, steps=1)
    for data in (used_up, [], ()):
        with pytest.raises(ValueError, match="at least one batch, got none; a generator that was"):
            model.fit(data, steps=3, prefetch=prefetch)


def test_a_run_that_is_through_its_data_has_nothing_left_to_do(tmp_path):
    for count in (6, 0):
        tf.reset_default_graph()
        history = Model().fit(batches((X, Y), 10, seed=1, epochs=1), logdir=tmp_path)
        assert (len(history), history.stopped) == (count, "data")


def test_the_same_call_again_evaluates_what_is_trained(tmp_path):
    def fit():
        tf.reset_default_graph()
        model = Model()
        return model.fit(steps=6, logdir=tmp_path, eval=((X, Y), 4, {"loss": model.loss}))

    first = fit()
    with pytest.warns(RuntimeWarning, match="nothing to do: the global step is 6 already"):
        again = fit()
    assert again.final == {"eval/loss": first.final["eval/loss"]}
    assert (len(again), again.stopped) == (0, "steps")
    assert "0 steps" in repr(again)
    points = summaries.read(tmp_path / "eval").scalars("loss")
    assert points.steps.tolist() == [4, 6]  # none twice


def test_an_evaluation_of_a_finished_run_moves_no_random_counter(tmp_path):
    """Otherwise a run that is killed at its very end and started again would go on differently."""

    def counters():
        tf.reset_default_graph()
        model = Model()
        noisy = model.loss + tf.random_normal([])
        history = model.fit(steps=6, logdir=tmp_path, eval=((X, Y), 4, {"loss": noisy}))
        return history.session.export_state().counters

    first = counters()
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="nothing to do"):
            assert counters() == first


def test_the_default_session_goes_on(model):
    with tf.Session() as session:
        first = model.fit(steps=5)
        assert first.session is session
        second = model.fit(steps=8)
        assert second.steps.tolist() == [6, 7, 8]
        count = len(session.graph.get_operations())
        model.fit(steps=10)
        assert len(session.graph.get_operations()) == count
        with pytest.warns(RuntimeWarning, match="nothing to do: the global step is 10 already"):
            assert len(model.fit(steps=10)) == 0
    other = tf.Session()
    assert model.fit(steps=2, session=other).session is other


def test_variables_that_hold_values_keep_them(model):
    with tf.Session() as session:
        session.run(tf.assign(model.w, [5.0, 5.0, 5.0]))
        history = model.fit(steps=1)
        assert history["loss"][0] > 50


def test_a_train_op_that_counts_no_steps(graph):
    model = Model(lambda m: tf.train.GradientDescentOptimizer(0.1).minimize(m.loss))
    history = model.fit(steps=7)
    assert history.steps.tolist() == [1, 2, 3, 4, 5, 6, 7]


def test_a_step_that_counts_by_more_is_followed(graph):
    model = Model(
        lambda m: tf.group(
            tf.train.GradientDescentOptimizer(0.1).minimize(m.loss), tf.assign_add(m.step, 3)
        )
    )
    history = model.fit(steps=10, eval=((X, Y), 5, {"loss": model.loss}))
    assert history.steps.tolist() == [3, 6, 9, 12]
    assert history.curve("eval/loss")[0].tolist() == [6, 12]


def test_random_numbers_and_update_ops_are_as_in_a_loop_by_hand(graph):
    x = tf.placeholder(tf.float32, [None, 3])
    tf.set_random_seed(4)
    net = tf.layers.batch_normalization(tf.nn.dropout(x, 0.5), training=True)
    loss = tf.reduce_mean(tf.square(tf.layers.dense(net, 1)))
    train_op = tf.contrib.training.create_train_op(loss, tf.train.AdamOptimizer(0.1))
    history = fit(train_op, batches(X, 20, seed=0), x, steps=6, progress=False)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        by_hand = [session.run(train_op, {x: batch}) for batch in batches(X, 20, seed=0, epochs=2)]
    assert history["loss"].tolist() == [float(v) for v in by_hand]


def test_the_mean_of_a_loss_of_several_values(graph):
    x = tf.placeholder(tf.float32, [None, 3], name="x")
    w = tf.get_variable("w", [3], initializer=tf.ones_initializer())
    train_op = tf.contrib.training.create_train_op(
        tf.reduce_sum(x * w, 1), tf.train.GradientDescentOptimizer(0.0)
    )
    history = fit(train_op, [X], x, steps=1, progress=False)
    np.testing.assert_allclose(history.final["loss"], X.sum(1).mean(), rtol=1e-5)
    with pytest.raises(tf.errors.NonFiniteError, match="the loss is not finite"):
        fit(train_op, [X * np.inf], x, steps=1, progress=False)


def test_a_step_that_does_not_move_is_told(model, monkeypatch, caplog):
    monkeypatch.setattr(fitting, "_STILL", 3)
    optimizer = tf.train.GradientDescentOptimizer(0.1)
    accumulated = tf.train.GradientAccumulationOptimizer(optimizer, 5)
    train_op = accumulated.minimize(model.loss, global_step=model.step)
    history = fit(train_op, (X, Y), model.inputs, steps=2, progress=False)
    assert history.steps.tolist() == [1, 2]
    assert "the global step has been 0 for 3 runs" in caplog.text


# -- evaluations ----------------------------------------------------------------------------------


def test_evaluations_are_means_over_all_examples(model, tmp_path):
    held = [(X[:50], Y[:50]), (X[50:], Y[50:])]  # of unequal size
    history = model.fit(steps=25, eval=(held, 10, {"loss": model.loss}), logdir=tmp_path / "a")
    steps, values = history.curve("eval/loss")
    assert steps.tolist() == [10, 20, 25]
    final = history.session.run(model.loss, {model.x: X, model.y: Y})
    np.testing.assert_allclose(values[-1], final, rtol=1e-5)
    assert np.isnan(history["eval/loss"][0])


def test_what_is_fed_with_every_batch(graph):
    model = Model()
    keep = tf.placeholder(tf.float32, [], name="keep_prob")
    net = tf.reduce_sum(tf.nn.dropout(model.x, keep) * model.w, 1) - model.y
    loss = tf.reduce_mean(tf.square(net))
    train_op = tf.train.AdamOptimizer(0.01).minimize(loss)
    history = fit(
        train_op,
        model.data(),
        model.inputs,
        steps=3,
        feed_dict={keep: 0.5},
        eval=((X, Y), 1, {"keep": keep}, {keep: 1.0}),
        progress=False,
    )
    assert history.final["eval/keep"] == 1.0
    with pytest.raises(tf.errors.InvalidArgumentError, match="'keep_prob' was not fed"):
        fit(train_op, model.data(), model.inputs, steps=1, progress=False)


def test_endless_batches_give_one_epoch_and_stay_where_they_are(model):
    data = model.data()
    history = model.fit(data, steps=7, eval=(data, 3, {"loss": model.loss}))
    alone = Model.fit(model, model.data(), steps=7)
    assert history["loss"].tolist() == alone["loss"].tolist()
    feeds = {model.x: X, model.y: Y}
    np.testing.assert_allclose(
        history.final["eval/loss"], history.session.run(model.loss, feeds), rtol=1e-5
    )


def test_early_stopping_by_an_evaluation(model):
    flat = EarlyStopping("eval/one", patience=3)
    history = model.fit(steps=100, eval=((X, Y), 2, {"one": tf.constant(1.0)}), early_stopping=flat)
    assert (history.stopped, history.steps[-1]) == ("early stopping", 8)
    assert flat.best_step == 2
    # A fit that starts anew forgets what another one saw.
    again = model.fit(steps=100, eval=((X, Y), 2, {"one": tf.constant(1.0)}), early_stopping=flat)
    assert again.steps[-1] == 8


def test_early_stopping_by_the_loss(model):
    history = model.fit(steps=5000, early_stopping=EarlyStopping("loss", 5, min_delta=10.0))
    assert (history.stopped, len(history)) == ("early stopping", 6)


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ((1, 2), TypeError, r"eval: expected \(data, every, \{name: tensor\}\).*got tuple of 2"),
        (3, TypeError, "eval: expected"),
        (((X, Y), 0, {"a": "loss:0"}), ValueError, "every: expected a number of steps >= 1, got 0"),
        (((X, Y), 1, {}), TypeError, "expected a dict from names to tensors"),
        (((X, Y), 1, {"a": 3}), TypeError, "'a': expected a tensor"),
        (((X, Y), 1, {"": "loss:0"}), ValueError, "expected a name for each tensor, got ''"),
        (
            ((X, Y), 1, {"a": "OptimizeLoss/control_dependency:0"}),
            ValueError,
            "'a': computing .* changes trainable variables; pass the loss itself",
        ),
        ((iter([(X, Y)]), 1, {"a": "loss:0"}), TypeError, "gone through again each time"),
    ],
)
def test_bad_evaluations(model, given, kind, message):
    with pytest.raises(kind, match=message):
        model.fit(steps=1, eval=given)


def test_an_evaluation_over_no_data(model):
    with pytest.raises(ValueError, match="at least one batch, got none"):
        model.fit(steps=1, eval=([], 1, {"a": model.loss}))


# -- what is written ------------------------------------------------------------------------------


def test_summaries_at_exact_steps_with_the_values_of_those_steps(tmp_path):
    model = Model(summaries=tf.contrib.layers.OPTIMIZER_SUMMARIES)
    history = model.fit(
        steps=42,
        logdir=tmp_path / "run",
        save_summaries_steps=20,
        eval=((X, Y), 20, {"loss": model.loss}),
    )
    found = scalars(tmp_path / "run")
    losses = found["OptimizeLoss/loss"]
    assert [step for step, _ in losses] == [1, 21, 41]
    for step, value in losses:
        assert value == F(history["loss"][step - 1])
    assert [step for step, _ in found["OptimizeLoss/global_norm/gradient_norm"]] == [1, 21, 41]
    assert "loss" not in found  # the graph has its own
    assert [s for s, _ in scalars(tmp_path / "run/eval")["OptimizeLoss/loss"]] == [20, 40, 42]


def test_a_graph_without_summaries_gets_the_columns(graph, tmp_path):
    model = Model(create(tf.train.AdamOptimizer(0.1)))
    model.fit(steps=12, logdir=str(tmp_path / "run"), eval=((X, Y), 5, {"loss": model.loss}))
    found = scalars(tmp_path / "run")
    assert found.keys() == {"loss", "learning_rate", "gradient_norm"}
    assert [step for step, _ in found["loss"]] == [1, 11]
    assert [step for step, _ in scalars(tmp_path / "run/eval")["loss"]] == [5, 10, 12]


def test_how_fast_it_was_is_written_with_the_summaries(model, tmp_path, monkeypatch):
    clock = itertools.count(100.0, 2.0)  # two seconds from one summary to the next
    monkeypatch.setattr(run_log, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    model.fit(steps=25, logdir=tmp_path)
    found = EventAccumulator(str(tmp_path)).Reload().Scalars(SPEED)
    assert [(event.step, event.value) for event in found] == [(1, 0.5), (11, 5), (21, 5)]


@pytest.mark.parametrize(
    ("summarised", "train_tag", "eval_tags"),
    [
        ({}, "loss", ["loss", "error"]),
        # Another quantity that is called a loss is not that of training.
        ({"aux/loss": "other"}, "loss", ["loss", "error"]),
        ({"aux/loss": "other", "main/loss": "loss"}, "main/loss", ["main/loss", "error"]),
        ({"aux/error": "other", "b/error": "error"}, "loss", ["loss", "b/error"]),
        ({"aux/error": "other"}, "loss", ["loss", "aux/error"]),  # in training it is another tensor
        ({"loss": "other"}, "loss", ["loss", "error"]),
    ],
)
def test_evaluations_have_the_tags_of_training(tmp_path, summarised, train_tag, eval_tags):
    model = Model(create(tf.train.AdamOptimizer(0.1)))
    error = tf.reduce_mean(tf.abs(model.w), name="error")
    tensors = {"loss": model.loss, "error": error, "other": tf.reduce_sum(model.w)}
    for tag, name in summarised.items():
        tf.summary.scalar(tag, tensors[name])
    evaluated = {"loss": model.loss, "error": error}
    history = model.fit(steps=2, logdir=tmp_path, eval=((X, Y), 1, evaluated))
    if "loss" not in summarised:
        assert scalars(tmp_path)[train_tag] == [(1, F(history["loss"][0]))]
    assert train_tag == "loss" or "loss" not in scalars(tmp_path)
    assert list(scalars(tmp_path / "eval")) == eval_tags


def test_only_rank_0_writes(model, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    assert len(model.fit(steps=3, logdir=tmp_path / "run", progress=True)) == 3
    assert not (tmp_path / "run").exists()


def test_two_fits_on_one_logdir(model, tmp_path):
    class Second(tf.train.SessionRunHook):
        def after_create_session(self, session, coord):
            with pytest.raises(RuntimeError, match="a run is at work there already"):
                model.fit(steps=3, logdir=tmp_path)

    assert len(model.fit(steps=3, logdir=tmp_path, hooks=[Second()])) == 3


def test_checkpoints_by_steps(model, tmp_path):
    model.fit(steps=10, logdir=tmp_path, save_checkpoint_steps=3, max_to_keep=2)
    assert {p.name for p in tmp_path.glob("model.ckpt*")} == {
        "model.ckpt-9.safetensors",
        "model.ckpt-10.safetensors",
    }
    assert tf.train.latest_checkpoint(tmp_path).endswith("model.ckpt-10")


def test_p072_events_are_on_disk_before_the_checkpoint_after_them(model, tmp_path, monkeypatch):
    seen = []
    save = tf.train.Saver.save

    def saved(*args, **options):
        events = [scalars(tmp_path / sub) for sub in ("", "eval")]
        seen.append([tags["loss"][-1][0] for tags in events])
        return save(*args, **options)

    monkeypatch.setattr(tf.train.Saver, "save", saved)
    model.fit(
        steps=20,
        logdir=tmp_path,
        save_summaries_steps=1,
        save_checkpoint_steps=5,
        eval=((X, Y), 5, {"loss": model.loss}),
    )
    assert seen == [[5, 5], [10, 10], [15, 15], [20, 20]]


def test_a_cell_that_runs_again_is_told_why_nothing_happens(model, tmp_path):
    model.fit(steps=5, logdir=tmp_path)
    with pytest.warns(RuntimeWarning, match=r"resume=False or another logdir to start anew"):
        model.fit(steps=5, logdir=tmp_path)
    again = model.fit(steps=4, logdir=tmp_path, resume=False)
    assert again.steps.tolist() == [1, 2, 3, 4]


# -- going on -------------------------------------------------------------------------------------


class Noisy(Model):
    """With dropout and slots: all that a checkpoint has to hold."""

    def __init__(self):
        def make(model):
            drop = tf.reduce_mean(tf.nn.dropout(model.x, 0.5) * model.w)
            return tf.contrib.layers.optimize_loss(
                model.loss + drop, model.step, 0.1, "Adam", summaries=["loss"]
            )

        tf.set_random_seed(3)
        super().__init__(make)


@pytest.mark.parametrize("prefetch", [0, 2])
def test_a_run_that_goes_on_is_the_run_that_did_not_stop(tmp_path, prefetch):
    def run(folder, *until):
        parts = []
        for steps in until:
            tf.reset_default_graph()
            model = Noisy()
            parts.append(
                model.fit(
                    steps=steps,
                    logdir=tmp_path / folder,
                    eval=((X, Y), 4, {"loss": model.loss}),
                    prefetch=prefetch,
                    save_summaries_steps=3,
                )
            )
        state = parts[-1].session.export_state()
        return np.concatenate([part["loss"] for part in parts]), state

    losses, state = run("whole", 20)
    in_parts, parts_state = run("parts", 4, 12, 20)
    assert losses.tolist() == in_parts.tolist()
    assert state.counters == parts_state.counters
    for name, value in state.variables.items():
        assert (value == parts_state.variables[name]).all(), name
    for sub in ("", "eval"):
        assert scalars(tmp_path / "whole" / sub) == scalars(tmp_path / "parts" / sub)


def test_a_checkpoint_of_another_model_says_what_to_do(model, tmp_path):
    model.fit(steps=2, logdir=tmp_path)
    tf.reset_default_graph()
    x = tf.placeholder(tf.float32, [None, 3])
    loss = tf.reduce_mean(tf.square(tf.layers.dense(x, 1)))
    train_op = tf.contrib.training.create_train_op(loss, tf.train.AdamOptimizer(0.1))
    with pytest.raises(tf.errors.NotFoundError, match="missing") as caught:
        fit(train_op, [X], x, steps=4, logdir=tmp_path, progress=False)
    assert "resume=False" in caught.value.__notes__[0]
    assert len(fit(train_op, [X], x, steps=4, logdir=tmp_path, progress=False, resume=False)) == 4


def test_early_stopping_and_divergence_go_on(tmp_path):
    def run(steps):
        tf.reset_default_graph()
        model = Model()
        early = EarlyStopping("eval/one", patience=4)
        return model.fit(
            steps=steps,
            logdir=tmp_path,
            eval=((X, Y), 2, {"one": tf.constant(1.0)}),
            early_stopping=early,
            divergence=1e6,
        )

    assert run(4).stopped == "steps"
    assert (run(100).stopped, run(100).steps.tolist()) == ("early stopping", [11, 12])


def test_a_session_that_has_gone_further_than_the_checkpoint_keeps_its_values(model, tmp_path):
    with tf.Session():
        model.fit(steps=5, logdir=tmp_path)
        model.fit(steps=9)
        assert model.fit(steps=12, logdir=tmp_path).steps.tolist() == [10, 11, 12]


def test_hooks_keep_their_state_in_checkpoints(tmp_path):
    class Counting(tf.train.SessionRunHook):
        count = 0

        def after_run(self, run_context, run_values):
            self.count += 1

        def state_dict(self):
            return {"count": self.count}

        def load_state_dict(self, state):
            self.count = state["count"]

    for steps in (4, 10):
        tf.reset_default_graph()
        hook = Counting()
        Model().fit(steps=steps, logdir=tmp_path, hooks=hook)
        assert hook.count == steps


# -- hooks ----------------------------------------------------------------------------------------


def test_hooks_have_tf1s_life(model):
    seen = []

    class Hook(tf.train.SessionRunHook):
        def begin(self):
            seen.append("begin")
            self.extra = tf.placeholder_with_default(1.0, [])

        def after_create_session(self, session, coord):
            seen.append(("created", int(session.value(model.step))))

        def before_run(self, run_context):
            assert run_context.original_args.fetches is model.train_op
            return tf.train.SessionRunArgs([model.loss, self.extra], {self.extra: 2.0})

        def after_run(self, run_context, run_values):
            _, extra = run_values.results
            seen.append(extra)
            if len(seen) == 4:
                run_context.request_stop()

        def end(self, session):
            seen.append("end")

    history = model.fit(steps=10, hooks=[Hook()])
    assert seen == ["begin", ("created", 0), 2.0, 2.0, "end"]
    assert history.stopped == "hook"
    assert model.fit(steps=10, hooks=tf.train.StopAtStepHook(last_step=4)).steps.tolist() == [
        1, 2, 3, 4,
    ]  # fmt: skip


def test_hooks_that_feed_what_the_data_feeds(model):
    hook = tf.train.FeedFnHook(lambda: {model.x: X})
    with pytest.raises(RuntimeError, match=r"FeedFnHook feeds .*'x:0'.*fed already"):
        model.fit(steps=1, hooks=[hook])


# -- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"steps": -1}, ValueError, "steps: expected at least 0, got -1"),
        ({"steps": 1.5}, TypeError, "steps: expected an integer"),
        ({"steps": True}, TypeError, "steps: expected an integer"),
        ({"on_nonfinite": "stop"}, ValueError, "expected one of raise, skip, rollback, ignore"),
        ({"save_summaries_steps": 0}, ValueError, "save_summaries_steps: expected at least 1"),
        ({"save_checkpoint_steps": 0}, ValueError, "save_checkpoint_steps: expected at least 1"),
        ({"save_checkpoint_secs": 0}, ValueError, "save_checkpoint_secs: expected > 0, got 0"),
        ({"save_checkpoint_secs": "a"}, TypeError, "save_checkpoint_secs: expected a number"),
        ({"max_to_keep": -1}, ValueError, "max_to_keep: expected at least 0"),
        ({"max_to_keep": "all"}, TypeError, "max_to_keep: expected an integer"),
        ({"resume": "no"}, TypeError, "resume: expected True or False, got 'no'"),
        ({"averages": 3}, TypeError, "averages: expected an ExponentialMovingAverage or a Moving"),
        ({"rollback_steps": 0}, ValueError, "rollback_steps: expected at least 1"),
        ({"prefetch": -1}, ValueError, "prefetch: expected at least 0"),
        ({"divergence": 1.0}, ValueError, "divergence: expected > 1, got 1"),
        ({"divergence": "2"}, TypeError, "divergence: expected a number, got '2'"),
        ({"early_stopping": "loss"}, TypeError, "early_stopping: expected an EarlyStopping"),
        (
            {"early_stopping": EarlyStopping("eval/loss")},
            ValueError,
            r"monitor: expected one of \['loss', .*'gradient_norm'\], got 'eval/loss'",
        ),
        ({"logdir": ""}, ValueError, "logdir: expected a directory or None, got ''"),
        ({"logdir": 3}, TypeError, "logdir: expected a path, got 3"),
        ({"hooks": 3}, TypeError, "hooks: expected SessionRunHooks, got 3"),
        ({"hooks": ["a"]}, TypeError, "hooks: expected SessionRunHooks, got 'a'"),
        ({"session": 3}, TypeError, "session: expected a Session, got 3"),
        ({"loss": 3}, TypeError, "loss: expected a tensor"),
        ({"loss": "global_step:0"}, TypeError, "loss: expected a floating tensor"),
    ],
)
def test_bad_arguments(model, options, kind, message):
    with pytest.raises(kind, match=message):
        model.fit(**{"steps": 1, **options})


def test_text_cannot_be_averaged(model):
    with pytest.raises(TypeError, match="eval: 'a': expected real numbers, got"):
        model.fit(steps=1, eval=((X, Y), 1, {"a": tf.constant("text")}))


def test_a_plateau_of_another_graph(model):
    with tf.Graph().as_default():
        plateau = tf.train.ReduceOnPlateau()
    with pytest.raises(ValueError, match=r"plateau: .* is of another graph than the train op"):
        model.fit(steps=1, eval=((X, Y), 1, {"a": model.loss}), plateau=(plateau, "a"))


def test_what_is_no_train_op(model):
    for wrong in (3, None, model.w, "train"):
        with pytest.raises(TypeError, match="train_op: expected what optimize_loss"):
            fit(wrong, [(X, Y)], model.inputs, steps=1)
    with pytest.raises(ValueError, match=r"changes no variable; .* not the loss"):
        fit(model.loss, [(X, Y)], model.inputs, steps=1)
    with pytest.raises(ValueError, match="of another graph than the train op"):
        model.fit(steps=1, session=tf.Session(graph=tf.Graph()))


def test_inputs_that_are_missing_are_asked_for(model):
    with pytest.raises(TypeError, match=r"inputs: needed.*pass inputs=\(x, y\)"):
        fit(model.train_op, [(X, Y)], steps=1, progress=False)


def test_slow_data_is_told_of(caplog):
    history = History()
    history.seconds, history.data_seconds = 10.0, 8.0
    with caplog.at_level(logging.INFO, "optkit"):
        importlib.import_module("optkit.train.fit")._tell_of_slow_data(history, None)
    assert "80 % of the time went into waiting for data; prefetch=2" in caplog.text
