"""Functions of rows and of their reductions, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from tensor_arrays import drawn, error, errors
from tint import check_with_tint, tint_available

import symgrad as sg
from symgrad.kernel.language.ir import Target
from symgrad.kernel.language.target import SimdTarget, WorkgroupTarget
from symgrad.kernel.language.verify import verify
from symgrad.targets import DeviceChoice

DEVICES: list[Literal["cpu", "gpu"]] = ["cpu", "gpu"]


def softmax(x: Any) -> Any:
    powers = np.exp(x - np.max(x))
    return powers / powers.sum()


def layer_norm(x: Any, w: Any, b: Any) -> Any:
    return w * (x - x.mean()) / np.sqrt(x.var() + 1e-5) + b


def rms_norm(x: Any, w: Any) -> Any:
    return w * x / np.sqrt(np.mean(x * x) + 1e-6)


def residual(x: Any, r: Any, w: Any) -> Any:
    return r + sg.tanh(w * x) * sg.exp(-(x @ x) / 100.0)


def entropy(x: Any) -> Any:
    return -(sg.softmax(x) * sg.log_softmax(x)).sum()


def spread(x: Any) -> Any:
    return np.where(x > 0.0, x, 2.0 * x).max() - np.amin(x) + sg.logsumexp(x) / x.std()


def along(f: Callable[..., Any], x: np.ndarray) -> np.ndarray:
    """A function of the last axis, whose results stay."""
    return f(x, axis=-1, keepdims=True)


def numpy_softmax(x: Any) -> np.ndarray:
    powers = np.exp(x - along(np.max, x.real))
    return powers / along(np.sum, powers)


def numpy_spread(x: Any) -> np.ndarray:
    bent = np.where(x.real > 0.0, x, 2.0 * x)
    largest = np.take_along_axis(bent, along(np.argmax, bent.real), -1)
    smallest = np.take_along_axis(x, along(np.argmin, x.real), -1)
    rest = x - along(np.mean, x)
    std = np.sqrt(along(np.mean, rest * rest))
    return (largest - smallest + np.log(along(np.sum, np.exp(x))) / std)[..., 0]


def numpy_layer_norm(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    rest = x - along(np.mean, x)
    return w * rest / np.sqrt(along(np.mean, rest * rest) + 1e-5) + b


CASES: dict[str, tuple[Callable[..., Any], Callable[..., np.ndarray], str]] = {
    "residual": (
        residual,
        lambda x, r, w: r + np.tanh(w * x) * np.exp(-along(np.sum, x * x) / 100), "xxw",
    ),
    "entropy": (
        entropy, lambda x: -(numpy_softmax(x) * np.log(numpy_softmax(x))).sum(-1), "x",
    ),
    "spread": (spread, numpy_spread, "x"),
    "a function": (sg.tanh, np.tanh, "x"),
    "no reduction": (lambda x, w: sg.sin(x) * w, lambda x, w: np.sin(x) * w, "xw"),
}  # fmt: skip
"""Functions of rows, the same in NumPy, and which arguments are rows or of columns.

Softmax and norms of layers are in test_torch_gradients.
"""

SHAPES = [(1, 4), (7, 3), (2, 3, 33), (70, 5), (2, 300), (0, 4)]


def slopes(f: Callable[..., np.ndarray], arrays: list[np.ndarray], g: np.ndarray) -> Any:
    """The gradients of the sum of f times g, by complex steps, all rows at once."""
    found: list[np.ndarray] = []
    for k, a in enumerate(arrays):
        shared, wanted = a.ndim == 1, np.zeros(a.shape)
        for c in range(a.shape[-1]):
            moved: list[Any] = [b.astype(complex) for b in arrays]
            moved[k][..., c] += 1e-30j
            y = np.imag(f(*moved)) / 1e-30 * g
            each = y.sum() if shared else y.reshape(*a.shape[:-1], -1).sum(-1) if y.size else 0.0
            wanted[..., c] = each
        found.append(wanted)
    return found


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_rows_and_their_gradients(name: str, shape: tuple[int, ...], device: DeviceChoice) -> None:
    f, same, kinds = CASES[name]
    rng = np.random.default_rng(0)
    arrays = [drawn(rng, shape if kind == "x" else shape[-1:]) for kind in kinds]
    kernel = sg.rowwise(f, device=device, name="f")
    value = np.real(same(*[a.astype(complex) for a in arrays]))
    g = drawn(rng, value.shape)
    result, gradients = kernel.vjp(*arrays, g)
    assert result.dtype == np.float32
    assert max(errors([result, *gradients], [value, *slopes(same, arrays, g)])) <= 2e-5
    np.testing.assert_allclose(kernel.run(*arrays), result, rtol=1e-6, atol=1e-6)


def test_float64_on_the_cpu() -> None:
    x, g = (drawn(np.random.default_rng(k), (5, 40)) for k in (1, 2))
    result, (dx,) = sg.rowwise(softmax, device="cpu", dtype="float64").vjp(x, g)
    s = numpy_softmax(x)
    assert error(result, s) <= 1e-15
    assert error(dx, s * (g - along(np.sum, g * s))) <= 1e-14


@pytest.mark.parametrize("device", DEVICES)
def test_the_gradient_of_an_extreme_is_shared_by_those_that_are_equal(device: DeviceChoice) -> None:
    kernel = sg.rowwise(lambda x: x.max(), device=device)
    x = [[1.0, 3.0, 3.0, 0.0], [2.0, 2.0, 2.0, 2.0]]
    result, (dx,) = kernel.vjp(x, [1.0, 4.0])
    assert result.tolist() == [3.0, 2.0]
    assert dx.tolist() == [[0.0, 0.5, 0.5, 0.0], [1.0, 1.0, 1.0, 1.0]]


@pytest.mark.parametrize("device", DEVICES)
def test_large_numbers_do_not_overflow(device: DeviceChoice) -> None:
    x = np.array([[1000.0, 1000.0, 999.0], [-1e30, 0.0, 0.0]])
    found = sg.rowwise(sg.softmax, device=device).run(x)
    np.testing.assert_allclose(found, numpy_softmax(x), rtol=1e-6)


def test_rows_stay_on_the_device() -> None:
    x = drawn(np.random.default_rng(3), (9, 20))
    kernel = sg.rowwise(softmax, device="gpu")
    found = kernel.run(sg.device_array(x, device="gpu"))
    assert isinstance(found, sg.DeviceArray)
    assert np.array_equal(found.numpy(), kernel.run(x))


@pytest.mark.parametrize(
    ("f", "text"),
    [
        (lambda x: 1.0, "gave 1.0"),
        (lambda x: x > 0.0, "it must give a row"),
        (lambda x: x[1:], "it must give a row"),
        (lambda x: (x, x), "it must give a row"),
        (lambda x: np.float64(np.asarray(x)[0]), "cannot be traced as a whole"),
    ],
)
def test_what_is_no_function_of_rows_is_refused(f: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(sg.TraceError, match=text):
        sg.rowwise(f, device="cpu").run(np.ones((2, 3)))


OF_ONE_ROW: dict[str, Callable[[Any], Any]] = {
    "first": lambda x: x[0] - x[-1],
    "reversed": lambda x: x[::-1] * x,
    "sorted": np.sort,
    "cumsum": np.cumsum,
    "differences": lambda x: np.concatenate([x[:1], np.diff(x)]),
    "a product": lambda x: np.sum(x[:, None] * x[None, :] * TABLE),
}
"""Functions of a row that look at some elements, or at their order."""

TABLE = np.random.default_rng(9).normal(size=(6, 6))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", OF_ONE_ROW)
def test_rows_are_arrays(name: str, device: DeviceChoice) -> None:
    f = OF_ONE_ROW[name]
    x = np.random.default_rng(4).normal(size=(2, 5, 6)).astype("f")
    kernel = sg.rowwise(f, device=device)
    y = np.apply_along_axis(f, -1, x.astype(float))
    g = drawn(np.random.default_rng(5), y.shape)
    result, (dx,) = kernel.vjp(x, g)
    np.testing.assert_allclose(result, y, rtol=1e-5, atol=1e-5)
    if f is np.sort:
        with pytest.raises(sg.InputError, match="the host does a part"):
            _ = kernel.stats
    else:
        assert kernel.stats.bytes >= 4 * (2 * x.size + 2 * y.size) and "@compute" in kernel.wgsl
    step = 1e-3 * np.sign(drawn(np.random.default_rng(6), x.shape)) * g.mean()
    more, less = (np.apply_along_axis(f, -1, x.astype(float) + s) for s in (step, -step))
    np.testing.assert_allclose(np.sum(dx * step), np.sum(g * (more - less)) / 2, rtol=1e-4)


def test_wrong_shapes_are_refused() -> None:
    kernel = sg.rowwise(rms_norm, device="cpu")
    with pytest.raises(sg.InputError, match=r"w has shape \(3,\): .* that of x, \(2, 4\), or"):
        kernel.run(np.ones((2, 4)), np.ones(3))
    with pytest.raises(sg.InputError, match="x is a number"):
        kernel.run(1.0, 1.0)
    with pytest.raises(sg.InputTypeError, match="argument for each array"):
        sg.rowwise(lambda: 1.0, device="cpu")


@pytest.mark.parametrize(("kind", "rows"), [("run", 3), ("vjp", 3), ("vjp", 1024)])
def test_kernels_of_rows_keep_the_language_and_tint_takes_them(kind: str, rows: int) -> None:
    kernel = sg.rowwise(layer_norm, device="cpu")
    arrays = [np.ones((rows, 40)), np.ones(40), np.ones(40)]
    kernel.run(*arrays) if kind == "run" else kernel.vjp(*arrays, np.ones((rows, 40)))
    for dispatch in kernel._launch().dispatches:
        verify(dispatch.kernel)
    if tint_available():
        assert check_with_tint(kernel.modules) == [None] * len(kernel.modules)


@pytest.mark.parametrize(
    "device_target", [WorkgroupTarget(), SimdTarget(4, whole=False)], ids=["groups", "in_step"]
)
def test_gradients_of_columns_are_not_written_for_each_row(
    device_target: Target,
) -> None:
    launch = sg.rowwise(layer_norm, device="cpu")._work.launch(
        "vjp", [(100, 40), (40,), (40,), (100, 40)], device_target
    )
    assert [a.name for a in launch.scratch if a.shape == (100, 40)] == []


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_of_shifts_are_sums_of_the_cotangent(device: DeviceChoice) -> None:
    draw = np.random.default_rng(6)
    x, g = draw.normal(size=(2, 5, 8)).astype(np.float32)
    b, c = draw.normal(size=(2, 8)).astype(np.float32)
    y, (dx, db, dc) = sg.rowwise(lambda x, b, c: x + b - c, device=device).vjp(x, b, c, g)
    np.testing.assert_allclose(y, x + b - c, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(dx, g)
    np.testing.assert_allclose(db, g.sum(0, dtype=float), rtol=1e-5)
    np.testing.assert_allclose(dc, -g.sum(0, dtype=float), rtol=1e-5)
    _, (_, db) = sg.rowwise(lambda x, b: (x + b).sum(), device=device).vjp(x, b, g[:, 0])
    np.testing.assert_allclose(db, np.full(8, g[:, 0].sum(dtype=float)), rtol=1e-5)


@pytest.mark.parametrize("n", [7, 8, 300])
@pytest.mark.parametrize("rows", [1025, 2049])
def test_gradients_of_what_many_rows_share(n: int, rows: int) -> None:
    draw = np.random.default_rng(7)
    x, g = draw.normal(size=(2, rows, n)).astype(np.float32)
    w, b = draw.normal(size=(2, n)).astype(np.float32)
    kernel = sg.rowwise(layer_norm, device="gpu")
    y, (dx, dw, db) = kernel.vjp(x, w, b, g)
    x64, g64 = x.astype(float), g.astype(float)
    np.testing.assert_allclose(y, numpy_layer_norm(x64, w, b), rtol=2e-5, atol=2e-5)
    rest = numpy_layer_norm(x64, np.ones(n), np.zeros(n))
    assert error(dw, (rest * g64).sum(axis=0)) < 2e-5
    assert error(db, g64.sum(axis=0)) < 2e-5
    inner = (g64 * w) - along(np.mean, g64 * w) - rest * along(np.mean, g64 * w * rest)
    np.testing.assert_allclose(dx, inner / np.sqrt(along(np.var, x64) + 1e-5), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n", [3, 40, 67])
def test_infinities_and_nan_stay_in_their_rows(n: int, device: DeviceChoice) -> None:
    x = np.random.default_rng(5).normal(size=(4, n))
    x[1, n // 2], x[2, n - 1] = np.nan, -np.inf
    with np.errstate(invalid="ignore"):
        for name in ("max", "min", "sum"):
            kernel = sg.rowwise(lambda x, name=name: getattr(x, name)(), device=device)
            wanted = getattr(x, name)(axis=1)
            np.testing.assert_allclose(kernel.run(x), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(3, 37), (19, 5)], ids=["a vector", "a lane"])
@pytest.mark.parametrize("name", ["max", "min", "sum"])
def test_rows_are_reduced_as_the_language_says(name: str, shape: tuple[int, int]) -> None:
    """Long rows by the lanes of a vector together, of many short ones each by a lane."""
    kernel = sg.rowwise(lambda x: getattr(x, name)() * x, device="cpu")
    x = np.random.default_rng(6).normal(size=shape)
    launch = kernel._work.launch("run", [x.shape], SimdTarget(16, whole=False))
    assert [d.count for d in launch.dispatches] == [19 if shape[1] < 32 else 3 * 16]
    (found,) = launch.execute([x])
    np.testing.assert_allclose(found, getattr(x, name)(axis=1, keepdims=True) * x, rtol=1e-12)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n", [0, 129, 1024, 9001, 9004])
def test_rows_of_any_length(n: int, device: DeviceChoice) -> None:
    x, g = (drawn(np.random.default_rng(k), (3, n)) for k in (7, 8))
    if n:  # np.max of no elements is refused
        result, (dx,) = sg.rowwise(softmax, device=device).vjp(x, g)
        s = numpy_softmax(x)
        assert max(errors([result, dx], [s, s * (g - along(np.sum, g * s))])) <= 2e-5
    total, (ones,) = sg.rowwise(lambda x: x.sum(), device=device).vjp(x, np.ones(3))
    assert max(errors([total, ones], [x.sum(1), np.ones((3, n))])) <= 2e-5
