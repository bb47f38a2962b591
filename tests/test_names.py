"""Names that TF1 has and optkit has not are told from mistyped ones."""

from __future__ import annotations

import importlib
import operator
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import optkit
from optkit.names import INSTEAD, TF1

ROOT = Path(__file__).parents[1]
MODULES = {key: importlib.import_module(f"optkit.{key}".rstrip(".")) for key in TF1}


@pytest.mark.parametrize(
    "namespace", sorted(MODULES.keys() - {"losses", "contrib.mixed_precision"})
)
def test_a_missing_name_of_tf1_is_said_to_be_one(namespace):
    module = MODULES[namespace]
    absent = sorted(TF1[namespace] - set(dir(module)))
    assert absent
    with pytest.raises(AttributeError, match=f"no '{absent[0]}', which TensorFlow 1 has"):
        getattr(module, absent[0])


def test_all_losses_of_tf1_are_there():
    assert TF1["losses"] <= set(dir(optkit.losses))
    with pytest.raises(AttributeError, match=r"no attribute 'hubert_loss'; .*huber_loss"):
        optkit.losses.hubert_loss  # noqa: B018


def test_a_mistyped_name_is_told_the_nearest():
    with pytest.raises(AttributeError, match=r"no attribute 'AdamOptimiser'; .*AdamOptimizer"):
        optkit.train.AdamOptimiser  # noqa: B018
    assert not hasattr(optkit, "no_such_name")


@pytest.mark.parametrize(
    ("namespace", "name", "advice"),
    [
        ("", "data", "; feed arrays, or give batches to optkit.fit; see optkit.batches"),
        ("", "keras", "; see optkit.layers"),
        ("", "estimator", "; see optkit.fit and optkit.train.MonitoredTrainingSession"),
        ("", "fft2d", ""),
        ("train", "shuffle_batch", "; feed arrays, or give batches to .*"),
        ("contrib.slim", "metrics", "; see optkit.metrics"),
    ],
)
def test_what_is_left_out_is_no_misspelling_and_has_its_advice(namespace, name, advice):
    full = f"optkit.{namespace}".rstrip(".")
    with pytest.raises(
        AttributeError, match=f"^{full} has no '{name}', which TensorFlow 1 has{advice}$"
    ):
        getattr(MODULES[namespace], name)


def test_advice_is_about_names_of_tf1_that_are_not_there_and_leads_to_what_is():
    for name in INSTEAD:
        namespace, _, last = name.rpartition(".")
        assert last in TF1[namespace]
        assert last not in dir(MODULES[namespace])
    for advice in set(INSTEAD.values()):
        for name in re.findall(r"optkit\.([\w.]*\w)", advice):
            assert operator.attrgetter(name)(optkit)


def test_python_adds_no_guess_of_its_own():
    script = "import optkit; optkit.fft"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    told = "AttributeError: optkit has no 'fft', which TensorFlow 1 has"
    assert done.stderr.splitlines()[-1] == told


def test_messages_of_tensorboard_are_loaded_when_they_are_used():
    script = (
        "import sys, optkit as tf\n"
        "assert not any('_pb2' in name for name in sys.modules)\n"
        "assert tf.Summary is tf.summary.Summary\n"
        "print(tf.Summary.__name__, tf.HistogramProto.__name__)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("Summary HistogramProto\n", "")


def test_compat_v1_tells_the_same():
    with pytest.raises(AttributeError, match=r"no attribute 'get_variabel'; .*get_variable"):
        importlib.import_module("optkit.compat.v1").get_variabel  # noqa: B018


@pytest.mark.parametrize("module", MODULES.values(), ids=lambda m: m.__name__)
def test_completion_offers_the_public_names_alone(module):
    assert dir(module) == sorted(module.__all__)
    assert [name for name in dir(module) if not hasattr(module, name)] == []


# -- the appendix of README.md --------------------------------------------------------------------

APPENDIX = runpy.run_path(str(ROOT / "tests" / "names_table.py"))


def test_the_appendix_is_the_one_that_names_table_writes():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert APPENDIX["rewritten"](text) == text, "run: python tests/names_table.py README.md"


def test_the_appendix_tells_names_that_are_there_from_those_that_are_not():
    rows = {}
    for line in APPENDIX["table"]().splitlines()[2:]:
        first, there, absent = (cell.strip() for cell in line.strip("|").split("|"))
        rows[first.split("`")[1]] = there.strip("`").split(), absent.strip("`–").split()
    assert len(rows) == 10
    there, absent = rows["tf.train"]
    assert {"AdamOptimizer", "Saver"} <= set(there)
    assert "Server" in absent
    for namespace, (there, absent) in rows.items():
        module = MODULES[namespace.removeprefix("tf.")]
        assert all(hasattr(module, name) for name in there)
        assert not any(hasattr(module, name) for name in absent)


def test_names_table_writes_into_a_file(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"a\n{APPENDIX['START']}stale text\n{APPENDIX['END']}b\n")
    command = [sys.executable, str(ROOT / "tests" / "names_table.py")]
    environment = {"PYTHONPATH": str(ROOT)}
    subprocess.run([*command, str(page)], check=True, env=environment)
    printed = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    assert printed.stdout == APPENDIX["table"]()
    text = page.read_text()
    assert "stale text" not in text
    assert printed.stdout in text
    assert (text[:2], text[-2:]) == ("a\n", "b\n")
    with pytest.raises(ValueError, match="expected"):
        APPENDIX["rewritten"]("no marks")
