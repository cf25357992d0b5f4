"""Minimisations of the loss of a kernel of points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from symgrad.errors import InputError
from symgrad.expr.tracers.array import array
from symgrad.expr.tracers.expression import Expr
from symgrad.expr.tracing.trace import replay
from symgrad.optimize.arguments import require_method
from symgrad.optimize.method import Method
from symgrad.optimize.minimize import minimize_from


def minimize_kernel(
    kernel: Any, starts: Any, method: Method, steps: int = 1000, tol: Any = None, **options: Any
) -> Any:
    """Minimise a kernel's loss from every start; for "squares", its values are the residuals.

    The device and the dtype are the kernel's; ``options`` are more of `minimize_from`.

    Example:
        >>> import symgrad as sg
        >>> from symgrad.optimize.over_points import minimize_kernel
        >>> kernel = sg.fused_forward_backward(1, lambda v: (v[0] - 2)**2, device="cpu")
        >>> minimize_kernel(kernel, [[0.0]], sg.Newton(), 5).x
        array([[2.]], dtype=float32)
    """
    f, where = minimized(kernel, method), {"device": kernel.device, "dtype": kernel.precision}
    return minimize_from(f, kernel.tree, starts, method, steps, tol, **(where | options))


def minimized(kernel: Any, method: Method) -> Callable[[Any], Any]:
    """The function of a kernel that a method minimises, as one that can be traced.

    Raises:
        InputError: for a loss, of a method that minimises squares.
    """
    require_method(method)
    if method.needs == "squares" and kernel.outputs[0] == "loss":
        raise InputError(
            f"{type(method).__name__} minimises squares, and {kernel.name} is a loss: give it "
            "residuals, by sg.fused_jacobian, sg.fused_least_squares (of rows of data), "
            "sg.fit_many or sg.minimize_from; or use sg.LBFGS() or sg.Newton()"
        )
    return retraced(kernel)


def retraced(kernel: Any) -> Callable[[Any], Any]:
    """The first result of a kernel as a function, of its variables, that can be traced again."""
    expr = kernel.expr
    first = expr if len(kernel.outputs) == 1 else expr[0]
    roots = [first] if isinstance(first, Expr) else [*first]
    ids = [r.id for r in roots]

    def again(x: Any, *rows: Any) -> Any:
        v = [e for part in (*kernel.tree.parts(x, "x"), *rows) for e in np.ravel(array(part))]
        values = replay(roots[0].graph, ids, v)
        return values[0] if isinstance(first, Expr) else values

    again.__name__ = kernel.name
    return again
