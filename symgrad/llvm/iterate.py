"""Iteration -> LLVM IR: many steps of many problems, a vector of problems at a time.

A vector holds one number of the states of as many problems as it has lanes. A block of states is
read once, steps change it where a lane's flag is not 0, and it is written once. With data, a step
sums over the rows: what all problems share is spread to the lanes, what each has of its own is
turned into vectors once for a block. Accumulators are emptied into float64 every `EMPTIED` rows.
Short steps keep everything in registers, long ones in the workspace.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from symgrad.expr.node import Op, paused_gc
from symgrad.kernel.plan import Iteration
from symgrad.llvm.body import LONG_BATCH, Source, module
from symgrad.llvm.emit import UNROLLED, columns_loop
from symgrad.llvm.instruction import Shape
from symgrad.llvm.phases import Phase, Phases
from symgrad.llvm.skeletons import Lines, load_columns, rows_of
from symgrad.mathlib.define import Function

EMPTIED = 32
"""Rows after which accumulators are added to float64."""

SUMS = 120
"""Sums up to which accumulators are values rather than memory."""

TWICE = 250
"""Operations up to which a step without data stands there twice: once for when no lane is done."""

LINE = 64
"""Bytes of a line of the cache."""


@paused_gc()
def emit_iteration(iteration: Iteration, functions: Mapping[Op, Function], shape: Shape) -> Source:
    """The module whose function ``run`` does many steps of whole blocks of problems.

    ``run(state, shared, own, workspace, first, end, steps, rows)`` changes the states of the
    problems from ``first`` to ``end``, arrays as `Iteration` describes them, in place. The
    workspace is that of the source and, behind it, an array (rows, own, lanes) of numbers.
    """
    assert shape.lanes > 1, "problems are worked on in vectors"
    phases = Phases(iteration, functions, shape)
    short = (
        all(len(p.body.parts) == 1 for p in phases.all)
        and sum(len(p.body.order) for p in phases.all) <= LONG_BATCH
        and iteration.state + phases.columns <= UNROLLED
        and phases.sums <= SUMS
    )
    return (_InRegisters if short else _InMemory)(phases).source()


# the loops ----------------------------------------------------------------------------------------


class _Loops:
    """The loops over blocks, steps and rows; what is in them, its two forms say."""

    def __init__(self, phases: Phases) -> None:
        self.phases, self.iteration, self.shape = phases, phases.iteration, phases.shape
        self.write = Lines(phases.shape)
        self.lanes, self.kind = phases.shape.lanes, phases.shape.float
        self.vector = phases.shape.itemsize * self.lanes
        self.wide = f"<{self.lanes} x double>"
        self.rooms: dict[str, int] = {}
        self.bytes = 0

    def room(self, name: str, nbytes: int) -> None:
        """Memory of the workspace as ``%NAME``."""
        self.rooms[name] = self.bytes
        self.bytes += -(-nbytes // LINE) * LINE

    def source(self) -> Source:
        """The module."""
        raise NotImplementedError

    def module(self, functions: Sequence[str], block: Callable[[str], None]) -> Source:
        """The loop over blocks, of which ``block`` does the one whose states are at an address."""
        write, state = self.write, self.iteration.state
        write.do("%any = icmp slt i64 %first, %end")
        write.do("br i1 %any, label %blocks, label %finish")
        write.label("blocks")
        write.do("%b = phi i64 [ %first, %entry ], [ %b.next, %blocks.end ]")
        base = write.element("%state", write.value(f"mul i64 %b, {state}"))
        if self.iteration.own:
            self._turn_own()
        block(base)
        write.do("br label %blocks.end")
        write.label("blocks.end")
        write.do(f"%b.next = add i64 %b, {self.lanes}")
        write.do("%more = icmp slt i64 %b.next, %end")
        write.do("br i1 %more, label %blocks, label %finish")
        write.label("finish")
        self.room("own.block", 0)
        lines = [
            "define void @run(ptr %state, ptr %shared, ptr %own, ptr %workspace, i64 %first, "
            "i64 %end, i64 %steps, i64 %rows) #0 {",
            "entry:",
            *[f"  %{k} = getelementptr i8, ptr %workspace, i64 {v}" for k, v in self.rooms.items()],
            *write.lines,
            "  ret void",
            "}",
        ]
        effort = min(p.body.effort for p in self.phases.all)
        return module([*self.phases.definitions(), *functions, *lines], self.bytes, effort)

    def repeat(
        self, name: str, count: int | str, body: Callable[[str], None],
        carried: Sequence[tuple[str, str]] = (), start: str = "0",
    ) -> None:  # fmt: skip
        """A loop whose counter goes from ``start`` to ``count``, which is larger.

        ``body`` gets the counter. A value %X that is ``carried`` from turn to turn is %X.next in
        the end; its second name is what it is at first.
        """
        write = self.write
        write.do(f"br label %{name}.before")
        write.label(f"{name}.before")
        write.do(f"br label %{name}")
        write.label(name)
        write.do(f"%{name}.k = phi i64 [ {start}, %{name}.before ], [ %{name}.next, %{name}.end ]")
        for value, first in carried:
            write.do(f"{value} = phi {self.kind} [ {first}, %{name}.before ], "
                     f"[ {value}.next, %{name}.end ]")  # fmt: skip
        body(f"%{name}.k")
        write.do(f"br label %{name}.end")
        write.label(f"{name}.end")
        write.do(f"%{name}.next = add i64 %{name}.k, 1")
        write.do(f"%{name}.more = icmp slt i64 %{name}.next, {count}")
        write.do(f"br i1 %{name}.more, label %{name}, label %{name}.done")
        write.label(f"{name}.done")

    def offset(self, base: str, index: str, scale: int | str) -> str:
        """The address of a number of an array, at ``index`` times ``scale``."""
        return self.write.element(base, self.write.value(f"mul i64 {index}, {scale}"))

    def _turn_own(self) -> None:
        """The block's own data as vectors, behind each other as they stand in each problem."""
        write = self.write
        write.do(f"%own.size = mul i64 %rows, {self.iteration.own}")
        write.do("%own.any = icmp sgt i64 %own.size, 0")
        write.do("br i1 %own.any, label %own.some, label %own.ready")
        write.label("own.some")
        base = self.offset("%own", "%b", "%own.size")

        def turn(k: str) -> None:
            vector = "poison"
            for lane in range(self.lanes):
                row = write.element(base, k) if not lane else write.element(
                    base, write.value(f"add i64 {k}, {write.value(f'mul i64 %own.size, {lane}')}")
                )  # fmt: skip
                number = write.value(f"load {write.scalar}, ptr {row}")
                vector = write.value(
                    f"insertelement {self.kind} {vector}, {write.scalar} {number}, i64 {lane}"
                )
            write.store(vector, self.offset("%own.block", k, self.lanes), 0, True)

        self.repeat("own.turn", "%own.size", turn)
        write.do("br label %own.ready")
        write.label("own.ready")

    def row(self, r: str) -> list[str]:
        """The columns of a row: what is shared in every lane, then each problem's own."""
        write, found = self.write, []
        shared, own = self.iteration.shared, self.iteration.own
        if shared:
            base = self.offset("%shared", r, shared)
            for c in range(shared):
                number = write.value(f"load {write.scalar}, ptr {write.element(base, c)}")
                found.append(self.splat(number))
        if own:
            base = self.offset("%own.block", r, own * self.lanes)
            found += [write.load(base, c * self.lanes, True) for c in range(own)]
        return found

    def splat(self, number: str) -> str:
        """A number in every lane."""
        kind = self.kind
        one = self.write.value(f"insertelement {kind} poison, {self.write.scalar} {number}, i64 0")
        return self.write.shuffle(one, one, [0] * self.lanes)

    def active(self, flag: str, how: str = "or") -> tuple[str, str]:
        """Which lanes go on, and whether any does, or all of them do."""
        zero, lanes = self.shape.number(0.0), self.lanes
        found = self.write.value(f"fcmp une {self.kind} {flag}, {zero}")
        return found, self.write.value(
            f"call i1 @llvm.vector.reduce.{how}.v{lanes}i1(<{lanes} x i1> {found})"
        )

    def kept(self, active: str, new: str, old: str) -> str:
        """A value that is new in the lanes that go on."""
        kind, lanes = self.kind, self.lanes
        return self.write.value(f"select <{lanes} x i1> {active}, {kind} {new}, {kind} {old}")

    def leave(self, name: str, going: str) -> None:
        """Go on in the block ``name`` while ``going``, and to its ``.left`` otherwise."""
        self.write.do(f"br i1 {going}, label %{name}, label %{name}.left")
        self.write.label(name)

    def in_chunks(self, body: Callable[[str, str], None]) -> None:
        """Do ``body`` for the rows from its first to its second argument, chunk by chunk."""
        write = self.write
        write.do("%chunks.some = icmp sgt i64 %rows, 0")
        write.do("br i1 %chunks.some, label %chunks.any, label %chunks.none")
        write.label("chunks.any")
        write.do(f"%chunks.up = add i64 %rows, {EMPTIED - 1}")
        write.do(f"%chunks.count = sdiv i64 %chunks.up, {EMPTIED}")

        def chunk(k: str) -> None:
            first = write.value(f"mul i64 {k}, {EMPTIED}")
            last = write.value(f"add i64 {first}, {EMPTIED}")
            body(first, write.value(f"call i64 @llvm.smin.i64(i64 {last}, i64 %rows)"))

        self.repeat("chunks", "%chunks.count", chunk)
        write.do("br label %chunks.none")
        write.label("chunks.none")

    def widened(self, value: str) -> str:
        """A vector in float64."""
        cast = "fpext" if self.shape.dtype == "float32" else "bitcast"
        return self.write.value(f"{cast} {self.kind} {value} to {self.wide}")

    def add_wide(self, value: str, k: int | str) -> None:
        """Add a vector to the k-th sum."""
        write = self.write
        at = self._wide_at(k)
        old = write.value(f"load {self.wide}, ptr {at}")
        new = write.value(f"fadd {self.wide} {old}, {self.widened(value)}")
        write.do(f"store {self.wide} {new}, ptr {at}")

    def clear_wide(self, k: int | str) -> None:
        """Set the k-th sum to 0."""
        self.write.do(f"store {self.wide} zeroinitializer, ptr {self._wide_at(k)}")

    def total(self, k: int | str, factor: str) -> str:
        """The k-th sum times its factor, in the dtype of the state."""
        write = self.write
        found = write.value(f"load {self.wide}, ptr {self._wide_at(k)}")
        found = write.value(f"fmul {self.wide} {found}, {self.widened(factor)}")
        cast = "fptrunc" if self.shape.dtype == "float32" else "bitcast"
        return write.value(f"{cast} {self.wide} {found} to {self.kind}")

    def _wide_at(self, k: int | str) -> str:
        write = self.write
        index = k * self.lanes if isinstance(k, int) else write.value(f"mul i64 {k}, {self.lanes}")
        return write.value(f"getelementptr double, ptr %wide, i64 {index}")


class _InRegisters(_Loops):
    """A step as one piece: its values have names, and the compiler finds room for them."""

    def source(self) -> Source:
        """See ``_Loops``."""
        if self.phases.sums:
            self.room("wide", 8 * self.lanes * self.phases.sums)
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


class _InMemory(_Loops):
    """A step as functions that read and write arrays of vectors in the workspace."""

    def source(self) -> Source:
        """See ``_Loops``."""
        phases, state = self.phases, self.iteration.state
        carried = len(phases.carried)
        self.room("in", self.vector * (state + phases.columns + phases.sums + carried))
        self.room("new", self.vector * state)
        self.room("factors", self.vector * phases.sums)
        self.room("terms", self.vector * phases.sums)
        self.room("acc", self.vector * phases.sums)
        self.room("wide", 8 * self.lanes * phases.sums)
        self.room("frame", self.vector * max(len(p.body.slots) for p in phases.all))
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
