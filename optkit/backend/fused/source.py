"""From an expression graph to source code: straight-line NumPy over tiles, and a scalar loop.

Both are written from the same `Program`, so an equation exists once. What depends on
hyper-parameters alone is worked out once a step, in `scalars`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from optkit.backend.fused.trace import Node, Program

__all__ = ["INFIX", "TileSource", "loop_source", "scalar_source", "shared_scalars", "tile_source"]

INFIX = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "logical_and": "and",
    "logical_or": "or",
}
"""Functions that Python has an operator for."""


def shared_scalars(program: Program) -> list[Node]:
    """The numbers that vector values are made of, in order."""
    used = [arg for node in program.order if node.vector for arg in node.args if not arg.vector]
    return list(dict.fromkeys(node for node in used if node.function != "constant"))


def scalar_source(program: Program) -> str:
    """`scalars(np, number, <hyper>)` gives the numbers that the vector code takes, in order.

    `number` is the NumPy scalar type of the arithmetic.
    """
    lines = [f"def scalars(np, number, {', '.join(program.scalars)}):"]
    names: dict[Node, str] = {}
    for i, node in enumerate(node for node in program.order if not node.vector):
        if node.function == "input":
            names[node] = node.value
        elif node.function == "constant":
            names[node] = f"number({node.value!r})"
        else:
            names[node] = f"s{i}"
            args = ", ".join(names[arg] for arg in node.args)
            lines.append(f"    s{i} = np.{node.function}({args})")
    results = "".join(f"{names[node]}, " for node in shared_scalars(program))
    lines.append(f"    return ({results})")
    return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class TileSource:
    """Source of `tile(np, number, numbers, scratch, truths, w, g, *slots)`, which works in place.

    Attributes:
        text: the code.
        scratch: how many scratch arrays of the arithmetic's dtype it takes.
        truths: how many of bool.
    """

    text: str
    scratch: int
    truths: int


def tile_source(program: Program) -> TileSource:
    """NumPy calls with `out=`, whose temporaries are reused as soon as they have been read."""
    return _Tiles(program).source()


class _Tiles:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.lines: list[str] = []
        self.names: dict[Node, str] = {}
        self.readers = Counter(arg for node in program.order for arg in node.args)
        self.readers.update(program.outputs)
        self.free: dict[bool, list[str]] = {False: [], True: []}
        self.made = {False: 0, True: 0}
        targets = [name for name in program.arrays if name != "g"]
        # A result may go straight to its array once the array's old value has been read.
        self.target = dict(zip(program.outputs, targets, strict=True))
        self.inputs = {n.value: n for n in program.order if n.function == "input"}

    def source(self) -> TileSource:
        arrays = ", ".join(self.program.arrays)
        numbers = shared_scalars(self.program)
        for i, node in enumerate(numbers):
            self.names[node] = f"n{i}"
        for node in self.program.order:
            self._write(node)
        for node, target in zip(self.program.outputs, self._targets(), strict=True):
            if self.names[node] != target:
                self.lines.append(f"np.copyto({target}, {self.names[node]})")
        head = [f"def tile(np, number, numbers, scratch, truths, {arrays}):"]
        if numbers:
            head.append("    " + "".join(f"n{i}, " for i in range(len(numbers))) + "= numbers")
        for kind, prefix in ((False, "t"), (True, "b")):
            if self.made[kind]:
                names = "".join(f"{prefix}{i}, " for i in range(self.made[kind]))
                head.append(f"    {names}= {'truths' if kind else 'scratch'}")
        body = [f"    {line}" for line in self.lines or ["pass"]]
        return TileSource("\n".join(head + body) + "\n", self.made[False], self.made[True])

    def _targets(self) -> list[str]:
        return [name for name in self.program.arrays if name != "g"]

    def _write(self, node: Node) -> None:
        if node.function == "input":
            self.names.setdefault(node, node.value)
            return
        if node.function == "constant":
            self.names[node] = f"number({node.value!r})"
            return
        if not node.vector:
            return
        args = [self.names[arg] for arg in node.args]
        for arg in node.args:
            self._read(arg)
        name = self._place(node)
        self.names[node] = name
        if node.function == "where":
            condition, x, y = args
            # In this order, since the place may be that of x or y.
            if name == x:
                self.lines.append(f"np.copyto({name}, {y}, where=~{condition})")
            elif name == y:
                self.lines.append(f"np.copyto({name}, {x}, where={condition})")
            else:
                self.lines.append(f"np.copyto({name}, {y})")
                self.lines.append(f"np.copyto({name}, {x}, where={condition})")
        else:
            self.lines.append(f"np.{node.function}({', '.join(args)}, out={name})")

    def _read(self, node: Node) -> None:
        """One reader less; a temporary that nobody reads any more is free."""
        self.readers[node] -= 1
        name = self.names[node]
        temporary = node.vector and node.function != "input" and name not in self._targets()
        if temporary and not self.readers[node]:
            self.free[node.truth].append(name)

    def _place(self, node: Node) -> str:
        target = self.target.get(node)
        if target is not None and self._unread(target):
            return target
        if self.free[node.truth]:
            return self.free[node.truth].pop()
        count = self.made[node.truth]
        self.made[node.truth] += 1
        return f"{'b' if node.truth else 't'}{count}"

    def _unread(self, target: str) -> bool:
        """Whether nothing still reads the old value of an array."""
        old = self.inputs.get(target)
        return old is None or not self.readers[old]


def loop_source(program: Program) -> str:
    """`loop(w, g, *slots, <numbers>)`: one pass over the elements, in place, for a compiler."""
    numbers = shared_scalars(program)
    names: dict[Node, str] = {node: f"n{i}" for i, node in enumerate(numbers)}
    parameters = ", ".join([*program.arrays, *names.values()])
    lines = [f"def loop({parameters}):", "    for i in range(w.size):"]
    for i, node in enumerate(program.order):
        if node.function == "input":
            if node.vector:
                names[node] = f"old_{node.value}"
                lines.append(f"        old_{node.value} = {node.value}[i]")
        elif node.function == "constant":
            names[node] = f"number({node.value!r})"
        elif node.vector:
            names[node] = f"x{i}"
            lines.append(f"        x{i} = {_scalar(node, [names[arg] for arg in node.args])}")
    targets = [name for name in program.arrays if name != "g"]
    for node, target in zip(program.outputs, targets, strict=True):
        lines.append(f"        {target}[i] = {names[node]}")
    return "\n".join(lines) + "\n"


def _scalar(node: Node, args: list[str]) -> str:
    """One element's value as an expression a compiler vectorises."""
    function = node.function
    if function in INFIX:
        return f"({args[0]} {INFIX[function]} {args[1]})"
    if function == "negative":
        return f"(-{args[0]})"
    if function == "square":
        return f"({args[0]} * {args[0]})"
    if function == "logical_not":
        return f"(not {args[0]})"
    if function == "reciprocal":
        return f"(number(1) / {args[0]})"
    if function == "where":
        return f"({args[1]} if {args[0]} else {args[2]})"
    return f"np.{function}({', '.join(args)})"
