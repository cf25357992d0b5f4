"""Updates of nests of arrays, beside the textbook's AdamW in float64."""

from __future__ import annotations

import pickle
from typing import Any, Literal

import numpy as np
import pytest
from tensor_arrays import drawn, error
from tint import check_with_tint, needs_tint

import symgrad as sg
from symgrad.expr.tracers.tree import flatten
from symgrad.kernel.language.target import SimdTarget, WorkgroupTarget
from symgrad.optimize.rules import AdamW
from symgrad.pipeline import Options
from symgrad.targets import DeviceChoice
from symgrad.tensor.optimizers import Update

DEVICES: list[Literal["cpu", "gpu"]] = ["cpu", "gpu"]
BOUND = 2e-5


def nest(seed: int, scale: float = 1.0) -> Any:
    """Arrays of many sizes: a number, none, and some for several groups, nested."""
    rng = np.random.default_rng(seed)
    rows = [drawn(rng, (n,), scale) for n in (1, 5, 64, 257, 1, 3, 2, 9, 1)]
    return {
        "w": drawn(rng, (130, 257), scale), "rows": rows,
        "more": (drawn(rng, (), scale), np.zeros((0, 3)), drawn(rng, (3, 1, 2), scale)),
    }  # fmt: skip


def leaves(value: Any) -> list[np.ndarray]:
    return [np.asarray(a, np.float64) for a in flatten(value)[0]]


def norm_of(value: Any) -> float:
    return float(np.sqrt(sum((a**2).sum() for a in leaves(value))))


def adamw(
    params: list[np.ndarray], steps: list[list[np.ndarray]], rates: list[float], decay: float
) -> list[np.ndarray]:
    """The parameters after some steps, each with its gradients."""
    means = [np.zeros_like(p) for p in params]
    squares = [np.zeros_like(p) for p in params]
    for t, (gradients, rate) in enumerate(zip(steps, rates, strict=True), 1):
        for n, g in enumerate(gradients):
            means[n] = 0.9 * means[n] + 0.1 * g
            squares[n] = 0.999 * squares[n] + 0.001 * g**2
            size = np.sqrt(squares[n] / (1 - 0.999**t)) + 1e-8
            moved = rate * (means[n] / (1 - 0.9**t)) / size
            params[n] = params[n] * (1 - rate * decay) - moved
    return params


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("limit", [None, 0.5, 1e6])
def test_adamw(limit: float | None, device: DeviceChoice) -> None:
    """With gradients that are clipped, with some that are not, and with a rate of the step."""
    rates = [0.02, 0.02 / 2, 0.02 / 3]
    update = sg.adamw_update(
        lambda step: 0.02 / (step + 1.0), weight_decay=0.1, max_norm=limit, device=device
    )
    params, state, steps = nest(0), None, []
    for seed in (1, 2, 3):
        gradients = nest(seed)
        params, state = update.run(params, gradients, state)
        factor = 1.0 if limit is None else min(1.0, limit / norm_of(gradients))
        steps.append([factor * g for g in leaves(gradients)])
    wanted = adamw(leaves(nest(0)), steps, rates, 0.1)
    assert max(error(a, b) for a, b in zip(leaves(params), wanted, strict=True)) <= BOUND
    assert state is not None and state.shared[-1] == 3
    assert isinstance(params["more"], tuple) and params["more"][1].shape == (0, 3)


@pytest.mark.parametrize("device", DEVICES)
def test_clipping(device: DeviceChoice) -> None:
    gradients = nest(4)
    for limit in (0.25, 2.0 * norm_of(gradients)):
        clipped, norm = sg.clip_by_global_norm(limit, device=device).run(gradients)
        assert norm == pytest.approx(norm_of(gradients), rel=1e-6)
        factor = min(1.0, limit / norm_of(gradients))
        pairs = zip(leaves(clipped), leaves(gradients), strict=True)
        assert max(error(a, factor * b) for a, b in pairs) <= 1e-6


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, 3e38])
def test_a_norm_that_is_not_finite_is_told_by_all(bad: float, device: DeviceChoice) -> None:
    clip = sg.clip_by_global_norm(1.0, device=device)
    clipped, norm = clip.run([np.ones(3), np.array([bad, bad, 1.0])])
    assert not np.isfinite(norm) and all(np.isnan(a).all() for a in clipped)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("low", "high"), [(-120, -100), (-60, -40), (-5, 5), (40, 60), (100, 120), (-120, 120)]
)
def test_a_norm_has_no_scale(low: int, high: int, device: DeviceChoice) -> None:
    rng = np.random.default_rng(0)
    exponents = rng.uniform(low, high, 20_000)
    gradients = [(rng.normal(size=20_000) * 2.0**exponents).astype(np.float32), np.zeros(3)]
    wanted = float(np.linalg.norm(gradients[0].astype(np.float64)))
    (clipped, _), norm = sg.clip_by_global_norm(0.5 * wanted, device=device).run(gradients)
    assert norm == pytest.approx(wanted, rel=2e-6)
    assert np.linalg.norm(clipped.astype(np.float64)) == pytest.approx(0.5 * wanted, rel=2e-6)


def test_a_norm_in_float64_has_no_scale() -> None:
    clip = sg.clip_by_global_norm(1.0, device="cpu", dtype="float64")
    for scale in (1e-300, 1e-150, 1.0, 1e150, 1e300):
        (clipped,), norm = clip.run([scale * np.array([3.0, 4.0])])
        assert norm == pytest.approx(5 * scale, rel=1e-15)
        assert clipped == pytest.approx(np.array([0.6, 0.8]) * min(1.0, 5 * scale), rel=1e-15)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("nest", [{}, [], {"a": np.zeros(0), "b": (np.zeros((0, 3)),)}])
def test_nests_without_numbers_are_what_they_are(nest: Any, device: DeviceChoice) -> None:
    clipped, norm = sg.clip_by_global_norm(1.0, device=device).run(nest)
    assert norm == 0.0 and type(clipped) is type(nest)
    update = sg.adamw_update(max_norm=1.0, device=device)
    params, state = update.run(nest, nest)
    params, state = update.run(params, nest, state)
    assert type(params) is type(nest) and state.shared[-1] == 2


def test_arrays_stay_on_the_device_with_the_same_bits() -> None:
    update = sg.adamw_update(max_norm=1.0, device="gpu")
    params, gradients = nest(5), nest(6)
    plain, state = update.run(params, gradients)
    again, _ = pickle.loads(pickle.dumps(update)).run(params, gradients)
    there = [sg.device_array(a, device="gpu") for a in leaves(params) if a.size]
    slopes = [sg.device_array(a, device="gpu") for a in leaves(gradients) if a.size]
    moved, kept = update.run(there, slopes)
    assert all(isinstance(a, sg.DeviceArray) for a in (*moved, kept.shared, *kept.memory[0]))
    full = [a for a in leaves(plain) if a.size]
    assert all(np.array_equal(a.numpy(), b) for a, b in zip(moved, full, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(leaves(again), leaves(plain), strict=True))
    found, _ = update.run(moved, slopes, kept)
    after, _ = update.run(plain, gradients, state)
    same = [a for a in leaves(after) if a.size]
    assert all(np.array_equal(a.numpy(), b) for a, b in zip(found, same, strict=True))


def test_float64_on_the_cpu() -> None:
    update = sg.adamw_update(0.01, dtype="float64", device="cpu")
    params, _ = update.run(nest(7), nest(8))
    wanted = adamw(leaves(nest(7)), [leaves(nest(8))], [0.01], 0.01)
    assert max(error(a, b) for a, b in zip(leaves(params), wanted, strict=True)) <= 1e-13


@pytest.mark.parametrize(
    "device_target", [WorkgroupTarget(), SimdTarget(64, whole=False)], ids=["groups", "in_step"]
)
def test_the_programs_have_no_races(device_target: Any) -> None:
    work = Update(AdamW(), 1.0, Options("update", dtype="float64"), 9)
    rng, sizes = np.random.default_rng(9), [1, 2, 20_000, 3, 4, 5, 6, 7, 300]
    arrays = [drawn(rng, (n,)) ** 2 for _ in range(4) for n in sizes]
    launch = work.launch("run", [*((a.size,) for a in arrays), (3,)], device_target)
    launch.verify()
    first = launch.execute([*arrays, work.first])
    assert all(np.isfinite(a).all() for a in first)


def test_a_loop_of_steps_finds_the_bindings_that_it_had() -> None:
    update = sg.adamw_update(max_norm=1.0, device="gpu")
    arrays = [np.full(64, k + 1.0, "float32") for k in range(20)]
    params, slopes = ([sg.device_array(a, device="gpu") for a in arrays] for _ in range(2))
    params, state = update.run(params, slopes)
    counts = []
    for _ in range(10):
        params, state = update.run(params, slopes, state)
        counts.append(len(params[0].gpu._bindings))
    assert counts[4] == counts[-1], counts


@needs_tint
def test_tint_takes_all_programs() -> None:
    update = sg.adamw_update(max_norm=1.0, device="gpu")
    update.run(nest(5), nest(6))
    assert check_with_tint(update.modules) == [None] * len(update.modules)


def test_what_does_not_go_together() -> None:
    update = sg.adamw_update(device="cpu")
    with pytest.raises(
        sg.InputError, match=r"an array of shape \(2,\) for a parameter of .*\(3,\)"
    ):
        update.run({"a": np.ones(3)}, {"a": np.ones(2)})
    with pytest.raises(sg.InputError, match="gradients must be a"):
        update.run({"a": np.ones(3)}, {"b": np.ones(3)})
    with pytest.raises(sg.InputError, match="max_norm=0"):
        sg.clip_by_global_norm(0)
    with pytest.raises(sg.SymgradError, match="has no vjp"):
        update.vjp(np.ones(3), np.ones(3))
    assert update.run([], [])[0] == []
