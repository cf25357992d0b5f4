"""`minimize` with SciPy's signature, for functions that are traced."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from symgrad.backend import backend_of
from symgrad.errors import InputTypeError
from symgrad.expr.tracers.tree import Tree
from symgrad.expr.tracing.randomness import EVERY_STEP, frozen_for
from symgrad.fit.nesting import nesting_of
from symgrad.front.deriving import Making, gradient_kernel, options_of
from symgrad.front.fused_second import hessian_kernel
from symgrad.front.kernels import Kernel, shared
from symgrad.optimize.method import Method, array_of
from symgrad.optimize.result import (
    ENDED_BY_USER,
    MESSAGES,
    as_scipy,
    optimize_result,
    scipy_optimize,
)
from symgrad.pipeline import DType
from symgrad.report.progress import Asked, Report, reporting
from symgrad.targets import DeviceChoice, choose
from symgrad.values.parameters import of_row

SECOND: Final = {"newton-cg", "dogleg", "trust-ncg", "trust-exact", "trust-krylov", "trust-constr"}
"""Methods that are given the Hessian."""

WITHOUT: Final = {"nelder-mead", "powell", "cobyla", "cobyqa"}
"""Methods that take no gradient."""


@frozen_for(EVERY_STEP)
def minimize(
    f: Callable[..., Any],
    x0: Any,
    args: tuple[Any, ...] = (),
    method: str | None = None,
    jac: Any = None,
    hess: Any = None,
    hessp: Any = None,
    bounds: Any = None,
    constraints: Any = (),
    tol: float | None = None,
    callback: Any = None,
    options: dict[str, Any] | None = None,
    *,
    device: DeviceChoice = None,
    dtype: DType | None = None,
    progress: Asked = False,
) -> Any:
    """``scipy.optimize.minimize`` of a traced function: with its exact gradient and Hessian.

    Args:
        f: gets an array of n variables, or what is nested as x0, and ``args``, and returns one
            scalar; it is traced at every call, and what it reads from elsewhere is what it is then.
            Equal traces share their kernels: see `value_and_grad`.
        x0: where to start: (n,), an array of any shape, or dicts, dataclasses, and lists and tuples
            of such and of arrays. Your other functions get x nested likewise, and the result's
            ``x`` and ``jac`` are; matrices are those of all variables in a row.
        args: more arguments for f, which are constants; a jac, hess or hessp is given them too.
        method: SciPy's; those of second order get the symbolic Hessian.
        jac: taken instead of the exact gradient if it is a function, nested as x0; True if f
            returns its gradient as well, which is not needed.
        hess: taken instead of the exact Hessian if it is a function.
        hessp: taken instead of the exact Hessian.
        bounds: SciPy's; of a nested x0, those of `minimize_from`.
        constraints: SciPy's.
        tol: SciPy's.
        callback: SciPy's.
        options: SciPy's.
        device: the CPU by default.
        dtype: "float64" on the CPU by default, "float32" on a GPU.
        progress: True to show how far a run is that takes longer than a second, or a function that
            is called with a `Progress`. After StopIteration, the result is the best so far, with
            status 99.

    Returns:
        SciPy's ``OptimizeResult``.

    Example:
        >>> import numpy as np
        >>> import symgrad as sg
        >>> found = sg.minimize(lambda v: (1 - v[0])**2 + 100 * (v[1] - v[0]**2)**2, [-1.2, 1.0])
        >>> found.x.round(4)
        array([1., 1.])
        >>> x, y = np.arange(4.0), np.array([1.0, 3.0, 5.0, 7.0])
        >>> line = lambda p: np.sum((p["slope"] * x + p["level"] - y)**2)
        >>> found = sg.minimize(line, {"slope": 0.0, "level": 0.0}, bounds={"level": (0.0, None)})
        >>> round(float(found.x["slope"]), 4), round(float(found.x["level"]), 4)
        (2.0, 1.0)
    """
    asked, start = nesting_of(x0)
    tree = asked.tree
    _require_scipys(tree, method)
    args = args if isinstance(args, tuple) else (args,)
    target = choose(device if device is not None else "cpu")
    kind: DType = dtype or backend_of(target).dtype
    name = method.lower() if isinstance(method, str) else ""
    loss = _loss_of(f, args, with_gradient=jac is True)
    compiled = options_of(f, None, "accurate", kind, True, comments=True)
    making = Making(compiled, target, make=shared)
    fun = as_scipy(gradient_kernel(tree, loss, making))
    jac, hess = (asked.function(_with_args(g, args)) for g in (jac, hess))
    hessp = asked.function(_with_args(hessp, args), vectors=2)
    if not callable(hess) and hessp is None and name in SECOND:
        flat = of_row(loss, tree)
        hess = _hessian(hessian_kernel(tree.size, flat, making))
    derivatives = {"jac": jac if callable(jac) else True, "hess": hess, "hessp": hessp}
    given = {} if name in WITHOUT else derivatives
    with reporting(progress, "evaluations") as report:
        told = _Told(fun, report) if progress else fun
        value = told if given.get("jac") is True else lambda x: told(x)[0]
        try:
            result = scipy_optimize().minimize(
                value,
                start,
                method=method,
                bounds=asked.bounds(bounds),
                tol=tol,
                options=options,
                constraints=asked.constraints(constraints),
                callback=asked.callback(callback),
                **given,
            )
        except _Ended as ended:
            result = ended.told.result()
    return asked.result(result)


class _Ended(Exception):
    """The user has ended a run by StopIteration; SciPy knows that of callbacks alone."""

    def __init__(self, told: _Told) -> None:
        self.told = told


class _Told:
    """A function whose evaluations are reported, and the lowest of them."""

    def __init__(self, fun: Callable[[Any], tuple[float, np.ndarray]], report: Report) -> None:
        self._fun, self._report, self._count = fun, report, 0
        self._best: tuple[np.ndarray, float, np.ndarray] | None = None

    def __call__(self, x: Any) -> tuple[float, np.ndarray]:
        loss, gradient = self._fun(x)
        self._count += 1
        if self._best is None or loss < self._best[1] or np.isnan(self._best[1]):
            self._best = np.array(x, float), loss, gradient
        lowest = self._best[1]
        try:
            self._report(self._count, lambda: lowest)
        except StopIteration:
            raise _Ended(self) from None
        return loss, gradient

    def result(self) -> Any:
        """The lowest so far, as SciPy's result."""
        assert self._best is not None, "a run is ended after an evaluation"
        x, fun, jac = self._best
        return optimize_result(
            x=x,
            fun=fun,
            jac=jac,
            nfev=self._count,
            success=False,
            status=ENDED_BY_USER,
            message=MESSAGES[ENDED_BY_USER],
        )


def _require_scipys(tree: Tree, method: Any) -> None:
    """Refuse methods that are symgrad's own."""
    if isinstance(method, Method) or (isinstance(method, type) and issubclass(method, Method)):
        n = tree.size if tree.is_leaf else "sizes"
        raise InputTypeError(
            f"method={method!r}: sg.minimize runs SciPy's methods; sg.minimize_from(f, {n}, x0, "
            "method) runs symgrad's"
        )


def _loss_of(f: Callable[..., Any], args: tuple[Any, ...], with_gradient: bool) -> Any:
    """f as a function of the variables alone that returns a scalar."""

    @functools.wraps(f)  # messages name the user's function and its line
    def loss(v: Any) -> Any:
        result = f(v, *args)
        if with_gradient and isinstance(result, tuple) and len(result) == 2:
            result = result[0]  # f gives its gradient as well: the traced one is exact
        values = array_of(result)
        return values[0] if np.shape(values) == (1,) else result

    return loss


def _with_args(function: Any, args: tuple[Any, ...]) -> Any:
    """A derivative of the user's own, which is given args after its other arguments."""
    return (lambda *given: function(*given, *args)) if callable(function) and args else function


def _hessian(kernel: Kernel) -> Callable[[Any], np.ndarray]:
    return lambda x: np.asarray(kernel.run(np.asarray(x, float))[2], float)
