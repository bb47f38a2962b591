"""Arguments, defaults and names are TensorFlow 1.15's; what is out of range is refused."""

import inspect
import math

import numpy as np
import pytest

import optkit as tf
from tests.train.rules import started

O = tf.contrib.opt  # noqa: E741

ADAM = {
    **{"learning_rate": 0.001, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8},
    "use_locking": False,
}
NEEDED = inspect.Parameter.empty
SIGNATURES = {
    "AdaMaxOptimizer": ADAM | {"name": "AdaMax"},
    "NadamOptimizer": ADAM | {"name": "Adam"},
    "LazyAdamOptimizer": ADAM | {"name": "Adam"},
    "AMSGradOptimizer": ADAM | {"name": "AMSGrad"},
    "AdamWOptimizer": {"weight_decay": NEEDED} | ADAM | {"name": "AdamW"},
    "MomentumWOptimizer": {
        **{"weight_decay": NEEDED, "learning_rate": NEEDED, "momentum": NEEDED},
        **{"use_locking": False, "name": "MomentumW", "use_nesterov": False},
    },
    "AddSignOptimizer": {
        **{"learning_rate": 0.1, "alpha": 1.0, "beta": 0.9, "sign_decay_fn": None},
        **{"use_locking": False, "name": "AddSignOptimizer"},
    },
    "PowerSignOptimizer": {
        **{"learning_rate": 0.1, "base": math.e, "beta": 0.9, "sign_decay_fn": None},
        **{"use_locking": False, "name": "PowerSignOptimizer"},
    },
    "MovingAverageOptimizer": {
        **{"opt": NEEDED, "average_decay": 0.9999, "num_updates": None},
        "sequential_update": True,
    },
    "LionOptimizer": {
        **{"learning_rate": 1e-4, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0},
        **{"use_locking": False, "name": "Lion"},
    },
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_arguments_have_their_names_order_and_defaults(name):
    parameters = inspect.signature(getattr(O, name)).parameters
    assert [(key, p.default) for key, p in parameters.items()] == list(SIGNATURES[name].items())


def test_every_optimizer_has_a_row():
    optimizers = {name for name in O.__all__ if name.endswith("Optimizer")}
    assert optimizers == SIGNATURES.keys()


@pytest.mark.parametrize(
    ("make", "adam"),
    [
        (O.AdaMaxOptimizer, True),
        (O.NadamOptimizer, True),
        (O.LazyAdamOptimizer, True),
        (O.AMSGradOptimizer, True),
        (lambda: O.AdamWOptimizer(0.1), True),
        (O.LionOptimizer, False),
    ],
)
def test_variants_of_adam_are_subclasses_of_it(make, adam):
    assert isinstance(make(), tf.train.AdamOptimizer) == adam


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (O.AdaMaxOptimizer, ["beta1_power", "w/AdaMax", "w/AdaMax_1"]),
        (O.NadamOptimizer, ["beta1_power", "beta2_power", "w/Adam", "w/Adam_1"]),
        (
            O.AMSGradOptimizer,
            ["beta1_power", "beta2_power", "w/AMSGrad", "w/AMSGrad_1", "w/AMSGrad_2"],
        ),
        (O.AddSignOptimizer, ["w/AddSignOptimizer"]),
        (O.LionOptimizer, ["w/Lion"]),
        (lambda: O.MomentumWOptimizer(0.1, 0.1, 0.9), ["w/MomentumW"]),
    ],
)
def test_variables_have_tfs_names(make, names):
    w = tf.Variable(1.0, name="w")
    optimizer = make()
    optimizer.minimize(w * w)
    assert [v.op.name for v in optimizer.variables()] == names


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: O.AdaMaxOptimizer(beta1=1.0), "AdaMax: beta1: expected >= 0 and < 1"),
        (lambda: O.NadamOptimizer(epsilon=-1.0), "epsilon: expected >= 0"),
        (lambda: O.AMSGradOptimizer(math.nan), "learning_rate: expected a number"),
        (lambda: O.LionOptimizer(beta2=-0.1), "Lion: beta2: expected >= 0 and < 1"),
        (lambda: O.LionOptimizer(weight_decay=-1.0), "weight_decay: expected >= 0"),
        (lambda: O.AddSignOptimizer(beta=1.0), "beta: expected >= 0 and < 1"),
        (lambda: O.PowerSignOptimizer(base=0.0), "base: expected > 0"),
    ],
)
def test_what_is_out_of_range_is_refused(make, text):
    with pytest.raises(ValueError, match=text):
        make()


@pytest.mark.parametrize("base", [2.0, lambda: 2.0, "tensor", "variable"])
def test_the_base_of_power_sign_may_be_what_other_values_may(base):
    if base == "tensor":
        base = tf.constant(2.0)
    if base == "variable":
        base = tf.Variable(2.0, trainable=False)
    w = tf.Variable(np.float64(0.0))
    train_op = O.PowerSignOptimizer(0.5, base).apply_gradients([(3.0, w)])
    session = started()
    session.run(train_op)
    np.testing.assert_allclose(session.value(w), -3.0, rtol=1e-12)
