"""Decoupled weight decay, for any optimizer; AdamW and MomentumW.

w ← w − λ·w, and then the optimizer's step. Unlike an L2 penalty in the loss the decay does not
pass through the optimizer's averages; unlike in many other libraries the rate does not scale it:
where the rate follows a schedule, let λ follow the same one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from optkit.graph import IndexedSlices, Tensor, get_default_graph
from optkit.ops.core import Array, ArrayModule, as_tensor
from optkit.ops.indexing import gather
from optkit.ops.math import cast
from optkit.ops.sparse import deduplicate
from optkit.ops.update import Equation
from optkit.train.adam import AdamOptimizer
from optkit.train.checks import require
from optkit.train.given import listed_variables
from optkit.train.momentum import MomentumOptimizer
from optkit.train.optimizer import Optimizer
from optkit.variables import Variable

__all__ = [
    "AdamWOptimizer",
    "DecoupledWeightDecayExtension",
    "MomentumWOptimizer",
    "extend_with_decoupled_weight_decay",
]

_DECAY = "decoupled_weight_decay"

if TYPE_CHECKING:
    _Base = Optimizer
else:
    _Base = object


class DecoupledWeightDecayExtension(_Base):
    """The first base of an optimizer's class that gives it decoupled weight decay.

        class AdagradW(DecoupledWeightDecayExtension, optkit.train.AdagradOptimizer):
            pass

        AdagradW(weight_decay=1e-4, learning_rate=0.1)

    The decay is part of the optimizer's equation, so it costs no pass of its own. A sparse
    gradient decays the rows that it names. `minimize` and `apply_gradients` take a further
    argument, decay_var_list: the variables to decay, all if None (an empty list is none of them;
    TF decays all then).

    An optimizer whose step does not start from the variable (AdagradDA) undoes the decay.

    Args:
        weight_decay: λ, the part of a variable that a step takes away: a number, a scalar Tensor,
            a Variable or a callable, read at every step.
        args: the optimizer's.
        kwargs: the optimizer's.

    Raises:
        TypeError, ValueError: λ is below 0 or no number; or what the optimizer raises.

    Source: Loshchilov & Hutter, Decoupled Weight Decay Regularization, ICLR 2019, with η·λ as
    one λ; tf.contrib.opt.DecoupledWeightDecayExtension.
    """

    def __init__(self, weight_decay: Any, *args: Any, **kwargs: Any) -> None:
        require(type(self).__name__, "weight_decay", weight_decay, at_least=0.0)
        self._decayed: set[Variable] | None = None
        self._decays_apart = False
        super().__init__(*args, **kwargs)
        self._hyper[_DECAY] = weight_decay

    def minimize(
        self,
        loss: Any,
        global_step: Any = None,
        var_list: Any = None,
        gate_gradients: int = Optimizer.GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: Any = None,
        decay_var_list: Any = None,
    ) -> Any:
        """As `Optimizer.minimize`; decay_var_list are the variables to decay, all if None."""
        # The base calls apply_gradients, which knows nothing of the list.
        self._decayed = _chosen(decay_var_list)
        try:
            return super().minimize(
                loss,
                global_step,
                var_list,
                gate_gradients,
                aggregation_method,
                colocate_gradients_with_ops,
                name,
                grad_loss,
            )
        finally:
            self._decayed = None

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: Any = None,
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
        decay_var_list: Any = None,
    ) -> Any:
        """As `Optimizer.apply_gradients`; decay_var_list are those to decay, all if None."""
        before = self._decayed
        if decay_var_list is not None:
            self._decayed = _chosen(decay_var_list)
        try:
            return super().apply_gradients(
                grads_and_vars, global_step, name, skip_gradients_aggregation
            )
        finally:
            self._decayed = before

    def _update_one(self, grad: Any, var: Variable) -> Any:
        sparse = isinstance(grad, IndexedSlices)
        hooks = ("_apply_sparse", "_resource_apply_sparse", "_apply_sparse_duplicate_indices")
        own = hooks if sparse else ("_apply_dense", "_resource_apply_dense")
        # An equation for all rows would decay those, too, that a sparse gradient does not name.
        apart = any(self._overrides(hook) for hook in own) or (sparse and self.decays_all_rows)
        if not apart or not self._is_decayed(var):
            return super()._update_one(grad, var)
        self._decays_apart = True
        try:
            with get_default_graph().control_dependencies([self._decay(grad, var)]):
                return super()._update_one(grad, var)
        finally:
            self._decays_apart = False

    def _is_decayed(self, var: Variable) -> bool:
        return self._decayed is None or var in self._decayed

    def _decay(self, grad: Any, var: Variable) -> Any:
        """An operation that takes λ·w away, on the rows that a sparse gradient names."""
        weight_decay = cast(self._prepared[_DECAY], var.dtype)
        if isinstance(grad, IndexedSlices):
            rows = deduplicate(grad).indices
            return var.scatter_sub(IndexedSlices(weight_decay * gather(var, rows), rows))
        return var.assign_sub(weight_decay * as_tensor(var))

    def _rule(self, var: Variable) -> tuple[Equation, Mapping[str, Tensor]]:
        if self._is_decayed(var) and not self._decays_apart:
            return self._decayed_update, self._prepared
        rule, hyper = super()._rule(var)
        return rule, {name: value for name, value in hyper.items() if name != _DECAY}

    def _decayed_update(
        self,
        xp: ArrayModule,
        w: Array,
        g: Array,
        *slots: Array,
        decoupled_weight_decay: Array,
        **hyper: Array,
    ) -> Array | tuple[Array, ...]:
        """The optimizer's equation on what the decay leaves."""
        return self.update(xp, w - decoupled_weight_decay * w, g, *slots, **hyper)


def _chosen(decay_var_list: Any) -> set[Variable] | None:
    """The variables to decay; None for all."""
    if decay_var_list is None:
        return None
    items = list(decay_var_list)
    return set(listed_variables(items, "decay_var_list")) if items else set()


def extend_with_decoupled_weight_decay(base_optimizer: type[Optimizer]) -> type[Optimizer]:
    """A class that is `base_optimizer` with decoupled weight decay.

    Its constructor takes weight_decay before the arguments of `base_optimizer`; see
    `DecoupledWeightDecayExtension`.

    Raises:
        TypeError: `base_optimizer` is no subclass of Optimizer.
    """
    base: Any = base_optimizer
    if not (isinstance(base, type) and issubclass(base, Optimizer)):
        raise TypeError(f"base_optimizer: expected a subclass of Optimizer, got {base_optimizer!r}")
    name = f"{base_optimizer.__name__.removesuffix('Optimizer')}WOptimizer"
    text = f"`{base_optimizer.__name__}` with decoupled weight decay."
    bases = (DecoupledWeightDecayExtension, base_optimizer)
    made: type[Optimizer] = type(name, bases, {"__doc__": text, "__module__": __name__})
    return made


class AdamWOptimizer(DecoupledWeightDecayExtension, AdamOptimizer):
    """Adam with decoupled weight decay: w ← w − λ·w, then Adam's step.

    Args:
        weight_decay: λ; see `DecoupledWeightDecayExtension`. The rate does not scale it.
        learning_rate: see `AdamOptimizer`, as for all that follow.
        beta1: see there.
        beta2: see there.
        epsilon: see there.
        use_locking: accepted as in TF.
        name: the name of the train op and of the slots.

    Raises:
        TypeError, ValueError: λ is below 0 or no number; or as `AdamOptimizer`.

    Source: Loshchilov & Hutter, ICLR 2019; tf.contrib.opt.AdamWOptimizer.
    """

    def __init__(
        self,
        weight_decay: Any,
        learning_rate: Any = 0.001,
        beta1: Any = 0.9,
        beta2: Any = 0.999,
        epsilon: Any = 1e-8,
        use_locking: bool = False,
        name: str = "AdamW",
    ) -> None:
        super().__init__(weight_decay, learning_rate, beta1, beta2, epsilon, use_locking, name)


class MomentumWOptimizer(DecoupledWeightDecayExtension, MomentumOptimizer):
    """Momentum with decoupled weight decay: w ← w − λ·w, then the momentum's step.

    Args:
        weight_decay: λ; see `DecoupledWeightDecayExtension`. The rate does not scale it.
        learning_rate: see `MomentumOptimizer`, as for all that follow.
        momentum: see there.
        use_locking: accepted as in TF.
        name: the name of the train op and of the slots.
        use_nesterov: see there.

    Raises:
        TypeError, ValueError: λ is below 0 or no number; or as `MomentumOptimizer`.

    Source: Loshchilov & Hutter, ICLR 2019 (SGDW); tf.contrib.opt.MomentumWOptimizer.
    """

    def __init__(
        self,
        weight_decay: Any,
        learning_rate: Any,
        momentum: Any,
        use_locking: bool = False,
        name: str = "MomentumW",
        use_nesterov: bool = False,
    ) -> None:
        super().__init__(weight_decay, learning_rate, momentum, use_locking, name, use_nesterov)
