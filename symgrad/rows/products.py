"""Residuals of one row and the products of their derivatives, for parameters that rows look up.

A row depends on few parameters: those that are the same for all rows, and the entries of blocks
that its indices name. JᵀJ is a sum of small matrices of these, which one kernel computes for each
row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, TraceError
from symgrad.expr.graph.place import describe
from symgrad.expr.tracers import functions
from symgrad.expr.tracers.expression import Expr
from symgrad.expr.tracers.tree import Block
from symgrad.expr.tracing.gather import Gather, RowTrace
from symgrad.kernel.shapes import Computation, Output
from symgrad.kernel.stage import arranged
from symgrad.pipeline import Options, simplified
from symgrad.rows.loss import Request, contributions, row_jacobian, scale_of, trace_request

# --- robust losses --------------------------------------------------------------------------------
# Robust losses of residuals, traced: what outliers count, in SciPy's words.

Rho = Callable[[Any], tuple[Any, Any]]
"""rho(z) and rho'(z) of the square z of a residual in units of ``f_scale``."""


def _linear(z: Any) -> tuple[Any, Any]:
    return z, 1.0


def _huber(z: Any) -> tuple[Any, Any]:
    root = functions.sqrt(functions.maximum(z, 1.0))
    return functions.where(z <= 1.0, z, 2.0 * root - 1.0), 1.0 / root


def _soft_l1(z: Any) -> tuple[Any, Any]:
    root = functions.sqrt(1.0 + z)
    return 2.0 * z / (1.0 + root), 1.0 / root


def _cauchy(z: Any) -> tuple[Any, Any]:
    return functions.log1p(z), 1.0 / (1.0 + z)


def _arctan(z: Any) -> tuple[Any, Any]:
    return functions.atan(z), 1.0 / (1.0 + z * z)


LOSSES: Final[dict[str, Rho]] = {
    "linear": _linear,
    "huber": _huber,
    "soft_l1": _soft_l1,
    "cauchy": _cauchy,
    "arctan": _arctan,
}
"""The losses of ``scipy.optimize.least_squares``. All except the first bend down: rho'' < 0."""


def require_loss(loss: Any) -> None:
    """Refuse what is none of the losses."""
    if not isinstance(loss, str) or loss not in LOSSES:
        names = ", ".join(f'"{name}"' for name in LOSSES)
        raise InputError(f"loss={loss!r}: use one of {names}")


def robust(loss: str, scale: float, r: Any) -> tuple[Any, Any]:
    """A residual's loss ``scale² rho((r / scale)²)``, and its weight rho' in Jᵀr and in JᵀJ.

    With this weight the quadratic model is above the loss everywhere if residuals are linear, so
    that its steps lead down, however many rows are outliers: least squares reweighted again and
    again (Holland and Welsch, 1977, "Robust regression using iteratively reweighted least
    squares").
    """
    if loss == "linear":
        return r * r, 1.0
    scaled = r * (1.0 / scale)
    rho, slope = LOSSES[loss](scaled * scaled)
    return (scale * scale) * rho, slope


# --- residuals and products -----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Family:
    """Parameters that rows take entry by entry: places (entries, width) among all parameters.

    ``column`` is the only column of a row that takes entries of it and of no parameter outside,
    None where there are several or where rows read such a parameter without an index as well.
    """

    places: np.ndarray
    column: int | None = None

    @property
    def width(self) -> int:
        """The parameters of an entry."""
        return self.places.shape[1]


@dataclass(frozen=True)
class Slot:
    """An entry of a family that each row takes: that of an index, or the only one."""

    family: int
    column: int | None
    inputs: tuple[int, ...] = field(repr=False)


@dataclass(frozen=True)
class RowProducts:
    """The computation at a row, of its slots' parameters and its numbers, in this order.

    The largest of the families that one column alone looks up is the first one, if there are any.

    The one output is, in a row: the ``residuals``, their loss; for each slot half the gradient
    (width,) and the upper triangle of JᵀJ; and JᵀJ between the slots of each of the ``pairs``.
    """

    computation: Computation
    families: tuple[Family, ...]
    slots: tuple[Slot, ...]
    pairs: tuple[tuple[int, int], ...]
    residuals: int
    options: Options

    def width(self, slot: int) -> int:
        """The parameters of a slot."""
        return self.families[self.slots[slot].family].width

    @property
    def parts(self) -> Iterator[slice]:
        """Where in the output each part is: residuals, loss, slots, pairs."""
        sizes = [self.residuals, 1]
        sizes += [w + w * (w + 1) // 2 for w in map(self.width, range(len(self.slots)))]
        sizes += [self.width(s) * self.width(t) for s, t in self.pairs]
        ends = np.cumsum([0, *sizes]).tolist()
        return (slice(a, b) for a, b in pairwise(ends))


def row_products(request: Request, loss: str = "linear", scale: float = 1.0) -> RowProducts:
    """The products of a row of a least-squares problem, with a robust loss of each residual."""
    trace = trace_request(request)
    if not trace.outputs:
        raise TraceError(f"{describe(request.f)} returned no residuals")
    families, slots = _slots(trace)
    rows = _derivatives(request, trace, slots)
    factor = scale_of(request, trace)
    values = [Expr(trace.graph, i) for i in trace.outputs]
    residuals = [Expr(trace.graph, i) for i in contributions(request, trace, trace.outputs)]
    each = [robust(loss, scale, r) for r in residuals]
    pairs = tuple(p for p in combinations(range(len(slots)), 2) if _coupled(rows, *p))
    loss_of_row = sum(rho for rho, _ in each)
    weights = [factor * slope for _, slope in each]
    outputs: list[Any] = [*values, factor * loss_of_row]
    for s in range(len(slots)):
        mine = [row[s] for row in rows]
        outputs += _products([[r] for r in residuals], mine, weights)
        outputs += _products(mine, mine, weights, upper=True)
    for s, t in pairs:
        outputs += _products([row[s] for row in rows], [row[t] for row in rows], weights)
    computation = _computation(request, trace, slots, outputs)
    return RowProducts(computation, families, slots, pairs, len(values), request.options)


# which parameters ---------------------------------------------------------------------------------


def _slots(trace: RowTrace) -> tuple[tuple[Family, ...], tuple[Slot, ...]]:
    """The families of parameters, and what a row takes of them.

    Blocks of as many entries that the same columns look up are one family.
    """
    read = np.array(list(trace.parameters), np.intp)
    pairs = [_family(gathers, read) for gathers in _together(trace.gathers, read)]
    pairs.sort(key=lambda pair: pair[0].places.size if pair[0].column is not None else 0)
    pairs.reverse()
    if len(read):
        pairs.append((Family(read[None]), {None: tuple(trace.parameters.values())}))
    slots = [
        Slot(k, column, inputs)
        for k, (_, taken) in enumerate(pairs)
        for column, inputs in taken.items()
    ]
    return tuple(family for family, _ in pairs), tuple(slots)


def _family(
    gathers: Sequence[Gather], read: np.ndarray
) -> tuple[Family, dict[int | None, tuple[int, ...]]]:
    """A family, and the inputs that are its entry at each of the columns that look it up."""
    columns = list(dict.fromkeys(g.column for g in gathers))
    blocks = [g.block for g in gathers if g.column == columns[0]]
    each = [b.start + np.arange(b.size).reshape(b.shape[0], b.width) for b in blocks]
    places = np.concatenate(each, axis=1)
    alone = len(columns) == 1 and not any(_is_read(b, read) for b in blocks)
    taken: dict[int | None, tuple[int, ...]] = {
        c: tuple(i for g in gathers if g.column == c for i in g.inputs) for c in columns
    }
    return Family(places, columns[0] if alone else None), taken


def _together(gathers: Sequence[Gather], read: np.ndarray) -> list[list[Gather]]:
    """Lookups of one family each."""
    columns: dict[str, set[int]] = {}
    for g in gathers:
        columns.setdefault(g.block.name, set()).add(g.column)
    groups: dict[Any, list[Gather]] = {}
    for g in sorted(gathers, key=lambda g: g.block.start):
        key = frozenset(columns[g.block.name]), g.block.shape[0], _is_read(g.block, read)
        groups.setdefault(key, []).append(g)
    return list(groups.values())


def _is_read(block: Block, read: np.ndarray) -> bool:
    """Whether rows read a parameter of a block without an index as well."""
    return bool(((read >= block.start) & (read < block.start + block.size)).any())


# what is computed ---------------------------------------------------------------------------------


def _derivatives(request: Request, trace: RowTrace, slots: Sequence[Slot]) -> list[list[list[Any]]]:
    """The derivatives of each residual for each slot's parameters; None where structurally 0."""
    jacobian, _ = row_jacobian(request, trace, [i for slot in slots for i in slot.inputs])
    ends = np.cumsum([0, *(len(slot.inputs) for slot in slots)]).tolist()
    return [[[row.get(c) for c in range(a, b)] for a, b in pairwise(ends)] for row in jacobian]


def _coupled(rows: Sequence[list[list[Any]]], s: int, t: int) -> bool:
    """Whether some residual depends on both slots."""
    return any(
        any(d is not None for d in row[s]) and any(d is not None for d in row[t]) for row in rows
    )


def _products(
    a: Sequence[list[Any]], b: Sequence[list[Any]], weights: Sequence[Any], upper: bool = False
) -> list[Any]:
    """The matrix ``Σ weight aᵀ b`` over residuals, row by row; or only its upper half."""
    rows = [[None if d is None else w * d for d in y] for y, w in zip(b, weights, strict=True)]

    def cell(j: int, k: int) -> Any:
        terms = [
            x[j] * y[k]
            for x, y in zip(a, rows, strict=True)
            if x[j] is not None and y[k] is not None
        ]
        return sum(terms[1:], terms[0]) if terms else 0.0

    m, n = len(a[0]), len(b[0])
    return [cell(j, k) for j in range(m) for k in range(j if upper else 0, n)]


def _computation(
    request: Request, trace: RowTrace, slots: Sequence[Slot], outputs: Sequence[Any]
) -> Computation:
    graph, options = trace.graph, request.options
    roots = [v.id if isinstance(v, Expr) else graph.constant(v) for v in outputs]
    indices = {g.column for g in trace.gathers}
    numbers = [i for k, i in enumerate(trace.columns) if k not in indices]
    inputs = [*(i for slot in slots for i in slot.inputs), *numbers]
    graph, roots = arranged(graph, roots, inputs)
    graph, roots = simplified(graph, roots, options)
    return Computation(options.name, graph, (Output("products", tuple(roots)),))
