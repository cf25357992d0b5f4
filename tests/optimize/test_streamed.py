"""Problems that go through a GPU block by block end as they do all at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
from launched import room_for

import symgrad as sg
from symgrad.optimize import states
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.device.gpus import list_gpus, open_gpu
from symgrad.wgsl.dispatch.until import Steps

if not list_gpus():
    pytest.skip("no GPU and no software Vulkan driver here", allow_module_level=True)

COUNT = 333


def bowl(v: Any) -> Any:
    return (v[0] - 1) ** 2 + 3 * (v[1] + v[0]) ** 2 + sg.cos(v[1])


def line(p: Any, row: Any) -> Any:
    x, y = row
    return p[0] * sg.exp(-p[1] * x) - y


@pytest.fixture
def blocks() -> Iterator[list[int]]:
    """Makes blocks of a hundred problems; the sizes of those to come."""
    sizes: list[int] = []
    collected = states.DeviceStates.collected

    def counted(self: Any, part: slice, *rest: Any) -> Any:
        sizes.append(len(self.state))
        return collected(self, part, *rest)

    with (
        mock.patch.multiple(states, BLOCK_BYTES=1, BLOCK_PROBLEMS=100),
        mock.patch.object(states.DeviceStates, "collected", counted),
    ):
        yield sizes


def at_once() -> Any:
    """A context in which all problems are one block."""
    return mock.patch.object(states, "BLOCK_BYTES", 1 << 25)


def curves() -> tuple[np.ndarray, np.ndarray]:
    x = np.linspace(0, 3, 12)
    rates = np.linspace(0.3, 2, COUNT)
    return x, np.exp(-np.outer(rates, x)) * np.linspace(1, 2, COUNT)[:, None]


def same(found: Any, want: Any) -> None:
    for name in ("x", "fun", "nit", "status", "success"):
        np.testing.assert_array_equal(found[name], want[name])
        assert found[name].dtype == want[name].dtype
    assert list(found.message) == list(want.message) and found.best == want.best


@pytest.mark.parametrize("method", [sg.Adam(0.05), sg.LBFGS(), sg.Newton()], ids=repr)
def test_starts(blocks: list[int], method: Any) -> None:
    starts = np.random.default_rng(0).normal(size=(COUNT, 2))

    def run(starts: Any) -> Any:
        return sg.minimize_from(bowl, 2, starts, method, 40, device="gpu")

    found = run(starts)
    assert blocks == [111, 111, 111]
    same(run(np.asfortranarray(starts).astype(">f8")), found)
    with at_once():
        same(run(starts.astype(np.float32)), found)
    assert len(blocks) == 7


@pytest.mark.parametrize("kind", ["float32", "float64", ">f4", "float16"])
def test_data_of_each(blocks: list[int], kind: str) -> None:
    x, seen = curves()
    seen = seen.astype(np.float16).astype(kind)

    def run(seen: Any) -> Any:
        model = lambda x, a, b: a * sg.exp(-b * x)  # noqa: E731
        return sg.fit_many(model, x, seen, [1.0, 1.0], device="gpu")

    found = run(seen)
    assert blocks == [111, 111, 111]
    np.testing.assert_allclose(found.x[:, 1], np.linspace(0.3, 2, COUNT), rtol=1e-2)
    same(run(np.asfortranarray(seen)), found)
    with at_once():
        same(run(seen.astype(np.float32)), found)


def test_a_device_that_is_slow_is_waited_for(
    blocks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, seen = curves()
    own = np.stack([np.broadcast_to(x, seen.shape), seen], axis=-1)

    def run() -> Any:
        return sg.minimize_from(
            line, 2, np.ones((COUNT, 2)), sg.LevenbergMarquardt(), 30, own=own, device="gpu"
        )

    found = run()
    dispatch, dispatches = Steps._dispatch, []

    def counted(self: Steps, *rest: Any) -> Any:
        dispatches.append(rest[1])
        return dispatch(self, *rest)

    monkeypatch.setattr(Steps, "_dispatch", counted)
    monkeypatch.setattr("symgrad.wgsl.dispatch.until.SECONDS_PER_DISPATCH", 1e-9)
    same(run(), found)
    assert len(dispatches) > 6 and set(dispatches) == {1}


@pytest.mark.parametrize("method", [sg.Adam(0.05), sg.LBFGS()], ids=repr)
def test_parts_of_states_that_stand_by_columns(method: Any) -> None:
    starts = sg.device_array(np.random.default_rng(0).normal(size=(COUNT, 2)), "gpu")

    def run() -> Any:
        return sg.minimize_from(bowl, 2, starts, method, 40, device="gpu", memory=True)

    want = run()
    with mock.patch.object(Steps, "points_transposed", 64):
        found = run()
    for name in ("x", "fun", "nit", "status", "success"):
        np.testing.assert_array_equal(found[name].numpy(), want[name].numpy())
    for a, b in zip(found.memory, want.memory, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_loss_that_is_computed_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = np.random.default_rng(0).normal(size=(COUNT, 2)).astype(np.float32)
    starts[7] = np.inf

    def run(**more: Any) -> Any:
        return sg.minimize_from(bowl, 2, starts, sg.Adam(0.05), 40, device="gpu", **more)

    found, stopped = run(), run(progress=lambda _: True)
    monkeypatch.setattr("symgrad.optimize.states.GATHERED_NODES", 0)
    for other in (run(), stopped, run(memory=True)):
        same(other, found)
    x = np.delete(found.x, 7, axis=0).astype(float)
    want = (x[:, 0] - 1) ** 2 + 3 * (x[:, 1] + x[:, 0]) ** 2 + np.cos(x[:, 1])
    np.testing.assert_allclose(np.delete(found.fun, 7), want, rtol=1e-5)
    assert found.status[7] == -2 and not found.success.any()


def test_errors_of_the_loss_are_the_users(blocks: list[int]) -> None:
    def loss(v: Any) -> Any:
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine") as found:
        sg.minimize_from(loss, 2, np.ones((COUNT, 2)), sg.LBFGS(), 4, device="gpu")
    assert not isinstance(found.value, sg.SymgradError) and not blocks


def test_shared_data_may_be_on_the_device(blocks: list[int]) -> None:
    x, seen = curves()
    shared = np.stack([x, seen[7]], axis=1)
    starts = np.random.default_rng(1).uniform(0.5, 1.5, (COUNT, 2))

    def run(shared: Any) -> Any:
        return sg.minimize_from(
            line, 2, starts, sg.LevenbergMarquardt(), 30, shared=shared, device="gpu"
        )

    found = run(shared)
    assert blocks == [111, 111, 111]
    there = run(sg.device_array(shared, "gpu"))
    for name in ("x", "fun", "nit", "status", "success"):
        assert isinstance(there[name], DeviceArray), name
        np.testing.assert_array_equal(there[name].numpy(), found[name])
    assert list(there.message) == list(found.message)


def test_arrays_may_be_changed_after_the_call(blocks: list[int]) -> None:
    starts = np.random.default_rng(2).normal(size=(COUNT, 2))
    want = sg.minimize_from(bowl, 2, starts.copy(), sg.LBFGS(), 40, device="gpu")
    found = sg.minimize_from(bowl, 2, starts, sg.LBFGS(), 40, device="gpu")
    starts[:] = np.nan
    same(found, want)


def test_after_an_interrupt(blocks: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    starts = np.random.default_rng(3).normal(size=(COUNT, 2))
    want = sg.minimize_from(bowl, 2, starts, sg.LBFGS(), 40, device="gpu")
    sent, calls = DeviceArray.sent, iter(range(99))

    def interrupted(*given: Any) -> Any:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return sent(*given)

    with monkeypatch.context() as patch:
        patch.setattr(DeviceArray, "sent", interrupted)
        with pytest.raises(KeyboardInterrupt):
            sg.minimize_from(bowl, 2, starts, sg.LBFGS(), 40, device="gpu")
    same(sg.minimize_from(bowl, 2, starts, sg.LBFGS(), 40, device="gpu"), want)


def test_no_problems(blocks: list[int]) -> None:
    found = sg.minimize_from(bowl, 2, np.empty((0, 2)), sg.LBFGS(), 40, device="gpu")
    assert found.x.shape == (0, 2) and found.fun.shape == (0,) and found.best is None


def test_values_that_float32_does_not_tell_apart_are_told_of_once(blocks: list[int]) -> None:
    x, seen = curves()
    with pytest.warns(sg.PrecisionWarning) as told:
        sg.fit_many(lambda x, a, b: a * sg.exp(-b * x), x, seen + 1e9, [1.0, 1.0], device="gpu")
    assert len(told) == 1 and str(told[0].message).startswith("Y has values that float32")


def test_blocks_are_smaller_where_memory_is_short(blocks: list[int]) -> None:
    starts = np.random.default_rng(0).normal(size=(4_000, 2))

    def run() -> Any:
        return sg.minimize_from(bowl, 2, starts, sg.LBFGS(), 40, device="gpu")

    with at_once():
        want = run()
        assert blocks == [4_000]
        blocks.clear()
        with room_for(open_gpu(), 300_000):
            same(run(), want)
        assert 64 <= max(blocks) <= 2_000
        with room_for(open_gpu(), 1_000), pytest.raises(sg.DeviceMemoryError, match="beyond the"):
            run()
