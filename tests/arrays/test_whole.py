"""Functions of whole arrays: traced, differentiated, fused, and run on devices."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from drawn_functions import drawn

import symgrad as sg
from symgrad.arrays.interpret import interpret
from symgrad.arrays.trace import gradients, program_of
from symgrad.errors import TraceError
from symgrad.front.whole import WholeTrace

RNG = np.random.default_rng(3)
A, B = RNG.normal(size=(7, 5)), RNG.normal(size=(5, 7))
V = RNG.normal(size=12)
AT = np.array([3, 0, 3, 1, -2, 3, 0])


def cubes(z: Any) -> Any:
    """A function that another one differentiates."""
    return np.sum(np.sin(z) ** 3)


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "products": (lambda a, b: np.sum(np.tanh(a @ b) ** 2) + np.sum(a.T * b), (A, B)),
    "centred": (lambda a: np.sum((a - a.mean(axis=0)) ** 2 / (a.var(0) + 0.1)), (A,)),
    "einsum": (lambda a, b: np.sum(np.einsum("ij,jk,kl->il", a, b, a) ** 2), (A, B)),
    "tensordot": (lambda a, b: np.sum(np.tanh(np.tensordot(a, b, ([0], [1])))), (A, B)),
    "softmax": (lambda a: np.sum(sg.softmax(a, axis=1) ** 2) + sg.logsumexp(a), (A,)),
    "extremes": (lambda a: np.sum(a.max(axis=1) ** 2) - np.sum(np.min(a, 0)) * np.ptp(a), (A,)),
    "norms": (lambda a: np.linalg.norm(a) + np.sum(np.linalg.norm(a, axis=1, ord=1)), (A,)),
    "prod": (lambda a: np.sum(np.prod(np.abs(a) + 0.5, axis=1)) + np.prod(a[0] + 2.0), (A,)),
    "scans": (lambda a: np.sum(np.tanh(np.cumsum(a, axis=1)) * np.cumsum(a, axis=0)), (A,)),
    "slices": (lambda v: np.sum(v[1:-1] * v[::2][:, None] * v[-3] + v[:-2] ** 2), (V,)),
    "gathers": (lambda a: np.sum(np.tanh(a[AT] * a[AT[::-1], 1:2])) + a[AT, AT % 3].sum(), (A,)),
    "updates": (lambda a: np.sum(a.at[1:3].set(0.0) ** 3 * a.at[:, ::2].add(a[:, ::2])), (A,)),
    "adds": (lambda a: np.sum(a.at[AT].add(2.0 * a[AT]) ** 2), (A,)),
    "masks": (lambda a, b: np.sum(np.where(np.tri(7) > 0, a @ b, -1.0) ** 2), (A, B)),
    "triangles": (lambda a: np.sum(np.tril(a) * np.triu(a, -1) ** 2) + np.trace(a), (A,)),
    "joins": (lambda a: np.sum(np.concatenate([a[:1], a[1:] * a[:-1], a]) ** 2), (A,)),
    "stacks": (lambda a: np.sum(np.stack([a, a**2, -a], 1)[:, 1:] * np.hstack([a])[:, None]), (A,)),
    "splits": (lambda v: sum(np.sum(p) ** (k + 2) for k, p in enumerate(np.split(v, 4))), (V,)),
    "moves": (lambda a: np.sum(np.roll(a, 2, 1) * np.flip(a, 0) + np.pad(a, 1)[1:-1, 2:]), (A,)),
    "repeats": (lambda a: np.sum(np.tile(a, (2, 1)) ** 2 * np.repeat(a, 2, axis=0)), (A,)),
    "shapes": (lambda v: np.sum(v.reshape(3, 4).T * v.reshape(2, 6).T.reshape(4, 3)), (V,)),
    "integers": (lambda a: np.sum(a * np.arange(5) + a[np.argmax(a, 0), np.arange(5)] ** 2), (A,)),
    "truths": (lambda a: np.sum(np.where(np.any(a > 1.0, axis=1), 1.0, 2.0) * a.sum(1)), (A,)),
    "special": (lambda a: np.sum(sg.gammaln(np.abs(a) + 0.3) + sg.erf(a) + sg.sigmoid(a)), (A,)),
    "powers": (lambda a: np.sum((a**2 + 1.0) ** 1.5 - 2.0**a + np.abs(a) ** -0.5), (A,)),
    "second": (lambda a: np.sum(sg.value_and_grad(cubes)(a)[1] ** 2), (A,)),
    "pairs": (lambda a: np.sum(np.exp(-np.sum((a[:, None] - a[None]) ** 2, -1)) @ a[:, 0]), (A,)),
}  # fmt: skip
"""Functions of arrays that NumPy computes too."""


TWINS: dict[str, Callable[..., Any]] = {
    "updates": lambda a: np.sum(_set(a, slice(1, 3), 0.0) ** 3 * _add(a, np.s_[:, ::2], a[:, ::2])),
    "adds": lambda a: np.sum(_add(a, AT, 2.0 * a[AT]) ** 2),
    "second": lambda a: np.sum((3.0 * np.sin(a) ** 2 * np.cos(a)) ** 2),
}
"""The functions in NumPy's words, where these differ."""


def _set(a: np.ndarray, key: Any, value: Any) -> np.ndarray:
    copy = a.copy()
    copy[key] = value
    return copy


def _add(a: np.ndarray, key: Any, value: Any) -> np.ndarray:
    copy = a.copy()
    np.add.at(copy, key, value)
    return copy


def computed(f: Callable[..., Any], arrays: tuple[np.ndarray, ...], fuse: bool) -> list[np.ndarray]:
    """The value and the gradients by the meaning of the program."""
    trace = WholeTrace(f, arrays)
    value = trace.call(lambda xs: iter([*xs, {}]))
    program = program_of(trace.tape, [value, *gradients(value, trace.variables)], fuse)
    return interpret(program, trace.tape.arrays)


def slope(f: Callable[..., Any], arrays: tuple[np.ndarray, ...], way: list[np.ndarray]) -> float:
    """The derivative along a direction, by Richardson's extrapolation of central differences."""

    def difference(h: float) -> float:
        up, down = (f(*[x + s * h * d for x, d in zip(arrays, way, strict=True)]) for s in (1, -1))
        return float(up - down) / (2 * h)

    return (4 * difference(5e-5) - difference(1e-4)) / 3


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_are_numpys_and_gradients_their_slopes(name: str) -> None:
    f, arrays = FUNCTIONS[name]
    twin = TWINS.get(name, f)
    value, *grads = computed(f, arrays, fuse=True)
    plain, *others = computed(f, arrays, fuse=False)
    assert np.allclose([value, plain], float(twin(*arrays)), rtol=1e-11)
    way = [RNG.normal(size=x.shape) for x in arrays]
    along = sum(np.sum(g * d) for g, d in zip(grads, way, strict=True))
    assert np.isclose(along, slope(twin, arrays, way), rtol=1e-6, atol=1e-7)
    for a, b in zip(grads, others, strict=True):
        assert np.allclose(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("seed", range(30))
def test_drawn_functions(seed: int) -> None:
    f = drawn(seed)
    rng = np.random.default_rng(1000 + seed)
    arrays = tuple(rng.normal(size=s) for s in f.shapes)
    value, *grads = computed(lambda *x: f(np, *x), arrays, fuse=True)
    assert np.isclose(value, f(np, *arrays), rtol=1e-10)
    way = [rng.normal(size=s) for s in f.shapes]
    along = sum(np.sum(g * d) for g, d in zip(grads, way, strict=True))
    assert np.isclose(along, slope(lambda *x: f(np, *x), arrays, way), rtol=1e-5, atol=1e-6)


def network(w: Any, b: Any, x: Any) -> Any:
    """A layer, and what a trace sees of an array."""
    assert (w.shape, x.ndim, w.T.size, len(x)) == ((64, 40), 2, 2560, 30)
    return np.mean(np.tanh(x @ w + b["bias"]) ** 2)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_value_and_grad_of_large_arrays(dtype: Any) -> None:
    w, bias, x = RNG.normal(size=(64, 40)) / 8, RNG.normal(size=40), RNG.normal(size=(30, 64))
    step = sg.value_and_grad(network, argnums=(0, 1), device="cpu", dtype=dtype)
    value, (dw, db) = step(w, {"bias": bias}, x)
    y = np.tanh(x @ w + bias)
    g = 2 * y * (1 - y**2) / y.size
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    assert isinstance(value, float) and np.isclose(value, np.mean(y**2), rtol=tolerance)
    assert dw.dtype == dtype and np.allclose(dw, x.T @ g, rtol=tolerance, atol=tolerance)
    assert np.allclose(db["bias"], g.sum(0), rtol=tolerance, atol=tolerance)


def test_what_is_returned_beside_the_value() -> None:
    a = RNG.normal(size=(40, 30))
    run = sg.value_and_grad(
        lambda a: (np.sum(a**2), {"rows": a.sum(1), "most": np.argmax(a), "note": "n"}),
        has_aux=True, device="cpu", dtype="float64",
    )  # fmt: skip
    (value, aux), grad = run(a)
    assert np.isclose(value, np.sum(a**2)) and np.allclose(grad, 2 * a)
    assert np.allclose(aux["rows"], a.sum(1)) and aux["most"] == np.argmax(a)
    assert aux["note"] == "n"


def test_numbers_from_elsewhere_are_those_of_now() -> None:
    scale = np.linspace(1.0, 2.0, 1500)
    run = sg.value_and_grad(lambda v: np.sum(scale * v**2), device="cpu", dtype="float64")
    assert np.allclose(run(np.ones(1500))[1], 2 * scale)
    scale *= 3.0
    assert np.allclose(run(np.ones(1500))[1], 2 * scale)


def test_small_arrays_that_grow_are_traced_as_a_whole() -> None:
    t, u = np.linspace(0, 2, 150), np.linspace(0, 1, 20)
    calls = []

    def loss(p: Any) -> Any:
        calls.append(type(p).__name__)
        return np.sum(np.mean(np.exp(-p[0] * t[:, None] * u) * p[1], axis=1) ** 2)

    value, grad = sg.value_and_grad(loss, device="cpu", dtype="float64")(np.array([1.3, 0.4]))
    model = np.mean(np.exp(-1.3 * t[:, None] * u), axis=1)
    assert calls == ["ExprArray", "WholeArray"] and np.isclose(value, np.sum((0.4 * model) ** 2))
    assert np.isclose(grad[1], 0.8 * np.sum(model**2), rtol=1e-12)


def test_whole_numbers_count_as_real_ones() -> None:
    value, grad = sg.value_and_grad(lambda v: np.sum(v**2) / 2, device="cpu")(np.arange(1100))
    assert np.isclose(value, np.sum(np.arange(1100.0) ** 2) / 2, rtol=1e-6)
    assert np.array_equal(grad, np.arange(1100))


def test_functions_of_elements_are_traced_by_them() -> None:
    def loss(v: Any) -> Any:
        return sum(x**2 for x in np.array([*v[:5]])) + 0.5 * v[7]

    _, grad = sg.value_and_grad(loss, device="cpu", dtype="float64")(np.arange(1100.0))
    assert np.allclose(grad[:8], [0, 2, 4, 6, 8, 0, 0, 0.5]) and not grad[8:].any()


@pytest.mark.parametrize(
    ("f", "error", "match"),
    [
        (lambda a: a, TraceError, r"returned an array of shape \(40, 30\)"),
        (lambda a: np.sum(a @ a), ValueError, "do not match"),
        (lambda a: np.sum(a[41]), IndexError, "out of bounds"),
        (lambda a: 1.0 if a[0, 0] > 0 else 0.0, TraceError, "where"),
    ],
)
def test_what_cannot_be_is_said_at_once(f: Any, error: Any, match: str) -> None:
    with pytest.raises(error, match=match):
        sg.value_and_grad(f, device="cpu")(np.ones((40, 30)))


def test_jit_gives_nests_of_arrays() -> None:
    a, w = RNG.normal(size=(40, 30)), RNG.normal(size=30)
    run = sg.jit(
        lambda a, w, k: {"rows": np.tanh(a @ w)[::k], "at": [np.argmax(a, 1), a > 0], "k": k},
        device="cpu", dtype="float64",
    )  # fmt: skip
    result = run(a, w, 2)
    assert np.allclose(result["rows"], np.tanh(a @ w)[::2], rtol=1e-13) and result["k"] == 2
    assert np.array_equal(result["at"][0], np.argmax(a, 1))
    assert np.array_equal(result["at"][1], a > 0) and result["at"][1].dtype == bool
    assert "40" in str(run.stages)


@pytest.mark.parametrize("n", [3, 300])
def test_jit_traces_by_elements_what_asks_for_them(n: int) -> None:
    x = RNG.normal(size=n)
    run = sg.jit(lambda v: {"v": np.array([*v[::-1]]), "sum": v.sum()}, device="cpu")
    result = run(x)
    assert np.allclose(result["v"], x[::-1]) and np.isclose(result["sum"], x.sum(), rtol=1e-5)
    grid = np.array([0.0, 1.0, 3.0])
    slope = sg.jit(lambda v: np.gradient(v[:3], grid), device="cpu", dtype="float64")(x)
    assert np.allclose(slope, np.gradient(x[:3], grid), rtol=1e-10)


def test_vmap_says_what_to_write_for_functions_of_elements() -> None:
    with pytest.raises(sg.UnsupportedError, match=r"sg\.fused_forward") as caught:
        sg.vmap(lambda v: np.array([*v]), device="cpu")(np.ones((2, 3)))
    assert "np.asarray" in str(caught.value.__cause__)


def test_vmap_maps_over_axes_of_nests_within_and_around_derivatives() -> None:
    a, x = RNG.normal(size=(6, 5)), RNG.normal(size=(5, 4))
    slopes = sg.vmap(
        lambda p, k: sg.grad(lambda u: np.sum(np.sin(a @ u)) * k)(p["x"]),
        ({"x": 1}, None), 1, device="cpu", dtype="float64",
    )  # fmt: skip
    assert np.allclose(slopes({"x": x}, 2.0), 2 * a.T @ np.cos(a @ x), rtol=1e-12)

    def table(x: Any) -> Any:
        rows = sg.vmap(lambda c: sg.vmap(lambda e: e * np.sum(c) + a[:, 0])(c), 1, 2)(x)
        return np.sum(rows**2)

    expected = x.T[:, :, None] * x.sum(0)[:, None, None] + a[:, 0]
    value, grad = sg.value_and_grad(table, device="cpu", dtype="float64")(np.tile(x, (1, 60)))
    assert np.isclose(value, 60 * np.sum(expected**2), rtol=1e-12)
    step = 1e-6 * RNG.normal(size=grad.shape)
    way = np.tile(x, (1, 60))
    up, down = (sg.jit(table, device="cpu", dtype="float64")(way + s * step) for s in (1, -1))
    assert np.isclose(np.sum(grad * step), (up - down) / 2, rtol=1e-6)
    with pytest.raises(sg.InputError, match="arrays of"):
        sg.vmap(lambda x, y: x, device="cpu")(x, a)


@pytest.mark.skipif(not any(d.is_gpu for d in sg.devices()), reason="needs a GPU")
def test_arrays_on_a_device_stay_there() -> None:
    a, x = RNG.normal(size=(60, 50)), RNG.normal(size=50)
    gpu = sg.device_array(a, device="gpu")
    value, grad = sg.value_and_grad(lambda a: np.sum(np.tanh(a @ x)))(gpu)
    assert isinstance(grad, sg.DeviceArray) and isinstance(value, sg.DeviceArray)
    expected = (1 - np.tanh(a @ x) ** 2)[:, None] * x
    assert np.allclose(grad.numpy(), expected, rtol=1e-4, atol=1e-5)
    gram = sg.jit(lambda a: {"gram": a.T @ a})(gpu)["gram"]
    assert np.allclose(gram.numpy(), a.T @ a, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", ["float64", "float32x2"])
def test_arrays_from_elsewhere_keep_their_digits_on_a_gpu(dtype: Any) -> None:
    x, w = np.random.default_rng(5).normal(size=(2, 300))
    value = sg.jit(lambda x: np.sum(x * w), device="gpu", dtype=dtype)(x)
    assert float(value) == pytest.approx(float(np.sum(x * w)), rel=1e-12)


def test_the_text_of_the_kernels_is_the_same_for_all_sizes() -> None:
    run = sg.jit(lambda a, x: np.sum(np.tanh(a @ x)), device="cpu")
    with pytest.raises(sg.InputError, match="has not been called"):
        _ = run.wgsl
    texts = []
    for n in (300, 700):
        run(np.ones((n, n)), np.ones(n))
        texts.append(run.wgsl)
    assert texts[0] == texts[1]
    assert texts[0].count("@compute") == len(str(run.stages).splitlines())
    names = re.findall(r"= (\w+)\(", str(run.stages))
    assert re.findall(r"^// (\w+)$", texts[0], re.MULTILINE) == names
