"""`minimize` hands exact derivatives to SciPy."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from optimize.problems import rosenbrock

import symgrad as sg
from symgrad.optimize.result import as_scipy

START = [-1.2, 1.0, 0.5]


@pytest.mark.parametrize(
    "method",
    [None, "BFGS", "CG", "L-BFGS-B", "TNC", "SLSQP", "Newton-CG", "trust-ncg", "trust-exact",
     "trust-krylov", "dogleg", "Nelder-Mead", "Powell", "COBYLA"],
)  # fmt: skip
def test_every_method(method: Any) -> None:
    found = sg.minimize(lambda v: (v[0] - 1) ** 2 * 3 + (v[1] - v[2]) ** 2 + (v[1] - 1) ** 4
                        + (v[1] - 1) ** 2, START, method=method)  # fmt: skip
    assert isinstance(found, scipy.optimize.OptimizeResult)
    assert found.success
    np.testing.assert_allclose(found.x, 1.0, atol=5e-3)


def test_derivatives_are_exact() -> None:
    found = sg.minimize(rosenbrock, START, method="trust-exact")
    want = scipy.optimize.minimize(
        scipy.optimize.rosen, START, method="trust-exact", jac=scipy.optimize.rosen_der,
        hess=scipy.optimize.rosen_hess,
    )  # fmt: skip
    assert (found.nit, found.nhev) == (want.nit, want.nhev)
    np.testing.assert_allclose(found.x, want.x, rtol=1e-9)


def test_args_bounds_constraints_and_callback() -> None:
    seen: list[Any] = []
    found = sg.minimize(
        lambda v, a, b: (v[0] - a) ** 2 + (v[1] - b) ** 2, [0.0, 0.0], (3.0, 4.0),
        bounds=[(0, 1), (0, None)], callback=lambda x: seen.append(x),
    )  # fmt: skip
    np.testing.assert_allclose(found.x, [1.0, 4.0], atol=1e-6)
    assert seen
    circle = {"type": "ineq", "fun": lambda v: 1 - v @ v}
    found = sg.minimize(lambda v: v[0] + v[1], [0.1, 0.2], constraints=circle)
    np.testing.assert_allclose(found.x, -(0.5**0.5), atol=1e-3)


def test_a_gradient_of_ones_own() -> None:
    calls: list[Any] = []

    def gradient(v: Any) -> Any:
        calls.append(v)
        return scipy.optimize.rosen_der(v)

    assert sg.minimize(rosenbrock, START, jac=gradient, method="BFGS").success
    assert calls


def test_kernels_as_functions_of_scipy() -> None:
    kernel = sg.fused_forward_backward(3, rosenbrock, device="cpu")
    fun = as_scipy(kernel)
    loss, gradient = fun(START)
    assert (type(loss), gradient.dtype) == (float, np.float64)
    assert loss == pytest.approx(scipy.optimize.rosen(START), rel=1e-6)


def test_x0_of_two_dimensions_is_refused() -> None:
    with pytest.raises(sg.InputError, match="x0 has shape"):
        sg.minimize(rosenbrock, [[1.0, 2.0]])


def test_without_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(sg.SymgradError, match=r"pip install 'symgrad\[fit\]'"):
        sg.minimize(rosenbrock, START)


def test_starts_and_methods_of_another_kind() -> None:
    with pytest.raises(sg.InputTypeError, match="x0 holds <U3 values"):
        sg.minimize(rosenbrock, "abc")
    with pytest.raises(sg.InputTypeError, match="minimize_from"):
        sg.minimize(rosenbrock, START, method=sg.Adam())  # type: ignore


def test_the_cpu_by_any_name_is_float64() -> None:
    cpu = next(d for d in sg.devices() if not d.is_gpu)
    for device in ("cpu", cpu, sg.devices().index(cpu)):
        found = sg.minimize(lambda v: (v[0] - 1 / 3) ** 2, [0.0], device=device)
        assert abs(found.x[0] - 1 / 3) < 1e-9


def test_derivatives_of_the_users_own_are_given_args() -> None:
    def loss(v: Any, a: float) -> Any:
        return a * (v @ v)

    def gradient(x: Any, a: float) -> Any:
        return 2 * a * x

    found = sg.minimize(loss, [1.0, 2.0], args=(2.0,), jac=gradient)
    np.testing.assert_allclose(found.x, 0.0, atol=1e-6)
    found = sg.minimize(
        loss, [1.0, 2.0], args=(2.0,), jac=gradient, hess=lambda x, a: 2 * a * np.eye(2),
        method="trust-exact",
    )  # fmt: skip
    np.testing.assert_allclose(found.x, 0.0, atol=1e-6)


def test_functions_written_for_scipy() -> None:
    both = sg.minimize(lambda v: (v @ v, 2 * v), [1.0, 2.0], jac=True)
    np.testing.assert_allclose(both.x, 0.0, atol=1e-6)
    one = sg.minimize(lambda v: (v - 3) ** 2, [1.0])
    np.testing.assert_allclose(one.x, 3.0, atol=1e-6)


def test_messages_name_the_users_function() -> None:
    def pair(v: Any) -> Any:
        return [v[0], v[1]]

    with pytest.raises(
        sg.TraceError, match=r"pair \(.*test_scipy_minimize.py:\d+\) returned a list"
    ):
        sg.minimize(pair, START)
