"""Derivatives of j0 and j1 everywhere: errors small beside the waves' amplitude, on all devices."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import numpy as np
import pytest
from mpmath import mp

import symgrad as sg
from symgrad.pipeline import DTypeName

HIGHEST: Final = 3
LIMIT: Final = 3.0
"""The largest error, in ULP of 1 where the amplitude is."""

GPUS: Final = [d.index for d in sg.devices() if d.is_gpu][:1]


def points() -> Any:
    """Float32 numbers about the stretches of the formulas, and of all sizes."""
    random = np.random.default_rng(5)
    sizes = [np.linspace(0.0, 14.0, 141), np.exp(random.uniform(np.log(1e-12), np.log(1e6), 80))]
    x = np.concatenate([*sizes, [np.pi * 2.0**20, 1e20]]).astype(np.float32)
    return x * random.choice([-1.0, 1.0], len(x)).astype(np.float32)


@cache
def truths(n: int, order: int) -> Any:
    """The derivatives of J_n: binomial sums of J_(n - order) to J_(n + order)."""
    with mp.workdps(40):
        found = [
            sum(
                (-1) ** k * mp.binomial(order, k) * mp.besselj(n - order + 2 * k, mp.mpf(x))
                for k in range(order + 1)
            )
            / 2**order
            for x in points().tolist()
        ]
    return np.array([float(v) for v in found])


@pytest.mark.parametrize("device", ["cpu", *GPUS])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", [0, 1])
def test_derivatives_of_bessel_functions(n: int, dtype: DTypeName, device: Any) -> None:
    if dtype == "float64" and device != "cpu":
        pytest.skip("GPUs compute in float32")

    def derivatives(v: Any) -> list[Any]:
        made = [(sg.j1 if n else sg.j0)(v[0])]
        for _ in range(HIGHEST):
            made.append(sg.grad(made[-1], v[0]))
        return made

    x = points()
    found = np.array(sg.fused_forward(1, derivatives, device=device, dtype=dtype).run(x[:, None]))
    amplitude = np.minimum(1.0, np.sqrt(2 / np.pi / np.maximum(np.abs(np.float64(x)), 0.1)))
    for order in range(HIGHEST + 1):
        want = truths(n, order)
        error = np.abs(found[order] - want) / np.maximum(amplitude, np.abs(want))
        assert error.max() <= LIMIT * np.finfo(dtype).eps, (order, x[np.argmax(error)])


def test_digits_are_kept_next_to_the_first_zeros() -> None:
    for n, name in ((0, "j0"), (1, "j1")):
        for k in (1, 2):
            zero = float(mp.besseljzero(n, k))
            given = zero * (1 + np.array([-1e-3, -1e-8, 0.0, 1e-8, 1e-3]))
            kernel = sg.fused_forward(
                1, lambda v, f=name: getattr(sg, f)(v[0]), device="cpu", dtype="float64"
            )
            found = np.ravel(kernel.run(given[:, None]))
            want = [float(mp.besselj(n, mp.mpf(float(x)))) for x in given]
            np.testing.assert_allclose(found, want, rtol=1e-15)
