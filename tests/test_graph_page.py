"""What TensorBoard's graph page gets of a graph that FileWriter wrote."""

import numpy as np
import pytest
from google.protobuf import text_format
from tensorboard.backend.event_processing.data_provider import MultiplexerDataProvider
from tensorboard.backend.event_processing.plugin_event_multiplexer import EventMultiplexer
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.plugins.base_plugin import TBContext
from tensorboard.plugins.graph.graphs_plugin import GraphsPlugin
from werkzeug.test import Client

import optkit as tf


def shown(logdir, run="."):
    """The nodes, by name, that the page asks the server for."""
    multiplexer = EventMultiplexer()
    multiplexer.AddRunsFromDirectory(str(logdir))
    multiplexer.Reload()
    provider = MultiplexerDataProvider(multiplexer, str(logdir))
    plugin = GraphsPlugin(TBContext(logdir=str(logdir), data_provider=provider))
    apps = plugin.get_plugin_apps()
    info = Client(apps["/info"]).get("/info").get_json()
    assert info[run]["run_graph"], "the page offers the run's graph"
    answer = Client(apps["/graph"]).get(f"/graph?run={run}&conceptual=false")
    assert answer.status_code == 200
    graph = text_format.Parse(answer.get_data(as_text=True), GraphDef())
    nodes = {node.name: node for node in graph.node}
    assert len(nodes) == len(graph.node), "every name is one node's"
    return nodes


def scopes(nodes):
    return {name.rpartition("/")[0] for name in nodes} - {""}


@pytest.fixture
def nodes(tmp_path):
    """The page of a graph with a network, an optimizer, control flow and reads of variables."""
    x = tf.placeholder(tf.float32, [None, 4], name="x")
    with tf.variable_scope("net"):
        with tf.variable_scope("hidden"):
            w = tf.get_variable("w", initializer=np.ones([4, 2], np.float32))
            hidden = tf.nn.relu(tf.matmul(x, w), name="out")
        left, right = tf.split(hidden, 2, axis=1, name="halves")
        out = tf.add(left, right, name="sum")
    loss = tf.reduce_mean(tf.square(out), name="loss")
    step = tf.train.get_or_create_global_step()
    train_op = tf.train.AdamOptimizer(0.1).minimize(loss, global_step=step)
    with tf.control_dependencies([train_op]):
        tf.identity(w, name="after")
    with tf.name_scope("choice"):
        tf.cond(tf.greater(loss, 1.0), lambda: loss * 2.0, lambda: loss + 1.0)
    tf.summary.scalar("loss", loss)
    with tf.summary.FileWriter(tmp_path, tf.get_default_graph()):
        pass
    return shown(tmp_path)


def test_every_operation_is_a_node(nodes, graph):
    assert {name: node.op for name, node in nodes.items()} == {
        op.name: op.type for op in graph.get_operations()
    }


def test_every_edge_leads_to_a_node(nodes):
    for node in nodes.values():
        for edge in node.input:
            name, _, place = edge.removeprefix("^").partition(":")
            assert name in nodes
            assert not place or int(place) > 0, "the first output goes without a number"
        controls = [edge.startswith("^") for edge in node.input]
        assert controls == sorted(controls), "control edges come last"


def test_scopes_nest(nodes):
    assert {"net", "net/hidden", "net/hidden/w", "Adam", "choice"} <= scopes(nodes)
    assert any(scope.startswith("gradients/net/hidden") for scope in scopes(nodes))


def test_data_flows_along_edges(nodes):
    assert list(nodes["net/hidden/out"].input) == ["net/hidden/MatMul"]
    assert list(nodes["net/sum"].input) == ["net/halves", "net/halves:1"]


def test_a_variable_is_joined_to_what_reads_and_writes_it(nodes):
    assert list(nodes["net/hidden/MatMul"].input) == ["x", "net/hidden/w"]
    assert nodes["net/hidden/w"].op == "VariableV2"
    writers = [n.name for n in nodes.values() if "net/hidden/w" in n.input and "Adam" in n.name]
    assert writers
    assert "net/hidden/w" in nodes["net/hidden/w/Assign"].input


def test_control_dependencies_are_edges_too(nodes):
    reads = [name for name in nodes["after"].input if not name.startswith("^")]
    (read,) = reads
    assert nodes[read].op == "ReadVariable"
    assert list(nodes[read].input) == ["net/hidden/w", "^Adam"]


def test_a_graph_added_later_is_the_one_that_is_shown(tmp_path):
    writer = tf.summary.FileWriter(tmp_path / "run")
    tf.constant(1.0, name="first")
    writer.add_graph(tf.get_default_graph())
    tf.constant(1.0, name="second")
    writer.add_graph(tf.get_default_graph(), global_step=3)
    writer.close()
    assert set(shown(tmp_path, "run")) == {"first", "second"}


def test_the_graph_of_a_session_is_shown(tmp_path):
    tf.constant(1.0, name="here")
    with tf.Session() as session, tf.summary.FileWriter(tmp_path, session=session):
        pass
    assert set(shown(tmp_path)) == {"here"}
