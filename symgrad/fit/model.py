"""A model at all rows of data: its residuals, and the triangle of the QR of their Jacobian."""

from __future__ import annotations

import copy
import functools
import math
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np

from symgrad.backend import backend_of
from symgrad.cache import Once
from symgrad.errors import InputError, SymgradError
from symgrad.expr.derivatives.accumulate import Mode
from symgrad.expr.graph.node import inputs_of, reachable
from symgrad.expr.graph.region import has_regions
from symgrad.expr.tracing.fingerprint import fingerprint
from symgrad.fit.dense import KEPT_SIZES, Descent, Strategy, Triangle
from symgrad.front.deriving import Making, gradient_kernel
from symgrad.front.fused import fused_jacobian
from symgrad.front.kernels import Kernel, shared
from symgrad.optimize.arguments import MISTAKES, one_value
from symgrad.optimize.method import Accumulation, Weighted, array_of
from symgrad.optimize.problem import Problem, reduction
from symgrad.optimize.result import Box, Point
from symgrad.pipeline import DTypeName, Options
from symgrad.targets import DeviceChoice, choose, choose_any

JACOBIAN_ROWS: Final = 2**16
"""Rows whose Jacobian is in memory at a time."""

ROWS_SUMMED_FIRST: Final = 2**17
"""Rows from which sums over them come first, and the Jacobian only at the end."""

MOST_LOOPED_PRODUCTS: Final = 2**14
"""Products in a triangle up to which loops of our own make it: LAPACK takes as long to begin."""

MOST_ROWS_TRACED: Final = 20_000
"""Rows up to which a model that needs all of them at once is traced."""

RANGES: Final[dict[str, tuple[float, float]]] = {
    "float32": (2.0**-100, float(np.finfo(np.float32).max)),
    "float64": (0.0, np.inf),
    "float32x2": (2.0**-100, float(np.finfo(np.float32).max)),
}
"""Sizes of data that a dtype has."""

PROBE: Final = 0.5
"""The number at which a model is compared in the place of a parameter of 0."""

ALL: Final = slice(None)

_kernels: Once[Any, Kernel] = Once(64)
"""Kernels of models that need no trace to be told from others."""

_whole_kernels: Once[Any, Kernel] = Once(64)
"""Kernels of models that need all of x at once."""

Model = Callable[..., Any]

Shape = Literal["flat", "columns", "other"]
"""How a model takes x: (M,), (k, M), or as it is, of any other shape."""


class _Work:
    """Memory for a model at so many rows, to which its code is bound if there is a kernel of a row.

    ``owner`` is whose data are there.
    """

    def __init__(self, kernel: Kernel | None, count: int, k: int, n: int) -> None:
        self.triangle = triangle = Triangle(count, n)
        self.owner: object = None
        self.agreed: tuple[Any, ...] | None = None
        """The function, x and parameters for which one row was compared with all of them."""
        if kernel is not None:
            self.points = np.empty((len(triangle.values), n + k))
            self.evaluate = kernel.bound(self.points, (triangle.values, triangle.slopes))
            self.descent = Descent(n, triangle.row, self.points)
            self.repeat = self.descent.repeated(self.evaluate, triangle.call)


class _Kept(threading.local):
    """This thread's memory, of the latest models."""

    def __init__(self) -> None:
        self.work = functools.lru_cache(KEPT_SIZES)(_Work)


_kept: Final = _Kept()


@dataclass
class Rows:
    """Data to fit: x (k, M), or of another shape, y (M,), and what residuals are divided by.

    ``scale`` is None, an array (M,), or the lower Cholesky factor (M, M) of a covariance.
    """

    f: Model
    x: np.ndarray
    y: np.ndarray
    scale: np.ndarray | None
    n: int
    shape: Shape
    device: DeviceChoice
    dtype: DTypeName
    mode: Mode = "auto"
    """How derivatives are made."""
    calls: int = 0
    unit: float = 1.0
    """A part of ``scale``, by which residuals are divided so that squares are within the range."""
    _kernel: Any = field(default=None, init=False)
    rowwise: bool = field(default=True, init=False)
    """Whether the model is traced at one row: all rows together have the same values."""
    _sums: Any = field(default=None, init=False)
    _points: np.ndarray | None = field(default=None, init=False)
    """The points (M, n + k) of all rows but for p, if they are a single block."""
    _mark: object = field(default_factory=object, init=False)
    """The owner of memory that has these data: see `_Work`."""

    def prepare(self, p: np.ndarray) -> None:
        """Trace the model: at one row, or, where it needs all of x at once, at all rows.

        Raises:
            TraceError: if it can be traced in neither way.
        """
        whole = self._whole
        kernel = None if whole is None else _whole_kernels.find(whole)
        if kernel is not None:
            self._kernel, self.rowwise = kernel, False
            return
        complaint = None
        if self.shape != "other":
            try:
                self.trace_row()
                if self._agrees(p):
                    return
            except MISTAKES as error:  # what is wrong for one x may be right for all of them
                complaint = error
        self.rowwise = False
        try:
            make = self._trace_all
            self._kernel = make() if whole is None else _whole_kernels.get(whole, make)
        except MISTAKES as error:
            if isinstance(complaint, SymgradError) and not isinstance(error, SymgradError):
                raise complaint from error  # which says what to write
            raise

    @cached_property
    def _known(self) -> Hashable | None:
        """The fingerprint of f, if it has one."""
        return None if self.dtype == "float32" else fingerprint(self.f)

    @property
    def _whole(self) -> Hashable | None:
        """A key of the model of all rows at once, if f has a fingerprint."""
        if self._known is None:
            return None
        given = self.n, self.shape, self.x.shape, self.x.tobytes(), self.y.shape
        return self._known, *given, self.device, self.dtype, self.mode

    def _trace_all(self) -> Kernel:
        """Trace the model at all rows at once."""
        if len(self.y) > MOST_ROWS_TRACED:
            raise InputError(
                "f cannot be traced for one x, as its value there is another than for all x "
                f"together, and {len(self.y)} rows are too many to trace at once"
            )
        f, x, shape = self.f, self._given, self.y.shape
        return fused_jacobian(
            self.n,
            lambda v: _checked(f(x, *v), x, shape),
            device=self.device,
            dtype=self.dtype,
            mode=self.mode,
        )

    def trace_row(self) -> None:
        """Trace the model at one row, whatever its values are there."""
        flat = self.shape == "flat"
        mode: Mode = "reverse" if self.mode == "auto" else self.mode
        where = self.n, len(self.x), flat, self.device, self.dtype, mode
        known = self._known
        make = functools.partial(row_kernel, self.f, *where)
        self._kernel = make() if known is None else _kernels.get((known, *where), make)

    def in_unit(self, unit: float) -> Rows:
        """These rows, with residuals in another unit, a power of two; they count calls on."""
        if unit == self.unit:
            return self
        other, factor = copy.copy(self), unit / self.unit
        most = np.finfo(float).max
        scale = np.ones(len(self.y)) if self.scale is None else self.scale
        other.scale = np.where(np.isinf(scale), scale, np.minimum(scale, most / factor) * factor)
        other.unit, other._mark, other._sums = unit, object(), None
        return other

    def largest(self, p: np.ndarray | None = None) -> float:
        """The largest y, or, at some parameters, the largest residual, in deviations."""
        if p is None and self.scale is None:
            return self._largest
        sizes = self._in_deviations(self.y) if p is None else self.residuals(p)
        return float(np.abs(sizes).max(initial=0.0))

    @cached_property
    def _largest(self) -> float:
        """The largest y."""
        return float(np.abs(self.y).max(initial=0.0))

    def in_range(self) -> bool:
        """Whether numbers of y's size are ones that the dtype has, with their digits."""
        size, (least, most) = self._largest, RANGES[self.dtype]
        return size == 0.0 or least <= size <= most

    @property
    def count(self) -> int:
        """How many rows there are."""
        return len(self.y)

    @property
    def counted(self) -> int:
        """How many rows count: those of an infinite deviation do not."""
        if self.scale is None or self.scale.ndim == 2:
            return self.count
        return self.count - int(np.count_nonzero(np.isinf(self.scale)))

    def length(self) -> float:
        """The length of y (M,) in deviations."""
        return float(np.linalg.norm(self._in_deviations(self.y)))

    def _in_deviations(self, values: np.ndarray) -> np.ndarray:
        if self.scale is None:
            return values
        return np.linalg.solve(self.scale, values) if self.scale.ndim == 2 else values / self.scale

    def linear(self) -> Sequence[int]:
        """Parameters that, together, the model is linear in, as far as is known."""
        return linear_parameters(self._kernel, self.n) if self.rowwise else ()

    @property
    def made(self) -> str | None:
        """How derivatives were made."""
        return _mode(self._kernel)

    @property
    def _given(self) -> np.ndarray:
        return self.x[0] if self.shape == "flat" else self.x

    @property
    def bound(self) -> bool:
        """Whether a descent is one call: the model writes to where its triangle is made of."""
        return self.rowwise and self.dtype != "float32" and self._is_small

    @cached_property
    def _is_small(self) -> bool:
        """Whether loops of our own make the triangle."""
        plain = self.scale is None or self.scale.ndim == 1
        return plain and len(self.y) * (self.n + 1) ** 2 <= MOST_LOOPED_PRODUCTS

    def _work(self) -> _Work:
        """This thread's memory, with these data."""
        kernel = self._kernel if self.bound else None
        work = _kept.work(kernel, len(self.y), len(self.x), self.n)
        if work.owner is not self._mark:
            triangle, count = work.triangle, len(self.y)
            triangle.y[:] = self.y
            triangle.weights[:] = 1.0 if self.scale is None else 1.0 / self.scale
            if kernel is not None:
                columns = work.points[:, self.n :]
                columns[:count], columns[count:] = self.x.T, self.x[:, -1]
            work.owner = self._mark
        return work

    def _evaluate(self, p: np.ndarray, rows: slice) -> tuple[np.ndarray, np.ndarray]:
        """Values (m,) and derivatives (m, n) at some rows, or, where that is needed, at all."""
        if not self.rowwise:
            return self._kernel.run(p)
        if self.bound:
            work, count = self._work(), len(self.y)
            work.points[:, : self.n] = p
            work.evaluate()
            return work.triangle.values[:count], work.triangle.slopes[:count]
        points = self._points_of(rows)
        points[:, : self.n] = p
        values, slopes = (np.asarray(a, float) for a in self._kernel.run(points))
        if self.dtype == "float32":  # what rounding took from the inputs, to first order
            lost = points - points.astype(np.float32)
            values = values + np.sum(slopes * np.where(np.isfinite(slopes), lost, 0.0), axis=1)
        return values, slopes[:, : self.n]

    def _points_of(self, rows: slice) -> np.ndarray:
        """The points (m, n + k) of these rows; those of a single block are made once."""
        if self._points is not None:
            return self._points
        x = self.x[:, rows]
        points = np.empty((x.shape[1], self.n + len(x)))
        points[:, self.n :] = x.T
        if len(self.y) <= JACOBIAN_ROWS:
            self._points = points
        return points

    def _agrees(self, p: np.ndarray) -> bool:
        """Whether the model of single rows is what it is of all rows together, by a comparison.

        What a parameter multiplies has no part in one at 0. There is none where the same function
        has been compared at the same numbers.
        """
        if self._known is None or not self.bound:
            return self._all_agree(p)
        compared = self._known, self.x.tobytes(), p.tobytes()
        work = self._work()
        agrees = work.agreed == compared or self._all_agree(p)
        work.agreed = compared if agrees else None
        return agrees

    def _all_agree(self, p: np.ndarray) -> bool:
        return self._agree_at(p) and (bool(p.all()) or self._agree_at(np.where(p == 0.0, PROBE, p)))

    def _agree_at(self, p: np.ndarray) -> bool:
        some = slice(0, min(len(self.y), JACOBIAN_ROWS))
        with np.errstate(all="ignore"):
            try:
                want = np.asarray(self.f(self._given[..., some], *p), float)
            except MISTAKES:
                return True  # not a model of numbers, as one that looks up entries by x
            values = np.asarray(self._evaluate(p, some)[0], float)
            if want.shape not in ((), values.shape):
                return False
            slack = 1e-3 if self.dtype == "float32" else 1e-9
            sizes, apart = np.abs(want), np.abs(values - want)
            largest = sizes.max(initial=0.0)
            if apart.max(initial=0.0) <= slack * largest < np.inf:
                return True
            near = apart <= slack * (sizes + largest)
            return bool(near.all()) or not np.isfinite(want).all()

    # residuals -----------------------------------------------------------------------------------

    def residuals(self, p: np.ndarray) -> np.ndarray:
        """The residuals (M,), divided by their deviations."""
        with np.errstate(all="ignore"):
            return np.concatenate([block[:, self.n] for block in self._blocks(p)])

    def _blocks(self, p: np.ndarray) -> Iterator[np.ndarray]:
        """Derivatives and residuals of some rows at a time, (m, n + 1)."""
        whole = self.scale is not None and self.scale.ndim == 2
        size = max(len(self.y), 1) if whole else JACOBIAN_ROWS
        for first in range(0, len(self.y), size):
            rows = slice(first, first + size)
            values, jacobian = self._evaluate(p, rows)
            if len(values) > size:
                values, jacobian = values[rows], jacobian[rows]
            block = np.empty((len(values), self.n + 1))
            block[:, : self.n] = jacobian
            np.subtract(values, self.y[rows], out=block[:, self.n])
            yield self._whitened(block, rows)

    def _whitened(self, block: np.ndarray, rows: slice) -> np.ndarray:
        if self.scale is None:
            return block
        if self.scale.ndim == 1:
            scale = self.scale[rows, None]
            return np.where(np.isinf(scale), 0.0, block / scale)  # also what is not finite
        return np.linalg.solve(self.scale, block) if np.isfinite(block).all() else block * np.nan

    def at(self, p: np.ndarray) -> Point:
        """The point, by a QR decomposition of [J r], block by block.

        NumPy is not to warn of what is not finite, here and in `quick`: that is a point too.
        """
        self.calls += 1
        if self._is_small:
            return self._at_once(p)
        cost, factor = 0.0, np.zeros((0, self.n + 1))
        for block in self._blocks(p):
            r = block[:, self.n]
            cost += float(np.dot(r, r))
            factor = triangle(np.concatenate([factor, block]) if len(factor) else block)
            if not (math.isfinite(cost) and np.isfinite(factor).all()):
                return Point.nowhere(p)
        return Point.of(p, cost, *system(factor, self.n))

    def _at_once(self, p: np.ndarray) -> Point:
        values, slopes = self._evaluate(p, ALL)
        triangle, count = self._work().triangle, len(self.y)
        if values.base is not triangle.values:
            triangle.values[:count], triangle.slopes[:count] = values, slopes
        triangle.call()
        row = triangle.row
        return Point(p, row.copy()) if math.isfinite(row.item(-2)) else Point.nowhere(p)

    def descended(self, start: Point, box: Box, strategy: Strategy, limit: int) -> Point:
        """The best point that a descent leads to, if they are `bound`: see `descent_program`."""
        work = self._work()
        descent = work.descent
        going = descent.begin(start, box, strategy, limit)
        while going:
            work.repeat()
            going = descent.is_going
        self.calls += descent.count
        return descent.end

    def quick(self, p: np.ndarray) -> Point:
        """The point, by sums over the rows: JᵀJ has half the digits, and takes no memory."""
        self.calls += 1
        if self._sums is None:
            self._sums = self._reduction()
        totals = self._sums.run(np.ascontiguousarray(p))
        if not np.isfinite(totals).all():
            return Point.nowhere(p)
        half = np.zeros((self.n, self.n))
        half[np.tril_indices(self.n)] = totals[self.n + 1 :]
        matrix = half + np.tril(half, -1).T
        units = np.sqrt(np.where(matrix.diagonal() > 0, matrix.diagonal(), 1.0))
        values, vectors = np.linalg.eigh(matrix / np.outer(units, units))
        roots = np.sqrt(np.maximum(values, 1e-15))
        z = (vectors.T @ (totals[1 : self.n + 1] / units)) / roots
        return Point.of(p, 2.0 * float(totals[0]), (roots[:, None] * vectors.T) * units, z)

    def _reduction(self) -> Any:
        k, f, flat = len(self.x), self.f, self.shape == "flat"
        weighted = self.scale is not None

        def residual(p: Any, row: Any) -> Any:
            r = f(row[0] if flat else row[:k], *p) - row[k]
            return Weighted(r * row[k + 1], row[k + 1]) if weighted else r

        columns = [*self.x, self.y] + ([] if self.scale is None else [1.0 / self.scale])
        problem = Problem(residual, self.n, shared=len(columns), by=Accumulation(self.mode))
        options = Options("residuals", "accurate", "float64", True, False)
        problem = problem.rolled(options.rounding)
        rows = np.ascontiguousarray(np.stack(columns, axis=1))
        sums = backend_of(choose("cpu")).sums(reduction(problem, "squares", options), options, "")
        return sums.bind(rows)

    @property
    def many(self) -> bool:
        """Whether sums are worth their compilation."""
        simple = self.scale is None or self.scale.ndim == 1
        on_host = self.dtype == "float64" and backend_of(choose_any(self.device)).on_host
        return len(self.y) >= ROWS_SUMMED_FIRST and simple and self.rowwise and on_host


@functools.lru_cache(KEPT_SIZES)
def _mode(kernel: Kernel) -> str | None:
    return kernel.stats.mode


def _checked(values: Any, x: np.ndarray, shape: tuple[int, ...]) -> Any:
    """The values of a model at x, if they are of this shape."""
    if np.shape(values) != shape:
        raise InputError(
            f"xdata has shape {x.shape} and ydata {shape}, and f gave values "
            f"of shape {np.shape(values)}: those of ydata's shape are needed"
        )
    return values


def linear_parameters(kernel: Kernel, n: int) -> list[int]:
    """Parameters that, together, a model is linear in: no derivative by one has one of them."""
    _, derivatives = kernel.expr
    graph = derivatives[0].graph
    p = inputs_of(graph)[:n]
    needs = [set(reachable(graph, [d.id])) for d in derivatives]
    nonlinear = np.array([[i in needed for i in p] for needed in needs])
    linear: list[int] = []
    for k in range(n):
        if not nonlinear[[*linear, k], k].any() and not nonlinear[k, linear].any():
            linear.append(k)
    return linear


def row_kernel(
    f: Model,
    n: int,
    k: int,
    flat: bool,
    device: DeviceChoice,
    dtype: DTypeName,
    mode: Mode = "reverse",
) -> Kernel:
    """The kernel of the model at a row, of n parameters and k columns: its value and derivatives.

    In float32 the derivatives by the columns are among them.
    """
    options = Options("model", "accurate", dtype, True, False)
    wrt = n + k if dtype == "float32" else n
    making = Making(options, device, make=shared)
    return gradient_kernel(n + k, _at_row(f, n, flat), making, wrt, mode=mode)


def _at_row(f: Model, n: int, flat: bool) -> Callable[[Any], Any]:
    """The model at one x, given as a number or, where f broadcasts it, as all x of one row."""

    @functools.wraps(f)
    def at_row(v: Any) -> Any:
        x, p = v[n] if flat else v[n:], v[:n].tolist()
        try:
            return one_value(f, x, f(x, *p))
        except MISTAKES:
            value = _broadcast(f, v[n:] if flat else v[n:, None], p)
            if value is None:
                raise
            return value

    return at_row


def _broadcast(f: Model, x: Any, p: Sequence[Any]) -> Any:
    """The one value of a model at an array of one x; None where there is none, or by a loop.

    A loop may be over all of x.
    """
    try:
        values = array_of(f(x, *p))
    except MISTAKES:
        return None
    if values.shape != (1,) or has_regions(x.flat[0].graph):
        return None
    return values[0]


def system(factor: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """T (n, n) and z (n,) of a triangle of [J r], which has fewer lines if there are fewer rows."""
    if len(factor) <= n:
        factor = np.pad(factor, ((0, n + 1 - len(factor)), (0, 0)))
    return factor[:n, :n], factor[:n, n]


def triangle(matrix: np.ndarray) -> np.ndarray:
    """The R of a QR decomposition; its lower half is 0."""
    reflectors, _ = np.linalg.qr(matrix, mode="raw")
    factor = reflectors.T[: matrix.shape[1]]
    return np.where(_upper(*factor.shape), factor, 0.0)


@functools.lru_cache
def _upper(rows: int, columns: int) -> np.ndarray:
    return np.tri(columns, rows, dtype=bool).T
