"""Kernels that sum other things over data than a loss and its gradient: Jacobians, Hessians."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from symgrad.errors import InputError, counted
from symgrad.expr.tracing.gather import Gather
from symgrad.pipeline import Clock
from symgrad.report.exhausted import WhenExhausted
from symgrad.report.progress import Asked
from symgrad.rows.kernel import DataKernel, Totals
from symgrad.rows.loss import Request, Traced, ready
from symgrad.rows.parts import Part, Variables, Wants, again
from symgrad.values.parameters import rows_of
from symgrad.values.results import Scalar, scipy_sparse
from symgrad.web.kernels import SumOutput

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
        n, start = self.n_inputs, 0
        totals: list[np.ndarray] = []
        summed = self.summed
        for part, places, sources in zip(summed.parts, summed.places, summed.sources, strict=True):
            whole = np.zeros(part.shape(n)).reshape(-1)
            whole[places] = total.sums[start:][sources]
            start += int(sources.max(initial=-1)) + 1
            totals.append(whole)
        for gather, place, entries in zip(
            self._traced.gathers, summed.entries, total.entries, strict=True
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
    traced = ready(request, trace, (), sums, added, wants.nodes, clock, wants.mode)
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
