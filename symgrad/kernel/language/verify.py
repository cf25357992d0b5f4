"""The invariants of a kernel, checked before it is printed, and by tests; which values vary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from symgrad.expr.graph.node import WORD, Op, reachable
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
    GroupReduce,
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

# Which values of a kernel are the same in all invocations of a group, and which vary.


def varying(kernel: KernelIR, memory: bool = False) -> frozenset[int]:
    """The values that may differ among the invocations of a group.

    With ``memory`` also those that are loaded from what invocations write to, at one index or not:
    compilers of WGSL take no such value for uniform.
    """
    return frozenset(Uniformity(kernel, memory).variant)


class Uniformity:
    """The values of a kernel that vary, and where invocations part, item by item.

    ``variant`` are the values that may differ among the invocations of a group, or ``among`` groups
    as well; of a kernel that floats, also what is made of such values does. ``parted`` are the
    statements that stand where invocations may go different ways, and the outermost statement at
    which they part.
    """

    def __init__(
        self,
        kernel: KernelIR,
        memory: bool = False,
        among: Literal["invocations", "groups"] = "invocations",
    ) -> None:
        self.kernel, self.nodes, self.memory, self.among = kernel, kernel.graph.nodes, memory, among
        self.variant = {kernel.cell, kernel.local if among == "invocations" else kernel.group}
        self.parted: dict[Statement, For | If] = {}
        self._variables: set[Buffer] = set()
        """The variables that vary."""
        self._follow(kernel.main.items, None)

    def varies(self, i: int) -> bool:
        """Whether a value of a kernel that floats may differ."""
        return not self.variant.isdisjoint(reachable(self.kernel.graph, [i]))

    def _follow(self, items: Iterable[int | Statement], head: For | If | None) -> None:
        """Find what varies of what some items make, where invocations have parted at a ``head``."""
        nodes, variant = self.nodes, self.variant
        for item in items:
            if not isinstance(item, int):
                if head is not None:
                    self.parted[item] = head
                if self.kernel.floating:
                    self._compute(item)
                self._statement(item, head)
                continue
            node = nodes[item]
            varies = node[1] in variant or not variant.isdisjoint(node[2:])
            if varies and node[0] not in OVER_LANES:
                variant.add(item)

    def _compute(self, item: Statement) -> None:
        """Follow what a statement needs, which stands nowhere."""
        index = [item.index] if isinstance(item, Load | Store) else []
        needed = reachable(self.kernel.graph, [*operands(self.kernel, item), *index])
        self._follow([i for i in needed if self.nodes[i][0].arity], None)

    def _statement(self, item: Statement, head: For | If | None) -> None:
        match item:
            case Load(result=result, buffer=buffer, index=index, agreed=False):
                memory = self.memory and buffer.space in ("write", "group")
                stored = buffer.space == "own" or buffer in self._variables
                if memory or stored or index in self.variant:
                    self.variant.add(result)
            case Store(buffer=buffer, value=value) if buffer.space == "variable":
                if head is not None or value in self.variant:
                    self._variables.add(buffer)
            case GroupReduce(result=result, value=value, among=among):
                width = self.kernel.target.width
                agreed = among == width and self.among == "invocations"
                if among not in (1, width) or (value in self.variant and not agreed):
                    self.variant.add(result)
            case ReadRow(row=row, results=columns):
                if row in self.variant:
                    self.variant.update(columns.values())
            case Routine(scope=scope, params=params):
                self.variant.update(params)
                self._follow(scope.items, head)
            case If():
                self._if(item, head)
            case For():
                self._for(item, head)
            case _:
                pass

    def _if(self, item: If, head: For | If | None) -> None:
        parts = item.condition in self.variant
        for side in item.sides:
            self._follow(side.items, head or (item if parts else None))
        for result, *values in zip(item.results, *item.yields, strict=False):
            if not self.variant.isdisjoint((item.condition, *values)):
                self.variant.add(result)

    def _for(self, loop: For, head: For | If | None) -> None:
        """Follow the iterations, until what is carried varies no more than before.

        Where one invocation takes more iterations than another, what a carry is differs too.
        """
        variant, new = self.variant, {loop.k} if loop.lo in self.variant else set[int]()
        while True:
            new.update(self._carried(loop))
            variant |= new
            variables = len(self._variables)
            self._follow(loop.scope.items, head or (loop if self._ends(loop) else None))
            new = set(self._carried(loop))
            if new <= variant and len(self._variables) == variables:
                break
        pairs = zip(loop.params, loop.results, strict=False)
        variant.update(result for param, result in pairs if param in variant)
        if self._ends(loop):
            variant.add(loop.count)

    def _ends(self, loop: For) -> bool:
        """Whether some invocations turn more often than others."""
        return not self.variant.isdisjoint((loop.lo, loop.hi, loop.test))

    def _carried(self, loop: For) -> Iterator[int]:
        """The carries that vary."""
        ends = self._ends(loop)
        for param, init, following in zip(loop.params, loop.inits, loop.yields, strict=False):
            if ends or init in self.variant or following in self.variant:
                yield param


def diverges(statement: For | If, varying: frozenset[int]) -> bool:
    """Whether invocations of a group may part at a statement."""
    if isinstance(statement, If):
        return statement.condition in varying
    return not varying.isdisjoint((statement.lo, statement.hi, statement.test))


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
