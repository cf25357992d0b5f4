"""All kernels of arrays are used alike: one table of them, and what can be done with each."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from tensor_arrays import Shape, drawn
from tint import check_with_tint, needs_tint

import symgrad as sg
from symgrad.expr.tracers.tree import flatten

BATCH, LENGTH, CHANNELS, STATES = 2, 19, 5, 4
ROW, CELL = (BATCH, LENGTH, CHANNELS), (BATCH, LENGTH, STATES)
SCAN: list[Shape] = [ROW, ROW, (CHANNELS, STATES), CELL, CELL, (CHANNELS,)]
STATE = (BATCH, CHANNELS, STATES)


def affine(f: Any, g: Any) -> Any:
    """g after f, of slope and value."""
    return g[0] * f[0], g[0] * f[1] + g[1]


def layer_norm(x: Any, w: Any, b: Any) -> Any:
    return w * (x - x.mean()) / np.sqrt(x.var() + 1e-5) + b


@dataclass
class Case:
    """What makes a kernel for a device, and the shapes of what it takes and gives.

    An array without elements is one of the ``empty`` shapes, where there are no others.
    """

    make: Callable[..., Any]
    shapes: list[Shape]
    results: list[Shape]
    empty: list[Shape]

    def arrays(self, shapes: list[Shape]) -> list[np.ndarray]:
        """Numbers between 0.1 and 0.9, which all kernels take."""
        rng = np.random.default_rng(0)
        return [rng.uniform(0.1, 0.9, shape).astype(np.float32) for shape in shapes]

    def cotangents(self) -> list[np.ndarray]:
        rng = np.random.default_rng(1)
        return [drawn(rng, shape).astype(np.float32) for shape in self.results]


EMPTY_SCAN = [(0, *shape[1:]) if len(shape) == 3 else shape for shape in SCAN]

CASES = {
    "gemm_bias": Case(
        partial(sg.gemm_bias, sg.gelu), [(3, 4, 6), (6, 7), (7,)], [(3, 4, 7)],
        [(0, 4, 6), (6, 7), (7,)],
    ),
    "linear": Case(
        partial(sg.linear, sg.silu), [(3, 4, 6), (7, 6), (7,)], [(3, 4, 7)],
        [(0, 4, 6), (7, 6), (7,)],
    ),
    "linear without a bias": Case(
        partial(sg.linear, bias=False), [(9, 6), (7, 6)], [(9, 7)], [(0, 6), (7, 6)]
    ),
    "softmax": Case(partial(sg.rowwise, sg.softmax), [(3, 4, 9)], [(3, 4, 9)], [(0, 4, 9)]),
    "layer norm": Case(
        partial(sg.rowwise, layer_norm), [(7, 12), (12,), (12,)], [(7, 12)],
        [(0, 12), (12,), (12,)],
    ),
    "a number of each row": Case(
        partial(sg.rowwise, sg.logsumexp), [(3, 4, 9)], [(3, 4)], [(0, 4, 9)]
    ),
    "cumsum": Case(partial(sg.associative_scan, np.add), [(3, 70)], [(3, 70)], [(0, 70)]),
    "recurrence": Case(
        partial(sg.associative_scan, affine, axis=-2, reverse=True),
        [(2, 33, 3)] * 2, [(2, 33, 3)] * 2, [(2, 0, 3)] * 2,
    ),
    "causal_convolution": Case(
        partial(sg.causal_convolution, sg.silu), [(2, 70, 5), (5, 4), (5,)], [(2, 70, 5)],
        [(2, 0, 5), (5, 4), (5,)],
    ),
    "stencil": Case(
        partial(sg.stencil, lambda v: sg.tanh(v[0]) * v[1], [(0, 0), (-1, 2)]), [(3, 33, 7)],
        [(3, 33, 7)], [(3, 0, 7)],
    ),
    "selective_scan": Case(sg.selective_scan, SCAN, [ROW], EMPTY_SCAN),
    "selective_scan with states": Case(
        partial(sg.selective_scan, True, "euler", state=True),
        [*SCAN, STATE], [ROW, STATE], [*EMPTY_SCAN, (0, *STATE[1:])],
    ),
}  # fmt: skip
"""The kernels that have gradients."""

PARAMS = {"w": (33, 9), "rows": [(5,), (0, 3), ()]}


def nest(seed: int) -> Any:
    """Parameters, nested."""
    rng = np.random.default_rng(seed)
    leaves, tree = flatten(PARAMS, lambda v: ([v], flatten(0)[1]) if type(v) is tuple else None)
    return tree.nest((drawn(rng, shape).astype(np.float32) for shape in leaves), None)


UPDATES: dict[str, tuple[Callable[..., Any], int]] = {
    "adamw_update": (partial(sg.adamw_update, 0.1), 2),
    "adamw_update, clipped": (partial(sg.adamw_update, max_norm=0.5), 2),
    "clip_by_global_norm": (partial(sg.clip_by_global_norm, 0.5), 1),
}
"""The kernels of nests, and how many of these they take."""


def listed(found: Any) -> list[Any]:
    """Results in a list, one or several."""
    return list(found) if isinstance(found, tuple) else [found]


def on_gpu(array: Any) -> Any:
    return sg.device_array(array, device="gpu")


def same(found: list[Any], wanted: list[Any]) -> bool:
    """Whether arrays have the same bits."""
    return all(np.array_equal(np.asarray(a), b) for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("name", CASES)
def test_run_and_vjp(name: str, device: str) -> None:
    case = CASES[name]
    kernel, arrays = case.make(device=device), case.arrays(case.shapes)
    given = [a.copy() for a in arrays]
    found = listed(kernel.run(*arrays))
    assert [a.shape for a in found] == case.results
    assert all(type(a) is np.ndarray and a.dtype == np.float32 for a in found)
    assert same(listed(kernel(*arrays)), found)
    results, gradients = kernel.vjp(*arrays, *case.cotangents())
    assert [a.shape for a in gradients] == case.shapes and isinstance(gradients, tuple)
    assert all(type(a) is np.ndarray and np.isfinite(a).all() for a in gradients)
    for a, b in zip(listed(results), found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)
    assert same(arrays, given)
    lists = [a.tolist() for a in arrays]
    assert same(listed(kernel.run(*lists)), found)
    with pytest.raises(sg.InputError, match=r"takes|has shape"):
        kernel.vjp(*arrays, *case.cotangents(), arrays[0])


@pytest.mark.parametrize("name", CASES)
def test_arrays_stay_on_the_device_where_there_is_one(name: str) -> None:
    case = CASES[name]
    kernel, arrays = case.make(device="gpu"), case.arrays(case.shapes)
    given = [*arrays, *case.cotangents()]
    there = [on_gpu(a) for a in given]
    found = listed(kernel.run(*there[: len(arrays)]))
    assert all(isinstance(a, sg.DeviceArray) for a in found)
    assert same(found, listed(kernel.run(*arrays)))
    results, gradients = kernel.vjp(*there)
    assert all(isinstance(a, sg.DeviceArray) for a in (*listed(results), *gradients))
    assert same([*gradients], [*kernel.vjp(*given)[1]])
    mixed = listed(kernel.run(there[0], *arrays[1:]))
    assert all(isinstance(a, sg.DeviceArray) for a in mixed) and same(mixed, found)
    with pytest.raises(sg.InputTypeError, match="is on"):
        kernel.to("cpu").run(*there[: len(arrays)])


def test_calls_that_differ_in_an_array_s_place_alone_are_told_apart() -> None:
    kernel = sg.rowwise(lambda x, y: x - 2 * y, device="gpu")
    x = np.random.default_rng(0).normal(size=(3, 2, 128)).astype(np.float32)
    parts = list(on_gpu(x))  # views of one buffer
    pairs = [(0, 1), (1, 0), (1, 2), (0, 1), (2, 2)]
    for _ in range(3):
        found = [kernel.run(parts[i], parts[j]) for i, j in pairs]
        assert same(found, [x[i] - 2 * x[j] for i, j in pairs])
        found = [kernel.run(found[0], a) for a in found]  # in what was computed
        assert same(found, [x[0] - 2 * x[1] - 2 * (x[i] - 2 * x[j]) for i, j in pairs])


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("name", CASES)
def test_arrays_without_elements(name: str, device: str) -> None:
    case = CASES[name]
    kernel, arrays = case.make(device=device), case.arrays(case.empty)
    found = listed(kernel.run(*arrays))
    results, gradients = kernel.vjp(*arrays, *found)
    assert [a.shape for a in listed(results)] == [a.shape for a in found]
    assert [a.shape for a in gradients] == case.empty
    assert not any(np.any(a) for a in gradients)


@pytest.mark.parametrize("name", CASES)
def test_what_a_kernel_tells_of_itself(name: str) -> None:
    case = CASES[name]
    kernel, arrays = case.make(device="cpu"), case.arrays(case.shapes)
    with pytest.raises(sg.InputError, match="call run or vjp first"):
        _ = kernel.wgsl
    kernel.run(*arrays)
    forward = kernel.stats
    assert kernel.wgsl.count("@compute") == len(kernel.modules) <= forward.kernels
    numbers = sum(a.size for a in arrays) + sum(map(int, map(np.prod, case.results)))
    assert forward.bytes == 4 * numbers and forward.flops > 0
    kernel.vjp(*arrays, *case.cotangents())
    assert kernel.stats.flops > forward.flops and kernel.stats.bytes > forward.bytes
    assert repr(kernel).startswith(f"<symgrad kernel {kernel.name}(")
    assert "float32 on" in repr(kernel)


@pytest.mark.parametrize("name", CASES)
def test_a_kernel_moves(name: str) -> None:
    case = CASES[name]
    kernel, arrays = case.make(device="gpu"), case.arrays(case.shapes)
    there = kernel.to("cpu")
    assert there.device.name != kernel.device.name and type(there) is type(kernel)
    for found, wanted in zip(listed(there.run(*arrays)), listed(kernel.run(*arrays)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", ["linear", "softmax", "recurrence", "selective_scan with states"])
def test_either_call_is_profiled(name: str) -> None:
    """Of arrays alone it is run, however many there may be, and of more it is vjp if it says so."""
    case = CASES[name]
    kernel, arrays = case.make(device="cpu"), case.arrays(case.shapes)
    forward = kernel.profile(*arrays)
    assert [a.shape for a in listed(forward.result)] == case.results
    both = kernel.profile(*arrays, *case.cotangents(), vjp=True)
    assert [a.shape for a in both.result[1]] == case.shapes
    assert both.bytes > forward.bytes > 0


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("name", UPDATES)
def test_updates_of_nests(name: str, device: str) -> None:
    make, count = UPDATES[name]
    kernel, nests = make(device=device), [nest(seed) for seed in range(count)]
    found = kernel.run(*nests)
    leaves, shapes = flatten(found[0])[0], [np.shape(a) for a in flatten(nests[0])[0]]
    assert [a.shape for a in leaves] == shapes
    assert all(isinstance(a, np.ndarray) for a in leaves)
    assert kernel.wgsl.count("@compute") == len(kernel.modules) <= kernel.stats.kernels
    assert kernel.stats.bytes > 0 and kernel.stats.flops > 0
    assert same(flatten(pickle.loads(pickle.dumps(kernel)).run(*nests)[0])[0], leaves)
    profiled = kernel.profile(*nests)
    assert same(flatten(profiled.result[0])[0], leaves)
    for a, b in zip(flatten(kernel.to("cpu").run(*nests)[0])[0], leaves, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", UPDATES)
def test_updates_stay_on_the_device(name: str) -> None:
    make, count = UPDATES[name]
    kernel, nests = make(device="gpu"), [nest(seed) for seed in range(count)]
    wanted = flatten(kernel.run(*nests)[0])[0]
    there = []
    for one in nests:
        leaves, tree = flatten(one)
        there.append(tree.nest((on_gpu(a) for a in leaves), None))
    found = flatten(kernel.run(*there)[0])[0]
    assert all(isinstance(a, sg.DeviceArray) for a in found) and same(found, wanted)


@pytest.fixture(scope="module")
def modules() -> dict[str, list[str]]:
    """The WGSL of all kernels of the tables, forward and backward."""
    found = {}
    for name, case in CASES.items():
        kernel, arrays = case.make(device="cpu"), case.arrays(case.shapes)
        kernel.run(*arrays)
        found[name] = [*kernel.modules]
        kernel.vjp(*arrays, *case.cotangents())
        found[name] += kernel.modules
    for name, (make, count) in UPDATES.items():
        kernel = make(device="cpu")
        kernel.run(*(nest(seed) for seed in range(count)))
        found[name] = [*kernel.modules]
    return found


@needs_tint
def test_tint_takes_all_within_the_default_limits(modules: dict[str, list[str]]) -> None:
    sources = list(dict.fromkeys(m for found in modules.values() for m in found))
    verdicts = dict(zip(sources, check_with_tint(sources), strict=True))
    refused = {n: [verdicts[m] for m in found if verdicts[m]] for n, found in modules.items()}
    assert {n: messages for n, messages in refused.items() if messages} == {}


def test_no_kernel_asks_for_features(modules: dict[str, list[str]]) -> None:
    assert not any("enable " in m for found in modules.values() for m in found)
