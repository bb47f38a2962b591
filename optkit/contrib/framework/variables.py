"""contrib's functions that make variables, find them, and set them from values."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from optkit.contrib.framework.arg_scope import add_arg_scope
from optkit.dtypes import float32
from optkit.graph import GraphKeys, Operation, get_default_graph
from optkit.graph import device as on_device
from optkit.ops.array import placeholder
from optkit.ops.control import group
from optkit.variable_scope import VariableScope, get_variable
from optkit.variables import Variable

__all__ = [
    "add_model_variable",
    "assign_from_values",
    "assign_from_values_fn",
    "assignments",
    "filter_variables",
    "get_local_variables",
    "get_model_variables",
    "get_trainable_variables",
    "get_unique_variable",
    "get_variable_full_name",
    "get_variables",
    "get_variables_by_name",
    "get_variables_by_suffix",
    "get_variables_to_restore",
    "global_variable",
    "local_variable",
    "model_variable",
    "variable",
]

# -- making ---------------------------------------------------------------------------------------


@add_arg_scope
def variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    collections: Iterable[str] | None = None,
    caching_device: Any = None,
    device: Any = None,
    partitioner: Any = None,
    custom_getter: Any = None,
    use_resource: bool | None = None,
    synchronization: Any = None,
    aggregation: Any = None,
) -> Any:
    """A variable of the current scope, made or found again; see `get_variable` for the arguments.

    `device` is recorded.
    """
    with on_device(device or ""):
        return get_variable(
            name,
            shape,
            dtype,
            initializer,
            regularizer,
            trainable,
            collections,
            caching_device,
            partitioner,
            use_resource=use_resource,
            custom_getter=custom_getter,
            synchronization=synchronization,
            aggregation=aggregation,
        )


@add_arg_scope
def model_variable(
    name: str,
    shape: Any = None,
    dtype: Any = float32,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    collections: Iterable[str] | None = None,
    caching_device: Any = None,
    device: Any = None,
    partitioner: Any = None,
    custom_getter: Any = None,
    use_resource: bool | None = None,
    synchronization: Any = None,
    aggregation: Any = None,
) -> Any:
    """A `variable` that joins GLOBAL_VARIABLES and MODEL_VARIABLES, and `collections` too."""
    keys = [*(collections or ()), GraphKeys.GLOBAL_VARIABLES, GraphKeys.MODEL_VARIABLES]
    return variable(
        name,
        shape,
        dtype,
        initializer,
        regularizer,
        trainable,
        keys,
        caching_device,
        device,
        partitioner,
        custom_getter,
        use_resource,
        synchronization,
        aggregation,
    )


def local_variable(
    initial_value: Any,
    validate_shape: bool = True,
    name: str | None = None,
    use_resource: bool | None = None,
) -> Variable:
    """A variable that is not trained and that checkpoints leave out; it joins LOCAL_VARIABLES."""
    return _untrained(initial_value, GraphKeys.LOCAL_VARIABLES, validate_shape, name)


def global_variable(
    initial_value: Any,
    validate_shape: bool = True,
    name: str | None = None,
    use_resource: bool | None = None,
) -> Variable:
    """A variable that is not trained; it joins GLOBAL_VARIABLES."""
    return _untrained(initial_value, GraphKeys.GLOBAL_VARIABLES, validate_shape, name)


def _untrained(value: Any, key: str, validate_shape: bool, name: str | None) -> Variable:
    return Variable(
        value, trainable=False, collections=[key], validate_shape=validate_shape, name=name
    )


def add_model_variable(var: Any) -> None:
    """Add a variable to MODEL_VARIABLES, unless it is there."""
    if var not in get_default_graph().get_collection(GraphKeys.MODEL_VARIABLES):
        get_default_graph().add_to_collection(GraphKeys.MODEL_VARIABLES, var)


# -- finding --------------------------------------------------------------------------------------


def get_variables(
    scope: Any = None, suffix: str | None = None, collection: str = GraphKeys.GLOBAL_VARIABLES
) -> list[Any]:
    """The variables of a collection in a scope, whose names end in a suffix.

    Args:
        scope: a regular expression that names must begin with, or a `VariableScope`.
        suffix: what names must end in, ":0" left out.
        collection: the collection.
    """
    if isinstance(scope, VariableScope):
        scope = f"{re.escape(scope.name)}/" if scope.name else None
    found = get_default_graph().get_collection(collection, scope)
    if suffix is None:
        return found
    ending = suffix.partition(":")[0]
    return [each for each in found if each.op.name.endswith(ending)]


def get_model_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """The model variables in a scope, whose names end in a suffix; see `get_variables`."""
    return get_variables(scope, suffix, GraphKeys.MODEL_VARIABLES)


def get_local_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """The local variables in a scope, whose names end in a suffix; see `get_variables`."""
    return get_variables(scope, suffix, GraphKeys.LOCAL_VARIABLES)


def get_trainable_variables(scope: Any = None, suffix: str | None = None) -> list[Any]:
    """The trainable variables in a scope, whose names end in a suffix; see `get_variables`."""
    return get_variables(scope, suffix, GraphKeys.TRAINABLE_VARIABLES)


def get_variables_by_suffix(suffix: str, scope: Any = None) -> list[Any]:
    """The global variables whose names end in a suffix; see `get_variables`."""
    return get_variables(scope, suffix)


def get_variables_by_name(given_name: str, scope: Any = None) -> list[Any]:
    """The global variables called `given_name`, whatever scope they are in; see `get_variables`."""
    found = get_variables(scope)
    return [each for each in found if f"/{each.op.name}".endswith(f"/{given_name}")]


def get_unique_variable(var_op_name: str) -> Any:
    """The global variable of exactly this name, its scope included.

    Raises:
        ValueError: there is none.
    """
    near = get_variables(re.escape(var_op_name))
    for each in near:
        if each.op.name == var_op_name:
            return each
    hint = f"; there is {', '.join(repr(each.op.name) for each in near)}" if near else ""
    raise ValueError(f"var_op_name: there is no global variable {var_op_name!r}{hint}")


def get_variable_full_name(var: Any) -> str:
    """The name that a checkpoint has for the variable."""
    return var.op.name  # type: ignore[no-any-return]


def get_variables_to_restore(
    include: Sequence[str] | None = None, exclude: Sequence[str] | None = None
) -> list[Any]:
    """The global variables in the scopes `include` (all if None) and in none of `exclude`.

    Raises:
        TypeError: an argument is no list.
    """
    chosen = _in_scopes("include", include) if include is not None else get_variables()
    left_out = _in_scopes("exclude", exclude) if exclude is not None else []
    return [each for each in chosen if each not in left_out]


def _in_scopes(argument: str, scopes: Any) -> list[Any]:
    if not isinstance(scopes, list | tuple):
        raise TypeError(f"{argument}: expected a list of scopes, got {scopes!r}")
    return list(dict.fromkeys(each for scope in scopes for each in get_variables(scope)))


def filter_variables(
    var_list: Iterable[Any],
    include_patterns: Sequence[str] | None = None,
    exclude_patterns: Sequence[str] | None = None,
    reg_search: bool = True,
) -> list[Any]:
    """The variables whose names one of `include_patterns` matches, and none of the others.

    Args:
        var_list: variables.
        include_patterns: regular expressions; None lets all pass.
        exclude_patterns: regular expressions.
        reg_search: True finds them anywhere in the name, False at its beginning.

    Raises:
        TypeError: the patterns are no list.
    """
    for argument, patterns in (
        ("include_patterns", include_patterns),
        ("exclude_patterns", exclude_patterns),
    ):
        if isinstance(patterns, str):
            raise TypeError(f"{argument}: expected a list of patterns, got {patterns!r}")
    found = re.search if reg_search else re.match

    def matched(name: str, patterns: Sequence[str]) -> bool:
        return any(found(pattern, name) for pattern in patterns)

    return [
        each
        for each in var_list
        if (not include_patterns or matched(each.name, include_patterns))
        and not matched(each.name, exclude_patterns or ())
    ]


# -- setting --------------------------------------------------------------------------------------


def assign_from_values(
    var_names_to_values: Mapping[str, Any],
) -> tuple[Operation, dict[Any, Any]]:
    """An operation that sets variables, and the feed that it must be run with.

    Args:
        var_names_to_values: the full name of a global variable -> its value.

    Raises:
        ValueError: there is no such variable, or a value has another size.
        TypeError: a value is of another kind.
    """
    return assignments(
        [(get_unique_variable(name), value) for name, value in var_names_to_values.items()]
    )


def assignments(pairs: Iterable[tuple[Variable, Any]]) -> tuple[Operation, dict[Any, Any]]:
    """An operation that sets variables to values, and the feed that it must be run with.

    Raises:
        ValueError: a value has another size.
        TypeError: a value is of another kind.
    """
    feed, writes = {}, []
    with get_default_graph().all_or_nothing():
        for of, value in pairs:
            fed = placeholder(of.dtype, of.shape, name=f"placeholder/{of.op.name}")
            writes.append(of.assign(fed))
            feed[fed] = _value_for(of, value)
        return group(*writes), feed


def _value_for(of: Variable, value: Any) -> np.ndarray[Any, Any]:
    array = np.asarray(value)
    try:
        array = array.astype(of.dtype.as_numpy_dtype, casting="same_kind")
    except TypeError:
        raise TypeError(
            f"variable {of.op.name!r}: value: expected {of.dtype.name}, got {array.dtype}"
        ) from None
    if array.size != of.shape.num_elements():
        raise ValueError(
            f"variable {of.op.name!r}: value: expected shape {of.shape}, got {array.shape}"
        )
    return array.reshape(of.shape.as_list())


def assign_from_values_fn(var_names_to_values: Mapping[str, Any]) -> Callable[[Any], None]:
    """A function that sets variables in the session it is given; see `assign_from_values`."""
    operation, feed = assign_from_values(var_names_to_values)

    def assign(session: Any) -> None:
        session.run(operation, feed)

    return assign
