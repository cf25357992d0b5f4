"""Values kept from the beginning of loops, of iterations and of branches, to do them again."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from symgrad.errors import DifferentiationError
from symgrad.expr.graph.node import WORD
from symgrad.kernel.language.statements import (
    BOUND,
    Buffer,
    For,
    If,
    Load,
    Scope,
    Statement,
    Store,
    declarations,
    scopes_of,
    within,
)
from symgrad.kernel.language.verify import Uniformity
from symgrad.programs.builder import Builder, Variable
from symgrad.programs.code import NAMES, Array, Code, Dispatch, shown
from symgrad.programs.trial import Facts, facts_of


class Source:
    """A dispatch that is differentiated, and what is known of it."""

    def __init__(self, code: Code, dispatch: Dispatch) -> None:
        self.code, self.dispatch = code, dispatch
        self.facts: Facts = facts_of(dispatch, code)
        self.uniform = Uniformity(dispatch, memory=True)
        self.declarations = declarations(dispatch.main)


@dataclass(frozen=True)
class Plan:
    """The variables and arrays that are kept of a statement with blocks.

    ``kept`` are kept at its beginning, and ``changing`` at that of each iteration.
    """

    kept: Sequence[Buffer] = ()
    changing: Sequence[Buffer] = ()
    iterations: int = 0


class Keeping:
    """Copies that a `Reverse` keeps of variables and its own arrays, in others of the invocation.

    Of a workgroup's array each invocation keeps a share.
    """

    def __init__(
        self,
        builder: Builder,
        source: Source,
        variables: dict[Buffer, Variable],
        arrays: dict[Buffer, Array],
        shares: Callable[[Array], Iterable[tuple[Any, Any]]],
    ) -> None:
        self.builder, self.source, self.shares = builder, source, shares
        self.variables, self.own = variables, arrays
        self._plans: dict[Statement, Plan] = {}
        self._values: dict[tuple[Statement, Buffer], Any] = {}
        """The values of variables where a statement began."""
        self._tapes: dict[tuple[Statement, Buffer], Array] = {}

    # what is to be kept --------------------------------------------------------------------------

    def arrays(self) -> list[Buffer]:
        """The dispatch's own arrays of which something is kept."""
        plans = [self.plan(s) for s in self.source.dispatch.statements if isinstance(s, If | For)]
        kept = dict.fromkeys(a for p in plans for a in (*p.kept, *p.changing))
        return [a for a in kept if a.space != "variable"]

    def plan(self, s: If | For) -> Plan:
        """The plan of what is kept of a statement."""
        if s not in self._plans:
            self._plans[s] = self._planned(s)
        return self._plans[s]

    def _planned(self, s: If | For) -> Plan:
        inner = within(*scopes_of(s))
        self._require_unchanged(inner)
        stores = [t for t in inner if isinstance(t, Store)]
        declared = {t.buffer for t in stores if t in self.source.declarations}
        loaded = dict.fromkeys(t.buffer for t in inner if isinstance(t, Load))
        own = [a for a in loaded if a.space not in BOUND and a not in declared]
        own.sort(key=lambda a: a.space != "variable")
        stored = {t.buffer for t in stores} if isinstance(s, For) else set[Buffer]()
        changing = [a for a in own if a in stored]
        kept = [a for a in own if a not in stored and self._changes(s, a)]
        iterations = self._iterations(s) if isinstance(s, For) and changing else 0
        return Plan(kept, changing, max(iterations, 1))

    def _require_unchanged(self, inner: Sequence[Statement]) -> None:
        """Refuse what is loaded within a block from an array that is returned, and stored to."""
        stored = {t.buffer for t in self.source.dispatch.statements if isinstance(t, Store)}
        for t in inner:
            if isinstance(t, Load) and t.buffer.space in BOUND and t.buffer in stored:
                raise DifferentiationError(
                    f"{shown(self.source.code, t)}: {t.buffer.name} is loaded in a block, and this "
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
        return {s: n for n, s in enumerate(self.source.dispatch.statements)}

    @cached_property
    def _around(self) -> dict[Statement, list[For]]:
        """The loops that statements stand in."""
        loops_around: dict[Statement, list[For]] = {}

        def visit(scope: Scope, loops: list[For]) -> None:
            for t in scope.statements:
                loops_around[t] = loops
                for inner in scopes_of(t):
                    visit(inner, [*loops, t] if isinstance(t, For) else loops)

        visit(self.source.dispatch.main, [])
        return loops_around

    def _changes(self, s: Statement, a: Buffer) -> bool:
        """Whether something is changed in a statement, or later."""
        place, loops = self._places[s], set(self._around[s])
        return any(
            isinstance(t, Store)
            and t.buffer is a
            and t not in self.source.declarations
            and (n > place or not loops.isdisjoint(self._around[t]))
            for t, n in self._places.items()
        )

    # keeping it ----------------------------------------------------------------------------------

    def before(self, s: If | For) -> None:
        """Keep what is there where a statement begins."""
        for a in self.plan(s).kept:
            if a.space == "variable":
                self._values[s, a] = self.variables[a].value
            else:
                self._copy(s, a, 0, 1, False)

    def iteration(self, s: For, t: Any) -> None:
        """Keep what is there where a turn begins."""
        plan = self.plan(s)
        for a in plan.changing:
            self._copy(s, a, t, plan.iterations, False)

    def restore(self, s: If | For) -> None:
        """Put back the values of where a statement began."""
        for a in self.plan(s).kept:
            if a.space == "variable":
                self.builder.assign(self.variables[a], self._values[s, a])
        if isinstance(s, For):
            self.restore_arrays(s)

    def restore_arrays(self, s: If | For) -> None:
        """Put back the arrays of where a statement began."""
        for a in self.plan(s).kept:
            if a.space != "variable":
                self._copy(s, a, 0, 1, True)

    def restore_iteration(self, s: For, t: Any) -> None:
        """Put back the values of where an iteration began."""
        plan = self.plan(s)
        for a in plan.changing:
            self._copy(s, a, t, plan.iterations, True)

    def _tape(self, s: Statement, a: Buffer, size: int) -> Array:
        if (s, a) not in self._tapes:
            name = self.builder.unused(f"{a.name}_kept")
            self._tapes[s, a] = self.builder.private(name, size, NAMES[a.kind])
        return self._tapes[s, a]

    def _copy(self, s: If | For, a: Buffer, t: Any, iterations: int, back: bool) -> None:
        """Keep a variable or an array at turn t, or bring it ``back``."""
        builder = self.builder
        if a.space == "variable":
            variable, tape = self.variables[a], self._tape(s, a, iterations)
            if back:
                builder.assign(variable, builder.load(tape, t))
            else:
                builder.store(tape, t, variable.value)
            return
        mine, width = self.own[a], self.source.dispatch.width
        share = a.size if a.space == "own" else -(-a.size // width)
        tape = self._tape(s, a, share * iterations)
        with self._alone(s, a):
            for n, at in self.shares(mine):
                slot = t * share + n
                if back:
                    builder.store(mine, at, builder.load(tape, slot))
                else:
                    builder.store(tape, slot, builder.load(mine, at))

    @contextmanager
    def _alone(self, s: If | For, a: Buffer) -> Generator[None]:
        """A time when nobody else is at an array."""
        if a.space == "own":
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
        inner = within(*scopes_of(s))
        stores = any(isinstance(t, Store) and t.buffer.space == "group" for t in inner)
        parts = isinstance(s, For) and s in self.source.uniform.parted.values()
        if stores and s not in self.source.uniform.parted and not parts:
            self.builder.barrier()
