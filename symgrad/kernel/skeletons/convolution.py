"""Causal convolutions of channels, each with taps of its own: forward, back, and the taps' sums.

Arrays are (batch, length, channels), and taps (channels, taps), of which the last is of the same
step as the result. What is before the first step counts as 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from symgrad.expr import ops
from symgrad.kernel.formula import Formula
from symgrad.kernel.index import Index
from symgrad.kernel.language import KernelIR, Target
from symgrad.kernel.statements import Buffer

STEPS_PER_INVOCATION: Final = 64
"""Steps of a sequence over which an invocation adds up what taps get."""


class _Place:
    """Where an invocation is: its number in an array, its step and its channel."""

    def __init__(self, k: KernelIR) -> None:
        self.k, self.point = k, Index(k, k.target.point(k))
        self.length, self.channels = (Index(k, k.argument(n)) for n in ("length", "channels"))
        self.row = self.point // self.channels
        self.channel = self.point - self.row * self.channels
        self.step = self.row % self.length

    def sum_of_taps(
        self, taps: int, weights: Buffer, x: Buffer, start: int, later: bool = False
    ) -> int:
        """``start``, and what is each tap times x, of steps before this one or ``later`` ones."""
        k, total = self.k, start
        for j in range(taps):
            away = taps - 1 - j
            weight = k.load(weights, (self.channel * taps + j).id)
            shifted = _shifted(k, x, self.point, self.step, away, self, later)
            total = k.add(ops.add, total, shifted(lambda value, w=weight: k.add(ops.mul, w, value)))
        return total


def _shifted(
    k: KernelIR, x: Buffer, place: Index, step: Index, away: int, at: _Place, later: bool = False
) -> Callable[[Callable[[int], int]], int]:
    """A function of a number some steps away from a place, or of 0 where there is none."""
    if not away:
        return lambda formula: formula(k.load(x, place.id))
    far = at.channels * away
    inside = (step + away).below(at.length)
    if not later:
        inside = k.add(ops.logical_not, step.below(away))
    other = (place + far if later else place - far).id
    value = k.load(x, k.add(ops.word_where, inside, other, place.id))
    return lambda formula: k.add(ops.where, inside, formula(value), k.constant(0.0))


@dataclass(frozen=True)
class Convolved:
    """The program of ``y``, which a formula makes of sums of ``taps`` of ``u`` and a ``bias``.

    With a ``reverse`` formula it reads ``dy`` as well, and writes the ``slope``: the cotangent of
    each sum.
    """

    taps: int
    value: Formula
    reverse: Formula | None = None

    def __call__(self, target: Target) -> KernelIR:
        """The program for a target."""
        k = KernelIR(target, "convolved")
        u, weights, bias = (k.buffer(name, "read") for name in ("u", "weights", "bias"))
        at = _Place(k)
        before = at.sum_of_taps(self.taps, weights, u, k.load(bias, at.channel.id))
        (result,) = self.value(k, before)
        results = [(k.buffer("y", "write"), result)]
        if self.reverse is not None:
            cotangent = k.load(k.buffer("dy", "read"), at.point.id)
            (slope,) = self.reverse(k, before, cotangent)
            results.append((k.buffer("slope", "write"), slope))
        _store(k, results)
        return k


@dataclass(frozen=True)
class Correlated:
    """The program of ``du``: what each number gave to sums, whose cotangents are ``slope``."""

    taps: int

    def __call__(self, target: Target) -> KernelIR:
        """The program for a target."""
        k = KernelIR(target, "correlated")
        slope, weights = (k.buffer(name, "read") for name in ("slope", "weights"))
        du = _Place(k).sum_of_taps(self.taps, weights, slope, k.constant(0.0), later=True)
        _store(k, [(k.buffer("du", "write"), du)])
        return k


@dataclass(frozen=True)
class TapSums:
    """The program of what taps and biases get from `STEPS_PER_INVOCATION` steps of a sequence each.

    An invocation has a channel of such a part: ``dweights`` are (parts, channels, taps), and
    ``dbias`` (parts, channels). The arguments say how many parts a sequence has.
    """

    taps: int

    def __call__(self, target: Target) -> KernelIR:
        """The program for a target."""
        k = KernelIR(target, "tap_sums")
        u, slope = (k.buffer(name, "read") for name in ("u", "slope"))
        at, parts = _Place(k), Index(k, k.argument("parts"))
        sequence, first = at.row // parts, at.row % parts * STEPS_PER_INVOCATION
        last = (first + STEPS_PER_INVOCATION).at_most(at.length)

        def add(iteration: int, sums: Sequence[int]) -> Sequence[int]:
            step = Index(k, iteration)
            place = (sequence * at.length + step) * at.channels + at.channel
            s = k.load(slope, place.id)
            shares = [
                _shifted(k, u, place, step, self.taps - 1 - j, at)(lambda x: k.add(ops.mul, s, x))
                for j in range(self.taps)
            ]
            return [k.add(ops.add, a, b) for a, b in zip(sums, [*shares, s], strict=True)]

        zeros = [k.constant(0.0)] * (self.taps + 1)
        (*sums, total), _ = k.loop(first.id, last.id, zeros, add)
        weights, bias = (k.buffer(name, "write") for name in ("dweights", "dbias"))
        cell = Index(k, k.cell)

        def put() -> None:
            for j, value in enumerate(sums):
                k.store(weights, (cell * self.taps + j).id, value)
            k.store(bias, cell.id, total)

        k.when(cell.below(Index(k, k.count)), put)
        return k


def _store(k: KernelIR, results: Sequence[tuple[Buffer, int]]) -> None:
    """Write the invocation's results, if it has any."""

    def put() -> None:
        for buffer, value in results:
            k.store(buffer, k.cell, value)

    k.when(Index(k, k.cell).below(Index(k, k.count)), put)
