"""`causal_convolution`: convolutions along sequences, channel by channel, and their gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from symgrad.backend import Backend
from symgrad.errors import InputError
from symgrad.kernel.formula import Formula
from symgrad.kernel.language import Target
from symgrad.kernel.launch import Array, Dispatch, Launch
from symgrad.kernel.skeletons.convolution import (
    STEPS_PER_INVOCATION,
    Convolved,
    Correlated,
    TapSums,
)
from symgrad.pipeline import Options, dtype_name
from symgrad.targets import DeviceChoice
from symgrad.tensor.activation import Activation, of_one_number
from symgrad.tensor.dispatches import column_sums, each_of
from symgrad.tensor.formulas import Formulas
from symgrad.tensor.kernel import Runner, Shape, TensorKernel, launched


@dataclass(frozen=True)
class CausalConvolution:
    """The work of a causal convolution: see `symgrad.tensor.kernel.Work`."""

    name: str
    value: Formula
    reverse: Formula

    arguments = ("u", "weights", "bias")
    cotangents = ("cotangent",)

    def results(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The shape of u: see `Work`."""
        u, weights, bias = map(tuple, shapes)
        if len(u) != 3:
            raise InputError(f"u has shape {u}: (batch, length, channels) is needed")
        if len(weights) != 2 or weights[0] != u[2] or not weights[1]:
            raise InputError(f"weights has shape {weights}: with u {u} ({u[2]}, taps) is needed")
        if bias != u[2:]:
            raise InputError(f"bias has shape {bias}: with u {u} {u[2:]} is needed")
        return [u]

    def launch(self, kind: str, shapes: Sequence[Shape], device_target: Target) -> Launch:
        """The launch of a call: see `Work`."""
        u, weights, bias = map(tuple, shapes[:3])
        inputs = [Array(*both) for both in zip(self.arguments, (u, weights, bias), strict=True)]
        outputs, scratch = [Array("y", u)], list[Array]()
        bound = [*((n, n) for n in self.arguments), ("y", "y")]
        back = kind == "vjp"
        if back:
            inputs.append(Array("cotangent", u))
            outputs += [Array("du", u), Array("dweights", weights), Array("dbias", bias)]
            scratch.append(Array("slope", u))
            bound += [("dy", "cotangent"), ("slope", "slope")]
        program = Convolved(weights[1], self.value, self.reverse if back else None)
        words = ("length", u[1]), ("channels", u[2])
        steps = [each_of(program, device_target, bound, math.prod(u), words)]
        if back:
            more, partial = self._gradients(u, weights[1], device_target)
            steps, scratch = [*steps, *more], [*scratch, *partial]
        return Launch(
            f"{self.name}_{kind}", tuple(inputs), tuple(outputs), tuple(scratch), tuple(steps)
        )

    def _gradients(
        self, u: Shape, taps: int, device_target: Target
    ) -> tuple[list[Dispatch], list[Array]]:
        """Dispatches that give the gradients from the cotangents of sums, and their memory."""
        batch, length, channels = u
        words = ("length", length), ("channels", channels)
        arrays = [("slope", "slope"), ("weights", "weights"), ("du", "du")]
        steps = [each_of(Correlated(taps), device_target, arrays, math.prod(u), words)]
        parts = -(-length // STEPS_PER_INVOCATION)
        many = batch * parts
        arrays = [("u", "u"), ("slope", "slope"), ("dweights", "taps"), ("dbias", "biases")]
        words = (*words, ("parts", parts))
        steps.append(each_of(TapSums(taps), device_target, arrays, many * channels, words))
        scratch = [Array("taps", (many, channels * taps)), Array("biases", (many, channels))]
        for table, n, out in (("taps", channels * taps, "dweights"), ("biases", channels, "dbias")):
            sums, partial = column_sums(table, many, n, out, device_target)
            steps, scratch = [*steps, *sums], [*scratch, *partial]
        return steps, scratch

    def runner(
        self, kind: str, shapes: Sequence[Shape], backend: Backend, options: Options
    ) -> Runner:
        """A launch: see `Work`."""
        return launched(self, kind, shapes, backend, options)


def causal_convolution(
    activation: Activation | None = None,
    *,
    device: DeviceChoice = None,
    math: Any = "accurate",
    dtype: Any = "float32",
) -> TensorKernel:
    """The kernel of a convolution along sequences, of each channel by itself, with its gradients.

    ``run(u, weights, bias)`` takes u (batch, length, channels), weights (channels, taps) and bias
    (channels,) and gives, of the shape of u, ``f(bias + sum_j weights[j] u[t - taps + 1 + j])``:
    nothing is seen of later steps, and what would be before the first one is 0. ``vjp(u, weights,
    bias, dy)`` gives that and the gradients of the three. ``activation`` is as for `linear`.

    Raises:
        InputTypeError: if the activation is no function. TraceError: if it cannot be traced.
        InputError: of ``run`` and ``vjp``, for shapes that do not go together.
        DeviceError: for float64 on a GPU that has none.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> echo = sg.causal_convolution(device="cpu")
        >>> u = np.array([1.0, 0.0, 0.0, 2.0]).reshape(1, 4, 1)
        >>> echo.run(u, [[0.25, 0.5, 1.0]], [0.0]).ravel().tolist()
        [1.0, 0.5, 0.25, 2.0]
    """
    options = Options("causal_convolution", math=math, dtype=dtype_name(dtype), comments=False)
    formulas = Formulas(of_one_number(activation), ("sum",), options)
    work = CausalConvolution(options.name, formulas.value(), formulas.reverse(["sum"]))
    return TensorKernel(work, options, device)
