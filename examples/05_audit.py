"""An audit finds what is wrong with a softplus that looks right, and shows that another is clean.

log(1 + exp(x)) overflows for large x and loses all its digits for small ones. kernel.audit(x) runs
the kernel's expressions in float32 beside float64 and names the operations and lines to blame.

    python examples/05_audit.py [--device cpu] [--output audit.png]
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

import symgrad as sg

POINTS = np.array([[-20.0], [-10.0], [0.5], [10.0], [100.0]])


def textbook(v):
    grown = sg.exp(v[0])
    return sg.log(1 + grown)


def patched(v):
    """The usual first repair: no overflow any more, but small values are still lost."""
    large = v[0] > 20
    grown = sg.exp(sg.where(large, 0.0, v[0]))
    return sg.where(large, v[0], sg.log(1 + grown))


def mended(v):
    return sg.softplus(v[0])


def true_softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, x)


def draw(kernels: list[sg.Kernel], output: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install 'symgrad[plot]'")
        return
    x = np.linspace(-25, 110, 1500, dtype=np.float32)
    exact = true_softplus(x.astype(np.float64))
    figure = Figure(figsize=(8, 5), layout="constrained")
    ax = figure.subplots()
    for kernel, width in zip(kernels, (3.0, 1.2, 0.8), strict=True):
        with np.errstate(invalid="ignore"):
            error = np.abs(kernel.run(x[:, None])[0] / exact - 1)
        wrong = np.where(np.isfinite(error), np.clip(error, 1e-9, 1), 1)
        ax.semilogy(x, wrong, lw=width, label=kernel.name)
    ax.set(xlabel="x", ylabel="relative error", title="softplus in float32; 1: no digit is right")
    ax.legend()
    figure.savefig(output, dpi=100)
    print(f"picture: {output}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device")
    parser.add_argument(
        "--output", type=Path, default=Path(tempfile.gettempdir(), "symgrad-audit.png")
    )
    given = parser.parse_args()

    kernels = [
        sg.fused_forward_backward(1, f, device=given.device) for f in (textbook, patched, mended)
    ]
    audits = [kernel.audit(POINTS) for kernel in kernels]
    for kernel, audit in zip(kernels, audits, strict=True):
        losses = kernel.run(POINTS)[0]
        print(f"{kernel.name} on {kernel.device}: {losses}\n{audit}\n")
    draw(kernels, given.output)

    first, second, last = audits
    assert {s.kind for s in first.suspects} >= {"overflow", "amplification"}
    assert {s.kind for s in second.suspects} == {"amplification"}
    assert last.clean and not last.suspects
    losses, slopes = kernels[-1].run(POINTS)
    assert np.allclose(losses, true_softplus(POINTS[:, 0]), rtol=1e-6)
    assert np.allclose(slopes, 1 / (1 + np.exp(-POINTS)), rtol=1e-6)


if __name__ == "__main__":
    main()
