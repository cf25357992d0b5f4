"""`check`: a kernel on the devices of this machine against SymPy, evaluated with 50 digits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import sympy as sp

from symgrad import targets
from symgrad.errors import InputError
from symgrad.expr.array import array
from symgrad.expr.expression import Expr
from symgrad.expr.node import INPUT, Graph, reachable
from symgrad.expr.sympy_bridge import compile_sympy, to_sympy
from symgrad.expr.verbs import evaluate
from symgrad.fused import fused_forward_backward
from symgrad.kernels import Kernel, real_array

DIGITS = 50

WIDEST = 24
"""Characters of a device's name in a table."""

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
class Column:
    """The largest relative difference of each output on one device, in the order of the kernel."""

    device: str
    relative: tuple[float, ...]


@dataclass(frozen=True)
class Report:
    """What `check` found: one `Line` for each output, worst first when printed.

    ``columns`` has the relative differences of every device that was tried.
    """

    kernel: str
    points: int
    lines: tuple[Line, ...]
    columns: tuple[Column, ...] = ()

    @property
    def worst(self) -> Line:
        """The output with the largest relative difference."""
        return max(self.lines, key=lambda line: line.relative)

    def __str__(self) -> str:
        head = f"{self.kernel}: {self.points} points against SymPy with {DIGITS} digits"
        table = [f"{'output':16} {'absolute':>10} {'relative':>10} {'ULP':>10}  worst at point"]
        order = sorted(range(len(self.lines)), key=lambda k: -self.lines[k].relative)
        for line in [self.lines[k] for k in order]:
            table.append(
                f"{line.output:16} {line.absolute:10.2e} {line.relative:10.2e} {line.ulp:10.3g}"
                f"  {line.point}"
            )
        return "\n".join([head, *table, *self._device_table(order)])

    __repr__ = __str__

    def _device_table(self, order: Sequence[int]) -> list[str]:
        """The relative differences, an output a row and a device a column."""
        names = [column.device[:WIDEST] for column in self.columns]
        rows = [f"{'relative, on':16} " + "  ".join(f"{name:>8}" for name in names)]
        for k in order:
            cells = [f"{column.relative[k]:.2e}" for column in self.columns]
            shown = [c.rjust(max(8, len(n))) for c, n in zip(cells, names, strict=True)]
            rows.append(f"{self.lines[k].output:16} " + "  ".join(shown))
        return rows if names else []


def check(kernel: Kernel, points: Any, *, devices: Any = None) -> Report:
    """Compare a kernel with SymPy: its value, differentiated by SymPy, evaluated with 50 digits.

    ``kernel`` is one of `fused_forward_backward`; ``points`` has shape (n,) or (B, n). The points
    are rounded to the narrowest dtype among those compared, so that differences are those of the
    kernels alone. Where the exact value is NaN or infinite, the kernel's must be the same.
    ``devices`` says what else computes the same: None for the CPU and NumPy's interpreter in the
    kernel's dtype, "all" for every device of `symgrad.devices` and the CPU in float32 and float64,
    or a sequence of what ``device=`` takes.

    Returns:
        A `Report`, which prints as a table: for the loss and each derivative the largest
        absolute and relative difference, and that in ULP; below, the relative one by device.

    Raises:
        InputError: for another kind of kernel, or a loss too long for SymPy. DeviceError: for a
        device that is not there, or cannot compute in the kernel's dtype.

    Example:
        >>> import symgrad as sg
        >>> kernel = sg.fused_forward_backward(2, lambda v: sg.sin(v[0]) * v[1], device="cpu")
        >>> report = sg.check(kernel, [[0.5, 2.0], [1.0, 3.0]], devices="all")
        >>> report.worst.relative < 1e-6
        True
        >>> [column.device for column in report.columns][-3:]
        ['CPU float32', 'CPU float64', 'NumPy float32']
    """
    if kernel.outputs != ("loss", "grad"):
        raise InputError("check compares kernels of sg.fused_forward_backward")
    root = kernel.expr[0]
    _require_short(root.graph, root.id)
    others = _others(kernel, devices)
    narrowest = min((k.dtype for k in (kernel, *others.values())), key=lambda t: t.itemsize)
    values = np.atleast_2d(real_array(points, "points", kernel.n_inputs, str(narrowest)))
    exact = _exact(root, kernel.inputs, values)
    names = ["loss", *[f"d/d{name}" for name in kernel.inputs]]

    def lines(results: np.ndarray) -> tuple[Line, ...]:
        return tuple(_line(name, results[:, k], exact[:, k]) for k, name in enumerate(names))

    found = {label: lines(_results(k, values)) for label, k in others.items()}
    found[f"NumPy {kernel.dtype}"] = lines(_by_numpy(kernel, values))
    columns = [Column(label, tuple(x.relative for x in of)) for label, of in found.items()]
    return Report(kernel.name, len(values), lines(_results(kernel, values)), tuple(columns))


def _others(kernel: Kernel, chosen: Any) -> dict[str, Kernel]:
    """The kernel on the devices that it is to be compared on, by what a column is called."""
    if chosen is None:
        wanted = [(kernel.device, str(kernel.dtype)), (targets.choose("cpu"), str(kernel.dtype))]
    elif isinstance(chosen, str) and chosen == "all":
        gpus = [d for d in targets.devices() if d.is_gpu]
        cpu = targets.choose("cpu")
        wanted = [*[(d, "float32") for d in gpus], (cpu, "float32"), (cpu, "float64")]
    else:
        listed = [chosen] if isinstance(chosen, (str, int, targets.Device)) else chosen
        wanted = [(targets.choose(d), str(kernel.dtype)) for d in listed]
    return {_label(d, dtype): _on(kernel, d, dtype) for d, dtype in wanted}


def _label(device: targets.Device, dtype: str) -> str:
    return device.name if device.is_gpu else f"CPU {dtype}"


def _on(kernel: Kernel, device: targets.Device, dtype: str) -> Kernel:
    """The kernel on a device; in another dtype it is traced again from its loss."""
    if kernel.dtype == dtype:
        return kernel if device == kernel.device else kernel.to(device)
    return fused_forward_backward(
        kernel.n_inputs, _again(kernel.expr[0]), device=device, dtype=dtype, name=kernel.name,
        names=kernel.inputs,
    )  # fmt: skip


def _again(loss: Expr) -> Callable[[Any], Expr]:
    """A function that builds the loss anew, of the variables of another trace."""
    graph = loss.graph

    def function(v: Any) -> Expr:
        target, made = v[0].graph, {}
        for i in reachable(graph, [loss.id]):
            node = graph.nodes[i]
            if node[0] is INPUT:
                made[i] = v[node[1]].id
            else:
                args = [made[a] for a in graph.args(i)]
                made[i] = target.add(node[0], *args) if args else target.intern(node)
        return Expr(target, made[loss.id])

    return function


def _results(kernel: Kernel, values: np.ndarray) -> np.ndarray:
    """Loss and gradient, (B, 1 + n)."""
    loss, grads = kernel.run(values)
    return np.concatenate([loss[:, None], grads], axis=1)


def _by_numpy(kernel: Kernel, values: np.ndarray) -> np.ndarray:
    """Loss and gradient by the meaning of the expressions, before they are lowered."""
    loss, grads = kernel.expr
    given = dict(zip(kernel.inputs, values.astype(kernel.dtype).T, strict=True))
    return evaluate(array([loss, *grads]), given, kernel.dtype.type).T


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
