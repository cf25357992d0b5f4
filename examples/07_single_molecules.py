"""A hundred thousand single-molecule spots fitted at once; their errors meet the Cramér-Rao bound.

Each spot is a blurred point of light on 11 x 11 pixels, counted photon by photon (simulated). The
model is a Python function; sg.fit_many runs Levenberg and Marquardt's method for every spot. Roots
of photon counts have nearly the same variance everywhere (Anscombe, 1948, "The transformation of
Poisson, binomial and negative-binomial data"), so least squares on them loses next to nothing.

    python examples/07_single_molecules.py [--device cpu] [--spots 100000] [--output spots.png]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import symgrad as sg

SIDE = 11
Y, X = np.mgrid[:SIDE, :SIDE].reshape(2, -1) - (SIDE - 1) / 2
PIXELS = np.stack([X, Y])
"""(2, 121): the centres of pixels, from that of the image."""


def brightness(pixel, photons, x, y, width, background):
    """The photons that a pixel is expected to count."""
    square = (pixel[0] - x) ** 2 + (pixel[1] - y) ** 2
    return photons / (2 * np.pi * width**2) * np.exp(-square / (2 * width**2)) + background


def stable(counts):
    """Counts so transformed that their variance is 1, nearly."""
    return 2 * np.sqrt(counts + 0.375)


def stable_brightness(pixel, *spot):
    return stable(brightness(pixel, *spot))


def simulate(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Spots (S, 5), all different, and what a camera sees of them (S, 121)."""
    low, high = [800, -1, -1, 1.1, 8], [3000, 1, 1, 1.6, 15]
    spots = rng.uniform(low, high, (count, 5))
    return spots, rng.poisson(brightness(PIXELS[:, None], *spots.T[:, :, None])).astype(np.float32)


def guess(images: np.ndarray) -> np.ndarray:
    """Where to start: the background is the darkest part, the centre that of what is above it."""
    background = np.percentile(images, 25, axis=1)
    above = np.maximum(images - background[:, None] - 3 * np.sqrt(background)[:, None], 0)
    photons = np.maximum(above.sum(axis=1), 1)
    x, y = (above @ PIXELS.T / photons[:, None]).T
    return np.stack([1.2 * photons, x, y, np.full(len(images), 1.3), background], axis=1)


def bounds(spots: np.ndarray, device: Any, size: int = 2000) -> np.ndarray:
    """The least standard deviations that unbiased estimates of x and y can have, (S, 2).

    The Cramér-Rao bound: for Poisson counts of mean m the Fisher information is the sum over
    pixels of ``dm/dp dm/dp' / m``, and the bound its inverse.
    """
    kernel = sg.fused_jacobian(
        5, lambda p: [brightness(pixel, *p) for pixel in PIXELS.T], device=device
    )
    found = []
    for start in range(0, len(spots), size):
        m, slopes = kernel.run(spots[start : start + size])  # (S, 121), (S, 121, 5)
        scaled = (slopes / np.sqrt(m)[:, :, None]).astype(float)
        variances = np.linalg.inv(np.swapaxes(scaled, 1, 2) @ scaled)
        found.append(np.sqrt(np.diagonal(variances, axis1=1, axis2=2)[:, 1:3]))
    return np.concatenate(found)


def draw(images: np.ndarray, centres: np.ndarray, scaled: np.ndarray, output: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install 'symgrad[plot]'")
        return
    figure = Figure(figsize=(10, 4.5), layout="constrained")
    shown = figure.subplot_mosaic([[*"abcd", *["errors"] * 4], [*"efgh", *["errors"] * 4],
                                   [*"ijkl", *["errors"] * 4]])  # fmt: skip
    reach = SIDE / 2
    for name, image, centre in zip("abcdefghijkl", images, centres, strict=False):
        ax = shown[name]
        ax.imshow(image.reshape(SIDE, SIDE), extent=(-reach, reach, reach, -reach), cmap="bone")
        ax.plot(*centre, "+", color="#d1495b", ms=12, mew=2)
        ax.set_axis_off()
    ax = shown["errors"]
    ax.hist(scaled.ravel(), 80, range=(-4, 4), density=True, color="#95bfd6", label="fits")
    z = np.linspace(-4, 4, 200)
    ax.plot(z, np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi), color="#d1495b", label="the bound")
    ax.set(xlabel="error of a centre over its Cramér-Rao bound", yticks=[])
    ax.legend()
    figure.savefig(output, dpi=100)
    print(f"picture: {output}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device")
    parser.add_argument("--spots", type=int, default=100_000)
    parser.add_argument(
        "--output", type=Path, default=Path(tempfile.gettempdir(), "symgrad-spots.png")
    )
    given = parser.parse_args()

    spots, images = simulate(given.spots, np.random.default_rng(0))
    starts, seen = guess(images), stable(images)
    begin = time.perf_counter()
    fits = sg.fit_many(
        stable_brightness, PIXELS, seen, starts, steps=30, device=given.device, dtype="float32"
    )
    seconds = time.perf_counter() - begin
    print(f"{given.spots:,} fits in {seconds:.2f} s, {fits.nit.mean():.1f} steps each; "
          f"{fits.success.mean():.2%} converged")  # fmt: skip

    scaled = (fits.x[:, 1:3] - spots[:, 1:3]) / bounds(spots, given.device)
    ratio = np.sqrt(np.mean(scaled**2))
    print(f"root mean square error of the centres: {ratio:.4f} of the Cramér-Rao bound")
    draw(images, fits.x[:, 1:3], scaled, given.output)
    assert fits.success.mean() > 0.999, "fits that do not converge"
    assert 0.97 < ratio < 1.03, "the errors are not those of the bound"


if __name__ == "__main__":
    main()
