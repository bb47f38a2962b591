"""Nestings of lists, tuples, named tuples and dicts: their leaves, and putting leaves back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["flatten", "is_nested", "ordered_keys", "pack", "same_structure"]


def is_nested(value: Any) -> bool:
    """Whether `value` holds others: a list, tuple or dict."""
    return isinstance(value, list | tuple | Mapping)


def flatten(tree: Any) -> list[Any]:
    """The leaves, from left to right; dicts by sorted key."""
    return list(_leaves(tree))


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, Mapping):
        for key in ordered_keys(tree):
            yield from _leaves(tree[key])
    elif isinstance(tree, list | tuple):
        for item in tree:
            yield from _leaves(item)
    else:
        yield tree


def ordered_keys(tree: Mapping[Any, Any]) -> list[Any]:
    """The keys in the order in which leaves are taken: sorted where that can be done."""
    try:
        return sorted(tree)
    except TypeError:
        return list(tree)


def pack(tree: Any, leaves: Sequence[Any]) -> Any:
    """`leaves` in the nesting of `tree`.

    Raises:
        ValueError: there are more or fewer leaves than the nesting has places.
    """
    places = len(flatten(tree))
    if places != len(leaves):
        raise ValueError(f"expected {places} values for {tree!r}, got {len(leaves)}")
    return _packed(tree, iter(leaves))


def _packed(tree: Any, leaves: Iterator[Any]) -> Any:
    if isinstance(tree, Mapping):
        found = {key: _packed(tree[key], leaves) for key in ordered_keys(tree)}
        # A defaultdict's type takes a function first, and a read-only view's a mapping.
        plain = isinstance(tree, dict) and not isinstance(tree, defaultdict)
        kind: Any = type(tree) if plain else dict
        return kind((key, found[key]) for key in tree)
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(_packed(item, leaves) for item in tree))
    if isinstance(tree, list | tuple):
        return type(tree)(_packed(item, leaves) for item in tree)
    return next(leaves)


def same_structure(expected: Any, got: Any, argument: str) -> None:
    """Refuse two nestings that differ; a list and a tuple of the same things do not.

    Raises:
        TypeError: one holds others where the other does not, or a dict meets a list.
        ValueError: lengths or keys differ.
    """
    if is_nested(expected) != is_nested(got) or isinstance(expected, Mapping) != isinstance(
        got, Mapping
    ):
        raise TypeError(f"{argument}: expected {_kind(expected)}, got {_kind(got)}")
    if isinstance(expected, Mapping):
        if expected.keys() != got.keys():
            raise ValueError(
                f"{argument}: expected keys {ordered_keys(expected)}, got {ordered_keys(got)}"
            )
        for key in expected:
            same_structure(expected[key], got[key], argument)
    elif is_nested(expected):
        if len(expected) != len(got):
            raise ValueError(f"{argument}: expected {len(expected)} values, got {len(got)}")
        for a, b in zip(expected, got, strict=True):
            same_structure(a, b, argument)


def _kind(value: Any) -> str:
    return f"a {type(value).__name__} of {len(value)}" if is_nested(value) else repr(value)
