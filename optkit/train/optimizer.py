"""The base of all optimizers: `minimize`, `compute_gradients`, `apply_gradients`, slots.

An optimizer is its equation: it lists its slots by name and says in `update` how a variable and
its slots follow from a gradient. None gradients, rows with duplicates, slot names, dtypes and
step counting are done here, once. Subclasses written for TF1, which override `_apply_dense`,
`_prepare` and so on, work as they do there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from optkit.dtypes import FLOATS, DType, float32, float64
from optkit.global_step import assert_global_step
from optkit.gradients import AggregationMethod, gradients
from optkit.graph import (
    Graph,
    GraphKeys,
    IndexedSlices,
    Operation,
    Tensor,
    get_default_graph,
    is_symbolic,
)
from optkit.initializers import Constant
from optkit.ops.control import group
from optkit.ops.core import Array, ArrayModule, as_tensor, constant
from optkit.ops.sparse import deduplicate
from optkit.ops.update import Equation, try_equation
from optkit.ops.update import update as update_operation
from optkit.runtime import GradientTape
from optkit.train.checks import is_number
from optkit.train.given import as_gradient, listed_variables, require_gradient
from optkit.train.objectives import note_objective
from optkit.train.slots import create_slot
from optkit.variables import Variable

__all__ = ["Optimizer"]

_GradAndVar = tuple[Any, Any]


class Optimizer:
    """An optimizer; `optkit.train` has ten, and users write their own.

    A subclass says what it keeps and how it moves:

        class Lion(optkit.train.Optimizer):
            slots = ("m",)

            def __init__(self, learning_rate=1e-4, beta=0.9, name="Lion"):
                super().__init__(False, name, learning_rate=learning_rate, beta=beta)

            def update(self, xp, w, g, m, *, learning_rate, beta):
                return w - learning_rate * xp.sign(m), beta * m + (1 - beta) * g

    `update` is plain elementwise array arithmetic and changes nothing in place. Sparse gradients
    apply it to the rows they name. Or a subclass overrides TF1's hooks (`_create_slots`,
    `_prepare`, `_apply_dense`, `_apply_sparse`, `_finish`, ...).

    Args:
        use_locking: accepted as in TF; runs are one after another anyway.
        name: the name of the train op and of the slots.
        initial: start values of slots by name; zero where none is given.
        hyper: hyper-parameters of `update`: numbers, scalar Tensors, Variables or callables. They
            are read at every step.

    Raises:
        ValueError: `name` is empty.
        TypeError: `slots` is a string.
    """

    GATE_NONE = 0
    GATE_OP = 1
    GATE_GRAPH = 2

    slots: Sequence[str] = ()
    """The slots of each variable, in the order in which they are created and given to update."""

    decays_all_rows: ClassVar[bool] = False
    """Whether a sparse gradient moves the rows it leaves out too, as in TF's Adam."""

    keeps_left_out_rows: ClassVar[bool] = False
    """With `decays_all_rows`: whether that is true of the slots only, as in TF's Nadam."""

    def __init__(
        self,
        use_locking: bool,
        name: str,
        *,
        initial: Mapping[str, float] | None = None,
        **hyper: Any,
    ) -> None:
        if not name or not isinstance(name, str):
            raise ValueError(f"{type(self).__name__}: name: expected a name, got {name!r}")
        if isinstance(self.slots, str):
            raise TypeError(
                f"{type(self).__name__}.slots: expected a tuple of names, ({self.slots!r},) for "
                f"one, got {self.slots!r}"
            )
        self._use_locking = use_locking
        self._name = name
        self._initial = dict(initial or {})
        self._hyper = hyper
        self._slots: dict[str, dict[Operation, Variable]] = {}
        self._non_slots: dict[tuple[str, Graph], Variable] = {}
        self._prepared: dict[str, Tensor] = {}
        self._tried_ranks: set[int | None] = set()

    # -- what a subclass says ---------------------------------------------------------------

    def update(
        self, xp: ArrayModule, w: Array, g: Array, *slots: Array, **hyper: Array
    ) -> Array | tuple[Array, ...]:
        """The new variable and slots; see the class."""
        raise NotImplementedError(
            f"{type(self).__name__} has no rule: define update(xp, w, g, *slots, **hyper), or "
            "override _apply_dense and _apply_sparse"
        )

    def _step_values(self) -> dict[str, Tensor]:
        """Further arguments of `update` that change from step to step, shape ()."""
        return {}

    def _slot_variable_name(self, slot: str) -> str:
        return self._name

    # -- public -----------------------------------------------------------------------------

    def get_name(self) -> str:
        """The name given at construction."""
        return self._name

    def minimize(
        self,
        loss: Any,
        global_step: Any = None,
        var_list: Any = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        name: str | None = None,
        grad_loss: Any = None,
    ) -> Any:
        """Build one step: `apply_gradients(compute_gradients(loss))`.

        Raises:
            ValueError: no variable has a gradient; the message tells what is in the way.
            TypeError, ValueError: as `compute_gradients` and `apply_gradients`.
        """
        with get_default_graph().all_or_nothing():
            pairs = self.compute_gradients(
                loss,
                var_list,
                gate_gradients,
                aggregation_method,
                colocate_gradients_with_ops,
                grad_loss,
            )
            require_gradient(loss, pairs)
            train_op = self.apply_gradients(pairs, global_step, name)
            if isinstance(train_op, Operation):
                note_objective(train_op, loss)
            return train_op

    def compute_gradients(
        self,
        loss: Any,
        var_list: Any = None,
        gate_gradients: int = GATE_OP,
        aggregation_method: int | None = None,
        colocate_gradients_with_ops: bool = False,
        grad_loss: Any = None,
    ) -> list[tuple[Any, Any]]:
        """The gradient of the loss for each variable, as (gradient, variable) pairs.

        Args:
            loss: a floating tensor, or a function without arguments that computes one (in eager
                mode it must be a function).
            var_list: variables in any nesting. If None: all trainable ones, or for a function
                those that it reads.
            gate_gradients: GATE_NONE, GATE_OP or GATE_GRAPH; runs are deterministic with each.
            aggregation_method: an `AggregationMethod`.
            colocate_gradients_with_ops: record that gradients belong where their operations are.
            grad_loss: weights of the loss's elements, of its shape.

        Returns:
            Pairs in the order of var_list; None where the loss does not depend on the variable.

        Raises:
            TypeError: an item of var_list is no Variable.
            ValueError: gate_gradients is none of the three, the loss or a variable is not
                floating, or there are no variables.
            RuntimeError: in eager mode, the loss is a tensor.
        """
        if gate_gradients not in (0, 1, 2):
            raise ValueError(
                "gate_gradients: expected Optimizer.GATE_NONE, GATE_OP or GATE_GRAPH, got "
                f"{gate_gradients!r}"
            )
        graph = get_default_graph()
        with graph.all_or_nothing():
            if callable(loss) and not is_symbolic(loss):
                pairs = self._by_tape(loss, var_list, grad_loss)
            elif graph.eager:
                raise RuntimeError(
                    f"loss: in eager mode expected a function that computes it, got {loss!r}; or "
                    "take the gradients with GradientTape and call apply_gradients"
                )
            else:
                loss = self._floating("loss", loss)
                if grad_loss is not None:
                    grad_loss = self._floating("grad_loss", grad_loss)
                variables = listed_variables(var_list)
                for variable in variables:
                    self._floating("var_list", variable)
                found = gradients(
                    loss,
                    variables,
                    None if grad_loss is None else [grad_loss],
                    colocate_gradients_with_ops=colocate_gradients_with_ops,
                    gate_gradients=gate_gradients == self.GATE_GRAPH,
                    aggregation_method=aggregation_method or AggregationMethod.DEFAULT,
                )
                pairs = list(zip(found, variables, strict=True))
            for g, v in pairs:
                if g is None and v.op.name not in graph.missing_gradients:
                    graph.missing_gradients.append(v.op.name)
            return pairs

    def apply_gradients(
        self,
        grads_and_vars: Iterable[_GradAndVar],
        global_step: Any = None,
        name: str | None = None,
        skip_gradients_aggregation: bool = False,
    ) -> Any:
        """Build the operation that moves the variables.

        All gradients and hyper-parameters are read before anything is written; then every
        variable is updated, and then `global_step` grows by one.

        Args:
            grads_and_vars: pairs; gradients are tensors, arrays, IndexedSlices or None (skipped).
            global_step: an integer Variable, or None.
            name: the operation's name; the optimizer's if None.
            skip_gradients_aggregation: accepted as in TF 2; gradients are taken as they are.

        Returns:
            The operation; None in eager mode, where the variables have moved already.

        Raises:
            ValueError: there are no pairs, or all gradients are None, or a shape does not fit.
            TypeError: a gradient is no tensor or loses its kind in the variable's dtype, an item
                is no Variable, or global_step cannot be incremented.
            RuntimeError: a sparse gradient for a variable with a constraint, or a subclass that
                does not call `Optimizer.__init__`.
        """
        if not hasattr(self, "_slots"):
            raise RuntimeError(
                f"{type(self).__name__}.__init__ must call super().__init__(use_locking, name)"
            )
        graph = get_default_graph()
        with graph.all_or_nothing(), self._slots_or_nothing():
            pairs = self._checked_pairs(grads_and_vars)
            if global_step is not None:
                assert_global_step(global_step)
                if not hasattr(global_step, "assign_add"):
                    raise TypeError(
                        f"global_step: expected a Variable, got {global_step!r}, which cannot be "
                        "incremented"
                    )
            variables = [v for _, v in pairs]
            with graph.outside_control_flow():
                self._create_slots(variables)
            with graph.name_scope(name or self._name) as scope:
                self._prepared = self._hyper_tensors()
                self._prepare()
                updates = [self._update_one(g, v) for g, v in pairs]
                train_op: Any
                if global_step is None:
                    train_op = self._finish(updates, scope)
                else:
                    with graph.control_dependencies([self._finish(updates, "update")]):
                        train_op = global_step.assign_add(1, name=scope)
            if graph.eager:
                return None  # the variables have moved; there is nothing to run
            done: Operation = train_op.op if isinstance(train_op, Tensor) else train_op
            if done not in graph.get_collection_ref(GraphKeys.TRAIN_OP):
                graph.add_to_collection(GraphKeys.TRAIN_OP, done)
            return done

    def get_slot(self, var: Any, name: str) -> Variable | None:
        """The slot `name` of a variable, None when there is none (yet)."""
        return self._slots.get(name, {}).get(_key(var))

    def get_slot_names(self) -> list[str]:
        """The names of the slots made so far, sorted."""
        return sorted(self._slots)

    def variables(self) -> list[Variable]:
        """All slots and other variables of the optimizer in the current graph, by name."""
        graph = get_default_graph()
        held = [v for slot in self._slots.values() for v in slot.values()]
        held += list(self._non_slots.values())
        return sorted((v for v in held if v.graph is graph), key=lambda v: v.name)

    def learning_rate_tensor(self) -> Tensor | None:
        """The learning rate in use as a tensor, None for an optimizer that does not tell."""
        if "learning_rate" in self._hyper:
            return self._hyper_tensor("learning_rate", self._hyper["learning_rate"])
        return None

    def applies_when(self) -> Tensor | None:
        """A bool tensor: whether the run that takes the last gradients computed moves variables.

        None means always. `optimize_loss` and `create_train_op` write summaries of gradients only
        when it holds.
        """
        return None

    # -- TF1's hooks ------------------------------------------------------------------------

    def _create_slots(self, var_list: Sequence[Variable]) -> None:
        for variable in var_list:
            for slot in self.slots:
                self._get_or_make_slot(
                    variable,
                    Constant(self._initial.get(slot, 0.0)),
                    slot,
                    self._slot_variable_name(slot),
                )

    def _prepare(self) -> None:
        """Called once an apply_gradients, before the updates are built."""

    def _apply_dense(self, grad: Tensor, var: Variable) -> Any:
        return self._by_equation(grad, var)

    def _resource_apply_dense(self, grad: Tensor, handle: Variable) -> Any:
        return self._by_equation(grad, handle)

    def _apply_sparse_duplicate_indices(self, grad: IndexedSlices, var: Variable) -> Any:
        return self._apply_sparse(deduplicate(grad), var)

    def _apply_sparse(self, grad: IndexedSlices, var: Variable) -> Any:
        return self._by_equation(grad, var)

    def _resource_apply_sparse_duplicate_indices(
        self, grad: Tensor, handle: Variable, indices: Tensor
    ) -> Any:
        rows = deduplicate(IndexedSlices(grad, indices))
        return self._resource_apply_sparse(rows.values, handle, rows.indices)

    def _resource_apply_sparse(self, grad: Tensor, handle: Variable, indices: Tensor) -> Any:
        return self._by_equation(IndexedSlices(grad, indices), handle)

    def _finish(self, update_ops: Sequence[Any], name_scope: str) -> Operation:
        return group(*update_ops, name=name_scope)

    def _valid_dtypes(self) -> frozenset[DType]:
        return FLOATS

    def _call_if_callable(self, param: Any) -> Any:
        return param() if callable(param) else param

    def _get_or_make_slot(self, var: Variable, val: Any, slot_name: str, op_name: str) -> Variable:
        made = self._slots.setdefault(slot_name, {})
        key = _key(var)
        if key not in made:
            made[key] = create_slot(var, val, op_name)
        return made[key]

    def _get_or_make_slot_with_initializer(
        self,
        var: Variable,
        initializer: Any,
        shape: Any,
        dtype: Any,
        slot_name: str,
        op_name: str,
    ) -> Variable:
        made = self._slots.setdefault(slot_name, {})
        key = _key(var)
        if key not in made:
            made[key] = create_slot(var, initializer, op_name, shape=shape, dtype=dtype)
        return made[key]

    def _zeros_slot(self, var: Variable, slot_name: str, op_name: str) -> Variable:
        return self._get_or_make_slot(var, Constant(0.0), slot_name, op_name)

    def _slot_dict(self, slot_name: str) -> dict[Operation, Variable]:
        return self._slots.setdefault(slot_name, {})

    def _create_non_slot_variable(
        self, initial_value: Any, name: str, colocate_with: Any = None
    ) -> Variable:
        key = (name, get_default_graph())
        if key not in self._non_slots:
            with get_default_graph().outside_control_flow():
                self._non_slots[key] = Variable(initial_value, trainable=False, name=name)
        return self._non_slots[key]

    def _get_non_slot_variable(self, name: str, graph: Graph | None = None) -> Any:
        return self._non_slots.get((name, graph or get_default_graph()))

    # -- the rest ---------------------------------------------------------------------------

    def _by_tape(self, loss: Callable[[], Any], var_list: Any, grad_loss: Any) -> list[_GradAndVar]:
        """Gradients of a callable loss: of the given variables, else of those that it reads."""
        given = None if var_list is None else listed_variables(var_list)
        with GradientTape() as tape:
            if given is not None:
                tape.watch(given)
            value = self._floating("loss", loss())
        variables = tape.watched_variables() if given is None else given
        if not variables:
            raise ValueError("loss: the function reads no trainable variable")
        for variable in variables:
            self._floating("var_list", variable)
        if grad_loss is not None:
            grad_loss = self._floating("grad_loss", grad_loss)
        return list(zip(tape.gradient(value, variables, grad_loss), variables, strict=True))

    def _floating(self, argument: str, value: Any) -> Any:
        tensor = value if is_symbolic(value) else as_tensor(value)
        if tensor.dtype not in self._valid_dtypes():
            names = ", ".join(sorted(dtype.name for dtype in self._valid_dtypes()))
            raise ValueError(f"{argument}: expected one of {names}, got {tensor!r}")
        return tensor

    def _checked_pairs(self, grads_and_vars: Any) -> list[tuple[Any, Variable]]:
        if not isinstance(grads_and_vars, Iterable):
            raise TypeError(
                f"grads_and_vars: expected (gradient, variable) pairs, got {grads_and_vars!r}"
            )
        given = list(grads_and_vars)
        for pair in given:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise TypeError(
                    f"grads_and_vars: expected (gradient, variable) pairs, got {pair!r} among them"
                )
        if not given:
            raise ValueError("grads_and_vars: expected (gradient, variable) pairs, got none")
        pairs = [(as_gradient(g, v), v) for g, v in given]
        kept = [(g, v) for g, v in pairs if g is not None]
        if not kept:
            names = ", ".join(repr(v.op.name) for _, v in pairs)
            raise ValueError(f"grads_and_vars: no variable has a gradient: {names}")
        return kept

    @contextlib.contextmanager
    def _slots_or_nothing(self) -> Iterator[None]:
        """When the body raises, forget the slots that it made."""
        slots = {name: dict(made) for name, made in self._slots.items()}
        non_slots = dict(self._non_slots)
        try:
            yield
        except BaseException:
            self._slots, self._non_slots = slots, non_slots
            raise

    def _hyper_tensors(self) -> dict[str, Tensor]:
        named = {name: self._hyper_tensor(name, value) for name, value in self._hyper.items()}
        return named | self._step_values()

    def _hyper_tensor(self, name: str, value: Any) -> Tensor:
        value = self._call_if_callable(value)
        if not is_symbolic(value):
            if not is_number(value):
                raise TypeError(f"{self._name}: {name}: expected a number, got {value!r}")
            # Python floats keep all their digits; the update rounds them to the variable's dtype.
            return constant(value, float64, name=name)
        tensor = as_tensor(value)
        if not (tensor.dtype.is_floating or tensor.dtype.is_integer):
            raise TypeError(f"{self._name}: {name}: expected a real dtype, got {tensor!r}")
        if tensor.sizes not in ((), None):
            raise ValueError(f"{self._name}: {name}: expected a scalar, got {tensor!r}")
        return tensor

    def _update_one(self, grad: Any, var: Variable) -> Any:
        graph = var.graph
        with graph.name_scope(f"update_{var.op.name}"), graph.colocate_with(var):
            if isinstance(grad, IndexedSlices):
                if var.constraint is not None:
                    raise RuntimeError(
                        f"variable {var.op.name!r} has a constraint, which a sparse gradient "
                        "cannot obey: it would have to be applied to all rows"
                    )
                if self._overrides("_resource_apply_sparse") and not self._overrides(
                    "_apply_sparse"
                ):
                    return self._resource_apply_sparse_duplicate_indices(
                        grad.values, var, grad.indices
                    )
                return self._apply_sparse_duplicate_indices(grad, var)
            if self._overrides("_resource_apply_dense") and not self._overrides("_apply_dense"):
                done = self._resource_apply_dense(grad, var)
            else:
                done = self._apply_dense(grad, var)
            if var.constraint is None:
                return done
            with graph.control_dependencies([done]):
                return var.assign(var.constraint(var))

    def _overrides(self, hook: str) -> bool:
        return getattr(type(self), hook) is not getattr(Optimizer, hook)

    def _rule(self, var: Variable) -> tuple[Equation, Mapping[str, Tensor]]:
        """The equation of a variable, and what it takes besides arrays."""
        return self.update, self._prepared

    def _by_equation(self, grad: Tensor | IndexedSlices, var: Variable) -> Operation:
        rule, hyper = self._rule(var)
        made = {slot: self.get_slot(var, slot) for slot in self.slots}
        missing = [slot for slot, variable in made.items() if variable is None]
        if missing:
            raise ValueError(f"{self._name}: _create_slots made no slot {missing} for {var!r}")
        # Once is enough: what is wrong with a rule is wrong for every variable of a rank.
        if var.shape.ndims not in self._tried_ranks:
            try_equation(rule, var.op, 1 + len(made), tuple(hyper))
            self._tried_ranks.add(var.shape.ndims)
        return update_operation(
            rule,
            var.op,
            [variable.op for variable in made.values() if variable is not None],
            grad,
            hyper,
            decays_all_rows=self.decays_all_rows,
            keeps_left_out_rows=self.keeps_left_out_rows,
            name=type(self).__name__.removesuffix("Optimizer"),
        )

    def __repr__(self) -> str:
        return f"<optkit.{type(self).__name__} {self._name!r}>"


def power_dtype(variables: Sequence[Variable]) -> DType:
    """The dtype of beta powers: float32, or float64 as soon as one variable is float64."""
    return float64 if any(v.dtype is float64 for v in variables) else float32


def _key(var: Any) -> Operation:
    """What a variable's slots are filed under: names may repeat in eager mode."""
    return var.op  # type: ignore[no-any-return]
