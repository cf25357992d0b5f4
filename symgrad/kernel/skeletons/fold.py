"""Partial sums that many groups have left, added up: a group a result, the rounding errors kept."""

from __future__ import annotations

from collections.abc import Sequence

from symgrad.expr import ops
from symgrad.kernel.index import Index
from symgrad.kernel.language import KernelIR, Target
from symgrad.kernel.statements import Buffer
from symgrad.kernel.target import pair_add


def fold_program(target: Target) -> KernelIR:
    """The kernel that adds up ``count`` partial sums for each group, whose width is a power of 2.

    ``partials`` begins with ``head`` other numbers, an argument; behind them are the partial sums
    of all results, one result after the other. ``sums`` takes the sum of each result and what that
    lacks, and then the other numbers. Each invocation adds up some partial sums by Knuth's TwoSum,
    the errors apart (Sum2 of Ogita, Rump and Oishi, 2005, "Accurate sum and dot product"), and a
    reduction tree adds up the invocations'.
    """
    k, width = KernelIR(target, "fold"), target.width
    assert width & (width - 1) == 0, "the tree halves the group"
    partials, sums = k.buffer("partials", "read"), k.buffer("sums", "write")
    pairs = k.buffer("pairs", "group", size=2 * width, vector=2)
    head, count, local = (Index(k, i) for i in (k.argument("head"), k.count, k.local))
    group, groups = Index(k, k.group), Index(k, k.groups)
    start = head + group * count
    iterations = (count + (width - 1) - local) // width

    def add(t: int, total: list[int]) -> Sequence[int]:
        at = start + (Index(k, t) * width + local)
        k.names |= dict(zip(total, ("sum", "lost"), strict=True))
        return pair_add(k, tuple(total), k.load(partials, at.id))

    total, _ = k.loop(k.word(0), iterations.id, [k.constant(0.0)] * 2, add)
    _store(pairs, local, total)

    def halve(t: int, _: list[int]) -> tuple[()]:
        half = Index(k, k.add(ops.word_shift_right, k.word(width // 2), t))

        def join() -> None:
            (high, low), (x, lost) = _load(pairs, local), _load(pairs, local + half)
            _store(pairs, local, pair_add(k, (high, k.add(ops.add, low, lost)), x))

        k.names[half.id] = "half"
        k.barrier()
        k.when(local.below(half), join)
        return ()

    k.loop(k.word(0), k.word(width.bit_length() - 1), (), halve)
    k.names |= {start.id: "start", iterations.id: "iterations"}
    zero = Index(k, k.word(0))
    k.when(local.below(1), lambda: _store(sums, group, _load(pairs, zero)))
    cell, cells = Index(k, k.cell), groups * width

    def copy(t: int, _: list[int]) -> tuple[()]:
        at = Index(k, t) * cells + cell
        k.store(sums, (groups * 2 + at).id, k.load(partials, at.id))
        return ()

    k.loop(k.word(0), ((head + cells - 1 - cell) // cells).id, (), copy)
    return k


def _load(pairs: Buffer, number: Index) -> Sequence[int]:
    return [number.k.load(pairs, i) for i in number.lanes(2)]


def _store(pairs: Buffer, number: Index, pair: Sequence[int]) -> None:
    for i, value in zip(number.lanes(2), pair, strict=True):
        number.k.store(pairs, i, value)
