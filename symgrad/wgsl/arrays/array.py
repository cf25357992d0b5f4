"""Arrays that live on a GPU, with as much of NumPy as a loop of research code needs."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from symgrad import lazy
from symgrad.errors import DeviceError, InputError, InputTypeError, TraceError
from symgrad.kernel.stages.body import NOTHING
from symgrad.values.arrays import LARGEST, is_float, name_of
from symgrad.wgsl.arrays.stored import DTYPES, StoredArray, checked_axes
from symgrad.wgsl.device.gpus import Gpu

REDUCING: Final = frozenset({"axis", "keepdims"})
"""The arguments of reductions that kernels know."""

INSTEAD: Final = "use what is returned, or np.asarray(x)"
"""The remedy where NumPy would write to an array."""

OPERATORS: Final[dict[np.ufunc, str]] = {
    np.add: "add",
    np.multiply: "mul",
    np.maximum: "max",
    np.minimum: "min",
}
"""The ufuncs that arrays are reduced by, as kernels call them."""

SCANNED: Final = (np.add, np.multiply, np.maximum, np.minimum, np.logaddexp)
"""The ufuncs whose ``accumulate`` computes on the device."""

METHODS: Final = ("sum", "prod", "max", "min", "mean", "var", "std")
"""The reductions."""

LARGEST_CONSTANT: Final = 64
"""Up to this an integral exponent is part of a kernel, which then multiplies."""


class DeviceArray(StoredArray, NDArrayOperatorsMixin):
    """An array that lives on a GPU, to be passed to kernels there and fetched when wanted.

    It is made by ``sg.device_array`` and by kernels that were given one. Elements are float32,
    float64 where the device has it, or int32 and uint32 for indices. Operators, the ufuncs of NumPy
    and SciPy, ``np.sum``, ``mean``, ``var``, ``std``, ``max``, ``min``, ``prod``, ``cumsum``,
    ``cumprod``, ``clip``, ``concatenate``, ``stack``, ``reshape``, ``ravel``, ``transpose`` and
    ``copy``, and
    ``accumulate`` of some ufuncs, compute there, with numbers and with NumPy's arrays, which go up;
    they return device arrays before these are computed (`wait` waits). Every other function, and
    comparisons, compute on the host with a copy, and their results are NumPy's.

    An array cannot be changed (but by the ``out=`` of kernels), so ``x += y`` makes a new one, and
    views may share its memory, which is freed with the last of them. A slice that is contiguous is
    a view, any other basic index is a copy.

    Example:
        >>> import symgrad as sg
        >>> x = sg.device_array([[1.0, 2.0], [3.0, 4.0]], device="gpu")
        >>> (x - 0.5 * x.mean(axis=0)).tolist()
        [[0.0, 0.5], [2.0, 2.5]]
    """

    __slots__ = ()
    __hash__ = object.__hash__  # type: ignore[assignment]
    __array_priority__: ClassVar[float] = 1000.0

    __iadd__ = NDArrayOperatorsMixin.__add__
    __isub__ = NDArrayOperatorsMixin.__sub__
    __imul__ = NDArrayOperatorsMixin.__mul__
    __itruediv__ = NDArrayOperatorsMixin.__truediv__
    __ifloordiv__ = NDArrayOperatorsMixin.__floordiv__
    __imod__ = NDArrayOperatorsMixin.__mod__
    __ipow__ = NDArrayOperatorsMixin.__pow__
    __imatmul__ = NDArrayOperatorsMixin.__matmul__

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """Calls operators and NumPy's ufuncs on arrays on a GPU."""
        if method == "reduce" and ufunc in OPERATORS and set(options) <= REDUCING:
            return _reduced(ufunc, inputs[0], **{"axis": 0, **options})
        if method == "accumulate" and ufunc in SCANNED and _is_scanned(*inputs, **options):
            return _accumulated(ufunc, inputs[0], options.get("axis", 0))
        if method == "__call__" and ufunc.nout == 1 and not ufunc.signature and not options:
            with contextlib.suppress(TraceError):  # nothing that kernels know
                return _applied(ufunc, inputs)
        if method == "at":
            raise InputTypeError(f"{ufunc.__name__}.at writes to an array on a device: {INSTEAD}")
        out = options.pop("out", None)
        result = getattr(ufunc, method)(*map(_fetched, inputs), **options)
        return result if out is None else _put(out, result)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Calls NumPy's other functions on arrays on a GPU."""
        if func in FUNCTIONS and _binds(FUNCTIONS[func], args, kwargs):
            return FUNCTIONS[func](*args, **kwargs)
        target = args[0] if func in WRITING and args else kwargs.get("out")
        if isinstance(target, DeviceArray):
            raise InputTypeError(f"{func.__name__} writes to an array on a device: {INSTEAD}")
        return func(*_fetched(args), **_fetched(kwargs))

    def __contains__(self, value: Any) -> bool:
        return bool(np.any(self == value))

    def sum(self, axis: Any = None, *, keepdims: bool = False) -> DeviceArray:
        """The sum over an axis, over several, or over all."""
        return _reduced(np.add, self, axis, keepdims)

    def prod(self, axis: Any = None, *, keepdims: bool = False) -> DeviceArray:
        """The product over an axis, over several, or over all."""
        return _reduced(np.multiply, self, axis, keepdims)

    def max(self, axis: Any = None, *, keepdims: bool = False) -> DeviceArray:
        """The largest over an axis, over several, or over all; NaN if there is one."""
        return _reduced(np.maximum, self, axis, keepdims)

    def min(self, axis: Any = None, *, keepdims: bool = False) -> DeviceArray:
        """The least over an axis, over several, or over all; NaN if there is one."""
        return _reduced(np.minimum, self, axis, keepdims)

    def cumsum(self, axis: int | None = None) -> DeviceArray:
        """The sums up to each element along an axis, or of all elements in a row."""
        return _accumulated(np.add, self, axis)

    def cumprod(self, axis: int | None = None) -> DeviceArray:
        """The products up to each element along an axis, or of all elements in a row."""
        return _accumulated(np.multiply, self, axis)

    def mean(self, axis: Any = None, *, keepdims: bool = False) -> DeviceArray:
        """The mean over an axis, over several, or over all."""
        total = _reduced(np.add, self, axis, keepdims)
        return total / (self.size / total.size if total.size else math.nan)

    def var(self, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> DeviceArray:
        """The mean square of what is left without the mean, of n - ddof."""
        rest = self - self.mean(axis, keepdims=True)
        total = (rest * rest).sum(axis, keepdims=keepdims)
        return total / max(self.size / max(total.size, 1) - ddof, 0)

    def std(self, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> DeviceArray:
        """The square root of the variance."""
        return self.var(axis, ddof=ddof, keepdims=keepdims) ** 0.5


def _fetched(value: Any) -> Any:
    """Arguments of NumPy's, with arrays of the device as arrays of the host."""
    if isinstance(value, DeviceArray):
        return value.numpy()
    if isinstance(value, dict):
        return {k: _fetched(v) for k, v in value.items()}
    return type(value)(map(_fetched, value)) if type(value) in (list, tuple) else value


def _put(out: tuple[Any, ...], computed: Any) -> Any:
    """Write the results of a ufunc to NumPy's arrays."""
    results = computed if isinstance(computed, tuple) else (computed,)
    for target, result in zip(out, results, strict=True):
        if isinstance(target, DeviceArray):
            raise InputTypeError(f"out= of a ufunc takes no array on a device: {INSTEAD}")
        np.copyto(target, result)
    return out[0] if len(out) == 1 else out


def _gpu_of(arrays: Sequence[Any]) -> Gpu:
    """The GPU of all arrays that are on one."""
    gpus = list({id(a.gpu): a.gpu for a in arrays if isinstance(a, DeviceArray)}.values())
    if len(gpus) > 1:
        raise DeviceError(
            f"arrays on {gpus[0].info} and {gpus[1].info}: bring them together by "
            "sg.device_array(x.numpy(), device)"
        )
    return gpus[0]


def _applied(ufunc: np.ufunc, inputs: Sequence[Any]) -> Any:
    """A ufunc of arrays and numbers, element by element."""
    gpu = _gpu_of(inputs)
    call = lazy.arithmetic.Call(ufunc, _constants(ufunc, inputs))
    dtype = _common(inputs[: call.variables])
    lazy.arithmetic.computation(call, name_of(dtype))
    values = [_operand(gpu, a, dtype) for a in inputs[: call.variables]]
    shape = np.broadcast_shapes(*(v.shape for v in values if isinstance(v, DeviceArray)))
    result = DeviceArray.empty(gpu, shape, dtype)
    if result.size:
        views = [v.view.broadcast(shape) if isinstance(v, DeviceArray) else v for v in values]
        lazy.arithmetic.of(gpu).compute(call, views, result.view)
    return result


def _constants(ufunc: np.ufunc, inputs: Sequence[Any]) -> tuple[tuple[int, float], ...]:
    """The arguments for which a kernel is made: exponents such as 2."""
    if ufunc not in (np.power, np.float_power) or isinstance(inputs[1], DeviceArray):
        return ()
    exponent = np.asarray(inputs[1])
    if exponent.ndim or exponent.dtype.kind not in "fiub":
        return ()
    value = float(exponent)
    is_whole = value % 1 == 0 and abs(value) <= LARGEST_CONSTANT
    return ((1, value),) if value == 0.5 or is_whole else ()


def _common(inputs: Sequence[Any]) -> np.dtype[Any]:
    """The dtype of what is computed of arrays on a GPU: the one with most digits."""
    dtypes = [a.dtype for a in inputs if isinstance(a, DeviceArray)]
    if other := next((dtype for dtype in dtypes if not is_float(dtype)), None):
        raise TraceError(f"kernels compute with floats, not {other}")
    return max(dtypes, key=DTYPES.index)


def _operand(gpu: Gpu, value: Any, dtype: np.dtype[Any]) -> Any:
    """An array on the GPU, or a number; what is the host's is rounded to a dtype."""
    if isinstance(value, DeviceArray):
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "fiub" or np.ma.is_masked(value):
        raise InputTypeError(f"{value!r} beside an array on a device: it holds no real numbers")
    if array.ndim:
        return DeviceArray.from_numpy(gpu, array, dtype)
    number = float(array)
    if math.isfinite(number) and abs(number) > LARGEST[name_of(dtype)]:
        raise InputError(f"{number} is beyond {name_of(dtype)}'s largest number")
    return number


def _reduced(ufunc: np.ufunc, x: DeviceArray, axis: Any = None, keepdims: bool = False) -> Any:
    """The ufunc of all elements along some axes."""
    if not is_float(x.dtype):
        reduced = np.asarray(ufunc.reduce(x.numpy(), axis, keepdims=keepdims))
        return _sent(x.gpu, reduced, x.dtype)
    axes = _axes(axis, x.ndim)
    shape = tuple(1 if a in axes else n for a, n in enumerate(x.shape) if keepdims or a not in axes)
    inner = tuple(n for a, n in enumerate(x.shape) if a not in axes)
    result = DeviceArray.empty(x.gpu, inner, x.dtype)
    if not x.size and result.size and math.isinf(NOTHING[OPERATORS[ufunc]]):
        raise InputError(f"{ufunc.__name__} of no elements: an array of shape {x.shape}")
    if result.size and x.size:
        lazy.arithmetic.of(x.gpu).reduce(ufunc, x.view, axes, result.view)
    elif result.size:
        lazy.arithmetic.of(x.gpu).compute(
            lazy.arithmetic.Call(np.positive), [NOTHING[OPERATORS[ufunc]]], result.view
        )
    return result.reshape(shape)


def _is_scanned(x: Any, axis: Any = 0) -> bool:
    """Whether an array on a device is asked to accumulate along an axis that it has."""
    return isinstance(x, DeviceArray) and x.ndim > 0 and axis is not None


def _accumulated(ufunc: np.ufunc, x: DeviceArray, axis: int | None) -> DeviceArray:
    """The ufunc of all elements up to each one."""
    x = x.ravel() if axis is None else x
    (along,) = _axes(0 if axis is None else axis, x.ndim)
    if not is_float(x.dtype):
        accumulated = ufunc.accumulate(x.numpy(), along)
        return _sent(x.gpu, accumulated, np.dtype(accumulated.dtype.kind + "4"))
    return lazy.cumulative.accumulated(ufunc, x, along)


def _axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """The axes that NumPy's ``axis`` names."""
    listed = range(ndim) if axis is None else np.atleast_1d(axis).tolist()
    axes = tuple(sorted(checked_axes(listed, ndim)))
    if len(set(axes)) < len(axes):
        raise InputError(f"axis={axis}: an axis is named twice")
    return axes


def concatenate(arrays: Sequence[Any], axis: int | None = 0) -> DeviceArray:
    """Arrays one behind the other along an axis that they have, by default the first."""
    gpu = _gpu_of(arrays)
    dtype = next(a.dtype for a in arrays if isinstance(a, DeviceArray))
    parts = [a if isinstance(a, DeviceArray) else _sent(gpu, a, dtype) for a in arrays]
    if axis is None:
        parts, axis = [p.ravel() for p in parts], 0
    (along,) = _axes(axis, parts[0].ndim)
    beside = {p.shape[:along] + p.shape[along + 1 :] for p in parts}
    if len({p.ndim for p in parts}) > 1 or len(beside) > 1:
        shapes = ", ".join(str(p.shape) for p in parts)
        raise InputError(f"arrays of shapes {shapes} differ beside axis {along}")
    if len({p.dtype for p in parts}) > 1:
        raise InputTypeError(f"arrays of {dtype} and of other dtypes do not go together")
    shape = list(parts[0].shape)
    shape[along] = sum(p.shape[along] for p in parts)
    if not along:
        return parts[0].joined(parts[1:]).reshape(shape)
    result = DeviceArray.empty(gpu, tuple(shape), dtype)
    start = 0
    for p in parts:
        if p.size:
            place = result.view.part(along, start, start + p.shape[along])
            lazy.arithmetic.of(gpu).copy(p.view, place)
        start += p.shape[along]
    return result


def _sent(gpu: Gpu, value: Any, dtype: np.dtype[Any]) -> DeviceArray:
    """An array of the host's, or a list, on the GPU beside those of a dtype."""
    array = np.asarray(value)
    if array.dtype.kind not in ("fiub" if is_float(dtype) else "iub"):
        raise InputTypeError(f"an array of {array.dtype} does not go beside one of {dtype}")
    if not is_float(dtype) and (array != array.astype(dtype)).any():
        raise InputError(f"some numbers are not {dtype}: use x.numpy()")
    return DeviceArray.from_numpy(gpu, array, dtype)


def stack(arrays: Sequence[Any], axis: int = 0) -> DeviceArray:
    """Arrays of one shape side by side along an axis of their own."""
    ndim = max(np.ndim(a) if not isinstance(a, DeviceArray) else a.ndim for a in arrays) + 1
    (along,) = _axes(axis, ndim)
    index = (slice(None),) * along + (None,)
    return concatenate(
        [a[index] if isinstance(a, DeviceArray) else np.asarray(a)[index] for a in arrays], along
    )


_signature: Final = functools.cache(inspect.signature)


def _binds(function: Callable[..., Any], args: Any, kwargs: Any) -> bool:
    """Whether a function of this module takes these arguments of NumPy's."""
    if not (args and isinstance(args[0], DeviceArray | list | tuple)):
        return False
    if isinstance(args[0], DeviceArray) == (function in JOINING):
        return False
    try:
        _signature(function).bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def clip(a: DeviceArray, a_min: Any = None, a_max: Any = None) -> Any:
    """The elements, but no less than one number and no more than another, if there are any."""
    raised = a if a_min is None else np.maximum(a, a_min)
    return raised if a_max is None else np.minimum(raised, a_max)


JOINING: Final = (concatenate, stack)
"""Functions that take several arrays."""

FUNCTIONS: Final[dict[Any, Callable[..., Any]]] = {
    np.concatenate: concatenate,
    np.stack: stack,
    np.reshape: lambda a, shape: a.reshape(shape),
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
    np.size: lambda a, axis=None: a.size if axis is None else a.shape[axis],
    np.broadcast_to: lambda array, shape: array.broadcast(shape),
    np.copy: lambda a: a.copy(),
    np.ravel: lambda a: a.ravel(),
    np.transpose: lambda a, axes=None: a.transpose(axes),
    np.clip: clip,
    np.cumsum: lambda a, axis=None: a.cumsum(axis),
    np.cumprod: lambda a, axis=None: a.cumprod(axis),
    **{getattr(np, name): getattr(DeviceArray, name) for name in METHODS},
}
"""NumPy's functions, beside its ufuncs, that compute on the device."""

WRITING: Final = frozenset(
    {np.copyto, np.put, np.place, np.putmask, np.fill_diagonal, np.put_along_axis}
)
"""NumPy's functions that write to an array that they are given."""
