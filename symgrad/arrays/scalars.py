"""The scalars of an array program: one graph of the op table's rows, and of reads and reductions.

Beside the rows of `symgrad.expr.ops` the graph holds

    counter                an integer that a binder counts from 0 to below its extent
    c + a*i + b*j          `Affine`: a sum of integers with constant coefficients
    i // n, i % n          by constants n > 0, rounded down
    A[i, j]                `Read`: an element of an array
    reduce k; add {x}      `Reduce`: a reduction over counters that it binds

Invariants:
  1. Integers have the type i and are of the signed machine word; ``Affine`` has no affine argument,
     no constant one, none twice and none with coefficient 0; its arguments ascend. A constant
     is an INTEGER leaf. A counter of extent 1 never occurs: it is 0.
  2. Comparisons of integers are ``is_negative`` and ``is_zero`` of a difference.
  3. A counter is bound once: within one array no binder stands within another of the same counter.
     Binders that stand side by side may share counters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from symgrad.expr.graph.node import INTEGER, TRUTH, Graph, Op
from symgrad.expr.graph.region import pick_op

MOST_FACTORS: Final = 256
"""The factors of a product that are told apart, at most."""


def _unbound(*_: Any) -> Any:
    raise AssertionError("a counter has no value of its own")


# Rows are set by hand: what belongs together stands on one line.
# fmt: off

COUNTER: Final = Op(name="counter", signature="->i", reference=_unbound)
"""A counter, ``(COUNTER, number, extent)``."""

quotient = Op(name="quotient", signature="ii->i", reference=np.floor_divide, cost=4,
              meaning="a // n, rounded down; n > 0 is a constant")
modulo = Op(name="modulo", signature="ii->i", reference=np.mod, cost=4,
            meaning="a % n, at least 0; n > 0 is a constant")
division = Op(name="division", signature="ii->i", reference=np.floor_divide, cost=4,
              meaning="a // n, rounded down; n > 0")
integer_mul = Op(name="integer_mul", signature="ii->i", reference=np.multiply, commutative=True)
integer_and = Op(name="integer_and", signature="ii->i", reference=np.bitwise_and, commutative=True)
integer_or = Op(name="integer_or", signature="ii->i", reference=np.bitwise_or, commutative=True)
integer_xor = Op(name="integer_xor", signature="ii->i", reference=np.bitwise_xor, commutative=True)
shift_left = Op(name="shift_left", signature="ii->i", reference=np.left_shift,
                meaning="a << k; 0 <= k < 32")
shift_right = Op(name="shift_right", signature="ii->i", reference=np.right_shift,
                 meaning="a >> k, with the sign of a; 0 <= k < 32")
integer_where = Op(name="integer_where", signature="bii->i", reference=np.where)
is_negative = Op(name="is_negative", signature="i->b", reference=lambda a: np.asarray(a) < 0)
is_zero = Op(name="is_zero", signature="i->b", reference=lambda a: np.asarray(a) == 0)
as_float = Op(name="as_float", signature="i->f", reference=np.float64,
              meaning="the integer as a real number")
truncated = Op(name="truncated", signature="f->i", reference=lambda x: np.trunc(x).astype(np.int64),
               meaning="x rounded towards 0, an integer")
# fmt: on


@dataclass(frozen=True, eq=False, kw_only=True)
class Array:
    """An array: its shape, and the kind of its elements."""

    shape: tuple[int, ...]
    kind: str = "f"

    @property
    def size(self) -> int:
        """The number of its elements."""
        return prod(self.shape)

    @property
    def scalars(self) -> tuple[int, ...]:
        """The scalars that say what it is: bodies and indices."""
        return ()

    @property
    def arguments(self) -> tuple[Array, ...]:
        """The arrays that it takes as a whole, not by reads of elements."""
        return ()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True, repr=False)
class Affine(Op):
    """``offset`` and the sum of each argument times its coefficient."""

    offset: int
    coefficients: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True, repr=False)
class Read(Op):
    """An element of ``array``; the arguments are its indices.

    An index may lie outside the array where a condition around the read is false: what the read
    gives there is any number.
    """

    array: Array


@dataclass(frozen=True, slots=True, eq=False, kw_only=True, repr=False)
class Reduce(Op):
    """The reduction of its arguments, the parts, over counters that it binds.

    With one part it is its result, a float or an integer; with several it is a tuple (type t), of
    which ``Pick`` gives the elements.

    The operators "add", "mul", "max" and "min" take one part. "argmax" and "argmin" of (value,
    position) give both of the first place where the extreme is attained; NaN is larger and smaller
    than all. "rescale" of (s, w, v...) gives (m, sum exp(s - m) w, sum exp(s - m) v...) with m the
    maximum of s.
    """

    operator: str
    counters: tuple[int, ...]


class Scalars:
    """Builds scalars of an array program in normal form, in its graph.

    Nodes are numbers of ``graph``, as everywhere; equal ones are one.
    """

    def __init__(self) -> None:
        self.graph = Graph()
        self.graph.tracing = False
        self._counters = 0
        self._ops: dict[Any, Op] = {}
        self._free: list[frozenset[int]] = []

    # --- what a node is ---------------------------------------------------------------------------

    def op(self, i: int) -> Op:
        """The operation of node i."""
        op: Op = self.graph.nodes[i][0]
        return op

    def args(self, i: int) -> Sequence[int]:
        """The arguments of node i."""
        return self.graph.args(i)

    def integer(self, i: int) -> int | None:
        """The value of a constant integer, None for any other node."""
        node = self.graph.nodes[i]
        return node[1] if node[0] is INTEGER else None

    def extent(self, counter: int) -> int:
        """How far a counter counts."""
        extent: int = self.graph.nodes[counter][2]
        return extent

    def free(self, i: int) -> frozenset[int]:
        """The counters of node i that no reduction within it binds."""
        known, nodes = self._free, self.graph.nodes
        for k in range(len(known), i + 1):
            op = nodes[k][0]
            if op is COUNTER:
                known.append(frozenset((k,)))
                continue
            free = frozenset[int]().union(*(known[a] for a in self.graph.args(k)))
            known.append(free.difference(op.counters) if isinstance(op, Reduce) else free)
        return known[i]

    def walk(self, roots: Iterable[int], enters: bool = True) -> list[int]:
        """The nodes that the roots need, arguments first; without what reductions hold, if said."""
        seen = set(roots)
        stack = list(seen)
        nodes = self.graph.nodes
        while stack:
            node = nodes[stack.pop()]
            if node[0].arity and (enters or node[0].__class__ is not Reduce):
                for a in node[1:]:
                    if a not in seen:
                        seen.add(a)
                        stack.append(a)
        return sorted(seen)

    def shallow(self, roots: Iterable[int]) -> list[int]:
        """The nodes that the roots need, arguments first, without what reductions hold."""
        return self.walk(roots, enters=False)

    def reads(self, roots: Sequence[int]) -> Iterator[tuple[int, Read]]:
        """The reads among the nodes that the roots need."""
        for i in self.walk(roots):
            op = self.op(i)
            if isinstance(op, Read):
                yield i, op

    def array_of(self, read: int) -> Array:
        """The array that a read is of."""
        op = self.op(read)
        assert isinstance(op, Read), f"node {read} is {op}"
        return op.array

    # --- integers ---------------------------------------------------------------------------------

    def number(self, value: int) -> int:
        """The id of a constant integer."""
        return self.graph.intern((INTEGER, int(value)))

    def truth(self, value: bool) -> int:
        """The id of a constant truth value."""
        return self.graph.intern((TRUTH, int(value)))

    def counter(self, extent: int) -> int:
        """A new counter."""
        self._counters += 1
        return self.graph.intern((COUNTER, self._counters, int(extent)))

    def terms(self, i: int) -> tuple[int, list[tuple[int, int]]]:
        """The constant of an integer, and its (coefficient, node)s."""
        node = self.graph.nodes[i]
        if node[0] is INTEGER:
            return node[1], []
        if isinstance(node[0], Affine):
            return node[0].offset, list(zip(node[0].coefficients, node[1:], strict=True))
        return 0, [(1, i)]

    def affine(self, constant: int, terms: Iterable[tuple[int, int]]) -> int:
        """constant + the sum of coefficient * node, in normal form; m*(x//m) + x%m is x."""
        total: dict[int, int] = {}
        for scale, i in terms:
            own, inner = self.terms(i)
            constant += scale * own
            for c, a in inner:
                total[a] = total.get(a, 0) + scale * c
        total = {a: c for a, c in total.items() if c and not self._is_idle(a)}
        for a, c in total.items():
            node = self.graph.nodes[a]
            if node[0] is modulo:
                other = self.graph.find(quotient, *node[1:])
                if other is not None and total.get(other) == c * self.graph.nodes[node[2]][1]:
                    rest = [(s, t) for t, s in total.items() if t not in (a, other)]
                    return self.affine(constant, [*rest, (c, node[1])])
        if not total:
            return self.number(constant)
        if not constant and list(total.values()) == [1]:
            return next(iter(total))
        atoms = sorted(total)
        op = self._affine_op(constant, tuple(total[a] for a in atoms))
        return self.graph.add(op, *atoms)

    def _is_idle(self, i: int) -> bool:
        node = self.graph.nodes[i]
        return node[0] is COUNTER and node[2] == 1

    def _affine_op(self, constant: int, coefficients: tuple[int, ...]) -> Op:
        key = (Affine, constant, coefficients)
        if key not in self._ops:

            def meaning(*values: Any) -> Any:
                return constant + sum(c * v for c, v in zip(coefficients, values, strict=True))

            signature = "i" * len(coefficients) + "->i"
            self._ops[key] = Affine(
                name="affine", signature=signature, reference=meaning,
                offset=constant, coefficients=coefficients, cost=len(coefficients),
            )  # fmt: skip
        return self._ops[key]

    def plus(self, *terms: int | tuple[int, int], offset: int = 0) -> int:
        """The sum of integer nodes, of (coefficient, node)s, and of a constant offset."""
        return self.affine(offset, [t if isinstance(t, tuple) else (1, t) for t in terms])

    # --- reads and reductions ---------------------------------------------------------------------

    def read(self, array: Array, index: Sequence[int]) -> int:
        """The element of an array at these indices; an axis of length 1 is read at 0."""
        key = (Read, array)
        if key not in self._ops:
            signature = "i" * len(array.shape) + "->" + array.kind
            self._ops[key] = Read(
                name="read", signature=signature, reference=_unbound, array=array, cost=2
            )
        zero = [self.number(0) if n == 1 else i for i, n in zip(index, array.shape, strict=True)]
        return self.graph.add(self._ops[key], *zero)

    def reduction(self, operator: str, counters: Sequence[int], *parts: int) -> int:
        """The reduction of the parts over these counters, as it stands."""
        bound = tuple(c for c in counters if self.extent(c) != 1)
        kinds = "".join(self.graph.type(p) for p in parts)
        key = (Reduce, operator, bound, kinds)
        if key not in self._ops:
            self._ops[key] = Reduce(
                name=f"reduce_{operator}", reference=_unbound, operator=operator, counters=bound,
                signature=f"{kinds}->{kinds if len(parts) == 1 else 't'}",
            )  # fmt: skip
        return self.graph.add(self._ops[key], *parts)

    def pick(self, reduction: int, k: int) -> int:
        """The element number k of a reduction of tuples."""
        kind = self.op(reduction).signature[k]
        return self.graph.add(pick_op(k, kind), reduction)


def replaced(scalars: Scalars, root: int, known: Mapping[int, int], within: bool = False) -> int:
    """A scalar with other nodes in the place of some.

    Reductions that are not among them stay, unless nodes ``within`` them are replaced too.
    """
    ids = dict(known)
    for i in scalars.walk([root]) if within else scalars.shallow([root]):
        if i not in ids:
            stays = isinstance(scalars.op(i), Reduce) and not within
            ids[i] = i if stays else rebuilt(scalars, i, ids)
    return ids[root]


def rebuilt(scalars: Scalars, i: int, ids: Mapping[int, int]) -> int:
    """A node with arguments that others stand for."""
    op, args = scalars.op(i), scalars.args(i)
    new = [ids.get(a, a) for a in args]
    if list(args) == new:
        return i
    if isinstance(op, Reduce):
        return scalars.reduction(op.operator, op.counters, *new)
    if isinstance(op, Affine):
        return scalars.affine(op.offset, zip(op.coefficients, new, strict=True))
    return scalars.read(op.array, new) if isinstance(op, Read) else scalars.graph.add(op, *new)
