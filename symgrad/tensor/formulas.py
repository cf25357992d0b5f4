"""Formulas of kernels: traced functions, and the cotangents of their arguments, derived."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from symgrad.expr import ops
from symgrad.expr.derivatives.differentiate import vjp
from symgrad.expr.tracing.trace import Trace
from symgrad.kernel.stage import Formula
from symgrad.pipeline import Derivation, Options, Wanted, build
from symgrad.values.nested import Scalar

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
        return self.derived("value", (), _values)

    def reverse(self, wrt: Sequence[str], results: int = 1) -> Formula:
        """The cotangents of some arguments, by the arguments and a cotangent of each result."""
        places = tuple(map(self.names.index, wrt))
        more = [f"cotangent{n}" for n in range(results)]
        kind = "reverse", len(self.names), places
        return self.derived(kind, more, partial(_cotangents, len(self.names), places))

    def derived(
        self, kind: Hashable, more: Sequence[str], derive: Callable[[Trace], list[int]]
    ) -> Formula:
        """The formula that is derived of a trace with ``more`` inputs behind the arguments.

        Derivations of the same ``kind`` derive the same of the same trace.
        """
        function, arity = self.function, len(self.names)
        derivation = Derivation(("formula", kind), partial(_wanted, derive))
        names = [*self.names, *more]
        built = build(lambda v: function(*v[:arity]), len(names), derivation, self.options, names)
        return Formula(built.computation)


def _wanted(derive: Callable[[Trace], list[int]], traced: Trace) -> Sequence[Wanted]:
    return [Wanted("results", tuple(derive(traced)), Scalar())]


def _values(traced: Trace) -> list[int]:
    return list(traced.outputs)


def _cotangents(arity: int, places: Sequence[int], traced: Trace) -> list[int]:
    incoming, wrt = traced.inputs[arity:], [traced.inputs[n] for n in places]
    return cotangents(traced, incoming, wrt)


def cotangents(traced: Trace, incoming: Sequence[int], wrt: Sequence[int]) -> list[int]:
    """The cotangents of some nodes for those of the outputs, several of which may be one node."""
    graph, seeds = traced.graph, dict[int, int]()
    for y, g in zip(traced.outputs, incoming, strict=True):
        seeds[y] = graph.add(ops.add, seeds[y], g) if y in seeds else g
    gradients = vjp(graph, seeds, wrt)
    return [graph.constant(0.0) if i is None else i for i in gradients]
