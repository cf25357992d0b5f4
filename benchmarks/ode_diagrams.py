"""Work-precision diagrams: the error of a solution beside the time of the call that gives it.

A panel for each stiff problem of the test set, and for each class of DETEST: there the largest
error, and the time of all its problems one after the other. Each point is a tolerance; first calls,
which compile, are left out. Diffrax, whose every problem compiles for seconds, is in the panels of
stiff problems alone.

    python benchmarks/ode_diagrams.py results.json [--panels ROBER "DETEST A"]
    python benchmarks/ode_diagrams.py results.json --picture docs/images/work_precision.png
"""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from measure import interleaved
from ode import by_cvodes, by_diffrax, by_scipy, by_symgrad, error
from ode_problems import DETEST, STIFF, Problem

TOLERANCES = tuple(10.0**-k for k in range(3, 10, 2))
ROUNDS = 5
LEAST_OF_SCIPY = 1e-7
"""The tolerance down to which SciPy is measured on stiff problems: it takes seconds below."""

COLOURS = {"symgrad": "#c1272d", "SciPy": "#0000a7", "CasADi": "#008176", "Diffrax": "#eecc16"}
MARKS = {
    "Rodas5P": "o", "Kvaerno5": "s", "auto": "^", "Tsit5": "P", "DOP853": "*", "Radau": "D",
    "LSODA": "v", "RK45": "X", "CVODES": "<",
}  # fmt: skip

Solve = Callable[[Problem, float], Callable[[], Any]]


def solvers(stiff: bool) -> dict[str, Solve]:
    """The solvers of a panel, by name."""
    ours, theirs = ("Rodas5P Kvaerno5 auto", "Radau LSODA") if stiff else ("Tsit5 DOP853",) * 2
    theirs = theirs.replace("Tsit5", "RK45")
    found: dict[str, Solve] = {
        f"symgrad {m}": lambda p, rtol, m=m: functools.partial(by_symgrad, p, m, rtol)
        for m in ours.split()
    }
    found |= {
        f"SciPy {m}": lambda p, rtol, m=m: functools.partial(by_scipy, p, m, rtol)
        for m in theirs.split()
    }
    found["CasADi CVODES"] = by_cvodes
    return found | ({"Diffrax Kvaerno5": by_diffrax} if stiff else {})


def panels() -> dict[str, list[str]]:
    """The problems of each panel."""
    classes = {f"DETEST {c}": [name for name in DETEST if name[0] == c] for c in "ABCDE"}
    return {name: [name] for name in STIFF} | classes


def measured(names: list[str], stiff: bool) -> Iterator[dict[str, Any]]:
    """The points of a panel."""
    problems = STIFF if stiff else DETEST
    for who, solve in solvers(stiff).items():
        for rtol in TOLERANCES:
            if stiff and who.startswith("SciPy") and rtol < LEAST_OF_SCIPY:
                continue
            calls = {name: solve(problems[name], rtol) for name in names}
            errors = [error(name, call(), stiff) for name, call in calls.items()]
            took = interleaved(calls, ROUNDS, dict.fromkeys(names, 1))
            ms = 1e3 * sum(took[name].wall for name in names)
            yield {"by": who, "rtol": rtol, "error": max(errors), "ms": ms}


def draw(results: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """The picture: small panels of one legend."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(3, 4, figsize=(11, 7.2), layout="constrained")
    handles: dict[str, Any] = {}
    for axis, (panel, points) in zip(axes.flat, results.items(), strict=False):
        for who in dict.fromkeys(p["by"] for p in points):
            ends = [p for p in points if p["by"] == who and np.isfinite(p["error"])]
            package, method = who.split()
            style = "-" if package == "symgrad" else "--"
            [handles[who]] = axis.loglog(
                [p["error"] for p in ends], [p["ms"] for p in ends], style, ms=4, lw=1.2,
                marker=MARKS[method], color=COLOURS[package],
            )  # fmt: skip
        axis.set_title(panel, fontsize=9)
        axis.tick_params(labelsize=7)
        axis.xaxis.set_minor_formatter("")
        axis.invert_xaxis()
    for axis in axes.flat[len(results) :]:
        axis.axis("off")
    axes.flat[-1].legend(handles.values(), handles, fontsize=8, loc="center", frameon=False)
    figure.supxlabel("error, relative", fontsize=9)
    figure.supylabel("milliseconds", fontsize=9)
    figure.savefig(path, dpi=80)


def main() -> None:
    """Measure some panels, or draw those that have been measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--panels", nargs="+", default=[*panels()], choices=[*panels()])
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args()
    results = json.loads(given.results.read_text()) if given.results.exists() else {}
    if given.picture:
        draw({name: results[name] for name in panels() if name in results}, given.picture)
        return
    for panel in given.panels:
        results[panel] = [*measured(panels()[panel], panel in STIFF)]
        given.results.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
