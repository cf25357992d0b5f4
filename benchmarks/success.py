"""What methods claim of their ends on 70 classic problems, from 8 starts each, judged by SciPy.

What counts as false, grossly false and missed stands in tests/optimize/judge.py.

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


def judged(method: Any, dtype: str, judges: dict[str, Any], each: bool) -> dict[str, int]:
    """The counts of all problems that a method can be given."""
    total = None
    for name, one in judges.items():
        if method.needs == "squares" and name in judge.LOSSES:
            continue
        counts = one.run(method, dtype)
        total = counts if total is None else total + counts
        if each and (counts.false or counts.missed):
            print(f"{type(method).__name__} {dtype} {name}: {counts}")
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
    judges = {name: judge.Judge(name) for name in judge.PROBLEMS}
    rows = [
        {"method": name, "dtype": dtype} | judged(METHODS[name], dtype, judges, given.each)
        for name in given.methods
        for dtype in ("float32", "float64")
    ]
    bars = [
        bar(f"{r['method']} {r['dtype']}: grossly false", r["gross"], 0.01 * r["runs"])
        for r in rows
    ]
    report("success", rows, bars)


if __name__ == "__main__":
    main()
