import pytest
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

from summaries.records import Damage, frame, masked_crc, read_records


@given(st.binary(max_size=200))
def test_the_checksum_is_tensorboards(data):
    assert masked_crc(data) == masked_crc32c(data)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "records"
    path.write_bytes(b"".join(map(frame, (b"one", b"", b"three" * 1000))))
    return path


def test_records_come_back(path):
    damage = Damage()
    assert list(read_records(path, damage)) == [b"one", b"", b"three" * 1000]
    assert damage.reason == ""


def test_p098_a_cut_anywhere_leaves_the_records_before_it(path):
    data = path.read_bytes()
    first = len(frame(b"one"))
    for size in range(first + len(frame(b""))):
        path.write_bytes(data[:size])
        damage = Damage()
        read = list(read_records(path, damage))
        assert read == [b"one"] * (size >= first)
        whole = size in (0, first)
        assert (damage.reason == "") == whole
        assert damage.offset == first * (size >= first)


@pytest.mark.parametrize("byte", range(len(frame(b"one"))))
def test_each_byte_of_a_record_is_checked(path, byte):
    data = bytearray(path.read_bytes())
    data[byte] ^= 1
    path.write_bytes(data)
    damage = Damage()
    assert list(read_records(path, damage)) == []
    part = "length" if byte < 12 else "data"
    assert damage.reason == f"a record's {part} does not match its checksum"


def test_a_tail_of_zeros_is_no_record(path):
    path.write_bytes(path.read_bytes() + bytes(4096))
    damage = Damage()
    assert len(list(read_records(path, damage))) == 3
    assert "checksum" in damage.reason
