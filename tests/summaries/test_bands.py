import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from summaries import EventLog, SummaryWriter, encode_scalar, read
from summaries.bands import make_bands
from summaries.hparams import write_experiment
from summaries.reader import Scalars


def write(folder, points, tag="loss"):
    with EventLog(folder) as log:
        for step, value in points:
            log.add_summary(encode_scalar(tag, value), step)


def columns(steps, values):
    return Scalars(np.array(steps, np.int64), np.array(values, float), np.zeros(len(steps)))


def test_p130_mean_and_spread_over_seeds_are_numpys(tmp_path, recwarn):
    values = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    for seed, row in enumerate(values):
        write(tmp_path / f"seed{seed}", enumerate(row))
    bands = read(tmp_path).bands()
    band = bands["loss"]
    assert list(band.steps) == [0, 1, 2, 3, 4]
    wide = values.astype(float)
    np.testing.assert_allclose(band.mean, wide.mean(axis=0), rtol=1e-15)
    np.testing.assert_allclose(band.std, wide.std(axis=0), rtol=1e-12)
    np.testing.assert_array_equal(band.low, wide.min(axis=0))
    np.testing.assert_array_equal(band.high, wide.max(axis=0))
    assert list(band.runs) == [3] * 5
    assert bands.mismatches == []
    assert not recwarn
    spread = read(tmp_path).bands(ddof=1)["loss"].std
    np.testing.assert_allclose(spread, wide.std(axis=0, ddof=1), rtol=1e-12)


def test_p130_what_the_runs_do_not_share_is_left_out_and_told(tmp_path):
    write(tmp_path / "a", [(0, 1), (1, 2), (2, 3)])
    write(tmp_path / "b", [(1, 4), (2, 5), (3, 6)])
    write(tmp_path / "b", [(0, 1)], "extra")
    with pytest.warns(RuntimeWarning, match="the runs differ: 'loss': a lacks 1 of 4 .*; 2 more"):
        bands = read(tmp_path).bands()
    assert list(bands) == ["loss", "extra"]
    assert list(bands["loss"].steps) == [1, 2]
    assert list(bands["loss"].mean) == [3, 4]
    assert bands.mismatches == [
        "'loss': a lacks 1 of 4 steps, left out",
        "'loss': b lacks 1 of 4 steps, left out",
        "'extra' is not in a",
    ]
    assert repr(bands) == "<summaries.bands.Bands of 2 tags, 3 mismatches>"


@pytest.fixture
def seeds(tmp_path):
    """Two seeds with losses of training and evaluation, under one tag."""
    for seed in range(2):
        with SummaryWriter(tmp_path / f"seed{seed}") as writer:
            writer.hparams({"seed": seed}, group="adam")
        write(tmp_path / f"seed{seed}", [(step, seed + step) for step in range(4)])
        write(tmp_path / f"seed{seed}" / "eval", [(3, 10 + seed)])
    return tmp_path


def test_evaluations_belong_to_their_runs(seeds, recwarn):
    runs = read(seeds)
    bands = runs.bands("*loss")
    assert list(bands) == ["loss", "eval/loss"]
    assert list(bands["loss"].mean) == [0.5, 1.5, 2.5, 3.5]
    assert list(bands["eval/loss"].steps) == [3]
    assert list(bands["eval/loss"].mean) == [10.5]
    assert list(bands["eval/loss"].runs) == [2]
    assert bands.mismatches == []
    assert list(runs.bands("loss")) == ["loss"]
    assert list(runs.bands("eval/*")) == ["eval/loss"]
    assert list(runs.select("*/eval").bands()["loss"].mean) == [10.5]
    assert list(read(seeds / "seed1").bands()["eval/loss"].mean) == [11]
    assert list(runs.hparams(library="numpy")["run"]) == ["seed0", "seed1"]
    assert runs.hparams(library="numpy")["seed"].dtype == float
    assert {name: group.names for name, group in runs.groups().items()} == {"adam": runs.names}
    assert not recwarn


def test_a_run_that_ended_early_is_told_with_its_evaluations(seeds):
    write(seeds / "seed2", [(0, 2), (1, 3)])
    with pytest.warns(RuntimeWarning, match=r"'loss': seed2 lacks 2 of 4 steps, .*; 1 more"):
        bands = read(seeds).bands("*loss")
    assert bands.mismatches[1] == "'eval/loss' is not in seed2"
    assert list(read(seeds).hparams(library="numpy")["run"]) == ["seed0", "seed1", "seed2"]


def test_a_run_called_eval_is_one_where_it_evaluates_none(tmp_path):
    write_experiment(tmp_path, {"lr": float}, ["loss"])
    write(tmp_path / "eval", [(0, 1)])  # above it is only what describes the sweep
    write(tmp_path / "a" / "eval", [(0, 2)])  # above it is nothing
    write(tmp_path / "b", [(0, 3)])
    write(tmp_path / "b" / "eval", [(0, 4)])
    with SummaryWriter(tmp_path / "b" / "eval") as writer:
        writer.hparams({"lr": 1})  # it tells of itself
    write(tmp_path / "b" / "eval" / "eval", [(0, 5)])
    write(tmp_path / "b" / "eval" / "eval" / "eval", [(0, 6)])
    runs = read(tmp_path)
    trials = ["a/eval", "b", "b/eval", "b/eval/eval/eval", "eval"]
    assert list(runs.hparams(library="numpy")["run"]) == trials
    bands = runs.bands("loss")
    assert list(bands["loss"].mean) == [np.mean([2, 3, 4, 6, 1])]


def test_p130_any_step_takes_the_runs_that_have_it():
    runs = {
        "a": {"loss": columns([0, 1], [1, 2])},
        "b": {"loss": columns([1, 2], [4, 6])},
    }
    band = make_bands(runs, "any", 0)["loss"]
    assert list(band.steps) == [0, 1, 2]
    assert list(band.mean) == [1, 3, 6]
    assert list(band.std) == [0, 1, 0]
    assert list(band.runs) == [1, 2, 1]
    assert list(make_bands(runs, "any", 1)["loss"].std[1:2]) == [2**0.5]


def test_a_step_written_twice_counts_once():
    bands = make_bands({"a": {"loss": columns([0, 1, 0], [1, 2, 7])}}, "common", 0)
    assert list(bands["loss"].mean) == [7, 2]
    assert bands.mismatches == ["'loss': a has 1 of its steps again; the last value counts"]


def test_what_is_not_finite_stays_at_its_step():
    runs = {
        "a": {"loss": columns([0, 1], [np.nan, 2])},
        "b": {"loss": columns([0, 1], [1, 2])},
    }
    band = make_bands(runs, "common", 0)["loss"]
    assert np.isnan([band.mean[0], band.std[0], band.low[0], band.high[0]]).all()
    assert (band.mean[1], band.std[1]) == (2, 0)


@given(st.lists(st.dictionaries(st.integers(0, 9), st.floats(-1e3, 1e3)), min_size=1, max_size=4))
def test_a_band_is_what_each_step_says_by_itself(series):
    runs = {str(i): {"x": columns([*each], [*each.values()])} for i, each in enumerate(series)}
    band = make_bands(runs, "any", 0)["x"]
    assert list(band.steps) == sorted({step for each in series for step in each})
    for step, mean, std, low, high, count in zip(*band, strict=True):
        values = [each[step] for each in series if step in each]
        assert count == len(values)
        np.testing.assert_allclose((mean, std), (np.mean(values), np.std(values)), atol=1e-9)
        assert (low, high) == (min(values), max(values))


@pytest.mark.parametrize("library", ["numpy", "pandas"])
def test_bands_are_a_table(library):
    runs = {"a": {"x": columns([0, 5], [1, 2]), "y": columns([0], [3])}}
    table = make_bands(runs, "common", 0).table(library)
    assert list(table["tag"]) == ["x", "x", "y"]
    assert list(table["step"]) == [0, 5, 0]
    assert list(table["mean"]) == [1, 2, 3]
    assert list(table["runs"]) == [1, 1, 1]
