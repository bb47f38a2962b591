"""From an expression graph to CUDA text: one kernel that updates many variables in one launch.

The text holds a `rule` for one element, and three kernels around it. `update` works on whole
variables, a block for each chunk of each; `update_one` on a single one; `update_rows` on the rows
of one that a sparse gradient names. Hyper-parameters are read from device memory, so the host never
waits for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from optkit.backend.fused.source import INFIX
from optkit.backend.fused.trace import Node, Program

__all__ = ["THREADS", "update_source", "values_source"]

THREADS = 256
"""Threads a block."""

_INFIX = INFIX | {"logical_and": "&&", "logical_or": "||"}
_CALLS = {"absolute": "fabs", "power": "pow"}
_KINDS = {
    "float16": ("float16", "float"),
    "float32": ("float", "float"),
    "float64": ("double",) * 2,
}

_HEAD = """\
typedef {stored} T;
typedef {number} N;

// Like NumPy's: a NaN on either side is the result.
__device__ __forceinline__ N largest(N x, N y) {{ return x >= y || x != x ? x : y; }}
__device__ __forceinline__ N smallest(N x, N y) {{ return x <= y || x != x ? x : y; }}
__device__ __forceinline__ N sign_of(N x) {{
  return x > N(0) ? N(1) : x < N(0) ? N(-1) : x == N(0) ? N(0) : x;
}}
"""

_KERNELS = """
struct alignas(16) Pack {{ T at[16 / sizeof(T)]; }};

// state[{columns} * t + j]: column j (the variable, then its slots) of tensor t; blocks[b]: the
// tensor and the chunk of it that block b does.
extern "C" __global__ void update(const unsigned long long* state,
                                  const unsigned long long* gradients, const long long* sizes,
                                  const int2* blocks, int chunk{parameters}) {{
  const int2 block = blocks[blockIdx.x];
  const unsigned long long* columns = state + {columns}LL * block.x;
  const long long low = (long long)block.y * chunk;
  const long long rest = sizes[block.x] - low;
  const int count = (int)(rest < chunk ? rest : chunk);
{pointers}
{numbers}
  int done = 0;
  if ((({addresses}) & 15) == 0) {{
    const int width = 16 / sizeof(T);
    const int packs = count / width;
    for (int i = threadIdx.x; i < packs; i += blockDim.x) {{
{loads}
      for (int k = 0; k < width; k++) rule({packed}{shared});
{stores}
    }}
    done = packs * width;
  }}
  for (int i = done + threadIdx.x; i < count; i += blockDim.x) rule({elements}{shared});
}}

// All of one variable.
extern "C" __global__ void update_one(long long count, const T* g{columns_given}{parameters}) {{
{numbers}
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
    rule({elements}{shared});
}}

// Row rows[r] of each column gets row r of the gradient; no row is named twice.
extern "C" __global__ void update_rows(const unsigned long long* columns,
                                       const unsigned long long* gradients, const long long* rows,
                                       long long total, long long width{parameters}) {{
  const long long low = 0;
{pointers_of_rows}
{numbers}
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long n = (long long)blockIdx.x * blockDim.x + threadIdx.x; n < total; n += step) {{
    const long long i = rows[n / width] * width + n % width;
    rule({row_elements}{shared});
  }}
}}
"""


def update_source(program: Program, dtype: np.dtype[Any]) -> str:
    """The kernels of a traced equation for variables of a dtype.

    Half precision is stored as it is and computed in float32.

    Raises:
        KeyError: there is no kernel for the dtype.
    """
    stored, number = _KINDS[dtype.name]
    targets = [name for name in program.arrays if name != "g"]
    names, scalars = _scalars(program)
    shared = list(dict.fromkeys(names[node] for node in _shared(program)))
    rule = _rule(program, names, targets, shared)
    elements = ", ".join(f"{name}[i]" for name in ("g", *targets))
    parts = {
        "columns": len(targets),
        "columns_given": "".join(f", T* {name}" for name in targets),
        "parameters": "".join(f", const N* at_{name}" for name in program.scalars),
        "pointers": _pointers(targets, "gradients[block.x]"),
        "pointers_of_rows": _pointers(targets, "gradients[0]"),
        "numbers": "\n".join(f"  {line}" for line in scalars),
        "addresses": " | ".join(f"(unsigned long long){name}" for name in ("g", *targets)),
        "loads": "\n".join(
            f"      Pack p_{name} = ((const Pack*){name})[i];" for name in ("g", *targets)
        ),
        "stores": "\n".join(f"      ((Pack*){name})[i] = p_{name};" for name in targets),
        "packed": ", ".join(f"p_{name}.at[k]" for name in ("g", *targets)),
        "elements": elements,
        "row_elements": elements.replace("g[i]", "g[n]", 1),
        "shared": "".join(f", {name}" for name in shared),
    }
    head = "#include <cupy/float16.cuh>\n" if stored == "float16" else ""
    return head + _HEAD.format(stored=stored, number=number) + rule + _KERNELS.format(**parts)


_VALUES = """
// step_x is 0 for an array of one number, which stands for all elements.
extern "C" __global__ void values(long long count{parameters}, T* result) {{
  const long long step = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {{
{lines}
    result[i] = T({output});
  }}
}}
"""


def values_source(program: Program, dtype: np.dtype[Any]) -> str:
    """The kernel `values` of an elementwise function of arrays.

    Raises:
        KeyError: there is no kernel for the dtype.
    """
    stored, number = _KINDS[dtype.name]
    names, scalars = _scalars(program)
    lines = [*scalars, *_lines(program, names, lambda name: f"{name}[i * step_{name}]")]
    parameters = "".join(f", const T* {name}, int step_{name}" for name in program.arrays)
    body = "\n".join(f"    {line}" for line in lines)
    (output,) = program.outputs
    head = "#include <cupy/float16.cuh>\n" if stored == "float16" else ""
    return (
        head
        + _HEAD.format(stored=stored, number=number)
        + _VALUES.format(parameters=parameters, lines=body, output=names[output])
    )


def _pointers(targets: list[str], gradient: str) -> str:
    lines = [f"  const T* g = (const T*){gradient} + low;"]
    lines += [f"  T* {name} = (T*)columns[{j}] + low;" for j, name in enumerate(targets)]
    return "\n".join(lines)


def _shared(program: Program) -> list[Node]:
    """The numbers, the same for all elements, that the rule takes."""
    used = [arg for node in program.order if node.vector for arg in node.args if not arg.vector]
    return [node for node in dict.fromkeys(used) if node.function != "constant"]


def _scalars(program: Program) -> tuple[dict[Node, str], list[str]]:
    """Names of all that is one number, and the lines that work it out."""
    names: dict[Node, str] = {}
    lines = [f"const N h_{name} = *at_{name};" for name in program.scalars]
    for i, node in enumerate(node for node in program.order if not node.vector):
        if node.function == "input":
            names[node] = f"h_{node.value}"
        elif node.function == "constant":
            names[node] = _constant(node.value)
        else:
            names[node] = f"n{i}"
            kind = "bool" if node.truth else "N"
            lines.append(f"const {kind} n{i} = {_expression(node, names)};")
    return names, lines


def _rule(program: Program, names: dict[Node, str], targets: list[str], shared: list[str]) -> str:
    """One element's new values, in place."""
    kinds = {names[node]: "bool" if node.truth else "N" for node in _shared(program)}
    parameters = ["const T& g", *(f"T& {name}" for name in targets)]
    parameters += [f"const {kinds[name]} {name}" for name in shared]
    known = dict(names)
    lines = _lines(program, known, lambda name: name)
    for node, target in zip(program.outputs, targets, strict=True):
        lines.append(f"{target} = T({known[node]});")
    body = "\n".join(f"  {line}" for line in lines)
    return f"\n__device__ __forceinline__ void rule({', '.join(parameters)}) {{\n{body}\n}}\n"


def _lines(program: Program, names: dict[Node, str], read: Callable[[str], str]) -> list[str]:
    """The lines that work out one element's values; `names` learns what they are called."""
    lines = []
    for i, node in enumerate(program.order):
        if node.function == "input" and node.vector:
            names[node] = f"old_{node.value}"
            lines.append(f"const N old_{node.value} = (N){read(node.value)};")
        elif node.vector:
            names[node] = f"x{i}"
            kind = "bool" if node.truth else "N"
            lines.append(f"const {kind} x{i} = {_expression(node, names)};")
    return lines


def _constant(value: object) -> str:
    """A number in the arithmetic's type; the decimal digits name a double, which N rounds once."""
    number = float(value)  # type: ignore[arg-type]
    if math.isnan(number):
        return 'N(nan(""))'
    if math.isinf(number):
        return f"N({'-' if number < 0 else ''}1e300 * 1e300)"
    return f"N({number!r})"


def _expression(node: Node, names: dict[Node, str]) -> str:
    args = [names[arg] for arg in node.args]
    function = node.function
    if function not in ("where", "logical_and", "logical_or", "logical_not"):
        # A truth value in arithmetic is 0 or 1.
        args = [f"N({arg})" if n.truth else arg for arg, n in zip(args, node.args, strict=True)]
    if function in _INFIX:
        return f"({args[0]} {_INFIX[function]} {args[1]})"
    forms = {
        "negative": "(-{0})",
        "square": "({0} * {0})",
        "reciprocal": "(N(1) / {0})",
        "logical_not": "(!{0})",
        "where": "({0} ? N({1}) : N({2}))",
        "maximum": "largest({0}, {1})",
        "minimum": "smallest({0}, {1})",
        "sign": "sign_of({0})",
        "isnan": "({0} != {0})",
        "isfinite": "({0} - {0} == N(0))",
    }
    if function == "power" and node.args[1].function == "constant" and node.args[1].value == 2:
        return f"({args[0]} * {args[0]})"
    if function in forms:
        return forms[function].format(*args)
    return f"{_CALLS.get(function, function)}({', '.join(args)})"
