"""`sg.vmap` beside calls one after the other: axes, nests, names, sizes, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import symgrad as sg

RNG = np.random.default_rng(11)
A, B, V = RNG.normal(size=(4, 3)), RNG.normal(size=(4, 3)), RNG.normal(size=3)
C, W = RNG.normal(size=(3, 4, 5)), RNG.normal(size=(3, 3))
OPTIONS: dict[str, Any] = {"device": "cpu", "dtype": "float64"}


def each(f: Callable[..., Any], *args: Any) -> np.ndarray:
    """The results of calls one after the other, stacked."""
    return np.stack([f(*a) for a in zip(*args, strict=True)])


CASES: dict[str, tuple[Callable[[], Any], Any]] = {
    "the last axis": (lambda: sg.vmap(np.sum, -1, **OPTIONS)(C), C.sum((0, 1))),
    "an axis from the end": (lambda: sg.vmap(np.sum, -2, **OPTIONS)(C), C.sum((0, 2))),
    "results along the last axis": (
        lambda: sg.vmap(lambda x: 2 * x, 1, -1, **OPTIONS)(C),
        2 * C.transpose(0, 2, 1),
    ),
    "nests of axes": (
        lambda: sg.vmap(lambda t, x: t[0] @ x + t[1]["c"].sum(), ((None, {"c": 1}), 0), **OPTIONS)(
            (W, {"c": B.T}), A
        ),
        A @ W.T + B.sum(1)[:, None],
    ),
    "one axis for a nest": (
        lambda: sg.vmap(lambda d: d["a"] @ d["b"], **OPTIONS)({"a": A, "b": B}),
        np.sum(A * B, 1),
    ),
    "arguments by name": (
        lambda: sg.vmap(lambda x, y, z=2.0: x @ y * z, (1,), **OPTIONS)(A.T, y=B),
        2 * np.sum(A * B, 1),
    ),
    "no argument, but a size": (
        lambda: sg.vmap(lambda x: x + 1, None, axis_size=4, **OPTIONS)(V),
        np.tile(V + 1, (4, 1)),
    ),
    "a constant of a size": (
        lambda: sg.vmap(lambda: np.eye(2), axis_size=3, **OPTIONS)(),
        np.tile(np.eye(2), (3, 1, 1)),
    ),
    "a result that is the same everywhere": (
        lambda: sg.vmap(lambda x, y: (x @ y, y**2), (0, None), (0, None), **OPTIONS)(A, V)[1],
        V**2,
    ),
    "a truth that is the same everywhere": (
        lambda: sg.vmap(lambda x, y: (x @ y, y > 0), (0, None), (0, None), **OPTIONS)(A, V)[1],
        V > 0,
    ),
    "a gradient of a map of gradients": (
        lambda: sg.value_and_grad(
            lambda w: np.sum(sg.vmap(sg.grad(lambda x, w: np.sum((w @ x) ** 2)), (0, None))(A, w)),
            **OPTIONS,
        )(W)[0],
        np.sum(2 * A @ W.T @ W),
    ),
    "maps of maps": (
        lambda: sg.vmap(
            sg.vmap(lambda x, y: np.sum((x - y) ** 2), (None, 0)), (0, None), **OPTIONS
        )(A, B),
        ((A[:, None] - B) ** 2).sum(-1),
    ),
    "a map around what another one has": (
        lambda: sg.vmap(lambda x: np.sum(sg.vmap(lambda y: x @ y)(B)), **OPTIONS)(A),
        np.sum(A @ B.T, 1),
    ),
    "a map of jit of reads": (
        lambda: sg.vmap(sg.jit(lambda x, k: x[k] * x[0]), **OPTIONS)(A, np.array([0, 2, 1, 2])),
        A[[0, 1, 2, 3], [0, 2, 1, 2]] * A[:, 0],
    ),
    "no elements at all": (
        lambda: sg.vmap(lambda x: 2 * x, **OPTIONS)(np.zeros((0, 3))),
        np.zeros((0, 3)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_maps_are_calls_one_after_the_other(name: str) -> None:
    call, wanted = CASES[name]
    value = np.asarray(call())
    assert value.shape == wanted.shape and value.dtype == wanted.dtype
    np.testing.assert_allclose(value, wanted, rtol=1e-12, atol=1e-14)


def test_nothing_is_mapped_where_nothing_is_given() -> None:
    value, nothing = sg.vmap(lambda p: (p[0] * 2, p[1]), **OPTIONS)((A, None))
    assert nothing is None and np.array_equal(value, 2 * A)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sg.vmap(np.sum, 3, **OPTIONS)(C), r"in_axes=3: .* \(3, 4, 5\) has no axis 3"),
        (lambda: sg.vmap(np.sum, -4, **OPTIONS)(C), "has no axis -4"),
        (lambda: sg.vmap(np.sin, 0, 3, **OPTIONS)(C), "out_axes=3: .* has no axis 3"),
        (lambda: sg.vmap(np.sin, 0, -4, **OPTIONS)(C), "out_axes=-4: .* has no axis -4"),
        (lambda: sg.vmap(np.sin, 0, None, **OPTIONS)(A), "the same at all 4 places"),
        (lambda: sg.vmap(np.sin, axis_size=5, **OPTIONS)(A), r"arrays of 5 and \(4, 3\)"),
        (lambda: sg.vmap(np.dot, **OPTIONS)(A, C), r"arrays of 4 and \(3, 4, 5\)"),
        (lambda: sg.vmap(np.dot, (0,), **OPTIONS)(A, B), "for 1 arguments, not 2"),
        (lambda: sg.vmap(np.sin, None, **OPTIONS)(A), "axis_size="),
        (lambda: sg.vmap(lambda x: (x, x), 0, (0, 0, 0), **OPTIONS)(A), "is not nested"),
    ],
)
def test_what_does_not_fit_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(sg.InputError, match=message):
        call()


@pytest.mark.parametrize("n", [70, 300])
def test_elements_that_are_read_one_by_one_are_those(n: int) -> None:
    """The bodies of so many reads grow into one, which is known by itself from some length on."""
    x = RNG.normal(size=(4, n))

    def chained(v: Any) -> Any:
        total = v[0]
        for i in range(1, n):
            total = np.sin(total) * v[i] + v[i - 1]
        return total

    with pytest.warns(sg.SizeWarning, match="one by one") if n > 200 else nullcontext():
        value = sg.vmap(chained, **OPTIONS)(x)
    np.testing.assert_allclose(value, each(chained, x), rtol=1e-11)

    x = x[:, :140]
    way, step = RNG.normal(size=x.shape), 1e-6
    n = x.shape[1]
    slope = sg.value_and_grad(lambda x: np.sum(sg.vmap(chained)(x)), **OPTIONS)(x)[1]
    up, down = (np.sum(each(chained, x + s * step * way)) for s in (1, -1))
    np.testing.assert_allclose(np.sum(slope * way), (up - down) / (2 * step), rtol=1e-6)
