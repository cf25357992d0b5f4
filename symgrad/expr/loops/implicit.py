"""Roots and fixed points: derivatives by the implicit function theorem, however they were found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, UnsupportedError
from symgrad.expr import ops
from symgrad.expr.derivatives.differentiate import deriving, vjp
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import Graph, Handle, Op, reachable, real_number
from symgrad.expr.graph.place import OnePlace, describe
from symgrad.expr.graph.region import Region, close, hole
from symgrad.expr.laws.fuse import copied
from symgrad.expr.loops.control import while_loop
from symgrad.expr.loops.open_loop import Nest, flattened, graph_among
from symgrad.expr.tracers.along import reduce
from symgrad.expr.tracers.array import ExprArray, array, map_elements
from symgrad.expr.tracers.expression import Expr, lift
from symgrad.expr.tracers.tree import flatten

MOST_STEPS: Final = 1000
"""Steps that a fixed point may take to converge."""


def custom_root(f: Callable[[Any], Any], init: Any, solve: Callable[..., Any]) -> Any:
    """The root x of ``f(x) = 0`` that ``solve(f, init)`` finds, with the derivatives of the root.

    What ``solve`` does is not differentiated: by the implicit function theorem the derivatives of
    x by what f closes over are those of -f, divided by the Jacobian of f at x, of every order. So
    they cost as much as a single step of Newton's, and are as exact as the root. By ``init`` they
    are 0.

    Args:
        f: Gives as many numbers as x has, nested as they are. What it closes over are numbers, or
            arrays of expressions, but no arrays that a loop has written to.
        init: Where to begin: a number, an array, or a dict, list, tuple or dataclass of such.
        solve: Called with f and ``init``; returns x, nested as ``init``: see `while_loop`.

    Returns:
        The root, nested as ``init``.

    Raises:
        TraceError: if f or solve gives something else than numbers nested as ``init``.
        UnsupportedError: if f closes over an array in memory.

    Example:
        >>> import symgrad as sg
        >>> def newton(f, x):
        ...     def step(x):
        ...         y = f(x)
        ...         return x - y / sg.grad(y, x)
        ...     return sg.while_loop(lambda x: abs(f(x)) > 1e-12, step, x, max_steps=50)
        >>> a = sg.var("a")
        >>> root = sg.custom_root(lambda x: x * x - a, 1.5, newton)
        >>> sg.evaluate(sg.array([root, sg.grad(root, a)]), {a: 4.0})
        array([2.  , 0.25])
    """
    graph = graph_among(init) or graph_among(f(init))
    if graph is None:
        return solve(f, init)
    _, nest = flattened(graph, init, "the first guess")
    nest = replace(nest, kinds=tuple("f" * block.size for block in nest.tree.blocks))
    first = nest.wrap(graph, nest.ids(graph, init, "the first guess"))
    values = nest.ids(graph, solve(f, first), f"what {describe(solve)} returns")
    residual = _residual(graph, f, nest)
    with OnePlace(graph):
        return nest.wrap(graph, residual.roots(graph, values))


def fixed_point(
    f: Callable[[Any], Any], init: Any, tol: float = 1e-6, max_steps: int = MOST_STEPS
) -> Any:
    """The x for which ``f(x) = x``, by taking f again and again, with the derivatives of that x.

    It ends when no number changes by more than ``tol`` times itself, or times 1 if it is less.
    How it came there is not differentiated: see `custom_root`.

    Args:
        f: Gives the next x, nested as the last one; it may close over expressions.
        init: The first x.
        tol: How much x may change in the last step; float32 has 1e-7 at best.
        max_steps: The most steps; where it has not ended after these, x is NaN.

    Returns:
        The last x, nested as ``init``.

    Raises:
        InputError: for a tolerance that is not positive. For others see `custom_root`.

    Example:
        >>> import symgrad as sg
        >>> a = sg.var("a")
        >>> root = sg.fixed_point(lambda x: 0.5 * (x + a / x), 1.0)
        >>> sg.evaluate(sg.array([root, sg.grad(root, a)]), {a: 4.0})
        array([2.  , 0.25])
    """
    if not real_number(tol) > 0:
        raise InputError(located(f"a tolerance is positive, not {tol!r}"))

    def iterated(_: Any, first: Any) -> Any:
        def going(pair: Any) -> Any:
            return _differ(pair[0], pair[1], tol)

        return while_loop(going, lambda pair: (pair[1], f(pair[1])), (first, f(first)), max_steps)[
            1
        ]

    return custom_root(lambda x: _minus(f(x), x), init, iterated)


def _minus(after: Any, before: Any) -> Any:
    """The difference of two nests, one as the other is."""
    first, tree = flatten(after)
    pairs = zip(first, flatten(before)[0], strict=True)
    return tree.nest((array(a)[()] - array(b)[()] for a, b in pairs), None)


def _differ(a: Any, b: Any, tol: float) -> Any:
    """Whether any number of one nest is further from that of another than it may be; NaN is not."""
    pairs = zip(flatten(a)[0], flatten(b)[0], strict=True)
    far = [map_elements(_further, np.asarray(x), np.asarray(y), tol) for x, y in pairs]
    return reduce(ops.logical_or, np.concatenate([np.ravel(np.asarray(f)) for f in far]))


def _further(x: Any, y: Any, tol: float) -> Any:
    return ops.abs(y - x) > tol * ops.maximum(ops.abs(y), 1.0)


def _residual(graph: Graph, f: Callable[[Any], Any], nest: Nest) -> _Residual:
    """The result of f as a function of the unknowns and of the expressions that it closes over."""
    with OnePlace(graph):
        unknowns = [hole(graph, "f", name=f"x{k}") for k in range(len(nest.types))]
    yields = nest.ids(graph, f(nest.wrap(graph, unknowns)), f"what {describe(f)} returns")
    inner = set(unknowns)
    for i in reachable(graph, yields, unknowns[0]):
        if not inner.isdisjoint(graph.args(i)):
            inner.add(i)
    with OnePlace(graph):
        region, captures = close(graph, unknowns, yields, capture=lambda i: i not in inner)
    if not set(region.types(region.params)) <= set("fbu"):
        raise UnsupportedError(
            located(
                f"{describe(f)}: a root of what closes over an array in memory has no derivatives "
                "yet; give it the array's elements, as a NumPy array of expressions"
            )
        )
    return _Residual(region, len(unknowns), tuple(captures))


@dataclass(frozen=True, eq=False)
class _Residual:
    """The residual that vanishes at a root: a region of the unknowns and of ``captures``."""

    region: Region
    count: int
    captures: tuple[int, ...]

    def roots(self, graph: Graph, values: Sequence[int]) -> list[int]:
        """The nodes of the root that has these values."""
        return [
            graph.add(row, values[k], *values, *self.captures) for k, row in enumerate(self._rows)
        ]

    @cached_property
    def _rows(self) -> list[Op]:
        """For each unknown the row that is its first argument, and whose derivatives are its own.

        Its arguments are the value of the unknown, those of all unknowns, and the captures.
        """
        kinds = self.region.types(self.region.params)
        return [
            Op(
                name="root",
                signature=f"f{kinds}->f",
                cost=0,
                transparent=True,
                meaning="the first argument, with the derivatives of a root",
                reference=lambda x, *_: x,
                partials=self._partials(k),
            )
            for k in range(self.count)
        ]

    def _partials(self, k: int) -> Callable[..., Sequence[Any]]:
        """The rule of derivatives of unknown k, by the implicit function theorem."""

        def partials(y: Expr, _: Any, *arguments: Handle) -> Sequence[Any]:
            graph, n = y.graph, self.count
            ids = [a.id for a in arguments]
            root = [graph.add(row, ids[j], *ids) for j, row in enumerate(self._rows)]
            values = dict(zip(self.region.params, [*root, *ids[n:]], strict=True))
            slopes = iter(copied(graph, self._slopes[k], values))
            mine = [Expr(graph, next(slopes)) if moves else None for moves in self._moves]
            return [*[None] * (n + 1), *mine]

        return partials

    @cached_property
    def _moves(self) -> list[bool]:
        """Which captures the root depends on."""
        return [
            any(row[q] is not None for row in self._jacobian[2]) for q in range(len(self.captures))
        ]

    @cached_property
    def _slopes(self) -> list[Region]:
        """The derivatives of each unknown by what it depends on: -J^-1 F."""
        graph, by_unknowns, by_captures = self._jacobian
        moving = [q for q, moves in enumerate(self._moves) if moves]
        with deriving(graph):
            matrix = _matrix(graph, by_unknowns)
            sides = _matrix(graph, [[row[q] for q in moving] for row in by_captures])
            slopes = np.linalg.solve(matrix, -sides) if moving else np.zeros((self.count, 0))
            yields = [[lift(graph, x).id for x in row] for row in slopes]
        return [Region(graph, self.region.params, tuple(ids)) for ids in yields]

    @cached_property
    def _jacobian(self) -> tuple[Graph, Entries, Entries]:
        """The derivatives of each residual, by the unknowns and by the captures."""
        graph, n = self.region.copy(), self.count
        one, params = graph.constant(1.0), self.region.params
        rows = [vjp(graph, {r: one}, params) for r in self.region.yields]
        return graph, [row[:n] for row in rows], [row[n:] for row in rows]


Entries = list[list[int | None]]
"""A matrix of nodes, None where it is structurally 0."""


def _matrix(graph: Graph, entries: Entries) -> ExprArray:
    """The entries as a matrix of expressions."""
    matrix = np.zeros((len(entries), len(entries[0])), dtype=object)
    for place, i in zip(np.ndindex(matrix.shape), [i for row in entries for i in row], strict=True):
        matrix[place] = 0.0 if i is None else Expr(graph, i)
    return matrix.view(ExprArray)
