"""`minimize` hands exact derivatives to SciPy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from optimize.problems import rosenbrock

import symgrad as sg
from symgrad.front import kernels
from symgrad.front.kernels import assemble
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


@pytest.mark.parametrize("method", ["BFGS", "trust-exact"])
def test_equal_traces_share_kernels_and_others_do_not(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def counted(*given: Any) -> Any:
        made.append(method)
        return assemble(*given)

    monkeypatch.setattr(kernels, "assemble", counted)
    wanted = 1.5 if method == "BFGS" else 2.5

    def bowl(v: Any) -> Any:
        return (v[0] - wanted) ** 2 + np.cosh(v[1])

    ends = [sg.minimize(bowl, [0.0, 1.0], method=method).x[0] for _ in range(3)]
    first = len(made)
    assert ends == pytest.approx([wanted] * 3, abs=1e-4) and first == (1 if method == "BFGS" else 2)
    wanted += 2.0
    assert sg.minimize(bowl, [0.0, 1.0], method=method).x[0] == pytest.approx(wanted, abs=1e-4)
    assert len(made) == 2 * first


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


@dataclass
class Wave:
    """Parameters as a user may have them, one of them fixed."""

    level: Any
    waves: Any
    degree: int = field(default=2, metadata={"static": True})


def bowl(level: Any, waves: Any) -> Any:
    return (level - 1.5) ** 2 + np.sum((waves - TARGET) ** 2 * np.array([[1.0, 4.0], [2.0, 1.0]]))


TARGET = np.array([[1.0, -2.0], [3.0, 0.5]])
ZEROS = np.zeros((2, 2))
NESTS: dict[str, tuple[Callable[[Any], Any], Any, Callable[[Any], Any]]] = {
    "dict": (
        lambda p: bowl(p["level"], p.waves),
        {"level": 0.0, "waves": ZEROS},
        lambda x: (x["level"], x["waves"]),
    ),
    "nested": (
        lambda p: bowl(p["a"]["level"], p["b"][1]),
        {"a": {"level": 0.0}, "b": [np.zeros(1), ZEROS]},
        lambda x: (x["a"]["level"], x["b"][1]),
    ),
    "tuple": (lambda p: bowl(*p), (0.0, ZEROS), lambda x: x),
    "dataclass": (
        lambda p: bowl(p.level, p.waves) * p.degree, Wave(0.0, ZEROS), lambda x: (x.level, x.waves)
    ),
}  # fmt: skip


@pytest.mark.parametrize("method", ["L-BFGS-B", "trust-exact", "Newton-CG", "Powell"])
@pytest.mark.parametrize("name", NESTS)
def test_the_result_is_nested_as_x0_is(name: str, method: str) -> None:
    f, x0, parts = NESTS[name]
    found = sg.minimize(f, x0, method=method, options={"maxiter": 3000})
    level, waves = parts(found.x)
    assert type(found.x) is type(x0) and np.shape(level) == ()
    tolerance = 1e-3 if method == "Powell" else 1e-5
    np.testing.assert_allclose(level, 1.5, atol=tolerance)
    np.testing.assert_allclose(waves, TARGET, atol=tolerance)
    if method != "Powell":
        np.testing.assert_allclose(parts(found.jac)[1], 0.0, atol=1e-4)


def test_x0_of_any_shape() -> None:
    found = sg.minimize(lambda w: np.sum((w - TARGET) ** 2), ZEROS)
    assert found.x.shape == found.jac.shape == (2, 2)
    np.testing.assert_allclose(found.x, TARGET, atol=1e-6)
    box = sg.minimize(lambda w: np.sum((w - TARGET) ** 2), ZEROS, bounds=(-ZEROS, ZEROS + 1))
    np.testing.assert_allclose(box.x, np.clip(TARGET, 0.0, 1.0), atol=1e-6)


@pytest.mark.parametrize(
    "bounds",
    [
        {"waves": (0.0, 1.0), "level": (None, 1.0)},
        {"waves": scipy.optimize.Bounds(0.0, 1.0), "level": [(None, 1.0)]},
        ({"level": -np.inf, "waves": ZEROS}, {"level": 1.0, "waves": ZEROS + 1}),
        scipy.optimize.Bounds(*np.array([[-np.inf, 0, 0, 0, 0], [1.0] * 5])),
        [(None, 1), (0, 1), (0, 1), (0, 1), (0, 1)],
    ],
)
def test_bounds_are_nested_too(bounds: Any) -> None:
    f, x0, parts = NESTS["dict"]
    start = {"level": 0.5, "waves": ZEROS + 0.5}
    for found in (
        sg.minimize(f, start, bounds=bounds),
        sg.minimize_from(f, {"level": (), "waves": (2, 2)}, start, sg.LBFGS(), bounds=bounds,
                         device="cpu", dtype="float64"),
    ):  # fmt: skip
        level, waves = parts(found.x)
        np.testing.assert_allclose(level, 1.0, atol=1e-6)
        np.testing.assert_allclose(waves, np.clip(TARGET, 0.0, 1.0), atol=1e-6)
    with pytest.raises(sg.InputError, match="no variable 'wave': the names are level, waves"):
        sg.minimize(f, x0, bounds={"wave": (0.0, 1.0)})
    with pytest.raises(sg.InputError, match="above the upper"):
        sg.minimize(f, x0, bounds={"waves": (1.0, 0.0)})


def test_functions_of_the_users_get_x_nested() -> None:
    f, x0, _ = NESTS["dict"]
    seen: list[Any] = []

    def gradient(p: Any) -> Any:
        return {"level": 2 * (p["level"] - 1.5), "waves": 2 * SCALES * (p["waves"] - TARGET)}

    def product(p: Any, v: Any) -> Any:
        assert p["waves"].shape == v["waves"].shape == (2, 2)
        return {"level": 2 * v["level"], "waves": 2 * SCALES * v["waves"]}

    found = sg.minimize(f, x0, jac=gradient, hessp=product, method="Newton-CG",
                        callback=lambda p: seen.append(p["level"]))  # fmt: skip
    np.testing.assert_allclose(found.x["waves"], TARGET, atol=1e-6)

    def note(intermediate_result: Any) -> None:
        seen.append(intermediate_result.x["level"])

    sg.minimize(f, x0, callback=note)
    assert seen and all(np.shape(v) == () for v in seen)
    circle = {"type": "eq", "fun": lambda p: p["level"] - p["waves"][0, 0]}
    found = sg.minimize(f, x0, constraints=circle)
    assert found.x["level"] == pytest.approx(found.x["waves"][0, 0])
    smooth = scipy.optimize.NonlinearConstraint(lambda p: p["level"] ** 2, -np.inf, 1.0)
    assert sg.minimize(f, x0, constraints=smooth).x["level"] == pytest.approx(1.0)
    assert smooth.fun(x0) == 0.0


SCALES = np.array([[1.0, 4.0], [2.0, 1.0]])


def test_without_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(sg.SymgradError, match=r"pip install 'symgrad\[fit\]'"):
        sg.minimize(rosenbrock, START)


def test_starts_and_methods_of_another_kind() -> None:
    with pytest.raises(sg.InputTypeError, match="x0 holds text"):
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
