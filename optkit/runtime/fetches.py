"""Fetches: nestings of things to compute, and feeds: arrays that take the place of tensors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from optkit.backend import Backend
from optkit.dtypes import string
from optkit.graph import Graph, IndexedSlices, Operation, Tensor, is_symbolic
from optkit.ops.core import as_array
from optkit.shapes import TensorShape, fits

__all__ = ["IndexedSlicesValue", "as_fed", "as_feeds", "unpack"]


class IndexedSlicesValue(NamedTuple):
    """The fetched value of an `IndexedSlices`."""

    values: np.ndarray[Any, Any]
    indices: np.ndarray[Any, Any]
    dense_shape: np.ndarray[Any, Any] | None


Rebuild: TypeAlias = Callable[[list[Any]], Any]
"""From the values of the fetched elements to the nesting that was asked for; never raises."""


def unpack(graph: Graph, fetches: Any, elements: list[Tensor | Operation]) -> Rebuild:
    """Append the leaves of `fetches` to `elements`; the result puts their values in place.

    Raises:
        TypeError: a leaf cannot be fetched.
        ValueError: it is of another graph, or nothing has that name.
    """
    make: Any
    if isinstance(fetches, list | tuple):
        parts = [unpack(graph, item, elements) for item in fetches]
        make = list if isinstance(fetches, list) else getattr(fetches, "_make", tuple)
        return lambda results: make([part(results) for part in parts])
    if isinstance(fetches, Mapping):
        named = {key: unpack(graph, item, elements) for key, item in fetches.items()}
        return lambda results: _like(fetches, {key: get(results) for key, get in named.items()})
    if isinstance(fetches, IndexedSlices):
        triple = (fetches.values, fetches.indices, fetches.dense_shape)
        rows = [None if item is None else unpack(graph, item, elements) for item in triple]
        make = IndexedSlicesValue
        return lambda results: make(*[None if part is None else part(results) for part in rows])
    if fetches is None:
        raise TypeError(_about_none(graph))
    try:
        element = graph.as_graph_element(fetches)
    except TypeError as error:
        raise TypeError(f"fetches: {error}") from None
    except (KeyError, ValueError) as error:
        raise ValueError(f"fetches: {error.args[0]}") from None
    place = len(elements)
    elements.append(element)
    return lambda results: results[place]


def _like(original: Mapping[Any, Any], values: dict[Any, Any]) -> Any:
    """The values in a mapping of the kind of `original`, or a dict where that cannot be made."""
    if isinstance(original, defaultdict):
        return defaultdict(original.default_factory, values)
    kind: Any = type(original) if isinstance(original, dict) else dict
    try:
        return values if kind is dict else kind(values)
    except Exception:  # noqa: BLE001 - the run has been carried out: its values must not be lost
        return values


def _about_none(graph: Graph) -> str:
    names = graph.missing_gradients
    if names:
        why = f"compute_gradients found no gradient for {', '.join(names)}"
    else:
        why = "summary.merge_all(), for one, gives None where there is no summary"
    return f"fetches: None cannot be fetched; {why}"


def is_plain(fetches: Any, feed_dict: Mapping[Any, Any]) -> bool:
    """Whether a run is told apart by its fetches and fed keys as they are.

    That holds for tensors, operations, variables and names, alone or in tuples and lists of them.
    """
    leaves = [*feed_dict, *(fetches if type(fetches) in (list, tuple) else [fetches])]
    return all(isinstance(item, Operation | str) or is_symbolic(item) for item in leaves)


def as_feeds(graph: Graph, backend: Backend, feed_dict: Any) -> dict[Tensor, Any]:
    """The fed tensors with the arrays in their place.

    Raises:
        TypeError: `feed_dict` is no dict, a key no tensor of the graph, or a value of a dtype that
            the tensor does not take.
        ValueError: a value has another shape, or a tensor may not be fed.
    """
    if not isinstance(feed_dict, Mapping):
        raise TypeError(f"feed_dict: expected a dict, got {type(feed_dict).__name__}")
    feeds: dict[Tensor, Any] = {}
    for key, value in feed_dict.items():
        if isinstance(key, IndexedSlices):
            for part, item in _rows(key, value):
                feeds[part] = as_fed(backend, part, item)
            continue
        try:
            tensor = graph.as_graph_element(key, allow_operation=False)
        except (TypeError, ValueError) as error:
            raise type(error)(f"feed_dict: the key {key!r}: {error}") from None
        except KeyError as error:
            raise TypeError(f"feed_dict: the key {key!r}: {error.args[0]}") from None
        assert isinstance(tensor, Tensor)
        if not graph.is_feedable(tensor):
            raise ValueError(f"feed_dict: {tensor!r} may not be fed")
        feeds[tensor] = as_fed(backend, tensor, value)
    return feeds


def _rows(key: IndexedSlices, value: Any) -> list[tuple[Tensor, Any]]:
    """The tensors of a fed IndexedSlices, each with its value."""
    if isinstance(value, IndexedSlices):
        value = (value.values, value.indices, value.dense_shape)
    parts = (key.values, key.indices, key.dense_shape)
    if not isinstance(value, list | tuple) or len(value) not in (2, 3):
        raise TypeError(
            f"feed_dict: the value for {key!r}: expected (values, indices, dense_shape), got "
            f"{value!r}"
        )
    # A dense shape that is not given is left as the graph has it.
    return [
        (part, item)
        for part, item in zip(parts, value, strict=False)
        if part is not None and item is not None
    ]


def as_fed(backend: Backend, tensor: Tensor, value: Any) -> Any:
    """`value` as an array of the tensor's dtype, where it is; copied only where needed.

    What is on the host stays there also where the backend is a device: whoever runs knows what has
    to be sent.

    Raises:
        TypeError: the value has a dtype that the tensor does not take.
        ValueError: it has another shape.
    """
    # What most feeds are, ahead of all that others may be.
    if type(value) is np.ndarray and backend.xp is np and tensor.dtype is not string:
        if value.dtype == tensor.dtype.dtype and fits(tensor.sizes, value.shape):
            array = value.view()
            array.setflags(write=False)  # a third of the time of setting the flag
            return array
    elif is_symbolic(value) or isinstance(value, Operation):
        raise TypeError(
            f"feed_dict: the value for {tensor.name!r} is {value!r}; feed arrays or numbers, "
            "e.g. the result of Session.run, or x.numpy() of eager mode"
        )
    try:
        array = _on_device(backend, tensor, value)
        if array is None:
            array = _on_host(tensor, value)
    except (TypeError, ValueError) as error:
        raise type(error)(f"feed_dict: the value for {tensor.name!r}: {error}") from error
    except (RuntimeError, BufferError) as error:  # another library refuses to share its memory
        raise TypeError(f"feed_dict: the value for {tensor.name!r}: {error}") from error
    if not fits(tensor.sizes, array.shape):
        raise ValueError(
            f"feed_dict: the value for {tensor.name!r}: expected shape {tensor.shape}, got "
            f"{TensorShape(array.shape)}"
        )
    return array


def _on_device(backend: Backend, tensor: Tensor, value: Any) -> Any:
    """What is on a device already as the backend's array, the same memory; else None.

    Another float dtype is converted there.
    """
    if backend.xp is np or isinstance(value, np.ndarray):
        return None
    array = backend.shared(value)
    if array is None:
        return None
    dtype = tensor.dtype.dtype
    if array.dtype == dtype:
        return array
    return array.astype(dtype) if array.dtype.kind == dtype.kind == "f" else None


def _on_host(tensor: Tensor, value: Any) -> np.ndarray[Any, Any]:
    """`value` as a read-only array of the tensor's dtype; no copy where none is needed."""
    ready = isinstance(value, np.ndarray) and value.dtype == tensor.dtype.dtype
    if ready and tensor.dtype is not string:  # in an array of objects, texts may be no bytes
        array = np.asarray(value).view()  # a plain array: matrices multiply otherwise
    else:
        if not hasattr(value, "__array__") and hasattr(value, "__dlpack__"):
            value = np.from_dlpack(value)
        array = as_array(value, tensor.dtype).view()
    array.flags.writeable = False
    return array
