"""How reductions combine two results: sums and products, extremes, positions, running rescale."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from symgrad.expr import ops
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.statements import lane_max, lane_min, lane_sum

Values = Sequence[int]

SIGN: Final = 1 << 31
"""The bit that turns the order of signed words into that of words, and back."""

LEAST, LARGEST = SIGN, SIGN - 1
"""The least and the largest signed integer, as words."""

HALF_BITS: Final = 16
HALF: Final = 1 << HALF_BITS
"""The bits of half a word, and how many such halves there are."""

TUPLES: Final = ("argmax", "argmin", "rescale")
"""The operators of tuples."""


def signed_below(k: KernelIR, a: int, b: int) -> int:
    """Whether a signed word is less than another one."""
    sign = k.word(SIGN)
    return k.add(ops.word_lt, k.add(ops.word_xor, a, sign), k.add(ops.word_xor, b, sign))


def _extreme(k: KernelIR, a: int, b: int, largest: bool) -> int:
    below = signed_below(k, a, b)
    return k.add(ops.word_where, below, *((b, a) if largest else (a, b)))


FLOATS: Final = {"add": ops.add, "mul": ops.mul, "max": ops.maximum, "min": ops.minimum}

INTEGERS: Final[dict[str, Callable[[KernelIR, int, int], int]]] = {
    "add": lambda k, a, b: k.add(ops.word_add, a, b),
    "mul": lambda k, a, b: k.add(ops.word_mul, a, b),
    "max": lambda k, a, b: _extreme(k, a, b, largest=True),
    "min": lambda k, a, b: _extreme(k, a, b, largest=False),
}

NOTHING: Final = {"add": 0.0, "mul": 1.0, "max": -float("inf"), "min": float("inf")}
NO_INTEGERS: Final = {"add": 0, "mul": 1, "max": LEAST, "min": LARGEST}


def combined(k: KernelIR, operator: str, a: Values, b: Values) -> list[int]:
    """The results of one part of what is reduced, and then of another."""
    if operator == "rescale":
        return _rescaled(k, a, b)
    if operator in TUPLES:
        return _first_extreme(k, operator == "argmax", a, b)
    (x,), (y,) = a, b
    if k.type(x) == "f":
        return [k.add(FLOATS[operator], x, y)]
    return [INTEGERS[operator](k, x, y)]


def nothing(k: KernelIR, operator: str, kinds: str) -> list[int]:
    """The results of a reduction of nothing, whose parts are of these kinds."""
    if operator == "rescale":
        return [k.constant(-float("inf")), *[k.constant(0.0)] * (len(kinds) - 1)]
    extreme = operator.removeprefix("arg")
    value = k.constant(NOTHING[extreme]) if kinds[0] == "f" else k.word(NO_INTEGERS[extreme])
    return [value, k.word(LARGEST)] if operator in TUPLES else [value]


def _rescaled(k: KernelIR, a: Values, b: Values) -> list[int]:
    """Sums of exp(s - m) w, brought to the larger of two maxima m.

    See Milakov and Gimelshein, 2018, "Online normalizer calculation for softmax". What rounding the
    difference of maxima does to a factor is much only where the factor is little.
    """
    (top, *sums), (other, *terms) = a, b
    rises, one = k.add(ops.lt, top, other), k.constant(1.0)
    distance = k.add(ops.abs, k.add(ops.sub, top, other))
    factor = k.add(ops.exp, k.add(ops.neg, distance))
    factor = k.add(ops.where, k.add(ops.eq, top, other), one, factor)
    old, new = k.add(ops.where, rises, factor, one), k.add(ops.where, rises, one, factor)
    pairs = zip(sums, terms, strict=True)
    both = [(k.add(ops.mul, x, old), k.add(ops.mul, y, new)) for x, y in pairs]
    return [k.add(ops.maximum, top, other), *[k.add(ops.add, x, y) for x, y in both]]


def _first_extreme(k: KernelIR, largest: bool, a: Values, b: Values) -> list[int]:
    """The extreme of two values, and the lower position of those where it is attained."""
    (x, i), (y, j) = a, b
    earlier = signed_below(k, j, i)
    if k.type(x) != "f":
        above = signed_below(k, *((x, y) if largest else (y, x)))
        ties = k.add(ops.word_eq, x, y)
    else:
        x_nan, y_nan = k.add(ops.isnan, x), k.add(ops.isnan, y)
        greater = k.add(ops.lt, *((x, y) if largest else (y, x)))
        first_nan = k.add(ops.logical_and, y_nan, k.add(ops.logical_not, x_nan))
        above = k.add(ops.logical_or, greater, first_nan)
        both = k.add(ops.logical_and, x_nan, y_nan)
        ties = k.add(ops.logical_or, both, k.add(ops.eq, x, y))
    takes = k.add(ops.logical_or, above, k.add(ops.logical_and, ties, earlier))
    choose = ops.where if k.type(x) == "f" else ops.word_where
    return [k.add(choose, takes, y, x), k.add(ops.word_where, takes, j, i)]


# --- over the lanes of a vector -------------------------------------------------------------------

LANES: Final = {"add": lane_sum, "max": lane_max, "min": lane_min}
"""Operations of a group in step for reductions of floats."""


def lanes_reduce(operator: str, kinds: str) -> bool:
    """Whether `over_lanes` can reduce parts of these kinds."""
    return kinds[0] == "f" and (operator in LANES or operator in TUPLES)


def over_lanes(k: KernelIR, operator: str, parts: Values) -> list[int]:
    """The reduction of what the lanes of a vector have."""
    if operator in LANES:
        return [k.add(LANES[operator], parts[0])]
    first, *rest = parts
    if operator == "rescale":
        top = k.add(lane_max, first)
        distance, equal = k.add(ops.sub, first, top), k.add(ops.eq, first, top)
        factor = k.add(ops.where, equal, k.constant(1.0), k.add(ops.exp, distance))
        return [top, *(k.add(lane_sum, k.add(ops.mul, x, factor)) for x in rest)]
    return _extreme_lane(k, operator, first, rest[0])


def _extreme_lane(k: KernelIR, operator: str, x: int, position: int) -> list[int]:
    """The extreme of lanes, and the lowest position where it is attained: its halves in turn.

    Positions are below 2**31: floats hold each half.
    """
    extreme = k.add(LANES[operator.removeprefix("arg")], x)
    holds = k.add(ops.logical_or, k.add(ops.eq, x, extreme), k.add(ops.isnan, x))
    none, lowest = k.constant(float(HALF)), list[int]()
    high = k.add(ops.word_shift_right, position, k.word(HALF_BITS))
    for part in (high, k.add(ops.word_and, position, k.word(HALF - 1))):
        candidate = k.add(ops.where, holds, k.add(ops.word_float, part), none)
        least = k.add(lane_min, candidate)
        holds = k.add(ops.logical_and, holds, k.add(ops.eq, candidate, least))
        lowest.append(k.add(ops.nearest_word, least))
    first = k.add(ops.word_shift_left, lowest[0], k.word(HALF_BITS))
    return [extreme, k.add(ops.word_add, first, lowest[1])]
