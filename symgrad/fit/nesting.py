"""Nested variables for SciPy's optimisers, which know of (n,) alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from symgrad.expr.tracers.tree import Tree
from symgrad.optimize.arguments import bounds_of, real, takes_result
from symgrad.optimize.result import scipy_optimize
from symgrad.values.parameters import in_a_row, rows_of


def nesting_of(x0: Any) -> tuple[Nesting, np.ndarray]:
    """How x0 is nested, and all its numbers in a row."""
    nested = in_a_row(x0, "x0")
    if nested is not None:
        return Nesting(nested[0]), nested[1]
    start = np.atleast_1d(real(x0, "x0"))
    return Nesting(Tree("array", start.shape)), start.ravel()


@dataclass(frozen=True)
class Nesting:
    """The tree of the user's variables, and what SciPy is given and returns in its place."""

    tree: Tree

    @property
    def is_row(self) -> bool:
        """Whether they are what SciPy takes."""
        return self.tree.is_leaf and len(self.tree.keys) == 1

    def nested(self, x: Any) -> Any:
        """All variables in a row as the user has them."""
        return self.tree.arrays(np.asarray(x))

    def function(self, f: Any, vectors: int = 1) -> Any:
        """A function of so many nested vectors as SciPy calls it; what is none, as it is."""
        if self.is_row or not callable(f):
            return f

        def of_row(*given: Any) -> Any:
            result: Any = f(*map(self.nested, given[:vectors]), *given[vectors:])
            nested = self.tree.is_nest(result) or np.shape(result) == self.tree.keys != ()
            return rows_of(self.tree, result, "what it returns") if nested else result

        return of_row

    def bounds(self, bounds: Any) -> Any:
        """Bounds of nested variables as SciPy's."""
        if self.is_row or bounds is None:
            return bounds
        box = bounds_of(bounds, self.tree)
        return scipy_optimize().Bounds(np.array(box.low), np.array(box.high))

    def constraints(self, given: Any) -> Any:
        """SciPy's constraints, or one of them, whose functions are the user's."""
        if isinstance(given, (list, tuple)):
            return [self.constraints(one) for one in given]
        if isinstance(given, dict):
            return {k: self.function(v) for k, v in given.items()}
        constraint = copy.copy(given)
        for name in {"fun", "jac", "hess"} & vars(given).keys():
            setattr(constraint, name, self.function(getattr(given, name)))
        return constraint

    def callback(self, given: Any) -> Callable[..., Any] | None:
        """The user's callback, with the signature by which SciPy knows what to call it with."""
        if self.is_row or given is None or not takes_result(given):
            return self.function(given)

        def on_result(intermediate_result: Any) -> Any:
            return given(intermediate_result=self.result(intermediate_result))

        return on_result

    def result(self, result: Any) -> Any:
        """SciPy's result, with the point and the gradient nested."""
        if self.is_row:
            return result
        sought = {k: result[k] for k in ("x", "jac", "grad") if k in result}
        shape = (self.tree.size,)
        nested = {k: self.nested(v) for k, v in sought.items() if np.shape(v) == shape}
        return type(result)({**result, **nested})
