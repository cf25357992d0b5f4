"""Array programs as launches: what is computed one after the other, and which arrays pass between.

What the kernel language computes is in launches; what is done on whole arrays, by LAPACK or by a
sort, stands between them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from symgrad.arrays.program import ArrayProgram, Input, Joined, Part, Result, readers, sources
from symgrad.arrays.scalars import Array
from symgrad.kernel import launch as launches
from symgrad.kernel.language.ir import Target
from symgrad.kernel.launch import Launch
from symgrad.kernel.stages.device_algorithms import DeviceAlgorithms
from symgrad.kernel.stages.rows import rows_of
from symgrad.kernel.stages.schedule import Scheduler
from symgrad.kernel.stages.sharing import together
from symgrad.kernel.stages.steps import AnyStep, CallStep, HostStep, JoinStep, PartStep, Step
from symgrad.kernel.stages.translate import Simplify


@dataclass(frozen=True, eq=False)
class Segment:
    """Dispatches that run together: arrays that come from outside, and those that go there."""

    steps: tuple[Step, ...]
    inputs: tuple[Array, ...]
    outputs: tuple[Array, ...]
    launch: Launch


@dataclass(frozen=True, eq=False)
class Plan:
    """A plan of a program, as it was rewritten for the target: segments and calls in turn."""

    program: ArrayProgram
    parts: tuple[Segment | HostStep, ...] = field(repr=False)
    bodies: dict[HostStep, tuple[int, Plan]] = field(default_factory=dict, repr=False)
    """How often the bodies of loops run, at most, and their plans."""

    def __str__(self) -> str:
        lines = list[str]()
        for part in self.parts:
            if isinstance(part, HostStep):
                lines.append(part.title)
                if part in self.bodies:
                    times, body = self.bodies[part]
                    lines[-1] += f", {times} times:"
                    lines += [f"    {line}" for line in str(body).splitlines()]
                continue
            shapes = {a.name: list(a.shape) for a in part.launch.arrays}
            for step, d in zip(part.steps, part.launch.dispatches, strict=True):
                names = d.names
                reads = ", ".join(names[b] for b, _ in step.reads)
                writes = ", ".join(f"{names[b]}{shapes[names[b]]}" for b, _ in step.writes)
                lines.append(f"{writes} = {d.kernel.name}({reads}): {step.title}")
        return "\n".join(lines)


def plan(program: ArrayProgram, target: Target, simplify: Simplify, on_host: bool = True) -> Plan:
    """The plan of a program for a target: algorithms on whole matrices are done ``on_host``."""
    scheduler = Scheduler(program.scalars, target, simplify)
    algorithms = None if on_host else DeviceAlgorithms(scheduler)
    if not target.in_step:
        program = together(program, {a for a in program.arrays if scheduler.is_product(a)})
    items = list(_items(program, scheduler, algorithms))
    return Plan(program, tuple(_parts(program, items)))


def _items(
    program: ArrayProgram, scheduler: Scheduler, algorithms: DeviceAlgorithms | None
) -> Iterator[AnyStep]:
    """Steps and calls, one after the other.

    Parts of inputs come first, and outputs that are joined of parts last: so they part no kernels.
    """
    results = [a for a in program.arrays if isinstance(a, Result)]
    read_by = readers(program.scalars, program.arrays)
    read = {a: sources(program.scalars, a) for a in program.arrays}
    outputs = {*program.outputs}
    given = [a for a in program.arrays if isinstance(a, Part) and isinstance(a.whole, Input)]
    ends = [a for a in program.arrays if isinstance(a, Joined) and not read_by[a]]
    yield from map(PartStep, given)
    empty = [a for a in program.arrays if not (a.size or isinstance(a, Result | Part | Joined))]
    computed: set[Array] = {*program.inputs, *program.constants, *given, *ends, *empty}

    def stored_of(group: Sequence[Array]) -> set[Array]:
        return {a for a in group if a in outputs or not set(group).issuperset(read_by[a])}

    def bound(group: Sequence[Array]) -> bool:
        """Whether a kernel binds all that a group reads and writes."""
        most, sources = scheduler.target.bindings, {a for member in group for a in read[member]}
        return most is None or len(sources.difference(group)) + len(stored_of(group)) <= most

    for n, array in enumerate(program.arrays):
        if array in computed:
            continue
        if isinstance(array, Result):
            same = {a.index: a for a in results if a.call is array.call}
            if next(iter(same.values())) is array:
                steps = algorithms.steps(array.call, same) if algorithms else None
                yield from steps or [CallStep(array.call, same)]
        elif isinstance(array, Part):
            yield PartStep(array)
        elif isinstance(array, Joined):
            yield JoinStep(array)
        else:
            later = [a for a in program.arrays[n + 1 :] if a not in computed]
            rows = rows_of(
                program.scalars, array, later, read, computed, scheduler.target, stored_of
            )
            if rows:
                computed.update(rows.arrays)
                yield from scheduler.by_rows(rows, stored_of(rows.arrays))
                continue
            beside = scheduler.beside(array, later)
            others = () if beside else scheduler.alike(array, later, computed)
            sums = array, *others
            finishing = [] if beside else [*scheduler.finishing(sums, read_by, computed)]
            while finishing and not bound([*sums, *finishing]):
                finishing.pop()
            computed.update(beside.others if beside else (*others, *finishing))
            stored = stored_of([*sums, *finishing])
            yield from scheduler.steps(array, beside, others, finishing, stored)
        computed.add(array)
    yield from map(JoinStep, ends)


def _parts(program: ArrayProgram, items: Sequence[AnyStep]) -> Iterator[Segment | HostStep]:
    start = 0
    for n, item in enumerate([*items, None]):
        if isinstance(item, Step):
            continue
        if n > start:
            steps = [s for s in items[start:n] if isinstance(s, Step)]
            yield _segment(program, steps, items[n:])
        if isinstance(item, HostStep):
            yield item
        start = n + 1


def _segment(program: ArrayProgram, steps: Sequence[Step], later: Sequence[AnyStep]) -> Segment:
    """The launch of some steps; what later ones need, and the outputs, are its outputs."""
    written = dict.fromkeys(a for s in steps for a in s.outputs)
    inputs = tuple(dict.fromkeys(a for s in steps for a in s.inputs if a not in written))
    wanted = set(program.outputs)
    for item in later:
        wanted.update(item.inputs)
    outputs = tuple(a for a in written if a in wanted)
    scratch = [a for a in written if a not in wanted]
    names = {a: f"x{n}" for n, a in enumerate(inputs)}
    names |= {a: f"y{n}" for n, a in enumerate(outputs)}
    names |= {a: f"s{n}" for n, a in enumerate(scratch)}

    def shown(arrays: Sequence[Array]) -> tuple[launches.Array, ...]:
        return tuple(launches.Array(names[a], a.shape, a.kind) for a in arrays)

    launch = Launch(
        "arrays",
        shown(inputs),
        shown(outputs),
        shown(scratch),
        tuple(s.dispatch(names) for s in steps),
    )
    return Segment(tuple(steps), inputs, outputs, launch)
