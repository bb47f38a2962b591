"""contrib's variable functions; names and collections observed with tf_slim 1.1 on TF 2.21."""

import inspect

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import optkit as tf
from optkit.contrib import framework


def names(items):
    return [item.op.name for item in items]


@pytest.fixture
def variables():
    """Two scopes whose names begin alike, and some variables without."""
    with tf.variable_scope("a") as scope:
        framework.variable("weights", [2], initializer=tf.ones_initializer())
        framework.model_variable("biases", [2], collections=["x", "x"])
        framework.model_variable("nt", [2], trainable=False)
    with tf.variable_scope("ab"):
        framework.variable("weights", [2])
        framework.variable("my_weights", [1])
    framework.variable("weights", [2])
    framework.local_variable(1.0, name="loc")
    framework.global_variable(2.0, name="glob")
    return scope


A = ["a/weights", "a/biases", "a/nt"]
AB = ["ab/weights", "ab/my_weights"]


def test_collections(graph, variables):
    found = {key: names(graph.get_collection(key)) for key in graph.get_all_collection_keys()}
    assert found == {
        "variables": [*A, *AB, "weights", "glob"],
        "trainable_variables": [*A[:2], *AB, "weights"],
        "model_variables": ["a/biases", "a/nt"],
        "local_variables": ["loc"],
        "x": ["a/biases"],
    }


def test_collections_of_ones_own():
    v = framework.variable("v", [1], collections=["x"])
    assert tf.get_collection("x") == [v]
    assert tf.global_variables() == []


def test_get_variables(variables):
    assert names(framework.get_variables()) == [*A, *AB, "weights", "glob"]
    assert names(framework.get_variables("a")) == [*A, *AB]
    assert names(framework.get_variables("a/")) == A
    assert names(framework.get_variables(suffix="weights")) == ["a/weights", *AB, "weights"]
    assert names(framework.get_variables("a", suffix="weights")) == ["a/weights", *AB]
    assert names(framework.get_variables(suffix="weights:0")) == ["a/weights", *AB, "weights"]
    assert names(framework.get_variables(collection="local_variables")) == ["loc"]


def test_a_scope_object_stands_for_itself_alone(variables):
    """TensorFlow takes its name as a prefix and finds "ab" in "a" as well."""
    assert names(framework.get_variables(variables)) == A
    root = tf.get_variable_scope()
    assert names(framework.get_variables(root)) == names(framework.get_variables())


def test_by_collection(variables):
    assert names(framework.get_model_variables()) == ["a/biases", "a/nt"]
    assert names(framework.get_model_variables("a", "nt")) == ["a/nt"]
    assert names(framework.get_local_variables()) == ["loc"]
    assert names(framework.get_trainable_variables("a/")) == ["a/weights", "a/biases"]


def test_by_name(variables):
    assert names(framework.get_variables_by_name("weights")) == [
        "a/weights", "ab/weights", "weights",
    ]  # fmt: skip
    assert names(framework.get_variables_by_name("weights", "a/")) == ["a/weights"]
    assert names(framework.get_variables_by_suffix("ights", "ab")) == AB
    a = framework.get_unique_variable("a/weights")
    assert a.op.name == framework.get_variable_full_name(a) == "a/weights"
    assert framework.get_unique_variable("weights").op.name == "weights"


@pytest.mark.parametrize(("name", "hint"), [("a", "; there is 'a/weights'"), ("nope", "$")])
def test_no_such_variable(variables, name, hint):
    with pytest.raises(ValueError, match=f"there is no global variable '{name}'{hint}"):
        framework.get_unique_variable(name)


def test_to_restore(variables):
    every = [*A, *AB, "weights", "glob"]
    restored = framework.get_variables_to_restore
    assert names(restored()) == every
    assert names(restored(include=["a"])) == [*A, *AB]
    assert names(restored(exclude=("a",))) == ["weights", "glob"]
    assert names(restored(include=["a", "a/"], exclude=["ab", "weights"])) == A
    for argument in ("include", "exclude"):
        with pytest.raises(TypeError, match=f"{argument}: expected a list of scopes, got 'a'"):
            restored(**{argument: "a"})


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, [*A, *AB, "weights", "glob"]),
        ({"include_patterns": ["weights"]}, ["a/weights", *AB, "weights"]),
        ({"include_patterns": ["weights"], "reg_search": False}, ["weights"]),
        ({"exclude_patterns": ["a/", "glob"]}, [*AB, "weights"]),
        ({"include_patterns": ["^a.*"], "exclude_patterns": ["bias"]}, ["a/weights", "a/nt", *AB]),
    ],
)
def test_filter_variables(variables, arguments, expected):
    assert names(framework.filter_variables(framework.get_variables(), **arguments)) == expected


def test_patterns_are_a_list(variables):
    with pytest.raises(TypeError, match="include_patterns: expected a list of patterns, got 'a'"):
        framework.filter_variables([], include_patterns="a")


def test_values(variables):
    operation, feed = framework.assign_from_values({"a/weights": np.float32([5, 6])})
    (fed,) = feed
    assert fed.name == "placeholder/a/weights:0"
    set_all = framework.assign_from_values_fn({"a/weights": [[7], [8]], "glob": 3})
    a, glob = (framework.get_unique_variable(name) for name in ("a/weights", "glob"))
    with tf.Session() as sess:
        sess.run(tf.global_variables_initializer())
        sess.run(operation, feed)
        assert_array_equal(sess.value(a), [5, 6])
        set_all(sess)
        assert_array_equal(sess.value(a), [7, 8])
        assert sess.value(glob) == 3.0


BAD_VALUES = [
    (ValueError, "there is no global variable 'nope'", {"nope": 1}),
    (
        ValueError,
        r"'a/weights': value: expected shape \(2,\), got \(3,\)",
        {"a/weights": [1, 2, 3]},
    ),
    (TypeError, "'a/weights': value: expected float32, got complex128", {"a/weights": [1j, 2]}),
]


@pytest.mark.parametrize(("error", "message", "values"), BAD_VALUES)
def test_values_that_do_not_fit(graph, variables, error, message, values):
    before = len(graph.get_operations())
    with pytest.raises(error, match=message):
        framework.assign_from_values({"glob": 1.0} | values)
    assert len(graph.get_operations()) == before


def test_model_variables_are_listed_once(variables):
    a = framework.get_unique_variable("a/weights")
    framework.add_model_variable(a)
    framework.add_model_variable(a)
    assert names(framework.get_model_variables()) == ["a/biases", "a/nt", "a/weights"]


def test_reuse(variables):
    with tf.variable_scope("a", reuse=True):
        found = framework.model_variable("biases", [2])
        with pytest.raises(ValueError, match=r"variable 'a/biases': shape: expected \(2,\)"):
            framework.model_variable("biases", [3])
    assert found is framework.get_unique_variable("a/biases")
    with pytest.raises(ValueError, match="variable 'weights' exists already"):
        framework.variable("weights", [2])


def test_settings_reach_the_variable():
    with framework.arg_scope([framework.model_variable], trainable=False, device="/cpu:0"):
        v = framework.model_variable("v", [2], tf.float64, tf.zeros_initializer(), tf.reduce_sum)
    assert (v.dtype, v.device, v.trainable) == (tf.float64, "/cpu:0", False)
    assert [loss.name for loss in tf.get_collection("regularization_losses")] == [
        "v/Regularizer/Sum:0"
    ]
    seen = []

    def getter(make, name, **settings):
        seen.append(name)
        return make(name=name, **settings)

    framework.variable("w", [1], custom_getter=getter)
    assert seen == ["w"]


def test_variables_of_any_shape():
    v = framework.local_variable([1.0, 2.0], validate_shape=False)
    assert v.shape == tf.TensorShape(None)
    assert framework.global_variable(1, name="g").dtype == tf.int32
    assert tf.trainable_variables() == []


def test_signatures_are_those_of_contrib():
    """As tf_slim 1.1 has them."""
    make = ["name", "shape", "dtype", "initializer", "regularizer", "trainable", "collections",
            "caching_device", "device", "partitioner", "custom_getter", "use_resource",
            "synchronization", "aggregation"]  # fmt: skip
    find = ["scope", "suffix"]
    expected = {
        "variable": make,
        "model_variable": make,
        "local_variable": ["initial_value", "validate_shape", "name", "use_resource"],
        "global_variable": ["initial_value", "validate_shape", "name", "use_resource"],
        "get_variables": [*find, "collection"],
        "get_model_variables": find,
        "get_local_variables": find,
        "get_trainable_variables": find,
        "get_variables_by_name": ["given_name", "scope"],
        "get_variables_by_suffix": ["suffix", "scope"],
        "get_variables_to_restore": ["include", "exclude"],
        "get_unique_variable": ["var_op_name"],
        "filter_variables": ["var_list", "include_patterns", "exclude_patterns", "reg_search"],
        "assign_from_values": ["var_names_to_values"],
        "assign_from_values_fn": ["var_names_to_values"],
        "add_model_variable": ["var"],
        "arg_scope": ["list_ops_or_scope", "kwargs"],
        "add_arg_scope": ["func"],
    }
    for name, arguments in expected.items():
        assert list(inspect.signature(getattr(framework, name)).parameters) == arguments, name
