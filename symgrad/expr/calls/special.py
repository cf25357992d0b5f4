"""SciPy's special functions of expressions: those that are no single operation, and its ufuncs."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import Graph, Handle, Whole
from symgrad.expr.semantics.evaluate import evaluate_graph
from symgrad.expr.tracers import functions
from symgrad.expr.tracers.along import balanced
from symgrad.expr.tracers.array import ExprArray, call, holds_expressions, map_elements, plain
from symgrad.expr.tracers.expression import Expr


def polygamma(n: int, x: Any) -> Any:
    """The n-th derivative of digamma, of any constant order n >= 0.

    Takes expressions, arrays of them, or numbers.

    Raises:
        TraceError: if n is not a whole number >= 0 that is known when f is traced.

    Example:
        >>> import symgrad as sg
        >>> x = sg.var("x")
        >>> round(sg.evaluate(sg.polygamma(1, x), {x: 1.0}), 6)
        1.644934
    """
    if isinstance(n, Handle) or int(n) != n or n < 0:
        raise TraceError(located("sg.polygamma(n, x) takes a constant whole number n >= 0"))
    if n < len(ops.POLYGAMMA):
        return call(ops.POLYGAMMA[int(n)], x)
    return _of_rows(functools.partial(ops.high_polygamma, int(n)), x)


def betaln(a: Any, b: Any) -> Any:
    """log(|B(a, b)|) of the beta function, as SciPy has it: -inf at inf, inf at 0.

    Takes expressions, arrays of them, or numbers, and broadcasts as NumPy does. For a, b > 0 it is
    right to a few ULP, however large they are; next to its zeros to 4 ULP of 1, which is four times
    what half a ULP of the arguments changes. Of derivatives by one argument only the absolute error
    is small where the other is small.

    Example:
        >>> import symgrad as sg
        >>> a, b = sg.symbols("a b")
        >>> round(sg.evaluate(sg.betaln(a, b), {a: 0.5, b: 1e9}), 6)
        -9.789268
    """
    return _of_rows(ops.log_beta, a, b)


def zeta(x: Any, q: Any = None) -> Any:
    """The sum of (k + q)**-x over k >= 0: Riemann's zeta function, or with a q Hurwitz's.

    Takes expressions, arrays of them, or numbers, and broadcasts as NumPy does. It has derivatives
    of all orders by both. Errors are a few ULP; where both are large about x/4 ULP, as the rounding
    of q + k counts x times, and far below 0 about |x| ULP, as that of x does.

    Args:
        x: The exponent: inf at 1. Below, Riemann's function is its continuation to all real numbers
            (SciPy's ``zeta(x)``), and Hurwitz's, with a q, NaN.
        q: The first term's base: inf at 0, NaN below.

    Example:
        >>> import symgrad as sg
        >>> x = sg.var("x")
        >>> y = sg.zeta(x)
        >>> [round(float(v), 6) for v in sg.evaluate([y, sg.grad(y, x)], {x: 2.0})]
        [1.644934, -0.937548]
    """
    if q is None:
        return _of_rows(ops.riemann_zeta, x)
    return _of_rows(ops.hurwitz_zeta, x, q)


def wofz(x: Any, y: Any) -> tuple[Any, Any]:
    """The real and the imaginary part of the Faddeeva function at x + iy, y >= 0.

    It is w(z) = exp(-z**2)*erfc(-i*z), SciPy's function of complex numbers. Takes expressions,
    arrays of them, or numbers, and broadcasts as NumPy does. Both parts are right to 7 ULP, however
    small one is beside the other, and have derivatives of all orders by both arguments; where y is
    negative they are NaN: 2*exp(-z**2) less the function at -z. On the real axis the parts are
    exp(-x**2) and 2/sqrt(pi) times Dawson's integral, ``sg.dawsn(x)``; ``sg.voigt_profile(x, sigma,
    gamma)`` is the profile of spectral lines.

    Example:
        >>> import symgrad as sg
        >>> x, y = sg.symbols("x y")
        >>> [round(float(v), 6) for v in sg.evaluate(list(sg.wofz(x, y)), {x: 1.0, y: 0.5})]
        [0.354900, 0.342872]
    """
    return _of_rows(ops.faddeeva_real, x, y), _of_rows(ops.faddeeva_imag, x, y)


def _of_rows(function: Callable[..., Any], *arguments: Any) -> Any:
    """A function of rows: of expressions, of arrays of them, or with no expression of numbers."""
    if any(isinstance(a, Handle) for a in arguments):
        return map_elements(function, *arguments)
    if any(map(holds_expressions, arguments)):
        return map_elements(functools.partial(_of_rows, function), *arguments)
    numbers = np.broadcast_arrays(*[np.asarray(a, np.float64) for a in arguments])
    graph = Graph()
    variables = [Expr(graph, graph.input(f"x{k}")) for k in range(len(numbers))]
    given = {v.id: n.ravel() for v, n in zip(variables, numbers, strict=True)}
    values = evaluate_graph(graph, [function(*variables).id], given)[0]
    return np.reshape(values, numbers[0].shape)[()]


def logsumexp(a: Any, axis: Any = None, b: Any = None, keepdims: bool = False) -> Any:
    """log(sum(b*exp(a))) without overflow, as SciPy has it.

    Takes arrays of expressions or numbers. The largest element is not exponentiated, so that a
    small sum of the others keeps its digits. Differences of elements are rounded as usual.

    Args:
        a: the exponents.
        axis: the axis, or axes, to sum along; all by default.
        b: factors that broadcast against a.
        keepdims: whether these axes stay, with length 1.

    Example:
        >>> import symgrad as sg
        >>> kernel = sg.fused_forward(3, sg.logsumexp)
        >>> round(kernel.run([1000.0, 1000.0, 999.0]), 3)
        1000.862
    """
    if isinstance(a, Whole):
        return a.functions["logsumexp"](a, axis, b, keepdims)
    if b is None:
        return _along(lambda line: [_log_sum(line)], a, axis, keepdims)
    a, b = np.broadcast_arrays(plain(a), plain(b))
    pairs = np.empty(a.shape, dtype=object)
    pairs.reshape(-1)[:] = list(zip(a.flat, b.flat, strict=True))
    return _along(lambda line: [_log_weighted_sum(line)], pairs, axis, keepdims)


def softmax(x: Any, axis: Any = None) -> Any:
    """exp(x)/sum(exp(x)) without overflow: probabilities, as SciPy has them.

    Takes arrays of expressions or numbers; the sum is along an axis, or several, or all.

    Example:
        >>> import symgrad as sg
        >>> kernel = sg.fused_forward(3, lambda v: list(sg.softmax(v)))
        >>> [round(p, 3) for p in kernel.run([1000.0, 1000.0, 999.0])]
        [0.422, 0.422, 0.155]
    """
    if isinstance(x, Whole):
        return x.functions["softmax"](x, axis)
    return _along(_softmax, x, axis)


def log_softmax(x: Any, axis: Any = None) -> Any:
    """x - log(sum(exp(x))), the logarithm of `softmax`, which keeps its digits at 0 and 1.

    Takes arrays of expressions or numbers; the sum is along an axis, or several, or all.

    Example:
        >>> import symgrad as sg
        >>> kernel = sg.fused_forward(2, lambda v: list(sg.log_softmax(v)))
        >>> [round(p, 3) for p in kernel.run([1000.0, 0.0])]
        [0.0, -1000.0]
    """
    if isinstance(x, Whole):
        return x.functions["log_softmax"](x, axis)
    return _along(_log_softmax, x, axis)


Line = Sequence[Any]


def _along(
    function: Callable[[Line], list[Any]], a: Any, axis: Any, keepdims: bool | None = None
) -> Any:
    """A function of the elements along one or several axes, or all of them.

    Its results take the places of these elements, or, where ``keepdims`` is not None, there is one.
    """
    a = plain(a)
    axes = range(a.ndim) if axis is None else np.atleast_1d(np.asarray(axis))
    axes = sorted({int(k) % a.ndim for k in axes}) if a.ndim else []
    order = [k for k in range(a.ndim) if k not in axes] + axes
    moved = a.transpose(order)
    lines = moved.reshape([*moved.shape[: a.ndim - len(axes)], -1])
    results = np.empty((*lines.shape[:-1], lines.shape[-1] if keepdims is None else 1), object)
    for index in np.ndindex(lines.shape[:-1]):
        results[index] = function(list(lines[index]))
    if keepdims is None:
        results = results.reshape(moved.shape).transpose(np.argsort(order))
    elif keepdims:
        results = np.expand_dims(results[..., 0], axes)
    else:
        results = results[..., 0]
    if not any(isinstance(v, Handle) for v in results.flat):
        return results.astype(np.float64)[()]
    return results.view(ExprArray) if results.ndim else results[()]


def _largest(line: Line) -> tuple[Any, Any]:
    """The largest element, a constant to differentiation, and the same but 0 where not finite."""
    largest = functions.stop_gradient(balanced(functions.maximum, list(line)))
    return largest, functions.where(functions.isfinite(largest), largest, 0.0)


def _others(line: Line, largest: Any, shift: Any) -> Any:
    """The sum of exp(v - shift) less 1, which is what one of the largest elements gives.

    The terms of the largest are 0, but have their derivatives: these elements are counted.
    """
    terms, ones = [], []
    for v in line:
        ones.append(functions.where(v == largest, 1.0, 0.0))
        terms.append(functions.exp(v - shift) - ones[-1])
    return balanced(operator.add, terms) + (balanced(operator.add, ones) - 1.0)


def _log_sum(line: Line) -> Any:
    largest, shift = _largest(line)
    return shift + functions.log1p(_others(line, largest, shift))


def _log_weighted_sum(line: Line) -> Any:
    _, shift = _largest([v for v, _ in line])
    terms = [w * functions.exp(v - shift) for v, w in line]
    return shift + functions.log(balanced(operator.add, terms))


def _softmax(line: Line) -> list[Any]:
    _, shift = _largest(line)
    terms = [functions.exp(v - shift) for v in line]
    inverse = functions.reciprocal(balanced(operator.add, terms))
    return [t * inverse for t in terms]


def _log_softmax(line: Line) -> list[Any]:
    largest, shift = _largest(line)
    rest = functions.log1p(_others(line, largest, shift))
    return [(v - shift) - rest for v in line]


# Ufuncs of scipy.special with expressions, by their names: SciPy is not imported for it.


def _of_order(name: str, functions: Mapping[int, Callable[[Any], Any]]) -> Callable[..., Any]:
    """A function f(n, x) that there is for some orders n."""

    def called(n: Any, x: Any) -> Any:
        if isinstance(n, Handle) or n not in functions:
            orders = " and ".join(map(str, functions))
            raise TraceError(
                located(f"scipy.special.{name}(n, x) is defined for n = {orders} only")
            )
        return functions[int(n)](x)

    return called


def _i0(x: Any) -> Any:
    """The modified Bessel function I_0(x)."""
    return ops.i0e(x) * ops.exp(ops.abs(x))


def _i1(x: Any) -> Any:
    """The modified Bessel function I_1(x)."""
    return ops.i1e(x) * ops.exp(ops.abs(x))


def _k0(x: Any) -> Any:
    """The modified Bessel function K_0(x)."""
    return ops.k0e(x) * ops.exp(-x)


def _k1(x: Any) -> Any:
    """The modified Bessel function K_1(x)."""
    return ops.k1e(x) * ops.exp(-x)


def _second_kind(name: str, scaled: bool) -> Callable[..., Any]:
    """A function f(n, x) that is K_n(x), or that times exp(x), of a constant order."""

    def called(n: Any, x: Any) -> Any:
        if isinstance(n, Handle) or (name == "kn" and n != int(n)):
            kind = "whole number" if name == "kn" else "number"
            raise TraceError(located(f"scipy.special.{name}(n, x) takes a constant {kind} n"))
        value = ops.scaled_bessel_k(abs(float(n)), x)
        return value if scaled else value * ops.exp(-x)

    return called


# --- polynomials ----------------------------------------------------------------------------------

Step = Callable[[int, Any, Any, Any], Any]


def _polynomial(name: str, first: Callable[[Any], Any], step: Step) -> Callable[..., Any]:
    """Orthogonal polynomials p_n(x) by the recurrence p_(k + 1) = step(k, x, p_k, p_(k - 1))."""

    def called(n: Any, x: Any) -> Any:
        if isinstance(n, Handle) or n != int(n) or n < 0:
            remedy = "takes a constant whole number n >= 0"
            raise TraceError(located(f"scipy.special.{name}(n, x) {remedy}"))
        before, value = 1.0, first(x)
        for k in range(1, int(n)):
            before, value = value, step(k, x, value, before)
        return value if n else 0.0 * x + 1.0

    return called


POLYNOMIALS: Final[dict[str, Callable[..., Any]]] = {
    name: _polynomial(name, first, step)
    for name, first, step in (
        (
            "eval_legendre",
            lambda x: x,
            lambda k, x, p, q: ((2 * k + 1) * (x * p) - k * q) * (1.0 / (k + 1)),
        ),
        ("eval_chebyt", lambda x: x, lambda k, x, p, q: 2.0 * (x * p) - q),
        ("eval_chebyu", lambda x: 2.0 * x, lambda k, x, p, q: 2.0 * (x * p) - q),
        ("eval_hermite", lambda x: 2.0 * x, lambda k, x, p, q: 2.0 * (x * p) - 2 * k * q),
        ("eval_hermitenorm", lambda x: x, lambda k, x, p, q: x * p - k * q),
        (
            "eval_laguerre",
            lambda x: 1.0 - x,
            lambda k, x, p, q: ((2 * k + 1 - x) * p - k * q) * (1.0 / (k + 1)),
        ),
    )
}


# --- losses and transformations -------------------------------------------------------------------


def _rel_entr(x: Any, y: Any) -> Any:
    """x log(x/y), 0 where x is 0, inf where an argument is negative or y is 0."""
    outside = ops.logical_or(x < 0.0, ops.logical_or(y < 0.0, ops.logical_and(y <= 0.0, x > 0.0)))
    return ops.where(outside, np.inf, ops.xlogy(x, x / ops.where(y <= 0.0, 1.0, y)))


def _kl_div(x: Any, y: Any) -> Any:
    return _rel_entr(x, y) - x + y


def _pseudo_huber(delta: Any, r: Any) -> Any:
    """delta**2 (sqrt(1 + (r/delta)**2) - 1), without the difference."""
    if not isinstance(delta, Expr):
        limit = np.inf if delta < 0 else 0.0
        return _squared(r, r * (1.0 / delta)) if delta > 0 else ops.where(ops.isnan(r), r, limit)
    positive = delta > 0.0
    value = _squared(r, r / ops.where(positive, delta, 1.0))
    return ops.where(positive, value, ops.where(delta < 0.0, np.inf, 0.0 * delta))


def _squared(r: Any, share: Any) -> Any:
    return r * r / (1.0 + ops.sqrt(1.0 + share * share))


def _power_of(name: str, at_zero: Callable[[Any], Any], other: Callable[[Any, float], Any]) -> Any:
    """A transformation f(x, lambda) with a constant lambda, whose form at 0 is another."""

    def called(x: Any, power: Any) -> Any:
        if isinstance(power, Handle):
            raise TraceError(located(f"scipy.special.{name}(x, lmbda) takes a constant lmbda"))
        return other(x, float(power)) if power else at_zero(x)

    return called


TRANSFORMATIONS: Final[dict[str, Callable[..., Any]]] = {
    "boxcox": _power_of("boxcox", ops.log, lambda x, p: ops.expm1(p * ops.log(x)) / p),
    "boxcox1p": _power_of("boxcox1p", ops.log1p, lambda x, p: ops.expm1(p * ops.log1p(x)) / p),
    "inv_boxcox": _power_of("inv_boxcox", ops.exp, lambda y, p: ops.exp(ops.log1p(p * y) / p)),
    "inv_boxcox1p": _power_of(
        "inv_boxcox1p", ops.expm1, lambda y, p: ops.expm1(ops.log1p(p * y) / p)
    ),
}

# --- the table ------------------------------------------------------------------------------------

SCIPY: Final[Mapping[str, Callable[..., Any]]] = {
    **{op.name: op for op in ops.TABLE.values() if op.scipy},
    "expit": ops.sigmoid,
    "psi": ops.digamma,
    "betaln": ops.log_beta,
    "zeta": lambda x, q=None: ops.riemann_zeta(x) if q is None else ops.hurwitz_zeta(x, q),
    "log_expit": lambda x: -ops.softplus(-x),
    "i0": _i0,
    "i1": _i1,
    "jv": _of_order("jv", {0: ops.j0, 1: ops.j1}),
    "ive": _of_order("ive", {0: ops.i0e, 1: ops.i1e}),
    "iv": _of_order("iv", {0: _i0, 1: _i1}),
    "k0": _k0,
    "k1": _k1,
    "kn": _second_kind("kn", scaled=False),
    "kv": _second_kind("kv", scaled=False),
    "kve": _second_kind("kve", scaled=True),
    "rel_entr": _rel_entr,
    "kl_div": _kl_div,
    "pseudo_huber": _pseudo_huber,
    **POLYNOMIALS,
    **TRANSFORMATIONS,
}
"""The ufuncs of scipy.special, for expressions."""

UNDERNEATH: Final = {"_riemann_zeta": "zeta", "_zeta": "zeta"}
"""Ufuncs that functions of scipy.special call, which are none themselves."""

INSTEAD: Final[Mapping[str, str]] = {
    "loggamma": "gammaln(x), its real part",
    "rgamma": "1 / sg.gamma(x)",
    "beta": "np.exp(sg.betaln(a, b))",
    "binom": "np.exp(-sg.betaln(1 + n - k, 1 + k)) / (n + 1) for 0 <= k <= n",
    "poch": "np.exp(gammaln(x + m) - gammaln(x)) for positive x and m",
    "exp10": "10.0**x",
    "exprel": "np.expm1(x) / x",
    "cosm1": "-2 * np.sin(x / 2)**2",
    "wofz": "sg.wofz(x, y), the real and the imaginary part at x + iy",
}
"""Expressions to write instead of ufuncs of scipy.special that are none of these."""
