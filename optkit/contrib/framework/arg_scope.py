"""`arg_scope`: arguments that several functions take by default inside a `with`.

with arg_scope([fully_connected, conv2d], activation_fn=None, trainable=False):
fully_connected(x, 3)
conv2d(x, 8, 3, activation_fn=relu)  # what a call gives itself wins
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, TypeVar, cast

__all__ = [
    "add_arg_scope",
    "arg_scope",
    "arg_scope_func_key",
    "arg_scoped_arguments",
    "current_arg_scope",
    "has_arg_scope",
]

_Defaults = Mapping[str, Mapping[str, Any]]
"""Key of a function -> argument -> value."""

_NONE: _Defaults = {}
_current: ContextVar[_Defaults] = ContextVar("arg_scope", default=_NONE)

_F = TypeVar("_F", bound=Callable[..., Any])

_KEY = "_key_op"
"""The attribute that marks a function as one that `arg_scope` reaches; TF's name."""


def current_arg_scope() -> _Defaults:
    """The defaults in force: key of a function -> argument -> value."""
    return _current.get()


def arg_scope_func_key(op: Any) -> str:
    """What `op` is filed under in a scope."""
    return getattr(op, _KEY, str(op))


def has_arg_scope(func: Any) -> bool:
    """Whether `func` was decorated with `add_arg_scope`."""
    return hasattr(func, _KEY)


def arg_scoped_arguments(func: Any) -> tuple[str, ...]:
    """The arguments of a decorated function that have a default.

    Raises:
        ValueError: it is not decorated.
    """
    _require(func)
    parameters = inspect.signature(func).parameters.values()
    return tuple(p.name for p in parameters if p.default is not p.empty)


def _require(func: Any) -> None:
    if not has_arg_scope(func):
        raise ValueError(f"{func!r} is not decorated with add_arg_scope")


def add_arg_scope(func: _F) -> _F:
    """Let `arg_scope` give the function's arguments; a decorator."""
    key = str(func)  # with its address: local functions may share a name
    signature = inspect.signature(func)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())

    @functools.wraps(func)
    def with_defaults(*args: Any, **kwargs: Any) -> Any:
        defaults = _current.get().get(key)
        if not defaults:
            return func(*args, **kwargs)
        unknown = [] if takes_any else [n for n in defaults if n not in signature.parameters]
        if unknown:
            raise TypeError(
                f"{func.__name__}: arg_scope gives it {', '.join(unknown)}, which it does not take"
            )
        # What is given by position is given, too.
        given = signature.bind_partial(*args).arguments
        missing = {name: value for name, value in defaults.items() if name not in given}
        return func(*args, **(missing | kwargs))

    setattr(with_defaults, _KEY, key)
    return cast(_F, with_defaults)


@contextlib.contextmanager
def arg_scope(list_ops_or_scope: Any, **kwargs: Any) -> Iterator[_Defaults]:
    """Give decorated functions the arguments `kwargs` by default, inside the `with`.

    Scopes may be nested: an inner one adds to the outer. What a call gives itself wins.

    Args:
        list_ops_or_scope: a list of functions; or a scope that an earlier `with ... as scope`
            gave, which is then in force alone.
        **kwargs: argument -> value.

    Yields:
        The scope, for later use.

    Raises:
        TypeError: the first argument is neither.
        ValueError: a function is not decorated with `add_arg_scope`, or there are `kwargs` beside
            a scope.
    """
    if isinstance(list_ops_or_scope, Mapping):
        if kwargs:
            raise ValueError(f"arg_scope: expected no arguments beside a scope, got {kwargs!r}")
        scope: _Defaults = dict(list_ops_or_scope)
    elif isinstance(list_ops_or_scope, list | tuple):
        changed = {}
        for func in list_ops_or_scope:
            _require(func)
            key = arg_scope_func_key(func)
            changed[key] = {**_current.get().get(key, {}), **kwargs}
        scope = {**_current.get(), **changed}
    else:
        raise TypeError(
            "arg_scope: expected a list of functions, or a scope that arg_scope gave, got "
            f"{list_ops_or_scope!r}"
        )
    token = _current.set(scope)
    try:
        yield scope
    finally:
        _current.reset(token)
