from hypothesis import given
from hypothesis import strategies as st
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c

from summaries.records import frame, masked_crc


@given(st.binary(max_size=200))
def test_the_checksum_is_tensorboards(data):
    assert masked_crc(data) == masked_crc32c(data)


@given(st.binary(max_size=200))
def test_a_record_has_both_checksums(data):
    record = frame(data)
    assert record[:8] == len(data).to_bytes(8, "little")
    assert record[8:12] == masked_crc32c(record[:8]).to_bytes(4, "little")
    assert record[12:] == data + masked_crc32c(data).to_bytes(4, "little")
