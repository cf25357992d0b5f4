"""Keys of random numbers, and the numbers that they give, with JAX's names and bits.

Each key is two words; Threefry-2x32 makes the random words of it. A number is made of one or two.
"""

from __future__ import annotations

import contextlib
import math
import numbers
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, InputTypeError
from symgrad.expr import ops
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import Graph, Handle, Op
from symgrad.expr.graph.place import OnePlace
from symgrad.expr.tracers.array import (
    ExprArray,
    TracedArray,
    call,
    holds_expressions,
    in_memory,
    map_elements,
    plain,
    swept,
)
from symgrad.expr.tracers.expression import Scalar
from symgrad.expr.tracers.functions import int32, uint32
from symgrad.expr.tracers.integers import BITS, SIGN, SignedWord, Word
from symgrad.expr.tracers.memory import LEAST_SWEPT, Sweep, index_of, innermost_body

# Keys, and their words.


@dataclass(frozen=True)
class Key:
    """A key, from which random numbers are made: two integers, of a kernel or of NumPy.

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
    integer = int(seed)
    if not -(2 ** (BITS - 1)) <= integer < 2 ** (2 * BITS):
        raise InputError(located(f"a seed is between -2**31 and 2**64 - 1, not {seed}"))
    first = 0 if integer < 0 else integer >> BITS
    return Key(np.uint32(first), np.uint32(integer % 2**BITS))


def split(key: Key, num: int | tuple[int, ...] = 2) -> tuple[Any, ...]:
    """So many new keys; of a shape, tuples of tuples of them.

    Example:
        >>> import symgrad as sg
        >>> first, second = sg.random.split(sg.random.key(0))
        >>> second
        Key(first=np.uint32(928981903), second=np.uint32(3453687069))
    """
    shape = sizes_of(num)
    keys = [hashed(key, 0, k) for k in range(math.prod(shape))]
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
    return hashed(key, 0, _word(data))


def bits(key: Key, shape: int | tuple[int, ...] = ()) -> Any:
    """Random integers, `uint32`: one, or an array of them.

    Example:
        >>> import symgrad as sg
        >>> int(sg.random.bits(sg.random.key(0)))
        4070199207
    """
    return drawn(key, shape, lambda word: word if isinstance(word, Handle) else np.uint32(word))


def drawn(key: Key, shape: int | Sequence[int], make: Callable[[Any], Any]) -> Any:
    """A number made of random words; an array of such, unless the shape is ()."""
    return each(key, shape, lambda k: make(word_at(key, k)))


def word_at(key: Key, k: Any) -> Any:
    """The random word k of a key."""
    block = hashed(key, 0, k)
    return of_words(ops.word_xor, block.first, block.second)


def of_words(op: Op, *words: Any) -> Any:
    """An operation on words, of which some may be arrays of NumPy's."""
    if any(isinstance(w, np.ndarray) for w in words):
        return op.reference(*[np.asarray(w, np.uint32) for w in words])
    return op(*words)


def each(key: Key, shape: int | Sequence[int], make: Callable[..., Any], *parameters: Any) -> Any:
    """make(k, *elements) for each index k of an array: of parameters, which broadcast to it.

    A long array under a key that is an expression is made by a loop.
    """
    require_key(key)
    sizes, graph = sizes_of(shape), _graph_of(key, *parameters)
    count = math.prod(sizes)
    with OnePlace(graph):
        if graph is not None and count >= LEAST_SWEPT:
            elements = [_at_any_index(graph, p, sizes) for p in parameters]
            one = make(Word(graph, index_of(graph, count)), *elements)
            if isinstance(one, Scalar):
                return TracedArray(Sweep(graph, sizes, count, one, innermost_body(graph)))
        rows = [np.broadcast_to(plain(p), sizes).reshape(-1) for p in parameters]
        results = [make(k, *[row[k] for row in rows]) for k in range(count)]
    if not sizes:
        return results[0]
    if not any(isinstance(m, Handle) for m in results):
        return np.array(results).reshape(sizes)
    elements = np.empty(len(results), dtype=object)
    elements[:] = results
    return elements.reshape(sizes).view(ExprArray)


def _at_any_index(graph: Graph, a: Any, sizes: tuple[int, ...]) -> Any:
    """The element of a parameter at the index that stands for all."""
    if isinstance(a, Handle) or np.ndim(a) == 0:
        return a
    if not isinstance(a, TracedArray) or a.shape != sizes:
        a = in_memory(graph, np.broadcast_to(plain(a), sizes))
    return a.element()


def hashed(key: Key, *block: Any) -> Key:
    """The block of two words under a key, as another key."""
    require_key(key)
    rows = ops.threefry_first, ops.threefry_second
    words = [of_words(op, key.first, key.second, *block) for op in rows]
    return Key(*[w if isinstance(w, Handle) else np.uint32(w) for w in words])


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
            located(f"a key is made from whole numbers, one at a time, not from {value!r}")
        )
    return np.uint32(int(value) % 2**BITS)


def sizes_of(shape: int | Sequence[int]) -> tuple[int, ...]:
    """A shape, of which a number is one axis.

    Raises:
        InputError: if it is not of whole numbers, or not known before there are values.
    """
    sizes = shape if isinstance(shape, Sequence) else (shape,)
    if not all(isinstance(n, int | np.integer) and n >= 0 for n in sizes):
        raise InputError(
            located(
                f"a shape consists of whole numbers that are known while tracing, not {shape!r}"
            )
        )
    return tuple(int(n) for n in sizes)


def _graph_of(key: Key, *parameters: Any) -> Graph | None:
    """The graph of expressions among the words of a key and the elements of parameters."""
    operands = [key.first, key.second, *(e for p in parameters for e in _elements(p))]
    return next((e.graph for e in operands if isinstance(e, Handle)), None)


def _elements(a: Any) -> Iterable[Any]:
    return [a.element()] if isinstance(a, TracedArray) else plain(a).flat


def require_key(key: Any) -> None:
    """Raise the error of what is no key.

    Raises:
        InputTypeError: if it is none.
    """
    if not isinstance(key, Key):
        raise InputTypeError(
            located(
                f"{key!r} is not a key: sg.random.key(seed) makes one, and sg.random.split others"
            )
        )


# Random numbers of keys.

DIGITS: Final = 23
"""The random bits of a real number."""

_LEAST: Final = -(1.0 - 2.0**-24)
"""The float32 next to -1, where JAX's normal numbers begin."""

_TINY: Final = 2.0**-126
"""The least normal float32, which JAX takes instead of 0 for Gumbel's distribution."""

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
