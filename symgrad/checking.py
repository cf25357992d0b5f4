"""`check`: a kernel's values and gradients against SymPy, evaluated with 50 digits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import sympy as sp

from symgrad.errors import InputError
from symgrad.expr.expression import Expr
from symgrad.expr.node import Graph, reachable
from symgrad.expr.sympy_bridge import compile_sympy, to_sympy
from symgrad.kernels import Kernel

DIGITS = 50

LARGEST_TREE = 5_000
"""Nodes of a loss, written out as a tree, beyond which SymPy would take minutes."""


@dataclass(frozen=True)
class Line:
    """How well one output agrees: the largest difference over the points.

    ``absolute`` is |ours - exact|; ``relative`` is that over |exact|; ``ulp`` counts it in units
    in the last place of the kernel's dtype. ``point`` is where it is worst.
    """

    output: str
    absolute: float
    relative: float
    ulp: float
    point: int


@dataclass(frozen=True)
class Report:
    """What `check` found: one `Line` for each output, worst first when printed."""

    kernel: str
    points: int
    lines: tuple[Line, ...]

    @property
    def worst(self) -> Line:
        """The output with the largest relative difference."""
        return max(self.lines, key=lambda line: line.relative)

    def __str__(self) -> str:
        head = f"{self.kernel}: {self.points} points against SymPy with {DIGITS} digits"
        table = [f"{'output':16} {'absolute':>10} {'relative':>10} {'ULP':>10}  worst at point"]
        for line in sorted(self.lines, key=lambda line: -line.relative):
            table.append(
                f"{line.output:16} {line.absolute:10.2e} {line.relative:10.2e} {line.ulp:10.3g}"
                f"  {line.point}"
            )
        return "\n".join([head, *table])

    __repr__ = __str__


def check(kernel: Kernel, points: Any) -> Report:
    """Compare a kernel with SymPy: its value, differentiated by SymPy, evaluated with 50 digits.

    ``kernel`` is one of `fused_forward_backward`; ``points`` has shape (n,) or (B, n). The points
    are rounded to the kernel's dtype first, so that differences are those of the kernel alone.
    Where the exact value is NaN or infinite, the kernel's must be the same.

    Returns:
        A `Report`, which prints as a table: for the loss and each derivative the largest
        absolute and relative difference, and that in ULP.

    Raises:
        InputError: for another kind of kernel, or a loss too long for SymPy.

    Example:
        >>> import symgrad as sg
        >>> kernel = sg.fused_forward_backward(2, lambda v: sg.sin(v[0]) * v[1], device="cpu")
        >>> sg.check(kernel, [[0.5, 2.0], [1.0, 3.0]]).worst.relative < 1e-6
        True
    """
    if kernel.outputs != ("loss", "grad"):
        raise InputError("check compares kernels of sg.fused_forward_backward")
    values = np.atleast_2d(np.asarray(points, dtype=kernel.dtype))
    loss, grads = kernel.run(values)
    ours = np.concatenate([loss[:, None], grads], axis=1)
    root = kernel.expr[0]
    _require_short(root.graph, root.id)
    exact = _exact(root, kernel.inputs, values)
    names = ["loss", *[f"d/d{name}" for name in kernel.inputs]]
    lines = tuple(_line(name, ours[:, k], exact[:, k]) for k, name in enumerate(names))
    return Report(kernel.name, len(values), lines)


def _require_short(graph: Graph, root: int) -> None:
    """SymPy's expressions are trees: what is shared counts as often as it is used."""
    size: dict[int, int] = {}
    for i in reachable(graph, [root]):
        size[i] = 1 + sum(size[a] for a in graph.args(i))
    if size[root] > LARGEST_TREE:
        raise InputError(
            f"the loss, written out as a tree, has {size[root]:,} nodes, too many for SymPy: check "
            f"a smaller instance of it, of at most {LARGEST_TREE:,}"
        )


def _exact(loss: Expr, names: Sequence[str], points: np.ndarray) -> np.ndarray:
    """The values (B, 1 + n) by SymPy, rounded to double."""
    symbols = [sp.Symbol(name, real=True) for name in names]
    expression = to_sympy(loss, digits=60)
    outputs = [expression, *[sp.diff(expression, s) for s in symbols]]
    functions = [compile_sympy(o, symbols) for o in outputs]
    rows = [[_value(f, p) for f in functions] for p in points]
    return np.array(rows, dtype=np.float64)


def _value(function: Any, point: Sequence[float]) -> float:
    with mpmath.workdps(DIGITS):
        try:
            value = function(*[mpmath.mpf(float(v)) for v in point])
        except (ZeroDivisionError, ValueError):  # mpmath's poles and domains
            return float("nan")
        return float("nan") if isinstance(value, mpmath.mpc) and value.imag else float(value.real)


def _line(name: str, ours: np.ndarray, exact: np.ndarray) -> Line:
    """The largest differences of one output; equal infinities and NaN on both sides are none."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(ours.dtype)
        same = (ours == rounded) | (np.isnan(ours) & np.isnan(exact))
        absolute = np.where(same, 0.0, np.abs(ours.astype(np.float64) - exact))
        absolute = np.where(np.isnan(absolute), np.inf, absolute)
        relative = np.where(same, 0.0, absolute / np.abs(exact))
        ulp = np.where(same, 0.0, absolute / np.spacing(np.abs(rounded)).astype(np.float64))
    at = int(np.argmax(relative))
    return Line(name, float(absolute.max()), float(relative[at]), float(np.nanmax(ulp)), at)
