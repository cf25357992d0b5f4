"""Selective scans: who does what of a recurrence over steps, channel by channel.

A group has neighbouring channels of one sequence. Where its invocations share memory, several of
them divide the states of a channel, and the numbers of some steps, a tile, are brought to shared
memory together. Everything small stands in one buffer, ``given``: see `Given`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Final, Literal, get_args

from symgrad.kernel.language.index import Index
from symgrad.kernel.language.ir import KernelIR, Target
from symgrad.kernel.language.target import GROUP_BYTES
from symgrad.kernel.stage import Formula

TILE_STEPS: Final = 16
"""Steps of a tile, at most."""

FORWARD_TILE_STEPS: Final = 8
"""As `TILE_STEPS`, of a kernel without a backward pass."""

KEPT_STEPS: Final = 8
"""Steps whose states an invocation keeps in registers on the way back."""

STATES_PER_INVOCATION: Final = 4
"""States of a channel up to which one invocation does them all."""

Given = Literal["A", "D", "B", "C", "state", "end"]
GIVEN: Final[tuple[Given, ...]] = get_args(Given)
"""The arrays that stand in ``given`` one behind the other, ``end`` being the cotangent of the final
state."""


@dataclass(frozen=True)
class Recurrence:
    """The traced formulas of a scan with so many ``states`` of a channel.

    With s a state, d the step's size, a, b, c what a state has of A, B, C: ``size`` (raw) is d;
    ``advance`` (s, d, a, b, u) the next state; ``weigh`` (c, s) what it adds to y, and (D, u) what
    y has besides. Of cotangents: ``slope`` (raw, dd) is that of what d is made of; ``reverse`` (s,
    d, a, b, u, c, ds, dy) those of s, d, a, b, u before a step, ds being that of the state behind
    it; ``weighed`` (c, s, dy) those of c and s.
    """

    states: int
    size: Formula
    slope: Formula
    advance: Formula
    reverse: Formula
    weigh: Formula
    weighed: Formula
    stateful: bool = False
    again: bool = False
    """Whether the way back computes the parts of a step again, which are too many to be kept."""


@dataclass(frozen=True)
class Split:
    """How a group divides channels and their states, and how many steps are a tile.

    ``lanes`` invocations have ``each`` states of a channel.
    """

    states: int
    lanes: int
    each: int
    channels: int
    steps: int
    kept: int
    flushed: int
    """Steps whose sums over channels and over states are made together, on the way back."""

    @classmethod
    def of(cls, states: int, target: Target, most: int = TILE_STEPS) -> Split:
        """The split for a target, with tiles of so many steps at ``most``."""
        if target.in_step:
            return cls(states, 1, states, target.width, TILE_STEPS, TILE_STEPS, 1)
        lanes = 1
        while lanes * STATES_PER_INVOCATION < states and lanes < target.width:
            lanes *= 2
        each, channels = -(-states // lanes), target.width // lanes
        splits = [
            cls(states, lanes, each, channels, n, min(n, KEPT_STEPS), flushed)
            for n in (16, 8, 4, 2, 1)
            for flushed in (4, 2, 1)
            if flushed <= n <= most and n >= min(lanes, most)  # all bring numbers of a tile
        ]
        return next((s for s in splits if s.shared(target.width) <= GROUP_BYTES), splits[-1])

    def shared(self, width: int) -> int:
        """The bytes of shared memory that both ways take, at most: tiles, and rows of sums."""
        tile = _whole(self.steps * self.channels, width)
        factors = 2 * _whole(self.steps * self.states, width)
        lanes, both = stride_of(self.lanes), self.flushed * self.states * stride_of(self.channels)
        forward = 3 * tile + self.steps * self.channels * lanes
        backward = 4 * tile + 2 * self.flushed * self.channels * lanes
        return 4 * (max(forward, backward) + factors + both)


def stride_of(parts: int) -> int:
    """The numbers of a row of so many parts: one more, so that rows begin in different banks."""
    return parts + 1 if parts > 1 else 1


def _whole(count: int, width: int) -> int:
    return -(-count // width) * width


class Place:
    """Where an invocation is: its sequence, its channel, its states, and what it is ``given``."""

    def __init__(self, k: KernelIR, split: Split) -> None:
        self.k, self.split = k, split
        self.length, self.batch, self.wide = (
            self.argument(name) for name in ("length", "batch", "channels")
        )
        self.blocks = self.wide.ceil_div(split.channels)
        """The groups of a sequence."""
        self.group = Index(k, k.group)
        self.local = Index(k, k.local)
        self.real = self.group.below(self.batch * self.blocks)
        group = self.group.at_most(self.batch * self.blocks - 1)
        self.sequence = group // self.blocks
        self.block = group - self.sequence * self.blocks
        self.first = self.block * split.channels
        """The first channel of the group."""
        self.column = self.local // split.lanes
        self.lane = self.local - self.column * split.lanes
        wanted = self.first + self.column
        self.channel = wanted.at_most(self.wide - 1)
        self.inside = wanted.below(self.wide)
        self.given = k.buffer("given", "read")
        sizes = self._sizes()
        self.start: dict[Given, Index] = {"A": Index(k, k.word(0))}
        for name, following in itertools.pairwise(GIVEN):
            self.start[following] = self.start[name] + sizes[name]

    @property
    def sums(self) -> dict[str, Index]:
        """Where the way back has the sums of A, of D, and of states."""
        states = self.split.states
        a = self.batch * self.blocks * self.length * states
        d = a + self.batch * self.wide * states
        return {"A": a, "D": d, "state": d + self.batch * self.wide * self.split.lanes}

    def argument(self, name: str) -> Index:
        """A word that the host gives."""
        return Index(self.k, self.k.argument(name))

    def _sizes(self) -> dict[Given, Index]:
        states = self.split.states
        steps = self.batch * self.length * states
        return {
            "A": self.wide * states,
            "D": self.wide,
            "B": steps,
            "C": steps,
            "state": self.batch * self.wide * states,
        }

    def of(self, name: Given, index: Index, *, at_use: bool = False) -> int:
        """A number of an array, read ``at_use`` or wherever that is known to be possible."""
        return self.k.load(self.given, (self.start[name] + index).id, at_use=at_use)

    def at(self, t: Index, channel: Index) -> Index:
        """The index of a step and a channel of this sequence."""
        return (self.sequence * self.length + t) * self.wide + channel

    def own(self, n: Index) -> Index:
        """The index of a state of this sequence and channel."""
        return (self.sequence * self.wide + self.channel) * self.split.states + n

    def weight(self, n: Index) -> Index:
        """The index of a state of this channel."""
        return self.channel * self.split.states + n

    def checkpoint(self, tile: Index, n: Index) -> Index:
        """The index of a state before a tile."""
        rows = tile * self.batch + self.sequence
        return (rows * self.wide + self.channel) * self.split.states + n

    def partial(self, t: Index, n: Index) -> Index:
        """The index of a sum over the group's channels."""
        return (self.group * self.length + t) * self.split.states + n


class Written:
    """The buffers that the way forward writes."""

    def __init__(self, k: KernelIR, stateful: bool, back: bool) -> None:
        self.y = k.buffer("y", "write")
        self.last = k.buffer("last", "write") if stateful else None
        self.checkpoints = k.buffer("kept", "write") if back else None
        self.readings = k.buffer("readings", "write") if back else None
