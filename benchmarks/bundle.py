"""Bundle adjustment: fits of a kernel of residuals beside SciPy's least_squares.

The Dubrovnik problem of "Bundle Adjustment in the Large" with 3 cameras and 7 points, to the end;
SciPy has the sparsity of the Jacobian, which it makes by differences. And a drawn problem, by the
step: evaluation, Schur complement, Cholesky factor. CPU time is that of all cores, in which threads
of OpenBLAS that wait for others count as well.

    python benchmarks/bundle.py [--cameras 500] [--points 50000] [--views 6] [--rounds 3]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import scipy.optimize
from measure import bar, once, report

import symgrad as sg

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from scenes import DUBROVNIK, Scene, drawn, misfit, read_bal, reprojection

LIMIT = 2.0
"""Seconds for a step with 500 cameras and 50,000 points, on two cores."""


def model_of(scene: Scene) -> Any:
    shapes = {name: block.shape for name, block in scene[0].items()}
    return sg.fused_least_squares(shapes, reprojection, columns=list(scene[1]))


def by_scipy(scene: Scene) -> Any:
    """SciPy's fit, with residuals in NumPy."""
    parameters, table = scene
    cameras, count = len(parameters["camera"]), len(table["u"])
    sparsity = np.zeros((count, 2, 9 * cameras + parameters["point"].size))
    for name, start in (("camera", 0), ("point", 9 * cameras)):
        width = parameters[name].shape[1]
        for k in range(width):
            sparsity[np.arange(count), :, start + width * table[name] + k] = 1

    def residuals(x: np.ndarray) -> np.ndarray:
        camera, point = np.split(x, [9 * cameras])
        blocks = {"camera": camera.reshape(-1, 9), "point": point.reshape(-1, 3)}
        return misfit(blocks, table).ravel()

    start = np.concatenate([block.ravel() for block in parameters.values()])
    return scipy.optimize.least_squares(
        residuals, start, x_scale="jac", jac_sparsity=sparsity.reshape(2 * count, -1)
    )


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cameras", type=int, default=500)
    parser.add_argument("--points", type=int, default=50_000)
    parser.add_argument("--views", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()

    scene = read_bal(DUBROVNIK)
    ours, mine = once(lambda: model_of(scene).fit(*scene))
    theirs, other = once(lambda: by_scipy(scene))
    rows = [
        {"problem": "Dubrovnik, 3 cameras", "by": name, "cost": found.cost, "steps": found.nfev,
         "seconds": took.wall, "of all cores": took.cpu, "success": found.success}
        for name, found, took in (("symgrad", ours, mine), ("SciPy", theirs, other))
    ]  # fmt: skip
    bars = [
        bar("Dubrovnik: cost over SciPy's", ours.cost / theirs.cost, 1.01),
        bar("Dubrovnik: time over SciPy's", mine.wall / other.wall, 1.0),
    ]

    size = f"{chosen.cameras} cameras, {chosen.points:,} points, {chosen.views} views of each"
    large = drawn(chosen.cameras, chosen.points, chosen.views)
    model = model_of(large)
    took = [once(lambda s=steps: model.fit(*large, steps=s, ftol=0.0, gtol=0.0)) for steps in
            [1, 3] * chosen.rounds]  # fmt: skip
    step, cpu = (
        min((b[k] - a[k]) / 2 for a, b in zip(seconds[::2], seconds[1::2], strict=True))
        for k, seconds in ((k, [(s.wall, s.cpu) for _, s in took]) for k in (0, 1))
    )
    rows.append({"problem": size, "by": "symgrad", "cost": took[-1][0].cost, "steps": 1,
                 "seconds": step, "of all cores": cpu, "success": None})  # fmt: skip
    if (chosen.cameras, chosen.points) == (500, 50_000):
        bars.append(bar("500 cameras, 50,000 points: seconds a step", step, LIMIT))
    report("bundle", rows, bars)


if __name__ == "__main__":
    main()
