"""Adam."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from optkit.graph import Operation, Tensor, is_symbolic
from optkit.ops.control import group
from optkit.ops.core import Array, ArrayModule, as_tensor, constant
from optkit.ops.math import cast
from optkit.train.checks import require, require_rate
from optkit.train.optimizer import Optimizer, power_dtype
from optkit.variables import Variable

__all__ = ["AdamOptimizer"]


class AdamOptimizer(Optimizer):
    """Adam, with the paper's "epsilon hat".

        m ← β₁·m + (1−β₁)·g;  v ← β₂·v + (1−β₂)·g²
        w ← w − lr·√(1−β₂ᵗ)/(1−β₁ᵗ) · m / (√v + ε)

    ε is added outside the root and not bias-corrected. The powers βᵗ are variables shared by all
    updates of one optimizer. A sparse gradient moves every row: those it leaves out have a zero
    gradient, as in TF.

    Args:
        learning_rate: lr; as every value of the equation a number, a scalar Tensor, a Variable or
            a callable, read at every step.
        beta1: β₁, the part of the mean gradient m that a step keeps.
        beta2: β₂, the same of the mean square v.
        epsilon: ε.
        use_locking: accepted as in TF.
        name: the name of the train op and of the slots.

    Raises:
        TypeError, ValueError: a beta is outside [0, 1), epsilon below 0, or a value is no number.

    Source: Kingma & Ba, ICLR 2015, section 2; ApplyAdam in TF 1.15.
    """

    slots: Sequence[str] = ("m", "v")
    decays_all_rows = True
    powers: ClassVar[tuple[str, ...]] = ("beta1", "beta2")
    """The hyper-parameters whose powers the equation takes, as `<name>_power`."""

    def __init__(
        self,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "Adam",
    ) -> None:
        require_rate(name, learning_rate)
        require(name, "beta1", beta1, at_least=0.0, below=1.0)
        require(name, "beta2", beta2, at_least=0.0, below=1.0)
        require(name, "epsilon", epsilon, at_least=0.0)
        super().__init__(
            use_locking,
            name,
            learning_rate=learning_rate,
            beta1=beta1,
            beta2=beta2,
            epsilon=epsilon,
        )

    def update(
        self,
        xp: ArrayModule,
        w: Array,
        g: Array,
        m: Array,
        v: Array,
        *,
        learning_rate: Array,
        beta1: Array,
        beta2: Array,
        epsilon: Array,
        beta1_power: Array,
        beta2_power: Array,
    ) -> tuple[Array, Array, Array]:
        """The equation; see the class."""
        m = m + (1 - beta1) * (g - m)
        v = v + (1 - beta2) * (g * g - v)
        rate = learning_rate * xp.sqrt(1 - beta2_power) / (1 - beta1_power)
        return w - rate * m / (xp.sqrt(v) + epsilon), m, v

    def _create_slots(self, var_list: Sequence[Variable]) -> None:
        for name in self.powers:
            beta = self._call_if_callable(self._hyper[name])
            start = as_tensor(beta) if is_symbolic(beta) else constant(beta, power_dtype(var_list))
            self._create_non_slot_variable(start, f"{name}_power", var_list[0])
        super()._create_slots(var_list)

    def _step_values(self) -> dict[str, Tensor]:
        return {
            f"{name}_power": as_tensor(self._get_non_slot_variable(f"{name}_power"))
            for name in self.powers
        }

    def _finish(self, update_ops: Sequence[Any], name_scope: str) -> Operation:
        graph = self._prepared["beta1"].graph
        grown = []
        for name in self.powers:
            power = self._get_non_slot_variable(f"{name}_power")
            next_power = as_tensor(power) * cast(self._prepared[name], power.dtype)
            with graph.control_dependencies(update_ops):
                grown.append(power.assign(next_power).op)
        return group(*update_ops, *grown, name=name_scope)
