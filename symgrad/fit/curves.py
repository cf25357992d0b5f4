"""The data of many curves, as the columns of rows: x, a weight if there is one, and y."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from symgrad.bridges.cluster import device_here, mapped
from symgrad.bridges.tables import aligned, as_dask_array, by_rows, in_blocks, parts
from symgrad.errors import InputError
from symgrad.expr.graph.node import reachable
from symgrad.expr.graph.rebuild import Copy, rebuild
from symgrad.expr.semantics.evaluate import evaluate_graph
from symgrad.expr.tracers.expression import Expr, Handle, lift
from symgrad.expr.tracing.trace import Trace, trace
from symgrad.kernel.host.memory import ResidentArray
from symgrad.optimize.arguments import one_value, real, require_of_one_x
from symgrad.optimize.method import Weighted, array_of
from symgrad.optimize.result import optimize_result
from symgrad.values.tables import NAN_POLICIES

# --- curves in blocks of Dask ---------------------------------------------------------------------
# Fits of curves that stand in Dask blocks: each block is a task, for any worker.

FIELDS = "x", "fun", "nit", "success", "status"
"""Fields of the result of each curve."""


class TravellingModel:
    """A model ``f(x, *parameters)`` as its expression: it travels without the code it was made by.

    ``k`` is how many numbers x has, or None where it is one number itself.
    """

    def __init__(self, f: Callable[..., Any], k: int | None, n: int) -> None:
        self._k, self.__name__ = k, getattr(f, "__name__", "f")
        first = 1 if k is None else k
        traced = trace(lambda v: f(v[0] if k is None else v[:k], *v[first:]), first + n)
        if len(traced.outputs) != 1:
            raise InputError(f"{self.__name__} returned {len(traced.outputs)} values for one x")
        self._trace: Trace = traced
        positional = inspect.Parameter.POSITIONAL_ONLY
        names = ["x", *(f"p{j}" for j in range(n))]
        self.__signature__ = inspect.Signature([inspect.Parameter(m, positional) for m in names])

    def __call__(self, x: Any, *parameters: Any) -> Any:
        """The model of expressions, or of numbers and arrays, which broadcast."""
        given = [*([x] if self._k is None else x), *parameters]
        graph, inputs, (root,) = self._trace.graph, self._trace.inputs, self._trace.outputs
        handles = [g for g in given if isinstance(g, Handle)]
        if not handles:
            columns = np.broadcast_arrays(*[np.asarray(g, float) for g in given])
            values = {i: c.ravel() for i, c in zip(inputs, columns, strict=True)}
            return evaluate_graph(graph, [root], values)[0].reshape(columns[0].shape)
        target = handles[0].graph
        ids = {i: lift(target, g).id for i, g in zip(inputs, given, strict=True)}
        order = [i for i in reachable(graph, [root]) if i not in ids]
        return Expr(target, rebuild(graph, order, Copy(target, ids)).ids[root])


def fit_blocks(
    fit: Callable[..., Any],
    f: Callable[..., Any],
    x: Any,
    Y: Any,
    p0: np.ndarray,
    options: dict[str, Any],
) -> Any:
    """Results of ``fit``, `fit_many`, for curves in blocks, once they are asked for: Dask arrays.

    p0 is (n,) or (S, n), x and ``sigma`` as for `fit_many`, those of each curve in blocks or not.
    """
    if asked := sorted({"callback", "history", "progress"} & options.keys()):
        raise InputError(
            f"{', '.join(asked)}: curves in blocks are fitted when they are asked for; Dask's own "
            "ProgressBar and dashboard show how far that is"
        )
    seen = as_dask_array(Y)
    if seen.ndim != 2 or np.isnan(seen.shape[1]):
        raise InputError(
            f"Y has shape {seen.shape}: (curves, rows) is needed, with a known number of rows: "
            "compute_chunk_sizes() finds it"
        )
    curves = by_rows(seen)
    rows, n = curves.shape[1], np.shape(p0)[-1]
    own = np.ndim(x) == 3 or in_blocks(x) or (np.ndim(x) == 2 and np.shape(x) == curves.shape)
    like = np.ones((1, *np.shape(x)[1:])) if own else x
    size = np.shape(like)
    k = None if len(size) == 1 or (own and len(size) == 2) else size[len(size) - 2]
    sigma = options.pop("sigma")
    start = np.ones((1, n)) if in_blocks(p0) else np.reshape(p0, (-1, n))[:1]
    if not own:
        require_of_one_x(f, np.asarray(x), start[0])
    one = fit(f, like, np.zeros((1, rows)), start, **options | {"steps": 0})
    names = [*FIELDS, *(["cov"] if options.get("covariance") else [])]
    model, count = TravellingModel(f, k, n), curves.numblocks[0]
    each_x = aligned(x, curves, "x") if own else [x] * count
    starts, spread = _of_each(p0, curves, "p0"), _of_each(sigma, curves, "sigma")
    given = [[(fit, model, names, options)] * count, each_x, parts(curves), starts, spread]
    arrays = mapped(_fitted, given, curves, [np.asarray(one[name]) for name in names])
    result = dict(zip(names, arrays, strict=True))
    return optimize_result(**result, mode=one.mode)


def _of_each(value: Any, like: Any, name: str) -> list[Any]:
    """The part of a value for each block: all of it, unless it has an axis of curves."""
    if in_blocks(value) or (np.ndim(value) == 2 and len(value) != 1):
        return aligned(value, like, name)
    return [value] * like.numblocks[0]


def _fitted(
    how: tuple[Any, Any, Sequence[str], dict[str, Any]], x: Any, Y: Any, p0: Any, sigma: Any
) -> list[np.ndarray]:
    fit, model, names, options = how
    options = options | {"device": device_here(options["device"])}
    result = fit(model, x, Y, p0, sigma=sigma, **options)
    return [np.asarray(result[name]) for name in names]


# --- many curves ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curves:
    """Columns of rows, those shared by all curves (M, ks) first, then each curve's own (S, M, ko).

    1. A row has ``k`` columns of x, a weight if it is ``weights``, and y, which is the last.
    2. ``kept`` is the number of rows that count, a number or (S,): not those of infinite deviation.
    """

    shared: np.ndarray | None
    own: Any
    k: int
    plain: bool
    """Whether the model takes x as one number."""
    weights: bool
    kept: Any
    x_of_first: np.ndarray
    """All x of the first curve, as the model would take them."""

    def residual(self, f: Callable[..., Any]) -> Callable[[Any, Any], Any]:
        """The residual of a row, times its weight."""

        def residual(p: Any, row: Any) -> Any:
            x = row[0] if self.plain else row[: self.k]
            value = one_value(f, x, f(x, *p)) - row[-1]
            return Weighted(value * row[self.k], row[self.k]) if self.weights else value

        return residual

    def at_once(self) -> CurvesAtOnce:
        """These data for a model of all x at once."""
        rows, columns = self.own.shape[1:]
        if columns > 1:
            own = np.swapaxes(self.own, 1, 2).reshape(len(self.own), 1, -1)
        else:
            own = self.own.reshape(len(self.own), 1, rows)
        return CurvesAtOnce(self.shared, own, self, rows)


@dataclass(frozen=True)
class CurvesAtOnce:
    """Data of curves whose model takes all x at once: each curve is one row, with many residuals.

    ``columns`` (M, ks) are what all curves have in common: constants of the model, as x may decide
    how it computes. A row has the other columns of `Curves`, one behind the other.
    """

    columns: np.ndarray | None
    own: Any
    curves: Curves
    rows: int
    shared = None

    @property
    def kept(self) -> Any:
        """The number of values that count."""
        return self.curves.kept

    def residual(self, f: Callable[..., Any]) -> Callable[[Any, Any], Any]:
        """The residuals of a curve, times their weights."""
        curves, rows = self.curves, self.rows
        first = [] if self.columns is None else [*self.columns.T]

        def residual(p: Any, row: Any) -> Any:
            others = [row[k : k + rows] for k in range(0, len(row), rows)]
            *given, y = [*first, *others]
            x = given[0] if curves.plain else np.stack(given[: curves.k])
            values = array_of(f(x, *p)) - y
            if not curves.weights:
                return values
            weight = given[curves.k]
            return np.where(weight == 0.0, 0.0, values * weight)

        return residual


def curves_of(x: Any, y: Any, sigma: Any, nan_policy: str, dtype: str, plain: bool) -> Curves:
    """The curves, with rows that hold NaN as the policy says.

    Raises:
        InputError: for shapes that do not go together, deviations that are not positive, or NaN.
    """
    count, rows = y.shape
    if x.ndim not in (1, 2, 3) or x.shape[-1] != rows or (x.ndim == 3 and len(x) != count):
        raise InputError(
            f"x has shape {x.shape}: (M,), (k, M) or (S, k, M) is needed for Y of shape {y.shape}"
        )
    if nan_policy not in NAN_POLICIES:
        choices = ", ".join(f'"{p}"' for p in NAN_POLICIES)
        raise InputError(f"nan_policy={nan_policy!r}: use one of {choices}")
    x = np.atleast_2d(x)
    weight = _weights(sigma, y, dtype)
    if nan_policy != "propagate":
        x, y, weight = _screened(x, y, weight, nan_policy)
    kept = rows if weight is None else np.count_nonzero(weight, axis=-1)
    parts = [np.swapaxes(x, -2, -1), *([] if weight is None else [weight[..., None]])]
    shared, own = _sorted([*parts, y.reshape(*y.shape, 1)], x.ndim == 2, count)
    first = (x if x.ndim == 2 else x[0]) if count else np.zeros((x.shape[-2], 0))
    return Curves(
        shared, own, x.shape[-2], plain, weight is not None, kept, first[0] if plain else first
    )


def _sorted(parts: list[Any], shares_x: bool, count: int) -> tuple[Any, Any]:
    """The columns of all curves, and of each: in a row those that are shared come first."""
    shared = [p for p in parts if p.ndim == 2]
    if shared and not shares_x:
        shared = []
    own = parts[len(shared) :]
    if len(own) > 1 and isinstance(own[-1], ResidentArray):
        raise InputError("x or sigma of each curve, with Y on a device: use Y.numpy()")
    own = [np.broadcast_to(p, (count, *p.shape[-2:])) if p.ndim == 2 else p for p in own]
    both = np.concatenate(shared, axis=1) if shared else None
    return both, own[0] if len(own) == 1 else np.concatenate(own, axis=2)


def _weights(sigma: Any, y: Any, dtype: str) -> np.ndarray | None:
    """1 / sigma, (M,), or (S, M) where every curve has its own; None if it is not given."""
    if sigma is None:
        return None
    deviations = real(sigma, "sigma", dtype)
    if deviations.shape not in ((), y.shape[1:], y.shape):
        raise InputError(f"sigma has shape {deviations.shape}: a number, (M,) or (S, M) is needed")
    if np.any(deviations <= 0.0):
        raise InputError("sigma holds 0 or a negative number: deviations are positive")
    return np.broadcast_to(1.0 / deviations, y.shape[-max(deviations.ndim, 1) :])


def _screened(x: Any, y: Any, weight: Any, policy: str) -> tuple[Any, Any, Any]:
    """The data with a weight of 0 where a row holds NaN."""
    if isinstance(y, ResidentArray):
        raise InputError(f"nan_policy={policy!r}, with Y on a device: use Y.numpy()")
    bad_x = np.isnan(x).any(axis=-2)
    bad = np.isnan(y) | bad_x | (False if weight is None else np.isnan(weight))
    if not bad.any():
        return x, y, weight
    if policy == "raise":
        curve, row = np.argwhere(bad)[0]
        raise InputError(
            f"{int(bad.sum())} rows hold a NaN, the first is row {row} of curve {curve}: mend "
            'them, or use nan_policy="omit"'
        )
    known = np.ones(y.shape[1], y.dtype) if weight is None else weight
    zero, empty = np.zeros((), y.dtype), bad.all(axis=1, keepdims=True)  # which have no fit
    weight = np.where(bad & ~empty, zero, known)
    y = np.where(empty, y.dtype.type(np.nan), np.where(bad, zero, y))
    return _filled(x, bad_x), y, weight


def _filled(x: np.ndarray, bad: np.ndarray) -> np.ndarray:
    """x with the first that is no NaN in the place of others: the model has a value there."""
    first = np.argmin(bad, axis=-1)[..., None, None]
    return np.where(bad[..., None, :], np.take_along_axis(x, first, axis=-1), x)
