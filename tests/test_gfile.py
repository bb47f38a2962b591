"""tf.gfile: files as scripts of TensorFlow 1 handle them."""

from __future__ import annotations

import pytest

import optkit as tf


@pytest.fixture
def run(tmp_path):
    """A directory with two files, one of them further down."""
    tf.gfile.MakeDirs(tmp_path / "run" / "eval")
    for name in ("b.txt", "eval/a.txt"):
        with tf.gfile.GFile(tmp_path / "run" / name, "w") as file:
            file.write("Größe\n1\n")
    return tmp_path / "run"


def test_a_directory_is_made_anew(run):
    if tf.gfile.Exists(str(run)):
        tf.gfile.DeleteRecursively(str(run))
    assert not tf.gfile.Exists(run)
    tf.gfile.MakeDirs(str(run))
    tf.gfile.MakeDirs(str(run))
    assert tf.gfile.ListDirectory(run) == []


def test_what_is_there(run):
    assert tf.gfile.ListDirectory(str(run)) == ["b.txt", "eval"]
    assert tf.gfile.IsDirectory(run / "eval")
    assert not tf.gfile.IsDirectory(run / "b.txt")
    assert tf.gfile.Glob(f"{run}/*.txt") == [f"{run}/b.txt"]
    assert tf.gfile.Glob([f"{run}/*.txt", f"{run}/eval/*"]) == [
        f"{run}/b.txt",
        f"{run}/eval/a.txt",
    ]
    down = [(str(run), ["eval"], ["b.txt"]), (f"{run}/eval", [], ["a.txt"])]
    assert list(tf.gfile.Walk(run)) == down
    assert list(tf.gfile.Walk(str(run), in_order=False)) == down[::-1]
    assert tf.gfile.Stat(run / "b.txt").st_size == 10


@pytest.mark.parametrize("opened", [tf.gfile.GFile, tf.gfile.Open, tf.gfile.FastGFile])
def test_text_and_bytes(run, opened):
    path = str(run / "b.txt")
    with opened(path) as file:
        assert file.readline() == "Größe\n"
        assert list(file) == ["1\n"]
    with opened(path, "rb") as file:
        assert file.read() == "Größe\n1\n".encode()
    with opened(path, "a") as file:
        file.write("2\n")
    with opened(path) as file:
        assert file.read().endswith("1\n2\n")


def test_copies_and_new_names_replace_only_when_told(run):
    tf.gfile.Copy(run / "b.txt", run / "c.txt")
    for move in (tf.gfile.Copy, tf.gfile.Rename):
        with pytest.raises(FileExistsError, match=r"overwrite=True replaces it: .*c\.txt"):
            move(str(run / "b.txt"), str(run / "c.txt"))
    tf.gfile.Copy(run / "b.txt", run / "c.txt", overwrite=True)
    tf.gfile.Rename(run / "c.txt", run / "b.txt", overwrite=True)
    tf.gfile.Remove(run / "b.txt")
    assert tf.gfile.ListDirectory(run) == ["eval"]


def test_what_is_not_there_is_named(run):
    for use in (tf.gfile.Open, tf.gfile.ListDirectory, tf.gfile.Remove, tf.gfile.DeleteRecursively):
        with pytest.raises(FileNotFoundError, match="nothing"):
            use(run / "nothing")
    with pytest.raises(FileExistsError, match="eval"):
        tf.gfile.MkDir(run / "eval")
    tf.gfile.MkDir(run / "new")
    assert tf.gfile.IsDirectory(run / "new")
