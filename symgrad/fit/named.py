"""Parameters of a model by their names: starts and bounds as users write them, in order."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from symgrad.errors import InputError
from symgrad.optimize.arguments import parameters_of, real, start_within


def names_of(f: Callable[..., Any], count: int) -> list[str]:
    """The names of a model's parameters behind x; p0, p1, .. of one that takes any number."""
    found = list(inspect.signature(f).parameters.values())
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in found):
        return [f"p{k}" for k in range(count)]
    return [p.name for p in found[1:] if p.kind is not inspect.Parameter.KEYWORD_ONLY][:count]


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
        found = [_by_name([n], p0, "p0", s, names)[0] for n, s in zip(names, starts, strict=True)]
        starts = [real(v, f"p0[{n!r}]") for n, v in zip(names, found, strict=True)]
        p0 = np.stack(np.broadcast_arrays(*starts), axis=-1)
    return p0, bounds


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
