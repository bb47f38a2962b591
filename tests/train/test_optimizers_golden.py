"""TensorFlow's numbers for all ten optimizers: variables, slots, names, powers, the step.

The file's `raw_op_cases` are of optimizers of contrib.opt; see tests/contrib/opt.
"""

import inspect
import json
from pathlib import Path

import numpy as np
import pytest

import optkit as tf
from optkit.train.wrapper import OptimizerWrapper

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden" / "optimizers.json").read_text(encoding="utf-8")
)
CASES = {case["id"]: case for case in GOLDEN["cases"]}

TOLERANCE = {
    "float16": {"rtol": 6e-3, "atol": 2e-7},
    "float32": {"rtol": 2e-5, "atol": 2e-6},
    "float64": {"rtol": 1e-9, "atol": 0},
}
# TensorFlow keeps beta powers in float32 beside a float64 variable; optkit in float64.
TOLERANCE_OF = {"adam_sparse_1d_f64": {"rtol": 5e-6, "atol": 0}}

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def hyper_parameters(case):
    """The constructor's arguments, rounded as TensorFlow rounds them on the way to its kernels.

    Defaults are rounded too; start values of slots and switches are as they are.
    """
    signature = inspect.signature(getattr(tf.train, case["optimizer"]))
    defaults = {name: p.default for name, p in signature.parameters.items()}
    as_tensors = case["hyperparameters_as"].startswith("tensor")
    kwargs = {}
    for name, value in (defaults | case["kwargs"]).items():
        if type(value) is not float or name.startswith("initial_"):
            if name in case["kwargs"]:
                kwargs[name] = value
        elif case["dtype"] == "float16":
            kwargs[name] = float(np.float16(value))
        elif as_tensors and name in case["kwargs"]:
            kwargs[name] = tf.constant(value, case["dtype"])
        else:
            kwargs[name] = float(np.float32(value))
    return kwargs


def kinds_of(step):
    """The kinds of a step's gradients: "dense", "sparse" or None, one a variable."""
    return tuple(grad and grad["kind"] for grad in step["grads"])


class Replay:
    """A case built in the default graph, to be run step by step."""

    def __init__(self, case):
        self.case = case
        self.dtype = tf.as_dtype(case["dtype"])
        self.variables = [
            tf.Variable(
                np.reshape(v["initial_value"], v["shape"]).astype(case["dtype"]), name=v["name"]
            )
            for v in case["variables"]
        ]
        kwargs = hyper_parameters(case)
        self.step = None
        if case["initial_state"]["global_step"] is not None:
            start = np.int64(case["initial_state"]["global_step"])
            self.step = tf.Variable(start, trainable=False, name="global_step")
        self.rate = None
        if case["steps"][0]["learning_rate"] is not None:
            self.rate = kwargs["learning_rate"] = tf.placeholder(self.dtype, ())
        cls = getattr(tf.train, case["optimizer"])
        if cls is tf.train.AdagradDAOptimizer:
            kwargs["global_step"] = self.step
        self.optimizer = cls(**kwargs)
        self.train_ops = {}
        for step in case["steps"]:
            kinds = kinds_of(step)
            if kinds not in self.train_ops:
                grads = map(self.fed_gradient, kinds, self.variables)
                pairs = list(zip(grads, self.variables, strict=True))
                self.train_ops[kinds] = self.optimizer.apply_gradients(pairs, self.step), pairs
        self.session = tf.Session()
        self.session.run(tf.global_variables_initializer())

    def fed_gradient(self, kind, variable):
        if kind == "dense":
            return tf.placeholder(self.dtype, variable.shape)
        if kind == "sparse":
            values = tf.placeholder(self.dtype, [None, *variable.shape.as_list()[1:]])
            return tf.IndexedSlices(values, tf.placeholder(tf.int32, [None]))
        return None

    def run(self, step):
        train_op, pairs = self.train_ops[kinds_of(step)]
        feed = {}
        for (grad, _), given in zip(pairs, step["grads"], strict=True):
            if isinstance(grad, tf.IndexedSlices):
                shape = [-1, *grad.values.shape.as_list()[1:]]
                feed[grad.values] = np.reshape(given["values"], shape).astype(self.case["dtype"])
                feed[grad.indices] = given["indices"]
            elif grad is not None:
                shape = grad.shape.as_list()
                feed[grad] = np.reshape(given["values"], shape).astype(self.case["dtype"])
        if self.rate is not None:
            feed[self.rate] = np.asarray(step["learning_rate"], self.case["dtype"])
        if self.case["dtype"] == "float16":
            # TensorFlow reads its float32 powers as float16.
            for name in step["expected"]["non_slot_variables"]:
                power = self.variable(name)
                power.load(np.float32(np.float16(self.session.value(power))), self.session)
        self.session.run(train_op, feed)

    def variable(self, op_name):
        (found,) = [v for v in tf.global_variables() if v.op.name == op_name]
        return found

    def parts(self, state):
        """(what it is, variable, value) for each recorded value of a state."""
        for variable, value in zip(self.variables, state["vars"], strict=True):
            yield variable.op.name, variable, value
        for slot, values in state["slots"].items():
            for variable, value in zip(self.variables, values, strict=True):
                found = self.optimizer.get_slot(variable, slot)
                yield f"{slot} of {variable.op.name}", found, value
        for name, value in state["non_slot_variables"].items():
            yield name, self.variable(name), value
        if self.step is not None:
            yield "global_step", self.step, state["global_step"]

    def load(self, state):
        for _, variable, value in self.parts(state):
            array = np.reshape(value, variable.shape.as_list()).astype(variable.dtype.dtype)
            variable.load(array, self.session)

    def check(self, state):
        tolerance = TOLERANCE_OF.get(self.case["id"], TOLERANCE[self.case["dtype"]])
        for what, variable, value in self.parts(state):
            found = self.session.value(variable)
            assert found.dtype == variable.dtype.dtype
            expected = np.reshape(np.asarray(value, float), found.shape)
            np.testing.assert_allclose(found.astype(float), expected, err_msg=what, **tolerance)

    def check_names(self):
        assert self.optimizer.get_slot_names() == self.case["slot_names"]
        names = [variable.name for variable in self.optimizer.variables()]
        assert names == self.case["optimizer_variable_names"]


@every_case
def test_whole_run_matches_tensorflow(case):
    replay = Replay(case)
    replay.check(case["initial_state"])
    for step in case["steps"]:
        replay.run(step)
        replay.check(step["expected"])
    replay.check_names()


@every_case
def test_each_step_from_the_recorded_state_matches_tensorflow(case):
    replay = Replay(case)
    state = case["initial_state"]
    for step in case["steps"]:
        replay.load(state)
        replay.run(step)
        state = step["expected"]
        replay.check(state)


def test_every_optimizer_has_golden_rows():
    public = {
        name
        for name, value in vars(tf.train).items()
        if inspect.isclass(value)
        and issubclass(value, tf.train.Optimizer)
        and not issubclass(value, OptimizerWrapper)
        and value is not tf.train.Optimizer
    }
    assert {case["optimizer"] for case in CASES.values()} == public


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_every_optimizer_has_dense_and_sparse_rows(kind):
    covered = {
        case["optimizer"]
        for case in CASES.values()
        for step in case["steps"]
        for grad in step["grads"]
        if grad is not None and grad["kind"] == kind
    }
    assert covered == {case["optimizer"] for case in CASES.values()}
