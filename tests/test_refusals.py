"""A refused call leaves the graph as it was: every public function, called with nonsense."""

import inspect
import warnings
from types import ModuleType

import numpy as np
import pytest

import optkit
from optkit.graph import Graph, IndexedSlices
from tests.graph.test_graph import state_of

MODULES = {
    "": optkit,
    "nn": optkit.nn,
    "losses": optkit.losses,
    "layers": optkit.layers,
    "train": optkit.train,
    "summary": optkit.summary,
    "contrib.layers": optkit.contrib.layers,
    "contrib.opt": optkit.contrib.opt,
    "contrib.training": optkit.contrib.training,
}
# What changes more than the graph, only opens a scope, waits for something to happen, or starts a
# session, for which the graph gets its initialisers and checks first.
NOT_CALLED = {
    "MonitoredTrainingSession",
    "fit",
    "train",
    "checkpoints_iterator",
    "wait_for_new_checkpoint",
    "InteractiveSession",
    "enable_eager_execution",
    "reset_default_graph",
    "use_backend",
    "set_random_seed",
    "get_collection_ref",
    "add_to_collection",
    "add_to_collections",
}
CALLS = 20


def functions():
    for path, module in MODULES.items():
        for name in sorted(getattr(module, "__all__", dir(module))):
            function = getattr(module, name)
            if name.startswith("_") or name in NOT_CALLED or isinstance(function, ModuleType):
                continue
            # A layer that cannot be made has used up its number all the same.
            if inspect.isclass(function) and module is optkit.layers:
                continue
            if callable(function) and signature_of(function):
                yield pytest.param(function, id=f"{path}.{name}" if path else name)


def signature_of(function):
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def nonsense():
    """Values of which no function takes all."""
    values = optkit.constant([[1.0]])
    return [
        optkit.placeholder("float32", [2, 3], name="x"),
        optkit.placeholder("int32", [2], name="i"),
        optkit.placeholder("bool", [], name="b"),
        optkit.placeholder("string", [], name="s"),
        optkit.Variable(np.ones((2, 3), np.float32), name="w"),
        IndexedSlices(values, optkit.constant([0])),
        "bad text",
        None,
        -7,
        99,
        [[1.0]],
        object(),
        lambda *_: values,
    ]


@pytest.mark.parametrize("function", list(functions()))
def test_a_refused_call_leaves_no_trace(function, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some functions write files, and take any text for their path
    rng = np.random.default_rng(1)
    parameters = [
        p
        for p in inspect.signature(function).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    required = sum(p.default is p.empty for p in parameters)
    for _ in range(CALLS):
        with Graph().as_default() as graph, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = nonsense()
            count = int(rng.integers(required, min(len(parameters), required + 2) + 1))
            arguments = [values[i] for i in rng.integers(0, len(values), count)]
            before = state_of(graph)
            try:
                function(*arguments)
            except Exception:  # noqa: BLE001 - which error it is, is for the function's own tests
                assert state_of(graph) == before, arguments
