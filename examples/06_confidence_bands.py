"""Two models fitted to measured data by curve_fit, with confidence bands by the delta method.

Growth: the dry weight of onion bulbs, a generalised logistic curve (Ratkowsky, 1983, "Nonlinear
regression modeling"; NIST's data set Rat43, whose certified parameters are met). Pharmacokinetics:
theophylline in the blood of a patient after a dose, one compartment with first-order absorption
(Boeckmann, Sheiner and Beal, 1994, "NONMEM users guide"; subject 1 of R's data set Theoph).

    python examples/06_confidence_bands.py [--device cpu] [--output bands.png]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t as student

import symgrad as sg
from symgrad.demo.demonstration import load

HOURS = np.array([0, 0.25, 0.57, 1.12, 2.02, 3.82, 5.1, 7.03, 9.05, 12.12, 24.37])
MG_PER_LITRE = np.array([0.74, 2.84, 6.57, 10.5, 9.66, 8.58, 8.36, 7.47, 6.89, 5.94, 3.28])
DOSE = 4.02
"""mg for each kg of the patient."""


def growth(x, b1, b2, b3, b4):
    """The generalised logistic curve, which grows up to b1."""
    return b1 / (1 + np.exp(b2 - b3 * x)) ** (1 / b4)


def concentration(hours, log_elimination, log_absorption, log_clearance):
    """mg/L after a dose that is absorbed and eliminated at rates in proportion to what is left.

    Rates (1/h) and clearance (L/h for each kg) are positive, so their logarithms are fitted.
    """
    ke, ka, clearance = np.exp(log_elimination), np.exp(log_absorption), np.exp(log_clearance)
    return DOSE * ke * ka / (clearance * (ka - ke)) * (np.exp(-ke * hours) - np.exp(-ka * hours))


@dataclass(frozen=True)
class Fit:
    """A model fitted to data, and what the literature has for its parameters."""

    model: Callable[..., Any]
    axes: tuple[str, str]
    x: np.ndarray
    y: np.ndarray
    found: tuple[np.ndarray, np.ndarray]
    known: np.ndarray

    @property
    def p(self) -> np.ndarray:
        """The parameters."""
        return self.found[0]

    @property
    def pcov(self) -> np.ndarray:
        """Their covariance."""
        return self.found[1]

    def band(self, x: np.ndarray, device: Any, confidence: float = 0.95) -> np.ndarray:
        """Half the width of the band of the mean at x.

        The delta method: the variance of the curve is ``j · pcov · j``, where j is the gradient of
        f(x, p) in the parameters p.
        """
        n = len(self.p)
        kernel = sg.fused_jacobian(n + 1, lambda v: [self.model(*v)], device=device)
        _, jacobian = kernel.run(np.column_stack([x, np.tile(self.p, (len(x), 1))]))
        j = jacobian[:, 0, 1:].astype(float)  # the first column is the derivative in x
        variance = np.einsum("ki,ij,kj->k", j, self.pcov, j)
        return student.ppf(0.5 + confidence / 2, len(self.x) - n) * np.sqrt(variance)


def fits(device: Any) -> list[Fit]:
    onions = load("Rat43")
    start, known = onions.starts[0], onions.certified
    weight = sg.curve_fit(growth, onions.x, onions.y, start, device=device)
    blood = sg.curve_fit(concentration, HOURS, MG_PER_LITRE, [-2, 0.5, -3], device=device)
    published = np.array([-2.9196, 0.5752, -3.9159])  # R's example of SSfol
    return [
        Fit(growth, ("time", "dry weight of onions"), onions.x, onions.y, weight, known),
        Fit(concentration, ("hours", "theophylline, mg/L"), HOURS, MG_PER_LITRE, blood, published),
    ]


def draw(found: list[Fit], device: Any, output: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install 'symgrad[plot]'")
        return
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    for ax, fit in zip(figure.subplots(1, 2), found, strict=True):
        x = np.linspace(fit.x.min(), fit.x.max(), 300)
        y, half = fit.model(x, *fit.p), fit.band(x, device)
        ax.fill_between(x, y - half, y + half, color="#95bfd6", alpha=0.6, lw=0, label="95 %")
        ax.plot(x, y, color="#2e6f95", label=fit.model.__name__)
        ax.plot(fit.x, fit.y, "o", color="#d1495b", ms=4, label="measured")
        ax.set(xlabel=fit.axes[0], ylabel=fit.axes[1])
        ax.legend()
    figure.savefig(output, dpi=100)
    print(f"picture: {output}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device")
    parser.add_argument(
        "--output", type=Path, default=Path(tempfile.gettempdir(), "symgrad-bands.png")
    )
    given = parser.parse_args()

    found = fits(given.device)
    for fit in found:
        print(f"{fit.model.__name__}, {len(fit.x)} measurements")
        deviations = np.sqrt(np.diag(fit.pcov))
        for value, deviation, known in zip(fit.p, deviations, fit.known, strict=True):
            print(f"  {value:12.6g} ± {deviation:<10.3g} literature {known:.6g}")
        print(f"  the band is ±{fit.band(fit.x, given.device).max():.2g} at most")
    draw(found, given.device, given.output)

    onions, blood = found
    assert np.allclose(onions.p, onions.known, rtol=1e-7), "not the parameters that NIST certifies"
    assert np.allclose(np.sqrt(np.diag(onions.pcov)), load("Rat43").deviations, rtol=1e-6)
    assert np.allclose(blood.p, blood.known, atol=1e-4), "not the parameters that R finds"


if __name__ == "__main__":
    main()
