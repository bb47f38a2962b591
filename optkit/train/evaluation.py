"""Evaluations within `fit`: means of tensors over data that is not trained on."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from itertools import islice
from typing import Any

import numpy as np

from optkit.graph import Graph, Tensor
from optkit.train.batches import Batches
from optkit.train.feeding import Feeds, Matcher, as_iterable, is_iterator

__all__ = ["Evaluation"]


class Evaluation:
    """The means of tensors over the batches of some data, weighted by their numbers of examples.

    Args:
        graph: the graph.
        inputs: the `inputs` of `fit`.
        given: (data, every, {name: tensor}): data as in `fit`, of which endless `batches` give one
            epoch; every so many steps; the tensors to average, scalars or one value an example. A
            fourth item is fed with every batch.
        averages: moving averages that the variables are to hold meanwhile, or None.

    Attributes:
        every: see above; tensors: what is averaged, by name.

    Raises:
        TypeError, ValueError: it is no such triple.
    """

    def __init__(self, graph: Graph, inputs: Any, given: Any, averages: Any = None) -> None:
        self._averages = averages
        if not isinstance(given, tuple | list) or len(given) not in (3, 4):
            raise TypeError(
                "eval: expected (data, every, {name: tensor}) and perhaps a feed_dict, got "
                f"{type(given).__name__}"
                + (f" of {len(given)}" if isinstance(given, tuple | list) else "")
            )
        data, every, tensors, *constant = given
        if isinstance(every, bool) or not isinstance(every, int | np.integer) or every < 1:
            raise ValueError(f"eval: every: expected a number of steps >= 1, got {every!r}")
        if not isinstance(tensors, Mapping) or not tensors:
            raise TypeError(f"eval: expected a dict from names to tensors, got {tensors!r}")
        if is_iterator(data):
            raise TypeError(
                f"eval: data: expected what can be gone through again each time, got the iterator "
                f"{data!r}; pass a list or optkit.batches"
            )
        self.every = int(every)
        self._match = Matcher(graph, inputs, *constant)
        self._data = data if self._match.is_batch(data) else as_iterable(data)
        self.tensors: dict[str, Tensor] = {}
        for name, tensor in tensors.items():
            try:
                element = graph.as_graph_element(tensor, allow_operation=False)
            except (TypeError, ValueError, KeyError) as error:
                raise TypeError(f"eval: {name!r}: expected a tensor: {error}") from None
            assert isinstance(element, Tensor)
            if element.dtype.dtype.kind not in "fiub" and not element.dtype.is_floating:
                raise TypeError(f"eval: {name!r}: expected real numbers, got {element!r}")
            if not str(name):
                raise ValueError("eval: expected a name for each tensor, got ''")
            self.tensors[str(name)] = element

    def run(self, session: Any) -> dict[str, float]:
        """The means now.

        Raises:
            ValueError: the data has no batches.
        """
        tensors = list(self.tensors.values())
        totals = np.zeros(len(tensors))
        weight = 0
        with nullcontext() if self._averages is None else self._averages.swapped(session):
            for feeds in self._feeds():
                count = _examples(feeds)
                values = session.run(tensors, feeds)
                totals += [count * float(np.mean(value)) for value in values]
                weight += count
        if not weight:
            raise ValueError("eval: data: expected at least one batch, got none")
        return dict(zip(self.tensors, (totals / weight).tolist(), strict=True))

    def _feeds(self) -> Any:
        if self._match.is_batch(self._data):
            return [self._match(self._data)]
        data = self._data
        if isinstance(data, Batches) and data.epochs is None:
            return map(self._match, islice(data.epoch(0), data.per_epoch))
        return map(self._match, data)


def _examples(feeds: Feeds) -> int:
    """How many examples a batch has: the largest first axis of what is fed, at least 1."""
    shapes = [np.shape(value) for value in feeds.values()]
    return max((shape[0] for shape in shapes if shape), default=1) or 1
