import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from summaries import _proto, wire

steps = st.integers(0, 2**63 - 1)
times = st.floats(allow_nan=False, allow_infinity=False)


@given(steps)
def test_a_varint_is_protobufs(number):
    assert _proto.Event.FromString(b"\x10" + wire.varint(number)).step == number


@given(times, steps, st.text(min_size=1), st.floats(width=32, allow_nan=False))
def test_an_event_with_a_scalar_is_what_the_message_is(wall_time, step, tag, value):
    data = wire.event(wall_time, step, wire.scalar_head(tag) + wire.pack_float(value))
    summary = _proto.Summary(value=[_proto.Summary.Value(tag=tag, simple_value=value)])
    message = _proto.Event(wall_time=wall_time, step=step, summary=summary)
    assert _proto.Event.FromString(data) == message


@pytest.mark.parametrize("step", [0, 1, 127, 128, 2**63 - 1])
def test_values_may_be_joined(step):
    parts = [wire.scalar_head(tag) + wire.pack_float(number) for number, tag in enumerate("abc")]
    event = _proto.Event.FromString(wire.event(1.5, step, b"".join(parts)))
    assert (event.wall_time, event.step) == (1.5, step)
    assert [(v.tag, v.simple_value) for v in event.summary.value] == [("a", 0), ("b", 1), ("c", 2)]


def test_a_scalar_may_carry_metadata():
    metadata = _proto.SummaryMetadata(display_name="x")
    data = wire.scalar_head("ü" * 100, metadata.SerializeToString()) + wire.pack_float(math.pi)
    (value,) = _proto.Summary.FromString(data).value
    assert (value.tag, value.simple_value) == ("ü" * 100, np.float32(math.pi))
    assert value.metadata == metadata


@given(times, steps)
def test_the_head_of_a_file_is_what_the_messages_are(wall_time, step):
    version = _proto.Event.FromString(wire.file_version(wall_time, "brain.Event:2"))
    assert version == _proto.Event(wall_time=wall_time, file_version="brain.Event:2")
    mark = _proto.SessionLog(status=_proto.SessionLog.START)
    start = _proto.Event.FromString(wire.session_start(wall_time, step))
    assert start == _proto.Event(wall_time=wall_time, step=step, session_log=mark)
