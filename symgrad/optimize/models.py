"""Models as users write them: starts and bounds by names, and whether one is of a single x."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, SymgradError, TraceError
from symgrad.expr.graph.place import describe
from symgrad.optimize.arguments import parameters_of, real, start_within
from symgrad.optimize.method import array_of

ROWS_COMPARED: Final = 8
"""Rows at which the model is compared with its values for all x."""


def names_of(f: Callable[..., Any], count: int) -> list[str]:
    """The names of a model's parameters behind x; p0, p1, .. of one that takes any number."""
    parameters = list(inspect.signature(f).parameters.values())
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return [f"p{k}" for k in range(count)]
    return [p.name for p in parameters[1:] if p.kind is not inspect.Parameter.KEYWORD_ONLY][:count]


def in_order(f: Callable[..., Any], p0: Any, bounds: Any) -> tuple[Any, Any]:
    """Starts and bounds that are given by names as arrays, in the order of the parameters.

    What is not named starts where SciPy would start it, and has no bounds. A bound of None is none.

    Raises:
        InputError: for a name that the model has no parameter of.
    """
    if not isinstance(p0, Mapping) and not isinstance(bounds, Mapping):
        return p0, bounds
    names = names_of(f, parameters_of(f))
    if isinstance(bounds, Mapping):
        pairs = zip(names, _by_name(names, bounds, "bounds", (None, None)), strict=True)
        ends = np.array([_ends(name, pair) for name, pair in pairs])
        bounds = ends[:, 0], ends[:, 1]
    if isinstance(p0, Mapping):
        low, high = (-np.inf, np.inf) if bounds is None else sides_of(bounds)
        sides = (np.broadcast_to(np.asarray(side, float), len(names)) for side in (low, high))
        starts = start_within(*sides)
        values = [_by_name([n], p0, "p0", s, names)[0] for n, s in zip(names, starts, strict=True)]
        starts = [real(v, f"p0[{n!r}]") for n, v in zip(names, values, strict=True)]
        p0 = np.stack(np.broadcast_arrays(*starts), axis=-1)
    return p0, bounds


def one_value(f: Callable[..., Any], x: Any, value: Any) -> Any:
    """The value of a model at one x.

    Raises:
        TraceError: if it is several.
    """
    if np.ndim(array_of(value)):
        raise TraceError(
            f"{describe(f)} returned {np.size(array_of(value))} values for one x: one is needed; "
            f"it was given x of shape {np.shape(x)}"
        )
    return value


def sides_of(bounds: Any) -> Any:
    """``(low, high)``, also of SciPy's ``Bounds``."""
    return (bounds.lb, bounds.ub) if hasattr(bounds, "lb") else bounds


def _ends(name: str, pair: Any) -> tuple[float, float]:
    """A parameter's bounds as numbers; None is none."""
    try:
        low, high = pair
        return -np.inf if low is None else float(low), np.inf if high is None else float(high)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"bounds[{name!r}] is {pair!r}: (low, high) is needed, two numbers for all fits, or "
            "None for no bound"
        ) from error


def _by_name(
    names: Sequence[str],
    given: Mapping[str, Any],
    what: str,
    default: Any,
    known: Sequence[str] | None = None,
) -> list[Any]:
    unknown = sorted(set(given) - set(known or names))
    if unknown:
        raise InputError(
            f"{what} names {', '.join(map(repr, unknown))}: the model has "
            f"{', '.join(known or names)}"
        )
    return [given.get(name, default) for name in names]


def is_of_one_x(f: Callable[..., Any], x: np.ndarray, p: np.ndarray) -> bool | None:
    """Whether the values of a model for all x of a curve are those for each alone.

    None if numbers do not tell, as it is not a model of numbers or is not finite.
    """
    places = np.unique(np.linspace(0, x.shape[-1] - 1, ROWS_COMPARED).astype(int)) if x.size else []
    with np.errstate(all="ignore"):
        try:
            whole = np.asarray(f(x, *p), float)
            each = np.asarray([np.squeeze(f(x[..., k], *p)) for k in places], float)
        except (SymgradError, TypeError, ValueError, IndexError, AttributeError):
            return None  # not a model of numbers: tracing will tell
    if whole.shape != x.shape[-1:] or each.shape != (len(places),):
        return None
    scale = np.abs(whole).max(initial=0.0)
    if not np.isfinite(whole).all():
        return None
    return np.allclose(each, whole[places], 1e-4, 1e-4 * scale)


def require_of_one_x(f: Callable[..., Any], x: np.ndarray, p: np.ndarray) -> None:
    """Refuse a model of which the values for all x of a curve are others than for each alone."""
    if is_of_one_x(f, x, p) is False:
        raise InputError(
            f"{describe(f)} gives other values for all x together than for each alone, and is "
            "traced for one x: compute what depends on all of x, such as its mean, outside of it"
        )
