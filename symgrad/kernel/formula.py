"""Traced functions of numbers, to be written into kernels wherever their values are needed."""

from __future__ import annotations

from dataclasses import dataclass

from symgrad.expr.graph.node import INPUT
from symgrad.kernel.language import KernelIR
from symgrad.kernel.lower import inline
from symgrad.kernel.shapes import Computation


@dataclass(frozen=True)
class Formula:
    """A computation as a function on values of a kernel."""

    computation: Computation

    @property
    def roots(self) -> list[int]:
        """The nodes of all results."""
        return [i for output in self.computation.outputs for i in output.nodes]

    def __call__(self, k: KernelIR, *arguments: int) -> list[int]:
        """The results, written to where the kernel is."""
        graph = self.computation.graph
        inputs = {i: arguments[n[1]] for i, n in enumerate(graph.nodes) if n[0] is INPUT}
        return inline(k, graph, self.roots, inputs)
