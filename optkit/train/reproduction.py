"""A step that went wrong, in one file: feeds, variables and the operations behind the loss.

The file is in the safetensors format: arrays by tensor name, and the operations as JSON in its
metadata. To run it again needs no script and no data, and nothing in it is executed: operations
are those of optkit, by their type. What cannot be written down (functions of the user's, loops,
random numbers) is kept as the values it gave.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from optkit.dtypes import DType, as_dtype
from optkit.graph import Operation
from optkit.ops.core import REGISTRY
from optkit.runtime.diagnosis import CHECKS, Report, report
from optkit.runtime.trace import Node, Trace
from optkit.train.tensor_file import read_arrays, write_arrays
from optkit.version import __version__

__all__ = ["Reproduction", "load_reproduction", "save_reproduction"]

_VERSION = 1
_KEY = "reproduction"


@dataclass(frozen=True)
class Reproduction:
    """What a file holds, and what came of running it again.

    Attributes:
        told: what was reported when the file was written.
        batch: which batch it was.
        step: the global step that was not taken, or None.
        written_by: the version of optkit.
        loss: the name of the loss's tensor, or None.
        gradients: the name of a variable -> that of its gradient's tensor.
        trace: the operations and values of the run that was made now.
        differing: tensors whose values are others than when the file was written.
        failures: what could not be run again, and why; the values written down stand for it.
    """

    told: str
    batch: str
    step: int | None
    written_by: str
    loss: str | None
    gradients: dict[str, str]
    trace: Trace
    differing: list[str]
    failures: dict[str, str]

    def report(self) -> Report:
        """The explanation that the new run gives."""
        return report(self.trace, self.loss, self.gradients, self.step)

    def path(self) -> list[Node]:
        """The operations that what is not finite went through, oldest first."""
        targets = [*([] if self.loss is None else [self.loss]), *self.gradients.values()]
        return self.trace.path(targets)


# -- writing --------------------------------------------------------------------------------------


def save_reproduction(
    path: Path,
    trace: Trace,
    loss: str | None,
    gradients: Mapping[str, str],
    found: Report,
    batch: str,
) -> None:
    """Write what is needed to run the loss and its gradients again, and no more.

    Raises:
        OSError: the disk is full, or refuses otherwise.
    """
    targets = [*([] if loss is None else [loss]), *gradients.values()]
    needed = _needed(trace, targets)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    nodes = []
    for node in trace.nodes:
        if node.name not in needed:
            continue
        attrs: Any = None
        if not node.source and _runnable(node.type):
            attrs = _attributes(trace.operations[node.name], arrays)
        if attrs is None:
            for name in node.outputs:
                value = trace.values.get(name)
                if value is not None and value.dtype != object:
                    arrays[f"value/{name}"] = value
        nodes.append(
            {
                "name": node.name,
                "type": node.type,
                "inputs": list(node.inputs),
                "outputs": list(node.outputs),
                "source": node.source,
                "told": node.told,
                "forward": node.forward,
                "attrs": attrs,
            }
        )
    content = {
        "step": found.step,
        "told": str(found),
        "batch": batch,
        "loss": loss,
        "gradients": dict(gradients),
        "nodes": nodes,
        # The new run is held against what these said.
        "expected": {name: _digest(trace.values[name]) for name in targets if name in trace.values},
    }
    metadata = {
        "version": str(_VERSION),
        "optkit": __version__,
        _KEY: json.dumps(content, separators=(",", ":")),
    }
    write_arrays(path, arrays, metadata)


def _needed(trace: Trace, targets: Sequence[str]) -> set[str]:
    """The operations behind the targets, not going past those that are kept as values."""
    producers = {tensor: node for node in trace.nodes for tensor in node.outputs}
    found: set[str] = set()
    waiting = list(targets)
    while waiting:
        node = producers.get(waiting.pop())
        if node is not None and node.name not in found:
            found.add(node.name)
            if not node.source:
                waiting += node.inputs
    return found


def _runnable(kind: str) -> bool:
    """Whether operations of a type are functions of their inputs alone."""
    known = REGISTRY.get(kind)
    return (
        known is not None
        and known.kind.kernel is not None
        and known.kind.access is None
        and not (known.kind.effect or known.kind.random or known.kind.merges)
        and kind not in CHECKS
    )


def _attributes(op: Operation, arrays: dict[str, Any]) -> dict[str, Any] | None:
    """An operation's fixed parameters as JSON, arrays of them apart; None where that is no use."""
    kept: dict[str, Any] = {}
    try:
        for name, value in op.attrs.items():
            kept[name] = _encoded(value, f"attr/{op.name}/{name}", arrays)
    except TypeError:
        return None
    return kept


def _encoded(value: Any, place: str, arrays: dict[str, Any]) -> Any:
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {"float": repr(value)}
    if isinstance(value, DType):
        return {"dtype": value.name}
    if isinstance(value, tuple | list):
        items = [_encoded(item, f"{place}/{i}", arrays) for i, item in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": items}
    if isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
        return {"slice": [_encoded(item, place, arrays) for item in parts]}
    if value is Ellipsis:
        return {"ellipsis": True}
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind in "biufc":
        arrays[place] = np.asarray(value)
        return {"array": place}
    raise TypeError(f"{value!r} is not written down")


def _digest(value: np.ndarray[Any, Any]) -> str:
    """What tells two arrays apart: dtype, shape and a checksum of the bytes."""
    from crc32c import crc32c

    data = np.ascontiguousarray(value)
    return f"{value.dtype} {value.shape} {crc32c(data.reshape(-1).view(np.uint8).data):08x}"


# -- reading --------------------------------------------------------------------------------------


def load_reproduction(path: Path) -> Reproduction:
    """Read a file and run it again, with NumPy.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is damaged, or not of this kind.
    """
    arrays, header = read_arrays(path)
    if _KEY not in header.metadata:
        raise ValueError(f"{path}: expected a file that fit left behind; it is a checkpoint")
    if header.metadata.get("version") != str(_VERSION):
        raise ValueError(
            f"{path}: expected version {_VERSION}, got {header.metadata.get('version')!r}, written "
            f"by optkit {header.metadata.get('optkit')}"
        )
    try:
        content = json.loads(header.metadata[_KEY])
        trace, failures = _run_again(content["nodes"], arrays)
        expected = {str(name): str(text) for name, text in content["expected"].items()}
        step = content["step"]
        return Reproduction(
            str(content["told"]),
            str(content["batch"]),
            None if step is None else int(step),
            header.metadata.get("optkit", ""),
            None if content["loss"] is None else str(content["loss"]),
            {str(v): str(g) for v, g in content["gradients"].items()},
            trace,
            [
                name
                for name, text in expected.items()
                if name not in trace.values or _digest(trace.values[name]) != text
            ],
            failures,
        )
    except (AttributeError, KeyError, RecursionError, TypeError) as error:
        raise ValueError(f"{path}: expected a file that fit left behind: {error!r}") from error


def _run_again(
    items: Sequence[Mapping[str, Any]], arrays: Mapping[str, Any]
) -> tuple[Trace, dict[str, str]]:
    trace = Trace()
    failures: dict[str, str] = {}
    with np.errstate(all="ignore"):
        for item in items:
            node = Node(
                str(item["name"]),
                str(item["type"]),
                tuple(map(str, item["inputs"])),
                tuple(map(str, item["outputs"])),
                str(item["source"]),
                str(item["told"]),
                str(item["forward"]),
            )
            trace.nodes.append(node)
            if item["attrs"] is None:
                kept = {name: arrays.get(f"value/{name}") for name in node.outputs}
                trace.values.update({k: v for k, v in kept.items() if v is not None})
                continue
            try:
                values = _called(node, item["attrs"], trace, arrays)
            except Exception as error:  # noqa: BLE001 - a kernel may raise anything
                failures[node.name] = f"{type(error).__name__}: {error}"
                continue
            trace.values.update(zip(node.outputs, map(np.asarray, values), strict=False))
    return trace, failures


def _called(
    node: Node, attrs: Mapping[str, Any], trace: Trace, arrays: Mapping[str, Any]
) -> Sequence[Any]:
    if not _runnable(node.type):
        raise ValueError(f"operations of type {node.type!r} are not run from files")
    inputs = []
    for name in node.inputs:
        if name not in trace.values:
            raise ValueError(f"its input {name!r} has no value")
        inputs.append(trace.values[name])
    kernel: Any = REGISTRY[node.type].kind.kernel
    decoded = {str(name): _decoded(value, arrays) for name, value in attrs.items()}
    result = kernel(np, *inputs, **decoded)
    return (result,) if len(node.outputs) == 1 else tuple(result)


def _decoded(value: Any, arrays: Mapping[str, Any]) -> Any:
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "float":
        return float(content)
    if kind == "dtype":
        return as_dtype(content)
    if kind in ("tuple", "list"):
        items = [_decoded(item, arrays) for item in content]
        return tuple(items) if kind == "tuple" else items
    if kind == "slice":
        return slice(*[_decoded(item, arrays) for item in content])
    if kind == "ellipsis":
        return Ellipsis
    if kind == "array":
        return arrays[content]
    raise TypeError(f"an attribute of kind {kind!r}")
