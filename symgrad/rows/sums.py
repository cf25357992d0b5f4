"""Kernels that sum other things over data than a loss and its gradient: Jacobians, Hessians."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from symgrad.errors import InputError, TraceError, counted
from symgrad.expr import ops
from symgrad.expr.derivatives import differentiate
from symgrad.expr.derivatives.accumulate import Mode, Sought, accumulated
from symgrad.expr.graph.place import describe
from symgrad.expr.tracers.tree import Block, Tree, tree_of
from symgrad.expr.tracing.gather import Gather, RowTrace
from symgrad.expr.tracing.trace import require_slope
from symgrad.pipeline import Clock, size
from symgrad.report.exhausted import WhenExhausted
from symgrad.report.progress import Asked
from symgrad.rows.kernel import DataKernel, Totals
from symgrad.rows.loss import (
    Request,
    Traced,
    contributions,
    ready,
    reduced,
    trace_request,
    weight_column,
)
from symgrad.values.nested import (
    Array,
    Result,
    Scalar,
    derivatives,
    nested_result,
    rows_of,
    scipy_sparse,
)
from symgrad.web.kernels import SumOutput

# --- parts of a row's values ----------------------------------------------------------------------
# Parts of a row that kernels over data want: its values, and their first and second derivatives.
#
# Derivatives are those for the variables of a row: the parameters that it reads as all rows do, and
# then the entries of blocks that its indices name. What is structurally 0 is left out.


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


# --- kernels of sums ------------------------------------------------------------------------------

LEAST_ORDER_PER_ROW = 2
"""From which order on derivatives for what rows look up are not summed by the reduction."""


@dataclass(frozen=True)
class Summed:
    """Where the sums over rows belong: for each part the places of its sums, and their numbers.

    ``entries`` says of each lookup to which part, and from which of its numbers on, its entries
    belong; None for one that adds nothing.
    """

    traced: Traced
    parts: tuple[Part, ...]
    places: tuple[np.ndarray, ...]
    sources: tuple[np.ndarray, ...]
    entries: tuple[tuple[int, int] | None, ...]


class PartsKernel(DataKernel):
    """A kernel over data whose results are any parts."""

    def __init__(
        self, request: Request, device: Any, traced: Traced, parts: tuple[Part, ...], sparse: bool
    ) -> None:
        self.parts, self.sparse = parts, sparse
        super().__init__(request, device, traced)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of what ``run`` returns."""
        return tuple(part.name for part in self.parts)

    @property
    def expr(self) -> tuple[Any, ...]:
        """Of one row, for each result, the numbers that are not structurally 0."""
        return self._traced.expressions.in_groups()

    def run(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, *arrays: Any, progress: Asked = False, exhausted: WhenExhausted | None = None
    ) -> Any:
        """The results over the rows: see `DataKernel.run`.

        Args:
            arrays: the parameters; of a product the vector as well, nested alike; and the rows.
            progress: as for `DataKernel.run`.
            exhausted: as for `DataKernel.run`.

        Raises:
            InputError: as `DataKernel.run` does. ExhaustedError: likewise.
        """
        if not arrays:
            raise InputError("run takes parameters and rows")
        return self._over(self._flat(*arrays[:-1]), arrays[-1], progress, exhausted)

    __call__ = run

    def _flat(self, *params: Any) -> np.ndarray:
        """The parameters in a row, and behind them the vector of a product."""
        names = ["params", "vector"][: 1 + (self.outputs[-1] == "product")]
        if len(params) != len(names):
            raise InputError(
                f"run takes {', '.join(names)} and rows, not {counted(len(params) + 1, 'argument')}"
            )
        with np.errstate(over="ignore"):
            parts = [
                rows_of(self.tree, p, name, batched=False).astype(self.dtype)
                for p, name in zip(params, names, strict=True)
            ]
        return np.concatenate(parts)

    def _labels(self) -> list[str]:
        return [f"{p.name}[{', '.join(map(str, key))}]" for p in self.parts for key in p.keys]


class SumsKernel(PartsKernel):
    """A kernel of the sums of a function of rows and its derivatives, in one pass over the data.

    `fused_forward`, `fused_jacobian`, `fused_hessian` and `fused_hvp` make it, of ``row=`` or
    ``columns=``. ``run(p, rows)``, of a product with a vector ``run(p, vector, rows)``, gives what
    these return at a point, and ``bind(rows)`` keeps the data on the device.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> line = lambda p, r: (p[0] + p[1] * r[0] - r[1])**2
        >>> kernel = sg.fused_hessian(2, line, row=2, reduce="mean", device="cpu")
        >>> loss, gradient, hessian = kernel.run([0.0, 1.0], np.array([[0.0, 1.0], [1.0, 1.0]]))
        >>> hessian.tolist()
        [[2.0, 1.0], [1.0, 1.0]]
    """

    def __init__(self, request: Request, device: Any, summed: Summed, sparse: bool) -> None:
        self.summed = summed
        super().__init__(request, device, summed.traced, summed.parts, sparse)

    def _made_of(self, code: bool = True) -> tuple[Any, ...]:
        traced = self._traced if code else self._traced.without_code()
        return replace(self.summed, traced=traced), self.sparse

    def _sum_outputs(self) -> list[SumOutput]:
        outputs, start, summed = list[SumOutput](), 0, self.summed
        for part, places, sources in zip(summed.parts, summed.places, summed.sources, strict=True):
            size = None if isinstance(part.result, Scalar) else math.prod(part.shape(self.n_inputs))
            outputs.append(SumOutput(part.name, size, (start + sources).tolist(), places.tolist()))
            start += int(sources.max(initial=-1)) + 1
        return outputs

    def _results(self, total: Totals, scale: float) -> Any:
        n, start, (sums,) = self.n_inputs, 0, total.parts
        totals: list[np.ndarray] = []
        summed = self.summed
        for part, places, sources in zip(summed.parts, summed.places, summed.sources, strict=True):
            whole = np.zeros(part.shape(n)).reshape(-1)
            whole[places] = sums[start:][sources]
            start += int(sources.max(initial=-1)) + 1
            totals.append(whole)
        tables = self._traced.reduction.entries(sums)
        for gather, place, entries in zip(
            self._traced.gathers, summed.entries, tables, strict=True
        ):
            if place is not None:
                part, first = place
                begin = first + gather.block.start % n
                totals[part][begin : begin + entries.size] += entries.ravel()
        return self._returned([whole * scale for whole in totals])

    def _returned(self, totals: Sequence[Any]) -> Any:
        pairs = zip(self.summed.parts, totals, strict=True)
        results = tuple(
            finished(part, whole, self.n_inputs, self.dtype, self.sparse) for part, whole in pairs
        )
        return results[0] if self.outputs == ("values",) else results


def finished(part: Part, whole: Any, n: int, dtype: Any, sparse: bool) -> Any:
    """An array of sums as ``run`` returns it: ``whole`` has all its numbers, or is a CSR array."""
    if isinstance(part.result, Scalar):
        return float(whole[0])
    with np.errstate(over="ignore"):
        whole = whole.astype(dtype)
    if sparse and part.name in ("jacobian", "hessian"):
        return scipy_sparse().csr_array(
            whole.reshape(part.shape(n)) if isinstance(whole, np.ndarray) else whole
        )
    if not isinstance(whole, np.ndarray):
        whole = whole.toarray()
    return part.result.of(whole.reshape(1, -1), ())


def sums_kernel_of(
    request: Request, wants: Wants, clock: Clock, sparse: bool, device: Any
) -> SumsKernel:
    """The kernel of the sums over rows of what is wanted."""
    return SumsKernel(request, device, summed_of(request, wants, clock), sparse)


def summed_of(request: Request, wants: Wants, clock: Clock) -> Summed:
    """The contributions of a row to the sums, and to the entries of tables that it looks up."""
    trace, count = wants.trace, len(wants.variables.places)
    sums: dict[str, list[int]] = {}
    places: list[np.ndarray] = []
    sources: list[np.ndarray] = []
    for part, nodes in zip(wants.parts, wants.nodes, strict=True):
        mine = {
            key: i
            for key, i in zip(part.keys, nodes, strict=True)
            if max(key[-part.order :], default=0) < count or not part.order
        }
        sums[part.name] = list(dict.fromkeys(mine.values()))
        order = {i: k for k, i in enumerate(sums[part.name])}
        places.append(np.array([place_of(part, key, wants.variables) for key in mine], np.intp))
        sources.append(np.array([order[i] for i in mine.values()], np.intp))
    gathers, added, entries = _entries(wants)
    trace = replace(trace, gathers=gathers)
    make = partial(reduced, sums, added)
    traced = ready(request, trace, make, (), wants.nodes, clock, wants.mode)
    return Summed(traced, wants.parts, tuple(places), tuple(sources), entries)


def place_of(part: Part, key: tuple[int, ...], variables: Variables) -> int:
    """Where a number stands in its array, whose variables are parameters that all rows read."""
    if not part.order:
        return key[0]
    first = variables.places[key[0]] if part.order == LEAST_ORDER_PER_ROW else key[0]
    return first * variables.total + variables.places[key[1]]


def _entries(
    wants: Wants,
) -> tuple[tuple[Gather, ...], list[int], tuple[tuple[int, int] | None, ...]]:
    """The lookups, what a row adds to their entries, and where these belong.

    Each lookup takes the derivatives of one value; for more there are more of the same lookups.
    """
    trace, variables = wants.trace, wants.variables
    zero, n = trace.graph.constant(0.0), variables.total
    spare = list(trace.gathers)
    gathers: list[Gather] = []
    added: list[int] = []
    entries: list[tuple[int, int] | None] = []
    for k, part in enumerate(wants.parts):
        derivatives = dict(zip(part.keys, wants.nodes[k], strict=True))
        for value in range(part.values if part.order == 1 else 0):
            start = len(variables.places)
            for gather in variables.gathers:
                gathers.append(spare.pop(0) if spare else again(trace, gather))
                width = len(gather.inputs)
                added += [derivatives.get((value, start + c), zero) for c in range(width)]
                entries.append((k, value * n))
                start += width
    for gather in spare:  # what only the values read
        gathers.append(gather)
        added += [zero] * len(gather.inputs)
        entries.append(None)
    return tuple(gathers), added, tuple(entries)
