"""The summaries of a training step: norms, gradients, variables and updates.

A gradient that is a product g·f with a scalar f, as clipping makes them, is measured as |f|·‖g‖
and counted as f·g on the fly: the product itself is then needed by the optimizer alone, whose
kernel multiplies as it goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from optkit import summary
from optkit.dtypes import float32
from optkit.graph import IndexedSlices, Operation, Tensor, get_default_graph
from optkit.ops.clip import global_norm
from optkit.ops.core import as_tensor
from optkit.ops.logic import equal, is_finite, logical_not
from optkit.ops.math import abs as absolute
from optkit.ops.math import cast, div_no_nan, select
from optkit.ops.nn import zero_fraction
from optkit.ops.reductions import reduce_sum
from optkit.ops.sparse import deduplicate
from optkit.ops.update import UPDATE, update_norm
from summaries.quantities import EXTRA_SUMMARIES, quantity_metadata
from summaries.tags import clean_tag

__all__ = ["Norms", "StepSummaries", "factored", "merged_rows"]

_Pairs = Sequence[tuple[Any, Any]]


def merged_rows(pairs: _Pairs) -> list[tuple[Any, Any]]:
    """The pairs, rows that a sparse gradient names twice added up: measured and applied alike."""
    return [(deduplicate(g) if isinstance(g, IndexedSlices) else g, v) for g, v in pairs]


def factored(gradient: Any) -> tuple[Any, Tensor | None]:
    """A gradient as one to be multiplied by a scalar tensor; the latter None where there is none.

    Half precision is left whole: the product is rounded.
    """
    values = gradient.values if isinstance(gradient, IndexedSlices) else as_tensor(gradient)
    node = values.op
    if node.kind.name != "Mul" or values.dtype.size < 4:
        return gradient, None
    base, factor = node.inputs
    if factor.sizes != () or base.sizes is None or base.shape != values.shape:
        return gradient, None
    if isinstance(gradient, IndexedSlices):
        return IndexedSlices(base, gradient.indices, gradient.dense_shape), factor
    return base, factor


class Norms:
    """Norms of gradients, rows merged: each built once."""

    def __init__(self) -> None:
        self._built: dict[tuple[Tensor, ...], Tensor] = {}
        self._magnitudes: dict[Tensor, Tensor] = {}

    def of(self, gradients: Sequence[Any]) -> Tensor:
        """The norm of gradients together; None is left out."""
        parts = [factored(gradient) for gradient in gradients if gradient is not None]
        factors = {factor for _, factor in parts}
        if len(factors) == 1 and None not in factors:
            (factor,) = factors
            assert factor is not None
            if factor not in self._magnitudes:
                self._magnitudes[factor] = absolute(factor)
            return self._norm([base for base, _ in parts]) * self._magnitudes[factor]  # type: ignore[no-any-return]
        return self._norm([gradient for gradient in gradients if gradient is not None])

    def _norm(self, gradients: Sequence[Any]) -> Tensor:
        values = tuple(
            gradient.values if isinstance(gradient, IndexedSlices) else as_tensor(gradient)
            for gradient in gradients
        )
        if values not in self._built:
            self._built[values] = global_norm(list(gradients))
        return self._built[values]


class StepSummaries:
    """Builds the summaries of one training step under a scope; see `optimize_loss`.

    Args:
        prefix: comes before each tag: "OptimizeLoss/".
        wanted: names out of OPTIMIZER_SUMMARIES and EXTRA_SUMMARIES.
    """

    def __init__(self, prefix: str, wanted: set[str]) -> None:
        self._prefix = prefix
        self._wanted = wanted
        self._norms = Norms()

    @property
    def norms(self) -> bool:
        """Whether the global norm is wanted, before and after clipping."""
        return not self._wanted.isdisjoint({"gradient_norm", "global_gradient_norm"})

    @property
    def measures(self) -> bool:
        """Whether anything of the gradients is wanted."""
        return self.norms or not self._wanted.isdisjoint({"gradients", *EXTRA_SUMMARIES})

    def norm(self, pairs: _Pairs) -> Tensor:
        """The norm of all gradients together."""
        return self._norms.of([gradient for gradient, _ in pairs])

    def scalar(self, quantity: str, value: Any) -> None:
        """A number of the whole step, if it is wanted."""
        name = "global_gradient_norm" if quantity.startswith("global_norm/") else quantity
        if name in self._wanted or (name == "global_gradient_norm" and self.norms):
            tag = self._prefix + quantity
            summary.tagged_scalar(tag, value, quantity_metadata(quantity))

    # -- variables ----------------------------------------------------------------------------

    def gradients(self, pairs: _Pairs) -> None:
        """The gradients as they are given to the optimizer, and their norms."""
        for gradient, variable in pairs:
            if gradient is None:
                continue
            counts = None
            if "gradients" in self._wanted:
                base, factor = factored(gradient)
                values = base.values if isinstance(base, IndexedSlices) else as_tensor(base)
                counts = self._histogram("gradients", variable, values, factor)
            if "gradient_norm" in self._wanted:
                self._scalar("gradient_norm", variable, self._norms.of([gradient]), counts)

    def clipping(self, before: _Pairs, after: _Pairs) -> None:
        """How much of each gradient's norm clipping took away."""
        if "clip_fraction" not in self._wanted:
            return
        unclipped = {variable.op: gradient for gradient, variable in before}
        for gradient, variable in after:
            original = unclipped.get(variable.op)
            if gradient is None or original is None:
                continue
            norm = self._norms.of([original])
            kept = self._norms.of([gradient]) / norm
            self._scalar("clip_fraction", variable, select(equal(norm, 0), 0, 1 - kept))

    def nonfinite(self, pairs: _Pairs) -> None:
        """How many elements of each gradient are NaN or infinite."""
        if "nonfinite" not in self._wanted:
            return
        for gradient, variable in pairs:
            if gradient is not None:
                values = gradient.values if isinstance(gradient, IndexedSlices) else gradient
                bad = cast(logical_not(is_finite(as_tensor(values))), float32)
                self._scalar("nonfinite", variable, reduce_sum(bad))

    def variables(self, pairs: _Pairs) -> None:
        """The variables before the step."""
        for gradient, variable in pairs:
            if gradient is None:
                continue
            counts = None
            if "weights" in self._wanted:
                counts = self._histogram("weights", variable, as_tensor(variable), None)
            if "weight_norm" in self._wanted:
                self._scalar("weight_norm", variable, self._norms.of([variable]), counts)
            if "sparsity" in self._wanted:
                self._scalar("sparsity", variable, zero_fraction(variable))

    def updates(self, pairs: _Pairs, applied: Operation, first: int) -> None:
        """How far the step moves each variable.

        Args:
            pairs: what was applied.
            applied: the operation that applies it.
            first: the index of the first operation that applying built.
        """
        if "update_ratio" not in self._wanted:
            return
        graph = get_default_graph()
        writers: dict[Operation, list[Operation]] = {}
        for op in graph.get_operations()[first:]:
            if op.kind.access == "write":
                for written in op.variables:
                    writers.setdefault(written, []).append(op)
        for gradient, variable in pairs:
            if gradient is None:
                continue
            made = writers.get(variable.op, [])
            if len(made) == 1 and made[0].kind is UPDATE and made[0].branch is graph.branch:
                change = update_norm(made[0])
            else:  # by operations of the optimizer's own, or by several: a decay apart, say
                before = as_tensor(variable)
                with graph.control_dependencies([applied]):
                    after = as_tensor(variable)
                change = global_norm([after - before])
            ratio = div_no_nan(change, cast(self._norms.of([variable]), change.dtype))
            self._scalar("update_ratio", variable, ratio)

    # -- tags ---------------------------------------------------------------------------------

    def _scalar(
        self, quantity: str, variable: Any, value: Any, norm_of: Tensor | None = None
    ) -> None:
        metadata = quantity_metadata(quantity, variable.op.name)
        summary.tagged_scalar(self._tag(quantity, variable), value, metadata, norm_of)

    def _histogram(
        self, quantity: str, variable: Any, values: Tensor, scale: Tensor | None
    ) -> Tensor:
        metadata = quantity_metadata(quantity, variable.op.name)
        return summary.tagged_histogram(self._tag(quantity, variable), values, scale, metadata)

    def _tag(self, quantity: str, variable: Any) -> str:
        return clean_tag(f"{self._prefix}{quantity}/{variable.name}")
