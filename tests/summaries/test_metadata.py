"""Notes of summaries: what TensorBoard shows with values, written with the first of a tag."""

import copy
import pickle
import re

import pytest
from tensorboard.compat.proto.summary_pb2 import (
    DATA_CLASS_SCALAR,
    DATA_CLASS_TENSOR,
    Summary,
    SummaryMetadata,
)
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout
from tensorboard.plugins.custom_scalar.metadata import CONFIG_SUMMARY_TAG, PLUGIN_NAME

from summaries import EventLog, encode_histogram, encode_scalar
from summaries.metadata import (
    SCALAR,
    TENSOR,
    Annotator,
    Notes,
    SummaryBytes,
    layout_bytes,
    metadata_bytes,
)
from summaries.optimizer import OPTIMIZER_SUMMARIES
from summaries.quantities import EXTRA_SUMMARIES, quantity_metadata

LOSS = metadata_bytes("scalars", SCALAR, "the loss", "What is *minimised*.")
WEIGHTS = metadata_bytes("histograms", TENSOR, "weights " * 30, "größer" * 100)


def by_tag(data):
    return {value.tag: value for value in Summary.FromString(data).value}


def test_metadata_is_tensorboards_message():
    message = SummaryMetadata.FromString(LOSS)
    assert message.plugin_data.plugin_name == "scalars"
    assert message.display_name == "the loss"
    assert message.summary_description == "What is *minimised*."
    assert message.data_class == DATA_CLASS_SCALAR
    long = SummaryMetadata.FromString(WEIGHTS)
    assert (long.display_name, long.data_class) == ("weights " * 30, DATA_CLASS_TENSOR)
    assert SummaryMetadata.FromString(metadata_bytes("text", TENSOR)).display_name == ""


def test_the_first_value_of_a_tag_has_the_metadata_and_no_other():
    notes = Notes({"loss": LOSS, "weights": WEIGHTS})
    annotated = Annotator()
    first = SummaryBytes(encode_scalar("loss", 1.5), notes)
    both = SummaryBytes(encode_scalar("loss", 2.5) + encode_histogram("weights", [1.0, 2.0]), notes)
    value = by_tag(annotated(first))["loss"]
    assert (value.simple_value, value.metadata.SerializeToString()) == (1.5, LOSS)
    second = by_tag(annotated(both))
    assert second["loss"].simple_value == 2.5
    assert not second["loss"].HasField("metadata")
    assert second["weights"].metadata.SerializeToString() == WEIGHTS
    assert second["weights"].histo.num == 2
    assert annotated(both) is both


def test_tags_that_two_summaries_share_are_described_once():
    annotated = Annotator()
    annotated(SummaryBytes(encode_scalar("loss", 1.0), Notes({"loss": LOSS})))
    again = SummaryBytes(encode_scalar("loss", 1.0), Notes({"loss": LOSS}))
    assert annotated(again) is again


def test_values_without_notes_stay_as_they_are():
    data = encode_scalar("a", 1.0) + encode_scalar("b", 2.0)
    annotated = Annotator()
    assert annotated(data) is data
    values = by_tag(annotated(SummaryBytes(data, Notes({"b": LOSS}))))
    assert not values["a"].HasField("metadata")
    assert values["b"].HasField("metadata")


@pytest.mark.parametrize("data", [b"\x12\x03abc", b"\x0a", b"\x0a\x02\x15\x00", b"abc"])
def test_what_is_no_summary_is_refused(data):
    with pytest.raises(ValueError, match="not a Summary message"):
        Annotator()(SummaryBytes(data, Notes({"loss": LOSS})))


def test_summary_bytes_are_bytes():
    data = encode_scalar("loss", 1.0)
    noted = SummaryBytes(data, Notes())
    assert noted == data
    assert isinstance(noted, bytes)
    assert noted + b"" == data


def test_summary_bytes_travel_with_their_notes():
    noted = SummaryBytes(encode_scalar("loss", 1.0), Notes({"loss": LOSS}, layout=True))
    for copied in (pickle.loads(pickle.dumps(noted)), copy.deepcopy(noted)):
        assert copied == noted
        assert type(copied) is SummaryBytes
        assert copied.notes.metadata == {"loss": LOSS}
        assert copied.notes.layout


# -- the layout -----------------------------------------------------------------------------------


def test_the_layout_comes_first_and_once():
    noted = SummaryBytes(encode_scalar("loss", 1.0), Notes({"loss": LOSS}, layout=True))
    annotated = Annotator()
    assert annotated(noted).startswith(layout_bytes())
    assert annotated(noted) is noted


@pytest.mark.parametrize(("wanted", "optimizer"), [(False, True), (True, False)])
def test_no_layout_unless_asked_for_and_an_optimizers(wanted, optimizer):
    noted = SummaryBytes(encode_scalar("loss", 1.0), Notes({"loss": LOSS}, layout=optimizer))
    assert list(by_tag(Annotator(layout=wanted)(noted))) == ["loss"]


def layout():
    value = by_tag(layout_bytes())[CONFIG_SUMMARY_TAG]
    assert value.metadata.plugin_data.plugin_name == PLUGIN_NAME
    assert value.metadata.data_class == DATA_CLASS_TENSOR
    (content,) = value.tensor.string_val
    return Layout.FromString(content)


@pytest.mark.parametrize("scope", ["", "OptimizeLoss/", "a/b/"])
def test_the_charts_find_the_tags_below_any_scope(scope):
    (category,) = layout().category
    found = {}
    tags = [
        *("loss", "learning_rate", "global_norm/gradient_norm"),
        *("global_norm/clipped_gradient_norm", "gradient_norm/w_0", "gradient_norm/a/b/w_0"),
        *("gradients/w_0", "gradients/loss_0", "weight_norm/w_0", "update_ratio/loss_0"),
        "summarize_grads/w_gradient_norm",
    ]
    for chart in category.chart:
        # TensorBoard matches a pattern against the start of a tag.
        matches = [t for t in tags if any(re.match(p, scope + t) for p in chart.multiline.tag)]
        found[chart.title] = matches
    assert found == {
        "loss": ["loss"],
        "learning rate": ["learning_rate"],
        "global norm before and after clipping": tags[2:4],
        "gradient norms": [*tags[4:6], tags[-1]],
    }


# -- quantities -----------------------------------------------------------------------------------


def test_every_quantity_of_a_step_is_described():
    of_variables = ["gradients", "gradient_norm", *EXTRA_SUMMARIES]
    for name in of_variables:
        message = SummaryMetadata.FromString(quantity_metadata(name, "dense/kernel"))
        assert "dense/kernel" in message.display_name
        histogram = name in ("gradients", "weights")
        assert message.plugin_data.plugin_name == ("histograms" if histogram else "scalars")
        assert message.data_class == (DATA_CLASS_TENSOR if histogram else DATA_CLASS_SCALAR)
        assert message.summary_description.endswith(".")
    whole = ["loss", "learning_rate", "global_norm/gradient_norm"]
    for name in [*whole, "global_norm/clipped_gradient_norm"]:
        assert SummaryMetadata.FromString(quantity_metadata(name)).display_name
    assert set(OPTIMIZER_SUMMARIES) == {*whole[:2], *of_variables[:2], "global_gradient_norm"}


def test_descriptions_are_read_by_tensorboard(tmp_path, load_as_server):
    notes = Notes({"loss": quantity_metadata("loss")}, layout=True)
    annotated = Annotator()
    with EventLog(tmp_path) as log:
        for step in range(3):
            log.add_summary(annotated(SummaryBytes(encode_scalar("loss", step), notes)), step)
    metadata = load_as_server(tmp_path).SummaryMetadata("loss")
    assert metadata.display_name == "loss"
    assert metadata.summary_description == "The loss before the step."
