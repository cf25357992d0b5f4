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

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError
from symgrad.expr import ops
from symgrad.expr.calls.compositions import take
from symgrad.expr.calls.draws import (
    Key,
    bernoulli,
    bits,
    each,
    exponential,
    fold_in,
    fraction,
    gumbel,
    hashed,
    key,
    normal,
    of_words,
    randint,
    require_key,
    shape_of,
    sizes_of,
    split,
    uniform,
    word_at,
)
from symgrad.expr.calls.numpy_functions import exchanges
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import Handle
from symgrad.expr.loops.control import fori_loop, while_loop
from symgrad.expr.loops.quadrature import quad
from symgrad.expr.tracers.array import (
    ExprArray,
    TracedArray,
    array,
    call,
    holds_expressions,
    in_memory,
    plain,
)
from symgrad.expr.tracers.expression import Expr
from symgrad.expr.tracers.functions import custom_vjp, int32, uint32
from symgrad.expr.tracers.integers import BITS, SignedWord

__all__ = [
    "Key",
    "bernoulli",
    "bits",
    "categorical",
    "choice",
    "exponential",
    "fold_in",
    "gamma",
    "gumbel",
    "key",
    "normal",
    "permutation",
    "poisson",
    "randint",
    "split",
    "uniform",
]


def __dir__() -> list[str]:
    return sorted(__all__)


# Random categories, orders and elements of keys, as JAX has them.

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
    """The elements along an axis in random order: as JAX, by sorting random words.

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


# Random numbers by rejection: of the Poisson and the gamma distribution, as JAX has them.

STEPS: Final = 200
"""More than any of these loops takes: that one takes so many has a probability below 1e-50."""


def poisson(key: Key, lam: Any, shape: int | tuple[int, ...] | None = None) -> Any:
    """Random numbers of the Poisson distribution.

    They are whole numbers, as real ones: `symgrad.int32` makes integers of them. They agree with
    JAX's, whose algorithms these are (Knuth's below 10, Hoermann's transformed rejection beyond),
    but where a rounding decides.

    Args:
        key: A key.
        lam: The mean, not negative, or an array of them: numbers or expressions.
        shape: The shape of the result, to which ``lam`` broadcasts; by default that of ``lam``.

    Returns:
        An expression or an array of them; of numbers alone, numbers. NaN for a mean that is
        negative or NaN.

    Example:
        >>> import symgrad as sg
        >>> sg.random.poisson(sg.random.key(0), 4.0, (6,))
        array([0., 1., 5., 5., 2., 2.])
    """
    sizes = shape_of(shape, lam)
    return each(key, sizes, lambda k, mean: _poisson(key, k, ops.stop_gradient(mean)), lam)


def _poisson(key: Key, k: Any, mean: Any) -> Any:
    """Element k: of two loops one takes no step."""
    small = ops.logical_not(ops.le(10.0, mean))  # NaN too
    few = _knuth(key, k, ops.where(small, mean, 0.0))
    many = _hoermann(key, k, small, ops.where(small, 1e5, mean))
    value = ops.where(mean == 0.0, 0.0, ops.where(small, few, many))
    return ops.where(mean >= 0.0, value, math.nan)


def _knuth(key: Key, k: Any, mean: Any) -> Any:
    """How many uniform numbers have a product above exp(-mean) (Knuth, TAOCP 2, 3.4.1)."""

    def step(carry: Any) -> Any:
        key, count, log = carry
        key, subkey = split(key)
        return key, count + 1.0, log + ops.log(fraction(word_at(subkey, k)))

    init = key, 0.0 * mean, 0.0 * mean
    return while_loop(lambda carry: carry[2] > -mean, step, init, STEPS)[1] - 1.0


def _hoermann(key: Key, k: Any, done: Any, mean: Any) -> Any:
    """Hoermann, 1993, "The transformed rejection method for generating Poisson random variables".

    What is compared with the distribution is not the logarithm, whose terms cancel for a large
    mean, but the probability itself, a density of the gamma distribution.
    """
    b = 0.931 + 2.53 * ops.sqrt(mean)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    surely = 0.9277 - 3.6224 / (b - 2.0)

    def step(carry: Any) -> Any:
        key, _, _ = carry
        key, first, second = split(key, 3)
        u, v = fraction(word_at(first, k)) - 0.5, fraction(word_at(second, k))
        apart = 0.5 - ops.abs(u)
        count = ops.floor((2.0 * a / apart + b) * u + mean + 0.43)
        share = v * inverse_alpha / (a / (apart * apart) + b)
        likely = share <= ops.gamma_density(ops.maximum(count, 0.0) + 1.0, mean)
        refused = ops.logical_or(count < 0.0, ops.logical_and(apart < 0.013, v > apart))
        taken = ops.logical_and(apart >= 0.07, v <= surely)
        taken = ops.logical_or(taken, ops.logical_and(ops.logical_not(refused), likely))
        return key, count, taken

    init = key, -1.0 + 0.0 * mean, done
    return while_loop(lambda carry: ops.logical_not(carry[2]), step, init, STEPS)[1]


def gamma(key: Key, a: Any, shape: int | tuple[int, ...] | None = None) -> Any:
    """Random numbers of the gamma distribution of shape a and scale 1.

    They agree with JAX's, whose algorithm this is (Marsaglia and Tsang, 2000, "A simple method for
    generating gamma variables"), but where a rounding decides. Derivatives by ``a``, of the first
    order, are those of the number that has the same share of the distribution below it
    (Figurnov and others, 2018, "Implicit reparameterization gradients").

    Args:
        key: A key.
        a: The shape parameter, positive, or an array of them: numbers or expressions.
        shape: The shape of the result, to which ``a`` broadcasts; by default that of ``a``.

    Returns:
        An expression or an array of them; of numbers alone, numbers. NaN where ``a`` is not
        positive.

    Example:
        >>> import symgrad as sg
        >>> draw = lambda v: sg.random.gamma(sg.random.key(0), v[0])
        >>> value, slope = sg.fused_forward_backward(1, draw, device="cpu").run([2.5])
        >>> round(value, 4), round(float(slope[0]), 4)
        (2.0788, 0.9728)
    """
    return each(key, shape_of(shape, a), lambda k, shape: _gamma_of(hashed(key, 0, k))(shape), a)


def _gamma_of(key: Key) -> Any:
    """The function from a shape to a random number, with its derivative."""
    return custom_vjp(
        lambda a: ops.stop_gradient(_marsaglia_tsang(key, ops.stop_gradient(a))),
        lambda g, x, a: (g * _slope_by_shape(a, x),),
    )


def _marsaglia_tsang(key: Key, a: Any) -> Any:
    """d v of a cube v of a normal number, refused by chance; for a < 1 of a + 1, times a power."""
    usable = ops.lt(0.0, a)
    shape = ops.where(usable, a, 1.0)
    large = shape >= 1.0
    d = ops.where(large, shape, shape + 1.0) - 1.0 / 3.0
    c = (1.0 / 3.0) / ops.sqrt(d)

    def draw(carry: Any) -> Any:
        key, subkey = split(carry[0])
        x = normal(subkey)
        return key, x, 1.0 + x * c

    def refused(carry: Any) -> Any:
        _, square, v, u = carry
        surely = u < 1.0 - 0.0331 * (square * square)
        log = 0.5 * square + d * ((1.0 - v) + ops.log(v))
        return ops.logical_not(ops.logical_or(surely, ops.log(u) < log))

    def step(carry: Any) -> Any:
        key, inner, last = split(carry[0], 3)
        first = draw((inner, 0.0, 0.0))
        _, x, v = while_loop(lambda carry_in: carry_in[2] <= 0.0, draw, first, STEPS)
        return key, x * x, v * (v * v), uniform(last)

    key, boost = split(key)
    zero = 0.0 * shape
    v = while_loop(refused, step, (key, zero, zero + 1.0, zero + 2.0), STEPS)[2]
    power = ops.pow(1.0 - uniform(boost), 1.0 / ops.where(large, 1.0, shape))
    return ops.where(usable, d * v * ops.where(large, 1.0, power), math.nan)


def _slope_by_shape(a: Any, x: Any) -> Any:
    """Minus the distribution function's derivative by its shape over its density.

    That is an integral over log t below log x, or above, as its whole is 0: in u = |log(t/x)| both
    are of what is positive where they are taken.
    """
    below = x < a
    sign = ops.where(below, -1.0, 1.0)
    apart = sign * (ops.log(x) - ops.digamma(a))

    def integrand(u: Any) -> Any:
        change = ops.expm1(sign * u)
        return (apart + u) * ops.exp(sign * (a * u) - x * change)

    return x * quad(integrand, 0.0, math.inf, epsabs=0.0, epsrel=1e-7)[0]
