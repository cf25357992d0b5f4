"""Kernels of points and of rows as modules: their parts as data, with a minimisation if asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from symgrad.errors import InputError
from symgrad.kernel.launch import Launch
from symgrad.pipeline import Shaders
from symgrad.web.describe import Description, Sources, of_launch, of_points, of_sums
from symgrad.web.minimization import Minimization
from symgrad.web.module import Exported
from symgrad.wgsl.printing.emit import Style
from symgrad.wgsl.printing.reduce import Summation


@dataclass(frozen=True)
class SumOutput:
    """A result of sums over rows: a number if ``size`` is None, or so many numbers in a row.

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
    printed = shaders.layout, shaders.modules, shaders.tables
    points = of_points(shaders.computation, *printed, sources)
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
