"""Selective scans and their gradients, on every device, beside a loop of NumPy's in float64."""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass
from typing import Any, Literal

import mpmath
import numpy as np
import pytest
from scipy.special import expit
from tensor_arrays import drawn, errors
from tint import check_with_tint, needs_tint

import symgrad as sg
from symgrad.kernel.language.target import SimdTarget, WorkgroupTarget
from symgrad.pipeline import Options
from symgrad.targets import DeviceChoice
from symgrad.tensor.selective import SERIES_BELOW, TERMS, SelectiveScan, growth

DEVICES: list[Literal["cpu", "gpu"]] = ["cpu", "gpu"]
BOUND = 2e-5

SIZES = [
    (2, 7, 5, 4), (1, 1, 1, 1), (1, 2049, 33, 16), (2, 18, 3, 6), (1, 20, 70, 1), (1, 9, 5, 64),
]  # fmt: skip
EMPTY = [(0, 3, 2, 4), (2, 0, 3, 4), (2, 3, 0, 4)]


@dataclass
class Problem:
    """The arrays of a scan, their cotangents, and how it goes."""

    arrays: list[np.ndarray]
    cotangents: list[np.ndarray]
    softplus: bool
    zoh: bool

    @classmethod
    def drawn(
        cls, sizes: tuple[int, int, int, int], softplus: bool = False, zoh: bool = True,
        state: bool = False, step: float = 0.5,
    ) -> Problem:  # fmt: skip
        rng, (batch, length, channels, states) = np.random.default_rng(0), sizes
        row, each = (batch, length, channels), (batch, channels, states)
        delta = rng.uniform(0.01 * step, step, row).astype(np.float32).astype(np.float64)
        a = -rng.uniform(0.01, 2.0, each[1:]).astype(np.float32).astype(np.float64)
        b, c = (drawn(rng, (batch, length, states)) for _ in range(2))
        arrays = [drawn(rng, row), delta, a, b, c, drawn(rng, (channels,))]
        cotangents = [drawn(rng, row)]
        if state:
            arrays.append(drawn(rng, each))
            cotangents.append(drawn(rng, each))
        return cls(arrays, cotangents, softplus, zoh)

    @property
    def stateful(self) -> bool:
        return len(self.cotangents) > 1

    def kernel(self, device: DeviceChoice, dtype: str = "float32") -> sg.TensorKernel:
        kind = "zoh" if self.zoh else "euler"
        return sg.selective_scan(
            self.softplus, kind, state=self.stateful, device=device, dtype=dtype
        )

    def errors(self, found: Any) -> list[float]:
        """Of what ``vjp`` has returned."""
        results, gradients = found
        results = list(results) if self.stateful else [results]
        return errors([*results, *gradients], self.wanted())

    def weights(self, d: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """exp(d A), what inputs are multiplied with beside B, and its derivative by d A."""
        x = d[..., None] * self.arrays[2]
        series = [k * x ** (k - 1) / math.factorial(k + 1) for k in range(1, 14)]
        far = np.where(np.abs(x) < 0.1, 1.0, x)
        slope = (np.exp(far) * far - np.expm1(far)) / far**2
        share = np.expm1(x) / np.where(x == 0, 1.0, x) + (x == 0)
        if not self.zoh:
            return np.exp(x), np.ones_like(x), np.zeros_like(x)
        return np.exp(x), share, np.where(np.abs(x) < 0.1, sum(series), slope)

    def wanted(self) -> list[np.ndarray]:
        """The results and the gradients, by hand."""
        u, raw, a, b, c, skip = self.arrays[:6]
        dy, *ends = self.cotangents
        d = np.logaddexp(0, raw) if self.softplus else raw
        decay, share, slope = self.weights(d)
        state = self.arrays[6] if self.stateful else np.zeros((len(u), *a.shape))
        states = [state]
        for t in range(u.shape[1]):
            drive = d[:, t] * u[:, t]
            state = decay[:, t] * state + share[:, t] * drive[..., None] * b[:, t, None]
            states.append(state)
        before = np.stack(states[:-1], 1) if u.shape[1] else np.zeros(decay.shape)
        after = np.stack(states[1:], 1) if u.shape[1] else before
        y = (after * c[:, :, None]).sum(-1) + skip * u
        carried = ends[0] if ends else np.zeros_like(state)
        held = np.zeros(decay.shape)
        for t in reversed(range(u.shape[1])):
            held[:, t] = carried + c[:, t, None] * dy[:, t, :, None]
            carried = decay[:, t] * held[:, t]
        input_ = b[:, :, None] * u[..., None]
        of_x = held * (decay * before + slope * d[..., None] * input_)
        dd = (of_x * a + held * share * input_).sum(-1)
        dd = dd * expit(raw) if self.softplus else dd
        du = (held * share * d[..., None] * b[:, :, None]).sum(-1) + skip * dy
        da = (of_x * d[..., None]).sum((0, 1))
        db = (held * share * (d * u)[..., None]).sum(2)
        dc = (after * dy[..., None]).sum(2)
        more = [carried] if self.stateful else []
        last = [state] if self.stateful else []
        return [y, *last, du, dd, da, db, dc, (u * dy).sum((0, 1)), *more]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("sizes", [*SIZES, *EMPTY], ids=str)
def test_scans_and_all_their_gradients(
    sizes: tuple[int, int, int, int], device: DeviceChoice
) -> None:
    problem = Problem.drawn(sizes, state=True)
    kernel = problem.kernel(device)
    found = kernel.vjp(*problem.arrays, *problem.cotangents)
    assert max(problem.errors(found)) <= BOUND
    y, last = kernel.run(*problem.arrays)
    assert np.array_equal(y, found[0][0]) and np.array_equal(last, found[0][1])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("softplus", "zoh"), [(True, False), (False, False), (True, True)])
def test_steps_of_both_kinds(softplus: bool, zoh: bool, device: DeviceChoice) -> None:
    problem = Problem.drawn((2, 21, 9, 16), softplus, zoh)
    found = problem.kernel(device).vjp(*problem.arrays, *problem.cotangents)
    assert max(problem.errors(found)) <= BOUND


@pytest.mark.parametrize("device", DEVICES)
def test_tiny_and_huge_steps(device: DeviceChoice) -> None:
    """(exp(x) - 1)/x loses no digits near 0, and softplus neither under- nor overflows."""
    problem = Problem.drawn((1, 12, 3, 4), state=True, step=1e-6)
    problem.arrays[2][0] = 0.0
    found = problem.kernel(device).vjp(*problem.arrays, *problem.cotangents)
    assert max(problem.errors(found)) <= BOUND
    problem = Problem.drawn((1, 12, 3, 4), softplus=True)
    problem.arrays[1] = np.linspace(-100.0, 100.0, 36).reshape(1, 12, 3).astype(np.float32)
    found = problem.kernel(device).vjp(*problem.arrays, *problem.cotangents)
    assert max(problem.errors(found)) <= BOUND


@pytest.mark.parametrize("x", [0.0, 1e-9, -1e-4, 0.3, -SERIES_BELOW, SERIES_BELOW, -7.0, 40.0])
def test_growth_and_its_derivative(x: float) -> None:
    with mpmath.workdps(60):
        value = mpmath.expm1(x) / x if x else 1
        slope = (mpmath.exp(x) * x - mpmath.expm1(x)) / mpmath.mpf(x) ** 2 if x else 0.5
    v = sg.var("v")
    for dtype, rounding in (("float32", 2.0**-23), ("float64", 2.0**-51)):
        found = growth(v, sg.exp(0.5 * v), TERMS[dtype])
        both = [float(sg.evaluate(e, {v: np.float64(x)})) for e in (found, sg.grad(found, v))]
        assert both == pytest.approx([float(value), float(slope)], rel=rounding)


def test_sequences_in_pieces() -> None:
    problem = Problem.drawn((2, 40, 5, 8), state=True)
    kernel = problem.kernel("cpu", "float64")
    u, d, a, b, c, skip, state = problem.arrays
    whole, last = kernel.run(*problem.arrays)
    pieces = []
    for part in (slice(0, 13), slice(13, 40)):
        y, state = kernel.run(u[:, part], d[:, part], a, b[:, part], c[:, part], skip, state)
        pieces.append(y)
    assert np.allclose(np.concatenate(pieces, 1), whole, rtol=1e-13, atol=1e-13)
    assert np.allclose(state, last, rtol=1e-13, atol=1e-13)


def test_float64_on_the_cpu() -> None:
    problem = Problem.drawn((2, 21, 5, 3), softplus=True, state=True)
    found = problem.kernel("cpu", "float64").vjp(*problem.arrays, *problem.cotangents)
    assert max(problem.errors(found)) <= 1e-12


@pytest.mark.parametrize(
    "device_target", [WorkgroupTarget(), SimdTarget(4, whole=False)], ids=["groups", "in_step"]
)
def test_the_programs_have_no_races(device_target: Any) -> None:
    """The interpreter refuses those, and what nobody has written is NaN there."""
    problem = Problem.drawn((2, 19, 5, 6), state=True)
    work = SelectiveScan(False, "zoh", True, Options("scan", dtype="float64"))
    launch = work.launch("vjp", [a.shape for a in problem.arrays], device_target)
    launch.verify()
    found = launch.execute([*problem.arrays, *problem.cotangents])
    assert max(problem.errors(((found[0], found[1]), found[2:]))) <= 1e-12


@pytest.mark.parametrize("states", [1, 2, 3, 5, 8, 12, 16, 17, 33, 64])
@pytest.mark.parametrize("width", [32, 64])
def test_what_groups_share_is_no_more_than_webgpu_has(states: int, width: int) -> None:
    shapes = [(2, 30, 4), (2, 30, 4), (4, states), (2, 30, states), (2, 30, states), (4,)]
    work = SelectiveScan(False, "zoh", True, Options("scan"))
    launch = work.launch("vjp", [*shapes, (2, 4, states)], WorkgroupTarget(width=width))
    for dispatch in launch.dispatches:
        buffers = dispatch.program(dispatch.target).buffers
        assert 4 * sum(b.size for b in buffers if b.space == "group") <= 16_384


def test_the_same_bits_every_time_and_after_pickling() -> None:
    problem = Problem.drawn((2, 21, 40, 16))
    kernel = problem.kernel("gpu")
    there = [sg.device_array(a, device="gpu") for a in (*problem.arrays, *problem.cotangents)]
    y, first = kernel.vjp(*there)
    z, second = pickle.loads(pickle.dumps(kernel)).vjp(*problem.arrays, *problem.cotangents)
    assert isinstance(y, sg.DeviceArray) and np.array_equal(y.numpy(), z)
    assert all(np.array_equal(a.numpy(), b) for a, b in zip(first, second, strict=True))


@needs_tint
def test_tint_takes_all_programs() -> None:
    for sizes in ((2, 21, 9, 16), (1, 3, 2, 3)):
        problem = Problem.drawn(sizes, softplus=True, state=True)
        kernel = problem.kernel("gpu")
        kernel.vjp(*problem.arrays, *problem.cotangents)
        assert check_with_tint(kernel.modules) == [None] * len(kernel.modules)


def test_what_does_not_go_together() -> None:
    problem = Problem.drawn((2, 7, 5, 4))
    kernel = problem.kernel("cpu")
    u, d, a, b, c, skip = problem.arrays
    with pytest.raises(sg.InputError, match=r"B has shape \(2, 7, 3\): with u .* \(2, 7, 4\)"):
        kernel.run(u, d, a, b[..., :3], c, skip)
    with pytest.raises(sg.InputError, match=r"u has shape \(7, 5\)"):
        kernel.run(u[0], d, a, b, c, skip)
    with pytest.raises(sg.InputError, match=r"A has shape \(5, 0\)"):
        kernel.run(u, d, a[:, :0], b[..., :0], c[..., :0], skip)
    with pytest.raises(sg.InputError, match="the cotangent has shape"):
        kernel.vjp(u, d, a, b, c, skip, u[:1])
    with pytest.raises(sg.InputError, match=r'use "zoh" or "euler"'):
        sg.selective_scan(discretization="bilinear")  # pyright: ignore[reportArgumentType]
