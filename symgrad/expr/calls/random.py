"""Random numbers in a kernel, `symgrad.random`: from keys, with JAX's names and JAX's bits.

A key gives the same numbers wherever it is used, so whoever wants others takes another key: by
`split`, or by `fold_in` of what numbers the use, as the counter of a loop or the number of a point.
The bits are those of Threefry-2x32 with 20 rounds, as JAX has them for the same key where its
``jax_threefry_partitionable`` is True, as it is unless set otherwise; they are the same on every
device. Numbers have 23 random bits, as JAX's of float32 have, whatever the kernel's dtype is.

Each point of a batch has a key of its own if what it is made of differs from point to point, as in
``sg.random.key(v[0])`` with a column of whole numbers (in float32 up to 2**24; fold in a second
column beyond). To derivatives a random number is a constant: ``mean + spread * normal(key)`` has
those by ``mean`` and ``spread``.

Example:
    >>> import symgrad as sg
    >>> draw = lambda v: sg.random.normal(sg.random.key(v[0]))
    >>> kernel = sg.fused_forward(1, draw, device="cpu")
    >>> kernel.run([1.0]) == kernel.run([1.0]), kernel.run([1.0]) == kernel.run([2.0])
    (True, False)
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, InputTypeError
from symgrad.expr import ops
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import Handle
from symgrad.expr.graph.place import OnePlace
from symgrad.expr.handles.array import (
    ExprArray,
    TracedArray,
    holds_expressions,
    map_elements,
    swept,
)
from symgrad.expr.handles.casts import uint32
from symgrad.expr.handles.expression import Expr, Scalar
from symgrad.expr.handles.integers import BITS, Word
from symgrad.expr.handles.sweep import LEAST_SWEPT, Sweep, here, index_of

__all__ = ["Key", "bits", "fold_in", "key", "normal", "split", "uniform"]

DIGITS: Final = 23
"""The random bits of a real number."""

_LEAST: Final = -(1.0 - 2.0**-24)
"""The float32 next to -1, where JAX's normal numbers begin."""


@dataclass(frozen=True)
class Key:
    """What random numbers are made from: two integers, of a kernel or of NumPy.

    Loops carry keys, and functions return them, as they do any dataclass.

    Example:
        >>> import symgrad as sg
        >>> key = sg.random.key(42)
        >>> isinstance(key, sg.random.Key), int(key.first), int(key.second)
        (True, 0, 42)
    """

    first: Any
    second: Any


def key(seed: Any) -> Key:
    """The key of a seed.

    Args:
        seed: An integer from -2**31 to 2**64 - 1; or an expression, whose value is a whole number
            from 0 to 2**32 - 1. Seeds from 2**32 on give JAX's keys with ``jax_enable_x64``.

    Raises:
        InputError: for an integer beyond these bounds.
        InputTypeError: for what is no integer.

    Example:
        >>> import symgrad as sg
        >>> draw = lambda v: sg.random.normal(sg.random.key(v[0]))
        >>> sg.fused_forward(1, draw, device="cpu").run([[0.0], [1.0]]).round(3)
        array([ 1.623, -0.154], dtype=float32)
    """
    if isinstance(seed, (Handle, np.ndarray)):
        return Key(np.uint32(0), _word(seed))
    if isinstance(seed, (bool, np.bool_)) or not isinstance(seed, numbers.Integral):
        raise InputTypeError(located(f"a seed is a whole number, not {seed!r}"))
    known = int(seed)
    if not -(2 ** (BITS - 1)) <= known < 2 ** (2 * BITS):
        raise InputError(located(f"a seed is from -2**31 to 2**64 - 1, which {seed} is not"))
    first = 0 if known < 0 else known >> BITS
    return Key(np.uint32(first), np.uint32(known % 2**BITS))


def split(key: Key, num: int | tuple[int, ...] = 2) -> tuple[Any, ...]:
    """So many new keys; of a shape, tuples of tuples of them.

    Example:
        >>> import symgrad as sg
        >>> first, second = sg.random.split(sg.random.key(0))
        >>> second
        Key(first=np.uint32(928981903), second=np.uint32(3453687069))
    """
    shape = _shape(num)
    keys = [_hashed(key, 0, k) for k in range(math.prod(shape))]
    for n in reversed(shape[1:]):
        keys = [tuple(keys[k : k + n]) for k in range(0, len(keys), n)]
    return tuple(keys)


def fold_in(key: Key, data: Any) -> Key:
    """The key that a key and a number give, as the counter of a loop.

    Args:
        key: A key.
        data: An integer of 32 bits; or an expression, whose value is a whole number from 0 on.

    Example:
        >>> import symgrad as sg
        >>> def walk(v):
        ...     key = sg.random.key(0)
        ...     step = lambda k, x: x + sg.random.normal(sg.random.fold_in(key, k))
        ...     return sg.fori_loop(0, 100, step, v[0])
        >>> round(sg.fused_forward(1, walk, device="cpu").run([0.0]), 3)
        -12.851
    """
    return _hashed(key, 0, _word(data))


def bits(key: Key, shape: int | tuple[int, ...] = ()) -> Any:
    """Random integers, `uint32`: one, or an array of them.

    Example:
        >>> import symgrad as sg
        >>> int(sg.random.bits(sg.random.key(0)))
        4070199207
    """
    return _drawn(key, shape, lambda word: word if isinstance(word, Handle) else np.uint32(word))


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
    share = _drawn(key, shape, _fraction)
    if not any(isinstance(m, (Handle, np.ndarray)) for m in (minval, maxval)) and (
        (minval, maxval) == (0, 1)
    ):
        return share
    if not any(map(holds_expressions, (share, minval, maxval))):
        return np.maximum(minval, share * np.subtract(maxval, minval) + minval)
    between = share, minval, maxval
    found = swept(_between, between)
    return map_elements(_between, *between) if found is None else found


def normal(key: Key, shape: int | tuple[int, ...] = ()) -> Any:
    """Random numbers of the normal distribution of mean 0 and variance 1.

    They are what the inverse of its distribution function makes of uniform ones, and agree with
    JAX's but for rounding.

    Example:
        >>> import symgrad as sg
        >>> round(sg.random.normal(sg.random.key(0)), 5)
        1.62264
    """
    return _drawn(key, shape, lambda word: ops.erfinv(_fraction(word) * 2.0 + _LEAST) * _ROOT)


_ROOT: Final = math.sqrt(2.0)


def _fraction(word: Any) -> Any:
    """The leading bits of a word as a number in [0, 1)."""
    return ops.word_float(ops.word_shift_right(word, BITS - DIGITS)) * 2.0**-DIGITS


def _between(share: Any, low: Any, high: Any) -> Any:
    return ops.maximum(low, share * (high - low) + low)


def _drawn(key: Key, shape: int | tuple[int, ...], make: Callable[[Any], Any]) -> Any:
    """What is made of random words; an array of it, unless the shape is ()."""
    _require_key(key)
    sizes, graph = _shape(shape), _graph_of(key)
    count = math.prod(sizes)

    def drawn(k: Any) -> Any:
        word = _hashed(key, 0, k)
        return make(ops.word_xor(word.first, word.second))

    with OnePlace(graph):
        if graph is not None and count >= LEAST_SWEPT:
            one = drawn(Word(graph, index_of(graph, count)))
            if isinstance(one, Expr):
                return TracedArray(Sweep(graph, sizes, count, one, here(graph)))
        made = [drawn(k) for k in range(count)]
    if not sizes:
        return made[0]
    if not any(isinstance(m, Handle) for m in made):
        return np.array(made).reshape(sizes)
    result = np.empty(len(made), dtype=object)
    result[:] = made
    return result.reshape(sizes).view(ExprArray)


def _hashed(key: Key, *block: Any) -> Key:
    """The block of two words under a key, as another key."""
    _require_key(key)
    found = [op(key.first, key.second, *block) for op in (ops.threefry_first, ops.threefry_second)]
    return Key(*[w if isinstance(w, Handle) else np.uint32(w) for w in found])


def _word(value: Any) -> Any:
    """A number as a word: an expression, or NumPy's."""
    if isinstance(value, np.ndarray):
        value = value[()] if value.ndim == 0 else value
    if isinstance(value, Word):
        return value.bits()
    if isinstance(value, Scalar):
        return uint32(value)
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral):
        raise InputTypeError(
            located(f"keys are made of whole numbers, one by one, and not of {value!r}")
        )
    return np.uint32(int(value) % 2**BITS)


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    sizes = shape if isinstance(shape, Sequence) else (shape,)
    if not all(isinstance(n, int | np.integer) and n >= 0 for n in sizes):
        raise InputError(located(f"a shape is of whole numbers, known before, not {shape!r}"))
    return tuple(int(n) for n in sizes)


def _graph_of(key: Key) -> Any:
    found = [w for w in (key.first, key.second) if isinstance(w, Handle)]
    return found[0].graph if found else None


def _require_key(key: Any) -> None:
    if not isinstance(key, Key):
        raise InputTypeError(
            located(f"{key!r} is no key: make one by sg.random.key(seed), and others of it")
        )
