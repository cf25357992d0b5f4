"""Random numbers by rejection: of the Poisson and the gamma distribution, as JAX has them."""

from __future__ import annotations

import math
from typing import Any, Final

from symgrad.expr import ops
from symgrad.expr.calls.draws import fraction, normal, shape_of, uniform
from symgrad.expr.calls.keys import Key, each, hashed, split, word_at
from symgrad.expr.loops.control import while_loop
from symgrad.expr.loops.quadrature import quad
from symgrad.expr.tracers.functions import custom_vjp

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
