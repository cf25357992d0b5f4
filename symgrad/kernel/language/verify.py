"""The invariants of a kernel of the language, checked before it is printed, and by tests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from symgrad.expr.graph.node import WORD, Op
from symgrad.kernel.language.copy import needs
from symgrad.kernel.language.index import vector_of
from symgrad.kernel.language.ir import KernelIR, accesses, operands
from symgrad.kernel.language.statements import (
    OVER_LANES,
    Barrier,
    Buffer,
    Call,
    Fill,
    For,
    If,
    Load,
    ReadRow,
    Routine,
    Scope,
    Statement,
    Store,
    StoreRow,
    results_of,
)
from symgrad.kernel.language.uniform import diverges, varying


def verify(kernel: KernelIR) -> None:
    """Raise AssertionError with the first fault, if there is one."""
    for fault in faults(kernel):
        raise AssertionError(f"{kernel.name}: {fault}")


def faults(kernel: KernelIR) -> Iterator[str]:
    """The faults of a kernel, in words."""
    return _Check(kernel).scope(kernel.main, uniform=True)


@dataclass(frozen=True)
class _Shown:
    """An item as a person would name it, who is told of few."""

    kernel: KernelIR
    item: int | Statement

    def __str__(self) -> str:
        kernel, item = self.kernel, self.item
        if isinstance(item, int):
            return f"{item} = {kernel.graph.nodes[item][0].name}{tuple(kernel.graph.args(item))}"
        buffers = [b.name for b, _ in accesses(kernel, item)]
        return f"{type(item).__name__}{(*buffers, *operands(kernel, item))}"


class _Check:
    def __init__(self, kernel: KernelIR) -> None:
        self.kernel, self.nodes = kernel, kernel.graph.nodes
        self.buffers = set(map(id, kernel.buffers))
        self.kinds = [node[0].result for node in self.nodes]
        constants = (i for i, node in enumerate(self.nodes) if node[0].constant)
        self.known = {*kernel.given, *kernel.lengths.values(), *constants}
        """The values that are known at the place that is looked at."""
        self.computed = set(kernel.computed)
        """Nodes of a graph, which is verified as such."""
        self.known |= self.computed
        self.routines: set[int] = set()
        """The routines that are known."""
        self.loops: dict[int, For] = {}
        """The loops by their counters."""

    @cached_property
    def varying(self) -> frozenset[int]:
        """The values that may differ among the invocations of a group."""
        return varying(self.kernel, memory=True)

    # what is known where -------------------------------------------------------------------------

    def scope(self, scope: Scope, uniform: bool, ends: Sequence[int] = ()) -> Iterator[str]:
        """The faults within a scope, at whose end some values are needed."""
        local: list[int] = []
        for item in [i for i in scope.items if i not in self.computed]:
            if isinstance(item, int) and self._is_sound(scope, item):
                self.known.add(item)
                local.append(item)
                continue
            yield from self._item(scope, item)
            yield from self._inner(item, uniform)
            new = [r for r in results_of(item) if r not in self.known]
            self.known.update(new)
            local += new
        yield from self._unknown(ends, "the end of a scope")
        self.known.difference_update(local)

    def _is_around(self, scope: Scope, i: int) -> bool:
        """Whether there is an equal node in a scope around."""
        around, node = scope.parent, self.nodes[i]
        while around is not None and node not in around.index:
            around = around.parent
        return around is not None

    def _is_sound(self, scope: Scope, i: int) -> bool:
        """Whether an operation has no fault, found quickly; of some kinds it is not told."""
        op, *args = self.nodes[i]
        if type(op) is not Op or op in OVER_LANES or self._is_around(scope, i):
            return False
        if not self.known.issuperset(args) or self.kernel.home.get(i) is not scope:
            return False
        kinds = "".join([self.kinds[a] for a in args])
        return op.signature.startswith(kinds + "->") and not (op.commutative and args[0] > args[1])

    def _item(self, scope: Scope, item: int | Statement) -> Iterator[str]:
        shown = _Shown(self.kernel, item)
        yield from self._unknown(operands(self.kernel, item), shown)
        yield from self._types(item, shown)
        for result in results_of(item):
            if self.kernel.home.get(result) is not scope:
                yield f"{shown} makes {result}, which is of another scope"
        if isinstance(item, Call) and id(item.routine) not in self.routines:
            yield f"{shown} is not known there"
        if isinstance(item, int):
            yield from self._hashed(scope, item, shown)

    def _hashed(self, scope: Scope, i: int, shown: object) -> Iterator[str]:
        op, *args = self.nodes[i]
        around = scope.parent.enclosing() if scope.parent else ()
        equal = [s.index[self.nodes[i]] for s in around if self.nodes[i] in s.index]
        if any(j < i and j in self.known for j in equal):  # else it was made there later
            yield f"{shown} is known in a scope around its own"
        if op.commutative and args[0] > args[1]:
            yield f"{shown} has its arguments out of order"

    def _inner(self, item: int | Statement, uniform: bool) -> Iterator[str]:
        """The faults of what stands within an item, and of what needs all invocations."""
        if not uniform and self._waits(item):
            yield f"{_Shown(self.kernel, item)} stands where control flow may vary within a group"
        if isinstance(item, If):
            inner_uniform = uniform and not diverges(item, self.varying)
            for scope, ends in zip(item.sides, item.yields, strict=True):
                yield from self.scope(scope, inner_uniform, ends)
        if isinstance(item, Routine):
            yield from self._routine(item)
        if isinstance(item, For):
            inner_uniform = uniform and not diverges(item, self.varying)
            self.loops[item.k] = item
            loop_values = {item.k, *item.params}
            self.known |= loop_values
            yield from self._test(item)
            yield from self.scope(item.scope, inner_uniform, item.yields)
            self.known -= loop_values

    def _routine(self, routine: Routine) -> Iterator[str]:
        """A routine stands where it can be called, and needs nothing of an invocation's alone."""
        kernel = self.kernel
        if routine not in kernel.main.items:
            yield f"the routine {routine.name} stands in a scope within another"
        results = (
            r for item in kernel.main.items if isinstance(item, For | If) for r in results_of(item)
        )
        invocation_values = {*results, kernel.cell, kernel.local, kernel.group, kernel.groups}
        for i in sorted(invocation_values & needs(kernel, routine.scope.items)):
            yield f"the routine {routine.name} needs {i}, which its calls have to tell it"
        self.routines.add(id(routine))
        self.known.update(routine.params)
        yield from self.scope(routine.scope, False)
        self.known -= set(routine.params)

    def _test(self, loop: For) -> Iterator[str]:
        """A test is known before the item that it stands before."""
        if loop.test is None:
            return
        before = {r for item in loop.scope.items[: loop.test_at] for r in results_of(item)}
        if loop.test not in before and not self._is_known(loop.test):
            yield f"the test {loop.test} of a loop is not known where it is asked"

    def _unknown(self, values: Sequence[int], shown: object) -> Iterator[str]:
        yield from (
            f"{shown} needs {v}, which is not known there" for v in values if not self._is_known(v)
        )

    def _is_known(self, i: int) -> bool:
        return i in self.known

    # what it is ----------------------------------------------------------------------------------

    def _types(self, item: int | Statement, shown: object) -> Iterator[str]:
        for values, wanted in self._signatures(item):
            types = "".join(map(self.kernel.type, values))
            if types != wanted:
                yield f"{shown} takes {wanted}, not {types}"
        for buffer, index in accesses(self.kernel, item):
            yield from self._access(item, buffer, index, shown)

    def _signatures(self, item: int | Statement) -> Iterator[tuple[Sequence[int], str]]:
        """Values, and the kinds that they have to have."""
        match item:
            case int():
                yield self.kernel.graph.args(item), self.nodes[item][0].signature.partition("->")[0]
            case Load(result=value) | Store(value=value):
                yield [item.index, value], "u" + item.buffer.kind
            case ReadRow(row=row, results=columns):
                yield [row, *columns.values()], "u" + item.buffer.kind * len(columns)
            case StoreRow(buffer=buffer, values=values):
                yield values, buffer.kind * len(values)
            case Call(routine=routine, args=args):
                yield args, self._kinds(routine.params)
            case If():
                yield [item.condition], "b"
                yield from ((ys, self._kinds(item.results)) for ys in item.yields)
            case For():
                yield [item.lo, item.hi], "uu"
                yield ([], "") if item.test is None else ([item.test], "b")
                kinds = self._kinds(item.params)
                yield from ((v, kinds) for v in (item.inits, item.yields, item.results))
            case _:
                pass

    def _kinds(self, values: Sequence[int]) -> str:
        return "".join(map(self.kernel.type, values))

    def _access(
        self, item: int | Statement, buffer: Buffer, index: int | None, shown: object
    ) -> Iterator[str]:
        if id(buffer) not in self.buffers:
            yield f"{shown} is of a buffer that the kernel does not have"
        read, only = buffer.space == "read", isinstance(item, int | ReadRow)
        if only > read or (read and not only and not isinstance(item, Load)):
            yield f"{shown}: {buffer.name} is of the space {buffer.space!r}"
        if isinstance(item, Fill) and buffer.space != "own":
            yield f"{shown}: {buffer.name} is not the invocation's own"
        if isinstance(item, StoreRow) and buffer.space != "write":
            yield f"{shown}: {buffer.name} has no rows of points"
        alone = buffer.space == "group" and buffer.vector == 1
        if isinstance(item, Load) and item.agreed and not alone:
            yield f"{shown}: {buffer.name} is not a group's, of numbers by themselves"
        if buffer.atomic and isinstance(item, Store) and not item.add:
            yield f"{shown}: several groups write to {buffer.name} at the same time"
        if index is not None and self._is_in_no_vector(buffer, index):
            yield f"{shown}: {buffer.name} has vectors, and this is no number of a known one"
        if index is not None and buffer.size and self._least(index) >= buffer.size:
            yield f"{shown} is beyond the {buffer.size} numbers of {buffer.name}"

    def _is_in_no_vector(self, buffer: Buffer, index: int) -> bool:
        return buffer.vector > 1 and vector_of(self.kernel.graph, index, buffer.vector) is None

    def _least(self, i: int) -> int:
        """A word that a word is not below."""
        op, *payload = self.nodes[i]
        if i in self.loops:
            return self._least(self.loops[i].lo)
        return payload[0] if op is WORD else 0

    # in words ------------------------------------------------------------------------------------

    def _waits(self, item: int | Statement) -> bool:
        """Whether all invocations of a group have to be there."""
        agreed = isinstance(item, Load) and item.agreed
        over_lanes = isinstance(item, int) and self.nodes[item][0] in OVER_LANES
        return agreed or isinstance(item, (Barrier, StoreRow)) or over_lanes
