"""Scans by an associative operation, and their gradients, beside a loop in float64."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest
from scipy.special import softmax
from tensor_arrays import Shape, drawn, error, errors
from tint import check_with_tint, needs_tint

import symgrad as sg
from symgrad.kernel.language.target import SimdTarget, WorkgroupTarget
from symgrad.pipeline import Options
from symgrad.targets import DeviceChoice
from symgrad.tensor import associative
from symgrad.tensor.associative import AssociativeScan
from symgrad.tensor.recipes import ONE, ZERO, Recipes, pattern

DEVICES: list[Literal["cpu", "gpu"]] = ["cpu", "gpu"]
BOUND = 2e-5


def affine(f: Any, g: Any) -> Any:
    """g after f, of slope and value."""
    return g[0] * f[0], g[0] * f[1] + g[1]


def product(a: Any, b: Any) -> Any:
    """The product of 2 x 2 matrices, which does not commute."""
    return (
        a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3],
        a[2] * b[0] + a[3] * b[2], a[2] * b[1] + a[3] * b[3],
    )  # fmt: skip


def scanned(f: Any, arrays: Sequence[np.ndarray], axis: int, reverse: bool) -> list[np.ndarray]:
    """One element after the other, in the dtype of the arrays."""
    stacked = np.stack([np.moveaxis(a, axis, 0) for a in arrays], 1)
    stacked = stacked[::-1] if reverse else stacked
    found = [stacked[0]]
    for element in stacked[1:]:
        both = (found[-1], element) if len(arrays) > 1 else (found[-1][0], element[0])
        found.append(np.array(f(*both)) if len(arrays) > 1 else f(*both)[None])
    whole = np.stack(found[::-1] if reverse else found)
    return [np.moveaxis(whole[:, n], 0, axis) for n in range(len(arrays))]


def slopes(
    f: Any, arrays: list[np.ndarray], cotangents: list[np.ndarray], axis: int, reverse: bool
) -> list[np.ndarray]:
    """The gradients, by a complex step for each place along the axis."""
    found = [np.zeros(a.shape) for a in arrays]
    for n, a in enumerate(arrays):
        for t in range(a.shape[axis]):
            at = (Ellipsis, t) if axis == -1 else (Ellipsis, t, slice(None))
            moved = [b.astype(complex) for b in arrays]
            moved[n][at] += 1e-30j
            results = scanned(f, moved, axis, reverse)
            both = zip(results, cotangents, strict=True)
            found[n][at] = sum((np.imag(y) / 1e-30 * g).sum(axis) for y, g in both)
    return found


@dataclass
class Case:
    f: Any
    count: int
    shape: Shape
    axis: int = -1
    reverse: bool = False

    def arrays(self, scale: float = 1.0) -> tuple[list[np.ndarray], list[np.ndarray]]:
        rng = np.random.default_rng(0)
        draw = [rng.uniform(0.4, 1.1, self.shape) * scale for _ in range(self.count)]
        arrays = [a.astype(np.float32).astype(np.float64) for a in draw]
        return arrays, [drawn(rng, self.shape) for _ in range(self.count)]

    def kernel(self, device: DeviceChoice, **options: Any) -> sg.TensorKernel:
        return sg.associative_scan(
            self.f, axis=self.axis, reverse=self.reverse, device=device, **options
        )


CASES = {
    "add": Case(np.add, 1, (3, 70)),
    "add reversed": Case(np.add, 1, (2, 33), reverse=True),
    "multiply": Case(np.multiply, 1, (40,)),
    "affine": Case(affine, 2, (2, 50)),
    "affine of columns": Case(affine, 2, (3, 41, 5), -2),
    "affine of columns reversed": Case(affine, 2, (33, 2), -2, True),
    "matrices": Case(product, 4, (2, 20)),
    "matrices reversed": Case(product, 4, (3, 24), reverse=True),
    "matrices of odd number": Case(product, 4, (2, 21)),
    "one": Case(affine, 2, (1,)),
    "one of columns": Case(np.add, 1, (1, 3), -2),
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", CASES)
def test_scans_and_their_gradients(name: str, device: DeviceChoice) -> None:
    case = CASES[name]
    arrays, cotangents = case.arrays()
    results, gradients = case.kernel(device).vjp(*arrays, *cotangents)
    results = results if case.count > 1 else [results]
    way = case.axis, case.reverse
    assert max(errors(results, scanned(case.f, arrays, *way))) <= BOUND
    assert max(errors(gradients, slopes(case.f, arrays, cotangents, *way))) <= BOUND
    alone = case.kernel(device).run(*arrays)
    alone = alone if case.count > 1 else [alone]
    assert all(np.array_equal(a, b) for a, b in zip(alone, results, strict=True))


@pytest.mark.parametrize("length", [2047, 2048, 60_000, 60_001])
def test_long_ones_in_many_parts(length: int) -> None:
    """The sums are NumPy's; those of the gradient go the other way."""
    rng = np.random.default_rng(1)
    x, g = drawn(rng, (2, length)), drawn(rng, (2, length))
    slope = rng.uniform(0.5, 1.0, (2, length)).astype(np.float32).astype(np.float64)
    wanted = scanned(affine, [slope, x], -1, False)
    held = scanned(affine, [np.roll(slope, -1, -1), g], -1, True)[1]
    before = np.concatenate([np.zeros((2, 1)), wanted[1][:, :-1]], 1)
    for device in DEVICES:
        y, (dx,) = sg.associative_scan(np.add, device=device).vjp(x, g)
        assert error(y, np.cumsum(x, -1)) <= BOUND
        assert error(dx, np.cumsum(g[:, ::-1], -1)[:, ::-1]) <= BOUND
        kernel = sg.associative_scan(affine, device=device)
        results, gradients = kernel.vjp(slope, x, g * 0.0, g)
        assert max(errors(results, wanted)) <= BOUND
        assert max(errors(gradients, [held * before, held])) <= BOUND


@pytest.mark.parametrize("device", DEVICES)
def test_maxima_and_logarithms_of_sums(device: DeviceChoice) -> None:
    rng = np.random.default_rng(2)
    x, g = drawn(rng, (2, 300), 30.0), drawn(rng, (2, 300))
    y, (dx,) = sg.associative_scan(np.maximum, device=device).vjp(x, g)
    assert np.array_equal(y, np.maximum.accumulate(x, -1))
    wanted = np.zeros(x.shape)
    for t in range(300):
        best = np.argmax(x[:, : t + 1], -1)
        wanted[[0, 1], best] += g[:, t]
    assert error(dx, wanted) <= BOUND
    y, (dx,) = sg.associative_scan(np.logaddexp, device=device).vjp(x, g)
    assert error(y, np.logaddexp.accumulate(x, -1)) <= BOUND
    wanted[:] = 0.0
    for t in range(300):
        wanted[:, : t + 1] += g[:, t, None] * softmax(x[:, : t + 1], -1)
    assert error(dx, wanted) <= BOUND


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("length", [40, 41, 9000])
def test_slopes_at_ties_of_maxima_are_shared(length: int, device: DeviceChoice) -> None:
    """Half of what reaches an element that is as large as all before goes on to these."""
    rng = np.random.default_rng(4)
    x, g = rng.integers(0, 3, (2, length)).astype(float), drawn(rng, (2, length))
    y, (dx,) = sg.associative_scan(np.maximum, device=device).vjp(x, g)
    wanted, carried = np.zeros(x.shape), np.zeros(2)
    for t in range(length - 1, 0, -1):
        reached = carried + g[:, t]
        own = np.select([x[:, t] > y[:, t - 1], x[:, t] == y[:, t - 1]], [1.0, 0.5])
        wanted[:, t], carried = own * reached, (1.0 - own) * reached
    wanted[:, 0] = carried + g[:, 0]
    assert error(dx, wanted) <= BOUND


@pytest.mark.parametrize(
    ("device_target", "lengths"),
    [(WorkgroupTarget(), (6001, 9000, 500)), (SimdTarget(4, whole=False), (601, 1800, 100))],
    ids=["groups", "in_step"],
)
def test_the_programs_have_no_races(
    device_target: Any, lengths: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few groups, which have several chunks of a part each, or lanes with several parts."""
    for name, number in (
        ("BUSY_GROUPS", 3),
        ("BUSY_INVOCATIONS", 12),
        ("BUSY_LANES", 12),
        ("LEAST_ELEMENTS", 4),
    ):
        monkeypatch.setattr(associative, name, number)
    for case in (
        Case(affine, 2, (1, lengths[0])),
        Case(affine, 2, (2, lengths[1]), reverse=True),
        Case(product, 4, (2, lengths[2])),
        CASES["one"],
    ):
        arrays, cotangents = case.arrays(0.8)
        recipes = Recipes(case.f, case.count, case.reverse, Options("scan", dtype="float64"))
        launch = AssociativeScan(recipes, -1).launch(
            "vjp", [case.shape] * case.count, device_target
        )
        launch.verify()
        found = launch.execute([*arrays, *cotangents])
        wanted = scanned(case.f, arrays, -1, case.reverse)
        assert max(errors(found[: case.count], wanted)) <= 1e-12
        expected = case.kernel("cpu", dtype="float64").vjp(*arrays, *cotangents)[1]
        assert max(errors(found[case.count :], list(expected))) <= 1e-12


def test_what_is_known_of_jacobians() -> None:
    """A sum's is 1; that of affine functions has one number twice, and zeros."""
    assert pattern(lambda v: v[0] + v[1], 1).entries == ((ONE,),)
    assert pattern(lambda v: v[0] * v[1], 1).entries == ((0,),)
    known = pattern(lambda v: affine(v[:2], v[2:]), 2)
    assert known.entries == ((0, ZERO), (ZERO, 0)) and known.count == 1
    assert pattern(lambda v: product(v[:4], v[4:]), 4).count == 4


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)], ids=str)
def test_nothing(shape: Shape, device: DeviceChoice) -> None:
    empty = np.zeros(shape)
    y, (dx,) = sg.associative_scan(np.add, device=device).vjp(empty, empty)
    assert y.shape == dx.shape == shape


def test_arrays_on_the_device_and_pickling() -> None:
    rng = np.random.default_rng(3)
    x = drawn(rng, (3, 700))
    kernel = sg.associative_scan(np.add, device="gpu")
    there = kernel.run(sg.device_array(x, device="gpu"))
    assert isinstance(there, sg.DeviceArray)
    again = pickle.loads(pickle.dumps(kernel)).run(x)
    assert np.array_equal(there.numpy(), again)


@needs_tint
def test_tint_takes_all_programs() -> None:
    calls: list[Callable[[], Any]] = []
    for case in (
        Case(affine, 2, (1, 60_000)),
        Case(affine, 2, (1, 60_001)),
        Case(product, 4, (2, 300)),
        CASES["affine"],
    ):
        arrays, cotangents = case.arrays(0.8)
        kernel = case.kernel("gpu")
        calls.append(lambda k=kernel, a=(*arrays, *cotangents): k.vjp(*a) and k.modules)
    for call in calls:
        modules = call()
        assert check_with_tint(modules) == [None] * len(modules)


def test_what_does_not_go_together() -> None:
    kernel = sg.associative_scan(affine, device="cpu")
    x = np.ones((2, 5))
    with pytest.raises(sg.InputError, match=r"element 1 has shape \(2, 4\), and the first one"):
        kernel.run(x, x[:, :4])
    with pytest.raises(sg.TraceError, match="returned 1 numbers, and an element has 2"):
        sg.associative_scan(lambda a, b: a[0] + b[0], device="cpu").run(x, x)
    with pytest.raises(sg.InputError, match="have no axis -2"):
        sg.associative_scan(np.add, axis=-2, device="cpu").run(x[0])
    with pytest.raises(sg.InputError, match="axis=0"):
        sg.associative_scan(np.add, axis=0)
    with pytest.raises(sg.InputTypeError, match="a function of two elements"):
        sg.associative_scan("add")  # pyright: ignore[reportArgumentType]
    with pytest.raises(sg.InputError, match="takes"):
        kernel.vjp(x, x, x)
    with pytest.raises(sg.InputError, match="takes"):
        kernel.run()
