"""How an op is declared: a kernel on arrays and, beside it, its gradient on graph tensors.

    @op("Mul", broadcasts=True)
    def multiply(xp, x, y):
        return x * y

    @multiply.gradient
    def _(node, dz):
        x, y = node.inputs
        return y * dz, x * dz

The decorated function becomes the public one: `multiply(x, y, name=None)` builds a node. The
kernel's positional parameters are its inputs, its keyword-only parameters the op's attributes.
Constants and the conversion of Python and NumPy values to tensors live here too, since every op
needs them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numpy as np

from optkit.backend.arrays import to_numpy
from optkit.dtypes import INTEGERS, NUMBERS, DType, as_dtype, bool_, string
from optkit.graph import (
    OPERATORS,
    IndexedSlices,
    Kind,
    Operation,
    Tensor,
    get_default_graph,
    is_symbolic,
)
from optkit.ops.conversion import as_array, shortened
from optkit.shapes import Shape, TensorShape, as_shape, broadcast_static

__all__ = [
    "ALL_TYPES",
    "REGISTRY",
    "Array",
    "ArrayModule",
    "Op",
    "as_array",
    "as_tensor",
    "composite",
    "constant",
    "constant_value",
    "constant_value_as_shape",
    "convert_to_tensor",
    "op",
]

Array: TypeAlias = Any
"""A NumPy or CuPy array; which one depends on the session's backend."""
ArrayModule: TypeAlias = Any
"""numpy or cupy."""

ALL_TYPES = NUMBERS | {bool_, string}
REGISTRY: dict[str, Op] = {}
"""Every op by its type name."""

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Kernel: TypeAlias = Callable[..., Any]
_ShapeRule: TypeAlias = Callable[[Sequence[Tensor], Mapping[str, Any]], Shape]
_TypeRule: TypeAlias = Callable[[Sequence[Tensor], Mapping[str, Any]], DType]
_Infer: TypeAlias = Callable[[Sequence[Tensor], Mapping[str, Any]], Sequence[tuple[DType, Shape]]]


class Op:
    """A declared op; calling it builds a node. See the module's text."""

    def __init__(
        self,
        type_name: str,
        kernel: _Kernel,
        *,
        types: Iterable[DType],
        accepts: Mapping[str, Iterable[DType]],
        result: DType | _TypeRule | None,
        shape: Shape | _ShapeRule,
        infer: _Infer | None,
        broadcasts: bool,
        host: Iterable[str],
        either: Iterable[str],
        differentiable: bool,
        random: bool,
        merges: bool,
        effect: bool,
        ufunc: str | None,
    ) -> None:
        self.__name__ = kernel.__name__
        self.__qualname__ = kernel.__qualname__
        self.__module__ = kernel.__module__
        self.__doc__ = kernel.__doc__
        self.type_name = type_name
        parameters = list(inspect.signature(kernel).parameters.values())[1:]
        self._inputs = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        self._variadic = [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]
        self._defaults = {
            p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY and p.name != "stream"
        }
        self.__signature__ = inspect.Signature(
            [
                *(p.replace(annotation=Any) for p in parameters if p.name != "stream"),
                inspect.Parameter("name", inspect.Parameter.KEYWORD_ONLY, default=None),
            ],
            return_annotation=Tensor,
        )
        self._types = frozenset(types)
        self._accepts = {key: frozenset(value) for key, value in accepts.items()}
        self._result = result
        self._shape = shape
        self.kind = Kind(
            name=type_name,
            kernel=kernel,
            infer=infer or self._infer,
            differentiable=differentiable,
            broadcasts=broadcasts,
            host=frozenset(self._inputs.index(name) for name in host),
            either=frozenset(self._inputs.index(name) for name in either),
            random=random,
            merges=merges,
            effect=effect,
            into=None if ufunc is None else _ufunc_into(ufunc),
        )
        if type_name in REGISTRY:
            raise ValueError(f"an op of type {type_name!r} is declared already")
        REGISTRY[type_name] = self

    def gradient(self, rule: Callable[..., Any]) -> Callable[..., Any]:
        """Declare the gradient: `rule(node, *dys)` gives a tensor or None per input."""
        self.kind.gradient = rule
        return rule

    def into(self, kernel: _Kernel) -> _Kernel:
        """Declare the kernel that writes into an array; see `Kind.into`."""
        self.kind.into = kernel
        return kernel

    def __call__(self, *args: Any, name: str | None = None, **kwargs: Any) -> Tensor:
        """Build a node and return its only output."""
        (output,) = self.node(*args, name=name, **kwargs).outputs
        return output

    def node(self, *args: Any, name: str | None = None, **kwargs: Any) -> Operation:
        """Build a node.

        Raises:
            TypeError: an argument is missing, unknown, or of a dtype the op does not take.
            ValueError: shapes do not fit.
        """
        if not self._variadic and len(args) == len(self._inputs) + 1 and name is None:
            *args, name = args  # type: ignore[assignment]  # TF's last argument may be positional
        if name is not None and not isinstance(name, str):
            raise TypeError(f"{self.__name__}: name: expected a string or None, got {name!r}")
        values, attrs = self._bind(args, kwargs)
        graph = get_default_graph()
        mark = graph.mark()
        label = name or self.type_name
        try:
            if all(isinstance(value, Tensor) for value in values.values()):
                inputs = self._convert(values, label)
                return graph.create_operation(self.kind, inputs, attrs, name=label)
            with graph.as_default(), graph.name_scope(label) as scope:
                inputs = self._convert(values, label)
                return graph.create_operation(self.kind, inputs, attrs, name=scope)
        except BaseException:
            graph.undo(mark)
            raise

    def _bind(
        self, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Split a call into inputs by name and attributes."""
        if self._variadic:
            count = len(args)
            values = {f"{self._variadic[0]}[{i}]": value for i, value in enumerate(args)}
        else:
            count = min(len(args), len(self._inputs))
            values = dict(zip(self._inputs, args, strict=False))
        if len(args) > count:
            raise TypeError(f"{self.__name__}: expected {count} arguments, got {len(args)}")
        for key in self._inputs:
            if key in kwargs:
                if key in values:
                    raise TypeError(f"{self.__name__}: {key} was given twice")
                values[key] = kwargs.pop(key)
            elif key not in values and not self._variadic:
                raise TypeError(f"{self.__name__}: the argument {key} is missing")
        unknown = kwargs.keys() - self._defaults.keys()
        if unknown:
            raise TypeError(f"{self.__name__}: unknown arguments {sorted(unknown)}")
        attrs = self._defaults | kwargs
        missing = [key for key, value in attrs.items() if value is inspect.Parameter.empty]
        if missing:
            raise TypeError(f"{self.__name__}: the arguments {missing} are missing")
        return values, attrs

    def _convert(self, values: Mapping[str, Any], label: str) -> list[Tensor]:
        """The inputs as tensors; those not in `accepts` share one dtype."""
        shared = [key for key in values if key not in self._accepts]
        # The first tensor among the inputs decides, as in TF: constants adapt to it.
        lead = next((key for key in shared if _holds_symbolic(values[key])), *shared[:1] or (None,))
        order = [key for key in values if key == lead] + [key for key in values if key != lead]
        tensors: dict[str, Tensor] = {}
        common: DType | None = None
        for key in order:
            allowed = self._accepts.get(key, self._types)
            wanted = common if key in shared else None
            if wanted is None and key not in shared and len(allowed) == 1:
                (wanted,) = allowed
            tensor = self._as_input(key, values[key], wanted, label)
            if tensor.dtype not in allowed:
                names = ", ".join(sorted(dtype.name for dtype in allowed))
                raise TypeError(
                    f"{self.type_name} {label!r}: {key}: expected one of {names}, got "
                    f"{tensor.dtype.name} ({shortened(values[key])})"
                )
            tensors[key] = tensor
            if key in shared:
                common = tensor.dtype
        return [tensors[key] for key in values]

    def _as_input(self, key: str, value: Any, dtype: DType | None, label: str) -> Tensor:
        try:
            return as_tensor(value, dtype, key.split("[")[0])
        except (TypeError, ValueError) as error:
            # A tensor of another dtype is a ValueError to convert_to_tensor, a TypeError to an op.
            kind = TypeError if is_symbolic(value) or isinstance(error, TypeError) else ValueError
            raise kind(f"{self.type_name} {label!r}: {key}: {error}") from error

    def _infer(
        self, inputs: Sequence[Tensor], attrs: Mapping[str, Any]
    ) -> Sequence[tuple[DType, Shape]]:
        if callable(self._shape):
            shape = self._located(inputs, lambda: self._shape(inputs, attrs))  # type: ignore[operator,misc]
        elif self._shape is not None:
            shape = self._shape
        elif self.kind.broadcasts:
            shape = self._located(inputs, lambda: broadcast_static([x.sizes for x in inputs]))
        else:
            shape = inputs[0].sizes
        if callable(self._result):
            dtype = self._result(inputs, attrs)
        else:
            dtype = self._result or inputs[0].dtype
        return [(dtype, shape)]

    def _located(self, inputs: Sequence[Tensor], rule: Callable[[], Shape]) -> Shape:
        try:
            return rule()
        except ValueError as error:
            names = ", ".join(repr(tensor) for tensor in inputs)
            raise ValueError(f"{self.type_name}: {error}; its inputs are {names}") from error


def op(
    type_name: str,
    *,
    types: Iterable[DType] = NUMBERS,
    accepts: Mapping[str, Iterable[DType]] | None = None,
    result: DType | _TypeRule | None = None,
    shape: Shape | _ShapeRule = None,
    infer: _Infer | None = None,
    broadcasts: bool = False,
    host: Iterable[str] = (),
    either: Iterable[str] = (),
    differentiable: bool = True,
    random: bool = False,
    merges: bool = False,
    effect: bool = False,
    ufunc: str | None = None,
) -> Callable[[_Kernel], Op]:
    """Declare an op.

    Args:
        type_name: the type, TF's where TF has one; also the default name of its nodes.
        types: the dtypes its inputs may have; they all have the same one.
        accepts: inputs that do not share that dtype, each with the dtypes it may have.
        result: the output's dtype, or a rule `(inputs, attrs) -> dtype`; the inputs' if None.
        shape: the output's static shape, or a rule `(inputs, attrs) -> shape`; if None, that of
            the first input, or the broadcast of all where `broadcasts`.
        infer: replaces result and shape: `(inputs, attrs) -> [(dtype, shape), ...]` per output.
        broadcasts: inputs broadcast; the engine sums gradients back to each input's shape.
        host: inputs that the kernel gets as NumPy arrays whatever the backend (shapes, axes).
        either: inputs that the kernel takes as NumPy arrays too, whatever the backend: numbers of
            rows that were fed, which are checked where they are.
        differentiable: False declares that no gradient flows.
        random: the kernel takes a keyword `stream` with random numbers.
        merges: takes inputs from inside `cond` branches.
        effect: running it does more than give values.
        ufunc: the name of the universal function that the kernel is, which can then write its
            result into an array as well.
    """

    def declare(kernel: _Kernel) -> Op:
        return Op(
            type_name,
            kernel,
            types=types,
            accepts=accepts or {},
            result=result,
            shape=shape,
            infer=infer,
            broadcasts=broadcasts,
            host=host,
            either=either,
            differentiable=differentiable,
            random=random,
            merges=merges,
            effect=effect,
            ufunc=ufunc,
        )

    return declare


def _ufunc_into(name: str) -> _Kernel:
    def into(xp: ArrayModule, *inputs: Array, out: Array) -> Array:
        return getattr(xp, name)(*inputs, out=out)

    return into


@op("Const", differentiable=False, infer=lambda _, attrs: [_constant_type(attrs["value"])])
def _constant(xp: ArrayModule, *, value: np.ndarray[Any, Any]) -> Array:
    """The value that the graph was built with."""
    return value if value.dtype.kind == "O" else xp.asarray(value)


def _constant_type(value: np.ndarray[Any, Any]) -> tuple[DType, Shape]:
    return as_dtype(value.dtype), value.shape


def composite(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """A function that builds several nodes: when it raises, the graph is as before the call."""

    @functools.wraps(function)
    def build(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with get_default_graph().all_or_nothing():
            return function(*args, **kwargs)

    return build


def constant(
    value: Any,
    dtype: Any = None,
    shape: Any = None,
    name: str = "Const",
    verify_shape: bool = False,
) -> Tensor:
    """A constant tensor holding a copy of `value`.

    Python floats become float32 and ints int32 unless `dtype` says otherwise; NumPy values keep
    their dtype. With `shape`, fewer values are filled up with the last one (as TF), unless
    `verify_shape`.

    Raises:
        TypeError: the value does not fit the dtype.
        ValueError: the value does not fit the shape, or is None or ragged.
    """
    array = as_array(value, None if dtype is None else as_dtype(dtype))
    if shape is not None:
        array = _filled(array, TensorShape(shape), verify_shape)
    array = array.copy()
    array.flags.writeable = False
    graph = get_default_graph()
    return graph.create_operation(_constant.kind, (), {"value": array}, name=name).outputs[0]


def _filled(array: np.ndarray[Any, Any], shape: TensorShape, verify: bool) -> Any:
    size = shape.num_elements()
    if size is None:
        raise ValueError(f"shape: expected a fully known shape, got {shape}")
    sizes = tuple(shape.as_list())
    if verify and array.shape != sizes:
        raise ValueError(f"value: expected shape {shape}, got {TensorShape(array.shape)}")
    # One value fills any shape, also one without elements.
    if array.size > max(size, 1) or (array.size == 0 and size):
        raise ValueError(f"value: {array.size} values do not fit shape {shape} of {size}")
    flat = array.ravel()
    if array.size < size:
        flat = np.concatenate([flat, np.full(size - array.size, flat[-1], array.dtype)])
    return flat[:size].reshape(sizes)


def as_tensor(value: Any, dtype: DType | None = None, name: str | None = None) -> Tensor:
    """`value` as a tensor of the default graph; of `dtype` when one is given.

    Raises:
        TypeError, ValueError: the value has another dtype, or cannot be a tensor.
    """
    if is_symbolic(value):
        tensor: Tensor = value._as_graph_tensor()
        if dtype is not None and tensor.dtype is not dtype:
            raise ValueError(f"expected {dtype.name}, got {tensor!r}; use optkit.cast")
        return tensor
    if isinstance(value, IndexedSlices):
        return as_tensor(OPERATORS["densify"](value), dtype)
    if isinstance(value, Operation):
        raise TypeError(f"expected a tensor, got {value!r}, which has no value")
    if isinstance(value, list | tuple) and _holds_symbolic(value):
        return as_tensor(_packed(value, dtype), dtype)
    return constant(value, dtype, name=name or "Const")


def _holds_symbolic(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(_holds_symbolic(item) for item in value)
    return is_symbolic(value) or isinstance(value, IndexedSlices)


def _packed(value: Any, dtype: DType | None) -> Any:
    """Nested lists that hold tensors, stacked; plain numbers take the tensors' dtype."""
    if dtype is None:
        dtype = _first_symbolic(value)._as_graph_tensor().dtype
    rows = [
        _packed(item, dtype) if isinstance(item, list | tuple) else as_tensor(item, dtype)
        for item in value
    ]
    return OPERATORS["stack"](rows)


def _first_symbolic(value: Any) -> Any:
    for item in value:
        if is_symbolic(item):
            return item
        if isinstance(item, list | tuple) and _holds_symbolic(item):
            return _first_symbolic(item)
    raise TypeError("expected a tensor among the values")  # pragma: no cover - callers checked


def convert_to_tensor(
    value: Any,
    dtype: Any = None,
    name: str | None = None,
    preferred_dtype: Any = None,
    dtype_hint: Any = None,
) -> Tensor:
    """`value` as a tensor; see `constant` for how dtypes are chosen.

    `preferred_dtype` (or `dtype_hint`) is used when the value fits it.

    Raises:
        TypeError, ValueError: the value has another dtype, or cannot be a tensor.
    """
    hint = preferred_dtype if preferred_dtype is not None else dtype_hint
    if dtype is None and hint is not None and not is_symbolic(value):
        try:
            return as_tensor(value, as_dtype(hint), name)
        except (TypeError, ValueError):
            pass  # a preference only
    return as_tensor(value, None if dtype is None else as_dtype(dtype), name)


_FOLDED_ELEMENTS = 4096
_FOLDED_TENSORS = 1000


def constant_value(tensor: Any) -> np.ndarray[Any, Any] | None:
    """The value of a tensor as far as it follows from constants and static shapes, else None.

    Only small values (sizes, axes, paddings) are worked out.
    """
    if not is_symbolic(tensor):
        return as_array(tensor)
    wanted: Tensor = tensor._as_graph_tensor()
    known: dict[Tensor, np.ndarray[Any, Any] | None] = {}
    waiting = [wanted]
    while waiting and len(known) < _FOLDED_TENSORS:
        x = waiting[-1]
        needed = [source for source in _folded_from(x) if source not in known]
        if needed and all(known.get(source, 0) is not None for source in x.op.inputs):
            waiting.append(needed[0])
        else:
            known[waiting.pop()] = _folded(x, known)
    return known.get(wanted)


def _folded_from(tensor: Tensor) -> tuple[Tensor, ...]:
    """The tensors whose values give the value of `tensor`, if that is to be worked out at all."""
    kind = tensor.op.kind
    if kind.kernel is None or kind.access or kind.random or kind.merges or kind.effect:
        return ()
    if kind.name == "PlaceholderWithDefault":
        return ()  # a run may feed another value
    if kind.name in _FROM_SHAPES or len(tensor.op.outputs) != 1:
        return ()
    small = all(_few_elements(x) for x in (tensor, *tensor.op.inputs))
    return tensor.op.inputs if small else ()


def _few_elements(tensor: Tensor) -> bool:
    count = tensor.shape.num_elements()
    return count is not None and count <= _FOLDED_ELEMENTS


def _folded(
    tensor: Tensor, known: Mapping[Tensor, np.ndarray[Any, Any] | None]
) -> np.ndarray[Any, Any] | None:
    """The value of `tensor`, given those of its inputs."""
    held = getattr(tensor, "value", None)
    if held is not None:  # eager mode
        return to_numpy(held)
    kind, attrs = tensor.op.kind, tensor.op.attrs
    if kind is _constant.kind:
        return attrs["value"]  # type: ignore[no-any-return]
    if kind.name in _FROM_SHAPES:
        return _FROM_SHAPES[kind.name](tensor.op.inputs[0].shape, tensor.dtype)
    values = [known.get(source) for source in _folded_from(tensor)]
    if not values or any(value is None for value in values):
        return None
    assert kind.kernel is not None
    try:
        with np.errstate(all="ignore"):
            return np.asarray(kind.kernel(np, *values, **attrs))
    except Exception:  # noqa: BLE001 - folding is a bonus; the run reports the error in its place
        return None


def _shape_of(shape: TensorShape, dtype: DType) -> np.ndarray[Any, Any] | None:
    return np.asarray(shape.as_list(), dtype.dtype) if shape.is_fully_defined() else None


def _size_of(shape: TensorShape, dtype: DType) -> np.ndarray[Any, Any] | None:
    count = shape.num_elements()
    return None if count is None else np.asarray(count, dtype.dtype)


def _rank_of(shape: TensorShape, dtype: DType) -> np.ndarray[Any, Any] | None:
    return None if shape.ndims is None else np.asarray(shape.ndims, dtype.dtype)


_FROM_SHAPES = {"Shape": _shape_of, "Size": _size_of, "Rank": _rank_of}
"""Operations whose value follows from the static shape of their input."""


def constant_value_as_shape(value: Any) -> Shape:
    """The static shape that a tensor of sizes stands for; -1 and unknown sizes give None."""
    if not is_symbolic(value):
        if isinstance(value, TensorShape):
            return value.sizes
        if isinstance(value, list | tuple) and _holds_symbolic(value):
            return tuple(_size(item) for item in value)
        return _sizes_of(as_array(value))
    tensor = value._as_graph_tensor()
    known = constant_value(tensor)
    if known is not None:
        return _sizes_of(known)
    kind, inputs = tensor.op.kind.name, tensor.op.inputs
    if kind == "Shape":
        return inputs[0].sizes  # type: ignore[no-any-return]
    if kind == "Pack":
        return tuple(_size(item) for item in inputs)
    if kind == "Cast":
        return constant_value_as_shape(inputs[0])
    if kind == "ConcatV2":
        parts = [constant_value_as_shape(item) for item in inputs]
        if all(part is not None for part in parts):
            return tuple(size for part in parts for size in part or ())
    if kind == "StridedSlice":
        source = constant_value_as_shape(inputs[0])
        key = tensor.op.attrs.get("key")
        if source is not None and isinstance(key, tuple) and len(key) == 1:
            picked = source[key[0]] if isinstance(key[0], slice) else None
            if isinstance(picked, tuple):
                return picked
    sizes = tensor.sizes
    return None if sizes is None or sizes[0] is None else (None,) * sizes[0]


def _size(value: Any) -> int | None:
    known = constant_value(value)
    if known is not None:
        return None if int(known) < 0 else int(known)
    if is_symbolic(value) and value._as_graph_tensor().op.kind.name == "StridedSlice":
        node = value._as_graph_tensor().op
        source = constant_value_as_shape(node.inputs[0])
        key = node.attrs.get("key")
        if (
            source is not None
            and isinstance(key, tuple)
            and len(key) == 1
            and isinstance(key[0], int)
        ):
            return source[key[0]]
    return None


def _sizes_of(array: np.ndarray[Any, Any]) -> Shape:
    if array.ndim != 1 and array.size != 1:
        raise ValueError(f"shape: expected a list of sizes, got an array of shape {array.shape}")
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"shape: expected integers, got {array.dtype}")
    return as_shape([None if size < 0 else int(size) for size in array.ravel()])


INDEX_TYPES = frozenset(dtype for dtype in INTEGERS if dtype.name in ("int32", "int64"))
"""The dtypes of indices, shapes and axes."""
