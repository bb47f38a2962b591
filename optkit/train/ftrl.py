"""Follow the regularized leader."""

from __future__ import annotations

from typing import Any

from optkit.ops.core import Array, ArrayModule
from optkit.train.checks import require, require_rate
from optkit.train.optimizer import Optimizer

__all__ = ["FtrlOptimizer"]


class FtrlOptimizer(Optimizer):
    """FTRL-Proximal, with online L2 and shrinkage-type L2.

    With n the sum of g², p = −learning_rate_power and s the shrinkage strength:
        n' = n + g²;  z ← z + g + 2·s·w − (n'ᵖ − nᵖ)/lr · w
        w ← (clip(z, −l1, l1) − z) / (n'ᵖ/lr + 2·l2 + β/lr);  n ← n'
    so w is exactly zero where |z| ≤ l1. The squares are those of the gradient without shrinkage.
    Rows that a sparse gradient leaves out stay as they are.

    Args:
        learning_rate: lr; as every value of the equation a number, a scalar Tensor, a Variable or
            a callable, read at every step.
        learning_rate_power: −p, at most 0; at 0 the rate stays the same.
        initial_accumulator_value: what n starts at.
        l1_regularization_strength: l1, which makes small values exactly zero.
        l2_regularization_strength: l2.
        use_locking: accepted as in TF.
        name: the name of the train op and of the slots.
        accum_name: the name of the variables of n; `name` if None.
        linear_name: the name of the variables of z; `name` if None.
        l2_shrinkage_regularization_strength: s, the strength of a penalty s·‖w‖² in
            the gradient.
        beta: β; 0 if None.

    Raises:
        TypeError, ValueError: learning_rate_power is above 0, another value below 0, or a value is
            no number.

    Source: McMahan et al., KDD 2013; ApplyFtrlV2 in TF 1.15; β (`beta`) as in TF 2.
    """

    slots = ("accum", "linear")

    def __init__(
        self,
        learning_rate: Any,
        learning_rate_power: Any = -0.5,
        initial_accumulator_value: float = 0.1,
        l1_regularization_strength: Any = 0.0,
        l2_regularization_strength: Any = 0.0,
        use_locking: bool = False,
        name: str = "Ftrl",
        accum_name: str | None = None,
        linear_name: str | None = None,
        l2_shrinkage_regularization_strength: Any = 0.0,
        beta: Any = None,
    ) -> None:
        require_rate(name, learning_rate, negative=False)
        require(name, "learning_rate_power", learning_rate_power, at_most=0.0)
        for argument, value in {
            "initial_accumulator_value": initial_accumulator_value,
            "l1_regularization_strength": l1_regularization_strength,
            "l2_regularization_strength": l2_regularization_strength,
            "l2_shrinkage_regularization_strength": l2_shrinkage_regularization_strength,
            "beta": 0.0 if beta is None else beta,
        }.items():
            require(name, argument, value, at_least=0.0)
        self._slot_variable_names = {"accum": accum_name, "linear": linear_name}
        super().__init__(
            use_locking,
            name,
            initial={"accum": initial_accumulator_value},
            learning_rate=learning_rate,
            power=learning_rate_power,
            l1=l1_regularization_strength,
            l2=l2_regularization_strength,
            shrinkage=l2_shrinkage_regularization_strength,
            beta=0.0 if beta is None else beta,
        )

    def _slot_variable_name(self, slot: str) -> str:
        return self._slot_variable_names.get(slot) or self._name

    def update(
        self,
        xp: ArrayModule,
        w: Array,
        g: Array,
        accum: Array,
        linear: Array,
        *,
        learning_rate: Array,
        power: Array,
        l1: Array,
        l2: Array,
        shrinkage: Array,
        beta: Array,
    ) -> tuple[Array, Array, Array]:
        """The equation; see the class."""
        grown = accum + g * g
        old, new = accum**-power, grown**-power
        linear = linear + g + 2 * shrinkage * w - (new - old) / learning_rate * w
        quadratic = (new + beta) / learning_rate + 2 * l2
        beyond = xp.clip(linear, -l1, l1) - linear
        # While accum and linear are 0, so is quadratic: the weight is 0 then, not 0/0.
        return beyond / xp.where(beyond == 0, 1, quadratic), grown, linear
