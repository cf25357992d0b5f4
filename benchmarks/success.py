"""What methods claim of their ends on 70 classic problems, from 8 starts each, judged by SciPy.

Constants of the methods were chosen by these; the others, of tests/optimize/held_out.py, tell
whether their claims hold elsewhere. What counts as false, grossly false and missed stands in
tests/optimize/judge.py.

    python benchmarks/success.py [--methods LBFGS Newton LevenbergMarquardt] [--each]
"""

from __future__ import annotations

import argparse
import importlib
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from measure import bar, report

import symgrad as sg

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
judge: Any = importlib.import_module("optimize.judge")

METHODS = {"LBFGS": sg.LBFGS(), "Newton": sg.Newton(), "GaussNewton": sg.GaussNewton(),
           "LevenbergMarquardt": sg.LevenbergMarquardt()}  # fmt: skip


def judged(method: Any, dtype: str, judges: list[Any], each: bool) -> dict[str, int]:
    """The counts of all problems that a method can be given."""
    total = None
    for one in judges:
        if method.needs == "squares" and isinstance(one.problem, judge.Loss):
            continue
        counts = one.run(method, dtype)
        total = counts if total is None else total + counts
        if each and (counts.false or counts.missed):
            print(f"{type(method).__name__} {dtype} {one.name}: {counts}")
    assert total is not None, "there is a problem for each method"
    return {name: int(value) for name, value in vars(total).items()}


def main() -> None:
    """Judge, and write the results."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--methods", nargs="*", default=[*METHODS], choices=[*METHODS])
    arguments.add_argument("--each", action="store_true")
    given = arguments.parse_args()
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    sets = {"classic": judge.PROBLEMS, "held out": judge.held_out.PROBLEMS}
    judges = {name: [judge.Judge(p) for p in problems] for name, problems in sets.items()}
    rows = [
        {"problems": kind, "method": name, "dtype": dtype}
        | judged(METHODS[name], dtype, ones, given.each)
        for kind, ones in judges.items()
        for name in given.methods
        for dtype in ("float32", "float64")
    ]
    bars = [
        bar(
            f"{r['problems']}, {r['method']} {r['dtype']}: grossly false",
            r["gross"],
            0.01 * r["runs"],
        )
        for r in rows
    ]
    report("success", rows, bars)


if __name__ == "__main__":
    main()
