"""The WGSL of a map over points as users read it, whatever device runs it."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

from symgrad.expr.graph.node import paused_gc
from symgrad.kernel.schedule import Plan
from symgrad.kernel.shapes import Computation, Output
from symgrad.mathlib.barriers import with_barriers
from symgrad.pipeline import Clock, Options
from symgrad.wgsl.printing.printer import plan_map, printed_map
from symgrad.wgsl.printing.source import Printed, Style


class Shaders:
    """The WGSL of a computation, made when it is first asked for.

    Straight code is scheduled, and cut where it is long; what has loops is cut where these are.
    """

    def __init__(self, computation: Computation, options: Options, title: str) -> None:
        self.computation, self.options, self._title = computation, options, title
        self._clock = Clock()

    @cached_property
    def shown(self) -> Computation:
        """The computation as compilers of WGSL get it: in float64 it is for the CPU as it is."""
        c, math = self.computation, self.options.math
        if self.options.dtype == "float32":
            return c
        graph, roots = with_barriers(c.graph, [i for o in c.outputs for i in o.nodes], math)
        ends = iter(roots)
        outputs = tuple(Output(o.name, tuple(next(ends) for _ in o.nodes)) for o in c.outputs)
        return replace(c, graph=graph, outputs=outputs)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k != "_plan"}

    @property
    def style(self) -> Style:
        """What the source says beside the code."""
        return Style(self.options.math, self.options.comments, self._title)

    @cached_property
    def _plan(self) -> Plan:
        """What stands in which shader, and in which order, of straight code."""
        with paused_gc():
            return self._clock.time("schedule", lambda: plan_map(self.shown))

    @cached_property
    def _printed(self) -> Printed:
        plan = None if self.shown.is_structured else self._plan
        with paused_gc():
            return self._clock.time("emit", lambda: printed_map(self.shown, self.style, plan))

    @property
    def modules(self) -> tuple[str, ...]:
        """The sources, in the order in which they run."""
        return self._printed.modules

    def print(self) -> None:
        """Print the source now, for whoever runs it: that takes its own part of the seconds."""
        _ = self._printed

    @property
    def count(self) -> int:
        """How many shaders there are."""
        return len(self.modules if self.shown.is_structured else self._plan.pieces)

    @property
    def seconds(self) -> dict[str, float]:
        """How long it took, as far as it has been made."""
        return self._clock.seconds
