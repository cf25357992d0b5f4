"""Laws of reads, reductions and scatters, applied as scalars are built.

A read of an array whose elements are one number is the number. Of a reduction that adds, what does
not depend on a counter leaves as a factor, a condition on a counter alone narrows its range, and
a condition ``k == e`` makes the sum a read at e. `transposed` turns scatters into reads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, Final

from symgrad.arrays.integers import Integers
from symgrad.arrays.program import Call, Constant, Result, Scan, Scatter, Tabulate
from symgrad.arrays.scalars import (
    MOST_FACTORS,
    Affine,
    Array,
    Read,
    Reduce,
    integer_mul,
    integer_where,
    is_negative,
    is_zero,
    modulo,
    quotient,
)
from symgrad.expr import ops
from symgrad.expr.graph.node import CONST, Op
from symgrad.expr.graph.region import Pick

PRODUCTS: Final = (ops.mul, ops.div, ops.reciprocal)
"""The operations whose arguments are factors."""

MOST_COMPARED: Final = 256
"""The nodes of an array's body up to which it is known again under other counters."""

Reader = Callable[[Array, Sequence[int]], int]
"""``reader(array, index)``: the scalar that stands for an element."""


class Builder(Integers):
    """Builds scalars and arrays of a program, simplified."""

    def __init__(self) -> None:
        super().__init__()
        self._bound: list[frozenset[int]] = []
        self._widths: list[int] = []
        self.calls: dict[Any, tuple[Call, dict[int, Result]]] = {}
        """Calls and their results, by algorithms, operands and options."""
        self.keeping: dict[Call, Call] = {}
        """Loops of which others give the same results, and more of them, for derivatives."""
        self.apart: set[Array] = set()
        """Arrays that stay what they are, though they are others element by element."""
        self.computed_once: set[Array] = set()
        """Arrays whose elements are compared: computed again they might be rounded otherwise."""
        self._arrays: dict[Any, Tabulate] = {}
        """Arrays by their shapes and bodies."""

    # --- scalars ----------------------------------------------------------------------------------

    def apply(self, op: Op, *args: int) -> int:
        """``op(*args)``, simplified; integers in their normal form."""
        if op.result == "i" or op in (is_negative, is_zero):
            return self._of_integers(op, args)
        if op is ops.logical_and:
            return self.both(*args)
        if op is ops.logical_or:
            return self.either(*args)
        if op is ops.logical_not:
            return self.opposite(args[0])
        if op is ops.where:
            zero, (condition, yes, no) = self.graph.constant(0.0), args
            if yes == no or (no == zero and self._is_zero(yes, self.opposite(condition))):
                return yes
            if yes == zero and self._is_zero(no, condition):
                return no
        return self._rewriter.make(op, *args)

    def _of_integers(self, op: Op, args: Sequence[int]) -> int:
        if isinstance(op, Affine):
            return self.affine(op.offset, list(zip(op.coefficients, args, strict=True)))
        if op in (quotient, modulo):
            n = self.integer(args[1])
            assert n, "quotients are by constants"
            return self.divide(args[0], n)[op is modulo]
        if op is is_negative:
            return self.below(args[0], self.number(0))
        if op is is_zero:
            return self.same(args[0], self.number(0))
        if op is integer_where:
            return self.chosen(*args)
        known = [self.integer(a) if self.graph.type(a) == "i" else None for a in args]
        if None not in known:
            return self.number(int(op.reference(*known)))
        if op is integer_mul:
            return self.integer_product(*args)
        return self.graph.add(op, *args)

    def less(self, a: int, b: int) -> int:
        """``a < b`` of any integers: of other signs, whose difference may wrap around, by these."""
        low, high = self.span(self.plus(a, (-1, b)))
        if low >= -(2**31) and high < 2**31:
            return self.below(a, b)
        zero = self.number(0)
        down, up = self.below(a, zero), self.below(b, zero)
        apart = self.both(down, self.opposite(up))
        return self.either(
            apart, self.both(self.below(a, b), self.opposite(self.both(up, self.opposite(down))))
        )

    def opposite(self, condition: int) -> int:
        """Whether a condition does not hold."""
        truth = self.truth_of(condition)
        if truth is not None:
            return self.truth(not truth)
        node = self.graph.nodes[condition]
        if node[0] is is_negative:  # not (d < 0) is -1 < d
            return self.below(self.number(-1), node[1])
        return self._rewriter.make(ops.logical_not, condition)

    def value(self, i: int) -> float | None:
        """The value of a constant float."""
        return self.graph.value(i)

    def where(self, condition: int, value: int) -> int:
        """The value where a condition holds, elsewhere 0; conditions are joined."""
        node = self.graph.nodes[value]
        zero = self.graph.constant(0.0)
        if node[0] is ops.where and node[3] == zero:
            return self.where(self.both(condition, node[1]), node[2])
        truth = self.truth_of(condition)
        if truth is not None or value == zero:
            return value if truth is not False else zero
        return self.graph.add(ops.where, condition, value, zero)

    def _is_zero(self, i: int, condition: int) -> bool:
        """Whether a scalar is 0 where a condition holds, for it was chosen to be."""
        op, args, zero = self.op(i), self.args(i), self.graph.constant(0.0)
        if op is ops.where and zero in args[1:]:
            outside = args[0] if args[1] == zero else self.opposite(args[0])
            return outside == condition or self._is_zero(args[1 + (args[1] == zero)], condition)
        if op is ops.neg:
            return self._is_zero(args[0], condition)
        if op is ops.mul and self.op(args[1]) is CONST:
            return self._is_zero(args[0], condition)
        if not isinstance(op, Read) or not isinstance(array := op.array, Tabulate):
            return False
        likely = self.op(array.body) in (ops.where, ops.mul)
        return likely and self._is_zero(self.body_at(array, args), condition)

    def guarded(self, i: int) -> tuple[int, int]:
        """The condition outside of which a value is 0, and the value."""
        node = self.graph.nodes[i]
        if node[0] is ops.where and self.value(node[3]) == 0:
            return node[1], node[2]
        return self.truth(True), i

    # --- arrays -----------------------------------------------------------------------------------

    def element(self, array: Array, index: Sequence[int]) -> int:
        """An element of an array; of one that is constant its number."""
        if isinstance(array, Tabulate) and array not in self.apart:
            head = self.op(array.body)
            if head.constant:
                return array.body
            if isinstance(head, Read) and self.is_whole(array):
                return self.element(head.array, index)
        elif isinstance(array, Constant) and array.data.size == 1 and array.kind == "f":
            return self.graph.constant(float(array.data.reshape(())))
        return self.read(array, index)

    def is_whole(self, array: Tabulate) -> bool:
        """Whether an array is another one, element by element."""
        head = self.op(array.body)
        if not isinstance(head, Read) or head.array.shape != array.shape:
            return False
        return tuple(self.graph.nodes[array.body][1:]) == self._indices(array)

    def _indices(self, array: Tabulate) -> tuple[int, ...]:
        zero = self.number(0)
        return tuple(
            zero if n == 1 else c for c, n in zip(array.counters, array.shape, strict=True)
        )

    def tabulate(self, shape: Sequence[int], body: Callable[..., int]) -> Array:
        """The array of this shape, ``body`` of its counters."""
        counters = [self.counter(n) for n in shape]
        return self.array(counters, body(*self.indices(counters)))

    def indices(self, counters: Sequence[int]) -> list[int]:
        """Counters as indices: one that counts to 1 is 0."""
        return [self.number(0) if self.extent(c) == 1 else c for c in counters]

    def array(self, counters: Sequence[int], body: int) -> Array:
        """``for counters { body }``: the array that it is all of, or an equal one, if there is."""
        shape = tuple(self.extent(c) for c in counters)
        kind = self.graph.type(body)
        if 0 in shape:  # nothing is read, and what it would read need not be computed
            nothing = {"f": self.graph.constant(0.0), "b": self.truth(False)}
            body = nothing.get(kind, self.number(0))
        array = Tabulate(shape=shape, kind=kind, counters=tuple(counters), body=body)
        head = self.op(body)
        if isinstance(head, Read) and self.is_whole(array):
            return head.array
        return self._arrays.setdefault((shape, *self.content(counters, body, MOST_COMPARED)), array)

    def rebuilt(
        self, array: Tabulate | Scatter | Scan, roots: Sequence[int],
        counters: Sequence[int] | None = None,
    ) -> Array:  # fmt: skip
        """An array with other scalars in the place of its own, and other counters, if given."""
        own = tuple(counters or array.counters)
        if isinstance(array, Tabulate):
            again = self.array(own, roots[0])
            if array in self.computed_once:
                self.computed_once.add(again)
            return again
        if isinstance(array, Scatter):
            return replace(array, counters=own, index=tuple(roots[:-1]), body=roots[-1])
        return replace(array, counters=own, body=roots[0])

    def body_at(self, array: Tabulate, index: Sequence[int]) -> int:
        """The body of an array where its counters stand for these integers."""
        return self.substituted([array.body], dict(zip(array.counters, index, strict=True)))[0]

    def content(
        self, counters: Sequence[int], root: int, most: float = math.inf
    ) -> tuple[Any, ...]:
        """A key of a scalar, whatever its counters are called: its nodes in the order of use.

        Of a scalar of more than ``most`` nodes it is the scalar itself.
        """
        numbers = {c: -1 - k for k, c in enumerate(counters)}
        nodes: list[tuple[Any, ...]] = []
        stack = [root]
        while stack:
            if max(len(stack), len(nodes)) > most:
                return *counters, root
            i = stack[-1]
            args = self.graph.args(i)
            missing = [a for a in reversed(args) if a not in numbers] if i not in numbers else []
            op = self.op(i)
            if isinstance(op, Reduce):
                for c in op.counters:
                    numbers.setdefault(c, -1 - len(numbers) - len(nodes))
            if missing:
                stack += missing
                continue
            stack.pop()
            if i not in numbers:
                nodes.append(self._renumbered(i, args, numbers))
                numbers[i] = len(nodes)
        return tuple(nodes)

    def _renumbered(
        self, i: int, args: Sequence[int], numbers: Mapping[int, int]
    ) -> tuple[Any, ...]:
        """Node i with the numbers of its arguments in a key."""
        node = self.graph.nodes[i]
        op = node[0]
        if isinstance(op, Reduce):
            bound = ((numbers[c], self.extent(c)) for c in op.counters)
            return op.operator, *bound, *(numbers[a] for a in args)
        if not op.arity:
            return node
        used = [numbers[a] for a in args]
        return op, *(sorted(used) if op.commutative else used)

    # --- substitution -----------------------------------------------------------------------------

    def substituted(
        self, roots: Sequence[int], names: Mapping[int, int], reader: Reader | None = None
    ) -> list[int]:
        """The roots where counters stand for scalars, and reads for what ``reader`` gives.

        Reductions within bind fresh counters where theirs occur in what is put in.
        """
        names = {c: i for c, i in names.items() if c != i}
        if not names and reader is None:
            return list(roots)
        order = self.walk(roots)
        new = names | self._renamed(order, list(names.values()))
        memo = dict(new)
        for i in order:
            if i not in memo:
                stays = reader is None and self._is_apart(i, new.keys())
                args = self.graph.args(i)
                memo[i] = i if stays else self._again(i, [memo[a] for a in args], reader, new)
        return [memo[r] for r in roots]

    def _is_apart(self, i: int, names: Set[int]) -> bool:
        """Whether node i has none of these counters, free or bound."""
        return self.free(i).isdisjoint(names) and self.bound(i).isdisjoint(names)

    def bound(self, i: int) -> frozenset[int]:
        """The counters that reductions in node i bind."""
        known = self._bound
        for k in range(len(known), i + 1):
            op = self.graph.nodes[k][0]
            inner = frozenset[int]().union(*(known[a] for a in self.graph.args(k)))
            known.append(inner.union(op.counters) if isinstance(op, Reduce) else inner)
        return known[i]

    def _renamed(self, order: Sequence[int], values: Sequence[int]) -> dict[int, int]:
        """Fresh counters for those that reductions bind and that occur in the values."""
        taken = frozenset[int]().union(*(self.free(v) | self.bound(v) for v in values))
        names: dict[int, int] = {}
        if not taken:
            return names
        for i in order:
            op = self.op(i)
            if isinstance(op, Reduce):
                for c in op.counters:
                    if c in taken and c not in names:
                        names[c] = self.counter(self.extent(c))
        return names

    def _again(
        self, i: int, args: Sequence[int], reader: Reader | None, names: Mapping[int, int]
    ) -> int:
        """Node i of other arguments, simplified."""
        op = self.op(i)
        if not op.arity and not isinstance(op, Read):
            return i
        if isinstance(op, Read):
            return (reader or self.element)(op.array, args)
        if isinstance(op, Reduce):
            counters = [names.get(c, c) for c in op.counters]
            return self.reduce(op.operator, counters, *args)
        if isinstance(op, Pick):
            return self.pick(args[0], op.index)
        if op is ops.stop_gradient and reader is None:  # other counters: derivatives may follow
            return self.graph.add(op, *args)
        return self.apply(op, *args)

    def simplified(self, roots: Sequence[int]) -> list[int]:
        """The roots with all laws applied."""
        return self.substituted(roots, {}, self.element)

    def opened(self, reduction: int) -> tuple[list[int], list[int]]:
        """Fresh counters, and the parts of a reduction over them."""
        op = self.op(reduction)
        assert isinstance(op, Reduce), "only reductions are opened"
        names = {c: self.counter(self.extent(c)) for c in op.counters}
        parts = self.substituted(self.graph.nodes[reduction][1:], names)
        return list(names.values()), parts

    # --- reductions -------------------------------------------------------------------------------

    def reduce(self, operator: str, counters: Sequence[int], *parts: int) -> int:
        """A reduction, by the laws of its operator."""
        counters = [c for c in counters if self.extent(c) != 1]
        if any(self.extent(c) == 0 for c in counters) and operator in IDENTITIES:
            return self.identity(operator, self.graph.type(parts[0]))
        if operator == "add" and self.graph.type(parts[0]) == "f":
            return self.total(counters, parts[0])
        if operator in ("max", "min"):
            counters = [c for c in counters if c in self.free(parts[0])]
        if not counters and operator in IDENTITIES:
            return parts[0]
        return self.reduction(operator, counters, *parts)

    def identity(self, operator: str, kind: str) -> int:
        """The value of a reduction of nothing."""
        value = IDENTITIES[operator]
        if kind == "f":
            return self.graph.constant(value)
        return self.number(int(min(max(value, -(2**31)), 2**31 - 1)))

    def total(self, counters: Sequence[int], body: int) -> int:
        """The sum of the body over counters."""
        free = self.free(body)
        idle = [c for c in counters if c not in free]
        if idle:
            times = 1
            for c in idle:
                times *= self.extent(c)
            rest = self.total([c for c in counters if c in free], body)
            return self.apply(ops.mul, self.graph.constant(float(times)), rest)
        if not counters or body == self.graph.constant(0.0):
            return body
        condition, value = self.guarded(body)
        if self.truth_of(condition) is None:
            narrower = self._guarded_total(counters, condition, value)
            if narrower is not None:
                return narrower
        return self._factored(counters, body)

    def _factored(self, counters: Sequence[int], body: int) -> int:
        """The sum, with what is constant in the counters before it.

        What stands twice in a product, as the scale in ``(x / scale)**2``, stays: its square may
        overflow where the product does not.
        """
        node = self.graph.nodes[body]
        if node[0] is ops.neg:
            return self.apply(ops.neg, self.total(counters, node[1]))
        over, under = self.fraction(body)
        leaving, divisors = (
            [f for f in those if self.free(f).isdisjoint(counters) and (over + under).count(f) == 1]
            for those in (over, under)
        )
        if not leaving and not divisors:
            return self.reduction("add", counters, body)
        result = self.total(counters, self.without(body, {*leaving, *divisors}))
        result = self.product([*leaving, result])
        for divisor in divisors:
            result = self.apply(ops.div, result, divisor)
        return result

    def without(self, i: int, factors: Set[int]) -> int:
        """A product or quotient where these factors are 1; the others stand as they stood."""
        op, *args = self.graph.nodes[i]
        if i in factors:
            return self.graph.constant(1.0)
        if not factors or op not in PRODUCTS:
            return i
        return self.apply(op, *[self.without(a, factors) for a in args])

    def fraction(self, i: int) -> tuple[list[int], list[int]]:
        """The factors of a node above and below the line; of very many, the node is one."""
        node = self.graph.nodes[i]
        if self._factors(i) > MOST_FACTORS:
            return [i], []
        if node[0] is ops.reciprocal:
            over, under = self.fraction(node[1])
            return under, over
        if node[0] not in (ops.mul, ops.div):
            return [i], []
        (a, b), (c, d) = map(self.fraction, node[1:])
        return (a + c, b + d) if node[0] is ops.mul else (a + d, b + c)

    def _factors(self, i: int) -> int:
        """How many factors a node has, one that is shared as often as it is multiplied."""
        known = self._widths
        for k in range(len(known), i + 1):
            within = self.op(k) in PRODUCTS
            many = sum(known[a] for a in self.args(k)) if within else 1
            known.append(min(many, MOST_FACTORS + 1))
        return known[i]

    def product(self, factors: Sequence[int]) -> int:
        """The product of factors, constants first."""
        numbers = [f for f in factors if self.op(f) is CONST]
        result = None
        for f in (*numbers, *(f for f in factors if self.op(f) is not CONST)):
            result = f if result is None else self.apply(ops.mul, result, f)
        return self.graph.constant(1.0) if result is None else result

    def _guarded_total(self, counters: Sequence[int], condition: int, value: int) -> int | None:
        """A sum of what is 0 outside of a condition, over a part of the counters' ranges."""
        conditions = self.conditions(condition)
        outside = [c for c in conditions if self.free(c).isdisjoint(counters)]
        if outside:
            rest = self.all_of([c for c in conditions if c not in outside])
            inner = self.total(counters, self.where(rest, value))
            return self.where(self.all_of(outside), inner)
        for c in conditions:
            rest = self.where(self.all_of([d for d in conditions if d != c]), value)
            total = self._narrowed(counters, c, rest)
            if total is None:
                total = self._at_one(counters, c, rest)
            if total is not None:
                return total
        return None

    def _narrowed(self, counters: Sequence[int], condition: int, value: int) -> int | None:
        """The sum over what a condition on one counter alone leaves of its range."""
        node = self.graph.nodes[condition]
        if node[0] is not is_negative:
            return None
        constant, terms = self.terms(node[1])
        if len(terms) != 1 or terms[0][1] not in counters:
            return None
        [(scale, k)] = terms  # scale * k + constant < 0
        n = self.extent(k)
        low, high = (0, -(constant // scale)) if scale > 0 else (constant // -scale + 1, n)
        low, high = max(low, 0), min(high, n)
        if high <= low:
            return self.graph.constant(0.0)
        inner = self.counter(high - low)
        [moved] = self.substituted([value], {k: self.plus(*self.indices([inner]), offset=low)})
        return self.total([inner if c == k else c for c in counters], moved)

    def _at_one(self, counters: Sequence[int], condition: int, value: int) -> int | None:
        """The one term of a sum that a condition k == e leaves."""
        node = self.graph.nodes[condition]
        if node[0] is not is_zero:
            return None
        constant, terms = self.terms(node[1])
        for scale, k in terms:
            others = [(-scale * c, a) for c, a in terms if a != k]
            if k in counters and abs(scale) == 1 and not any(k in self.free(a) for _, a in others):
                at = self.affine(-scale * constant, others)
                [term] = self.substituted([value], {k: at})
                inner = self.where(self.inside(at, self.extent(k)), term)
                return self.total([c for c in counters if c != k], inner)
        return None


IDENTITIES: Final = {"add": 0.0, "mul": 1.0, "max": float("-inf"), "min": float("inf")}
"""The values of reductions of nothing, for operators of one part."""
