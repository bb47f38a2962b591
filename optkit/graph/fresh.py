"""A graph of its own for each cell or trial."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Iterator

from optkit.graph.graph import Graph


@contextlib.contextmanager
def fresh_graph(seed: int | None = None) -> Iterator[Graph]:
    """Build into a new graph inside a `with`: run twice, the same lines make the same names.

    A notebook's cell that builds in such a block can be run again without colliding with what it
    built before; the graph goes on to be used by `Session(graph=graph)`.

    Args:
        seed: the graph's seed of random operations, as by `set_random_seed`; None leaves it open.

    Raises:
        TypeError: the seed is no integer.
    """
    with Graph().as_default() as graph:
        graph.seed = None if seed is None else operator.index(seed)
        yield graph
