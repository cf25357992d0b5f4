"""Kernels of functions of large arrays: what they compute, their face, and what they refuse."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.optimize

import symgrad as sg
from symgrad.front.whole_kernels import WholeKernel

RNG = np.random.default_rng(24)
A = RNG.normal(size=(300, 200))
W = RNG.normal(size=200)


def loss(p: Any) -> Any:
    return np.mean(np.tanh(A @ p.w + p.b) ** 2)


KERNEL = sg.fused_forward_backward({"w": (200,), "b": ()}, loss, device="cpu", dtype="float64")


def expected(w: Any, b: float) -> tuple[Any, Any, Any]:
    """The loss, and its derivatives by w and b, by hand."""
    y = np.tanh(A @ w + b)
    slopes = 2 * y * (1 - y * y) / len(y)
    return np.mean(y * y), A.T @ slopes, slopes.sum()


def test_a_loss_of_large_products_and_its_gradient() -> None:
    assert isinstance(KERNEL, WholeKernel)
    value, grad = KERNEL.run({"w": W, "b": 0.5})
    want = expected(W, 0.5)
    np.testing.assert_allclose([value, grad["b"]], [want[0], want[2]], rtol=1e-12)
    np.testing.assert_allclose(grad["w"], want[1], rtol=1e-11)
    assert type(value) is float


def test_points_of_a_batch_and_in_a_row() -> None:
    points = RNG.normal(size=(2, 3, 201))
    values, grads = KERNEL.run(points)
    assert values.shape == (2, 3) and grads["w"].shape == (2, 3, 200)
    for k in np.ndindex(2, 3):
        np.testing.assert_allclose(values[k], expected(points[k][:200], points[k][200])[0])
    assert KERNEL.run(points[:0])[0].shape == (0, 3)


def test_no_points_have_results_of_the_type_that_some_have() -> None:
    square = sg.fused_forward_backward(
        40_000, lambda v: np.sum(v * v), device="cpu", dtype="float32x2"
    )
    for count in (0, 1):
        values, grads = square.run(np.ones((count, 40_000)))
        assert values.shape == (count,) and grads.shape == (count, 40_000)
        assert values.dtype == grads.dtype == np.float64


def test_functions_that_work_on_elements_one_by_one_are_traced_by_them() -> None:
    """Of many variables too, where each operation of whole arrays takes long to compile."""

    def chain(v: Any) -> Any:
        z = v[0]
        for i in range(200):
            z = np.sin(z * v[i] + z)
        return z

    many, few = (
        sg.fused_forward_backward(n, chain, device="cpu", dtype="float64") for n in (40_000, 200)
    )
    x = RNG.uniform(0.1, 0.9, 40_000)
    (value, grad), (want, slopes) = many.run(x), few.run(x[:200])
    assert not isinstance(many, WholeKernel)
    assert value == want and not grad[200:].any()
    np.testing.assert_array_equal(grad[:200], slopes)


def reads(v: Any) -> Any:
    return sum(np.sin(v[i] * v[(7 * i) % len(v)]) for i in range(len(v)))


def writes(v: Any) -> Any:
    y = v
    for i in range(len(v) - 1):
        y = y.at[i].set(y[i] * np.cos(y[i + 1]))
    return np.sum(y)


def stacked(v: Any) -> Any:
    return np.sum(np.stack([np.tanh(v[i] - v[(3 * i) % len(v)]) for i in range(len(v))]) * v)


def pieces(v: Any) -> Any:
    return np.sum(np.concatenate([v[i : i + 1] * v[(2 * i) % len(v)] for i in range(len(v))]) ** 3)


def looped(v: Any) -> Any:
    return sg.fori_loop(0, 4, lambda _, c: 0.5 * c + reads(c * v) / len(v), v[0])


@pytest.mark.parametrize("f", [reads, writes, stacked, pieces, looped])
def test_hundreds_of_reads_of_elements_are_one_kernel_of_numbers(f: Any) -> None:
    """Of an array that is traced as a whole, where each would be a condition on all elements."""
    x = RNG.uniform(0.2, 1.2, 400)
    along, step = RNG.normal(size=400), 1e-6
    run = sg.value_and_grad(f, device="cpu", dtype="float64")
    value, grad = run(x)
    slope = (run(x + step * along)[0] - run(x - step * along)[0]) / (2 * step)
    np.testing.assert_allclose(grad @ along, slope, rtol=1e-6)
    jitted = sg.jit(f, device="cpu", dtype="float64")
    np.testing.assert_allclose(jitted(x), value, rtol=1e-13)
    assert "@compute" in jitted.wgsl
    if f is reads:
        np.testing.assert_allclose(value, f(x), rtol=1e-13)
    with pytest.raises(sg.InputError, match=r"one kernel, run\.wgsl"):
        print(jitted.stages)


def test_a_map_of_functions_of_single_elements_stays_whole() -> None:
    """So do reads of elements beside large arrays: their kernels are long, and cut into parts."""
    x, scales = RNG.uniform(0.2, 1.2, 270), RNG.normal(size=5)

    def mapped(v: Any) -> Any:
        return np.sum(sg.vmap(lambda s: reads(s * v[:60]))(scales))

    _, grad = sg.value_and_grad(mapped, device="cpu", dtype="float64")(x)
    _, parts = zip(
        *(sg.value_and_grad(lambda v, s=s: reads(s * v), dtype="float64")(x[:60]) for s in scales),
        strict=True,
    )
    np.testing.assert_allclose(grad[:60], np.sum(parts, 0), rtol=1e-10)
    assert not grad[60:].any()


def test_many_reads_of_elements_beside_whole_arrays_are_said() -> None:
    def both(v: Any) -> Any:
        return v[0] + sum(v[i] for i in range(1, 250)) + np.sum(np.tanh(np.outer(v, v)))

    with pytest.warns(sg.SizeWarning, match=r"both (?s:.*)reads 250 elements(?s:.*)of integers"):
        value = sg.jit(both, device="cpu", dtype="float64")(np.arange(300.0) / 300)
    np.testing.assert_allclose(value, both(np.arange(300.0) / 300), rtol=1e-13)


def test_results_go_into_arrays() -> None:
    square = sg.fused_forward_backward(5000, lambda v: np.sum(v * v), device="cpu")
    out = np.empty((), np.float32), np.empty(5000, np.float32)
    assert square.run(np.arange(5000.0), out=out)[1] is out[1]
    np.testing.assert_array_equal(out[1], 2 * np.arange(5000))


def test_what_it_is() -> None:
    assert isinstance(KERNEL, WholeKernel)
    assert KERNEL.n_inputs == 201 and KERNEL.inputs == ("w", "b")
    assert KERNEL.outputs == ("loss", "grad") and "arrays of 201 numbers" in repr(KERNEL)
    assert KERNEL.stats.flops > 2 * 2 * A.size and KERNEL.stats.mode == "reverse"
    assert "@compute" in KERNEL.wgsl and str(KERNEL.stages)
    again = pickle.loads(pickle.dumps(KERNEL)).to("cpu")
    assert again.run({"w": W, "b": 0.5})[0] == KERNEL.run({"w": W, "b": 0.5})[0]


def test_values_are_nested_as_they_are_returned() -> None:
    def values(v: Any) -> Any:
        return {"product": A.T @ v, "sum": v.sum(), "any": np.any(v > 0), "three": 3.0}

    kernel = sg.fused_forward(300, values, device="cpu", dtype="float64")
    assert isinstance(kernel, WholeKernel)
    x = RNG.normal(size=300)
    got = kernel.run(x)
    np.testing.assert_allclose(got["product"], A.T @ x, rtol=1e-12)
    assert got["sum"] == pytest.approx(x.sum(), rel=1e-12)
    assert (got["any"], got["three"]) == (1.0, 3.0)


def test_it_is_traced_once() -> None:
    scale = np.full(3000, 2.0)
    kernel = sg.fused_forward(3000, lambda v: np.sum(scale * v), device="cpu")
    scale[:] = 7.0
    assert kernel.run(np.ones(3000)) == 6000.0


@pytest.mark.parametrize("device", sg.devices(), ids=str)
def test_on_each_device(device: sg.Device) -> None:
    kernel = sg.fused_forward_backward({"w": (200,), "b": ()}, loss, device=device)
    value, grad = kernel.run({"w": W, "b": 0.5})
    want = expected(W, 0.5)
    assert value == pytest.approx(want[0], rel=1e-5)
    np.testing.assert_allclose(grad["w"], want[1], rtol=1e-3, atol=1e-6)


def test_what_needs_expressions_is_refused() -> None:
    uses = [
        lambda: KERNEL.expr,
        KERNEL.as_torch,
        lambda: KERNEL.minimize(np.zeros((1, 201)), sg.LBFGS()),
    ]
    for use in uses:
        with pytest.raises(sg.InputError, match="kernel of whole arrays"):
            use()


def test_a_function_that_takes_elements_apart_is_traced_by_them() -> None:
    kernel = sg.fused_forward(2500, lambda v: np.prod(np.array([*v[:3]])), device="cpu")
    assert not isinstance(kernel, WholeKernel)
    assert kernel.run(np.full(2500, 2.0)) == 8.0


def test_faults_of_functions_are_not_hidden() -> None:
    def wrong(v: Any) -> Any:
        return np.sum(v * v) + None

    with pytest.raises(TypeError):
        sg.fused_forward(3000, wrong, device="cpu")
    with pytest.raises(TypeError):
        sg.value_and_grad(wrong, device="cpu")(np.ones(3000))


def test_scipys_methods_minimise_large_arrays() -> None:
    def far(v: Any) -> Any:
        return np.sum((v - target) ** 2 + 0.1 * (v - target) ** 4)

    target = RNG.normal(size=4000)
    end = sg.minimize(far, np.zeros(4000), method="L-BFGS-B")
    np.testing.assert_allclose(end.x, target, atol=1e-4)


NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_curves_are_fitted_to_models_that_broadcast_x(dtype: Any) -> None:
    def model(x: Any, a: Any, b: Any) -> Any:
        return b * np.exp(-a * x[:, None] * (NODES + 1) ** 2) @ WEIGHTS

    x = np.linspace(0.0, 3.0, 100)
    y = model(x, 1.3, 2.1) + 1e-3 * np.sin(37 * x)
    popt, pcov = sg.curve_fit(model, x, y, [1.0, 1.0], dtype=dtype)
    want, deviations = scipy.optimize.curve_fit(model, x, y, [1.0, 1.0])
    np.testing.assert_allclose(popt, want, rtol=1e-6)
    np.testing.assert_allclose(pcov, deviations, rtol=1e-4)


def test_models_that_mix_rows_are_traced_for_all_of_them() -> None:
    def model(x: Any, a: Any) -> Any:
        return np.cumsum(np.exp(-a * x[:, None]), axis=0)[:, 0]

    x = np.linspace(0.0, 1.0, 12)
    popt, _ = sg.curve_fit(model, x, model(x, 0.7), [1.0])
    assert popt == pytest.approx([0.7], rel=1e-8)
