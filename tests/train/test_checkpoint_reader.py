"""Looking into checkpoints, and starting variables from them."""

import logging

import numpy as np
import pytest

import optkit as tf
from optkit.errors import InvalidArgumentError, NotFoundError
from optkit.train import checkpoint_reader

train = tf.train
framework = tf.contrib.framework


@pytest.fixture
def saved(tmp_path):
    """The prefix of a checkpoint of a small model."""
    with tf.Graph().as_default(), tf.Session() as session:
        with tf.variable_scope("net"):
            tf.get_variable("w", initializer=np.float32([[1, 2], [3, 4]]))
            tf.get_variable("b", initializer=np.float32([5, 6]))
        tf.get_variable("count", initializer=np.int64(7))
        session.run(tf.global_variables_initializer())
        return train.Saver().save(session, tmp_path / "m", 3)


def test_what_a_checkpoint_holds_is_listed(saved, tmp_path):
    expected = [("count", []), ("net/b", [2]), ("net/w", [2, 2])]
    assert train.list_variables(saved) == expected
    assert train.list_variables(tmp_path) == expected  # the latest
    np.testing.assert_array_equal(train.load_variable(tmp_path, "net/b:0"), [5, 6])
    reader = train.NewCheckpointReader(saved)
    assert reader.get_variable_to_shape_map() == dict(expected)
    assert reader.get_variable_to_dtype_map()["count"] is tf.int64
    assert reader.has_tensor("count")
    assert not reader.has_tensor("other")
    assert reader.get_tensor("count") == 7
    assert reader.debug_string().splitlines()[1] == "net/b (float32) [2]"


def test_what_is_not_there_is_told(saved, tmp_path):
    with pytest.raises(NotFoundError, match="has no 'x'; it has count, net/b, net/w"):
        train.load_variable(saved, "x")
    with pytest.raises(NotFoundError, match="no such checkpoint"):
        train.load_checkpoint(tmp_path / "other")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="there is no checkpoint in"):
        train.list_variables(tmp_path / "empty")


def started():
    """Variables by name, after their initializers have run."""
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        return {v.op.name: session.run(v).tolist() for v in tf.global_variables()}


def test_variables_start_from_a_checkpoint(saved, tmp_path):
    with tf.variable_scope("mine"):
        w = tf.get_variable("w", [2, 2])
        tf.get_variable("b", [2])
    other = tf.get_variable("other", initializer=np.float32([0, 0]))
    tf.get_variable("count", initializer=np.int64(0))
    train.init_from_checkpoint(tmp_path, {"net/": "mine/", "net/b": other})
    assert started() == {
        "mine/w": [[1, 2], [3, 4]],
        "mine/b": [5, 6],
        "other": [5, 6],
        "count": 0,
    }
    assert w.initial_value.shape == (2, 2)


def test_everything_may_start_from_a_checkpoint(saved):
    with tf.variable_scope("net"):
        tf.get_variable("w", [2, 2])
    tf.get_variable("count", initializer=np.int64(0))
    framework.init_from_checkpoint(saved, {"/": "/"})
    assert started() == {"net/w": [[1, 2], [3, 4]], "count": 7}


def test_a_list_of_pairs_and_scopes_inside_a_checkpoint(saved):
    with tf.variable_scope("a"), tf.variable_scope("net"):
        tf.get_variable("b", [2])
    train.init_from_checkpoint(saved, [("/", "a/")])
    assert started() == {"a/net/b": [5, 6]}


def test_a_map_that_does_not_fit_is_refused(saved):
    w = tf.get_variable("mine/w", [2])
    before = w.initializer
    for pairs, message in (
        ({"net/w": w}, r"'mine/w': expected shape \(2,\), got \(2, 2\)"),
        ({"count": w}, "'mine/w': expected float32, got int64"),
        ({"net/x": w}, "has no 'net/x', for variable 'mine/w'"),
        ({"net/": "other/"}, "no variable in 'other/'"),
        ({"net/w": "other"}, "there is no variable 'other'"),
        ({"net/w": "mine/"}, "expected a scope"),
        ({"net/w": 3}, "expected a Variable or a name"),
    ):
        with pytest.raises(ValueError, match=message):
            train.init_from_checkpoint(saved, pairs)
    assert w.initializer is before
    train.init_from_checkpoint(saved, {})


def test_variables_are_assigned_from_a_checkpoint(saved):
    w = tf.get_variable("net/w", [2, 2])
    op, feeds = framework.assign_from_checkpoint(saved, [w])
    with tf.Session() as session:
        session.run(op, feeds)
        np.testing.assert_array_equal(session.run(w), [[1, 2], [3, 4]])
    x = tf.get_variable("x", [2])
    with pytest.raises(ValueError, match="lacks 'x'"):
        framework.assign_from_checkpoint(saved, [x])
    with pytest.raises(ValueError, match="expected shape"):
        framework.assign_from_checkpoint(saved, {"net/w": x})


def test_a_function_assigns_from_a_checkpoint(saved, caplog):
    w = tf.get_variable("net/w", [4])
    x = tf.get_variable("x", initializer=np.float32([9]))
    assign = framework.assign_from_checkpoint_fn(
        saved, [w, x], ignore_missing_vars=True, reshape_variables=True
    )
    with tf.Session() as session:
        session.run(x.initializer)
        assign(session)
        np.testing.assert_array_equal(session.run(w), [1, 2, 3, 4])
        assert session.run(x) == [9]
        with pytest.raises(InvalidArgumentError, match="expected shape"):
            framework.assign_from_checkpoint_fn(saved, [w])(session)
        with pytest.raises(NotFoundError, match="'x' is missing"):
            framework.assign_from_checkpoint_fn(saved, [x])(session)
    with caplog.at_level(logging.WARNING, "optkit"):
        assert framework.assign_from_checkpoint_fn(saved, [x], ignore_missing_vars=True) is None
    assert "variable x is missing" in caplog.text
    assert "no variables to restore" in caplog.text
    with pytest.raises(ValueError, match="expected variables, got none"):
        framework.assign_from_checkpoint_fn(saved, [])


def test_a_monitored_session_starts_from_another_runs_checkpoint(saved, tmp_path):
    w = tf.get_variable("net/w", [2, 2])
    train.get_or_create_global_step()
    train.init_from_checkpoint(saved, {"net/w": w})
    with train.MonitoredTrainingSession(checkpoint_dir=tmp_path / "new") as session:
        np.testing.assert_array_equal(session.run(w), [[1, 2], [3, 4]])
    tf.summary.FileWriterCache.clear()


# -- waiting --------------------------------------------------------------------------------------


class World:
    """Time that passes by sleeping, and checkpoints that come at their times."""

    def __init__(self, monkeypatch, folder, at):
        self.now, self.folder, self.at, self.naps = 0.0, folder, dict(at), []
        monkeypatch.setattr(checkpoint_reader.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(checkpoint_reader.time, "sleep", self.sleep)
        self.come()

    def sleep(self, seconds):
        self.naps.append(seconds)
        self.now += seconds
        self.come()

    def come(self):
        for when, name in list(self.at.items()):
            if when <= self.now:
                (self.folder / f"{name}.safetensors").write_bytes(b"")
                train.update_checkpoint_state(self.folder, self.folder / name)
                del self.at[when]


def test_new_checkpoints_are_waited_for(monkeypatch, tmp_path):
    World(monkeypatch, tmp_path, {0: "a", 3: "b"})
    assert tf.contrib.training.wait_for_new_checkpoint(tmp_path) == str(tmp_path / "a")
    found = tf.contrib.training.wait_for_new_checkpoint(tmp_path, str(tmp_path / "a"))
    assert found == str(tmp_path / "b")
    assert tf.contrib.training.wait_for_new_checkpoint(tmp_path, found, timeout=2.5) is None


def test_checkpoints_are_gone_through_as_they_come(monkeypatch, tmp_path):
    world = World(monkeypatch, tmp_path, {0: "a", 3: "b", 30: "c"})
    seen = [
        (prefix[-1], world.now)
        for prefix in train.checkpoints_iterator(tmp_path, min_interval_secs=5, timeout=10)
    ]
    assert seen == [("a", 0), ("b", 5)]
    answers = [False, False, True]
    seen = list(train.checkpoints_iterator(tmp_path, 0, 10, lambda: answers.pop(0)))
    assert [prefix[-1] for prefix in seen] == ["b", "c"]
    assert answers == []


def test_the_times_of_checkpoints(saved):
    (time,) = train.get_checkpoint_mtimes([saved, saved + "x"])
    assert time > 1e9
