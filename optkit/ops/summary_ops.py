"""Operations whose values are serialised summaries, and their merging.

A merged summary takes what its parts are made of, not the parts: so the parts are never computed on
their own, and what lives on a device crosses to the host once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import summaries
from optkit.backend.arrays import to_host, to_numpy
from optkit.backend.cuda.histogram import DeviceCounts, counting
from optkit.backend.cuda.transfer import is_device_array
from optkit.dtypes import NUMBERS, bool_, float16, float32, float64, string, uint8
from optkit.errors import InvalidArgumentError
from optkit.graph import Operation, Tensor, get_default_graph
from optkit.ops.core import ALL_TYPES, Array, ArrayModule, as_tensor, op
from summaries.encode import histogram_bytes, scalar_bytes
from summaries.histogram import counter_for, measure
from summaries.metadata import Notes, SummaryBytes

__all__ = ["histogram", "image", "merged", "merged_scalars", "only_when", "scalar", "text"]


def _boxed(data: bytes) -> Array:
    """Bytes as the value of a string tensor; NumPy's own bytes type would strip zeros."""
    box = np.empty((), object)
    box[()] = data
    return box


def _noted(data: bytes, notes: Notes | None) -> Array:
    return _boxed(data if notes is None else SummaryBytes(data, notes))


# -- the kernels' work ----------------------------------------------------------------------------


def _scalar_data(tag: str, values: Array) -> bytes:
    if values.ndim:
        raise InvalidArgumentError(
            f"summary {tag!r}: tensor: expected a scalar, got shape {values.shape}"
        )
    return scalar_bytes(tag, float(values))


def _histogram_data(
    tag: str, values: Array, scale: Array | None = None, norm_tag: str = ""
) -> bytes:
    """The histogram of scale·values and, under a tag of its own, their norm."""
    if not isinstance(values, np.ndarray) and counter_for(values) is None:
        values = to_numpy(values)
        scale = None if scale is None else to_numpy(scale)
    histogram = measure(values, scale=scale)
    data = histogram_bytes(tag, histogram)
    return data + scalar_bytes(norm_tag, histogram.norm) if norm_tag else data


def _joined_data(_: str, data: Array) -> bytes:
    return bytes(np.asarray(data)[()])


# -- operations -----------------------------------------------------------------------------------


@op(
    "ScalarSummary",
    types=NUMBERS | {bool_},
    result=string,
    shape=(),
    host=("values",),
    differentiable=False,
)
def _scalar_summary(
    xp: ArrayModule,
    values: Array,
    *,
    tag: str,
    notes: Notes | None = None,
    norm_of: Tensor | None = None,
) -> Array:
    """One number as a Summary."""
    return _noted(_scalar_data(tag, np.asarray(values)), notes)


@op("HistogramSummary", types=NUMBERS | {bool_}, result=string, shape=(), differentiable=False)
def _histogram_summary(
    xp: ArrayModule, *inputs: Array, tag: str, notes: Notes | None = None
) -> Array:
    """The distribution of the values, times a scalar if there is a second input, as a Summary."""
    return _noted(_histogram_data(tag, *inputs), notes)


@op(
    "ImageSummary",
    types={uint8, float16, float32, float64},
    result=string,
    shape=(),
    host=("tensor",),
    differentiable=False,
)
def _image_summary(xp: ArrayModule, tensor: Array, *, tag: str, max_outputs: int) -> Array:
    """The first images of a batch as a Summary."""
    images = tensor[:max_outputs]
    if images.dtype != np.uint8 and images.ndim == 4 and images.size:
        images = np.stack([_visible(image.astype(np.float32)) for image in images])
    return _boxed(summaries.encode_image(tag, images, max_outputs))


def _visible(image: Array) -> Array:
    """Pixels of float32 [height, width, channels] as bytes, as TF's ImageSummary scales them.

    0 stays the darkest where no pixel is negative, else it is in the middle; the pixel farthest
    from it is one end of the scale. One that is not finite is red, or white in grey images.
    """
    finite = np.isfinite(image).all(-1)
    seen = image[finite]
    lowest, largest = seen.min(initial=np.float32(0)), abs(seen).max(initial=np.float32(0))
    reach, middle = (127, 128) if lowest < 0 else (255, 0)
    scale = np.float32(reach) / largest if largest >= 1e-6 else np.float32(0)
    shown = np.empty(image.shape, np.uint8)
    shown[finite] = seen * scale + np.float32(middle)
    shown[~finite] = np.resize((255, 0, 0, 255), image.shape[-1])
    return shown


@op("TextSummary", types={string}, result=string, shape=(), differentiable=False)
def _text_summary(xp: ArrayModule, tensor: Array, *, tag: str) -> Array:
    """Text as a Summary."""
    return _boxed(summaries.encode_text(tag, tensor))


def scalar(
    tag: str,
    values: Tensor,
    name: str,
    metadata: bytes | None = None,
    norm_of: Tensor | None = None,
) -> Tensor:
    """A node that gives the summary of one number.

    Args:
        tag: its tag.
        values: the number.
        name: the node's name.
        metadata: marks it as a quantity of an optimizer's step, and says which.
        norm_of: the summary of the histogram whose values' norm it is; where both are merged, one
            after the other, the norm is what the histogram's pass over the values gave.
    """
    notes = _notes(tag, metadata)
    return _scalar_summary(values, tag=tag, notes=notes, norm_of=norm_of, name=name)


def histogram(
    tag: str,
    values: Any,
    name: str,
    scale: Tensor | None = None,
    metadata: bytes | None = None,
) -> Tensor:
    """A node that gives the summary of scale·values, which need not be made for it.

    `metadata` is as for `scalar`.
    """
    inputs = (values,) if scale is None else (values, scale)
    return _histogram_summary(*inputs, tag=tag, notes=_notes(tag, metadata), name=name)


def _notes(tag: str, metadata: bytes | None) -> Notes | None:
    return None if metadata is None else Notes({tag: metadata}, layout=True)


def image(tag: str, tensor: Tensor, max_outputs: int, name: str) -> Tensor:
    """A node that gives the summary of the first images of a batch."""
    return _image_summary(tensor, tag=tag, max_outputs=max_outputs, name=name)


def text(tag: str, tensor: Any, name: str) -> Tensor:
    """A node that gives the summary of text."""
    return _text_summary(tensor, tag=tag, name=name)


@op(
    "ConditionalSummary",
    types={string},
    accepts={"condition": {bool_}},
    result=string,
    shape=(),
    host=("condition",),
    differentiable=False,
)
def _conditional_summary(
    xp: ArrayModule, condition: Array, summary: Array, *, notes: Notes | None
) -> Array:
    """The summary where the condition holds, else an empty one."""
    return _noted(_joined_data("", summary) if bool(condition) else b"", notes)


def only_when(condition: Tensor, summary: Tensor) -> Tensor:
    """A node that gives `summary` where the bool `condition` holds, else an empty summary."""
    return _conditional_summary(condition, summary, notes=summary.op.attrs.get("notes"))


# -- merging --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Part:
    """A part of a merged summary.

    Attributes:
        encode: makes its bytes from its tag and inputs.
        tag: its tag.
        op: the node it stands for, which errors name.
        count: how many inputs it has.
        conditional: whether the first of them tells if it is there at all.
        norm_tag: the tag of the norm of a histogram's values.
    """

    encode: Callable[..., bytes]
    tag: str
    op: Operation
    count: int
    conditional: bool = False
    norm_tag: str = ""


@op("MergeSummary", types=ALL_TYPES, result=string, shape=(), differentiable=False)
def _merge_summary(
    xp: ArrayModule, *inputs: Array, parts: Sequence[_Part], notes: Notes | None
) -> Array:
    """Several Summaries as one: their serialised messages joined."""
    arrays = inputs if xp is np else _crossed(inputs, parts)
    data = []
    at = 0
    for part in parts:
        start, stop = at + part.conditional, at + part.count
        if part.conditional and not arrays[at]:
            at = stop
            continue
        try:
            named = {"norm_tag": part.norm_tag} if part.norm_tag else {}
            data.append(part.encode(part.tag, *arrays[start:stop], **named))
        except InvalidArgumentError as error:
            error.op = part.op
            raise
        except (TypeError, ValueError) as error:
            raise InvalidArgumentError(f"{type(error).__name__}: {error}", part.op) from error
        at = stop
    return _noted(b"".join(data), notes)


def _crossed(inputs: Sequence[Array], parts: Sequence[_Part]) -> list[Array]:
    """The inputs on the host, in one transfer; of arrays that are counted, the counts alone."""
    arrays: list[Any] = list(inputs)
    counts: list[int] = []
    at = 0
    for part in parts:
        start, at = at + part.conditional, at + part.count
        if part.encode is _histogram_data and is_device_array(inputs[start]):
            arrays[start:at] = [counting(*inputs[start:at]), *[None] * (at - start - 1)]
            counts.append(start)
    moving = [i for i, array in enumerate(arrays) if array is not None]
    for i, array in zip(moving, to_host([arrays[i] for i in moving]), strict=True):
        arrays[i] = array
    for i in counts:
        arrays[i] = DeviceCounts(arrays[i])
    return arrays


_ENCODERS: Mapping[str, Callable[..., bytes]] = {
    "ScalarSummary": _scalar_data,
    "HistogramSummary": _histogram_data,
}


def merged(nodes: Sequence[Any], name: str) -> Tensor:
    """A node that gives one summary with all that `nodes` give.

    Raises:
        TypeError: one of them is no summary.
    """
    graph = get_default_graph()
    tensors = [_as_summary(i, node) for i, node in enumerate(nodes)]
    parts: list[_Part] = []
    inputs: list[Tensor] = []
    metadata: dict[str, bytes] = {}
    controls: dict[Operation, None] = {}
    layout = False
    for tensor in tensors:
        for part, taken in _taken_apart(tensor):
            if parts and _is_norm_of(part, taken, parts[-1], inputs):
                parts[-1] = replace(parts[-1], norm_tag=part.tag)
                continue
            parts.append(part)
            inputs += taken
        notes = tensor.op.attrs.get("notes")
        if notes is not None:
            metadata |= notes.metadata
            layout = layout or notes.layout
        if tensor.op.kind.name in _TRANSPARENT:
            # A part that is not computed may still stand for what must run before it.
            controls.update(dict.fromkeys(tensor.op.control_inputs))
    notes = Notes(metadata, layout) if metadata else None
    with graph.control_dependencies(list(controls)):
        node = graph.create_operation(
            _merge_summary.kind, inputs, {"parts": tuple(parts), "notes": notes}, name=name
        )
    return node.outputs[0]


def merged_scalars(node: Tensor) -> list[tuple[str, Tensor]]:
    """The scalars of what `merged` gave: tags, and the tensors that they show."""
    return [
        (part.tag, part.op.inputs[0])
        for part in node.op.attrs["parts"]
        if part.op.kind.name == "ScalarSummary"
    ]


def _as_summary(i: int, node: Any) -> Tensor:
    tensor = as_tensor(node)
    if tensor.dtype is not string:
        raise TypeError(f"inputs[{i}]: expected a summary, got {tensor!r}")
    return tensor


def _is_norm_of(
    part: _Part, taken: Sequence[Tensor], last: _Part, inputs: Sequence[Tensor]
) -> bool:
    """Whether a part is the norm of the histogram before it, under the same condition if any."""
    measured = part.op.attrs.get("norm_of") if part.encode is _scalar_data else None
    if measured is not None and measured.op.kind is _conditional_summary.kind:
        measured = measured.op.inputs[1]
    return (
        measured is not None
        and measured.op is last.op
        and part.conditional == last.conditional
        and (not part.conditional or taken[0] is inputs[-last.count])
    )


_TRANSPARENT = {*_ENCODERS, "MergeSummary"}


def _taken_apart(tensor: Tensor) -> list[tuple[_Part, Sequence[Tensor]]]:
    """The parts of a summary and what they are made of; other nodes are one part, as they are."""
    node = tensor.op
    # Eager operations keep nothing of what they are made of.
    if not node.graph.eager and (node.branch is node.graph.branch or node.branch is None):
        if node.kind is _merge_summary.kind:
            found: list[tuple[_Part, Sequence[Tensor]]] = []
            at = 0
            for part in node.attrs["parts"]:
                found.append((part, node.inputs[at : at + part.count]))
                at += part.count
            return found
        if node.kind is _conditional_summary.kind:
            condition, summary = node.inputs
            return [
                (replace(part, count=part.count + 1, conditional=True), (condition, *taken))
                for part, taken in _taken_apart(summary)
                if not part.conditional
            ] or [(_Part(_joined_data, "", node, 1), (tensor,))]
        encode = _ENCODERS.get(node.kind.name)
        if encode is not None:
            part = _Part(encode, node.attrs["tag"], node, len(node.inputs))
            return [(part, node.inputs)]
    return [(_Part(_joined_data, "", node, 1), (tensor,))]
