"""The matrix of the normal equations, JᵀJ, as a method sees it: unrolled, or kept by the kernel.

Unrolled, every element is an expression, and the linear system becomes straight-line code: nothing
is faster where variables are few. Its length grows with their cube, though, and with it what
compilers take. A matrix that the kernel keeps in an array has a name for its diagonal only; what
is done with all of it are calls that back ends write as loops.
"""

from __future__ import annotations

from typing import Any, Literal, Protocol

import numpy as np

from symgrad.expr.graph.node import Graph
from symgrad.expr.tracers import functions
from symgrad.expr.tracers.array import array
from symgrad.expr.tracers.expression import Condition
from symgrad.expr.tracing.trace import variables
from symgrad.kernel.shapes import Call
from symgrad.optimize.method import choose, where_free
from symgrad.optimize.newton import restricted, solve_positive

Active = list[Condition | None]


class Normal(Protocol):
    """A symmetric matrix whose lower half, row by row, is a part of a method's memory."""

    half: Any

    def diagonal(self) -> Any:
        """The diagonal (n,)."""
        ...

    def __matmul__(self, v: Any) -> Any:
        """The product with a vector (n,)."""
        ...

    def solve(self, right: Any, added: Any, active: Active, floors: Any) -> Any:
        """The solution of the system with ``added`` on the diagonal, 0 where a bound is active."""
        ...


def kept(condition: Any, new: Any, half: Any) -> Normal:
    """The matrix that is new where a condition holds, and elsewhere has this lower half."""
    if isinstance(new, Stored):
        return new.kept(condition, half)
    return Unrolled(choose(condition, packed(new), half))


class Unrolled:
    """A matrix of expressions."""

    def __init__(self, half: Any) -> None:
        self.half, self._matrix = half, unpacked(half)

    def diagonal(self) -> Any:
        """The diagonal (n,)."""
        return self._matrix.diagonal()

    def __matmul__(self, v: Any) -> Any:
        return self._matrix @ v

    def solve(self, right: Any, added: Any, active: Active, floors: Any) -> Any:
        """See `Normal`."""
        matrix = np.array(restricted(self._matrix, active))
        for k in range(len(floors)):
            matrix[k, k] = matrix[k, k] + added[k]
        return solve_positive(matrix, where_free(right, active), floors)


class Calls:
    """The operations on a matrix that a trace asks of a kernel: see `plan.Call`."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.made: list[Call] = []
        self.arguments: list[list[Any]] = []

    def call(self, kind: Literal["keep", "product", "solve"], results: int, *arguments: Any) -> Any:
        """Record a call: its results, as inputs of the graph."""
        graph, first = self._graph, len(self._graph.names)
        names = [f"{kind}{len(self.made)}_{k}" for k in range(results)]
        inputs = variables(graph, [graph.input(name) for name in names])
        self.made.append(Call(kind, range(first, first + results)))
        self.arguments.append([v for part in arguments for v in part])
        return inputs


class Stored:
    """A matrix that the kernel keeps: that of the sums, or the one in the state."""

    def __init__(self, calls: Calls, half: Any, diagonal: Any = None) -> None:
        self.half, self._calls = half, calls
        self._diagonal = _ends(half) if diagonal is None else diagonal

    def diagonal(self) -> Any:
        """The diagonal (n,)."""
        return self._diagonal

    def trace(self) -> Any:
        """The sum of the diagonal."""
        return np.sum(self._diagonal)

    def kept(self, condition: Any, half: Any) -> Stored:
        """This one where the condition holds, else the one in the state: it is that from now on."""
        self._calls.call("keep", 0, [functions.where(condition, 1.0, 0.0)])
        return Stored(self._calls, half, choose(condition, self._diagonal, _ends(half)))

    def __matmul__(self, v: Any) -> Any:
        return self._calls.call("product", len(self._diagonal), v)

    def solve(self, right: Any, added: Any, active: Active, floors: Any) -> Any:
        """See `Normal`."""
        where, pairs = functions.where, [*zip(self._diagonal, active, strict=True)]
        diagonal = [d if h is None else where(h, 1.0, d) for d, h in pairs]
        diagonal = [d + a for d, a in zip(diagonal, added, strict=True)]
        masks = [0.0 if h is None else where(h, 1.0, 0.0) for h in active]
        some = [masks] if any(h is not None for h in active) else []
        right = where_free(right, active)
        return self._calls.call("solve", len(floors), right, diagonal, floors, *some)


def packed(matrix: Any) -> Any:
    """The lower half of a symmetric matrix, row by row, (n*(n+1)/2,)."""
    return array([matrix[i][j] for i in range(len(matrix)) for j in range(i + 1)])


def unpacked(half: Any) -> Any:
    """The symmetric matrix of a lower half."""
    n = int((2 * len(half)) ** 0.5)
    index = np.zeros((n, n), int)
    index[np.tril_indices(n)] = np.arange(len(half))
    return half[np.maximum(index, index.T)]


def _ends(half: Any) -> Any:
    """The diagonal of a lower half: the last number of each row."""
    n = int((2 * len(half)) ** 0.5)
    return half[np.arange(1, n + 1).cumsum() - 1]
