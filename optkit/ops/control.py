"""Order and choice: grouping operations, control dependencies, and the lazy `cond` and `case`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from optkit.dtypes import DType, bool_
from optkit.errors import InvalidArgumentError
from optkit.graph import (
    Branch,
    Graph,
    IndexedSlices,
    Operation,
    Tensor,
    get_default_graph,
)
from optkit.nesting import flatten, ordered_keys
from optkit.ops.array import identity
from optkit.ops.core import ALL_TYPES, Array, ArrayModule, as_tensor, composite, constant, op
from optkit.shapes import Shape

__all__ = [
    "case",
    "cond",
    "group",
    "merge",
    "no_op",
    "tables_initializer",
    "tuple_",
    "with_dependencies",
]

# -- order ----------------------------------------------------------------------------------------


@op("NoOp", infer=lambda _, __: [], differentiable=False)
def _no_op(xp: ArrayModule) -> tuple[()]:
    return ()


def no_op(name: str | None = None) -> Operation:
    """An operation that does nothing, for control dependencies to hang on."""
    return _no_op.node(name=name)


def tables_initializer(name: str = "init_all_tables") -> Operation:
    """TF's initializer of look-up tables; optkit has no tables, so it does nothing."""
    return no_op(name)


@composite
def group(*inputs: Any, name: str | None = None) -> Operation:
    """One operation that runs all of `inputs`: operations, tensors, nestings of them.

    Raises:
        TypeError: an input is none of these.
    """
    items = [item for tree in inputs for item in flatten(tree)]
    for item in items:
        if not hasattr(item, "_as_graph_element") and not isinstance(item, IndexedSlices):
            raise TypeError(f"inputs: expected operations or tensors, got {item!r}")
    graph = _graph_of(items)
    with graph.as_default(), graph.control_dependencies(items):
        return no_op(name or "group_deps")


def _graph_of(items: Sequence[Any]) -> Graph:
    current = get_default_graph()
    graph: Graph = items[0].graph if items else current
    if graph.eager and not current.eager:
        current.as_operations(items, "inputs")  # which says that they have run
    return graph


@composite
def tuple_(
    tensors: Any, name: str | None = None, control_inputs: Sequence[Any] | None = None
) -> list[Any]:
    """The same tensors, none of which is there before all have been computed; None stays None.

    `control_inputs` are further operations to wait for. (`optkit.tuple`.)

    Raises:
        ValueError: there is no tensor to wait for.
    """
    items = list(tensors)
    waited = [item for item in items if item is not None]
    if not waited:
        raise ValueError(f"tensors: expected at least one, got {items!r}")
    with get_default_graph().name_scope(name or "tuple"):
        gate = group(*waited, *(control_inputs or ()))
        return [
            None
            if item is None
            else item
            if isinstance(item, Operation)
            else with_dependencies([gate], item, "control_dependency")
            for item in items
        ]


@composite
def with_dependencies(
    dependencies: Sequence[Any], output_tensor: Any, name: str | None = None
) -> Any:
    """The tensor (or IndexedSlices), once `dependencies` have run."""
    with get_default_graph().control_dependencies(dependencies):
        return identity(output_tensor, name=name or "control_dependency")


# -- structures -----------------------------------------------------------------------------------


def _mapped(function: Callable[..., Any], *trees: Any) -> Any:
    """The function on the leaves of trees of one structure, in that structure."""
    first = trees[0]
    if isinstance(first, list | tuple):
        items = [_mapped(function, *column) for column in zip(*trees, strict=True)]
        if hasattr(first, "_fields"):
            return type(first)(*items)
        return type(first)(items)
    if isinstance(first, Mapping):
        return type(first)(  # type: ignore[call-arg]
            {key: _mapped(function, *(tree[key] for tree in trees)) for key in first}
        )
    return function(*trees)


class _Ran:
    """Stands for operations (or None) among a branch's results; `token` exists once they ran."""

    def __init__(self, token: Tensor) -> None:
        self.token = token

    def __repr__(self) -> str:
        return "an operation (or None)"


def _same_structure(a: Any, b: Any) -> None:
    """Refuse two results of different structure.

    Raises:
        TypeError: a list stands where the other has a tuple, dict or single value.
        ValueError: lengths or keys differ.
    """
    containers = (list, tuple, Mapping)
    if isinstance(a, containers) or isinstance(b, containers):
        if type(a) is not type(b):
            raise TypeError(f"{_kind(a)} against {_kind(b)}")
        if isinstance(a, Mapping):
            if a.keys() != b.keys():
                raise ValueError(f"keys {ordered_keys(a)} against {ordered_keys(b)}")
            pairs = [(a[key], b[key]) for key in a]
        else:
            if len(a) != len(b):
                raise ValueError(f"{len(a)} values against {len(b)}")
            pairs = list(zip(a, b, strict=True))
        for pair in pairs:
            _same_structure(*pair)
        return
    for kind in (_Ran, IndexedSlices):
        if isinstance(a, kind) != isinstance(b, kind):
            raise TypeError(f"{_kind(a)} against {_kind(b)}")


def _kind(value: Any) -> str:
    if isinstance(value, list | tuple | Mapping):
        return f"a {type(value).__name__} of {len(value)}"
    return repr(value)


# -- choice ---------------------------------------------------------------------------------------


def _merged_type(inputs: Sequence[Tensor], _: Mapping[str, Any]) -> list[tuple[DType, Shape]]:
    """What both sides have in common."""
    x, y = inputs[1:]
    shape: Shape = None
    if x.sizes is not None and y.sizes is not None and len(x.sizes) == len(y.sizes):
        shape = tuple(a if a == b else None for a, b in zip(x.sizes, y.sizes, strict=True))
    return [(x.dtype, shape)]


@op(
    "Merge",
    types=ALL_TYPES,
    accepts={"predicate": {bool_}},
    infer=_merged_type,
    merges=True,
)
def merge(xp: ArrayModule, predicate: Array, true_value: Array, false_value: Array) -> Array:
    """The value of the branch that was taken; only that one is computed."""
    return true_value if bool(predicate) else false_value


@merge.gradient
def _(_: Operation, dy: Tensor) -> tuple[None, Tensor, Tensor]:
    return None, dy, dy  # the values were made inside their branches: only one gradient runs


@composite
def cond(
    pred: Any,
    true_fn: Callable[[], Any] | None = None,
    false_fn: Callable[[], Any] | None = None,
    strict: bool = False,
    name: str | None = None,
    fn1: Callable[[], Any] | None = None,
    fn2: Callable[[], Any] | None = None,
) -> Any:
    """What `true_fn` gives where `pred` holds, else what `false_fn` gives.

    Operations that a function builds run only when its side is taken, and so do their side
    effects; what was built before `cond` is not part of either side. Gradients flow to the side
    that was taken and are zero on the other.

    Args:
        pred: a bool tensor of shape ().
        true_fn: a function without arguments that gives a tensor, a number, an IndexedSlices, an
            operation, None, or a nesting of these in lists, tuples and dicts.
        false_fn: the same for the other side; both give one structure and equal dtypes.
        strict: keep a list or tuple of one value; else it is unpacked.
        name: the name scope.
        fn1: the old name of `true_fn`.
        fn2: the old name of `false_fn`.

    Returns:
        The structure of the functions' results. An operation stands where they gave operations
        or None: it runs what the side taken gave.

    In eager mode the function of the side taken is called, and `pred` may be a Python bool.

    Raises:
        TypeError: `pred` is a Python bool or no bool tensor; a function is not callable; the
            structures differ in kind.
        ValueError: the structures differ in length, or two values in dtype.
    """
    true_fn = _branch_function("true_fn", true_fn, "fn1", fn1)
    false_fn = _branch_function("false_fn", false_fn, "fn2", fn2)
    graph = get_default_graph()
    if graph.eager:
        holds = pred if isinstance(pred, bool) else bool(_predicate(pred))
        return _unpacked(true_fn() if holds else false_fn(), strict)
    with graph.name_scope(name or "cond"):
        predicate = _predicate(pred)
        results = []
        for function, taken in ((true_fn, True), (false_fn, False)):
            with graph.in_branch(Branch(predicate, taken, graph.branch)):
                results.append(_mapped(_in_branch, _unpacked(function(), strict)))
        try:
            _same_structure(*results)
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"cond {graph.get_name_scope()!r}: true_fn and false_fn gave different "
                f"structures: {error}"
            ) from None
        return _mapped(lambda x, y: _joined(predicate, x, y), *results)


def _branch_function(name: str, given: Any, old_name: str, old: Any) -> Callable[[], Any]:
    if old is not None:
        if given is not None:
            raise TypeError(f"cond: {name} and its old name {old_name} were both given")
        given = old
    if not callable(given):
        raise TypeError(f"cond: {name}: expected a function, got {given!r}")
    return given  # type: ignore[no-any-return]


def _predicate(pred: Any) -> Tensor:
    if isinstance(pred, bool):
        raise TypeError(f"cond: pred: expected a bool tensor, got Python's {pred}; use if")
    if pred is None:
        raise TypeError("cond: pred: expected a bool tensor, got None")
    tensor = as_tensor(pred, name="pred")
    if tensor.dtype is not bool_:
        raise TypeError(f"cond: pred: expected a bool tensor, got {tensor!r}")
    if not tensor.shape.is_compatible_with(()):
        raise ValueError(f"cond: pred: expected shape (), got {tensor!r}")
    return tensor


def _unpacked(result: Any, strict: bool) -> Any:
    if not strict and isinstance(result, list | tuple) and len(result) == 1:
        return result[0]
    return result


def _in_branch(value: Any) -> Any:
    """A leaf of a branch's result, as something built in the branch."""
    if value is None or isinstance(value, Operation):
        controls = [] if value is None else [value]
        with get_default_graph().control_dependencies(controls):
            return _Ran(constant(True, name="ran"))
    if isinstance(value, IndexedSlices):
        return identity(value)
    # A tensor from outside passes through the branch, so that its gradient is zero when the
    # branch is not taken.
    return identity(as_tensor(value))


def _joined(predicate: Tensor, x: Any, y: Any) -> Any:
    """Two leaves as one value."""
    if isinstance(x, _Ran):
        return group(merge(predicate, x.token, y.token), name="ran")
    if isinstance(x, IndexedSlices):
        shapes = (x.dense_shape, y.dense_shape)
        return IndexedSlices(
            _joined(predicate, x.values, y.values),
            _joined(predicate, x.indices, y.indices),
            None if None in shapes else _joined(predicate, *shapes),
        )
    if x.dtype is not y.dtype:
        raise ValueError(
            f"cond: true_fn and false_fn gave different dtypes: {x.op.inputs[0]!r} and "
            f"{y.op.inputs[0]!r}"
        )
    return merge(predicate, x, y, name="Merge")


# -- several choices ------------------------------------------------------------------------------


@op(
    "FirstTrue",
    types={bool_},
    infer=lambda inputs, _: [(bool_, ())] * len(inputs),
    differentiable=False,
)
def _first_true(xp: ArrayModule, *predicates: Array, exclusive: bool, exhaustive: bool) -> Any:
    """For each predicate whether it is the first that holds."""
    holding = [i for i, predicate in enumerate(predicates) if bool(predicate)]
    if exclusive and len(holding) > 1:
        raise InvalidArgumentError(
            f"pred_fn_pairs: expected at most one predicate to hold, but those at {holding} do"
        )
    if exhaustive and not holding:
        raise InvalidArgumentError(
            f"pred_fn_pairs: none of the {len(predicates)} predicates holds, and there is no "
            "default"
        )
    first = [xp.asarray(holding[:1] == [i]) for i in range(len(predicates))]
    return tuple(first) if len(first) != 1 else first[0]


@composite
def case(
    pred_fn_pairs: Any,
    default: Callable[[], Any] | None = None,
    exclusive: bool = False,
    strict: bool = False,
    name: str = "case",
) -> Any:
    """What the function beside the first predicate that holds gives; see `cond`.

    Args:
        pred_fn_pairs: a list of (bool tensor of shape (), function), or a dict of them.
        default: the function for when no predicate holds.
        exclusive: two predicates that hold at once are an error.
        strict: see `cond`.
        name: the name scope.

    Raises:
        TypeError: a pair is not a bool tensor and a function.
        ValueError: there is no pair.
        InvalidArgumentError: when run, no predicate holds and there is no default, or several
            hold and `exclusive` is set.
    """
    pairs = list(pred_fn_pairs.items() if isinstance(pred_fn_pairs, Mapping) else pred_fn_pairs)
    if not pairs:
        raise ValueError("pred_fn_pairs: expected at least one pair, got none")
    for pair in pairs:
        if not (isinstance(pair, list | tuple) and len(pair) == 2 and callable(pair[1])):
            raise TypeError(f"pred_fn_pairs: expected (bool tensor, function), got {pair!r}")
    if default is not None and not callable(default):
        raise TypeError(f"default: expected a function, got {default!r}")
    with get_default_graph().name_scope(name):
        predicates = [_predicate(predicate) for predicate, _ in pairs]
        first = _first_true.node(
            *predicates, exclusive=exclusive, exhaustive=default is None
        ).outputs
        functions = [function for _, function in pairs]
        if default is not None:
            functions.append(default)
        return _choose(list(first), functions, strict)


def _passed_on(value: Any) -> Any:
    """A value as something that was built here."""
    if value is None:
        return no_op()
    return group(value) if isinstance(value, Operation) else identity(value)


def _choose(first: list[Tensor], functions: list[Callable[[], Any]], strict: bool) -> Any:
    """Nested conds over predicates of which one holds, or none where there is a default."""
    if len(functions) == 1:
        # Without a default this one has been checked to hold; the check runs before it does.
        with get_default_graph().control_dependencies([first[0].op] if first else []):
            result = _unpacked(functions[0](), strict)
            return _mapped(_passed_on, result)
    return cond(
        first[0], functions[0], lambda: _choose(first[1:], functions[1:], strict), strict=strict
    )
