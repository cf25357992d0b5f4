"""Many minimisations at once: convergence, bounds, data, flags, and what ends a run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.optimize
from optimize.data_sets import CASES
from optimize.problems import (
    DOUBLE,
    compiled,
    interpreted,
    powell,
    powell_residuals,
    rosenbrock,
    rosenbrock_residuals,
)
from paces import pace

import symgrad as sg
from symgrad.optimize.over_data import minimize_kernel
from symgrad.pipeline import DTypeName

ScipyBounds: Any = scipy.optimize.Bounds

METHODS = [sg.LBFGS(4), sg.Newton(), sg.GaussNewton(), sg.LevenbergMarquardt()]
STARTS = [[-1.2, 1.0], [2.0, -1.0], [5.0, 5.0], [0.0, 0.0], [1.0, 1.0]]


def by_name(method: Any) -> str:
    return type(method).__name__


@pytest.mark.parametrize("runner", [interpreted, compiled])
@pytest.mark.parametrize("method", METHODS, ids=by_name)
def test_rosenbrock(method: Any, runner: Any) -> None:
    f = rosenbrock_residuals if method.needs == "squares" else rosenbrock
    found = sg.minimize_from(f, 2, STARTS, method, 200, runner=runner, **DOUBLE)
    np.testing.assert_allclose(found.x, 1.0, atol=1e-7)
    assert found.success.all()
    assert (found.nit < 100).all() and found.nit[-1] == 0
    assert (found.fun < 1e-14).all()


@pytest.mark.parametrize("method", METHODS, ids=by_name)
def test_powells_singular_function(method: Any) -> None:
    f = powell_residuals if method.needs == "squares" else powell
    found = sg.minimize_from(f, 4, [[3.0, -1.0, 0.0, 1.0]], method, 300, **DOUBLE)
    assert found.fun[0] < 1e-10
    assert np.abs(found.x).max() < 2e-3


@pytest.mark.parametrize("method", METHODS, ids=by_name)
def test_in_float32(method: Any) -> None:
    f = rosenbrock_residuals if method.needs == "squares" else rosenbrock
    found = sg.minimize_from(f, 2, STARTS, method, 200, device="cpu")
    np.testing.assert_allclose(found.x, 1.0, atol=2e-3)
    assert found.success.all()


@pytest.mark.parametrize("method", [sg.LBFGS(), sg.Newton()], ids=by_name)
def test_many_variables(method: Any) -> None:
    starts = np.random.default_rng(0).normal(size=(3, 12))
    found = sg.minimize_from(rosenbrock, 12, starts, method, 500, **DOUBLE)
    assert found.success.all()
    for x, fun in zip(found.x, found.fun, strict=True):
        end = scipy.optimize.minimize(rosenbrock, x)
        assert fun == pytest.approx(end.fun, abs=1e-9)


@pytest.mark.parametrize("method", [*METHODS, sg.GradientDescent(1e-3)], ids=by_name)
def test_bounds_are_respected(method: Any) -> None:
    f = rosenbrock_residuals if method.needs == "squares" else rosenbrock
    low, high = [-2.0, -2.0], [0.5, np.inf]
    steps = 20_000 if by_name(method) == "GradientDescent" else 200
    found = sg.minimize_from(f, 2, STARTS, method, steps, bounds=(low, high), **DOUBLE)
    want = scipy.optimize.minimize(rosenbrock, [0.0, 0.0], bounds=[(-2, 0.5), (-2, None)])
    np.testing.assert_allclose(found.x, np.broadcast_to(want.x, (5, 2)), atol=1e-4)
    assert (found.x[:, 0] == 0.5).all()
    if steps == 200:
        assert found.success.all()


BOXES = {
    "from above": ([-2.0, -2.0], [0.5, 2.0]),
    "both": ([-1.5, -1.5], [0.9, 0.9]),
    "from below": ([0.3, 0.3], [0.3, 5.0]),
}


@pytest.mark.parametrize("box", BOXES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("method", METHODS, ids=by_name)
def test_bounds_from_many_starts(method: Any, dtype: DTypeName, box: str) -> None:
    f = rosenbrock_residuals if method.needs == "squares" else rosenbrock
    low, high = BOXES[box]
    starts = np.random.default_rng(0).uniform(-2, 2, (400, 2))
    found = sg.minimize_from(
        f, 2, starts, method, 1000, bounds=(low, high), device="cpu", dtype=dtype
    )
    want = scipy.optimize.minimize(
        rosenbrock, np.clip([0.0, 0.0], low, high), bounds=list(zip(low, high, strict=True))
    )
    assert found.success.all()
    np.testing.assert_allclose([rosenbrock(x) for x in found.x], want.fun, rtol=1e-2)


def test_least_squares_leave_a_corner_that_the_first_steps_lead_into() -> None:
    draws = [np.random.default_rng(seed) for seed in (5, 6, 1)]
    a, b = draws[0].normal(size=(6, 4)) * [1.0, 10.0, 100.0, 0.1], draws[1].normal(size=6)
    starts = draws[2].uniform(-2, 2, (200, 4))
    found = sg.minimize_from(
        lambda v: [row @ v - y for row, y in zip(a, b, strict=True)], 4, starts,
        sg.LevenbergMarquardt(), 200, bounds=(-1.5, 0.9), **DOUBLE,
    )  # fmt: skip
    want = scipy.optimize.lsq_linear(a, b, (-1.5, 0.9))
    assert found.success.all()
    np.testing.assert_allclose(found.fun, want.cost, rtol=1e-6)


def test_newtons_convergence_is_quadratic() -> None:
    found = sg.minimize_from(
        lambda v: sg.exp(v[0]) - v[0] + v[1] ** 2, 2, [[0.5, 0.5]], sg.Newton(), 6, **DOUBLE
    )
    assert np.abs(found.x).max() < 1e-9


@pytest.mark.parametrize("loss", ["of one", "of two"])
def test_newtons_first_steps_of_a_logistic_loss_are_from_a_tie(loss: str) -> None:
    """At w = 0 both arguments of every logaddexp are equal: its Hessian is no less right there."""
    random = np.random.default_rng(0)
    a = random.normal(size=(60, 3))
    y = np.sign(a @ [1.0, -2.0, 0.5] + random.normal(size=60))

    def of_one(w: Any) -> Any:
        return np.sum(np.logaddexp(0.0, -y * (a @ w)))

    def of_two(w: Any) -> Any:
        half = 0.5 * y * (a @ w)
        return np.sum(np.logaddexp(half, -half) - half)

    chosen = of_one if loss == "of one" else of_two
    errors: dict[DTypeName, float] = {"float64": 1e-9, "float32": 1e-4}
    for dtype, error in errors.items():
        kernel = sg.fused_forward_backward(3, chosen, device="cpu", dtype=dtype)
        found = kernel.minimize(np.zeros((1, 3)), method=sg.Newton(), steps=50)
        want = scipy.optimize.minimize(
            lambda w: np.sum(np.logaddexp(0.0, -y * (a @ w))), np.zeros(3)
        )
        assert found.success.all() and found.nit.max() <= 8
        np.testing.assert_allclose(found.fun, want.fun, rtol=error)


def test_a_hessian_that_is_not_positive_definite() -> None:
    found = sg.minimize_from(
        lambda v: v[0] ** 4 - v[0] ** 2 + v[1] ** 2 + 0.3 * v[0] * v[1],
        2, [[0.05, 1.0], [-0.05, 0.2]], sg.Newton(), 100, **DOUBLE,
    )  # fmt: skip
    assert found.success.all()
    assert (np.abs(found.x[:, 0]) > 0.5).all()


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("name", sorted({*CASES} - {"MGH17"}))
def test_nist_by_the_traced_levenberg_marquardt(name: str, start: int) -> None:
    case = CASES[name]
    x = np.atleast_2d(case.x)
    flat = case.x.ndim == 1
    found = sg.minimize_from(
        lambda p, r: case.f(r[0] if flat else r[:-1], *p) - r[-1],
        len(case.certified), case.starts[start], sg.LevenbergMarquardt(), 500,
        shared=np.column_stack([x.T, case.y]), **DOUBLE,
    )  # fmt: skip
    assert case.digits(found.x) > (4 if name == "Lanczos3" else 5)
    assert found.success


def test_rows_of_data_shared_and_own_and_their_mean() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.normal(size=(40, 1)), rng.normal(size=(3, 40, 1))

    def loss(p: Any, r: Any) -> Any:
        return (p[0] + p[1] * r[0] - r[1]) ** 2

    options = {"shared": x, "own": y, **DOUBLE}
    for method in (sg.LBFGS(), sg.Newton()):
        total = sg.minimize_from(loss, 2, np.zeros((3, 2)), method, 100, **options)
        mean = sg.minimize_from(loss, 2, np.zeros((3, 2)), method, 100, reduce="mean", **options)
        for k in range(3):
            slope, offset = np.polyfit(x[:, 0], y[k, :, 0], 1)
            np.testing.assert_allclose(total.x[k], [offset, slope], rtol=1e-6)
            np.testing.assert_allclose(mean.x[k], [offset, slope], rtol=1e-6)
        np.testing.assert_allclose(total.fun, mean.fun * 40, rtol=1e-9)


def test_status_and_messages() -> None:
    starts = [[4.0], [-1.0], [np.nan], [1.0]]
    found = sg.minimize_from(lambda v: v[0] - sg.log(v[0]), 1, starts, sg.LBFGS(), 60, device="cpu")
    assert found.status.tolist()[1:] == [-2, -2, 1]
    assert found.success.tolist() == [True, False, False, True]
    assert found.message[1] == "the loss or its gradient is not finite"
    assert found.nit[1:].tolist() == [0, 0, 0]
    assert found.best in (0, 3)
    few = sg.minimize_from(rosenbrock, 2, [[-1.2, 1.0]], sg.LBFGS(), 3, device="cpu")
    assert (few.status[0], few.nit[0], few.message[0]) == (0, 3, "the steps ran out")


@pytest.mark.parametrize("scale", [2.0**-100, 2.0**-30, 2.0**60, 2.0**100])
@pytest.mark.parametrize("method", [sg.LBFGS(), sg.Newton()], ids=by_name)
def test_minima_do_not_depend_on_the_unit_of_the_loss(method: Any, scale: float) -> None:
    """Squares of the gradient, or of the Hessian, leave the range of float32 there."""

    def f(v: Any, unit: float = scale) -> Any:
        return unit * ((v[0] - 1) ** 4 + (v[0] * v[1] - 2) ** 2 + v[1] ** 2)

    found = sg.minimize_from(f, 2, [3.0, 1.5], method, 500, device="cpu")
    want = scipy.optimize.minimize(lambda v: f(v, 1.0), [3.0, 1.5], tol=1e-9)
    assert found.success and found.nit < 40
    np.testing.assert_allclose(found.x, want.x, rtol=1e-5)
    assert found.fun == pytest.approx(scale * want.fun, rel=1e-6)


@pytest.mark.parametrize("method", [sg.LBFGS(), sg.Newton()], ids=by_name)
def test_losses_that_fall_to_nothing_are_followed_there(method: Any) -> None:
    """In float64 a small gradient alone is no reason to stop: the loss is as small there."""
    starts = np.linspace(-3.0, 3.0, 8)[:, None]
    found = sg.minimize_from(
        lambda v: sg.exp(-v[0]), 1, starts, method, 500, device="cpu", dtype="float64"
    )
    assert (found.fun[found.success] < 1e-11).all() and found.success.any()


def beale(v: Any) -> Any:
    """Two of its valleys lead to infinity."""
    return sum((c - v[0] + v[0] * v[1] ** k) ** 2 for k, c in ((1, 1.5), (2, 2.25), (3, 2.625)))


@pytest.mark.parametrize("method", [sg.LBFGS(), sg.Newton()], ids=by_name)
@pytest.mark.parametrize("f", [beale, lambda v: v[0]], ids=["Beale", "linear"])
def test_what_goes_down_for_ever_is_no_success(f: Any, method: Any) -> None:
    starts = np.random.default_rng(0).uniform(-4, 4, (300, 2))
    kernel = sg.fused_forward_backward(2, f, device="cpu")
    found = kernel.minimize(starts, method, steps=2000)
    relative = np.abs(kernel.run(found.x)[1]) * np.maximum(np.abs(found.x), 1.0)
    relative = relative.max(axis=1) / np.maximum(np.abs(found.fun), 1.0)
    assert np.isin(found.status[~found.success], [0, -1]).all() and not found.success.all()
    assert (relative[found.status > 1] < 0.1).all()


@pytest.mark.parametrize("method", [sg.LBFGS(), sg.Newton()], ids=by_name)
@pytest.mark.parametrize("device", ["cpu", None], ids=["cpu", "best"])
def test_noise_in_a_valley_makes_no_minimum(device: Any, method: Any) -> None:
    """Rounding is a thousandth of the loss there, and differs from device to device."""
    starts = np.random.default_rng(1).uniform(-4, 4, (2000, 2))
    found = sg.minimize_from(beale, 2, starts, method, 2000, device=device)
    assert (found.fun[found.success] < 1e-6).all() and found.success.mean() > 0.5


@pytest.mark.parametrize("method", [sg.LBFGS(), sg.Newton()], ids=by_name)
def test_one_rounding_of_a_variable_hides_no_minimum(method: Any) -> None:
    """In float32 it changes the gradient of Rosenbrock's function by 5e-5 at the minimum."""
    starts = np.random.default_rng(0).uniform(-2, 2, (20_000, 2))
    found = sg.fused_forward_backward(2, rosenbrock, device="cpu").minimize(starts, method)
    assert (found.status >= 0).all() and found.success.mean() > 0.9999
    np.testing.assert_allclose(found.x[found.success], 1.0, atol=1e-4)


def test_a_fit_that_gets_nowhere_is_no_success() -> None:
    x = np.arange(50.0, 126, 5)  # MGH10 of NIST, from its first start
    y = [34780, 28610, 23650, 19630, 16370, 13720, 11540, 9744, 8261, 7030, 6005, 5147, 4427, 3820,
         3307, 2872]  # fmt: skip
    found = sg.fit_many(
        lambda x, a, b, c: a * np.exp(b / (x + c)), x, [y, y], [[2, 4e5, 25e3], [0.02, 4e3, 250]],
        device="cpu", dtype="float32", steps=2000,
    )  # fmt: skip
    assert found.success.tolist() == [False, True]
    np.testing.assert_allclose(found.x[1], [5.6096364710e-3, 6181.3463463, 345.22363462], rtol=0.02)


def test_each_tolerance_ends_a_run() -> None:
    def status(**tolerance: float) -> int:
        tol = sg.Tolerances(**tolerance)
        run = sg.minimize_from(
            rosenbrock, 2, [[-1.2, 1.0]], sg.GradientDescent(1e-3), 50_000, tol, **DOUBLE
        )
        return int(run.status[0])

    assert status(gradient=1e-2) == 1
    assert status(loss=1e-3) == 2
    assert status(step=1e-5) == 3
    assert status() == 0


def test_a_number_is_the_tolerance_of_the_gradient() -> None:
    found = sg.minimize_from(rosenbrock, 2, STARTS, sg.LBFGS(), 500, 1e-3, **DOUBLE)
    gradients = sg.fused_forward_backward(2, rosenbrock, **DOUBLE).run(found.x)[1]
    assert (np.abs(gradients).max(axis=1) <= 1e-3).all()


def test_history_and_callback() -> None:
    found = sg.minimize_from(rosenbrock, 2, STARTS, sg.Adam(0.01), 20, history=True, device="cpu")
    assert found.history.shape == (21, 5)
    np.testing.assert_allclose(found.history[0], [rosenbrock(np.array(s)) for s in STARTS], 1e-5)
    np.testing.assert_array_equal(found.history[-1], found.fun)
    seen: list[int] = []

    def stop(result: Any) -> bool:
        seen.append(int(result.nit[0]))
        return len(seen) == 2

    ended = sg.minimize_from(
        rosenbrock, 2, STARTS, sg.Adam(0.01), 20, history=4, callback=stop, device="cpu"
    )
    assert seen == [4, 8]
    assert ended.history.shape == (2, 5)


def test_callbacks_end_a_run_as_in_scipy() -> None:
    seen: list[Any] = []

    def named(intermediate_result: Any) -> None:
        seen.append(intermediate_result.fun.copy())
        raise StopIteration

    for callback in (named, lambda result: True):
        found = sg.minimize_from(
            rosenbrock, 2, [[-1.2, 1.0], [1.0, 1.0]], sg.LBFGS(), 900, history=3,
            callback=callback, device="cpu",
        )  # fmt: skip
        assert found.status.tolist() == [99, 1] and found.success.tolist() == [False, True]
        assert found.message[0] == "the callback ended the run"
        assert np.array(found.message).tolist()[0] == found.message[0]
        assert found.nit[0] == 3
    assert len(seen) == 1
    with pytest.raises(sg.InputTypeError, match="callback=3"):
        sg.minimize_from(rosenbrock, 2, STARTS, sg.LBFGS(), callback=3, device="cpu")  # type: ignore


def test_no_starts_have_no_best_one() -> None:
    found = sg.minimize_from(rosenbrock, 2, np.zeros((0, 2)), sg.LBFGS(), 5, device="cpu")
    assert found.best is None and found.x.shape == (0, 2)


def test_progress_counts_the_steps_that_were_asked_for(capsys: Any) -> None:
    with pace():
        sg.minimize_from(rosenbrock, 2, STARTS, sg.LBFGS(), 200, progress=True, device="cpu")
        sg.minimize_from(rosenbrock, 2, STARTS, sg.Adam(), 200, progress=True, device="cpu")
    shown = capsys.readouterr()
    assert "of 200 steps" in shown.err + shown.out and "201" not in shown.err + shown.out


def test_kernels_are_minimised() -> None:
    kernel = sg.fused_forward_backward(2, rosenbrock, **DOUBLE)
    found = minimize_kernel(kernel, STARTS, sg.LBFGS(), 200)
    np.testing.assert_allclose(found.x, 1.0, atol=1e-7)
    squares = sg.fused_jacobian(2, rosenbrock_residuals, device="cpu")
    found = minimize_kernel(squares, STARTS, sg.LevenbergMarquardt(), 200)
    np.testing.assert_allclose(found.x, 1.0, atol=2e-3)
    for method in (sg.LevenbergMarquardt(), sg.GaussNewton()):
        with pytest.raises(sg.InputError, match="is a loss: give it residuals"):
            minimize_kernel(kernel, STARTS, method)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"starts": [[1.0, 2.0, 3.0]]}, r"starts has shape \(1, 3\)"),
        ({"reduce": "max"}, 'use "sum" or "mean"'),
        ({"bounds": (1.0, 0.0)}, "above the upper"),
        ({"bounds": ([0, 0, 0], 1)}, "arrays of 2"),
        ({"steps": 2**25}, "can be counted"),
        ({"shared": [1.0, 2.0]}, "shared has shape"),
        ({"own": np.zeros((2, 3, 1))}, "1 start for 2 problems"),
        (
            {"own": np.zeros((1, 3, 1)), "shared": np.zeros((4, 1))},
            "they must have the same number",
        ),
        ({"history": -1}, "history=-1: between 0"),
        ({"steps": -1}, "steps=-1: between 0"),
        ({"tol": -1.0}, "a tolerance cannot be negative"),
        ({"tol": np.nan}, "one number is needed"),
        ({"bounds": [(0.0, 1.0), (0.0, 2.0)]}, "might be pairs of two variables"),
        ({"bounds": ((0.0, 1.0), (0.0, 2.0))}, "might be pairs of two variables"),
    ],
)
def test_arguments_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"starts": [[0.0, 0.0]], "steps": 3, "device": "cpu"} | options
    with pytest.raises(sg.InputError, match=message):
        sg.minimize_from(rosenbrock, 2, method=sg.LBFGS(), **given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "adam"}, "not one of symgrad's: use one such as sg.LBFGS"),
        ({"method": None}, "not one of symgrad's"),
        ({"method": sg.Adam}, r"the class Adam: use Adam\(...\)"),
        ({"steps": "10"}, "a whole number"),
        ({"steps": 2.5}, "a whole number"),
        ({"history": "x"}, "a whole number"),
        ({"tol": "a"}, "numbers are needed"),
        ({"tol": sg.Tolerances(loss="a")}, r"Tolerances\(loss=...\) holds"),  # type: ignore
    ],
)
def test_arguments_of_other_types(options: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"method": sg.LBFGS(), "device": "cpu"} | options
    with pytest.raises(sg.InputTypeError, match=message):
        sg.minimize_from(rosenbrock, 2, [[0.0, 0.0]], **given)


@pytest.mark.parametrize(
    "bounds",
    [ScipyBounds(np.full(2, -2.0), np.array([0.5, 2.0])), [(None, 0.5), (-2, None)]],
    ids=str,
)
def test_bounds_as_scipy_has_them(bounds: Any) -> None:
    found = sg.minimize_from(rosenbrock, 2, STARTS, sg.LBFGS(), 200, bounds=bounds, **DOUBLE)
    np.testing.assert_allclose(found.x, [[0.5, 0.25]] * 5, atol=1e-6)
    pairs = [(0.5, None), (None, None), (None, 1.0)]
    found = sg.minimize_from(
        lambda v: (v - 2) @ (v - 2), 3, [[0.0, 0.0, 0.0]], sg.LBFGS(), 50, bounds=pairs, **DOUBLE
    )
    np.testing.assert_allclose(found.x, [[2.0, 2.0, 1.0]], atol=1e-6)


def test_functions_that_do_not_fit() -> None:
    with pytest.raises(sg.TraceError, match="returned 2 values: this method minimises one scalar"):
        sg.minimize_from(rosenbrock_residuals, 2, STARTS, sg.LBFGS(), device="cpu")
    with pytest.raises(sg.TraceError, match="no residuals"):
        sg.minimize_from(lambda v: [], 2, STARTS, sg.GaussNewton(), device="cpu")
    with pytest.raises(sg.InputError, match="at least 1"):
        sg.LBFGS(0)
    with pytest.raises(sg.InputTypeError, match="whole number"):
        sg.LBFGS(2.5)  # type: ignore
    with pytest.raises(sg.InputError, match="positive"):
        sg.LevenbergMarquardt(0.0)


@pytest.mark.parametrize("method", [sg.LBFGS(), sg.Adam(0.01)], ids=by_name)
def test_a_single_start_gives_a_result_that_is_not_batched(method: Any) -> None:
    seen: list[Any] = []
    options: dict[str, Any] = {"history": 5, "memory": True, **DOUBLE}
    one = sg.minimize_from(
        rosenbrock, 2, [-1.2, 1.0], method, 20, callback=lambda now: seen.append(now.x), **options
    )
    many = sg.minimize_from(rosenbrock, 2, [[-1.2, 1.0]], method, 20, **options)
    assert one.x.shape == seen[0].shape == (2,) and "best" not in one
    types = [type(one[name]) for name in ("fun", "nit", "status", "success", "message")]
    assert types == [float, int, int, bool, str]
    for name in ("x", "fun", "nit", "status", "success", "message"):
        np.testing.assert_array_equal(one[name], many[name][0])
    np.testing.assert_array_equal(one.history, many.history[:, 0])
    for part, all_parts in zip(one.memory, many.memory, strict=True):
        np.testing.assert_array_equal(part, all_parts[0])
    kernel = sg.fused_forward_backward(2, rosenbrock, **DOUBLE)
    assert kernel.minimize([-1.2, 1.0], method, 20).x.shape == (2,)
    assert isinstance(sg.minimize_from(rosenbrock, 2, [1.0, 2.0], method, 3, **DOUBLE).fun, float)
