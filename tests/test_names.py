"""Names that TF1 has and optkit has not are told from mistyped ones."""

from __future__ import annotations

import importlib

import pytest

import optkit
from optkit.names import TF1

MODULES = {
    key: importlib.import_module(f"optkit.{key}".rstrip("."))
    for key in TF1
    if key in ("", "train", "nn", "summary", "contrib", "contrib.layers", "contrib.training")
}


@pytest.mark.parametrize("namespace", MODULES)
def test_a_missing_name_of_tf1_is_said_to_be_one(namespace):
    module = MODULES[namespace]
    absent = sorted(TF1[namespace] - set(dir(module)))
    assert absent
    with pytest.raises(AttributeError, match=f"no '{absent[0]}', which TensorFlow 1 has"):
        getattr(module, absent[0])


def test_a_mistyped_name_is_told_the_nearest():
    with pytest.raises(AttributeError, match=r"no attribute 'AdamOptimiser'; .*AdamOptimizer"):
        optkit.train.AdamOptimiser  # noqa: B018
    assert not hasattr(optkit, "no_such_name")


@pytest.mark.parametrize("name", ["data", "keras", "estimator"])
def test_a_part_of_tf1_that_is_not_there_is_not_taken_for_a_misspelling(name):
    with pytest.raises(AttributeError, match=f"^optkit has no '{name}', which TensorFlow 1 has$"):
        getattr(optkit, name)


def test_compat_v1_tells_the_same():
    with pytest.raises(AttributeError, match=r"no attribute 'get_variabel'; .*get_variable"):
        importlib.import_module("optkit.compat.v1").get_variabel  # noqa: B018


@pytest.mark.parametrize("module", [*MODULES.values(), optkit.layers], ids=lambda m: m.__name__)
def test_completion_offers_the_public_names_alone(module):
    assert dir(module) == sorted(module.__all__)
    assert [name for name in dir(module) if not hasattr(module, name)] == []
