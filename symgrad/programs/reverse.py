"""Reverse mode over the statements of a dispatch: what it did is undone from the last on.

A block is done forward, and then in reverse in the same place, so all values that it has made are
known there. A loop in it is done turn by turn from the last: a turn begins with what was kept of
its beginning, is done forward once more, and then in reverse. So are the sides of an `If`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from symgrad.errors import DifferentiationError
from symgrad.expr import ops
from symgrad.expr.derivatives.differentiate import vjp
from symgrad.expr.graph.node import ANY_INPUT, reachable
from symgrad.expr.tracers.expression import WRAP, Expr
from symgrad.programs.builder import Builder, Variable
from symgrad.programs.code import (
    GLOBAL,
    Array,
    Assign,
    Barrier,
    Declare,
    For,
    Get,
    If,
    Let,
    Load,
    Name,
    Reduce,
    Statement,
    Store,
    blocks,
    everything,
    operands,
)
from symgrad.programs.cotangents import Cotangents, Key
from symgrad.programs.keeping import Keeping, Source
from symgrad.programs.text import shown
from symgrad.programs.values import flat_index


class Places(Protocol):
    """Where the cotangents of arrays that all invocations have in common are."""

    def array(self, a: Array) -> Array:
        """The array itself, in the gradient program."""
        ...

    def seed(self, a: Array, index: tuple[Any, ...], add: bool) -> Any:
        """The cotangent of an element that is stored; unless it is added to, it is zero then."""
        ...

    def scatter(self, s: Load, index: tuple[Any, ...], g: Any) -> None:
        """Add to the cotangent of an element that is loaded."""
        ...


class Reverse:
    """Writes a dispatch, and its reverse, where a builder has one open."""

    def __init__(
        self, builder: Builder, source: Source, places: Places, cell: Any, writes: bool
    ) -> None:
        self.builder, self.source, self.places, self.writes = builder, source, places, writes
        d = source.dispatch
        self.values: dict[int, Any] = {d.cell: cell, d.local: builder.local, d.group: builder.group}
        """What leaves are in the new program."""
        self.variables: dict[Name, Variable] = {}
        self.arrays: dict[Array, Array] = {}
        """The dispatch's own arrays, in the new program."""
        self.cotangents: dict[Array, Array] = {}
        """The arrays of their elements' cotangents."""
        self.keeping = Keeping(self)
        self._waiting: dict[Statement, tuple[Variable, Variable]] = {}
        """Cotangents, and where they belong, of loads where invocations have parted."""
        self._staged: tuple[Array, Array] | None = None

    def write(self) -> None:
        """All of it."""
        d, builder = self.source.dispatch, self.builder
        for a in d.arrays:
            self.arrays[a] = self._own(a, a.name)
        kept_arrays = self.keeping.arrays()
        for a in kept_arrays:
            self.clear(self.arrays[a])
        if any(a.space == "workgroup" for a in kept_arrays):
            builder.barrier()
        self.forward(d.body, rerun=not self.writes, keep=True)
        touched = {s.array for s in everything(d.body) if isinstance(s, Load)}
        for a in [a for a in d.arrays if a.is_active and a in touched]:
            self.cotangents[a] = self._own(a, f"d_{a.name}")
            self.clear(self.cotangents[a])
        if any(a.space == "workgroup" for a in self.cotangents):
            builder.barrier()
        self.reverse(d.body, {})

    def replay(self) -> None:
        """The dispatch as it was."""
        d = self.source.dispatch
        for a in d.arrays:
            self.arrays[a] = self._own(a, a.name)
        self.forward(d.body, rerun=False, keep=False)

    def _own(self, a: Array, name: str) -> Array:
        """An array like one of the old dispatch's own."""
        declare = self.builder.workgroup if a.space == "workgroup" else self.builder.private
        return declare(self.builder.unused(name), a.shape, a.kind)

    def clear(self, a: Array) -> None:
        """Make all elements of an array of the dispatch's own 0."""
        zero = False if a.kind == "bool" else 0
        for _, at in self.shares(a):
            self.builder.store(a, at, zero)

    def shares(self, a: Array) -> Iterator[tuple[Any, Any]]:
        """The elements that an invocation sees to: all of its own array, some of the group's.

        They are numbered, within a loop over them.
        """
        width, builder = self.source.dispatch.width, self.builder
        if a.space == "private":
            with builder.for_(0, a.size, name="n") as n:
                yield n, n
            return
        with builder.for_(0, -(-a.size // width), name="n") as n:
            at = n * width + builder.local
            if a.size % width:
                with builder.if_(at < a.size):
                    yield n, at
            else:
                yield n, at

    # values --------------------------------------------------------------------------------------

    def value(self, i: int) -> Any:
        """A value of the old program, in the new one."""
        old, graph = self.source.code.graph, self.builder.code.graph
        copies: dict[int, int] = {}
        for n in reachable(old, [i]):
            node = old.nodes[n]
            if node[0] in ANY_INPUT:
                copies[n] = self.values[n].id
            elif node[0].arity:
                copies[n] = graph.add(node[0], *[copies[a] for a in node[1:]])
            else:
                copies[n] = graph.intern(node)
        return WRAP[graph.type(copies[i])](graph, copies[i])

    def array(self, a: Array) -> Array:
        """An array of the old program, in the new one."""
        return self.places.array(a) if a.space in GLOBAL else self.arrays[a]

    def index(self, s: Load | Store) -> tuple[Any, ...]:
        """Where a statement reads or writes, in the new program."""
        return tuple(map(self.value, s.axes))

    def leaves(self, i: int) -> list[int]:
        """The floats that a value is made of."""
        graph = self.source.code.graph
        order = reachable(graph, [i])
        return [n for n in order if graph.nodes[n][0] in ANY_INPUT and graph.type(n) == "f"]

    # forward -------------------------------------------------------------------------------------

    def forward(self, block: Sequence[Statement], rerun: bool, keep: bool) -> None:
        """Do statements; ``rerun`` is for the second time, and ``keep`` what reverse needs."""
        for s in block:
            self._forward(s, rerun, keep)

    def _forward(self, s: Statement, rerun: bool, keep: bool) -> None:
        builder = self.builder
        match s:
            case Let(name=name, value=value):
                if not rerun:
                    builder.let(name, self.value(value))
            case Declare(variable=v, value=value):
                self.variables[v] = builder.var(v.name, self.value(value), v.kind)
            case Assign(variable=v, value=value):
                builder.assign(self.variables[v], self.value(value))
            case Get(result=result, variable=v):
                self.values[result] = self.variables[v].value
            case Load(result=result, array=a):
                self.values[result] = builder.load(self.array(a), self.index(s))
            case Store(array=a, value=value, add=add):
                if a.space not in GLOBAL or not rerun:
                    write = builder.add if add else builder.store
                    write(self.array(a), self.index(s), self.value(value))
            case Reduce(result=result, operation=operation, value=value, among=among):
                reduce = getattr(builder, f"group_{operation}")
                self.values[result] = reduce(self.value(value), among)
            case Barrier():
                builder.barrier()
            case If():
                self._forward_if(s, rerun, keep)
            case For():
                self._forward_for(s, rerun, keep)

    def _forward_if(self, s: If, rerun: bool, keep: bool) -> None:
        if keep:
            self.keeping.before(s)
        with self.builder.if_(self.value(s.condition)):
            self.forward(s.then, rerun, False)
        if s.otherwise:
            with self.builder.else_():
                self.forward(s.otherwise, rerun, False)

    def _forward_for(self, s: For, rerun: bool, keep: bool) -> None:
        if keep:
            self.keeping.before(s)
        lo = self.value(s.lo)
        with self.builder.for_(lo, self.value(s.hi), down=s.down, most=s.most, name=s.name) as k:
            self.values[s.counter] = k
            if keep:
                self.keeping.iteration(s, k - lo)
            self.forward(s.body, rerun, False)

    # reverse -------------------------------------------------------------------------------------

    def reverse(self, block: Sequence[Statement], outer: dict[Key, Variable]) -> None:
        """Undo statements that have been done here."""
        cotangents = Cotangents(self.builder, outer)
        for s in reversed(block):
            if isinstance(s, If):
                self._reverse_if(s, cotangents)
            elif isinstance(s, For):
                self._reverse_for(s, cotangents)
            else:
                self._reverse(s, cotangents)
        cotangents.end()

    def _reverse(self, s: Statement, cotangents: Cotangents) -> None:
        match s:
            case Declare(variable=v, value=value) | Assign(variable=v, value=value):
                if v.kind == "f32":
                    self._back(s, value, cotangents.take(v), cotangents)
            case Get(result=result, variable=v):
                if v.kind == "f32" and (g := cotangents.take(result)) is not None:
                    cotangents.add(v, g)
            case Load(result=result, array=a):
                if a.is_active and (g := cotangents.take(result)) is not None:
                    self._scatter(s, self.index(s), g)
            case Store(array=a, value=value, add=add):
                if a.is_active and (g := self._seed(a, self.index(s), add)) is not None:
                    self._back(s, value, g, cotangents)
            case Reduce():
                self._reverse_reduce(s, cotangents)
            case Barrier():
                self.builder.barrier()
            case _:
                pass

    def _back(self, s: Statement, i: int, g: Any, cotangents: Cotangents) -> None:
        """The cotangent of a value of a statement, handed on to what it is made of."""
        leaves = self.leaves(i)
        if g is None or not leaves:
            return
        graph = self.builder.code.graph
        wrt = [self.values[leaf].id for leaf in leaves]
        try:
            parts = vjp(graph, {self.value(i).id: g.id}, wrt)
        except DifferentiationError as error:
            raise DifferentiationError(f"{shown(self.source.code, s)}: {error}") from error
        for leaf, part in zip(leaves, parts, strict=True):
            if part is not None:
                cotangents.add(leaf, Expr(graph, part))

    def _seed(self, a: Array, index: tuple[Any, ...], add: bool) -> Any:
        """The cotangent of what is stored to an element."""
        if a.space in GLOBAL:
            return self.places.seed(a, index, add)
        if a not in self.cotangents:
            return None
        g = self.builder.load(self.cotangents[a], index)
        if not add:
            self.builder.store(self.cotangents[a], index, 0.0)
        return g

    def _reverse_reduce(self, s: Reduce, cotangents: Cotangents) -> None:
        g, builder = cotangents.take(s.result), self.builder
        if g is None:
            if s.among > 1:  # it waited, and what is around it may meet otherwise
                builder.barrier()
            return
        total = builder.group_sum(g, s.among)
        if s.operation != "sum":
            hit = ops.eq(self.value(s.value), self.values[s.result])
            ties = builder.group_sum(ops.where(hit, 1.0, 0.0), s.among)
            total = ops.where(hit, total / ties, 0.0)
        self._back(s, s.value, total, cotangents)

    # blocks --------------------------------------------------------------------------------------

    def _lent(self, s: If | For, cotangents: Cotangents) -> dict[Key, Variable]:
        """The variables of the cotangents around a block that it may change."""
        graph = self.source.code.graph
        defined, keys = set[Key](), dict[Key, str]()
        inner = [t for block in blocks(s) for t in everything(block)]
        for t in inner:
            if isinstance(t, Get | Load | Reduce):
                defined.add(t.result)
            if isinstance(t, Declare):
                defined.add(t.variable)
            if isinstance(t, Assign | Get) and t.variable.kind == "f32":
                keys[t.variable] = t.variable.name
            for i in operands(t):
                if not isinstance(t, If | For | Load) and not (isinstance(t, Let)):
                    keys |= {n: graph.names[graph.nodes[n][1]] for n in self.leaves(i)}
        return cotangents.lend((key, name) for key, name in keys.items() if key not in defined)

    def _reverse_if(self, s: If, cotangents: Cotangents) -> None:
        lent = self._lent(s, cotangents)
        with self._parting(s):
            self.keeping.wait(s)
            self.keeping.restore_arrays(s)
            with self.builder.if_(self.value(s.condition)):
                self._again(s, s.then, lent)
            if s.otherwise:
                with self.builder.else_():
                    self._again(s, s.otherwise, lent)

    def _again(self, s: If | For, block: Sequence[Statement], lent: dict[Key, Variable]) -> None:
        self.keeping.restore(s)
        self.forward(block, rerun=True, keep=True)
        self.reverse(block, lent)

    def _reverse_for(self, s: For, cotangents: Cotangents) -> None:
        lent = self._lent(s, cotangents)
        lo, hi = self.value(s.lo), self.value(s.hi)
        with (
            self._parting(s),
            self.builder.for_(lo, hi, down=not s.down, most=s.most, name=s.name) as k,
        ):
            self.values[s.counter] = k
            self.keeping.wait(s)
            self.keeping.restore_iteration(s, k - lo)
            self._again(s, s.body, lent)

    # arrays of a workgroup -----------------------------------------------------------------------

    def _scatter(self, s: Load, index: tuple[Any, ...], g: Any) -> None:
        """Add to the cotangent of an element that is loaded."""
        a = s.array
        if a.space in GLOBAL:
            self.places.scatter(s, index, g)
        elif a.space == "private" or self._is_alone(s):
            self.builder.add(self.cotangents[a], index, g)
        elif s in self._waiting:
            waits, place = self._waiting[s]
            self.builder.assign(waits, g)
            self.builder.assign(place, flat_index(a, index))
        else:
            self._gather(s, flat_index(a, index), g)

    @contextmanager
    def _parting(self, s: If | For) -> Generator[None]:
        """Where invocations part: what they add to a workgroup's array waits for the end of it."""
        uniform, builder = self.source.uniform, self.builder
        loads = [t for t, head in uniform.parted.items() if head is s and self._is_shared(t)]
        for t in loads:
            assert isinstance(t, Load), "nothing else reads an array"
            self._require_once(s, t)
            name = f"d_{t.array.name}"
            self._waiting[t] = builder.var(name, 0.0), builder.var("at", t.array.size, "u32")
        yield
        for t in loads:
            assert isinstance(t, Load), "nothing else reads an array"
            waits, place = self._waiting.pop(t)
            self._gather(t, place.value, waits.value)

    def _is_shared(self, s: Statement) -> bool:
        if not isinstance(s, Load) or s.array.space != "workgroup" or not s.array.is_active:
            return False
        return not self._is_alone(s)

    def _is_alone(self, s: Load) -> bool:
        """Whether no other invocation is at the places of a load before the next barrier."""
        access = self.source.facts.accesses.get(s)
        return access is not None and access.alone

    def _require_once(self, head: If | For, s: Load) -> None:
        """Refuse what parted invocations load several times, or after they have stored there."""
        inner = [t for block in blocks(head) for t in everything(block)]
        loops = [t for t in inner if isinstance(t, For) and s in everything(t.body)]
        stores = any(isinstance(t, Store) and t.array is s.array for t in inner)
        if isinstance(head, For) or loops or stores:
            raise DifferentiationError(
                f"{shown(self.source.code, s)}: invocations that have parted, at "
                f"{shown(self.source.code, head)}, load from {s.array.name}, of the workgroup, in "
                "a loop or where they store to it, and its gradient would be a race: let all "
                "invocations do that, with where for what differs"
            )

    def _gather(self, s: Load, index: Any, g: Any) -> None:
        """Add what all invocations of a workgroup have; of several at one place, one adds it."""
        builder, width, a = self.builder, self.source.dispatch.width, s.array
        access = self.source.facts.accesses.get(s)
        if access and access.known and access.distinct and s not in self.source.uniform.parted:
            builder.add(self.cotangents[a], index, g)
            builder.barrier()
            return
        values, places = self._staging()
        builder.store(values, builder.local, g)
        builder.store(places, builder.local, index)
        builder.barrier()
        with builder.for_(0, width, name="w") as w:
            at = builder.load(places, w)
            mine = ops.word_eq(at % width, builder.local) & (at < a.size)
            with builder.if_(mine):
                builder.add(self.cotangents[a], at, builder.load(values, w))
        builder.barrier()

    def _staging(self) -> tuple[Array, Array]:
        """Arrays with a number of each invocation, and where that belongs."""
        if self._staged is None:
            builder, width = self.builder, self.source.dispatch.width
            values = builder.workgroup(builder.unused("staged"), width)
            self._staged = values, builder.workgroup(builder.unused("places"), width, "u32")
        return self._staged
