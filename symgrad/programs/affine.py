"""Indices of which it is seen, however many invocations there are, that each has its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from symgrad.expr import ops
from symgrad.expr.graph.node import WORD
from symgrad.kernel.statements import Buffer, For, Load, Store, within
from symgrad.programs.code import Dispatch


@dataclass(frozen=True)
class Form:
    """The word ``scale * cell + rest``, with a rest from ``low`` to ``high``."""

    scale: int
    low: int
    high: int


class Forms:
    """The forms of the words of a dispatch, as far as they have one."""

    def __init__(self, dispatch: Dispatch) -> None:
        self.nodes = dispatch.graph.nodes
        self.known: dict[int, Form | None] = {dispatch.cell: Form(1, 0, 0)}
        self.known[dispatch.local] = Form(0, 0, dispatch.width - 1)
        for s in dispatch.statements:
            if isinstance(s, For):
                self.known[s.k] = self._counted(s)

    def _counted(self, s: For) -> Form | None:
        """The form of a loop's counter, whose bounds are numbers."""
        (first, *lo), (last, *hi) = self.nodes[s.lo], self.nodes[s.hi]
        if first is not WORD or last is not WORD or lo >= hi:
            return None
        return Form(0, lo[0], hi[0] - 1)

    def of(self, i: int) -> Form | None:
        """The form of a word."""
        if i not in self.known:
            self.known[i] = self._form_of(i)
        return self.known[i]

    def _form_of(self, i: int) -> Form | None:
        op, *args = self.nodes[i]
        if op is WORD:
            return Form(0, args[0], args[0])
        if op is ops.word_sub and (n := self._modulus(args)) is not None:
            return Form(0, 0, n - 1)
        if op not in (ops.word_add, ops.word_mul):
            return None
        a, b = map(self.of, args)
        if a is None or b is None:
            return None
        if op is ops.word_add:
            return Form(a.scale + b.scale, a.low + b.low, a.high + b.high)
        if b.scale or b.low != b.high:
            a, b = b, a
        if b.scale or b.low != b.high:
            return None
        return Form(a.scale * b.low, a.low * b.low, a.high * b.low)

    def _modulus(self, args: Sequence[int]) -> int | None:
        """The n of ``x - x // n * n``."""
        x, product = args
        op, *factors = self.nodes[product]
        for a, b in (factors, factors[::-1]) if op is ops.word_mul else ():
            quotient, *parts = self.nodes[a]
            number, value, *_ = self.nodes[b]
            if quotient is ops.word_div and parts == [x, b] and number is WORD:
                return value
        return None


def accesses(dispatch: Dispatch, a: Buffer) -> list[Load | Store]:
    """The statements that read or write an array."""
    return [s for s in dispatch.statements if isinstance(s, Load | Store) and s.buffer is a]


def is_owned(forms: Forms, dispatch: Dispatch, a: Buffer) -> bool:
    """Whether each element is one invocation's: of a row that is as long as all its rests."""
    index_forms = [forms.of(s.index) for s in accesses(dispatch, a)]
    scale = max((f.scale for f in index_forms if f), default=0)
    fits = scale * dispatch.invocations <= 2**32
    return fits and all(f is not None and f.scale == scale and f.high < scale for f in index_forms)


def is_stored_once(dispatch: Dispatch, a: Buffer) -> bool:
    """Whether there is one store, which each invocation comes to once, to elements of its own."""
    stores = [s for s in accesses(dispatch, a) if isinstance(s, Store)]
    loops = [s for s in dispatch.statements if isinstance(s, For)]
    inside = any(s in stores for loop in loops for s in within(loop.scope))
    return len(stores) == 1 and not inside


def is_whole(dispatch: Dispatch, a: Buffer) -> bool:
    """Whether each invocation stores the element of its number, and there are no others."""
    stores = (s for s in dispatch.main.items if isinstance(s, Store) and s.buffer is a)
    return dispatch.invocations >= a.size and any(s.index == dispatch.cell for s in stores)
