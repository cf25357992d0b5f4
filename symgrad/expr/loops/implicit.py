"""Roots and fixed points: derivatives by the implicit function theorem, however they were found."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, UnsupportedError
from symgrad.expr import ops
from symgrad.expr.derivatives.differentiate import deriving, vjp
from symgrad.expr.graph.arrays import DETACHED, ArrayRule
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import Graph, Handle, reachable, real_number
from symgrad.expr.graph.place import OnePlace, describe
from symgrad.expr.graph.region import Region, close, hole
from symgrad.expr.laws.fuse import copied
from symgrad.expr.loops.control import while_loop
from symgrad.expr.loops.open_loop import Nest, flattened, graph_among
from symgrad.expr.tracers.along import reduce
from symgrad.expr.tracers.array import ExprArray, array, map_elements
from symgrad.expr.tracers.expression import WRAP, Expr
from symgrad.expr.tracers.memory import Array, array_of
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
        real, others = ([self.captures[q] for q in places] for places in self._captured)
        x = DETACHED(array_of(graph, [Expr(graph, i) for i in values]))
        p = array_of(graph, [Expr(graph, i) for i in real] or [0.0])
        root = self.rule(x, p, *(WRAP[graph.type(i)](graph, i) for i in others))
        return [root[k].id for k in range(self.count)]

    @cached_property
    def _captured(self) -> tuple[list[int], list[int]]:
        """The places of the captures that are real numbers, and of all others."""
        kinds = self.region.types(self.region.params[self.count :])
        places = range(len(kinds))
        return [q for q in places if kinds[q] == "f"], [q for q in places if kinds[q] != "f"]

    @cached_property
    def rule(self) -> _RootRule:
        """The row of the root: an array of its values, the real captures, and the others."""
        kinds = self.region.types(self.region.params[self.count :])
        return _RootRule(
            name="root",
            signature=f"FF{''.join(kinds[q] for q in self._captured[1])}->F",
            reference=lambda x, *_: np.array(x),
            transparent=True,
            meaning="the first argument, with the derivatives of a root",
            vjp=self._pulled,
            push=self._pushed,
            home=__name__,
            residual=self,
        )

    def _pulled(self, g: Array, root: Array, _: Array, *captures: Any) -> Any:
        """The cotangents of the captures: ``-F.T @ z`` where ``J.T @ z == g``.

        J and F are the derivatives of the residual by the unknowns and by the captures. Where
        nothing comes back nothing is handed on, even if the root is not finite.
        """
        by_unknowns, by_captures = self._derivatives(root, *captures)
        back = [g[k] for k in range(self.count)]
        with deriving(g.graph):
            z = np.linalg.solve(by_unknowns.T, array(back))
            is_taken = functools.reduce(ops.logical_or, [~(b == 0.0) for b in back])
            sums = [_product(column, z) for column in by_captures.T]
            bars = [ops.where(is_taken, -s, 0.0) if isinstance(s, Expr) else 0.0 for s in sums]
        return None, array_of(g.graph, bars or [0.0]), *[None] * (len(captures) - 1)

    def _pushed(self, root: Array, _: Array, *captures: Any) -> Array:
        """The tangent of the root: ``-x`` where ``J @ x`` is F times that of the captures."""
        middle = (len(captures) - 1) // 2
        by_unknowns, by_captures = self._derivatives(root, *captures[:middle])
        change = captures[middle + 1]
        assert change is not None, "of the arguments only real captures change"
        with deriving(root.graph):
            moved = [change[q] for q in range(by_captures.shape[1])]
            x = np.linalg.solve(by_unknowns, array([_product(row, moved) for row in by_captures]))
            return array_of(root.graph, [-e for e in x])

    def _derivatives(self, root: Array, real: Array, *others: Handle) -> tuple[Any, Any]:
        """The derivatives of the residual at the root, by the unknowns and by the real captures."""
        unknowns, captures = self.region.params[: self.count], self.region.params[self.count :]
        values = {i: root[k].id for k, i in enumerate(unknowns)}
        values |= {captures[q]: real[k].id for k, q in enumerate(self._captured[0])}
        values |= {captures[q]: h.id for q, h in zip(self._captured[1], others, strict=True)}
        places, entries = self._jacobian
        matrix = np.zeros((self.count, self.count + len(self._captured[0])), dtype=object)
        for place, i in zip(places, copied(root.graph, entries, values), strict=True):
            matrix[place] = Expr(root.graph, i)
        matrix = matrix.view(ExprArray)
        return matrix[:, : self.count], matrix[:, self.count :]

    @cached_property
    def _jacobian(self) -> tuple[list[tuple[int, int]], Region]:
        """The places of the derivatives that are not structurally 0, and what they are."""
        graph, params = self.region.copy(), self.region.params
        wrt = [*params[: self.count], *(params[self.count + q] for q in self._captured[0])]
        one, entries = graph.constant(1.0), dict[tuple[int, int], int]()
        for k, residual in enumerate(self.region.yields):
            slopes = vjp(graph, {residual: one}, wrt)
            entries |= {(k, j): i for j, i in enumerate(slopes) if i is not None}
        return [*entries], Region(graph, params, tuple(entries.values()))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _RootRule(ArrayRule):
    """The row of the roots of a residual, an array, with their derivatives."""

    residual: _Residual

    def __reduce__(self) -> Any:
        return _rule_of, (self.residual,)


def _rule_of(residual: _Residual) -> _RootRule:
    return residual.rule


def _product(entries: Any, values: Any) -> Any:
    """The sum of entries times values, without those that are structurally 0."""
    terms = [e * v for e, v in zip(entries, values, strict=True) if isinstance(e, Expr)]
    return sum(terms[1:], terms[0]) if terms else 0.0
