"""Kernels as data that a program in another language can run: sources, arrays, and their sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from symgrad.errors import InputError
from symgrad.expr.derivatives.accumulate import Mode
from symgrad.expr.tracers.tree import Tree
from symgrad.kernel.launch import Dispatch, Launch
from symgrad.kernel.layout import WORKGROUPS_PER_ROW, grid_of
from symgrad.kernel.row_tile import ROWS_PER_BLOCK
from symgrad.kernel.shapes import Computation, Iteration
from symgrad.kernel.skeletons.transpose import TILE_SIDE
from symgrad.kernel.statements import BOUND, Buffer
from symgrad.mathlib.define import functions
from symgrad.optimize.arguments import bounds_of, require_method, tolerances_of, whole
from symgrad.optimize.device_states import results_of, states_from
from symgrad.optimize.evaluation import Accumulation
from symgrad.optimize.method import Method
from symgrad.optimize.minimize import MOST_STEPS
from symgrad.optimize.problem import Problem, needs_loss
from symgrad.optimize.states import Task
from symgrad.pipeline import Options
from symgrad.report.kernel import Shaders
from symgrad.web.module import Description, Exported
from symgrad.wgsl.dispatch.iteration import (
    MOST_SUMS,
    ROWS_PER_FLOAT_SUM,
    STEP_INVOCATIONS,
    Form,
    emit_iteration,
)
from symgrad.wgsl.dispatch.loop import transpose
from symgrad.wgsl.dispatch.summation import Summation
from symgrad.wgsl.dispatch.weights import iterations_of_loops, weights_of
from symgrad.wgsl.printing.printer import print_kernel, printed_map
from symgrad.wgsl.printing.source import Style

# --- points, sums over rows and launches ----------------------------------------------------------

NUMBER_BYTES = 4
"""Bytes of a number."""


class Sources:
    """WGSL modules, each once, by their numbers."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def number(self, module: str) -> int:
        """The number of a module, which is added where it is new."""
        if module not in self.texts:
            self.texts.append(module)
        return self.texts.index(module)

    def numbers(self, modules: Sequence[str]) -> list[int]:
        """The numbers of several modules."""
        return [self.number(module) for module in modules]


def of_points(computation: Computation, style: Style, sources: Sources) -> Description:
    """A computation at every point of a batch: see `symgrad.kernel.skeletons.map.map_launch`."""
    printed = printed_map(computation, style)
    return {
        "modules": sources.numbers(printed.modules),
        "inputs": len(computation.graph.names),
        "outputs": [{"name": o.name, "columns": len(o.nodes)} for o in computation.outputs],
        "tables": [list(table) for table in printed.tables],
        "scratch": -(-printed.slots // 4),
        "workgroup": printed.width,
    }


def of_sums(modules: Sequence[Summation], columns: int, sources: Sources) -> Description:
    """Sums over rows of ``columns`` columns, by modules that look nothing up."""
    return {
        "columns": columns,
        "results": max(m.program.results.numbers.stop for m in modules),
        "each": ROWS_PER_BLOCK,
        "parts": [_part(m, sources) for m in modules],
    }


def _part(m: Summation, sources: Sources) -> Description:
    """A module, and where its numbers are: see `Summation`."""
    r = m.program.results
    return {
        "module": sources.number(m.source),
        "results": [r.numbers.start, r.numbers.stop],
        "summed": list(r.summed),
        "fixed": list(r.fixed),
        "cells": list(r.cells or range(len(r.summed))),
        "head": r.head,
        "columns": r.columns,
        "most": m.program.most,
        "width": m.program.width,
        "readable": m.readable,
        "slots": m.printed.slots,
    }


def of_launch(launch: Launch, style: Style, sources: Sources) -> Description:
    """The dispatches of one call, on arrays of known sizes."""
    launch.verify()
    sizes = {a.name: a.size for a in launch.arrays}
    tables: list[list[float]] = []
    steps = [
        _dispatch(d, sizes, style, sources, tables) for d in launch.dispatches if d.number_of_groups
    ]
    groups = {"inputs": launch.inputs, "outputs": launch.outputs, "scratch": launch.scratch}
    arrays = {
        name: [{"name": a.name, "shape": a.shape, "kind": a.kind, "size": a.size} for a in group]
        for name, group in groups.items()
    }
    return {**arrays, "dispatches": steps, "tables": tables}


def _dispatch(
    d: Dispatch, sizes: dict[str, int], style: Style, sources: Sources, tables: list[list[float]]
) -> Description:
    """A dispatch: its modules, the arrays that it binds, and its grid."""
    kernel, names = d.kernel, d.names
    assert not d.parts, f"{kernel.name} is bound to a part of an array: a page binds whole ones"
    printed = print_kernel(kernel, functions(style.math), style, [f"// {kernel.name}"])
    bound = sorted((b for b in kernel.buffers if b.space in BOUND), key=lambda b: b.space)
    readable = sum(b.space == "read" for b in bound)
    groups = d.number_of_groups
    across, down = grid_of(groups) if d.target.grid else (groups, 1)

    def place(b: Buffer) -> Description:
        if b.data is None:
            name, unit = names[b.name], NUMBER_BYTES * b.vector
            return {"name": name, "size": -(-NUMBER_BYTES * sizes[name] // unit) * unit}
        tables.append(list(b.data))
        return {"table": len(tables) - 1}

    return {
        "modules": sources.numbers(printed.modules),
        "arrays": [place(b) for b in bound],
        "readable": readable,
        "writable": len(bound) - readable + (printed.slots > 0),
        "count": d.count,
        "words": d.words,
        "across": across,
        "down": down,
        "scratch": NUMBER_BYTES * printed.slots * across * down * d.target.width,
    }


# --- minimisations --------------------------------------------------------------------------------

ALONE, TOGETHER = Form(workgroup=False), Form(workgroup=True)


@dataclass(frozen=True)
class Steps:
    """The work of a method: at most ``steps`` steps; the rest is as for `minimize_from`."""

    method: Method
    steps: int = 1000
    tol: Any = None
    bounds: Any = None
    mode: Mode = "auto"


@dataclass(frozen=True)
class Minimization:
    """A loss of variables, and of rows if there are columns, with what is done to minimise it.

    Of a row's columns the first ``shared`` are the same for all starts, and each has its ``own``.
    """

    loss: Callable[..., Any]
    tree: Tree
    by: Steps
    options: Options
    shared: int = 0
    own: int = 0

    @cached_property
    def task(self) -> Task:
        """The task for each problem, done by a GPU's own loops."""
        by = self.by
        require_method(by.method)
        stop = tolerances_of(by.tol, by.method, "float32")
        count = whole(by.steps, "steps", 0, MOST_STEPS - 1)
        how = Accumulation(by.mode)
        problem = Problem(self.loss, self.tree.size, self.shared, self.own, 1.0, how)
        return Task(
            problem.rolled(self.options.rounding),
            by.method,
            bounds_of(by.bounds, self.tree),
            stop,
            self.options,
            count,
            blind=not needs_loss(by.method, stop),
            by_gpu=True,
        )

    def described(self, sources: Sources) -> Description:
        """The minimisation as data."""
        task = self.task
        first = task.stages[0][0]
        return {
            "inputs": task.problem.n,
            "state": task.layout.size,
            "shared": self.shared,
            "own": self.own,
            "width": STEP_INVOCATIONS,
            "block": ROWS_PER_FLOAT_SUM,
            "grid": WORKGROUPS_PER_ROW,
            "transpose": {"module": sources.number(transpose()), "tile": TILE_SIDE},
            "forms": {
                "alone": self._form(ALONE, sources),
                "together": self._form(TOGETHER, sources) if _fits_together(first) else None,
            },
        }

    def _form(self, form: Form, sources: Sources) -> Description:
        """The kernels of a form: what makes states, the stages, and what reads results."""
        task, by_columns = self.task, form.by_columns
        final = task.final if task.gathers else None
        n, size = task.problem.n, task.layout.size
        begin = states_from(n, tuple(task.first.tolist()), task.bounds)
        end = results_of(n, size, final)
        style, out = Style(comments=False, columns_out=by_columns), Style(comments=False)
        return {
            "spread": of_points(begin, style, sources),
            "gather": of_points(end, replace(out, columns_in=by_columns), sources),
            "stages": [_stage(it, steps, form, self.options, sources) for it, steps in task.stages],
        }


def _fits_together(iteration: Iteration) -> bool:
    """Whether a workgroup can have a problem for itself, to share its rows."""
    rows = iteration.rows
    return rows is not None and sum(len(o.nodes) for o in rows.outputs) <= MOST_SUMS


def _stage(
    iteration: Iteration, steps: int, form: Form, options: Options, sources: Sources
) -> Description:
    """Some steps of an iteration, and what a step costs, with its rows and without."""
    style = Style(options.math, title=f"{options.name}: steps")
    printed = emit_iteration(iteration, functions(options.math), form, style)
    weight, row_weight = weights_of(iteration)
    iterations, row_iterations = iterations_of_loops(iteration)
    return {
        "module": sources.number(printed.modules[0]),
        "slots": printed.slots,
        "steps": steps,
        "weight": weight,
        "row_weight": row_weight,
        "turns": iterations,
        "row_turns": row_iterations,
    }


# --- kernels --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SumOutput:
    """A result of sums over rows: a number if ``size`` is None, else ``size`` numbers.

    Sum ``sources[j]`` is its number ``places[j]``, and others are 0.
    """

    name: str
    size: int | None
    sources: Sequence[int]
    places: Sequence[int]


@dataclass(frozen=True)
class RowSums:
    """Sums over rows, and what a kernel returns of them.

    Rows read the parameters ``used`` of all. ``weight`` is the column of weights, if there is one.
    """

    modules: Sequence[Summation]
    columns: int
    parameters: int
    used: Sequence[int]
    outputs: Sequence[SumOutput]
    reduce: str
    weight: int | None


def points_exported(
    shaders: Shaders, names: Sequence[str], minimization: Minimization | None
) -> Exported:
    """A kernel of points."""
    require_float32(shaders.options.dtype)
    sources = Sources()
    points = of_points(shaders.computation, shaders.style, sources)
    kinds = {"points": points, "minimization": minimization}
    return _exported(shaders.options.name, names, "PointKernel", kinds, sources)


def rows_exported(
    name: str, names: Sequence[str], sums: RowSums, minimization: Minimization | None
) -> Exported:
    """A kernel of a loss over data."""
    sources = Sources()
    rows = of_sums(sums.modules, sums.columns, sources) | {
        "parameters": sums.parameters,
        "used": list(sums.used),
        "reduce": sums.reduce,
        "weight": sums.weight,
        "outputs": [
            {"name": o.name, "size": o.size, "from": [*o.sources], "to": [*map(int, o.places)]}
            for o in sums.outputs
        ],
    }
    return _exported(
        name, names, "RowKernel", {"rows": rows, "minimization": minimization}, sources
    )


def launch_exported(name: str, launch: Launch, style: Style) -> Exported:
    """A kernel of arrays whose shapes are known."""
    sources = Sources()
    names = [a.name for a in launch.inputs]
    parts = {"launch": of_launch(launch, style, sources)}
    return _exported(name, names, "LaunchKernel", parts, sources)


def _exported(
    name: str, names: Sequence[str], kind: str, parts: dict[str, Any], sources: Sources
) -> Exported:
    """The module of parts, of which a minimisation is yet to be described."""
    description: Description = {"name": name, "inputs": list(names)}
    for key, part in parts.items():
        if part is not None:
            is_minimization = isinstance(part, Minimization)
            description[key] = part.described(sources) if is_minimization else part
    kinds = f"{kind} & Minimizer" if parts.get("minimization") else kind
    return Exported(name, kinds, description, sources.texts)


def require_float32(dtype: str) -> None:
    """Refuse what no GPU computes.

    Raises:
        InputError: for another dtype.
    """
    if dtype != "float32":
        raise InputError(f'kernels of WebGPU compute in float32, not {dtype}: use dtype="float32"')
