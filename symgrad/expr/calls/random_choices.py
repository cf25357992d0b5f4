"""Random categories, orders and elements of keys, as JAX has them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError
from symgrad.expr import ops
from symgrad.expr.calls.draws import gumbel, randint, uniform
from symgrad.expr.calls.keys import Key, of_words, require_key, sizes_of, split, word_at
from symgrad.expr.calls.numpy_choices import exchanges, take
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import Handle
from symgrad.expr.loops.control import fori_loop
from symgrad.expr.tracers.array import (
    ExprArray,
    TracedArray,
    array,
    call,
    holds_expressions,
    in_memory,
    plain,
)
from symgrad.expr.tracers.casts import int32, uint32
from symgrad.expr.tracers.expression import Expr
from symgrad.expr.tracers.integers import BITS, SignedWord

SORTED: Final = 64
"""Up to so many elements a permutation by keys that are expressions is written out."""


def categorical(
    key: Key, logits: Any, axis: int = -1, shape: int | tuple[int, ...] | None = None
) -> Any:
    """Random categories, 0 to k - 1, whose probabilities are ``softmax(logits)``.

    Category i is drawn where ``logits[i]`` plus a number of Gumbel's distribution is largest.

    Args:
        key: A key.
        logits: The logarithms of the probabilities, up to a constant: numbers or expressions.
        axis: The axis along which these are the categories of one distribution.
        shape: The shape of the result, whose last axes are those of the logits without ``axis``;
            those are its shape by default.

    Returns:
        `int32` expressions; of numbers alone, NumPy's int32.

    Raises:
        InputError: for a shape that ends in other axes.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> sg.random.categorical(sg.random.key(0), np.log([0.1, 0.2, 0.7]), shape=(8,))
        array([1, 2, 2, 1, 2, 2, 2, 2], dtype=int32)
    """
    scores_given = logits if isinstance(logits, TracedArray) else plain(logits)
    if not scores_given.ndim or not -scores_given.ndim <= axis < scores_given.ndim:
        raise InputError(located(f"logits {scores_given.shape} have no axis {axis} of categories"))
    at = axis % scores_given.ndim - scores_given.ndim
    batch = tuple(n for k, n in enumerate(scores_given.shape) if k != axis % scores_given.ndim)
    sizes = batch if shape is None else sizes_of(shape)
    lead = sizes[: len(sizes) - len(batch)]
    if sizes != (*lead, *batch):
        raise InputError(
            located(f"categories of logits {scores_given.shape} have shapes that end in {batch}")
        )
    drawn_shape = list(sizes)
    drawn_shape.insert(len(sizes) + 1 + at, scores_given.shape[at])
    noise = gumbel(key, tuple(drawn_shape))
    if not holds_expressions(noise) and not holds_expressions(scores_given):
        return np.argmax(noise + scores_given, axis=at).astype(np.int32)[()]
    scores = noise + (
        scores_given if isinstance(scores_given, TracedArray) else array(scores_given)
    )
    if isinstance(scores, TracedArray) and scores.ndim == 1:
        return _largest_in_memory(scores)
    lines = np.moveaxis(plain(scores), at, -1)
    categories = np.empty(lines.shape[:-1], object)
    for index in np.ndindex(categories.shape):
        categories[index] = _largest(list(lines[index]))
    return array(categories)[()]


def _largest(scores: Sequence[Any]) -> Any:
    """Which of some expressions is largest, the first of equals."""
    best, at = scores[0], int32(0 * scores[0])
    for k, score in enumerate(scores[1:], 1):
        above = ops.lt(best, score)
        best, at = ops.where(above, score, best), call(ops.where, above, k, at)
    return at


def _largest_in_memory(scores: TracedArray) -> Any:
    def step(k: Any, carry: Any) -> Any:
        best, at = carry
        above = ops.lt(best, scores[k])
        return ops.where(above, scores[k], best), call(ops.where, above, k, at)

    return int32(fori_loop(1, scores.size, step, (scores[0], 0.0 * scores[0]))[1])


def permutation(key: Key, x: Any, axis: int = 0, independent: bool = False) -> Any:
    """What there is along an axis in random order: as JAX, by sorting random words.

    Args:
        key: A key.
        x: An array, or an integer n for the numbers 0 to n - 1.
        axis: The axis along which the order is another.
        independent: Whether each line along the axis has an order of its own.

    Returns:
        An array like x; for an integer under a key that is an expression, one of `int32`.

    Example:
        >>> import symgrad as sg
        >>> sg.random.permutation(sg.random.key(0), 10)
        array([0, 1, 8, 5, 6, 4, 3, 2, 7, 9], dtype=int32)
    """
    require_key(key)
    if np.ndim(x) == 0:
        (n,) = sizes_of(x)
        return _order(key, n, n, lambda subkey, k: word_at(subkey, k))
    sizes = x.shape if isinstance(x, TracedArray) else np.shape(plain(x))
    n, at = sizes[axis], axis % len(sizes)
    if not independent or len(sizes) == 1:
        return _taken(x, permutation(key, n), at)
    lines = np.moveaxis(plain(x).astype(object), at, -1).copy()
    places = np.moveaxis(np.arange(math.prod(sizes)).reshape(sizes), at, -1)
    for index in np.ndindex(lines.shape[:-1]):
        own = places[index]
        order = _order(key, n, math.prod(sizes), functools.partial(_word_of, own))
        lines[index] = plain(take(lines[index], order))
    permuted = np.moveaxis(lines, -1, at)
    traced = any(isinstance(v, Handle) for v in permuted.flat)
    return array(permuted) if traced else permuted.astype(plain(x).dtype)


def _taken(x: Any, order: Any, axis: int) -> Any:
    """The elements of an array in this order along an axis."""
    numbers = not holds_expressions(x) and not holds_expressions(order)
    return np.take(x, order, axis) if numbers else take(x, order, axis=axis)


def _word_of(places: np.ndarray, key: Key, k: Any) -> Any:
    """The random word of an array's element, by where it stands in a line."""
    step = int(places[1] - places[0]) if len(places) > 1 else 1
    return word_at(key, of_words(ops.word_add, of_words(ops.word_mul, k, step), int(places[0])))


WordAt = Callable[[Key, Any], Any]


def _order(key: Key, n: int, size: int, word: WordAt) -> Any:
    """The numbers 0 to n - 1 in random order, sorted as often as JAX does ``size`` elements."""
    rounds = math.ceil(3 * math.log(max(1, size)) / math.log(2**BITS - 1))
    order: Any = np.arange(n, dtype=np.int32)
    for _ in range(rounds):
        key, subkey = split(key)
        if not isinstance(subkey.first, Handle):
            order = order[np.argsort(word(subkey, np.arange(n, dtype=np.uint32)), kind="stable")]
        elif n <= SORTED:
            order = _sorted(order, [word(subkey, k) for k in range(n)])
        else:
            order = _sorted_in_memory(order, functools.partial(word, subkey))
    return int32(order) if isinstance(order, TracedArray) else order


def _before(word: Any, other: Any, k: Any, m: Any) -> Any:
    """Whether the word at k comes before the other one at m: in a stable order."""
    return ops.logical_or(
        ops.word_lt(word, other), ops.logical_and(ops.word_eq(word, other), ops.word_lt(k, m))
    )


def _sorted(order: Any, words: list[Any]) -> Any:
    """The order by the words, in a network of exchanges."""
    values = order if isinstance(order, ExprArray) else [int(v) for v in order]
    rows = [(w, w.number(k), w.same(v)) for k, (w, v) in enumerate(zip(words, values, strict=True))]
    for i, j in exchanges(len(rows)):
        first, second = rows[i], rows[j]
        turned = _before(second[0], first[0], second[1], first[1])
        both = list(zip(first, second, strict=True))
        rows[i] = tuple(ops.word_where(turned, b, a) for a, b in both)
        rows[j] = tuple(ops.word_where(turned, a, b) for a, b in both)
    return array([SignedWord(v.graph, v.id) for _, _, v in rows])


def _sorted_in_memory(order: Any, word: Callable[[Any], Any]) -> Any:
    """The order by the words: each goes where so many come before it."""
    graph = word(0).graph
    zero = Expr(graph, graph.constant(0.0))
    order_in_memory = in_memory(graph, order)

    def place(k: Any, permutation: Any) -> Any:
        at, own = uint32(k), word(uint32(k))

        def count(m: Any, total: Any) -> Any:
            other = uint32(m)
            return total + ops.where(_before(word(other), own, other, at), 1.0, 0.0)

        return permutation.at[fori_loop(0, len(order), count, zero)].set(order_in_memory[k])

    return fori_loop(0, len(order), place, array([zero] * len(order)))


def choice(
    key: Key,
    a: Any,
    shape: int | tuple[int, ...] = (),
    replace: bool = True,
    p: Any = None,
    axis: int = 0,
) -> Any:
    """Elements of an array by chance.

    Args:
        key: A key.
        a: An array, or an integer n for the numbers 0 to n - 1.
        shape: () for one element, else the shape of what takes the place of the axis.
        replace: Whether an element may be taken more than once.
        p: The probabilities of the elements (n,), numbers or expressions; all the same by default.
        axis: The axis along which elements are taken.

    Returns:
        An array of elements, or one; for an integer, of `int32`.

    Raises:
        InputError: for more elements than there are, each being taken once, and for probabilities
            that are not as many as elements.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> sg.random.choice(sg.random.key(0), 5, (8,), p=np.array([0.1, 0.2, 0.3, 0.15, 0.25]))
        array([0, 0, 3, 2, 2, 4, 3, 2], dtype=int32)
    """
    sizes = sizes_of(shape)
    n = sizes_of(a)[0] if np.ndim(a) == 0 else plain(a).shape[axis]
    count = math.prod(sizes)
    if not n or (not replace and count > n):
        raise InputError(located(f"{count} elements cannot be chosen from {n}, each once at most"))
    if p is not None and plain(p).shape != (n,):
        raise InputError(located(f"probabilities {plain(p).shape} are not one for each of {n}"))
    if p is None:
        order = randint(key, sizes, 0, n) if replace else permutation(key, n)[:count]
    else:
        order = _with_replacement(key, sizes, p) if replace else _without(key, n, count, p)
    if not sizes and np.ndim(order):
        order = order[0]
    elif np.ndim(order):
        order = order.reshape(sizes)
    return order if np.ndim(a) == 0 else _taken(a, order, axis)


def _with_replacement(key: Key, sizes: tuple[int, ...], p: Any) -> Any:
    """The index where the sum of probabilities reaches a uniform number."""
    sums = np.cumsum(array(p) if holds_expressions(p) else np.asarray(p, np.float64))
    reached = sums[-1] * (1.0 - uniform(key, sizes))
    if not holds_expressions(reached):
        return np.searchsorted(sums, reached).astype(np.int32)[()]
    return int32(sum(call(ops.where, call(ops.lt, s, reached), 1.0, 0.0) for s in sums[:-1]))


def _without(key: Key, n: int, count: int, p: Any) -> Any:
    """The indices of the largest numbers of Gumbel's distribution (Kool and others, 2019)."""
    scores = gumbel(key, (n,)) + call(ops.log, p)
    if not holds_expressions(scores):
        return np.argsort(-scores, kind="stable")[:count].astype(np.int32)
    chosen, left = list[Any](), list(plain(scores))
    for _ in range(count):
        at = _largest(left)
        chosen.append(at)
        left = [ops.where(at == k, -math.inf, s) for k, s in enumerate(left)]
    return array(chosen)
