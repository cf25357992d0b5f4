"""Kernels whose values float, placed: for a target, with values and carries for variables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from symgrad.expr import ops
from symgrad.expr.graph.node import ANY_INPUT, Graph, Op
from symgrad.kernel.language.index import all_hold
from symgrad.kernel.language.ir import KernelIR, Target, operands
from symgrad.kernel.language.statements import (
    OPERATIONS,
    Barrier,
    Buffer,
    For,
    GroupReduce,
    If,
    Let,
    Load,
    Scope,
    Statement,
    Store,
    indices,
    lane_sum,
    within,
)
from symgrad.kernel.passes.lower import inline

Simplify = Callable[[Graph, Sequence[int], Sequence[int]], tuple[Graph, list[int]]]
"""``simplify(graph, roots, reread)`` is a simpler graph, and its roots; see `pipeline.simplified`.

``reread`` are the numbers of the roots that are kept in memory or variables, to be read again.
"""


def place(
    source: KernelIR,
    name: str,
    target: Target,
    simplify: Simplify,
    guarded: bool = False,
    unsure: Mapping[Statement, Collection[int]] | None = None,
) -> KernelIR:
    """A kernel that floats, written for a target: each value in a scope, variables as carries.

    A variable becomes the values that are stored to it: those that a loop changes are carried, and
    those that a branch changes are results of the `If` (LLVM's promotion of memory to registers).
    A reduction becomes a tree in an array of the group.

    Args:
        source: the kernel that floats.
        name: what the new kernel is called.
        target: what it is written for, in groups as wide as those of the source.
        simplify: simplifies all values of the source together.
        guarded: whether invocations beyond ``count`` do nothing.
        unsure: of accesses, the numbers of those of their indices that may be beyond an axis: they
            read the axis' last element then, and write nothing.
    """
    return _Placing(source, KernelIR(target, name), simplify, unsure or {}).write(guarded)


class _Placing:
    def __init__(
        self,
        source: KernelIR,
        kernel: KernelIR,
        simplify: Simplify,
        unsure: Mapping[Statement, Collection[int]],
    ) -> None:
        self.source, self.k, self._unsure = source, kernel, unsure
        body, nodes = within(source.main), source.graph.nodes
        roots = list(dict.fromkeys(i for s in body for i in self._values(s)))
        reread = _reread(body)
        numbers = [k for k, i in enumerate(roots) if i in reread]
        self.graph, simple_roots = simplify(source.graph, roots, numbers)
        self.roots = dict(zip(roots, simple_roots, strict=True))
        """The values of statements as they are in the simplified graph."""
        numbered = {n[1]: i for i, n in enumerate(self.graph.nodes) if n[0] in ANY_INPUT}
        self._leaves = {
            i: numbered[n[1]] for i, n in enumerate(nodes) if n[0] in ANY_INPUT and n[1] in numbered
        }
        self.known: dict[int, int] = {}
        """Values in the kernel of the leaves of the simplified graph."""
        self.variables: dict[Buffer, int] = {}
        """The values of variables at the place that the kernel has reached."""
        uses = {s.buffer for s in body if isinstance(s, Load | Store)}
        writes = {s.buffer for s in body if isinstance(s, Store)}
        self.buffers = {
            a: kernel.buffer(
                a.name,
                "read" if a.space == "write" and a not in writes else a.space,
                "u" if a.kind in "ib" else a.kind,
                a.size,
            )
            for a in source.buffers
            if a in uses
        }
        self.tile: Buffer | None = None
        """An array of the group with a number for each invocation."""

    def _values(self, s: Statement) -> Sequence[int]:
        """The values that a statement needs, the number of an element among them."""
        if isinstance(s, Load | Store):
            if s.buffer.space == "variable":
                return [s.value] if isinstance(s, Store) else []
            axes = [i for i, _ in indices(s)] if s in self._unsure else []
            return [*operands(self.source, s), s.index, *axes]
        return operands(self.source, s)

    def write(self, guarded: bool) -> KernelIR:
        """The kernel."""
        k, source = self.k, self.source
        for leaf, value in zip(source.given, k.given, strict=True):
            self._set(leaf, value)
        if guarded:
            inside = k.add(ops.word_lt, k.cell, k.count)
            k.when(inside, lambda: self.scope(source.main))
        else:
            self.scope(source.main)
        return k

    def _set(self, leaf: int, value: int) -> None:
        if leaf in self._leaves:
            self.known[self._leaves[leaf]] = value

    def value(self, i: int) -> int:
        """A value of a statement, written to where the kernel is."""
        (node,) = inline(self.k, self.graph, [self.roots[i]], self.known)
        return node

    # statements ----------------------------------------------------------------------------------

    def scope(self, scope: Scope) -> None:
        """Write the statements of a scope."""
        for s in scope.statements:
            self._statement(s)

    def _statement(self, s: Statement) -> None:
        k = self.k
        match s:
            case Let():
                value = self.value(s.value)
                if self.source.graph.nodes[s.value][0].arity or value not in k.names:
                    k.names.setdefault(value, s.name)
            case Store(buffer=variable, value=value) if variable.space == "variable":
                self.variables[variable] = self.value(value)
            case Load(result=result, buffer=variable) if variable.space == "variable":
                self._set(result, self.variables[variable])
            case Load():
                index = self._last_at_most(s) if s in self._unsure else self.value(s.index)
                loaded = k.load(self.buffers[s.buffer], index, at_use=True)
                is_truth = s.buffer.kind == "b"
                self._set(s.result, k.add(ops.word_eq, loaded, k.word(1)) if is_truth else loaded)
            case Store():
                index, value = self.value(s.index), self.value(s.value)
                if s.buffer.kind == "b":  # memory has words for truths
                    value = k.add(ops.word_where, value, k.word(1), k.word(0))
                store = partial(k.store, self.buffers[s.buffer], index, value, s.add)
                if s in self._unsure:
                    k.when(self._is_within(s), store)
                else:
                    store()
            case GroupReduce():
                self._set(s.result, self._reduced(s))
            case Barrier(results=results):
                k.barrier(results)
            case If():
                self._choose(s)
            case For():
                self._loop(s)
            case _:
                raise AssertionError(f"{type(s).__name__} does not float")

    def _last_at_most(self, s: Load) -> int:
        """The number of an element, each index of which is the last of its axis at most."""
        k = self.k
        flat: int | None = None
        for axis, (i, size) in enumerate(indices(s)):
            index = self.value(i)
            if axis in self._unsure[s]:
                index = k.add(ops.word_min, index, k.word(max(size - 1, 0)))
            row = None if flat is None else k.add(ops.word_mul, flat, k.word(size))
            flat = index if row is None else k.add(ops.word_add, row, index)
        assert flat is not None, "an access has an index"
        return flat

    def _is_within(self, s: Store) -> int:
        """Whether each index is within its axis."""
        k, unsure = self.k, self._unsure[s]
        sizes = [(i, size) for axis, (i, size) in enumerate(indices(s)) if axis in unsure]
        return all_hold(k, *(k.add(ops.word_lt, self.value(i), k.word(n)) for i, n in sizes))

    def _changed(self, *scopes: Scope) -> list[Buffer]:
        """The variables that scopes change, of those that are declared outside."""
        stores = (s.buffer for s in within(*scopes) if isinstance(s, Store))
        return [v for v in dict.fromkeys(stores) if v in self.variables]

    def _choose(self, s: If) -> None:
        changed, before = self._changed(*s.sides), dict(self.variables)

        def side(scope: Scope) -> list[int]:
            self.variables = dict(before)
            self.scope(scope)
            return [self.variables[v] for v in changed]

        results = self.k.choose(self.value(s.condition), *(partial(side, x) for x in s.sides))
        self.variables = before | dict(zip(changed, results, strict=True))
        self._call(changed, results)

    def _loop(self, s: For) -> None:
        k, changed, before = self.k, self._changed(s.scope), dict(self.variables)
        lo, hi = self.value(s.lo), self.value(s.hi)
        if s.most is not None:
            hi = self._limited(lo, hi, s.most)

        def body(counter: int, carries: list[int]) -> list[int]:
            self._set(s.k, counter)
            k.names[counter] = self.source.leaf_name(s.k)
            self.variables |= zip(changed, carries, strict=True)
            self._call(changed, carries)
            self.scope(s.scope)
            return [self.variables[v] for v in changed]

        inits = [before[v] for v in changed]
        results, _ = k.loop(lo, hi, inits, body, down=s.down, most=s.most)
        self.variables = before | dict(zip(changed, results, strict=True))

    def _limited(self, lo: int, hi: int, most: int) -> int:
        """The end of a loop of at most ``most`` iterations."""
        k = self.k
        none = k.add(ops.word_lt, hi, lo)
        iterations = k.add(ops.word_min, k.add(ops.word_sub, hi, lo), k.word(most))
        return k.add(ops.word_where, none, lo, k.add(ops.word_add, lo, iterations))

    def _call(self, variables: Sequence[Buffer], values: Sequence[int]) -> None:
        self.k.names.update((i, v.name) for v, i in zip(variables, values, strict=True))

    # reductions ----------------------------------------------------------------------------------

    def _reduced(self, s: GroupReduce) -> int:
        """The reduction of the values of neighbours: a tree of halves in an array of the group."""
        k, value = self.k, self.value(s.value)
        if s.among == 1:
            return value
        whole = s.among == k.target.width
        if whole and k.target.in_step and s.operation == "sum":
            return k.add(lane_sum, value)
        self.tile = tile = self.tile or k.buffer(self._unused("tile"), "group", size=k.target.width)
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

    def _unused(self, name: str) -> str:
        """The name, or one like it, that no buffer has."""
        while any(b.name == name for b in self.k.buffers):
            name += "_"
        return name


def _reread(body: Sequence[Statement]) -> set[int]:
    """The floats that go to variables, and to arrays that are loaded from."""
    loaded = {s.buffer for s in body if isinstance(s, Load)}
    stores = (s for s in body if isinstance(s, Store))
    return {s.value for s in stores if s.buffer in loaded or s.buffer.space == "variable"}
