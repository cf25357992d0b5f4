"""Minimisations from many starts as data: a method's steps, and what states begin and end as."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from symgrad.expr.derivatives.accumulate import Mode
from symgrad.expr.tracers.tree import Tree
from symgrad.kernel.layout import WORKGROUPS_PER_ROW
from symgrad.kernel.shapes import Computation, Iteration
from symgrad.kernel.skeletons.transpose import TILE_SIDE
from symgrad.mathlib.define import functions
from symgrad.optimize.arguments import bounds_of, require_method, tolerances_of, whole
from symgrad.optimize.device_states import results_of, states_from
from symgrad.optimize.evaluation import Accumulation
from symgrad.optimize.method import Method
from symgrad.optimize.minimize import MOST_STEPS
from symgrad.optimize.problem import Problem, needs_loss
from symgrad.optimize.states import Task
from symgrad.pipeline import Options
from symgrad.web.describe import Description, Sources, of_points
from symgrad.wgsl.dispatch.loop import transpose
from symgrad.wgsl.dispatch.weights import iterations_of_loops, weights_of
from symgrad.wgsl.printing.emit import Style
from symgrad.wgsl.printing.iterate import (
    MOST_SUMS,
    ROWS_PER_FLOAT_SUM,
    STEP_INVOCATIONS,
    Form,
    emit_iteration,
)
from symgrad.wgsl.printing.printer import print_map

ALONE, TOGETHER = Form(workgroup=False), Form(workgroup=True)


@dataclass(frozen=True)
class Steps:
    """What a method is to do: at most so many ``steps``; the rest is as for `minimize_from`."""

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
        """What is done for each problem by a GPU's own loops."""
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
            "spread": _points(begin, style, sources),
            "gather": _points(end, replace(out, columns_in=by_columns), sources),
            "stages": [_stage(it, steps, form, self.options, sources) for it, steps in task.stages],
        }


def _fits_together(iteration: Iteration) -> bool:
    """Whether a workgroup can have a problem for itself, to share its rows."""
    rows = iteration.rows
    return rows is not None and sum(len(o.nodes) for o in rows.outputs) <= MOST_SUMS


def _points(computation: Computation, style: Style, sources: Sources) -> Description:
    printed = print_map(computation, functions(style.math), style)
    return of_points(
        computation, printed.layout(computation), printed.modules, printed.tables, sources
    )


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
