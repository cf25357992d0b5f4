"""A model at all rows of data: its residuals, and the triangle of the QR of their Jacobian."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np

from symgrad.errors import InputError, SymgradError
from symgrad.expr.expression import Expr
from symgrad.expr.simplify import inputs_of
from symgrad.expr.verbs import jacobian
from symgrad.fused import fused_jacobian, gradient_kernel
from symgrad.kernels import Kernel
from symgrad.llvm.dispatch import Sums
from symgrad.optimize.problem import Problem, reduction
from symgrad.pipeline import Options

BLOCK: Final = 2**16
"""Rows whose Jacobian is held at once."""

MANY: Final = 2**17
"""Rows from which sums over them come first, and the Jacobian only at the end."""

WHOLE: Final = 20_000
"""Rows up to which a model that needs all of them at once is traced."""

Model = Callable[..., Any]

Shape = Literal["flat", "columns", "other"]
"""How a model takes x: (M,), (k, M), or as it is, of any other shape."""


@dataclass(frozen=True, eq=False)
class Point:
    """Parameters with what is known there: ``T`` (n, n) with TᵀT = JᵀJ, and Tᵀz = Jᵀr.

    ``cost`` is the sum of squared residuals r; infinite where it, or a derivative, is not finite.
    """

    p: np.ndarray
    cost: float
    T: np.ndarray
    z: np.ndarray


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
    device: Any
    dtype: str
    calls: int = 0
    linear: Sequence[int] = ()
    """Parameters that, together, the model is linear in, as far as is known."""
    _evaluate: Any = field(default=None, init=False)
    _sums: Any = field(default=None, init=False)

    _rowwise: bool = field(default=True, init=False)

    def prepare(self, p: np.ndarray) -> None:
        """Trace the model: at one row, or, where it needs all of x at once, at all rows.

        Raises:
            TraceError: if it can be traced in neither way.
        """
        if self.shape == "other" or not self._prepare_row(p):
            self._rowwise = False
            if len(self.y) > WHOLE:
                raise InputError(
                    "f cannot be traced for one x, as its value there is another than for all x "
                    f"together, and {len(self.y)} rows are too many to trace at once"
                )
            whole = fused_jacobian(
                self.n, lambda v: self._checked(self.f(self._given, *v)), device=self.device,
                dtype=self.dtype,
            )  # fmt: skip
            self._evaluate = lambda p, _: whole.run(p)

    def _prepare_row(self, p: np.ndarray) -> bool:
        """Trace the model at one row: whether its values are those of all rows together."""
        try:
            flat = self.shape == "flat"
            kernel = row_kernel(self.f, self.n, len(self.x), flat, self.device, self.dtype)
            self._evaluate = lambda p, rows: self._by_row(kernel, p, rows)
            agrees = self._agrees(p)
            self.linear = linear_parameters(kernel, self.n) if agrees else ()
        except (SymgradError, TypeError, ValueError, IndexError, AttributeError):
            return False  # what is wrong with it for one x may be right for all of them
        return agrees

    @property
    def _given(self) -> np.ndarray:
        return self.x[0] if self.shape == "flat" else self.x

    def _checked(self, values: Any) -> Any:
        if np.shape(values) != self.y.shape:
            raise InputError(f"f gave values of shape {np.shape(values)} for {self.y.shape} of y")
        return values

    def _by_row(self, kernel: Kernel, p: np.ndarray, rows: slice) -> Any:
        x = self.x[:, rows]
        points = np.empty((x.shape[1], self.n + len(x)))
        points[:, : self.n], points[:, self.n :] = p, x.T
        values, slopes = (np.asarray(a, float) for a in kernel.run(points))
        if self.dtype == "float32":  # what rounding took from the inputs, to first order
            lost = points - points.astype(np.float32)
            values = values + np.sum(slopes * np.where(np.isfinite(slopes), lost, 0.0), axis=1)
        return values, slopes[:, : self.n]

    def _agrees(self, p: np.ndarray) -> bool:
        """Whether the model of single rows is what it is of all rows together."""
        some = slice(0, min(len(self.y), BLOCK))
        with np.errstate(all="ignore"):
            try:
                want = np.asarray(self.f(self._given[..., some], *p), float)
            except (TypeError, ValueError, SymgradError):
                return True
            found = np.asarray(self._evaluate(p, some)[0], float)
            slack = 1e-3 if self.dtype == "float32" else 1e-9
            return want.shape in ((), found.shape) and bool(
                np.allclose(found, want, slack, slack * np.nanmax(np.abs(want), initial=0.0),
                            equal_nan=True) or not np.isfinite(want).all()
            )  # fmt: skip

    # residuals -----------------------------------------------------------------------------------

    def residuals(self, p: np.ndarray) -> np.ndarray:
        """The residuals (M,), divided by their deviations."""
        return np.concatenate([r for r, _ in self._blocks(p)])

    def _blocks(self, p: np.ndarray) -> Any:
        whole = self.scale is not None and self.scale.ndim == 2
        size = max(len(self.y), 1) if whole else BLOCK
        for first in range(0, len(self.y), size):
            rows = slice(first, first + size)
            with np.errstate(all="ignore"):
                values, jacobian = (np.asarray(a, float) for a in self._evaluate(p, rows))
                if len(values) > size:
                    values, jacobian = values[rows], jacobian[rows]
                yield self._whitened(values - self.y[rows], jacobian, rows)

    def _whitened(self, r: np.ndarray, jacobian: np.ndarray, rows: slice) -> Any:
        if self.scale is None:
            return r, jacobian
        if self.scale.ndim == 1:
            return r / self.scale[rows], jacobian / self.scale[rows, None]
        if not np.isfinite(r).all() or not np.isfinite(jacobian).all():
            return r * np.nan, jacobian
        both = np.linalg.solve(self.scale, np.column_stack([jacobian, r]))
        return both[:, -1], both[:, :-1]

    def at(self, p: np.ndarray) -> Point:
        """The point, by a QR decomposition of [J r], block by block."""
        self.calls += 1
        cost, triangle = 0.0, np.zeros((0, self.n + 1))
        for r, slopes in self._blocks(p):
            stacked = np.empty((len(triangle) + len(r), self.n + 1))
            stacked[: len(triangle)] = triangle
            stacked[len(triangle) :, : self.n], stacked[len(triangle) :, self.n] = slopes, r
            with np.errstate(all="ignore"):
                cost += float(r @ r)
                triangle = np.linalg.qr(stacked, mode="r")
            if not (np.isfinite(cost) and np.isfinite(triangle).all()):
                return self._nowhere(p)
        full = np.zeros((self.n + 1, self.n + 1))
        full[: len(triangle)] = triangle[: self.n + 1]
        return Point(p, cost, full[: self.n, : self.n], full[: self.n, self.n])

    def quick(self, p: np.ndarray) -> Point:
        """The point, by sums over the rows: JᵀJ has half the digits, and takes no memory."""
        self.calls += 1
        if self._sums is None:
            self._sums = self._reduction()
        sums, rows = self._sums
        found = sums.run(np.ascontiguousarray(p), rows)
        if not np.isfinite(found).all():
            return self._nowhere(p)
        half = np.zeros((self.n, self.n))
        half[np.tril_indices(self.n)] = found[self.n + 1 :]
        matrix = half + np.tril(half, -1).T
        units = np.sqrt(np.where(matrix.diagonal() > 0, matrix.diagonal(), 1.0))
        values, vectors = np.linalg.eigh(matrix / np.outer(units, units))
        roots = np.sqrt(np.maximum(values, 1e-15))
        z = (vectors.T @ (found[1 : self.n + 1] / units)) / roots
        return Point(p, 2.0 * float(found[0]), (roots[:, None] * vectors.T) * units, z)

    def _reduction(self) -> Any:
        k, f, flat = len(self.x), self.f, self.shape == "flat"
        weighted = self.scale is not None

        def residual(p: Any, row: Any) -> Any:
            r = f(row[0] if flat else row[:k], *p) - row[k]
            return r * row[k + 1] if weighted else r

        columns = [*self.x, self.y] + ([] if self.scale is None else [1.0 / self.scale])
        problem = Problem(residual, self.n, shared=len(columns))
        options = Options("residuals", "accurate", "float64", True, False)
        rows = np.ascontiguousarray(np.stack(columns, axis=1))
        return Sums(reduction(problem, "squares", options), "accurate", "float64"), rows

    @property
    def many(self) -> bool:
        """Whether sums are worth their compilation."""
        simple = self.scale is None or self.scale.ndim == 1
        return len(self.y) >= MANY and simple and self._rowwise and self.dtype == "float64"

    def _nowhere(self, p: np.ndarray) -> Point:
        return Point(p, np.inf, np.zeros((self.n, self.n)), np.zeros(self.n))


def linear_parameters(kernel: Kernel, n: int) -> list[int]:
    """Parameters that, together, a model is linear in: read off its second derivatives."""
    _, derivatives = kernel.expr
    graph = derivatives[0].graph
    p = [Expr(graph, i) for i in inputs_of(graph)[:n]]
    nonlinear = jacobian(derivatives, p).pattern
    found: list[int] = []
    for k in range(n):
        if not nonlinear[[*found, k], k].any() and not nonlinear[k, found].any():
            found.append(k)
    return found


# --- kernels are kept -----------------------------------------------------------------------------

_kept: weakref.WeakKeyDictionary[Model, dict[Any, Kernel]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def row_kernel(f: Model, n: int, k: int, flat: bool, device: Any, dtype: str) -> Kernel:
    """The kernel of the model at a row, of n parameters and k columns: its value and derivatives.

    In float32 the derivatives by the columns are among them.
    """
    wrt = n + k if dtype == "float32" else n

    def at_row(v: Any) -> Any:
        return f(v[n] if flat else v[n:], *v[:n])

    key = (n, k, flat, str(device), dtype)
    try:
        kernels = _kept.setdefault(f, {})
    except TypeError:  # it cannot be referred to weakly
        kernels = {}
    with _lock:
        if key not in kernels:
            options = Options("model", "accurate", dtype, True, False)
            kernels[key] = gradient_kernel(n + k, at_row, wrt, options, device)
        return kernels[key]
