"""Damped normal equations in blocks, solved as NumPy solves them whole."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.rows.sparse_fit import solve
from symgrad.rows.sparse_normal import Assembly, Normal
from symgrad.rows.squares import Target

SHAPES = {"a": (30, 2), "b": (30, 1), "c": (6, 3), "d": 4}


def line(p: Any, r: Any) -> Any:
    return np.sum(p.a[r.i]) * r.x + p.b[r.i, 0]


KINDS = {
    "eliminated alone": lambda p, r: line(p, r) - r.y,
    "and shared": lambda p, r: line(p, r) * p.d[0] + p.d[1:] @ p.d[1:] - r.y,
    "and another": lambda p, r: [line(p, r) + p.c[r.j] @ p.c[r.j] * r.x - r.y, p.c[r.j, 0] - r.x],
    "and both": lambda p, r: line(p, r) * p.d[2] + p.c[r.j] @ p.c[r.j] * r.x - p.d[0] * r.y,
    "twice": lambda p, r: p.c[r.j] @ p.c[r.k] * r.x + p.d[1] - r.y,
    "twice, and eliminated": lambda p, r: line(p, r) * p.c[r.j, 0] + p.c[r.k, 1] ** 2 - r.y,
    "read as a whole": lambda p, r: line(p, r) * p.a[3, 0] + p.c[r.j] @ p.c[0] - r.y,
    "shared alone": lambda p, r: p.d @ p.d * r.x - r.y,
    "separate residuals": lambda p, r: [line(p, r) - r.y, p.c[r.j] @ p.c[r.j] - r.x],
}


def system(kind: str) -> tuple[Normal, np.ndarray]:
    """Normal equations at random parameters, and these."""
    draw = np.random.default_rng(7)
    rows = {
        "i": draw.integers(0, 25, 100), "j": draw.integers(0, 6, 100),
        "k": draw.integers(0, 6, 100), "x": draw.normal(size=100), "y": draw.normal(size=100),
    }  # fmt: skip
    model = sg.fused_least_squares(
        SHAPES, KINDS[kind], columns=list(rows), dtype="float64", device="cpu"
    )
    task, target = model._task("float64"), Target.of(None, None)
    x = draw.normal(size=model.n_inputs)
    return task.system(task.table(rows, "float64"), target).at(x), x


def jtj(normal: Normal) -> np.ndarray:
    return Assembly.of(normal).matrix(normal).toarray()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dense", [8000, -1])
def test_steps(kind: str, dense: int) -> None:
    normal, _ = system(kind)
    matrix = jtj(normal)
    added = 1e-3 * normal.squares + 1e-6
    want = np.linalg.solve(matrix + np.diag(added), -normal.gradient)
    found = solve(normal, added, dense)
    np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-6 * np.abs(want).max())


@pytest.mark.parametrize("kind", KINDS)
def test_products(kind: str) -> None:
    normal, x = system(kind)
    matrix = jtj(normal)
    np.testing.assert_allclose(normal @ x, matrix @ x, atol=1e-9)
    assert normal.square(x) == pytest.approx(x @ matrix @ x)
    free = np.arange(len(x)) % 3 > 0
    fixed = normal.fixed(free)
    np.testing.assert_allclose(jtj(fixed), matrix * free * free[:, None])
    np.testing.assert_allclose(fixed.gradient, normal.gradient * free)


def test_which_family_is_eliminated() -> None:
    for kind, column in {"and another": 0, "twice": None, "twice, and eliminated": 0}.items():
        normal, _ = system(kind)
        assert normal.families[0].column == column
    normal, _ = system("read as a whole")  # all rows share a line of a
    assert normal.families[0].places.shape == (30, 1) and normal.families[0].column == 0


def test_rounding_that_leaves_no_positive_matrix() -> None:
    normal, _ = system("twice")
    with pytest.raises(np.linalg.LinAlgError):
        solve(normal, np.full(len(normal.gradient), -1e3))
