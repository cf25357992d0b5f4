"""Models of curves as modules, and as pages that fit them to data."""

from __future__ import annotations

import html
import inspect
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from symgrad.backend import SCRATCH
from symgrad.errors import InputError
from symgrad.expr.tracers.tree import tree_of
from symgrad.optimize.arguments import (
    bounds_of,
    in_order,
    parameters_of,
    real,
    require_of_one_x,
    require_taken,
    start_within,
)
from symgrad.optimize.least_squares import LevenbergMarquardt
from symgrad.optimize.result import MESSAGES
from symgrad.pipeline import VALUES, Options, build
from symgrad.report.kernel import Shaders
from symgrad.web.kernels import (
    MARK,
    Exported,
    Minimization,
    Steps,
    in_a_script,
    points_exported,
    text_of,
    write_files,
)

TRIED: Final = np.linspace(0.5, 2.0, 8)
"""Where a model is tried that comes without data."""

LARGEST_TABLE: Final = 100_000
"""Rows of data that a page brings along, at most."""

HEIGHT: Final = 780
"""Pixels of a page in a notebook."""


def export_js(
    f: Callable[..., Any],
    path: str | Path,
    p0: Any = None,
    *,
    method: Any = None,
    steps: int = 200,
    tol: Any = None,
    bounds: Any = None,
) -> None:
    """Write a model ``f(x, *parameters)`` as an ES module that fits it to curves by WebGPU.

    There ``run(points)`` gives the model's ``values`` at points (x, parameters) in a row, and
    ``minimize(starts, {data})`` fits all curves at once, as `fit_many` does: ``data`` are the rows
    (x, y) of each of them, one after another.

    Args:
        f: the model of one x, as for `curve_fit`.
        path: where it goes, ending in .mjs or .js; what symgrad wrote there is replaced.
        p0: where to start, of which only the length matters; None is as for `curve_fit`.
        method: as for `fit_many`.
        steps: the most steps.
        tol: as for `minimize_from`.
        bounds: as for `minimize_from`.

    Raises:
        InputError: for a file there that symgrad did not write. TraceError: if f cannot be traced.

    Example:
        >>> import tempfile, symgrad as sg
        >>> decay = lambda x, a, b: a * sg.exp(-b * x)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sg.export_js(decay, f"{folder}/decay.mjs")
    """
    p0, bounds = in_order(f, p0, bounds)
    model = _model(f, p0, bounds)
    model.exported(Steps(method or LevenbergMarquardt(), steps, tol, bounds), each=True).write(path)


def export_html(
    f: Callable[..., Any],
    path: str | Path,
    p0: Any = None,
    *,
    x: Any = None,
    y: Any = None,
    title: str | None = None,
    steps: int = 200,
    tol: Any = None,
    bounds: Any = None,
) -> Page:
    """Write a page that fits a model ``f(x, *parameters)`` to data in a browser, by WebGPU.

    It is a single file, which needs nothing else: sliders for the parameters, data that are pasted
    or dropped as CSV, a picture of the fit and its residuals that is drawn after every step, and
    the kernels to read. Where there is no WebGPU it says how to switch it on.

    Args:
        f: the model of one x, as for `curve_fit`.
        path: where it goes, ending in .html; a page that symgrad wrote there is replaced.
        p0: where to start; None is as for `curve_fit`.
        x: data to begin with, (M,); None for an example.
        y: the same.
        title: what stands above; the name of the model by default.
        steps: the most steps of Levenberg and Marquardt's method.
        tol: as for `minimize_from`.
        bounds: as for `minimize_from`; sliders go from bound to bound.

    Returns:
        Where it is; a notebook shows the page.

    Raises:
        InputError: for a file there that symgrad did not write, and data that do not fit.
        TraceError: if f cannot be traced.

    Example:
        >>> import tempfile, symgrad as sg
        >>> decay = lambda x, a, b: a * sg.exp(-b * x)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sg.export_html(decay, f"{folder}/decay.html", title="A decay")
        <symgrad page ...decay.html>
    """
    place = Path(path)
    if place.suffix not in (".html", ".htm"):
        raise InputError(f"{place}: the name of a page ends in .html")
    p0, bounds = in_order(f, p0, bounds)
    data = _columns(x, y)
    model = _model(f, p0, bounds, data[0])
    exported = model.exported(Steps(LevenbergMarquardt(), steps, tol, bounds))
    text = model.page(exported, title or model.name, _table(*data))
    write_files({place: text})
    return Page(place, text)


@dataclass(frozen=True)
class Page:
    """A page that was written; a notebook shows it."""

    path: Path
    text: str = field(repr=False)

    def __repr__(self) -> str:
        return f"<symgrad page {self.path}>"

    def _repr_html_(self) -> str:
        inner = html.escape(self.text)
        return f'<iframe srcdoc="{inner}" width="100%" height="{HEIGHT}" style="border:0"></iframe>'


@dataclass(frozen=True)
class _Model:
    """A model, its parameters' names, where they start, and between what they may be."""

    f: Callable[..., Any]
    names: Sequence[str]
    start: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def name(self) -> str:
        """The name of the model's function."""
        name = getattr(self.f, "__name__", "model")
        return name if name.isidentifier() else "model"

    def exported(self, by: Steps, each: bool = False) -> Exported:
        """Its values, and fits to rows of x and y: of ``each`` curve, or of one."""
        n, f, options = len(self.names), self.f, Options(self.name, budget=SCRATCH)
        built = build(lambda v: f(v[0], *v[1:]), 1 + n, VALUES, options, ["x", *self.names])
        shaders = Shaders(built.computation, options, f"{self.name}: the model's values")

        def residual(p: Any, row: Any) -> Any:
            value = f(row[0], *p)
            return value - row[1] if by.method.needs == "squares" else 0.5 * (value - row[1]) ** 2

        columns = {"own" if each else "shared": 2}
        fit = Minimization(residual, tree_of(n), by, replace(options, comments=False), **columns)
        return points_exported(shaders, ["x", *self.names], fit)

    def page(self, exported: Exported, title: str, data: str) -> str:
        """The page."""
        described = exported.description | {
            "page": {
                "names": list(self.names),
                "start": self.start.tolist(),
                "low": [v if math.isfinite(v) else None for v in self.low.tolist()],
                "high": [v if math.isfinite(v) else None for v in self.high.tolist()],
                "messages": {str(k): v for k, v in MESSAGES.items() if k},
                "data": data,
            }
        }
        parts = {
            "MARK": MARK,
            "TITLE": html.escape(title),
            "STYLE": text_of("page", "page.css"),
            "MODULE": in_a_script(replace(exported, description=described).javascript),
            "PAGE": text_of("page", "page.js"),
        }
        text = text_of("page", "page.html")
        return re.sub("@([A-Z]+)@", lambda match: parts[match[1]], text)


def _model(f: Callable[..., Any], p0: Any, bounds: Any, x: Any = ()) -> _Model:
    """A model with what is known of its parameters, which is of one x.

    Raises:
        InputError: for another number of parameters than it takes, and for a model of all of x.
    """
    n = parameters_of(f) if p0 is None else np.size(p0)
    require_taken(f, n)
    box = bounds_of(bounds, tree_of(n))
    low, high = np.asarray(box.low), np.asarray(box.high)
    start = start_within(low, high) if p0 is None else np.ravel(real(p0, "p0"))
    if np.any(start < low) or np.any(start > high):
        raise InputError("p0 is outside of the bounds")
    require_of_one_x(f, np.asarray(x) if len(x) > 1 else TRIED, start)
    return _Model(f, _names(f, n), start, low, high)


def _names(f: Callable[..., Any], n: int) -> list[str]:
    """The names of a model's parameters."""
    parameters = [*inspect.signature(f).parameters.values()][1:]
    plain = [p.name for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]
    return plain if len(plain) == n else [f"p{k}" for k in range(n)]


def _columns(x: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
    """Data that go with a page, each (M,)."""
    columns = real([] if x is None else x, "x"), real([] if y is None else y, "y")
    if any(c.ndim != 1 for c in columns) or len(columns[0]) != len(columns[1]):
        shapes = " and ".join(str(c.shape) for c in columns)
        raise InputError(f"x and y of shapes {shapes}: both (M,) are needed")
    if len(columns[0]) > LARGEST_TABLE:
        raise InputError(f"a page brings at most {LARGEST_TABLE:,} rows along: drop them there")
    return columns


def _table(x: np.ndarray, y: np.ndarray) -> str:
    """Data as the page reads them."""
    return "\n".join(f"{a:.9g}, {b:.9g}" for a, b in zip(x, y, strict=True))
