"""A kernel over data together with its data, and as an ES module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from symgrad.bridges.frameworks import DataLoss, as_jax, as_torch
from symgrad.errors import InputError, PickleError
from symgrad.expr.tracers.tree import Tree
from symgrad.optimize.over_data import RowLoss, minimize_bound, require_squares
from symgrad.pipeline import Options
from symgrad.report.profiling import Profile, profile_kernel
from symgrad.rows.loss import Request, Traced
from symgrad.values.nested import Derivatives, Scalar, of_row
from symgrad.web.kernels import Minimization, Steps, require_exported

# --- export as ES modules -------------------------------------------------------------------------
# Losses over data as ES modules for WebGPU.


def require_exportable(name: str, request: Request, traced: Traced) -> None:
    """Refuse what modules do not compute."""
    require_exported(request.options.dtype)
    missing = {
        "parameters that rows look up by an index": bool(traced.gathers),
        f'nan_policy="{request.nan_policy}"': request.nan_policy != "propagate",
        "a regularizer": request.penalty is not None,
        "results for each row, reduce=None,": request.reduce is None,
    }
    for what in (words for words, present in missing.items() if present):
        raise InputError(f"{name}: {what} cannot be exported yet; run it from Python")


def minimization_of(
    loss: RowLoss, tree: Tree, by: Steps, each: bool, options: Options
) -> Minimization:
    """A minimisation of a loss over data that come later, the same for all starts or ``each``."""
    require_squares(by.method, loss.squares, options.name)
    if loss.reduce == "mean":
        raise InputError('a mean over rows is not minimised by modules: use reduce="sum"')
    f = loss.residuals if by.method.needs == "squares" else loss.loss
    columns = {"own" if each else "shared": loss.columns.count}
    return Minimization(of_row(f, tree), tree, by, options, **columns)


# --- kernels with data ----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class KeptRows:
    """A table where a kernel needs it: how many rows, what they sum up to, and how many never end.

    The functions take parameters in a row.
    """

    count: int
    codes: Mapping[str, Any]
    totals: Callable[[np.ndarray], Totals]
    unended: Callable[[np.ndarray], int]

    def __reduce__(self) -> NoReturn:
        raise PickleError("bound rows stay where they are: bind them again elsewhere")


@dataclass(slots=True)
class Totals:
    """The parts that a table gives, and the weight of its rows; of two tables, both together.

    Parts are sums in float64, or lists, to each of which a table adds what is its own.
    """

    parts: list[Any]
    weight: float

    def __add__(self, other: Totals) -> Totals:
        both = [a + b for a, b in zip(self.parts, other.parts, strict=True)]
        return Totals(both, self.weight + other.weight)


class BoundKernel:
    """A kernel with its data: only parameters go in, and only results come out.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> line = sg.fused_forward_backward(
        ...     2, lambda p, r: (p[0] + p[1] * r[0] - r[1])**2, row=2, device="cpu")
        >>> bound = line.bind(np.array([[0.0, 1.0], [1.0, 3.0]]))
        >>> bound.run([1.0, 1.0])
        (1.0, array([-2., -2.], dtype=float32))
    """

    def __init__(self, kernel: Any, rows: int, run: Callable[..., Any]) -> None:
        self.kernel, self._rows, self._run = kernel, rows, run

    def __reduce__(self) -> NoReturn:
        raise PickleError(
            "a kernel with its rows stays in its process: pickle bound.kernel, and bind the rows "
            "again where it arrives"
        )

    def __len__(self) -> int:
        return self._rows

    def __repr__(self) -> str:
        return f"{self.kernel!r} with {len(self):,} rows"

    def run(self, *params: Any) -> Any:
        """Calls the kernel's ``run`` over the data, with parameters as it takes them."""
        return self._run(*params)

    __call__ = run

    def minimize(
        self, starts: Any, method: Any, steps: int = 1000, tol: Any = None, **options: Any
    ) -> Any:
        """Minimise the loss over the data, from one start after the other.

        Each step is a pass over the rows by the whole device. Arguments and result are those of
        `DataKernel.minimize`; ``method`` is one that takes gradients, as ``sg.LBFGS()``, or, of a
        kernel of `fused_hessian`, ``sg.Newton()``, whatever rows look up.

        Raises:
            InputError: for methods that need more, and for kernels without a loss and its gradient.

        Example:
            >>> import numpy as np, symgrad as sg
            >>> line = lambda p, r: (p[0] + p[1] * r[0] - r[1])**2
            >>> kernel = sg.fused_forward_backward(2, line, row=2, device="cpu")
            >>> bound = kernel.bind([[0.0, 1.0], [1.0, 3.0], [2.0, 5.0]])
            >>> bound.minimize([0.0, 0.0], sg.LBFGS()).x.round(3).tolist()
            [1.0, 2.0]
        """
        options |= {"steps": steps, "tol": tol}
        return minimize_bound(self, self._second, starts, method, options)

    def profile(self, *params: Any) -> Profile:
        """Where the time of ``run(*params)`` goes, beside the limits of the device: see `Profile`.

        Example:
            >>> import numpy as np, symgrad as sg
            >>> line = lambda p, r: (p[0] + p[1] * r[0] - r[1])**2
            >>> kernel = sg.fused_forward_backward(2, line, row=2, device="cpu")
            >>> profile = kernel.bind(np.ones((1000, 2))).profile([0.0, 1.0])
            >>> profile.total == sum(profile.seconds.values()), profile.result[0]
            (True, 0.0)
        """
        return profile_kernel(lambda: self.run(*params), self.kernel, len(self))

    def as_scipy(self) -> Callable[[Any], tuple[float, np.ndarray]]:
        """``fun(x) -> (loss, gradient)`` in float64, for ``scipy.optimize.minimize(jac=True)``.

        x and the gradient are all parameters in a row, however they are nested.

        Example:
            >>> import scipy.optimize
            >>> import symgrad as sg
            >>> line = lambda p, r: (p[0] + p[1] * r[0] - r[1])**2
            >>> kernel = sg.fused_forward_backward(2, line, row=2, device="cpu")
            >>> fun = kernel.bind([[0.0, 1.0], [1.0, 3.0], [2.0, 5.0]]).as_scipy()
            >>> scipy.optimize.minimize(fun, [0.0, 0.0], jac=True).x.round(3).tolist()
            [1.0, 2.0]
        """
        run = self._loss("as_scipy")

        def fun(x: Any) -> tuple[float, np.ndarray]:
            return run(np.asarray(x, float))

        return fun

    def as_torch(self) -> Callable[[Any], Any]:
        """The loss as a function of PyTorch's tensors of parameters: see `Kernel.as_torch`.

        Its gradient is not differentiated again: a kernel of `fused_hvp` has what that would give.
        """
        return as_torch(*self._differentiable("as_torch"))

    def as_jax(self) -> Callable[[Any], Any]:
        """The loss as a function of JAX's arrays of parameters: see `Kernel.as_jax`.

        Its gradient is not differentiated again: a kernel of `fused_hvp` has what that would give.
        """
        return as_jax(*self._differentiable("as_jax"))

    def _differentiable(self, verb: str) -> tuple[DataLoss, Tree, Scalar]:
        """The function that other frameworks differentiate, its arguments' nest, and its result."""
        run, tree = self._loss(verb), self.kernel.tree
        return DataLoss(run, tree.size, self.kernel.dtype), tree, Scalar()

    def _loss(self, verb: str) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
        """A function of parameters in a row: the loss and its gradient, in float64."""
        if self.kernel.outputs[:2] != ("loss", "grad") or self.kernel.request.reduce is None:
            raise InputError(f"{verb} needs a loss, summed over rows, and its gradient")

        def run(x: np.ndarray) -> tuple[float, np.ndarray]:
            loss, gradient, *_ = self.run(x)
            return loss, self.kernel.in_a_row(gradient).astype(float)

        return run

    def _second(self) -> Callable[[np.ndarray], tuple[float, np.ndarray, np.ndarray]]:
        """A function of the loss, its gradient and its Hessian (n, n), if the kernel has them."""
        nested = Derivatives(self.kernel.tree, second=True)

        def run(x: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
            loss, gradient, hessian = self.run(x)
            return loss, self.kernel.in_a_row(gradient).astype(float), nested.matrix(hessian)

        return run
