"""What the train ops refuse: which error, what its text names, and that nothing was built.

The table holds every error that the golden data records, under the same API and call, and more.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import optkit as tf
from optkit.errors import ValueOrTypeError
from tests.contrib.golden import DATA
from tests.contrib.models import outline, quadratic

GOLDEN = {(row["api"], row["call"]): row for row in DATA["errors"]}

LATER = {
    "StopAtStepHook",
    "SummarySaverHook",
    "LoggingTensorHook",
    "StepCounterHook",
    "CheckpointSaverHook",
}
"""Of the golden rows, those of hooks: they are tested where the hooks are."""


@dataclass(frozen=True)
class Row:
    """One call that is refused, or accepted where `error` is None.

    `make(model)` builds what the call takes and returns the call. `mentions` are words of the text.
    """

    api: str
    call: str
    error: type[Exception] | tuple[type[Exception], ...] | None
    mentions: tuple[str, ...]
    make: Callable[..., Callable[[], Any]]
    model: Callable[[], Any] = quadratic

    def __str__(self):
        return f"{self.api}: {self.call}"


BOTH = (ValueError, TypeError)
"""The error is of both classes, not of one of them."""


def loss(api, call, error, mentions, replace=None, model=quadratic, **kwargs):
    """A row of optimize_loss: `kwargs`, or what `replace(model)` gives, changes a good call."""

    def make(built):
        good = {"loss": built.loss, "global_step": built.step}
        good |= {"learning_rate": 0.1, "optimizer": "SGD"} | kwargs
        good |= replace(built) if replace else {}
        return lambda: tf.contrib.layers.optimize_loss(**good)

    return Row(api, call, error, mentions, make, model)


def optimizing(call, error, *mentions, replace=None, model=quadratic, **kwargs):
    return loss("optimize_loss", call, error, mentions, replace, model, **kwargs)


def training(call, error, *mentions, replace=None, model=quadratic, **kwargs):
    """A row of create_train_op."""

    def make(built):
        good = {"total_loss": built.loss, "optimizer": tf.train.GradientDescentOptimizer(0.1)}
        good |= kwargs | (replace(built) if replace else {})
        return lambda: tf.contrib.training.create_train_op(**good)

    return Row("create_train_op", call, error, mentions, make, model)


def multiplying(call, error, *mentions, pairs, multipliers):
    """A row of multiply_gradients; `pairs` and `multipliers` are made from the model."""

    def make(built):
        gradient = tf.constant([1.0, 2.0, 3.0])
        given, by = pairs(gradient, built.w), multipliers(built)
        return lambda: tf.contrib.training.multiply_gradients(given, by)

    return Row("multiply_gradients", call, error, mentions, make)


def constructing(call, error, *mentions, api, **kwargs):
    """A row of an optimizer's constructor."""
    required = {"learning_rate": 0.1} | kwargs
    if api == "AdagradDAOptimizer":
        return Row(
            api, call, error, mentions,
            lambda model: lambda: tf.train.AdagradDAOptimizer(global_step=model.step, **required),
        )  # fmt: skip
    return Row(api, call, error, mentions, lambda _: lambda: getattr(tf.train, api)(**required))


def optimizer(call, error, *mentions, make):
    """A row of the base class."""
    return Row("Optimizer", call, error, mentions, make)


def step(call, value, *mentions):
    """A row of optimize_loss with a bad global step, the documented class and the actual one."""
    return optimizing(
        f"global_step={call}", BOTH, "global_step", *mentions,
        replace=lambda _: {"global_step": value()},
    )  # fmt: skip


def no_pairs(grads_and_vars):
    return None


def same_name_twice(model):
    def call():
        tf.contrib.layers.optimize_loss(model.loss, model.step, 0.1, "SGD", name="opt")

    call()
    return call


def with_update_op(_):
    counter = tf.Variable(0.0, trainable=False, name="counter")
    tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, counter.assign_add(1.0))
    return {}


SGD = tf.train.GradientDescentOptimizer

ROWS = [
    # -- optimize_loss, as in the golden data --
    optimizing("loss=None", ValueError, "loss", "None", loss=None),
    optimizing("loss=1.0 (no gradient path)", ValueError, "gradient", "'w'", "'b'", loss=1.0),
    optimizing("loss=[[1.0]]", ValueError, "loss", "(1, 1)", loss=[[1.0]]),
    optimizing(
        "loss int32 tensor", ValueError, "loss", "int32", replace=lambda _: {"loss": tf.constant(1)}
    ),
    step("float64 tensor", lambda: tf.constant(0.0, tf.float64), "float64"),
    step("0 (python int)", lambda: 0, "0"),
    optimizing(
        "decay fn without any global step", ValueError, "global_step", "learning_rate_decay_fn",
        model=lambda: quadratic(step=False), global_step=None,
        learning_rate_decay_fn=lambda lr, gs: lr,
    ),
    optimizing("learning_rate=-0.1", ValueError, "learning_rate", "-0.1", learning_rate=-0.1),
    optimizing("learning_rate=1", None, learning_rate=1),
    optimizing("learning_rate=np.float64(0.1)", None, learning_rate=np.float64(0.1)),
    optimizing("learning_rate=[0.1]", ValueError, "learning_rate", "[0.1]", learning_rate=[0.1]),
    optimizing("learning_rate=True", ValueError, "learning_rate", "True", learning_rate=True),
    optimizing("learning_rate='0.1'", ValueError, "learning_rate", "'0.1'", learning_rate="0.1"),
    optimizing("learning_rate=None, optimizer instance", None,
               learning_rate=None, optimizer=SGD(1.0)),
    optimizing(
        "learning_rate=None, optimizer=AdagradOptimizer class", ValueError, "learning_rate",
        "AdagradOptimizer", learning_rate=None, optimizer=tf.train.AdagradOptimizer,
    ),
    optimizing("optimizer='blah'", ValueError, "optimizer", "'blah'", "Adagrad", optimizer="blah"),
    optimizing("optimizer=3", ValueError, "optimizer", "3", optimizer=3),
    optimizing(
        "optimizer=callable returning None", ValueError, "optimizer", "None",
        optimizer=lambda lr: None,
    ),
    optimizing(
        "optimizer=MomentumOptimizer class", TypeError, "momentum",
        optimizer=tf.train.MomentumOptimizer,
    ),
    optimizing("clip_gradients=True", ValueError, "clip_gradients", "True", clip_gradients=True),
    optimizing("variables=[]", ValueError, "variables: ", variables=[]),
    optimizing(
        "summaries='loss' (a string)", ValueError, "summaries", "loss", "gradient_norm",
        summaries="loss",
    ),
    Row(
        "optimize_loss", "two calls with the same explicit name and a float learning rate",
        ValueError, ("opt/learning_rate",), same_name_twice,
    ),
    # -- optimize_loss, more --
    optimizing("loss of strings", ValueError, "loss", "string", loss="loss"),
    optimizing("loss a vector", ValueError, "loss", "(3,)", replace=lambda m: {"loss": m.w + 0.0}),
    step("'step'", lambda: "step", "'step'"),
    step("vector", lambda: tf.Variable(np.zeros(2, np.int64), trainable=False), "(2,)"),
    step("float variable", lambda: tf.Variable(0.0, trainable=False), "float32"),
    optimizing(
        "global_step=constant", TypeError, "global_step",
        replace=lambda _: {"global_step": tf.constant(3, tf.int64)},
    ),
    optimizing("learning_rate=nan", ValueError, "learning_rate", "nan", learning_rate=float("nan")),
    optimizing("learning_rate=-1", ValueError, "learning_rate", "-1", learning_rate=-1),
    optimizing(
        "learning_rate=np.float32(-0.5)", ValueError, "learning_rate", "-0.5",
        learning_rate=np.float32(-0.5),
    ),
    optimizing("learning_rate=np.bool_", ValueError, "learning_rate", learning_rate=np.bool_(1)),
    optimizing(
        "learning_rate of shape [1]", ValueError, "learning_rate", "(1,)",
        replace=lambda _: {"learning_rate": tf.constant([0.1])},
    ),
    optimizing(
        "learning_rate of unknown rank", ValueError, "learning_rate",
        replace=lambda _: {"learning_rate": tf.placeholder(tf.float32)},
    ),
    optimizing(
        "learning_rate a Variable of shape [1]", ValueError, "learning_rate", "(1,)",
        replace=lambda _: {"learning_rate": tf.Variable([0.1], trainable=False)},
    ),
    optimizing("learning_rate=None, optimizer='SGD'", ValueError, "learning_rate", "'SGD'",
               learning_rate=None),
    optimizing("optimizer='sgd'", ValueError, "optimizer", "'sgd'", "SGD", optimizer="sgd"),
    optimizing("optimizer=None", ValueError, "optimizer", "None", optimizer=None),
    optimizing(
        "optimizer=class of another kind", ValueError, "optimizer", "Strange",
        optimizer=type("Strange", (), {"__init__": lambda self, lr: None}),
    ),
    optimizing("learning_rate of truth", ValueError, "learning_rate", "bool",
               replace=lambda _: {"learning_rate": tf.constant(True)}),
    optimizing("gradient_noise_scale=-1", ValueError, "gradient_noise_scale", "-1",
               gradient_noise_scale=-1),
    optimizing("gradient_noise_scale='1'", TypeError, "gradient_noise_scale", "'1'",
               gradient_noise_scale="1"),
    optimizing(
        "gradient_noise_scale of shape [1]", ValueError, "gradient_noise_scale", "(1,)",
        replace=lambda _: {"gradient_noise_scale": tf.constant([0.1])},
    ),
    optimizing("gradient_multipliers={'w': 'x'}", TypeError, "gradient_multipliers", "'w'",
               gradient_multipliers={"w": "x"}),
    optimizing("gradient_multipliers of another shape", ValueError, "gradient_multipliers", "'b'",
               gradient_multipliers={"b": [1.0, 2.0]}),
    optimizing("clip_gradients=-1", ValueError, "clip_gradients", "-1", clip_gradients=-1),
    optimizing("clip_gradients=nan", ValueError, "clip_gradients", "nan",
               clip_gradients=float("nan")),
    optimizing("clip_gradients='5'", ValueError, "clip_gradients", "'5'", clip_gradients="5"),
    optimizing("clip_gradients=np.bool_", ValueError, "clip_gradients", clip_gradients=np.bool_(0)),
    optimizing(
        "clip_gradients of shape [1]", ValueError, "clip_gradients", "(1,)",
        replace=lambda _: {"clip_gradients": tf.constant([0.1])},
    ),
    optimizing(
        "unknown key of gradient_multipliers", ValueError, "gradient_multipliers", "'v'", "w", "b",
        gradient_multipliers={"v": 2.0},
    ),
    optimizing(
        "a Variable not trained as key of gradient_multipliers", ValueError,
        "gradient_multipliers", "global_step",
        replace=lambda m: {"gradient_multipliers": {m.step: 2.0}},
    ),
    optimizing("variables=[3]", TypeError, "variables: ", "3", variables=[3]),
    optimizing(
        "variables=[tensor of the loss]", NotImplementedError, "Variable", "Tensor",
        replace=lambda m: {"variables": [total := m.w * 2.0], "loss": tf.reduce_sum(total)},
    ),
    optimizing("variables='w'", TypeError, "variables: ", "'w'", variables="w"),
    optimizing(
        "summaries with an unknown name", ValueError, "summaries", "'grads'", "learning_rate",
        "loss", "gradients", "gradient_norm", "global_gradient_norm", summaries=["loss", "grads"],
    ),
    optimizing("summaries=3", TypeError, "summaries", "3", summaries=3),
    optimizing("learning_rate_decay_fn=3", TypeError, "learning_rate_decay_fn", "3",
               learning_rate_decay_fn=3),
    optimizing("learning_rate_decay_fn returns None", TypeError, "learning_rate_decay_fn", "None",
               learning_rate_decay_fn=lambda lr, gs: None),
    optimizing("learning_rate_decay_fn returns a vector", ValueError, "learning_rate_decay_fn",
               "(2,)", learning_rate_decay_fn=lambda lr, gs: lr * [1.0, 2.0]),
    optimizing("gradient_noise_scale=function", TypeError, "gradient_noise_scale", "no_pairs",
               gradient_noise_scale=no_pairs),
    optimizing("gradient_multipliers=[2.0]", ValueError, "gradient_multipliers", "[2.0]",
               gradient_multipliers=[2.0]),
    optimizing("clip_gradients returns []", ValueError, "clip_gradients",
               clip_gradients=lambda pairs: []),
    optimizing("clip_gradients returns None", TypeError, "clip_gradients", "None",
               clip_gradients=lambda pairs: None),
    optimizing("clip_gradients a negative constant", ValueError, "clip_gradients", "-1.0",
               replace=lambda _: {"clip_gradients": tf.constant(-1.0)}),
    optimizing("clip_gradients a tensor of truth", ValueError, "clip_gradients", "bool",
               replace=lambda _: {"clip_gradients": tf.constant(True)}),
    optimizing("update_ops=[3]", TypeError, "update_ops", "3", update_ops=[3]),
    optimizing("update_ops=3", TypeError, "update_ops", "3", update_ops=3),
    # -- create_train_op, as in the golden data --
    training(
        "total_loss unconnected", ValueError, "gradient", "'w'", "'b'",
        replace=lambda _: {"total_loss": tf.constant(1.0)},
    ),
    training("transform_grads_fn returns []", ValueError, "transform_grads_fn",
             transform_grads_fn=lambda pairs: []),
    training(
        "transform_grads_fn returns only None gradients", ValueError, "gradient", "'w'",
        transform_grads_fn=lambda pairs: [(None, v) for _, v in pairs],
    ),
    training(
        "variables_to_train contains a non-trainable variable", ValueError, "variables_to_train",
        "global_step", replace=lambda m: {"variables_to_train": [m.w, m.step]},
    ),
    training("variables_to_train=[]", ValueError, "variables_to_train", variables_to_train=[]),
    training("aggregation_method=99", ValueError, "aggregation_method", "99",
             aggregation_method=99),
    # -- create_train_op, more --
    training("total_loss=None", TypeError, "total_loss", "None", total_loss=None),
    training("total_loss int32 tensor", ValueError, "total_loss", "int32",
             replace=lambda _: {"total_loss": tf.constant(1)}),
    training("transform_grads_fn=3", TypeError, "transform_grads_fn", "3", transform_grads_fn=3),
    training("variables_to_train=[tensor]", TypeError, "variables_to_train", "Tensor",
             replace=lambda m: {"variables_to_train": [m.w + 1.0]}),
    training("variables_to_train=3", TypeError, "variables_to_train", "3", variables_to_train=3),
    training("update_ops=3", TypeError, "update_ops", "3", update_ops=3),
    training("total_loss=1.0", TypeError, "total_loss", "1.0", total_loss=1.0),
    training("optimizer='SGD'", TypeError, "optimizer", "'SGD'", optimizer="SGD"),
    training("optimizer=class", TypeError, "optimizer", optimizer=SGD),
    training("global_step=False", TypeError, "global_step", "False", global_step=False),
    training(
        "global_step=constant", TypeError, "global_step",
        replace=lambda _: {"global_step": tf.constant(3, tf.int64)},
    ),
    training("transform_grads_fn returns None", TypeError, "transform_grads_fn", "None",
             transform_grads_fn=no_pairs),
    training("gate_gradients=3", ValueError, "gate_gradients", "3", gate_gradients=3),
    training("variables_to_train=[3]", TypeError, "variables_to_train", "3",
             variables_to_train=[3]),
    training("update ops are kept", TypeError, "optimizer", replace=with_update_op, optimizer=None),
    # -- multiply_gradients --
    multiplying(
        "gradient_multipliers={}", ValueError, "gradient_multipliers",
        pairs=lambda g, w: [(g, w)], multipliers=lambda _: {},
    ),
    multiplying(
        "None gradient with a multiplier", ValueError, "gradient", "'w'",
        pairs=lambda g, w: [(None, w)], multipliers=lambda _: {"w": 2.0},
    ),
    multiplying(
        "unknown key (ignored)", ValueError, "gradient_multipliers", "'v'", "'w'",
        pairs=lambda g, w: [(g, w)], multipliers=lambda _: {"v": 2.0},
    ),
    multiplying(
        "grads_and_vars no list", ValueError, "grads_and_vars",
        pairs=lambda g, w: {w: g}, multipliers=lambda _: {"w": 2.0},
    ),
    multiplying(
        "gradient_multipliers=None", ValueError, "gradient_multipliers", "None",
        pairs=lambda g, w: [(g, w)], multipliers=lambda _: None,
    ),
    multiplying(
        "gradient_multipliers=[2.0]", ValueError, "gradient_multipliers", "[2.0]",
        pairs=lambda g, w: [(g, w)], multipliers=lambda _: [2.0],
    ),
    # -- optimizers --
    constructing("initial_accumulator_value=0.0", ValueError, "initial_accumulator_value", "0.0",
                 api="ProximalAdagradOptimizer", initial_accumulator_value=0.0),
    constructing("initial_accumulator_value=-1.0", ValueError, "initial_accumulator_value", "-1.0",
                 api="ProximalAdagradOptimizer", initial_accumulator_value=-1.0),
    constructing(
        "initial_gradient_squared_accumulator_value=0.0", ValueError,
        "initial_gradient_squared_accumulator_value", "0.0",
        api="AdagradDAOptimizer", initial_gradient_squared_accumulator_value=0.0,
    ),
    constructing("learning_rate_power=0.5", ValueError, "learning_rate_power", "0.5",
                 api="FtrlOptimizer", learning_rate_power=0.5),
    constructing("initial_accumulator_value=-1.0", ValueError, "initial_accumulator_value", "-1.0",
                 api="FtrlOptimizer", initial_accumulator_value=-1.0),
    constructing("l1_regularization_strength=-1.0", ValueError, "l1_regularization_strength",
                 "-1.0", api="FtrlOptimizer", l1_regularization_strength=-1.0),
    constructing("l2_regularization_strength=-1.0", ValueError, "l2_regularization_strength",
                 "-1.0", api="FtrlOptimizer", l2_regularization_strength=-1.0),
    optimizer("name=''", ValueError, "name", "''", make=lambda m: lambda: SGD(0.1, name="")),
    optimizer(
        "minimize(int32 loss)", ValueError, "loss", "int32",
        make=lambda m: (lambda total: lambda: SGD(0.1).minimize(total))(tf.constant(1)),
    ),
    optimizer("compute_gradients(gate_gradients=3)", ValueError, "gate_gradients", "3",
              make=lambda m: lambda: SGD(0.1).compute_gradients(m.loss, gate_gradients=3)),
    optimizer("apply_gradients([])", ValueError, "grads_and_vars",
              make=lambda m: lambda: SGD(0.1).apply_gradients([])),
    optimizer("apply_gradients([(None, w)])", ValueError, "grads_and_vars", "'w'",
              make=lambda m: lambda: SGD(0.1).apply_gradients([(None, m.w)])),
    optimizer("apply_gradients([(object(), w)])", TypeError, "grads_and_vars", "'w'", "object",
              make=lambda m: lambda: SGD(0.1).apply_gradients([(object(), m.w)])),
    # -- global step --
    Row("create_global_step", "twice", ValueError, ("global_step",),
        lambda m: lambda: tf.train.create_global_step()),
]  # fmt: skip

REFUSED = [row for row in ROWS if row.error is not None]


def follow_up(model):
    """A good call after the bad one: it shows which names are taken."""
    tf.contrib.layers.optimize_loss(model.loss, None, 0.1, "Adam", summaries=["loss"])
    tf.contrib.training.create_train_op(model.loss, tf.train.AdamOptimizer(0.1), None)


def outline_without_the_call(row):
    """What the graph holds when the bad call is left out."""
    with tf.Graph().as_default() as graph:
        model = row.model()
        row.make(model)
        follow_up(model)
        return outline(graph)["operations"]


@pytest.mark.parametrize("row", REFUSED, ids=str)
def test_bad_calls_are_refused_and_leave_no_trace(graph, row):
    model = row.model()
    call = row.make(model)
    before = outline(graph)
    with pytest.raises(row.error) as caught:
        call()
    assert outline(graph) == before
    follow_up(model)
    assert outline(graph)["operations"] == outline_without_the_call(row)
    if row.error is BOTH:
        assert isinstance(caught.value, ValueOrTypeError)


@pytest.mark.parametrize("row", REFUSED, ids=str)
def test_the_text_names_the_argument_and_what_came(graph, row):
    call = row.make(row.model())
    with pytest.raises(row.error) as caught:
        call()
    text = str(caught.value)
    assert [word for word in row.mentions if word not in text] == [], text


@pytest.mark.parametrize("row", [row for row in ROWS if row.error is None], ids=str)
def test_what_once_was_in_doubt_is_accepted(graph, row):
    train_op = row.make(row.model())()
    assert train_op.shape == []


# Where section 0 of the decisions changes the class: everything else is as TensorFlow has it.
OTHER_CLASS = {"AssertionError": ValueError}


def test_every_golden_error_is_in_the_table():
    known = {(row.api, row.call): row for row in ROWS}
    assert {key for key in GOLDEN if key[0] not in LATER} <= known.keys()
    assert {api for api, _ in GOLDEN} >= LATER


@pytest.mark.parametrize("key", [key for key in GOLDEN if key[0] not in LATER], ids=" ".join)
def test_the_classes_are_tensorflows_unless_decided_otherwise(key):
    (row,) = [row for row in ROWS if (row.api, row.call) == key]
    golden = GOLDEN[key]
    if golden.get("differs", "").startswith(("row R10", "row 25")):
        assert (row.error is None) == golden["differs"].startswith("row R10")
        return
    name = golden["exception"]
    if name is None:
        assert row.error is None
        return
    expected = OTHER_CLASS.get(name) or {"ValueError": ValueError, "TypeError": TypeError}[name]
    errors = row.error if isinstance(row.error, tuple) else (row.error,)
    assert expected in errors
