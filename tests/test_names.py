"""Names that TF1 has and optkit has not are told from mistyped ones."""

from __future__ import annotations

import importlib

import pytest

import optkit
from optkit.names import TF1

MODULES = {
    key: importlib.import_module(f"optkit.{key}".rstrip("."))
    for key in TF1
    if key in ("", "train", "nn", "summary", "contrib.layers", "contrib.training")
}


@pytest.mark.parametrize("namespace", MODULES)
def test_a_missing_name_of_tf1_is_said_to_be_one(namespace):
    module = MODULES[namespace]
    absent = sorted(TF1[namespace] - set(dir(module)))
    assert absent
    with pytest.raises(AttributeError, match=f"no '{absent[0]}', which TensorFlow 1 has"):
        getattr(module, absent[0])


def test_a_mistyped_name_is_told_the_nearest():
    with pytest.raises(AttributeError, match="no attribute 'AdamOptimiser'; .*AdamOptimizer"):
        optkit.train.AdamOptimiser  # noqa: B018
    assert not hasattr(optkit, "no_such_name")
