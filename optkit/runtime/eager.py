"""Eager mode: the same operations, carried out when they are built.

The eager graph is a Graph that keeps nothing: an operation's kernel runs at once, its outputs hold
their values, and what is no longer referred to is freed. A variable holds its own array. Tensors
belong to the mode that made them.
"""

from __future__ import annotations

import contextlib
import secrets
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, NoReturn

import numpy as np

from optkit import backend as backends
from optkit.dtypes import DType
from optkit.errors import FailedPreconditionError
from optkit.graph import Graph, GraphKeys, Kind, Operation, Tensor, default_mode, get_default_graph
from optkit.ops.random import Stream
from optkit.runtime.kernels import as_op_error, of_text, stored
from optkit.shapes import Shape

__all__ = [
    "EagerGraph",
    "EagerTensor",
    "disable_eager_execution",
    "eager",
    "enable_eager_execution",
    "executing_eagerly",
]


class EagerOperation(Operation):
    """An operation that has run. It holds no inputs: only a tape keeps those."""

    __slots__ = ("__weakref__", "held")

    def __init__(
        self,
        graph: EagerGraph,
        kind: Kind,
        name: str,
        attrs: Mapping[str, Any],
        variables: tuple[Operation, ...],
        index: int,
    ) -> None:
        self.graph = graph
        self.kind = kind
        self.name = name
        self.inputs = ()
        self.control_inputs = ()
        self.variables = variables
        self.attrs = attrs
        self.branch = None
        self.device = ""
        self._colocation = ()
        self.index = index
        self.site = None
        self.outputs = ()
        self.held: Any = None


class EagerTensor(Tensor):
    """A tensor with a value."""

    __slots__ = ("_graph", "_index", "_kind", "_name", "_owner", "value")

    def __init__(
        self,
        graph: EagerGraph,
        kind: Kind,
        name: str,
        index: int,
        value_index: int,
        dtype: DType,
        shape: Shape,
        value: Any,
    ) -> None:
        self._graph = graph
        self._kind = kind
        self._name = name
        self._index = index
        self._owner: weakref.ref[EagerOperation] | None = None
        self.value_index = value_index
        self.dtype = dtype
        self._shape = shape
        self.claimed = False
        self.value = value

    # An operation refers to its outputs; referring back would keep both until the garbage
    # collector comes by. So it is made anew when it is asked for, but for a variable's own.
    @property
    def op(self) -> Operation:  # type: ignore[override]  # a slot in the base
        """The operation that made it."""
        found = self._owner() if self._owner is not None else None
        if found is not None:
            return found
        made = EagerOperation(self._graph, self._kind, self._name, {}, (), self._index)
        made.outputs = (self,)
        return made

    @property
    def graph(self) -> Graph:
        """The eager graph."""
        return self._graph

    @property
    def name(self) -> str:
        """`<operation>:<index>`."""
        return f"{self._name}:{self.value_index}"

    def numpy(self) -> Any:
        """The value as a NumPy array of the caller's own; a NumPy scalar for shape ()."""
        array = np.asarray(self._graph.backend.to_numpy(self.value))
        return array[()] if array.ndim == 0 else array.copy()

    def eval(self, feed_dict: Mapping[Any, Any] | None = None, session: Any = None) -> Any:
        """Refuse: there is nothing left to run."""
        raise RuntimeError("Tensor.eval: the tensor has a value already; use x.numpy()")

    def __copy__(self) -> EagerTensor:
        return self  # a value does not change

    def __deepcopy__(self, memo: dict[int, Any]) -> EagerTensor:
        return self

    def __format__(self, spec: str) -> str:
        return format(self.numpy(), spec) if self._shape == () else format(repr(self), spec)

    def __repr__(self) -> str:
        return f"<optkit.Tensor shape={self.shape} dtype={self.dtype.name} numpy={self.numpy()!r}>"


class EagerGraph(Graph):
    """The graph of eager mode; see the module."""

    eager = True

    def __init__(self) -> None:
        self._count = 0
        self._seed: int | None = None
        self._entropy = secrets.randbits(63)
        self._draws: dict[tuple[int, int], int] = defaultdict(int)
        super().__init__()
        self._global_step: Callable[[], Any] = lambda: None
        self._undo: list[list[tuple[EagerOperation, Any]]] = []
        self.tapes: list[Any] = []

    @property
    def backend(self) -> backends.Backend:
        """The current backend."""
        return backends.resolve()

    @property
    def version(self) -> int:
        """How many operations have run."""
        return self._count

    @property
    def seed(self) -> int | None:
        """The graph's seed; setting it starts the random numbers over."""
        return self._seed

    @seed.setter
    def seed(self, value: int | None) -> None:
        self._seed = value
        self._count = 0 if value is not None else self._count
        self._draws.clear()

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
        """Carry out an operation; its outputs hold their values.

        Raises:
            RuntimeError: an input is a graph's, or the kind needs a session (placeholders).
            OpError: the kernel refuses the values; no variable has changed.
        """
        attrs = dict(attrs or {})
        for tensor in inputs:
            if not isinstance(tensor, EagerTensor):
                self._wrong_mode(kind, tensor)
        types = kind.infer(inputs, attrs)
        label = (name or kind.name).rstrip("/").rpartition("/")[2] or kind.name
        full = f"{self._scope}/{label}" if self._scope and not (name or "").endswith("/") else label
        self._count += 1
        op = EagerOperation(self, kind, full, attrs, tuple(variables), self._count)
        results = self._results(op, inputs)
        op.outputs = tuple(
            EagerTensor(self, kind, full, self._count, i, dtype, _shape_of(value, shape), value)
            for i, ((dtype, shape), value) in enumerate(zip(types, results, strict=True))
        )
        if kind.access == "variable":
            (handle,) = op.outputs
            assert isinstance(handle, EagerTensor)
            handle._owner = weakref.ref(op)
        for tape in self.tapes:
            tape._record(op, tuple(inputs))
        return op

    def _wrong_mode(self, kind: Kind, element: Any) -> NoReturn:
        raise RuntimeError(
            f"{kind.name}: {element!r} was built in a graph and has no value in eager mode; build "
            "it in eager mode, or use it inside `with graph.as_default():`"
        )

    def _results(self, op: EagerOperation, inputs: Sequence[Tensor]) -> Sequence[Any]:
        kind = op.kind
        if kind.access == "variable":
            return (None,)
        if kind.access == "read":
            return (self.held(op.variables[0]),)
        if kind.access == "initialized":
            return (np.asarray(_held(op.variables[0]) is not None),)
        if kind.kernel is None:
            raise RuntimeError(
                f"{kind.name}: eager mode has no session to feed; pass the value itself"
            )
        backend = self.backend
        if backend.index is None:
            return self._computed(op, inputs, backend)
        with backend.xp.cuda.Device(backend.index):
            return self._computed(op, inputs, backend)

    def _computed(
        self, op: EagerOperation, inputs: Sequence[Tensor], backend: backends.Backend
    ) -> Sequence[Any]:
        kind = op.kind
        assert kind.kernel is not None
        values = [
            backend.here(tensor.value) for tensor in inputs if isinstance(tensor, EagerTensor)
        ]
        for i in kind.host:
            values[i] = backend.to_numpy(values[i])
        try:
            with np.errstate(all="ignore"):
                xp = backend.xp
                if xp is not np and of_text(kind, inputs):
                    xp, values = np, [backend.to_numpy(array) for array in values]
                if kind.access == "write":
                    return self._write(op, values, backend, xp)
                extra = {"stream": self._stream(op)} if kind.random else {}
                result = kind.kernel(xp, *values, **extra, **op.attrs)
        except Exception as error:
            # No name for what is raised: it refers to this frame, and referring back would keep
            # all values here until the garbage collector comes by.
            if as_op_error(error, op) is error:
                raise
            raise as_op_error(error, op) from error
        single = not isinstance(result, tuple | list)
        return (result,) if single else tuple(result)

    def held(self, variable: Operation) -> Any:
        """What a variable holds now."""
        value = _held(variable)
        if value is None:
            raise FailedPreconditionError(f"variable {variable.name!r} holds no value")
        return value

    def _write(
        self, op: EagerOperation, values: Sequence[Any], backend: backends.Backend, xp: Any
    ) -> Sequence[Any]:
        currents = (
            [backend.here(self.held(v)) for v in op.variables] if op.kind.reads_target else []
        )
        assert op.kind.kernel is not None
        news = op.kind.kernel(xp, *currents, *values, **op.attrs)
        owned = [
            stored(xp, op, variable, new, ())
            for variable, new in zip(op.variables, news, strict=True)
        ]
        for variable, new in zip(op.variables, owned, strict=True):
            assert isinstance(variable, EagerOperation)
            if self._undo:
                self._undo[-1].append((variable, variable.held))
            variable.held = new
        return owned[:1]

    def _stream(self, op: Operation) -> Stream:
        first, second = op.attrs["seed"]
        key = (self._entropy, op.index) if first is None else (first, second)
        turn = self._draws[key] if first is not None else 0
        if first is not None:
            self._draws[key] += 1
        return Stream(key, turn)

    # -- names, order and collections: nothing is kept --------------------------------------

    def unique_name(self, name: str, mark_as_used: bool = True, *, absolute: bool = False) -> str:
        """`name` inside the current scope; eager names may repeat."""
        return f"{self._scope}/{name}" if self._scope and not absolute else name

    @contextlib.contextmanager
    def control_dependencies(self, control_inputs: Iterable[Any] | None) -> Iterator[None]:
        """Nothing to do: what was built before has run."""
        yield

    def mark(self) -> tuple[int, int]:
        """Where the graph stands: nothing is kept."""
        return 0, 0

    def undo(self, mark: tuple[int, int]) -> None:
        """Nothing to take back."""

    @contextlib.contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """If the body raises, variables hold what they held before."""
        changes: list[tuple[EagerOperation, Any]] = []
        self._undo.append(changes)
        try:
            yield
        except BaseException:
            for variable, value in reversed(changes):
                variable.held = value
            raise
        else:
            if len(self._undo) > 1:
                self._undo[-2].extend(changes)
        finally:
            self._undo.pop()

    def table(self, name: str) -> MutableMapping[Operation, Any]:
        """A table that forgets what nobody else refers to."""
        found: MutableMapping[Operation, Any] = self.stores.setdefault(
            name, weakref.WeakValueDictionary()
        )
        return found

    def add_to_collection(self, name: str, value: Any) -> None:
        """Keep nothing, since collections would keep every tensor alive, but the global step."""
        if name == GraphKeys.GLOBAL_STEP:
            self._global_step = weakref.ref(value)

    def get_collection(self, name: str, scope: str | None = None) -> list[Any]:
        """Nothing but the global step, as long as somebody refers to it."""
        step = self._global_step() if name == GraphKeys.GLOBAL_STEP else None
        return [] if step is None else [step]

    def get_operations(self) -> list[Operation]:
        """None: they have run."""
        return []


def _held(variable: Operation) -> Any:
    return variable.held if isinstance(variable, EagerOperation) else None


def _shape_of(value: Any, static: Shape) -> Shape:
    return (
        static if value is None else tuple(np.shape(value)) if np.isscalar(value) else value.shape
    )


_GRAPH = EagerGraph()


@contextlib.contextmanager
def eager() -> Iterator[None]:
    """Carry operations out when they are built, inside a `with`."""
    with _GRAPH.as_default():
        yield


def enable_eager_execution(
    config: Any = None, device_policy: Any = None, execution_mode: Any = None
) -> None:
    """Carry operations out when they are built, from now on.

    The arguments are accepted as in TF.

    Raises:
        ValueError: operations have been built into the default graph already.
    """
    if get_default_graph() is not _GRAPH and get_default_graph().version:
        raise ValueError(
            "enable_eager_execution must come before anything is built; the default graph has "
            f"{get_default_graph().version} operations"
        )
    default_mode(_GRAPH)


def disable_eager_execution() -> None:
    """Build the default graph from now on, as optkit does from the start."""
    default_mode(None)


def executing_eagerly() -> bool:
    """Whether operations are carried out when they are built."""
    return get_default_graph().eager
