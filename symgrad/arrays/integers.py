"""Index arithmetic: integers in normal form, what is known of their size, quotients, comparisons.

An integer is a sum of atoms with constant coefficients: counters, quotients, remainders, products
and elements of integer arrays. Its interval follows from those of the counters. Of a quotient by
n what n divides leaves, and so does what lies between 0 and n.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from symgrad.arrays.scalars import (
    COUNTER,
    Affine,
    Scalars,
    division,
    integer_mul,
    integer_where,
    is_negative,
    is_zero,
    modulo,
    quotient,
)
from symgrad.expr import ops
from symgrad.expr.graph.node import TRUTH
from symgrad.expr.laws.simplify import Rewriter, laws_for

Span = tuple[float, float]
"""The least and the largest value of an integer."""

ANY: Final[Span] = (-math.inf, math.inf)

MOST_TRIED: Final = 4096
"""Values of an integer that are tried, at most, to see whether a condition always holds."""

LOGICAL: Final = (ops.logical_and, ops.logical_or, ops.logical_not)
"""The operations of truth values."""


class Integers(Scalars):
    """Scalars with the laws of integers, and of truth values about them."""

    def __init__(self) -> None:
        super().__init__()
        self._rewriter = Rewriter(self.graph, laws_for(True), {})
        self._spans: dict[int, Span] = {}

    def span(self, i: int) -> Span:
        """The interval in which an integer lies."""
        span = self._spans.get(i)
        if span is None:
            span = self._spans[i] = self._spanned(i)
        return span

    def _spanned(self, i: int) -> Span:
        node = self.graph.nodes[i]
        op = node[0]
        if op is COUNTER:
            return 0, node[2] - 1
        if (value := self.integer(i)) is not None:
            return value, value
        if isinstance(op, Affine):
            ends = [
                sorted((c * low, c * high))
                for c, (low, high) in zip(op.coefficients, map(self.span, node[1:]), strict=True)
            ]
            return op.offset + sum(e[0] for e in ends), op.offset + sum(e[1] for e in ends)
        if op is modulo:
            return 0, self.graph.nodes[node[2]][1] - 1
        if op is quotient:
            n = self.graph.nodes[node[2]][1]
            low, high = self.span(node[1])
            return low // n, high // n
        if op is integer_where:
            (a, b), (c, d) = self.span(node[2]), self.span(node[3])
            return min(a, c), max(b, d)
        return ANY

    def divide(self, i: int, n: int) -> tuple[int, int]:
        """``i // n`` and ``i % n``."""
        constant, terms = self.terms(i)
        whole = self.affine(constant // n, [(c // n, a) for c, a in terms if c % n == 0])
        rest = self.affine(constant % n, [(c, a) for c, a in terms if c % n])
        low, high = self.span(rest)
        if low > -math.inf and high < math.inf and low // n == high // n:
            part = int(low // n)
            return self.plus(whole, offset=part), self.plus(rest, offset=-n * part)
        node = self.graph.nodes[rest]
        if node[0] is quotient:  # x // m // n is x // (m n)
            by = self.number(self.graph.nodes[node[2]][1] * n)
            high_part = self.graph.add(quotient, node[1], by)
        else:
            high_part = self.graph.add(quotient, rest, self.number(n))
        remainder = self.graph.add(modulo, rest, self.number(n))
        return self.plus(whole, high_part), remainder

    def divided(self, a: int, n: int) -> tuple[int, int]:
        """``a // n`` and ``a % n`` of any integers; both are 0 where n is, as NumPy's."""
        by = self.integer(n)
        if by is not None and by > 0:
            return self.divide(a, by)
        zero, one = self.number(0), self.number(1)
        nothing, flips = self.same(n, zero), self.below(n, zero)
        size = self.chosen(nothing, one, self.chosen(flips, self.plus((-1, n)), n))
        by = self.integer(size)
        down = self.divide(a, by)[0] if by else self.graph.add(division, a, size)
        rest = self.plus(a, (-1, self.integer_product(size, down)))
        up = self.plus(down, self.chosen(self.same(rest, zero), zero, one))
        down = self.chosen(nothing, zero, self.chosen(flips, self.plus((-1, up)), down))
        back = self.integer_product(n, down)
        return down, self.chosen(nothing, zero, self.plus(a, (-1, back)))

    def integer_product(self, a: int, b: int) -> int:
        """``a * b``: a multiple where one of them is a constant."""
        for one, other in ((a, b), (b, a)):
            if (scale := self.integer(one)) is not None:
                return self.affine(0, [(scale, other)])
        return self.graph.add(integer_mul, a, b)

    def chosen(self, condition: int, a: int, b: int) -> int:
        """``a`` where a condition holds, else ``b``."""
        truth = self.truth_of(condition)
        if truth is not None or a == b:
            return b if truth is False else a
        return self.graph.add(integer_where, condition, a, b)

    # --- truth values -----------------------------------------------------------------------------

    def truth_of(self, i: int) -> bool | None:
        """The value of a constant truth, None for any other node."""
        node = self.graph.nodes[i]
        return bool(node[1]) if node[0] is TRUTH else None

    def below(self, a: int, b: int, offset: int = 0) -> int:
        """``a < b + offset``."""
        difference = self.plus(a, (-1, b), offset=-offset)
        low, high = self.span(difference)
        if high < 0 or low >= 0:
            return self.truth(high < 0)
        return self.graph.add(is_negative, difference)

    def same(self, a: int, b: int) -> int:
        """``a == b``."""
        difference = self.plus(a, (-1, b))
        low, high = self.span(difference)
        if low == high or low > 0 or high < 0:
            return self.truth(low == high == 0)
        constant, terms = self.terms(difference)
        divisor = math.gcd(*(c for c, _ in terms))
        if constant % divisor:
            return self.truth(False)
        if divisor > 1 or terms[0][0] < 0:
            divisor = -divisor if terms[0][0] < 0 else divisor
            difference = self.affine(constant // divisor, [(c // divisor, a) for c, a in terms])
        return self.graph.add(is_zero, difference)

    def inside(self, i: int, n: int) -> int:
        """``0 <= i < n``."""
        return self.both(self.below(self.number(-1), i), self.below(i, self.number(n)))

    def both(self, a: int, b: int) -> int:
        """Whether both hold."""
        for one, other in ((a, b), (b, a)):
            truth = self.truth_of(one)
            if truth is not None:
                return other if truth else one
        return a if a == b else self.graph.add(ops.logical_and, a, b)

    def either(self, a: int, b: int) -> int:
        """Whether one of them holds; of conditions on one integer, whether one always does."""
        for one, other in ((a, b), (b, a)):
            truth = self.truth_of(one)
            if truth is not None:
                return one if truth else other
        if a == b:
            return a
        atom = self._atom(a, b)
        low, high = ANY if atom is None else self.span(atom)
        if high - low < MOST_TRIED:
            values = np.arange(low, high + 1)
            if np.all(np.logical_or(*self._truths((a, b), values))):
                return self.truth(True)
        return self.graph.add(ops.logical_or, a, b)

    def _atom(self, *conditions: int) -> int | None:
        """The one integer that conditions are on; None if they are on others, or anything else."""
        stack, seen, atoms = [*conditions], set(conditions), set[int]()
        while stack:
            i = stack.pop()
            op, args = self.op(i), self.args(i)
            if op in (is_negative, is_zero):
                atoms |= {atom for _, atom in self.terms(args[0])[1]}
            elif op not in LOGICAL:
                return None
            elif new := set(args) - seen:
                seen |= new
                stack += new
            if len(atoms) > 1:
                return None
        return atoms.pop() if atoms else None

    def _truths(self, conditions: Sequence[int], values: np.ndarray) -> list[np.ndarray]:
        """Whether conditions on one integer hold for some values of it."""
        truths: dict[int, np.ndarray] = {}
        for i in self.walk(conditions):
            op, args = self.op(i), self.args(i)
            if op in (is_negative, is_zero):
                constant, terms = self.terms(args[0])
                difference = constant + sum((c * values for c, _ in terms), np.zeros_like(values))
                truths[i] = difference < 0 if op is is_negative else difference == 0
            elif op in LOGICAL:
                truths[i] = op.reference(*(truths[a] for a in args))
        return [truths[c] for c in conditions]

    def all_of(self, conditions: Sequence[int]) -> int:
        """Whether all hold."""
        result = self.truth(True)
        for c in dict.fromkeys(conditions):
            result = self.both(result, c)
        return result

    def conditions(self, i: int) -> list[int]:
        """The conditions that one is the conjunction of."""
        stack, seen = [i], dict[int, None]()
        while stack:
            k = stack.pop()
            if k not in seen:
                seen[k] = None
                if self.op(k) is ops.logical_and:
                    stack += reversed(self.args(k))
        return [k for k in seen if self.op(k) is not ops.logical_and]
