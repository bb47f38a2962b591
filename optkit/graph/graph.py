"""The graph: operations in the order they were built, names, scopes, collections."""

from __future__ import annotations

import contextlib
import re
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, NoReturn

from optkit.graph.ledger import Ledger
from optkit.graph.node import (
    Branch,
    IndexedSlices,
    Kind,
    Operation,
    Tensor,
    is_symbolic,
    not_picklable,
)
from optkit.graph.stacks import GRAPHS

__all__ = ["Graph", "default_mode", "get_default_graph", "reset_default_graph"]

_NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\-/]*")
_SCOPE = re.compile(r"[A-Za-z0-9_.\-/]*")
_OF_A_BODY = (
    "was built in a loop's body, which changes nothing outside of it; return it from the body, and "
    "use what the loop gives"
)
_OF_EAGER_MODE = (
    "has its value in eager mode and is no part of a graph; pass the value, x.numpy(), or build "
    "all in one mode"
)
_TAKEN_BACK = "is no longer in the graph: the call that built it raised; build it again"


class Graph:
    """Operations in the order they were built, with their names, scopes and collections."""

    eager = False
    """Whether operations are carried out when they are built (see `optkit.runtime.eager`)."""
    outer: Graph | None = None
    """The graph around that of a loop's body."""
    depth = 0
    """How many graphs are around it."""

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
        self.generation = 0
        """Grows when operations are taken back or feeding is forbidden: then look again."""
        self._unfeedable: set[Operation] = set()
        self.branch: Branch | None = None
        self.seed: int | None = None
        self.schedules: dict[Operation, Operation] = {}
        """Operation of a learning-rate schedule -> the variable operation of its step."""
        self.stores: dict[str, Any] = {}
        """State that upper floors keep per graph; each value has `mark()` and `undo(mark)`."""
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
            self._check_member(kind, op, op)
        types = kind.infer(inputs, attrs)
        mark = self.mark()
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
        try:
            op.device = self._device_for(op)
        except BaseException:  # the user's function may raise anything
            self.undo(mark)
            raise
        self._operations.append(op)
        self._by_name[full_name] = op
        return op

    def _check_input(self, kind: Kind, tensor: Tensor) -> None:
        self._check_member(kind, tensor.op, tensor)
        if not kind.merges and not _encloses(tensor.op.branch, self.branch):
            raise ValueError(
                f"{kind.name}: {tensor!r} was built inside a cond branch and is used outside it; "
                "return it from the branch's function instead"
            )

    def source_of(self, tensor: Tensor) -> Tensor | None:
        """The tensor of the graph around that `tensor` stands for, if it stands for one."""
        return None

    def check_write(self, kind: Kind, variable: Operation) -> None:
        """Refuse to change a variable where a loop's body is built."""

    def _check_member(self, kind: Kind, op: Operation, element: Any) -> None:
        if op.graph is not self:
            if op.graph.eager:
                raise ValueError(f"{kind.name}: {element!r} {_OF_EAGER_MODE}")
            if op.graph.depth > self.depth:
                raise ValueError(f"{kind.name}: {element!r} {_OF_A_BODY}")
            raise ValueError(
                f"{kind.name}: {element!r} belongs to another graph than the one being built. "
                "After reset_default_graph() or in a new Graph, build everything again, or stay "
                "inside `with graph.as_default():`"
            )
        if not self._holds(op):
            raise ValueError(f"{kind.name}: {element!r} {_TAKEN_BACK}")

    def _holds(self, op: Operation) -> bool:
        """Whether the graph still has its operation `op`."""
        return op.index < len(self._operations) and self._operations[op.index] is op

    def _operation_name(self, name: str) -> str:
        if not isinstance(name, str):
            raise TypeError(f"name: expected a string or None, got {name!r}")
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
            self.generation += 1
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
        element: Any
        if isinstance(obj, str):
            element = self._by_string(obj, allow_tensor, allow_operation)
        elif hasattr(obj, "_as_graph_element"):
            element = obj._as_graph_element()
        else:
            raise TypeError(f"expected a Tensor, Operation, Variable or a name, got {obj!r}")
        if element.graph is not self:
            if element.graph.eager:
                raise ValueError(f"{obj!r} {_OF_EAGER_MODE}")
            if element.graph.depth > self.depth:
                raise ValueError(f"{obj!r} {_OF_A_BODY}")
            raise ValueError(
                f"{obj!r} belongs to another graph. After reset_default_graph() a new session and "
                "newly built tensors are needed"
            )
        if isinstance(element, Tensor) and not allow_tensor:
            raise TypeError(f"expected an operation, got {element!r}")
        if isinstance(element, Operation) and not allow_operation:
            raise TypeError(f"expected a tensor, got {element!r}")
        found: Tensor | Operation = element
        if not self.eager and not self._holds(found.op if isinstance(found, Tensor) else found):
            raise ValueError(f"{obj!r} {_TAKEN_BACK}")
        return found

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
        if not isinstance(name, str | None):
            raise TypeError(f"name: expected a string or None, got {name!r}")
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
            self._controls = [*saved, self.as_operations(control_inputs, "control_inputs")]
        try:
            yield
        finally:
            self._controls = saved
            self.branch = saved_branch

    def as_operations(self, items: Iterable[Any], argument: str) -> tuple[Operation, ...]:
        """The operations that `items` are, or are the outputs of, each once.

        Raises:
            TypeError: `items` is no list, or an item no operation, tensor or variable.
            ValueError: an item is of another graph.
            KeyError: nothing has the name that an item is.
        """
        single = is_symbolic(items) or isinstance(items, Operation | str)
        if single or not isinstance(items, Iterable):
            raise TypeError(f"{argument}: expected a list of operations, got {items!r}")
        ops: dict[Operation, None] = {}
        for item in items:
            try:
                found = self.as_graph_element(item.op if isinstance(item, IndexedSlices) else item)
            except (TypeError, ValueError, KeyError) as error:
                raise type(error)(f"{argument}: {error.args[0]}") from None
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
        """If the body raises, the graph is as before: operations, names, collections, stores."""
        mark = self.mark()
        # Lengths and marks, not copies: this is entered for every variable of a large graph.
        collections = {key: (items, len(items)) for key, items in self._collections.items()}
        stores = {key: store.mark() for key, store in self.stores.items()}
        missing = len(self.missing_gradients)
        try:
            yield
        except BaseException:
            self.undo(mark)
            # In place, as callers may hold the lists.
            for key, items in self._collections.items():
                if key not in collections:
                    items.clear()
            for key, (items, length) in collections.items():
                del items[length:]
                self._collections[key] = items
            for key in self.stores.keys() - stores.keys():
                del self.stores[key]
            for key, before in stores.items():
                self.stores[key].undo(before)
            del self.missing_gradients[missing:]
            raise

    def table(self, name: str) -> MutableMapping[Operation, Any]:
        """A table by operation that an upper floor keeps for this graph, in `stores`."""
        found: MutableMapping[Operation, Any] = self.stores.setdefault(name, Ledger())
        return found

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
        """The items of a collection; those whose name matches the regular expression `scope`."""
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
        return GRAPHS.pushed(self)

    def finalize(self) -> None:
        """Refuse further operations."""
        self._finalized = True

    def unfinalize(self) -> None:
        """Take further operations again."""
        self._finalized = False

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
        self.generation += 1

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

    def __reduce__(self) -> NoReturn:
        raise TypeError(not_picklable(self))


def _encloses(outer: Branch | None, inner: Branch | None) -> bool:
    return outer is None or (inner is not None and outer in inner.chain())


_global_graph: Graph | None = None
_mode_graph: Graph | None = None
_global_lock = threading.Lock()


def get_default_graph() -> Graph:
    """The graph that functions build into: the innermost `as_default`, else the process's own."""
    global _global_graph
    graph = GRAPHS.top() or _mode_graph
    if graph is None:
        with _global_lock:
            if _global_graph is None:
                _global_graph = Graph()
            graph = _global_graph
    return graph


def default_mode(graph: Graph | None) -> None:
    """Make `graph` what functions build into outside any `as_default`; None is the plain graph."""
    global _mode_graph
    _mode_graph = graph


def reset_default_graph() -> None:
    """Start with an empty default graph.

    Raises:
        AssertionError: inside a `with graph.as_default():`, as TF.
    """
    global _global_graph
    if GRAPHS.items:
        raise AssertionError(
            "reset_default_graph() inside `with graph.as_default():`; leave the block first, or "
            "start one with a new Graph()"
        )
    _global_graph = None
