"""Kernels as data that a program in another language can run: sources, arrays, and their sizes."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, cached_property
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from symgrad.errors import InputError
from symgrad.expr.derivatives.accumulate import Mode
from symgrad.expr.tracers.tree import Tree
from symgrad.kernel.language.statements import Buffer
from symgrad.kernel.language.target import WorkgroupTarget
from symgrad.kernel.launch import BATCH, Array, Dispatch, Launch, Size
from symgrad.kernel.shapes import Computation, Iteration
from symgrad.kernel.skeletons.map import map_launch
from symgrad.kernel.skeletons.row_tile import ROWS_PER_BLOCK
from symgrad.kernel.skeletons.steps import TILE_SIDE, iterate_launch, transpose_program
from symgrad.mathlib.pair.expression import parts
from symgrad.optimize.arguments import bounds_of, require_method, tolerances_of, whole
from symgrad.optimize.method import Accumulation, Method
from symgrad.optimize.problem import Problem, needs_loss
from symgrad.optimize.starts import MOST_STEPS
from symgrad.optimize.states import Task, results_of, states_from
from symgrad.pipeline import Options
from symgrad.report.kernel import Shaders
from symgrad.values.arrays import memory_dtype
from symgrad.wgsl.dispatch.compiled import MOST_SUMS, printed_kernel, steps_target, sums_of
from symgrad.wgsl.dispatch.sums import Summation
from symgrad.wgsl.dispatch.until import TRANSPOSING, printed_transpose
from symgrad.wgsl.printing.source import Printed, Style

# --- ES modules -----------------------------------------------------------------------------------
# Kernels as ES modules without dependencies, and what TypeScript is to know of them.

MARK: Final = "Written by symgrad"
"""The mark near the beginning of every file that symgrad writes."""

BEGINNING: Final = 400
"""Characters of a file among which the mark is looked for."""


def write_files(texts: dict[Path, str]) -> None:
    """Write texts, all of them or none: each has the mark near its beginning.

    Raises:
        InputError: if there is no such folder, or a file there that symgrad did not write.
    """
    for path, text in texts.items():
        assert MARK in text[:BEGINNING], "a file of symgrad's says so"
        if path.is_dir() or not path.parent.is_dir():
            raise InputError(
                f"{path} is a folder: name a file in it"
                if path.is_dir()
                else f"{path}: there is no folder {path.parent}"
            )
        if path.exists() and not _is_ours(path):
            raise InputError(
                f"{path} exists and was not written by symgrad: choose another name, or move it"
            )
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8", newline="\n")


def _is_ours(path: Path) -> bool:
    """Whether a file bears the mark."""
    with path.open(encoding="utf-8", errors="replace") as file:
        return MARK in file.read(BEGINNING)


Description = dict[str, Any]
"""Numbers, strings, None, and lists and dicts of them, as JSON holds them."""

MODULES: Final = ".mjs", ".js"
"""The suffixes of ES modules."""

PARTS: Final = {
    "points": ("launch", "points"),
    "rows": ("launch", "rows"),
    "minimization": ("launch", "points", "minimize"),
    "launch": ("launch", "arrays"),
}
"""The files of the runtime that each part of a description needs beside ``gpu``."""


@dataclass(frozen=True)
class Exported:
    """A kernel as data, with its sources: ``kind`` is its interface in ``types.d.ts``."""

    title: str
    kind: str
    description: Description
    sources: Sequence[str]

    @property
    def javascript(self) -> str:
        """The ES module."""
        return "\n".join(
            [
                f"// {MARK}: {self.title}.",
                "//",
                "// const kernel = await create(await requestDevice());",
                "// What is called how, and gives what, says the file of types beside it.",
                "",
                *(text_of("runtime", name) for name in self._parts),
                f"const description = {json.dumps(self.description, indent=1, allow_nan=True)};",
                "",
                "/** The sources of the kernel. */",
                f"export const wgsl = [{','.join(map(literal, self.sources))}];",
                "",
                "/** The kernel on a device. */",
                "export const create = (device) => open(device, description, wgsl);",
                "",
            ]
        )

    @property
    def typescript(self) -> str:
        """The declarations of the module's types."""
        return "\n".join(
            [
                f"// {MARK}: {self.title}.",
                "",
                text_of("runtime", "types.d.ts"),
                "/** The sources of the kernel. */",
                "export const wgsl: string[];",
                "",
                "/** The kernel on a device. */",
                f"export function create(device: GPUDevice): Promise<{self.kind}>;",
                "",
            ]
        )

    def write(self, path: str | Path) -> None:
        """Write the module, and the file of its types beside it.

        Raises:
            InputError: for a name that does not end in .mjs or .js, and as `write_files` does.
        """
        place = Path(path)
        if place.suffix not in MODULES:
            raise InputError(f"{place}: the name of a module ends in {' or '.join(MODULES)}")
        types = place.with_suffix(".d.mts" if place.suffix == ".mjs" else ".d.ts")
        write_files({place: self.javascript, types: self.typescript})

    @property
    def _parts(self) -> list[str]:
        """The files of the runtime, in their order."""
        parts = [part for name in self.description for part in PARTS.get(name, ())]
        return [f"{name}.js" for name in dict.fromkeys(["gpu", *parts, "open"])]


def literal(text: str) -> str:
    """A text as a template of JavaScript, which can be read."""
    return "`" + re.sub(r"[\\`]|\$(?=\{)", r"\\\g<0>", text) + "`"


def in_a_script(javascript: str) -> str:
    """A program as it may stand in a page: nothing in its texts ends or begins a script there."""
    return re.sub(r"<(?=/script|!--|script)", r"\\x3c", javascript, flags=re.IGNORECASE)


@cache
def text_of(folder: str, name: str) -> str:
    """A file that lies in the package."""
    return files("symgrad.web").joinpath(folder, name).read_text("utf-8")


# --- points, sums over rows and launches ----------------------------------------------------------


class Sources:
    """Texts, or tables of numbers, each once, by their numbers."""

    def __init__(self) -> None:
        self.texts: list[Any] = []

    def number(self, text: Any) -> int:
        """The number of a text, which is added where it is new."""
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text)

    def numbers(self, texts: Sequence[Any]) -> list[int]:
        """The numbers of several texts."""
        return [*map(self.number, texts)]


def words(dtype: str) -> int:
    """How many float32 of a page a number of a dtype is."""
    return memory_dtype(dtype).itemsize // 4


def of_points(computation: Computation, style: Style, sources: Sources) -> Description:
    """A computation at every point of a batch: see `symgrad.kernel.skeletons.map.map_launch`."""
    target = WorkgroupTarget(computation.workgroup)
    launch = map_launch(computation, target, style.columns_in, style.columns_out)
    described = of_launch(launch, style, sources)
    for array in (*described["inputs"], *described["outputs"]):
        array["size"] *= words(style.dtype)
    return described


def of_sums(
    modules: Sequence[Summation], columns: int, sources: Sources, dtype: str
) -> Description:
    """Sums over rows of ``columns`` columns, by modules that look nothing up.

    The rows are the batch, and of each module the caller says how many groups it has.
    """
    tables = Sources()
    dispatches = [_sum(m, k, sources, tables, dtype) for k, m in enumerate(modules)]
    return {
        "pairs": dtype == "float32x2",
        "columns": columns * words(dtype),
        "results": max(m.program.results.numbers.stop for m in modules),
        "each": ROWS_PER_BLOCK,
        "parts": [_part(m, dtype) for m in modules],
        "launch": {"dispatches": dispatches, "tables": tables.texts},
    }


def _sum(m: Summation, number: int, sources: Sources, tables: Sources, dtype: str) -> Description:
    """The dispatch of a module, of which there are so many before it."""
    arrays = ("rows", "rows"), ("parameters", "parameters"), ("partials", f"partials{number}")
    groups = Size(f"groups{number}")
    dispatch = Dispatch(m.program, m.program.target, arrays, BATCH, groups)
    return _dispatch(dispatch, m.printed, sources, tables, dtype)


def _part(m: Summation, dtype: str) -> Description:
    """Where the numbers of a module are: see `Summation`."""
    r = m.program.results
    return {
        "results": [r.numbers.start, r.numbers.stop],
        "summed": list(r.summed),
        "fixed": list(r.fixed),
        "cells": list(r.cells or range(len(r.summed))),
        "head": r.head,
        "columns": r.columns,
        "most": m.program.most,
        "width": m.program.width,
        "slots": m.printed.slots * words(dtype),
    }


def of_launch(launch: Launch, style: Style, sources: Sources) -> Description:
    """The arrays and the dispatches of one call; sizes that the call gives are their names."""
    launch.verify()
    tables = Sources()
    dispatches = [
        _dispatch(d, printed_kernel(d, style), sources, tables, style.dtype)
        for d in launch.dispatches
        if isinstance(d.count, Size) or d.number_of_groups
    ]
    groups = {"inputs": launch.inputs, "outputs": launch.outputs, "scratch": launch.scratch}
    arrays = {name: [_array(a) for a in group] for name, group in groups.items()}
    repeated = {"until": asdict(launch.until)} if launch.until else {}
    numbers = {"pairs": True} if style.dtype == "float32x2" else {}
    return {**arrays, **numbers, **repeated, "dispatches": dispatches, "tables": tables.texts}


def _array(a: Array) -> Description:
    return {"name": a.name, "shape": [*map(_length, a.shape)], "kind": a.kind, "size": a.size}


def _length(n: int | Size) -> int | str:
    """A number, or the name by which the call gives it."""
    return n.name if isinstance(n, Size) else n


def _dispatch(
    d: Dispatch, printed: Printed, sources: Sources, tables: Sources, dtype: str
) -> Description:
    """A dispatch: its modules, the arrays that it binds, and its groups, counted in float32."""
    kernel, names = d.kernel, d.names
    assert not d.parts, f"{kernel.name} is bound to a part of an array: a page binds whole ones"
    arguments = dict(d.arguments)

    def place(b: Buffer) -> Description:
        if b.data is None:
            return {"name": names[b.name]}
        numbers = b.data if words(dtype) == 1 else [n for x in b.data for n in parts(x)]
        return {"table": tables.number(numbers)}

    readable = sum(b.space == "read" for b in printed.bound)
    return {
        "modules": sources.numbers(printed.modules),
        "arrays": [place(b) for b in printed.bound],
        "readable": readable,
        "writable": len(printed.bound) - readable + (printed.slots > 0),
        "count": _length(d.count),
        "groups": _length(d.groups),
        "words": [_length(arguments[name]) for name in kernel.arguments.values()],
        "width": printed.width,
        "slots": printed.slots * words(dtype),
    }


# --- minimisations --------------------------------------------------------------------------------


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
        stop = tolerances_of(by.tol, by.method, self.options.dtype)
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
            "pairs": self.options.dtype == "float32x2",
            "inputs": task.problem.n,
            "state": task.layout.size,
            "shared": self.shared,
            "own": self.own,
            "transpose": _transpose(sources, self.options.dtype),
            "forms": {
                "alone": self._form(False, sources),
                "together": self._form(True, sources) if _fits_together(first) else None,
            },
        }

    def _form(self, together: bool, sources: Sources) -> Description:
        """The launches of a form: what makes states, the stages, and what reads results."""
        task, options = self.task, self.options
        stages = [
            (iterate_launch(step, steps_target(step, together)), steps)
            for step, steps in task.stages
        ]
        by_columns = stages[0][0].outputs[0].by_columns
        final = task.final if task.gathers else None
        n, size = task.problem.n, task.layout.size
        begin = states_from(n, tuple(task.first.tolist()), task.bounds, options.dtype)
        end = results_of(n, size, final)
        plain = Style(comments=False, dtype=options.dtype)
        how = Style(options.math, title=f"{options.name}: steps", dtype=options.dtype)
        return {
            "spread": of_points(begin, replace(plain, columns_out=by_columns), sources),
            "gather": of_points(end, replace(plain, columns_in=by_columns), sources),
            "stages": [
                {"launch": of_launch(launch, how, sources), "steps": steps}
                for launch, steps in stages
            ],
        }


def _fits_together(iteration: Iteration) -> bool:
    """Whether a workgroup can have a problem for itself, to share its rows."""
    return iteration.rows is not None and sums_of(iteration) <= MOST_SUMS


def _transpose(sources: Sources, dtype: str) -> Description:
    """The dispatch that transposes x (batch, columns), by so many tiles."""
    tables, arrays = Sources(), (("x", "x"), ("y", "y"))
    columns = (("columns", Size("columns")),)
    dispatch = Dispatch(transpose_program, TRANSPOSING, arrays, BATCH, Size("tiles"), columns)
    described = _dispatch(dispatch, printed_transpose(dtype), sources, tables, dtype)
    return {"launch": {"dispatches": [described], "tables": tables.texts}, "tile": TILE_SIDE}


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
    require_exported(shaders.options.dtype)
    sources = Sources()
    points = of_points(shaders.computation, shaders.style, sources)
    kinds = {"points": points, "minimization": minimization}
    return _exported(shaders.options.name, names, "PointKernel", kinds, sources)


def rows_exported(
    name: str,
    names: Sequence[str],
    sums: RowSums,
    minimization: Minimization | None,
    dtype: str = "float32",
) -> Exported:
    """A kernel of a loss over data."""
    require_exported(dtype)
    sources = Sources()
    rows = of_sums(sums.modules, sums.columns, sources, dtype) | {
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


def require_exported(dtype: str) -> None:
    """Refuse what pages do not compute.

    Raises:
        InputError: for another dtype than float32 and float32x2.
    """
    if dtype == "float64":
        raise InputError(
            'kernels of WebGPU compute in float32 and float32x2, not float64: use dtype="float32x2"'
        )
