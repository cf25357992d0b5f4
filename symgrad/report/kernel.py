"""The base of all kernels: how they say what they are, show their text, and travel."""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from symgrad.expr.graph.node import paused_gc
from symgrad.kernel.launch import Launch
from symgrad.kernel.passes.schedule import Plan
from symgrad.kernel.shapes import Computation, Reduction
from symgrad.pipeline import Clock, DTypeName, Options
from symgrad.report.profiling import Size
from symgrad.report.progress import html
from symgrad.targets import Device
from symgrad.wgsl.dispatch.sums import Summation, emit_reduction
from symgrad.wgsl.printing.printer import plan_map, print_kernel, printed_map
from symgrad.wgsl.printing.source import Printed, Style


def style_of(options: Options, title: str) -> Style:
    """The style of a kernel's source, for its options: what it says beside the code."""
    return Style(options.math, options.comments, title, dtype=options.dtype)


def sources_of(launch: Launch, options: Options, title: str) -> tuple[str, ...]:
    """The WGSL of a launch of known sizes: each kernel once, in the order in which they run."""
    style = style_of(options, title)
    kernels = [print_kernel(d.kernel, style, [f"// {d.kernel.name}"]) for d in launch.dispatches]
    return tuple(dict.fromkeys(m for printed in kernels for m in printed.modules))


def summations_of(reduction: Reduction, options: Options, title: str) -> tuple[Summation, ...]:
    """The WGSL modules of sums over rows, and where they write which sums."""
    return emit_reduction(reduction, style_of(options, title))


class KernelBase:
    """A kernel that a user runs: its name, its dtype, its source, its size, its device.

    It pickles without what belongs to its process, the attributes that ``_process`` names, which
    `_begin` makes where it arrives.
    """

    device: Device
    """Where it runs."""
    _options: Options
    _process: ClassVar[tuple[str, ...]] = ()

    def _begin(self) -> None:
        """Make what belongs to this process."""

    @property
    def name(self) -> str:
        """The name it was given, or that of the traced function."""
        return self._options.name

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of its results: that in which it computes, or float64 of pairs of float32."""
        return self._options.floats

    @property
    def precision(self) -> DTypeName:
        """The name of the dtype that it computes in."""
        return self._options.dtype

    @property
    def modules(self) -> tuple[str, ...]:
        """The WGSL modules in the order in which they run, each with the entry point ``main``."""
        raise NotImplementedError

    @property
    def wgsl(self) -> str:
        """The source as a GPU gets it, all modules; the CPU runs the same, compiled by LLVM."""
        return "\n".join(self.modules)

    @property
    def stats(self) -> Size:
        """The size of what is computed, and how long making it took."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        return html(repr(self), str(self.stats), self.wgsl)

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k not in self._process}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._begin()


# The WGSL of a map over points as users read it, whatever device runs it.


class Shaders:
    """The WGSL of a computation, made when it is first asked for.

    Straight code is scheduled, and cut where it is long; what has loops is cut where these are.
    """

    def __init__(self, computation: Computation, options: Options, title: str) -> None:
        self.computation, self.options, self._title = computation, options, title
        self._clock = Clock()

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k != "_plan"}

    @property
    def style(self) -> Style:
        """The style of the source: what it says beside the code."""
        return style_of(self.options, self._title)

    @cached_property
    def _plan(self) -> Plan:
        """The plan of straight code: what stands in which shader, and in which order."""
        with paused_gc():
            return self._clock.time("schedule", lambda: plan_map(self.computation))

    @cached_property
    def _printed(self) -> Printed:
        plan = None if self.computation.is_structured else self._plan
        with paused_gc():
            return self._clock.time("emit", lambda: printed_map(self.computation, self.style, plan))

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
        return len(self.modules if self.computation.is_structured else self._plan.pieces)

    @property
    def seconds(self) -> dict[str, float]:
        """How long it took, as far as it has been made."""
        return self._clock.seconds
