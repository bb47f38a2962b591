"""The state of a training run: captured, written, read, applied."""

import numpy as np
import pytest
from safetensors.numpy import save_file

import optkit as tf
from optkit.errors import InvalidArgumentError, NotFoundError
from optkit.train import training_state


def model(optimizer):
    w = tf.get_variable("w", initializer=np.float32([3, -2]))
    step = tf.train.get_or_create_global_step()
    noise = tf.random_normal([2])
    return optimizer.minimize(tf.nn.l2_loss(w + noise), step)


def test_a_run_goes_on_from_its_file_bit_for_bit(tmp_path):
    train_op = model(tf.train.AdamOptimizer(0.1))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for _ in range(3):
            session.run(train_op)
        state = training_state.capture(session, {"position": {"epoch": 1, "batch": 2}})
        training_state.save_state(tmp_path / "s.safetensors", state)
        for _ in range(3):
            session.run(train_op)
        expected = session.export_state()
    read = training_state.load_state(tmp_path / "s.safetensors")
    assert (read.step, read.extra) == (3, {"position": {"epoch": 1, "batch": 2}})
    with tf.Session() as session:
        result = training_state.apply(session, read)
        assert (result.missing, result.extra, result.mismatched) == ([], [], {})
        for _ in range(3):
            session.run(train_op)
        found = session.export_state()
    for name, value in expected.variables.items():
        assert found.variables[name].tobytes() == value.tobytes(), name
    assert found.counters == expected.counters


def test_a_file_that_others_wrote_is_no_state(tmp_path):
    save_file({"w": np.float32([1, 2])}, tmp_path / "s.safetensors")
    with pytest.raises(ValueError, match="it holds arrays alone"):
        training_state.load_state(tmp_path / "s.safetensors")
    assert training_state.read_extra(tmp_path / "s.safetensors") is None


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ({"x": object()}, r"but extra\['x'\] is <object object"),
        ({"a": 1, "b": [{"c": np.int64(3)}]}, r"but extra\['b'\]\[0\]\['c'\] is np.int64\(3\)"),
        ({"hooks": {"Own_0": {(1, 2): 3}}}, r"but extra\['hooks'\]\['Own_0'\]\[\(1, 2\)\] is 3"),
    ],
)
def test_what_json_cannot_hold_is_named(tmp_path, extra, message):
    state = training_state.TrainingState({}, extra=extra)
    with pytest.raises(TypeError, match=f"extra: expected what JSON can hold, {message}"):
        training_state.save_state(tmp_path / "s.safetensors", state)
    assert list(tmp_path.iterdir()) == []


def test_what_has_no_end_is_refused(tmp_path):
    endless = []
    endless.append(endless)
    state = training_state.TrainingState({}, extra={"x": endless})
    with pytest.raises(TypeError, match="extra: expected what JSON can hold: Circular"):
        training_state.save_state(tmp_path / "s.safetensors", state)


def test_p031_another_optimizer_takes_the_weights_and_tells_of_the_rest():
    """P031: switching the optimizer keeps what fits, by name."""
    with tf.Graph().as_default(), tf.Session() as session:
        model(tf.train.RMSPropOptimizer(0.1))
        session.run(tf.global_variables_initializer())
        state = training_state.capture(session)
    with tf.Graph().as_default(), tf.Session() as session:
        model(tf.train.AdamOptimizer(0.1))
        session.run(tf.global_variables_initializer())
        with pytest.raises(NotFoundError, match="'beta1_power' is missing"):
            training_state.apply(session, state)
        result = training_state.apply(session, state, partial=True)
        assert result.restored == ["w", "global_step"]
        assert sorted(result.missing) == ["beta1_power", "beta2_power", "w/Adam", "w/Adam_1"]
        assert sorted(result.extra) == ["w/RMSProp", "w/RMSProp_1"]


def test_a_map_says_what_goes_where():
    with tf.Graph().as_default(), tf.Session() as session:
        tf.Variable([1.0, 2.0], name="old")
        tf.Variable([[5.0]], name="other")
        session.run(tf.global_variables_initializer())
        state = training_state.capture(session)
    new = tf.Variable([0.0, 0.0], name="new")
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        result = training_state.apply(session, state, {"new": "old"})
        assert (result.restored, result.extra) == (["new"], ["other"])
        np.testing.assert_array_equal(session.value(new), [1, 2])
        with pytest.raises(InvalidArgumentError, match=r"expected shape \(2,\), got \(1, 1\)"):
            training_state.apply(session, state, {"new": "other"})
        assert training_state.apply(session, state, {"new": "other"}, partial=True).mismatched
        with pytest.raises(NotFoundError, match="no variable 'x'"):
            training_state.apply(session, state, {"x": "old"})
