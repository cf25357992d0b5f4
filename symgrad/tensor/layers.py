"""The verbs: `linear` and `gemm_bias`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from symgrad.pipeline import Options, dtype_name, require_options
from symgrad.targets import DeviceChoice
from symgrad.tensor.activation import Activation, epilogue
from symgrad.tensor.kernel import TensorKernel, Work
from symgrad.tensor.products import Products
from symgrad.tensor.recorded import Pull
from symgrad.tensor.steps import Epilogues


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

    def recorded(self, *arrays: Any) -> tuple[Any, Pull]:
        """The result, and what gives the gradients: what the activation is of is kept for it."""
        result, kept = self.run(*arrays, keep=True)
        return result, lambda cotangent: self.vjp(*arrays, cotangent, kept=kept)[1]

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
        DeviceError: for float64 on a GPU.

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
        DeviceError: for float64 on a GPU.

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
    require_options(options)
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
