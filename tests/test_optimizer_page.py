"""What TensorBoard's server shows of optimize_loss, under both of its loaders."""

import time

import numpy as np
import pytest

import optkit as tf
from optkit.contrib.layers import EXTRA_SUMMARIES, OPTIMIZER_SUMMARIES
from summaries import dashboard

pytestmark = pytest.mark.slow

STEPS = 5


def train(logdir):
    rng = np.random.default_rng(0)
    with tf.Graph().as_default():
        x = tf.constant(rng.normal(size=(16, 4)).astype(np.float32))
        w = tf.Variable(rng.normal(size=(4, 3)).astype(np.float32), name="dense/kernel")
        loss = tf.reduce_mean(tf.square(x @ w))
        train_op = tf.contrib.layers.optimize_loss(
            loss,
            tf.train.create_global_step(),
            0.01,
            "Adam",
            clip_gradients=1.0,
            summaries=[*OPTIMIZER_SUMMARIES, *EXTRA_SUMMARIES],
        )
        merged = tf.summary.merge_all()
        with tf.Session() as session, tf.summary.FileWriter(logdir / "adam") as writer:
            session.run(tf.global_variables_initializer())
            for step in range(STEPS):
                writer.add_summary(session.run([train_op, merged])[1], step)


@pytest.fixture(scope="module", params=["true", "false"], ids=["fast loader", "own loader"])
def board(request, tmp_path_factory):
    logdir = tmp_path_factory.mktemp("logs")
    train(logdir)
    with dashboard(
        logdir, show=False, reload_interval=0.1, arguments=[f"--load_fast={request.param}"]
    ) as board:
        end = time.monotonic() + 30
        while not board.query("data/plugin/histograms/tags").get("adam"):
            assert time.monotonic() < end
        yield board


@pytest.mark.parametrize("plugin", ["scalars", "histograms"])
def test_every_tag_has_its_name_and_description(board, plugin):
    tags = board.query(f"data/plugin/{plugin}/tags")["adam"]
    names = {tag.removeprefix("OptimizeLoss/"): shown for tag, shown in tags.items()}
    if plugin == "histograms":
        assert set(names) == {"gradients/dense/kernel_0", "weights/dense/kernel_0"}
        assert names["weights/dense/kernel_0"]["displayName"] == "dense/kernel"
    else:
        assert names["loss"]["displayName"] == "loss"
        assert names["update_ratio/dense/kernel_0"]["displayName"] == "update ratio of dense/kernel"
        assert "<strong>before</strong>" in names["global_norm/gradient_norm"]["description"]
    assert all(shown["description"] for shown in names.values())


def test_the_values_are_all_there(board):
    for tag in ("loss", "gradient_norm/dense/kernel_0"):
        points = board.query("data/plugin/scalars/scalars", run="adam", tag=f"OptimizeLoss/{tag}")
        assert [step for _, step, _ in points] == list(range(STEPS))
    tag = "OptimizeLoss/gradients/dense/kernel_0"
    for _, _, buckets in board.query("data/plugin/histograms/histograms", run="adam", tag=tag):
        assert sum(count for _, _, count in buckets) == 12


def test_the_layout_is_found_and_its_charts_have_data(board):
    layout = board.query("data/plugin/custom_scalars/layout")
    (category,) = layout["category"]
    charts = {chart["title"]: chart["multiline"]["tag"] for chart in category["chart"]}
    assert list(charts)[:2] == ["loss", "learning rate"]
    for title, patterns in charts.items():
        answers = [
            board.query("data/plugin/custom_scalars/scalars", run="adam", tag=pattern)
            for pattern in patterns
        ]
        assert all(answer["regex_valid"] for answer in answers)
        found = [tag for answer in answers for tag in answer["tag_to_events"]]
        assert len(found) == (2 if "global" in title else 1), title
