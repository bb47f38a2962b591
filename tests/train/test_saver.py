"""Saver: what it writes, what it keeps, and that it restores everything or nothing."""

import contextlib
import errno
import json
import logging
import os
import stat
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import optkit as tf
from optkit.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError
from optkit.train.tensor_file import write_arrays


@pytest.fixture
def session():
    with tf.Session() as session:
        yield session


def started(session, values):
    """Variables of these values, initialised."""
    variables = {name: tf.get_variable(name, initializer=value) for name, value in values.items()}
    session.run(tf.global_variables_initializer())
    return variables


def files(folder):
    return sorted(path.name for path in folder.iterdir())


# -- what is written ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", ["float16", "float32", "float64", "int8", "int64", "uint8", "bool", "complex64"]
)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 2)])
def test_what_is_saved_comes_back(session, tmp_path, dtype, shape):
    value = (np.random.default_rng(0).normal(size=shape) * 5).astype(dtype)
    variable = tf.Variable(value, name="w")
    session.run(variable.initializer)
    saver = tf.train.Saver()
    path = saver.save(session, tmp_path / "model")
    session.run(tf.assign(variable, np.zeros_like(value)))
    saver.restore(session, path)
    restored = session.run(variable)
    assert (restored.dtype, restored.shape) == (value.dtype, shape)
    np.testing.assert_array_equal(restored, value)


def test_the_file_holds_variables_by_the_names_of_their_operations(session, tmp_path):
    with tf.variable_scope("net"):
        w = tf.get_variable("w", initializer=np.float32([[1, 2], [3, 4]]))
    tf.train.AdamOptimizer(0.1).minimize(tf.nn.l2_loss(w))
    session.run(tf.global_variables_initializer())
    path = tf.train.Saver().save(session, str(tmp_path / "model.ckpt"), global_step=7)
    assert path == str(tmp_path / "model.ckpt-7")
    arrays = load_file(f"{path}.safetensors")
    assert sorted(arrays) == sorted(v.op.name for v in tf.global_variables())
    assert {"net/w", "net/w/Adam", "net/w/Adam_1", "beta1_power"} <= set(arrays)
    np.testing.assert_array_equal(arrays["net/w"], [[1, 2], [3, 4]])
    assert files(tmp_path) == ["checkpoint", "model.ckpt-7.safetensors"]


def test_arrays_that_are_not_in_order_are_written_in_order(tmp_path):
    array = np.arange(6.0).reshape(2, 3).T
    write_arrays(tmp_path / "x.safetensors", {"x": array}, {})
    np.testing.assert_array_equal(load_file(tmp_path / "x.safetensors")["x"], array)


@pytest.mark.parametrize("kind", [int, np.int64, "variable", "tensor"])
def test_the_step_ends_the_name(session, tmp_path, kind):
    step = tf.train.get_or_create_global_step()
    session.run(tf.global_variables_initializer())
    session.run(tf.assign(step, 12))
    given = {"variable": step, "tensor": step + 0}.get(kind) if isinstance(kind, str) else kind(12)
    saver = tf.train.Saver()
    assert saver.save(session, tmp_path / "m", given) == str(tmp_path / "m-12")
    padded = tf.train.Saver(pad_step_number=True)
    assert padded.save(session, tmp_path / "m", given) == str(tmp_path / "m-00000012")


def test_the_values_are_of_one_moment_whatever_the_session_does_next(session, tmp_path):
    variables = started(session, {"a": [1.0], "b": [2.0]})
    saver = tf.train.Saver(variables)
    path = saver.save(session, tmp_path / "m")
    session.run([tf.assign_add(v, [10.0]) for v in variables.values()])
    saver.restore(session, path)
    assert session.run([variables["a"], variables["b"]]) == [[1], [2]]


def test_a_list_or_a_dict_chooses_variables_and_names(session, tmp_path):
    variables = started(session, {"a": 1.0, "b": 2.0})
    path = tf.train.Saver([variables["b"]]).save(session, tmp_path / "list")
    assert load_file(f"{path}.safetensors") == {"b": 2}
    path = tf.train.Saver({"other": variables["a"]}).save(session, tmp_path / "dict")
    assert load_file(f"{path}.safetensors") == {"other": 1}
    session.run(tf.assign(variables["b"], 9.0))
    tf.train.Saver({"other": variables["b"]}).restore(session, path)
    assert session.run(variables["b"]) == 1


def test_another_graph_restores(session, tmp_path):
    started(session, {"w": np.float32([1, 2])})
    path = tf.train.Saver().save(session, tmp_path / "m")
    with tf.Graph().as_default(), tf.Session() as other:
        w = tf.get_variable("w", [2])
        tf.train.Saver().restore(other, path)  # not initialised before
        np.testing.assert_array_equal(other.run(w), [1, 2])


def test_training_goes_on_from_a_checkpoint_as_if_it_had_not_ended(session, tmp_path):
    w = tf.get_variable("w", initializer=np.float32([3, -2]))
    step = tf.train.get_or_create_global_step()
    train_op = tf.train.AdamOptimizer(0.1).minimize(tf.nn.l2_loss(w), step)
    saver = tf.train.Saver()
    session.run(tf.global_variables_initializer())
    for _ in range(3):
        session.run(train_op)
    path = saver.save(session, tmp_path / "m", step)
    for _ in range(3):
        session.run(train_op)
    expected = session.run([w, step])
    with tf.Session() as other:
        saver.restore(other, path)
        for _ in range(3):
            other.run(train_op)
        np.testing.assert_array_equal(other.run(w), expected[0])
        assert other.run(step) == expected[1] == 6


def test_variables_that_start_from_one_tensor_are_restored_apart(session, tmp_path):
    start = tf.constant([1.0, 1.0])
    a, b = tf.Variable(start), tf.Variable(start)
    saver = tf.train.Saver()
    session.run(tf.global_variables_initializer())
    session.run([tf.assign(a, [2.0, 2.0]), tf.assign(b, [3.0, 3.0])])
    path = saver.save(session, tmp_path / "m")
    session.run(tf.global_variables_initializer())
    saver.restore(session, path)
    np.testing.assert_array_equal(session.run([a, b]), [[2, 2], [3, 3]])


def test_a_variable_of_open_shape_takes_the_shape_of_the_file(session, tmp_path):
    w = tf.Variable([1.0, 2.0], validate_shape=False, name="w")
    saver = tf.train.Saver()
    save_file({"w": np.float32([5, 6, 7])}, tmp_path / "m.safetensors")
    saver.restore(session, tmp_path / "m")
    np.testing.assert_array_equal(session.run(w), [5, 6, 7])


def test_a_finalised_graph_saves_and_restores(session, tmp_path):
    started(session, {"w": 1.0})
    saver = tf.train.Saver()
    session.graph.finalize()
    saver.restore(session, saver.save(session, tmp_path / "m"))


def test_a_saver_ignores_control_dependencies_in_force(session, tmp_path):
    (w,) = started(session, {"w": 1.0}).values()
    with tf.control_dependencies([tf.placeholder(tf.float32, name="unfed").op]):
        saver = tf.train.Saver()
    saver.restore(session, saver.save(session, tmp_path / "m"))
    assert session.run(w) == 1


def test_a_deferred_saver_chooses_its_variables_when_it_is_used(session, tmp_path):
    saver = tf.train.Saver(defer_build=True)
    started(session, {"late": 1.0})
    path = saver.save(session, tmp_path / "m")
    assert load_file(f"{path}.safetensors") == {"late": 1}


def test_eager_variables_are_saved_and_restored(tmp_path):
    with tf.eager():
        w = tf.Variable([1.0, 2.0], name="w")
        with pytest.raises(RuntimeError, match="var_list"):
            tf.train.Saver()
        saver = tf.train.Saver([w])
        path = saver.save(None, tmp_path / "m", global_step=tf.Variable(4))
        assert path.endswith("m-4")
        w.assign([0.0, 0.0])
        saver.restore(None, path)
        np.testing.assert_array_equal(w.numpy(), [1, 2])


# -- what is kept ---------------------------------------------------------------------------------


def test_the_newest_checkpoints_are_kept(session, tmp_path):
    started(session, {"w": 1.0})
    saver = tf.train.Saver(max_to_keep=2)
    paths = [saver.save(session, tmp_path / "m", step) for step in (1, 2, 3)]
    assert saver.last_checkpoints == paths[1:]
    assert files(tmp_path) == ["checkpoint", "m-2.safetensors", "m-3.safetensors"]
    record = json.loads((tmp_path / "checkpoint").read_text())
    assert record == {"latest": "m-3", "all": ["m-2", "m-3"]}
    state = tf.train.get_checkpoint_state(tmp_path)
    assert state.model_checkpoint_path == paths[2] == tf.train.latest_checkpoint(tmp_path)
    assert state.all_model_checkpoint_paths == paths[1:]


@pytest.mark.parametrize("keep", [0, None])
def test_all_checkpoints_are_kept_when_asked_for(session, tmp_path, keep):
    started(session, {"w": 1.0})
    saver = tf.train.Saver(max_to_keep=keep)
    paths = [saver.save(session, tmp_path / "m", step) for step in range(7)]
    assert all(tf.train.checkpoint_exists(path) for path in paths)
    assert saver.last_checkpoints == []
    assert tf.train.get_checkpoint_state(tmp_path).all_model_checkpoint_paths == paths[-1:]


def test_a_checkpoint_written_twice_counts_once(session, tmp_path):
    started(session, {"w": 1.0})
    saver = tf.train.Saver(max_to_keep=2)
    for step in (1, 2, 1, 1):
        saver.save(session, tmp_path / "m", step)
    assert [path[-3:] for path in saver.last_checkpoints] == ["m-2", "m-1"]
    assert tf.train.checkpoint_exists(tmp_path / "m-2")


def test_one_checkpoint_every_so_many_hours_is_kept_for_good(session, tmp_path, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 0)
    started(session, {"w": 1.0})
    saver = tf.train.Saver(max_to_keep=1, keep_checkpoint_every_n_hours=1)
    for step, hours in enumerate([0.5, 1.1, 1.5, 2.5, 2.6]):
        path = saver.save(session, tmp_path / "m", step)
        os.utime(f"{path}.safetensors", (hours * 3600, hours * 3600))
    assert files(tmp_path)[1:] == [f"m-{step}.safetensors" for step in (1, 3, 4)]


def test_a_directory_can_be_moved(session, tmp_path):
    started(session, {"w": 1.0})
    (tmp_path / "old").mkdir()
    tf.train.Saver().save(session, tmp_path / "old" / "m", 1)
    (tmp_path / "old").rename(tmp_path / "new")
    assert tf.train.latest_checkpoint(tmp_path / "new") == str(tmp_path / "new" / "m-1")


def test_relative_paths_work(session, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    started(session, {"w": 1.0})
    saver = tf.train.Saver(max_to_keep=1)
    for step in (1, 2):
        saver.save(session, "./m", step)
    assert tf.train.latest_checkpoint(".") == "m-2"
    assert files(tmp_path) == ["checkpoint", "m-2.safetensors"]


def test_the_home_directory_is_expanded(session, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    started(session, {"w": 1.0})
    assert tf.train.Saver().save(session, "~/m", 1) == str(tmp_path / "m-1")
    assert tf.train.latest_checkpoint("~") == str(tmp_path / "m-1")
    assert tf.train.checkpoint_exists("~/m-1")


def test_after_a_restart_old_checkpoints_are_known(session, tmp_path):
    started(session, {"w": 1.0})
    first = tf.train.Saver()
    for step in (1, 2):
        first.save(session, tmp_path / "m", step)
    second = tf.train.Saver(max_to_keep=2)
    state = tf.train.get_checkpoint_state(tmp_path)
    second.recover_last_checkpoints([*state.all_model_checkpoint_paths, "gone-1"])
    second.save(session, tmp_path / "m", 3)
    assert not tf.train.checkpoint_exists(tmp_path / "m-1")
    assert [path[-3:] for path in second.last_checkpoints] == ["m-2", "m-3"]


def test_what_a_list_of_others_names_elsewhere_is_never_deleted(session, tmp_path):
    started(session, {"w": 1.0})
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
    precious = tf.train.Saver().save(session, outside / "precious")
    own = tf.train.Saver(max_to_keep=1)
    own.recover_last_checkpoints([precious])
    own.save(session, inside / "m", 1)
    assert tf.train.checkpoint_exists(precious)
    own.save(session, outside / "m", 2)  # its own goes, wherever it is
    assert files(inside) == ["checkpoint"]


def test_a_directory_without_checkpoints_has_no_latest(tmp_path, caplog):
    assert tf.train.latest_checkpoint(tmp_path) is None
    assert tf.train.get_checkpoint_state(tmp_path / "nowhere") is None
    tf.train.update_checkpoint_state(tmp_path, tmp_path / "m-1")
    with caplog.at_level(logging.ERROR, logger="optkit"):
        assert tf.train.latest_checkpoint(tmp_path) is None
    assert "m-1" in caplog.text


@pytest.mark.parametrize(
    "text", ['model_checkpoint_path: "m-1"\n', "{}", "[]", '{"latest": 3, "all": 1}', ""]
)
def test_a_foreign_record_is_refused(tmp_path, text):
    (tmp_path / "checkpoint").write_text(text)
    with pytest.raises(ValueError, match='expected JSON with "latest" and "all"'):
        tf.train.latest_checkpoint(tmp_path)


def test_without_a_record_nothing_is_deleted(session, tmp_path):
    started(session, {"w": 1.0})
    saver = tf.train.Saver(max_to_keep=1)
    for step in (1, 2):
        saver.save(session, tmp_path / "m", step, write_state=False)
    assert files(tmp_path) == ["m-1.safetensors", "m-2.safetensors"]
    saver.save(session, tmp_path / "m", 3, latest_filename="best")
    assert tf.train.latest_checkpoint(tmp_path, "best") == str(tmp_path / "m-3")
    assert tf.train.latest_checkpoint(tmp_path) is None


# -- what goes wrong ------------------------------------------------------------------------------


def test_whatever_ends_a_save_the_last_checkpoint_stands(session, tmp_path, monkeypatch):
    (w,) = started(session, {"w": 1.0}).values()
    saver = tf.train.Saver()
    path = saver.save(session, tmp_path / "m")
    session.run(tf.assign(w, 2.0))

    def interrupted(descriptor):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            saver.save(session, tmp_path / "m")
    assert files(tmp_path) == ["checkpoint", "m.safetensors"]
    saver.restore(session, path)
    assert session.run(w) == 1


def test_files_are_synchronised_before_they_are_renamed(session, tmp_path, monkeypatch):
    started(session, {"w": 1.0})
    done = []
    replace, fsync = type(tmp_path).replace, os.fsync
    monkeypatch.setattr(
        type(tmp_path), "replace", lambda old, new: (done.append(new.name), replace(old, new))
    )
    monkeypatch.setattr("os.fsync", lambda file: (done.append("sync"), fsync(file)))
    tf.train.Saver().save(session, tmp_path / "m")
    assert done == ["sync", "m.safetensors", "sync", "sync", "checkpoint", "sync"]


@pytest.mark.parametrize(("code", "saved"), [(errno.EINVAL, True), (errno.EIO, False)])
def test_a_file_system_that_cannot_synchronise_directories_will_do(
    session, tmp_path, monkeypatch, code, saved
):
    started(session, {"w": 1.0})
    fsync = os.fsync

    def only_files(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code, "fsync")
        fsync(descriptor)

    monkeypatch.setattr("os.fsync", only_files)
    with contextlib.nullcontext() if saved else pytest.raises(OSError, match="fsync"):
        tf.train.Saver().save(session, tmp_path / "m")
    assert (tf.train.latest_checkpoint(tmp_path) is not None) is saved


def test_a_rename_that_fails_leaves_all_as_it_was(session, tmp_path, monkeypatch):
    """As on a network's file system whose server has gone."""
    (w,) = started(session, {"w": 1.0}).values()
    saver = tf.train.Saver()
    path = saver.save(session, tmp_path / "m", 1)
    session.run(tf.assign(w, 2.0))
    replace = type(tmp_path).replace
    for name in ("m-2.safetensors", "checkpoint"):

        def stale(old, new, name=name):
            if new.name == name:
                raise OSError(errno.ESTALE, "Stale file handle")
            return replace(old, new)

        with monkeypatch.context() as patch:
            patch.setattr(type(tmp_path), "replace", stale)
            with pytest.raises(OSError, match="Stale"):
                saver.save(session, tmp_path / "m", 2)
        assert not [each for each in files(tmp_path) if each.endswith(".tmp")]
        assert tf.train.latest_checkpoint(tmp_path) == path
    saver.restore(session, path)
    assert session.run(w) == 1


def test_a_record_takes_paths_as_seen_from_its_directory(tmp_path, monkeypatch):
    def record(folder, latest, *others):
        tf.train.update_checkpoint_state(folder, latest, others)
        return json.loads((tmp_path / "run" / "checkpoint").read_text())["all"]

    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path)
    assert record(tmp_path / "run", "m-2", "m-1", tmp_path / "run/m-0") == ["m-1", "m-0", "m-2"]
    assert record("run", "run/m-2", tmp_path / "run/m-1") == ["m-1", "m-2"]
    assert record("run", "m-2") == [str(tmp_path / "m-2")]
    state = tf.train.get_checkpoint_state("run")
    assert state.model_checkpoint_path == str(tmp_path / "m-2")


def test_a_saver_keeps_count_by_relative_and_absolute_paths(session, tmp_path, monkeypatch):
    started(session, {"w": 1.0})
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path)
    saver = tf.train.Saver(max_to_keep=2)
    for step, prefix in enumerate(("run/m", tmp_path / "run/m", "run/m", "./run/m")):
        saver.save(session, prefix, step)
    assert files(tmp_path / "run") == ["checkpoint", "m-2.safetensors", "m-3.safetensors"]
    assert json.loads(Path("run/checkpoint").read_text()) == {
        "latest": "m-3",
        "all": ["m-2", "m-3"],
    }


def test_all_that_does_not_fit_is_named_and_nothing_is_assigned(session, tmp_path):
    variables = started(
        session,
        {"a": np.float32([1, 2]), "b": np.float32([3]), "c": np.int32(4), "d": np.float32(5)},
    )
    saver = tf.train.Saver()
    save_file(
        {
            "a": np.float32([8, 9, 10]),
            "c": np.array(7, np.int64),
            "d": np.array(7, np.float32),
            "x": np.ones(2),
        },
        tmp_path / "m.safetensors",
    )
    with pytest.raises(NotFoundError, match="'b' is missing") as caught:
        saver.restore(session, tmp_path / "m")
    text = str(caught.value)
    assert "'a': expected shape (2,), got (3,)" in text
    assert "'c': expected int32, got int64" in text
    assert "'d'" not in text
    assert text.endswith("else it has x")
    assert session.run(variables["d"]) == 5
    del variables["b"]
    with pytest.raises(InvalidArgumentError, match="'c': expected int32"):
        tf.train.Saver(variables).restore(session, tmp_path / "m")
    assert session.run(variables["d"]) == 5


def test_what_nothing_takes_is_named_in_the_log(session, tmp_path, caplog):
    started(session, {"w": 1.0})
    arrays = {"w": np.array(2, np.float32), "b": np.ones(2), "a": np.ones(2)}
    save_file(arrays, tmp_path / "m.safetensors")
    with caplog.at_level(logging.INFO, "optkit"):
        tf.train.Saver().restore(session, tmp_path / "m")
    assert caplog.messages == [f"{tmp_path / 'm.safetensors'}: nothing takes a, b"]


def test_of_many_entries_that_nothing_takes_a_few_are_named(session, tmp_path, caplog):
    variables = [tf.Variable(0.0, name=f"v{i}") for i in range(9)]
    session.run(tf.global_variables_initializer())
    path = tf.train.Saver().save(session, str(tmp_path / "m"))
    caplog.clear()
    with caplog.at_level(logging.INFO, logger="optkit"):
        tf.train.Saver(variables[:1]).restore(session, path)
    assert caplog.messages == [
        f"{tmp_path / 'm.safetensors'}: nothing takes 8 entries: v1, v2, v3, v4, v5, ..."
    ]


def test_reshape_takes_as_many_elements_in_another_shape(session, tmp_path):
    w = tf.get_variable("w", [2, 3])
    save_file({"w": np.arange(6, dtype=np.float32)}, tmp_path / "m.safetensors")
    with pytest.raises(InvalidArgumentError, match=r"expected shape \(2, 3\), got \(6,\)"):
        tf.train.Saver().restore(session, tmp_path / "m")
    tf.train.Saver(reshape=True).restore(session, tmp_path / "m")
    np.testing.assert_array_equal(session.run(w), [[0, 1, 2], [3, 4, 5]])
    save_file({"w": np.arange(7, dtype=np.float32)}, tmp_path / "m.safetensors")
    with pytest.raises(InvalidArgumentError, match=r"expected shape \(2, 3\), got \(7,\)"):
        tf.train.Saver(reshape=True).restore(session, tmp_path / "m")


def test_a_damaged_file_is_refused(session, tmp_path):
    started(session, {"w": np.ones(100, np.float32)})
    saver = tf.train.Saver()
    path = saver.save(session, tmp_path / "m")
    file = tmp_path / "m.safetensors"
    for damaged in (file.read_bytes()[:-8], b"", b"{}"):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match="expected a checkpoint"):
            saver.restore(session, path)


def test_a_dtype_that_files_lack_is_refused(session, tmp_path):
    w = tf.get_variable("w", initializer=np.complex128(1))
    session.run(w.initializer)
    with pytest.raises(TypeError, match="'w' is complex128"):
        tf.train.Saver().save(session, tmp_path / "m")
    assert files(tmp_path) == []


def test_a_variable_without_a_value_is_not_saved(session, tmp_path):
    tf.get_variable("w", [2])
    with pytest.raises(FailedPreconditionError, match="'w'"):
        tf.train.Saver().save(session, tmp_path / "m")
    assert files(tmp_path) == []


def test_bad_lists_of_variables_are_refused():
    with pytest.raises(ValueError, match="no variables to save"):
        tf.train.Saver()
    tf.train.Saver(allow_empty=True)
    w, v = tf.get_variable("w", []), tf.get_variable("v", [])
    with pytest.raises(TypeError, match="expected variables, got 3"):
        tf.train.Saver([w, 3])
    with pytest.raises(TypeError, match="a list or dict"):
        tf.train.Saver(w)
    with pytest.raises(TypeError, match="names as keys"):
        tf.train.Saver({3: w})
    with pytest.raises(ValueError, match="two variables are called 'w'"):
        tf.train.Saver([w, w])
    with pytest.raises(ValueError, match="is called 'a' and 'b'"):
        tf.train.Saver({"a": w, "b": w})
    with tf.Graph().as_default():
        other = tf.get_variable("other", [])
    with pytest.raises(ValueError, match="of one graph"):
        tf.train.Saver([v, other])


def test_bad_settings_are_refused():
    tf.get_variable("w", [])
    with pytest.raises(ValueError, match="max_to_keep"):
        tf.train.Saver(max_to_keep=-1)
    with pytest.raises(ValueError, match="saver_def"):
        tf.train.Saver(saver_def=object())
    with pytest.raises(ValueError, match="defer_build"):
        tf.train.Saver(tf.global_variables(), defer_build=True)


def test_bad_places_are_refused(session, tmp_path):
    started(session, {"w": 1.0})
    saver = tf.train.Saver()
    with pytest.raises(TypeError, match="sess: expected a Session, got None"):
        saver.save(None, tmp_path / "m")
    with pytest.raises(TypeError, match="sess: expected a Session, got 'm'"):
        saver.restore("m", saver.save(session, tmp_path / "m"))
    with pytest.raises(ValueError, match="a directory that exists"):
        saver.save(session, tmp_path / "nowhere" / "m")
    with pytest.raises(ValueError, match="a directory and a name"):
        saver.save(session, f"{tmp_path}/")
    with pytest.raises(TypeError, match="expected a path"):
        saver.save(session, b"m")
    with pytest.raises(ValueError, match="bare name"):
        saver.save(session, tmp_path / "m", latest_filename="a/b")
    with pytest.raises(ValueError, match="the name of the record"):
        saver.save(session, tmp_path / "m", latest_filename="m.safetensors")
    for step in ("3", 2.0, True):
        with pytest.raises(TypeError, match="global_step"):
            saver.save(session, tmp_path / "m", global_step=step)
    with pytest.raises(ValueError, match="got None"):
        saver.restore(session, tf.train.latest_checkpoint(tmp_path / "none"))
    with pytest.raises(ValueError, match="no such checkpoint"):
        saver.restore(session, tmp_path / "other")


def test_deleting_a_checkpoint_twice_is_fine(session, tmp_path):
    started(session, {"w": 1.0})
    path = tf.train.Saver().save(session, tmp_path / "m")
    for _ in range(2):
        tf.train.remove_checkpoint(path)
        assert not tf.train.checkpoint_exists(path)
