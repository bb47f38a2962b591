"""optimize_loss against TensorFlow's own numbers, with what optkit decides otherwise said aloud."""

import copy
import re

import pytest

import optkit as tf
from tests.contrib.golden import DATA, assert_steps, build_loss, by_id, names

CASES = {case["id"]: case for case in DATA["cases"]}
DEFAULT_SUMMARIES = ["loss", "learning_rate", "global_gradient_norm"]


# -- where optkit decides otherwise: one function a row, from the case's steps to the right ones --


def always_tagged_learning_rate(case, steps):
    """Row 2: the rate is written whenever asked for, first, as <scope>/learning_rate."""
    rate = case["kwargs"]["learning_rate"]
    rate = rate["tensor"] if isinstance(rate, dict) else rate
    return [_with_rate(case, step, rate) for step in steps]


def rate_in_use(case, steps):
    """Row R11: an optimizer that was given whole tells its own rate."""
    rate = case["kwargs"]["optimizer"]["kwargs"]["learning_rate"]
    return [_with_rate(case, step, rate) for step in steps]


def averages_stay_finite(case, steps):
    """Row 9: a non-finite norm leaves both averages as they were, the gradient passes as it is."""
    last = {}
    for step in steps:
        averages = {name: x for name, x in step["after"].items() if "/AdaptiveMaxNorm/" in name}
        last = averages if "nan" not in averages.values() else last
        step["after"] |= last
    return steps


def bare_name_works(case, steps):
    """Row 25: the key w means what w:0 means."""
    twin = CASES["mult_name"]
    assert case["kwargs"]["gradient_multipliers"] == {"w": 7.0}
    assert twin["kwargs"] == case["kwargs"] | {"gradient_multipliers": {"w:0": 7.0}}
    return copy.deepcopy(twin["steps"])


def refused(case, steps):
    """Row 27: a negative threshold is a ValueError."""
    return []


def _with_rate(case, step, rate):
    tag = "OptimizeLoss/learning_rate"
    written = [entry for entry in step["summaries"] if not entry["tag"].startswith(tag)]
    given = [entry for entry in step["summaries"] if entry["tag"].startswith(tag)]
    if "learning_rate" not in case["kwargs"].get("summaries", DEFAULT_SUMMARIES):
        return step
    value = given[0]["value"] if given else rate
    return step | {"summaries": [{"tag": tag, "kind": "scalar", "value": value}, *written]}


ROWS = {
    "2": always_tagged_learning_rate,
    "9": averages_stay_finite,
    "25": bare_name_works,
    "27": refused,
    "R11": rate_in_use,
}


def expected_steps(case):
    """The steps the case should give here; none where optkit refuses it."""
    steps = copy.deepcopy(case["steps"])
    # Row 2 adds to the steps that the other rows put in the place of the reference's.
    rows = set(re.findall(r"row (\w+)", case.get("differs") or ""))
    for row in sorted(rows, key=lambda row: row == "2"):
        steps = ROWS[row](case, steps)
    return steps


# -- building the call ----------------------------------------------------------------------------


def arguments(case, step):
    """The case's keywords as optimize_loss takes them."""
    kwargs = dict(case["kwargs"])
    rate = kwargs["learning_rate"]
    if isinstance(rate, dict):
        kwargs["learning_rate"] = tf.constant(rate["tensor"], tf.float32)
    clip = kwargs.get("clip_gradients")
    if isinstance(clip, dict):
        options = dict(clip["adaptive_clipping_fn"])
        if options.pop("use_global_step", False):
            options["global_step"] = step
        kwargs["clip_gradients"] = tf.contrib.layers.adaptive_clipping_fn(**options)
    if "learning_rate_decay_fn" in kwargs:
        ((name, options),) = kwargs["learning_rate_decay_fn"].items()
        decay = getattr(tf.train, f"{name}_decay")
        kwargs["learning_rate_decay_fn"] = lambda lr, gs: decay(lr, gs, **options)
    kwargs["optimizer"] = optimizer(case["optimizer_form"], kwargs["optimizer"])
    return kwargs


def optimizer(form, given):
    """The optimizer in the form the case names."""
    if form == "string":
        return given
    make, options = getattr(tf.train, given["class"]), given["kwargs"]
    return {
        "class": lambda: make,
        "instance": lambda: make(**options),
        "callable": lambda: lambda lr: make(lr, **options),
        "callable0": lambda: lambda: make(**options),
    }[form]()


def build(case):
    """The train op and the placeholders of a case."""
    loss, feeds = build_loss(case["problem"])
    step = tf.train.get_or_create_global_step() if case["global_step_exists"] else None
    update_ops = None
    if case["update_op"]:
        counter = tf.Variable(0.0, trainable=False, name="counter")
        counted = counter.assign_add(1.0)
        if case["update_op"] != "argument":
            tf.add_to_collection(tf.GraphKeys.UPDATE_OPS, counted)
        update_ops = {"argument": [counted], "ignored": [], "collection": None}[case["update_op"]]
    given = {} if update_ops is None else {"update_ops": update_ops}
    train_op = tf.contrib.layers.optimize_loss(
        loss, step if case["global_step_passed"] else None, **given, **arguments(case, step)
    )
    return train_op, feeds


# -- the tests ------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", **by_id([c for c in CASES.values() if expected_steps(c)]))
def test_optimize_loss_matches_tensorflow(graph, case):
    train_op, feeds = build(case)
    assert train_op.op.name == case["train_op_name"]
    assert names(tf.get_collection(tf.GraphKeys.TRAIN_OP)) == case["train_op_collection"]
    assert [v.op.name for v in tf.global_variables()] == case["variables_in_creation_order"]
    assert [v.op.name for v in tf.trainable_variables()] == case["trainable"]
    assert_steps(train_op, feeds, expected_steps(case))


@pytest.mark.parametrize("case", **by_id([c for c in CASES.values() if not expected_steps(c)]))
def test_optimize_loss_refuses_what_tensorflow_ignores(graph, case):
    with pytest.raises(ValueError, match=r"clip_gradients.*-1\.0"):
        build(case)


def test_every_case_is_run():
    assert len(CASES) == len(DATA["cases"]) == 38
    assert [i for i, case in CASES.items() if not expected_steps(case)] == ["clip_negative_noop"]


def test_the_names_are_tensorflows():
    layers = tf.contrib.layers
    assert sorted(layers.OPTIMIZER_CLS_NAMES) == DATA["meta"]["optimizer_cls_names"]
    assert list(layers.OPTIMIZER_SUMMARIES) == DATA["meta"]["optimizer_summaries"]
