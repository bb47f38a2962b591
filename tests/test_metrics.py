"""Streaming metrics over three batches, against NumPy over all of them."""

import numpy as np
import pytest

from optkit import metrics
from optkit.graph import GraphKeys, get_default_graph
from optkit.ops.array import placeholder
from optkit.ops.core import constant
from optkit.runtime.eager import eager
from optkit.runtime.session import Session
from optkit.variables import global_variables, local_variables, local_variables_initializer

RNG = np.random.default_rng(9)
BATCHES = [(RNG.integers(0, 2, 6), RNG.integers(0, 2, 6), RNG.uniform(0, 2, 6)) for _ in range(3)]
Y, X, W = (np.concatenate(part) for part in zip(*BATCHES, strict=True))


def average(values, weights):
    return (values * weights).sum() / weights.sum()


METRICS = {
    "accuracy": lambda y, x, w: average(x == y, w),
    "mean_squared_error": lambda y, x, w: average((x - y) ** 2, w),
    "mean_absolute_error": lambda y, x, w: average(abs(x - y), w),
    "root_mean_squared_error": lambda y, x, w: average((x - y) ** 2, w) ** 0.5,
    "true_positives": lambda y, x, w: w[(x == 1) & (y == 1)].sum(),
    "true_negatives": lambda y, x, w: w[(x == 0) & (y == 0)].sum(),
    "false_positives": lambda y, x, w: w[(x == 1) & (y == 0)].sum(),
    "false_negatives": lambda y, x, w: w[(x == 0) & (y == 1)].sum(),
    "precision": lambda y, x, w: average(y[x == 1], w[x == 1]),
    "recall": lambda y, x, w: average(x[y == 1], w[y == 1]),
}


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("name", METRICS)
def test_values_over_batches(name, weighted):
    y, x = placeholder("int64", [None]), placeholder("int64", [None])
    w = placeholder("float32", [None])
    value, update = getattr(metrics, name)(y, x, w if weighted else None)
    session = Session()
    session.run(local_variables_initializer())
    last = session.run(value)
    assert last == 0
    for i, (a, b, c) in enumerate(BATCHES):
        before, new = session.run([value, update], {y: a, x: b, w: c})
        seen = [part[: 6 * (i + 1)].astype(float) for part in (Y, X, W)]
        seen[2] = seen[2] if weighted else np.ones_like(seen[2])
        np.testing.assert_allclose(new, METRICS[name](*seen), rtol=1e-5)
        assert session.run(value) == new
        assert before == last
        last = new
    session.run(local_variables_initializer())
    assert session.run(value) == 0


def test_variables_and_collections():
    value, update = metrics.accuracy([1], [1], None, "m", ["u"])
    metrics.mean([1.0])
    metrics.mean([1.0])
    names = [v.op.name for v in local_variables()]
    assert names == [
        "accuracy/total",
        "accuracy/count",
        "mean/total",
        "mean/count",
        "mean_1/total",
        "mean_1/count",
    ]
    graph = get_default_graph()
    assert graph.get_collection(GraphKeys.METRIC_VARIABLES) == local_variables()
    assert global_variables() == []
    assert graph.get_collection("m") == [value]
    assert graph.get_collection("u") == [update]


def test_shapes_and_weights():
    x = np.arange(6.0).reshape(2, 3)
    _, update = metrics.mean(x, [[1.0], [3.0]])
    _, ragged = metrics.accuracy([[1], [2]], [1, 3])
    session = Session()
    session.run(local_variables_initializer())
    np.testing.assert_allclose(session.run(update), (0 + 1 + 2 + 3 * (3 + 4 + 5)) / 12)
    assert session.run(ragged) == 0.5
    with pytest.raises(ValueError, match="weights"):
        metrics.mean(x, [1.0, 2.0])
    with pytest.raises(ValueError, match=r"labels: expected shape \(2,\), as predictions have"):
        metrics.accuracy([1, 2, 3], [1, 2])
    assert len(local_variables()) == 4


@pytest.mark.host("two thousand thresholds take minutes on a simulated device")
def test_auc_is_the_chance_of_the_right_order():
    rng = np.random.default_rng(3)
    y = rng.integers(0, 2, 300)
    x = np.clip(0.35 * y + rng.uniform(0, 0.65, 300), 0, 1)
    pairs = x[y == 1][:, None] - x[y == 0][None, :]
    _, roc = metrics.auc(y, x, num_thresholds=2000)
    _, weighted = metrics.auc(y, x, weights=np.full(300, 2.0), num_thresholds=2000)
    _, pr = metrics.auc(y, x, num_thresholds=2000, curve="PR")
    session = Session()
    session.run(local_variables_initializer())
    expected = ((pairs > 0) + 0.5 * (pairs == 0)).mean()
    np.testing.assert_allclose(session.run(roc), expected, atol=2e-3)
    np.testing.assert_allclose(session.run(weighted), expected, atol=2e-3)
    order = np.argsort(-x)
    hits = np.cumsum(y[order])
    curve = np.trapezoid(hits / np.arange(1, 301), hits / y.sum())
    np.testing.assert_allclose(session.run(pr), curve, atol=1e-2)
    perfect = metrics.auc([0, 1], [0.1, 0.9], thresholds=[0.5])[1]
    session.run(local_variables_initializer())
    np.testing.assert_allclose(session.run(perfect), 1, atol=1e-5)
    with pytest.raises(ValueError, match="curve: expected 'ROC' or 'PR'"):
        metrics.auc(y, x, curve="XY")
    with pytest.raises(ValueError, match="num_thresholds: expected at least 2"):
        metrics.auc(y, x, num_thresholds=1)
    with pytest.raises(ValueError, match="summation_method: expected 'trapezoidal'"):
        metrics.auc(y, x, summation_method="minoring")


def test_eager_mode_is_refused():
    with eager(), pytest.raises(RuntimeError, match=r"metrics\.mean: eager mode has no streaming"):
        metrics.mean(constant([1.0]))
