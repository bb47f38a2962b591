"""Variables: named state that a session holds, with TF1's constructor, collections and helpers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from optkit.dtypes import DType, as_dtype
from optkit.graph import (
    Graph,
    GraphKeys,
    IndexedSlices,
    Operation,
    Tensor,
    TensorOperators,
    get_default_graph,
    is_symbolic,
)
from optkit.ops import state
from optkit.ops.control import cond, group
from optkit.ops.core import as_tensor, composite
from optkit.ops.state_ops import target
from optkit.shapes import Shape, TensorShape

__all__ = [
    "Variable",
    "all_variables",
    "assert_variables_initialized",
    "global_variables",
    "global_variables_initializer",
    "initialize_all_variables",
    "initialize_local_variables",
    "initialize_variables",
    "local_variables",
    "local_variables_initializer",
    "model_variables",
    "moving_average_variables",
    "report_uninitialized_variables",
    "trainable_variables",
    "variable_of",
    "variables_initializer",
]

_STORE = "variables"
"""Key of graph.stores: the Variable of each variable operation."""


def _scatter_method(mode: str) -> Callable[..., Tensor]:
    def method(
        self: Variable, sparse_delta: IndexedSlices, use_locking: bool = False, name: Any = None
    ) -> Tensor:
        if not isinstance(sparse_delta, IndexedSlices):
            raise TypeError(
                f"scatter_{mode} to variable {self.op.name!r}: sparse_delta: expected "
                f"IndexedSlices, got {sparse_delta!r}"
            )
        return state.scatter(mode, self.op, sparse_delta.indices, sparse_delta.values, name)

    method.__name__ = f"scatter_{mode}"
    method.__doc__ = f"{mode.capitalize()} the rows that an IndexedSlices names; see `scatter_add`."
    return method


class Variable(TensorOperators):
    """State that lives in a session from its initializer on, and can be trained.

    In an expression it stands for a read at that place: the newest value written before it in the
    same run (by data or control edges), else the value at the start of the run.

    Args:
        initial_value: a tensor, an array, a number, or a function without arguments that gives
            one. It may depend on other variables, which then count as initialised.
        trainable: whether it joins TRAINABLE_VARIABLES.
        collections: the collections it joins; GLOBAL_VARIABLES if None.
        validate_shape: False leaves the shape open, so that any may be assigned.
        caching_device: accepted as in TF; recorded nowhere.
        name: the operation's name, made unique.
        variable_def: TF's protocol form; must be None.
        dtype: the dtype; the initial value's if None.
        expected_shape: the shape the initial value must have.
        import_scope: goes with `variable_def`.
        constraint: a function of the new value that optimizers apply after each dense update.
        use_resource: accepted; every optkit variable has TF's resource semantics.
        synchronization: recorded.
        aggregation: recorded.
        shape: the variable's static shape; the initial value's if None.

    Raises:
        ValueError: there is no initial value, its shape is not fully known, or an argument is bad.
        TypeError: the initial value has another dtype.
    """

    def __init__(
        self,
        initial_value: Any = None,
        trainable: bool | None = True,
        collections: Iterable[str] | None = None,
        validate_shape: bool = True,
        caching_device: Any = None,
        name: str | None = None,
        variable_def: Any = None,
        dtype: Any = None,
        expected_shape: Any = None,
        import_scope: str | None = None,
        constraint: Callable[[Any], Any] | None = None,
        use_resource: bool | None = None,
        synchronization: Any = None,
        aggregation: Any = None,
        shape: Any = None,
    ) -> None:
        if variable_def is not None or import_scope is not None:
            raise ValueError("variable_def, import_scope: optkit has no protocol form of variables")
        if initial_value is None:
            raise ValueError("initial_value: expected a value or a function, got None")
        if constraint is not None and not callable(constraint):
            raise ValueError(f"constraint: expected a function, got {constraint!r}")
        if collections is None:
            collections = [GraphKeys.GLOBAL_VARIABLES]
        elif isinstance(collections, str) or not isinstance(collections, Iterable):
            raise ValueError(f"collections: expected a list of names, got {collections!r}")
        self._trainable = trainable is None or bool(trainable)
        self._constraint = constraint
        self.synchronization = synchronization
        self.aggregation = aggregation
        keys = list(collections)
        if self._trainable and GraphKeys.TRAINABLE_VARIABLES not in keys:
            keys.append(GraphKeys.TRAINABLE_VARIABLES)
        graph = get_default_graph()
        with graph.all_or_nothing(), graph.outside_control_flow():
            with graph.name_scope(name or "Variable") as scope:
                initial = _initial_tensor(
                    graph, scope, initial_value, None if dtype is None else as_dtype(dtype)
                )
                sizes = _variable_shape(scope, initial, validate_shape, expected_shape, shape)
                self._op = state.variable_operation(
                    scope, initial.dtype, sizes, trainable=self._trainable
                )
                graph.table(_STORE)[self._op] = self
                self._initial_value = _after_initialization(graph, initial)
                assigned = state.assign(self._op, self._initial_value, f"{scope}Assign/")
                self._initializer = assigned.op
            graph.add_to_collections(keys, self)

    # -- what it is -------------------------------------------------------------------------

    @property
    def op(self) -> Operation:
        """The operation that stands for the variable."""
        return self._op

    @property
    def name(self) -> str:
        """`<operation>:0`."""
        return self._op.outputs[0].name

    @property
    def dtype(self) -> DType:
        """The dtype."""
        return self._op.outputs[0].dtype

    @property
    def shape(self) -> TensorShape:
        """The static shape."""
        return self._op.outputs[0].shape

    @property
    def sizes(self) -> Shape:
        """The static shape as a tuple with None for unknown sizes; None for unknown rank."""
        return self._op.outputs[0].sizes

    def get_shape(self) -> TensorShape:
        """The static shape."""
        return self.shape

    def set_shape(self, shape: Any) -> None:
        """Add what is known of the shape; ValueError when it contradicts what is known."""
        self._op.outputs[0].set_shape(shape)

    @property
    def graph(self) -> Graph:
        """The graph it belongs to."""
        return self._op.graph

    @property
    def device(self) -> str:
        """The device that was asked for."""
        return self._op.device

    @property
    def trainable(self) -> bool:
        """Whether optimizers train it when no list of variables is given."""
        return self._trainable

    @property
    def constraint(self) -> Callable[[Any], Any] | None:
        """The function that optimizers apply to the value after an update."""
        return self._constraint

    @property
    def initializer(self) -> Operation:
        """The operation that assigns the initial value."""
        return self._initializer

    @property
    def initial_value(self) -> Tensor:
        """The tensor that the initializer assigns."""
        return self._initial_value

    def start_from(self, value: Any) -> None:
        """Have the initializer assign another tensor, of the same dtype, from now on.

        Initializers of several variables that were made before still assign the old one.
        """
        with self.graph.as_default(), self.graph.outside_control_flow():
            tensor = as_tensor(value, self.dtype)
            self._initializer = state.assign(self._op, tensor, f"{self._op.name}/Assign").op
            self._initial_value = tensor

    # -- reading ----------------------------------------------------------------------------

    def value(self) -> Tensor:
        """The value at this place of the graph."""
        return state.read(self._op)

    def read_value(self) -> Tensor:
        """The value at this place of the graph: after the control dependencies in force."""
        return state.read(self._op)

    def initialized_value(self) -> Tensor:
        """The value at the start of the run, or the initial value if there is none yet."""
        with self.graph.as_default(), self.graph.outside_control_flow():
            return _as_one(
                cond(
                    state.is_initialized(self._op),
                    lambda: state.read(self._op),
                    lambda: self._initial_value,
                )
            )

    def eval(self, session: Any = None) -> Any:
        """The value in `session`, or in the default session."""
        return self._op.outputs[0].eval(session=session)

    def numpy(self) -> Any:
        """The value now, in eager mode; a NumPy scalar for shape ().

        Raises:
            RuntimeError: the variable is a graph's; run it in a session.
        """
        if not self.graph.eager:
            raise RuntimeError(
                f"numpy: variable {self._op.name!r} lives in a session; use Session.run or "
                "Session.value"
            )
        tensor: Any = state.read(self._op)
        return tensor.numpy()

    def load(self, value: Any, session: Any = None) -> None:
        """Set the value in `session`, or in the default session, without building anything.

        Raises:
            TypeError, ValueError: `value` has another dtype or shape.
        """
        (initial,) = self._initializer.inputs
        self._initializer.run({initial: value}, session)

    # -- writing ----------------------------------------------------------------------------

    def assign(
        self,
        value: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Tensor | Operation:
        """Set the value; gives the value right after, or the operation unless `read_value`."""
        result = state.assign(self._op, value, name)
        return result if read_value else result.op

    def assign_add(
        self,
        delta: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Tensor | Operation:
        """Add to the value; gives the value right after, or the operation unless `read_value`."""
        result = state.assign_add(self._op, delta, name)
        return result if read_value else result.op

    def assign_sub(
        self,
        delta: Any,
        use_locking: bool = False,
        name: str | None = None,
        read_value: bool = True,
    ) -> Tensor | Operation:
        """Subtract from the value; see `assign_add`."""
        result = state.assign_sub(self._op, delta, name)
        return result if read_value else result.op

    scatter_add = _scatter_method("add")
    scatter_sub = _scatter_method("sub")
    scatter_mul = _scatter_method("mul")
    scatter_div = _scatter_method("div")
    scatter_min = _scatter_method("min")
    scatter_max = _scatter_method("max")
    scatter_update = _scatter_method("update")

    # -- what the graph asks of it ----------------------------------------------------------

    def _as_graph_tensor(self) -> Tensor:
        return state.read(self._op)

    def _as_graph_element(self) -> Tensor:
        return self._op.outputs[0]

    def __repr__(self) -> str:
        return f"<optkit.Variable {self.name!r} shape={self.shape} dtype={self.dtype.name}>"

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


def _initial_tensor(graph: Graph, scope: str, value: Any, dtype: DType | None) -> Tensor:
    """The initial value as a tensor."""
    if callable(value) and not is_symbolic(value):
        with graph.name_scope("Initializer"):
            initial = _converted(scope, value(), dtype)
    else:
        initial = _converted(scope, value, dtype)
    if initial.op.branch is not None:
        raise ValueError(
            f"Variable {scope[:-1]!r}: initial_value: {initial!r} was built inside a cond branch; "
            "pass a function that builds it, e.g. lambda: zeros([3])"
        )
    return initial


def _converted(scope: str, value: Any, dtype: DType | None) -> Tensor:
    try:
        return as_tensor(value, dtype, "initial_value")
    except (TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"Variable {scope[:-1]!r}: initial_value: {error}") from error


def _variable_shape(
    scope: str, initial: Tensor, validate: bool, expected: Any, shape: Any
) -> Shape:
    for argument, wanted in (("expected_shape", expected), ("shape", shape)):
        if wanted is not None and not initial.shape.is_compatible_with(wanted):
            raise ValueError(
                f"Variable {scope[:-1]!r}: {argument}: {TensorShape(wanted)} does not fit the "
                f"initial value's shape {initial.shape}"
            )
    if shape is not None:
        return TensorShape(shape).sizes
    if not validate:
        return None
    if not initial.shape.is_fully_defined():
        raise ValueError(
            f"Variable {scope[:-1]!r}: initial_value: expected a fully known shape, got "
            f"{initial!r}; pass validate_shape=False for a variable of any shape"
        )
    return initial.sizes


def _after_initialization(graph: Graph, initial: Tensor) -> Tensor:
    """`initial` with each variable it depends on replaced by that variable's initialised value.

    One run of `global_variables_initializer` then works whatever depends on whatever. Reads under
    control dependencies are left as they are: their order is the user's.
    """
    variables: Mapping[Operation, Variable] = graph.table(_STORE)
    ancestors: set[Operation] = set()
    waiting = [initial.op]
    while waiting:
        op = waiting.pop()
        if op in ancestors or op.kind.merges:
            continue
        ancestors.add(op)
        waiting.extend(tensor.op for tensor in op.inputs)
    replaced: dict[Tensor, Tensor] = {}
    for op in sorted(ancestors, key=lambda op: op.index):
        if op.kind is state.VARIABLE and op in variables:
            replaced[op.outputs[0]] = variables[op].initialized_value()
        elif any(tensor in replaced for tensor in op.inputs):
            with graph.control_dependencies(op.control_inputs):
                copy = graph.create_operation(
                    op.kind,
                    [replaced.get(tensor, tensor) for tensor in op.inputs],
                    op.attrs,
                    name=op.name.rpartition("/")[2],
                    variables=op.variables,
                )
            replaced.update(zip(op.outputs, copy.outputs, strict=True))
    return replaced.get(initial, initial)


def _as_one(value: Any) -> Tensor:
    assert isinstance(value, Tensor)
    return value


def variable_of(value: Any) -> Variable | None:
    """The Variable that `value` is, or whose operation or tensor it is; None for anything else."""
    if isinstance(value, Variable):
        return value
    op = value.op if isinstance(value, Tensor) else value
    if not isinstance(op, Operation):
        return None
    found: Variable | None = op.graph.table(_STORE).get(op)
    return found


# -- collections --------------------------------------------------------------------------------


def global_variables(scope: str | None = None) -> list[Any]:
    """The variables of GLOBAL_VARIABLES; with `scope`, a regular expression, those it matches."""
    return get_default_graph().get_collection(GraphKeys.GLOBAL_VARIABLES, scope)


def all_variables() -> list[Any]:
    """TF's older name of `global_variables`."""
    return global_variables()


def trainable_variables(scope: str | None = None) -> list[Any]:
    """The variables of TRAINABLE_VARIABLES."""
    return get_default_graph().get_collection(GraphKeys.TRAINABLE_VARIABLES, scope)


def local_variables(scope: str | None = None) -> list[Any]:
    """The variables of LOCAL_VARIABLES: those that checkpoints leave out."""
    return get_default_graph().get_collection(GraphKeys.LOCAL_VARIABLES, scope)


def model_variables(scope: str | None = None) -> list[Any]:
    """The variables of MODEL_VARIABLES."""
    return get_default_graph().get_collection(GraphKeys.MODEL_VARIABLES, scope)


def moving_average_variables(scope: str | None = None) -> list[Any]:
    """The variables that an ExponentialMovingAverage keeps an average of."""
    return get_default_graph().get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, scope)


# -- initialisation -----------------------------------------------------------------------------


def variables_initializer(var_list: Iterable[Any], name: str = "init") -> Operation:
    """An operation that runs the initializers of `var_list`."""
    return group(*[variable.initializer for variable in var_list], name=name)


def initialize_variables(var_list: Iterable[Any], name: str = "init") -> Operation:
    """TF's older name of `variables_initializer`."""
    return variables_initializer(var_list, name)


def global_variables_initializer() -> Operation:
    """An operation that initialises all global variables made so far."""
    return variables_initializer(global_variables())


def initialize_all_variables() -> Operation:
    """TF's older name of `global_variables_initializer`."""
    return global_variables_initializer()


def local_variables_initializer() -> Operation:
    """An operation that initialises all local variables made so far."""
    return variables_initializer(local_variables())


def initialize_local_variables() -> Operation:
    """TF's older name of `local_variables_initializer`."""
    return local_variables_initializer()


@composite
def report_uninitialized_variables(
    var_list: Sequence[Any] | None = None, name: str = "report_uninitialized_variables"
) -> Tensor:
    """The names of the variables that hold no value at the start of the run; string, shape (any,).

    `var_list` defaults to the global and local variables.
    """
    graph = get_default_graph()
    with graph.outside_control_flow(), graph.name_scope(name) as scope:
        flags, names = _flags(var_list)
        return state.uninitialized_names(*flags, names=names, name=scope)


@composite
def assert_variables_initialized(var_list: Sequence[Any] | None = None) -> Operation | None:
    """An operation that fails while a variable holds no value; None where there is no variable.

    Raises:
        FailedPreconditionError: when run; it names the variables.
    """
    graph = get_default_graph()
    with graph.name_scope("assert_variables_initialized") as scope:
        flags, names = _flags(var_list)
        return state.require_initialized(*flags, names=names, name=scope).op if names else None


def _flags(var_list: Sequence[Any] | None) -> tuple[list[Tensor], tuple[bytes, ...]]:
    """For each variable whether it holds a value, and its name."""
    if var_list is None:
        var_list = global_variables() + local_variables()
    ops = [target(variable, "var_list") for variable in var_list]
    return [state.is_initialized(op) for op in ops], tuple(op.name.encode() for op in ops)
