"""SciPy's results, and kernels as SciPy's functions: SciPy itself is imported only here."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Final, overload

import numpy as np

from symgrad.errors import SymgradError

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
