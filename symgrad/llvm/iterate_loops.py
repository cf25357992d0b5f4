"""The loops of an iteration in LLVM IR: over blocks of problems, over rows, and what is in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from symgrad.llvm.body import Source, module
from symgrad.llvm.phases import Phases
from symgrad.llvm.skeletons import Lines
from symgrad.llvm.workspace import Workspace

EMPTIED = 32
"""Rows after which accumulators are added to float64."""


class Loops:
    """The loops over blocks, steps and rows; what is in them, its two forms say."""

    def __init__(self, phases: Phases) -> None:
        self.phases, self.iteration, self.shape = phases, phases.iteration, phases.shape
        self.write = Lines(phases.shape)
        self.lanes, self.kind = phases.shape.lanes, phases.shape.float
        self.vector = phases.shape.itemsize * self.lanes
        self.wide = f"<{self.lanes} x double>"
        self.workspace = Workspace()

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
        self.workspace.room("own.block", 0)  # the last: as long as the data are
        lines = [
            "define void @run(ptr %state, ptr %shared, ptr %own, ptr %workspace, i64 %first, "
            "i64 %end, i64 %steps, i64 %rows) #0 {",
            "entry:",
            *self.workspace.addresses(),
            *write.lines,
            "  ret void",
            "}",
        ]
        effort = min(p.body.effort for p in self.phases.all)
        size = self.workspace.size
        return module([*self.phases.definitions(), *functions, *lines], size, effort)

    def repeat(
        self, name: str, count: int | str, body: Callable[[str], None],
        carried: Sequence[tuple[str, str]] = (), start: str = "0",
    ) -> None:  # fmt: skip
        """A loop whose counter goes from ``start`` to ``count``, which is larger.

        ``body`` gets the counter. A value %X that is ``carried`` from turn to turn is %X.next in
        the end; its second name is what it is at first.
        """
        assert isinstance(count, str) or count > int(start), f"{name}: a loop of no turns"
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
