import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from optkit.train.batches import batches

X = np.arange(10.0)
Y = np.arange(10) * 10


def taken(data, count):
    iterator = iter(data)
    return [next(iterator) for _ in range(count)]


@given(
    size=st.integers(1, 30),
    batch=st.integers(1, 35),
    drop=st.booleans(),
    shuffle=st.booleans(),
    seed=st.integers(0, 2**64),
)
def test_an_epoch_has_each_example_once(size, batch, drop, shuffle, seed):
    rows = np.arange(size)
    if drop and batch > size:
        with pytest.raises(ValueError, match="batch_size: expected at most"):
            batches(rows, batch, drop_last=True)
        return
    data = batches(rows, batch, shuffle, seed, epochs=2, drop_last=drop)
    parts = list(data)
    assert len(parts) == len(data) == 2 * data.per_epoch
    for epoch in range(2):
        seen = np.concatenate(parts[epoch * data.per_epoch : (epoch + 1) * data.per_epoch])
        kept = size - size % batch if drop else size
        assert len(seen) == kept
        assert len(set(seen.tolist())) == kept
        assert all(len(part) == batch for part in parts[: data.per_epoch - 1])
        if not shuffle:
            assert seen.tolist() == list(range(kept))


def test_examples_of_all_arrays_stay_together():
    for x, y in batches((X, Y), 3, seed=1, epochs=2):
        assert (y == 10 * x).all()


def test_the_order_is_the_seeds_and_the_epochs():
    first = taken(batches(X, 10, seed=7), 2)
    assert first[0].tolist() == [8.0, 4.0, 1.0, 6.0, 3.0, 2.0, 7.0, 5.0, 9.0, 0.0]
    assert first[0].tolist() != first[1].tolist()
    assert [b.tolist() for b in taken(batches(X, 10, seed=7), 2)] == [b.tolist() for b in first]
    assert taken(batches(X, 10, seed=8), 1)[0].tolist() != first[0].tolist()


def test_each_iteration_starts_anew():
    data = batches(X, 4, seed=3, epochs=1)
    assert [b.tolist() for b in data] == [b.tolist() for b in data]


@given(count=st.integers(0, 12), more=st.integers(1, 5))
def test_a_position_is_gone_on_from_exactly(count, more):
    whole = taken(batches((X, Y), 4, seed=5), count + more)
    data = batches((X, Y), 4, seed=5)
    taken(data, count)
    state = json.loads(json.dumps(data.state_dict()))
    other = batches((X, Y), 4)  # another seed: the state's is taken
    other.load_state_dict(state)
    assert other.state_dict() == state
    rest = taken(other, more)
    for (x, y), (expected_x, expected_y) in zip(rest, whole[count:], strict=True):
        assert x.tolist() == expected_x.tolist()
        assert y.tolist() == expected_y.tolist()


def test_a_position_of_other_batches_is_refused():
    state = batches(X, 4).state_dict()
    with pytest.raises(ValueError, match="size was 10 and is 9"):
        batches(X[:9], 4).load_state_dict(state)
    with pytest.raises(ValueError, match="expected the state_dict of batches"):
        batches(X, 4).load_state_dict({"epoch": 1})
    for other in (None, 5, "x", [("epoch", 1)]):
        with pytest.raises(ValueError, match="expected the state_dict of batches"):
            batches(X, 4).load_state_dict(other)
    with pytest.raises(ValueError, match="batch: expected at most 3"):
        batches(X, 4).load_state_dict(state | {"batch": 9})


def test_kinds_of_batches():
    assert isinstance(taken(batches(X, 2), 1)[0], np.ndarray)
    assert isinstance(taken(batches([X, Y], 2), 1)[0], tuple)
    assert taken(batches({"x": X, "y": Y}, 2), 1)[0].keys() == {"x", "y"}
    assert taken(batches(range(4), 2, shuffle=False), 1)[0].tolist() == [0, 1]


def test_rows_tells_the_examples_of_a_batch():
    data = batches(X, 4, seed=2)
    parts = taken(data, 5)
    assert parts[4].tolist() == X[data.rows(1, 1)].tolist()


def test_what_cannot_be_cut_into_batches():
    with pytest.raises(ValueError, match=r"as many examples in each, got \[10, 9\]"):
        batches((X, Y[:9]), 2)
    with pytest.raises(ValueError, match="at least one example"):
        batches(np.zeros((0, 3)), 2)
    with pytest.raises(TypeError, match="expected an array of examples"):
        batches((X, 3.0), 2)
    with pytest.raises(ValueError, match="batch_size: expected at least 1, got 0"):
        batches(X, 0)
    with pytest.raises(TypeError, match=r"batch_size: expected an integer, got 2\.0"):
        batches(X, 2.0)
    with pytest.raises(TypeError, match="shuffle: expected True or False, got 7"):
        batches(X, 2, 7)  # the seed comes after it
    with pytest.raises(TypeError, match="drop_last: expected True or False, got 'no'"):
        batches(X, 2, drop_last="no")
    with pytest.raises(ValueError, match=r"seed: expected less than 2\*\*128"):
        batches(X, 2, seed=2**128)
    with pytest.raises(TypeError, match="never end"):
        len(batches(X, 2))


def test_repr_says_what_it_is():
    assert repr(batches(X, 4, seed=3)) == (
        "<optkit.batches of 10 examples by 4: 3 an epoch, endless, shuffled, seed=3>"
    )
