"""The flow of the Nile, 1871 to 1970: the likelihood of a Kalman filter, which is a scan.

A level that drifts is measured with noise (Durbin and Koopman, 2012, "Time Series Analysis by State
Space Methods", whose estimates are met). The filter goes through a hundred years; its likelihood,
with both derivatives, is computed for a whole map of the two variances in a single call, and
minimised from its best point.

    python examples/13_kalman_filter.py [--side 200] [--device cpu] [--output nile.png]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import symgrad as sg

NILE = np.array([
    1120, 1160, 963, 1210, 1160, 1160, 813, 1230, 1370, 1140, 995, 935, 1110, 994, 1020, 960, 1180,
    799, 958, 1140, 1100, 1210, 1150, 1250, 1260, 1220, 1030, 1100, 774, 840, 874, 694, 940, 833,
    701, 916, 692, 1020, 1050, 969, 831, 726, 456, 824, 702, 1120, 1100, 832, 764, 821, 768, 845,
    864, 862, 698, 845, 744, 796, 1040, 759, 781, 865, 845, 944, 984, 897, 822, 1010, 771, 676,
    649, 846, 812, 742, 801, 1040, 860, 874, 848, 890, 744, 749, 838, 1050, 918, 986, 797, 923,
    975, 815, 1020, 906, 901, 1170, 912, 746, 919, 718, 714, 740,
], float)  # fmt: skip
"""The flow at Aswan, 10^8 m³ a year."""

DURBIN_KOOPMAN = np.array([15099.0, 1469.1])
"""The variances of the noise and of the drift."""


def filtered(v: Any) -> tuple[Any, Any]:
    """What each year adds to minus the log-likelihood, and the level and its variance then."""
    noise, drift = np.exp(v)

    def year(state: Any, flow: Any) -> tuple[Any, Any]:
        level, variance = state
        total, miss = variance + noise, flow - level
        gain = variance / total
        level, left = level + gain * miss, variance * (1 - gain)
        return (level, left + drift), (0.5 * (np.log(total) + miss**2 / total), level, left)

    # the first year says where the level is: the filter begins there
    _, (parts, levels, variances) = sg.scan(year, (NILE[0], noise + drift), NILE[1:])
    return parts, (levels, variances)


def minus_log_likelihood(v: Any) -> Any:
    return np.sum(filtered(v)[0])


def draw(found: Any, fit: Any, levels: Any, output: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install 'symgrad[plot]'")
        return
    figure = Figure(figsize=(11, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    years = 1871 + np.arange(len(NILE))
    level, deviation = levels[0], np.sqrt(levels[1])
    left.plot(years, NILE, "o", color="#d1495b", ms=3, label="measured")
    left.plot(years[1:], level, color="#2e6f95", label="level, filtered")
    left.fill_between(
        years[1:], level - 2 * deviation, level + 2 * deviation, color="#95bfd6", alpha=0.5, lw=0
    )
    left.set(ylabel="10⁸ m³ a year")
    left.legend()
    noise, drift, losses = found
    above, levels_of = losses - losses.min(), np.geomspace(0.1, 300, 12)
    right.contourf(noise, drift, above, levels_of, cmap="Blues_r", extend="both")
    right.loglog(*np.exp(fit), "*", color="#d1495b", ms=12)
    right.set(xlabel="variance of the noise", ylabel="variance of the drift")
    figure.savefig(output, dpi=100)
    print(f"picture: {output}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--side", type=int, default=200)
    parser.add_argument("--device")
    parser.add_argument(
        "--output", type=Path, default=Path(tempfile.gettempdir(), "symgrad-nile.png")
    )
    given = parser.parse_args()

    noise, drift = np.geomspace(3e3, 1e5, given.side), np.geomspace(3e1, 1e5, given.side)
    points = np.log(np.stack(np.meshgrid(noise, drift), axis=-1))
    kernel = sg.fused_forward_backward(2, minus_log_likelihood, device=given.device)
    losses, slopes = kernel.run(points)
    print(f"{losses.size:,} likelihoods of {len(NILE)} years, with gradients")
    best = np.unravel_index(np.argmin(losses), losses.shape)
    fit = sg.minimize(minus_log_likelihood, points[best], method="BFGS", device=given.device).x
    for name, value, known in zip(("noise", "drift"), np.exp(fit), DURBIN_KOOPMAN, strict=True):
        print(f"variance of the {name}: {value:8.0f}, literature {known:g}")
    levels = sg.fused_forward(2, lambda v: filtered(v)[1], device=given.device).run(fit)
    draw((noise, drift, losses), fit, levels, given.output)

    step = np.log(noise[1] / noise[0])
    differences = (losses[:, 2:] - losses[:, :-2]) / (2 * step)
    assert np.allclose(slopes[:, 1:-1, 0], differences, rtol=0.1, atol=0.1), "wrong gradients"
    assert np.allclose(np.exp(fit), DURBIN_KOOPMAN, rtol=0.01), "not the literature's variances"


if __name__ == "__main__":
    main()
