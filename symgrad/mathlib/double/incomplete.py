"""The incomplete gamma functions: nodes and coefficients for float64."""

from __future__ import annotations

from typing import Final

from symgrad.expr import ops
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.bits import coefficients
from symgrad.mathlib.double import gamma
from symgrad.mathlib.incomplete import (
    Digits,
    bend_by_shape,
    density,
    growth,
    lower_gamma,
    odd_powers,
    slope_by_shape,
    upper_gamma,
)

NODES: Final = coefficients("""
    0.0514718425553177 0.10285265289355884 0.15386991360858354 0.1017623897484055
    0.25463692616788985 0.09959342058679527 0.3527047255308781 0.09636873717464425
    0.44703376953808915 0.09212252223778612 0.5366241481420199 0.08689978720108298
    0.6205261829892429 0.08075589522942021 0.6978504947933158 0.0737559747377052 0.7677774321048262
    0.06597422988218049 0.8295657623827684 0.057493156217619065 0.8825605357920527
    0.04840267283059405 0.9262000474292743 0.03879919256962705 0.9600218649683075
    0.02878470788332337 0.9836681232797472 0.01846646831109096 0.9968934840746495
    0.007968192496166605
""")
"""Of Gauss and Legendre's rule of 30 points."""

GAMMA_REST: Final = coefficients("""
    -0.22754614909448398 0.519769093086738 -0.20991127879685506 0.20523294846419043
    -0.12117517884212457 0.08730425308059132 -0.05738789833884933 0.03877192581334334
    -0.025868644809886595 0.01729239559373204 -0.011539644488846328 0.0076990104020599635
    -0.005136118215391594 0.0034249777542579244 -0.002274046570145637 0.001516173959934893
    -0.0010570491372045622 0.0007047223299158959 -0.0003321019677235948 0.00022140488320616052
    -0.0003795576668044037 0.0002530391774479295
""")
"""(Gamma(1 + f) - 1)/f in f - 1/2, 0 <= f <= 1: to 0.4 * 2**-53, by Chebyshev polynomials."""

LN2: Final = (0.6931471803691238, 1.9082149288430703e-10, 4.275175589747649e-20)
"""ln 2 in parts of 32 bits, of which an exponent is an exact multiple."""


def _power(x: Expr) -> Expr:
    return ops.scalb(Expr(x.graph, x.graph.constant(1.0)), ops.exponent(x))


DOUBLE: Final = Digits(
    NODES, 39.0, 5, growth(18), odd_powers(11), GAMMA_REST, gamma.STIRLING,
    gamma.HARMONIC, LN2, 19,
    (2.0**-1022, 54.0), 2.0**120, 32768.0, _power,
)  # fmt: skip


def gammainc(a: Expr, x: Expr) -> Expr:
    """Its density times a series and an integral, or 1 less that of the upper function."""
    return lower_gamma(a, x, DOUBLE)


def gammaincc(a: Expr, x: Expr) -> Expr:
    """Its density times an integral, or 1 less the lower function; a series for a, x < 1."""
    return upper_gamma(a, x, DOUBLE)


def gammainc_slope(a: Expr, x: Expr) -> Expr:
    """The density of the integral times its terms' derivatives, by the same nodes."""
    return slope_by_shape(a, x, DOUBLE)


def gammainc_bend(a: Expr, x: Expr) -> Expr:
    """The density of the integral times its terms' second derivatives, by the same nodes."""
    return bend_by_shape(a, x, DOUBLE)


def gamma_density(a: Expr, x: Expr) -> Expr:
    """The exponential of the deviance in two parts."""
    return density(a, x, DOUBLE)
