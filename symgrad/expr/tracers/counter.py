"""Counters, bounds and indices: words in the graph, numbers like any other to the user."""

from __future__ import annotations

import math
import numbers
import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np

from symgrad.errors import InputError
from symgrad.expr import ops
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import WORD, Graph, Handle, Op, real_number
from symgrad.expr.tracers.expression import WRAP, Expr, Scalar, require_graph

LARGEST_SIGNED: Final = 2.0**31 - 128
"""The largest float32 that is a signed word, as those are which floats are turned into."""

MOST_LEVELS: Final = 16
"""Levels of sums and products of counters that are looked at."""


@dataclass
class TracedLoops:
    """A note of the loops that are traced into a graph; copies of the graph begin without one.

    ``limits`` are the least and the largest value of words, counters and bounds of loops; None is
    unknown. ``runs`` says of carries how often a loop that begins as one runs at most in all.
    ``indices`` are the holes that stand for all indices of arrays, by the number of elements.
    ``bodies`` are the loops whose bodies are being traced, the innermost last.
    """

    limits: dict[int, tuple[int, int | None]] = field(default_factory=dict)
    runs: dict[int, int] = field(default_factory=dict)
    indices: dict[int, int] = field(default_factory=dict)
    bodies: list[object] = field(default_factory=list)

    def __copy__(self) -> TracedLoops:
        return TracedLoops()


def limit(graph: Graph, i: int, most: int | None, least: int = 0) -> None:
    """Note what a word does not exceed, if that is known, and what it is at least."""
    graph.note(TracedLoops).limits[i] = least, most


class Counter(Expr):
    """A whole number that is made of counters of loops and integers; so are its // and %."""

    __slots__ = ()
    counts: ClassVar[bool] = True

    def __add__(self, other: Any) -> Any:
        return _counted(Expr.__add__(self, other), other)

    def __sub__(self, other: Any) -> Any:
        return _counted(Expr.__sub__(self, other), other)

    def __rsub__(self, other: Any) -> Any:
        return _counted(Expr.__rsub__(self, other), other)

    def __mul__(self, other: Any) -> Any:
        return _counted(Expr.__mul__(self, other), other)

    __radd__, __rmul__ = __add__, __mul__

    def __floordiv__(self, other: Any) -> Any:
        return _divided(self, other, operator.floordiv)

    def __mod__(self, other: Any) -> Any:
        return _divided(self, other, operator.mod)


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer, Counter)) and not isinstance(value, bool)


def _counted(value: Any, other: Any) -> Any:
    """The result of arithmetic of a counter: a counter, if the other number is whole."""
    return Counter(value.graph, value.id) if type(value) is Expr and _is_whole(other) else value


def _divided(a: Counter, n: Any, operation: Callable[[Any, Any], Any]) -> Any:
    """The quotient, or the remainder, of a counter: of integers where it is none below 0."""
    positive = _is_whole(n) and not isinstance(n, Expr) and n > 0
    i = whole(a.graph, a) if positive else None
    if i is None:
        method = Expr.__floordiv__ if operation is operator.floordiv else Expr.__mod__
        return _counted(method(a, n), n)
    result = operation(WRAP["u"](a.graph, i), int(n))
    most = largest(a.graph, i)
    if operation is operator.mod:
        limit(a.graph, result.id, n - 1 if most is None else min(most, n - 1))
    else:
        limit(a.graph, result.id, None if most is None else most // n)
    return Counter(a.graph, result.as_bound().id)


def word(graph: Graph, n: int) -> int:
    """The word n."""
    return graph.intern((WORD, n))


def bound(graph: Graph | None, value: Any, what: str) -> int | Expr:
    """A bound of a loop: a Python integer, or an expression.

    Raises:
        InputError: if it is a number, but no whole one. InputTypeError: if it is neither.
    """
    if isinstance(value, np.ndarray) and not value.ndim:
        value = value.item()
    if isinstance(value, Scalar):
        require_graph(graph or value.graph, value)
        return value.as_bound()
    if isinstance(value, numbers.Integral):
        return int(value)
    if not real_number(value).is_integer():
        raise InputError(located(f"{what} of a loop is a whole number, not {value!r}"))
    return int(value)


def whole(graph: Graph, value: int | Expr) -> int | None:
    """The word that is the same number, where it is seen that it is one; None elsewhere.

    Raises:
        InputError: if it is a number whose distance from 0 no counter can have.
    """
    if isinstance(value, int):
        if abs(value) >= 2**31:
            raise InputError(located(f"loop bounds are below 2**31, and {value:,} is not"))
        return word(graph, value) if 0 <= value < 2**31 else None
    low, high = _between(graph, value.id)
    integer = modulo(graph, value.id) if low >= 0 else None
    if integer is not None and graph.nodes[integer][0] is ops.word_sub:
        limit(graph, integer, int(high) if math.isfinite(high) else None, int(low))
    return integer


def modulo(graph: Graph, i: int, depth: int = 0) -> int | None:
    """The word that is the same modulo 2**32, where it is seen that it is a whole number."""
    op, *args = graph.nodes[i]
    known = graph.value(i)
    if known is not None:
        is_word = known.is_integer() and abs(known) < LARGEST_SIGNED
        return word(graph, int(known) % 2**32) if is_word else None
    if op is ops.word_float:
        return args[0]
    if op not in _ON_WORDS or depth > MOST_LEVELS:
        return None
    if op is ops.minimum and min(_between(graph, a)[0] for a in args) < 0:
        return None  # modulo 2**32 these have another order
    a = modulo(graph, args[0], depth + 1)
    b = None if a is None else modulo(graph, args[1], depth + 1)
    return None if a is None or b is None else graph.add(_ON_WORDS[op], a, b)


_ON_WORDS: Final[dict[Op, Op]] = {
    ops.add: ops.word_add,
    ops.sub: ops.word_sub,
    ops.mul: ops.word_mul,
    ops.minimum: ops.word_min,
}
"""Rows on floats, and those that do the same to words that floats hold exactly."""


def largest(graph: Graph, i: int, depth: int = 0) -> int | None:
    """An upper bound of a word; None where none is known."""
    op, *args = graph.nodes[i]
    if op is WORD:
        return args[0]
    _, noted = graph.note(TracedLoops).limits.get(i, (0, None))
    if noted is not None or op not in _LARGEST or depth > MOST_LEVELS:
        return noted
    limits = [largest(graph, a, depth + 1) for a in args]
    bounds = [n for n in limits if n is not None]
    if op is ops.word_min:
        return min(bounds, default=None)
    most = _LARGEST[op](*bounds) if len(bounds) == len(args) else 2**32
    return most if most < 2**32 else None


_LARGEST: Final[dict[Op, Callable[..., int]]] = {
    ops.word_add: lambda a, b: a + b,
    ops.word_mul: lambda a, b: a * b,
    ops.word_div: lambda a, _: a,
    ops.word_min: min,
}


def ceiling(x: Expr) -> int:
    """The least whole number that is not below x, as a word: 0 where x is negative or NaN."""
    limited = ops.where(x > 0.0, ops.minimum(x, LARGEST_SIGNED), 0.0)
    integer = ops.nearest_word(ops.ceil(limited)).id
    _, high = _between(x.graph, x.id)
    limit(x.graph, integer, max(0, int(high)) if math.isfinite(high) else None)
    return integer


def _between(graph: Graph, i: int, depth: int = 0) -> tuple[float, float]:
    """Whole numbers, or infinities, between which a float lies that is not NaN.

    Rounding does not take it beyond them: below ``EXACT_BELOW`` they are floats themselves.
    """
    op, *args = graph.nodes[i]
    constant = graph.value(i)
    if constant is not None and math.isfinite(constant):
        bounds: tuple[float, float] = math.floor(constant), math.ceil(constant)
    elif op is ops.word_float:
        least, _ = graph.note(TracedLoops).limits.get(args[0], (0, None))
        most = largest(graph, args[0])
        bounds = least, math.inf if most is None else most
    elif op in _BETWEEN and depth <= MOST_LEVELS:
        floats = [a for a in graph.args(i) if graph.type(a) == "f"]
        bounds = _BETWEEN[op](*[_between(graph, a, depth + 1) for a in floats])
    else:
        bounds = -math.inf, math.inf
    low, high = bounds  # either may be NaN, the difference of infinities
    return low if abs(low) < EXACT_BELOW else -math.inf, high if abs(
        high
    ) < EXACT_BELOW else math.inf


EXACT_BELOW: Final = 2**24
"""Below it whole numbers are float32 numbers."""


def _of_products(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    products = [x * y for x in a for y in b]
    return (
        (-math.inf, math.inf) if any(map(math.isnan, products)) else (min(products), max(products))
    )


def _of_quotients(a: tuple[float, float], b: tuple[float, float]) -> tuple[float, float]:
    """Whole numbers around the quotients by a constant that is one, and not 0."""
    if b[0] != b[1] or not b[0] or not math.isfinite(b[0]):
        return -math.inf, math.inf
    low, high = sorted((a[0] / b[0], a[1] / b[0]))
    return low if math.isinf(low) else math.floor(low), high if math.isinf(high) else math.ceil(
        high
    )


def _kept(a: tuple[float, float]) -> tuple[float, float]:
    return a


_BETWEEN: Final[dict[Op, Callable[..., tuple[float, float]]]] = {
    ops.add: lambda a, b: (a[0] + b[0], a[1] + b[1]),
    ops.sub: lambda a, b: (a[0] - b[1], a[1] - b[0]),
    ops.neg: lambda a: (-a[1], -a[0]),
    ops.mul: _of_products,
    ops.minimum: lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    ops.maximum: lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    ops.where: lambda a, b: (min(a[0], b[0]), max(a[1], b[1])),
    ops.div: _of_quotients,
    ops.remainder: lambda a, b: (0, b[1]) if b[0] > 0 else (-math.inf, math.inf),
    ops.abs: lambda a: (max(0, a[0], -a[1]), max(-a[0], a[1])),
    ops.sqrt: lambda a: (0, math.inf if a[1] == math.inf else math.isqrt(max(0, int(a[1]))) + 1),
    ops.stop_gradient: _kept,
    ops.floor: _kept,
    ops.ceil: _kept,
    ops.round: _kept,
    ops.trunc: _kept,
}
"""Between which numbers results lie, of the floats that a row takes."""


def within(graph: Graph, value: Any, n: int) -> tuple[Any, int | None]:
    """An index of n elements, and the condition that it is in range; None where that is known.

    It is an integer, or a word for what is known at run time, then at most the last one. Negative
    ones count from the end.

    Raises:
        InputError: for an integer that is out of range, or a number that is none.
    """
    position = bound(graph, value, "an index")
    if isinstance(position, int):
        if not -n <= position < n:
            raise InputError(located(f"index {position} is out of range: there are {n} elements"))
        return position % n, None
    low, high = _between(graph, position.id)
    position = position if low >= 0 else ops.where(position < -0.5, position + float(n), position)
    exact = whole(graph, position)
    i = index(graph, position) if exact is None else exact
    if exact is not None and high < n:
        return WRAP["u"](graph, i), None
    last = WRAP["u"](graph, graph.add(ops.word_min, i, word(graph, n - 1)))
    return last, ((position > -0.5) & (position < n - 0.5)).id


def index(graph: Graph, value: Any) -> int:
    """An index as a word: an integer, a word, or an expression, whose nearest integer it is."""
    if isinstance(value, Handle) and not isinstance(value, Expr):
        return value.id
    integer = whole(graph, bound(graph, value, "an index"))
    if integer is not None:
        return integer
    if not isinstance(value, Expr):
        raise InputError(located(f"an index cannot be negative, and {value} is"))
    return ceiling(value - 0.5)
