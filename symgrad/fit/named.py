"""Parameters of a model by their names: starts and bounds as users write them, in order."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from symgrad.errors import InputError
from symgrad.optimize.arguments import parameters_of, start_within


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
        pairs = _by_name(names, bounds, "bounds", (None, None))
        low = np.array([-np.inf if a is None else a for a, _ in pairs], float)
        high = np.array([np.inf if b is None else b for _, b in pairs], float)
        bounds = low, high
    if isinstance(p0, Mapping):
        low, high = (-np.inf, np.inf) if bounds is None else bounds
        sides = (np.broadcast_to(np.asarray(side, float), len(names)) for side in (low, high))
        starts = start_within(*sides)
        found = [_by_name([n], p0, "p0", s, names)[0] for n, s in zip(names, starts, strict=True)]
        p0 = np.stack(np.broadcast_arrays(*[np.asarray(v, float) for v in found]), axis=-1)
    return p0, bounds


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
