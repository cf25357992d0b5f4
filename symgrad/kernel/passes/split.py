"""Long loops in several kernels: some drivers end a loop after a while, and all watch the clock.

The outermost scope is cut into pieces, and a long loop there into kernels that each do some of its
iterations. What one makes and another needs stands in arrays of the invocation's own, which outlast
a kernel; so do then all that it has itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from symgrad.expr import ops
from symgrad.kernel.language.copy import Copy, needs
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.statements import (
    Buffer,
    Call,
    Fill,
    For,
    If,
    Read,
    Routine,
    Statement,
    results_of,
)
from symgrad.kernel.passes.lower import ALL, Bounds, Interval
from symgrad.kernel.passes.uses import Uses

MOST_ITERATIONS: Final = 60_000
"""Iterations of all loops of a kernel together: llvmpipe ends an invocation's after 65,535,
and says nothing."""

MOST_KERNELS: Final = 4_096
"""Kernels that one is cut into at most."""


@dataclass(frozen=True)
class Split:
    """Kernels with the same buffers, to be run one after the other; some of them are the same."""

    kernels: tuple[KernelIR, ...]
    iterations: int
    """Iterations of an invocation in all loops of one of them together, at most."""


def split(kernel: KernelIR, most: int = MOST_ITERATIONS) -> Split:
    """A kernel in as many as it takes for none to turn more often than ``most``.

    One whose iterations nobody knows stays whole, and one whose invocations share arrays, or which
    has routines; and so do loops within others, and within an `If`.
    """
    iterations, shares = Iterations(kernel), any(b.space == "group" for b in kernel.buffers)
    shares = shares or any(isinstance(item, Routine) for item in kernel.main.items)
    if shares or iterations.total <= most or iterations.total > most * MOST_KERNELS:
        return Split((kernel,), iterations.total)
    return _Splitting(kernel, iterations, most).split()


class Iterations:
    """Iterations of an invocation in loops, at most; some words may be ``known``."""

    def __init__(self, kernel: KernelIR, known: Mapping[int, Interval] | None = None) -> None:
        self._bounds = Bounds(kernel, known)
        self._own: dict[int, int] = {}
        self._each: dict[int, int] = {}
        self.total = self._sum(kernel.main.items)

    def of(self, item: int | Statement) -> int:
        """The iterations that an item takes, with all that is within."""
        match item:
            case For(k=k):
                return self._own[k] * self._each[k]
            case Call(routine=routine):
                return self._sum(routine.scope.items)
            case If(sides=sides):
                return max(self._sum(side.items) for side in sides)
            case Fill(buffer=buffer):
                return buffer.size
            case _:
                return 0

    def each(self, loop: For) -> int:
        """Statements that an iteration of a loop takes, the loop itself among them."""
        return self._each[loop.k]

    def _sum(self, items: Iterable[int | Statement]) -> int:
        return sum(self._counted(item) for item in items if not isinstance(item, int))

    def _counted(self, item: Statement) -> int:
        if isinstance(item, For) and item.k not in self._own:
            lo, hi = self._bounds.of(item.lo)[0], self._bounds.of(item.hi)[1]
            self._own[item.k] = min(max(0, hi - lo), ALL[1] if item.most is None else item.most)
            self._bounds.begin(item.k, item.lo, item.hi, item.most)
            self._each[item.k] = 1 + self._sum(item.scope.items)
        return self.of(item)


@dataclass
class _Piece:
    """Some items of the outermost scope, and the loop behind them that has kernels of its own."""

    items: list[int | Statement] = field(default_factory=list)
    iterations: int = 0
    loop: For | None = None


@dataclass
class _State:
    """The state of a loop in several kernels: where it goes on, and its carries."""

    k: Buffer
    carries: list[Buffer]
    count: Buffer | None
    """See `For`; None where nobody asks."""


class _Splitting:
    def __init__(self, kernel: KernelIR, iterations: Iterations, most: int) -> None:
        self.kernel, self.nodes = kernel, kernel.graph.nodes
        self.iterations, self.most = iterations, most
        self.buffers = list(kernel.buffers)
        self.counts = Uses(kernel).counts
        self.places: dict[int, Buffer] = {}
        """Where values stand that one kernel makes and another needs."""
        self.pieces = list(self._pieces())
        self.states = {p.loop.k: self._state(p.loop) for p in self.pieces if p.loop}
        for piece in self.pieces:
            self._place(self._needs(piece))
            if piece.loop:
                self._place(self._needs_of_iterations(piece.loop))

    def split(self) -> Split:
        """The kernels."""
        kernels: list[KernelIR] = []
        most = 0
        for piece in self.pieces:
            kernels.append(self._straight(piece))
            most = max(most, piece.iterations)
            if piece.loop is not None:
                each = self.iterations.each(piece.loop)
                step = max(1, self.most // each)
                times = -(-self.iterations.of(piece.loop) // (each * step))
                kernels += [self._some_iterations(piece.loop, step)] * times
                most = max(most, each * step)
        return Split(tuple(kernels), most)

    # what stands in which kernel -----------------------------------------------------------------

    def _pieces(self) -> Iterator[_Piece]:
        """The items, cut in front of what would be too much."""
        piece = _Piece()
        for item in self.kernel.main.items:
            iterations = self.iterations.of(item)
            if isinstance(item, For) and iterations > self.most:
                piece.loop = item
                yield piece
                piece = _Piece()
                continue
            if piece.iterations + iterations > self.most:
                yield piece
                piece = _Piece()
            piece.items.append(item)
            piece.iterations += iterations
        yield piece

    def _needs(self, piece: _Piece) -> set[int]:
        """The values that the kernel of a piece needs of others."""
        loop, mine = piece.loop, {r for item in piece.items for r in results_of(item)}
        start = {loop.lo, loop.hi, *loop.inits} if loop else set()
        return needs(self.kernel, piece.items) | (start - mine)

    def _needs_of_iterations(self, loop: For) -> set[int]:
        """The values that the kernels of a loop need of others, except its state."""
        return needs(self.kernel, [replace(loop, inits=[])])

    def _place(self, needed: set[int]) -> None:
        """Find places for what is needed, unless it is made again."""
        stack = list(needed)
        while stack:
            i = stack.pop()
            if self._is_made_again(i):
                stack += self.kernel.graph.args(i)
            elif i not in self.places and not self._is_known(i):
                name = self.kernel.names.get(i, "value")
                self.places[i] = self._buffer(name, self.kernel.type(i))

    def _is_known(self, i: int) -> bool:
        """Whether every kernel knows a value."""
        return self.nodes[i][0].constant or i in self.kernel.given

    def _is_made_again(self, i: int) -> bool:
        """Whether a value is what the host gives, or an index of that, and no place is worth it."""
        op, args = self.nodes[i][0], self.kernel.graph.args(i)
        if not args or not (isinstance(op, Read) or op.result == "u"):
            return False
        return all(self._is_known(a) or self._is_made_again(a) for a in args)

    def _buffer(self, name: str, kind: str) -> Buffer:
        """A new place for a value."""
        stem = name if name.isidentifier() and name.isascii() else "value"
        buffer = Buffer(f"{stem}_at_{len(self.buffers)}", "own", kind, 1)
        self.buffers.append(buffer)
        return buffer

    def _state(self, loop: For) -> _State:
        names, k = self.kernel.names, self.kernel
        carries = [self._buffer(names.get(p, "carry"), k.type(p)) for p in loop.params]
        self.places |= dict(zip(loop.results, carries, strict=True))
        name, count = names.get(loop.k, "k"), None
        if loop.count in self.counts:
            count = self.places[loop.count] = self._buffer(f"{name}_end", "u")
        return _State(self._buffer(name, "u"), carries, count)

    # the kernels ---------------------------------------------------------------------------------

    def _begin(self, needed: Iterable[int]) -> Copy:
        """A kernel that has loaded, or made again, what it needs."""
        kernel = KernelIR(self.kernel.target, self.kernel.name)
        kernel.buffers = self.buffers
        copy = Copy(self.kernel, kernel)
        for i in sorted(needed):
            self._bring(copy, i)
        return copy

    def _bring(self, copy: Copy, i: int) -> None:
        if i in copy.known or self._is_known(i):
            return
        if i in self.places:
            copy.know([i], [_loaded(copy.kernel, self.places[i])])
            return
        for a in self.kernel.graph.args(i):
            self._bring(copy, a)
        copy.item(i)

    def _straight(self, piece: _Piece) -> KernelIR:
        """The kernel of the items of a piece, which leaves what others need."""
        copy = self._begin(self._needs(piece))
        copy.items(piece.items)
        for i in (r for item in piece.items for r in results_of(item)):
            if i in self.places:
                _keep(copy.kernel, self.places[i], copy.value(i))
        if piece.loop:
            self._start(copy, piece.loop)
        return copy.kernel

    def _start(self, copy: Copy, loop: For) -> None:
        """Leave the state that a loop begins with."""
        k, state = copy.kernel, self.states[loop.k]
        _keep(k, state.k, copy.value(loop.hi if loop.down else loop.lo))
        for place, init in zip(state.carries, loop.inits, strict=True):
            _keep(k, place, copy.value(init))
        if state.count:
            _keep(k, state.count, copy.value(loop.lo))

    def _some_iterations(self, loop: For, step: int) -> KernelIR:
        """The kernel of the next iterations of a loop, of ``step`` if there are as many."""
        copy, state = self._begin(self._needs_of_iterations(loop)), self.states[loop.k]
        k, at = copy.kernel, _loaded(copy.kernel, state.k)
        inits = [_loaded(k, place) for place in state.carries]
        end = copy.value(loop.lo if loop.down else loop.hi)
        below, above = (end, at) if loop.down else (at, end)
        rest = k.add(ops.word_sub, above, below)
        rest = k.add(ops.word_where, k.add(ops.word_lt, below, above), rest, k.word(0))
        iterations = k.add(ops.word_min, rest, k.word(step))
        after = k.add(ops.word_sub if loop.down else ops.word_add, at, iterations)
        lo, hi = (after, at) if loop.down else (at, after)
        results, count = copy.loop(loop, (lo, hi), inits, step)
        for place, result in zip(state.carries, results, strict=True):
            _keep(k, place, result)
        if state.count:
            taken = k.add(ops.word_sub, count, lo)
            _keep(k, state.count, k.add(ops.word_add, _loaded(k, state.count), taken))
        if loop.test is not None:  # where that ended it, there is nothing left to do
            after = k.add(ops.word_where, k.add(ops.word_lt, count, hi), end, after)
        _keep(k, state.k, after)
        return k


def _loaded(k: KernelIR, place: Buffer) -> int:
    return k.load(place, k.word(0))


def _keep(k: KernelIR, place: Buffer, value: int) -> None:
    k.store(place, k.word(0), value)
