"""From any iterable to feeds, one batch after another, at a position that can be gone back to."""

from __future__ import annotations

import contextlib
import json
import queue
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from optkit import logging
from optkit.graph import Graph, Tensor
from optkit.train.batches import Batches

__all__ = ["Feeder", "Feeds", "Matcher", "Source", "as_iterable", "is_iterator"]

_SHOWN = 32
"""Row numbers that a message names."""

Feeds = Mapping[Any, Any]
"""What `Session.run` takes as its feed_dict."""

_WORTH_A_THREAD = 2e-4
"""Seconds a batch has to take on average before a thread pays: it costs some 50 microseconds."""


class Matcher:
    """What turns a batch into feeds.

    Args:
        graph: the graph that is fed.
        inputs: tensors (or names) in the order of a batch's parts; one alone for batches that are
            one array; a dict from a batch's keys to tensors; None for batches that are feeds.
        constant: feeds that are the same for every batch.

    Raises:
        TypeError, ValueError: something in `inputs` cannot be fed.
    """

    def __init__(
        self, graph: Graph, inputs: Any, constant: Mapping[Any, Any] | None = None
    ) -> None:
        self._graph = graph
        given: Any = {} if constant is None else constant
        if not isinstance(given, Mapping):
            raise TypeError(f"feed_dict: expected a dict, got {constant!r}")
        self._constant = dict(given)
        self._named: dict[Any, Any] | None = None
        self._single = False
        self._keys: tuple[Any, ...] | None = None
        if isinstance(inputs, Mapping):
            self._named = {key: self._fed(item) for key, item in inputs.items()}
        elif isinstance(inputs, list | tuple):
            self._keys = tuple(self._fed(item) for item in inputs)
            if len(set(self._keys)) < len(self._keys):
                names = [key.name for key in self._keys]
                raise ValueError(f"inputs: expected each tensor once, got {names}")
        elif inputs is not None:
            self._keys = (self._fed(inputs),)
            self._single = True

    def _fed(self, item: Any) -> Any:
        if isinstance(item, str) and ":" not in item:
            item = f"{item}:0"
        try:
            element = self._graph.as_graph_element(item, allow_operation=False)
        except KeyError as error:
            raise ValueError(f"inputs: {error.args[0]}") from None
        except (TypeError, ValueError) as error:
            raise type(error)(f"inputs: {error}") from None
        assert isinstance(element, Tensor)
        return element

    def __call__(self, batch: Any) -> Feeds:
        """The feeds of a batch.

        Raises:
            TypeError: the batch is of another kind than `inputs`.
            ValueError: it has more or fewer parts.
        """
        feeds = self._of(batch)
        return {**feeds, **self._constant} if self._constant else feeds

    def _of(self, batch: Any) -> Feeds:
        keys = self._keys
        if keys is not None:
            if type(batch) is tuple and len(batch) == len(keys) and not self._single:
                return dict(zip(keys, batch, strict=True))
            return self._matched(keys, batch)
        if not isinstance(batch, Mapping):
            if self._named is None:
                raise TypeError(
                    "inputs: needed, since a batch is no feed dict but "
                    f"{_kind(batch)}; pass inputs=(x, y), the placeholders in its order"
                )
            raise TypeError(f"data: expected batches that are dicts, as inputs is, got {batch!r}")
        if self._named is None:
            return batch
        missing = [key for key in self._named if key not in batch]
        if missing:
            raise ValueError(f"data: a batch lacks {missing}; it has {list(batch)}")
        return {tensor: batch[key] for key, tensor in self._named.items()}

    def _matched(self, keys: tuple[Any, ...], batch: Any) -> Feeds:
        if isinstance(batch, Mapping):
            if all(_is_key(self._graph, key) for key in batch):
                return batch  # a feed dict needs no inputs
            raise TypeError(
                f"data: a batch is a dict with the keys {list(batch)}, and inputs are in order; "
                "pass inputs={key: placeholder}"
            )
        names = ", ".join(key.name for key in keys)
        parts = "part" if len(keys) == 1 else "parts"
        expected = f"data: expected batches of {len(keys)} {parts}, for inputs ({names})"
        if self._single:
            if isinstance(batch, tuple) and len({np.shape(part) for part in batch}) > 1:
                raise ValueError(f"{expected}, got one of {len(batch)}")
            # Data sets of one tensor give batches of one part; a list may also be the values.
            lone = isinstance(batch, list | tuple) and len(batch) == 1
            lone = lone and (isinstance(batch, tuple) or getattr(batch[0], "shape", ()) != ())
            return {keys[0]: batch[0] if lone else batch}
        if not isinstance(batch, tuple | list):
            raise TypeError(f"{expected}, got {_kind(batch)}")
        if len(batch) != len(keys):
            raise ValueError(f"{expected}, got one of {len(batch)}")
        return dict(zip(keys, batch, strict=True))

    def is_batch(self, data: Any) -> bool:
        """Whether `data` is one batch, to be used at every step.

        That is a dict, a tuple of as many arrays as there are inputs, or for one input an array of
        as many axes as the input has.
        """
        if isinstance(data, Mapping):
            return True
        keys = self._keys
        if self._single and keys is not None and hasattr(data, "shape"):
            return bool(keys[0].shape.ndims == len(data.shape))
        return (
            isinstance(data, tuple)
            and keys is not None
            and len(data) == len(keys)
            and all(hasattr(item, "shape") for item in data)
        )


def _is_key(graph: Graph, key: Any) -> bool:
    try:
        graph.as_graph_element(key)
    except (TypeError, ValueError, KeyError):
        return False
    return True


def _kind(batch: Any) -> str:
    shape = getattr(batch, "shape", None)
    if shape is not None:
        return f"an array of shape {tuple(shape)}"
    if isinstance(batch, tuple | list):
        return f"a {type(batch).__name__} of {len(batch)}"
    return repr(batch)


class _Called:
    """An iterable that calls a function for each iterator, say one that yields."""

    def __init__(self, make: Callable[[], Iterable[Any]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[Any]:
        made = self._make()
        if not (isinstance(made, Iterable) or hasattr(made, "__getitem__")):
            raise TypeError(f"data: expected a function that gives batches, got {made!r} from it")
        return iter(made)


class Source:
    """Batches of an iterable, which is begun anew when it ends and can be.

    Attributes:
        count: how many batches were taken.
    """

    def __init__(self, data: Any) -> None:
        data = as_iterable(data)
        self.data = data
        self.count = 0
        self._iterator: Iterator[Any] | None = None
        self._fresh = True
        self._plain = is_iterator(data)
        self._jsonable = True

    @property
    def endless(self) -> bool:
        """Whether it is known never to end."""
        return isinstance(self.data, Batches) and self.data.epochs is None

    def next(self, again: bool) -> Any:
        """The next batch; with `again` data that can is begun anew at its end.

        Raises:
            StopIteration: there are no more.
        """
        if self._iterator is None:
            self._iterator = iter(self.data)
        try:
            batch = next(self._iterator)
        except StopIteration:
            if not again or self._plain or self._fresh or isinstance(self.data, Batches):
                raise
            self._fresh = True
            self._iterator = iter(self.data)
            batch = next(self._iterator)
        self._fresh = False
        self.count += 1
        return batch

    def position(self) -> dict[str, Any]:
        """Where the data is, as JSON values."""
        found: dict[str, Any] = {"count": self.count}
        holder = self._stateful()
        if holder is not None and self._jsonable:
            state = holder.state_dict()
            try:
                json.dumps(state)
            except (TypeError, ValueError):
                self._jsonable = False
                logging.warning(
                    "the state_dict of %s is no JSON, so the batches are counted instead",
                    type(holder).__name__,
                )
            else:
                found["state"] = state
        return found

    def _stateful(self) -> Any:
        for holder in (self.data, self._iterator):
            if hasattr(holder, "state_dict") and hasattr(holder, "load_state_dict"):
                return holder
        return None

    def go_to(self, position: Mapping[str, Any]) -> None:
        """Go on from a position; data that cannot be told is read up to it, with a warning.

        Raises:
            ValueError: the data ends before it, or its `load_state_dict` refuses.
        """
        self._iterator = None
        self.count = 0
        self._fresh = True
        count = int(position.get("count", 0))
        state = position.get("state")
        if state is not None and hasattr(self.data, "load_state_dict"):
            self.data.load_state_dict(state)
            self.count = count
            return
        self._iterator = iter(self.data)
        if state is not None and hasattr(self._iterator, "load_state_dict"):
            self._iterator.load_state_dict(state)
            self.count = count
            return
        if count and not isinstance(self.data, Sequence | np.ndarray):
            warnings.warn(
                f"data: {type(self.data).__name__} cannot be told where to go on, so {count} "
                "batches are read and left out; optkit.batches, or data with state_dict and "
                "load_state_dict, go there at once",
                RuntimeWarning,
                stacklevel=5,  # who called fit
            )
        try:
            for _ in range(count):
                self.next(again=True)
        except StopIteration:
            raise ValueError(
                f"data: expected to go on after {count} batches, and it ended after {self.count}"
            ) from None

    def told(self, position: Mapping[str, Any], bad: Sequence[int]) -> str:
        """The batch that was taken last when the data was at `position`, for messages.

        `bad` are rows of the batch to name by their place in the data, where that is known.
        """
        text = f"batch {position.get('count', 0)} of the data, counted from 1"
        state = position.get("state")
        if isinstance(self.data, Batches) and state is not None and state["batch"]:
            rows = self.data.rows(state["epoch"], state["batch"] - 1)
            text += f" (batch {state['batch']} of epoch {state['epoch'] + 1})"
            named = [rows[i] for i in bad if i < len(rows)]
            text += f"; bad examples: {_listed(named)}" if named else ""
            text += f"; its examples: {_listed(rows)}"
        return text


def _listed(rows: Sequence[Any] | np.ndarray[Any, Any]) -> str:
    shown = ", ".join(map(str, rows[:_SHOWN]))
    return shown + (f" and {len(rows) - _SHOWN} more" if len(rows) > _SHOWN else "")


def as_iterable(data: Any) -> Any:
    """`data` if it can be iterated over; of a function, what it gives each time it is called.

    Raises:
        TypeError: it is neither.
    """
    if not isinstance(data, str | bytes | type):
        # Python iterates over what has numbered items, too.
        numbered = hasattr(data, "__getitem__") and hasattr(data, "__len__")
        if isinstance(data, Iterable) or numbered:
            return data
        if callable(data):
            return _Called(data)
    raise TypeError(
        f"data: expected an iterable of batches, e.g. optkit.batches((x, y), 32), got {data!r}"
    )


def is_iterator(data: Any) -> bool:
    """Whether data can be gone through once only."""
    return isinstance(data, Iterator)


class _Ahead(threading.Thread):
    """Takes batches ahead of time; each comes with the position after it.

    Data may fill the same arrays for every batch: those that wait are copies.
    """

    def __init__(self, source: Source, again: bool, depth: int) -> None:
        super().__init__(name="optkit data", daemon=True)
        self._source = source
        self._again = again
        self._done = threading.Event()
        self._queue: queue.Queue[tuple[Any, Any, BaseException | None]] = queue.Queue(depth)
        self.start()

    def run(self) -> None:
        while not self._done.is_set():
            try:
                batch = self._source.next(self._again)
                if not isinstance(self._source.data, Batches):  # which give new arrays
                    batch = _copied(batch)
                item = batch, self._source.position(), None
            except BaseException as error:  # noqa: BLE001 - raised where the batch is asked for
                item = None, None, error  # type: ignore[assignment]
            while not self._done.is_set():
                with contextlib.suppress(queue.Full):
                    self._queue.put(item, timeout=0.1)
                    break
            if item[2] is not None:
                return

    def take(self, given_up: Callable[[], bool]) -> tuple[Any, Any]:
        """The next batch and the position after it."""
        while True:
            try:
                batch, position, error = self._queue.get(timeout=0.2)
            except queue.Empty:
                if given_up():
                    raise StopIteration from None
                continue
            if error is not None:
                self._done.set()
                raise error
            return batch, position

    def end(self) -> None:
        self._done.set()
        self.join(timeout=5.0)


def _copied(batch: Any) -> Any:
    """A batch with arrays of its own: NumPy's, and PyTorch's tensors."""
    if isinstance(batch, Mapping):
        return {key: _own(part) for key, part in batch.items()}
    if isinstance(batch, tuple | list):
        parts = [_own(part) for part in batch]
        return parts if isinstance(batch, list) else tuple(parts)
    return _own(batch)


def _own(part: Any) -> Any:
    if isinstance(part, np.ndarray):
        return part.copy()
    return part.clone() if hasattr(part, "clone") else part


class Feeder:
    """Feeds for one step after another, and the exact position of what was given out.

    Args:
        data: one batch for every step, or an iterable of batches.
        match: what turns a batch into feeds.
        again: begin data anew when it ends, if that can be done.
        prefetch: how many batches to take ahead in a thread; 0 takes them when they are needed;
            None uses a thread for `batches` where that pays.

    Attributes:
        seconds: how long the loop has waited for batches; broken: whether asking for one failed.
    """

    def __init__(self, data: Any, match: Matcher, again: bool, prefetch: int | None) -> None:
        self._match = match
        self._again = again
        self._feeds = match(data) if match.is_batch(data) else None
        self._source = None if self._feeds is not None else Source(data)
        self._prefetch = prefetch
        self._ahead: _Ahead | None = None
        self._position: dict[str, Any] | None = None
        self._count = 0
        self.seconds = 0.0
        self.broken = False
        self.given_up: Callable[[], bool] = lambda: False

    @property
    def endless(self) -> bool:
        """Whether it is known never to end."""
        return self._source is None or self._source.endless

    def next(self) -> Feeds:
        """The feeds of the next step.

        Raises:
            StopIteration: the data has ended.
            TypeError, ValueError: a batch does not fit `inputs`.
        """
        if self._source is None:
            assert self._feeds is not None
            return self._feeds
        begin = time.perf_counter()
        try:
            if self._ahead is None and self._prefetch:
                self._ahead = _Ahead(self._source, self._again, self._prefetch)
            if self._ahead is not None:
                batch, self._position = self._ahead.take(self.given_up)
            else:
                batch = self._source.next(self._again)
        except Exception as error:
            self.broken = not isinstance(error, StopIteration)
            raise
        self.seconds += time.perf_counter() - begin
        self._count += 1
        if self._count == 20 and self._prefetch is None and isinstance(self._source.data, Batches):
            self._prefetch = 2 if self.seconds / 20 > _WORTH_A_THREAD else 0
        return self._match(batch)

    @property
    def untouched(self) -> bool:
        """Whether no batch was given out, now or before the data went on from a position."""
        return self._source is not None and not self.position().get("count")

    def position(self) -> dict[str, Any]:
        """Where the data is after the feeds given out last, as JSON values."""
        if self._position is not None:
            return self._position
        return {} if self._source is None else self._source.position()

    def go_to(self, position: Mapping[str, Any]) -> None:
        """Go on from a position."""
        self.close()
        self._position = None
        if self._source is not None:
            self._source.go_to(position)

    def told(self, bad: Sequence[int] = ()) -> str:
        """The batch given out last, and the examples that its rows `bad` are, for messages."""
        if self._source is None:
            return "the one batch"
        return self._source.told(self.position(), bad)

    def close(self) -> None:
        """End the thread, if there is one."""
        if self._ahead is not None:
            self._ahead.end()
            self._ahead = None
