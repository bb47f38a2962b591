"""`batches`: arrays in shuffled batches, at a position that can be saved and gone back to."""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

__all__ = ["Batches", "batches"]


class Batches:
    """Batches of arrays, epoch after epoch; made by `batches`.

    Each `iter` starts at the first batch, or where `load_state_dict` said. `state_dict` tells the
    position of the newest iterator: JSON values that another process can go on from.

    Attributes:
        size: how many examples there are.
        per_epoch: how many batches an epoch has.
        epochs: how many epochs there are; None where they never end.
        seed: what the order is made from.
    """

    def __init__(
        self,
        arrays: Any,
        batch_size: int,
        shuffle: bool = True,
        seed: int | None = None,
        epochs: int | None = None,
        drop_last: bool = False,
    ) -> None:
        self._arrays, self._make = _columns(arrays)
        self.size = _common_length(self._arrays)
        self.batch_size = _whole("batch_size", batch_size, 1)
        self.epochs = None if epochs is None else _whole("epochs", epochs, 0)
        self.seed = secrets.randbits(63) if seed is None else _seed(seed)
        self.shuffle = _switch("shuffle", shuffle)
        self.drop_last = _switch("drop_last", drop_last)
        count = self.size / self.batch_size
        self.per_epoch = math.floor(count) if drop_last else math.ceil(count)
        if not self.per_epoch:
            raise ValueError(
                f"batch_size: expected at most {self.size}, the number of examples, with "
                f"drop_last=True, got {batch_size}"
            )
        self._start = (0, 0)
        self._newest: _Pass | None = None

    def __iter__(self) -> Iterator[Any]:
        self._newest = _Pass(self, *self._start)
        self._start = (0, 0)
        return self._newest

    def __len__(self) -> int:
        if self.epochs is None:
            raise TypeError("batches(epochs=None) never end; per_epoch is an epoch's number")
        return self.epochs * self.per_epoch

    def __bool__(self) -> bool:
        return self.epochs != 0

    def __repr__(self) -> str:
        epochs = "endless" if self.epochs is None else f"epochs={self.epochs}"
        order = f"shuffled, seed={self.seed}" if self.shuffle else "in order"
        return (
            f"<optkit.batches of {self.size} examples by {self.batch_size}: {self.per_epoch} an "
            f"epoch, {epochs}, {order}>"
        )

    def epoch(self, epoch: int) -> Iterator[Any]:
        """An iterator that starts with an epoch; the position of `state_dict` stays."""
        return _Pass(self, epoch, 0)

    def order(self, epoch: int) -> np.ndarray[Any, Any]:
        """The row numbers of an epoch in the order they are taken; a function of the seed."""
        if not self.shuffle:
            return np.arange(self.size)
        # Philox's raw bits are the same in every NumPy; `Generator.permutation` is not promised.
        bits = np.random.Philox(key=self.seed, counter=[0, 0, 0, epoch]).random_raw(self.size)
        return np.argsort(bits, kind="stable")

    def rows(self, epoch: int, batch: int) -> np.ndarray[Any, Any]:
        """The row numbers of one batch, counted from 0."""
        start = batch * self.batch_size
        return self.order(epoch)[start : start + self.batch_size]

    def state_dict(self) -> dict[str, Any]:
        """Where the newest iterator is: what it gives next, and what the order depends on."""
        epoch, batch = self._start if self._newest is None else self._newest.position
        return {
            "epoch": epoch,
            "batch": batch,
            "seed": self.seed,
            "size": self.size,
            "batch_size": self.batch_size,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Let the next `iter` go on from there; the seed is that of the state.

        Raises:
            ValueError: the state is that of other batches.
        """
        mine = self.state_dict()
        given: Any = state  # it comes from a file
        if not isinstance(given, Mapping) or mine.keys() != given.keys():
            raise ValueError(f"state: expected the state_dict of batches, got {state!r}")
        differing = [
            f"{name} was {state[name]} and is {mine[name]}"
            for name in ("size", "batch_size", "shuffle", "drop_last")
            if state[name] != mine[name]
        ]
        if differing:
            raise ValueError(f"state: it is that of other batches: {', '.join(differing)}")
        epoch, batch = _whole("epoch", state["epoch"], 0), _whole("batch", state["batch"], 0)
        if batch > self.per_epoch:
            raise ValueError(f"state: batch: expected at most {self.per_epoch}, got {batch}")
        self.seed = _seed(state["seed"])
        self._start = epoch, batch
        self._newest = None


class _Pass:
    """One iterator over batches; `position` is (epoch, batch) of what comes next."""

    def __init__(self, owner: Batches, epoch: int, batch: int) -> None:
        self._owner = owner
        self._epoch = epoch
        self._batch = batch
        self._order: np.ndarray[Any, Any] | None = None

    @property
    def position(self) -> tuple[int, int]:
        return self._epoch, self._batch

    def __iter__(self) -> _Pass:
        return self

    def __next__(self) -> Any:
        owner = self._owner
        if self._batch >= owner.per_epoch:
            self._epoch, self._batch, self._order = self._epoch + 1, 0, None
        if owner.epochs is not None and self._epoch >= owner.epochs:
            raise StopIteration
        start = self._batch * owner.batch_size
        stop = min(start + owner.batch_size, owner.size)
        if owner.shuffle:
            if self._order is None:
                self._order = owner.order(self._epoch)
            rows = self._order[start:stop]
            taken = [array.take(rows, 0) for array in owner._arrays]
        else:
            taken = [array[start:stop] for array in owner._arrays]
        self._batch += 1
        return owner._make(taken)


def batches(
    arrays: Any,
    batch_size: int,
    shuffle: bool = True,
    seed: int | None = None,
    epochs: int | None = None,
    drop_last: bool = False,
) -> Batches:
    """Arrays cut into batches along their first axis, for `fit` or a loop of one's own.

    The order of an epoch is a function of seed and epoch alone, the same on every machine; a
    position can be saved with `state_dict` and gone on from in another process.

    Args:
        arrays: one array, a tuple or list of arrays of equal length, or a dict of them; what is no
            NumPy array but can become one (a data frame, a tensor of PyTorch's) is taken as one.
        batch_size: examples a batch; the last batch of an epoch may have fewer.
        shuffle: take the examples in a new order each epoch.
        seed: an integer in [0, 2**128); drawn at random if None.
        epochs: how often to go through the data; without end if None.
        drop_last: leave out a last batch that has fewer examples.

    Returns:
        An iterable of batches of the kind that `arrays` is; with shuffle they are copies,
        otherwise views.

    Raises:
        TypeError: an array has no first axis, or a number is no integer.
        ValueError: the lengths differ, there are no examples, or a number is out of its range.

    >>> import numpy as np
    >>> x, y = np.arange(5.0), np.arange(5)
    >>> [len(b) for b, _ in batches((x, y), 2, epochs=1)]
    [2, 2, 1]
    """
    return Batches(arrays, batch_size, shuffle, seed, epochs, drop_last)


def _columns(arrays: Any) -> tuple[list[np.ndarray[Any, Any]], Any]:
    """The arrays, and what makes a batch of the given kind of their parts."""
    if isinstance(arrays, Mapping):
        names = list(arrays)
        columns = [_array(repr(name), arrays[name]) for name in names]
        return columns, lambda parts: dict(zip(names, parts, strict=True))
    if isinstance(arrays, tuple | list):
        columns = [_array(f"arrays[{i}]", array) for i, array in enumerate(arrays)]
        return columns, getattr(type(arrays), "_make", tuple)
    return [_array("arrays", arrays)], _only


def _only(parts: list[Any]) -> Any:
    return parts[0]


def _array(name: str, value: Any) -> np.ndarray[Any, Any]:
    array = value if isinstance(value, np.ndarray) else np.asarray(value)
    if array.ndim == 0 or array.dtype == object:
        raise TypeError(f"arrays: {name}: expected an array of examples, got {value!r}")
    return array


def _common_length(arrays: list[np.ndarray[Any, Any]]) -> int:
    lengths = [len(array) for array in arrays]
    if not lengths or not lengths[0]:
        raise ValueError("arrays: expected at least one example, got none")
    if len(set(lengths)) > 1:
        raise ValueError(f"arrays: expected as many examples in each, got {lengths}")
    return lengths[0]


def _seed(value: Any) -> int:
    seed = _whole("seed", value, 0)
    if seed >= 2**128:  # Philox takes no more
        raise ValueError(f"seed: expected less than 2**128, got {seed}")
    return seed


def _switch(name: str, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}: expected True or False, got {value!r}")
    return bool(value)


def _whole(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}: expected an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name}: expected at least {least}, got {value}")
    return int(value)
