"""Fits of curves that stand in Dask blocks: each block is a task, for any worker."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from symgrad.bridges.cluster import device_here, mapped
from symgrad.bridges.tables import aligned, array_of, by_rows, in_blocks, parts
from symgrad.errors import InputError
from symgrad.expr.graph.node import reachable
from symgrad.expr.graph.rebuild import Copy, rebuild
from symgrad.expr.semantics.evaluate import evaluate_graph
from symgrad.expr.tracers.expression import Expr, Handle, lift
from symgrad.expr.tracing.trace import Trace, trace
from symgrad.optimize.models import require_of_one_x
from symgrad.optimize.result import optimize_result

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
    seen = array_of(Y)
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
