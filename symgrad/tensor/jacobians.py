"""Linear maps whose matrices have entries that are always 0, always 1, or always equal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from symgrad.expr.derivatives.differentiate import vjp
from symgrad.expr.laws.simplify import simplify
from symgrad.expr.tracing.trace import Trace, trace

Matrix = tuple[tuple[int, ...], ...]

ZERO, ONE = -2, -1


@dataclass(frozen=True)
class Pattern:
    """What is known of matrices: an entry is `ZERO`, `ONE`, or the number of a value.

    Products of matrices of a pattern have it too.
    """

    entries: Matrix

    @property
    def count(self) -> int:
        """The different values."""
        return 1 + max((e for row in self.entries for e in row), default=ONE) if self.entries else 0

    def matrix(self, values: Sequence[Any]) -> list[list[Any]]:
        """The matrix with these values."""
        constants = {ZERO: 0.0, ONE: 1.0}
        return [[constants[e] if e < 0 else values[e] for e in row] for row in self.entries]

    def values(self, matrix: Sequence[Sequence[Any]]) -> list[Any]:
        """The values of a matrix of the pattern."""
        by_entry: dict[int, Any] = {}
        for row, entries in zip(matrix, self.entries, strict=True):
            for value, e in zip(row, entries, strict=True):
                by_entry.setdefault(e, value)
        return [by_entry[e] for e in range(self.count)]

    @classmethod
    def of(cls, entries: Matrix) -> Pattern:
        """The pattern of all products of matrices whose entries of one number are equal."""
        while True:
            labels = [
                [(e, _product(entries, i, j)) for j, e in enumerate(row)]
                for i, row in enumerate(entries)
            ]
            numbered = _numbered(labels)
            if numbered == entries:
                return cls(numbered)
            entries = numbered


def _product(entries: Matrix, i: int, j: int) -> tuple[tuple[int, ...], ...]:
    """An entry of a matrix times another one of a pattern, as a sum of products of two entries."""
    pairs = ((entries[i][k], entries[k][j]) for k in range(len(entries)))
    return tuple(sorted(pair for pair in pairs if ZERO not in pair))


def _numbered(labels: Sequence[Sequence[tuple[int, Any]]]) -> Matrix:
    """Entries that are equal, and whose products are, get a number."""
    numbers: dict[Any, int] = {(ZERO, ()): ZERO, (ONE, ((ONE, ONE),)): ONE}
    values = 0
    entries: list[tuple[int, ...]] = []
    for row in labels:
        for label in row:
            if label not in numbers:
                numbers[label], values = values, values + 1
        entries.append(tuple(numbers[label] for label in row))
    return tuple(entries)


def multiplied(a: Sequence[Sequence[Any]], b: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """The product of two matrices of numbers and expressions; nothing is written for 0 and 1."""
    return [[_sum(zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a]


def applied(a: Sequence[Sequence[Any]], v: Sequence[Any]) -> list[Any]:
    """A matrix times a vector."""
    return [_sum(zip(row, v, strict=True)) for row in a]


def _sum(pairs: Any) -> Any:
    total: Any = 0.0
    for a, b in pairs:
        if _is(a, 0.0) or _is(b, 0.0):
            continue
        product = b if _is(a, 1.0) else a if _is(b, 1.0) else a * b
        total = product if _is(total, 0.0) else total + product
    return total


def _is(value: Any, number: float) -> bool:
    return isinstance(value, float) and value == number


def transposed_jacobian(traced: Trace, size: int) -> list[list[int]]:
    """The derivatives of the outputs, nodes of their own columns, by the first inputs."""
    graph, wrt, one = traced.graph, traced.inputs[:size], traced.graph.constant(1.0)
    columns = [vjp(graph, {y: one}, wrt) for y in traced.outputs]
    zero = graph.constant(0.0)
    rows = zip(*columns, strict=True)
    return [[zero if node is None else node for node in row] for row in rows]


def pattern(function: Callable[[Any], Any], size: int) -> Pattern:
    """What is known of the transposed Jacobian of an operation on two elements, by the first one.

    ``function`` takes the numbers of both.
    """
    traced = trace(function, 2 * size)
    matrix = transposed_jacobian(traced, size)
    simple, nodes = simplify(traced.graph, [node for row in matrix for node in row])
    labels = [{0.0: ZERO, 1.0: ONE}.get(simple.value(i), i) for i in nodes]  # pyright: ignore
    rows = [tuple(labels[i : i + size]) for i in range(0, len(labels), size)]
    return Pattern.of(tuple(rows))
