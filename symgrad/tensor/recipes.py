"""Scans by an associative operation that is traced, and their gradients, which are scans too.

With y the scanned elements and f the operation, the cotangent of what follows an element is that
of its own result and, by the Jacobian of f there, that of the next one: an affine recurrence, whose
steps compose associatively (Blelloch, 1990, "Prefix sums and their applications", section 1.4).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.derivatives.differentiate import vjp
from symgrad.expr.laws.simplify import simplify
from symgrad.expr.tracers.expression import Expr
from symgrad.expr.tracing.trace import Trace, trace
from symgrad.kernel.skeletons.group_scan import LAST, Input, Recipe
from symgrad.kernel.stage import Formula
from symgrad.pipeline import Options
from symgrad.tensor.formulas import Formulas, cotangents

Matrix = tuple[tuple[int, ...], ...]

ZERO, ONE = -2, -1


@dataclass(frozen=True)
class Pattern:
    """A pattern of matrices: an entry is `ZERO`, `ONE`, or the number of a value.

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
    """The pattern of the transposed Jacobian of an operation on two elements, by the first one.

    ``function`` takes the numbers of both.
    """
    traced = trace(function, 2 * size)
    matrix = transposed_jacobian(traced, size)
    simple, nodes = simplify(traced.graph, [node for row in matrix for node in row])
    labels = [{0.0: ZERO, 1.0: ONE}.get(simple.value(i), i) for i in nodes]  # pyright: ignore
    rows = [tuple(labels[i : i + size]) for i in range(0, len(labels), size)]
    return Pattern.of(tuple(rows))


Combine = Callable[[Any, Any], Any]
"""An associative function of two elements: numbers, or tuples of them."""


@dataclass(frozen=True)
class Recipes:
    """Scans for an operation on elements of ``size`` numbers, and for its gradient."""

    combine: Combine
    size: int
    reverse: bool
    options: Options

    def operation(self, *v: Any) -> list[Any]:
        """The operation on the numbers of two elements; it returns as many as one has.

        Raises:
            TraceError: if it returns others.
        """
        a, b = (tuple(v[: self.size]), tuple(v[self.size :]))
        combined = self.combine(*((a, b) if self.size > 1 else (a[0], b[0])))
        parts = list(combined) if isinstance(combined, tuple | list) else [combined]
        if len(parts) != self.size:
            raise TraceError(
                f"associative_scan: the operation returned {len(parts)} numbers, and an element "
                f"has {self.size}"
            )
        return parts

    def _formulas(self, function: Any, names: Sequence[str]) -> Formulas:
        return Formulas(function, tuple(names), self.options)

    def _named(self, *kinds: str) -> list[str]:
        return [f"{kind}{n}" for kind in kinds for n in range(self.size)]

    def _identity(self, names: Sequence[str]) -> Formula:
        """The formula of numbers as they are."""
        return self._formulas(lambda *v: list(v), names).value()

    def forward(self) -> Recipe:
        """The scan itself."""
        names = self._named("x")
        combine = self._formulas(self.operation, self._named("a", "b")).value()
        element = self._identity(names)
        inputs = tuple(map(Input, names))
        result = self._formulas(
            lambda *v: list(v[: self.size]), [*self._named("s"), *names]
        ).value()
        outputs = tuple(self._named("y"))
        return Recipe(self.size, inputs, element, combine, result, outputs, self.reverse)

    def totals(self, recipe: Recipe, totals: str, before: str) -> Recipe:
        """The scan of the ``totals`` of another one, which stand in planes of an array."""
        n = recipe.size
        names = [f"x{k}" for k in range(n)]
        inputs = tuple(Input(totals, plane=k) for k in range(n))
        result = self._formulas(lambda *v: list(v[:n]), [*(f"s{k}" for k in range(n)), *names])
        whole = self._identity(names), recipe.combine, result.value()
        return Recipe(n, inputs, *whole, (before,))

    # gradients -----------------------------------------------------------------------------------

    @cached_property
    def pattern(self) -> Pattern:
        """The pattern of the transposed Jacobians of the operation by its first element."""
        return pattern(lambda v: self.operation(*v), self.size)

    def backward(self) -> Recipe:
        """The scan from the last element to the first that gives the cotangents of elements.

        An element is a step of the recurrence, the values of a matrix and a vector.
        """
        m = self.size
        inputs = [
            *(Input(f"y{n}") for n in range(m)),
            *(Input(f"x{n}", -1) for n in range(m)),
            *(Input(f"g{n}") for n in range(m)),
            *(Input(f"y{n}", 1) for n in range(m)),
            *(Input(f"x{n}") for n in range(m)),
            Input(LAST),
        ]
        count = self.pattern.count
        size = count + m
        names = [*self._named("y", "after", "g", "before", "x"), LAST]
        state = [f"s{n}" for n in range(size)]
        steps = [f"{side}{n}" for side in ("first", "second") for n in range(size)]
        element = self._formulas(lambda *v: self.operation(*v[: 2 * m]), names)
        place = slice(size + 3 * m, size + 5 * m)
        result = self._formulas(lambda *v: self.operation(*v[place]), [*state, *names])
        formulas = (
            element.derived(("step", m), (), partial(self._step, m)),
            self._formulas(self._composed, steps).value(),
            result.derived(("gradient", m, count), (), partial(self._gradient, m)),
        )
        return Recipe(size, tuple(inputs), *formulas, tuple(self._named("d")), not self.reverse)

    def _step(self, m: int, traced: Trace) -> list[int]:
        """The Jacobian at the next element, and the cotangent of this one's result."""
        matrix = transposed_jacobian(traced, m)
        return [*self.pattern.values(matrix), *traced.inputs[2 * m : 3 * m]]

    def _gradient(self, m: int, traced: Trace) -> list[int]:
        """The cotangents of an element: by the operation, if it is not the first of all."""
        graph, inputs, count = traced.graph, traced.inputs, self.pattern.count
        carried = inputs[count : count + m]
        pulled = cotangents(traced, carried, inputs[count + 5 * m : count + 6 * m])
        first = Expr(graph, inputs[-1]) > 0.5
        both = zip(carried, pulled, strict=True)
        return [ops.where(first, Expr(graph, a), Expr(graph, b)).id for a, b in both]

    def _composed(self, *v: Any) -> list[Any]:
        """A step, and then another one."""
        jacobians, n = self.pattern, self.pattern.count
        half = len(v) // 2
        first, second = v[:half], v[half:]
        matrix, other = jacobians.matrix(second), jacobians.matrix(first)
        moved = applied(matrix, first[n:])
        sums = [a + b for a, b in zip(second[n:], moved, strict=True)]
        return [*jacobians.values(multiplied(matrix, other)), *sums]
