import math
import warnings

import numpy as np
import pytest

from summaries import OPTIMIZER_SUMMARIES, EventLog, OptimizerSummaries, SummaryWriter, read

GRADIENTS = {"dense/kernel:0": np.float32([[1, 2], [2, 4]]), "bias": np.float32(12), "unused": None}


def test_the_five_are_those_of_tensorflow():
    assert OPTIMIZER_SUMMARIES == [
        "learning_rate",
        "loss",
        "gradients",
        "gradient_norm",
        "global_gradient_norm",
    ]


def values(logdir):
    return {record.tag: record.value for record in read(logdir)}


def test_a_step_writes_all_five(tmp_path, load):
    with OptimizerSummaries(tmp_path, scope="OptimizeLoss") as summaries:
        summaries.step(7, loss=0.5, learning_rate=np.float32(0.25), gradients=GRADIENTS)
    run = load(tmp_path)
    scalars = {tag: run.Scalars(tag)[0].value for tag in run.Tags()["scalars"]}
    assert scalars == {
        "OptimizeLoss/loss": 0.5,
        "OptimizeLoss/learning_rate": 0.25,
        "OptimizeLoss/global_norm/gradient_norm": 13,
        "OptimizeLoss/gradient_norm/dense/kernel_0": 5,
        "OptimizeLoss/gradient_norm/bias": 12,
    }
    assert sorted(run.Tags()["histograms"]) == [
        "OptimizeLoss/gradients/bias",
        "OptimizeLoss/gradients/dense/kernel_0",
    ]
    histogram = run.Histograms("OptimizeLoss/gradients/dense/kernel_0")[0]
    assert histogram.step == 7
    assert (histogram.histogram_value.num, histogram.histogram_value.sum) == (4, 9)


def test_a_step_is_one_event(tmp_path, raw_events):
    with EventLog(tmp_path) as log:
        summaries = OptimizerSummaries(log)
        for step in range(3):
            summaries.step(step, loss=1.0, learning_rate=0.1, gradients=GRADIENTS)
    assert [len(event.summary.value) for event in raw_events(log.path)[2:]] == [7, 7, 7]


@pytest.mark.parametrize(
    ("name", "tags"),
    [
        ("loss", {"loss"}),
        ("learning_rate", {"learning_rate"}),
        ("global_gradient_norm", {"global_norm/gradient_norm"}),
        ("gradient_norm", {"gradient_norm/dense/kernel_0", "gradient_norm/bias"}),
        ("gradients", {"gradients/dense/kernel_0", "gradients/bias"}),
    ],
)
def test_a_subset_is_what_is_written(tmp_path, name, tags):
    with OptimizerSummaries(tmp_path, [name]) as summaries:
        summaries.step(0, loss=1.0, learning_rate=0.1, gradients=GRADIENTS)
    assert set(values(tmp_path)) == tags


def test_norms_are_the_same_without_histograms(tmp_path):
    gradients = {"w": np.random.default_rng(0).normal(size=(300, 500)).astype(np.float32)}
    names = ["gradient_norm", "global_gradient_norm"]
    for run, wanted in (("few", names), ("all", None)):
        with OptimizerSummaries(tmp_path / run, wanted) as summaries:
            summaries.step(0, gradients=gradients)
    few, whole = values(tmp_path / "few"), values(tmp_path / "all")
    expected = np.linalg.norm(gradients["w"].astype(np.float64))
    for tag in ("gradient_norm/w", "global_norm/gradient_norm"):
        assert few[tag] == whole[tag] == pytest.approx(expected, rel=1e-6)


def test_what_is_not_given_is_not_written(tmp_path):
    with OptimizerSummaries(tmp_path) as summaries:
        summaries.step(0, loss=1.0)
        summaries.step(1, gradients={})
        summaries.step(2, gradients={"w": None})
    assert values(tmp_path) == {"loss": 1.0}


def test_a_known_global_norm_is_taken(tmp_path):
    with OptimizerSummaries(tmp_path, ["global_gradient_norm"]) as summaries:
        summaries.step(0, global_norm=np.array(2.5), gradients=GRADIENTS)
        summaries.step(1, global_norm=3.5)
    steps, norms, _ = read(tmp_path).scalars("global_norm/gradient_norm")
    assert (list(steps), list(norms)) == ([0, 1], [2.5, 3.5])


@pytest.mark.parametrize("names", ["losses", ["loss", "losses"], ("loss", 5)])
def test_p052_an_unknown_summary_lists_the_five(tmp_path, names):
    with pytest.raises(ValueError, match=", ".join(OPTIMIZER_SUMMARIES)):
        OptimizerSummaries(tmp_path / "run", names)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("bad", "norm"), [(np.nan, math.nan), (-np.inf, math.inf)])
@pytest.mark.parametrize("names", [None, ["gradient_norm", "global_gradient_norm"]])
def test_a_gradient_that_is_not_finite_is_told_once(tmp_path, bad, norm, names):
    """The norm is what it is, the histogram has the finite values, one warning has the name."""
    gradients = {"w:0": np.float32([1, bad, 2]), "b": np.float32([3])}
    summaries = OptimizerSummaries(tmp_path, names)
    with summaries, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(2):
            summaries.step(step, gradients=gradients)
    assert len(caught) == 1
    assert "gradients/w_0" in str(caught[0].message)
    written = values(tmp_path)
    for tag in ("gradient_norm/w_0", "global_norm/gradient_norm"):
        assert written[tag] == pytest.approx(norm, nan_ok=True)
    assert written["gradient_norm/b"] == 3
    if names is None:
        assert written["gradients/w_0"].num == 2
        assert written["gradients/w_0_nonfinite"] == 1


def test_p091_a_loss_that_is_not_finite_is_told_once(tmp_path):
    summaries = OptimizerSummaries(tmp_path)
    with summaries, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(3):
            summaries.step(step, loss=math.nan)
    assert [str(each.message) for each in caught] == ["the scalar 'loss' is nan"]


def test_p064_two_variables_of_one_tag_are_told(tmp_path):
    summaries = OptimizerSummaries(tmp_path, ["gradients"])
    with summaries, pytest.warns(RuntimeWarning, match="'gradients/w:0' and 'gradients/w_0'"):
        summaries.step(0, gradients={"w:0": np.ones(2), "w_0": np.ones(2)})


def test_a_refused_value_writes_nothing(tmp_path):
    with OptimizerSummaries(tmp_path) as summaries:
        with pytest.raises(ValueError, match=r"'loss' takes one number, not .*\(2,\)"):
            summaries.step(0, loss=np.ones(2))
        with pytest.raises(TypeError, match="'gradients/w' takes real numbers"):
            summaries.step(0, loss=1.0, gradients={"w": "text"})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [EventLog, SummaryWriter])
def test_a_log_that_is_given_is_shared_and_stays_open(tmp_path, kind):
    with kind(tmp_path) as shared:
        with OptimizerSummaries(shared) as summaries:
            summaries.step(1, loss=2.0)
        assert summaries.logdir == tmp_path
        summaries.step(2, loss=3.0)
        summaries.flush()
        assert len(list(tmp_path.iterdir())) == 1
        assert list(read(tmp_path).scalars("loss").values) == [2, 3]
