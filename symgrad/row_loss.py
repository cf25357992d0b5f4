"""A loss of one row, traced and differentiated: what is to be summed over the rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from symgrad.errors import InputError, TraceError
from symgrad.expr import differentiate, ops
from symgrad.expr.expression import Expr
from symgrad.expr.gather import Block, Gather, RowTrace, blocks_of, trace_row
from symgrad.expr.node import INPUT, reachable
from symgrad.expr.simplify import simplify
from symgrad.expr.trace import describe
from symgrad.kernel.plan import Lookup, Output, Reduction
from symgrad.kernel.stage import arranged, hoisted
from symgrad.mathlib.define import inlined, lower
from symgrad.pipeline import Options, require_options
from symgrad.rows import NAN_POLICIES, Columns

Function = Callable[..., Any]


@dataclass(frozen=True)
class Request:
    """What a kernel over data was asked for."""

    f: Function
    n: Any
    columns: Columns
    reduce: str
    weights: str | int | None
    nan_policy: str
    options: Options


@dataclass(frozen=True)
class Traced:
    """A loss of one row and its derivatives, ready to be summed."""

    reduction: Reduction
    used: tuple[int, ...]
    """The parameters that rows read, the same for all of them, by their places among all."""
    graded: tuple[int, ...]
    """Those with a derivative that is not structurally 0."""
    gathers: tuple[Gather, ...]
    blocks: tuple[Block, ...]
    columns: Columns
    weight: int | None


def require_request(request: Request) -> None:
    """Refuse what is none of the choices."""
    require_options(request.options)
    if request.reduce not in ("sum", "mean"):
        raise InputError(f'reduce={request.reduce!r}: use "sum" or "mean"')
    if request.nan_policy not in NAN_POLICIES:
        choices = ", ".join(f'"{p}"' for p in NAN_POLICIES)
        raise InputError(f"nan_policy={request.nan_policy!r}: use one of {choices}")


def traced_loss(request: Request) -> Traced:
    """The loss of a row and its gradient."""
    made, blocks = _trace(request)
    graph, loss = made.graph, _loss(request, made)
    gathered = [i for g in made.gathers for i in g.inputs]
    wrt = [*made.parameters.values(), *gathered]
    slopes = differentiate.vjp(graph, {loss: graph.constant(1.0)}, wrt)
    uniform, ends = slopes[: len(made.parameters)], slopes[len(made.parameters) :]
    graded = tuple(k for k, i in zip(made.parameters, uniform, strict=True) if i is not None)
    zero = graph.constant(0.0)
    summed = {"loss": [loss], "grad": [i for i in uniform if i is not None]}
    return _ready(request, made, blocks, graded, summed, [zero if i is None else i for i in ends])


def traced_squares(request: Request) -> Traced:
    """Residuals r of a row: their squares, 2 Jᵀr, and the upper triangle of JᵀJ."""
    made, blocks = _trace(request)
    if made.gathers:
        raise InputError("JᵀJ of parameters that rows look up is not computed: it is too large")
    graph = made.graph
    n = sum(b.size for b in blocks)
    slopes = [_slopes(made, r, n) for r in made.outputs]
    values = [Expr(graph, r) for r in made.outputs]
    weight = weight_column(request)
    scale: Any = 1.0 if weight is None else Expr(graph, made.columns[weight])
    squares = [r * r for r in values]
    sums = [
        squares,
        *[[2.0 * row[k] * r for row, r in zip(slopes, values, strict=True) if row[k] is not None]
          for k in range(n)],
        *[[row[j] * row[k] for row in slopes if row[j] is not None and row[k] is not None]
          for j in range(n) for k in range(j, n)],
    ]  # fmt: skip
    zero = graph.constant(0.0)
    ends = [(scale * sum(terms)).id if terms else zero for terms in sums]
    summed = {"loss": ends[:1], "grad": ends[1 : 1 + n], "jtj": ends[1 + n :]}
    return _ready(request, made, blocks, tuple(range(n)), summed, [])


def _slopes(made: RowTrace, output: int, n: int) -> list[Any]:
    """The derivatives of an output for all n parameters; None where they are structurally 0."""
    graph = made.graph
    seed = {output: graph.constant(1.0)}
    found: list[Any] = [None] * n
    read = made.parameters
    for k, i in zip(read, differentiate.vjp(graph, seed, list(read.values())), strict=True):
        found[k] = Expr(graph, i) if i is not None else None
    return found


def _trace(request: Request) -> tuple[RowTrace, tuple[Block, ...]]:
    columns, blocks = request.columns, blocks_of(request.n)
    return trace_row(request.f, request.n, blocks, columns.count, columns.names), blocks


def _loss(request: Request, made: RowTrace) -> int:
    """The loss of a row, times its weight."""
    if made.structure.size != 1:
        raise TraceError(
            f"{describe(request.f)} returned {made.structure.size} numbers: a loss is one scalar"
        )
    weight = weight_column(request)
    (loss,) = made.outputs
    return loss if weight is None else made.graph.add(ops.mul, made.columns[weight], loss)


def weight_column(request: Request) -> int | None:
    """The column that holds weights, if one does."""
    weights, columns = request.weights, request.columns
    if weights is None:
        return None
    if columns.names and weights in columns.names:
        return columns.names.index(str(weights))
    if isinstance(weights, int) and 0 <= weights < columns.count:
        return weights
    raise InputError(f"weights={weights!r} is no column of a row")


def _ready(
    request: Request, made: RowTrace, blocks: tuple[Block, ...], graded: tuple[int, ...],
    summed: Mapping[str, Sequence[int]], added: Sequence[int],
) -> Traced:  # fmt: skip
    """Simplified, and its inputs in the order that reductions have."""
    options, columns = request.options, request.columns
    roots = [*(i for ids in summed.values() for i in ids), *added]
    graph, roots = simplify(made.graph, roots, options.simplify, inlined(options.math))
    graph, roots = lower(graph, roots, options.math, options.dtype)
    ids = {n[1]: i for i, n in enumerate(graph.nodes) if n[0] is INPUT}
    every = _inputs(made, made.parameters, ())
    new = {old: ids[made.graph.nodes[old][1]] for old in every}
    needed = set(reachable(graph, roots))
    used = tuple(k for k, i in made.parameters.items() if new[i] in needed)
    indices = tuple(sorted({g.column for g in made.gathers}))
    order = _inputs(made, used, indices)
    graph, roots = arranged(graph, roots, [new[i] for i in order])
    outputs = _outputs(summed, made.gathers, roots)
    lookups = tuple(Lookup(indices.index(g.column), g.block.width) for g in made.gathers)
    ones = (graph.constant(1.0),) * sum(len(i) for i in summed.values())
    reduction = Reduction(options.name, graph, outputs, len(used), ones, lookups)
    if options.math != "strict":
        reduction = hoisted(reduction)
    kinds = Columns(columns.count, columns.names, indices)
    return Traced(reduction, used, graded, made.gathers, blocks, kinds, weight_column(request))


def _outputs(
    summed: Mapping[str, Sequence[int]], gathers: Sequence[Gather], roots: Sequence[int]
) -> tuple[Output, ...]:
    """The roots, in order, as outputs: the sums by name, then one for each lookup."""
    ends = iter(roots)
    sizes = {name: len(i) for name, i in summed.items()}
    sizes |= {f"grad_{k}": len(g.inputs) for k, g in enumerate(gathers)}
    return tuple(Output(name, tuple(next(ends) for _ in range(n))) for name, n in sizes.items())


def _inputs(made: RowTrace, used: Iterable[int], indices: Sequence[int]) -> list[int]:
    """The inputs in the order that reductions have, without those that no row reads."""
    return [
        *[made.parameters[k] for k in used],
        *[i for k, i in enumerate(made.columns) if k not in indices],
        *[i for g in made.gathers for i in g.inputs],
    ]
