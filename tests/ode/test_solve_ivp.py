"""`sg.solve_ivp` beside SciPy at tight tolerances: every method, alone and for many problems."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import scipy.integrate

import symgrad as sg

RATES = 0.04, 3e7, 1e4

VAN_DER_POL = -1.3547459195, 1.6217887276e-03
"""Van der Pol's oscillator with mu = 1000 at t = 1500, from (2, 0): SciPy's Radau at 1e-12."""


def predators_and_prey(t: Any, y: Any, growth: Any, hunting: Any) -> Any:
    return [growth * y[0] - hunting * y[0] * y[1], hunting * y[0] * y[1] - y[1] + 0.1 * np.cos(t)]


def robertson(t: Any, y: Any, a: Any, b: Any, c: Any) -> Any:
    slow, fast, back = a * y[0], b * y[1] * y[1], c * y[1] * y[2]
    return [back - slow, slow - fast - back, fast]


def van_der_pol(t: Any, y: Any, mu: Any) -> Any:
    return [y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]]


def reference(
    fun: Any, span: Any, y0: Any, args: Any, t_eval: Any = None, method: str = "DOP853"
) -> Any:
    found = scipy.integrate.solve_ivp(
        fun, span, y0, method, t_eval=t_eval, args=args, rtol=1e-12, atol=1e-13
    )
    assert found.success
    return found.y


TIMES = np.array([0.0, 0.0, 1e-3, 2.0, 3.3, 3.30001, 8.0, 10.0])


@pytest.mark.parametrize(
    ("method", "least"),
    [("Tsit5", 5e-6), ("DOP853", 5e-6), ("Rodas5P", 5e-6), ("Kvaerno5", 1e-3), ("auto", 5e-6),
     ("Rosenbrock23", 1e-3)],
)  # fmt: skip
def test_every_method_gives_the_solution_at_all_times(method: str, least: float) -> None:
    """The outputs, by the interpolant, are as good as the steps, whose errors add up."""
    solution = sg.solve_ivp(
        predators_and_prey, (0, 10), [2.0, 1.0], method, TIMES, args=(1.1, 0.4), rtol=1e-7,
        atol=1e-9, max_steps=20_000,
    )  # fmt: skip
    assert solution.success, solution.message
    wanted = reference(predators_and_prey, (0, 10), [2.0, 1.0], (1.1, 0.4), np.unique(TIMES))
    np.testing.assert_allclose(solution.y[:, 1:], wanted, rtol=least, atol=least)
    np.testing.assert_array_equal(solution.y[:, 0], [2.0, 1.0])


def test_the_error_goes_with_the_tolerance() -> None:
    """One kernel for all of them: tolerances are data."""
    wanted = reference(predators_and_prey, (0, 10), [2.0, 1.0], (1.1, 0.4))[:, -1]
    for method, lowest in (("Tsit5", 1e-11), ("Rodas5P", 1e-10)):
        errors = []
        for rtol in (1e-4, 1e-6, 1e-8, 1e-10):
            solution = sg.solve_ivp(
                predators_and_prey, (0, 10), [2.0, 1.0], method, args=(1.1, 0.4), rtol=rtol,
                atol=rtol,
            )  # fmt: skip
            errors.append(abs(solution.y[:, -1] - wanted).max())
        assert all(10 < a / b < 1000 for a, b in itertools.pairwise(errors)), errors
        assert lowest < errors[-1] < 1e-8


def test_the_steps_are_those_of_scipy_where_the_method_is() -> None:
    """The same coefficients, estimate and first step: what the PI controller does is its own."""
    ours = sg.solve_ivp(
        predators_and_prey, (0, 10), [2.0, 1.0], "DOP853", args=(1.1, 0.4), rtol=1e-9, atol=1e-9
    )
    theirs = scipy.integrate.solve_ivp(
        predators_and_prey, (0, 10), [2.0, 1.0], "DOP853", args=(1.1, 0.4), rtol=1e-9, atol=1e-9
    )
    assert 0.8 < ours.nfev / theirs.nfev < 1.25


@pytest.mark.parametrize("method", ["Rodas5P", "Rosenbrock23", "Kvaerno5", "auto"])
def test_stiff_problems(method: str) -> None:
    solution = sg.solve_ivp(
        van_der_pol, (0, 1500), [2.0, 0.0], method, [1500.0], args=(1000.0,), rtol=1e-5, atol=1e-8,
        max_steps=20_000,
    )  # fmt: skip
    assert solution.success, solution.message
    np.testing.assert_allclose(solution.y[:, -1], VAN_DER_POL, rtol=1e-3)


def test_a_conserved_sum_that_decides_all_digits() -> None:
    """E5 of the test set, up to 1e11: beside SciPy's Radau and BDF, which agree in six digits."""

    def e5(t: Any, y: Any) -> Any:
        first, second, third = 7.89e-10 * y[0], 1.1e7 * y[0] * y[2], 1.13e9 * y[1] * y[2]
        gain, bound = first - third, second - 1.13e3 * y[3]
        return [-first - second, gain, gain - bound, bound]

    errors = []
    for rtol in (1e-4, 1e-6, 1e-8):
        y = sg.solve_ivp(
            e5, (0, 1e11), [1.76e-3, 0, 0, 0], "Kvaerno5", [1e11], rtol=rtol, atol=1e-18 * rtol
        ).y[:, -1]
        errors.append(abs(y[1:3] / 1.019260e-20 - 1).max())
    assert all(a > 4 * b for a, b in itertools.pairwise(errors)), errors
    assert errors[-1] < 1e-5


def test_members_of_a_batch_are_as_if_alone() -> None:
    """A problem that fails, and others of unlike stiffness beside it."""
    mu = np.array([0.1, 1000.0, 5.0, 1e3, 30.0])
    starts = np.array([[2.0, 0.0], [2.0, 0.0], [math.nan, 0.0], [1.9, 0.0], [2.0, 0.1]])
    batch = sg.solve_ivp(van_der_pol, (0, 20), starts, args=(mu,), rtol=1e-5, max_steps=3000)
    assert batch.status.tolist() == [0, -2, -3, -2, 0]
    assert batch.success.tolist() == [True, False, False, False, True]
    assert "max_steps" in batch.message and "not finite" in batch.message
    assert np.isnan(batch.y[1:4, :, -1]).all()
    for k in (0, 4):
        alone = sg.solve_ivp(
            van_der_pol, (0, 20), starts[k], args=(float(mu[k]),), rtol=1e-5, max_steps=3000
        )
        np.testing.assert_array_equal(batch.y[k], alone.y[:, [0, -1]])
        assert (batch.nfev[k], batch.steps[k]) == (alone.nfev, alone.steps)


def test_axes_of_problems_broadcast() -> None:
    growth, hunting = np.array([[0.9], [1.1]]), np.array([[0.3, 0.4, 0.5]])
    grid = sg.solve_ivp(predators_and_prey, (0, 2), [[[2.0, 1.0]]], args=(growth, hunting))
    assert grid.y.shape == (2, 3, 2, 2) and grid.t.shape == (2, 3, 2)
    alone = sg.solve_ivp(predators_and_prey, (0, 2), [2.0, 1.0], args=(1.1, 0.3))
    np.testing.assert_array_equal(grid.y[1, 0], alone.y[:, [0, -1]])


def test_arrays_among_the_arguments_belong_to_each_problem() -> None:
    rotation = np.array([[[0.0, 1.0], [-1.0, 0.0]], [[0.0, 2.0], [-2.0, 0.0]]])
    turned = sg.solve_ivp(
        lambda t, y, a: a @ y, (0, math.pi), [[1.0, 0.0]], args=(rotation,), rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(turned.y[:, :, -1], [[-1, 0], [1, 0]], atol=1e-7)


def test_time_may_go_backward() -> None:
    there = sg.solve_ivp(
        predators_and_prey, (0, 5), [2.0, 1.0], "DOP853", args=(1.1, 0.4), rtol=1e-10, atol=1e-10
    )
    times = [5.0, 2.5, 0.0]
    back = sg.solve_ivp(
        predators_and_prey, (5, 0), there.y[:, -1], "DOP853", times, args=(1.1, 0.4), rtol=1e-10,
        atol=1e-10,
    )  # fmt: skip
    np.testing.assert_allclose(back.y[:, -1], [2.0, 1.0], rtol=1e-8)
    middle = reference(predators_and_prey, (0, 2.5), [2.0, 1.0], (1.1, 0.4))[:, -1]
    np.testing.assert_allclose(back.y[:, 1], middle, rtol=1e-7)


def test_a_span_of_no_length() -> None:
    nothing = sg.solve_ivp(predators_and_prey, (1, 1), [2.0, 1.0], t_eval=[1.0], args=(1.1, 0.4))
    assert nothing.success
    np.testing.assert_array_equal(nothing.y, [[2.0], [1.0]])


@pytest.mark.parametrize("span", [(0, 10), (5, -1)])
def test_without_t_eval_one_problem_gives_its_steps(span: tuple[float, float]) -> None:
    solution = sg.solve_ivp(predators_and_prey, span, [2.0, 1.0], args=(1.1, 0.4), rtol=1e-6)
    exact = scipy.integrate.solve_ivp(
        predators_and_prey, span, [2.0, 1.0], "DOP853", solution.t, args=(1.1, 0.4), rtol=1e-10,
        atol=1e-12,
    )  # fmt: skip
    assert len(solution.t) - 1 <= solution.steps and (solution.t[0], solution.t[-1]) == span
    assert (np.diff(solution.t) * np.sign(span[1] - span[0]) > 0).all()
    np.testing.assert_allclose(solution.y, exact.y, rtol=1e-4)
    many = sg.solve_ivp(predators_and_prey, span, [2.0, 1.0], args=(1.1, 0.4), max_step=0.01)
    assert len(many.t) > 500 and many.t[-1] == span[1]
    np.testing.assert_array_less(np.abs(np.diff(many.t)), 0.0101)
    more = sg.solve_ivp(
        predators_and_prey, span, [2.0, 1.0], args=(1.1, 0.4), max_step=0.002, max_steps=9999
    )
    assert 1000 < len(more.t) <= 2048 < more.steps and more.t[-1] == span[1]
    np.testing.assert_array_less(np.abs(np.diff(more.t)), 0.00801)


@pytest.mark.skipif(
    not any(d.is_gpu and "float64" in d.dtypes for d in sg.devices()), reason="no float64 here"
)
def test_hundreds_of_steps_are_recorded_on_a_gpu() -> None:
    """The kernel fills the places of two thousand steps by a table, not one by one."""

    def oscillator(t: Any, y: Any) -> Any:
        return [y[1], -2.0 * y[0]]

    tolerances: Any = {"rtol": 1e-10, "atol": 1e-12, "device": "gpu", "dtype": "float64"}
    solution = sg.solve_ivp(oscillator, (0.0, 10.0), [1.0, 0.0], **tolerances)
    assert solution.t.size > 256 and (solution.t[0], solution.t[-1]) == (0.0, 10.0)
    assert (np.diff(solution.t) > 0).all()
    rate = np.sqrt(2.0)
    exact = [np.cos(rate * solution.t), -rate * np.sin(rate * solution.t)]
    np.testing.assert_allclose(solution.y, exact, atol=1e-8)


@pytest.mark.parametrize("most", [1, 3, 300])
def test_steps_that_run_out_begin_where_the_solution_does(most: int) -> None:
    ended = sg.solve_ivp(lambda t, y: -y, (0, 9), [1.0], max_step=0.01, max_steps=most)
    assert (ended.status, ended.steps) == (-2, most)
    assert ended.t[0] == 0.0 and ended.t[-1] == 9.0 and len(ended.t) == most + 2
    np.testing.assert_allclose(ended.y[0, :-1], np.exp(-ended.t[:-1]), rtol=1e-6)
    assert np.isnan(ended.y[0, -1])


def test_steps_end_at_a_terminal_event_and_with_nan_at_a_failure() -> None:
    def low(t: Any, y: Any) -> Any:
        return y[0] - 0.5

    low.terminal = True  # pyright: ignore[reportFunctionMemberAccess]
    ended = sg.solve_ivp(lambda t, y: -y, (0, 9), [1.0], events=low)
    assert ended.status == 1
    np.testing.assert_allclose((ended.t[-1], ended.y[0, -1]), (math.log(2.0), 0.5), rtol=1e-3)
    explodes = sg.solve_ivp(lambda t, y: y**2, (0, 2), [1.0])
    assert explodes.status == -1 and explodes.t[-1] == 2.0
    np.testing.assert_allclose(explodes.t[-2], 1.0, rtol=1e-3)
    assert np.isnan(explodes.y[0]).tolist() == [False] * (len(explodes.t) - 1) + [True]


def test_each_problem_may_have_ends_of_its_own() -> None:
    ends, rates = np.array([1.0, 2.0, -1.0]), np.array([1.0, 0.5, 2.0])
    both = sg.solve_ivp(lambda t, y, a: -a * y, (0, ends), [[1.0]], args=(rates,), rtol=1e-6)
    np.testing.assert_allclose(both.y[:, 0, -1], np.exp(-rates * ends), rtol=1e-5)
    np.testing.assert_array_equal(both.t[:, -1], ends)


def test_derivatives_of_a_failure_are_nan_at_times_as_at_the_end() -> None:
    def loss(v: Any) -> Any:
        return sg.solve_ivp(lambda t, y: [y[0] ** 2], (0, 2), [v[0]], t_eval=[0.5, 1.5]).y.sum()

    kernel = sg.fused_forward_backward(1, loss, device="cpu", dtype="float64")
    losses, slopes = kernel.run([[1.0], [0.1]])
    assert np.isnan(losses).tolist() == np.isnan(slopes[:, 0]).tolist() == [True, False]


def test_a_scalar_right_hand_side_is_one_number() -> None:
    solution = sg.solve_ivp(lambda t, y: -y[0], (0, 1), [1.0], rtol=1e-8)
    np.testing.assert_allclose(solution.y[0, -1], math.exp(-1.0), rtol=1e-6)


def test_a_solution_that_ends_is_nan_from_there_on() -> None:
    explodes = sg.solve_ivp(lambda t, y: [y[0] ** 2], (0, 2), [1.0], t_eval=[0.5, 1.5], rtol=1e-6)
    assert explodes.status == -1 and "step size" in explodes.message
    np.testing.assert_allclose(explodes.y[0, 0], 2.0, rtol=1e-4)
    assert np.isnan(explodes.y[0, 1])


def test_tolerances_may_differ_among_components() -> None:
    """The small second component of Robertson's problem needs an atol of its own."""
    solution = sg.solve_ivp(
        robertson, (0, 40), [1.0, 0.0, 0.0], "Rodas5P", args=RATES, rtol=1e-6,
        atol=[1e-8, 1e-12, 1e-8],
    )  # fmt: skip
    wanted = reference(robertson, (0, 40), [1.0, 0.0, 0.0], RATES, method="Radau")[:, -1]
    np.testing.assert_allclose(solution.y[:, -1], wanted, rtol=1e-5)


@pytest.mark.parametrize("method", ["Leapfrog", "Yoshida", "RK4"])
def test_methods_of_fixed_steps_have_their_order(method: str) -> None:
    order = 2 if method == "Leapfrog" else 4
    ends = []
    for step in (0.1, 0.05):
        ends.append(
            sg.solve_ivp(
                lambda t, y: [y[1], -np.sin(y[0])], (0, 5), [1.0, 0.0], method, first_step=step
            ).y[:, -1]
        )
    wanted = reference(lambda t, y: [y[1], -np.sin(y[0])], (0, 5), [1.0, 0.0], ())[:, -1]
    coarse, fine = (abs(end - wanted).max() for end in ends)
    assert 0.8 * 2**order < coarse / fine < 1.3 * 2**order


def test_a_symplectic_method_keeps_the_energy_for_long() -> None:
    def oscillator(t: Any, y: Any) -> Any:
        return [y[1], -y[0]]

    energies = [
        np.sum(
            sg.solve_ivp(
                oscillator,
                (0, 2000),
                [1.0, 0.0],
                method,
                [2000.0],
                first_step=0.4,
                max_steps=20_000,
            ).y[:, -1]
            ** 2
        )
        for method in ("Leapfrog", "RK4")
    ]
    assert abs(energies[0] - 1.0) < 0.05 < 0.2 < abs(energies[1] - 1.0)


def test_steps_are_no_longer_than_max_step() -> None:
    slow = sg.solve_ivp(lambda t, y: [0.0 * y[0]], (0, 10), [1.0], max_step=0.5)
    assert slow.success and 20 <= slow.steps <= 30


def test_a_function_of_the_kernel_on_every_device() -> None:
    """float32 on GPUs and the CPU: what float32 can do, and the status of what fails."""

    def end(v: Any) -> Any:
        solution = sg.solve_ivp(
            predators_and_prey, (0.0, v[1]), [2.0, 1.0], args=(v[0], 0.4), rtol=1e-5, atol=1e-6,
            max_steps=100, t_eval=np.array([0.5, 1.0]),
        )  # fmt: skip
        return {"y": solution.y, "status": solution.status}

    points = np.array([[0.9, 2.0], [1.1, 2.0], [1.1, math.nan]])
    wanted = [
        reference(predators_and_prey, (0, 2), [2.0, 1.0], (g, 0.4), [0.5, 1.0]) for g in (0.9, 1.1)
    ]
    for device in sg.devices():
        results = sg.fused_forward(2, end, device=device).run(points)
        np.testing.assert_allclose(results["y"][:2], wanted, rtol=3e-5)
        assert results["status"][:2].tolist() == [0, 0] and results["status"][2] < 0


def test_a_neural_right_hand_side() -> None:
    shapes = {"w": (4, 2), "b": (4,), "out": (2, 4)}

    def loss(p: Any) -> Any:
        solution = sg.solve_ivp(
            lambda t, y: p.out @ np.tanh(p.w @ y + p.b), (0, 1), [1.0, 0.5], rtol=1e-8, atol=1e-8
        )
        return np.sum(solution.y[:, -1] ** 2)

    kernel = sg.fused_forward_backward(shapes, loss, device="cpu", dtype="float64")
    x = 0.3 * np.random.default_rng(0).normal(size=kernel.n_inputs)
    _, gradient = kernel.run(x)
    direction = np.random.default_rng(1).normal(size=len(x))
    ahead, behind = (kernel.run(x + h * direction)[0] for h in (1e-5, -1e-5))
    assert abs((ahead - behind) / 2e-5 - kernel.in_a_row(gradient) @ direction) < 1e-6


def half(t: Any, y: Any) -> Any:
    return y[0] - 0.5


vars(half).update(jump=lambda t, y: [1.0, 2.0])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"method": "LSODA"}, "the like of SciPy's is 'auto'"),
        ({"method": "RK4"}, "first_step="),
        ({"t_eval": [0.5, 0.1]}, "t_eval is sorted"),
        ({"t_eval": [0.5, 1.1]}, "t_eval is within t_span"),
        ({"rtol": -1.0}, "rtol is not negative"),
        ({"max_step": 0.0}, "max_step is positive"),
        ({"max_steps": 0}, "max_steps is a whole number"),
        ({"dense_output": True}, "t_eval="),
        ({"jump": lambda t, y, k: y}, "t_stops="),
        ({"args": 3.0}, "args is a tuple"),
        ({"t_span": 3.0}, "t_span is a pair"),
        ({"y0": 1.0}, "y0 is an array"),
        ({"atol": [1e-3, 1e-3]}, "one for each of the 1"),
        ({"fun": lambda t, y: [y[0], y[0]]}, "y0 has 1 numbers"),
        ({"fun": lambda t, y, a: [-a * y[0]], "args": ([1.0, 2.0],)}, r"y0\[None\]"),
        ({"relative": 1.0}, "no option relative"),
        ({"t_eval": [[0.0, 0.5]]}, "t_eval is one array of times, or one for each problem"),
        ({"t_span": (0, np.ones(2))}, "a time of t_span is one number, or one for each problem"),
        ({"fun": lambda t, y, a: [-a * y[0]]}, "args, which has 0: missing a required argument"),
        ({"args": (1.0,)}, "args, which has 1: too many positional arguments"),
        ({"fun": lambda t, y: None}, "returned nothing"),
        ({"events": lambda t: t - 0.5}, "is called with t and y"),
        ({"events": lambda t, y: [y[0], t]}, r"the event .* returned shape \(2,\)"),
        ({"t_stops": [0.5], "jump": lambda t, y: y}, "t, y and the number of the stop"),
        ({"events": 3}, "an event is a function"),
        ({"fun": 3}, "fun is a function of t and y, not 3"),
        ({"t_stops": [0.5], "jump": 3}, "jump is a function"),
        ({"t_span": (0.0, np.inf)}, "t_span is finite"),
        ({"t_span": (np.nan, 1.0)}, "t_span is finite"),
        ({"t_stops": [0.5], "jump": lambda t, y, k: [1.0, 2.0]}, "the 1 numbers of y0"),
        ({"events": half}, "the 1 numbers of y0"),
        ({"method": "Leapfrog", "first_step": 0.1}, "as many positions as momenta"),
        (
            {
                "fun": lambda t, y: [y[1], -y[0] - 0.5 * y[1]],
                "y0": [1.0, 0.0],
                "method": "Yoshida",
                "first_step": 0.1,
            },
            "is not separable",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_a_remedy(wrong: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"fun": lambda t, y: [-y[0]], "t_span": (0, 1), "y0": [1.0]} | wrong
    with pytest.raises(sg.SymgradError, match=message) as raised:
        sg.solve_ivp(given.pop("fun"), given.pop("t_span"), given.pop("y0"), **given)
    assert f"at {__file__}" in str(raised.value)


def test_batches_that_do_not_fit_are_refused() -> None:
    with pytest.raises(sg.InputError, match="axes of problems differ"):
        sg.solve_ivp(predators_and_prey, (0, 1), np.ones((3, 2)), args=(np.ones(2), np.ones(3)))
    with pytest.raises(sg.TraceError, match=r"y0\[None\]"):
        sg.solve_ivp(predators_and_prey, (0, 1), np.ones(2), args=(np.ones(3), 0.4))
    with pytest.raises(sg.InputError, match="axes of length 1"):
        sg.solve_ivp(predators_and_prey, (0, 1), np.ones((3, 4, 2)), args=(np.ones(4), 0.4))
    with pytest.raises(sg.InputError, match="y0 is one problem"):
        sg.fused_forward(
            1, lambda v: sg.solve_ivp(lambda t, y: -y, (0, 1), np.ones((3, 2)) * v[0]).y
        )


def test_arrays_that_are_traced_as_a_whole_are_refused_with_a_remedy() -> None:
    def end(rate: Any) -> Any:
        return sg.solve_ivp(lambda t, y, k: -k * y, (0, 1), [1.0], args=(rate,)).y[0, -1]

    with pytest.raises(sg.UnsupportedError, match=r"sg\.vmap maps") as caught:
        sg.vmap(end)(np.ones(2000))
    assert "call it outside, with axes of y0" in str(caught.value.__cause__)
    assert sg.jit(end)(1.0) == pytest.approx(math.exp(-1), rel=1e-3)
    value, gradient = sg.value_and_grad(end)(1.0)
    assert value == pytest.approx(math.exp(-1), rel=1e-3) == -gradient
