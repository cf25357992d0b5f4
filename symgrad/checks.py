"""`check`: a kernel on the devices of this machine against SymPy, evaluated with 50 digits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
import sympy as sp

from symgrad import targets
from symgrad.backend import backend_of
from symgrad.errors import InputError, InputTypeError
from symgrad.expr.calls.sympy_bridge import compile_sympy, to_sympy
from symgrad.expr.calls.verbs import evaluate
from symgrad.expr.graph.node import Graph, inputs_of, reachable
from symgrad.expr.graph.rebuild import Copy, rebuild
from symgrad.expr.tracers.array import array
from symgrad.expr.tracers.expression import Expr
from symgrad.front.fused import fused_forward_backward
from symgrad.front.kernels import Kernel
from symgrad.pipeline import DTypeName
from symgrad.report.progress import Asked, reporting
from symgrad.rows.kernel import DataKernel, retraced

DIGITS = 50

NAME_CHARACTERS = 24
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
    """The result of `check`: one `Line` for each output, worst first when printed.

    ``columns`` has the relative differences of every device that was tried; ``unit`` is "points",
    or "rows" of a table whose sums are one point.

    Example:
        >>> import symgrad as sg
        >>> kernel = sg.fused_forward_backward(1, lambda v: v[0]**2, device="cpu")
        >>> report = sg.check(kernel, [[3.0], [0.5]])
        >>> report.points, report.worst.ulp
        (2, 0.0)
    """

    kernel: str
    points: int
    lines: tuple[Line, ...]
    columns: tuple[Column, ...] = ()
    unit: str = "points"

    @property
    def worst(self) -> Line:
        """The output with the largest relative difference."""
        return max(self.lines, key=lambda line: line.relative)

    def __str__(self) -> str:
        head = f"{self.kernel}: {self.points} {self.unit} against SymPy with {DIGITS} digits"
        where = "  worst at point" if self.unit == "points" else ""
        title = f"{'output':16} {'absolute':>10} {'relative':>10} {'ULP':>10}{where}"
        order = sorted(range(len(self.lines)), key=lambda k: -self.lines[k].relative)
        table = [
            f"{line.output:16} {line.absolute:10.2e} {line.relative:10.2e} {line.ulp:10.3g}"
            + (f"  {line.point}" if where else "")
            for line in (self.lines[k] for k in order)
        ]
        return "\n".join([head, title, *table, *self._device_table(order)])

    __repr__ = __str__

    def _device_table(self, order: Sequence[int]) -> list[str]:
        """The relative differences, an output a row and a device a column."""
        names = [column.device[:NAME_CHARACTERS] for column in self.columns]
        rows = [f"{'relative, on':16} " + "  ".join(f"{name:>8}" for name in names)]
        for k in order:
            cells = [f"{column.relative[k]:.2e}" for column in self.columns]
            shown = [c.rjust(max(8, len(n))) for c, n in zip(cells, names, strict=True)]
            rows.append(f"{self.lines[k].output:16} " + "  ".join(shown))
        return rows if names else []


def check(
    kernel: Any, points: Any, rows: Any = None, *, devices: Any = None, progress: Asked = False
) -> Report:
    """Compare a kernel with SymPy: its value, differentiated by SymPy, evaluated with 50 digits.

    ``kernel`` is one of `fused_forward_backward`; ``points`` has shape (n,) or (B, n). Of a kernel
    over data, ``points`` are the parameters and ``rows`` a small table: SymPy sums up its rows one
    by one. The numbers are rounded to the narrowest dtype among those compared, so that differences
    are those of the kernels alone. Where the exact value is NaN or infinite, the kernel's must be
    the same. ``devices`` says what else computes the same: None for the CPU and NumPy's interpreter
    in the kernel's dtype, "all" for every device of `symgrad.devices` and the CPU in float32 and
    float64, or a sequence of what ``device=`` takes. ``progress`` is as for `DataKernel.run`.

    Returns:
        A `Report`, which prints as a table: for the loss and each derivative the largest
        absolute and relative difference, and that in ULP; below, the relative one by device.

    Raises:
        InputError: for another kind of kernel, no points, or a loss too long for SymPy.
        InputTypeError: for what is no kernel. DeviceError: for a device that is not there, or
        cannot compute in the kernel's dtype.

    Example:
        >>> import symgrad as sg
        >>> kernel = sg.fused_forward_backward(2, lambda v: sg.sin(v[0]) * v[1], device="cpu")
        >>> report = sg.check(kernel, [[0.5, 2.0], [1.0, 3.0]], devices="all")
        >>> report.worst.relative < 1e-6
        True
        >>> [column.device for column in report.columns][-3:]
        ['CPU float32', 'CPU float64', 'NumPy float32']
    """
    _require_kernel(kernel, rows)
    root = kernel.expr[0]
    _require_short(root.graph, root.id)
    others = _others(kernel, devices)
    narrowest = min((k.dtype for k in (kernel, *others.values())), key=lambda t: t.itemsize)
    case = (
        AtPoints(kernel, points, narrowest)
        if rows is None
        else AtRows(kernel, points, rows, narrowest)
    )
    if not case.count:
        raise InputError("check needs at least one point, or row")
    with reporting(progress, case.unit, case.count) as report:
        exact = case.exact(report)

    def lines(results: np.ndarray) -> tuple[Line, ...]:
        return tuple(_line(name, results[:, k], exact[:, k]) for k, name in enumerate(case.names))

    by_label = {label: lines(case.results(k)) for label, k in others.items()}
    by_label[f"NumPy {kernel.dtype}"] = lines(case.by_numpy())
    columns = [Column(label, tuple(x.relative for x in of)) for label, of in by_label.items()]
    mine = lines(case.results(kernel))
    return Report(kernel.name, case.count, mine, tuple(columns), case.unit)


def _require_kernel(kernel: Any, rows: Any) -> None:
    """Refuse what is no kernel of a loss and its gradient, or lacks its rows, or has too many."""
    if not isinstance(kernel, (Kernel, DataKernel)):
        raise InputTypeError(f"check compares kernels with SymPy; {kernel!r} is not a kernel")
    if kernel.outputs != ("loss", "grad"):
        raise InputError("check compares kernels of sg.fused_forward_backward")
    if isinstance(kernel, DataKernel) and kernel.request.reduce is None:
        raise InputError("check compares sums over rows: make the kernel with reduce='sum'")
    if isinstance(kernel, DataKernel) and kernel.request.penalty is not None:
        raise InputError("check compares kernels without a regularizer: make the kernel without it")
    if (rows is None) is isinstance(kernel, DataKernel):
        wanted = "check(kernel, params, rows)" if rows is None else "check(kernel, points)"
        raise InputError(f"{kernel.name} is checked by {wanted}")


class AtPoints:
    """A kernel at points: what is compared, each as an array (B, 1 + n) of loss and gradient."""

    unit = "points"

    def __init__(self, kernel: Kernel, points: Any, dtype: np.dtype[Any]) -> None:
        self._kernel = kernel
        self._values = np.atleast_2d(kernel.in_a_row(points, "points")).astype(dtype)
        if self._values.ndim > 2:
            raise InputError(f"points has shape {self._values.shape}: (B, {kernel.n_inputs})")
        self.count = len(self._values)
        self.names = ["loss", *[f"d/d{name}" for name in kernel.inputs]]

    def exact(self, report: Callable[[int], None]) -> np.ndarray:
        """By SymPy, rounded to double."""
        names = self._kernel.inputs
        return _exact(self._kernel.expr[0], names, names, self._values, report).astype(float)

    def results(self, kernel: Kernel) -> np.ndarray:
        """By the kernel, or the same one elsewhere."""
        loss, grads = kernel.run(self._values)
        return np.concatenate([loss[:, None], kernel.in_a_row(grads)], axis=1)

    def by_numpy(self) -> np.ndarray:
        """By the meaning of the expressions, before they are lowered."""
        loss, grads = self._kernel.expr
        dtype = self._kernel.dtype
        inputs = dict(zip(self._kernel.inputs, self._values.astype(dtype).T, strict=True))
        return evaluate(array([loss, *grads]), inputs, dtype.type).T


class AtRows:
    """A kernel over data: as `AtPoints`, but all rows give one line of sums, (1, 1 + n)."""

    unit = "rows"

    def __init__(self, kernel: DataKernel, params: Any, rows: Any, dtype: np.dtype[Any]) -> None:
        self._kernel = kernel
        self._rows = kernel.at_rows(params, rows, dtype)
        self.count = len(self._rows)
        self.names = ["loss", *[f"d/d{name}" for name in kernel.parameters]]

    def _summed(self, values: np.ndarray) -> np.ndarray:
        """The sums or means of what each row has, (N, 1 + wrt)."""
        slopes = self._rows.summed(values[:, 1:])
        return np.concatenate([[values[:, 0].sum()], slopes])[None] / self._rows.divisor

    def exact(self, report: Callable[[int], None]) -> np.ndarray:
        """By SymPy: each row's values with 50 digits, and their sums too."""
        loss, slopes = self._kernel.expr
        names = loss.graph.names
        with mpmath.workdps(DIGITS):
            values = _exact(loss, names, list(slopes), self._rows[:], report)
            return self._summed(values).astype(np.float64)

    def results(self, kernel: DataKernel) -> np.ndarray:
        """By the kernel, or the same one elsewhere, in its dtype."""
        loss, grads = kernel.run(self._rows.flat, self._rows.table())
        return np.concatenate([[loss], kernel.in_a_row(grads)])[None].astype(kernel.dtype)

    def by_numpy(self) -> np.ndarray:
        """By the meaning of the expressions at each row, summed in float64."""
        loss, slopes = self._kernel.expr
        dtype = self._kernel.dtype
        inputs = dict(zip(loss.graph.names, self._rows[:].astype(dtype).T, strict=True))
        values = evaluate(array([loss, *slopes.values()]), inputs, dtype.type)
        return self._summed(values.T.astype(np.float64)).astype(dtype)


def _others(kernel: Any, chosen: Any) -> dict[str, Any]:
    """The kernel on the devices that it is to be compared on, by what a column is called."""
    dtype = kernel.precision
    wanted: list[tuple[targets.Device, DTypeName]]
    if chosen is None:
        wanted = [(kernel.device, dtype), (targets.choose("cpu"), dtype)]
    elif isinstance(chosen, str) and chosen == "all":
        gpus = [d for d in targets.devices() if not backend_of(d).on_host]
        cpu = targets.choose("cpu")
        wanted = [*[(d, "float32") for d in gpus], (cpu, "float32"), (cpu, "float64")]
    else:
        listed: Any = [chosen] if isinstance(chosen, (str, int, targets.Device)) else chosen
        wanted = [(targets.choose(d), dtype) for d in listed]
    return {_label(d, dtype): _on(kernel, d, dtype) for d, dtype in wanted}


def _label(device: targets.Device, dtype: DTypeName) -> str:
    return f"CPU {dtype}" if backend_of(device).on_host else device.name


def _on(kernel: Any, device: targets.Device, dtype: DTypeName) -> Any:
    """The kernel on a device; in another dtype it is traced again from its loss."""
    if kernel.precision == dtype:
        return kernel if device == kernel.device else kernel.to(device)
    if isinstance(kernel, DataKernel):
        return retraced(kernel, device, dtype)
    return fused_forward_backward(
        kernel.n_inputs,
        _again(kernel.expr[0]),
        device=device,
        dtype=dtype,
        name=kernel.name,
        names=kernel.inputs,
    )


def _again(loss: Expr) -> Callable[[Any], Expr]:
    """A function that builds the loss anew, of the variables of another trace."""
    graph = loss.graph

    def function(v: Any) -> Expr:
        copy = Copy(v[0].graph, {i: v[graph.nodes[i][1]].id for i in inputs_of(graph)})
        rebuild(graph, reachable(graph, [loss.id]), copy)
        return Expr(copy.graph, copy.ids[loss.id])

    return function


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


def _exact(
    loss: Expr,
    names: Sequence[str],
    wrt: Sequence[str],
    points: np.ndarray,
    report: Callable[[int], None],
) -> np.ndarray:
    """The values (B, 1 + wrt) by SymPy, as mpmath's numbers."""
    symbols = {name: sp.Symbol(name, real=True) for name in names}
    expression = to_sympy(loss, digits=60)
    outputs = [expression, *[sp.diff(expression, symbols[name]) for name in wrt]]
    functions = [compile_sympy(o, list(symbols.values())) for o in outputs]
    results = np.empty((len(points), len(functions)), object)
    for k, point in enumerate(points):
        results[k] = [_value(f, point) for f in functions]
        report(k + 1)
    return results


def _value(function: Any, point: Sequence[float]) -> Any:
    with mpmath.workdps(DIGITS):
        try:
            value = mpmath.mpmathify(function(*[mpmath.mpf(float(v)) for v in point]))
        except (ZeroDivisionError, ValueError):  # mpmath's poles and domains
            return mpmath.nan
        return mpmath.nan if isinstance(value, mpmath.mpc) and value.imag else value.real


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
