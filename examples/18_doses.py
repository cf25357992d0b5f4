"""Doses for a population: two compartments, whose parameters differ from patient to patient.

A drug is given by mouth every twelve hours, is absorbed, goes to the tissue and back, and is
eliminated. A thousand patients, their parameters log-normal around the typical ones, are a thousand
points of one kernel; steps of the method end at each dose, where the state jumps. From a few noisy
samples of one patient the parameters are then estimated, with gradients right across the doses.

    python examples/18_doses.py [--patients 1000] [--device cpu] [--output doses.png]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import symgrad as sg

DOSE = 100.0
"""Milligrams."""

DOSES = np.arange(0.0, 72.0, 12.0)
"""The hours at which it is given."""

HOURS = np.linspace(0.0, 96.0, 97)
SAMPLED = np.array([1.0, 3.0, 11.5, 25.0, 35.5, 61.0, 71.5, 80.0, 95.0])

TYPICAL = {"absorption": 1.1, "clearance": 4.0, "volume": 30.0, "exchange": 6.0, "tissue": 50.0}
"""1/h, l/h, l, l/h, l."""

SPREAD = np.array([0.3, 0.3, 0.2, 0.2, 0.2])
NOISE = 0.05


def flows(t: Any, y: Any, p: Any) -> Any:
    """How the amounts in the gut, in blood and in tissue change."""
    gut, blood, tissue = y
    absorption, clearance, volume, exchange, tissue_volume = p
    absorbed, eliminated = absorption * gut, clearance * blood / volume
    moved = exchange * (blood / volume - tissue / tissue_volume)
    return [-absorbed, absorbed - eliminated - moved, moved]


def given(t: Any, y: Any, k: Any, p: Any) -> Any:
    """The amounts after a dose."""
    return y + np.array([DOSE, 0.0, 0.0])


def concentration(p: Any, hours: np.ndarray) -> Any:
    """Milligrams of the drug in a litre of blood at these hours."""
    solution = sg.solve_ivp(
        flows, (0.0, 96.0), [0.0, 0.0, 0.0], t_eval=hours, args=(p,), t_stops=DOSES, jump=given,
        rtol=1e-6, atol=1e-6, max_steps=500,
    )  # fmt: skip
    return solution.y[1] / p[2]


def by_scipy(p: np.ndarray) -> np.ndarray:
    """The same by SciPy, dose by dose."""
    from scipy.integrate import solve_ivp

    y, parts = np.zeros(3), []
    for start, end in zip(DOSES, [*DOSES[1:], 96.0], strict=True):
        y = given(start, y, 0, p)
        hours = HOURS[np.searchsorted(HOURS, start, "right") : np.searchsorted(HOURS, end, "right")]
        solution = solve_ivp(flows, (start, end), y, "DOP853", hours, args=(p,), rtol=1e-10,
                             atol=1e-10)  # fmt: skip
        parts.append(solution.y)
        y = solution.y[:, -1]
    return np.concatenate([[0.0], np.concatenate(parts, axis=1)[1] / p[2]])


def draw(curves: np.ndarray, seen: np.ndarray, fitted: np.ndarray, output: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install 'symgrad[plot]'")
        return
    figure = Figure(figsize=(9, 4.5), layout="constrained")
    ax = figure.subplots()
    for low, high, shade in ((0.05, 0.95, 0.2), (0.25, 0.75, 0.35)):
        band = np.quantile(curves, [low, high], axis=0)
        name = f"{high - low:.0%} of the patients"
        ax.fill_between(HOURS, *band, color="#2e6f95", alpha=shade, lw=0, label=name)
    ax.plot(HOURS, np.median(curves, axis=0), color="#2e6f95", label="median")
    ax.plot(SAMPLED, seen, "o", color="#d1495b", ms=5, label="samples of a patient")
    ax.plot(HOURS, fitted, color="#d1495b", lw=1, label="fitted")
    ax.set(xlabel="hours", ylabel="mg/l", xticks=DOSES)
    ax.legend(loc="upper right")
    figure.savefig(output, dpi=100)
    print(f"picture: {output}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--patients", type=int, default=1000)
    parser.add_argument("--device")
    parser.add_argument(
        "--output", type=Path, default=Path(tempfile.gettempdir(), "symgrad-doses.png")
    )
    asked = parser.parse_args()

    rng, typical = np.random.default_rng(0), np.array(list(TYPICAL.values()))
    patients = typical * np.exp(SPREAD * rng.normal(size=(asked.patients, len(typical))))
    kernel = sg.fused_forward(5, lambda p: concentration(p, HOURS), device=asked.device)
    curves = kernel.run(patients)
    print(f"{asked.patients:,} patients, {len(DOSES)} doses each")

    truth = by_scipy(patients[0])
    where = np.searchsorted(HOURS, np.round(SAMPLED))
    known = np.interp(SAMPLED, HOURS, truth)
    seen = known * np.exp(NOISE * rng.normal(size=len(SAMPLED)))
    fit = sg.minimize(
        lambda v: np.sum((np.log(concentration(np.exp(v), SAMPLED)) - np.log(seen)) ** 2)
        + 0.01 * np.sum(((v - np.log(typical)) / SPREAD) ** 2),
        np.log(typical), method="BFGS",
    )  # fmt: skip
    for name, value, true in zip(TYPICAL, np.exp(fit.x), patients[0], strict=True):
        print(f"{name:10} {value:7.2f}, truly {true:7.2f}")
    fitted = by_scipy(np.exp(fit.x))
    draw(curves, seen, fitted, asked.output)

    assert np.abs(curves[0] - truth).max() < 1e-3 * truth.max(), "not what SciPy computes"
    assert np.abs(np.log(fitted[where] / truth[where])).max() < 0.2, "the fit misses the patient"


if __name__ == "__main__":
    main()
