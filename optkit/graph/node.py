"""Operations and tensors: what a graph is made of."""

from __future__ import annotations

import contextlib
import linecache
import operator
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from optkit.dtypes import DType
from optkit.graph.stacks import get_default_session
from optkit.shapes import Shape, TensorShape

if TYPE_CHECKING:
    from optkit.graph.graph import Graph

__all__ = [
    "OPERATORS",
    "Branch",
    "IndexedSlices",
    "Kind",
    "Operation",
    "Tensor",
    "TensorOperators",
    "is_symbolic",
]

OPERATORS: dict[str, Callable[..., Any]] = {}
"""What Tensor's operators build: "add" -> a function on tensors; "ufunc:<name>" and
"function:<name>" are NumPy's. `optkit.ops` fills it."""

_OWN_CODE = (
    str(Path(__file__).parents[1]) + os.sep,
    contextlib.__file__,
)
"""Where the code lies that is not the user's."""


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
        either: positions of inputs, numbers of rows, that the kernel takes from where they are, on
            the host or on the device, so that what the host knows already is checked there.
        random: the kernel gets a keyword `stream`, a fresh part of the operation's random numbers.
        merges: joins the branches of a `cond`: takes inputs from inside them.
        effect: running it does more than give values (it prints, it may raise on purpose), so it
            runs once each time it is asked for, and never before.
        into: the kernel with a keyword `out`, an array of the result's shape and dtype that it
            fills and returns: the same result bit for bit. Its shape follows from the inputs'.
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
    either: frozenset[int] = field(default_factory=frozenset)
    random: bool = False
    merges: bool = False
    effect: bool = False
    into: Callable[..., Any] | None = None


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
        """Where it was asked to be: b"loc:@name" of each operation, itself if nothing was asked."""
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

    def __reduce__(self) -> NoReturn:
        raise TypeError(not_picklable(self))


def not_picklable(element: Any) -> str:
    """What to tell who pickles, or copies deeply, a part of a graph."""
    return (
        f"{element!r} cannot be pickled or copied deeply: it is tied to its graph. Keep the "
        "values, NumPy arrays from Session.run (numpy() in eager mode), and build the graph anew"
    )


def _user_site() -> tuple[str, int, str] | None:
    """The nearest caller outside optkit."""
    frame = sys._getframe(2)
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(_OWN_CODE):
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

    def _now(self, what: str, fix: str) -> Any:
        """The value as a NumPy array, in eager mode; a graph has none before it is run."""
        graph: Graph = self.graph  # type: ignore[attr-defined]  # tensors and Variables have one
        if graph.eager:
            return self._as_graph_tensor().numpy()  # type: ignore[attr-defined]
        raise TypeError(f"{what} needs a value, and {self!r} has none until it is run; {fix}")

    def __bool__(self) -> bool:
        return bool(
            self._now(
                "a Python condition (if, while, and, or, not)",
                "use optkit.cond or optkit.where, `is not None` to test for None, or Session.run",
            )
        )

    def __iter__(self) -> Iterator[Any]:
        value = self._now("iterating", "use optkit.unstack(x), or Session.run")
        return (OPERATORS["getitem"](self, i) for i in range(len(value)))

    def __contains__(self, item: object) -> bool:
        return item in self._now(
            "`in`", "use optkit.reduce_any(optkit.equal(x, item)), or Session.run"
        )

    def __len__(self) -> int:
        return len(self._now("len()", "use x.shape[0] for the static size or optkit.shape(x)[0]"))

    def __float__(self) -> float:
        return float(self._now("float()", "use Session.run, or optkit.cast to change the dtype"))

    def __int__(self) -> int:
        return int(self._now("int()", "use Session.run, or optkit.cast to change the dtype"))

    def __index__(self) -> int:
        value = self._now("use as an index or size", "use Session.run, or optkit.gather to index")
        return operator.index(value.item())

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.asarray(self._now("a NumPy array", "use Session.run or x.eval()"), dtype)


class Tensor(TensorOperators):
    """An output of an operation: a value that a run computes.

    Attributes:
        op: the operation; value_index: which output it is.
        dtype: the `DType` of its elements.
        claimed: whether part of its static shape is the word of `set_shape` alone.
    """

    __slots__ = ("__weakref__", "_shape", "claimed", "dtype", "op", "value_index")

    def __init__(self, op: Operation, value_index: int, dtype: DType, shape: Shape) -> None:
        self.op = op
        self.value_index = value_index
        self.dtype = dtype
        self._shape: Shape = shape
        self.claimed = False

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
        before, self._shape = self._shape, self.shape.merge_with(shape).sizes
        self.claimed |= self._shape != before

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

    # By identity, and in C: tensors are the keys of every feed.
    __hash__ = object.__hash__

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
