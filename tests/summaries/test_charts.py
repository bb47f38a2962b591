import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from summaries import SummaryWriter, plot, read
from summaries.charts import counts_below, quantile, smoothed, thinned
from summaries.histogram import measure

finite = arrays(np.float64, st.integers(1, 60), elements=st.floats(-1e3, 1e3, width=32))


@pytest.fixture
def logdir(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("adam", "sgd"):
        with SummaryWriter(tmp_path / name) as writer:
            for step in range(10):
                writer.add_scalar("loss", 1 / (1 + step) + 0.1 * (name == "sgd"), step, 50 + step)
                writer.add_histogram("weights", rng.normal(step, 1, 100), step)
        with SummaryWriter(tmp_path / "adam") as writer:
            writer.add_scalar("extra", 1, 10)
    return tmp_path


def panels(chart):
    """The visible panels of a chart by their titles."""
    return {axes.get_title(): axes for axes in chart.figure.axes if axes.get_visible()}


def size_of(png):
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    return int.from_bytes(png[16:20], "big"), int.from_bytes(png[20:24], "big")


def test_scalars_are_lines_one_a_run(logdir):
    chart = plot(logdir)
    assert chart.tags == ["loss", "extra"]
    assert repr(chart) == "<summaries.Chart of loss, extra>"
    lines = panels(chart)["loss"].lines
    assert [line.get_label() for line in lines] == ["adam", "sgd"]
    for line in lines:
        steps, values, _ = read(logdir).scalars("loss", line.get_label())
        np.testing.assert_array_equal(line.get_xdata(), steps)
        np.testing.assert_array_equal(line.get_ydata(), values)
    assert [line.get_label() for line in panels(chart)["extra"].lines] == ["adam"]


def test_a_chart_is_a_picture_by_itself(logdir, tmp_path):
    """P122: what the notebook saves is the picture, not a frame with a server behind it."""
    chart = plot(logdir, "loss", size=(3, 2))
    png, shown = chart._repr_png_()
    assert shown == {"width": 300, "height": 200}
    assert size_of(png) == (450, 300)
    assert len(png) > 3000
    chart.save(tmp_path / "chart.png")
    assert size_of((tmp_path / "chart.png").read_bytes()) == (300, 200)


def test_a_chart_is_shown_where_it_is_not_the_value_of_a_cell(logdir, monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    chart = plot(logdir, "loss")
    chart.show()
    assert shown == [chart]


def test_p122_a_chart_drawn_again_has_the_new_steps(logdir):
    with SummaryWriter(logdir / "adam") as writer:
        for step in range(10, 15):
            writer.add_scalar("loss", 0, step)
    steps = panels(plot(logdir))["loss"].lines[0].get_xdata()
    assert list(steps) == list(range(15))


def test_time_starts_at_the_first_point(logdir):
    axes = panels(plot(logdir, "loss", x="time"))["loss"]
    assert list(axes.lines[0].get_xdata()) == list(range(10))
    assert axes.get_xlabel() == "seconds"


def test_smoothing_is_drawn_over_the_points(logdir):
    pale, line, *_ = panels(plot(logdir, "loss", smoothing=0.6))["loss"].lines
    values = read(logdir).scalars("loss", "adam").values
    np.testing.assert_array_equal(pale.get_ydata(), values)
    np.testing.assert_array_equal(line.get_ydata(), smoothed(values, 0.6))


def test_a_band_is_drawn_over_the_runs(logdir):
    axes = panels(plot(logdir, "loss", band=True))["loss"]
    (line,) = axes.lines
    assert line.get_label() == "mean of 2 runs"
    band = read(logdir).bands("loss")["loss"]
    np.testing.assert_array_equal(line.get_ydata(), band.mean)
    (area,) = axes.collections
    low, high = area.get_datalim(axes.transData).intervaly
    assert (low, high) == pytest.approx(((band.mean - band.std).min(), 1.1))


@pytest.mark.parametrize("kind", ["histograms", "distributions"])
def test_histograms_are_panels_of_each_run(logdir, kind):
    chart = plot(logdir, kind=kind, columns=1)
    assert list(panels(chart)) == ["weights\nadam", "weights\nsgd"]
    assert size_of(chart._repr_png_()[0]) == (630, 870)


def test_the_median_of_a_distribution_follows_the_values(logdir):
    axes = panels(plot(logdir, "weights", kind="distributions"))["weights\nadam"]
    (median,) = axes.lines
    np.testing.assert_allclose(median.get_ydata(), np.arange(10), atol=0.4)
    assert len(axes.collections) == 4


def test_histograms_may_be_of_one_value(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        for step in range(3):
            writer.add_histogram("constant", np.full(5, 2.0), step)
    for kind in ("histograms", "distributions"):
        assert list(panels(plot(tmp_path, kind=kind))) == ["constant"]


def test_histograms_are_drawn_where_there_are_no_scalars(logdir):
    assert plot(logdir, "weights").tags == ["weights"]


def test_a_logarithmic_axis(logdir):
    assert panels(plot(logdir, "loss", log=True))["loss"].get_yscale() == "log"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "lines"}, "kind: expected one of scalars, .* or None, got 'lines'"),
        ({"x": "wall"}, "x: expected one of step, time, got 'wall'"),
        ({"smoothing": 1}, r"smoothing: expected a number in \[0, 1\), got 1"),
        ({"columns": 0}, "columns: expected at least 1, got 0"),
    ],
)
def test_bad_arguments_are_named(logdir, arguments, message):
    with pytest.raises(ValueError, match=message):
        plot(logdir, **arguments)


def test_tags_that_are_not_there_are_told(logdir):
    with pytest.raises(KeyError, match="no scalar has a tag that matches; there are: loss, weig"):
        plot(logdir, "accuracy", kind="scalars")
    with pytest.raises(KeyError, match="no histogram has a tag that matches"):
        plot(logdir, "loss", kind="distributions")


@given(finite, st.floats(0, 1))
def test_a_quantile_is_within_its_bucket(values, share):
    """Buckets are an eighth of an octave wide, so that is how far a quantile may be off."""
    histogram = measure(values)
    exact = np.quantile(values, share, method="inverted_cdf")
    assert abs(quantile(histogram, share) - exact) <= max(abs(exact) / 4, 1e-30) + 1e-30
    assert histogram.min <= quantile(histogram, share) <= histogram.max


@given(finite)
def test_all_values_lie_below_their_largest(values):
    histogram = measure(values)
    edges = np.array([histogram.min - 1, histogram.max, histogram.max + 1])
    low, full, beyond = counts_below(histogram, edges)
    assert low == 0
    assert full == beyond == len(values)


@given(finite, st.floats(0, 0.99))
def test_smoothing_is_a_weighted_mean(values, weight):
    out = smoothed(values, weight)
    for index in range(len(values)):
        weights = weight ** np.arange(index, -1, -1)
        expected = np.average(values[: index + 1], weights=weights)
        assert out[index] == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_smoothing_passes_over_what_is_not_finite():
    out = smoothed(np.array([1, math.nan, 3, math.inf]), 0.5)
    np.testing.assert_allclose(out, [1, math.nan, (0.25 + 1.5) / 0.75, math.inf])


@given(st.integers(0, 500), st.integers(1, 50))
def test_few_points_stand_for_many(size, parts):
    rng = np.random.default_rng(size)
    values = rng.normal(size=size)
    values[rng.random(size) < 0.1] = np.nan
    at, kept = thinned(np.arange(size), values, parts)
    np.testing.assert_array_equal(values[at], kept)
    assert len(kept) <= 3 * parts + 2
    if size:
        assert (at[0], at[-1]) == (0, size - 1)
        assert np.isnan(kept).any() == np.isnan(values).any()
    if not np.isnan(values).all():
        assert (np.nanmin(kept), np.nanmax(kept)) == (np.nanmin(values), np.nanmax(values))


def test_panels_come_in_the_order_of_the_patterns(logdir):
    assert plot(logdir, ["extra", "lo*"]).tags == ["extra", "loss"]
    assert plot(logdir, ["*", "extra"]).tags == ["loss", "extra"]


def test_a_long_tag_keeps_its_end(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("scope/" * 20 + "loss", 1, 0)
    (title,) = panels(plot(tmp_path, size=(2, 2)))
    assert len(title) == 26
    assert title.startswith("…")
    assert title.endswith("scope/loss")


def test_a_band_is_drawn_for_each_group_of_seeds(tmp_path):
    for group in ("adam", "sgd"):
        for seed in range(2):
            with SummaryWriter(tmp_path / f"{group}-{seed}") as writer:
                writer.hparams({"seed": seed}, group=group)
                for step in range(3):
                    writer.add_scalar("loss", step + seed + 10 * (group == "sgd"), step)
    axes = panels(plot(tmp_path, band=True))["loss"]
    lines = {line.get_label(): list(line.get_ydata()) for line in axes.lines}
    assert lines == {"adam": [0.5, 1.5, 2.5], "sgd": [10.5, 11.5, 12.5]}


@pytest.mark.parametrize("group", ["adam", None])
def test_bands_of_evaluations_are_lines_of_their_own(tmp_path, recwarn, group):
    for seed in range(2):
        with SummaryWriter(tmp_path / f"s{seed}") as writer:
            writer.hparams({"seed": seed}, group=group)
            writer.add_scalar("loss", seed, 0)
        with SummaryWriter(tmp_path / f"s{seed}" / "eval") as writer:
            writer.add_scalar("loss", 10 + seed, 0)
            writer.add_scalar("accuracy", 0.5, 0)
    drawn = panels(plot(tmp_path, band=True))
    name = group or "mean of 2 runs"
    lines = {line.get_label(): list(line.get_ydata()) for line in drawn["loss"].lines}
    assert lines == {name: [0.5], f"{name}, eval": [10.5]}
    assert [line.get_label() for line in drawn["accuracy"].lines] == [f"{name}, eval"]
    assert not recwarn
