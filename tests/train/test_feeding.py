import collections

import numpy as np
import pytest

import optkit as tf
from optkit.train.batches import batches
from optkit.train.feeding import Feeder, Matcher, Source


@pytest.fixture
def xy():
    return tf.placeholder(tf.float32, [None], name="x"), tf.placeholder(tf.int32, [None], name="y")


def keys(feeds):
    return [key.name for key in feeds]


def test_a_tuple_is_matched_with_inputs(graph, xy):
    match = Matcher(graph, xy)
    assert keys(match(([1.0], [2]))) == ["x:0", "y:0"]
    assert keys(match([[1.0], [2]])) == ["x:0", "y:0"]
    with pytest.raises(ValueError, match=r"2 parts, for inputs \(x:0, y:0\), got one of 3"):
        match((1, 2, 3))
    with pytest.raises(TypeError, match=r"expected batches of 2 parts.*an array of shape \(4,\)"):
        match(np.zeros(4))
    with pytest.raises(TypeError, match=r"inputs=\{key: placeholder\}"):
        match({"image": 1})


def test_one_input_takes_arrays_or_tuples_of_one(graph, xy):
    match = Matcher(graph, xy[0])
    assert match([1.0])[xy[0]] == [1.0]
    assert match(([1.0],))[xy[0]] == [1.0]
    array = np.zeros(3)
    for batch in (array, (array,), [array]):
        assert match(batch)[xy[0]] is array


def test_feeds_and_dicts_by_key(graph, xy):
    x, y = xy
    feeds = {x: [1.0], y: [1]}
    assert Matcher(graph, None)(feeds) is feeds
    assert Matcher(graph, (x, y))(feeds) is feeds
    match = Matcher(graph, {"image": "x", "label": y})
    assert keys(match({"image": [1.0], "label": [1], "name": "a"})) == ["x:0", "y:0"]
    with pytest.raises(ValueError, match=r"lacks \['label'\]; it has \['image'\]"):
        match({"image": 1})
    with pytest.raises(TypeError, match=r"inputs: needed.*pass inputs=\(x, y\)"):
        Matcher(graph, None)(([1.0], [1]))
    with pytest.raises(TypeError, match="batches that are dicts"):
        match((1, 2))


def test_a_tuple_of_more_than_the_one_input(graph, xy):
    with pytest.raises(ValueError, match=r"batches of 1 part, for inputs \(x:0\), got one of 2"):
        Matcher(graph, xy[0])((np.zeros((3, 2)), np.zeros(3)))


def test_inputs_that_are_no_tensors(graph, xy):
    with pytest.raises(ValueError, match=r"each tensor once, got \['x:0', 'x:0'\]"):
        Matcher(graph, (xy[0], xy[0]))
    with pytest.raises(ValueError, match=r"inputs: .*'z"):
        Matcher(graph, ("z",))
    with pytest.raises(TypeError, match="inputs: "):
        Matcher(graph, (3,))


def test_one_batch_serves_every_step(graph, xy):
    x, y = np.zeros(3), np.zeros(3, int)
    match = Matcher(graph, xy)
    for data in ((x, y), {xy[0]: x, xy[1]: y}):
        feeder = Feeder(data, match, again=True, prefetch=None)
        assert keys(feeder.next()) == keys(feeder.next()) == ["x:0", "y:0"]
        assert feeder.endless
        assert feeder.position() == {}
        assert feeder.told() == "the one batch"
    assert not match.is_batch([x, y])
    single = Matcher(graph, xy[0])
    assert single.is_batch(x)
    assert not single.is_batch(np.zeros((2, 3)))


def test_constant_feeds_go_with_every_batch(graph, xy):
    x, y = xy
    match = Matcher(graph, x, {y: [7]})
    assert match([1.0]) == {x: [1.0], y: [7]}
    with pytest.raises(TypeError, match="feed_dict: expected a dict, got 3"):
        Matcher(graph, x, 3)


def test_a_function_is_called_for_each_epoch(graph, xy):
    def epoch():
        yield from ([1.0], [2.0])

    feeder = Feeder(epoch, Matcher(graph, xy[0]), again=True, prefetch=0)
    assert [feeder.next()[xy[0]] for _ in range(5)] == [[1.0], [2.0], [1.0], [2.0], [1.0]]


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_data_is_begun_anew_where_it_can_be(graph, xy, prefetch):
    match = Matcher(graph, xy[0])
    feeder = Feeder([[1.0], [2.0]], match, again=True, prefetch=prefetch)
    assert [feeder.next()[xy[0]] for _ in range(5)] == [[1.0], [2.0], [1.0], [2.0], [1.0]]
    assert feeder.position()["count"] == 5
    feeder.close()
    once = Feeder(iter([[1.0], [2.0]]), match, again=True, prefetch=prefetch)
    once.next(), once.next()
    with pytest.raises(StopIteration):
        once.next()
    with pytest.raises(StopIteration):
        Feeder([], match, again=True, prefetch=prefetch).next()


def test_the_position_is_that_of_what_was_given_out(graph, xy):
    x = np.arange(12.0)
    plain = Feeder(batches(x, 2, seed=1), Matcher(graph, xy[0]), True, 0)
    ahead = Feeder(batches(x, 2, seed=1), Matcher(graph, xy[0]), True, 4)
    for _ in range(5):
        assert plain.next()[xy[0]].tolist() == ahead.next()[xy[0]].tolist()
        assert plain.position() == ahead.position()
        assert plain.told() == ahead.told()
    position = ahead.position()
    ahead.close()
    resumed = Feeder(batches(x, 2), Matcher(graph, xy[0]), True, 4)
    resumed.go_to(position)
    assert [resumed.next()[xy[0]].tolist() for _ in range(4)] == [
        plain.next()[xy[0]].tolist() for _ in range(4)
    ]
    resumed.close()
    text = plain.told([1])
    assert text.startswith("batch 9 of the data, counted from 1 (batch 3 of epoch 2); bad examples")
    rows = batches(x, 2, seed=1).rows(1, 2)
    assert text.endswith(f"bad examples: {rows[1]}; its examples: {rows[0]}, {rows[1]}")


def test_plain_iterables_are_read_up_to_the_position_with_a_warning(graph, xy):
    match = Matcher(graph, xy[0])
    feeder = Feeder((np.full(1, i) for i in range(9)), match, True, 0)
    with pytest.warns(RuntimeWarning, match="so 4 batches are read and left out"):
        feeder.go_to({"count": 4})
    assert feeder.next()[xy[0]] == 4
    quiet = Feeder([[0], [1], [2]], match, True, 0)
    quiet.go_to({"count": 4})
    assert quiet.next()[xy[0]] == [1]
    with pytest.warns(RuntimeWarning), pytest.raises(ValueError, match="it ended after 2"):
        Feeder(iter([[0], [1]]), match, True, 0).go_to({"count": 3})


class Stateful(collections.UserList):
    at = 0

    def __iter__(self):
        while self.at < len(self.data):
            self.at += 1
            yield self.data[self.at - 1]

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


@pytest.mark.parametrize("prefetch", [0, 2])
def test_data_with_a_state_dict_goes_on_from_it(graph, xy, prefetch):
    data = Stateful([[0], [1], [2], [3], [4]])
    feeder = Feeder(data, Matcher(graph, xy[0]), True, prefetch)
    feeder.next(), feeder.next()
    position = feeder.position()
    assert position["state"] == {"at": 2}
    feeder.close()
    again = Feeder(Stateful(data.data), Matcher(graph, xy[0]), True, prefetch)
    again.go_to(position)
    assert again.next()[xy[0]] == [2]
    again.close()


def test_a_state_that_is_no_json_is_counted_instead(graph, xy, caplog):
    data = Stateful([[0], [1]])
    data.state_dict = lambda: {"at": b"1"}
    source = Source(data)
    source.next(again=False)
    assert source.position() == source.position() == {"count": 1}
    assert "is no JSON" in caplog.text
    assert len(caplog.records) == 1


def test_errors_of_the_data_come_out_of_the_thread(graph, xy):
    def broken():
        yield [1.0]
        raise OSError("the file is gone")

    feeder = Feeder(broken(), Matcher(graph, xy[0]), True, 2)
    feeder.next()
    with pytest.raises(OSError, match="the file is gone"):
        feeder.next()


@pytest.mark.parametrize("make", [tuple, list, lambda parts: dict(zip("xy", parts, strict=True))])
@pytest.mark.parametrize("prefetch", [0, 3])
def test_arrays_that_are_filled_again_may_be_prefetched(graph, xy, make, prefetch):
    def refilled():
        arrays = [np.zeros(3), np.zeros(3)]
        for i in range(8):
            arrays[0][:], arrays[1][:] = i, -i
            yield make(arrays)

    inputs = {"x": xy[0], "y": xy[1]} if isinstance(make([0, 0]), dict) else xy
    feeder = Feeder(refilled(), Matcher(graph, inputs), True, prefetch)
    for i in range(8):
        assert [value.tolist() for value in feeder.next().values()] == [[i] * 3, [-i] * 3]


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_one_array_that_is_filled_again_may_be_prefetched(graph, xy, library):
    xp = pytest.importorskip(library)
    array = xp.zeros(3)
    feeder = Feeder((xp.add(array, 1, out=array) for _ in range(8)), Matcher(graph, xy[0]), True, 3)
    found = [next(iter(feeder.next().values())).tolist() for _ in range(8)]
    assert found == [[i] * 3 for i in range(1, 9)]


@pytest.mark.parametrize("result", [None, 3])
def test_a_function_that_gives_no_batches(graph, xy, result):
    feeder = Feeder(lambda: result, Matcher(graph, xy[0]), True, 0)
    with pytest.raises(TypeError, match=f"a function that gives batches, got {result} from it"):
        feeder.next()


@pytest.mark.parametrize("data", [3, "abc", b"abc", None, list])
def test_what_is_no_data(graph, xy, data):
    with pytest.raises(TypeError, match="data: expected an iterable of batches"):
        Feeder(data, Matcher(graph, xy[0]), True, 0)
