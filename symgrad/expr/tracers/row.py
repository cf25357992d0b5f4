"""Rows: what a function of a row's elements and its reductions is traced with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, NamedTuple

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.graph.misuse import located, refuse_bool, refuse_number
from symgrad.expr.graph.node import Graph, Handle, Op, reachable
from symgrad.expr.tracers.expression import Expr

Kind = Literal["sum", "max", "min"]


class Reduction(NamedTuple):
    """A number of a row: what is reduced, a node for each element, and the input that it is."""

    kind: Kind
    node: int
    symbol: int


@dataclass
class Reductions:
    """The reductions of a row's elements, in the order in which they are made.

    ``elements`` are the inputs of which each element has its own; ``length`` is the input that
    says how many there are.
    """

    graph: Graph
    elements: tuple[int, ...]
    length: int
    entries: list[Reduction] = field(default_factory=list)

    def varies(self, node: int) -> bool:
        """Whether a node has a number for each element, rather than one for the row."""
        nodes = reachable(self.graph, [node])
        return any(i in self.elements for i in nodes)

    def of(self, kind: Kind, node: int) -> int:
        """The node of a reduction."""
        for reduction in self.entries:
            if reduction[:2] == (kind, node):
                return reduction.symbol
        if not self.varies(node):
            return node if kind != "sum" else self.graph.add(ops.mul, node, self.length)
        symbol = self.graph.input(f"{kind}_{len(self.entries)}")
        self.entries.append(Reduction(kind, node, symbol))
        return symbol


class Row(NDArrayOperatorsMixin, Handle):
    """All elements of a row, or a number of it: arithmetic and functions are of each element.

    ``sum``, ``mean``, ``max``, ``min``, ``var`` and ``std`` are of the whole row, as are NumPy's
    functions of these names, and ``x @ y`` is the sum of products.
    """

    __slots__ = ("_reductions", "element")
    is_row: ClassVar[bool] = True

    def __init__(self, element: Handle, reductions: Reductions) -> None:
        super().__init__(element.graph, element.id)
        self.element, self._reductions = element, reductions

    def __hash__(self) -> int:
        return hash((id(self.graph), self.id))

    def build(self, op: Op, args: Sequence[Any]) -> Any:
        """An operation on elements."""
        return self._wrapped(op(*map(element_of, args)))

    def _wrapped(self, value: Any) -> Any:
        return Row(value, self._reductions) if isinstance(value, Handle) else value

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        if method == "reduce" and ufunc in _REDUCED:
            return self.reduced(_REDUCED[ufunc])
        if ufunc is np.matmul:
            a, b = inputs
            return (a * b).sum()
        if method != "__call__":
            raise TraceError(located(f"np.{ufunc.__name__}.{method} is not defined for rows"))
        return self._wrapped(ufunc(*map(element_of, inputs), **options))

    def __array_function__(
        self, func: Any, types: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Any:
        name = func.__name__.removeprefix("a") if func in (np.amax, np.amin) else func.__name__
        if name in METHODS and not _more(kwargs):
            return getattr(args[0], name)()
        if func is np.where:
            return self._wrapped(ops.where(*map(element_of, args)))
        if func in (np.dot, np.inner, np.vdot):
            return (args[0] * args[1]).sum()
        raise TraceError(located(f"np.{func.__name__} is not defined for rows"))

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise TraceError(located("a row is not an array of numbers while it is traced"))

    def reduced(self, kind: Kind) -> Row:
        """The sum, the largest or the smallest of all elements."""
        return Row(Expr(self.graph, self._reductions.of(kind, self.id)), self._reductions)

    def sum(self) -> Row:
        """The sum of all elements."""
        return self.reduced("sum")

    def max(self) -> Row:
        """The largest element."""
        return self.reduced("max")

    def min(self) -> Row:
        """The smallest element."""
        return self.reduced("min")

    def mean(self) -> Row:
        """The mean of all elements."""
        return self.sum() / Row(Expr(self.graph, self._reductions.length), self._reductions)

    def var(self) -> Row:
        """The mean square of what is left without the mean."""
        rest = self - self.mean()
        return (rest * rest).mean()

    def std(self) -> Row:
        """The square root of the variance."""
        return ops.sqrt(self.var())

    def logsumexp(self) -> Row:
        """The logarithm of the sum of exponentials, without overflow."""
        largest = self._largest()
        return largest + np.log(np.exp(self - largest).sum())

    def softmax(self) -> Row:
        """The exponentials, divided by their sum."""
        powers = np.exp(self - self._largest())
        return powers / powers.sum()

    def log_softmax(self) -> Row:
        """The logarithm of that."""
        rest = self - self._largest()
        return rest - np.log(np.exp(rest).sum())

    def _largest(self) -> Row:
        """The largest element, where that is finite: a constant to differentiation."""
        largest = ops.stop_gradient(self.max())
        return ops.where(ops.isfinite(largest), largest, 0.0)

    def __bool__(self) -> bool:
        refuse_bool()

    def __float__(self) -> float:
        refuse_number("float")

    def __iter__(self) -> Any:
        raise TraceError(located("the elements of a row are not known one by one"))

    def __getitem__(self, key: Any) -> Any:
        raise TraceError(located("the elements of a row are not known one by one"))

    def __repr__(self) -> str:
        return f"<row of {self.element!r}>"


METHODS: Final = frozenset({"sum", "mean", "max", "min", "var", "std"})
"""The reductions of NumPy that rows have."""

_REDUCED: Final[dict[Any, Kind]] = {np.add: "sum", np.maximum: "max", np.minimum: "min"}


def element_of(value: Any) -> Any:
    """The element of a row; other values as they are."""
    return value.element if isinstance(value, Row) else value


def _more(options: Mapping[str, Any]) -> bool:
    """Whether a reduction is asked for more than NumPy's usual."""
    return any(v is not None and k != "axis" or v not in (None, -1) for k, v in options.items())


def rows(reductions: Reductions) -> list[Row]:
    """The rows that a function is given, one for each input with elements."""
    graph = reductions.graph
    return [Row(Expr(graph, i), reductions) for i in reductions.elements]
