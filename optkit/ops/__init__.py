"""The ops: each a kernel on arrays and, beside it, its gradient on graph tensors.

One file a family; `core` says how an op is declared. Importing the package declares them all and
fills `graph.OPERATORS`, through which tensors answer to Python's operators and to NumPy.
"""

from optkit.ops import (  # noqa: F401 - imported for the ops they declare
    array,
    broadcasting,
    checks,
    clip,
    contractions,
    control,
    conv2d,
    convolution,
    cross_entropy,
    depthwise,
    diagonals,
    elementary,
    embedding,
    host,
    indexing,
    linalg,
    logic,
    lrn,
    masking,
    math,
    nn,
    numpy_functions,
    pooling,
    random,
    ranking,
    rearranging,
    reductions,
    reshaping,
    sampled_losses,
    sampling,
    segments,
    sequences,
    sparse,
    state,
    state_ops,
    update,
)
