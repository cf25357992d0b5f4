"""`minimize` with SciPy's signature, for functions that are traced."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.arrays.whole import WholeArray
from symgrad.backend import backend_of
from symgrad.errors import InputTypeError
from symgrad.expr.tracers.tree import Tree
from symgrad.expr.tracing.trace import EVERY_STEP, frozen_for
from symgrad.front.deriving import Making, gradient_kernel, options_of
from symgrad.front.fused import hessian_kernel
from symgrad.front.kernels import Kernel, shared
from symgrad.optimize.arguments import bounds_of, real, takes_result
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
from symgrad.values.nested import in_a_row, of_row, rows_of

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
        >>> result = sg.minimize(lambda v: (1 - v[0])**2 + 100 * (v[1] - v[0]**2)**2, [-1.2, 1.0])
        >>> result.x.round(4)
        array([1., 1.])
        >>> x, y = np.arange(4.0), np.array([1.0, 3.0, 5.0, 7.0])
        >>> line = lambda p: np.sum((p["slope"] * x + p["level"] - y)**2)
        >>> result = sg.minimize(line, {"slope": 0.0, "level": 0.0}, bounds={"level": (0.0, None)})
        >>> round(float(result.x["slope"]), 4), round(float(result.x["level"]), 4)
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
        if isinstance(result, WholeArray):
            return result.reshape(()) if result.shape == (1,) else result
        values = array_of(result)
        return values[0] if np.shape(values) == (1,) else result

    return loss


def _with_args(function: Any, args: tuple[Any, ...]) -> Any:
    """A derivative of the user's own, which is given args after its other arguments."""
    return (lambda *given: function(*given, *args)) if callable(function) and args else function


def _hessian(kernel: Kernel) -> Callable[[Any], np.ndarray]:
    return lambda x: np.asarray(kernel.run(np.asarray(x, float))[2], float)


def nesting_of(x0: Any) -> tuple[Nesting, np.ndarray]:
    """How x0 is nested, and all its numbers in a row."""
    nested = in_a_row(x0, "x0")
    if nested is not None:
        return Nesting(nested[0]), nested[1]
    start = np.atleast_1d(real(x0, "x0"))
    return Nesting(Tree("array", start.shape)), start.ravel()


@dataclass(frozen=True)
class Nesting:
    """The tree of the user's variables, and what SciPy is given and returns in its place."""

    tree: Tree

    @property
    def is_row(self) -> bool:
        """Whether they are what SciPy takes."""
        return self.tree.is_leaf and len(self.tree.keys) == 1

    def nested(self, x: Any) -> Any:
        """All variables in a row as the user has them."""
        return self.tree.arrays(np.asarray(x))

    def function(self, f: Any, vectors: int = 1) -> Any:
        """A function of so many nested vectors as SciPy calls it; what is none, as it is."""
        if self.is_row or not callable(f):
            return f

        def of_row(*given: Any) -> Any:
            result: Any = f(*map(self.nested, given[:vectors]), *given[vectors:])
            nested = self.tree.is_nest(result) or np.shape(result) == self.tree.keys != ()
            return rows_of(self.tree, result, "what it returns") if nested else result

        return of_row

    def bounds(self, bounds: Any) -> Any:
        """Bounds of nested variables as SciPy's."""
        if self.is_row or bounds is None:
            return bounds
        box = bounds_of(bounds, self.tree)
        return scipy_optimize().Bounds(np.array(box.low), np.array(box.high))

    def constraints(self, given: Any) -> Any:
        """SciPy's constraints, or one of them, whose functions are the user's."""
        if isinstance(given, (list, tuple)):
            return [self.constraints(one) for one in given]
        if isinstance(given, dict):
            return {k: self.function(v) for k, v in given.items()}
        constraint = copy.copy(given)
        for name in {"fun", "jac", "hess"} & vars(given).keys():
            setattr(constraint, name, self.function(getattr(given, name)))
        return constraint

    def callback(self, given: Any) -> Callable[..., Any] | None:
        """The user's callback, with the signature by which SciPy knows what to call it with."""
        if self.is_row or given is None or not takes_result(given):
            return self.function(given)

        def on_result(intermediate_result: Any) -> Any:
            return given(intermediate_result=self.result(intermediate_result))

        return on_result

    def result(self, result: Any) -> Any:
        """SciPy's result, with the point and the gradient nested."""
        if self.is_row:
            return result
        sought = {k: result[k] for k in ("x", "jac", "grad") if k in result}
        shape = (self.tree.size,)
        nested = {k: self.nested(v) for k, v in sought.items() if np.shape(v) == shape}
        return type(result)({**result, **nested})
