"""`fit` in a notebook: what its cells show."""

import pytest

SETUP = """
import warnings
warnings.simplefilter("error")
import numpy as np
import optkit as tf

rng = np.random.default_rng(0)
images = rng.normal(size=(100, 3)).astype("float32")
labels = images @ np.float32([1, 2, 3])
x = tf.placeholder(tf.float32, [None, 3], name="x")
y = tf.placeholder(tf.float32, [None], name="y")
w = tf.get_variable("w", [3])
loss = tf.losses.mean_squared_error(y, tf.reduce_sum(x * w, 1))
train_op = tf.train.AdamOptimizer(0.1).minimize(loss, tf.train.get_or_create_global_step())
"""
TRAIN = """
history = tf.fit(train_op, tf.batches((images, labels), 10), (x, y), steps=300)
history
"""
BROKEN = """
images[3] = np.nan
tf.fit(train_op, tf.batches((images, labels), 10), (x, y), steps=300)
"""


@pytest.mark.slow
def test_cells_show_a_bar_a_table_and_an_error_that_explains(tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(text) for text in (SETUP, TRAIN, BROKEN)]
    )
    client = nbclient.NotebookClient(
        notebook,
        timeout=60,
        kernel_name="python3",
        allow_errors=True,
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
    setup, train, broken = (cell.outputs for cell in notebook.cells)
    assert setup == []
    table = train[-1].data["text/html"]
    assert "300 steps in" in table
    assert "<th>loss</th>" in table
    shown = [out for out in train[:-1] if out.output_type in ("stream", "display_data")]
    assert shown, "no bar"
    assert "/300" in str(shown)  # widgets tell their first state
    error = broken[-1]
    assert (error.output_type, error.ename) == ("error", "NonFiniteError")
    for part in ("it came with what is fed for 'x'", "bad examples: 3", "optkit debug"):
        assert part in error.evalue
