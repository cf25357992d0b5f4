"""SciPy's results, and kernels as SciPy's functions: SciPy itself is imported only here."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, overload

import numpy as np

from symgrad.errors import SymgradError
from symgrad.kernel.skeletons.descent import CLEAR

# --- points and their bounds ----------------------------------------------------------------------
# A least-squares problem at some parameters, and the bounds on them.


@dataclass(frozen=True, eq=False)
class Point:
    """Parameters with what is known there, in a row (n (n + 2) + 2,).

    That is ``T`` (n, n) with TᵀT = JᵀJ, and ``z`` (n,) with Tᵀz = Jᵀr; the lengths (n,) of the
    columns of J, 1 for those that vanish; ``cost``, the sum of squared residuals r, which is not
    finite where it, or a derivative, is not; and ``inverse``, the Frobenius norm of the inverse of
    T with columns of length 1, which is not finite where there is none.

    ``offset`` is the length of the residuals' part that the free parameters span, relative to them,
    where it is known.
    """

    p: np.ndarray
    row: np.ndarray
    offset: float = np.nan

    @classmethod
    def of(cls, p: np.ndarray, cost: float, T: np.ndarray, z: np.ndarray) -> Point:
        """The point of a triangle."""
        most = np.maximum.reduce(np.abs(T))
        units = np.where(most > 0.0, most, 1.0)  # squares may be beyond the range
        parts = T / units
        lengths = units * np.sqrt(np.add.reduce(parts * parts))
        lengths = np.where(lengths > 0.0, lengths, 1.0)
        try:
            inverse = float(np.linalg.norm(np.linalg.inv(T / lengths)))
        except np.linalg.LinAlgError:
            inverse = np.inf
        return cls(p, np.concatenate([T.ravel(), z, lengths, [cost, inverse]]))

    @classmethod
    def nowhere(cls, p: np.ndarray) -> Point:
        """A point at which something is not finite."""
        row = np.zeros(len(p) * (len(p) + 2) + 2)
        row[-2:] = np.inf
        return cls(p, row)

    @property
    def T(self) -> np.ndarray:
        """The triangle (n, n)."""
        n = len(self.p)
        return self.row[: n * n].reshape(n, n)

    @property
    def z(self) -> np.ndarray:
        """The residuals (n,) as the triangle's columns see them."""
        n = len(self.p)
        return self.row[n * n : n * (n + 1)]

    @property
    def lengths(self) -> np.ndarray:
        """The lengths (n,) of the Jacobian's columns, 1 for those that vanish."""
        n = len(self.p)
        return self.row[n * (n + 1) : n * (n + 2)]

    @property
    def cost(self) -> float:
        """The sum of squared residuals."""
        return self.row.item(-2)

    @cached_property
    def condition(self) -> float:
        """The condition of the Jacobian with columns of length 1, or a bound if that is small."""
        bound = self.row.item(-1) * len(self.p) ** 0.5
        if bound < CLEAR:
            return bound
        if not self.T.any(axis=0).all():
            return np.inf
        return float(np.linalg.cond(self.T / self.lengths))


@dataclass(frozen=True, eq=False)
class Box:
    """Bounds on the parameters."""

    low: np.ndarray
    high: np.ndarray

    @cached_property
    def bounded(self) -> bool:
        """Whether there is any bound."""
        return bool(np.isfinite(self.low).any() or np.isfinite(self.high).any())

    def free(self, point: Point) -> np.ndarray:
        """Which parameters have no active bound."""
        gradient = np.dot(point.z, point.T)
        down, up = (point.p <= self.low) & (gradient > 0), (point.p >= self.high) & (gradient < 0)
        return ~(down | up)

    def clip(self, p: np.ndarray) -> np.ndarray:
        """The nearest parameters within."""
        return np.minimum(np.maximum(p, self.low), self.high) if self.bounded else p


# --- results --------------------------------------------------------------------------------------

ENDED_BY_USER: Final = 99
"""The status of a problem that the user ended, by a callback or a report of progress: SciPy's."""

MESSAGES: Final = {
    0: "the steps ran out",
    1: "the gradient is within the tolerance",
    2: "the loss no longer decreases by more than the tolerance",
    3: "the step is within the tolerance",
    -1: "precision loss: no step is seen to lead further down, and the gradient is not small",
    -2: "the loss or its gradient is not finite",
    -3: "the loss no longer depends on some variable: it has gone where the model is flat",
    ENDED_BY_USER: "the callback ended the run",
}
"""Meanings of ``status``; those from 1 to 3 are successes."""


class Messages(Sequence[str]):
    """Meanings of many problems' statuses: a text is looked up when it is asked for."""

    def __init__(self, status: Any) -> None:
        self._given = status

    @cached_property
    def _status(self) -> np.ndarray:
        return np.asarray(self._given).astype(int)

    def __len__(self) -> int:
        return len(self._given)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> Messages: ...

    def __getitem__(self, index: Any) -> Any:
        status = self._status[index]
        return Messages(status) if np.ndim(status) else MESSAGES[int(status)]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        known = sorted(MESSAGES)
        table = np.array([MESSAGES[s] for s in known], dtype or object)
        return table[np.searchsorted(known, self._status)]

    def __repr__(self) -> str:
        status, counts = np.unique(self._status, return_counts=True)
        pairs = zip(status.tolist(), counts.tolist(), strict=True)
        return "; ".join(f"{count:,} x {MESSAGES[s]}" for s, count in pairs)


class FitError(SymgradError, RuntimeError):
    """No minimum was found: SciPy raises RuntimeError.

    It carries what was computed: ``popt`` (n,), the best parameters so far, ``pcov`` (n, n), what
    their covariance would be, ``nfev``, the number of evaluations, and ``result``, SciPy's
    ``OptimizeResult`` of these and of the residuals there.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> sg.curve_fit(lambda x, a, b: a * np.exp(b * x), [1, 2, 3], [1, 5, 2], maxfev=1)
        Traceback (most recent call last):
            ...
        symgrad.optimize.result.FitError: Optimal parameters not found: ...
    """

    result: Any = None
    """SciPy's ``OptimizeResult``: x, cost (half the sum of squares), fun (the residuals), grad,
    optimality, nfev, status, success and message; and ``pcov``."""

    def __init__(self, message: str, result: Any = None) -> None:
        super().__init__(message)
        self.result = result

    def __reduce__(self) -> Any:
        return type(self), (*self.args, self.result)

    @property
    def popt(self) -> np.ndarray | None:
        """The best parameters so far, (n,)."""
        return self.result and self.result.x

    @property
    def pcov(self) -> np.ndarray | None:
        """The covariance of the parameters at the end, (n, n), had it been a fit."""
        return self.result and self.result.pcov

    @property
    def nfev(self) -> int:
        """How often the model was evaluated at all rows."""
        return self.result.nfev if self.result else 0


def scipy_optimize() -> Any:
    """SciPy's module of optimisers."""
    try:
        return importlib.import_module("scipy.optimize")
    except ImportError as error:
        raise SymgradError(
            "fitting and minimising need SciPy: pip install 'symgrad[fit]'"
        ) from error


def optimize_result(**fields: Any) -> Any:
    """SciPy's ``OptimizeResult`` with these fields."""
    return scipy_optimize().OptimizeResult(**fields)


def as_scipy(kernel: Any) -> Callable[[Any], tuple[float, np.ndarray]]:
    """A kernel of loss and gradient as ``fun(x)`` for ``scipy.optimize.minimize(jac=True)``.

    Example:
        >>> import scipy.optimize
        >>> import symgrad as sg
        >>> kernel = sg.fused_forward_backward(2, lambda v: v @ v, device="cpu", dtype="float64")
        >>> bool(scipy.optimize.minimize(as_scipy(kernel), [3.0, 4.0], jac=True).success)
        True
    """

    def fun(x: Any) -> tuple[float, np.ndarray]:
        loss, gradient = kernel.run(np.asarray(x, float))
        return float(loss), kernel.in_a_row(gradient).astype(float)

    return fun
