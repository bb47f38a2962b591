import io
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from summaries import EventLog, SummaryWriter, _proto, plot, read
from summaries.charts import counts_below, quantiles, smoothed, thinned
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
    _, shown = plot(logdir, columns=2, size=(4.6, 2.3))._repr_png_()
    assert shown == {"width": 920, "height": 230}
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
        ({"smoothing": "a"}, r"smoothing: expected a number in \[0, 1\), got 'a'"),
        ({"columns": 0}, "columns: expected a whole number of at least 1, got 0"),
        ({"columns": "2"}, "columns: expected a whole number of at least 1, got '2'"),
        ({"columns": 1.5}, "columns: expected a whole number of at least 1, got 1.5"),
        ({"size": 5}, "size: expected width and height, from 1.5 to 100 inches, got 5"),
        ({"size": (0, 1)}, r"size: expected width and height, .*, got \(0, 1\)"),
        ({"size": (3, 2, 1)}, r"size: expected width and height, .*, got \(3, 2, 1\)"),
        ({"size": (3, math.nan)}, r"size: expected width and height, .*, got \(3, nan\)"),
        ({"size": "ab"}, "size: expected width and height, .*, got 'ab'"),
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


def write_scalars(path, values, tag="loss"):
    """A run with these values, in float64."""
    with EventLog(path) as log:
        for step, each in enumerate(values):
            tensor = {"dtype": 2, "double_val": [each]}
            value = _proto.Summary.Value(tag=tag, tensor=tensor)
            log.add_summary(_proto.Summary(value=[value]).SerializeToString(), step)


def labels(axes):
    """The numbers beside the ticks of the value axis that are within it."""
    axes.figure.draw_without_rendering()
    low, high = axes.get_ylim()
    ticks = [*axes.yaxis.get_major_ticks(), *axes.yaxis.get_minor_ticks()]
    texts = [tick.label1.get_text() for tick in ticks if low <= tick.get_loc() <= high]
    return [text for text in texts if text]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.52, 0.88], ["0.55", "0.60", "0.65", "0.70", "0.75", "0.80", "0.85", "0.90"]),
        ([0.12, 0.3, 3], ["0.2", "0.5", "1", "2"]),
    ],
)
def test_a_logarithmic_axis_of_few_decades_has_plain_numbers(tmp_path, values, expected):
    write_scalars(tmp_path, values)
    (axes,) = panels(plot(tmp_path, log=True)).values()
    assert axes.get_yscale() == "log"
    assert labels(axes) == expected


@pytest.mark.parametrize("values", [[0, 0], [-1, -2], [math.nan, math.nan]])
@pytest.mark.parametrize("band", [False, True])
def test_a_logarithmic_axis_of_nothing_positive_is_linear_and_says_so(tmp_path, values, band):
    write_scalars(tmp_path, values)
    chart = plot(tmp_path, log=True, band=band)
    chart._repr_png_()
    (axes,) = panels(chart).values()
    assert axes.get_yscale() == "linear"
    assert axes.get_ylabel() == "linear: nothing is above 0"


def test_a_long_legend_says_how_many_names_it_leaves_out(tmp_path):
    for number in range(40):
        write_scalars(tmp_path / f"run-{number:02}", [1, 2])
    for size in ((4.2, 2.9), (1.5, 1.5)):
        chart = plot(tmp_path, size=size)
        chart._repr_png_()
        (legend,) = chart.figure.legends
        names = [text.get_text() for text in legend.get_texts()]
        assert len(panels(chart)["loss"].lines) == 40
        assert names[0] == "run-00"
        assert names[-1] == f"and {41 - len(names)} more"
        assert legend.get_window_extent().height < 0.4 * chart.figure.bbox.height


def test_names_that_are_longer_than_the_legend_keep_their_ends(tmp_path):
    for number in range(2):
        write_scalars(tmp_path / ("x" * 100 + str(number)), [1, 2])
    chart = plot(tmp_path)
    chart._repr_png_()
    (legend,) = chart.figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert [name[0] + name[-1] for name in names] == ["…0", "…1"]
    assert legend.get_window_extent().width <= chart.figure.bbox.width


def test_only_so_many_panels_are_drawn_and_the_chart_says_so(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        for number in range(64):
            writer.add_scalar(f"loss_{number}", 1, 0)
    chart = plot(tmp_path)
    assert len(panels(chart)) == 60
    assert chart.figure.get_suptitle() == "the first 60 of 64 panels: name fewer tags or runs"


@pytest.mark.parametrize(
    ("values", "dots"),
    [([1], [0]), ([1, math.nan, 3, math.nan, 2, 2], [0, 2]), ([1, 2], None), ([math.nan], None)],
)
@pytest.mark.parametrize("arguments", [{}, {"band": True}, {"smoothing": 0.5}])
def test_a_point_without_a_neighbour_is_a_dot(tmp_path, values, dots, arguments):
    write_scalars(tmp_path, values)
    for line in panels(plot(tmp_path, **arguments))["loss"].lines:
        assert line.get_markevery() == dots
        assert (line.get_marker() == ".") == (dots is not None)


def test_distributions_of_one_step_are_seen(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        writer.add_histogram("weights", np.arange(10.0), 7)
    (axes,) = panels(plot(tmp_path, kind="distributions")).values()
    assert list(axes.lines[0].get_xdata()) == [6.5, 7.5]


def test_names_are_shown_as_they_are(tmp_path):
    """No mathematics between dollars, and names that begin with "_" are in the legend."""
    for name in ("_hidden", "a$x_1$", "b$^{$"):
        write_scalars(tmp_path / name, [1, 2], tag="$loss$ $^{$")
    chart = plot(tmp_path)
    chart._repr_png_()
    texts = chart.figure.legends[0].get_texts()
    assert [text.get_text() for text in texts] == ["_hidden", "a$x_1$", "b$^{$"]
    assert not any(text.get_parse_math() for text in [*texts, chart.figure.axes[0].title])


def test_a_tag_may_be_of_another_kind_in_another_run(tmp_path):
    write_scalars(tmp_path / "a", [1, 2], tag="x")
    with SummaryWriter(tmp_path / "b") as writer:
        writer.add_histogram("x", np.arange(5.0), 0)
    assert list(panels(plot(tmp_path, kind="histograms"))) == ["x\nb"]
    assert list(panels(plot(tmp_path, kind="distributions"))) == ["x\nb"]
    (line,) = panels(plot(tmp_path))["x"].lines
    assert line.get_label() == "a"


def test_equal_lines_of_up_to_four_runs_are_all_seen(tmp_path):
    """Each but the first has gaps, others than those of the next."""
    for name in "abcd":
        write_scalars(tmp_path / name, [1, 2])
    first, *others = panels(plot(tmp_path))["loss"].lines
    assert not first.is_dashed()
    assert all(line.is_dashed() for line in others)
    assert len({str(line._unscaled_dash_pattern) for line in others}) == 3


@pytest.mark.parametrize("end", [1e308, 1e300, 1e-320, 5e-324])
@pytest.mark.parametrize("kind", ["histograms", "distributions"])
def test_histograms_of_every_magnitude_are_drawn(tmp_path, end, kind):
    with SummaryWriter(tmp_path) as writer:
        for step in range(3):
            writer.add_histogram("ends", np.array([-end, end]), step)
            writer.add_histogram("constant", np.full(5, end), step)
    plot(tmp_path, kind=kind)._repr_png_()


@pytest.mark.parametrize("arguments", [{}, {"band": True}, {"log": True}])
def test_scalars_that_no_axis_has_room_for_leave_a_gap(tmp_path, arguments):
    write_scalars(tmp_path, [1e308, 1, -1e308, math.inf, 2])
    chart = plot(tmp_path, **arguments)
    chart._repr_png_()
    (line,) = panels(chart)["loss"].lines
    np.testing.assert_array_equal(line.get_ydata(), [np.nan, 1, np.nan, np.nan, 2])


def test_ridges_are_roots_of_densities_over_nearly_all_values(tmp_path):
    """One value in a thousand is far out: the axis is not as wide as that."""
    rng = np.random.default_rng(0)
    with SummaryWriter(tmp_path) as writer:
        for step in range(4):
            parts = rng.uniform(0, 1, 9000), rng.uniform(1, 2, 1000), [1000] * 10
            writer.add_histogram("weights", np.concatenate(parts), step)
    (axes,) = panels(plot(tmp_path, kind="histograms")).values()
    for rank, line in enumerate(axes.lines):
        at, top = line.get_data()
        assert -0.1 < at[0] < at[-1] < 2.1
        height = top - (3 - rank) / 4
        dense, sparse = height[(at > 0.1) & (at < 0.9)], height[(at > 1.1) & (at < 1.8)]
        assert dense.mean() / sparse.mean() == pytest.approx(3, rel=0.1)  # √9


def test_a_peak_at_an_end_of_the_values_is_seen_from_both_sides(tmp_path):
    with SummaryWriter(tmp_path) as writer:
        values = np.concatenate((np.zeros(500), np.linspace(0, 1, 500)))
        writer.add_histogram("relu", values, 0)
    (axes,) = panels(plot(tmp_path, kind="histograms")).values()
    at, top = axes.collections[0].get_paths()[0].vertices.T
    left, peak = at[at < 0].max(), at[top.argmax()]
    assert abs(peak) < 0.01
    assert left < peak


def test_a_peak_of_ridges_is_not_painted_over(tmp_path):
    """Most values are zero at every step; white outlines would make a white stripe of the peak."""
    with SummaryWriter(tmp_path) as writer:
        for step in range(24):
            values = np.concatenate((np.zeros(800), np.linspace(-1, 1, 200)))
            writer.add_histogram("weights", values, step)
    chart = plot(tmp_path, kind="histograms")
    file = io.BytesIO()
    chart.figure.savefig(file, format="rgba", dpi=100)
    picture = np.frombuffer(file.getvalue(), np.uint8).reshape(290, 420, 4)[..., :3]
    (axes,) = panels(chart).values()
    for height in (0.1, 0.3, 0.5, 0.7, 0.9):
        x, y = axes.transData.transform((0, height)).astype(int)
        assert (picture[-y, x - 2 : x + 3].max(axis=-1) < 235).all()


@given(finite, st.floats(0, 1))
def test_a_quantile_is_within_its_bucket(values, share):
    """Buckets are an eighth of an octave wide, so that is how far a quantile may be off."""
    histogram = measure(values)
    exact = np.quantile(values, share, method="inverted_cdf")
    (found,) = quantiles(histogram, [share])
    assert abs(found - exact) <= max(abs(exact) / 4, 1e-30) + 1e-30
    assert histogram.min <= found <= histogram.max


@given(finite)
def test_all_values_lie_below_their_largest(values):
    histogram = measure(values)
    edges = np.array([histogram.min - 1, histogram.max, histogram.max + 1])
    low, full, beyond = counts_below(histogram, edges)
    assert low == 0
    assert full == beyond == len(values)


def test_the_far_ends_of_histograms_neither_overflow_nor_vanish():
    wide = measure(np.array([-1e308, 0.0, 1e308]))
    low, middle, high = quantiles(wide, [0, 0.5, 1])
    assert (low, high) == (-1e307, 1e307)
    assert abs(middle) < 1e-300
    tiny = measure(np.array([-1e-320, 1e-320]))
    np.testing.assert_array_equal(quantiles(tiny, [0, 1]), [-1e-320, 1e-320])
    np.testing.assert_array_equal(counts_below(tiny, np.array([-1e-319, 0, 1e-319])), [0, 1, 2])


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


def test_without_matplotlib_its_extra_is_named(logdir, monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name="matplotlib")

    monkeypatch.setattr("summaries._optional.import_module", missing)
    with pytest.raises(
        ImportError, match=r"^matplotlib is not .*: pip install 'optkit\[notebook\]'"
    ):
        plot(logdir)


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


@pytest.mark.parametrize("arguments", [{}, {"band": True}, {"kind": "distributions"}], ids=str)
def test_ticks_of_steps_are_whole(tmp_path, arguments):
    with SummaryWriter(tmp_path) as writer:
        for step in range(3):
            writer.add_scalar("loss", step, step)
            writer.add_histogram("w", [1.0, 2.0], step)
    (axes,) = panels(plot(tmp_path, **arguments)).values()
    ticks = axes.get_xticks()
    np.testing.assert_array_equal(ticks, np.round(ticks))
    assert axes.get_xlabel() == "step"


def test_a_band_of_a_single_step_is_seen(tmp_path):
    for seed in range(2):
        with SummaryWriter(tmp_path / f"s{seed}") as writer:
            writer.add_scalar("loss", 2 * seed, 7)
    (area,) = panels(plot(tmp_path, band=True))["loss"].collections
    bounds = area.get_paths()[0].get_extents().get_points()
    np.testing.assert_array_equal(bounds, [[6.5, 0], [7.5, 2]])
