"""Dispatches of programs as kernels of the language: variables become carries and results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from symgrad.expr import ops
from symgrad.expr.graph.node import ANY_INPUT, Op
from symgrad.kernel.language import KernelIR, Target
from symgrad.kernel.layout import MAX_WORKGROUPS
from symgrad.kernel.lower import inline
from symgrad.kernel.statements import Buffer, Space, lane_sum
from symgrad.kernel.target import SimdTarget, WorkgroupTarget
from symgrad.pipeline import Options, simplified
from symgrad.programs.code import (
    TYPES,
    Array,
    Assign,
    Barrier,
    Code,
    Declare,
    Dispatch,
    For,
    Get,
    If,
    Let,
    Load,
    Name,
    Reduce,
    Statement,
    Store,
    assigned,
    everything,
    is_collective,
    operands,
)

OPERATIONS: Final[dict[str, Op]] = {"sum": ops.add, "max": ops.maximum, "min": ops.minimum}
"""What two numbers become in a reduction."""

NO_ELEMENT: Final = 2**32 - 1
"""An index that no array has."""


def stored(dispatch: Dispatch) -> set[Array]:
    """The arrays that a dispatch writes to."""
    return {s.array for s in everything(dispatch.body) if isinstance(s, Store)}


def read(dispatch: Dispatch) -> set[Array]:
    """The arrays whose elements a dispatch needs as they were."""
    statements = everything(dispatch.body)
    return {s.array for s in statements if isinstance(s, Load) or (isinstance(s, Store) and s.add)}


def used(dispatch: Dispatch) -> set[Array]:
    """The arrays that a dispatch reads or writes."""
    return {s.array for s in everything(dispatch.body) if isinstance(s, Store | Load)}


def shared_bytes(dispatch: Dispatch) -> int:
    """Bytes of the arrays of a workgroup, that of its reductions among them."""
    tiles = any(isinstance(s, Reduce) and s.among > 1 for s in everything(dispatch.body))
    arrays = (a.size for a in dispatch.arrays if a.space == "workgroup")
    return 4 * (sum(arrays) + tiles * dispatch.width)


def is_grouped(code: Code, dispatch: Dispatch) -> bool:
    """Whether it matters which invocations are in one workgroup."""
    if is_collective(dispatch.body) or any(a.space == "workgroup" for a in dispatch.arrays):
        return True
    roots = (i for s in everything(dispatch.body) for i in operands(s))
    reached = set(roots)
    stack = list(reached)
    while stack:
        node = code.graph.nodes[stack.pop()]
        new = set(node[1:] if node[0].arity else ()) - reached
        reached |= new
        stack += new
    return not reached.isdisjoint((dispatch.local, dispatch.group))


def target_of(code: Code, dispatch: Dispatch, device_target: Target) -> Target:
    """What a dispatch is written for: groups as wide as it says, where that matters."""
    if isinstance(device_target, SimdTarget):
        wide = replace(device_target, width=dispatch.width, whole=False)
        return wide if is_grouped(code, dispatch) else replace(device_target, whole=False)
    assert isinstance(device_target, WorkgroupTarget), "targets are in step, or in groups"
    groups = -(-dispatch.invocations // dispatch.width)
    return WorkgroupTarget(dispatch.width, grid=groups > MAX_WORKGROUPS)


def lower(
    code: Code, number: int, options: Options, target: Target, bounded: bool = False
) -> KernelIR:
    """A dispatch of a program as a kernel; see `DispatchProgram`."""
    return _Lowering(code, code.dispatches[number], options, target, bounded).kernel(number)


def _reread(dispatch: Dispatch) -> set[int]:
    """The floats that go to variables, and to arrays that the dispatch loads from."""
    body = list(everything(dispatch.body))
    loaded = {s.array for s in body if isinstance(s, Load)}
    stores = (s for s in body if isinstance(s, Store) and s.array in loaded)
    assignments = (s for s in body if isinstance(s, Declare | Assign))
    return {s.value for s in (*stores, *assignments)}


class _Lowering:
    def __init__(
        self, code: Code, dispatch: Dispatch, options: Options, target: Target, bounded: bool
    ) -> None:
        self.code, self.dispatch, self.target, self.bounded = code, dispatch, target, bounded
        roots = list(dict.fromkeys(i for s in everything(dispatch.body) for i in _values(s)))
        reread = _reread(dispatch)
        numbers = [k for k, i in enumerate(roots) if i in reread]
        self.graph, simple_roots = simplified(code.graph, roots, options, reread=numbers)
        self.roots = dict(zip(roots, simple_roots, strict=True))
        """The values of statements as they are in the simplified graph."""
        numbered = {n[1]: i for i, n in enumerate(self.graph.nodes) if n[0] in ANY_INPUT}
        nodes = code.graph.nodes
        self._leaves = {
            i: numbered[n[1]] for i, n in enumerate(nodes) if n[0] in ANY_INPUT and n[1] in numbered
        }
        self.known: dict[int, int] = {}
        """What leaves of the simplified graph are in the kernel."""
        self.variables: dict[Name, int] = {}
        self.tiles: dict[str, Buffer] = {}

    def kernel(self, number: int) -> KernelIR:
        """The kernel."""
        several = f"_{number + 1}" if len(self.code.dispatches) > 1 else ""
        self.k = k = KernelIR(self.target, f"{self.code.name}{several}")
        writes, uses = stored(self.dispatch), used(self.dispatch)
        spaces: dict[str, Space] = {"workgroup": "group", "private": "own"}
        self.buffers = {
            a: k.buffer(
                a.name,
                spaces.get(a.space, "write" if a in writes else "read"),
                TYPES[a.kind].replace("b", "u"),
                a.size,
            )
            for a in (*self.code.arrays, *self.dispatch.arrays)
            if a in uses
        }
        d = self.dispatch
        for leaf, value in ((d.cell, k.cell), (d.local, k.local), (d.group, k.group)):
            self._set(leaf, value)
        if is_collective(d.body) or d.invocations % self.target.width == 0:
            self.block(d.body)
        else:
            inside = k.add(ops.word_lt, k.cell, k.count)
            k.when(inside, lambda: self.block(d.body))
        return k

    def _set(self, leaf: int, value: int) -> None:
        if leaf in self._leaves:
            self.known[self._leaves[leaf]] = value

    def value(self, i: int) -> int:
        """A value of a statement, written to where the kernel is."""
        (node,) = inline(self.k, self.graph, [self.roots[i]], self.known)
        return node

    # statements ----------------------------------------------------------------------------------

    def block(self, block: Sequence[Statement]) -> None:
        """Write statements."""
        for statement in block:
            self.statement(statement)

    def statement(self, s: Statement) -> None:
        """Write one."""
        k = self.k
        match s:
            case Let():
                value = self.value(s.value)
                if self.code.graph.nodes[s.value][0].arity or value not in k.names:
                    k.names.setdefault(value, s.name)
            case Declare() | Assign():
                self.variables[s.variable] = self.value(s.value)
            case Get():
                self._set(s.result, self.variables[s.variable])
            case Load():
                loaded = k.load(self.buffers[s.array], self._index(s), here=True)
                is_truth = s.array.kind == "bool"
                self._set(s.result, k.add(ops.word_eq, loaded, k.word(1)) if is_truth else loaded)
            case Store():
                index, value = self._index(s), self.value(s.value)
                if s.array.kind == "bool":  # memory has words for truths
                    value = k.add(ops.word_where, value, k.word(1), k.word(0))
                k.store(self.buffers[s.array], index, value, s.add)
            case Reduce():
                self._set(s.result, self._reduced(s))
            case Barrier():
                k.barrier()
            case If():
                self._choose(s)
            case For():
                self._loop(s)

    def _index(self, s: Load | Store) -> int:
        """The number of an element; of none, if it is bounded, where an axis has no such index."""
        k, index = self.k, self.value(s.index)
        if self.bounded and len(s.axes) > 1:
            for axis, size in zip(s.axes, s.array.shape, strict=True):
                inside = k.add(ops.word_lt, self.value(axis), k.word(size))
                index = k.add(ops.word_where, inside, index, k.word(NO_ELEMENT))
        return index

    def _choose(self, s: If) -> None:
        changed = assigned([*s.then, *s.otherwise])
        before = dict(self.variables)

        def side(block: Sequence[Statement]) -> list[int]:
            self.variables = dict(before)
            self.block(block)
            return [self.variables[v] for v in changed]

        results = self.k.choose(
            self.value(s.condition), partial(side, s.then), partial(side, s.otherwise)
        )
        self.variables = before | dict(zip(changed, results, strict=True))
        self._call(changed, results)

    def _loop(self, s: For) -> None:
        k, changed, before = self.k, assigned(s.body), dict(self.variables)
        lo, hi = self.value(s.lo), self.value(s.hi)
        if s.most is not None:
            hi = self._limited(lo, hi, s.most, s.down)

        def body(counter: int, carries: list[int]) -> list[int]:
            self._set(s.counter, counter)
            k.names[counter] = s.name
            self.variables |= zip(changed, carries, strict=True)
            self._call(changed, carries)
            self.block(s.body)
            return [self.variables[v] for v in changed]

        inits = [before[v] for v in changed]
        results, _ = k.loop(lo, hi, inits, body, down=s.down, most=s.most)
        self.variables = before | dict(zip(changed, results, strict=True))

    def _limited(self, lo: int, hi: int, most: int, down: bool) -> int:
        """The end of a loop of at most ``most`` iterations."""
        k = self.k
        none = k.add(ops.word_lt, hi, lo)
        iterations = k.add(ops.word_min, k.add(ops.word_sub, hi, lo), k.word(most))
        return k.add(ops.word_where, none, lo, k.add(ops.word_add, lo, iterations))

    def _call(self, variables: Sequence[Name], values: Sequence[int]) -> None:
        self.k.names.update((i, v.name) for v, i in zip(variables, values, strict=True))

    # reductions ----------------------------------------------------------------------------------

    def _reduced(self, s: Reduce) -> int:
        """The reduction of the values of neighbours: a tree of halves in an array of the group."""
        k, value = self.k, self.value(s.value)
        if s.among == 1:
            return value
        whole = s.among == k.target.width
        if whole and k.target.in_step and s.operation == "sum":
            return k.add(lane_sum, value)
        tile = self._tile()
        k.store(tile, k.local, value)
        k.barrier()
        place = k.local if whole else k.add(ops.word_and, k.local, k.word(s.among - 1))
        half = s.among // 2
        while half:
            neighbour = k.add(ops.word_add, k.local, k.word(half))
            lower = k.add(ops.word_lt, place, k.word(half))
            k.when(lower, partial(self._join, tile, neighbour, OPERATIONS[s.operation]))
            k.barrier()
            half //= 2
        first = k.word(0) if whole else k.add(ops.word_sub, k.local, place)
        reduced = k.agreed(tile, first) if whole else k.load(tile, first)
        if not whole:
            k.barrier()
        return reduced

    def _join(self, tile: Buffer, neighbour: int, op: Op) -> None:
        k = self.k
        joined = k.add(op, k.load(tile, k.local), k.load(tile, neighbour))
        k.store(tile, k.local, joined)

    def _tile(self) -> Buffer:
        """An array of the group with a number for each invocation."""
        if "f" not in self.tiles:
            name = "tile"
            while any(b.name == name for b in self.k.buffers):
                name += "_"
            self.tiles["f"] = self.k.buffer(name, "group", size=self.k.target.width)
        return self.tiles["f"]


def _values(s: Statement) -> Sequence[int]:
    """The values that a statement needs, the number of an element among them."""
    return (*operands(s), s.index) if isinstance(s, Load | Store) else operands(s)


@dataclass(frozen=True)
class DispatchProgram:
    """What writes a dispatch of a program: see `symgrad.kernel.launch.Program`.

    Where it is ``bounded``, an index beyond its axis leads to no element, which an interpreter
    refuses; otherwise the index of the element in C order is all that is computed.
    """

    code: Code
    number: int
    options: Options
    bounded: bool = False

    def __call__(self, target: Target) -> KernelIR:
        """The kernel."""
        return lower(self.code, self.number, self.options, target, self.bounded)
