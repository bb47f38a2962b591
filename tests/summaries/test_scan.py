import errno
import os
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.proto.event_pb2 import Event

from summaries.records import frame, masked_crc
from summaries.scan import BAD_DATA, BAD_LENGTH, BROKEN_OFF, CUT_OFF, Scan, fields, split_event

HEAD = 12


def scanned(path):
    """The records, and the (offset, reason) pairs of what is none."""
    scan = Scan(path)
    return list(scan), [(damage.offset, damage.reason) for damage in scan.damages]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "records"
    path.write_bytes(b"".join(map(frame, (b"one", b"", b"three" * 1000))))
    return path


def test_records_come_back(path):
    assert scanned(path) == ([b"one", b"", b"three" * 1000], [])


def test_records_across_blocks_come_back(path, monkeypatch):
    rng = np.random.default_rng(0)
    records = [rng.bytes(size) for size in rng.integers(0, 300, 200)]
    path.write_bytes(b"".join(map(frame, records)))
    for block in (1, 17, 64, 1000):
        monkeypatch.setattr("summaries.scan._BLOCK", block)
        assert scanned(path) == (records, [])


def test_p098_a_cut_anywhere_leaves_the_records_before_it(path):
    data = path.read_bytes()
    first = len(frame(b"one"))
    for size in range(first + len(frame(b""))):
        path.write_bytes(data[:size])
        records, damages = scanned(path)
        assert records == [b"one"] * (size >= first)
        whole = size in (0, first)
        assert damages == ([] if whole else [(first * (size >= first), CUT_OFF)])


@pytest.mark.parametrize("byte", range(len(frame(b"one"))))
def test_a_flipped_bit_costs_one_record(path, byte):
    """P098: what follows is read, as its checksums show where it begins."""
    path.write_bytes(b"".join(map(frame, (b"one", b"two", b"three"))))
    data = bytearray(path.read_bytes())
    start = len(frame(b"one"))
    data[start + byte] ^= 1
    path.write_bytes(data)
    reason = BAD_LENGTH if byte < HEAD else BAD_DATA
    assert scanned(path) == ([b"one", b"three"], [(start, reason)])


def test_zeros_between_records_are_passed_over(path):
    """A crash of the machine may leave blocks of zeros where data should be."""
    whole = path.read_bytes()
    for zeros in (1, 3, 4, 7, 8, 12, 4096):
        path.write_bytes(whole + bytes(zeros) + whole + bytes(zeros))
        records, damages = scanned(path)
        assert records == [b"one", b"", b"three" * 1000] * 2
        assert damages[0][0] == len(whole)


def test_a_record_broken_off_in_the_middle_is_told_from_a_last_one(path):
    record = frame(b"lost" * 10)
    path.write_bytes(record[:-9] + frame(b"found") + record[:-9])
    assert scanned(path) == (
        [b"found"],
        [(0, BAD_DATA), (len(record) - 9 + len(frame(b"found")), CUT_OFF)],
    )
    path.write_bytes(frame(b"x" * 5000)[:50] + frame(b"found"))
    assert scanned(path) == ([b"found"], [(0, BROKEN_OFF)])


def test_a_search_goes_on_over_blocks(path, monkeypatch):
    rng = np.random.default_rng(1)
    noise = rng.bytes(500)
    path.write_bytes(noise + frame(b"found") + noise + frame(bytes(300)))
    for block in (1, 13, 100):
        monkeypatch.setattr("summaries.scan._BLOCK", block)
        records, damages = scanned(path)
        assert records == [b"found", bytes(300)]
        assert [offset for offset, _ in damages] == [0, 500 + len(frame(b"found"))]


def test_a_length_beyond_the_file_asks_for_no_memory(path):
    head = struct.pack("<Q", 2**62)
    path.write_bytes(head + struct.pack("<I", masked_crc(head)) + frame(b"found"))
    assert scanned(path) == ([b"found"], [(0, BROKEN_OFF)])


def test_a_search_copies_nothing_where_there_is_no_more_to_read(tmp_path, monkeypatch):
    """Heads with right checksums, of records that are not there: each is looked at where it is."""
    head = struct.pack("<Q", 1 << 20)
    path = tmp_path / "records"
    path.write_bytes(300 * (head + struct.pack("<I", masked_crc(head))) + frame(b"found"))
    copies = []
    keep = Scan.keep
    monkeypatch.setattr(Scan, "keep", lambda *a: copies.append(a) or keep(*a))
    assert scanned(path) == ([b"found"], [(0, BROKEN_OFF)])
    assert len(copies) < 5


def test_a_file_that_cannot_be_read_is_damage(tmp_path, monkeypatch):
    assert scanned(tmp_path) == ([], [(0, "it cannot be read (Is a directory)")])
    monkeypatch.setattr("summaries.scan._BLOCK", 20)
    path = tmp_path / "records"
    path.write_bytes(3 * frame(b"abcd"))
    scan = Scan(path)
    found = []
    for data in scan:
        found.append(data)
        scan.file.close()
        scan.file = FailingFile()
    assert found == [b"abcd"]
    assert [str(each) for each in scan.damages] == [
        "it cannot be read (Input/output error), at byte 20"
    ]


class FailingFile:
    def read(self, size):
        raise OSError(errno.EIO, os.strerror(errno.EIO))


@given(st.floats(allow_nan=False), st.integers(-(2**63), 2**63 - 1), st.binary(max_size=40))
def test_an_event_is_taken_apart_as_protobuf_does(wall_time, step, noise):
    event = Event(wall_time=wall_time, step=step)
    event.summary.value.add(tag=noise.hex(), simple_value=1)
    parts = split_event(event.SerializeToString())
    assert (parts.wall_time, parts.step) == (wall_time, step)
    assert parts.summary == event.summary.SerializeToString()
    assert parts.session == b""


def test_the_session_of_an_event_is_found():
    event = Event(step=7)
    event.session_log.status = event.session_log.START
    assert split_event(event.SerializeToString()) == (0, 7, b"", b"\x08\x01")


@pytest.mark.parametrize(
    "data", [b"\x0a", b"\x0a\x05abc", b"\x09abc", b"\x0b", b"\x02\x00", b"\x10" + b"\xff" * 11]
)
def test_what_is_cut_off_is_refused(data):
    with pytest.raises(ValueError, match=r"a field is|an integer is cut off"):
        list(fields(data))


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=6), st.data())
def test_p098_one_flipped_bit_costs_one_record_of_any(tmp_path_factory, records, data):
    path = tmp_path_factory.mktemp("scan") / "records"
    content = bytearray(b"".join(map(frame, records)))
    bit = data.draw(st.integers(0, 8 * len(content) - 1))
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    ends = np.cumsum([len(frame(record)) for record in records])
    hit = int(np.searchsorted(ends, bit // 8, side="right"))
    found, damages = scanned(path)
    # A record without data has no sign that a search could find it by.
    after = records[hit + 1 :]
    while after and not after[0]:
        after.pop(0)
    assert found == records[:hit] + after
    assert damages[0][0] == ends[hit] - len(frame(records[hit]))
