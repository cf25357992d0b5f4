"""What is asked of the transpose of a loop or choice, and what it is then."""

from __future__ import annotations

from dataclasses import dataclass

from symgrad.expr.graph.region import Choice, Loop


@dataclass(frozen=True)
class Asked:
    """What is asked of a transpose, by the numbers of results and captures.

    Results ``bars`` have cotangents, and ``restore`` are arrays to be given back as they were; the
    cotangents of ``inits`` and ``captures`` are wanted. ``iterations`` is how often it is run at
    most by the loops that keep for it, 0 if it keeps by itself; ``runs`` is how often it is run at
    most in all. ``zero``: the counter starts at 0.
    """

    bars: frozenset[int]
    inits: frozenset[int]
    captures: frozenset[int]
    restore: frozenset[int]
    iterations: int
    runs: int
    zero: bool = False


Source = tuple[str, int]
"""Where an argument or a result of a transpose belongs: the n-th of a kind of things."""


@dataclass(frozen=True)
class Transposed:
    """A region that keeps, its transpose, and what the transpose takes and gives.

    ``homes`` are the types and lengths of the arrays that are kept; ``extras`` are the types of the
    results of a choice that what is around it keeps.
    """

    forward: Loop | Choice | None
    reverse: Loop | Choice
    homes: tuple[tuple[str, int], ...]
    arguments: tuple[Source, ...]
    results: tuple[Source, ...]
    extras: tuple[str, ...] = ()
