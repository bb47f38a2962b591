import json
from types import SimpleNamespace

import numpy as np
import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.context import RequestContext
from tensorboard.plugins.hparams import (
    api_pb2,
    backend_context,
    get_experiment,
    list_session_groups,
)

from summaries import SummaryWriter, _proto, write_experiment
from summaries.hparams import check_hparam


@given(st.booleans() | st.integers(-(2**60), 2**60) | st.text() | st.floats(-1e300, 1e300))
def test_scalars_are_taken_as_they_are(value):
    checked = check_hparam("x", value)
    assert (type(checked), checked) == (type(value), value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.bool(True), True),
        (np.int8(3), 3),
        (np.uint64(2**63), 2**63),
        (np.float16(0.5), 0.5),
        (np.float32(0.25), 0.25),
        (np.float64(0.1), 0.1),
        (np.array(7), 7),
        (np.array(True), True),
        (np.str_("adam"), "adam"),
        (np.array("adam"), "adam"),
    ],
)
def test_numpys_kinds_become_pythons(value, expected):
    checked = check_hparam("x", value)
    assert checked == expected
    assert type(checked) is type(expected)


@pytest.mark.parametrize(
    "value",
    [None, [1, 2], (1,), {}, np.array([1]), 1j, b"x", object(), np.complex64(1), np.timedelta64(1)],
)
def test_other_kinds_are_refused_by_name(value):
    with pytest.raises(TypeError, match="hyper-parameter 'lr' takes a bool, int, float or str"):
        check_hparam("lr", value)


@pytest.mark.parametrize("value", [np.nan, np.inf, np.float32(-np.inf), 10**400], ids=type)
def test_what_the_page_cannot_show_is_refused(value):
    with pytest.raises(ValueError, match="hyper-parameter 'lr' takes a finite number"):
        check_hparam("lr", value)


def test_a_name_is_a_string():
    with pytest.raises(TypeError, match="the name of a hyper-parameter is a string, not int 3"):
        check_hparam(3, 1)


def test_p079_half_a_character_is_no_text():
    with pytest.raises(ValueError, match="hyper-parameter 'lr' has a lone surrogate"):
        check_hparam("lr", "\ud800")
    with pytest.raises(ValueError, match="the name of a hyper-parameter has a lone surrogate"):
        check_hparam("\ud800", 1)


@pytest.fixture
def page():
    """TensorBoard's page of hyper-parameters, without its server: the columns and the rows."""

    def page(logdir):
        multiplexer = EventMultiplexer().AddRunsFromDirectory(str(logdir))
        multiplexer.Reload()
        provider = MultiplexerDataProvider(multiplexer, str(logdir))
        context = backend_context.Context(SimpleNamespace(data_provider=provider))
        request, experiment = RequestContext(), api_pb2.GetExperimentRequest()
        columns = get_experiment.Handler(request, context, "", experiment).run()
        infos = [column.name for column in columns.hparam_infos]
        metrics = [(metric.name.tag, metric.name.group) for metric in columns.metric_infos]
        rows_request = api_pb2.ListSessionGroupsRequest(
            allowed_statuses=[0, 1, 2, 3], slice_size=100
        )
        answer = list_session_groups.Handler(request, context, "", rows_request).run()
        rows = json.loads(json_format.MessageToJson(answer)).get("sessionGroups", [])
        return sorted(infos), sorted(metrics), rows

    return page


def test_p081_the_columns_are_those_of_all_runs(tmp_path, page):
    for name, values in {"a": {"lr": 0.1}, "b": {"lr": 0.2, "wd": 1e-4, "nesterov": True}}.items():
        with SummaryWriter(tmp_path / name) as writer:
            writer.hparams(values)
            writer.add_scalar("loss", 1.0, 0)
            writer.add_scalar("loss", 0.5, 1)
    infos, metrics, rows = page(tmp_path)
    assert infos == ["lr", "nesterov", "wd"]
    assert metrics == [("loss", "")]
    assert {row["sessions"][0]["name"] for row in rows} == {"a", "b"}
    for row in rows:
        assert row["sessions"][0]["status"] == "STATUS_SUCCESS"
        assert row["metricValues"][0]["value"] == 0.5


def test_seeds_of_a_group_share_a_row(tmp_path, page):
    for seed in range(3):
        with SummaryWriter(tmp_path / str(seed)) as writer:
            writer.hparams({"lr": 0.1, "seed": seed}, group="lr=0.1")
            writer.add_scalar("loss", seed, 0)
    _, _, (row,) = page(tmp_path)
    assert row["name"] == "lr=0.1"
    assert len(row["sessions"]) == 3
    assert row["metricValues"][0]["value"] == 1


def test_an_experiment_says_what_the_page_shows(tmp_path, page):
    write_experiment(
        tmp_path,
        {"lr": (1e-4, 1.0), "name": ["sgd", "adam"], "layers": int, "nesterov": [False, True]},
        ["loss", ("accuracy", "eval")],
        name="sweep",
        description="**all**",
    )
    with SummaryWriter(tmp_path / "a") as writer:
        writer.hparams({"lr": 0.1, "name": "adam", "layers": 3, "nesterov": True, "other": 1})
        for tag in ("loss", "gradient_norm/w", "gradient_norm/b"):
            writer.add_scalar(tag, 1.0, 0)
    with SummaryWriter(tmp_path / "a" / "eval") as writer:
        writer.add_scalar("accuracy", 0.5, 0)
    infos, metrics, (row,) = page(tmp_path)
    assert infos == ["layers", "lr", "name", "nesterov"]
    assert metrics == [("accuracy", "eval"), ("loss", "")]
    assert {value["name"]["tag"]: value["value"] for value in row["metricValues"]} == {
        "loss": 1.0,
        "accuracy": 0.5,
    }


@pytest.mark.parametrize(
    ("domain", "error", "named"),
    [
        ("adam", TypeError, "takes a type, a range"),
        (3, TypeError, "takes a type, a range"),
        (dict, TypeError, "not dict"),
        ((1, 2, 3), ValueError, "a range is"),
        ((2, 1), ValueError, "a range is"),
        (("a", "b"), ValueError, "a range is"),
        ((0, np.inf), ValueError, "finite"),
        ([], ValueError, "no values"),
        ([1, "a"], ValueError, "several kinds"),
        ([None], TypeError, "'lr' takes a bool"),
    ],
)
def test_domains_are_checked(tmp_path, domain, error, named):
    with pytest.raises(error, match=named):
        write_experiment(tmp_path / "new", {"lr": domain}, [])
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("metric", [3, ("loss",), ("loss", 1), ["loss", "eval"]])
def test_metrics_are_checked(tmp_path, metric):
    with pytest.raises(TypeError, match="a tag or a pair of tag and group"):
        write_experiment(tmp_path / "new", {}, [metric])


def test_the_kinds_of_an_experiment(tmp_path, raw_events):
    write_experiment(
        tmp_path,
        {"a": bool, "b": [np.bool(True)], "c": float, "d": (0, 2), "e": [1, 2.5], "f": str},
        ["loss"],
    )
    (path,) = tmp_path.iterdir()
    (value,) = raw_events(path)[2].summary.value
    assert value.tag == "_hparams_/experiment"
    data = _proto.HParamsPluginData.FromString(value.metadata.plugin_data.content)
    infos = {info.name: info for info in data.experiment.hparam_infos}
    string, boolean, number = 1, 2, 3
    assert [info.type for info in infos.values()] == [
        *(boolean, boolean, number, number, number, string)
    ]
    assert (infos["d"].domain_interval.min_value, infos["d"].domain_interval.max_value) == (0, 2)
    assert [each.number_value for each in infos["e"].domain_discrete.values] == [1, 2.5]
    assert [info.WhichOneof("domain") is None for info in infos.values()] == [
        *(True, False, True, False, False, True)
    ]
