"""create_train_op against TensorFlow's own numbers."""

import copy

import numpy as np
import pytest

import optkit as tf
from tests.contrib.golden import DATA, assert_steps, build_loss, by_id, names

CASES = DATA["create_train_op_cases"]


def merged_rows(case):
    """Row R6 of clip_sparse: rows named twice are added up before the norm is taken."""
    rate = case["optimizer"]["kwargs"]["learning_rate"]
    limit = case["transform"]["clip_gradient_norms_fn"]
    emb = np.asarray(DATA["problems"]["embedding"]["variables"]["emb"])
    steps = copy.deepcopy(case["steps"])
    for step in steps:
        step["train_op_value"] = (emb[step["feed"]["idx"]] ** 2).sum()
        rows, counts = np.unique(step["feed"]["idx"], return_counts=True)
        values = 2 * emb[rows] * counts[:, np.newaxis]
        values *= limit / max(np.linalg.norm(values), limit)
        emb[rows] -= rate * values
        moments = {"num": values.size, "min": values.min(), "max": values.max()}
        moments |= {"sum": values.sum(), "sum_squares": (values**2).sum()}
        for entry, value in zip(step["summaries"], (moments, limit), strict=True):
            entry["value"] = value
        step["after"]["emb"] = emb.copy()
    return steps


def test_the_merged_rows_are_those_the_data_states():
    (case,) = [case for case in CASES if case.get("differs")]
    emb = merged_rows(case)[0]["after"]["emb"]
    np.testing.assert_allclose(emb[0], [0.0976611, 0.1953222], rtol=1e-6)
    np.testing.assert_allclose(emb[3], [0.6672554, 0.7625776], rtol=1e-6)


def transform(given):
    """The case's transform_grads_fn."""
    if given is None:
        return None
    ((name, argument),) = given.items()
    training = tf.contrib.training
    if name == "clip_gradient_norms_fn":
        return training.clip_gradient_norms_fn(argument)
    assert name == "multiply_gradients"
    return lambda pairs: training.multiply_gradients(pairs, argument)


@pytest.mark.parametrize("case", **by_id(CASES))
def test_create_train_op_matches_tensorflow(graph, case):
    loss, feeds = build_loss(case["problem"])
    optimizer = getattr(tf.train, case["optimizer"]["class"])(**case["optimizer"]["kwargs"])
    kwargs = dict(case["kwargs"])
    if "variables_to_train" in kwargs:
        wanted = kwargs["variables_to_train"]
        kwargs["variables_to_train"] = [v for v in tf.trainable_variables() if v.op.name in wanted]
    train_op = tf.contrib.training.create_train_op(
        loss, optimizer, transform_grads_fn=transform(case["transform"]), **kwargs
    )
    assert train_op.op.name == case["train_op_name"]
    assert names(tf.get_collection(tf.GraphKeys.TRAIN_OP)) == case["train_op_collection"]
    assert [v.op.name for v in tf.global_variables()] == case["variables_in_creation_order"]
    assert all(step["error"] is None for step in case["steps"])
    steps = merged_rows(case) if case.get("differs") else case["steps"]
    assert_steps(train_op, feeds, steps)


def test_every_case_is_run():
    assert len(CASES) == 7
    assert [case["id"] for case in CASES if case.get("differs")] == ["clip_sparse"]
