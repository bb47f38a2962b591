"""Files of arrays: the format others read too, and that nothing damaged or hostile is taken."""

import json
import struct

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from optkit.train.tensor_file import Entry, read_arrays, read_header, write_arrays

ARRAYS = {
    "w": np.arange(6, dtype=np.float32).reshape(2, 3),
    "scalar": np.array(3, np.int64),
    "empty": np.zeros((0, 2), np.float64),
    "flag": np.array([True, False]),
    "half": np.float16([1, 2, 3]),
    "ü/π:0": np.complex64([1 + 2j]),
}


def hostile(entries, data=b"", metadata=None):
    """A file with any header."""
    content = entries if metadata is None else {"__metadata__": metadata, **entries}
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return struct.pack("<Q", len(text)) + text + data


def row(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def test_what_is_written_is_read_here_and_by_the_formats_own_library(tmp_path):
    path = tmp_path / "x.safetensors"
    write_arrays(path, ARRAYS, {"state": '{"a":"\\"crc32c\\":\\""}'})
    arrays, header = read_arrays(path)
    assert header.own
    assert header.metadata["state"] == '{"a":"\\"crc32c\\":\\""}'
    assert header.entries["w"] == Entry("float32", (2, 3))
    theirs = load_file(path)
    assert arrays.keys() == theirs.keys() == ARRAYS.keys()
    for name, expected in ARRAYS.items():
        for found in (arrays[name], theirs[name]):
            assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
            np.testing.assert_array_equal(found, expected)
        assert arrays[name].flags.writeable
    with safe_open(path, framework="numpy") as file:
        assert file.metadata()["format"] == "optkit"


def test_files_of_the_formats_own_library_are_read(tmp_path):
    path = tmp_path / "x.safetensors"
    for metadata in (None, {"format": "pt"}):
        save_file(ARRAYS, path, metadata=metadata)
        arrays, header = read_arrays(path)
        assert (header.own, header.metadata) == (False, {})
        for name, expected in ARRAYS.items():
            np.testing.assert_array_equal(arrays[name], expected)
    assert set(read_arrays(path, ["flag"])[0]) == {"flag"}


def test_some_arrays_are_read_and_the_rest_is_checked_all_the_same(tmp_path):
    path = tmp_path / "x.safetensors"
    write_arrays(path, {"a": np.ones(400_000), "b": np.ones(3, np.float32)}, {})
    assert set(read_arrays(path, ["b"])[0]) == {"b"}
    with pytest.raises(KeyError, match="has no 'c'"):
        read_arrays(path, ["c"])
    data = bytearray(path.read_bytes())
    data[-2_000_000] ^= 1  # in a
    path.write_bytes(data)
    with pytest.raises(ValueError, match="its data is not what was written"):
        read_arrays(path, ["b"])


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("files") / "x.safetensors"
    write_arrays(path, ARRAYS, {"version": "1", "state": "{}"})
    return path.read_bytes()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), flips=st.integers(1, 3))
def test_no_flipped_bit_goes_unseen(tmp_path, written, data, flips):
    places = st.integers(0, 8 * len(written) - 1)
    chosen = data.draw(st.lists(places, min_size=flips, max_size=flips, unique=True))
    damaged = bytearray(written)
    for bit in chosen:
        damaged[bit // 8] ^= 1 << bit % 8
    path = tmp_path / "x.safetensors"
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match="expected a checkpoint"):
        read_arrays(path)


def test_every_single_bit_of_the_header_counts(tmp_path, written):
    path = tmp_path / "x.safetensors"
    for bit in range(0, 8 * 200, 7):
        damaged = bytearray(written)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="expected a checkpoint"):
            read_arrays(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(length=st.integers(0, 4000), tail=st.binary(max_size=20))
@example(length=8, tail=b"")
def test_no_torn_or_longer_file_is_read(tmp_path, written, length, tail):
    damaged = written[:length] + tail
    if damaged == written:
        return
    path = tmp_path / "x.safetensors"
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match="expected a checkpoint"):
        read_arrays(path)


HOSTILE = {
    "empty": b"",
    "header longer than the file": struct.pack("<Q", 2**40) + b"{}",
    "no JSON": hostile(b"{'a': 1}"),
    "no text": hostile(b"\xff\xfe{}"),
    "a list": hostile([]),
    "deep": hostile(b"[" * 100_000),
    "deep object": hostile(b'{"a":' * 50_000),
    "a huge number": hostile(b'{"a": ' + b"9" * 5000 + b"}"),
    "nan": hostile(b'{"a": NaN}'),
    "a name twice": hostile(
        b'{"a": {"dtype":"U8","shape":[0],"data_offsets":[0,0]},'
        b'"a": {"dtype":"U8","shape":[0],"data_offsets":[0,0]}}'
    ),
    "no entry": hostile({"a": 3}),
    "more keys": hostile({"a": {**row(), "x": 1}}, b"0" * 8),
    "unknown dtype": hostile({"a": row("F8_E4M3")}, b"0" * 8),
    "dtype no string": hostile({"a": row(["F32"])}, b"0" * 8),
    "negative": hostile({"a": row(shape=(-1, -2))}, b"0" * 8),
    "bool as size": hostile({"a": row("U8", (True,), (0, 1))}, b"0"),
    "overflow": hostile({"a": row(shape=(2**40, 2**40, 0), offsets=(0, 0))}),
    "huge and empty": hostile({"a": row(shape=(2**47, 2**47, 0), offsets=(0, 0))}),
    "many dimensions": hostile({"a": row("U8", (1,) * 100, (0, 1))}, b"0"),
    "too few bytes": hostile({"a": row(offsets=(0, 4))}, b"0" * 4),
    "backwards": hostile({"a": row(offsets=(8, 0))}, b"0" * 8),
    "a hole": hostile({"a": row(offsets=(8, 16))}, b"0" * 16),
    "overlapping": hostile({"a": row(), "b": row(offsets=(4, 12))}, b"0" * 12),
    "more data": hostile({"a": row()}, b"0" * 9),
    "less data": hostile({"a": row()}, b"0" * 7),
    "metadata no strings": hostile({"a": row()}, b"0" * 8, {"format": 3}),
    "metadata no dict": hostile({"a": row()}, b"0" * 8, ["pt"]),
    "of another program": hostile({"a": row()}, b"0" * 8, {"format": "other"}),
    "without checksum": hostile({"a": row()}, b"0" * 8, {"format": "optkit"}),
    "with a false checksum": hostile(
        {"a": row()}, b"0" * 8, {"format": "optkit", "crc32c": "00000000deadbeef"}
    ),
    "with a checksum of letters": hostile(
        {"a": row()}, b"0" * 8, {"format": "optkit", "crc32c": "not sixteen char"}
    ),
    "a pickle": b"\x80\x04\x95\x1f\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94",
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_hostile_files_are_refused(tmp_path, content):
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    for read in (read_header, read_arrays):
        with pytest.raises(ValueError, match="expected a checkpoint"):
            read(path)


def test_a_bool_that_is_none_is_refused(tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(hostile({"a": row("BOOL", (2,), (0, 2))}, b"\x01\x02"))
    with pytest.raises(ValueError, match="neither 0 nor 1"):
        read_arrays(path)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.text(max_size=8) | st.just("__metadata__"),
        st.recursive(
            st.none() | st.integers(-2, 2**65) | st.text(max_size=6) | st.just("F32"),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["dtype", "shape", "data_offsets", "format"]), inner, max_size=4
                )
            ),
            max_leaves=8,
        ),
        max_size=3,
    ),
    st.binary(max_size=16),
)
def test_any_header_is_refused_or_read(tmp_path, entries, data):
    path = tmp_path / "x.safetensors"
    path.write_bytes(hostile(entries, data))
    try:
        arrays, _ = read_arrays(path)
    except ValueError as error:
        assert "expected a checkpoint" in str(error)  # noqa: PT017 - both ends are right
    else:
        assert sum(array.nbytes for array in arrays.values()) == len(data)


def test_nothing_is_left_of_a_write_that_fails(tmp_path, monkeypatch):
    path = tmp_path / "x.safetensors"
    write_arrays(path, {"a": np.float32([1])}, {})
    before = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_arrays(path, {"a": np.float32([2])}, {})
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["x.safetensors"]


def test_a_link_is_replaced_not_followed(tmp_path):
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    (outside / "precious").write_bytes(b"mine")
    (inside / "x.safetensors").symlink_to(outside / "precious")
    write_arrays(inside / "x.safetensors", {"a": np.float32([1])}, {})
    assert (outside / "precious").read_bytes() == b"mine"
    assert not (inside / "x.safetensors").is_symlink()
