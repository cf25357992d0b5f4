"""Random programs, and functions at their kinks, in pairs beside float64: second derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from programs import Kinds, points, program

import symgrad as sg

needs_gpu = pytest.mark.skipif(not any(d.is_gpu for d in sg.devices()), reason="no GPU here")

KINDS = Kinds(scans=True), Kinds(depth=3), Kinds(depth=3, scans=True), Kinds(size=9)
SEEDS = [2, *[pytest.param(n, marks=pytest.mark.slow) for n in range(20) if n != 2]]
"""Each number is that of a program of each kind; those of 2 all differ."""

NEAR = 2.0**-30
"""Steps that no float32 about 1 has: the low parts of pairs."""

EDGES = [0.0, -0.0, 1.0, 1 + NEAR, 1 - NEAR, -1.0, -1 - NEAR, 2.0, 2 + NEAR, NEAR, -NEAR, 0.5]

KINKS: dict[str, Callable[[Any], Any]] = {
    "abs": lambda v: abs(v[0] - v[1]) * v[0] + np.sign(v[0] - v[1]) * v[1] ** 2,
    "extremes": lambda v: np.maximum(v[0], v[1]) ** 2 * v[0] + np.minimum(v[0] * v[1], 1.0) ** 3,
    "choices": lambda v: np.where(v[0] < v[1], v[0] ** 3, v[1] ** 2) + (v[0] == v[1]) * v[1] ** 2,
    "relu": lambda v: sg.relu(v[0] - v[1]) ** 2 + np.clip(v[0], v[1] - 1, v[1] + 1) ** 2 * v[1],
    "steps": lambda v: (v[0] - np.floor(v[0])) ** 2 * v[1] + np.round(v[1]) * v[0] ** 2,
    "remainders": lambda v: (v[0] % 1.0) ** 2 * v[1] + np.fmod(v[1], 2.0) * v[0] ** 2,
    "lengths": lambda v: np.hypot(v[0], v[1]) * v[0] + np.abs(v[0]) ** 2.5 + np.linalg.norm(v),
    "roots": lambda v: sg.cbrt(v[0] - v[1]) ** 2 * v[0] + np.sqrt(v[0] ** 2 + v[1] ** 2),
    "order": lambda v: np.max(v) ** 2 + np.sort(v) @ np.array([1.0, 2.0]) * v[0],
    "tables": lambda v: sg.interp(v[0], np.arange(3.0), np.arange(3.0) ** 2) * v[1],
    "quotients": lambda v: np.sinc(v[0] - v[1]) * v[0] + np.arctan2(v[0], v[1]) * v[1],
}


def low_parts(x: np.ndarray) -> np.ndarray:
    """Numbers nearby that pairs hold exactly, and float32 does not."""
    return x.astype(np.float32).astype(np.float64) + NEAR


def in_both(kernel: Callable[..., Any], *given: Any) -> list[tuple[Any, Any]]:
    """Results in pairs and in float64 on the CPU, of a kernel by its dtype."""
    pairs, double = (kernel(device="cpu", dtype=d).run(*given) for d in ("float32x2", "float64"))
    return [*zip(pairs, double, strict=True)]


def drawn(seed: int, kinds: Kinds) -> Callable[..., Any]:
    """A random program as a loss of three numbers, or of those and a row."""

    def loss(v: Any, row: Any = (0.0, 0.0)) -> Any:
        a, b = program(seed, kinds)([v[0] + row[0], v[1] - row[1], v[2]])
        return a * b + a

    return loss


def require_close(pairs: Any, double: Any) -> None:
    """Numbers are within 2**-40 of the largest, or of 1."""
    scale = np.maximum(1.0, np.abs(double).max())
    np.testing.assert_allclose(pairs, double, rtol=0, atol=2.0**-40 * scale)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs_have_the_second_derivatives_of_float64(seed: int) -> None:
    """Loops, choices, scans and arrays, at points that pairs hold exactly."""
    at = low_parts(points().T)
    for kinds in KINDS:
        f = drawn(seed, kinds)
        for results in in_both(lambda f=f, **how: sg.fused_hessian(3, f, **how), at):
            require_close(*results)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs_over_rows_have_the_derivatives_of_float64(seed: int) -> None:
    rows = low_parts(np.random.default_rng(seed).uniform(-0.5, 0.5, (700, 2)))
    verb = sg.fused_hessian if seed != 2 else sg.fused_forward_backward
    f = drawn(seed, KINDS[0])
    kernel = lambda **how: verb(3, f, row=2, **how)  # noqa: E731
    for results in in_both(kernel, low_parts(np.array([0.5, 0.25, -0.4])), rows):
        require_close(*results)


@pytest.mark.parametrize("device", ["cpu", pytest.param("gpu", marks=needs_gpu)])
def test_equal_products_cancel(device: Any) -> None:
    """Where a product is one with a sum, its other term is no product: roots of 0 are no NaN."""
    kernel = sg.fused_forward(
        4,
        lambda v: abs(v[0] * v[1] - v[2] * v[3]) + np.sqrt(v[0] ** 2 - v[2] ** 2),
        device=device,
        dtype="float32x2",
    )
    x = np.random.default_rng(3).normal(size=(300, 2))
    np.testing.assert_array_equal(kernel.run(np.hstack([x, x])), 0.0)


@pytest.mark.parametrize("name", KINKS)
def test_kinks_are_those_of_float64(name: str) -> None:
    """Where low parts decide, at ties and at zeros: the same sides, NaN and second derivatives."""
    at = np.array([[a, b] for a in EDGES for b in EDGES])
    for pairs, double in in_both(lambda **how: sg.fused_hessian(2, KINKS[name], **how), at):
        same = (pairs == double) | (np.isnan(pairs) & np.isnan(double))
        with np.errstate(invalid="ignore"):
            same |= np.abs(pairs - double) <= 2.0**-40 * (1 + np.abs(double))
        np.testing.assert_array_equal(same, True)
