"""Profiles have the stages of a call, and what they watch computes what it always does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from catalog import rosenbrock

import symgrad as sg
from symgrad.kernel.host import watch
from symgrad.report import device
from symgrad.report.device import Limits, limits_of
from symgrad.report.profiling import MEANING, Profile
from symgrad.targets import choose
from symgrad.wgsl.device.gpus import open_gpu

DEVICES = ["cpu", *(d.index for d in sg.devices() if d.is_gpu)]
POINTS = np.random.default_rng(1).normal(size=(300, 3)).astype(np.float32)
ROWS = POINTS[:, :2].copy()


def loss_of_row(p: Any, r: Any) -> Any:
    return (p[0] + p[1] * sg.exp(r[0]) - r[1]) ** 2


def looked_up(p: Any, r: Any) -> Any:
    return (p.level[r.who] - r.x) ** 2


TABLE = {"who": np.arange(300) % 3, "x": POINTS[:, 0]}

Made = tuple[Any, tuple[Any, ...], int]
"""What has a profile, what it is given, and for how many points or rows that is."""


def over(make: Any, bind: bool = False, **options: Any) -> Callable[[Any], Made]:
    def made(device: Any) -> Made:
        kernel = make(2, loss_of_row, row=2, device=device, **options)
        return (kernel.bind(ROWS), ([1.0, 2.0],), 300) if bind else (kernel, ([1, 2], ROWS), 300)

    return made


def of_points(make: Any, points: Any = POINTS, **options: Any) -> Callable[[Any], Made]:
    return lambda device: (
        make(3, rosenbrock, device=device, **options), (points,), points.size // 3
    )  # fmt: skip


def on_device(device: Any) -> Made:
    kernel, (points,), count = of_points(sg.fused_forward_backward)(device)
    return kernel, (points if device == "cpu" else sg.device_array(points, device),), count


def of_groups(device: Any) -> Made:
    kernel = sg.fused_forward_backward(
        {"level": 3}, looked_up, columns=["who", "x"], device=device
    )  # fmt: skip
    return kernel, ({"level": np.zeros(3)}, TABLE), 300


KINDS: dict[str, Callable[[Any], Made]] = {
    "point": of_points(sg.fused_forward_backward, POINTS[0]),
    "batch": of_points(sg.fused_forward_backward),
    "on the device": on_device,
    "forward": of_points(sg.fused_forward),
    "hessian": of_points(sg.fused_hessian),
    "sums": over(sg.fused_forward_backward),
    "means": over(sg.fused_hessian, reduce="mean"),
    "squares": over(sg.fused_least_squares),
    "each row": over(sg.fused_forward_backward, reduce=None),
    "bound": over(sg.fused_forward_backward, bind=True),
    "bound rows": over(sg.fused_forward_backward, bind=True, reduce=None),
    "groups": of_groups,
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that are measured in no time."""
    small = device.Work(2**12, 2**8, 4)
    monkeypatch.setattr(device, "WORK", dict.fromkeys(device.WORK, small))
    monkeypatch.setattr(device, "LEAST_SECONDS", 1e-4)
    monkeypatch.setattr("symgrad.report.profiling.REPEAT_SECONDS", 1e-3)


def leaves(found: Any) -> list[np.ndarray]:
    """The arrays of a nested result."""
    if isinstance(found, dict):
        return [a for part in found.values() for a in leaves(part)]
    if isinstance(found, tuple):
        return [a for part in found for a in leaves(part)]
    return [np.asarray(found)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_stages_make_up_the_call_and_change_nothing(kind: str, device: Any) -> None:
    kernel, arrays, count = KINDS[kind](device)
    start = time.perf_counter()
    found = kernel.profile(*arrays)
    elapsed = time.perf_counter() - start
    moving = {"upload", "queue", "download"} if choose(device).is_gpu else set[str]()
    assert {"host", "kernel"} | moving == set(found.seconds)
    assert min(found.seconds.values()) >= 0.0
    assert 0.0 < found.seconds["kernel"] < found.total < elapsed
    assert 0.0 < found.usual <= found.first < elapsed
    stats = getattr(kernel, "kernel", kernel).stats
    assert found.points == count
    assert found.bytes == count * stats.bytes_per_point
    assert found.operations == count * stats.flops
    assert found.made.keys() == stats.seconds.keys()
    for ours, plain in zip(leaves(found.result), leaves(kernel.run(*arrays)), strict=True):
        np.testing.assert_array_equal(ours, plain)


@pytest.mark.parametrize("device", DEVICES)
def test_minimisations_and_fits_have_profiles(device: Any) -> None:
    kernel = sg.fused_forward_backward(3, rosenbrock, device=device)
    found = sg.profile(kernel.minimize, POINTS, sg.Adam(0.01), steps=30)
    plain = kernel.minimize(POINTS, sg.Adam(0.01), steps=30)
    np.testing.assert_array_equal(found.result.x, plain.x)
    assert found.seconds["kernel"] > 0.0 and found.bytes is None and found.operations is None
    traced = sg.profile(sg.minimize_from, rosenbrock, 3, POINTS, sg.LBFGS(), 5, device=device)
    assert traced.seconds["trace"] > 0.0
    assert "bytes" not in str(traced)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_programs_of_whole_arrays_have_profiles(device: Any) -> None:
    smooth, a = sg.jit(lambda a: np.tanh(a) @ a, device=device), np.eye(30, dtype=np.float32)
    profile = sg.profile(smooth, a)
    np.testing.assert_array_equal(profile.result, smooth(a))
    assert profile.seconds["kernel"] > 0


def test_compiling_is_a_stage_of_the_call_that_compiles() -> None:
    with watch.watching() as seen:
        sg.fused_forward(1, lambda v: v[0] * 3.25 - 1, device="cpu").run([1.0])
    assert {"trace", "simplify", "emit", "compile"} <= set(seen.seconds)


def test_a_stage_within_another_is_not_counted_twice() -> None:
    with watch.watching() as seen:
        start = time.perf_counter()
        with watch.stage("upload"):
            time.sleep(0.01)
            with watch.stage("compile"):
                time.sleep(0.01)
        elapsed = time.perf_counter() - start
    assert min(seen.seconds.values()) >= 0.01
    assert sum(seen.seconds.values()) <= elapsed


def test_code_of_several_threads_is_counted_once() -> None:
    with watch.watching() as seen:
        run = seen.timed(time.sleep)
        threads = [threading.Thread(target=run, args=(0.02,)) for _ in range(3)]
        start = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        elapsed = time.perf_counter() - start
    assert 0.02 <= seen.running() <= elapsed


def test_other_threads_are_not_watched() -> None:
    found: list[Any] = []
    with watch.watching():
        thread = threading.Thread(target=lambda: found.append(watch.current()))
        thread.start()
        thread.join()
    assert found == [None]
    assert watch.current() is None


@pytest.mark.parametrize("device", DEVICES[1:])
def test_nothing_is_left_of_a_watch(device: int) -> None:
    kernel = sg.fused_forward(3, rosenbrock, device=device)
    kernel.run(POINTS)
    gpu = open_gpu(device)
    before = dict(vars(gpu.encoder)), dict(vars(gpu.mapper))
    kernel.profile(POINTS)
    assert set(vars(gpu.encoder)) == set(before[0]) and set(vars(gpu.mapper)) == set(before[1])
    with pytest.raises(ZeroDivisionError):
        sg.profile(lambda: (kernel.run(POINTS), 1 // 0))
    assert set(vars(gpu.encoder)) == set(before[0]) and watch.current() is None


@pytest.mark.parametrize("device", DEVICES[1:])
def test_kernels_are_timed_without_a_clock_too(
    device: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = sg.fused_forward(3, rosenbrock, device=device)
    monkeypatch.setattr("symgrad.wgsl.device.timing.timestamps_of", lambda gpu: None)
    found = kernel.profile(np.repeat(POINTS, 30, axis=0))
    assert not found.by_timestamps and found.total > 0.0
    assert "difference of waits" in str(found)


PROFILE = Profile(
    "loss", "a GPU", {"host": 1e-5, "kernel": 3e-5}, 3e-5, 1e-2, {"trace": 1e-3}, 1000,
    bytes=6000, operations=9000, limits=Limits(1e9, 1e9),
)  # fmt: skip


def test_fractions_are_those_of_the_limits() -> None:
    assert PROFILE.bandwidth_fraction == pytest.approx(0.2)
    assert PROFILE.rate_fraction == pytest.approx(0.3)
    assert PROFILE.bound == "rate"
    assert Profile("f", "CPU", {"host": 2.0, "kernel": 1.0}, 1.0, 1.0).bound == "host"
    assert Profile("f", "CPU", {"host": 1.0, "kernel": 2.0}, 1.0, 1.0).bound == "kernel"


def test_it_shows_itself_as_text_and_in_a_notebook() -> None:
    lines = str(PROFILE).splitlines()
    assert lines[0] == "loss on a GPU, 1,000 points: bound by rate"
    assert lines[1].split() == ["stage", "ms", "share"]
    assert lines[3].split()[:3] == ["kernel", "0.030", "75%"]
    assert "9,000 operations: 30.0% of the device's 1e+09 a second" in lines
    shown = PROFILE._repr_html_()
    assert shown.count("<tr>") == 6 and "made once: trace 1.000 ms" in shown
    assert "<b>" not in Profile("<b>", "", {"kernel": 1.0}, 1.0, 1.0)._repr_html_()


def test_every_stage_has_a_meaning() -> None:
    kernel = sg.fused_hessian(3, rosenbrock, device="cpu")
    assert set(kernel.stats.seconds) <= set(MEANING)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_limits_are_measured_once(dtype: Any) -> None:
    found = limits_of(choose("cpu"), dtype)
    assert found is limits_of(choose("cpu"), dtype)
    assert found.bandwidth > 0.0 and found.rate > 0.0


def watched_within(kernel: Any) -> None:
    """Profile a kernel where that is watched; before it is, it may be profiled."""
    if watch.current() is not None:
        kernel.profile(POINTS)


def test_what_cannot_be_profiled_says_so() -> None:
    kernel = sg.fused_forward_backward(2, loss_of_row, row=2, device="cpu")
    with pytest.raises(sg.InputTypeError, match="iterator of blocks"):
        kernel.profile([1.0, 2.0], iter([ROWS]))
    with pytest.raises(sg.InputError, match="3"):
        sg.fused_forward(3, rosenbrock, device="cpu").profile([1.0])
    point = sg.fused_forward(3, rosenbrock, device="cpu")
    with pytest.raises(sg.InputError, match="profile one"):
        sg.profile(lambda: watched_within(point))
    with pytest.raises(sg.InputTypeError, match="a function and its arguments"):
        sg.profile(3)  # type: ignore[arg-type]
