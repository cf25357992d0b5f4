"""Reverse mode over the statements of a dispatch: what it did is undone from the last on.

A block is done forward, and then in reverse in the same place, so all values that it has made are
known there. A loop is done from its last iteration on: each begins with what was kept of its
beginning, is done forward once more, and then in reverse. So are the sides of an `If`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

from symgrad.errors import DifferentiationError
from symgrad.expr import ops
from symgrad.expr.derivatives.differentiate import vjp
from symgrad.expr.graph.node import ANY_INPUT, reachable
from symgrad.expr.tracers.expression import WRAP, Expr
from symgrad.kernel.language.ir import operands
from symgrad.kernel.language.statements import (
    BOUND,
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
    scopes_of,
    within,
)
from symgrad.programs.builder import Builder, Variable
from symgrad.programs.code import NAMES, Array, flat_index, shown
from symgrad.programs.keeping import Keeping, Source

Key = int | Buffer
"""A leaf of the program that is differentiated, or a variable of it."""


class Cotangents:
    """The cotangents known in a block; ``outer`` are the variables that hold some around it.

    In straight code a cotangent is a value. What a block within another one adds to it is in a
    variable, which both have.
    """

    def __init__(self, builder: Builder, outer: dict[Key, Variable]) -> None:
        self.builder, self._outer = builder, set(outer)
        self.variables = dict(outer)
        self._values: dict[Key, Any] = {}
        self._changed: set[Key] = set()

    def get(self, key: Key) -> Any:
        """A cotangent; None is zero."""
        if key not in self._values and key in self.variables:
            self._values[key] = self.variables[key].value
        return self._values.get(key)

    def add(self, key: Key, g: Any) -> None:
        """Add to one."""
        before = self.get(key)
        self._values[key] = g if before is None else before + g
        self._changed.add(key)

    def take(self, key: Key) -> Any:
        """One, which is zero from now on."""
        cotangent = self.get(key)
        self._values[key] = None
        self._changed.add(key)
        return cotangent

    def _settle(self, key: Key) -> None:
        """Write one to its variable."""
        if key in self._changed:
            value = self._values.get(key)
            self.builder.assign(self.variables[key], 0.0 if value is None else value)
            self._changed.discard(key)

    def lend(self, keys: Iterable[tuple[Key, str]]) -> dict[Key, Variable]:
        """Variables that hold these, to be changed by a block that begins here."""
        lent: dict[Key, Variable] = {}
        for key, name in keys:
            if key in self.variables:
                self._settle(key)
            else:
                value = self.get(key)
                first = 0.0 if value is None else value
                self.variables[key] = self.builder.var(f"d_{name}", first)
                self._changed.discard(key)
            self._values.pop(key, None)
            lent[key] = self.variables[key]
        return lent

    def end(self) -> None:
        """The end of the block: what it has changed of others' goes to their variables."""
        for key in sorted(self._changed & self._outer, key=_order):
            self._settle(key)


def _order(key: Key) -> tuple[int, str]:
    return (key, "") if isinstance(key, int) else (-1, key.name)


@dataclass(frozen=True)
class Scatter:
    """How cotangents are added up: at once, or in an array with so many copies of each element.

    Invocations of a group that load the same element add up what they have ``together``.
    """

    copies: int = 1
    partials: Array | None = None
    together: bool = False


@dataclass(frozen=True)
class Places:
    """Where the cotangents of arrays that all invocations have in common are.

    ``arrays`` are the arrays themselves, in the gradient program. What is stored to those in
    ``seeds`` stays there, and their cotangents are inputs.
    """

    builder: Builder
    arrays: dict[Buffer, Array]
    seeds: dict[Buffer, Array]
    cotangents: dict[Buffer, Array]
    scatters: dict[Buffer, Scatter]

    def seed(self, a: Buffer, index: tuple[Any, ...], add: bool) -> Any:
        """The cotangent of an element that is stored; unless it is added to, it is zero then."""
        if a in self.seeds:
            return self.builder.load(self.seeds[a], index)
        g = self.builder.load(self.cotangents[a], index)
        if not add:
            self.builder.store(self.cotangents[a], index, 0.0)
        return g

    def scatter(self, s: Load, index: tuple[Any, ...], g: Any, cell: Any) -> None:
        """Add to the cotangent of an element that is loaded."""
        scatter, b = self.scatters[s.buffer], self.builder
        element = flat_index(s.buffer, index)
        if scatter.partials is None:
            b.add(self.cotangents[s.buffer], index, g)
        elif scatter.together:
            total = b.group_sum(g)
            with b.if_(b.local < 1):
                b.add(scatter.partials, element * scatter.copies + b.group, total)
        else:
            b.add(scatter.partials, element * scatter.copies + cell, g)


class Reverse:
    """Writes a dispatch, and its reverse, where a builder has one open."""

    def __init__(
        self, builder: Builder, source: Source, places: Places, cell: Any, writes: bool
    ) -> None:
        self.builder, self.source, self.places, self.writes = builder, source, places, writes
        d = source.dispatch
        self.values: dict[int, Any] = {d.cell: cell, d.local: builder.local, d.group: builder.group}
        """The values of leaves in the new program."""
        self.variables: dict[Buffer, Variable] = {}
        self.arrays: dict[Buffer, Array] = {}
        """The dispatch's own arrays, in the new program."""
        self.cotangents: dict[Buffer, Array] = {}
        """The arrays of their elements' cotangents."""
        self.keeping = Keeping(builder, source, self.variables, self.arrays, self.shares)
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
        if any(a.space == "group" for a in kept_arrays):
            builder.barrier()
        self.forward(d.main, rerun=not self.writes, keep=True)
        touched = {s.buffer for s in d.statements if isinstance(s, Load)}
        for a in [a for a in d.arrays if a.kind == "f" and a in touched]:
            self.cotangents[a] = self._own(a, f"d_{a.name}")
            self.clear(self.cotangents[a])
        if any(a.space == "group" for a in self.cotangents):
            builder.barrier()
        self.reverse(d.main, {})

    def replay(self) -> None:
        """The dispatch as it was."""
        d = self.source.dispatch
        for a in d.arrays:
            self.arrays[a] = self._own(a, a.name)
        self.forward(d.main, rerun=False, keep=False)

    def _own(self, a: Buffer, name: str) -> Array:
        """An array like one of the old dispatch's own."""
        declare = self.builder.workgroup if a.space == "group" else self.builder.private
        return declare(self.builder.unused(name), a.shape, NAMES[a.kind])

    def clear(self, a: Array) -> None:
        """Make all elements of an array of the dispatch's own 0."""
        zero = False if a.kind == "b" else 0
        for _, at in self.shares(a):
            self.builder.store(a, at, zero)

    def shares(self, a: Array) -> Iterator[tuple[Any, Any]]:
        """The elements that an invocation sees to: all of its own array, some of the group's.

        They are numbered, within a loop over them.
        """
        width, builder = self.source.dispatch.width, self.builder
        if a.space == "own":
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

    def array(self, a: Buffer) -> Array:
        """An array of the old program, in the new one."""
        return self.places.arrays[a] if a.space in BOUND else self.arrays[a]

    def index(self, s: Load | Store) -> tuple[Any, ...]:
        """Where a statement reads or writes, in the new program."""
        return tuple(map(self.value, s.axes))

    def unsure(self, s: Load | Store) -> dict[int, int]:
        """The indices that may be beyond their axes, by their numbers, and the axes' lengths."""
        access = self.source.facts.accesses.get(s)
        lengths = [n for _, n in indices(s)]
        numbers = range(len(lengths)) if access is None else access.unsure
        return {k: lengths[k] for k in numbers}

    def read_index(self, s: Load) -> tuple[Any, ...]:
        """Where a statement reads: what is beyond its axis reads the last element of that."""
        lengths = self.unsure(s)
        return tuple(
            ops.word_min(i, max(lengths[k] - 1, 0)) if k in lengths else i
            for k, i in enumerate(self.index(s))
        )

    def leaves(self, i: int) -> list[int]:
        """The floats that a value is made of."""
        graph = self.source.code.graph
        order = reachable(graph, [i])
        return [n for n in order if graph.nodes[n][0] in ANY_INPUT and graph.type(n) == "f"]

    # forward -------------------------------------------------------------------------------------

    def forward(self, scope: Scope, rerun: bool, keep: bool) -> None:
        """Do statements; ``rerun`` is for the second time, and ``keep`` what reverse needs."""
        for s in scope.statements:
            self._forward(s, rerun, keep)

    def _forward(self, s: Statement, rerun: bool, keep: bool) -> None:
        builder = self.builder
        match s:
            case Let(name=name, value=value):
                if not rerun:
                    builder.let(name, self.value(value))
            case Load(result=result, buffer=a) if a.space == "variable":
                self.values[result] = self.variables[a].value
            case Load(result=result, buffer=a):
                self.values[result] = builder.load(self.array(a), self.index(s))
            case Store(buffer=a, value=value) if s in self.source.declarations:
                self.variables[a] = builder.var(a.name, self.value(value), NAMES[a.kind])
            case Store(buffer=a, value=value) if a.space == "variable":
                builder.assign(self.variables[a], self.value(value))
            case Store(buffer=a, value=value, add=add):
                if a.space not in BOUND or not rerun:
                    write = builder.add if add else builder.store
                    write(self.array(a), self.index(s), self.value(value))
            case GroupReduce(result=result, operation=operation, value=value, among=among):
                reduce = getattr(builder, f"group_{operation}")
                self.values[result] = reduce(self.value(value), among)
            case Barrier():
                builder.barrier()
            case If():
                self._forward_if(s, rerun, keep)
            case For():
                self._forward_for(s, rerun, keep)
            case _:
                raise AssertionError(f"{type(s).__name__} does not float")

    def _forward_if(self, s: If, rerun: bool, keep: bool) -> None:
        then, otherwise = s.sides
        if keep:
            self.keeping.before(s)
        with self.builder.if_(self.value(s.condition)):
            self.forward(then, rerun, False)
        if otherwise.items:
            with self.builder.else_():
                self.forward(otherwise, rerun, False)

    def _forward_for(self, s: For, rerun: bool, keep: bool) -> None:
        if keep:
            self.keeping.before(s)
        lo, hi = self.value(s.lo), self.value(s.hi)
        with self.builder.for_(lo, hi, down=s.down, most=s.most, name=self._name(s)) as k:
            self.values[s.k] = k
            if keep:
                self.keeping.iteration(s, k - lo)
            self.forward(s.scope, rerun, False)

    def _name(self, s: For) -> str:
        """The name of a loop's counter."""
        return self.source.dispatch.leaf_name(s.k)

    # reverse -------------------------------------------------------------------------------------

    def reverse(self, scope: Scope, outer: dict[Key, Variable]) -> None:
        """Undo statements that have been done here."""
        cotangents = Cotangents(self.builder, outer)
        for s in reversed(scope.statements):
            if isinstance(s, If):
                self._reverse_if(s, cotangents)
            elif isinstance(s, For):
                self._reverse_for(s, cotangents)
            else:
                self._reverse(s, cotangents)
        cotangents.end()

    def _reverse(self, s: Statement, cotangents: Cotangents) -> None:
        match s:
            case Load(result=result, buffer=a):
                if a.kind == "f" and (g := cotangents.take(result)) is not None:
                    if a.space == "variable":
                        cotangents.add(a, g)
                    else:
                        self._scatter(s, self.read_index(s), g)
            case Store(buffer=a, value=value):
                if a.kind == "f":
                    self._back(s, value, self._seed(s, cotangents), cotangents)
            case GroupReduce():
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

    def _seed(self, s: Store, cotangents: Cotangents) -> Any:
        """The cotangent of what is stored; of what is beyond an axis, and is not, it is 0."""
        a = s.buffer
        if a.space == "variable":
            return cotangents.take(a)
        index = self.index(s)
        g = self._at(s, index)
        if g is None:
            return None
        inside = [index[k] < n for k, n in self.unsure(s).items()]
        return ops.where(reduce(and_, inside), g, 0.0) if inside else g

    def _at(self, s: Store, index: tuple[Any, ...]) -> Any:
        """The cotangent of an element; unless the statement adds to it, it is zero then."""
        a = s.buffer
        if a.space in BOUND:
            return self.places.seed(a, index, s.add)
        if a not in self.cotangents:
            return None
        g = self.builder.load(self.cotangents[a], index)
        if not s.add:
            self.builder.store(self.cotangents[a], index, 0.0)
        return g

    def _reverse_reduce(self, s: GroupReduce, cotangents: Cotangents) -> None:
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
        source, defined, keys = self.source, set[Key](), dict[Key, str]()
        for t in within(*scopes_of(s)):
            if isinstance(t, Load | GroupReduce):
                defined.add(t.result)
            if isinstance(t, Store) and t in source.declarations:
                defined.add(t.buffer)
            if isinstance(t, Load | Store) and t.buffer.space == "variable":
                keys |= {t.buffer: t.buffer.name} if t.buffer.kind == "f" else {}
            if isinstance(t, Store | GroupReduce):
                for i in operands(source.dispatch, t):
                    keys |= {n: source.dispatch.leaf_name(n) for n in self.leaves(i)}
        return cotangents.lend((key, name) for key, name in keys.items() if key not in defined)

    def _reverse_if(self, s: If, cotangents: Cotangents) -> None:
        then, otherwise = s.sides
        lent = self._lent(s, cotangents)
        with self._parting(s):
            self.keeping.wait(s)
            self.keeping.restore_arrays(s)
            with self.builder.if_(self.value(s.condition)):
                self._again(s, then, lent)
            if otherwise.items:
                with self.builder.else_():
                    self._again(s, otherwise, lent)

    def _again(self, s: If | For, scope: Scope, lent: dict[Key, Variable]) -> None:
        self.keeping.restore(s)
        self.forward(scope, rerun=True, keep=True)
        self.reverse(scope, lent)

    def _reverse_for(self, s: For, cotangents: Cotangents) -> None:
        lent = self._lent(s, cotangents)
        lo, hi = self.value(s.lo), self.value(s.hi)
        with (
            self._parting(s),
            self.builder.for_(lo, hi, down=not s.down, most=s.most, name=self._name(s)) as k,
        ):
            self.values[s.k] = k
            self.keeping.wait(s)
            self.keeping.restore_iteration(s, k - lo)
            self._again(s, s.scope, lent)

    # arrays of a workgroup -----------------------------------------------------------------------

    def _scatter(self, s: Load, index: tuple[Any, ...], g: Any) -> None:
        """Add to the cotangent of an element that is loaded."""
        a = s.buffer
        if a.space in BOUND:
            self.places.scatter(s, index, g, self.values[self.source.dispatch.cell])
        elif a.space == "own" or self._is_alone(s):
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
            name = f"d_{t.buffer.name}"
            self._waiting[t] = builder.var(name, 0.0), builder.var("at", t.buffer.size, "u32")
        yield
        for t in loads:
            assert isinstance(t, Load), "nothing else reads an array"
            waits, place = self._waiting.pop(t)
            self._gather(t, place.value, waits.value)

    def _is_shared(self, s: Statement) -> bool:
        if not isinstance(s, Load) or s.buffer.space != "group" or s.buffer.kind != "f":
            return False
        return not self._is_alone(s)

    def _is_alone(self, s: Load) -> bool:
        """Whether no other invocation is at the places of a load before the next barrier."""
        access = self.source.facts.accesses.get(s)
        return access is not None and access.alone

    def _require_once(self, head: If | For, s: Load) -> None:
        """Refuse what parted invocations load several times, or after they have stored there."""
        inner = within(*scopes_of(head))
        loops = [t for t in inner if isinstance(t, For) and s in within(t.scope)]
        stores = any(isinstance(t, Store) and t.buffer is s.buffer for t in inner)
        if isinstance(head, For) or loops or stores:
            raise DifferentiationError(
                f"{shown(self.source.code, s)}: invocations that have parted, at "
                f"{shown(self.source.code, head)}, load from {s.buffer.name}, of the workgroup, in "
                "a loop or where they store to it, and its gradient would be a race: let all "
                "invocations do that, with where for what differs"
            )

    def _gather(self, s: Load, index: Any, g: Any) -> None:
        """Add what all invocations of a workgroup have; of several at one place, one adds it."""
        builder, width, a = self.builder, self.source.dispatch.width, s.buffer
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
