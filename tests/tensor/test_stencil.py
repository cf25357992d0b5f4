"""Stencils of grids, beside NumPy's shifted arrays, and gradients scattered one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest
from tensor_arrays import Shape, drawn, errors
from tint import check_with_tint, needs_tint

import symgrad as sg
from symgrad.kernel.language.target import SimdTarget, WorkgroupTarget

DEVICES: list[Literal["cpu", "gpu"]] = ["cpu", "gpu"]

CROSS = [(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)]
SQUARE = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1)]
FAR = [(3, -2), (-5, 0), (0, 7), (2, 2)]


@dataclass(frozen=True)
class Case:
    """A function of neighbours, and what each of them adds to its derivative."""

    f: Callable[[Any], Any]
    slopes: Callable[[np.ndarray], list[Any]]
    offsets: Sequence[tuple[int, int]]


CASES = {
    "laplacian": Case(
        lambda v: v[1] + v[2] + v[3] + v[4] - 4.0 * v[0], lambda v: [-4.0, 1, 1, 1, 1], CROSS
    ),
    "reaction and diffusion": Case(
        lambda v: np.tanh(v[0] ** 2 - v[1] * v[2]) + 0.25 * v[3] * v[4],
        lambda v: [
            2 * v[0] * (1 - np.tanh(v[0] ** 2 - v[1] * v[2]) ** 2),
            -v[2] * (1 - np.tanh(v[0] ** 2 - v[1] * v[2]) ** 2),
            -v[1] * (1 - np.tanh(v[0] ** 2 - v[1] * v[2]) ** 2),
            0.25 * v[4],
            0.25 * v[3],
        ],
        CROSS,
    ),
    "maximum": Case(
        lambda v: v.max(),
        lambda v: list((v == v.max(axis=0)) / (v == v.max(axis=0)).sum(axis=0)),
        SQUARE,
    ),
    "far": Case(
        lambda v: sg.sin(v[0]) * v[1] - v[2] + sg.exp(v[3]),
        lambda v: [np.cos(v[0]) * v[1], np.sin(v[0]), -np.ones_like(v[2]), np.exp(v[3])],
        FAR,
    ),
    "one": Case(lambda v: v[0] * v[0], lambda v: [2 * v[0]], [(0, 0)]),
}

SHAPES: list[Shape] = [(1, 1), (1, 9), (7, 1), (5, 6), (2, 3, 33, 40)]


def moved(u: np.ndarray, offset: tuple[int, int], mode: str) -> np.ndarray:
    """u[i + di, j + dj] at every i, j."""
    rows, columns = u.shape[-2:]
    i, j = np.meshgrid(np.arange(rows) + offset[0], np.arange(columns) + offset[1], indexing="ij")
    if mode == "wrap":
        return u[..., i % rows, j % columns]
    inside = (i >= 0) & (i < rows) & (j >= 0) & (j < columns)
    return np.where(inside, u[..., i.clip(0, rows - 1), j.clip(0, columns - 1)], 0.0)


def wanted(case: Case, mode: str, u: np.ndarray, dy: np.ndarray) -> list[np.ndarray]:
    """The result, and the gradient, which every element scatters to its neighbours."""
    v = np.array([moved(u, offset, mode) for offset in case.offsets])
    with np.errstate(all="ignore"):
        y = np.array(eval_numpy(case, v))
    du, (rows, columns) = np.zeros_like(u), u.shape[-2:]
    for (di, dj), slope in zip(case.offsets, case.slopes(v), strict=True):
        share = np.broadcast_to(dy * slope, u.shape)
        for i in range(rows):
            for j in range(columns):
                a, b = i + di, j + dj
                if mode == "wrap":
                    du[..., a % rows, b % columns] += share[..., i, j]
                elif 0 <= a < rows and 0 <= b < columns:
                    du[..., a, b] += share[..., i, j]
    return [y, du]


def eval_numpy(case: Case, v: np.ndarray) -> Any:
    """The function of whole arrays of neighbours, by NumPy."""
    if case is CASES["maximum"]:
        return v.max(axis=0)
    if case is CASES["far"]:
        return np.sin(v[0]) * v[1] - v[2] + np.exp(v[3])
    return case.f(v)


def arrays_of(shape: Shape) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [drawn(rng, shape), drawn(rng, shape)]


@pytest.mark.parametrize(
    "device_target", [WorkgroupTarget(), SimdTarget(4, whole=False)], ids=["groups", "in_step"]
)
@pytest.mark.parametrize("mode", ["constant", "wrap"])
@pytest.mark.parametrize("name", CASES)
def test_the_programs_have_no_races(name: str, mode: Any, device_target: Any) -> None:
    """The interpreter refuses races, and indices that are out of bounds."""
    case, given = CASES[name], arrays_of((2, 5, 6))
    kernel = sg.stencil(case.f, case.offsets, mode=mode, dtype="float64", device="cpu")
    launch = kernel._work.launch("vjp", [a.shape for a in given], device_target)
    launch.verify()
    assert max(errors(launch.execute(given), wanted(case, mode, *given))) <= 1e-13


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mode", ["constant", "wrap"])
@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients(name: str, mode: Any, shape: Shape) -> None:
    case, given = CASES[name], arrays_of(shape)
    kernel = sg.stencil(case.f, case.offsets, mode=mode, dtype="float64", device="cpu")
    y, (du,) = kernel.vjp(*given)
    assert max(errors([y, du], wanted(case, mode, *given))) <= 1e-13
    np.testing.assert_array_equal(kernel.run(given[0]), y)


@pytest.mark.parametrize("mode", ["constant", "wrap"])
@pytest.mark.parametrize("name", CASES)
def test_a_gpu_gives_the_same(name: str, mode: Any) -> None:
    case, given = CASES[name], arrays_of((3, 65, 70))
    kernel = sg.stencil(case.f, case.offsets, mode=mode, device="gpu")
    y, (du,) = kernel.vjp(*given)
    rounded = [a.astype(np.float32).astype(float) for a in given]
    assert max(errors([y, du], wanted(case, mode, *rounded))) <= 2e-6
    on_device = kernel.vjp(*(sg.device_array(a, device="gpu") for a in given))
    np.testing.assert_array_equal(on_device[1][0].numpy(), du)


@pytest.mark.parametrize("device", DEVICES)
def test_beyond_the_edges_there_is_nothing(device: Any) -> None:
    """A neighbour that is not there is 0 exactly, whatever stands elsewhere."""
    u = np.full((4, 4), np.nan)
    u[0] = 1.0
    above = sg.stencil(lambda v: v[0], [(-1, 0)], device=device)
    y, (du,) = above.vjp(u, np.ones((4, 4)))
    assert not y[0].any() and (y[1] == 1.0).all() and np.isnan(y[2:]).all()
    assert not du[3].any() and (du[:3] == 1.0).all()


@needs_tint
def test_tint_takes_it() -> None:
    sources: list[str] = []
    for mode in ("constant", "wrap"):
        for case in CASES.values():
            kernel = sg.stencil(case.f, case.offsets, mode=mode, device="cpu")
            kernel.vjp(*arrays_of((5, 6)))
            sources += kernel.modules
    assert [v for v in check_with_tint(sources) if v] == []


@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [
        (lambda: sg.stencil(3, CROSS), sg.InputTypeError, "a function of an array of neighbours"),  # pyright: ignore[reportArgumentType]
        (lambda: sg.stencil(len, []), sg.InputError, "offsets is empty"),
        (lambda: sg.stencil(len, [(0, 1.5)]), sg.InputError, "pairs of whole numbers"),  # pyright: ignore[reportArgumentType]
        (lambda: sg.stencil(len, [(0, 1, 2)]), sg.InputError, "pairs of whole numbers"),
        (lambda: sg.stencil(len, [(0, 1), (0, 1)]), sg.InputError, r"\(0, 1\) twice"),
        (lambda: sg.stencil(len, [(0, 10**6)]), sg.InputError, "at most 32,768"),
        (lambda: sg.stencil(len, CROSS, mode="nearest"), sg.InputError, "'constant' or 'wrap'"),  # pyright: ignore[reportArgumentType]
        (lambda: sg.stencil(lambda v: v, CROSS), sg.TraceError, "one number is needed"),
        (lambda: sg.stencil(lambda v: v[0], CROSS, device="cpu").run(np.ones(3)), sg.InputError,
         r"u has shape \(3,\): \(..., rows, columns\)"),
    ],
)  # fmt: skip
def test_bad_input_is_named(make: Callable[[], Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        make()
