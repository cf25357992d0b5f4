"""Robust losses of residuals, traced: what outliers count, in SciPy's words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from symgrad.errors import InputError
from symgrad.expr.tracers import functions

Rho = Callable[[Any], tuple[Any, Any]]
"""rho(z) and rho'(z) of the square z of a residual in units of ``f_scale``."""


def _linear(z: Any) -> tuple[Any, Any]:
    return z, 1.0


def _huber(z: Any) -> tuple[Any, Any]:
    root = functions.sqrt(functions.maximum(z, 1.0))
    return functions.where(z <= 1.0, z, 2.0 * root - 1.0), 1.0 / root


def _soft_l1(z: Any) -> tuple[Any, Any]:
    root = functions.sqrt(1.0 + z)
    return 2.0 * z / (1.0 + root), 1.0 / root


def _cauchy(z: Any) -> tuple[Any, Any]:
    return functions.log1p(z), 1.0 / (1.0 + z)


def _arctan(z: Any) -> tuple[Any, Any]:
    return functions.atan(z), 1.0 / (1.0 + z * z)


LOSSES: Final[dict[str, Rho]] = {
    "linear": _linear,
    "huber": _huber,
    "soft_l1": _soft_l1,
    "cauchy": _cauchy,
    "arctan": _arctan,
}
"""The losses of ``scipy.optimize.least_squares``. All except the first bend down: rho'' < 0."""


def require_loss(loss: Any) -> None:
    """Refuse what is none of the losses."""
    if not isinstance(loss, str) or loss not in LOSSES:
        names = ", ".join(f'"{name}"' for name in LOSSES)
        raise InputError(f"loss={loss!r}: use one of {names}")


def robust(loss: str, scale: float, r: Any) -> tuple[Any, Any]:
    """A residual's loss ``scale² rho((r / scale)²)``, and its weight rho' in Jᵀr and in JᵀJ.

    With this weight the quadratic model is above the loss everywhere if residuals are linear, so
    that its steps lead down, however many rows are outliers: least squares reweighted again and
    again (Holland and Welsch, 1977, "Robust regression using iteratively reweighted least
    squares").
    """
    if loss == "linear":
        return r * r, 1.0
    scaled = r * (1.0 / scale)
    rho, slope = LOSSES[loss](scaled * scaled)
    return (scale * scale) * rho, slope
