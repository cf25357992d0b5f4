"""Arithmetic of arrays on a GPU: elementwise functions, copies and reductions, as launches.

The arithmetic is the library's own: what a NumPy ufunc makes of expressions is traced, and emitted
as every kernel is, so that ``x * y`` of arrays has the bits of ``x * y`` in a kernel.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np

from symgrad.cache import Once
from symgrad.errors import TraceError
from symgrad.expr.laws.simplify import simplify
from symgrad.expr.tracing.trace import trace
from symgrad.kernel.host.threads import converted
from symgrad.kernel.launch import Array, Dispatch, Launch, Program
from symgrad.kernel.shapes import Computation, Output
from symgrad.kernel.stages.strided import (
    ELEMENTS_PER_INVOCATION,
    TARGET,
    Arguments,
    Elementwise,
    Layout,
    ReduceProgram,
)
from symgrad.mathlib.define import inlined, lower
from symgrad.wgsl.arrays.array import OPERATORS
from symgrad.wgsl.arrays.stored import ALIGNMENT, View, bound, c_strides, collapsed, pieces
from symgrad.wgsl.device.gpus import Gpu, Range
from symgrad.wgsl.dispatch.launch import Launched
from symgrad.wgsl.printing.operations import FLOATS
from symgrad.wgsl.printing.source import Style

KEPT_PLANS: Final = 256
"""Launches that are kept: for a function, shapes and places in buffers."""

MATH: Final = "accurate"


@dataclass(frozen=True)
class Call:
    """A ufunc of some arguments, of which some are constants: (position, value) each."""

    ufunc: np.ufunc
    constants: tuple[tuple[int, float], ...] = ()

    @property
    def variables(self) -> int:
        """The number of arguments that are none."""
        return self.ufunc.nin - len(self.constants)

    def __call__(self, variables: Sequence[Any]) -> Any:
        """The ufunc of expressions."""
        rest, constants = iter(variables), dict(self.constants)
        return self.ufunc(
            *(constants[k] if k in constants else next(rest) for k in range(self.ufunc.nin))
        )


@lru_cache(KEPT_PLANS)
def computation(call: Call, dtype: str = "float32") -> Computation:
    """The computation of a call in a dtype.

    Raises:
        TraceError: if the ufunc is not defined for expressions, or has a truth value.
    """
    name = call.ufunc.__name__
    try:
        traced = trace(call, call.variables)
    except TypeError as error:  # also of Python's: expressions have no such operator
        raise TraceError(f"{name} is not defined for expressions") from error
    if traced.structure.kind is not None:
        raise TraceError(f"{name} has a truth value as its result")
    graph, roots = simplify(traced.graph, traced.outputs, True, inlined(MATH, dtype))
    graph, (root,) = lower(graph, roots, MATH, dtype)
    return Computation(name, graph, (Output("y", (root,)),))


@dataclass(frozen=True)
class Placed:
    """A launch, and where its arrays stand in buffers: the first byte and the bytes of each."""

    launched: Launched
    windows: Sequence[tuple[int, int]]


class Numbers:
    """The numbers that a call is given beside arrays, on the device, where they are few."""

    def __init__(self, gpu: Gpu, count: int, floats: np.dtype[Any]) -> None:
        self._gpu, self._floats, self._written = gpu, floats, b""
        self.storage = gpu.storage(floats.itemsize * count)
        self.range: Range = self.storage.buffer, 0, floats.itemsize * count

    def write(self, values: Sequence[float]) -> None:
        """Have these numbers there."""
        numbers = np.array(values, np.float64)
        if (written := numbers.tobytes()) != self._written:
            self._gpu.write(self.storage.buffer, 0, converted(numbers, self._floats))
            self._written = written


class Arithmetic:
    """Calls of ufuncs on the arrays of a GPU. Several threads may use it; they take turns."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._lock = threading.Lock()
        self._plans: Once[Any, tuple[list[Placed], Numbers | None]] = Once(KEPT_PLANS)

    def compute(self, call: Call, arguments: Sequence[View | float], y: View) -> None:
        """Write the call of these arguments, of y's shape or numbers, to y."""
        arrays = tuple([isinstance(a, View) for a in arguments])
        views = [*(a for a in arguments if isinstance(a, View)), y]
        key = call, arrays, tuple([(v.dtype, *v.places) for v in views])
        placed, numbers = self._plans.get(key, lambda: self._elementwise(call, arrays, views))
        values = [a for a in arguments if not isinstance(a, View)]
        self._start(placed, [v.buffer for v in views], numbers, values)

    def copy(self, x: View, y: View) -> None:
        """Copy the bits of x's elements to y, of its shape."""
        views = [v.in_words() for v in (x, y)]
        key = None, tuple([v.places for v in views])
        placed, _ = self._plans.get(key, lambda: self._elementwise(None, (True,), views))
        self._start(placed, [v.buffer for v in views])

    def _elementwise(
        self, call: Call | None, arrays: tuple[bool, ...], views: list[View]
    ) -> tuple[list[Placed], Numbers | None]:
        """The launches of an elementwise kernel, as many as bindings make necessary."""
        dtype, kind = views[-1].dtype, "f" if call else "u"
        floats = ["" if v.dtype == dtype else v.dtype for v in views]
        each = iter(floats)
        arguments = tuple([next(each) if is_array else None for is_array in arrays])
        constants = arrays.count(False)
        numbers = Numbers(self._gpu, constants, FLOATS[dtype].dtype) if constants else None
        names = [*(f"x{n}" for n in range(len(views) - 1)), "y"]
        placed = list[Placed]()
        for part in pieces(views, self._most(max(v.itemsize for v in views))):
            moved, windows = zip(*map(bound, collapsed(part)), strict=True)
            layout = _layout(moved)
            program = Elementwise(call and computation(call, dtype), arguments, layout)
            *inputs, output = (
                Array(name, (nbytes // v.itemsize,), kind, f)
                for name, v, f, (_, nbytes) in zip(names, moved, floats, windows, strict=True)
            )
            inputs += [Array("numbers", (constants,))] if constants else []
            count = math.prod(moved[0].shape)
            words = layout.arguments([v.places for v in moved])
            placed.append(
                Placed(self._launched(program, inputs, output, count, words, dtype), windows)
            )
        return placed, numbers

    def _most(self, itemsize: int) -> int:
        """The most elements of a binding, wherever in its first bytes they begin."""
        return (self._gpu.max_binding - ALIGNMENT) // itemsize

    def _launched(
        self,
        program: Program,
        inputs: Sequence[Array],
        output: Array,
        count: int,
        arguments: Arguments,
        dtype: str,
        groups: int = 0,
    ) -> Launched:
        """The launch of a program that writes one array."""
        names = tuple([(a.name, a.name) for a in (*inputs, output)])
        dispatch = Dispatch(program, TARGET, names, count, groups, arguments)
        style = Style(MATH, comments=False, dtype=dtype)
        launch = Launch("arithmetic", tuple(inputs), (output,), (), (dispatch,))
        return Launched(self._gpu, launch, style, kernels={})

    def _start(
        self,
        placed: Sequence[Placed],
        buffers: Sequence[Any],
        numbers: Numbers | None = None,
        values: Sequence[float] = (),
    ) -> None:
        """Start launches with these buffers, and these numbers."""
        gpu = self._gpu
        with self._lock, gpu.guard:
            gpu.check()
            if numbers:
                numbers.write(values)
            for p in placed:
                ranges = [(b, *w) for b, w in zip(buffers, p.windows, strict=True)]
                if numbers:
                    ranges.insert(-1, numbers.range)
                p.launched.submit(1, ranges)

    def reduce(self, ufunc: np.ufunc, x: View, axes: Sequence[int], y: View) -> None:
        """Reduce some axes of x; y is contiguous and has the others."""
        outer = [a for a in range(len(x.shape)) if a not in axes]
        low, high = x.window
        if high - low > self._most(x.itemsize):
            self._reduce_halves(ufunc, x, axes, outer, y)
            return
        length = math.prod(x.shape[a] for a in axes)
        part = ELEMENTS_PER_INVOCATION * TARGET.width
        parts = max(1, -(-length // part)) if length > ELEMENTS_PER_INVOCATION else 1
        target = y
        if parts > 1:
            between = self._gpu.storage(y.itemsize * parts * math.prod(y.shape))
            shape = (math.prod(y.shape), parts)
            target = View(between.buffer, 0, shape, c_strides(shape), y.dtype)
        key = ufunc, x.dtype, x.places, tuple(axes), target.first
        sizes = length, part, parts
        placed, _ = self._plans.get(
            key, lambda: ([self._reduction(ufunc, x, axes, target, sizes)], None)
        )
        self._start(placed, [x.buffer, target.buffer])
        if parts > 1:
            flat = View(y.buffer, y.first, (math.prod(y.shape),), (1,), y.dtype)
            self.reduce(ufunc, target, [1], flat)

    def _reduction(
        self, ufunc: np.ufunc, x: View, axes: Sequence[int], y: View, sizes: tuple[int, int, int]
    ) -> Placed:
        """The launch that reduces the axes, or parts of them, of these sizes."""
        (x, read), (y, written) = bound(x), bound(y)
        (outer,) = collapsed([x.transposed([a for a in range(len(x.shape)) if a not in axes])])
        (inner,) = collapsed([replace(x.transposed(axes), first=0)])
        by_groups, outputs = sizes[0] > ELEMENTS_PER_INVOCATION, math.prod(outer.shape)
        layouts = _layout([outer]), _layout([inner], "inner_")
        program = ReduceProgram(OPERATORS[ufunc], *layouts, by_groups)
        words = [*layouts[0].arguments([outer.places]), *layouts[1].arguments([inner.places])]
        words += [("length", sizes[0]), ("y_first", y.first)]
        words += [("part", sizes[1]), ("parts", sizes[2])] if by_groups else []
        groups = outputs * sizes[2] if by_groups else 0
        inputs = [Array("x", (read[1] // x.itemsize,))]
        output = Array("y", (written[1] // y.itemsize,))
        launched = self._launched(program, inputs, output, outputs, tuple(words), x.dtype, groups)
        return Placed(launched, (read, written))

    def _reduce_halves(
        self, ufunc: np.ufunc, x: View, axes: Sequence[int], outer: Sequence[int], y: View
    ) -> None:
        """A reduction of more than a binding holds, in halves."""
        axis = next(a for a in (*outer, *axes) if x.shape[a] > 1)
        middle = x.shape[axis] // 2
        halves = [x.part(axis, 0, middle), x.part(axis, middle, x.shape[axis])]
        if axis in outer:
            place = outer.index(axis)
            self.reduce(ufunc, halves[0], axes, y.part(place, 0, middle))
            self.reduce(ufunc, halves[1], axes, y.part(place, middle, x.shape[axis]))
            return
        partial = [self._gpu.storage(y.itemsize * math.prod(y.shape)) for _ in halves]
        views = [View(p.buffer, 0, y.shape, c_strides(y.shape), y.dtype) for p in partial]
        for half, view in zip(halves, views, strict=True):
            self.reduce(ufunc, half, axes, view)
        self.compute(Call(ufunc), views, y)


def _layout(views: Sequence[View], name: str = "") -> Layout:
    """How a kernel finds the elements of views of one shape."""
    dense = tuple([v.is_contiguous for v in views])
    return Layout(1 if all(dense) else len(views[0].shape), dense, name)


def of(gpu: Gpu) -> Arithmetic:
    """The arithmetic of a GPU's arrays."""
    arithmetic: Arithmetic = gpu.tool(Arithmetic)
    return arithmetic
