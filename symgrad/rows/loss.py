"""A loss of one row, traced and differentiated, as sums over rows; rows whose loops do not end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from symgrad.errors import InputError, TraceError
from symgrad.expr import ops
from symgrad.expr.derivatives import differentiate
from symgrad.expr.derivatives.accumulate import Mode, Sought, accumulated
from symgrad.expr.derivatives.transpose import CheckpointPolicy, lengths_of_strips
from symgrad.expr.graph.node import INPUT, reachable
from symgrad.expr.graph.place import describe
from symgrad.expr.graph.written_out import warn_of_lines
from symgrad.expr.tracers.expression import Expr
from symgrad.expr.tracers.tree import Tree, flatten, tree_of
from symgrad.expr.tracing.gather import Gather, RowTrace, trace_row
from symgrad.expr.tracing.roll import rolled_row
from symgrad.expr.tracing.trace import require_slope
from symgrad.kernel.shapes import Lookup, Output, Reduction, unique
from symgrad.kernel.stage import arranged, hoisted
from symgrad.kernel.stats import Derived
from symgrad.pipeline import Clock, Options, simplified, size
from symgrad.report.audit import Expressions
from symgrad.report.exhausted import flag
from symgrad.values.nested import Nested, Result
from symgrad.values.tables import NAN_POLICIES, Columns, NanPolicy, Reduce

# --- penalties ------------------------------------------------------------------------------------
# A loss of the parameters alone, a prior or a penalty, that is added once to sums over rows.


@dataclass(frozen=True)
class Penalty:
    """A regularizer, and the kernel of what is added to the results of a kernel over data.

    Its results are those of a kernel over data, nested alike.
    """

    f: Callable[..., Any]
    kernel: Any

    def require_like(self, result: Result, f: Callable[..., Any]) -> None:
        """Refuse a regularizer that returns other things than those that are summed, f's.

        Raises:
            TraceError: for another nesting, or another shape.
        """
        added, wanted = (_outline(r) for r in (self.kernel._results[0], result))
        if added != wanted:
            raise TraceError(
                f"the regularizer, {describe(self.f)}, returns {_shown(added)}, where "
                f"{describe(f)} returns {_shown(wanted)}: return results that are nested and "
                "shaped alike, 0.0 where nothing is added"
            )

    def added_to(self, results: Any, flat: np.ndarray) -> Any:
        """The results with its own; ``flat`` are all parameters, and behind them any vector."""
        n = self.kernel.n_inputs
        points = [flat] if len(flat) == n else np.split(flat, len(flat) // n)
        return _plus(results, self.kernel.run(*points))


def _outline(result: Result) -> list[tuple[str, tuple[int, ...]]]:
    """The names and the shapes of the arrays that a result consists of."""
    names = [b.name for b in result.tree.blocks] if isinstance(result, Nested) else [""]
    return list(zip(names, result.shapes, strict=True))


def _shown(outline: list[tuple[str, tuple[int, ...]]]) -> str:
    """An outline as a message has it."""
    each = [(name, f"an array {shape}" if shape else "a number") for name, shape in outline]
    return ", ".join(f"{name}: {what}" if name else what for name, what in each)


def _plus(a: Any, b: Any) -> Any:
    """The sum of two results that are nested alike; those of most calls are not nested."""
    if type(a) is type(b) is tuple and all(isinstance(x, (float, np.ndarray)) for x in a):
        return tuple(map(_sum, a, b))
    leaves, tree = flatten(a, lambda _: None)
    pairs = zip(leaves, flatten(b, lambda _: None)[0], strict=True)
    return tree.nest(_sum(x, y) for x, y in pairs)


def _sum(a: Any, b: Any) -> Any:
    """The sum of two arrays; of a sparse one and another it is sparse."""
    if type(b) is np.ndarray and type(a) is not np.ndarray and hasattr(a, "tocsr"):
        b = type(a)(b)
    return a + b


# --- losses of rows -------------------------------------------------------------------------------

Function = Callable[..., Any]


@dataclass(frozen=True)
class Request:
    """The request for a kernel over data."""

    f: Function
    n: Any
    columns: Columns
    reduce: Reduce | None
    weights: str | int | None
    nan_policy: NanPolicy
    options: Options
    mode: Mode = "auto"
    """How Jacobians are made."""
    penalty: Penalty | None = None

    def without_code(self) -> Request:
        """The request without the user's functions, for another process."""
        penalty = self.penalty and replace(self.penalty, f=_left_behind)
        return replace(self, f=_left_behind, penalty=penalty)


def _left_behind(*_: Any) -> Any:
    """In the place of a traced function that did not travel."""
    raise TraceError("this kernel came from another process, without its Python function")


@dataclass(frozen=True)
class Traced:
    """A loss of one row and its derivatives, ready to be summed."""

    reduction: Reduction
    used: tuple[int, ...]
    """The parameters that rows read, the same for all of them, by their places among all."""
    graded: tuple[int, ...]
    """Numbers of the ones with a derivative that is not structurally 0."""
    gathers: tuple[Gather, ...]
    tree: Tree
    columns: Columns
    weight: int | None
    read: tuple[int, ...]
    """The parameters that the expressions read other than by an index."""
    expressions: Expressions
    """The loss of a row, its derivatives for ``read`` and then for what it looks up, and products
    of them if they are wanted. Their inputs are ``read``, the columns and what is looked up."""
    seconds: dict[str, float] = field(compare=False)
    derived: Derived
    """How derivatives were made."""

    def without_code(self) -> Traced:
        """The trace without what only differentiation needs, such as a user's own functions."""
        return replace(self, expressions=self.expressions.without_code())

    @cached_property
    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """``used`` and ``graded`` as NumPy indexes with them."""
        return np.array(self.used, np.intp), np.array(self.graded, np.intp)

    @property
    def wrt(self) -> list[str]:
        """The names of what the loss of a row is differentiated for."""
        names = self.expressions.graph.names
        looked = sum(g.block.width for g in self.gathers)
        return [*names[: len(self.read)], *names[len(names) - looked :]]


def require_request(request: Request) -> None:
    """Refuse what is none of the choices."""
    weight_column(request)
    if request.reduce not in ("sum", "mean", None):
        raise InputError(f'reduce={request.reduce!r}: use "sum" or "mean", or None for each row')
    if request.nan_policy not in NAN_POLICIES:
        choices = ", ".join(f'"{p}"' for p in NAN_POLICIES)
        raise InputError(f"nan_policy={request.nan_policy!r}: use one of {choices}")


def traced_loss(request: Request) -> Traced:
    """The loss of a row and its gradient."""
    clock = Clock()
    trace = clock.time("trace", lambda: trace_request(request))
    return _with_gradient(request, trace, _loss(request, trace), clock)


def _with_gradient(request: Request, trace: RowTrace, loss: int, clock: Clock) -> Traced:
    """The loss of a row, weighted, and its gradient."""
    uniform, looked = clock.time("differentiate", lambda: _gradient(trace, loss))
    graded = tuple(k for k, i in uniform.items() if i is not None)
    (loss,) = contributions(request, trace, [loss])
    uniform = dict(zip(uniform, contributions(request, trace, uniform.values()), strict=True))
    looked = contributions(request, trace, looked)
    zero = trace.graph.constant(0.0)
    added = [zero if i is None else i for i in looked]
    dense = [zero if i is None else i for i in uniform.values()]
    summed = {"loss": [loss], "grad": [i for i in uniform.values() if i is not None]}
    groups = (loss,), (*dense, *added)
    return ready(request, trace, partial(reduced, summed, added), graded, groups, clock)


def _gradient(trace: RowTrace, loss: int) -> tuple[dict[int, int | None], list[int | None]]:
    """The derivatives for parameters, by their places, and for what is looked up; None is 0."""
    graph, read = trace.graph, trace.parameters
    looked = [i for g in trace.gathers for i in g.inputs]
    slopes = differentiate.vjp(graph, {loss: graph.constant(1.0)}, [*read.values(), *looked])
    return dict(zip(read, slopes, strict=False)), slopes[len(read) :]


def contributions(request: Request, trace: RowTrace, nodes: Iterable[int | None]) -> list[Any]:
    """Contributions of a row: nothing if its weight is 0, whatever the nodes are. None stays."""
    weight = weight_column(request)
    if weight is None:
        return list(nodes)
    graph = trace.graph
    zero = graph.constant(0.0)
    idle = graph.add(ops.eq, trace.columns[weight], zero)
    return [None if i is None else graph.add(ops.where, idle, zero, i) for i in nodes]


def traced_squares(request: Request) -> Traced:
    """Residuals r of a row: their squares, 2 Jᵀr, and the upper triangle of JᵀJ.

    Of parameters that rows look up JᵀJ is sparse: see `row_products`.
    """
    clock = Clock()
    trace = clock.time("trace", lambda: trace_request(request))
    if trace.gathers:
        squares = sum(r * r for r in [Expr(trace.graph, i) for i in trace.outputs])
        return _with_gradient(request, trace, (scale_of(request, trace) * squares).id, clock)
    n = tree_of(request.n).size
    ends, mode = clock.time("differentiate", lambda: _squares(request, trace, n))
    summed = {"loss": ends[:1], "grad": ends[1 : 1 + n], "jtj": ends[1 + n :]}
    groups = (ends[0],), tuple(ends[1 + k] for k in trace.parameters), tuple(ends[1 + n :])
    make = partial(reduced, summed, [])
    return ready(request, trace, make, tuple(range(n)), groups, clock, mode)


def _squares(request: Request, trace: RowTrace, n: int) -> tuple[list[int], Mode]:
    """The sum of squares of a row, 2 Jᵀr and the upper triangle of JᵀJ, one after another.

    The last result is how J was made.
    """
    graph = trace.graph
    places = list(trace.parameters)
    jacobian, mode = row_jacobian(request, trace, list(trace.parameters.values()))
    slopes = [{places[c]: d for c, d in row.items()} for row in jacobian]
    values = [Expr(graph, r) for r in contributions(request, trace, trace.outputs)]
    scale = scale_of(request, trace)
    squares = [r * r for r in values]
    sums = [
        squares,
        *[
            [2.0 * row[k] * r for row, r in zip(slopes, values, strict=True) if k in row]
            for k in range(n)
        ],
        *[
            [row[j] * row[k] for row in slopes if j in row and k in row]
            for j in range(n)
            for k in range(j, n)
        ],
    ]
    zero = graph.constant(0.0)
    return [(scale * sum(terms)).id if terms else zero for terms in sums], mode


def scale_of(request: Request, trace: RowTrace) -> Any:
    """The factor of the squares of a row: its weight, or 1."""
    weight = weight_column(request)
    return 1.0 if weight is None else Expr(trace.graph, trace.columns[weight])


def row_jacobian(
    request: Request, trace: RowTrace, wrt: Sequence[int]
) -> tuple[list[dict[int, Any]], Mode]:
    """The derivatives of each output by their place in ``wrt``, and how they were made.

    What is structurally 0 is absent.
    """
    measure = partial(size, request.options)
    entries, mode = accumulated(trace.graph, Sought(trace.outputs, wrt), request.mode, measure)
    rows = [dict[int, Any]() for _ in trace.outputs]
    weighted = contributions(request, trace, entries.values())
    for (r, c), i in zip(entries, weighted, strict=True):
        rows[r][c] = Expr(trace.graph, i)
    return rows, mode


def trace_request(request: Request) -> RowTrace:
    """The trace of the function of a row."""
    n, columns = request.n, request.columns
    trace = trace_row(request.f, tree_of(n), columns.count, columns.blocks)
    options, weight = request.options, weight_column(request)
    if options.roll:
        written, trace = trace.graph, rolled_row(trace, options.rounding)
        warn_of_lines(trace.graph, written)
    trace.graph.notes[CheckpointPolicy] = options.keeping
    if any(g.column == weight for g in trace.gathers):
        raise InputError(
            f"weights={request.weights!r} is a column of indices: give weights a "
            "column of their own"
        )
    return trace


def _loss(request: Request, trace: RowTrace) -> int:
    """The loss of a row, times its weight."""
    if trace.structure.size != 1:
        raise TraceError(
            f"{describe(request.f)} returned {trace.structure.size} numbers: a loss is one scalar"
        )
    require_slope(trace.graph, trace.outputs, trace.structure, request.f)
    weight = weight_column(request)
    (loss,) = trace.outputs
    return loss if weight is None else trace.graph.add(ops.mul, trace.columns[weight], loss)


def columns_of_trace(request: Request, trace: RowTrace, indices: tuple[int, ...]) -> Columns:
    """The columns, with what the function of a row takes them for."""
    weight = weight_column(request)
    weights = () if weight is None else (weight,)
    numbers = tuple(sorted({*trace.quantities, *weights}))
    return replace(request.columns, indices=indices, quantities=numbers)


def weight_column(request: Request) -> int | None:
    """The column that holds weights, if one does."""
    weights, columns = request.weights, request.columns
    if weights is None:
        return None
    if isinstance(weights, str) and weights in (columns.names or ()):
        column = columns.column(weights)
        if column.shape:
            raise InputError(
                f"weights={weights!r} is a column of arrays {column.shape}: the weight of a row is "
                "one number"
            )
        return column.start
    whole = isinstance(weights, (int, np.integer)) and not isinstance(weights, bool)
    if whole and 0 <= int(weights) < columns.count:
        return int(weights)
    shown = repr(weights) if isinstance(weights, (str, int)) else f"a {type(weights).__name__}"
    raise InputError(f"weights={shown} is not a column of a row: give its name or its number")


Reducing = Callable[[Options, RowTrace, tuple[int, ...]], tuple[tuple[int, ...], Reduction]]
"""The parameters that a trace, with indices in these columns, reads in a reduction, and that."""


def ready(
    request: Request,
    trace: RowTrace,
    reduce: Reducing,
    graded: tuple[int, ...],
    groups: tuple[tuple[int, ...], ...],
    clock: Clock,
    mode: Mode | None = "reverse",
) -> Traced:
    """Simplified, as ``reduce`` says, and its inputs in the order that reductions have."""
    indices = tuple(sorted({g.column for g in trace.gathers}))
    used, reduction = clock.time("simplify", lambda: reduce(request.options, trace, indices))
    roots = [i for ids in groups for i in ids]
    graph, roots = arranged(trace.graph, roots, inputs_of(trace, trace.parameters, indices))
    ends = iter(roots)
    expressions = Expressions(graph, tuple(tuple(next(ends) for _ in ids) for ids in groups))
    graph.names[:] = unique(graph.names)
    graph.release()
    return Traced(
        reduction,
        used,
        graded,
        trace.gathers,
        tree_of(request.n),
        columns_of_trace(request, trace, indices),
        weight_column(request),
        tuple(trace.parameters),
        expressions,
        clock.seconds,
        Derived(mode, lengths_of_strips(trace.graph)),
    )


def reduced(
    summed: Mapping[str, Sequence[int]],
    added: Sequence[int],
    options: Options,
    trace: RowTrace,
    indices: tuple[int, ...],
) -> tuple[tuple[int, ...], Reduction]:
    """The parameters that are still read, and the reduction, simplified and lowered."""
    roots = [*(i for ids in summed.values() for i in ids), *added]
    factors_stay_apart = options.math != "strict"  # those that no row changes leave the sums
    graph, roots = simplified(trace.graph, roots, options, regroup=not factors_stay_apart)
    ids = {n[1]: i for i, n in enumerate(graph.nodes) if n[0] is INPUT}
    every = inputs_of(trace, trace.parameters, indices)
    new = {old: ids[trace.graph.nodes[old][1]] for old in every}
    needed = set(reachable(graph, roots))
    used = tuple(k for k, i in trace.parameters.items() if new[i] in needed)
    graph, roots = arranged(graph, roots, [new[i] for i in inputs_of(trace, used, indices)])
    outputs = _outputs(summed, trace.gathers, roots)
    lookups = tuple(
        Lookup(indices.index(g.column), g.block.width, g.block.shape[0]) for g in trace.gathers
    )
    ones = (graph.constant(1.0),) * sum(len(i) for i in summed.values())
    reduction = Reduction(options.name, graph, outputs, len(used), ones, lookups)
    return used, hoisted(reduction) if factors_stay_apart else reduction


def _outputs(
    summed: Mapping[str, Sequence[int]], gathers: Sequence[Gather], roots: Sequence[int]
) -> tuple[Output, ...]:
    """The roots, in order, as outputs: the sums by name, then one for each lookup."""
    ends = iter(roots)
    sizes = {name: len(i) for name, i in summed.items()}
    sizes |= {f"grad_{k}": len(g.inputs) for k, g in enumerate(gathers)}
    return tuple(Output(name, tuple(next(ends) for _ in range(n))) for name, n in sizes.items())


def inputs_of(trace: RowTrace, used: Iterable[int], indices: Sequence[int]) -> list[int]:
    """The inputs in the order that reductions have, without those that no row reads."""
    return [
        *[trace.parameters[k] for k in used],
        *[i for k, i in enumerate(trace.columns) if k not in indices],
        *[i for g in trace.gathers for i in g.inputs],
    ]


def flagged(request: Request, traced: Traced) -> Traced | None:
    """A trace that sums up to the number of such rows, for the same parameters; None if all end."""
    graph = traced.expressions.graph.copy()
    root = flag(graph, traced.expressions.groups[0])
    if root is None:
        return None
    ids = {node[1]: i for i, node in enumerate(graph.nodes) if node[0] is INPUT}
    inputs = iter([ids[k] for k in sorted(ids)])
    parameters = {k: next(inputs) for k in traced.read}
    columns = {k: next(inputs) for k in traced.columns.numbers}
    gathers = tuple(
        replace(g, inputs=tuple(next(inputs) for _ in g.inputs)) for g in traced.gathers
    )
    every = tuple(columns.get(k, -1) for k in range(traced.columns.count))
    trace = RowTrace(graph, parameters, every, gathers, (root,), traced.tree)
    summed = {"exhausted": contributions(request, trace, [root])}
    added = [graph.constant(0.0)] * sum(len(g.inputs) for g in gathers)
    used, reduction = reduced(summed, added, request.options, trace, traced.columns.indices)
    return replace(traced, reduction=reduction, used=used, graded=())
