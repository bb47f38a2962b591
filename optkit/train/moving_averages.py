"""Moving averages of variables and tensors, as tf.train.ExponentialMovingAverage."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from optkit.dtypes import FLOATS, DType, float64
from optkit.graph import (
    GraphKeys,
    Operation,
    Tensor,
    get_default_graph,
    get_default_session,
    is_symbolic,
)
from optkit.initializers import zeros_initializer
from optkit.ops import state
from optkit.ops.control import group
from optkit.ops.core import as_tensor, constant
from optkit.ops.math import cast, divide, minimum, pow
from optkit.runtime import Session, SessionState
from optkit.train.checks import is_number
from optkit.train.slots import create_slot, create_zeros_slot
from optkit.variable_scope import get_variable, variable_scope
from optkit.variables import (
    Variable,
    global_variables,
    moving_average_variables,
    trainable_variables,
)

__all__ = ["ExponentialMovingAverage", "assign_moving_average", "weighted_moving_average"]


def assign_moving_average(
    variable: Variable, value: Any, decay: Any, zero_debias: bool = True, name: str | None = None
) -> Tensor:
    """Move a variable towards a value: x ← x - (1 - decay)·(x - value); gives x right after.

    With `zero_debias` the variable must start at 0, and that start is taken out: two further
    variables hold the biased average b and the number of updates t, and x ← b / (1 - decay^t)
    (Kingma & Ba, arXiv:1412.6980, section 3).

    Args:
        variable: the floating variable x.
        value: a tensor of its shape and dtype.
        decay: a number or a scalar tensor in [0, 1]; full precision for float64 variables.
        zero_debias: see above.
        name: the operation's name.

    Raises:
        TypeError, ValueError: the value does not fit the variable.
    """
    graph = variable.graph
    with graph.as_default(), graph.all_or_nothing():
        terms = _debiasing(variable) if zero_debias else None
        return _moved(variable, value, decay, terms, name)


def _debiasing(variable: Variable) -> tuple[Variable, Variable]:
    """The biased average and the count of updates that go with an average."""
    biased = create_zeros_slot(variable, "biased")
    return biased, create_slot(variable, zeros_initializer(), "local_step", shape=())


def _moved(
    variable: Variable,
    value: Any,
    decay: Any,
    debiasing: tuple[Variable, Variable] | None,
    name: str | None = None,
) -> Tensor:
    with variable.graph.name_scope(name or "AssignMovingAvg") as scope:
        value = as_tensor(value, variable.dtype, "value")
        rate = _rate(decay, variable.dtype)
        if debiasing is None:
            change = (variable - value) * rate
            return state.assign_sub(variable.op, change, scope)
        biased, local_step = debiasing
        average = state.assign_sub(biased.op, (biased - value) * rate)
        count = state.assign_add(local_step.op, 1)
        return state.assign(variable.op, average / (1 - pow(1 - rate, count)), scope)


def _rate(decay: Any, dtype: DType) -> Tensor:
    """1 - decay, worked out before it is rounded to `dtype`."""
    if isinstance(decay, int | float | np.number | np.ndarray):
        return constant(np.asarray(1.0 - decay).astype(dtype.dtype), name="decay")
    rate: Tensor = 1.0 - as_tensor(decay, name="decay")
    return as_tensor(cast(rate, dtype))


def weighted_moving_average(
    value: Any,
    decay: Any,
    weight: Any,
    truediv: bool = True,
    collections: Iterable[str] | None = None,
    name: str | None = None,
) -> Tensor:
    """The average of `value`, each counted by its `weight`: avg(value·weight) / avg(weight).

    Both averages start at 0, which the quotient cancels. `truediv` is TF1's choice between two
    divisions that agree on floats; the two averages are variables of a scope `name`.

    Raises:
        TypeError, ValueError: `value` and `weight` do not fit each other.
    """
    with variable_scope(name, "WeightedMovingAvg", [value, weight, decay]) as scope:
        value = as_tensor(value)
        weight = as_tensor(weight, value.dtype)
        averages = []
        for label, part in (("value_x_weight", value * weight), ("weight", weight)):
            average = get_variable(
                label,
                part.shape,
                part.dtype,
                initializer=zeros_initializer(),
                trainable=False,
                collections=collections,
            )
            averages.append(assign_moving_average(average, part, decay, zero_debias=False))
        total, weights = averages
        return divide(total, weights, name=scope.original_name_scope)


class ExponentialMovingAverage:
    """Shadow variables that follow variables or tensors: x̄ ← x̄ - (1 - d)·(x̄ - x).

    d is `decay`, or with `num_updates` n the smaller of `decay` and (1 + n) / (10 + n), so that
    early averages move fast. The shadow of a Variable starts at its initial value, that of a
    Tensor at 0.

    Args:
        decay: a number in [0, 1], or a scalar tensor.
        num_updates: the number of updates so far, e.g. the global step.
        zero_debias: take the start at 0 out of the averages of Tensors; see
            `assign_moving_average`.
        name: the last part of the shadows' names, and the name of the operation.

    Raises:
        TypeError: `decay` is neither a number nor a tensor.
        ValueError: `decay` is outside [0, 1].
    """

    def __init__(
        self,
        decay: Any,
        num_updates: Any = None,
        zero_debias: bool = False,
        name: str = "ExponentialMovingAverage",
    ) -> None:
        if not is_symbolic(decay):
            expected = "decay: expected a number in [0, 1] or a scalar tensor"
            if not is_number(decay):
                raise TypeError(f"{expected}, got {decay!r}")
            if not 0 <= decay <= 1:
                raise ValueError(f"{expected}, got {decay!r}")
        self._decay = decay
        self._num_updates = num_updates
        self._zero_debias = zero_debias
        self._name = name
        self._averages: dict[Variable | Tensor, Variable] = {}
        self._debiasing: dict[Variable, tuple[Variable, Variable]] = {}
        self._swapped: list[Session | None] = []

    def __repr__(self) -> str:
        return f"<optkit.ExponentialMovingAverage {self._name!r} decay={self._decay}>"

    @property
    def name(self) -> str:
        """The name given to the constructor."""
        return self._name

    def apply(self, var_list: Iterable[Variable | Tensor] | None = None) -> Operation:
        """An operation that updates the averages of `var_list` (the trainable variables if None).

        It makes the shadows that are missing. Run it after the update that it is to follow: build
        it under `control_dependencies([train_op])`.

        Raises:
            TypeError: an item is no Variable or Tensor, or not floating.
        """
        items = trainable_variables() if var_list is None else list(var_list)
        graph = get_default_graph()
        before = self._averages, self._debiasing
        try:
            with graph.all_or_nothing():
                self.start(items)
                with graph.name_scope(self._name) as scope:
                    decay = self._current_decay()
                    averages = [self._averages[item] for item in items]
                    updates = [
                        _moved(average, item, decay, self._debiasing.get(average))
                        for item, average in zip(items, averages, strict=True)
                    ]
                    return group(*updates, name=scope)
        except BaseException:
            self._averages, self._debiasing = before
            raise

    def start(self, var_list: Iterable[Variable | Tensor] | None = None) -> None:
        """Make the averages that are missing, as `apply` does; in eager mode they start now.

        Raises:
            TypeError: as `apply`.
        """
        items = trainable_variables() if var_list is None else list(var_list)
        for item in items:
            if not isinstance(item, Variable | Tensor):
                raise TypeError(f"var_list: expected Variables or Tensors, got {item!r}")
            if item.dtype not in FLOATS:
                raise TypeError(f"var_list: expected floating dtypes, got {item!r}")
        averages, debiasing = dict(self._averages), dict(self._debiasing)
        with get_default_graph().all_or_nothing():
            for item in items:
                if item not in averages:
                    averages[item] = average = self._shadow(item)
                    if self._zero_debias and isinstance(item, Tensor):
                        debiasing[average] = _debiasing(average)
        self._averages, self._debiasing = averages, debiasing

    def _shadow(self, item: Variable | Tensor) -> Variable:
        if isinstance(item, Tensor):
            return create_zeros_slot(item, self._name)
        item.graph.add_to_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, item)
        return create_slot(item, item.initialized_value(), self._name)

    def _current_decay(self) -> Any:
        if self._num_updates is None:
            return self._decay
        updates = cast(self._num_updates, float64, name="num_updates")
        decay = cast(self._decay, float64, name="decay")
        return minimum(decay, (1.0 + updates) / (10.0 + updates))

    def average(self, var: Variable | Tensor) -> Variable | None:
        """The shadow variable of `var`, None when `apply` has not been called with it."""
        return self._averages.get(var)

    def average_name(self, var: Variable | Tensor) -> str:
        """The name of the shadow's operation, which need not be there yet."""
        average = self._averages.get(var)
        if average is not None:
            return average.op.name
        return var.graph.unique_name(
            f"{var.op.name}/{self._name}", mark_as_used=False, absolute=True
        )

    def variables_to_restore(
        self, moving_avg_variables: Iterable[Variable] | None = None
    ) -> dict[str, Variable]:
        """What to give a Saver so that variables get their averages: name in the file -> variable.

        Args:
            moving_avg_variables: those that have averages; if None the trainable ones and those
                of MOVING_AVERAGE_VARIABLES. All other global variables keep their own names.
        """
        if moving_avg_variables is None:
            moving_avg_variables = trainable_variables() + moving_average_variables()
        averaged = list(dict.fromkeys(moving_avg_variables))
        restored = {self.average_name(variable): variable for variable in averaged}
        for variable in global_variables():
            if variable not in averaged:
                restored.setdefault(variable.op.name, variable)
        return restored

    @contextlib.contextmanager
    def swapped(
        self, session: Any = None, var_list: Iterable[Variable] | None = None
    ) -> Iterator[None]:
        """Evaluate with averages: in the block each variable and its average change places.

            with averages.swapped(session):
                accuracy = session.run(accuracy, feeds)

        All change places at once and bit for bit, and change back at the end, whether or not the
        block raised. It adds nothing to the graph, which may be finalized. A checkpoint that is
        saved in the block has the averages under the variables' names.

        Args:
            session: the session that holds them; the default one if None. Nothing in eager mode.
            var_list: the Variables to swap; all that have an average if None.

        Raises:
            TypeError: `session` is no Session.
            ValueError: there is no session, or a variable of `var_list` has no average.
            RuntimeError: they are swapped already.
            FailedPreconditionError: a variable holds no value.
        """
        pairs = self._pairs(var_list)
        held = None if any(v.graph.eager for v, _ in pairs) else _session(session)
        if held is not None and var_list is None:
            pairs = [(v, average) for v, average in pairs if v.graph is held.graph]
        if any(held is other for other in self._swapped):
            raise RuntimeError("session: its variables and averages are swapped already")
        _swap(held, pairs)
        self._swapped.append(held)
        try:
            yield
        finally:
            self._swapped.remove(held)
            _swap(held, pairs)

    def _pairs(self, var_list: Iterable[Variable] | None) -> list[tuple[Variable, Variable]]:
        """Variables and their averages."""
        if var_list is None:
            return [(v, a) for v, a in self._averages.items() if isinstance(v, Variable)]
        pairs = []
        for variable in dict.fromkeys(var_list):
            average = self._averages.get(variable)
            if average is None or not isinstance(variable, Variable):
                raise ValueError(f"var_list: expected Variables with averages, got {variable!r}")
            pairs.append((variable, average))
        return pairs


def _session(session: Any) -> Session:
    """The session that holds the variables."""
    if session is None:
        session = get_default_session()
        if session is None:
            raise ValueError("session: expected one, got None, and there is no default session")
    raw = getattr(session, "raw_session", None)
    found = raw() if callable(raw) else session
    if not isinstance(found, Session):
        raise TypeError(f"session: expected a Session, got {session!r}")
    return found


def _swap(session: Session | None, pairs: list[tuple[Variable, Variable]]) -> None:
    """Exchange the values of variables and averages, all at once."""
    if session is None:
        values = [(v.numpy(), average.numpy()) for v, average in pairs]
        for (variable, average), (own, other) in zip(pairs, values, strict=True):
            variable.assign(other)
            average.assign(own)
        return
    names = {v.op.name: average.op.name for v, average in pairs}
    names |= {average: variable for variable, average in names.items()}
    values_of = session.export_state(list(names)).variables
    session.import_state(SessionState({name: values_of[other] for name, other in names.items()}))
