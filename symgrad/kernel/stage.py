"""The parts of a reduction that need no row, computed once; functions written into kernels."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from symgrad.expr import ops
from symgrad.expr.graph.node import INPUT, Graph, Op, inputs_of, reachable
from symgrad.expr.graph.rebuild import Copy, Ids, continued, outline, rebuild
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.passes.lower import inline
from symgrad.kernel.shapes import Computation, Output, Reduction

# --- formulas -------------------------------------------------------------------------------------
# Traced functions of numbers, to be written into kernels wherever their values are needed.


@dataclass(frozen=True)
class Formula:
    """A computation as a function on values of a kernel."""

    computation: Computation

    @property
    def roots(self) -> list[int]:
        """The nodes of all results."""
        return [i for output in self.computation.outputs for i in output.nodes]

    def __call__(self, k: KernelIR, *arguments: int) -> list[int]:
        """The results, written to where the kernel is."""
        graph = self.computation.graph
        inputs = {i: arguments[n[1]] for i, n in enumerate(graph.nodes) if n[0] is INPUT}
        return inline(k, graph, self.roots, inputs)


# --- stages ---------------------------------------------------------------------------------------

_ORDINARY: Final = 2.0**-60
"""Constants between this and its inverse are multiplied with one another."""


@dataclass(frozen=True)
class Stages:
    """The operations of a reduction: ``once`` of the parameters alone, ``each`` at every row.

    ``carried`` are the values of the first kind, parameters among them, that the second needs.
    """

    once: Sequence[int]
    each: Sequence[int]
    carried: Sequence[int]


def stages(reduction: Reduction) -> Stages:
    """The operations of a reduction, by what they depend on."""
    graph, roots, rows = reduction.graph, _nodes_of(reduction.outputs), _at_rows(reduction)
    each = _operations(graph, rows)
    wanted = dict.fromkeys([*(a for i in each for a in graph.args(i)), *roots])
    carried = sorted(i for i in wanted if i not in rows and _is_computed_or_given(graph, i))
    once = reachable(graph, [*carried, *reduction.factors])
    return Stages(_operations(graph, once), each, carried)


@dataclass(frozen=True)
class Staged:
    """A computation at rows in two graphs: ``once`` of the parameters, and ``each`` of its values.

    The inputs of the second are these values, and then what differs from row to row.
    """

    once: Graph
    values: tuple[int, ...]
    each: Graph
    outputs: tuple[Output, ...]


def staged(reduction: Reduction, least: int) -> Staged | None:
    """Splits off what no row changes; None if that would save less than ``least``.

    That is the cost of operations, as `Op` has it.
    """
    graph, parts = reduction.graph, stages(reduction)
    if sum(graph.nodes[i][0].cost for i in parts.once) < least:
        return None
    inputs = inputs_of(graph)
    parameters, rows = inputs[: reduction.parameters], inputs[reduction.parameters :]
    once, values = arranged(graph, parts.carried, parameters)
    roots = _nodes_of(reduction.outputs)
    needed = {*parts.each, *(a for i in parts.each for a in graph.args(i)), *roots}
    copy, names = Copy(Graph(), [-1] * len(graph)), {graph.names[graph.nodes[i][1]] for i in rows}
    copy.graph.tracing, copy.graph.sources = False, graph.sources
    for number, i in enumerate(parts.carried):
        is_input = graph.nodes[i][0] is INPUT
        name = graph.names[graph.nodes[i][1]] if is_input else f"once{number}"
        while name in names:
            name += "_"
        names.add(name)
        copy.ids[i] = copy.graph.input(name)
    for i in rows:
        copy.ids[i] = copy.graph.input(graph.names[graph.nodes[i][1]])
    left = sorted(needed.difference(parts.carried, inputs))
    each, ends = rebuild(graph, left, copy).of(roots)
    cut = iter(ends)
    outputs = (Output(o.name, tuple(next(cut) for _ in o.nodes)) for o in reduction.outputs)
    return Staged(once, tuple(values), each, tuple(outputs))


def at_each_row(reduction: Reduction) -> list[int]:
    """The operations at every row, as in `Stages`."""
    return _operations(reduction.graph, _at_rows(reduction))


def _operations(graph: Graph, nodes: Iterable[int]) -> list[int]:
    """The nodes that are operations, in order."""
    return sorted(i for i in nodes if graph.nodes[i][0].arity)


def _nodes_of(outputs: Iterable[Output]) -> list[int]:
    """The nodes of all columns, in their order."""
    return [i for output in outputs for i in output.nodes]


def _at_rows(reduction: Reduction) -> set[int]:
    """The nodes that depend on the row, and the conditions and words that they are made of.

    The latter are cheap: they are made where they are used.
    """
    graph, nodes = reduction.graph, reduction.graph.nodes
    order = reachable(graph, _nodes_of(reduction.outputs))
    varying = _varying(graph, order, reduction.parameters)
    for i in reversed(order):
        if i in varying and nodes[i][0].arity:
            varying.update(a for a in graph.args(i) if nodes[a][0].arity and graph.type(a) != "f")
    return varying


def _is_computed_or_given(graph: Graph, i: int) -> bool:
    """Whether a node is an operation or an input: no constant."""
    return bool(graph.nodes[i][0].arity) or graph.nodes[i][0] is INPUT


def _varying(graph: Graph, order: Sequence[int], parameters: int) -> set[int]:
    """The nodes that depend on the row."""
    nodes = graph.nodes
    varying: set[int] = set()
    for i in order:
        node = nodes[i]
        if node[0].arity:
            if not varying.isdisjoint(node[1:]):
                varying.add(i)
        elif node[0] is INPUT and node[1] >= parameters:
            varying.add(i)
    return varying


def hoisted(reduction: Reduction) -> Reduction:
    """A reduction of the same value with less to do at each row.

    A quotient by what no row changes becomes a product with its reciprocal, which is rounded once
    more; and a factor that no row changes, of a whole result, is applied to the sum.
    """
    graph, new, fixed = _with_reciprocals(reduction)
    outputs = [Output(o.name, tuple(new[i] for i in o.nodes)) for o in reduction.outputs]
    count = len(reduction.summed)
    summed, looked = outputs[:count], outputs[count:]
    products = _products(graph, _nodes_of(outputs), _nodes_of(looked), fixed)
    parts = [[products.get(i) or _Product(i) for i in o.nodes] for o in summed]
    cores = [
        Output(output.name, tuple(p.core for p in mine))
        for output, mine in zip(summed, parts, strict=True)
    ]
    factors = tuple(p.factor(graph) for mine in parts for p in mine)
    return replace(reduction, graph=graph, outputs=(*cores, *looked), factors=factors)


def _with_reciprocals(reduction: Reduction) -> tuple[Graph, Ids, set[int]]:
    """A reduction's graph without quotients by what no row changes.

    With it come the ids that the nodes have there, and those of the nodes that no row changes.
    """
    old = reduction.graph
    order = reachable(old, _nodes_of(reduction.outputs))
    varying = _varying(old, order, reduction.parameters)

    quotients = (i for i in order if old.nodes[i][0] is ops.div)
    divided = [i for i in quotients if [a in varying for a in old.args(i)] == [True, False]]
    start = divided[0] if divided else len(old)
    copy, later = continued(old, start), order[bisect_left(order, start) :]
    graph = copy.graph

    def product(_: Op, a: int, b: int) -> int:
        return graph.add(ops.mul, a, graph.add(ops.reciprocal, b))

    rebuild(old, later, copy, changed=dict.fromkeys(divided, product))
    return graph, copy.ids, set(range(len(graph))) - {copy.ids[i] for i in varying}


@dataclass(frozen=True)
class _Product:
    """A value as a core, which rows change, times a constant and a node, which they do not."""

    core: int
    number: float = 1.0
    node: int | None = None

    def factor(self, graph: Graph) -> int:
        """The node of all but the core."""
        if self.node is None:
            return graph.constant(self.number)
        if self.number == 1.0:
            return self.node
        if self.number == -1.0:
            return graph.add(ops.neg, self.node)
        return graph.add(ops.mul, graph.constant(self.number), self.node)

    def whole(self, graph: Graph) -> int:
        """The node of the value itself."""
        factor = self.factor(graph)
        if self.core < 0 or graph.value(factor) == 1.0:
            return factor if self.core < 0 else self.core
        return graph.add(ops.mul, self.core, factor)

    def negative(self) -> _Product:
        """The product with the other sign."""
        return replace(self, number=-self.number)

    def times(self, other: _Product, graph: Graph) -> _Product:
        """The product of two, the core of one of which may be missing (below 0)."""
        cores = sorted(c for c in (self.core, other.core) if c >= 0)
        nodes = [n for n in (self.node, other.node) if n is not None]
        core = graph.add(ops.mul, *cores) if len(cores) > 1 else cores[0]
        node = graph.add(ops.mul, *nodes) if len(nodes) > 1 else next(iter(nodes), None)
        return _Product(core, self.number * other.number, node)


def _products(
    graph: Graph, roots: Sequence[int], whole: Sequence[int], fixed: set[int]
) -> dict[int, _Product]:
    """The products among the roots and their factors that have no other users.

    Products that differ by what no row changes have one core. What something else is made of, or
    what is wanted ``whole``, stays so, as x/s stays normal where x alone, multiplied with itself,
    would overflow; and so does a constant out of the ordinary.
    """
    products: dict[int, _Product] = {}

    def part(i: int) -> _Product:
        return products.get(i) or _part(graph, i, fixed)

    for i in _only_in_products(graph, roots, whole, fixed):
        op, *args = graph.nodes[i]
        if op is ops.mul:
            product = part(args[0]).times(part(args[1]), graph)
        elif op is ops.neg:
            product = part(args[0]).negative()
        else:
            product = _selected(graph, args, part)
        products[i] = product if _ORDINARY < abs(product.number) < 1.0 / _ORDINARY else _Product(i)
    return products


def _selected(graph: Graph, args: Sequence[int], part: Callable[[int], _Product]) -> _Product:
    """A value, or 0 instead: without its constant factor, which 0 has as well.

    What else no row changes stays, for it may be infinite.
    """
    condition, *sides = args
    taken = next(n for n, i in enumerate(sides) if graph.value(i) != 0.0)
    value = part(sides[taken])
    sides[taken] = replace(value, number=1.0).whole(graph)
    return _Product(graph.add(ops.where, condition, *sides), value.number)


def _only_in_products(
    graph: Graph, roots: Sequence[int], whole: Sequence[int], fixed: set[int]
) -> list[int]:
    """The products that rows change, of which only others of them are made; arguments first.

    So are choices between a product and 0.
    """
    products: list[int] = []
    needed = set(whole)
    for i in reversed(reachable(graph, roots)):
        op, *args = graph.nodes[i]
        if i not in fixed and i not in needed and (op in (ops.mul, ops.neg) or _or_0(graph, i)):
            products.append(i)
            args = args[:1] if op is ops.where else ()
        if op.arity:
            needed.update(args)
    return products[::-1]


def _or_0(graph: Graph, i: int) -> bool:
    """Whether a node is a choice between a value and 0."""
    op, *args = graph.nodes[i]
    return op is ops.where and [graph.value(a) == 0.0 for a in args[1:]].count(True) == 1


def _part(graph: Graph, i: int, fixed: set[int]) -> _Product:
    """A factor that is no product: a core, a constant, or a node that no row changes."""
    if i not in fixed:
        return _Product(i)
    value = graph.value(i)
    return _Product(-1, 1.0, i) if value is None else _Product(-1, value)


def arranged(graph: Graph, roots: Sequence[int], inputs: Sequence[int]) -> tuple[Graph, list[int]]:
    """The graph of some nodes, its inputs these, numbered in this order, and none else."""
    if sorted(inputs) == sorted(inputs_of(graph)):
        return _renumbered(graph, inputs), list(roots)
    order = reachable(graph, roots)
    left_out = {i for i in order if graph.nodes[i][0] is INPUT}.difference(inputs)
    assert not left_out, f"inputs {sorted(left_out)} are left out, but needed"
    return rebuild(graph, order, outline(graph, inputs)).of(roots)


def _renumbered(graph: Graph, inputs: Sequence[int]) -> Graph:
    """A graph with its inputs in this order; all other nodes are as they are."""
    nodes, names = list(graph.nodes), [graph.names[graph.nodes[i][1]] for i in inputs]
    for number, i in enumerate(inputs):
        nodes[i] = (nodes[i][0], number)
    renumbered = Graph.of(nodes, list(graph.places), names, graph.sources)
    renumbered.derived = list(graph.derived)
    return renumbered
