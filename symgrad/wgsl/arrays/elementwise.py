"""Elementwise arithmetic, copies and reductions of arrays on a GPU, by small kernels that are kept.

The arithmetic is the library's own: what a NumPy ufunc makes of expressions is traced, and emitted
as every kernel is, so that ``x * y`` of arrays has the bits of ``x * y`` in a kernel.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np

from symgrad.cache import Once
from symgrad.errors import TraceError
from symgrad.expr.graph.node import inputs_of, reachable
from symgrad.expr.laws.simplify import simplify
from symgrad.expr.tracing.trace import trace
from symgrad.kernel.target import MAX_WORKGROUPS
from symgrad.kernel.threads import converted
from symgrad.kernel.uses import bind
from symgrad.mathlib.define import functions, inlined, lower
from symgrad.values.arrays import name_of
from symgrad.wgsl.arrays.strided import ALIGNMENT, View, bound, c_strides, collapsed, pieces
from symgrad.wgsl.device.gpus import Gpu
from symgrad.wgsl.memory.encoding import Step
from symgrad.wgsl.memory.pool import Storage
from symgrad.wgsl.printing.operations import FLOATS, PAIR, PRIMARY, SINGLE, Floats
from symgrad.wgsl.printing.printer import Library
from symgrad.wgsl.printing.source import Style
from symgrad.wgsl.printing.values import Writer

ELEMENTWISE_INVOCATIONS: Final = 256
"""Invocations of a workgroup."""

ELEMENTS: Final = 4
"""Elements that an invocation computes at least, where there are many."""

ELEMENTS_PER_INVOCATION: Final = 64
"""Elements that an invocation reduces one after another, which bounds the rounding errors."""

KEPT_PLANS: Final = 256
"""Dispatches that are kept: for a function, shapes and places in buffers."""

MATH: Final = "accurate"

IDENTITIES: Final[dict[np.ufunc, float]] = {
    np.add: 0.0,
    np.multiply: 1.0,
    np.maximum: -math.inf,
    np.minimum: math.inf,
}
"""The ufuncs that arrays are reduced by, and what they begin with."""


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
def definition(call: Call, dtype: str = "float32") -> tuple[str, ...]:
    """The lines of a WGSL function ``apply(a0, ..)`` in a dtype, after those that it calls.

    Raises:
        TraceError: if the ufunc is not defined for expressions, or has a truth value.
    """
    try:
        traced = trace(call, call.variables)
    except TypeError as error:  # also of Python's: expressions have no such operator
        raise TraceError(f"{call.ufunc.__name__} is not defined for expressions") from error
    if traced.structure.kind is not None:
        raise TraceError(f"{call.ufunc.__name__} has a truth value as its result")
    graph, roots = simplify(traced.graph, traced.outputs, True, inlined(MATH, dtype))
    graph, (root,) = lower(graph, roots, MATH, dtype)
    order = [i for i in reachable(graph, [root]) if graph.nodes[i][0].arity]
    style = Style(comments=False, dtype=dtype)
    library, kind = Library(functions(MATH, dtype), style.floats), style.floats.type
    writer = Writer(graph, bind(graph, order, [root]), library.names, style)
    names = [f"a{k}" for k in range(call.variables)]
    writer.texts |= {i: (name, PRIMARY) for i, name in zip(inputs_of(graph), names, strict=True)}
    lines = [line for i in order if (line := writer.write(i))]
    arguments = ", ".join(f"{name}: {kind}" for name in names)
    return (
        *library.definitions(writer.used),
        f"fn apply({arguments}) -> {kind} {{",
        *lines,
        f"  return {writer.text(root)};",
        "}",
        "",
    )


@dataclass(frozen=True)
class Addressing:
    """How kernels find the elements of views of one shape: numbers of a block, by their places."""

    lengths: int
    """The number of axes."""
    dense: tuple[bool, ...]
    """Which of the views are contiguous."""
    first: int = 1
    """The place of the first number."""

    @property
    def end(self) -> int:
        """The place after the last number."""
        strided = self.lengths * sum(not d for d in self.dense)
        return self.first + self.lengths + len(self.dense) + strided

    def numbers(self, views: Sequence[View]) -> list[int]:
        """The numbers of the block from ``first`` on: lengths, and for each view its place."""
        block = list(views[0].shape)
        for view, dense in zip(views, self.dense, strict=True):
            block += [view.first, *(() if dense else view.strides)]
        return block

    def lines(self, index: str, tag: str) -> Iterator[str]:
        """Statements that take an index in C order apart: one number for every axis."""
        if all(self.dense):
            return
        rest = index
        for axis in reversed(range(self.lengths)):
            length = f"block[{self.first + axis}]"
            last = axis == 0
            yield f"    let {tag}{axis} = {rest}{'' if last else f' % {length}'};"
            if not last:
                yield f"    let {tag}_rest{axis} = {rest} / {length};"
                rest = f"{tag}_rest{axis}"

    def place(self, number: int, index: str, tag: str) -> str:
        """Where a view has the element."""
        at = self.first + self.lengths
        for dense in self.dense[:number]:
            at += 1 if dense else 1 + self.lengths
        if self.dense[number]:
            return f"block[{at}] + {index}"
        steps = (f"{tag}{a} * block[{at + 1 + a}]" for a in range(self.lengths))
        return " + ".join([f"block[{at}]", *steps])


def floats_of(view: View) -> Floats:
    """How WGSL has the floats of a view."""
    return FLOATS[view.dtype]


def _preamble(kinds: Sequence[str], kind: str, floats: Floats, title: str) -> Iterator[str]:
    yield f"// {title}"
    yield floats.params()
    yield ""
    yield "@group(0) @binding(0) var<uniform> params: Params;"
    yield "@group(0) @binding(1) var<storage, read> block: array<u32>;  // sizes, places, numbers"
    for k, each in enumerate(kinds):
        yield f"@group(0) @binding({k + 2}) var<storage, read> x{k}: array<{each}>;"
    yield f"@group(0) @binding({len(kinds) + 2}) var<storage, read_write> y: array<{kind}>;"
    yield ""


def _elementwise(
    call: Call | None, arrays: tuple[bool, ...], views: Sequence[View], at: Addressing
) -> str:
    """The source of an elementwise kernel; without a call it copies bits.

    The last of the views is that of the results, in whose dtype it computes.
    """
    *each, floats = map(floats_of, views)
    kinds = [f.type if call else f.word for f in each]
    kind, count = (floats.type if call else floats.word), sum(arrays)
    words = floats.dtype.itemsize // 4
    title = f"{call.ufunc.__name__}, elementwise" if call else "a copy of what stands apart"
    values, array, number = [], 0, at.end
    for is_array in arrays:
        if is_array:
            element = f"x{array}[{at.place(array, 'i', 'k')}]"
            values.append(_as_floats(element, each[array], floats) if call else element)
            array += 1
        else:
            values.append(_from_block(number, floats))
            number += words
    value = f"apply({', '.join(values)})" if call else values[0]
    lines = [
        *_preamble(kinds, kind, floats, title),
        *(definition(call, views[-1].dtype) if call else ()),
        f"@compute @workgroup_size({ELEMENTWISE_INVOCATIONS})",
        "fn main(@builtin(global_invocation_id) id: vec3<u32>,",
        "        @builtin(num_workgroups) groups: vec3<u32>) {",
        f"  for (var i = id.x; i < block[0]; i += groups.x * {ELEMENTWISE_INVOCATIONS}u) {{",
        *at.lines("i", "k"),
        f"    y[{at.place(count, 'i', 'k')}] = {value};",
        "  }",
        "}",
    ]
    return "\n".join(lines) + "\n"


def _from_block(number: int, floats: Floats) -> str:
    """A float whose bits stand in the block from a number on."""
    if floats is SINGLE:
        return f"bitcast<f32>(block[{number}])"
    if floats is PAIR:
        return f"bitcast<vec2<f32>>(vec2<u32>(block[{number}], block[{number + 1}]))"
    return f"bitcast<f64>(u64(block[{number}]) | (u64(block[{number + 1}]) << 32u))"


def _as_floats(element: str, given: Floats, floats: Floats) -> str:
    """An element as a wider float."""
    if given is floats:
        return element
    if floats is PAIR:
        return f"vec2<f32>({element}, 0.0f)"
    return f"f64({element}.x) + f64({element}.y)" if given is PAIR else f"f64({element})"


def _numbers(values: Sequence[float], dtype: np.dtype[Any]) -> np.ndarray:
    """The words of floats of a dtype."""
    return converted(np.array(values, np.float64), dtype).view(np.uint32)


def _reduction(
    call: Call, outputs: Addressing, reduced: Addressing, floats: Floats, by_groups: bool
) -> str:
    """The source of a reduction: of each output by one invocation, or part by part by workgroups.

    The block: outputs, addresses, then the length that is reduced, that of a part, the number of
    parts, where y begins, and the identity.
    """
    body, kind = _by_groups if by_groups else _by_invocations, floats.type
    lines = [
        *_preamble([kind], kind, floats, f"{call.ufunc.__name__}.reduce"),
        *definition(call, name_of(floats.dtype)),
        *body(outputs, reduced, floats),
    ]
    return "\n".join(lines) + "\n"


def _by_invocations(outputs: Addressing, reduced: Addressing, floats: Floats) -> Iterator[str]:
    """An invocation reduces all elements of an output."""
    length, _, _, y = (f"block[{reduced.end + k}]" for k in range(4))
    identity = _from_block(reduced.end + 4, floats)
    yield f"@compute @workgroup_size({ELEMENTWISE_INVOCATIONS})"
    yield "fn main(@builtin(global_invocation_id) id: vec3<u32>,"
    yield "        @builtin(num_workgroups) groups: vec3<u32>) {"
    yield f"  for (var o = id.x; o < block[0]; o += groups.x * {ELEMENTWISE_INVOCATIONS}u) {{"
    yield from outputs.lines("o", "k")
    yield f"    var sum = {identity};"
    yield f"    for (var j = 0u; j < {length}; j++) {{"
    yield from _step(outputs, reduced)
    yield "    }"
    yield f"    y[{y} + o] = sum;"
    yield "  }"
    yield "}"


def _by_groups(outputs: Addressing, reduced: Addressing, floats: Floats) -> Iterator[str]:
    """A workgroup reduces a part of the elements of an output."""
    length, part, parts, y = (f"block[{reduced.end + k}]" for k in range(4))
    identity = _from_block(reduced.end + 4, floats)
    yield f"var<workgroup> tile: array<{floats.type}, {ELEMENTWISE_INVOCATIONS}>;"
    yield ""
    yield f"@compute @workgroup_size({ELEMENTWISE_INVOCATIONS})"
    yield "fn main(@builtin(workgroup_id) group: vec3<u32>,"
    yield "        @builtin(num_workgroups) groups: vec3<u32>,"
    yield "        @builtin(local_invocation_index) local: u32) {"
    yield "  let number = group.y * groups.x + group.x;"
    yield f"  let o = number / {parts};"
    yield "  if (o >= block[0]) { return; }"
    yield from outputs.lines("o", "k")
    yield f"  let first = number % {parts} * {part};"
    yield f"  let end = min(first + {part}, {length});"
    yield f"  var sum = {identity};"
    yield f"  for (var j = first + local; j < end; j += {ELEMENTWISE_INVOCATIONS}u) {{"
    yield from _step(outputs, reduced)
    yield "  }"
    yield "  tile[local] = sum;"
    yield f"  for (var half = {ELEMENTWISE_INVOCATIONS // 2}u; half > 0u; half /= 2u) {{"
    yield "    workgroupBarrier();"
    yield "    if (local < half) { tile[local] = apply(tile[local], tile[local + half]); }"
    yield "  }"
    yield f"  if (local == 0u) {{ y[{y} + number] = tile[0]; }}"
    yield "}"


def _step(outputs: Addressing, reduced: Addressing) -> Iterator[str]:
    """Add element j to the sum of output o."""
    yield from reduced.lines("j", "r")
    place = f"{outputs.place(0, 'o', 'k')} + ({reduced.place(0, 'j', 'r')})"
    yield f"      sum = apply(sum, x0[{place}]);"


@dataclass
class Planned:
    """A dispatch but for its buffers: ``windows`` are first byte and bytes of what it binds."""

    pipeline: Any
    block: Storage
    numbers: np.ndarray
    """The numbers of the block."""
    windows: tuple[tuple[int, int], ...]
    floats: np.dtype[Any]
    """The dtype that it computes in."""
    across: int
    down: int


class Arithmetic:
    """The small kernels of a GPU. Several threads may use it; they take turns."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._lock = threading.Lock()
        self._plans: Once[Any, list[Planned]] = Once(KEPT_PLANS)

    def compute(self, call: Call | None, arguments: Sequence[View | float], y: View) -> None:
        """Write the call of these arguments, of y's shape or numbers, to y; None copies bits."""
        arrays = tuple(isinstance(a, View) for a in arguments)
        views = [*(a for a in arguments if isinstance(a, View)), y]
        key = call, arrays, tuple([(v.dtype, *v.places) for v in views])
        plans = self._plans.get(key, lambda: self._planned(call, arrays, views))
        numbers = [a for a in arguments if not isinstance(a, View)]
        self._start(plans, [v.buffer for v in views], _numbers(numbers, floats_of(y).dtype))

    def _planned(
        self, call: Call | None, arrays: tuple[bool, ...], views: list[View]
    ) -> list[Planned]:
        """The dispatches of an elementwise kernel, as many as bindings make necessary."""
        plans: list[Planned] = []
        floats = floats_of(views[-1]).dtype
        for part in pieces(views, self._most(max(v.itemsize for v in views))):
            moved, windows = zip(*map(bound, collapsed(part)), strict=True)
            at = Addressing(len(moved[0].shape), tuple(v.is_contiguous for v in moved))
            count = math.prod(moved[0].shape)
            words = arrays.count(False) * floats.itemsize // 4
            block = [count, *at.numbers(moved), *[0] * words]
            groups = min(-(-count // (ELEMENTWISE_INVOCATIONS * ELEMENTS)), MAX_WORKGROUPS)
            source = _elementwise(call, arrays, moved, at)
            plans.append(self._plan(source, block, windows, floats, groups))
        return plans

    def _most(self, itemsize: int) -> int:
        """The most elements of a binding, wherever in its first bytes they begin."""
        return (self._gpu.max_binding - ALIGNMENT) // itemsize

    def _plan(
        self,
        source: str,
        block: list[int],
        windows: Any,
        floats: np.dtype[Any],
        across: int,
        down: int = 1,
    ) -> Planned:
        numbers = np.array([n & 0xFFFFFFFF for n in block], np.uint32)
        storage = self._gpu.storage(numbers.nbytes)
        with self._gpu.guard:
            self._gpu.write(storage.buffer, 0, numbers)
        pipeline = self._gpu.pipeline(source, 1, len(windows))  # the block, and all but the last
        return Planned(pipeline, storage, numbers, windows, floats, across, down)

    def _start(
        self, plans: list[Planned], buffers: Sequence[Any], numbers: np.ndarray | None = None
    ) -> None:
        """Start dispatches with these buffers, and these numbers at the end of the block."""
        gpu = self._gpu
        with self._lock, gpu.guard:
            gpu.check()
            for p in plans:
                if numbers is not None and numbers.size:
                    last = p.numbers[-numbers.size :]
                    if not np.array_equal(last, numbers):
                        last[...] = numbers
                        gpu.write(p.block.buffer, 0, p.numbers)
                ranges = [(b, *w) for b, w in zip(buffers, p.windows, strict=True)]
                block = (p.block.buffer, 0, p.numbers.nbytes)
                bindings = gpu.bind(1, [block, *ranges], len(ranges), (), p.floats)
                gpu.submit_unwaited([Step(p.pipeline, bindings, p.across, p.down)])

    def reduce(self, ufunc: np.ufunc, x: View, axes: Sequence[int], y: View) -> None:
        """Reduce some axes of x; y is contiguous and has the others."""
        outer = [a for a in range(len(x.shape)) if a not in axes]
        low, high = x.window
        if high - low > self._most(x.itemsize):
            self._reduce_halves(ufunc, x, axes, outer, y)
            return
        length = math.prod(x.shape[a] for a in axes)
        part = ELEMENTS_PER_INVOCATION * ELEMENTWISE_INVOCATIONS
        parts = max(1, -(-length // part)) if length > ELEMENTS_PER_INVOCATION else 1
        target = y
        if parts > 1:
            between = self._gpu.storage(y.itemsize * parts * math.prod(y.shape))
            shape = (math.prod(y.shape), parts)
            target = View(between.buffer, 0, shape, c_strides(shape), y.dtype)
        key = ufunc, x.dtype, x.places, tuple(axes), target.first
        sizes = length, part, parts
        plans = self._plans.get(key, lambda: [self._reducing(ufunc, x, axes, target, sizes)])
        self._start(plans, [x.buffer, target.buffer])
        if parts > 1:
            flat = View(y.buffer, y.first, (math.prod(y.shape),), (1,), y.dtype)
            self.reduce(ufunc, target, [1], flat)

    def _reducing(
        self, ufunc: np.ufunc, x: View, axes: Sequence[int], y: View, sizes: tuple[int, int, int]
    ) -> Planned:
        """The dispatch that reduces the axes, or parts of them, of these sizes."""
        by_groups, floats = sizes[0] > ELEMENTS_PER_INVOCATION, floats_of(x)
        (x, read), (y, written) = bound(x), bound(y)
        (outer,) = collapsed([x.transposed([a for a in range(len(x.shape)) if a not in axes])])
        (inner,) = collapsed([replace(x.transposed(axes), first=0)])
        at = Addressing(len(outer.shape), (outer.is_contiguous,))
        below = Addressing(len(inner.shape), (inner.is_contiguous,), at.end)
        outputs = math.prod(outer.shape)
        identity = _numbers([IDENTITIES[ufunc]], floats.dtype).tolist()
        places = [*at.numbers([outer]), *below.numbers([inner])]
        block = [outputs, *places, *sizes, y.first, *identity]
        groups = outputs * sizes[2] if by_groups else -(-outputs // ELEMENTWISE_INVOCATIONS)
        across = min(groups, MAX_WORKGROUPS)
        down = -(-groups // across) if by_groups else 1
        source = _reduction(Call(ufunc), at, below, floats, by_groups)
        return self._plan(source, block, (read, written), floats.dtype, across, down)

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
