"""`network`: functions that call kernels of arrays one after another, and their gradients."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, InputTypeError
from symgrad.expr.tracers.tree import flatten
from symgrad.kernel.resident import ResidentArray
from symgrad.tensor.kernel import TensorKernel
from symgrad.tensor.recorded import Recorded, Tape, value_of
from symgrad.tensor.rowwise import rowwise
from symgrad.values.arrays import real_numbers

KEPT_KERNELS: Final = 256
"""Kernels of operators that are kept."""


class Network:
    """A function that calls kernels of arrays, with its gradients: see `network`.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> layer = sg.linear(sg.tanh, device="cpu")
        >>> twice = sg.network(lambda x, W, b: layer(layer(x, W, b), W, b))
        >>> isinstance(twice, sg.Network), twice(np.zeros((1, 2)), np.eye(2), np.zeros(2)).tolist()
        (True, [[0.0, 0.0]])
    """

    def __init__(self, f: Callable[..., Any]) -> None:
        functools.update_wrapper(self, f)
        self._f = f

    def run(self, *arguments: Any) -> Any:
        """The result of the function."""
        return self._f(*arguments)

    __call__ = run

    def vjp(self, *arguments: Any) -> tuple[Any, tuple[Any, ...]]:
        """The result and the gradients: the cotangent of the result comes behind the arguments.

        The gradients are nested as the arguments are, in a tuple, and where these are on a device
        they are too. The cotangent is nested as the result is; of a number it is one.

        Raises:
            InputError: for a cotangent of another shape than the result. TraceError: where the
                function does with arrays what no kernel, operator or ufunc does.
        """
        if not arguments:
            raise InputError(f"vjp of {self!r} takes a cotangent after the arguments")
        *primals, cotangent = arguments
        tape = Tape(_elementwise)
        leaves, tree = flatten(list(primals))
        begun = [tape.begin(_array(a)) for a in leaves]
        results, outer = flatten(self._f(*tree.nest(iter(begun), None)))
        result = outer.nest(map(value_of, results), None)
        parts = list(outer.parts(cotangent, "the cotangent"))
        for g, y in zip(parts, results, strict=True):
            _require(g, y)
        gradients = tape.back(results, [_array(g) for g in parts])
        each = (_gradient(gradients.get(a.place), a.value) for a in begun)
        return result, tuple(tree.nest(each, None))

    def __repr__(self) -> str:
        return f"<symgrad network {getattr(self._f, '__name__', self._f)!s}>"


def network(f: Callable[..., Any]) -> Network:
    """A function that calls kernels of arrays, one after another, with its gradients.

    ``f`` takes arrays, nested as you like, and gives an array or a nest of them. It calls kernels
    of arrays, such as `linear`, `rowwise` or `selective_scan` make, and does with their results
    what operators, NumPy's ufuncs, ``sum``, ``mean``, ``reshape`` and basic indices do. ``vjp``
    calls it and goes back through what it has called, so each call may take another path.

    Arrays that are on a device stay there. Layers keep what their activations are of.

    Raises:
        InputTypeError: if f is no function.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> hidden, out = sg.linear(sg.tanh, device="cpu"), sg.linear(device="cpu")
        >>> @sg.network
        ... def loss(p, x, y):
        ...     found = out(hidden(x, p["W"], p["b"]), p["V"], p["c"])
        ...     return ((found - y) ** 2).mean()
        >>> p = {"W": np.eye(2), "b": np.zeros(2), "V": np.ones((1, 2)), "c": np.zeros(1)}
        >>> value, (slopes, dx, dy) = loss.vjp(p, [[0.0, 0.0], [0.0, 0.0]], [[1.0], [3.0]], 1.0)
        >>> float(value), slopes["c"].tolist(), slopes["b"].tolist()
        (5.0, [-4.0], [-4.0, -4.0])
    """
    if not callable(f):
        raise InputTypeError(f"network takes a function that calls kernels, not {f!r}")
    return Network(f)


def _array(value: Any) -> Any:
    """An argument as it goes on a tape."""
    if isinstance(value, Recorded):
        raise InputTypeError(
            "a network has first derivatives only: vjp cannot be called within one"
        )
    on_device = isinstance(value, ResidentArray)
    return value if on_device else np.asarray(real_numbers(value, "a network"))


def _require(cotangent: Any, result: Any) -> None:
    """Refuse a cotangent that has another shape than the result."""
    shape, wanted = np.shape(cotangent), np.shape(value_of(result))
    if shape != wanted:
        raise InputError(f"the cotangent has shape {shape}, the result {wanted}")


def _gradient(gradient: Any, argument: Any) -> Any:
    """The gradient of an argument: where there is none, it is 0."""
    if gradient is None:
        gradient = np.zeros(argument.shape, np.float32)
    if isinstance(argument, ResidentArray) and not isinstance(gradient, ResidentArray):
        return argument.beside(np.asarray(gradient))
    return gradient


def _elementwise(ufunc: np.ufunc, operands: Sequence[Any]) -> TensorKernel:
    """The kernel of a ufunc, on the device of its arrays."""
    numbers = tuple(float(a) if isinstance(a, int | float | np.number) else None for a in operands)
    arrays = [value_of(a) for a in operands if np.ndim(a)]
    device_operand = next((a for a in arrays if isinstance(a, ResidentArray)), None)
    device = "cpu" if device_operand is None else device_operand.device.index
    wide = device_operand is None and np.result_type(*arrays) == np.float64
    return _kernel(ufunc, numbers, device, "float64" if wide else "float32")


@functools.lru_cache(KEPT_KERNELS)
def _kernel(
    ufunc: np.ufunc, numbers: tuple[float | None, ...], device: Any, dtype: Any
) -> TensorKernel:
    def of_two(x: Any, y: Any) -> Any:
        return ufunc(x, y)

    def of_one(x: Any) -> Any:
        return ufunc(*(x if number is None else number for number in numbers))

    f = of_two if numbers == (None, None) else of_one
    return rowwise(f, device=device, dtype=dtype, name=ufunc.__name__)
