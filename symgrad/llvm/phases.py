"""The arithmetic of a step of an iteration: LLVM functions on values, or through memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from symgrad.expr.node import INPUT, Graph, Op
from symgrad.kernel.plan import Computation, Iteration, Output, Reduction
from symgrad.kernel.stage import stages
from symgrad.llvm.body import Body, write_parts
from symgrad.llvm.definitions import INLINED, closure, definitions
from symgrad.llvm.instruction import Shape
from symgrad.llvm.skeletons import Lines
from symgrad.mathlib.define import Function


class Phase:
    """Some of a step's arithmetic as functions of their own."""

    def __init__(
        self, name: str, computation: Computation, order: Sequence[int],
        functions: Mapping[Op, Function], shape: Shape, places: Mapping[int, int],
    ) -> None:  # fmt: skip
        self.name, self.places = name, places
        self.body = Body(computation, order, functions, shape, places)
        count = len(self.body.roots)
        self._result = f"{{ {', '.join([shape.float] * count)} }}"

    def define(self) -> Iterator[str]:
        """A function on values, for arithmetic in one part: it is written where it is called."""
        kind = self.body.shape.float
        names = {i: f"%t{i}" for i in self.places}
        parameters = ", ".join(f"{kind} {name}" for name in names.values())
        writer = self.body.writer(names)
        writer.write(self.body.order)
        yield f"define internal {self._result} @{self.name}({parameters}) alwaysinline #0 {{"
        yield from writer.lines
        last = "poison"
        for k, i in enumerate(self.body.roots):
            yield (f"  %result{k} = insertvalue {self._result} {last}, "
                   f"{kind} {writer.names[i]}, {k}")  # fmt: skip
            last = f"%result{k}"
        yield f"  ret {self._result} {last}"
        yield "}"
        yield ""

    def call(self, write: Lines, values: Mapping[int, str]) -> list[str]:
        """The results, from values by their places."""
        kind = self.body.shape.float
        arguments = ", ".join(f"{kind} {values[at]}" for at in self.places.values())
        found = write.value(f"call {self._result} @{self.name}({arguments})")
        count = range(len(self.body.roots))
        return [write.value(f"extractvalue {self._result} {found}, {k}") for k in count]

    def define_parts(self) -> Iterator[str]:
        """Functions that work through memory."""
        return write_parts(self.body, self._outputs("%o{}"), self.name, "internal ")

    def call_parts(self, write: Lines, *rooms: str) -> None:
        """Have them read ``%in`` and write each output to its room."""
        outputs = self._outputs("{}", rooms)
        for k in range(len(self.body.parts)):
            write.do(f"call void @{self.name}{k}(ptr %in, {outputs}, ptr %frame)")

    def _outputs(self, form: str, names: Sequence[str] = ()) -> str:
        count = len(self.body.computation.outputs)
        return ", ".join(f"ptr {form.format(n)}" for n in (names or map(str, range(count))))


class Phases:
    """A step: what its rows need once, what is done at each of them, and the update.

    Values have places: the state, a row's columns, the sums, and what is carried to the rows.
    """

    def __init__(
        self, iteration: Iteration, functions: Mapping[Op, Function], shape: Shape
    ) -> None:
        self.iteration, self.functions, self.shape = iteration, functions, shape
        rows = iteration.rows
        self.columns = rows.columns if rows else 0
        self.sums = sum(len(o.nodes) for o in rows.outputs) if rows else 0
        self.once: Phase | None = None
        self.each: Phase | None = None
        self.carried: Sequence[int] = ()
        if rows is not None:
            self._split(rows)
        graph, state = iteration.update.graph, iteration.state
        places = {i: k if k < state else k + self.columns for k, i in _inputs(graph)}
        roots = [i for o in iteration.update.outputs for i in o.nodes]
        order = _depth_first(graph, roots)
        self.update = self._phase("update", iteration.update, order, places)
        self.all = [p for p in (self.once, self.each, self.update) if p]

    def _phase(
        self, name: str, computation: Computation, order: Sequence[int], places: Mapping[int, int]
    ) -> Phase:
        return Phase(name, computation, order, self.functions, self.shape, places)

    def _split(self, rows: Reduction) -> None:
        graph, split = rows.graph, stages(rows)
        self.carried = [i for i in split.carried if graph.nodes[i][0].arity]
        inputs = _inputs(graph)
        state = {i: k for k, i in inputs if k < rows.parameters}
        first = self.iteration.state - rows.parameters
        columns = {i: first + k for k, i in inputs if k >= rows.parameters}
        behind = self.iteration.state + self.columns + self.sums
        carried = {i: behind + k for k, i in enumerate(self.carried)}
        outputs = Output("carried", tuple(self.carried)), Output("factors", rows.factors)
        once = Computation("once", graph, outputs)
        self.once = self._phase("once", once, split.once, state)
        self.each = self._phase("each", rows, split.each, state | columns | carried)

    def definitions(self) -> Iterator[str]:
        """The library's functions that the step calls, written in place if that is short."""
        used = Counter[Op]()
        for p in self.all:
            used.update(p.body.used)
        sizes = {op: len(self.functions[op].graph) for op in closure(used, self.functions)}
        inline = sum(size * used.get(op, 1) for op, size in sizes.items()) <= INLINED
        return definitions(used, self.functions, self.shape, inline)


def _depth_first(graph: Graph, roots: Iterable[int]) -> list[int]:
    """The operations that the roots need, what is needed for one before what is for the next.

    Next to each other, the update's square roots and divisions would wait for one another.
    """
    nodes, found = graph.nodes, dict[int, None]()
    stack = [(i, False) for i in reversed([*roots])]
    while stack:
        i, written = stack.pop()
        if written:
            found[i] = None
        elif i not in found and nodes[i][0].arity:
            stack.append((i, True))
            stack += [(a, False) for a in reversed(graph.args(i))]
    return list(found)


def _inputs(graph: Graph) -> list[tuple[int, int]]:
    """The numbers and the nodes of the inputs."""
    return sorted((node[1], i) for i, node in enumerate(graph.nodes) if node[0] is INPUT)
