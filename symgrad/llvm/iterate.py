"""Iteration -> LLVM IR: many steps of many problems, a vector of problems at a time.

A vector holds one number of the states of as many problems as it has lanes. A block of states is
read once, steps change it where a lane's flag is not 0, and it is written once. With data, a step
sums over the rows: what all problems share is spread to the lanes, what each has of its own is
turned into vectors once for a block. Accumulators are emptied into float64 every few rows.
Short steps keep everything in registers, long ones in the workspace.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from symgrad.expr.node import Op, paused_gc
from symgrad.kernel.plan import Iteration
from symgrad.llvm.body import LONG_BATCH, Source
from symgrad.llvm.emit import UNROLLED, columns_loop
from symgrad.llvm.instruction import Shape
from symgrad.llvm.iterate_loops import Loops
from symgrad.llvm.phases import Phase, Phases
from symgrad.llvm.skeletons import load_columns, rows_of
from symgrad.mathlib.define import Function

SUMS = 120
"""Sums up to which accumulators are values rather than memory."""

TWICE = 250
"""Operations up to which a step without data stands there twice: once for when no lane is done."""


@paused_gc()
def emit_iteration(iteration: Iteration, functions: Mapping[Op, Function], shape: Shape) -> Source:
    """The module whose function ``run`` does many steps of whole blocks of problems.

    ``run(state, shared, own, workspace, first, end, steps, rows)`` changes the states of the
    problems from ``first`` to ``end``, arrays as `Iteration` describes them, in place. The
    workspace is that of the source and, behind it, an array (rows, own, lanes) of numbers.
    """
    assert shape.lanes > 1, "problems are worked on in vectors"
    assert not iteration.matrix, "there is a program for iterations with a matrix"
    phases = Phases(iteration, functions, shape)
    short = (
        all(len(p.body.parts) == 1 for p in phases.all)
        and sum(len(p.body.order) for p in phases.all) <= LONG_BATCH
        and iteration.state + phases.columns <= UNROLLED
        and phases.sums <= SUMS
    )
    return (_InRegisters if short else _InMemory)(phases).source()


class _InRegisters(Loops):
    """A step as one piece: its values have names, and the compiler finds room for them."""

    def source(self) -> Source:
        """See `Loops`."""
        if self.phases.sums:
            self.workspace.room("wide", 8 * self.lanes * self.phases.sums)
        functions = [line for p in self.phases.all for line in p.define()]
        return self.module(functions, self._block)

    def _block(self, base: str) -> None:
        write = self.write
        state, start = load_columns(write, base, self.iteration.state), "0"
        if not self.phases.each and len(self.phases.update.body.order) <= TWICE:
            state, start = self._steps("all", state, start)
        state, _ = self._steps("some", state, start)
        for k, vector in enumerate(rows_of(write, state)):
            write.store(vector, base, k * self.lanes, False)

    def _steps(self, name: str, first: Sequence[str], start: str) -> tuple[list[str], str]:
        """Steps as long as "all" or "some" lanes are active: the state, and how many were done."""
        write, state = self.write, [f"%{name}.s{k}" for k in range(len(first))]
        write.do(f"br label %{name}.before")
        write.label(f"{name}.before")
        write.do(f"br label %{name}")
        write.label(name)
        active, going = self.active(state[-1], "and" if name == "all" else "or")
        write.do(f"%{name}.next = add i64 %{name}.k, 1")
        left = write.value(f"icmp sle i64 %{name}.next, %steps")
        self.leave(f"{name}.work", write.value(f"and i1 {going}, {left}"))
        new = self._step(dict(enumerate(state)))
        if name == "some":
            new = [self.kept(active, n, s) for n, s in zip(new, state, strict=True)]
        write.do(f"br label %{name}.end")
        write.label(f"{name}.end")
        write.do(f"br label %{name}")
        write.label(f"{name}.work.left")
        self._merge(name, state, first, new, start)
        return state, f"%{name}.k"

    def _merge(
        self, name: str, state: Sequence[str], first: Sequence[str], new: Sequence[str], start: str
    ) -> None:
        """What the loop begins with: the counter and the state, at first and after a step."""
        lines = self.write.lines
        at = lines.index(f"{name}:") + 1
        lines.insert(at, f"  %{name}.k = phi i64 [ {start}, %{name}.before ], "
                         f"[ %{name}.next, %{name}.end ]")  # fmt: skip
        lines[at:at] = [
            f"  {s} = phi {self.kind} [ {a}, %{name}.before ], [ {b}, %{name}.end ]"
            for s, a, b in zip(state, first, new, strict=True)
        ]

    def _step(self, values: dict[int, str]) -> list[str]:
        phases = self.phases
        if phases.once and phases.each:
            found = phases.once.call(self.write, values)
            carried, factors = found[: len(phases.carried)], found[len(phases.carried) :]
            behind = len(values) + phases.columns
            values |= {behind + phases.sums + k: v for k, v in enumerate(carried)}
            sums = self._sums(phases.each, values, factors)
            values |= {behind + k: v for k, v in enumerate(sums)}
        return phases.update.call(self.write, values)

    def _sums(self, each: Phase, values: Mapping[int, str], factors: Sequence[str]) -> list[str]:
        write, first = self.write, self.iteration.state
        sums = [f"%a{k}" for k in range(self.phases.sums)]

        def add(r: str) -> None:
            row = {first + c: v for c, v in enumerate(self.row(r))}
            for name, term in zip(sums, each.call(write, {**values, **row}), strict=True):
                write.do(f"{name}.next = fadd {self.kind} {name}, {term}")

        def chunk(start: str, end: str) -> None:
            zero = self.shape.number(0.0)
            self.repeat("row", end, add, [(name, zero) for name in sums], start)
            for k, name in enumerate(sums):
                self.add_wide(f"{name}.next", k)

        for k in range(len(sums)):
            self.clear_wide(k)
        self.in_chunks(chunk)
        return [self.total(k, factor) for k, factor in enumerate(factors)]


class _InMemory(Loops):
    """A step as functions that read and write arrays of vectors in the workspace."""

    def source(self) -> Source:
        """See `Loops`."""
        phases, state = self.phases, self.iteration.state
        carried = len(phases.carried)
        self.workspace.room("in", self.vector * (state + phases.columns + phases.sums + carried))
        self.workspace.room("new", self.vector * state)
        self.workspace.room("factors", self.vector * phases.sums)
        self.workspace.room("terms", self.vector * phases.sums)
        self.workspace.room("acc", self.vector * phases.sums)
        self.workspace.room("wide", 8 * self.lanes * phases.sums)
        self.workspace.room("frame", self.vector * max(len(p.body.slots) for p in phases.all))
        functions = [line for p in phases.all for line in p.define_parts()]
        return self.module(functions, self._block)

    def _block(self, base: str) -> None:
        write, count = self.write, self.iteration.state
        columns_loop(write, "read", base, count, "%in", True)
        write.do("br label %before")
        write.label("before")
        write.do("br label %step")
        write.label("step")
        write.do("%step.k = phi i64 [ 0, %before ], [ %step.next, %step.end ]")
        active, some = self.active(write.load("%in", (count - 1) * self.lanes, True))
        write.do("%step.next = add i64 %step.k, 1")
        left = write.value("icmp sle i64 %step.next, %steps")
        self.leave("work", write.value(f"and i1 {some}, {left}"))
        self._step()
        self.repeat("keep", count, lambda k: self._keep(k, active))
        write.do("br label %step.end")
        write.label("step.end")
        write.do("br label %step")
        write.label("work.left")
        columns_loop(write, "write", base, count, "%in", False)

    def _keep(self, k: str, active: str) -> None:
        """The k-th number of the state, new in the lanes that go on."""
        write = self.write
        target, source = (self.offset(room, k, self.lanes) for room in ("%in", "%new"))
        old, new = write.load(target, 0, True), write.load(source, 0, True)
        write.store(self.kept(active, new, old), target, 0, True)

    def _step(self) -> None:
        phases, write = self.phases, self.write
        if phases.once and phases.each:
            sums = self.iteration.state + phases.columns
            carried = write.element("%in", (sums + phases.sums) * self.lanes)
            phases.once.call_parts(write, carried, "%factors")
            self._sum(phases.each)
            self.repeat("total", phases.sums, lambda k: self._total(k, sums))
        phases.update.call_parts(write, "%new")

    def _total(self, k: str, sums: int) -> None:
        write = self.write
        factor = write.load(self.offset("%factors", k, self.lanes), 0, True)
        target = self.offset(write.element("%in", sums * self.lanes), k, self.lanes)
        write.store(self.total(k, factor), target, 0, True)

    def _sum(self, each: Phase) -> None:
        write, count = self.write, self.phases.sums
        zero = self.shape.number(0.0)

        def clear(k: str) -> None:
            write.store(zero, self.offset("%acc", k, self.lanes), 0, True)
            self.clear_wide(k)

        def add(k: str) -> None:
            target = self.offset("%acc", k, self.lanes)
            old = write.load(target, 0, True)
            term = write.load(self.offset("%terms", k, self.lanes), 0, True)
            write.store(write.value(f"fadd {self.kind} {old}, {term}"), target, 0, True)

        def empty(k: str) -> None:
            target = self.offset("%acc", k, self.lanes)
            self.add_wide(write.load(target, 0, True), k)
            write.store(zero, target, 0, True)

        def row(r: str) -> None:
            for c, column in enumerate(self.row(r)):
                write.store(column, "%in", (self.iteration.state + c) * self.lanes, True)
            each.call_parts(write, *self._terms(each))
            self.repeat("add", count, add)

        def chunk(start: str, end: str) -> None:
            self.repeat("row", end, row, start=start)
            self.repeat("empty", count, empty)

        self.repeat("clear", count, clear)
        self.in_chunks(chunk)

    def _terms(self, each: Phase) -> list[str]:
        """Where each output of the rows goes: one behind the other."""
        sizes = [len(o.nodes) for o in each.body.computation.outputs]
        starts = [sum(sizes[:k]) for k in range(len(sizes))]
        return [self.write.element("%terms", start * self.lanes) for start in starts]
