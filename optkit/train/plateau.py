"""A rate that is lowered when a metric has stopped improving."""

from __future__ import annotations

from typing import Any

import numpy as np

from optkit.dtypes import float64, int64
from optkit.graph import Operation, Tensor, get_default_graph, get_default_session
from optkit.ops.array import placeholder
from optkit.ops.control import group
from optkit.ops.core import as_tensor
from optkit.ops.logic import greater, is_finite, less, logical_and, logical_not
from optkit.ops.math import cast, maximum, select
from optkit.train.checks import require
from optkit.train.schedule import built, rate_tensor
from optkit.variables import Variable

__all__ = ["ReduceOnPlateau"]


class ReduceOnPlateau:
    """Lowers the rate by a factor when a metric has not improved for a while.

        plateau = tf.train.ReduceOnPlateau(factor=0.5, patience=3)
        train_op = tf.contrib.layers.optimize_loss(
            loss, step, 0.1, "SGD", learning_rate_decay_fn=plateau)
        ...
        plateau.observe(validation_loss, session)    # after each evaluation

    or `fit(train_op, ..., eval=(data, 100, {"loss": loss}), plateau=(plateau, "loss"))`, which
    observes by itself.

    `plateau(rate)` is rate·scale, at least min_learning_rate. The scale starts at 1; an
    observation that is not better than the best so far by the threshold is a bad one (NaN is),
    and after more than `patience` bad ones in a row the scale is multiplied by `factor`. For
    `cooldown` observations after that none counts as bad. All of it is kept in variables, so
    checkpoints have it.

    Args:
        factor: what the scale is multiplied by, in (0, 1).
        patience: how many bad observations in a row are accepted.
        mode: "min" if lower is better, "max" if higher is.
        threshold: how much better counts as better.
        threshold_mode: "rel": by threshold·|best|; "abs": by threshold.
        cooldown: see above.
        min_learning_rate: the lowest rate.
        name: the name scope of the variables.

    Raises:
        TypeError, ValueError: an argument is none of its values.

    Source: the rule is that of PyTorch's ReduceLROnPlateau; Keras counts patience one higher.
    """

    def __init__(
        self,
        factor: float = 0.1,
        patience: int = 10,
        mode: str = "min",
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_learning_rate: float = 0.0,
        name: str = "ReduceOnPlateau",
    ) -> None:
        require(name, "factor", factor, above=0.0, below=1.0)
        require(name, "threshold", threshold, at_least=0.0)
        require(name, "min_learning_rate", min_learning_rate, at_least=0.0)
        for argument, value in (("patience", patience), ("cooldown", cooldown)):
            require(name, argument, value, at_least=0.0)
            if value != int(value):
                raise ValueError(f"{name}: {argument}: expected an integer >= 0, got {value!r}")
        if mode not in ("min", "max"):
            raise ValueError(f"{name}: mode: expected 'min' or 'max', got {mode!r}")
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(
                f"{name}: threshold_mode: expected 'rel' or 'abs', got {threshold_mode!r}"
            )
        self._factor, self._patience, self._cooldown = factor, int(patience), int(cooldown)
        self._mode, self._threshold, self._relative = mode, threshold, threshold_mode == "rel"
        self._lowest = min_learning_rate
        self._name = name
        graph = get_default_graph()
        with graph.all_or_nothing(), graph.outside_control_flow(), graph.name_scope(name) as scope:
            self._scale = _state(1.0, float64, f"{scope}scale")
            worst = np.inf if mode == "min" else -np.inf
            self._best = _state(worst, float64, f"{scope}best")
            self._bad = _state(0, int64, f"{scope}bad")
            self._resting = _state(0, int64, f"{scope}resting")
            self._fed: Tensor | None = None
            if not graph.eager:
                self._fed = placeholder(float64, (), name="metric")
                self._observed = self._observe(self._fed)

    def __repr__(self) -> str:
        return f"<optkit.ReduceOnPlateau {self._name!r} factor={self._factor}>"

    @property
    def scale(self) -> Variable:
        """What the rate is multiplied by."""
        return self._scale

    @property
    def best(self) -> Variable:
        """The best metric so far."""
        return self._best

    def __call__(self, learning_rate: Any, global_step: Any = None, name: str | None = None) -> Any:
        """max(learning_rate·scale, min_learning_rate), as schedules and decay functions give it.

        Args:
            learning_rate: a number, Tensor, Variable or another schedule.
            global_step: not used; decay functions are given it.
            name: the operation's name.
        """

        def build() -> Tensor:
            graph = get_default_graph()
            with graph.all_or_nothing(), graph.name_scope(name or self._name) as scope:
                rate = rate_tensor(self._name, "learning_rate", learning_rate)
                scaled = rate * cast(as_tensor(self._scale), rate.dtype)
                return maximum(scaled, cast(self._lowest, rate.dtype), name=scope)

        return built(build)

    def update(self, metric: Any) -> Operation | None:
        """An operation that observes a tensor's value; in eager mode that is done at once.

        Raises:
            TypeError, ValueError: `metric` is no real scalar.
        """
        graph = get_default_graph()
        with graph.all_or_nothing(), graph.name_scope(f"{self._name}/update"):
            value = as_tensor(metric, name="metric")
            if not (value.dtype.is_floating or value.dtype.is_integer):
                raise TypeError(f"{self._name}: metric: expected a real dtype, got {value!r}")
            if value.sizes not in ((), None):
                raise ValueError(f"{self._name}: metric: expected a scalar, got {value!r}")
            done = self._observe(cast(value, float64))
        return None if graph.eager else done

    def observe(self, metric: Any, session: Any = None) -> float:
        """Observe a number; gives the scale after it.

        It adds nothing to the graph, which may be finalized.

        Args:
            metric: the number.
            session: the session that holds the variables; the default one if None. Nothing in
                eager mode.

        Raises:
            TypeError, ValueError: `metric` is no number, or there is no session.
        """
        number = float(metric)
        if self._fed is None:
            self.update(number)
            return float(self._scale.numpy())
        session = get_default_session() if session is None else session
        if session is None:
            raise ValueError("session: expected one, got None, and there is no default session")
        session.run(self._observed, {self._fed: number})
        return float(session.run(self._scale))

    def _observe(self, metric: Tensor) -> Operation:
        best, bad, resting = map(as_tensor, (self._best, self._bad, self._resting))
        margin = self._threshold * abs(best) if self._relative else self._threshold
        # The first best is infinite, and stays what it is when a margin is taken off.
        margin = select(is_finite(best), cast(margin, float64), cast(0.0, float64))
        better = less(metric, best - margin)
        if self._mode == "max":
            better = greater(metric, best + margin)
        rested = greater(resting, 0)
        counted = select(logical_and(logical_not(better), logical_not(rested)), bad + 1, 0 * bad)
        reduced = greater(counted, self._patience)
        scale = as_tensor(self._scale)
        return group(
            self._best.assign(select(better, metric, best)),
            self._bad.assign(select(reduced, 0 * bad, counted)),
            self._resting.assign(
                select(reduced, 0 * resting + self._cooldown, maximum(resting - 1, 0))
            ),
            self._scale.assign(select(reduced, scale * self._factor, scale)),
            name="observe",
        )


def _state(value: Any, dtype: Any, name: str) -> Variable:
    with get_default_graph().name_scope(None):
        return Variable(value, trainable=False, name=name.rstrip("/"), dtype=dtype)
