"""What is kept of the beginning of loops, of their iterations and of branches, to do them again."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from symgrad.errors import DifferentiationError
from symgrad.expr.graph.node import WORD
from symgrad.programs.builder import Builder, Variable
from symgrad.programs.code import (
    GLOBAL,
    Array,
    Assign,
    Code,
    Declare,
    Dispatch,
    For,
    Get,
    If,
    Load,
    Name,
    Statement,
    Store,
    blocks,
    everything,
)
from symgrad.programs.text import shown
from symgrad.programs.trial import Facts
from symgrad.programs.uniform import Uniformity


@dataclass(frozen=True)
class Source:
    """A dispatch that is differentiated, and what is known of it."""

    code: Code
    dispatch: Dispatch
    facts: Facts
    uniform: Uniformity


class Doing(Protocol):
    """What does a dispatch again: see `symgrad.programs.reverse.Reverse`."""

    builder: Builder
    source: Source
    variables: dict[Name, Variable]
    arrays: dict[Array, Array]

    def shares(self, a: Array) -> Iterator[tuple[Any, Any]]:
        """The elements of an array of the dispatch's own that an invocation sees to."""
        ...


@dataclass(frozen=True)
class Plan:
    """What is kept of a statement with blocks: at its beginning, and at that of each turn."""

    variables: Sequence[Name] = ()
    arrays: Sequence[Array] = ()
    carried: Sequence[Name] = ()
    changing: Sequence[Array] = ()
    iterations: int = 0


class Keeping:
    """What a `Reverse` keeps: variables and its own arrays, in other ones of the invocation's.

    Of a workgroup's array each invocation keeps a share.
    """

    def __init__(self, reverse: Doing) -> None:
        self.reverse, self.source, self.builder = reverse, reverse.source, reverse.builder
        self._plans: dict[Statement, Plan] = {}
        self._values: dict[tuple[Statement, Name], Any] = {}
        """What variables were where a statement began."""
        self._tapes: dict[tuple[Statement, Name | Array], Array] = {}

    # what is to be kept --------------------------------------------------------------------------

    def arrays(self) -> list[Array]:
        """The dispatch's own arrays of which something is kept."""
        compound = [s for s in everything(self.source.dispatch.body) if isinstance(s, If | For)]
        plans = map(self.plan, compound)
        return list(dict.fromkeys(a for p in plans for a in (*p.arrays, *p.changing)))

    def plan(self, s: If | For) -> Plan:
        """What is kept of a statement."""
        if s not in self._plans:
            self._plans[s] = self._planned(s)
        return self._plans[s]

    def _planned(self, s: If | For) -> Plan:
        inner = [t for block in blocks(s) for t in everything(block)]
        declared = {t.variable for t in inner if isinstance(t, Declare)}
        gets = dict.fromkeys(t.variable for t in inner if isinstance(t, Get))
        read = [v for v in gets if v not in declared]
        loaded = list(dict.fromkeys(t.array for t in inner if isinstance(t, Load)))
        self._require_unchanged(s, inner)
        loaded = [a for a in loaded if a.space not in GLOBAL]
        changed = {t.variable for t in inner if isinstance(t, Assign)}
        stored = {t.array for t in inner if isinstance(t, Store)}
        if isinstance(s, If):
            changed, stored = set[Name](), set[Array]()
        carried, changing = [v for v in read if v in changed], [a for a in loaded if a in stored]
        variables = [v for v in read if v not in changed and self._changes(s, v)]
        arrays = [a for a in loaded if a not in stored and self._changes(s, a)]
        iterations = self._iterations(s) if isinstance(s, For) and (carried or changing) else 0
        return Plan(variables, arrays, carried, changing, max(iterations, 1))

    def _require_unchanged(self, s: If | For, inner: Sequence[Statement]) -> None:
        """Refuse what is loaded within a block from an array that is returned, and stored to."""
        stored = {t.array for t in everything(self.source.dispatch.body) if isinstance(t, Store)}
        for t in inner:
            if isinstance(t, Load) and t.array.space in GLOBAL and t.array in stored:
                raise DifferentiationError(
                    f"{shown(self.source.code, t)}: {t.array.name} is loaded in a block, and this "
                    "dispatch stores to it too, so what was there is not kept: hold it in a "
                    "variable or a private array, or load it in another dispatch"
                )

    def _iterations(self, s: For) -> int:
        """The most iterations of a loop."""
        nodes, facts = self.source.code.graph.nodes, self.source.facts
        lo, hi = nodes[s.lo], nodes[s.hi]
        bound = s.most
        if lo[0] is WORD and hi[0] is WORD:
            trip_count = max(hi[1] - lo[1], 0)
            bound = trip_count if bound is None else min(bound, trip_count)
        elif facts.complete and facts.iterations.get(s) is not None:
            bound = facts.iterations[s]
        if bound is None:
            raise DifferentiationError(
                f"{shown(self.source.code, s)}: how often it iterates is not known, and what it "
                "changes is kept for each iteration: give most=, how many there are at most"
            )
        return bound

    @cached_property
    def _places(self) -> dict[Statement, int]:
        body = self.source.dispatch.body
        return {s: n for n, s in enumerate(everything(body))}

    @cached_property
    def _around(self) -> dict[Statement, list[For]]:
        """The loops that statements stand in."""
        loops_around: dict[Statement, list[For]] = {}

        def visit(block: Sequence[Statement], loops: list[For]) -> None:
            for t in block:
                loops_around[t] = loops
                for inner in blocks(t):
                    visit(inner, [*loops, t] if isinstance(t, For) else loops)

        visit(self.source.dispatch.body, [])
        return loops_around

    def _changes(self, s: Statement, what: Name | Array) -> bool:
        """Whether something is changed in a statement, or later."""
        place, loops = self._places[s], set(self._around[s])
        for t, n in self._places.items():
            mine = isinstance(t, Assign) and t.variable is what
            mine = mine or (isinstance(t, Store) and t.array is what)
            if mine and (n > place or not loops.isdisjoint(self._around[t])):
                return True
        return False

    # keeping it ----------------------------------------------------------------------------------

    def before(self, s: If | For) -> None:
        """Keep what is there where a statement begins."""
        plan = self.plan(s)
        for v in plan.variables:
            self._values[s, v] = self.reverse.variables[v].value
        for a in plan.arrays:
            self._copy(s, a, 0, 1, False)

    def iteration(self, s: For, t: Any) -> None:
        """Keep what is there where a turn begins."""
        plan = self.plan(s)
        for v in plan.carried:
            tape = self._of(s, v, plan.iterations)
            self.builder.store(tape, t, self.reverse.variables[v].value)
        for a in plan.changing:
            self._copy(s, a, t, plan.iterations, False)

    def restore(self, s: If | For) -> None:
        """What was there where a statement began."""
        plan = self.plan(s)
        for v in plan.variables:
            self.builder.assign(self.reverse.variables[v], self._values[s, v])
        if isinstance(s, For):
            self.restore_arrays(s)

    def restore_arrays(self, s: If | For) -> None:
        """The arrays that were there where a statement began."""
        for a in self.plan(s).arrays:
            self._copy(s, a, 0, 1, True)

    def restore_iteration(self, s: For, t: Any) -> None:
        """What was there where a turn began."""
        plan = self.plan(s)
        for v in plan.carried:
            tape = self._of(s, v, plan.iterations)
            self.builder.assign(self.reverse.variables[v], self.builder.load(tape, t))
        for a in plan.changing:
            self._copy(s, a, t, plan.iterations, True)

    def _of(self, s: Statement, what: Name | Array, size: int) -> Array:
        if (s, what) not in self._tapes:
            name = self.builder.unused(f"{what.name}_kept")
            self._tapes[s, what] = self.builder.private(name, size, what.kind)
        return self._tapes[s, what]

    def _copy(self, s: If | For, a: Array, t: Any, iterations: int, back: bool) -> None:
        """Keep an array at turn t, or bring it ``back``."""
        builder, mine = self.builder, self.reverse.arrays[a]
        width = self.source.dispatch.width
        share = a.size if a.space == "private" else -(-a.size // width)
        tape = self._of(s, a, share * iterations)
        with self._alone(s, a):
            for n, at in self.reverse.shares(mine):
                slot = t * share + n
                if back:
                    builder.store(mine, at, builder.load(tape, slot))
                else:
                    builder.store(tape, slot, builder.load(mine, at))

    @contextmanager
    def _alone(self, s: If | For, a: Array) -> Generator[None]:
        """A time when nobody else is at an array."""
        if a.space == "private":
            yield
            return
        uniform = self.source.uniform
        parts = isinstance(s, For) and s in uniform.parted.values()
        if s in uniform.parted or parts:
            raise DifferentiationError(
                f"{shown(self.source.code, s)}: it changes {a.name}, of the workgroup, or comes "
                "before what does, and stands where invocations part: make it the same for all "
                "invocations, with where for what differs"
            )
        self.builder.barrier()
        yield
        self.builder.barrier()

    def wait(self, s: If | For) -> None:
        """Wait until nobody is at the workgroup's arrays any more, before they are stored again."""
        inner = [t for block in blocks(s) for t in everything(block)]
        stores = any(isinstance(t, Store) and t.array.space == "workgroup" for t in inner)
        parts = isinstance(s, For) and s in self.source.uniform.parted.values()
        if stores and s not in self.source.uniform.parted and not parts:
            self.builder.barrier()
