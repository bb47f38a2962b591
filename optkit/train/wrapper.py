"""Optimizers around an optimizer: what they leave to it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from optkit.graph import Tensor
from optkit.train.optimizer import Optimizer
from optkit.variables import Variable

__all__ = ["OptimizerWrapper"]


class OptimizerWrapper(Optimizer):
    """An optimizer that leaves gradients, slots and the rate to the one it is around.

    Subclasses say in `compute_gradients` and `apply_gradients` what they do besides.

    Raises:
        TypeError: `optimizer` is no Optimizer.
    """

    def __init__(self, optimizer: Optimizer, name: str) -> None:
        inner: Any = optimizer
        if not isinstance(inner, Optimizer):
            raise TypeError(f"{name}: optimizer: expected an Optimizer, got {inner!r}")
        super().__init__(False, name)
        self._optimizer = optimizer

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer inside."""
        return self._optimizer

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Any]]:
        """As the optimizer inside."""
        return self._optimizer.compute_gradients(*args, **kwargs)

    def get_slot(self, var: Any, name: str) -> Variable | None:
        """A slot of its own, else of the optimizer inside."""
        own = super().get_slot(var, name)
        return self._optimizer.get_slot(var, name) if own is None else own

    def get_slot_names(self) -> list[str]:
        """The names of its own slots and of those of the optimizer inside, sorted."""
        return sorted({*super().get_slot_names(), *self._optimizer.get_slot_names()})

    def variables(self) -> list[Variable]:
        """Its own variables and those of the optimizer inside, by name."""
        both = [*super().variables(), *self._optimizer.variables()]
        return sorted(both, key=lambda v: v.name)

    def learning_rate_tensor(self) -> Tensor | None:
        """The rate in use by the optimizer inside."""
        return self._optimizer.learning_rate_tensor()

    def applies_when(self) -> Tensor | None:
        """As the optimizer inside."""
        return self._optimizer.applies_when()

    def _create_slots(self, var_list: Sequence[Variable]) -> None:
        self._optimizer._create_slots(var_list)

    @contextlib.contextmanager
    def _slots_or_nothing(self) -> Iterator[None]:
        with super()._slots_or_nothing(), self._optimizer._slots_or_nothing():
            yield

    def __repr__(self) -> str:
        return f"<optkit.{type(self).__name__} {self._name!r} around {self._optimizer!r}>"
