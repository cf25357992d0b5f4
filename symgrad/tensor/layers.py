"""The verbs: `linear` and `gemm_bias`."""

from __future__ import annotations

from typing import Any

from symgrad.pipeline import Options, dtype_name, require_options
from symgrad.targets import DeviceChoice
from symgrad.tensor.activation import Activation, epilogue
from symgrad.tensor.kernel import TensorKernel
from symgrad.tensor.products import Epilogues, Products


def gemm_bias(
    activation: Activation | None = None, *, bias: bool = True, device: DeviceChoice = None,
    math: Any = "accurate", dtype: Any = "float32",
) -> TensorKernel:  # fmt: skip
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
    activation: Activation | None = None, *, bias: bool = True, device: DeviceChoice = None,
    math: Any = "accurate", dtype: Any = "float32",
) -> TensorKernel:  # fmt: skip
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
    name: str, arguments: tuple[str, ...], transposed: bool, activation: Activation | None,
    bias: bool, device: DeviceChoice, math: Any, dtype: Any,
) -> TensorKernel:  # fmt: skip
    options = Options(name, math=math, dtype=dtype_name(dtype), comments=False)
    require_options(options)
    epilogues = Epilogues(
        epilogue(activation, options, bias), epilogue(activation, options, bias, gradient=True),
        epilogue(None, options, False), activation is None,
    )  # fmt: skip
    work = Products(name, arguments if bias else arguments[:2], transposed, epilogues)
    return TensorKernel(work, options, device)
