"""Parts of a row that kernels over data want: its values, and their first and second derivatives.

Derivatives are those for the variables of a row: the parameters that it reads as all rows do, and
then the entries of blocks that its indices name. What is structurally 0 is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from symgrad.errors import TraceError
from symgrad.expr import ops
from symgrad.expr.derivatives import differentiate
from symgrad.expr.derivatives.accumulate import Mode, Sought, accumulated
from symgrad.expr.graph.place import describe
from symgrad.expr.tracers.tree import Block, Tree, tree_of
from symgrad.expr.tracing.gather import Gather, RowTrace
from symgrad.expr.tracing.trace import require_slope
from symgrad.pipeline import size
from symgrad.rows.loss import Request, contributions, trace_request, weight_column
from symgrad.values.results import Array, Result, Scalar, derivatives, nested_result


@dataclass(frozen=True)
class Variables:
    """Variables of derivatives of rows: parameters at these ``places``, then those of lookups.

    ``total`` is the number of all parameters.
    """

    places: tuple[int, ...]
    gathers: tuple[Gather, ...]
    total: int

    def places_at(self, indices: np.ndarray, numbered: Sequence[int]) -> np.ndarray:
        """The places (N, variables) of the variables of rows whose indices are (N, count).

        ``numbered`` are the columns that the indices come from.
        """
        kind = np.int32 if self.total < 2**31 else np.int64
        parts = [np.broadcast_to(np.array(self.places, kind), (len(indices), len(self.places)))]
        for gather in self.gathers:
            entries = indices[:, numbered.index(gather.column)].astype(kind)
            block = gather.block
            parts.append(
                block.start + block.width * entries[:, None] + np.arange(block.width, dtype=kind)
            )
        return np.concatenate(parts, axis=1)


@dataclass(frozen=True)
class Part:
    """An array of results: of ``values`` numbers, or of their derivatives of an ``order``.

    ``keys`` say where each number stands: (value,), (value, variable) or (variable, variable), and
    ``result`` how ``run`` returns the array of all, zeros among them, of a row or a sum.
    """

    name: str
    order: int
    values: int
    result: Result
    keys: tuple[tuple[int, ...], ...]
    mode: Mode | None = None
    """How derivatives were made."""

    def shape(self, n: int) -> tuple[int, ...]:
        """The shape of the array, if n is the number of parameters."""
        return (n, n) if self.order == 2 else (self.values, n)[: self.order + 1]


@dataclass(frozen=True)
class Wants:
    """The parts that are wanted of a row, and the nodes of their numbers in its trace."""

    trace: RowTrace
    variables: Variables
    parts: tuple[Part, ...]
    nodes: tuple[tuple[int, ...], ...]

    @property
    def mode(self) -> Mode | None:
        """How the derivatives of the highest order were made."""
        return next((part.mode for part in reversed(self.parts) if part.mode), None)


def wants_of(request: Request, verb: str) -> Wants:
    """A verb's wants of a row: "values", "gradient", "jacobian", "hessian" or "product"."""
    trace = _doubled(request) if verb == "product" else trace_request(request)
    n = tree_of(request.n).size
    weight = weight_column(request)
    if weight is not None:
        column = trace.columns[weight]
        outputs = tuple(trace.graph.add(ops.mul, column, i) for i in trace.outputs)
        trace = replace(trace, outputs=outputs)
    if not trace.outputs:
        raise TraceError("f returned an empty container: there is nothing to compute")
    places = tuple(k for k in trace.parameters if k < n)
    gathers = tuple(g for g in trace.gathers if g.block.start < n)
    variables = Variables(places, gathers, n)
    pairs = _parts_and_nodes(request, trace, variables, verb)
    parts = tuple(part for part, _ in pairs)
    if request.penalty is not None:
        request.penalty.require_like(parts[0].result, request.f)
    nodes = tuple(tuple(contributions(request, trace, ids)) for _, ids in pairs)
    return Wants(trace, variables, parts, nodes)


def _parts_and_nodes(
    request: Request, trace: RowTrace, variables: Variables, verb: str
) -> list[tuple[Part, list[int]]]:
    tree, outputs = tree_of(request.n), trace.outputs
    m = len(outputs)
    keys = tuple((k,) for k in range(m))
    if verb == "values":
        return [(Part("values", 0, m, nested_result(trace.structure), keys), list(outputs))]
    wrt = _nodes(trace, variables)
    if verb == "jacobian":
        values = Part("values", 0, m, Array((m,)), keys)
        slopes = _first(request, trace, wrt, "jacobian", derivatives(tree, (m,)))
        return [(values, list(outputs)), slopes]
    require_slope(trace.graph, outputs, trace.structure, request.f)
    if m != 1:
        raise TraceError(f"{describe(request.f)} returned {m} numbers: a loss is one scalar")
    loss = Part("loss", 0, 1, Scalar(), keys)
    first = _first(request, trace, wrt, "grad", derivatives(tree))
    if verb == "gradient":
        return [(loss, list(outputs)), first]
    if verb == "hessian":
        return [(loss, list(outputs)), first, _second(request, trace, wrt, tree)]
    second = _product(trace, variables, first)
    return [(loss, list(outputs)), first, second]


def _nodes(trace: RowTrace, variables: Variables) -> list[int]:
    """The inputs that the variables are."""
    uniform = [trace.parameters[k] for k in variables.places]
    return uniform + [i for g in variables.gathers for i in g.inputs]


def _first(
    request: Request, trace: RowTrace, wrt: Sequence[int], name: str, result: Result
) -> tuple[Part, list[int]]:
    """The first derivatives of all values."""
    mode = request.mode if name == "jacobian" else "reverse"
    sought = Sought(trace.outputs, wrt)
    entries, mode = accumulated(trace.graph, sought, mode, partial(size, request.options))
    part = Part(name, 1, len(trace.outputs), result, tuple(entries), mode)
    return part, list(entries.values())


def _second(
    request: Request, trace: RowTrace, wrt: Sequence[int], tree: Tree
) -> tuple[Part, list[int]]:
    """The second derivatives of the one value."""
    graph = trace.graph
    gradient = differentiate.vjp(graph, {trace.outputs[0]: graph.constant(1.0)}, wrt)
    sought = Sought(gradient, wrt, symmetric=True)
    entries, mode = accumulated(graph, sought, request.mode, partial(size, request.options))
    part = Part("hessian", 2, 1, derivatives(tree, second=True), tuple(entries), mode)
    return part, list(entries.values())


def _product(
    trace: RowTrace, variables: Variables, first: tuple[Part, list[int]]
) -> tuple[Part, list[int]]:
    """The product of the second derivatives with the vector, whose numbers are inputs too."""
    part, slopes = first
    n = variables.total
    vector = [trace.parameters[n + k] for k in variables.places]
    vector += [i for g in trace.gathers if g.block.start >= n for i in g.inputs]
    tangents = dict(zip(_nodes(trace, variables), vector, strict=True))
    products = differentiate.jvp(trace.graph, tangents, slopes)
    entries = {key: i for key, i in zip(part.keys, products, strict=True) if i is not None}
    return replace(part, name="product", keys=tuple(entries)), list(entries.values())


def _doubled(request: Request) -> RowTrace:
    """A trace whose parameters are those of f and then a vector of as many, which f ignores.

    What rows read or look up of the former they read and look up of the latter too.
    """
    trace = trace_request(request)
    graph, n = trace.graph, tree_of(request.n).size
    vector = {
        n + k: graph.input(f"d{graph.names[graph.nodes[i][1]]}")
        for k, i in trace.parameters.items()
    }
    gathers = tuple(again(trace, g, n) for g in trace.gathers)
    return replace(trace, parameters=trace.parameters | vector, gathers=trace.gathers + gathers)


def again(trace: RowTrace, gather: Gather, offset: int = 0) -> Gather:
    """The lookup with inputs of its own, of the parameters that stand ``offset`` further on."""
    block = Block(f"d{gather.block.name}", gather.block.start + offset, gather.block.shape)
    names = [trace.graph.names[trace.graph.nodes[i][1]] for i in gather.inputs]
    inputs = tuple(trace.graph.input(f"d{name}") for name in names)
    return Gather(block if offset else gather.block, gather.column, inputs)
