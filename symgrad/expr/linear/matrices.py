"""Matrices of expressions: their shapes, stacks of them, and as arrays in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np

from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.graph.arrays import GET, length
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import INPUT, WORD, Graph, Handle
from symgrad.expr.graph.place import OnePlace
from symgrad.expr.tracers.along import reals
from symgrad.expr.tracers.array import array, plain
from symgrad.expr.tracers.memory import Array, array_of

MOST_WRITTEN: Final = 144
"""Elements that are not the number 0 of the largest matrix that is written out.

Of solve, slogdet and cholesky of 5 x 5 to 10 x 10, with their gradients, loops take 1.6 to 7 times
as long as what is written out on the CPU, and 2 to 8 times on an H200: registers hold what loops
keep in memory. For 12 x 12 it is 0.8 to 1.7 times on the CPU and 4 to 9 times on the H200, and the
first result comes up to 1 s earlier. The text grows with the cube of the rows.
"""

MOST_ROWS: Final = 64
"""Rows of the largest matrix: its gradient takes a few times as many numbers as it has."""


def square(a: Any, name: str) -> np.ndarray:
    """Square matrices as an array of objects.

    Raises:
        TraceError: if they are not square, or too large.
    """
    a = plain(a)
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise TraceError(located(f"linalg.{name} takes square matrices, not shape {a.shape}"))
    if a.shape[-1] > MOST_ROWS:
        raise TraceError(
            located(
                f"linalg.{name} of expressions takes matrices of up to {MOST_ROWS} rows, which "
                f"each point has in private memory, and this one has {a.shape[-1]}: use the "
                "structure that it has, as in blocks or in a recursion"
            )
        )
    return a


def sides(name: str, a: Any, b: Any) -> tuple[np.ndarray, np.ndarray, Callable[[Any], Any]]:
    """A matrix, a right side of two axes, and what shapes a solution as the right side was."""
    a, b = square(reals(a), name), reals(b)
    right = b[:, None] if b.ndim == 1 else b
    if right.ndim < 2 or right.shape[-2] != a.shape[-1]:
        raise TraceError(located(f"linalg.{name}: shapes {a.shape} and {b.shape} do not match"))
    return (
        a,
        right,
        lambda x: (array if traced(x) else np.asarray)(x[..., 0] if b.ndim == 1 else x),
    )


def traced(*values: Any) -> bool:
    """Whether there are expressions among these."""
    return any(isinstance(e, Handle) for v in values for e in _objects(plain(v)))


def _objects(a: np.ndarray) -> Iterable[Any]:
    return a.flat if a.dtype == object else ()


def numbers(a: Any) -> np.ndarray:
    """An array without expressions as one of numbers."""
    values = plain(a)
    return values.astype(np.float64) if values.dtype == object else values


def of_matrices(
    function: Callable[..., Any], of_numbers: Callable[..., Any], *stacks: np.ndarray
) -> np.ndarray:
    """The function of each matrix, along the leading axes, which broadcast; of numbers another."""

    def of_one(*matrices: np.ndarray) -> Any:
        return function(*matrices) if traced(*matrices) else of_numbers(*map(numbers, matrices))

    lead = np.broadcast_shapes(*[s.shape[:-2] for s in stacks])
    stacks = tuple(np.broadcast_to(s, lead + s.shape[-2:]) for s in stacks)
    values = [np.asarray(of_one(*[s[k] for s in stacks]), dtype=object) for k in np.ndindex(lead)]
    result = np.empty((len(values), *values[0].shape), dtype=object)
    for k, one in enumerate(values):
        result[k] = one[()]
    return result.reshape(lead + values[0].shape)


def is_small(matrix: np.ndarray) -> bool:
    """Whether it is written out: if it is small, mostly zeros, or all numbers."""
    nonzeros = sum(isinstance(e, Handle) or e != 0 for e in matrix.flat)
    return nonzeros <= MOST_WRITTEN


def is_given(matrix: np.ndarray) -> bool:
    """Whether it is of inputs alone, which cost nothing to read where they stand in a row."""
    return all(isinstance(e, Handle) and e.graph.nodes[e.id][0] is INPUT for e in matrix.flat)


def graph_of(*matrices: np.ndarray) -> Graph:
    """The graph of the expressions in them."""
    return next(e.graph for m in matrices for e in m.flat if isinstance(e, Handle))


def stored(graph: Graph, matrix: np.ndarray) -> Array:
    """The matrix in memory, row by row: where it comes from memory as it is, nothing is copied."""
    parts = list(matrix.flat)
    with OnePlace(graph):
        return _source(graph, parts) or array_of(graph, parts)


def _source(graph: Graph, elements: list[Any]) -> Array | None:
    """The array of which all elements but the numbers 0 are those of the same place."""
    source: int | None = None
    for k, e in enumerate(elements):
        if not isinstance(e, Handle):
            if e != 0:
                return None
            continue
        op, *args = graph.nodes[e.id]
        if op is not GET or graph.nodes[args[1]] != (WORD, k) or source not in (None, args[0]):
            return None
        source = args[0]
    is_whole = source is not None and length(graph, source) == len(elements)
    return Array(graph, source) if source is not None and is_whole else None


def elements(a: Array, n: int, m: int) -> np.ndarray:
    """The elements of a matrix in memory."""
    entries = np.empty(n * m, dtype=object)
    with OnePlace(a.graph):
        entries[:] = [a[k] for k in range(n * m)]
    return entries.reshape(n, m)


SUBNORMAL: Final = 52.0
"""By how many powers of two subnormal numbers stay below 1: their inverses are infinite."""


def powers(size: Any) -> tuple[Any, Any]:
    """A power of two by which a number of this size is near 1, and its inverse.

    Both are 1 where the size is 0, infinite or NaN, and constants to derivatives.
    """
    is_scalable = (size > 0.0) & ops.isfinite(size)
    exponent = ops.exponent(ops.stop_gradient(ops.where(is_scalable, size, 2.0))) - 1.0
    is_subnormal = ops.isinf(ops.scalb(1.0, -exponent))
    exponent = exponent + ops.where(is_subnormal, SUBNORMAL, 0.0)
    return tuple(ops.stop_gradient(ops.scalb(1.0, e)) for e in (-exponent, exponent))  # type: ignore[return-value]
