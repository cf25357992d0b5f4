"""Whole arrays where NumPy's rules are easily missed: writes, views, aliases, options, errors."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.targets import DeviceChoice

DEVICES = ["cpu", *(d.index for d in sg.devices() if d.is_gpu)]
RNG = np.random.default_rng(11)
X = RNG.normal(size=400)
MASK = X > 0.3
WEIGHTS = np.linspace(0.5, 1.5, 20)


def copied(x: Any) -> Any:
    """A write to each kind of copy."""
    copies = [x.copy(), np.copy(x), x.astype(float), x.flatten(), np.roll(x, 0), np.tile(x, 1)]
    copies += [np.concatenate([x]), np.repeat(x, 1), np.pad(x, 0)]
    for k, c in enumerate(copies):
        c[k] = 2.0
    return sum(np.sum(c * x) for c in copies)


def viewed(x: Any) -> Any:
    """Writes to views, and by operators in place, which other names see."""
    u = x * 2.0
    rows, same = u.reshape(20, 20), u
    rows.T[1:, 3] = x[:19] ** 2
    same += 1.0
    inner = rows[1:-1, 1:-1]
    inner *= rows[:-2, 1:-1] + 0.1
    u[5:30:2] -= x[:13]
    last = u[-1]
    u[-1] = 3.0
    last += 1.0
    return np.sum(u * x) + np.sum(inner**2) + last


def reordered(x: Any) -> Any:
    """A reshape that NumPy copies for, and a write to the array afterwards."""
    a = x.reshape(20, 20) * 1.0
    line = a.T.reshape(-1)
    line[:7] = 0.0
    a[0] = 5.0
    return np.sum(line * x) + np.sum(a**2)


def refilled(x: Any) -> Any:
    """One array of numbers that is filled anew, in a loop."""
    buffer, total = np.zeros(400), 0.0
    for k in range(3):
        buffer[:] = 0.0
        buffer[k::3] = k + 1.0
        total = total + (k + 1) * np.sum(buffer * x**2)
    return total


def written(x: Any) -> Any:
    """A write to an argument."""
    x[0] = x[1] ** 2
    return np.sum(x**2)


def joined(x: Any) -> Any:
    """Truth values beside integers."""
    return np.sum(x * np.concatenate([x[:200] > 0, np.arange(200)]))


def average(x: Any) -> Any:
    """Weights of an axis that is not the last one."""
    return np.sum(WEIGHTS * np.average(x.reshape(20, 20), axis=0, weights=WEIGHTS) ** 2)


def trapezoids(x: Any) -> Any:
    """Places of the shape of the values, along the first axis."""
    places = np.cumsum(np.arange(1.0, 401.0).reshape(20, 20), 0) / 1e3
    return np.sum(np.trapezoid(x.reshape(20, 20), places, axis=0) ** 2)


windows = np.lib.stride_tricks.sliding_window_view
KERNEL = np.array([[1.0, -2.0], [0.5, 3.0], [0.0, 1.5]])

FUNCTIONS: list[Callable[[Any], Any]] = [
    copied, viewed, reordered, refilled, written, joined, average, trapezoids,
    lambda x: np.sum(np.diag(x[:30], 2) @ np.diag(x[:31], -1) * x[:32]),
    lambda x: np.sum(np.diag(x.reshape(20, 20), -2) ** 3),
    lambda x: np.sum(np.einsum("hwij,ij->hw", windows(x.reshape(20, 20), (3, 2)), KERNEL) ** 2),
    lambda x: np.sum(windows(x.reshape(2, 20, 10), 4, axis=1)[:, ::3] ** 2 * np.arange(4)),
    lambda x: np.mean(x, where=MASK) ** 2 + np.sum(x, where=MASK) * np.var(x, where=MASK),
    lambda x: np.sum(x.reshape(20, 20).mean(0, where=MASK.reshape(20, 20)) ** 2),
    lambda x: np.sum(x) * np.where(np.any(x > 1.0, where=MASK), 2.0, 1.0),
    lambda x: np.sum(x) * np.where(np.all(x > 0.2, where=MASK), 2.0, 1.0),
    lambda x: np.sum(np.diff(x, prepend=0.0, append=x[:2]) ** 3),
    lambda x: np.sum(np.multiply.outer(x.reshape(20, 20), WEIGHTS)[0, 1] ** 2),
    lambda x: np.sum(x * np.logical_and.accumulate(x < 2.0, dtype=bool)),
    lambda x: np.sum(x * np.add.accumulate(x > 0, dtype=int)),
]  # fmt: skip
"""Functions that mean what they do in NumPy."""


@pytest.mark.parametrize("k", range(len(FUNCTIONS)))
def test_writes_and_options_mean_what_they_do_in_numpy(k: int) -> None:
    f, way, h = FUNCTIONS[k], RNG.normal(size=400), 1e-5
    value, grad = sg.value_and_grad(f, device="cpu", dtype="float64")(X)
    assert np.isclose(value, f(X.copy()), rtol=1e-11)
    slope = (f(X + h * way) - f(X - h * way)) / (2 * h)
    assert np.isclose(grad @ way, slope, rtol=1e-6, atol=1e-6)


def test_an_array_that_is_two_arguments_or_taken_from_elsewhere_too() -> None:
    both = sg.value_and_grad(lambda a, b: np.sum(a * b**2), (0, 1), device="cpu", dtype="float64")
    a, b = both(X, X)[1]
    assert np.allclose(a, X**2) and np.allclose(b, 2 * X**2)
    f = sg.value_and_grad(lambda a: np.sum(a * X**2), device="cpu", dtype="float64")
    assert np.allclose(f(X)[1], X**2)


def test_norms_are_flat_at_zero_at_any_size() -> None:
    f = sg.value_and_grad(
        lambda a: np.linalg.norm(a) + np.sum(np.linalg.norm(a.reshape(-1, 2), axis=1)),
        device="cpu", dtype="float64",
    )  # fmt: skip
    for n in (4, 400):
        value, grad = f(np.zeros(n))
        assert value == 0.0 and not grad.any()


def norms(x: Any) -> Any:
    rows = np.linalg.norm(x.reshape(-1, 4), axis=1, keepdims=True)
    return np.linalg.norm(x) + np.linalg.norm(rows)


def scaled_by_hand(x: Any) -> Any:
    size = np.max(abs(x))
    return 2.0 * size * np.sqrt(np.sum((x / size) ** 2))


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("f", [norms, scaled_by_hand])
@pytest.mark.parametrize("device", DEVICES)
def test_squares_of_what_is_scaled_do_not_overflow(
    f: Callable[..., Any], scale: float, device: DeviceChoice
) -> None:
    x = (scale * X).astype(np.float32)
    value, grad = sg.value_and_grad(f, device=device)(x)
    length = np.linalg.norm(x.astype(float))
    np.testing.assert_allclose(value, 2 * length, rtol=1e-6)
    cancelled = 2 * length / abs(x).max()  # by the size: two slopes that cancel
    np.testing.assert_allclose(grad, 2 * x / length, rtol=1e-6, atol=1e-6 * cancelled)


def test_a_ratio_to_a_large_mean_has_its_derivative() -> None:
    x = (1e30 * (2.0 + X / 4)).astype(np.float32)
    _, grad = sg.value_and_grad(lambda x: np.sum((x / np.mean(x)) ** 4), device="cpu")(x)
    z = x / np.mean(x, dtype=float)
    want = 4 * (z**3 - np.mean(z**4)) / np.mean(x, dtype=float)
    np.testing.assert_allclose(grad, want, rtol=1e-5, atol=1e-5 * abs(want).max())


def test_results_share_no_memory() -> None:
    x = X.copy()
    same = sg.jit(
        lambda x: (x, x, x * 2.0, (x * 2.0).reshape(20, 20)), device="cpu", dtype="float64"
    )
    results = same(x)
    for k, result in enumerate(results):
        assert not any(np.shares_memory(result, other) for other in (x, *results[:k]))
        result[...] = 7.0
    assert np.array_equal(same(x)[2], 2.0 * X)
    total = sg.value_and_grad(lambda a, b: np.sum(a) + np.sum(b), (0, 1), device="cpu")
    _, (a, b) = total(X, X)
    a *= 3.0
    assert np.all(b == 1.0) and np.all(total(X, X)[1][0] == 1.0)


@pytest.mark.parametrize(
    ("f", "error"),
    [
        (lambda a: np.sum(np.transpose(a, (0, 3))), np.exceptions.AxisError),
        (lambda a: np.sum(np.moveaxis(a, 0, 2)), np.exceptions.AxisError),
        (lambda a: np.sum(np.flip(a, 2)), np.exceptions.AxisError),
        (lambda a: np.sum(np.expand_dims(a, 4)), np.exceptions.AxisError),
        (lambda a: np.sum(a.reshape(-1, -1)), ValueError),
        (lambda a: np.sum(a.reshape(-4, -100)), ValueError),
        (lambda a: np.sum(a.reshape(7, -1)), ValueError),
        (lambda a: np.sum(a[np.ones(19, bool)]), IndexError),
        (lambda a: np.broadcast_to(a, (2, 20, 20)).__setitem__(0, 1.0), ValueError),
        (lambda a: np.sum(a, axis=(0, -2)), ValueError),
        (lambda a: np.argmax(a[:0], axis=0), ValueError),
        (lambda a: np.diag(a[None]), ValueError),
        (lambda a: np.max(a, where=a > 0), ValueError),
        (lambda a: np.nanstd(a, where=a > 0), sg.TraceError),
    ],
)
def test_what_numpy_refuses_or_does_otherwise_is_no_wrong_number(f: Any, error: Any) -> None:
    with pytest.raises(error):
        sg.jit(f, device="cpu")(X.reshape(20, 20))


@pytest.mark.parametrize(("f", "error", "remedy"), [
    (lambda a: np.fft.fft(a), sg.TraceError, "np.fft.fft.*np.cos and np.sin"),
    (lambda a: np.linalg.eig(a), sg.TraceError, "np.linalg.eigh has those"),
    (lambda a: a * (1 + 2j), sg.InputTypeError, "the real and the imaginary part"),
    (lambda a: a + np.array([None] * 300), sg.InputTypeError, "None"),
    (lambda a: np.unique(a), sg.TraceError, "depends on values"),
    (lambda a: np.sum(a, out=np.zeros(())), sg.TraceError, "np.sum.*cannot write to out=: use"),
])  # fmt: skip
def test_refusals_name_the_line_and_what_helps(f: Any, error: Any, remedy: str) -> None:
    """By elements, to which they pointed, these functions are not traced either."""
    with pytest.raises(error, match=f"{remedy}(?s:.*)test_numpys_rules.py:"):
        sg.jit(f, device="cpu")(np.ones((300, 300)))


INTEGERS = np.arange(-30000, 30000, 2500).astype(np.int32)
PRODUCTS: dict[str, Callable[[Any], Any]] = {
    "matmul": lambda i: i.reshape(4, 6) @ i.reshape(6, 4),
    "matmul of truths": lambda i: (i > 0).reshape(4, 6) @ (i < 9).reshape(6, 4),
    "truths by integers": lambda i: (i > 0) @ i,
    "einsum of a batch": lambda i: np.einsum(
        "bij,bjk->bik", i.reshape(2, 3, 4), i.reshape(2, 4, 3)
    ),
    "einsum of one": lambda i: np.einsum("ij->j", i.reshape(4, 6)),
    "tensordot": lambda i: np.tensordot(i.reshape(4, 6), i.reshape(4, 6), 2),
    "outer": lambda i: np.outer(i, i),
    "inner": lambda i: np.inner(i, i),
    "convolve": lambda i: np.convolve(i, i[:5]),
    "matrix_power": lambda i: np.linalg.matrix_power(i[:4].reshape(2, 2), 3),
    "a large matrix": lambda i: np.tile(i, (40, 3)) @ np.tile(i, (40, 3)).T,
}
"""Products whose sums no float32 holds, and most of which wrap around."""


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("device", DEVICES)
def test_products_of_integers_are_integers(name: str, device: DeviceChoice) -> None:
    f = PRODUCTS[name]
    want = f(INTEGERS)
    result = sg.jit(lambda x: f(x.astype(int)), device=device)(INTEGERS.astype(np.float64))
    assert result.dtype.kind == want.dtype.kind
    assert np.array_equal(result, want)


EMPTY = np.zeros((0, 3))


def written_nowhere(x: Any) -> Any:
    """An operator in place on a slice of no elements."""
    y = x.copy()
    nothing = y[-2:-3:3]
    nothing += 0.5
    return np.sum(y**2)


@pytest.mark.parametrize("f", [
    np.sum, lambda x: np.sum(np.resize(x, (6, 3))), lambda x: 1.0, lambda x: np.sum(x) + 1.0,
])  # fmt: skip
def test_gradients_by_nothing_are_empty(f: Any) -> None:
    value, slope = sg.value_and_grad(f, device="cpu")(EMPTY)
    assert value == f(EMPTY) and slope.shape == (0, 3)


@pytest.mark.parametrize("width", [1, 2, 5])
def test_reflections_of_infinity_are_no_nan(width: int) -> None:
    f = lambda x: np.pad(x, width, "reflect", reflect_type="odd")  # noqa: E731
    x = np.array([1.0, 2.0, 5.0, np.inf])
    with np.errstate(invalid="ignore"):
        wanted = f(x)
    result = sg.jit(f, device="cpu", dtype="float64")(x)
    numbers = ~np.isnan(wanted)
    assert np.array_equal(result[numbers], wanted[numbers]) and numbers.sum() > 5


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("f", [np.cumsum, np.sort, lambda x: x @ np.outer(x, x)])
def test_nothing_of_an_array_needs_no_kernel(f: Any, device: DeviceChoice) -> None:
    """A kernel without results was started: of GPUs an IndexError."""
    assert sg.jit(lambda x: f(x)[7:], device=device)(X[:7]).shape == (0,)
    assert sg.jit(lambda x: f(x)[7:] > 0, device=device)(X[:7]).dtype == bool


def test_what_is_written_nowhere_has_derivatives() -> None:
    _, moved = sg.jit(
        lambda x: sg.jvp(sg.grad(written_nowhere), (x,), (x,)), device="cpu", dtype="float64"
    )(X[:5])
    assert np.array_equal(moved, 2 * X[:5])


def test_arrays_of_whole_arrays_are_copies() -> None:
    def f(x: Any) -> Any:
        y = sg.array(x)
        y[0] = 0.0
        return {"x": x[0], "y": y[0], "rows": sg.array([x[:3], x[1:4]])}

    result = sg.jit(f, device="cpu", dtype="float64")(X)
    assert (result["x"], result["y"]) == (X[0], 0.0)
    assert np.array_equal(result["rows"], [X[:3], X[1:4]])


SCALES = RNG.normal(size=(33, 24))
ROWS = 1 + np.arange(24) / 240
EXTREMES: dict[str, Callable[[Any], Any]] = {
    "of a product whose elements others add up": lambda x: (
        np.sum(np.max(x * SCALES.sum(1) * 0.3, axis=0)) + np.sum(x * SCALES.sum(1) * 0.3 * X[:33])
    ),
    "of a contraction whose elements others add up": lambda x: (
        np.sum(np.max(np.einsum("acb,cd->cba", x[..., None] * ROWS, SCALES), axis=-1))
        + np.sum(np.einsum("acb,cd->cba", x[..., None] * ROWS, SCALES) * X[:8])
    ),
    "of distances": lambda x: np.sum(np.min(np.sum((x[:, None] - 1.1 * x[None]) ** 2, -1), 1)),
    "of what is exact": lambda x: np.max(np.abs(np.maximum(x, -x[::-1]))) + np.sum(np.min(-x, 0)),
}
"""What is compared with an extreme is computed again elsewhere, and might be rounded otherwise."""


@pytest.mark.parametrize("name", EXTREMES)
@pytest.mark.parametrize("device", DEVICES)
def test_extremes_of_what_is_computed_have_their_slopes(name: str, device: DeviceChoice) -> None:
    f, x, h = EXTREMES[name], RNG.normal(size=(8, 33)), 1e-6
    _, slope = sg.value_and_grad(f, device=device, dtype="float64")(x)
    for way in (RNG.normal(size=x.shape) for _ in range(3)):
        moved = (f(x + h * way) - f(x - h * way)) / (2 * h)
        assert np.isclose(np.sum(slope * way), moved, rtol=1e-6, atol=1e-6)


def test_of_very_many_elements_the_first_extreme_has_the_slope() -> None:
    """Nearest points of 17 million pairs, which are not stored."""
    x, y = RNG.normal(size=(4200, 2)), RNG.normal(size=(4000, 2))
    x[7] = x[8]
    near = sg.value_and_grad(
        lambda x: np.sum(np.min(np.sum((x[:, None] - y[None]) ** 2, -1), 1)),
        device="cpu", dtype="float64",
    )  # fmt: skip
    value, slope = near(x)
    nearest = np.concatenate([
        np.argmin(((part[:, None] - y[None]) ** 2).sum(-1), 1) for part in np.split(x, 10)
    ])  # fmt: skip
    assert np.isclose(value, ((x - y[nearest]) ** 2).sum())
    np.testing.assert_allclose(slope, 2 * (x - y[nearest]), rtol=1e-12)


@pytest.mark.parametrize("x", [[0.0, 0.0, 3.0], [0.0, 2.0, 3.0], [0.0] * 3, [1.0, 2.0, -3.0]])
@pytest.mark.parametrize("many", [1, 200])
def test_second_derivatives_of_products_with_zeros(x: list[float], many: int) -> None:
    """Of one product, and of many in rows."""
    want = np.array(
        [[0 if i == j else np.prod(np.delete(x, [i, j])) for i in range(3)] for j in range(3)]
    )
    curved = sg.jit(
        lambda x: sg.jacobian(lambda x: sg.grad(lambda x: np.sum(np.prod(x, 1)))(x)[0])(x),
        device="cpu", dtype="float64",
    )  # fmt: skip
    rows = np.stack([x, *np.ones((many - 1, 3))])
    assert np.array_equal(curved(rows)[:, 0], want)


@pytest.mark.parametrize("zeros", [0, 1, 2, 3, 4])
def test_third_derivatives_of_products_with_zeros(zeros: int) -> None:
    x = np.array([2.0, -3.0, 5.0, 1.5])
    x[:zeros] = 0.0
    want = np.zeros((4, 4, 4))
    for places in itertools.permutations(range(4), 3):
        want[places] = np.prod(np.delete(x, places))
    third = sg.jit(sg.jacobian(sg.hessian(np.prod)), device="cpu", dtype="float64")
    np.testing.assert_allclose(third(x), want, rtol=1e-14, atol=1e-15)


def test_integers_ramp_to_their_ends_as_numpys() -> None:
    for width in range(1, 60, 7):
        x = np.array([width, 5, 2 * width])
        padded = sg.jit(
            lambda x, w=width: np.pad(np.round(x).astype(int), w, mode="linear_ramp"), device="cpu"
        )
        assert np.array_equal(padded(x.astype(float)), np.pad(x, width, mode="linear_ramp"))


def test_conditions_of_singular_matrices_are_infinite() -> None:
    for a in (np.diag([1.0, 0.0]), np.zeros((2, 2)), np.full((3, 3), 2.0)):
        norms: list[Any] = [None, 1, np.inf, "fro"]
        for p in norms:
            run = sg.jit(lambda a, p=p: np.linalg.cond(a, p), device="cpu", dtype="float64")
            assert run(a) > 1e15
    assert np.isnan(sg.jit(lambda a: np.linalg.cond(a, 1), device="cpu")(np.full((2, 2), np.nan)))


def after(write: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A copy of an array after a write to it."""

    def function(x: Any) -> Any:
        copy = x * 1.0
        write(copy)
        return copy

    return function


def set_to_nine(view: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return after(lambda b: view(b).__setitem__(..., 9.0))


def kept_beside(view: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """What another name has after writes to an array, and to what the name has."""

    def function(x: Any) -> Any:
        b = x * 1.0
        other = view(b)
        b[0] = 7.0
        other += 1.0
        return np.stack([b[0], np.sum(other)])

    return function


LINE, TABLE_OF = np.arange(5.0) + 1, np.arange(12.0).reshape(3, 4)
VIEWS: list[tuple[Callable[[Any], Any], np.ndarray]] = [
    (lambda x: np.stack(np.unstack(x)), LINE),
    (lambda x: np.unstack(x, axis=-1)[1], TABLE_OF),
    (lambda x: np.stack(np.unstack(x)[::-1]), np.arange(400.0)),
    (set_to_nine(lambda b: b.T[::-1]), np.zeros((0, 4))),
    (set_to_nine(lambda b: b[:, 2:1][::-1]), TABLE_OF),
    (set_to_nine(lambda b: b[0, ...]), LINE),
    (set_to_nine(lambda b: b[::-1][0, ...]), LINE),
    (set_to_nine(np.squeeze), LINE[:1]),
    (set_to_nine(lambda b: b.reshape(())), LINE[:1]),
    (after(lambda b: b[2, 1, ...].__iadd__(1.0)), TABLE_OF),
    (kept_beside(lambda b: b[0]), LINE),
    (kept_beside(lambda b: b[0, ...]), LINE),
    (kept_beside(lambda b: np.sum(b, axis=())), LINE),
    (lambda x: x[[]], LINE),
]
"""Views and writes to them, of no elements and of no axes among them."""


@pytest.mark.parametrize("k", range(len(VIEWS)))
def test_views_of_any_size_are_numpys(k: int) -> None:
    f, x = VIEWS[k]
    got = sg.jit(f, device="cpu", dtype="float64")(x)
    want = f(x)
    assert got.shape == want.shape and np.array_equal(got, want)


@pytest.mark.parametrize("key", [True, False, np.array(True), (0, True)])
def test_one_truth_value_is_no_index(key: Any) -> None:
    with pytest.raises(sg.TraceError, match=r"one truth value(?s:.*)test_numpys_rules.py:"):
        sg.jit(after(lambda b: b.__setitem__(key, 9.0)), device="cpu")(TABLE_OF)


SOME = np.array([True, False, True, True])

OPTIONS: dict[str, Callable[[Any], Any]] = {
    "axes of numbers": lambda a: (np.sum(np.sum(a), axis=0), np.max(np.sum(a), -1), a.sum(())),
    "the largest of some": lambda a: np.max(a, axis=-1, where=a > 0, initial=-0.5),
    "the least of some": lambda a: np.min(a, where=a < 0, initial=2.0, keepdims=True),
    "a type": lambda a: (np.sum(a, dtype=float), np.sum(3 * a, axis=0, dtype=int)),
    "types of means": lambda a: (np.mean(a > 0, dtype=float), np.var(a, dtype=np.float64)),
    "running totals of a type": lambda a: np.cumsum(a > 0, axis=-1, dtype=int),
    "no freedom": lambda a: (np.var(a, ddof=a.size), np.std(a, axis=-1, ddof=1)),
    "the variance of some": lambda a: np.var(a, axis=0, where=a > 0, ddof=1),
    "covariances": lambda a: np.cov(a[0] if a.ndim > 2 else a),
    "triangles": lambda a: (np.tril(a), np.triu(a, 1)),
    "in a circle": lambda a: np.take(a, [0, 5, -3], axis=-1, mode="wrap"),
    "about the ends": lambda a: np.pad(a[-1:], [(0, 0)] + [(1, 2)] * (a.ndim - 1), "symmetric"),
    "about their values": lambda a: np.pad(
        np.tile(a, 3), [(0, 0)] * (a.ndim - 1) + [(2, 3)], "reflect", reflect_type="odd"
    ),
    "about their values, again and again": lambda a: (
        np.pad(a, [(0, 0)] * (a.ndim - 1) + [(4, 9)], "reflect", reflect_type="odd"),
        np.pad(a, [(11, 2)] + [(0, 1)] * (a.ndim - 1), "symmetric", reflect_type="odd"),
    ),
    "at truth values": lambda a: (np.take(a, [True, False], 0), np.take(a, a[..., 0] > 0)),
    "at nothing": lambda a: np.take(a, [], axis=-1),
    "at no slice": lambda a: np.take(a, slice(0, 1)),  # type: ignore[arg-type]
    "at an element of a number": lambda a: (
        np.take(np.sum(a), 0, axis=0),
        np.take(np.sum(a), [0, 0], axis=-1),
    ),
    "the mean of a number": lambda a: np.mean(np.sum(a), axis=0),
    "the spread of a number": lambda a: np.std(np.sum(a), axis=-1),
    "the average of a number": lambda a: np.average(np.sum(a), axis=0, weights=np.sum(a)),
    "numbers of nothing and one": lambda a: (
        np.nanmax(a[:0], initial=2.0),
        np.nanmin(a[:0], axis=0, initial=2.0),
        np.fmax.reduce(a[:0], initial=2.0),
        np.nanmax(np.where(a > 0, np.nan, a), initial=-0.5),
    ),
    "numbers of a type": lambda a: (
        np.nanmax((3 * a).astype(int), initial=1),
        np.nanmin((3 * a).astype(int), initial=1),
        np.fmax.reduce(a > 0, initial=1),
        np.fmin.reduce((3 * a).astype(int), initial=1),
    ),
    "truths beside each other": lambda a: (
        np.convolve(a > 0, a < 0.5),
        np.correlate(a < 0.5, (a > 0)[:2], "same"),
    ),
    "the spread of some of nothing": lambda a: np.std(
        np.concatenate([a, a[:, :1]], axis=1)[:0], axis=-1, where=SOME
    ),
    "of nothing": lambda a: np.logaddexp.reduce(a[..., :0], axis=-1),
    "spread of numbers": lambda a: np.nanstd(np.where(a > 0.8, np.nan, a), axis=0, ddof=1),
    "any along an axis": lambda a: (np.any(a > 0, axis=0), np.all(a > 0, axis=-1, keepdims=True)),
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_options_are_numpys_at_any_rank(name: str) -> None:
    """And of arrays of nothing, where NumPy takes them."""
    f = OPTIONS[name]
    for shape in ((3,), (4, 3), (2, 3, 4), (0,), (3, 0)):
        a = RNG.normal(size=shape)
        try:
            wanted = f(a)
        except (IndexError, TypeError, ValueError) as error:
            with pytest.raises((type(error), sg.SymgradError)):
                sg.jit(f, device="cpu", dtype="float64")(a)
            continue
        got = sg.jit(f, device="cpu", dtype="float64")(a)
        pairs = zip(got, wanted, strict=True) if isinstance(wanted, tuple) else [(got, wanted)]
        for x, y in pairs:
            assert (x.shape, x.dtype.kind) == (np.shape(y), np.asarray(y).dtype.kind)
            np.testing.assert_allclose(x, y, rtol=1e-12)
