"""TF1's `variable_scope` and `get_variable`: sharing variables by name.

A scope carries a name prefix, defaults for `get_variable`, and whether variables are made or
found again (`reuse`). Scopes and shared variables belong to the graph.
"""

from __future__ import annotations

import contextlib
import difflib
import enum
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from optkit.dtypes import DType, as_dtype, float32, result_dtype
from optkit.graph import (
    Graph,
    GraphKeys,
    Ledger,
    Operation,
    Tensor,
    get_default_graph,
    is_symbolic,
)
from optkit.initializers import glorot_uniform_initializer, zeros_initializer
from optkit.shapes import TensorShape
from optkit.variables import Variable

__all__ = [
    "AUTO_REUSE",
    "VariableScope",
    "get_local_variable",
    "get_variable",
    "get_variable_scope",
    "no_regularizer",
    "variable_op_scope",
    "variable_scope",
]


class _ReuseMode(enum.Enum):
    """`AUTO_REUSE`: find the variable, or make it."""

    AUTO_REUSE = 1


AUTO_REUSE = _ReuseMode.AUTO_REUSE

_STORE = "variable_scope"


def no_regularizer(_: Any) -> None:
    """A regularizer that adds nothing, to overrule the scope's."""
    return


class VariableScope:
    """A name prefix and the defaults that `get_variable` uses inside it.

    Attributes:
        initializer, regularizer, constraint, custom_getter, dtype: defaults of `get_variable`.
        caching_device, partitioner, use_resource: recorded; optkit keeps variables whole, on one
            device.
    """

    def __init__(
        self,
        reuse: Any,
        name: str = "",
        initializer: Any = None,
        regularizer: Any = None,
        caching_device: Any = None,
        partitioner: Any = None,
        custom_getter: Any = None,
        name_scope: str = "",
        dtype: Any = float32,
        use_resource: bool | None = None,
        constraint: Any = None,
    ) -> None:
        self._name = name
        self._name_scope = name_scope
        self._reuse = reuse
        self.initializer = initializer
        self.regularizer = regularizer
        self.caching_device = caching_device
        self.partitioner = partitioner
        self.custom_getter = custom_getter
        self.dtype = as_dtype(dtype)
        self.use_resource = use_resource
        self.constraint = constraint

    @property
    def name(self) -> str:
        """The prefix of variable names, without a slash at its end."""
        return self._name

    @property
    def original_name_scope(self) -> str:
        """The name scope that was opened with it, with its slash."""
        return self._name_scope

    @property
    def reuse(self) -> Any:
        """False (make variables), True (find them again) or AUTO_REUSE (either)."""
        return self._reuse

    def reuse_variables(self) -> None:
        """From here on find variables again."""
        self._reuse = True

    def set_initializer(self, initializer: Any) -> None:
        """Set the default initializer."""
        self.initializer = initializer

    def set_regularizer(self, regularizer: Any) -> None:
        """Set the default regularizer."""
        self.regularizer = regularizer

    def set_caching_device(self, caching_device: Any) -> None:
        """Record a device."""
        self.caching_device = caching_device

    def set_partitioner(self, partitioner: Any) -> None:
        """Record a partitioner."""
        self.partitioner = partitioner

    def set_custom_getter(self, custom_getter: Any) -> None:
        """Set the function that `get_variable` goes through."""
        self.custom_getter = custom_getter

    def set_dtype(self, dtype: Any) -> None:
        """Set the default dtype."""
        self.dtype = as_dtype(dtype)

    def set_use_resource(self, use_resource: bool | None) -> None:
        """Record TF's use_resource."""
        self.use_resource = use_resource

    def get_collection(self, name: str) -> list[Any]:
        """The items of a collection whose names lie in the scope."""
        items = get_default_graph().get_collection(name)
        prefix = f"{self._name}/" if self._name else ""
        return [item for item in items if getattr(item, "name", "").startswith(prefix)]

    def trainable_variables(self) -> list[Any]:
        """The trainable variables in the scope."""
        return self.get_collection(GraphKeys.TRAINABLE_VARIABLES)

    def global_variables(self) -> list[Any]:
        """The global variables in the scope."""
        return self.get_collection(GraphKeys.GLOBAL_VARIABLES)

    def local_variables(self) -> list[Any]:
        """The local variables in the scope."""
        return self.get_collection(GraphKeys.LOCAL_VARIABLES)

    def get_variable(
        self,
        name: str,
        shape: Any = None,
        dtype: Any = None,
        initializer: Any = None,
        regularizer: Any = None,
        reuse: Any = None,
        trainable: bool | None = None,
        collections: Iterable[str] | None = None,
        caching_device: Any = None,
        partitioner: Any = None,
        validate_shape: bool = True,
        use_resource: bool | None = None,
        custom_getter: Any = None,
        constraint: Any = None,
        synchronization: Any = None,
        aggregation: Any = None,
    ) -> Variable:
        """The scope's variable `name`, made or found again; see the function `get_variable`."""
        if not isinstance(name, str):
            raise TypeError(f"name: expected a string, got {name!r}")
        if dtype is not None and initializer is not None and not callable(initializer):
            have = _dtype_of(initializer)
            if have is not as_dtype(dtype):
                raise ValueError(
                    f"variable {name!r}: initializer: expected a value of dtype "
                    f"{as_dtype(dtype).name}, got {have.name} ({initializer!r})"
                )
        if custom_getter is not None and not callable(custom_getter):
            raise ValueError(f"custom_getter: expected a function, got {custom_getter!r}")
        settings = {
            "name": f"{self._name}/{name}" if self._name else name,
            "shape": shape,
            "dtype": self.dtype if dtype is None else as_dtype(dtype),
            "initializer": self.initializer if initializer is None else initializer,
            "regularizer": self.regularizer if regularizer is None else regularizer,
            "reuse": self._reuse if reuse is None else reuse,
            "trainable": trainable,
            "collections": collections,
            "caching_device": self.caching_device if caching_device is None else caching_device,
            "partitioner": self.partitioner if partitioner is None else partitioner,
            "validate_shape": validate_shape,
            "use_resource": self.use_resource if use_resource is None else use_resource,
            "synchronization": synchronization,
            "aggregation": aggregation,
        }
        constraint = self.constraint if constraint is None else constraint
        getter = custom_getter if custom_getter is not None else self.custom_getter
        # The name depends on the variable scope alone.
        with get_default_graph().name_scope(None):
            if getter is None:
                return _find_or_make(**settings, constraint=constraint)
            if _takes(getter, "constraint"):
                settings["constraint"] = constraint
            got: Variable = getter(_find_or_make, **settings)
            return got

    def __repr__(self) -> str:
        return f"<optkit.VariableScope {self._name!r} reuse={self._reuse}>"


@dataclass
class _Store:
    """A graph's shared variables and its current scope.

    Attributes:
        variables: by full name.
        scope: the current scope.
        opened: how often each scope name was opened, so that default names are made unique.
    """

    variables: Ledger[str, Variable] = field(default_factory=Ledger)
    scope: VariableScope = field(default_factory=lambda: VariableScope(False))
    opened: Ledger[str, int] = field(default_factory=Ledger)

    def mark(self) -> tuple[int, VariableScope, int]:
        return self.variables.mark(), self.scope, self.opened.mark()

    def undo(self, mark: tuple[int, VariableScope, int]) -> None:
        variables, self.scope, opened = mark
        self.variables.undo(variables)
        self.opened.undo(opened)

    def unique(self, name: str) -> str:
        """`name`, with _1, _2, ... when the current scope has opened one of that name."""
        prefix = f"{self.scope.name}/" if self.scope.name else ""
        unique, count = name, 0
        while self.opened.get(prefix + unique, 0):
            count += 1
            unique = f"{name}_{count}"
        return unique


def _store(graph: Graph) -> _Store:
    store: _Store = graph.stores.setdefault(_STORE, _Store())
    return store


def get_variable_scope() -> VariableScope:
    """The current variable scope."""
    return _store(get_default_graph()).scope


@contextlib.contextmanager
def variable_scope(
    name_or_scope: Any,
    default_name: str | None = None,
    values: Iterable[Any] | None = None,
    initializer: Any = None,
    regularizer: Any = None,
    caching_device: Any = None,
    partitioner: Any = None,
    custom_getter: Any = None,
    reuse: Any = None,
    dtype: Any = None,
    use_resource: bool | None = None,
    constraint: Any = None,
    auxiliary_name_scope: bool = True,
) -> Iterator[VariableScope]:
    """Variables got inside have the scope's prefix, its defaults, and are shared as it says.

    A name extends the current scope and inherits from it; a `VariableScope` is entered again
    wherever one is, with the defaults it has. A name scope is opened along, unique as any:
    entering "a" twice gives the variables "a/w" one home and the operations "a/" and "a_1/".

    Args:
        name_or_scope: the name, a `VariableScope`, or None for `default_name`.
        default_name: the name to make unique when `name_or_scope` is None.
        values: tensors whose graph is the one to build into.
        initializer: default of `get_variable`, as are the following.
        regularizer: a function of a variable that gives a loss or None.
        caching_device: recorded.
        partitioner: recorded; optkit keeps variables whole.
        custom_getter: `f(getter, name, ...)`, through which variables are got; inner ones are
            called first.
        reuse: True finds variables again, AUTO_REUSE finds or makes them, None or False inherits.
        dtype: the default dtype.
        use_resource: recorded.
        constraint: the default constraint.
        auxiliary_name_scope: False leaves the name scope as it is.

    Raises:
        TypeError: there is no name, or `name_or_scope` or `auxiliary_name_scope` is of a bad kind.
        ValueError: `reuse` with a default name, or a bad `reuse`.
    """
    if not isinstance(auxiliary_name_scope, bool):
        raise TypeError(f"auxiliary_name_scope: expected a bool, got {auxiliary_name_scope!r}")
    if reuse not in (None, False, True, AUTO_REUSE):
        raise ValueError(f"reuse: expected True, False, None or AUTO_REUSE, got {reuse!r}")
    if custom_getter is not None and not callable(custom_getter):
        raise ValueError(f"custom_getter: expected a function, got {custom_getter!r}")
    if reuse and name_or_scope is None:
        raise ValueError("reuse: expected a name_or_scope to reuse, got only a default_name")
    graph = _graph_of(values)
    store = _store(graph)
    outer, before = store.scope, store.opened.mark()
    parent, full_name, label = _place(store, name_or_scope, default_name)
    jumps = parent is name_or_scope
    with contextlib.ExitStack() as stack:
        stack.enter_context(graph.as_default())
        name_scope = graph.get_name_scope()
        name_scope = f"{name_scope}/" if name_scope else ""
        if auxiliary_name_scope and label:
            name_scope = stack.enter_context(graph.name_scope(label))
        scope = VariableScope(
            reuse or parent.reuse,
            full_name,
            parent.initializer if initializer is None else initializer,
            parent.regularizer if regularizer is None else regularizer,
            parent.caching_device if caching_device is None else caching_device,
            parent.partitioner if partitioner is None else partitioner,
            _chained(custom_getter, parent.custom_getter),
            parent.original_name_scope if jumps else name_scope,
            parent.dtype if dtype is None else dtype,
            parent.use_resource if use_resource is None else use_resource,
            parent.constraint if constraint is None else constraint,
        )
        store.opened[full_name] = store.opened.get(full_name, 0) + 1
        store.scope = scope
        try:
            yield scope
            if _store(graph).scope is not scope:
                raise RuntimeError(f"{scope!r} was left before a scope entered inside it")
        finally:
            store.scope = outer
            if jumps:
                store.opened.undo(before)
                store.opened[full_name] = store.opened.get(full_name, 0) + 1
            else:
                # Names inside are counted anew when the scope is opened again.
                for key in store.opened.changed(before):
                    if key.startswith(f"{full_name}/"):
                        store.opened[key] = 0


def variable_op_scope(
    values: Iterable[Any], name_or_scope: Any, default_name: str | None = None, **settings: Any
) -> contextlib.AbstractContextManager[VariableScope]:
    """TF's older form of `variable_scope`."""
    return variable_scope(name_or_scope, default_name, values, **settings)


def _place(
    store: _Store, name_or_scope: Any, default_name: str | None
) -> tuple[VariableScope, str, str]:
    """What a new scope inherits from, its full name, and the name of its name scope."""
    if isinstance(name_or_scope, VariableScope):
        return name_or_scope, name_or_scope.name, name_or_scope.name.rpartition("/")[2]
    if name_or_scope is None:
        if default_name is None:
            raise TypeError("name_or_scope: expected a name, as default_name is None too")
        name, label = store.unique(default_name), default_name
    elif isinstance(name_or_scope, str):
        name = label = name_or_scope
    else:
        raise TypeError(f"name_or_scope: expected a name or a VariableScope, got {name_or_scope!r}")
    return store.scope, "/".join(part for part in (store.scope.name, name) if part), label


def _graph_of(values: Iterable[Any] | None) -> Graph:
    for value in values or ():
        if isinstance(value, Operation):
            return value.graph
        if is_symbolic(value):
            graph: Graph = value.graph
            return graph
    return get_default_graph()


def _chained(inner: Any, outer: Any) -> Any:
    """The custom getter that goes through `inner` first and then through `outer`."""
    if inner is None or outer is None:
        return inner or outer

    def chained(getter: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return inner(functools.partial(outer, getter), *args, **kwargs)

    return chained


def _takes(function: Any, argument: str) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return any(p.name == argument or p.kind is p.VAR_KEYWORD for p in parameters)


def get_variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool | None = None,
    collections: Iterable[str] | None = None,
    caching_device: Any = None,
    partitioner: Any = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    custom_getter: Any = None,
    constraint: Any = None,
    synchronization: Any = None,
    aggregation: Any = None,
) -> Variable:
    """The variable `name` of the current variable scope: made, or found again where it reuses.

    Args:
        name: its name; the scope's is put before it.
        shape: its fully known shape; left out when `initializer` is a value.
        dtype: its dtype; the scope's (float32) if None.
        initializer: an initializer, its class, a value, or a function without arguments; the
            scope's if None, and glorot_uniform for floats, zeros for all else if that is None.
        regularizer: a function of the variable; the loss it gives joins REGULARIZATION_LOSSES.
        trainable: whether it joins TRAINABLE_VARIABLES (True if None).
        collections: what it joins; GLOBAL_VARIABLES if None.
        caching_device: recorded nowhere.
        partitioner: accepted; optkit keeps variables whole.
        validate_shape: False leaves the shape of a variable made from a value open.
        use_resource: accepted.
        custom_getter: a function to go through; see `variable_scope`.
        constraint: see `Variable`.
        synchronization: recorded.
        aggregation: recorded.

    Returns:
        The variable, or what a custom getter gives in its place.

    Raises:
        ValueError: the variable exists and the scope does not reuse, or the other way round; the
            shape is not fully known, or differs from the one found; dtypes differ.
    """
    return get_variable_scope().get_variable(
        name,
        shape,
        dtype,
        initializer,
        regularizer,
        None,
        trainable,
        collections,
        caching_device,
        partitioner,
        validate_shape,
        use_resource,
        custom_getter,
        constraint,
        synchronization,
        aggregation,
    )


def get_local_variable(name: str, *args: Any, **kwargs: Any) -> Variable:
    """As `get_variable`, for a variable that is not trained and that checkpoints leave out."""
    kwargs["trainable"] = False
    kwargs["collections"] = [*(kwargs.get("collections") or ()), GraphKeys.LOCAL_VARIABLES]
    return get_variable(name, *args, **kwargs)


def _find_or_make(
    name: str,
    shape: Any = None,
    dtype: Any = float32,
    initializer: Any = None,
    regularizer: Any = None,
    reuse: Any = None,
    trainable: bool | None = None,
    collections: Iterable[str] | None = None,
    caching_device: Any = None,
    partitioner: Any = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    constraint: Any = None,
    synchronization: Any = None,
    aggregation: Any = None,
) -> Variable:
    """What a custom getter is given as `getter`; `name` is the full name."""
    graph = get_default_graph()
    store = _store(graph)
    dtype, static = as_dtype(dtype), TensorShape(shape)
    from_value = initializer is not None and not callable(initializer)
    if from_value:
        if shape is not None:
            raise ValueError(
                f"variable {name!r}: shape: expected None, as the initializer is a value, got "
                f"{shape!r}"
            )
        dtype = _dtype_of(initializer)
    found = store.variables.get(name)
    if found is not None:
        return _found(found, reuse, static, dtype)
    if reuse is True:
        _refuse_missing(name, store)
    settings: dict[str, Any] = {"dtype": dtype}
    if from_value:
        initial = initializer
    else:
        initial, settings = _initial(name, static, dtype, initializer)
    with graph.all_or_nothing():
        variable = Variable(
            initial,
            trainable,
            collections,
            validate_shape,
            caching_device,
            name,
            constraint=constraint,
            use_resource=use_resource,
            synchronization=synchronization,
            aggregation=aggregation,
            **settings,
        )
        if not graph.eager:  # there each call makes a variable, which its user keeps
            _store(graph).variables[name] = variable
        if regularizer is not None:
            _regularize(graph, variable, name, regularizer)
    return variable


def _initial(
    name: str, shape: TensorShape, dtype: DType, initializer: Any
) -> tuple[Callable[[], Any], dict[str, Any]]:
    """The function that gives the initial value, and what the variable must then be."""
    if initializer is None:
        floats = dtype.is_floating
        initializer = glorot_uniform_initializer() if floats else zeros_initializer()
    elif inspect.isclass(initializer):
        initializer = initializer()
    if shape.is_fully_defined():
        sizes = shape.as_list()
        return lambda: initializer(sizes, dtype=dtype), {"dtype": dtype, "shape": sizes}
    if shape.sizes is None and _callable_without_arguments(initializer):
        return initializer, {}
    raise ValueError(
        f"variable {name!r}: shape: expected a fully known shape, got {shape}; or give as "
        "initializer a value or a function without arguments"
    )


def _callable_without_arguments(function: Any) -> bool:
    parameters = inspect.signature(function).parameters.values()
    return all(
        p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters
    )


def _found(variable: Variable, reuse: Any, shape: TensorShape, dtype: DType) -> Variable:
    """A variable that exists, if the scope shares it and it is what was asked for."""
    name = variable.op.name
    if not reuse:
        raise ValueError(
            f"variable {name!r} exists already: {variable.op.describe()}; to share it set "
            "reuse=True or reuse=AUTO_REUSE in variable_scope; to start anew (a notebook's cell "
            "run again) call reset_default_graph() first"
        )
    if not shape.is_compatible_with(variable.shape):
        raise ValueError(
            f"variable {name!r}: shape: expected {variable.shape}, as it was made by "
            f"{variable.op.describe()}, got {shape}"
        )
    if dtype is not variable.dtype:
        raise ValueError(
            f"variable {name!r}: dtype: expected {variable.dtype.name}, as it was made by "
            f"{variable.op.describe()}, got {dtype.name}"
        )
    return variable


def _refuse_missing(name: str, store: _Store) -> None:
    similar = difflib.get_close_matches(name, store.variables, n=3)
    hint = f"; there is {', '.join(map(repr, similar))}" if similar else ""
    raise ValueError(
        f"variable {name!r} does not exist, or was not made with get_variable, and reuse is True"
        f"{hint}; reuse=AUTO_REUSE makes what is missing"
    )


def _regularize(graph: Graph, variable: Variable, name: str, regularizer: Any) -> None:
    with graph.outside_control_flow(), graph.name_scope(f"{name}/Regularizer/"):
        loss = regularizer(variable)
    if loss is not None:
        graph.add_to_collection(GraphKeys.REGULARIZATION_LOSSES, loss)


def _dtype_of(value: Any) -> DType:
    """The dtype that a variable made from `value` has."""
    if isinstance(value, Tensor | Variable):
        return value.dtype
    return result_dtype(value)
