"""An optimizer that keeps moving averages of what it trains."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from optkit.graph import get_default_graph
from optkit.ops.control import group
from optkit.train.moving_averages import ExponentialMovingAverage
from optkit.train.optimizer import Optimizer
from optkit.train.saver import Saver
from optkit.train.wrapper import OptimizerWrapper
from optkit.variables import Variable, global_variables, variable_of

__all__ = ["MovingAverageOptimizer"]


class MovingAverageOptimizer(OptimizerWrapper):
    """An optimizer with exponential moving averages of the variables it moves.

    Checkpoints of `swapping_saver` hold the averages under the variables' names, so that whoever
    restores them with an ordinary Saver evaluates the averages; restored with a swapping saver,
    training goes on exactly where it was. Within `swapped` a session evaluates the averages
    without any file.

    Args:
        opt: the optimizer that computes and applies the gradients.
        average_decay: see `ExponentialMovingAverage`, as for num_updates.
        num_updates: the number of updates so far, which makes early averages move fast.
        sequential_update: average the variables after the step; else as they were before it.

    Raises:
        TypeError: `opt` is no Optimizer, or average_decay no number.
        ValueError: average_decay is outside [0, 1].

    Source: tf.contrib.opt.MovingAverageOptimizer.
    """

    def __init__(
        self,
        opt: Optimizer,
        average_decay: Any = 0.9999,
        num_updates: Any = None,
        sequential_update: bool = True,
    ) -> None:
        super().__init__(opt, "MovingAverage")
        self._average = ExponentialMovingAverage(average_decay, num_updates)
        self._sequential = bool(sequential_update)
        self._averaged: dict[Variable, None] = {}

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: Any = None,
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
    ) -> Any:
        """As the optimizer inside; the averages follow."""
        pairs = list(grads_and_vars)
        graph = get_default_graph()
        with graph.all_or_nothing():
            moved = [v for g, v in pairs if g is not None]
            if graph.eager:  # as in a graph, averages start where the variables do
                self._average.start(moved)
                if not self._sequential:
                    self._average.apply(moved)
            train_op = self._optimizer.apply_gradients(
                pairs, global_step, name, skip_gradients_aggregation
            )
            if graph.eager:
                if self._sequential:
                    self._average.apply(moved)
                return None
            with graph.control_dependencies([train_op] if self._sequential else []):
                averaged = self._average.apply(moved)
            done = group(train_op, averaged, name="train_with_avg")
            self._averaged.update(dict.fromkeys(moved))
            return done

    @property
    def averages(self) -> ExponentialMovingAverage:
        """The averages."""
        return self._average

    @contextlib.contextmanager
    def swapped(self, session: Any = None) -> Iterator[None]:
        """Evaluate with averages; see `ExponentialMovingAverage.swapped`."""
        with self._average.swapped(session):
            yield

    def swapping_saver(
        self, var_list: Any = None, name: str = "swapping_saver", **kwargs: Any
    ) -> Saver:
        """A Saver of the averages under the variables' names, and the other way round.

        Args:
            var_list: what to save, as for Saver; all global variables if None. A variable comes
                with its average.
            name: the saver's name.
            kwargs: other arguments of Saver.

        Raises:
            RuntimeError: gradients have not been applied yet, so there are no averages.
            ValueError: var_list has a variable without its average, or the other way round.
        """
        if not self._averaged:
            raise RuntimeError("swapping_saver: call minimize or apply_gradients before it")
        partner: dict[Variable, Variable] = {}
        for variable in self._averaged:
            average = self._average.average(variable)
            assert average is not None
            partner |= {variable: average, average: variable}
        named = _named(global_variables() if var_list is None else var_list)
        name_of = {variable: key for key, variable in named.items()}
        swapped = {}
        for key, variable in named.items():
            other = partner.get(variable, variable)
            if other not in name_of:
                raise ValueError(
                    f"var_list: {variable.name!r} is there without {other.name!r}, which is to "
                    "take its place"
                )
            swapped[key] = other
        return Saver(swapped, name=name, **kwargs)


def _named(var_list: Any) -> dict[str, Variable]:
    """Variables by the name they are saved under."""
    items = (
        list(var_list.items())
        if isinstance(var_list, Mapping)
        else [(item.op.name, item) for item in var_list]
    )
    named = {}
    for key, item in items:
        variable = variable_of(item)
        if variable is None:
            raise TypeError(f"var_list: expected variables, got {item!r}")
        named[key] = variable
    return named
