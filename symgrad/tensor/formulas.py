"""Formulas of kernels: traced functions, and the cotangents of their arguments, derived."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from symgrad.expr.derivatives.differentiate import vjp
from symgrad.expr.tracing.trace import Trace
from symgrad.kernel.formula import Formula
from symgrad.pipeline import Derivation, Options, Wanted, build
from symgrad.values.results import Scalar

Function = Callable[..., Any]
"""A function of numbers: it returns one, or a tuple of them."""


@dataclass(frozen=True)
class Formulas:
    """A traced function of numbers of these names, and what is derived from it."""

    function: Function
    names: tuple[str, ...]
    options: Options

    def value(self) -> Formula:
        """The results by the arguments."""
        return self._built(self.names, ("value",), _values)

    def reverse(self, wrt: Sequence[str], results: int = 1) -> Formula:
        """The cotangents of some arguments, by the arguments and a cotangent of each result."""
        places = tuple(map(self.names.index, wrt))
        names = (*self.names, *(f"cotangent{n}" for n in range(results)))
        kind = "reverse", len(self.names), places
        return self._built(names, kind, partial(_cotangents, len(self.names), places))

    def _built(
        self, names: Sequence[str], kind: tuple[Any, ...], derive: Callable[[Trace], list[int]]
    ) -> Formula:
        """A formula of arguments of these names, some of which only derivatives need."""
        function, known = self.function, len(self.names)
        wanted = partial(_wanted, derive)
        derivation = Derivation(("formula", *kind), wanted)
        built = build(
            lambda v: function(*v[:known]), len(names), derivation, self.options, list(names)
        )
        return Formula(built.computation)


def _wanted(derive: Callable[[Trace], list[int]], traced: Trace) -> Sequence[Wanted]:
    return [Wanted("results", tuple(derive(traced)), Scalar())]


def _values(traced: Trace) -> list[int]:
    return list(traced.outputs)


def _cotangents(known: int, places: Sequence[int], traced: Trace) -> list[int]:
    graph, inputs = traced.graph, traced.inputs
    given = dict(zip(traced.outputs, inputs[known:], strict=True))
    found = vjp(graph, given, [inputs[n] for n in places])
    return [graph.constant(0.0) if i is None else i for i in found]
