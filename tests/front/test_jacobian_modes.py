"""Tall Jacobians: kernels of simulations take forward or mixed mode, and say so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize

import symgrad as sg

STEPS = 30


def growth(v: Any) -> list[Any]:
    """A logistic growth with a periodic harvest, its state after each of Euler's steps."""
    a, b, c = v
    y, states = 1.0, []
    for _ in range(STEPS):
        y = y + 0.05 * (a * y * (1 - y / b) - c * sg.sin(y))
        states.append(y)
    return states


def by_dual_numbers(v: Any) -> tuple[np.ndarray, np.ndarray]:
    """The states and their derivatives: what is behind eps_k follows y through each step."""
    a, b, c = v
    y, d = 1.0, np.zeros(3)
    states, slopes = [], []
    for _ in range(STEPS):
        partials = np.array([y * (1 - y / b), a * y * y / b**2, -np.sin(y)])
        d = d + 0.05 * ((a - 2 * a * y / b - c * np.cos(y)) * d + partials)
        y = y + 0.05 * (a * y * (1 - y / b) - c * np.sin(y))
        states.append(y)
        slopes.append(d)
    return np.array(states), np.array(slopes)


AT = (1.0, 2.0, 0.3)


@pytest.mark.parametrize("mode", ["auto", "forward", "reverse", "mixed"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_tall_jacobian_against_dual_numbers(mode: Any, dtype: Any) -> None:
    kernel = sg.fused_jacobian(3, growth, mode=mode, dtype=dtype, device="cpu")
    values, jacobian = kernel.run(AT)
    want = by_dual_numbers(AT)
    tight = 1e-13 if dtype == "float64" else 4e-6
    np.testing.assert_allclose(values, want[0], rtol=tight)
    np.testing.assert_allclose(jacobian, want[1], rtol=tight, atol=tight)


def test_the_choice_is_told_and_is_cheap() -> None:
    kernels = {
        mode: sg.fused_jacobian(3, growth, mode=mode, device="cpu")
        for mode in ("auto", "forward", "reverse", "mixed")
    }
    made = {mode: kernel.stats.operations for mode, kernel in kernels.items()}
    assert made["auto"] == min(made.values()) < 50 * STEPS
    assert made["auto"] < made["reverse"] / 4
    told = kernels["auto"].stats.mode
    assert told in ("forward", "mixed") and f"derivatives in {told} mode" in str(
        kernels["auto"].stats
    )
    assert kernels["reverse"].stats.mode == "reverse"
    assert sg.fused_forward_backward(2, lambda v: v @ v, device="cpu").stats.mode == "reverse"
    assert sg.fused_forward(2, lambda v: v @ v, device="cpu").stats.mode is None


def test_a_kernel_keeps_its_mode_on_another_device() -> None:
    kernel = sg.fused_jacobian(3, growth, mode="forward", device="cpu").to("cpu")
    assert kernel.stats.mode == "forward"


def test_sparse_jacobians_keep_their_structure_in_every_mode() -> None:
    def band(v: Any) -> list[Any]:
        return [sg.exp(v[k] * v[k + 1]) - v[k + 2] for k in range(10)]

    x = np.linspace(0.1, 0.9, 12)
    found = {
        mode: sg.fused_jacobian(12, band, mode=mode, sparse=True, device="cpu").run(x)[1]
        for mode in ("auto", "forward", "reverse", "mixed")
    }
    for other in found.values():
        assert other.nnz == 30
        assert other.indices.tolist() == found["reverse"].indices.tolist()
        np.testing.assert_allclose(other.toarray(), found["reverse"].toarray(), rtol=1e-6)


def test_modes_of_hessians() -> None:
    def loss(v: Any) -> Any:
        return sum((y - 1.5) ** 2 for y in growth(v)[::5])

    found = {
        mode: sg.fused_hessian(3, loss, mode=mode, dtype="float64", device="cpu")
        for mode in ("auto", "forward", "reverse", "mixed")
    }
    made = {mode: kernel.stats.operations for mode, kernel in found.items()}
    assert made["auto"] == min(made.values())
    want = found["reverse"].run(AT)[2]
    for kernel in found.values():
        np.testing.assert_allclose(kernel.run(AT)[2], want, rtol=1e-12)


def test_least_squares_with_many_residuals_a_row() -> None:
    def residuals(p: Any, r: Any) -> list[Any]:
        y, found = r[0], []
        for k in range(20):
            y = y + 0.1 * (p[0] * y - p[1] * y * y)
            found.append(y - r[1 + k % 2])
        return found

    rows = np.array([[1.0, 1.2, 1.3], [0.5, 0.7, 0.6], [2.0, 1.5, 1.4]])
    found = {
        mode: sg.fused_least_squares(
            2, residuals, row=3, mode=mode, dtype="float64", device="cpu"
        )
        for mode in ("auto", "forward", "reverse", "mixed")
    }  # fmt: skip
    assert [kernel.stats.mode for kernel in found.values()][1:] == ["forward", "reverse", "mixed"]
    made = {mode: kernel.stats.operations for mode, kernel in found.items()}
    assert made["auto"] == min(made.values()) < 0.6 * made["reverse"]
    want = found["reverse"].run([0.4, 0.3], rows)
    for kernel in found.values():
        for a, b in zip(kernel.run([0.4, 0.3], rows), want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize("reduce", ["sum", None])
def test_jacobians_and_hessians_of_rows_tell_their_mode(reduce: Any) -> None:
    def states(p: Any, r: Any) -> list[Any]:
        y, found = r[0], []
        for _ in range(12):
            y = y + 0.1 * (p[0] * y - p[1] * sg.sin(y))
            found.append(y)
        return found

    options: dict[str, Any] = {"row": 1, "reduce": reduce, "device": "cpu"}
    for mode in ("forward", "reverse", "mixed"):
        kernel = sg.fused_jacobian(2, states, mode=mode, **options)
        assert kernel.stats.mode == mode
        second = sg.fused_hessian(2, lambda p, r: states(p, r)[3], mode=mode, **options)
        assert second.stats.mode == mode
    assert sg.fused_jacobian(2, states, **options).stats.mode in ("forward", "mixed")
    assert sg.fused_forward(2, states, **options).stats.mode is None


MODES = ("auto", "forward", "reverse", "mixed")


@pytest.mark.parametrize("mode", MODES)
def test_curve_fit_of_a_simulation(mode: Any) -> None:
    at = 0.05 * np.arange(1, STEPS + 1)
    noise = 1e-3 * np.random.default_rng(0).normal(size=STEPS)
    given = at, by_dual_numbers(AT)[0] + noise, (0.9, 1.8, 0.25)

    def model(t: Any, *p: Any) -> Any:
        return np.array(growth(p)) + 0.0 * np.mean(t)

    found, covariance, told, _, _ = sg.curve_fit(model, *given, mode=mode, full_output=True)
    want = scipy.optimize.curve_fit(
        model, *given, jac=lambda _, *p: by_dual_numbers(p)[1], xtol=1e-14, ftol=1e-14
    )
    np.testing.assert_allclose(found, want[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(covariance, want[1], rtol=1e-3)
    assert told["mode"] in (("forward", "mixed") if mode == "auto" else (mode,))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_curve_fit_of_a_formula_in_each_mode(dtype: Any) -> None:
    x = np.linspace(0.0, 4.0, 30)
    y = 2.5 * np.exp(-1.3 * x)
    for mode in MODES:
        found, _, told, _, _ = sg.curve_fit(
            lambda x, a, b: a * np.exp(-b * x), x, y, mode=mode, dtype=dtype, full_output=True
        )
        np.testing.assert_allclose(found, [2.5, 1.3], rtol=1e-9 if dtype == "float64" else 1e-6)
        assert told["mode"] == ("reverse" if mode == "auto" else mode), "a value at a time"


@pytest.mark.parametrize("mode", MODES)
def test_fits_of_many_curves_and_minimisations_take_a_mode(mode: Any) -> None:
    x = np.linspace(0.0, 3.0, 20)
    curves = np.exp(-np.outer([0.5, 1.0, 2.0], x))
    found = sg.fit_many(
        lambda x, a, b: a * np.exp(-b * x), x, curves, [1.0, 1.5], mode=mode, covariance=True,
        device="cpu", dtype="float64",
    )  # fmt: skip
    np.testing.assert_allclose(found.x[:, 1], [0.5, 1.0, 2.0], rtol=1e-6)
    assert found.mode == mode or mode == "auto"

    def residuals(v: Any) -> Any:
        return np.array(growth(v)) - by_dual_numbers(AT)[0]

    for method, loss in (
        (sg.LevenbergMarquardt(), residuals), (sg.Newton(), lambda v: np.sum(residuals(v)[:8]**2)),
    ):  # fmt: skip
        found = sg.minimize_from(
            loss, 3, [[0.9, 1.8, 0.25]], method, 30, device="cpu", dtype="float64", mode=mode
        )
        assert found.fun[0] < 1e-7
        assert found.mode in (MODES if mode == "auto" else (mode,)) and found.mode != "auto"
    first = sg.minimize_from(lambda v: v @ v, 2, [[1.0, 2.0]], sg.Adam(0.1), 5, device="cpu")
    assert "mode" not in first, "a gradient alone"


def test_a_mode_that_does_not_exist() -> None:
    with pytest.raises(sg.InputError, match=r"'backward' is not a choice: use one of"):
        sg.fused_jacobian(3, growth, mode="backward")  # type: ignore[arg-type]
    with pytest.raises(sg.InputError, match=r"'backward' is not a choice: use one of"):
        sg.fused_least_squares(1, lambda p, r: p[0] - r[0], row=1, mode="backward")  # type: ignore[arg-type]
    x = np.linspace(0.0, 1.0, 5)
    for fit in (sg.curve_fit, sg.fit_many):
        with pytest.raises(sg.InputError, match=r"'backward' is not a choice: use one of"):
            fit(lambda x, a: a * x, x, x if fit is sg.curve_fit else x[None], mode="backward")  # type: ignore[arg-type]
