"""Questions of sums over rows in lanes of a vector to the target: how much of them fits where."""

from __future__ import annotations

from dataclasses import dataclass


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
    piece: int = 0
    """Rows of a group, whole vectors of them; 0 if there is one group, which has all."""
