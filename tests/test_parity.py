"""Random programs of loops, choices and arrays: the interpreter and every device agree."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import numpy as np
import pytest
from looped import SAMPLES
from programs import points, program
from tint import check_with_tint, needs_tint

import symgrad as sg
from symgrad.kernel.language.execute import execute
from symgrad.kernel.language.target import SimdTarget, WorkgroupTarget
from symgrad.kernel.language.verify import verify
from symgrad.kernel.skeletons.map import map_program

SEEDS = range(5)
GPUS = [d for d in sg.devices() if d.is_gpu]
X = points(count=70).T
"""Points (70, 3): no whole number of vectors or workgroups."""


def loss(seed: int) -> Any:
    """A program as a loss of three numbers."""

    def f(v: Any) -> Any:
        a, b = program(seed)(v)
        return a * b + a

    return f


@cache
def made(seed: int, dtype: Literal["float32", "float64"] = "float64") -> sg.Kernel:
    return sg.fused_forward_backward(3, loss(seed), device="cpu", dtype=dtype)


def interpreted(kernel: sg.Kernel, x: np.ndarray, target: Any, dtype: Any) -> np.ndarray:
    """Loss and gradient (B, 4) by the interpreter, of what back ends are given."""
    computation = kernel._shaders.computation
    program = map_program(computation, target)
    verify(program)
    count = -(-len(x) // target.width) * target.width if target.whole else len(x)
    arrays = {"x": np.resize(np.asarray(x, dtype), (count, 3))}
    arrays |= {o.name: np.empty((count, len(o.nodes)), dtype) for o in computation.outputs}
    execute(program, arrays, count, dtype=dtype)
    return np.concatenate([arrays[o.name] for o in computation.outputs], axis=1)[: len(x)]


@cache
def expected(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Loss and gradient in float64, and how much they change where the last digits of x do.

    At a jump, of a choice or of a number of iterations, no float32 can be held to them.
    """
    nearby = [
        interpreted(made(seed), X * (1 + e), SimdTarget(8), np.float64) for e in (0, 3e-7, -3e-7)
    ]
    change = np.max([np.abs(n - nearby[0]) for n in nearby], axis=0).max(axis=1)
    return nearby[0], change


def on_device(kernel: sg.Kernel) -> np.ndarray:
    value, gradient = kernel.run(X)
    return np.concatenate([value[:, None], gradient], axis=1).astype(np.float64)


def agrees(found: np.ndarray, seed: int, tolerance: float) -> None:
    """Whether results are those that are expected, but for what the rounding of x makes of them."""
    want, change = expected(seed)
    scale = np.abs(want).max(axis=1) + 1.0
    error = np.abs(found - want).max(axis=1) / scale
    steady = change < 1e-4 * scale
    assert steady.mean() > 0.8
    assert (error[steady] < tolerance + 10 * (change / scale)[steady]).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_the_interpreter_agrees_for_each_kind_of_target(seed: int) -> None:
    found = interpreted(made(seed), X, WorkgroupTarget(8), np.float64)
    np.testing.assert_array_equal(found, expected(seed)[0])
    agrees(interpreted(made(seed, "float32"), X, SimdTarget(8), np.float32), seed, 1e-4)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_cpu_agrees(seed: int) -> None:
    found = on_device(made(seed))
    scale = np.abs(expected(seed)[0]).max(axis=1, keepdims=True) + 1.0
    assert (np.abs(found - expected(seed)[0]) / scale).max() < 1e-11
    single = made(seed, "float32")
    agrees(on_device(single), seed, 1e-4)
    alone = [single.run(x) for x in np.asarray(X[:3], np.float32)]
    batch = single.run(X)
    np.testing.assert_array_equal([value for value, _ in alone], batch[0][:3])
    np.testing.assert_array_equal([gradient for _, gradient in alone], batch[1][:3])


@pytest.mark.parametrize("device", GPUS, ids=str)
@pytest.mark.parametrize("seed", SEEDS)
def test_gpus_agree(seed: int, device: sg.Device) -> None:
    agrees(on_device(made(seed, "float32").to(device)), seed, 1e-4)


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_that_are_easily_wrong(name: str) -> None:
    """Values and derivatives on the CPU, against differences of what Python's loops give."""
    sample = SAMPLES[name]
    at = sample.points()
    double = sg.fused_forward_backward(sample.n, sample.f, device="cpu", dtype="float64")
    value, gradient = double.run(at.T)
    np.testing.assert_allclose(value, sample.values(at), rtol=1e-7)
    np.testing.assert_allclose(gradient.T, sample.gradients(at), rtol=1e-6, atol=1e-6)
    if name == "newton" or not GPUS:  # its test asks for more digits than float32 has
        return
    single = sg.fused_forward_backward(sample.n, sample.f, device=GPUS[0])
    for found, wanted in zip(single.run(at.T), (value, gradient), strict=True):
        assert np.abs(found - wanted).max() < 1e-4 * (1 + np.abs(wanted).max())


@needs_tint
def test_tint_takes_the_sources() -> None:
    sources = [module for seed in SEEDS for module in made(seed, "float32").modules]
    assert check_with_tint(sources) == [None] * len(sources)
