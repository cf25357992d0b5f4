"""`linear` and `gemm_bias`: products of matrices with a bias and an activation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from symgrad.backend import Backend
from symgrad.errors import InputError
from symgrad.kernel.language.ir import Target
from symgrad.kernel.launch import Array, Dispatch, Launch
from symgrad.kernel.skeletons.epilogue import FinishProgram
from symgrad.pipeline import Options, dtype_name
from symgrad.targets import DeviceChoice
from symgrad.tensor.activation import Activation, epilogue
from symgrad.tensor.kernel import Runner, TensorKernel, Work, launched
from symgrad.tensor.shapes import (
    Problem,
    Shape,
    problem,
    require_columns,
)
from symgrad.tensor.steps import Epilogues, Layer, Steps


@dataclass(frozen=True)
class Products(Layer):
    """The work ``f(a b + bias)``, b being ``transposed`` in memory or not: see `Work`.

    If it ``keeps`` what f is of, "run" gives that behind the result, and "vjp" takes it behind the
    cotangent.
    """

    cotangents: tuple[str, ...] = ("cotangent",)
    keeps: bool = False

    def results(self, shapes: Sequence[Shape]) -> list[Shape]:
        """One result: see `Work`."""
        (a, b), names = self._matrices(shapes), self.arguments
        if a[-1] != b[-2]:
            raise InputError(
                f"{names[1]} has shape {shapes[1]}: it must have {a[-1]} "
                f"{'columns' if self.transposed else 'rows'}, for {names[0]} has shape {shapes[0]}"
            )
        if len(names) == 3:
            require_columns(names[2], tuple(shapes[2]), b[-1])
        try:
            batch = np.broadcast_shapes(tuple(a[:-2]), tuple(b[:-2]))
        except ValueError as error:
            raise InputError(
                f"{names[1]} has shape {shapes[1]}, {names[0]} {shapes[0]}: their batches do not "
                "broadcast"
            ) from error
        full_shape = (*batch, a[-2], b[-1])
        shape = (*full_shape[:-2], full_shape[-1]) if len(shapes[0]) == 1 else full_shape
        return [shape] * (1 + self.keeps)

    def _matrices(self, shapes: Sequence[Shape]) -> tuple[Shape, Shape]:
        """The shapes of the operands, as they are multiplied."""
        a, b = map(tuple, shapes[:2])
        least = 1 if self.transposed else 2
        if len(a) < least or len(b) < 2 or (self.transposed and len(b) > 2):
            name, shape = (self.arguments[0], a) if len(a) < least else (self.arguments[1], b)
            wanted = "(out, in)" if self.transposed else "(.., rows, columns)"
            raise InputError(f"{name} has shape {shape}: it must be a matrix, {wanted}")
        if self.transposed:
            return (a if len(a) > 1 else (1, *a)), (b[1], b[0])
        return a, b

    def problem(self, shapes: Sequence[Shape]) -> Problem:
        """The sizes of the product."""
        return problem(*self._matrices(shapes))

    def launch(self, kind: str, shapes: Sequence[Shape], device_target: Target) -> Launch:
        """The launch of a call on a GPU: see `Work`."""
        result = self.results(shapes[: len(self.arguments)])[0]
        what, p = self.pass_of(kind), self.problem(shapes)
        return Steps(self, what, shapes, p, result, device_target.itemsize).launch

    def pass_of(self, kind: str) -> str:
        """Which epilogue a kind of call has: see `Epilogues`."""
        return {"run": "keep", "vjp": "kept"}[kind] if self.keeps else kind

    def runner(
        self, kind: str, shapes: Sequence[Shape], backend: Backend, options: Options
    ) -> Runner:
        """NumPy's products on the host, for which it has a BLAS: see `Work`."""
        if backend.on_host:
            return OnHost(self, kind, shapes, backend, options)
        return launched(self, kind, shapes, backend, options)


class OnHost:
    """Calls on the host: products by NumPy, and what comes after them compiled."""

    def __init__(
        self, work: Products, kind: str, shapes: Sequence[Shape], backend: Backend, options: Options
    ) -> None:
        self.work, self.kind = work, work.pass_of(kind)
        self.shape = work.results(shapes[: len(work.arguments)])[0]
        self.finish = None
        if math.prod(self.shape):
            self.finish = backend.launch(self._launch(backend, options), options)

    def _launch(self, backend: Backend, options: Options) -> Launch:
        """The launch that makes results of sums."""
        epilogue = self.work.epilogues.of(self.kind)
        graph, shape = epilogue.computation.graph, self.shape
        names = ["parts", *graph.names[1:]]
        arrays = {n: (shape[-1:] if n == "bias" else shape) for n in names}
        outputs = [o.name for o in epilogue.computation.outputs]
        bound = tuple((n, n) for n in (*names, *outputs))
        numbers = ("n", shape[-1]), ("size", math.prod(shape))
        device_target = backend.device_target(options.dtype, options.math)
        step = Dispatch(FinishProgram(epilogue), device_target, bound, math.prod(shape), 0, numbers)
        inputs = tuple(Array(n, s) for n, s in arrays.items())
        return Launch(self.work.name, inputs, tuple(Array(n, shape) for n in outputs), (), (step,))

    def run(self, *arrays: np.ndarray) -> list[np.ndarray]:
        """The results: see `Runner`."""
        with np.errstate(all="ignore"):
            return self._computed(*arrays)

    def _computed(self, a: np.ndarray, b: np.ndarray, *rest: np.ndarray) -> list[np.ndarray]:
        many = len(self.work.arguments) - 2
        biases, others = rest[:many], rest[many:]
        if self.kind == "kept":
            operands = [others[1], others[0]]
        else:
            operands = [np.matmul(a, b.mT if self.work.transposed else b), *biases, *others]
        results = self._finished(operands)
        if self.kind in ("run", "keep"):
            return results
        result, slope = results if len(results) > 1 else (*results, others[0])
        return [result, *self._gradients(a, b, slope), *[_over_rows(slope) for _ in biases]]

    def _finished(self, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results of the epilogue."""
        if self.finish is not None:
            return self.finish.run(*operands)
        return [np.empty(self.shape, operands[0].dtype) for _ in range(1 + (self.kind != "run"))]

    def _gradients(
        self, a: np.ndarray, b: np.ndarray, slope: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The gradients of the operands."""
        of_a = np.matmul(slope, b if self.work.transposed else b.mT)
        if b.ndim > 2:
            return _summed(of_a, a.shape), _summed(np.matmul(a.mT, slope), b.shape)
        rows, slopes = _rows(a), _rows(slope)
        of_b = slopes.T @ rows if self.work.transposed else rows.T @ slopes
        return of_a, of_b


def _over_rows(x: np.ndarray) -> np.ndarray:
    """The sums of columns."""
    rows = _rows(x)
    return np.ones(len(rows), x.dtype) @ rows


def _rows(x: np.ndarray) -> np.ndarray:
    """All rows, as those of a matrix."""
    return x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _summed(x: np.ndarray, shape: Shape) -> np.ndarray:
    """The sum over what was broadcast."""
    more = x.ndim - len(shape)
    axes = tuple(k for k, n in enumerate(x.shape) if k < more or (shape[k - more] == 1 and n != 1))
    return x.sum(axes).reshape(shape) if axes else x


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
        assert isinstance(work, Products), "a layer is a product"
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
    summed = "" if not bias else "gradient" if activation is None else "slope"
    epilogues = Epilogues(
        run=epilogue(activation, options, bias),
        keep=epilogue(activation, options, bias, kept=True),
        vjp=epilogue(activation, options, bias, gradient=True, summed=summed),
        kept=epilogue(activation, options, bias=False, gradient=True),
        none=epilogue(None, options, bias=False),
        identity=activation is None,
    )
    work = Products(name, arguments if bias else arguments[:2], transposed, epilogues)
    return LayerKernel(work, options, device)
