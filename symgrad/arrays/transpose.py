"""The transposition law: a scatter is an array of sums over what hits each element.

``scatter { at e(i): x(i) }`` adds x(i) at the targets t with e(i) == t. Each index of e is an
equation; it is solved for counters, the others are summed over, and what no solution reaches is
excluded by conditions:

    scatter i, j, k { [i, k] += y[i, j] * B[k, j] }
    for i, k { reduce j; add { y[i, j] * B[k, j] } }

    scatter i, k { [i + k] += y[i] * w[k] }
    for t { reduce k; add { where(0 <= t - k < n, y[t - k] * w[k], 0) } }

    scatter i { [2*i] += y[i] }
    for t { where(t % 2 == 0, y[t // 2], 0) }

An index that is read at run time stays a scatter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Final

from symgrad.arrays.laws import Builder
from symgrad.arrays.program import Scatter
from symgrad.arrays.scalars import COUNTER, Affine, Array, integer_where, modulo, quotient

LONG: Final = 33
"""Terms from which a sum is computed before it is put where it belongs."""

NOWHERE: Final = 2**15
"""Terms that would be computed for places that get nothing from which a shorter sum is computed
first, too: they cost about as much as another kernel."""

Equation = tuple[int, int]
"""An index, and the counter of the target that it has to equal."""


def transposed(
    b: Builder, shape: Sequence[int], counters: Sequence[int], index: Sequence[int], body: int
) -> Array:
    """Zeros of this shape, to which the body is added at the index for all values of the counters.

    As sums, where all indices can be solved for counters; otherwise as a `Scatter`.
    """
    known = {c for i in index for c in b.walk([i])}
    if any(b.op(i) is not COUNTER and not b.op(i).constant for i in index):
        counters, body = _summed_first(b, prod(shape), counters, known, body)
    if not all(_is_affine(b, c) for c in known):
        condition, value = b.guarded(body)
        if b.truth_of(condition) is None:  # what is read under a condition may be out of range
            outside = b.number(-1)
            index = [b.apply(integer_where, condition, i, outside) for i in index]
        return Scatter(shape=tuple(shape), counters=tuple(counters), index=tuple(index), body=value)
    return _Solving(b, shape, counters, index, body).array()


def _summed_first(
    b: Builder, size: int, counters: Sequence[int], used: set[int], body: int
) -> tuple[Sequence[int], int]:
    """Counters of which indices are made, and the body summed over the others, if that is long.

    So a product of matrices stays one, though its elements are put where a slice was read. Of an
    array of such a ``size`` that has many other elements shorter sums are computed before, too.
    """
    loose = [c for c in counters if c not in used]
    names = {c: b.counter(b.extent(c)) for c in counters if c in used}
    terms, apart = prod(map(b.extent, loose)), size - prod(map(b.extent, names))
    if terms < LONG and apart * (terms - 1) < NOWHERE:
        return counters, body
    [total] = b.substituted([b.total(loose, body)], names)
    return list(names), b.element(b.array(list(names.values()), total), b.indices(list(names)))


def _is_affine(b: Builder, i: int) -> bool:
    """Whether it is a part of an index whose equation can be solved, or becomes a condition."""
    op = b.op(i)
    return op in (COUNTER, modulo, quotient) or isinstance(op, Affine) or op.constant


@dataclass
class _Solving:
    """Equations that are being solved: ``loose`` are the counters that are still summed over."""

    b: Builder
    shape: Sequence[int]
    loose: Sequence[int]
    index: Sequence[int]
    body: int
    conditions: list[int] = field(default_factory=list)

    def array(self) -> Array:
        """The sums of what hits each target."""
        b = self.b
        targets = [b.counter(n) for n in self.shape]
        self.loose = list(self.loose)
        self.equations: list[Equation] = [
            (e, t) for e, t in zip(self.index, targets, strict=True) if b.extent(t) > 1
        ]
        self._rename()
        still: list[Equation] = []
        while self.equations:
            if not self._join_digits() and not self._solve_one(still) and not self._split_digits():
                self.conditions += [b.same(e, t) for e, t in self.equations]
                self.equations = []
        moving = [t for t in targets if t not in [s for _, s in still]]
        body = b.where(b.all_of(self.conditions), self.body)
        inner = b.array(moving, b.total(self.loose, body))
        if not still:
            return inner
        # A target that no counter moves along is a condition around a smaller array, which is
        # summed once and not for each target.
        element = b.element(inner, b.indices(moving))
        return b.array(targets, b.where(b.all_of([b.same(e, t) for e, t in still]), element))

    def _rename(self) -> None:
        """Solve equations of loose counters that count as far as their targets, all at once."""
        b, names = self.b, dict[int, int]()
        for e, t in self.equations:
            if e in self.loose and e not in names and b.extent(e) == b.extent(t):
                names[e] = t
        if names:
            self.equations = [(e, t) for e, t in self.equations if names.get(e) != t]
            self._replace(names, [])

    def _replace(self, names: dict[int, int], conditions: Sequence[int]) -> None:
        b = self.b
        roots = [self.body, *(e for e, _ in self.equations), *self.conditions, *conditions]
        body, *rest = b.substituted(roots, names)
        count = len(self.equations)
        self.body = body
        self.equations = [(e, t) for e, (_, t) in zip(rest[:count], self.equations, strict=True)]
        self.conditions = rest[count:]
        self.loose = [c for c in self.loose if c not in names]

    def _join_digits(self) -> bool:
        """``x // m == u`` and ``x % m == t`` as ``x == m u + t``, where t is below m."""
        b = self.b
        for rest in self.equations:
            node = b.graph.nodes[rest[0]]
            if node[0] is not modulo:
                continue
            m = b.integer(node[2])
            assert m is not None
            high = b.divide(node[1], m)[0]
            for whole in self.equations:
                if whole[0] == high and whole is not rest:
                    self.equations = [e for e in self.equations if e not in (rest, whole)]
                    self.equations.append((node[1], b.plus((m, whole[1]), rest[1])))
                    self.conditions.append(b.below(rest[1], b.number(m)))
                    return True
        return False

    def _solve_one(self, still: list[Equation]) -> bool:
        """Solve the affine equation with the fewest loose counters, if there is any."""
        b, loose = self.b, set(self.loose)
        best: tuple[list[tuple[int, int]], Equation] | None = None
        for e, t in self.equations:
            moving = [(c, a) for c, a in b.terms(e)[1] if not b.free(a).isdisjoint(loose)]
            if all(a in loose for _, a in moving) and (best is None or len(moving) < len(best[0])):
                best = moving, (e, t)
        if best is None:
            return False
        moving, (e, t) = best
        self.equations.remove((e, t))
        if not moving:
            still.append((e, t))
            return True
        right = b.affine(0, [(1, t), (-1, e), *moving])
        solution = solved(b, moving, right)
        if solution is None:
            self.conditions.append(b.same(e, t))
        else:
            self._replace(*solution)
        return True

    def _split_digits(self) -> bool:
        """A loose counter k in ``k // m`` or ``k % m`` as two digits."""
        b = self.b
        for e, _ in self.equations:
            for _, a in b.terms(e)[1]:
                node = b.graph.nodes[a]
                if node[0] in (modulo, quotient) and node[1] in self.loose:
                    k, m = node[1], b.integer(node[2])
                    assert m is not None
                    high, low = b.counter(-(-b.extent(k) // m)), b.counter(m)
                    whole = b.plus(*[(m, i) for i in b.indices([high])], *b.indices([low]))
                    self.loose = [*self.loose, high, low]
                    self._replace({k: whole}, [b.below(whole, b.number(b.extent(k)))])
                    return True
        return False


def solved(
    b: Builder, terms: Sequence[tuple[int, int]], target: int
) -> tuple[dict[int, int], list[int]] | None:
    """Counters from ``sum of coefficient * counter == target``, and conditions; None if not.

    With coefficients that nest as the places of a number do, all counters are digits of the target;
    otherwise one counter of unit coefficient, the widest, is solved for and the others stay.
    """
    flipped = {k for c, k in terms if c < 0}
    shifted = b.plus(target, offset=sum(-c * (b.extent(k) - 1) for c, k in terms if c < 0))
    places = sorted(((abs(c), k) for c, k in terms), key=lambda p: (-p[0], -b.extent(p[1])))
    nested = all(
        sum(c * (b.extent(k) - 1) for c, k in places[n + 1 :]) < places[n][0]
        for n in range(len(places))
    )
    values: dict[int, int] = {}
    if nested:
        conditions = []
        for c, k in places:
            values[k], shifted = b.divide(shifted, c)
            conditions.append(b.inside(values[k], b.extent(k)))
        conditions.append(b.same(shifted, b.number(0)))
    else:
        units = [k for c, k in places if c == 1]
        if not units:
            return None
        best = max(units, key=b.extent)
        others = [
            (-c, b.plus((-1, k), offset=b.extent(k) - 1) if k in flipped else k)
            for c, k in places
            if k != best
        ]
        values[best] = b.plus(shifted, *others)
        conditions = [b.inside(values[best], b.extent(best))]
    restored = {
        k: b.plus((-1, e), offset=b.extent(k) - 1) if k in flipped else e for k, e in values.items()
    }
    return restored, conditions
