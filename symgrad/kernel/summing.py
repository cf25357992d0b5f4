"""What sums over rows ask of the target: how much of them fits where, and whose rows are whose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from symgrad.kernel.language import KernelIR, Target


@dataclass(frozen=True)
class Summing:
    """Where the sums over rows are while they grow."""

    carried: int = 24
    """Results whose sums are carried from row to row, at most; of more they are in memory."""
    operations: int = 3_000
    """Operations at a row up to which they are."""
    cached: int = 4_096
    """Numbers of an invocation that stay in the cache."""
    registers: int = 32
    """Numbers of an invocation that registers hold."""
    brief: bool = False
    """Whether a short program is better than one that is a little faster."""
    together: int = 3_000
    """Operations at a row up to which results so few are not taken apart, wherever they are."""
    rows: int = 0
    """Rows that an invocation takes, at most; 0 if unknown."""


class SummingTarget(Target, Protocol):
    """The traits of a target that programs need which sum over rows."""

    @property
    def summing(self) -> Summing:
        """Where sums are."""
        ...

    @property
    def sums(self) -> str:
        """The kind of the sums of groups."""
        ...

    def stride(self, k: KernelIR) -> int:
        """From one of an invocation's rows to its next: the first has the invocation's number."""
        ...

    def iterations(self, k: KernelIR) -> int:
        """How many rows an invocation takes, of ``k.count``."""
        ...

    def kept(self, k: KernelIR, inside: int, new: int, old: int) -> int:
        """What a turn makes of a value, if it may be at no row: whether it is ``inside``."""
        ...

    def over_lanes(self, k: KernelIR, total: tuple[int, ...]) -> int:
        """The sum over a group of wide sums, as a float64."""
        ...
