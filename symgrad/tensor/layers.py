"""Layers: `linear` and `gemm_bias`, products of matrices with a bias, and `rowwise`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from symgrad.arrays.loops import mapped
from symgrad.arrays.tape import open_tape
from symgrad.arrays.trace import pulled_back
from symgrad.arrays.whole import WholeArray, Written, written_out
from symgrad.errors import InputError, InputTypeError, TraceError
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import ElementsNeededError
from symgrad.mathlib.define import Math
from symgrad.pipeline import DType, Options, dtype_name
from symgrad.targets import DeviceChoice
from symgrad.tensor.array_work import ArrayWork
from symgrad.tensor.kernel import Shape, TensorKernel, Work

Activation = Callable[[Any], Any]
"""A function of one number, of symgrad's or NumPy's operations."""


def of_one_number(f: Activation | None) -> Activation:
    """An activation as a function, to be traced.

    Raises:
        InputTypeError: if f is no function. TraceError: when it is called, and gives several.
    """
    if f is None:
        return lambda z: z
    if not callable(f):
        raise InputTypeError(f"activation={f!r}: use a function such as sg.gelu, or None")

    def traced(z: Any) -> Any:
        result = f(z)
        if isinstance(result, tuple | list | dict | np.ndarray):
            raise TraceError(f"the activation returned {result!r}: one number is needed")
        return result

    return traced


@dataclass(frozen=True)
class Layer(ArrayWork):
    """The work ``f(a b + bias)``: an ``activation`` of ``sums`` of the arguments.

    If it ``keeps`` what f is of, "run" gives that behind the result, and "vjp" takes it behind the
    cotangent.
    """

    sums: Callable[..., WholeArray] = np.matmul
    activation: Activation = np.positive
    keeps: bool = False

    def called(self, kind: str, arrays: Sequence[WholeArray]) -> list[WholeArray]:
        """The results of a call; gradients of what was kept compute no product but their own."""
        if not self.keeps:
            return super().called(kind, arrays)
        many = len(self.arguments)
        arguments, behind = arrays[:many], arrays[many:]
        sums = self.sums(*arguments)
        if kind == "run":
            return [_of_each(self.activation, sums), sums]
        cotangent, kept = behind
        result = _of_each(self.activation, kept)
        slope = pulled_back([result], [cotangent], [kept])
        return [result, *pulled_back([sums], slope, arguments)]

    def names(self, kind: str) -> list[str]:
        """The names of what a call gives."""
        return [*super().names(kind), *["kept"] * (self.keeps and kind == "run")]


def _activated(
    activation: Activation, sums: Callable[..., WholeArray], *arguments: WholeArray
) -> WholeArray:
    """The activation of sums."""
    return _of_each(activation, sums(*arguments))


def _of_each(activation: Activation, z: WholeArray) -> WholeArray:
    """The activation of each element."""
    if isinstance(activation, Written):
        return z.mapped(activation, [z]).astype(float)
    result: Any = np.broadcast_to(z.lift(activation(z)), z.shape)
    return result.astype(float)


def _sums(transposed: bool, a: WholeArray, b: WholeArray, bias: Any = None) -> WholeArray:
    """``a b + bias``, b being transposed in memory or not."""
    product = a @ (b.T if transposed else b)
    return product if bias is None else product + bias


def _require(transposed: bool, names: Sequence[str], shapes: Sequence[Shape]) -> None:
    """Refuse shapes that do not go together."""
    a, b = map(tuple, shapes[:2])
    least = 1 if transposed else 2
    if len(a) < least or len(b) < 2 or (transposed and len(b) > 2):
        name, shape = (names[0], a) if len(a) < least else (names[1], b)
        wanted = "(out, in)" if transposed else "(.., rows, columns)"
        raise InputError(f"{name} has shape {shape}: it must be a matrix, {wanted}")
    depth, columns = b[-2:] if not transposed else b[::-1]
    if a[-1] != depth:
        raise InputError(
            f"{names[1]} has shape {shapes[1]}: it must have {a[-1]} "
            f"{'columns' if transposed else 'rows'}, for {names[0]} has shape {shapes[0]}"
        )
    if len(names) == 3 and tuple(shapes[2]) != (columns,):
        raise InputError(
            f"{names[2]} has shape {tuple(shapes[2])}: the result has {columns} columns, "
            f"so ({columns},)"
        )
    try:
        np.broadcast_shapes(a[:-2], b[:-2])
    except ValueError as error:
        raise InputError(
            f"{names[1]} has shape {shapes[1]}, {names[0]} {shapes[0]}: their batches do not "
            "broadcast"
        ) from error


class LayerKernel(TensorKernel):
    """A kernel of a layer, which can keep what its activation is of for the gradients.

    Otherwise ``vjp`` computes that again, and never writes it to memory. Where the cotangent is
    known only later, as in a network of several layers, keeping it saves a product of matrices.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> layer = sg.linear(sg.tanh, device="cpu")
        >>> X, W, b = np.ones((2, 3)), np.ones((4, 3)), np.zeros(4)
        >>> y, kept = layer.run(X, W, b, keep=True)
        >>> kept.tolist() == (X @ W.T).tolist()
        True
        >>> y, (dX, dW, db) = layer.vjp(X, W, b, np.ones((2, 4)), kept=kept)
        >>> dX.shape
        (2, 3)
    """

    def run(self, *arrays: Any, keep: bool = False) -> Any:
        """The result for these arrays; to ``keep`` what the activation is of gives that as well.

        Raises:
            InputError: for shapes that do not go together, naming the argument.
            InputTypeError: for what holds no real numbers, or is on another device.
        """
        if not keep:
            return super().run(*arrays)
        return tuple(self._call("run", arrays, self._keeping(())))

    __call__ = run

    def shapes(self, shapes: Sequence[Shape], keep: bool) -> list[Shape]:
        """The shapes of the result, and to ``keep`` it of what the activation is of."""
        return super().shapes(shapes, keep) * (1 + keep)

    def forward(self, arrays: Sequence[Any], keep: bool) -> list[Any]:
        """The result, and to ``keep`` it what the activation is of."""
        return list(self.run(*arrays, keep=True)) if keep else super().forward(arrays, keep)

    def backward(
        self, arrays: Sequence[Any], cotangents: Sequence[Any], residuals: Sequence[Any]
    ) -> tuple[Any, ...]:
        """The gradients of all arguments, from what was kept."""
        return self.vjp(*arrays, *cotangents, kept=residuals[0])[1]

    def vjp(self, *arrays: Any, kept: Any = None) -> tuple[Any, Any]:
        """The result and the gradients, as of any `TensorKernel`, from what was ``kept`` or not.

        Raises:
            InputError, InputTypeError: as ``run`` does.
        """
        if kept is None:
            return super().vjp(*arrays)
        result, *gradients = self._call("vjp", (*arrays, kept), self._keeping(("kept",)))
        return result, tuple(gradients)

    def _keeping(self, extra_inputs: tuple[str, ...]) -> Work:
        """The work of calls that keep what the activation is of, or take it (``extra_inputs``)."""
        work = self._work
        assert isinstance(work, Layer), "it is the work of a layer"
        more = (*work.cotangents, *extra_inputs)
        return self._known(extra_inputs, lambda: replace(work, keeps=True, cotangents=more))


def gemm_bias(
    activation: Activation | None = None,
    *,
    bias: bool = True,
    device: DeviceChoice = None,
    math: Any = "accurate",
    dtype: Any = "float32",
) -> LayerKernel:
    """The kernel of ``f(A B + bias)``, whose ``vjp`` gives the gradients of A, B and bias.

    ``run(A, B, bias)`` takes A (.., M, K), B (.., K, N), whose batches broadcast as NumPy's do, and
    bias (N,), and gives (.., M, N). ``vjp(A, B, bias, cotangent)`` gives that and (dA, dB, dbias),
    each of the shape of its argument. ``activation`` is any function of one number that can be
    traced, such as `relu`, `gelu` or `tanh`; its derivative is derived.

    Raises:
        InputTypeError: if the activation is no function. TraceError: if it cannot be traced.
        DeviceError: for float64 on a GPU that has none.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> layer = sg.gemm_bias(sg.relu, device="cpu")
        >>> A, B, bias = np.eye(2), np.array([[1.0, -2.0], [3.0, 4.0]]), np.array([0.5, 0.5])
        >>> layer.run(A, B, bias).tolist()
        [[1.5, 0.0], [3.5, 4.5]]
        >>> y, (dA, dB, dbias) = layer.vjp(A, B, bias, np.ones((2, 2)))
        >>> dbias.tolist()
        [2.0, 1.0]
    """
    return _kernel("gemm_bias", ("A", "B", "bias"), False, activation, bias, device, math, dtype)


def linear(
    activation: Activation | None = None,
    *,
    bias: bool = True,
    device: DeviceChoice = None,
    math: Any = "accurate",
    dtype: Any = "float32",
) -> LayerKernel:
    """The kernel of a layer, ``f(X Wᵀ + b)``, whose ``vjp`` gives the gradients of X, W and b.

    ``run(X, W, b)`` takes X (.., in), W (out, in) and b (out,), and gives (.., out).
    ``vjp(X, W, b, cotangent)`` gives that and (dX, dW, db). ``activation`` is as for `gemm_bias`.

    Raises:
        InputTypeError: if the activation is no function. TraceError: if it cannot be traced.
        DeviceError: for float64 on a GPU that has none.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> layer = sg.linear(device="cpu")
        >>> W, b = np.array([[1.0, 2.0], [0.0, 1.0], [3.0, 0.0]]), np.zeros(3)
        >>> layer.run([1.0, 2.0], W, b).tolist()
        [5.0, 2.0, 3.0]
    """
    return _kernel("linear", ("X", "W", "b"), True, activation, bias, device, math, dtype)


def _kernel(
    name: str,
    arguments: tuple[str, ...],
    transposed: bool,
    activation: Activation | None,
    bias: bool,
    device: DeviceChoice,
    math: Any,
    dtype: Any,
) -> LayerKernel:
    options = Options(name, math=math, dtype=dtype_name(dtype), comments=False)
    function = _elementwise(of_one_number(activation))
    names, sums = arguments if bias else arguments[:2], partial(_sums, transposed)
    whole, require = partial(_activated, function, sums), partial(_require, transposed)
    work = Layer(name, names, whole, require, options, sums=sums, activation=function)
    return LayerKernel(work, options, device)


def _elementwise(activation: Activation) -> Activation:
    """An activation as its operations, where these are all that it is: no loops, no constant."""
    try:
        return written_out(activation, "f")[0]
    except ElementsNeededError:
        return activation


# `rowwise`: a function of the elements of rows and of their reductions, and its gradients.


def rowwise(
    f: Callable[..., Any],
    *,
    device: DeviceChoice = None,
    math: Math = "accurate",
    dtype: DType = "float32",
    name: str | None = None,
) -> TensorKernel:
    """The kernel of a function of rows, whose ``vjp`` gives the gradients of all its arguments.

    ``f`` is written for one row: it is called with one-dimensional arrays, one for each argument,
    and gives an array as long as these, or a number of the row, such as a sum. It may do what
    functions of `jit` do. It is called once for arguments of some shapes.

    ``run(x, ..)`` takes arrays: the first is (.., n), rows along the last axis, and the others have
    the same shape, or (n,), a number for each column, as weights are. The result has the shape of
    the first, or without the last axis, where f gives a number of the row.

    Raises:
        TraceError: of ``run`` and ``vjp``, if f gives anything else, or cannot be traced.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> def normalised(x, weight):
        ...     return weight * x / np.sqrt(np.mean(x * x) + 1e-6)
        >>> layer = sg.rowwise(normalised, device="cpu")
        >>> layer.run([[3.0, 4.0], [0.0, 2.0]], [1.0, 10.0]).round(3).tolist()
        [[0.849, 11.314], [0.0, 14.142]]
        >>> y, (dx, dweight) = layer.vjp([[3.0, 4.0]], [1.0, 10.0], [[1.0, 0.0]])
        >>> dweight.round(3).tolist()
        [0.849, 0.0]
    """
    if not callable(f):
        raise InputTypeError(f"rowwise takes a function of rows, not {f!r}")
    called = name or getattr(f, "__name__", "rowwise").replace("<lambda>", "rowwise")
    options = Options(called, math=math, dtype=dtype_name(dtype), comments=False)
    work = ArrayWork(called, _arguments(f), partial(_over_rows, f), _require_rows, options)
    return TensorKernel(work, options, device)


def _arguments(f: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a function's arguments, all of which are arrays."""
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except ValueError:  # NumPy's functions
        return ("x",)
    if [p.kind for p in parameters] == [inspect.Parameter.VAR_POSITIONAL]:  # symgrad's
        return ("x",)
    positional = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = tuple(
        p.name for p in parameters if p.kind in positional and p.default is inspect.Parameter.empty
    )
    if not names:
        raise InputTypeError("rowwise takes a function with an argument for each array")
    return names


def _require_rows(names: Sequence[str], shapes: Sequence[Shape]) -> None:
    """Refuse what has no rows, or others than the first argument."""
    first, *others = map(tuple, shapes)
    if not first:
        raise InputError(f"{names[0]} is a number: it must have rows, (.., n)")
    for name, shape in zip(names[1:], others, strict=True):
        if shape not in (first, first[-1:]):
            raise InputError(
                f"{name} has shape {shape}: it must have that of {names[0]}, "
                f"{first}, or a number for each column, {first[-1:]}"
            )


def _over_rows(f: Callable[..., Any], *arrays: WholeArray) -> WholeArray:
    """The results of a function of rows, mapped over the axes before the last one."""
    if arrays[0].ndim > 1:
        axes = [0 if a.ndim > 1 else None for a in arrays]
        tape = open_tape()
        assert tape is not None, "it is traced on one"
        return mapped(partial(_over_rows, f), axes, 0, arrays, tape)
    row = f(*arrays)
    if not isinstance(row, WholeArray) or row.kind != "f" or row.shape not in ((), arrays[0].shape):
        raise TraceError(
            located(f"a function of rows gave {row!r}: it must give a row, or a sum over one")
        )
    return row
