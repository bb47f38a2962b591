"""What one step of an optimizer gives to write, each array read once."""

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np

from summaries import encode
from summaries._arrays import real_array
from summaries._warn import warn_once
from summaries.histogram import counter_for, measure, sum_squares
from summaries.quantities import quantity_metadata
from summaries.tags import TagBook

Arrays: TypeAlias = Mapping[str, object]


class Quantities:
    """Which quantities of the steps of a run are written, and their tags.

    Args:
        wanted: the summaries that were asked for.
        prefix: comes before each tag.
        buckets: the grid of the histograms.
        warns: whether a value that is refused is warned of and left out, not an error.

    Attributes:
        new: tag -> the bytes of its metadata, of those of which nothing was written yet.
    """

    def __init__(
        self, wanted: frozenset[str], prefix: str, buckets: str | int, *, warns: bool
    ) -> None:
        self.buckets = buckets
        self.new: dict[str, bytes] = {}
        self._wanted = wanted
        self._prefix = prefix
        self._warns = warns
        self._book = TagBook()
        self._tags: dict[tuple[str, str], str] = {}

    def wants(self, *names: str) -> bool:
        """Whether one of these summaries was asked for."""
        return not self._wanted.isdisjoint(names)

    def tag(self, quantity: str, variable: str = "") -> str:
        """The tag of a quantity, of a variable or of the whole step."""
        key = quantity, variable
        tag = self._tags.get(key)
        if tag is None:
            name = f"{self._prefix}{quantity}/{variable}" if variable else self._prefix + quantity
            tag = self._tags[key] = self._book.clean(name)
            self.new[tag] = quantity_metadata(quantity, variable)
        return tag

    def refused(self, tag: str, error: Exception) -> None:
        """Raise the error of a value, or warn that it is left out."""
        if not self._warns:
            raise error
        warn_once("refused", tag, message=f"{error}; it is left out")


class _Measured:
    """An array's Σx², how many of its values are not finite, and its size; read once."""

    __slots__ = ("array", "nonfinite", "norm")

    def __init__(self, array: Any) -> None:
        self.array = array
        self.norm = 0.0
        self.nonfinite = 0


class StepParts:
    """Collects the tags and the bytes of one step's summaries."""

    def __init__(self, quantities: Quantities, scalars: bool, histograms: bool) -> None:
        self.parts: list[tuple[str, bytes]] = []
        self._quantities = quantities
        self._scalars = scalars
        self._histograms = histograms

    def scalar(self, quantity: str, value: object, known_as: str = "") -> None:
        """A number of the whole step, if it is given and was asked for."""
        if value is None or not self._wants_scalar(known_as or quantity):
            return
        tag = self._quantities.tag(quantity)
        try:
            number = encode.real_scalar(tag, value)
        except (TypeError, ValueError) as error:
            self._quantities.refused(tag, error)
            return
        if not math.isfinite(number):
            warn_once("scalar", tag, message=f"the scalar {tag!r} is {number}")
        self.parts.append((tag, encode.scalar_bytes(tag, number)))

    def gradients(self, given: Arrays, unclipped: Arrays | None, global_norm: object) -> None:
        """All that is known of the gradients; an array is read once."""
        clipped = unclipped is not None
        per_variable = {"gradient_norm", "clip_fraction"} if clipped else {"gradient_norm"}
        needs_norm = self._wants_scalar(*per_variable) or (
            self._wants_scalar("global_gradient_norm") and (clipped or global_norm is None)
        )
        needs_count = self._wants_scalar("nonfinite") and not clipped
        wants_histogram = self._histograms and self._quantities.wants("gradients")
        measured = {}
        if needs_norm or needs_count or wants_histogram:
            measured = self._measure_all("gradients", given, wants_histogram)
        before = measured
        if unclipped is not None and self._wants_scalar(
            "clip_fraction", "nonfinite", "global_gradient_norm"
        ):
            before = self._measure_all("gradients", unclipped, False)
        for name, gradient in measured.items():
            self._number("gradient_norm", name, gradient.norm)
            if clipped and name in before:
                whole = before[name].norm
                self._number("clip_fraction", name, 1 - gradient.norm / whole if whole else 0.0)
        for name, gradient in before.items():
            self._number("nonfinite", name, gradient.nonfinite)
        wanted = "global_gradient_norm"
        if global_norm is None and before:
            self._whole("global_norm/gradient_norm", _total(before), wanted)
        else:
            self.scalar("global_norm/gradient_norm", global_norm, wanted)
        if clipped and measured:
            self._whole("global_norm/clipped_gradient_norm", _total(measured), wanted)

    def weights(self, given: Arrays, updates: Arrays) -> None:
        """All that is known of the variables; an array is read once."""
        wants_histogram = self._histograms and self._quantities.wants("weights")
        wants_ratio = self._wants_scalar("update_ratio") and bool(updates)
        wants_sparsity = self._wants_scalar("sparsity")
        if not (wants_histogram or wants_ratio or self._wants_scalar("weight_norm", "sparsity")):
            return
        measured = self._measure_all("weights", given, wants_histogram)
        for name, weight in measured.items():
            self._number("weight_norm", name, weight.norm)
            if wants_sparsity:
                self._number("sparsity", name, _zeros(weight.array))
        if wants_ratio:
            for name, update in self._measure_all("update_ratio", updates, False).items():
                if name in measured:
                    norm = measured[name].norm
                    self._number("update_ratio", name, update.norm / norm if norm else 0.0)

    def _wants_scalar(self, *names: str) -> bool:
        return self._scalars and self._quantities.wants(*names)

    def _whole(self, quantity: str, value: float, known_as: str) -> None:
        """A number of the whole step, which comes from arrays that were warned of."""
        if self._wants_scalar(known_as):
            tag = self._quantities.tag(quantity)
            self.parts.append((tag, encode.scalar_bytes(tag, value)))

    def _number(self, quantity: str, variable: str, value: float) -> None:
        if self._wants_scalar(quantity):
            tag = self._quantities.tag(quantity, variable)
            self.parts.append((tag, encode.scalar_bytes(tag, value)))

    def _measure_all(self, quantity: str, given: Arrays, histogram: bool) -> dict[str, _Measured]:
        """What is known of each array, and its histogram if that is wanted."""
        measured = {}
        for name, value in given.items():
            if value is None:
                continue
            tag = self._quantities.tag(quantity, name)
            try:
                array = value if counter_for(value) is not None else real_array(tag, value)
            except (TypeError, ValueError) as error:
                self._quantities.refused(tag, error)
                continue
            measured[name] = self._measure(tag, array, histogram)
        return measured

    def _measure(self, tag: str, array: Any, histogram: bool) -> _Measured:
        result = _Measured(array)
        if histogram or not isinstance(array, np.ndarray):
            counted = measure(array, self._quantities.buckets if histogram else "fast")
            result.norm, result.nonfinite = counted.norm, counted.nonfinite
            if histogram:
                self.parts.append((tag, encode.histogram_bytes(tag, counted)))
                return result
        else:
            squares = sum_squares(array)
            result.norm = math.sqrt(squares)
            if not math.isfinite(squares):
                result.nonfinite = array.size - int(np.count_nonzero(np.isfinite(array)))
        if result.nonfinite:
            warn_once("nonfinite", tag, message=f"values of {tag!r} are NaN or infinite")
        return result


def _total(measured: Mapping[str, _Measured]) -> float:
    return math.sqrt(sum(each.norm**2 for each in measured.values()))


def _zeros(array: Any) -> float:
    """The share of elements that are exactly zero; NaN where there is none."""
    if not array.size:
        return math.nan
    if isinstance(array, np.ndarray):
        return 1 - float(np.count_nonzero(array)) / float(array.size)
    zeros = float((array == 0).sum())
    return zeros / float(array.size)
