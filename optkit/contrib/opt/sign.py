"""AddSign and PowerSign: larger steps where gradient and momentum agree in sign."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from optkit.dtypes import float64
from optkit.graph import Tensor, is_symbolic
from optkit.ops.core import Array, ArrayModule, as_tensor, constant
from optkit.ops.elementary import log
from optkit.ops.math import cast
from optkit.train.checks import require, require_rate
from optkit.train.optimizer import Optimizer

__all__ = ["AddSignOptimizer", "PowerSignOptimizer"]


class _SignOptimizer(Optimizer):
    """What both have: the momentum, and the decay of the signs' part."""

    slots = ("m",)
    decays_all_rows = True  # the momentum; a row without a gradient does not move

    def __init__(
        self,
        sign_decay_fn: Callable[[Any], Any] | None,
        use_locking: bool,
        name: str,
        *,
        learning_rate: Any,
        beta: Any,
        **hyper: Any,
    ) -> None:
        require_rate(name, learning_rate)
        require(name, "beta", beta, at_least=0.0, below=1.0)
        if sign_decay_fn is not None and not callable(sign_decay_fn):
            raise TypeError(f"{name}: sign_decay_fn: expected a function, got {sign_decay_fn!r}")
        self._sign_decay_fn = sign_decay_fn
        self._step: Any = None
        super().__init__(use_locking, name, learning_rate=learning_rate, beta=beta, **hyper)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: Any = None,
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
    ) -> Any:
        """As `Optimizer.apply_gradients`; sign_decay_fn is called with `global_step`."""
        if self._sign_decay_fn is not None and global_step is None:
            raise ValueError(f"{self._name}: global_step: sign_decay_fn needs a step, got None")
        self._step = global_step
        return super().apply_gradients(
            grads_and_vars, global_step, name, skip_gradients_aggregation
        )

    def _step_values(self) -> dict[str, Tensor]:
        if self._sign_decay_fn is None:
            return {"sign_decay": constant(1.0, float64, name="sign_decay")}
        return {"sign_decay": self._hyper_tensor("sign_decay", self._sign_decay_fn(self._step))}


class AddSignOptimizer(_SignOptimizer):
    """Gradient descent that adds the agreement of signs to its rate.

        m ← β·m + (1−β)·g;  w ← w − lr·(α + d·sign(g)·sign(m))·g

    d is sign_decay_fn(global_step), 1 without it. A sparse gradient decays the momentum of all
    rows.

    Args:
        learning_rate: lr; as every value of the equation a number, a scalar Tensor, a Variable or
            a callable, read at every step.
        alpha: α.
        beta: β, the part of the momentum that a step keeps.
        sign_decay_fn: a function of the step, e.g. `get_cosine_decay_fn(steps)`.
        use_locking: accepted as in TF.
        name: the name of the train op and of the slots.

    Raises:
        TypeError, ValueError: beta is outside [0, 1), or a value is no number.

    Source: Bello et al., Neural Optimizer Search with Reinforcement Learning, ICML 2017;
    tf.contrib.opt.AddSignOptimizer.
    """

    def __init__(
        self,
        learning_rate: Any = 0.1,
        alpha: Any = 1.0,
        beta: Any = 0.9,
        sign_decay_fn: Callable[[Any], Any] | None = None,
        use_locking: bool = False,
        name: str = "AddSignOptimizer",
    ) -> None:
        require(name, "alpha", alpha)
        super().__init__(
            sign_decay_fn, use_locking, name, learning_rate=learning_rate, beta=beta, alpha=alpha
        )

    def update(
        self,
        xp: ArrayModule,
        w: Array,
        g: Array,
        m: Array,
        *,
        learning_rate: Array,
        beta: Array,
        alpha: Array,
        sign_decay: Array,
    ) -> tuple[Array, Array]:
        """The equation; see the class."""
        m = beta * m + (1 - beta) * g
        return w - learning_rate * (alpha + sign_decay * xp.sign(g) * xp.sign(m)) * g, m


class PowerSignOptimizer(_SignOptimizer):
    """Gradient descent whose rate is a power of the agreement of signs.

        m ← β·m + (1−β)·g;  w ← w − lr·b^(d·sign(g)·sign(m))·g

    d is sign_decay_fn(global_step), 1 without it. A sparse gradient decays the momentum of all
    rows.

    Args:
        learning_rate: lr; as every value of the equation a number, a scalar Tensor, a Variable or
            a callable, read at every step.
        base: b, above 0.
        beta: β, the part of the momentum that a step keeps.
        sign_decay_fn: a function of the step, e.g. `get_cosine_decay_fn(steps)`.
        use_locking: accepted as in TF.
        name: the name of the train op and of the slots.

    Raises:
        TypeError, ValueError: beta is outside [0, 1), base is not above 0, or a value is no
            number.

    Source: Bello et al., Neural Optimizer Search with Reinforcement Learning, ICML 2017;
    tf.contrib.opt.PowerSignOptimizer.
    """

    def __init__(
        self,
        learning_rate: Any = 0.1,
        base: Any = math.e,
        beta: Any = 0.9,
        sign_decay_fn: Callable[[Any], Any] | None = None,
        use_locking: bool = False,
        name: str = "PowerSignOptimizer",
    ) -> None:
        require(name, "base", base, above=0.0)
        self._base = base
        super().__init__(
            sign_decay_fn,
            use_locking,
            name,
            learning_rate=learning_rate,
            beta=beta,
            logbase=self._logarithm,
        )

    def _logarithm(self) -> Any:
        base = self._call_if_callable(self._base)
        return log(cast(as_tensor(base), float64)) if is_symbolic(base) else math.log(base)

    def update(
        self,
        xp: ArrayModule,
        w: Array,
        g: Array,
        m: Array,
        *,
        learning_rate: Array,
        beta: Array,
        logbase: Array,
        sign_decay: Array,
    ) -> tuple[Array, Array]:
        """The equation; see the class."""
        m = beta * m + (1 - beta) * g
        power = xp.exp(logbase * sign_decay * xp.sign(g) * xp.sign(m))
        return w - learning_rate * power * g, m
