"""What loops keep for reverse mode, by choice: gradients are the same, and stats say what."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.errors import InputError
from symgrad.expr.derivatives.transpose import Checkpoint
from symgrad.report import kernel

POINTS = np.random.default_rng(0).uniform(0.5, 0.9, (70, 2))


def logistic(v: Any, iterations: int = 900) -> Any:
    """A sequence of which each turn reads what is carried."""
    return sg.fori_loop(0, iterations, lambda _, x: x + 0.01 * x * (v[0] - x), v[1])


def until(v: Any) -> Any:
    """A loop that ends when it ends: each point takes other iterations."""

    def going(state: Any) -> Any:
        return state[0] > 0.1 * v[0]

    def step(state: Any) -> Any:
        x, y = state
        return x * (0.97 + 0.02 * v[0]), y + sg.sin(x * y) * 0.1

    return sg.while_loop(going, step, (v[1] * 2, v[0]), max_steps=600)[1]


def run(f: Any, checkpoint: Checkpoint, device: Any = "cpu", dtype: Any = "float64") -> Any:
    kernel = sg.fused_forward_backward(2, f, device=device, dtype=dtype, checkpoint=checkpoint)
    return kernel, kernel.run(POINTS)


ROOTS = {logistic: 30, until: 25}
"""The iterations of a strip, if there are as many strips."""


@pytest.mark.parametrize("f", [logistic, until])
@pytest.mark.parametrize(("checkpoint", "strip"), [("sqrt", None), (7, 7), (450, 450)])
def test_strips_have_the_same_gradients(f: Any, checkpoint: Checkpoint, strip: int | None) -> None:
    (kept, want), (mined, found) = run(f, "keep"), run(f, checkpoint)
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    assert kept.stats.strips == () and mined.stats.strips == (strip or ROOTS[f],)
    assert 0 < mined.stats.kept < kept.stats.kept
    assert f"in strips of {mined.stats.strips[0]} iterations" in str(mined.stats)


def test_what_is_kept() -> None:
    assert run(logistic, "auto")[0].stats.kept == 8 * 900
    assert run(logistic, "keep", dtype="float32")[0].stats.kept == 4 * 900
    assert run(logistic, "sqrt")[0].stats.kept == 8 * 60
    assert run(lambda v: v[0] * v[1], "auto")[0].stats.kept == 0
    long = sg.fused_forward_backward(2, lambda v: logistic(v, 200_000), device="cpu")
    assert long.stats.strips == (32,) and long.stats.kept == 4 * (32 + 2 * 6250)


def test_a_loop_with_a_test_is_long_too() -> None:
    """Of 200,000 iterations at most it keeps few, and those points that end soon are right."""

    def f(v: Any) -> Any:
        return sg.while_loop(
            lambda x: x > 0.2, lambda x: x - 0.001 * sg.sin(x * v[0]), v[1], max_steps=200_000
        )

    kernel = sg.fused_forward_backward(2, f, device="cpu", dtype="float64")
    assert kernel.stats.kept <= 8 * (32 + 2 * 6250)
    _, want = sg.fused_forward_backward(
        2, f, device="cpu", dtype="float64", checkpoint="keep"
    ).run(POINTS)  # fmt: skip
    np.testing.assert_allclose(kernel.run(POINTS)[1], want, rtol=1e-9)


def dear(v: Any) -> Any:
    """A sequence of which each number takes many operations."""

    def step(_: Any, x: Any) -> Any:
        return x - 0.001 * sg.sin(x * v[0]) * sg.exp(-x * x) / (1.0 + sg.cos(x) ** 2)

    return sg.fori_loop(0, 150_000, step, v[1])


def test_what_is_kept_goes_by_the_device_and_by_what_it_costs() -> None:
    cpu = sg.fused_forward_backward(2, lambda v: logistic(v, 40_000), device="cpu")
    gpu = sg.fused_forward_backward(2, lambda v: logistic(v, 6_000), device="gpu")
    assert cpu.stats.kept == 4 * 40_000 and not cpu.stats.strips, "it fits in the cache"
    assert gpu.stats.strips == (32,), "an invocation has as many of its own"
    longer = sg.fused_forward_backward(2, lambda v: logistic(v, 20_000), device="gpu")
    assert longer.stats.strips == (32,), "what strips start with is in memory, and little"
    cheap, costly = (
        sg.fused_forward_backward(2, f, device="cpu")
        for f in (lambda v: logistic(v, 150_000), dear)
    )
    assert cheap.stats.strips and not costly.stats.strips
    long = sg.fused_forward_backward(2, lambda v: logistic(v, 20_000), device="gpu")
    assert long.stats.strips == (32,), "what is carried into them has all of the memory"


@pytest.mark.parametrize("f", [logistic, until])
def test_strips_on_a_gpu(f: Any) -> None:
    _, want = run(f, "keep")
    _, found = run(f, 20, "gpu", "float32")
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-4 * np.abs(b).max())


@pytest.mark.parametrize("choice", ["none", 1, 0, -5, 2.5])
def test_other_choices_are_refused(choice: Any) -> None:
    with pytest.raises(InputError, match="checkpoint="):
        run(logistic, choice)


@pytest.mark.parametrize(("most", "unbounded"), [(None, 1), (50, 0)])
def test_loops_without_a_bound_count_once(
    most: int | None, unbounded: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the CPU no WGSL is printed to tell the size, over rows or not."""

    def halved(p: Any, r: Any) -> Any:
        return sg.while_loop(lambda c: c > p[0], lambda c: c / p[1], r[0], max_steps=most)

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("WGSL is printed")

    monkeypatch.setattr(kernel, "emit_reduction", never)
    monkeypatch.setattr(kernel, "printed_map", never)
    of_rows = sg.fused_forward(2, halved, row=1, device="cpu").stats
    of_points = sg.fused_forward(3, lambda v: halved(v[:2], v[2:]), device="cpu").stats
    for stats in (of_rows, of_points):
        assert 5 <= stats.flops / (most or 1) < 10 and stats.unbounded == unbounded
        assert ("iteration of a loop that has no bound" in str(stats)) == bool(unbounded)
