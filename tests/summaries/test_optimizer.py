import math
import warnings

import numpy as np
import pytest

from summaries import (
    OPTIMIZER_SUMMARIES,
    EventLog,
    OptimizerSummaries,
    SummaryWriter,
    encode_scalar,
    histogram,
    read,
)
from summaries.histogram import _COUNTERS, register_counter
from summaries.quantities import EXTRA_SUMMARIES

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
    """Tag -> value, but for the layout of the dashboard."""
    found = {record.tag: record.value for record in read(logdir)}
    found.pop("custom_scalars__config__", None)
    return found


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
    event = run.Histograms("OptimizeLoss/gradients/dense/kernel_0")[0]
    assert event.step == 7
    assert (event.histogram_value.num, event.histogram_value.sum) == (4, 9)


def test_a_step_is_one_event(tmp_path, raw_events):
    with EventLog(tmp_path) as log:
        summaries = OptimizerSummaries(log, layout=False)
        for step in range(3):
            summaries.step(step, loss=1.0, learning_rate=0.1, gradients=GRADIENTS)
    assert [len(event.summary.value) for event in raw_events(log.path)[2:]] == [7, 7, 7]


@pytest.mark.parametrize(
    ("names", "given", "tags"),
    [
        (None, {"weights"}, {"weights/w", "weight_norm/w"}),
        (None, {"weights", "updates"}, {"weights/w", "weight_norm/w", "update_ratio/w"}),
        (None, set(), set()),
        (OPTIMIZER_SUMMARIES, {"weights", "updates"}, set()),
        (["sparsity"], {"weights", "updates"}, {"sparsity/w"}),
        ([], {"weights"}, set()),
    ],
    ids=str,
)
def test_weights_that_are_given_are_written_unless_a_list_says_otherwise(
    tmp_path, names, given, tags
):
    arrays = {name: {"w": np.float32([3, 4])} for name in given}
    with EventLog(tmp_path) as log:
        OptimizerSummaries(log, names).step(0, **arrays)
        log.add_summary(encode_scalar("marker", 1), 0)
    written = values(tmp_path)
    assert set(written) - {"marker"} == tags
    assert written.get("weight_norm/w", 5) == 5
    assert written.get("update_ratio/w", 1) == 1


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


WEIGHTS = {"w": np.float32([3, 4, 0, 0]), "b": np.zeros(2), "none": None}


def test_the_extra_summaries(tmp_path):
    """The gradients are clipped from a norm of 20 and 0 to 5 and 0."""
    with OptimizerSummaries(tmp_path, [*OPTIMIZER_SUMMARIES, *EXTRA_SUMMARIES]) as summaries:
        summaries.step(
            0,
            gradients={"w": np.float32([3, 4]), "b": np.zeros(2)},
            unclipped={"w": np.float32([12, 16]), "b": np.zeros(2), "none": None},
            weights=WEIGHTS,
            updates={"w": np.float32([0, 0.5]), "b": np.ones(2), "unknown": np.ones(1)},
        )
    written = values(tmp_path)
    histograms = {tag: written.pop(tag).num for tag in [*written] if not np.isscalar(written[tag])}
    assert histograms == {"gradients/w": 2, "gradients/b": 2, "weights/w": 4, "weights/b": 2}
    assert written == {
        "global_norm/gradient_norm": 20,
        "global_norm/clipped_gradient_norm": 5,
        "gradient_norm/w": 5,
        "gradient_norm/b": 0,
        "clip_fraction/w": 0.75,
        "clip_fraction/b": 0,
        "nonfinite/w": 0,
        "nonfinite/b": 0,
        "weight_norm/w": 5,
        "weight_norm/b": 0,
        "sparsity/w": 0.5,
        "sparsity/b": 1,
        "update_ratio/w": pytest.approx(0.1),
        "update_ratio/b": 0,
    }


@pytest.mark.parametrize(
    ("name", "tags"),
    [
        ("clip_fraction", {"clip_fraction/w"}),
        ("nonfinite", {"nonfinite/w"}),
        ("weight_norm", {"weight_norm/w", "weight_norm/b"}),
        ("sparsity", {"sparsity/w", "sparsity/b"}),
        ("update_ratio", {"update_ratio/w"}),
        ("weights", {"weights/w", "weights/b"}),
        (
            "global_gradient_norm",
            {"global_norm/gradient_norm", "global_norm/clipped_gradient_norm"},
        ),
    ],
)
def test_an_extra_summary_alone(tmp_path, name, tags):
    with OptimizerSummaries(tmp_path, [name]) as summaries:
        summaries.step(
            0,
            gradients={"w": np.ones(2)},
            unclipped={"w": np.ones(2)},
            weights=WEIGHTS,
            updates={"w": np.ones(4)},
        )
    assert set(values(tmp_path)) == tags


@pytest.mark.parametrize("clipped", [False, True])
def test_values_that_are_not_finite_are_counted(tmp_path, clipped):
    bad = np.float32([1, np.nan, np.inf, -np.inf])
    gradients = {"gradients": {"w": np.ones(4)}, "unclipped": {"w": bad}}
    with OptimizerSummaries(tmp_path, ["nonfinite"]) as summaries, pytest.warns(RuntimeWarning):
        summaries.step(0, **gradients if clipped else {"gradients": {"w": bad}})
    assert values(tmp_path) == {"nonfinite/w": 3}


def test_p096_no_tag_is_the_path_of_another(tmp_path):
    with OptimizerSummaries(tmp_path, [*OPTIMIZER_SUMMARIES, *EXTRA_SUMMARIES]) as summaries:
        summaries.step(
            0,
            loss=1.0,
            learning_rate=0.1,
            gradients={"w": np.ones(2)},
            unclipped={"w": np.ones(2)},
            weights={"w": np.ones(2)},
            updates={"w": np.ones(2)},
        )
    tags = values(tmp_path)
    assert len(tags) == 12
    assert not [(a, b) for a in tags for b in tags if b.startswith(f"{a}/")]


def test_names_and_descriptions_come_with_the_first_value_only(tmp_path, raw_events, load):
    with OptimizerSummaries(tmp_path, scope="net") as summaries:
        for step in range(2):
            summaries.step(step, loss=1.0, gradients={"w": np.ones(2)})
        summaries.step(2, loss=1.0, learning_rate=0.1)
    (path,) = tmp_path.iterdir()
    first, second, third = (event.summary.value for event in raw_events(path)[2:])
    assert {value.tag: value.metadata.display_name for value in first[1:]} == {
        "net/loss": "loss",
        "net/global_norm/gradient_norm": "global gradient norm",
        "net/gradients/w": "gradient of w",
        "net/gradient_norm/w": "gradient norm of w",
    }
    assert first[0].tag == "custom_scalars__config__"
    assert not any(value.HasField("metadata") for value in second)
    assert [value.metadata.display_name for value in third] == ["", "learning rate"]
    assert all(value.metadata.summary_description for value in first[1:])


def test_the_layout_may_be_dropped(tmp_path):
    for n, layout in enumerate((True, False)):
        with OptimizerSummaries(tmp_path / str(n), layout=layout) as summaries:
            summaries.step(0, loss=1.0)
    tags = [{record.tag for record in read(tmp_path / n)} for n in "01"]
    assert tags == [{"custom_scalars__config__", "loss"}, {"loss"}]


class Untouchable:
    """An array that must not be looked at."""

    def __getattr__(self, name):
        raise AssertionError(name)


def test_steps_that_are_left_out_cost_nothing(tmp_path):
    with OptimizerSummaries(tmp_path, every_n_steps=3, histograms_every_n_steps=6) as summaries:
        for step in range(1, 14):
            due = step % 3 == 1
            gradient = np.ones(2) if due else Untouchable()
            summaries.step(
                step, loss=1.0 if due else Untouchable(), gradients={"w": gradient, "v": gradient}
            )
    run = read(tmp_path)
    assert list(run.scalars("loss").steps) == [1, 4, 7, 10, 13]
    assert list(run.scalars("gradient_norm/w").steps) == [1, 4, 7, 10, 13]
    assert list(run.histograms("gradients/w").steps) == [1, 7, 13]


def test_a_step_of_a_writer_is_one_event_with_its_cadence(tmp_path, raw_events):
    with SummaryWriter(tmp_path, every_n_steps=2, histograms_every_n_steps=4) as writer:
        summaries = OptimizerSummaries(writer, layout=False)
        for n in range(5):
            with writer.step(n) as due:
                writer.add_scalar("mine", n)
                summaries.step(n, loss=1.0, gradients={"w": np.ones(2)})
                assert bool(due) == (n % 2 == 0)
        summaries.step(9, loss=1.0)
    (path,) = tmp_path.iterdir()
    found = [[value.tag for value in event.summary.value] for event in raw_events(path)[2:]]
    assert [sorted(tags) for tags in found] == [
        ["global_norm/gradient_norm", "gradient_norm/w", "gradients/w", "loss", "mine"],
        ["global_norm/gradient_norm", "gradient_norm/w", "loss", "mine"],
        ["global_norm/gradient_norm", "gradient_norm/w", "gradients/w", "loss", "mine"],
        ["loss"],
    ]


def test_without_a_number_the_step_is_that_of_the_writer(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        summaries = OptimizerSummaries(writer, every_n_steps=2)
        for n in range(1, 6):
            with writer.step(n):
                summaries.step(None, loss=n)
    assert list(read(tmp_path).scalars("loss").steps) == [1, 3, 5]


def test_p090_refused_values_are_left_out_where_asked(tmp_path):
    summaries = OptimizerSummaries(tmp_path, on_error="warn")
    with summaries, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(2):
            summaries.step(
                step,
                loss=1.0,
                learning_rate="fast",
                gradients={"note": "x", "w": np.ones(2)},
            )
    named = [str(each.message).partition(" takes")[0] for each in caught]
    assert named == ["'learning_rate'", "'gradients/note'"]
    assert set(values(tmp_path)) == {
        "loss", "gradients/w", "gradient_norm/w", "global_norm/gradient_norm"
    }  # fmt: skip


def test_p132_another_rank_looks_at_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    with OptimizerSummaries(tmp_path / "run") as summaries:
        summaries.step(0, loss=Untouchable(), gradients={"w": Untouchable()})
    assert list(tmp_path.iterdir()) == []


def test_p076_a_resumed_run_hides_what_it_repeats(tmp_path):
    for start in (None, 3):
        with OptimizerSummaries(tmp_path, resume_step=start) as summaries:
            for step in range(start or 0, 5):
                summaries.step(step, loss=start or 0)
    assert list(read(tmp_path).scalars("loss").values) == [0, 0, 0, 3, 3]


class Foreign:
    """An array that only its own library can count; its host copy is not wanted."""

    def __init__(self, array):
        self.array = np.asarray(array)
        self.size = self.array.size

    def __eq__(self, other):
        return self.array == other

    __hash__ = None


def test_arrays_of_another_library_are_counted_where_they_are(tmp_path, monkeypatch):
    def count(values):
        return histogram._count(values.array, None)

    monkeypatch.setattr("summaries.histogram._COUNTERS", [*_COUNTERS])
    register_counter(lambda values: isinstance(values, Foreign), count)
    names = [*OPTIMIZER_SUMMARIES, *EXTRA_SUMMARIES]
    arrays = {"w": np.float32([3, 4, 0, 0])}
    for run, kind in (("host", np.asarray), ("device", Foreign)):
        given = {name: kind(array) for name, array in arrays.items()}
        with OptimizerSummaries(tmp_path / run, names) as summaries:
            summaries.step(0, gradients=given, unclipped=given, weights=given, updates=given)
    host, device = values(tmp_path / "host"), values(tmp_path / "device")
    assert list(host) == list(device)
    assert len(host) == 10
    for tag, value in host.items():
        if tag in ("gradients/w", "weights/w"):
            np.testing.assert_array_equal(device[tag].counts, value.counts)
        else:
            assert device[tag] == pytest.approx(value)
