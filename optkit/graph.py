"""The graph: operations, tensors, scopes, control dependencies, and the default-session stack.

Nothing here computes. An `Operation` says which `Kind` it is, what it reads and what must run
before it; `optkit.runtime` runs it. A graph only grows, each operation after its inputs, so the
order of creation is an order in which everything can run.
"""

from __future__ import annotations

import contextlib
import linecache
import re
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, Protocol

from optkit.dtypes import DType
from optkit.shapes import Shape, TensorShape, as_shape

__all__ = [
    "OPERATORS",
    "Branch",
    "Graph",
    "GraphKeys",
    "IndexedSlices",
    "Kind",
    "Operation",
    "SessionLike",
    "Tensor",
    "default_session",
    "get_default_graph",
    "get_default_session",
    "is_symbolic",
    "reset_default_graph",
]

OPERATORS: dict[str, Callable[..., Any]] = {}
"""What Tensor's operators build: "add" -> a function on tensors; "ufunc:<name>" and
"function:<name>" are NumPy's. `optkit.ops` fills it."""

_PACKAGE = str(Path(__file__).resolve().parent)
_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\-/]*")
_SCOPE = re.compile(r"[A-Za-z0-9_.\-/]*")


class SessionLike(Protocol):
    """What the graph asks of a session."""

    @property
    def graph(self) -> Graph:
        """The graph the session runs."""

    def run(self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None) -> Any:
        """Compute `fetches`."""


class GraphKeys:
    """The names of the collections that TF1's training code uses."""

    GLOBAL_VARIABLES = "variables"
    VARIABLES = "variables"
    LOCAL_VARIABLES = "local_variables"
    METRIC_VARIABLES = "metric_variables"
    MODEL_VARIABLES = "model_variables"
    TRAINABLE_VARIABLES = "trainable_variables"
    MOVING_AVERAGE_VARIABLES = "moving_average_variables"
    CONCATENATED_VARIABLES = "concatenated_variables"
    GLOBAL_STEP = "global_step"
    EVAL_STEP = "eval_step"
    SUMMARIES = "summaries"
    SUMMARY_OP = "summary_op"
    UPDATE_OPS = "update_ops"
    TRAIN_OP = "train_op"
    LOSSES = "losses"
    REGULARIZATION_LOSSES = "regularization_losses"
    WEIGHTS = "weights"
    BIASES = "biases"
    ACTIVATIONS = "activations"
    QUEUE_RUNNERS = "queue_runners"
    TABLE_INITIALIZERS = "table_initializer"
    ASSET_FILEPATHS = "asset_filepaths"
    SAVERS = "savers"
    SAVEABLE_OBJECTS = "saveable_objects"
    RESOURCES = "resources"
    LOCAL_RESOURCES = "local_resources"
    INIT_OP = "init_op"
    LOCAL_INIT_OP = "local_init_op"
    READY_OP = "ready_op"
    READY_FOR_LOCAL_INIT_OP = "ready_for_local_init_op"
    COND_CONTEXT = "cond_context"
    WHILE_CONTEXT = "while_context"


@dataclass(eq=False)
class Kind:
    """What all operations of one type share.

    Attributes:
        name: the type, e.g. "MatMul".
        kernel: `(xp, *arrays, **attrs) -> array` (a tuple for several outputs). A kind that writes
            gets the current values of its variables first and returns their new values.
        infer: `(inputs, attrs) -> [(dtype, shape), ...]`, one pair an output; raises on bad input.
        gradient: `(operation, *dys) -> one tensor or None per input`; None while no rule is set.
        differentiable: False declares that no gradient flows through.
        broadcasts: the engine sums each input gradient back to the input's shape.
        access: "read" or "write" for operations on variables.
        reads_target: whether a writing kernel needs the variables' current values.
        host: positions of inputs that the kernel gets as NumPy arrays on every backend.
        random: the kernel gets a keyword `stream`, a fresh part of the operation's random numbers.
        merges: joins the branches of a `cond`: takes inputs from inside them.
    """

    name: str
    kernel: Callable[..., Any] | None
    infer: Callable[[Sequence[Tensor], Mapping[str, Any]], Sequence[tuple[DType, Shape]]]
    gradient: Callable[..., Any] | None = None
    differentiable: bool = True
    broadcasts: bool = False
    access: str | None = None
    reads_target: bool = True
    host: frozenset[int] = field(default_factory=frozenset)
    random: bool = False
    merges: bool = False


@dataclass(frozen=True, eq=False)
class Branch:
    """One side of a `cond`: its operations run only when `predicate` is `taken`."""

    predicate: Tensor
    taken: bool
    outer: Branch | None

    def chain(self) -> Iterator[Branch]:
        """This branch and those around it, innermost first."""
        branch: Branch | None = self
        while branch is not None:
            yield branch
            branch = branch.outer


def _encloses(outer: Branch | None, inner: Branch | None) -> bool:
    return outer is None or (inner is not None and outer in inner.chain())


class Operation:
    """A node of the graph; made by optkit's functions, not by calling the class.

    Attributes:
        name, kind, graph: what it is and where.
        inputs: the tensors it takes; control_inputs: the operations that run before it.
        outputs: the tensors it gives.
        variables: the variable operations it reads or writes.
        attrs: its fixed parameters.
        branch: the side of a `cond` it was built in.
        index: its place in the order of creation.
        site: (file, line, function) of the user code that built it.
    """

    __slots__ = (
        "_colocation",
        "attrs",
        "branch",
        "control_inputs",
        "device",
        "graph",
        "index",
        "inputs",
        "kind",
        "name",
        "outputs",
        "site",
        "variables",
    )

    def __init__(
        self,
        graph: Graph,
        kind: Kind,
        name: str,
        inputs: tuple[Tensor, ...],
        control_inputs: tuple[Operation, ...],
        variables: tuple[Operation, ...],
        attrs: Mapping[str, Any],
        types: Sequence[tuple[DType, Shape]],
        index: int,
    ) -> None:
        self.graph = graph
        self.kind = kind
        self.name = name
        self.inputs = inputs
        self.control_inputs = control_inputs
        self.variables = variables
        self.attrs = attrs
        self.branch: Branch | None = graph.branch
        self.device: str = ""
        self._colocation: tuple[Operation, ...] = ()
        self.index = index
        self.site = _user_site()
        self.outputs = tuple(
            Tensor(self, i, dtype, shape) for i, (dtype, shape) in enumerate(types)
        )

    @property
    def type(self) -> str:
        """The type, e.g. "MatMul"."""
        return self.kind.name

    def values(self) -> tuple[Tensor, ...]:
        """The outputs."""
        return self.outputs

    def get_attr(self, name: str) -> Any:
        """A fixed parameter.

        Raises:
            ValueError: the operation has no such parameter.
        """
        if name not in self.attrs:
            raise ValueError(f"{self.name!r} has no attr {name!r}; it has {sorted(self.attrs)}")
        return self.attrs[name]

    def colocation_groups(self) -> list[bytes]:
        """Where the operation was asked to be: b"loc:@name" of each, itself if nothing was asked."""
        return [f"loc:@{op.name}".encode() for op in self._colocation or (self,)]

    def run(self, feed_dict: Mapping[Any, Any] | None = None, session: Any = None) -> None:
        """Run the operation in `session`, or in the default session."""
        _session_for(self, "Operation.run", session).run(self, feed_dict)

    def describe(self) -> str:
        """Name, type and the line of user code that built it; for error messages."""
        text = f"operation {self.name!r} ({self.type})"
        if self.site is None:
            return text
        path, line, function = self.site
        source = linecache.getline(path, line).strip()
        return f"{text}, built at {path}:{line} in {function}" + (f": {source}" if source else "")

    def _as_graph_element(self) -> Operation:
        return self

    def __repr__(self) -> str:
        return f"<optkit.Operation {self.name!r} type={self.type}>"


def _user_site() -> tuple[str, int, str] | None:
    """The nearest caller outside optkit."""
    frame = sys._getframe(2)
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(_PACKAGE) and not path.endswith("contextlib.py"):
            return path, frame.f_lineno, frame.f_code.co_name
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    return None


def _operator(name: str) -> Callable[[Tensor, Any], Any]:
    def method(self: Tensor, other: Any) -> Any:
        return OPERATORS[name](self, other)

    return method


def _reflected(name: str) -> Callable[[Tensor, Any], Any]:
    def method(self: Tensor, other: Any) -> Any:
        return OPERATORS[name](other, self)

    return method


def _unary(name: str) -> Callable[[Tensor], Any]:
    def method(self: Tensor) -> Any:
        return OPERATORS[name](self)

    return method


class TensorOperators:
    """Python's operators and NumPy's functions on graph values; Variables have them too.

    `==`, `!=` and hash are identity, as in TF1; `np.equal(x, y)` builds a comparison.
    """

    __slots__ = ()
    __array_priority__ = 100

    __add__, __radd__ = _operator("add"), _reflected("add")
    __sub__, __rsub__ = _operator("sub"), _reflected("sub")
    __mul__, __rmul__ = _operator("mul"), _reflected("mul")
    __truediv__, __rtruediv__ = _operator("truediv"), _reflected("truediv")
    __floordiv__, __rfloordiv__ = _operator("floordiv"), _reflected("floordiv")
    __mod__, __rmod__ = _operator("mod"), _reflected("mod")
    __pow__, __rpow__ = _operator("pow"), _reflected("pow")
    __matmul__, __rmatmul__ = _operator("matmul"), _reflected("matmul")
    __and__, __rand__ = _operator("and"), _reflected("and")
    __or__, __ror__ = _operator("or"), _reflected("or")
    __xor__, __rxor__ = _operator("xor"), _reflected("xor")
    __lt__, __le__ = _operator("less"), _operator("less_equal")
    __gt__, __ge__ = _operator("greater"), _operator("greater_equal")
    __getitem__ = _operator("getitem")
    __neg__, __abs__, __invert__ = _unary("neg"), _unary("abs"), _unary("invert")

    def __pos__(self) -> Any:
        return self

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        build = OPERATORS.get(f"ufunc:{ufunc.__name__}") if method == "__call__" else None
        if build is None or kwargs:
            what = f"np.{ufunc.__name__}" + ("" if method == "__call__" else f".{method}")
            extra = f" with {sorted(kwargs)}" if kwargs else ""
            raise TypeError(f"{what}{extra} has no graph form; use optkit's function on {self!r}")
        return build(*inputs)

    def __array_function__(
        self, func: Any, types: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        build = OPERATORS.get(f"function:{func.__name__}")
        if build is None:
            raise TypeError(
                f"np.{func.__name__} has no graph form; use optkit's function on {self!r}"
            )
        return build(*args, **kwargs)

    def _refuse(self, what: str, fix: str) -> NoReturn:
        raise TypeError(f"{what} needs a value, and {self!r} has none until it is run; {fix}")

    def __bool__(self) -> bool:
        self._refuse(
            "a Python condition (if, while, and, or, not)",
            "use optkit.cond or optkit.where, `is not None` to test for None, or Session.run",
        )

    def __iter__(self) -> Iterator[Any]:
        self._refuse("iterating", "use optkit.unstack(x), or Session.run")

    def __len__(self) -> int:
        self._refuse("len()", "use x.shape[0] for the static size or optkit.shape(x)[0]")

    def __float__(self) -> float:
        self._refuse("float()", "use Session.run, or optkit.cast to change the dtype")

    def __int__(self) -> int:
        self._refuse("int()", "use Session.run, or optkit.cast to change the dtype")

    def __index__(self) -> int:
        self._refuse("use as an index or size", "use Session.run, or optkit.gather to index")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        self._refuse("a NumPy array", "use Session.run or x.eval()")


class Tensor(TensorOperators):
    """An output of an operation: a value that a run computes.

    Attributes:
        op: the operation; value_index: which output it is.
        dtype: the `DType` of its elements.
    """

    __slots__ = ("__weakref__", "_shape", "dtype", "op", "value_index")

    def __init__(self, op: Operation, value_index: int, dtype: DType, shape: Shape) -> None:
        self.op = op
        self.value_index = value_index
        self.dtype = dtype
        self._shape: Shape = shape

    @property
    def name(self) -> str:
        """`<operation>:<index>`."""
        return f"{self.op.name}:{self.value_index}"

    @property
    def graph(self) -> Graph:
        """The graph it belongs to."""
        return self.op.graph

    @property
    def device(self) -> str:
        """The device that was asked for."""
        return self.op.device

    @property
    def shape(self) -> TensorShape:
        """The static shape."""
        return TensorShape(self._shape)

    @property
    def sizes(self) -> Shape:
        """The static shape as a tuple with None for unknown sizes; None for unknown rank."""
        return self._shape

    def get_shape(self) -> TensorShape:
        """The static shape."""
        return self.shape

    def set_shape(self, shape: Any) -> None:
        """Add what is known of the shape.

        Raises:
            ValueError: it contradicts what is known already.
        """
        self._shape = self.shape.merge_with(shape).sizes

    def consumers(self) -> list[Operation]:
        """The operations that take this tensor."""
        return [op for op in self.graph.get_operations() if any(t is self for t in op.inputs)]

    def eval(self, feed_dict: Mapping[Any, Any] | None = None, session: Any = None) -> Any:
        """The value, from `session` or the default session."""
        return _session_for(self.op, "Tensor.eval", session).run(self, feed_dict)

    def _as_graph_tensor(self) -> Tensor:
        return self

    def _as_graph_element(self) -> Tensor:
        return self

    def __repr__(self) -> str:
        return f"<optkit.Tensor {self.name!r} shape={self.shape} dtype={self.dtype.name}>"

    def __hash__(self) -> int:
        return id(self)

    def __eq__(self, other: object) -> bool:
        return self is other


class IndexedSlices:
    """Rows of a larger tensor: row `indices[i]` of it has `values[i]` added to it.

    Rows named twice add up. `dense_shape` is the larger tensor's shape (a tensor), or None.
    Inputs may be graph tensors or, in feeds and results, arrays.
    """

    __slots__ = ("dense_shape", "indices", "values")

    def __init__(self, values: Any, indices: Any, dense_shape: Any = None) -> None:
        self.values = values
        self.indices = indices
        self.dense_shape = dense_shape

    @property
    def dtype(self) -> DType:
        """The dtype of the values."""
        return self.values.dtype  # type: ignore[no-any-return]

    @property
    def op(self) -> Operation:
        """The operation that gives the values."""
        return self.values.op  # type: ignore[no-any-return]

    @property
    def name(self) -> str:
        """The name of the values."""
        return self.values.name  # type: ignore[no-any-return]

    @property
    def graph(self) -> Graph:
        """The graph it belongs to."""
        return self.values.graph  # type: ignore[no-any-return]

    @property
    def device(self) -> str:
        """The device that was asked for."""
        return self.values.device  # type: ignore[no-any-return]

    @property
    def shape(self) -> TensorShape:
        """What is static of the larger tensor's shape: all but its first axis."""
        sizes = self.values.sizes
        return TensorShape(None if sizes is None else (None, *sizes[1:]))

    def __neg__(self) -> IndexedSlices:
        return IndexedSlices(-self.values, self.indices, self.dense_shape)

    def __repr__(self) -> str:
        return f"IndexedSlices(indices={self.indices!r}, values={self.values!r})"


def is_symbolic(value: Any) -> bool:
    """Whether `value` stands for a tensor of a graph (a Tensor or a Variable)."""
    return hasattr(value, "_as_graph_tensor")


class Graph:
    """Operations in the order they were built, with their names, scopes and collections."""

    def __init__(self) -> None:
        self._operations: list[Operation] = []
        self._by_name: dict[str, Operation] = {}
        self._names_in_use: dict[str, int] = {}
        self._name_journal: list[tuple[str, int]] = []
        self._collections: dict[str, list[Any]] = defaultdict(list)
        self._scope = ""
        self._controls: list[tuple[Operation, ...]] = []
        self._devices: list[Any] = []
        self._colocations: list[Operation] = []
        self._finalized = False
        self._unfeedable: set[Operation] = set()
        self.branch: Branch | None = None
        self.seed: int | None = None
        self.schedules: dict[Operation, Operation] = {}
        """Operation of a learning-rate schedule -> the variable operation of its step."""
        self.stores: dict[str, Any] = {}
        """State that upper floors keep per graph; each value has `copy()`."""
        self.reads: dict[tuple[Operation, frozenset[Operation], Branch | None], Operation] = {}
        """Read operations by variable, control inputs and branch: equal reads are one."""
        self.missing_gradients: list[str] = []
        """Names of variables that `compute_gradients` found without a gradient."""

    # -- operations -------------------------------------------------------------------------

    def create_operation(
        self,
        kind: Kind,
        inputs: Sequence[Tensor],
        attrs: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        variables: Sequence[Operation] = (),
    ) -> Operation:
        """Append an operation; dtypes and shapes are checked here, at the caller's line.

        Raises:
            RuntimeError: the graph is finalized.
            ValueError: an input is of another graph or inside a `cond` branch that is closed, or
                the kind refuses the inputs.
        """
        if self._finalized:
            raise RuntimeError(
                f"cannot add {kind.name!r}: the graph is finalized; build everything before the "
                "session that finalizes it (MonitoredTrainingSession does)"
            )
        attrs = dict(attrs or {})
        controls = {op: None for group in self._controls for op in group}
        for tensor in inputs:
            self._check_input(kind, tensor)
            controls.pop(tensor.op, None)
        for op in controls:
            if op.graph is not self:
                self._wrong_graph(kind, op)
        types = kind.infer(inputs, attrs)
        full_name = self._operation_name(name or kind.name)
        op = Operation(
            self,
            kind,
            full_name,
            tuple(inputs),
            tuple(controls),
            tuple(variables),
            attrs,
            types,
            len(self._operations),
        )
        op._colocation = tuple(self._colocations)
        self._operations.append(op)
        self._by_name[full_name] = op
        op.device = self._device_for(op)
        return op

    def _check_input(self, kind: Kind, tensor: Tensor) -> None:
        if tensor.op.graph is not self:
            self._wrong_graph(kind, tensor)
        if not kind.merges and not _encloses(tensor.op.branch, self.branch):
            raise ValueError(
                f"{kind.name}: {tensor!r} was built inside a cond branch and is used outside it; "
                "return it from the branch's function instead"
            )

    def _wrong_graph(self, kind: Kind, element: Any) -> NoReturn:
        raise ValueError(
            f"{kind.name}: {element!r} belongs to another graph than the one being built. After "
            "reset_default_graph() or in a new Graph, build everything again, or stay inside "
            "`with graph.as_default():`"
        )

    def _operation_name(self, name: str) -> str:
        if name.endswith("/"):
            name = name[:-1]  # a name_scope's own string: used as it is
            if name in self._by_name:
                name = self.unique_name(name, absolute=True)
            else:
                self._use_name(name.lower(), max(1, self._names_in_use.get(name.lower(), 0)))
        else:
            if not _NAME.fullmatch(name) and not (self._scope and _SCOPE.fullmatch(name)):
                raise ValueError(
                    f"name: {name!r} is not a valid operation name; use letters, digits and _.-/"
                )
            name = self.unique_name(name)
        return name

    def unique_name(self, name: str, mark_as_used: bool = True, *, absolute: bool = False) -> str:
        """`name` inside the current scope, with `_1`, `_2`, ... when it is taken.

        `absolute` leaves the scope out. Names that differ only in case count as taken, as in TF.
        """
        if self._scope and not absolute:
            name = f"{self._scope}/{name}"
        key = name.lower()
        count = self._names_in_use.get(key, 0)
        if count == 0:
            if mark_as_used:
                self._use_name(key, 1)
            return name
        while f"{key}_{count}" in self._names_in_use:
            count += 1
        if mark_as_used:
            self._use_name(key, count + 1)
            self._use_name(f"{key}_{count}", 1)
        return f"{name}_{count}"

    def _use_name(self, key: str, count: int) -> None:
        self._name_journal.append((key, self._names_in_use.get(key, 0)))
        self._names_in_use[key] = count

    def mark(self) -> tuple[int, int]:
        """Where the graph stands; for `undo`."""
        return len(self._operations), len(self._name_journal)

    def undo(self, mark: tuple[int, int]) -> None:
        """Take back the operations and names added since `mark`."""
        count, journal = mark
        for op in self._operations[count:]:
            del self._by_name[op.name]
            self.schedules.pop(op, None)
        if len(self._operations) > count:
            self.reads = {key: op for key, op in self.reads.items() if op.index < count}
        del self._operations[count:]
        for key, uses in reversed(self._name_journal[journal:]):
            if uses:
                self._names_in_use[key] = uses
            else:
                del self._names_in_use[key]
        del self._name_journal[journal:]

    def get_operations(self) -> list[Operation]:
        """All operations, in the order they were built."""
        return list(self._operations)

    def get_operation_by_name(self, name: str) -> Operation:
        """The operation called `name`; KeyError when there is none."""
        found = self.as_graph_element(name, allow_tensor=False)
        assert isinstance(found, Operation)
        return found

    def get_tensor_by_name(self, name: str) -> Tensor:
        """The tensor called `name` ("op:0"); KeyError when there is none."""
        found = self.as_graph_element(name, allow_operation=False)
        assert isinstance(found, Tensor)
        return found

    def as_graph_element(
        self, obj: Any, allow_tensor: bool = True, allow_operation: bool = True
    ) -> Tensor | Operation:
        """The tensor or operation that `obj` names or is.

        Raises:
            TypeError: `obj` is of another kind.
            ValueError: it is of another graph, or a tensor's name was expected.
            KeyError: nothing has that name.
        """
        if isinstance(obj, str):
            element = self._by_string(obj, allow_tensor, allow_operation)
        elif hasattr(obj, "_as_graph_element"):
            element = obj._as_graph_element()
        else:
            raise TypeError(f"expected a Tensor, Operation, Variable or a name, got {obj!r}")
        if element.graph is not self:
            raise ValueError(
                f"{obj!r} belongs to another graph. After reset_default_graph() a new session and "
                "newly built tensors are needed"
            )
        if isinstance(element, Tensor) and not allow_tensor:
            raise TypeError(f"expected an operation, got {element!r}")
        if isinstance(element, Operation) and not allow_operation:
            raise TypeError(f"expected a tensor, got {element!r}")
        return element

    def _by_string(self, name: str, allow_tensor: bool, allow_operation: bool) -> Any:
        base, colon, index = name.partition(":")
        op = self._by_name.get(base)
        if op is None:
            raise KeyError(f"the graph has no operation {base!r}")
        if not colon:
            if not allow_operation:
                raise ValueError(f"{name!r} names an operation; a tensor's name is '{name}:0'")
            return op
        if not allow_tensor:
            raise ValueError(f"{name!r} names a tensor; the operation's name is {base!r}")
        if not index.isdigit() or int(index) >= len(op.outputs):
            raise KeyError(f"{name!r}: operation {base!r} has {len(op.outputs)} outputs")
        return op.outputs[int(index)]

    # -- scopes -----------------------------------------------------------------------------

    @contextlib.contextmanager
    def name_scope(self, name: str | None) -> Iterator[str]:
        """Names inside get the prefix `<name>/`, made unique; `"x/"` is re-entered as it is.

        None or "" is the root. Yields the full scope with its slash ("" at the root).
        """
        if name and not (_SCOPE if self._scope else _NAME).fullmatch(name):
            raise ValueError(f"name: {name!r} is not a valid scope name; use letters, digits, _.-/")
        if not name:
            scope = ""
        elif name.endswith("/"):
            scope = name[:-1]
        else:
            scope = self.unique_name(name)
        saved, self._scope = self._scope, scope
        try:
            yield f"{scope}/" if scope else ""
        finally:
            self._scope = saved

    def get_name_scope(self) -> str:
        """The current scope, without a slash at its end."""
        return self._scope

    @contextlib.contextmanager
    def control_dependencies(self, control_inputs: Iterable[Any] | None) -> Iterator[None]:
        """Operations built inside run after `control_inputs`; None clears all that is in force.

        Raises:
            TypeError: an input is no operation, tensor or variable.
        """
        saved = self._controls
        saved_branch = self.branch
        if control_inputs is None:
            self._controls = []
            self.branch = None
        else:
            self._controls = [*saved, self._control_operations(control_inputs)]
        try:
            yield
        finally:
            self._controls = saved
            self.branch = saved_branch

    def _control_operations(self, control_inputs: Iterable[Any]) -> tuple[Operation, ...]:
        if is_symbolic(control_inputs) or isinstance(control_inputs, Operation | str):
            raise TypeError(f"control_inputs: expected a list of operations, got {control_inputs!r}")
        ops: dict[Operation, None] = {}
        for item in control_inputs:
            element = item.op if isinstance(item, IndexedSlices) else item
            found = self.as_graph_element(element)
            ops[found.op if isinstance(found, Tensor) else found] = None
        return tuple(ops)

    def current_controls(self) -> frozenset[Operation]:
        """The operations that whatever is built now runs after."""
        return frozenset(op for group in self._controls for op in group)

    @contextlib.contextmanager
    def in_branch(self, branch: Branch | None) -> Iterator[None]:
        """Operations built inside belong to `branch`."""
        saved, self.branch = self.branch, branch
        try:
            yield
        finally:
            self.branch = saved

    @contextlib.contextmanager
    def device(self, device_name_or_function: Any) -> Iterator[None]:
        """Record where operations built inside should run: a name, a function of them, or None."""
        self._devices.append(device_name_or_function)
        try:
            yield
        finally:
            self._devices.pop()

    def _device_for(self, op: Operation) -> str:
        if self._colocations:
            return self._colocations[-1].device
        chosen = self._devices[-1] if self._devices else None
        if callable(chosen):
            chosen = chosen(op)
        return "" if chosen is None else str(chosen)

    @contextlib.contextmanager
    def colocate_with(self, op: Any, ignore_existing: bool = False) -> Iterator[None]:
        """Record that operations built inside should be where `op` is; None records nothing."""
        saved = self._colocations
        kept = [] if ignore_existing else saved
        if op is not None:
            element = self.as_graph_element(op.op if isinstance(op, IndexedSlices) else op)
            kept = [*kept, element.op if isinstance(element, Tensor) else element]
        self._colocations = kept
        try:
            yield
        finally:
            self._colocations = saved

    @contextlib.contextmanager
    def outside_control_flow(self) -> Iterator[None]:
        """Build free of control dependencies, branches and colocation, e.g. initial values."""
        with self.control_dependencies(None), self.colocate_with(None, ignore_existing=True):
            yield

    @contextlib.contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """If the body raises, the graph is left as it was: operations, names, collections, stores."""
        mark = self.mark()
        collections = {key: list(items) for key, items in self._collections.items()}
        stores = {key: store.copy() for key, store in self.stores.items()}
        missing = list(self.missing_gradients)
        try:
            yield
        except BaseException:
            self.undo(mark)
            for key, items in self._collections.items():
                items[:] = collections.get(key, [])  # in place: callers may hold the list
            for key in self._collections.keys() - collections.keys():
                del self._collections[key]
            self.stores = stores
            self.missing_gradients = missing
            raise

    # -- collections ------------------------------------------------------------------------

    def add_to_collection(self, name: str, value: Any) -> None:
        """Append `value` to the collection `name`."""
        if self._finalized:
            raise RuntimeError(f"cannot add to the collection {name!r}: the graph is finalized")
        self._collections[name].append(value)

    def add_to_collections(self, names: Any, value: Any) -> None:
        """Append `value` to each of the collections `names` (a name or several)."""
        for name in (names,) if isinstance(names, str) else dict.fromkeys(names):
            self.add_to_collection(name, value)

    def get_collection(self, name: str, scope: str | None = None) -> list[Any]:
        """The items of a collection; with `scope`, a regular expression, those whose name matches."""
        items = list(self._collections.get(name, ()))
        if scope is None:
            return items
        pattern = re.compile(scope)
        return [item for item in items if hasattr(item, "name") and pattern.match(item.name)]

    def get_collection_ref(self, name: str) -> list[Any]:
        """The collection itself: changes to the list change the graph."""
        return self._collections[name]

    def clear_collection(self, name: str) -> None:
        """Empty a collection."""
        self._collections.pop(name, None)

    def get_all_collection_keys(self) -> list[str]:
        """The names of all collections that hold something."""
        return [name for name, items in self._collections.items() if items]

    # -- life -------------------------------------------------------------------------------

    def as_default(self) -> contextlib.AbstractContextManager[Graph]:
        """Make this the graph that functions build into, inside a `with`."""
        return _GRAPHS.pushed(self)

    def finalize(self) -> None:
        """Refuse further operations."""
        self._finalized = True

    @property
    def finalized(self) -> bool:
        """Whether the graph refuses further operations."""
        return self._finalized

    @property
    def version(self) -> int:
        """Grows with each operation."""
        return len(self._operations)

    def prevent_feeding(self, tensor: Tensor) -> None:
        """Mark a tensor as one that cannot be fed."""
        self._unfeedable.add(tensor.op)

    def is_feedable(self, tensor: Tensor) -> bool:
        """Whether a run may be given a value for the tensor."""
        return tensor.op not in self._unfeedable

    def prevent_fetching(self, op: Operation) -> None:
        """Accepted as in TF; everything can be fetched here."""

    def is_fetchable(self, tensor_or_op: Any) -> bool:
        """Whether a run can give the value: always."""
        return True

    def __repr__(self) -> str:
        return f"<optkit.Graph with {len(self._operations)} operations>"


class _Stack:
    """A stack of defaults, one a thread."""

    def __init__(self) -> None:
        self._local = threading.local()

    @property
    def items(self) -> list[Any]:
        if not hasattr(self._local, "items"):
            self._local.items = []
        return self._local.items  # type: ignore[no-any-return]

    def top(self) -> Any:
        return self.items[-1] if self.items else None

    @contextlib.contextmanager
    def pushed(self, item: Any) -> Iterator[Any]:
        items = self.items
        depth = len(items)
        items.append(item)
        try:
            yield item
        finally:
            # InteractiveSession pushes without a `with`: what lies above goes too.
            del items[depth:]


_GRAPHS = _Stack()
_SESSIONS = _Stack()
_global_graph: Graph | None = None
_global_lock = threading.Lock()


def get_default_graph() -> Graph:
    """The graph that functions build into: the innermost `as_default`, else the process's own."""
    global _global_graph
    graph = _GRAPHS.top()
    if graph is None:
        with _global_lock:
            if _global_graph is None:
                _global_graph = Graph()
            graph = _global_graph
    return graph  # type: ignore[no-any-return]


def reset_default_graph() -> None:
    """Start with an empty default graph.

    Raises:
        AssertionError: inside a `with graph.as_default():`, as TF.
    """
    global _global_graph
    if _GRAPHS.items:
        raise AssertionError(
            "reset_default_graph() inside `with graph.as_default():`; leave the block first, or "
            "start one with a new Graph()"
        )
    _global_graph = None


def default_session(session: Any) -> contextlib.AbstractContextManager[Any]:
    """Make `session` the default inside a `with`."""
    return _SESSIONS.pushed(session)


def push_default_session(session: Any) -> None:
    """Make `session` the default until it is removed (InteractiveSession)."""
    _SESSIONS.items.append(session)


def remove_default_session(session: Any) -> None:
    """Take `session` out of the defaults, wherever it is."""
    _SESSIONS.items[:] = [item for item in _SESSIONS.items if item is not session]


def get_default_session() -> Any:
    """The innermost default session, or None."""
    return _SESSIONS.top()


def _session_for(op: Operation, what: str, session: Any) -> Any:
    session = session if session is not None else get_default_session()
    if session is None:
        raise ValueError(
            f"{what}: there is no default session for {op.name!r}; pass session=, or stay inside "
            "`with Session() as sess:`"
        )
    if session.graph is not op.graph:
        raise ValueError(f"{what}: {op.name!r} belongs to another graph than the session's")
    return session


def static_shape(value: Any) -> Shape:
    """The static shape of a tensor or of anything that `as_shape` takes."""
    return value.sizes if isinstance(value, Tensor) else as_shape(value)
