"""The statements of a sum over rows, in WGSL: what needs no row, and what is done at every one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from symgrad.expr.graph.node import INPUT, Op
from symgrad.expr.graph.reach import reachable
from symgrad.kernel.binding import bind
from symgrad.kernel.products import NO_FACTOR
from symgrad.wgsl.emit import Style, Writer
from symgrad.wgsl.lookup import PADDED, column_of, find_line, place_of
from symgrad.wgsl.reduce_tile import Tile
from symgrad.wgsl.vectors import COMPONENTS

KEPT: Final = 64
"""Parameters up to which they are read before the loop, rather than at every row."""


class Stage(Writer):
    """Statements that read what they need first: parameters, four at a time."""

    def __init__(
        self, tile: Tile, order: Sequence[int], roots: Sequence[int], names: list[str],
        calls: Mapping[Op, str], style: Style,
    ) -> None:  # fmt: skip
        graph = tile.reduction.graph
        super().__init__(graph, bind(graph, order, roots), calls, style)
        self.tile, self.order, self.names = tile, order, names
        self._quads: set[str] = set()

    def statement(self, i: int) -> Iterator[str]:
        """The lines for one operation."""
        for a in self.graph.args(i):
            yield from self.load(a)
        if line := self.write(i):
            yield line

    def load(self, i: int) -> Iterator[str]:
        """The lines that read an input, where it has not been read."""
        if i not in self.texts and self.graph.nodes[i][0] is INPUT:
            number = self.graph.nodes[i][1]
            yield from self._read(i, number, "quad", "parameters", "{}u", 4)

    def _read(
        self, i: int, number: int, name: str, array: str, place: str, width: int
    ) -> Iterator[str]:
        """The lines that read a number of an array whose elements have this width."""
        which, component = divmod(number, width)
        value = f"{array}[{place.format(which)}]"
        if width > 1:
            quad = f"{name}{which}"
            if quad not in self._quads:
                self._quads.add(quad)
                yield f"  let {quad} = {value};"
            value = f"{quad}.{COMPONENTS[component]}"
        yield f"  {self.declare(i, self.names[self.graph.nodes[i][1]])} = {value};"


class Once(Stage):
    """What needs no row: what the rows need of it, and the factors."""

    def __init__(self, tile: Tile, names: list[str], calls: Mapping[Op, str], style: Style) -> None:
        split, graph = tile.split, tile.reduction.graph
        self.fixed = [i for k, i in tile.roots.items() if k not in tile.summed]
        shown = {*tile.reduction.factors, *self.fixed}
        made = [i for i in split.carried if graph.nodes[i][0].arity]
        super().__init__(tile, split.once, [*made, *shown], names, calls, style)
        inputs = [i for i in split.carried if not graph.nodes[i][0].arity]
        wanted = [*(inputs if len(inputs) <= KEPT else []), *made]
        needed = {a for i in split.each for a in graph.args(i)}
        needed.update(tile.stored)
        self.kept = [i for i in wanted if i in needed]
        """What is in variables that the rows see."""
        self.private: list[str] = []

    def prepared(self) -> Iterator[str]:
        """The lines before the loop."""
        for i in self.kept:
            yield from self.load(i)
        needed = self._behind(self.kept)
        for i in self.order:
            if i in needed:
                yield from self.statement(i)
        if self.private:
            self.private.insert(0, "// what the rows need of the parameters")
            self.private.append("")

    def _behind(self, roots: Iterable[int]) -> set[int]:
        """The operations that these values are made of."""
        found = set(roots)
        for i in reversed(self.order):
            if i in found:
                found.update(self.graph.args(i))
        return found

    def results(self) -> Iterator[str]:
        """The lines that write the factors, and what no row changes."""
        for i in self.order:
            if i not in self.texts:
                yield from (f"  {line}" for line in self.statement(i))
        for place, i in enumerate((*self.tile.reduction.factors, *self.fixed)):
            yield from (f"  {line}" for line in self.load(i))
            yield f"    partials[{place}u] = {self.text(i)};"

    def declare(self, i: int, name: str) -> str:
        """The left side of a statement; what the rows need is a variable of the module."""
        left = super().declare(i, name)
        if i not in self.kept:
            return left
        self.private.append(f"var<private> {name}: f32;")
        return name


class Rows(Stage):
    """What is done at every row, with what was made once before."""

    def __init__(
        self, once: Once, calls: Mapping[Op, str], style: Style, order: Sequence[int],
        wanted: Sequence[int],
    ) -> None:  # fmt: skip
        self.once = once
        super().__init__(once.tile, order, wanted, once.names, calls, style)
        self._lines: set[int] = set()

    def load(self, i: int) -> Iterator[str]:
        """The lines that read an input: a column, or a parameter if there are many."""
        column = -1
        if self.graph.nodes[i][0] is INPUT:
            column = self.graph.nodes[i][1] - self.tile.whole.parameters
        if i in self.texts or column < 0:
            yield from super().load(i)
            return
        if column >= self.tile.whole.columns:
            yield from self._look_up(i, column - self.tile.whole.columns)
            return
        width = self.tile.load
        each = self.tile.whole.columns // width
        place = f"row * {each}u + {{}}u" if each > 1 else "row"
        yield from self._read(i, column, "row", "rows", place, width)

    def _look_up(self, i: int, number: int) -> Iterator[str]:
        """The lines that read a number of a table, in the line that the row names."""
        k, column = place_of(self.tile.whole, number)
        if k not in self._lines:
            self._lines.add(k)
            yield find_line(self.tile.whole, k)
        place = f"line{k} + {column}u" if column else f"line{k}"
        name = self.names[self.graph.nodes[i][1]]
        yield f"  {self.declare(i, name)} = bitcast<f32>(tables[{place}]);"


class Each(Rows):
    """What is done at every row, and added to the sums."""

    def __init__(self, once: Once, calls: Mapping[Op, str], style: Style) -> None:
        tile = once.tile
        roots = [tile.roots[k] for k in tile.summed]
        super().__init__(once, calls, style, tile.split.each, [*roots, *tile.stored])
        self._places: dict[int, list[int]] = {}
        for c, i in enumerate(roots):
            self._places.setdefault(i, []).append(c)
        self._unwritten = dict(tile.written)

    def body(self) -> Iterator[str]:
        """The function that adds a row to the sums."""
        self.texts |= {i: self.once.texts[i] for i in self.once.kept}
        yield "// adds what a row contributes"
        yield f"fn add_row({self._arguments()}) {{"
        if self.tile.whole.lookups:
            yield f"  let padded = {PADDED};"
        missing = set(self.order)
        yield from self._written(missing)
        for i in self.order:
            yield from self.statement(i)
            yield from self._added(i)
            missing.discard(i)
            if i in self.tile.stored:
                yield from self._written(missing)
        for i in self.tile.whole.row_inputs:
            if i in self._places:
                yield from self.load(i)
                yield from self._added(i)
        yield "}"
        yield ""

    def _arguments(self) -> str:
        """The columns, if several rows are read at once; else the number of the row."""
        if self.tile.rows == 1:
            return "row: u32"
        inputs = self.tile.whole.row_inputs
        for i in inputs:
            self.declare(i, self.names[self.graph.nodes[i][1]])
        return ", ".join(f"{self.texts[i][0]}: f32" for i in inputs)

    def _added(self, i: int) -> Iterator[str]:
        for c in self._places.get(i, ()):
            yield f"  sum{c} += {self.text(i)};"

    def _written(self, missing: set[int]) -> Iterator[str]:
        """The lines that write the slopes of which nothing is missing any more."""
        for k, quad in list(self._unwritten.items()):
            if missing.isdisjoint(s.node for s in quad):
                del self._unwritten[k]
                for slope in quad:
                    yield from self.load(slope.node)
                values = [*(self.text(s.node) for s in quad), *["0.0f"] * (4 - len(quad))]
                place = f"{column_of(k, 'padded')}row"
                yield f"  slopes[{place}] = vec4<f32>({', '.join(values)});"


class Factors(Rows):
    """What is done at every row for the factors of its results."""

    def __init__(
        self, once: Once, calls: Mapping[Op, str], style: Style, kept: Sequence[int]
    ) -> None:
        """``kept`` are the factors; `NO_FACTOR` stands for 1."""
        wanted = [i for i in dict.fromkeys(kept) if i != NO_FACTOR]
        self.kept = {i: f"kept{n}" for n, i in enumerate(wanted)}
        self.factors = {NO_FACTOR: "1.0f"} | self.kept
        """What the factors are called."""
        each, graph = set(once.tile.split.each), once.tile.reduction.graph
        order = [i for i in reachable(graph, wanted) if i in each]
        super().__init__(once, calls, style, order, wanted)

    def body(self) -> Iterator[str]:
        """The function that keeps a row's factors."""
        self.texts |= {i: self.once.texts[i] for i in self.once.kept}
        yield from (f"var<private> {name}: f32;" for name in self.kept.values())
        yield ""
        yield "// keeps the factors of a row, or 0 for each if it is none"
        yield "fn keep_row(row: u32, inside: bool) {"
        left = dict(self.kept)
        for i in self.order:
            yield from self.statement(i)
            if i in left:
                yield f"  {left.pop(i)} = select(0.0f, {self.text(i)}, inside);"
        for i, name in left.items():
            yield from self.load(i)
            yield f"  {name} = select(0.0f, {self.text(i)}, inside);"
        yield "}"
        yield ""
