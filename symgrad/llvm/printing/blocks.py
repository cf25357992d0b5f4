"""Blocks of instructions within a function: where they meet, and loops of them."""

from __future__ import annotations

from collections.abc import Sequence

from symgrad.llvm.printing.table_access import Tables


class Blocks(Tables):
    """A function of several blocks."""

    def begin(self, label: str) -> None:
        """Begin a block of instructions."""
        self.write.label(label)
        self.block = label

    def phis(
        self, kinds: Sequence[str], incoming: Sequence[tuple[str, Sequence[str]]]
    ) -> list[str]:
        """The values of the block from which this one is reached."""
        if len(incoming) == 1:
            return list(incoming[0][1])
        names: list[str] = []
        for k, kind in enumerate(kinds):
            ways = ", ".join(f"[ {values[k]}, %{block} ]" for block, values in incoming)
            names.append(self.write.value(f"phi {kind} {ways}"))
        return names


class OpenLoop:
    """A loop that is being written, of iterations from one number to another."""

    def __init__(
        self,
        flow: Blocks,
        kinds: Sequence[str],
        start: str,
        stop: str,
        inits: Sequence[str],
        some: bool = False,
    ) -> None:
        self._flow, self._kinds = flow, ["i32", *kinds]
        self._stop, self._inits, self._before = stop, [start, *inits], flow.block
        self._name = flow.label("loop")
        self._exits: list[tuple[str, Sequence[str]]] = []
        self._head(start, some)
        flow.begin(self._name)
        self._at = len(flow.write.lines)
        self.iteration = f"%{self._name}.turn"
        self.carried = [f"%{self._name}.c{k}" for k in range(len(inits))]

    def _head(self, start: str, some: bool) -> None:
        """Go to the first turn, if there is one."""
        write, name, stop = self._flow.write, self._name, self._stop
        if some or (start.isdigit() and stop.isdigit() and int(start) < int(stop)):
            write.do(f"br label %{name}")
            return
        below = write.value(f"icmp ult i32 {start}, {stop}")
        write.do(f"br i1 {below}, label %{name}, label %{name}.end")
        self._exits.append((self._before, self._inits))

    def leave(self, condition: str, values: Sequence[str]) -> None:
        """Go on where a condition holds; else leave the loop, which carries these values then."""
        flow, go = self._flow, self._flow.label(f"{self._name}.go")
        flow.write.do(f"br i1 {condition}, label %{go}, label %{self._name}.end")
        self._exits.append((flow.block, [self.iteration, *values]))
        flow.begin(go)

    def closed(self, following: Sequence[str]) -> tuple[str, list[str]]:
        """Write the end; the turn at which the loop ended, and what it then carried."""
        flow, name, last = self._flow, self._name, self._flow.block
        flow.write.do(f"%{name}.next = add i32 {self.iteration}, 1")
        more = flow.write.value(f"icmp ult i32 %{name}.next, {self._stop}")
        flow.write.do(f"br i1 {more}, label %{name}, label %{name}.end")
        ends = [f"%{name}.next", *following]
        self._exits.append((last, ends))
        names = [self.iteration, *self.carried]
        flow.write.lines[self._at : self._at] = [
            f"  {p} = phi {kind} [ {a}, %{self._before} ], [ {b}, %{last} ]"
            for p, kind, a, b in zip(names, self._kinds, self._inits, ends, strict=True)
        ]
        flow.begin(f"{name}.end")
        reached, *values = flow.phis(self._kinds, self._exits)
        return reached, values
