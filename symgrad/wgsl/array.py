"""Arrays that live on a GPU, with as much of NumPy as a loop of research code needs."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from symgrad.errors import DeviceError, InputError, InputTypeError, TraceError
from symgrad.wgsl.device import Gpu
from symgrad.wgsl.elementwise import IDENTITIES, Arithmetic, Call, definition
from symgrad.wgsl.stored import FLOAT, StoredArray

LARGEST: Final = float(np.finfo(FLOAT).max)

REDUCING: Final = frozenset({"axis", "keepdims"})
"""The arguments of reductions that kernels know."""

METHODS: Final = ("sum", "prod", "max", "min", "mean", "var", "std")
"""The reductions."""

LARGEST_CONSTANT: Final = 64
"""Up to this an integral exponent is part of a kernel, which then multiplies."""


class DeviceArray(StoredArray, np.lib.mixins.NDArrayOperatorsMixin):
    """An array that lives on a GPU, to be passed to kernels there and fetched when wanted.

    It is made by ``sg.device_array`` and by kernels that were given one. Elements are float32, or
    int32 and uint32 for indices. Operators, the ufuncs of NumPy and SciPy, ``np.sum``, ``mean``,
    ``var``, ``std``, ``max``, ``min``, ``prod``, ``clip``, ``concatenate``, ``stack``, ``reshape``,
    ``ravel``, ``transpose`` and ``copy`` compute there, with numbers and with NumPy's arrays, which
    go up; they return device arrays before these are computed (`wait` waits). Every other function,
    and comparisons, compute on the host with a copy, and their results are NumPy's.

    An array cannot be changed (but by ``out=``), so views may share its memory, which is freed with
    the last of them. A slice that is contiguous is a view, any other basic index is a copy.

    Example:
        >>> import symgrad as sg
        >>> x = sg.device_array([[1.0, 2.0], [3.0, 4.0]], device="gpu")
        >>> (x - 0.5 * x.mean(axis=0)).tolist()
        [[0.0, 0.5], [2.0, 2.5]]
    """

    __slots__ = ()
    __hash__ = object.__hash__  # type: ignore[assignment]
    __array_priority__: ClassVar[float] = 1000.0

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        """What operators and NumPy's ufuncs do with arrays on a GPU."""
        if method == "reduce" and ufunc in IDENTITIES and set(options) <= REDUCING:
            return _reduced(ufunc, inputs[0], **{"axis": 0, **options})
        if method == "__call__" and ufunc.nout == 1 and not ufunc.signature and not options:
            with contextlib.suppress(TraceError):  # nothing that kernels know
                return _applied(ufunc, inputs)
        out = options.pop("out", None)
        found = getattr(ufunc, method)(*map(_fetched, inputs), **options)
        return found if out is None else _put(out, found)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """What NumPy's other functions do with arrays on a GPU."""
        if func in FUNCTIONS:
            return FUNCTIONS[func](*args, **kwargs)
        return func(*_fetched(args), **_fetched(kwargs))

    def sum(self, axis: Any = None, keepdims: bool = False) -> DeviceArray:
        """The sum over an axis, over several, or over all."""
        return _reduced(np.add, self, axis, keepdims)

    def prod(self, axis: Any = None, keepdims: bool = False) -> DeviceArray:
        """The product over an axis, over several, or over all."""
        return _reduced(np.multiply, self, axis, keepdims)

    def max(self, axis: Any = None, keepdims: bool = False) -> DeviceArray:
        """The largest over an axis, over several, or over all; NaN if there is one."""
        return _reduced(np.maximum, self, axis, keepdims)

    def min(self, axis: Any = None, keepdims: bool = False) -> DeviceArray:
        """The least over an axis, over several, or over all; NaN if there is one."""
        return _reduced(np.minimum, self, axis, keepdims)

    def mean(self, axis: Any = None, keepdims: bool = False) -> DeviceArray:
        """The mean over an axis, over several, or over all."""
        total = _reduced(np.add, self, axis, keepdims)
        return total / (self.size / total.size if total.size else math.nan)

    def var(self, axis: Any = None, ddof: int = 0, keepdims: bool = False) -> DeviceArray:
        """The mean square of what is left without the mean, of n - ddof."""
        rest = self - self.mean(axis, keepdims=True)
        total = (rest * rest).sum(axis, keepdims)
        return total / max(self.size / max(total.size, 1) - ddof, 0)

    def std(self, axis: Any = None, ddof: int = 0, keepdims: bool = False) -> DeviceArray:
        """The square root of the variance."""
        return self.var(axis, ddof, keepdims) ** 0.5


def _fetched(value: Any) -> Any:
    """Arguments of NumPy's, with arrays of the device as arrays of the host."""
    if isinstance(value, DeviceArray):
        return value.numpy()
    if isinstance(value, dict):
        return {k: _fetched(v) for k, v in value.items()}
    return type(value)(map(_fetched, value)) if type(value) in (list, tuple) else value


def _put(out: tuple[Any, ...], found: Any) -> Any:
    """Write the results of a ufunc to NumPy's arrays."""
    results = found if isinstance(found, tuple) else (found,)
    for target, result in zip(out, results, strict=True):
        if isinstance(target, DeviceArray):
            raise InputTypeError("out= of a ufunc takes no array on a device: use what is returned")
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
    values = [_operand(gpu, a) for a in inputs]
    constants: tuple[tuple[int, float], ...] = ()
    if ufunc in (np.power, np.float_power) and _is_constant(values[1]):
        constants = ((1, values.pop()),)
    call = Call(ufunc, constants)
    definition(call)
    shape = np.broadcast_shapes(*(v.shape for v in values if isinstance(v, DeviceArray)))
    result = DeviceArray.empty(gpu, shape)
    if result.size:
        views = [v.view.broadcast(shape) if isinstance(v, DeviceArray) else v for v in values]
        gpu.tool(Arithmetic).compute(call, views, result.view)
    return result


def _is_constant(exponent: Any) -> bool:
    """Whether a kernel is made for this exponent."""
    return not isinstance(exponent, DeviceArray) and (
        exponent == 0.5 or exponent % 1 == 0 and abs(exponent) <= LARGEST_CONSTANT
    )


def _operand(gpu: Gpu, value: Any) -> Any:
    """An array on the GPU, or a number."""
    if isinstance(value, DeviceArray):
        if value.dtype != FLOAT:
            raise TraceError(f"kernels compute with float32, not {value.dtype}")
        return value
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise InputTypeError(f"{value!r} beside an array on a device: it holds no real numbers")
    if array.ndim:
        return DeviceArray.from_numpy(gpu, array)
    number = float(array)
    if math.isfinite(number) and abs(number) > LARGEST:
        raise InputError(f"{number} is beyond float32's largest number")
    return number


def _reduced(ufunc: np.ufunc, x: DeviceArray, axis: Any = None, keepdims: bool = False) -> Any:
    """The ufunc of all elements along some axes."""
    if x.dtype != FLOAT:
        return DeviceArray.from_numpy(
            x.gpu, ufunc.reduce(x.numpy(), axis, keepdims=keepdims, dtype=x.dtype), x.dtype
        )
    axes = _axes(axis, x.ndim)
    kept = tuple(1 if a in axes else n for a, n in enumerate(x.shape) if keepdims or a not in axes)
    inner = tuple(n for a, n in enumerate(x.shape) if a not in axes)
    result = DeviceArray.empty(x.gpu, inner)
    if not x.size and result.size and math.isinf(IDENTITIES[ufunc]):
        raise InputError(f"{ufunc.__name__} of no elements: an array of shape {x.shape}")
    if result.size and x.size:
        x.gpu.tool(Arithmetic).reduce(ufunc, x.view, axes, result.view)
    elif result.size:
        x.gpu.tool(Arithmetic).compute(Call(np.positive), [IDENTITIES[ufunc]], result.view)
    return result.reshape(kept)


def _axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """The axes that NumPy's ``axis`` names."""
    given = range(ndim) if axis is None else np.atleast_1d(axis).tolist()
    for a in given:
        if not -ndim <= a < ndim:
            raise InputError(f"axis {a} is out of bounds for an array of {ndim} axes")
    return tuple(sorted({a % ndim for a in given}))


def concatenate(arrays: Sequence[Any], axis: int | None = 0) -> DeviceArray:
    """Arrays one behind the other along an axis that they have, by default the first."""
    gpu = _gpu_of(arrays)
    dtype = next(a.dtype for a in arrays if isinstance(a, DeviceArray))
    parts = [
        a if isinstance(a, DeviceArray) else DeviceArray.from_numpy(gpu, a, dtype) for a in arrays
    ]
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
    result = DeviceArray.empty(gpu, tuple(shape), dtype)
    start = 0
    for p in parts:
        if p.size:
            room = result.view.part(along, start, start + p.shape[along])
            gpu.tool(Arithmetic).compute(None, [p.view], room)
        start += p.shape[along]
    return result


def stack(arrays: Sequence[Any], axis: int = 0) -> DeviceArray:
    """Arrays of one shape side by side along an axis of their own."""
    ndim = max(np.ndim(a) if not isinstance(a, DeviceArray) else a.ndim for a in arrays) + 1
    (along,) = _axes(axis, ndim)
    index = (slice(None),) * along + (None,)
    return concatenate(
        [a[index] if isinstance(a, DeviceArray) else np.asarray(a)[index] for a in arrays], along
    )


def _method(name: str) -> Callable[..., Any]:
    """NumPy's function of this name: the method, or NumPy's where there are other arguments."""

    def call(a: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(a, DeviceArray) and set(kwargs) <= {*REDUCING, "ddof"}:
            return getattr(a, name)(*args, **kwargs)
        return getattr(np, name)(_fetched(a), *args, **_fetched(kwargs))

    return call


FUNCTIONS: Final[dict[Any, Callable[..., Any]]] = {
    np.concatenate: concatenate,
    np.stack: stack,
    np.reshape: lambda a, shape: a.reshape(shape),
    np.shape: lambda a: a.shape,
    np.ndim: lambda a: a.ndim,
    np.size: lambda a, axis=None: a.size if axis is None else a.shape[axis],
    np.broadcast_to: lambda a, shape: a.broadcast(shape),
    np.copy: lambda a: a.copy(),
    np.ravel: lambda a: a.ravel(),
    np.transpose: lambda a, axes=None: a.transpose(axes),
    **{getattr(np, name): _method(name) for name in METHODS},
    np.clip: lambda a, low, high: np.minimum(np.maximum(a, low), high),
}
"""NumPy's functions, beside its ufuncs, that compute on the device."""
