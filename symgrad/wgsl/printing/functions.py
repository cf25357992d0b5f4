"""A straight kernel that is cut where it is long: into shaders, and these into functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, cast

from symgrad.expr.graph.node import INPUT, Graph, Op
from symgrad.kernel.language.target import POINTS_PER_WORKGROUP
from symgrad.kernel.passes.schedule import Piece, Plan
from symgrad.wgsl.printing.analysis import (
    Own,
    element_of,
    loaded_as,
    stored_as,
    zero_of,
)
from symgrad.wgsl.printing.source import Style
from symgrad.wgsl.printing.statements import Body

_STRIDE: Final = [
    "// the length of a row of scratch: the points, rounded up to whole workgroups",
    "fn stride() -> u32 { return "
    f"(params.count + {POINTS_PER_WORKGROUP - 1}u) / {POINTS_PER_WORKGROUP}u "
    f"* {POINTS_PER_WORKGROUP}u; }}",
    "",
]


class Shader:
    """One shader of a plan, whose statements are a ``body``, or functions that it calls.

    What one of its functions makes and another needs is a private variable; what another shader
    needs goes through scratch memory, four values at a time.
    """

    def __init__(
        self, plan: Plan, piece: Piece, own: Own, calls: Mapping[Op, str], style: Style
    ) -> None:
        self._plan, self._piece = plan, piece
        self._fetched = {i: r for r in piece.fetches for i in plan.scratch[r]}
        self._lists = [_expression_nodes(plan.graph, part, plan.bound) for part in piece.parts]
        self.body = Body(
            plan.kernel,
            own,
            calls,
            style,
            uses=plan.uses,
            stores=piece.stores,
            shared=self._nodes_of_several_parts(),
        )
        self._values = self.body.values
        self._values.taken.update(f"part_{k}" for k in range(len(piece.parts)))
        self._values.taken.update(f"s{row}" for row in piece.fetches)
        self._values.functions += _STRIDE if plan.scratch else []
        self._element = element_of(style.floats, plan.kinds <= {"f", "b"})
        """The type that a row of scratch memory is a vector of."""

    @property
    def scratch(self) -> str:
        """The type of what scratch memory consists of, or "" if there is none."""
        return self._values.floats.vector(4, self._element) if self._plan.scratch else ""

    def _nodes_of_several_parts(self) -> set[int]:
        """Values that one function makes and another, or the end of the shader, needs."""
        plan, piece = self._plan, self._piece
        if len(piece.parts) < 2:
            return set()
        rows = plan.scratch
        shared = {i for r in piece.spills for i in rows[r]}
        shared.update(s.node for s in piece.stores)
        shared.update(i for r in piece.fetches for i in rows[r])
        first: dict[int, int] = {}
        for k, part in enumerate(self._lists):
            named = [i for i in part if i in plan.bound or plan.graph.nodes[i][0] is INPUT]
            shared.update([i for i in named if first.setdefault(i, k) != k])
        return shared

    # lines ---------------------------------------------------------------------------------------

    def lines(self) -> Iterator[str]:
        """The statements of the shader; some may be functions that it calls."""
        items, arguments = self._plan.kernel.main.items, ["cell"]
        for s in self._plan.uses.read:
            yield from self._part(cast(Sequence[int], items[: items.index(s)]))
            arguments.insert(0, self._values.text(s.row))
        for k, part in enumerate(self._lists):
            if len(self._lists) == 1:
                yield from self._part(part)
                continue
            parameters = ", ".join(f"{name}: u32" for name in arguments)
            lines = "\n".join(self._part(part))
            self._values.functions += [f"fn part_{k}({parameters}) {{", lines, "}", ""]
            yield f"  part_{k}({', '.join(arguments)});"
        yield from self._spills()
        yield from self.body.records.stores.lines()

    def _part(self, nodes: Iterable[int]) -> Iterator[str]:
        """The lines of one function."""
        self.body.records.begin()
        for i in nodes:
            if i in self._values.texts:
                continue
            if i in self._fetched:
                yield from self._fetch(self._fetched[i])
            elif i in self._plan.uses.columns:
                yield from self.body.records.read((i,))
            elif line := self._values.write(i):
                yield line

    def _fetch(self, row: int) -> Iterator[str]:
        yield f"  let s{row} = scratch[{row}u * stride() + cell];"
        for k, i in enumerate(self._plan.scratch[row]):
            number = f"s{row}{self._values.floats.component(k)}"
            value = loaded_as(self._element, self._plan.graph.type(i)).format(number)
            yield f"  {self._values.declare(i)} = {value};"

    def _spills(self) -> Iterator[str]:
        element = self._element
        zero = zero_of(self._values.floats, element)
        for row in self._piece.spills:
            nodes = self._plan.scratch[row]
            values = [
                stored_as(element, self._plan.graph.type(i)).format(self._values.text(i))
                for i in nodes
            ]
            packed = ", ".join(values + [zero] * (4 - len(values)))
            yield f"  scratch[{row}u * stride() + cell] = {self.scratch}({packed});"


def place_of(plan: Plan, number: int) -> Iterator[str]:
    """Which of several shaders one is."""
    if len(plan.pieces) > 1:
        crossing = sum(map(len, plan.scratch))
        yield (
            f"// kernel {number + 1} of {len(plan.pieces)}: one shader of this length compiles "
            "slowly, so the graph"
        )
        yield (
            f"// is cut where few values are alive; {crossing:,} values cross through scratch "
            "memory"
        )


def _expression_nodes(graph: Graph, part: Iterable[int], bound: frozenset[int]) -> list[int]:
    """The nodes of some statements: the bound ones, what is folded into them, what they load."""
    expression = set(part)
    stack = list(expression)
    nodes = graph.nodes
    loads: list[int] = []
    for i in stack:
        if nodes[i][0].arity:
            for a in nodes[i][1:]:
                if a in expression:
                    continue
                if a not in bound and nodes[a][0].arity:
                    expression.add(a)
                    stack.append(a)
                elif a in bound or nodes[a][0] is INPUT:
                    loads.append(a)
    return _loads_first(sorted(expression), graph, set(loads))


def _loads_first(order: Sequence[int], graph: Graph, outside: set[int]) -> list[int]:
    """The nodes in order, each value from outside just before the first that needs it."""
    result: list[int] = []
    for i in order:
        for a in graph.nodes[i][1:]:
            if a in outside:
                outside.discard(a)
                result.append(a)
        result.append(i)
    return result
