"""What the real TensorBoard server answers for a run of ours, under both of its loaders."""

import json
import time
import urllib.error
import urllib.parse
import urllib.request

import numpy as np
import pytest

from summaries import EventLog, OptimizerSummaries, SummaryWriter, dashboard, encode_scalar

pytestmark = pytest.mark.slow

STEPS = 20
WEIGHTS = np.random.default_rng(0).normal(size=(STEPS, 300)).astype(np.float32)

LOSS = "OptimizeLoss/loss"
SCALARS = [
    "loss",
    "learning_rate",
    "global_norm/gradient_norm",
    "global_norm/clipped_gradient_norm",
    "gradient_norm/w_0",
    "gradient_norm/b_0",
]


def write_demo(logdir):
    for name in ("adam", "sgd"):
        with SummaryWriter(logdir / name) as writer:
            writer.hparams({"optimizer": name, "rate": 0.5}, group="both")
            optimizer = OptimizerSummaries(writer, scope="OptimizeLoss")
            for step in range(STEPS):
                optimizer.step(
                    step,
                    loss=1 / (1 + step),
                    learning_rate=0.5,
                    gradients={"w:0": WEIGHTS[step], "b:0": WEIGHTS[step][:2]},
                    unclipped={"w:0": 2 * WEIGHTS[step], "b:0": 2 * WEIGHTS[step][:2]},
                )
            writer.add_text("note", "**bold** <script>", 3)
            writer.add_image("picture", np.zeros((3, 4, 5), np.uint8), 2)
    with SummaryWriter(logdir / "adam" / "eval") as writer:
        writer.add_scalar("OptimizeLoss/loss", 0.25, STEPS)


@pytest.fixture(scope="module", params=["true", "false"], ids=["fast loader", "own loader"])
def server(request, tmp_path_factory):
    logdir = tmp_path_factory.mktemp("logs")
    write_demo(logdir)
    with dashboard(
        logdir, show=False, reload_interval=0.1, arguments=[f"--load_fast={request.param}"]
    ) as board:
        wait_for(board, "data/runs", lambda runs: len(runs) == 3)
        wait_for(board, "data/plugin/scalars/tags", lambda tags: len(tags) == 3)
        wait_for(board, "data/plugin/images/tags", lambda tags: len(tags) == 2)
        yield board


def wait_for(board, route, complete, **parameters):
    """The first answer that is complete; a server reads its files again and again."""
    end = time.monotonic() + 30
    while True:
        try:
            answer = board.query(route, **parameters)
        except urllib.error.HTTPError as error:
            answer = error
        else:
            if complete(answer):
                return answer
        assert time.monotonic() < end, answer


def first_runs(board):
    """The runs that were there from the start."""
    return sorted(run for run in board.query("data/runs") if not run.startswith("later"))


def points(answer):
    return [(step, value) for _, step, value in answer]


def post(board, route, body=None, **form):
    data = urllib.parse.urlencode(form, doseq=True) if body is None else json.dumps(body)
    kind = "application/x-www-form-urlencoded" if body is None else "application/json"
    request = urllib.request.Request(
        board.url + route, data.encode(), {"Content-Type": kind}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def test_runs_are_directories(server):
    assert first_runs(server) == ["adam", "adam/eval", "sgd"]


def test_the_loader_is_the_one_that_was_asked_for(server):
    provider = str(server.query("data/environment")["debug"]["data_provider"])
    fast = "--load_fast=true" in server._process.args
    assert ("Grpc" in provider) == fast


def test_pages_of_what_is_there_are_active(server):
    plugins = server.query("data/plugins_listing")
    active = {name for name, plugin in plugins.items() if plugin["enabled"]}
    assert {"scalars", "histograms", "distributions", "images", "text", "timeseries"} <= active


def test_scalars_are_all_there(server):
    tags = server.query("data/plugin/scalars/tags")
    assert set(tags["adam"]) == {f"OptimizeLoss/{name}" for name in SCALARS}
    answer = server.query("data/plugin/scalars/scalars", run="sgd", tag=LOSS)
    expected = [(step, np.float32(1 / (1 + step))) for step in range(STEPS)]
    assert points(answer) == expected
    text = server.query("data/plugin/scalars/scalars", run="sgd", tag=LOSS, format="csv")
    assert text.decode().splitlines()[0] == "Wall time,Step,Value"


def test_scalars_and_histograms_have_names_and_descriptions(server):
    for plugin in ("scalars", "histograms"):
        tags = server.query(f"data/plugin/{plugin}/tags")["adam"]
        assert tags
        for tag, shown in tags.items():
            assert shown["displayName"] not in ("", tag)
            assert shown["description"].startswith("<p>")


def test_the_layout_finds_its_tags(server):
    layout = server.query("data/plugin/custom_scalars/layout")
    (category,) = layout["category"]
    found = {}
    for chart in category["chart"]:
        tags = set()
        for regex in chart["multiline"]["tag"]:
            answer = server.query("data/plugin/custom_scalars/scalars", run="adam", tag=regex)
            assert answer["regex_valid"]
            tags |= {tag.removeprefix("OptimizeLoss/") for tag in answer["tag_to_events"]}
        found[chart["title"]] = tags
    assert found == {
        "loss": {"loss"},
        "learning rate": {"learning_rate"},
        "global norm before and after clipping": {*SCALARS[2:4]},
        "gradient norms": {*SCALARS[4:]},
    }


def test_p079_hyper_parameters_are_a_row_for_each_run(server):
    body = {
        "experimentName": "",
        "allowedStatuses": ["STATUS_UNKNOWN", "STATUS_SUCCESS", "STATUS_FAILURE", "STATUS_RUNNING"],
        "colParams": [],
        "startIndex": 0,
        "sliceSize": 100,
    }
    (row,) = post(server, "data/plugin/hparams/session_groups", body)["sessionGroups"]
    assert row["hparams"]["rate"] == 0.5
    assert sorted(session["name"] for session in row["sessions"]) == ["adam", "sgd"]
    assert {session["status"] for session in row["sessions"]} == {"STATUS_SUCCESS"}
    metrics = {
        (metric["name"].get("group", ""), metric["name"]["tag"]): metric["value"]
        for metric in row["metricValues"]
    }
    assert metrics["", LOSS] == pytest.approx(1 / STEPS)
    assert metrics["eval", LOSS] == 0.25
    assert first_runs(server) == ["adam", "adam/eval", "sgd"]


def test_one_tag_of_several_runs_is_asked_for_at_once(server):
    answer = post(
        server,
        "data/plugin/scalars/scalars_multirun",
        tag=LOSS,
        runs=["adam", "adam/eval"],
    )
    assert {run: len(series) for run, series in answer.items()} == {"adam": STEPS, "adam/eval": 1}


def test_the_time_series_page_has_them(server):
    requests = json.dumps([{"plugin": "scalars", "tag": LOSS}])
    (answer,) = post(server, "data/plugin/timeseries/timeSeries", requests=requests)
    series = answer["runToSeries"]["adam"]
    assert [point["step"] for point in series] == list(range(STEPS))


def test_what_is_not_there_is_an_error(server):
    for query, status in ({"run": "adam", "tag": "gone"}, 404), ({"run": "adam"}, 400):
        with pytest.raises(urllib.error.HTTPError, match=str(status)) as caught:
            server.query("data/plugin/scalars/scalars", **query)
        caught.value.close()


def test_histograms_have_every_value(server):
    tag = "OptimizeLoss/gradients/w_0"
    answer = server.query("data/plugin/histograms/histograms", run="adam", tag=tag)
    assert [step for _, step, _ in answer] == list(range(STEPS))
    for _, step, buckets in answer:
        edges = np.array(buckets)
        assert edges[:, 2].sum() == pytest.approx(WEIGHTS.shape[1])
        assert edges[0, 0] <= WEIGHTS[step].min()
        assert edges[-1, 1] >= WEIGHTS[step].max()
        assert (edges[:, 0] <= edges[:, 1]).all()


def test_distributions_are_quantiles(server):
    tag = "OptimizeLoss/gradients/w_0"
    answer = server.query("data/plugin/distributions/distributions", run="adam", tag=tag)
    _, step, quantiles = answer[-1]
    assert step == STEPS - 1
    assert [share for share, _ in quantiles] == [0, 668, 1587, 3085, 5000, 6915, 8413, 9332, 10000]
    exact = np.quantile(WEIGHTS[step], [0.1587, 0.5, 0.8413])
    np.testing.assert_allclose([quantiles[i][1] for i in (2, 4, 6)], exact, atol=0.2)


def test_texts_are_shown_and_escaped(server):
    (answer,) = server.query("data/plugin/text/text", run="adam", tag="note")
    assert answer["step"] == 3
    assert "<strong>bold</strong>" in answer["text"]
    assert "<script>" not in answer["text"]


def test_images_are_pngs(server):
    (answer,) = server.query("data/plugin/images/images", run="adam", tag="picture", sample=0)
    assert answer["step"] == 2
    png = server.query(f"data/plugin/images/individualImage?{answer['query']}")
    assert png.startswith(b"\x89PNG")


def test_what_is_written_now_is_seen_in_three_seconds(server):
    """P122: the board follows a run that is at work."""
    with SummaryWriter(f"{server.logdir}/later/live") as writer:
        begin = time.monotonic()
        for step in range(3):
            writer.add_scalar("loss", step, step)
        writer.flush()
        query = {"run": "later/live", "tag": "loss"}
        wait_for(server, "data/plugin/scalars/scalars", lambda a: len(a) == 3, **query)
        assert time.monotonic() - begin < 3


def test_p076_a_resumed_run_has_no_old_points(server):
    run = "later/resumed"
    with EventLog(f"{server.logdir}/{run}") as log:
        for step in range(6):
            log.add_summary(encode_scalar("a", step), step)
    with EventLog(f"{server.logdir}/{run}", start_step=3) as log:
        log.add_summary(encode_scalar("a", 103), 3)
    expected = [(0, 0), (1, 1), (2, 2), (3, 103)]
    query = {"run": run, "tag": "a"}
    wait_for(
        server, "data/plugin/scalars/scalars", lambda answer: points(answer) == expected, **query
    )
