"""Loss scaling: gradients that float16 cannot hold are computed larger, or smaller, than they are.

The gradient of s·L is s times that of L, for any s. With a large s small gradients do not become
zero in float16; with a small one large gradients do not become infinite.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from optkit.dtypes import float32, int64
from optkit.graph import (
    GraphKeys,
    IndexedSlices,
    Operation,
    Tensor,
    get_default_graph,
    is_symbolic,
)
from optkit.graph.ledger import Ledger
from optkit.ops.array import fill, shape, zeros_like
from optkit.ops.clip import global_norm
from optkit.ops.control import cond, group, no_op
from optkit.ops.core import as_tensor
from optkit.ops.logic import greater_equal, is_finite
from optkit.ops.math import cast, maximum, minimum, select
from optkit.train.accumulation import GradientAccumulationOptimizer
from optkit.train.checks import require
from optkit.train.guard import SELF_GUARDED
from optkit.train.optimizer import Optimizer
from optkit.train.wrapper import OptimizerWrapper
from optkit.variables import Variable

__all__ = [
    "ExponentialUpdateLossScaleManager",
    "FixedLossScaleManager",
    "LossScaleManager",
    "LossScaleOptimizer",
]

_LARGEST = 2.0**127
"""The largest power of two in float32; one more doubling would be infinite."""


class LossScaleManager:
    """What a loss is scaled by, and how that changes; a base class."""

    def get_loss_scale(self) -> Tensor:
        """The scale now: a float32 scalar."""
        raise NotImplementedError(f"{type(self).__name__} has no get_loss_scale")

    def update_loss_scale(self, finite_grads: Tensor) -> Operation:
        """The operation that changes the scale after a run whose gradients were finite, or not."""
        raise NotImplementedError(f"{type(self).__name__} has no update_loss_scale")


class FixedLossScaleManager(LossScaleManager):
    """A scale that stays.

    Args:
        loss_scale: a number above 0; below 1 for gradients that are too large.

    Raises:
        ValueError: it is not above 0.

    Source: tf.contrib.mixed_precision.FixedLossScaleManager, which refuses numbers below 1.
    """

    def __init__(self, loss_scale: float) -> None:
        require("FixedLossScaleManager", "loss_scale", loss_scale, above=0.0, at_most=_LARGEST)
        self._loss_scale = loss_scale

    def get_loss_scale(self) -> Tensor:
        """The scale: a float32 scalar."""
        return as_tensor(self._loss_scale, float32)

    def update_loss_scale(self, finite_grads: Tensor) -> Operation:
        """Nothing."""
        return no_op()


class ExponentialUpdateLossScaleManager(LossScaleManager):
    """A scale that grows while gradients are finite, and shrinks when they are not.

    After `incr_every_n_steps` finite steps in a row s ← min(s·incr_ratio, max_loss_scale); after
    `decr_every_n_nan_or_inf` others s ← max(s·decr_ratio, min_loss_scale). The scale and the two
    counts are variables, saved in checkpoints.

    Args:
        init_loss_scale: the first scale, above 0.
        incr_every_n_steps: finite steps in a row until it grows, at least 1.
        decr_every_n_nan_or_inf: steps that are not finite, in a row, until it shrinks, at least 1.
        incr_ratio: at least 1.
        decr_ratio: above 0 and below 1.
        min_loss_scale: the least scale, above 0; TensorFlow has 1 there, at which a loss that is
            too large itself never becomes finite.
        max_loss_scale: the largest scale.

    Raises:
        ValueError: a number is out of its range.

    Source: tf.contrib.mixed_precision.ExponentialUpdateLossScaleManager.
    """

    def __init__(
        self,
        init_loss_scale: float,
        incr_every_n_steps: int,
        decr_every_n_nan_or_inf: int = 2,
        incr_ratio: float = 2.0,
        decr_ratio: float = 0.8,
        *,
        min_loss_scale: float = 2.0**-24,
        max_loss_scale: float = _LARGEST,
    ) -> None:
        owner = "ExponentialUpdateLossScaleManager"
        require(owner, "min_loss_scale", min_loss_scale, above=0.0)
        require(owner, "max_loss_scale", max_loss_scale, at_least=min_loss_scale, at_most=_LARGEST)
        require(
            owner,
            "init_loss_scale",
            init_loss_scale,
            at_least=min_loss_scale,
            at_most=max_loss_scale,
        )
        require(owner, "incr_every_n_steps", incr_every_n_steps, at_least=1)
        require(owner, "decr_every_n_nan_or_inf", decr_every_n_nan_or_inf, at_least=1)
        require(owner, "incr_ratio", incr_ratio, at_least=1.0)
        require(owner, "decr_ratio", decr_ratio, above=0.0, below=1.0)
        self._incr_every = incr_every_n_steps
        self._decr_every = decr_every_n_nan_or_inf
        self._incr_ratio = incr_ratio
        self._decr_ratio = decr_ratio
        self._least = min_loss_scale
        self._most = max_loss_scale
        with get_default_graph().outside_control_flow():
            self._scale = _variable("loss_scale", init_loss_scale, float32)
            self._good = _variable("loss_scale_good_steps", 0, int64)
            self._bad = _variable("loss_scale_bad_steps", 0, int64)

    def get_loss_scale(self) -> Tensor:
        """The scale now: a float32 scalar."""
        return as_tensor(self._scale)

    def update_loss_scale(self, finite_grads: Tensor) -> Operation:
        """The operation that counts a run, and changes the scale when it is time."""
        with get_default_graph().name_scope("update_loss_scale"):
            zero = zeros_like(as_tensor(self._good))
            good = select(finite_grads, as_tensor(self._good) + 1, zero)
            bad = select(finite_grads, zero, as_tensor(self._bad) + 1)
            grows = greater_equal(good, self._incr_every)
            shrinks = greater_equal(bad, self._decr_every)
            scale = as_tensor(self._scale)
            larger = minimum(scale * self._incr_ratio, self._most)
            smaller = maximum(scale * self._decr_ratio, self._least)
            return group(
                self._scale.assign(select(grows, larger, select(shrinks, smaller, scale))),
                self._good.assign(select(grows, zero, good)),
                self._bad.assign(select(shrinks, zero, bad)),
            )


def _variable(name: str, value: Any, dtype: Any) -> Variable:
    return Variable(value, trainable=False, name=name, dtype=dtype)


class LossScaleOptimizer(OptimizerWrapper):
    """An optimizer whose gradients are those of a scaled loss, scaled back in float32.

        scale = ExponentialUpdateLossScaleManager(2.0**15, 2000, 1, 2.0, 0.5)
        optimizer = LossScaleOptimizer(tf.train.AdamOptimizer(), scale)

    A run in which a gradient is not finite moves nothing: no variable, no slot, no step. That is
    what scales are found by, so `fit` does not call it an error. Keep variables in float32 and
    cast them where they are used: the gradient of a float16 variable is rounded to float16 again.

    Args:
        opt: the optimizer that takes the steps; accumulation goes around this one.
        loss_scale_manager: a `LossScaleManager`, or a number for a scale that stays.

    Raises:
        TypeError: an argument is of another kind, or `opt` adds up the gradients of several runs,
            which would be of several scales.

    Source: tf.contrib.mixed_precision.LossScaleOptimizer.
    """

    def __init__(self, opt: Optimizer, loss_scale_manager: Any) -> None:
        super().__init__(opt, "LossScaleOptimizer")
        inside = opt
        while isinstance(inside, OptimizerWrapper):
            if isinstance(inside, GradientAccumulationOptimizer):
                raise TypeError(
                    f"opt: {inside!r} would add up gradients of different scales; put it around: "
                    "GradientAccumulationOptimizer(LossScaleOptimizer(...), steps)"
                )
            inside = inside.optimizer
        if isinstance(loss_scale_manager, int | float) and not isinstance(loss_scale_manager, bool):
            loss_scale_manager = FixedLossScaleManager(loss_scale_manager)
        if not isinstance(loss_scale_manager, LossScaleManager):
            raise TypeError(
                "loss_scale_manager: expected a LossScaleManager or a number, got "
                f"{loss_scale_manager!r}"
            )
        self._manager: LossScaleManager = loss_scale_manager
        self._flags: dict[Any, Tensor] = {}

    def compute_gradients(
        self,
        loss: Any,
        var_list: Any = None,
        gate_gradients: int = Optimizer.GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> list[tuple[Any, Any]]:
        """The gradients of the loss, computed from that of the scaled one; see Optimizer.

        Raises:
            RuntimeError: eager mode, in which nothing is skipped.
        """
        graph = get_default_graph()
        if graph.eager or (callable(loss) and not is_symbolic(loss)):
            raise RuntimeError("LossScaleOptimizer: works in graph mode, with a loss tensor")
        with graph.all_or_nothing():
            scale = self._manager.get_loss_scale()
            # A float16 loss times the scale might be infinite; its gradient need not be.
            wide = cast(as_tensor(loss), float32) if as_tensor(loss).dtype.size == 2 else loss
            wide = as_tensor(wide)
            seed = cast(scale, wide.dtype)
            if grad_loss is not None:
                seed = seed * cast(as_tensor(grad_loss), wide.dtype)
            elif wide.sizes != ():
                seed = fill(shape(wide), seed)
            pairs = self._optimizer.compute_gradients(
                wide,
                var_list,
                gate_gradients,
                aggregation_method,
                colocate_gradients_with_ops,
                seed,
            )
            with graph.name_scope("unscale"):
                found = [(_over(g, scale), v) for g, v in pairs]
                self._flags[graph] = _all_finite([g for g, _ in found if g is not None])
            return found

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Any]],
        global_step: Any = None,
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
    ) -> Any:
        """Take the step if all gradients are finite, and let the scale follow; see Optimizer."""
        graph = get_default_graph()
        with graph.all_or_nothing():
            pairs = self._checked_pairs(grads_and_vars)
            with graph.outside_control_flow():
                self._optimizer._create_slots([v for _, v in pairs])
            finite = self._flags.get(graph)
            if finite is None:
                finite = _all_finite([g for g, _ in pairs])
            graph.stores.setdefault(SELF_GUARDED, Ledger())[finite.op] = True
            listed = graph.get_collection_ref(GraphKeys.TRAIN_OP)
            before = len(listed)

            def take() -> Any:
                return self._optimizer.apply_gradients(
                    pairs, global_step, name, skip_gradients_aggregation
                )

            with graph.name_scope(self._name):
                chosen = cond(finite, take, no_op, name="step")
                update = self._manager.update_loss_scale(finite)
            del listed[before:]  # what runs in one branch only is no train op
            done: Operation = group(chosen, update, name=name or self._name)
            graph.add_to_collection(GraphKeys.TRAIN_OP, done)
            return done

    def applies_when(self) -> Tensor | None:
        """Whether the gradients computed last are finite."""
        return self._flags.get(get_default_graph())


def _over(gradient: Any, scale: Tensor) -> Any:
    """A gradient divided by the scale, worked out in float32 at least."""
    if gradient is None:
        return None
    if isinstance(gradient, IndexedSlices):
        return IndexedSlices(_over(gradient.values, scale), gradient.indices, gradient.dense_shape)
    if gradient.dtype.size == 2:
        return cast(cast(gradient, float32) / scale, gradient.dtype)
    return gradient / cast(scale, gradient.dtype)


def _all_finite(gradients: list[Any]) -> Tensor:
    values = [g.values if isinstance(g, IndexedSlices) else g for g in gradients]
    return as_tensor(is_finite(global_norm([cast(x, float32) for x in values])))
