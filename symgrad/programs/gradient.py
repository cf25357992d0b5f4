"""Programs that compute the outputs of another one, and the gradients of its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from symgrad.errors import DifferentiationError
from symgrad.kernel.language.statements import BOUND, Buffer, Load, Store
from symgrad.programs.builder import Builder
from symgrad.programs.code import NAMES, Array, Code, shown
from symgrad.programs.keeping import Source
from symgrad.programs.reverse import Places, Reverse, Scatter

MOST_NUMBERS: Final = 2**25
"""Numbers of an array with a copy of another for each invocation, at most: 128 MiB of float32."""

ADDING_INVOCATIONS: Final = 64
"""Invocations that add up the copies of a number."""

COPIES_ADDED_ALONE: Final = 64
"""Copies up to which one invocation adds up those of a number."""


def cotangent_of(code: Code, output: Array) -> str:
    """The name of the cotangent of an output."""
    return _beside(code, f"cotangent_{output.name}")


def gradient_of(code: Code, input: Array) -> str:
    """The name of the gradient of an input."""
    return _beside(code, f"grad_{input.name}")


def _beside(code: Code, name: str) -> str:
    """The name, or one like it, that no array has."""
    taken, candidate, k = {a.name for a in code.arrays}, name, 2
    while candidate in taken:
        candidate, k = f"{name}_{k}", k + 1
    return candidate


def gradient(code: Code) -> Code:
    """The program that gives the outputs of one, and behind them the gradients of its inputs.

    It takes the inputs, and behind them a cotangent for each output that is of floats.

    Raises:
        DifferentiationError: for an operation without a derivative, and where the gradient would
            be a race, or need more than there is memory for; it names the statement and the remedy.
    """
    return _Gradient(code).write()


class _Gradient:
    def __init__(self, code: Code) -> None:
        self.old, self.builder = code, Builder(f"{code.name}_gradient", traced=False)
        b = self.builder
        self.arrays: dict[Buffer, Array] = {}
        self.arrays |= {a: b.input(a.name, a.shape, NAMES[a.kind]) for a in code.of("input")}
        active = [a for a in code.of("output") if a.kind == "f"]
        self.seeds: dict[Buffer, Array] = {
            a: b.input(cotangent_of(code, a), a.shape) for a in active
        }
        self.arrays |= {a: b.output(a.name, a.shape, NAMES[a.kind]) for a in code.of("output")}
        inputs = [a for a in code.of("input") if a.kind == "f"]
        self.cotangents: dict[Buffer, Array] = {
            a: b.output(gradient_of(code, a), a.shape) for a in inputs
        }
        """The arrays of cotangents."""
        for a in code.of("temporary"):
            self.arrays[a] = b.temporary(a.name, a.shape, NAMES[a.kind])
        self.sources = [Source(code, d) for d in code.dispatches]
        self.direct = {a for a in active if self._is_direct(a)}
        """The outputs whose cotangents are read where they are."""
        for a in code.arrays:
            if a.kind == "f" and a.space != "read" and a not in self.direct:
                self.cotangents[a] = b.temporary(b.unused(f"d_{a.name}"), a.shape)
        self.scatters = {s.dispatch: self._scatters(s) for s in self.sources}

    def _statements(self, a: Buffer) -> list[tuple[Source, Load | Store]]:
        return [
            (source, s)
            for source in self.sources
            for s in source.dispatch.statements
            if isinstance(s, Load | Store) and s.buffer is a
        ]

    def _is_direct(self, a: Buffer) -> bool:
        """Whether all that is stored to an output stays there."""
        uses = self._statements(a)
        if any(isinstance(s, Load) for _, s in uses) or len({id(f) for f, _ in uses}) > 1:
            return False
        adds = all(isinstance(s, Store) and s.add for _, s in uses)
        return adds or all(source.facts.once.get(a, False) for source, _ in uses)

    # where cotangents go -------------------------------------------------------------------------

    def _scatters(self, source: Source) -> dict[Buffer, Scatter]:
        """How a dispatch adds to the cotangents of the arrays that it loads from."""
        loads: dict[Buffer, list[Load]] = {}
        for s in source.dispatch.statements:
            if isinstance(s, Load) and s.buffer.space in BOUND and s.buffer.kind == "f":
                loads.setdefault(s.buffer, []).append(s)
        return {a: self._scatter(source, a, loads_of_array) for a, loads_of_array in loads.items()}

    def _scatter(self, source: Source, a: Buffer, loads: Sequence[Load]) -> Scatter:
        d, b = source.dispatch, self.builder
        if source.facts.owned.get(a, False):
            return Scatter()
        if any(isinstance(s, Store) and s.buffer is a for s in d.statements):
            raise DifferentiationError(
                f"{shown(self.old, loads[0])}: {a.name} is stored to in the same dispatch, and "
                "maybe loaded by another invocation: load it in another dispatch"
            )
        together = d.invocations % d.width == 0 and all(
            s not in source.uniform.parted and not source.uniform.varies(s.index) for s in loads
        )
        copies = -(-d.invocations // d.width) if together else d.invocations
        if a.size * copies > MOST_NUMBERS:
            raise DifferentiationError(
                f"{shown(self.old, loads[0])}: several invocations load the same elements of "
                f"{a.name}, and its gradient takes a copy of its {a.size:,} elements for each of "
                f"{copies:,}, above {MOST_NUMBERS:,} in all: use fewer invocations, each with a "
                "loop, or let each load elements of its own, or a whole workgroup the same one"
            )
        partials = b.temporary(b.unused(f"each_{a.name}"), a.size * copies)
        return Scatter(copies, partials, together)

    # writing it ----------------------------------------------------------------------------------

    def write(self) -> Code:
        """Write the program, and return it."""
        b = self.builder
        for a, seed in self.seeds.items():
            if a in self.cotangents and a.size:
                self._copy(seed, self.cotangents[a])
        for source in self.sources[:-1]:
            self._require_kept(source)
            with b.dispatch(source.dispatch.invocations, source.dispatch.width) as cell:
                self._reverse(source, cell, True).replay()
        for source in reversed(self.sources):
            last = source is self.sources[-1]
            with b.dispatch(source.dispatch.invocations, source.dispatch.width) as cell:
                self._reverse(source, cell, last).write()
            for a, scatter in self.scatters[source.dispatch].items():
                if scatter.partials is not None and a.size:
                    self._sum(scatter, self.cotangents[a])
        return b.code

    def _reverse(self, source: Source, cell: Any, writes: bool) -> Reverse:
        seeds = {a: seed for a, seed in self.seeds.items() if a in self.direct}
        scatters = self.scatters[source.dispatch]
        places = Places(self.builder, self.arrays, seeds, self.cotangents, scatters)
        return Reverse(self.builder, source, places, cell, writes)

    def _require_kept(self, source: Source) -> None:
        """Refuse a dispatch that reads what it, or a later one, writes."""
        later = self.sources[self.sources.index(source) :]
        written = {s.buffer for f in later for s in f.dispatch.statements if isinstance(s, Store)}
        for s in source.dispatch.statements:
            if isinstance(s, Load) and s.buffer.space in BOUND and s.buffer in written:
                raise DifferentiationError(
                    f"{shown(self.old, s)}: {s.buffer.name} is stored to here or later, so what "
                    "was loaded is not kept: store to another array"
                )

    def _copy(self, source: Array, target: Array) -> None:
        with self.builder.dispatch(target.size) as i:
            self.builder.store(target, (i,), self.builder.load(source, (i,)))

    def _sum(self, scatter: Scatter, target: Array) -> None:
        """Add up all copies of each element, and add that to the gradient."""
        b, copies, partials = self.builder, scatter.copies, scatter.partials
        assert partials is not None, "there are copies"
        few = copies <= COPIES_ADDED_ALONE
        invocations = target.size if few else target.size * ADDING_INVOCATIONS
        with b.dispatch(invocations, ADDING_INVOCATIONS) as i:
            at, first, step = (i, 0, 1) if few else (b.group, b.local, ADDING_INVOCATIONS)
            total = b.var("total", 0.0)
            with b.for_(0, -(-copies // step), name="n") as n:
                which = n * step + first if step > 1 else n
                place = at * copies + which
                if copies % step:
                    with b.if_(which < copies):
                        b.assign(total, total.value + b.load(partials, place))
                else:
                    b.assign(total, total.value + b.load(partials, place))
            if few:
                b.add(target, (at,), total.value)
            else:
                group_total = b.group_sum(total.value)
                with b.if_(b.local < 1):
                    b.add(target, (at,), group_total)
