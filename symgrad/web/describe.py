"""Kernels as data that a program in another language can run: sources, arrays, and their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from symgrad.kernel.launch import Dispatch, Launch
from symgrad.kernel.layout import Layout, grid_of
from symgrad.kernel.row_tile import ROWS_PER_BLOCK
from symgrad.kernel.shapes import Computation
from symgrad.kernel.statements import BOUND, Buffer
from symgrad.mathlib.define import functions
from symgrad.wgsl.printing.emit import Style
from symgrad.wgsl.printing.printer import print_kernel
from symgrad.wgsl.printing.reduce import Summation

Description = dict[str, Any]
"""Numbers, strings, None, and lists and dicts of them: what JSON holds."""

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
        """The same of several."""
        return [self.number(module) for module in modules]


def of_points(
    computation: Computation,
    layout: Layout,
    modules: Sequence[str],
    tables: Sequence[Sequence[float]],
    sources: Sources,
) -> Description:
    """A computation at every point of a batch: see `Layout` for its arrays."""
    columns = zip(computation.outputs, layout.outputs, strict=True)
    return {
        "modules": sources.numbers(modules),
        "inputs": layout.n_inputs,
        "outputs": [{"name": o.name, "columns": k} for o, k in columns],
        "tables": [list(table) for table in tables],
        "scratch": layout.scratch,
        "workgroup": layout.workgroup,
    }


def of_sums(modules: Sequence[Summation], columns: int, sources: Sources) -> Description:
    """Sums over rows of so many columns, by modules that look nothing up."""
    return {
        "columns": columns,
        "results": max(m.results.stop for m in modules),
        "each": ROWS_PER_BLOCK,
        "parts": [_part(m, sources) for m in modules],
    }


def _part(m: Summation, sources: Sources) -> Description:
    """A module, and where its numbers are: see `Summation`."""
    return {
        "module": sources.number(m.source),
        "results": [m.results.start, m.results.stop],
        "summed": list(m.summed),
        "fixed": list(m.fixed),
        "cells": list(m.cells or range(len(m.summed))),
        "head": m.head,
        "columns": m.columns,
        "most": m.most,
        "width": m.width,
        "readable": m.readable,
        "slots": m.slots,
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
    kernel, names = d.kernel, dict(d.arrays)
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
