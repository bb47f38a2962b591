"""The ops: each a kernel on arrays and, beside it, its gradient on graph tensors.

One file a family; `core` says how an op is declared. Importing the package declares them all and
fills `graph.OPERATORS`, through which tensors answer to Python's operators and to NumPy.
"""

from optkit.ops import (  # noqa: F401 - imported for the ops they declare
    array,
    broadcasting,
    clip,
    control,
    conv2d,
    convolution,
    cross_entropy,
    elementary,
    embedding,
    indexing,
    linalg,
    logic,
    math,
    nn,
    numpy_functions,
    pooling,
    random,
    rearranging,
    reductions,
    reshaping,
    sequences,
    sparse,
    state,
    state_ops,
    update,
)
