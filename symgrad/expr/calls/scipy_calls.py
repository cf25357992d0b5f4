"""Ufuncs of scipy.special with expressions, by their names: SciPy is not imported for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import Handle
from symgrad.expr.tracers.expression import Expr


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
"""What ufuncs of scipy.special are."""

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
"""What to write for ufuncs of scipy.special that are none of these."""
