"""Pairs of float32 for functions of two arguments: any bits, the usual range, and adversaries.

A third of them are random bit patterns. A third are of the sizes that programs use. The others are
nearly equal, nearly powers of two, near overflow and underflow, whole numbers and halves, exact
multiples, special values, and powers whose result is near the ends of the range.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

Array = np.ndarray
Random = np.random.Generator

SPECIAL: Final = np.array(
    [0.0, 1.0, 2.0, 0.5, 3.0, np.inf, np.nan, 3.4028235e38, 1.1754944e-38, 1e-45, 16777216.0],
    np.float32,
)


def _signs(random: Random, count: int) -> Array:
    return random.integers(0, 2, count, np.uint32) << np.uint32(31)


def _signed(random: Random, x: Array) -> Array:
    return (x.astype(np.float32).view(np.uint32) ^ _signs(random, len(x))).view(np.float32)


def _nudged(random: Random, x: Array, most: int) -> Array:
    """Some steps up or down from x."""
    steps = random.integers(-most, most + 1, len(x), np.int32)
    return (x.astype(np.float32).view(np.int32) + steps).view(np.float32)


def bits(random: Random, count: int) -> Array:
    """Any bit patterns."""
    return random.integers(0, 1 << 32, (count, 2), np.uint32).view(np.float32)


def usual(random: Random, count: int) -> Array:
    """Half between -10 and 10, half from 1e-4 to 1e4 with logarithms equally likely."""
    even = random.uniform(-10.0, 10.0, (count - count // 2, 2))
    spread = _signed(random, np.exp(random.uniform(-9.2, 9.2, count - len(even) << 1)))
    return np.concatenate([even.astype(np.float32), spread.reshape(-1, 2)])


def nearly_equal(random: Random, count: int) -> Array:
    """b is a, or some steps from it, or from -a."""
    first = bits(random, count)[:, 0]
    second = np.where(random.random(count) < 0.5, -first, first)
    return np.stack([first, _nudged(random, second, 16)], axis=1)


def near_powers(random: Random, count: int) -> Array:
    """Both are some steps from a power of two."""
    powers = np.ldexp(np.float32(1.0), random.integers(-126, 128, 2 * count, np.int32))
    return _signed(random, _nudged(random, powers, 3)).reshape(-1, 2)


def extreme(random: Random, count: int) -> Array:
    """Both within 2**8 of overflow, or of underflow, or subnormal."""
    exponents = random.uniform(0.0, 8.0, 2 * count)
    sizes = np.where(random.random(2 * count) < 0.5, 128.0 - exponents, exponents - 129.0)
    return _signed(random, np.exp2(sizes)).reshape(-1, 2)


def halves(random: Random, count: int) -> Array:
    """Whole numbers and halves: ties of rounding, whole exponents."""
    return (random.integers(-128, 129, (count, 2)) * 0.5).astype(np.float32)


def multiples(random: Random, count: int) -> Array:
    """a is k*b, or some steps from it, k whole."""
    second = _signed(random, np.exp2(random.uniform(-60.0, 60.0, count)))
    times = np.floor(np.exp2(random.uniform(0.0, 26.0, count)))
    return np.stack([_nudged(random, second * times, 2), second], axis=1)


def specials(random: Random, count: int) -> Array:
    """One is special, the other may be anything."""
    pairs = bits(random, count)
    at = np.arange(count), random.integers(0, 2, count)
    pairs[at] = _signed(random, random.choice(SPECIAL, count))
    return pairs


def powers_at_the_ends(random: Random, count: int) -> Array:
    """a**b is near overflow, underflow or 1; a third of the bases are near 1."""
    near = 1.0 + random.uniform(-1.0, 1.0, count) * np.exp2(random.uniform(-24.0, 0.0, count))
    any_ = np.exp2(random.uniform(-126.0, 128.0, count))
    base = np.where(random.random(count) < 0.33, near, any_).astype(np.float32)
    ends = random.choice(np.array([-149.0, -126.0, 0.0, 128.0]), count)
    size = ends + random.uniform(-1.0, 1.0, count) * np.exp2(random.uniform(-20.0, 4.0, count))
    with np.errstate(all="ignore"):
        exponent = np.float32(size / np.log2(base.astype(np.float64)))
    return np.stack([base, exponent], axis=1)


def whole_exponents(random: Random, count: int) -> Array:
    """a**b with a whole b, of any sign, that stays within the range."""
    exponent = random.integers(-40, 41, count)
    size = random.uniform(-128.0, 128.0, count) / np.maximum(np.abs(exponent), 1)
    return np.stack([_signed(random, np.exp2(size)), exponent.astype(np.float32)], axis=1)


ADVERSARIES: Final[tuple[Callable[[Random, int], Array], ...]] = (
    nearly_equal, near_powers, extreme, halves, multiples, specials, powers_at_the_ends,
    whole_exponents,
)  # fmt: skip


def pairs(seed: int, count: int) -> Array:
    """So many pairs (count, 2): the same ones for the same seed."""
    random = np.random.default_rng(seed)
    third = count // 3
    each = (count - 2 * third) // len(ADVERSARIES)
    parts = [kind(random, each) for kind in ADVERSARIES]
    rest = count - third - each * len(ADVERSARIES)
    with np.errstate(all="ignore"):
        return np.concatenate([bits(random, rest), usual(random, third), *parts])
