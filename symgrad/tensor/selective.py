"""`selective_scan`: the selective scan of state-space models."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Literal, get_args

from symgrad.errors import InputError
from symgrad.expr import ops
from symgrad.kernel.language.ir import Target
from symgrad.kernel.launch import Array, Dispatch, Launch
from symgrad.kernel.skeletons.selective import Recurrence, Split
from symgrad.kernel.skeletons.selective_passes import Backward, Forward
from symgrad.pipeline import Options, dtype_name
from symgrad.targets import DeviceChoice
from symgrad.tensor.dispatches import Joined, each_of, sums_of
from symgrad.tensor.formulas import Formulas
from symgrad.tensor.kernel import Shape, TensorKernel, Work

Discretization = Literal["zoh", "euler"]

SERIES_BELOW: Final = 0.5
"""Where |x| is less, (exp(x) - 1)/x is a polynomial times exp(x/2)."""

TERMS: Final = {"float32": 4, "float64": 7, "float32x2": 7}
"""The terms of it, by dtypes: what is left out of its derivative is below its rounding."""


def growth(x: Any, half: Any, terms: int) -> Any:
    """(exp(x) - 1)/x, by exp(x/2); near 0 that times the series of sinh(x/2)/(x/2).

    The difference would lose digits there. The derivative loses digits nowhere either, and is
    short, as the series is one of squares.
    """
    s = 0.25 * (x * x)
    near = 1.0 / math.factorial(2 * terms - 1)
    for n in range(2 * terms - 3, 0, -2):
        near = near * s + 1.0 / math.factorial(n)
    small = abs(x) < SERIES_BELOW
    inverse = 1.0 / ops.where(small, 1.0, x)
    return ops.where(small, half * near, (half * half - 1.0) * inverse)


def zero_order_hold(terms: int, state: Any, d: Any, a: Any, b: Any, u: Any) -> Any:
    """The state after a step of size d, in which the input does not change."""
    x = d * a
    half = ops.exp(0.5 * x)
    return half * half * state + growth(x, half, terms) * d * (b * u)


def euler(state: Any, d: Any, a: Any, b: Any, u: Any) -> Any:
    """The state after a step of size d whose input counts with its size, as in Mamba."""
    return ops.exp(d * a) * state + d * (b * u)


def recurrence(
    states: int, softplus: bool, discretization: Discretization, stateful: bool, options: Options
) -> Recurrence:
    """The formulas of a scan: the step, and what it adds to outputs; all others are derived."""
    step = euler if discretization == "euler" else partial(zero_order_hold, TERMS[options.dtype])
    formulas = partial(Formulas, options=replace(options, name="step"))

    def both(state: Any, d: Any, a: Any, b: Any, u: Any, c: Any) -> Any:
        after = step(state, d, a, b, u)
        return after, c * after

    size = formulas(ops.softplus if softplus else lambda raw: raw, ("raw",))
    advance = formulas(step, ("state", "d", "a", "b", "u"))
    whole = formulas(both, (*advance.names, "c"))
    product = formulas(lambda w, x: w * x, ("w", "x"))
    reverse = whole.reverse(advance.names, 2)
    step_formulas = size.value(), size.reverse(["raw"]), advance.value(), reverse
    products = product.value(), product.reverse(["w", "x"])
    return Recurrence(states, *step_formulas, *products, stateful, again=discretization == "zoh")


SCAN_INVOCATIONS: Final = 64
"""Invocations of a group that share memory."""

ARGUMENTS: Final = ("u", "delta", "A", "B", "C", "D")


@dataclass(frozen=True)
class SelectiveScan(Work):
    """The work of a selective scan: see `selective_scan`."""

    softplus: bool
    discretization: Discretization
    stateful: bool
    options: Options

    @property
    def name(self) -> str:
        """The name of the kernel."""
        return self.options.name

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the arrays that it takes."""
        return (*ARGUMENTS, *["state"] * self.stateful)

    @property
    def cotangents(self) -> tuple[str, ...]:
        """The names of the cotangents of y, and of the last states."""
        return ("cotangent", *["cotangent_last"] * self.stateful)

    def results(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The shapes of the results: see `symgrad.tensor.kernel.Work`."""
        batch, length, channels, states = _sizes(shapes)
        row, each = (batch, length, states), (batch, channels, states)
        wanted = [(batch, length, channels)] * 2
        wanted += [(channels, states), row, row, (channels,), each]
        for name, shape, needed in zip(self.arguments, shapes, wanted, strict=False):
            if tuple(shape) != needed:
                raise InputError(
                    f"{name} has shape {tuple(shape)}: with u {tuple(shapes[0])} (batch, length, "
                    f"channels) and A {tuple(shapes[2])} (channels, states) it is {needed}"
                )
        return [tuple(shapes[0]), *[each] * self.stateful]

    def launch(self, kind: str, shapes: Sequence[Shape], device_target: Target) -> Launch:
        """The launch of a call: see `symgrad.tensor.kernel.Work`."""
        return _Call(self, shapes, device_target).launch(kind)


def _sizes(shapes: Sequence[Shape]) -> tuple[int, int, int, int]:
    """Of a batch: sequences, steps, channels and states."""
    u, a = shapes[0], shapes[2]
    if len(u) != 3:
        raise InputError(f"u has shape {tuple(u)}: (batch, length, channels) is needed")
    if len(a) != 2 or not a[1]:
        raise InputError(f"A has shape {tuple(a)}: (channels, states) is needed")
    return u[0], u[1], u[2], a[1]


class _Call:
    """The launches of calls with arrays of certain shapes."""

    def __init__(self, work: SelectiveScan, shapes: Sequence[Shape], device_target: Target) -> None:
        self.work = work
        self.batch, self.length, self.channels, self.states = _sizes(shapes)
        self.inputs = [Array(*both) for both in zip(work.arguments, shapes, strict=False)]
        self.device_target, self.target = device_target, device_target.of_width(SCAN_INVOCATIONS)
        self.split = Split.of(self.states, self.target)
        self.blocks = -(-self.channels // self.split.channels)
        self.each = self.batch, self.channels, self.states
        self.rows = self.batch, self.length, self.states
        self.recurrence = recurrence(
            self.states, work.softplus, work.discretization, work.stateful, work.options
        )

    def launch(self, kind: str) -> Launch:
        """The launch of a call."""
        back = kind == "vjp"
        outputs = [Array("y", self.inputs[0].shape)]
        outputs += [Array("last", self.each)] * self.work.stateful
        inputs, dispatches = [*self.inputs], [self._joined(back)]
        scratch = [Array("given", (self._starts(back)[-1],))]
        if back:
            inputs += [
                Array(n, a.shape) for n, a in zip(self.work.cotangents, outputs, strict=True)
            ]
            outputs += [Array(f"d{a.name}", a.shape) for a in self.inputs]
            scratch += self._partial
        dispatches += [self._forward(back), *(self._backward() if back else [])]
        arrays = tuple(inputs), tuple(outputs), tuple(scratch)
        return Launch(self.work.name, *arrays, tuple(dispatches))

    # programs ------------------------------------------------------------------------------------

    def _joined(self, back: bool) -> Dispatch:
        """The dispatch that brings everything small to one buffer."""
        names = self._small(back)
        arrays = [*((name, name) for name in names), ("joined", "given")]
        *starts, end = self._starts(back)
        words = [(f"{name}_start", start) for name, start in zip(names, starts, strict=True)]
        return each_of(Joined(names), self.device_target, arrays, end, words)

    def _small(self, back: bool) -> tuple[str, ...]:
        stateful = self.work.stateful
        end = ["cotangent_last"] * (stateful and back)
        return ("A", "D", "B", "C", *["state"] * stateful, *end)

    def _starts(self, back: bool) -> list[int]:
        """Where each of them begins, and the end of the last."""
        sizes = {a.name: a.size for a in self.inputs}
        sizes["cotangent_last"] = math.prod(self.each)
        return [0, *itertools.accumulate(sizes[name] for name in self._small(back))]

    def _scan(self, program: Forward | Backward, arrays: Sequence[tuple[str, str]]) -> Dispatch:
        """The dispatch of a program with a group for some channels of a sequence."""
        groups = self.batch * self.blocks
        target = self.target.in_grid(groups)
        words = ("batch", self.batch), ("channels", self.channels), ("length", self.length)
        return Dispatch(program, target, tuple(arrays), groups * target.width, groups, words)

    def _forward(self, back: bool) -> Dispatch:
        names = ["u", "delta", "given", "y", *["last"] * self.work.stateful]
        arrays = [(name, name) for name in names]
        if back:
            arrays += [("dy", "cotangent"), ("kept", "kept"), ("readings", "readings")]
        return self._scan(Forward(self.recurrence, back), arrays)

    @property
    def _partial(self) -> list[Array]:
        """Arrays between the forward pass and gradients."""
        tiles = -(-self.length // self.split.steps)
        many = self.blocks * math.prod(self.rows)
        return [
            Array("kept", (tiles, *self.each)),
            Array("readings", (many,)),
            Array("sums", (sum(size for _, size in self._sums),)),
        ]

    @property
    def _sums(self) -> list[tuple[str, int]]:
        """The parts of ``sums``, and how many numbers each is."""
        each = math.prod(self.each)
        sums = [("dB", self.blocks * math.prod(self.rows)), ("dA", each)]
        sums += [("dD", self.batch * self.split.lanes * self.channels)]
        return [*sums, *[("dstate", each)] * self.work.stateful]

    def _backward(self) -> list[Dispatch]:
        """The way back, and the sums of what groups and sequences add to gradients."""
        names = ["u", "delta", "given", "kept", "du", "ddelta", "sums"]
        arrays = [*((name, name) for name in names), ("dy", "cotangent")]
        dispatches = [self._scan(Backward(self.recurrence), arrays)]
        dispatches.append(self._summed("dC", "readings", 0, self.blocks))
        parts = {"dB": self.blocks, "dA": self.batch, "dD": self.batch * self.split.lanes}
        start = 0
        for name, size in self._sums:
            dispatches.append(self._summed(name, "sums", start, parts.get(name, 1)))
            start += size
        return dispatches

    def _summed(self, name: str, source: str, start: int, parts: int) -> Dispatch:
        """A gradient, from its parts: sums for each sequence are apart."""
        sizes = {f"d{a.name}": a.size for a in self.inputs}
        outer = max(self.batch, 1) if parts and name in ("dB", "dC") else 1
        n, each = sizes[name] // outer, max(parts, 1)
        return sums_of(source, outer * parts, n, each, name, self.device_target, start)


def selective_scan(
    delta_softplus: bool = False,
    discretization: Literal["zoh", "euler"] = "zoh",
    *,
    state: bool = False,
    device: DeviceChoice = None,
    math: Any = "accurate",
    dtype: Any = "float32",
) -> TensorKernel:
    """The kernel of a selective state-space model's scan (S6), with all its gradients.

    Every channel has N states h, which are 0 at first. At each step they decay, and the input is
    added to them: ``h = exp(d A) h + w B u``, where d is the step's size ``delta``, or its softplus
    if ``delta_softplus`` says so. With "zoh" ``w`` is d (exp(d A) - 1)/(d A), for inputs that do
    not change within a step; with "euler" it is d, as in Mamba (Gu and Dao, 2023, "Mamba:
    linear-time sequence modeling with selective state spaces"). The output is ``y = C h + D u``.

    ``run(u, delta, A, B, C, D)`` takes u and delta (batch, length, channels), A (channels, N), B
    and C (batch, length, N) and D (channels,), and gives y, of the shape of u. ``vjp(u, delta, A,
    B, C, D, dy)`` gives y and the gradients of the six. With ``state``, the states before the first
    step, (batch, channels, N), come behind D, and those behind the last one come with y, as
    ``(y, last)``: a long sequence is done in pieces. ``vjp`` then takes the cotangents of both.

    Results have the same bits every time: sums over channels are made in a fixed order. ``vjp``
    keeps the states of every 16th step and goes through the steps between twice.

    Raises:
        InputError: for another discretization; of ``run`` and ``vjp``, for shapes that do not go
            together.
        DeviceError: for float64 on a GPU that has none.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> scan = sg.selective_scan(discretization="euler", device="cpu")
        >>> u, one = np.array([[[1.0], [0.0], [0.0]]]), np.ones((1, 3, 1))
        >>> decay = np.full((1, 1), np.log(0.5))
        >>> scan.run(u, one, decay, one, one, np.zeros(1)).ravel().tolist()
        [1.0, 0.5, 0.25]
    """
    if discretization not in get_args(Discretization):
        raise InputError(f'discretization={discretization!r}: use "zoh" or "euler"')
    options = Options("selective_scan", math=math, dtype=dtype_name(dtype), comments=False)
    work = SelectiveScan(bool(delta_softplus), discretization, bool(state), options)
    return TensorKernel(work, options, device)
