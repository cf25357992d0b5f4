"""Random numbers of keys, each made of one random word or two, as JAX has them."""

from __future__ import annotations

import contextlib
import math
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError
from symgrad.expr import ops
from symgrad.expr.calls.keys import Key, bits, drawn, sizes_of, split
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import Handle
from symgrad.expr.tracers.array import (
    TracedArray,
    call,
    holds_expressions,
    map_elements,
    plain,
    swept,
)
from symgrad.expr.tracers.casts import int32
from symgrad.expr.tracers.integers import BITS, SIGN, SignedWord, Word

DIGITS: Final = 23
"""The random bits of a real number."""

_LEAST: Final = -(1.0 - 2.0**-24)
"""The float32 next to -1, where JAX's normal numbers begin."""

_TINY: Final = 2.0**-126
"""What JAX takes instead of 0 for Gumbel's distribution: the least normal float32."""

_ROOT: Final = math.sqrt(2.0)


def uniform(
    key: Key, shape: int | tuple[int, ...] = (), *, minval: Any = 0.0, maxval: Any = 1.0
) -> Any:
    """Random numbers between ``minval`` and ``maxval``, which they do not reach.

    Args:
        key: A key.
        shape: () for one number, else the shape of an array. Under a key that is an expression
            its elements are written out if they are few, and made by a loop from 256 on.
        minval: A number, an expression, or an array of them that broadcasts to the shape.
        maxval: Another.

    Returns:
        An expression or an array of them; of numbers alone, numbers.

    Example:
        >>> import symgrad as sg
        >>> sg.random.uniform(sg.random.key(0), minval=-1.0, maxval=3.0)
        np.float64(2.79066801071167)
    """
    share = drawn(key, shape, fraction)
    if not any(isinstance(m, (Handle, np.ndarray)) for m in (minval, maxval)) and (
        (minval, maxval) == (0, 1)
    ):
        return share
    if not any(map(holds_expressions, (share, minval, maxval))):
        return np.maximum(minval, share * np.subtract(maxval, minval) + minval)
    between = share, minval, maxval
    numbers = swept(_between, between)
    return map_elements(_between, *between) if numbers is None else numbers


def normal(key: Key, shape: int | tuple[int, ...] = ()) -> Any:
    """Random numbers of the normal distribution of mean 0 and variance 1.

    They are what the inverse of its distribution function makes of uniform ones, and agree with
    JAX's up to rounding.

    Example:
        >>> import symgrad as sg
        >>> round(sg.random.normal(sg.random.key(0)), 5)
        1.62264
    """
    return drawn(key, shape, lambda word: ops.erfinv(fraction(word) * 2.0 + _LEAST) * _ROOT)


def fraction(word: Any) -> Any:
    """The leading bits of a word as a number in [0, 1)."""
    return ops.word_float(ops.word_shift_right(word, BITS - DIGITS)) * 2.0**-DIGITS


def _between(share: Any, low: Any, high: Any) -> Any:
    return ops.maximum(low, share * (high - low) + low)


def exponential(key: Key, shape: int | tuple[int, ...] = ()) -> Any:
    """Random numbers of the exponential distribution of mean 1.

    Example:
        >>> import symgrad as sg
        >>> round(sg.random.exponential(sg.random.key(0)), 5)
        2.95013
    """
    return drawn(key, shape, lambda word: -ops.log1p(-fraction(word)))


def gumbel(key: Key, shape: int | tuple[int, ...] = ()) -> Any:
    """Random numbers of Gumbel's distribution: the largest of many, of location 0 and scale 1.

    Example:
        >>> import symgrad as sg
        >>> round(sg.random.gumbel(sg.random.key(0)), 5)
        2.92337
    """
    return drawn(key, shape, lambda w: -ops.log(-ops.log(ops.maximum(fraction(w), _TINY))))


def bernoulli(key: Key, p: Any = 0.5, shape: int | tuple[int, ...] | None = None) -> Any:
    """Random conditions, each of which holds with probability p.

    Args:
        key: A key.
        p: The probability, or an array of them: numbers or expressions.
        shape: The shape of the result, to which ``p`` broadcasts; by default that of ``p``.

    Returns:
        A condition, or an array of them; of numbers alone, NumPy's.

    Example:
        >>> import symgrad as sg
        >>> draw = lambda v: sg.random.bernoulli(sg.random.key(0), v[0], (12,))
        >>> sg.fused_forward(1, draw, device="cpu").run([0.3])
        array([0., 0., 0., 0., 0., 1., 0., 0., 0., 1., 0., 1.], dtype=float32)
    """
    return call(ops.lt, uniform(key, shape_of(shape, p)), p)


def randint(key: Key, shape: int | tuple[int, ...], minval: Any, maxval: Any) -> Any:
    """Random integers from ``minval`` on, below ``maxval``.

    They are JAX's, of 64 random bits each: some of s integers are likelier than others, by less
    than a share s/2**64. Where ``maxval`` is no larger than ``minval``, they are ``minval``.

    Args:
        key: A key.
        shape: () for one integer, else the shape of an array.
        minval: An integer of 32 bits with a sign, or an array of them that broadcasts to the shape:
            numbers, or expressions (a real number is rounded towards 0).
        maxval: Another, up to 2**31.

    Returns:
        `int32` expressions; of numbers alone, NumPy's int32.

    Raises:
        InputError: for a number that is no int32.

    Example:
        >>> import symgrad as sg
        >>> sg.random.randint(sg.random.key(0), (5,), 1, 7)
        array([2, 1, 3, 2, 6], dtype=int32)
    """
    first, second = split(key)
    words = bits(first, shape), bits(second, shape)
    limits = _whole(minval, "minval", SIGN), _whole(maxval, "maxval", SIGN + 1)
    integers = map_elements(_integer, *words, *limits)
    expressions = any(map(holds_expressions, (*words, *limits)))
    return integers if expressions else np.asarray(integers, np.int32)[()]


def _whole(limit: Any, name: str, end: int) -> Any:
    """A limit of integers, as one: an expression, Python's, or an array of them.

    Raises:
        InputError: for a number that is none, or too large.
    """
    if holds_expressions(limit):
        return int32(limit)
    values = np.asarray(limit)
    if values.dtype.kind not in "iu" or np.any(values < -SIGN) or np.any(values >= end):
        raise InputError(
            located(f"{name} of sg.random.randint is an integer from -2**31 on, not {limit!r}")
        )
    return values.astype(np.int64)[()]


def _integer(high: Any, low: Any, least: Any, end: Any) -> Any:
    """least + (2**32 high + low) % span, as JAX has it; a span of 2**32 is 0."""
    traced = any(isinstance(e, Handle) for e in (least, end))
    if traced:
        span = call(ops.where, least < end, end - least, 1).bits()
    else:
        span = max(end - least, 1) % 2**BITS
    if traced or span:
        factor = _rest(2 ** (BITS // 2), span)
        factor = _rest(ops.word_mul(factor, factor), span)
        shifted = ops.word_mul(_rest(high, span), factor)
        low = _rest(ops.word_add(shifted, _rest(low, span)), span)
    start = least % 2**BITS if not isinstance(least, Word) else least.bits()
    total = ops.word_add(low, start)
    return SignedWord(total.graph, total.id) if isinstance(total, Handle) else _signed(total)


def _signed(word: int) -> int:
    """The integer with a sign of these 32 bits."""
    return (int(word) ^ SIGN) - SIGN


def _rest(a: Any, b: Any) -> Any:
    """a % b of words."""
    return ops.word_sub(a, ops.word_mul(ops.word_div(a, b), b))


def shape_of(shape: int | tuple[int, ...] | None, *parameters: Any) -> tuple[int, ...]:
    """The shape that is asked for, or that of the parameters, which broadcast to it.

    Raises:
        InputError: if they do not.
    """
    shapes_given = [p.shape if isinstance(p, TracedArray) else plain(p).shape for p in parameters]
    sizes, fits = (), False
    with contextlib.suppress(ValueError):
        common = np.broadcast_shapes(*shapes_given)
        sizes = common if shape is None else sizes_of(shape)
        fits = np.broadcast_shapes(common, sizes) == sizes
    if not fits:
        shapes = ", ".join(map(str, shapes_given))
        raise InputError(located(f"parameters {shapes} do not broadcast to the shape {shape}"))
    return sizes
