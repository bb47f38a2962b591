"""Layers of one's own: names, scopes, variables, losses, updates, reuse, failed calls."""

import gc
import weakref

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import optkit as tf
from optkit import layers
from optkit.layers.arguments import activation_of, initializer_of
from optkit.runtime.eager import eager


class Counting(layers.Layer):
    """x·w, which counts its uses in m."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, input_shape):
        self.w = self.add_weight(
            "w",
            [input_shape[-1], self.units],
            initializer=tf.ones_initializer(),
            regularizer=tf.reduce_sum,
        )
        self.m = self.add_variable("m", [], initializer=tf.zeros_initializer(), trainable=False)
        super().build(input_shape)

    def call(self, inputs, factor=1.0):
        self.add_loss(tf.reduce_sum(inputs))
        self.add_update(tf.assign_add(self.m, 1.0))
        return tf.matmul(inputs, self.w) * factor


def names(items):
    return [item.name for item in items]


def pairs():
    return tf.placeholder(tf.float32, [None, 2], name="x")


# -- names, observed in TensorFlow 2.21 with tf_keras (v1, graph mode) ----------------------------


def test_layer_objects_are_counted_from_one_and_their_scopes_from_none():
    x = pairs()
    first, second = Counting(3), Counting(3)
    assert (first.name, second.name) == ("counting_1", "counting_2")
    assert names([second(x), first(x), first(x)]) == [
        "counting/mul:0",
        "counting_1/mul:0",
        "counting_1/mul_1:0",
    ]
    assert (first.scope_name, second.scope_name) == ("counting_1", "counting")
    assert names(first.variables) == ["counting_1/w:0", "counting_1/m:0"]


def test_a_layer_stays_in_the_scope_of_its_first_call():
    x = pairs()
    layer = Counting(3, name="q")
    with tf.variable_scope("outer"):
        assert layer(x).name == "outer/q/mul:0"
    with tf.variable_scope("other"):
        assert layer(x).name == "outer/q/mul_1:0"
    assert (layer.name, layer.scope_name) == ("q", "outer/q")
    assert names(tf.global_variables()) == ["outer/q/w:0", "outer/q/m:0"]


def test_name_scopes_prefix_operations_but_not_variables():
    with tf.name_scope("ns"):
        y = Counting(3)(pairs())
    assert y.name == "ns/counting/mul:0"
    assert names(tf.trainable_variables()) == ["counting/w:0"]


def test_scopes_asked_for():
    x = pairs()
    assert Counting(3, _scope="sc")(x).name == "sc/mul:0"
    assert Counting(3, _scope="sc", _reuse=True)(x).name == "sc_1/mul:0"
    assert names(tf.trainable_variables()) == ["sc/w:0"]
    assert Counting(3)(x, scope="called").name == "called/mul:0"
    layer = Counting(3, _reuse=tf.AUTO_REUSE, name="auto")
    assert layer(x).name == "auto/mul:0"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("MaxPooling2D", "max_pooling2d"),
        ("Conv2DTranspose", "conv2d_transpose"),
        ("LSTMCell", "lstm_cell"),
        ("BatchNormalization", "batch_normalization"),
        ("MyLayer", "my_layer"),
    ],
)
def test_names_come_from_the_class(name, expected):
    layer = type(name, (layers.Layer,), {})()
    assert layer.name == f"{expected}_1"
    layer(pairs())
    assert layer.scope_name == expected


class Getting(layers.Layer):
    """A layer that gets its variable when it is called."""

    def call(self, inputs):
        return inputs + tf.get_variable("b", [2])


def test_variables_that_a_call_gets_are_found_again():
    layer, x = Getting(), pairs()
    layer(x)
    layer(x)
    assert names(tf.global_variables()) == ["getting/b:0"]


def test_reuse_without_a_name_is_that_of_the_first_scope():
    x = pairs()
    layers.dense(x, 3)
    assert layers.dense(x, 3, reuse=True).name == "dense_1/BiasAdd:0"
    assert names(tf.global_variables()) == ["dense/kernel:0", "dense/bias:0"]


def test_building_by_hand():
    layer = Counting(3)
    assert not layer.built
    layer.build(tf.TensorShape([None, 2]))
    assert layer.built
    assert names(layer.variables) == ["counting/w:0", "counting/m:0"]
    assert layer(pairs()).name == "counting/mul:0"
    assert layer.count_params() == 7


# -- variables ------------------------------------------------------------------------------------


def test_variables_by_kind():
    layer = Counting(3)
    layer(pairs())
    assert layer.trainable_variables == layer.trainable_weights == [layer.w]
    assert layer.non_trainable_variables == layer.non_trainable_weights == [layer.m]
    assert layer.graph is layer.w.graph
    layer.trainable = False
    assert layer.trainable_variables == []
    assert layer.non_trainable_variables == layer.variables == [layer.w, layer.m]
    assert layer.updates == []


def test_a_layer_that_is_not_trainable_from_the_start(graph):
    layer = Counting(3, trainable=False)
    layer(pairs())
    assert tf.trainable_variables() == []
    assert graph.get_collection(tf.GraphKeys.UPDATE_OPS) == []


def test_scopes_give_initializers_and_regularizers():
    """TensorFlow 2.21: the defaults of the variable scope hold for layers too."""
    with tf.variable_scope("s", initializer=tf.ones_initializer(), regularizer=tf.reduce_sum):
        layer = layers.Dense(2)
        layer(pairs())
    assert names(layer.losses) == names(tf.get_collection("regularization_losses"))
    assert len(layer.losses) == 2
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        assert_array_equal(sess.value(layer.kernel), np.ones((2, 2)))


@pytest.mark.parametrize(
    ("given", "expected"), [("float16", "float16"), ("float64", "float64"), (None, "float32")]
)
def test_the_dtype_is_the_first_inputs(given, expected):
    layer = Counting(3)
    layer(tf.ones([1, 2], given or tf.float32))
    assert layer.dtype == layer.w.dtype == expected


def test_a_dtype_asked_for():
    layer = Counting(3, dtype=tf.float64)
    assert layer.dtype is tf.float64
    with pytest.raises(TypeError, match="float64"):
        layer(tf.ones([1, 2]))


# -- losses and updates ---------------------------------------------------------------------------


def test_losses_and_updates_by_input(graph):
    x, z = pairs(), pairs()
    layer = Counting(3)
    layer(x)
    layer(z)
    assert names(graph.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)) == names(layer.losses)
    assert names(layer.losses) == [
        "counting/w/Regularizer/Sum:0", "counting/Sum:0", "counting/Sum_1:0",
    ]  # fmt: skip
    assert names(layer.get_losses_for(None)) == ["counting/w/Regularizer/Sum:0"]
    assert names(layer.get_losses_for(z)) == ["counting/Sum_1:0"]
    assert names(layer.get_losses_for([x, z])) == ["counting/Sum:0", "counting/Sum_1:0"]
    assert graph.get_collection(tf.GraphKeys.UPDATE_OPS) == layer.updates
    assert layer.get_updates_for(None) == layer.updates
    assert layer.get_updates_for(x) == []
    layer.add_loss([tf.constant(1.0), tf.constant(2.0)])
    assert len(layer.losses) == 5


def test_activity_regularizer_counts_rows():
    """TensorFlow 1.15: the loss is divided by the size of the first axis."""
    layer = layers.Layer(activity_regularizer=tf.reduce_sum)
    layer(tf.constant([[1.0, 2.0], [3.0, 6.0]]))
    (loss,) = tf.get_collection(tf.GraphKeys.REGULARIZATION_LOSSES)
    assert loss.name == "layer/ActivityRegularizer/truediv:0"
    assert layer.losses == [loss]
    with tf.Session() as sess:
        assert sess.run(loss) == 6.0


# -- inputs ---------------------------------------------------------------------------------------


class Sum(layers.Layer):
    def build(self, input_shape):
        self.shapes = input_shape
        super().build(input_shape)

    def call(self, inputs):
        return inputs[0] + inputs[1] if isinstance(inputs, list) else inputs["a"] + inputs["b"]


def test_several_inputs():
    x, z = pairs(), np.ones((1, 2), np.float32)
    layer = Sum()
    assert layer((x, z)).name == "sum/add:0"
    assert layer.shapes == [tf.TensorShape([None, 2]), tf.TensorShape([1, 2])]
    assert layer({"a": x, "b": z}).shape == [None, 2]


def test_apply_is_the_call():
    layer = Counting(3)
    assert layer.apply(pairs(), factor=2.0).name == "counting/mul:0"


@pytest.mark.parametrize("layer", [layers.Dropout(), layers.BatchNormalization()])
def test_layers_that_keep_the_shape(layer):
    assert layer.compute_output_shape([None, 3]).as_list() == [None, 3]


def test_a_list_of_numbers_is_one_input():
    y = layers.Layer()([[1.0, 2.0]])
    assert y.shape == (1, 2)


SPECS = [
    (layers.InputSpec(dtype="float64"), "dtype float64"),
    (layers.InputSpec(shape=[None, 3]), r"shape \(\?, 3\)"),
    (layers.InputSpec(ndim=3), "3 axes"),
    (layers.InputSpec(max_ndim=1), "at most 1 axes"),
    (layers.InputSpec(min_ndim=3), "at least 3 axes"),
    (layers.InputSpec(axes={-1: 5}), "size 5 on axis -1"),
]


@pytest.mark.parametrize(("spec", "expected"), SPECS)
def test_inputs_are_checked(graph, spec, expected):
    layer = layers.Layer(name="checked")
    layer.input_spec = spec
    message = rf"Layer 'checked': inputs: expected {expected}, got <optkit.Tensor 'x:0'"
    with pytest.raises(ValueError, match=message):
        layer(pairs())
    assert names(graph.get_operations()) == ["x"]
    if spec.dtype is None:
        layer(tf.placeholder(tf.float32))


@pytest.mark.parametrize(
    "spec",
    [
        layers.InputSpec(dtype="float32", shape=[None, 2]),
        layers.InputSpec(ndim=2, axes={-1: 2, 0: 7}),
        layers.InputSpec(min_ndim=2, max_ndim=2),
    ],
)
def test_inputs_that_fit(spec):
    layer = layers.Layer()
    layer.input_spec = spec
    assert layer(pairs()).shape == [None, 2]
    layer.input_spec = [spec, spec]
    layer([pairs(), pairs()])
    with pytest.raises(ValueError, match="inputs: expected 2 tensors, got 1"):
        layer(pairs())


def test_specs_show_what_they_ask():
    assert repr(layers.InputSpec(ndim=2, axes={1: 3})) == "InputSpec(ndim=2, axes={1: 3})"


# -- failures -------------------------------------------------------------------------------------


class Failing(Counting):
    def call(self, inputs, factor=1.0):
        super().call(inputs)
        raise ValueError("no output")


def test_a_failed_call_leaves_no_trace(graph):
    x = pairs()
    layer = Failing(3)
    with pytest.raises(ValueError, match="no output"):
        layer(x)
    assert names(graph.get_operations()) == ["x"]
    assert tf.global_variables() == []
    for key in (tf.GraphKeys.REGULARIZATION_LOSSES, tf.GraphKeys.UPDATE_OPS):
        assert graph.get_collection(key) == []
    assert not layer.built
    assert layer.weights == layer.losses == layer.updates == []
    assert not hasattr(layer, "w")
    assert Counting(3)(x).name == "counting/mul:0"


def test_a_failed_later_call_keeps_the_variables():
    layer = Counting(3)
    layer(pairs())
    losses = layer.losses
    with pytest.raises(ValueError, match="MatMul"):
        layer(tf.ones([1, 5]))
    assert layer.built
    assert layer.losses == losses
    assert layer(pairs()).name == "counting/mul_1:0"


REFUSED = [
    (TypeError, "Dense: unknown arguments unit", lambda: layers.Dense(3, unit=1)),
    (TypeError, "Layer: name: expected a string or None, got 5", lambda: layers.Layer(name=5)),
    (
        ValueError,
        "Layer 'a': scope_name: it has no scope",
        lambda: layers.Layer(name="a").scope_name,
    ),
    (ValueError, "Layer 'a': count_params", lambda: layers.Layer(name="a").count_params()),
    (TypeError, "Layer 'a': inputs: ", lambda: layers.Layer(name="a")(tf.no_op())),
    (ValueError, "Layer 'a': inputs: .*None", lambda: layers.Layer(name="a")(None)),
    (
        TypeError,
        "Dense 'dense': regularizer of 'kernel': expected a function, got 'l2'",
        lambda: layers.dense(pairs(), 3, kernel_regularizer="l2"),
    ),
    (
        NotImplementedError,
        "Layer must define compute_output_shape",
        lambda: layers.Layer().compute_output_shape([1]),
    ),
]


@pytest.mark.parametrize(("error", "message", "call"), REFUSED)
def test_refusals(error, message, call):
    with pytest.raises(error, match=message):
        call()


# -- arguments ------------------------------------------------------------------------------------


def test_activations_by_name():
    assert activation_of("relu") is tf.nn.relu
    assert activation_of("linear") is activation_of(None) is None
    assert activation_of(tf.tanh) is tf.tanh
    for bad in ("rellu", 3):
        with pytest.raises(TypeError, match=f"activation: expected a function.*{bad!r}"):
            activation_of(bad)


def test_initializers_by_name():
    given = tf.ones_initializer()
    assert initializer_of(given) is given
    assert type(initializer_of("glorot_normal")) is tf.glorot_normal_initializer
    assert type(initializer_of("zeros")) is tf.zeros_initializer
    with pytest.raises(ValueError, match=r"initializer: .*'nonsense'"):
        initializer_of("nonsense")


# -- eager mode -----------------------------------------------------------------------------------


def test_a_layer_keeps_its_variables_in_eager_mode():
    with eager():
        layer = Counting(3)
        y = layer([[1.0, 2.0]])
        assert_allclose(y.numpy(), [[3.0, 3.0, 3.0]])
        assert [float(loss.numpy()) for loss in layer.losses] == [6.0, 3.0]
        w = layer.w
        layer(np.float32([[4.0, 5.0]]), factor=2.0)
        assert layer.w is w
        assert [float(loss.numpy()) for loss in layer.losses] == [6.0, 9.0]
        assert layer.m.numpy() == 2.0


def test_a_dropped_layer_frees_its_variables():
    with eager():
        layer = Counting(3)
        layer([[1.0, 2.0]])
        seen = weakref.ref(layer.w)
        del layer
        gc.collect()
        assert seen() is None


def test_tensors_of_the_other_mode_are_refused(graph):
    x = pairs()
    with eager():
        value = tf.constant([[1.0, 2.0]])
        with pytest.raises(RuntimeError, match="was built in a graph"):
            Counting(3)(x)
    with pytest.raises((RuntimeError, ValueError), match="eager mode"):
        Counting(3)(value)
    assert names(graph.get_operations()) == ["x"]
