"""Derivatives of solutions beside differences of SciPy's at 1e-12, and formulas."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import scipy.integrate

import symgrad as sg

CPU: dict[str, Any] = {"device": "cpu", "dtype": "float64"}


def differences(f: Any, x: Any, h: float) -> np.ndarray:
    """Central differences of fourth order, relative steps."""
    x = np.asarray(x, float)
    columns = []
    for k in range(len(x)):
        step = np.zeros(len(x))
        step[k] = h * max(abs(x[k]), 1e-3)
        ends = [np.asarray(f(x + m * step)) for m in (-2, -1, 1, 2)]
        columns.append((ends[0] - 8 * ends[1] + 8 * ends[2] - ends[3]) / (12 * step[k]))
    return np.stack(columns, axis=-1)


def marked(event: Any, **attributes: Any) -> None:
    """Give an event its attributes."""
    vars(event).update(attributes)


@functools.cache
def oscillator(mu: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A point of parameter, start and ends of the time, SciPy's solution, and its derivatives."""

    def end(v: np.ndarray) -> np.ndarray:
        found = scipy.integrate.solve_ivp(
            van_der_pol, v[3:], v[1:3], "DOP853", args=(v[0],), rtol=1e-12, atol=1e-14
        )
        return found.y[:, -1]

    point = np.array([mu, 2.0, 0.1, 0.2, 5.0])
    return point, end(point), differences(end, point, 1e-3)


def van_der_pol(t: Any, y: Any, mu: Any) -> Any:
    return [y[1], mu * (1 - y[0] ** 2) * y[1] - y[0]]


@pytest.mark.parametrize(
    ("method", "mu"), [("Tsit5", 1.0), ("DOP853", 1.0), ("Rodas5P", 10.0), ("Kvaerno5", 10.0),
                       ("auto", 10.0)],
)  # fmt: skip
def test_gradients_of_van_der_pol_s_oscillator(method: str, mu: float) -> None:
    """By the parameter, the start, and both ends of the time, in either mode."""

    def end(v: Any) -> Any:
        solution = sg.solve_ivp(
            van_der_pol, (v[3], v[4]), [v[1], v[2]], method, args=(v[0],), rtol=1e-10, atol=1e-10
        )
        return solution.y[:, -1]

    point, wanted, slopes = oscillator(mu)
    values, forward = sg.fused_jacobian(5, end, mode="forward", **CPU).run(point)
    np.testing.assert_allclose(values, wanted, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(forward, slopes, rtol=1e-6, atol=1e-6 * abs(slopes).max())
    _, reverse = sg.fused_forward_backward(5, lambda v: end(v)[0], **CPU).run(point)
    np.testing.assert_allclose(reverse, forward[0], rtol=1e-9, atol=1e-10)


def test_second_derivatives_are_those_of_gradients() -> None:
    def loss(v: Any) -> Any:
        y = sg.solve_ivp(
            van_der_pol, (0, 3), [2.0, v[1]], "Rodas5P", args=(v[0],), rtol=1e-10, atol=1e-10
        ).y[:, -1]
        return y[0] ** 2 + y[1]

    kernel = sg.fused_hessian(2, loss, **CPU)
    point = np.array([3.0, 0.1])
    _, _, hessian = kernel.run(point)
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-9)

    def gradient(v: np.ndarray) -> np.ndarray:
        return sg.fused_forward_backward(2, loss, **CPU).run(v)[1]

    np.testing.assert_allclose(hessian, differences(gradient, point, 1e-3), rtol=1e-5)


@pytest.mark.parametrize(("n", "most"), [(6, 500), (18, 600)])
def test_what_a_reversed_stiff_step_holds_is_neither_factors_nor_many_stages(
    n: int, most: int
) -> None:
    """Elimination is not reversed (6 states: 554), and many stages are a loop (18: 1,410)."""

    def chain(t: Any, y: Any, k: Any) -> Any:
        flows = [k[0] * y[i] * y[(i + 1) % n] for i in range(n)]
        return [flows[i - 1] - k[1] * flows[i] for i in range(n)]

    def loss(k: Any) -> Any:
        start = [1.0, 0.5, 0.2, 0.1, 0.3, 0.4] * (n // 6)
        end = sg.solve_ivp(chain, (0, 1), start, "Rodas5P", args=(k,), rtol=1e-9, atol=1e-9)
        return np.sum(end.y[:, -1] ** 2)

    kernel = sg.fused_forward_backward(2, loss, **CPU)
    assert kernel.stats.registers < most
    point = np.array([1.2, 0.9])
    by_differences = differences(sg.fused_forward(2, loss, **CPU).run, point, 1e-3)
    np.testing.assert_allclose(kernel.run(point)[1], by_differences.ravel(), rtol=1e-6)


def switched(t: Any, y: Any, k: Any) -> Any:
    """Diodes that are charged from the middle on: a first step across that overflows."""
    charge = 1e3 * k[1] * np.where(t > 0.5, 1.0, 0.0)
    return [charge - k[0] * (np.exp(voltage) - 1.0) for voltage in y]


@pytest.mark.parametrize(
    ("method", "n"),
    [("Rosenbrock23", 1), ("Rodas5P", 1), ("Rodas5P", 13), ("Kvaerno5", 1), ("auto", 1)],
)
def test_steps_that_are_rejected_since_they_overflow_leave_derivatives_alone(
    method: Any, n: int
) -> None:
    def loss(k: Any) -> Any:
        end = sg.solve_ivp(switched, (0, 1), [0.0] * n, method, args=(k,), rtol=1e-8)
        return end.y[0, -1] ** 2

    point = np.array([1.0, 0.2])
    value = sg.fused_forward(2, loss, **CPU).run
    slope = sg.fused_forward_backward(2, loss, **CPU).run(point)[1]
    np.testing.assert_allclose(slope, differences(value, point, 1e-3).ravel(), rtol=1e-4)


def pharmacokinetics(t: Any, y: Any, absorption: Any, elimination: Any) -> Any:
    return [-absorption * y[0], absorption * y[0] - elimination * y[1]]


def bateman(t: Any, dose: Any, ka: Any, ke: Any) -> Any:
    t = np.maximum(t, 0.0)
    return dose * ka / (ka - ke) * (np.exp(-ke * t) - np.exp(-ka * t))


DOSES = np.array([100.0, 50.0, 70.0, 30.0])
SEEN = np.array([0.0, 1.0, 8.0, 12.0, 17.0, 24.0])


def test_doses_at_given_times_and_derivatives_by_all_of_them() -> None:
    """Bateman's formula, added up: by rates, by doses, and by the time of a dose."""

    def curve(v: Any) -> Any:
        doses = sg.array([v[3], *DOSES[1:]])
        return sg.solve_ivp(
            pharmacokinetics, (0.0, 24.0), [0.0, 0.0], "DOP853", SEEN, args=(v[0], v[1]),
            rtol=1e-10, atol=1e-10, t_stops=[0.0, 8.0, v[2], 16.0 + v[0] * 0.0],
            jump=lambda t, y, k, *rates: np.stack([y[0] + doses[k], y[1]]),
        ).y[1]  # fmt: skip

    def wanted(v: Any) -> Any:
        doses = [v[3], *DOSES[1:]]
        times = [0.0, 8.0, v[2], 16.0]
        return sum(
            bateman(SEEN - t, dose, v[0], v[1]) for t, dose in zip(times, doses, strict=True)
        )

    point = np.array([1.3, 0.2, 15.0, 100.0])
    values, slopes = sg.fused_jacobian(4, curve, **CPU).run(point)
    np.testing.assert_allclose(values, wanted(point), rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(slopes, differences(wanted, point, 1e-3), rtol=1e-6, atol=1e-6)


def test_stops_of_a_backward_integration_two_of_them_at_once() -> None:
    """At a stop the state is that before its jump; stops outside of the span do not count."""

    def fun(t: Any, y: Any) -> Any:
        return [-0.3 * y[0] + np.cos(t)]

    ours = sg.solve_ivp(
        fun, (5, 0), [1.0], "DOP853", [5, 4, 3, 2, 1, 0], t_stops=[6.0, 4.0, 2.0, 2.0, 0.0, -1.0],
        jump=lambda t, y, k: y + k, rtol=1e-10, atol=1e-10,
    )  # fmt: skip
    t, y, wanted = 5.0, np.array([1.0]), [1.0]
    for stop, jumps, times in ((4.0, 1, [4]), (2.0, 2 + 3, [3, 2]), (0.0, 0, [1, 0])):
        found = scipy.integrate.solve_ivp(
            fun, (t, stop), y, "DOP853", times, rtol=1e-12, atol=1e-12
        )
        wanted += found.y[0].tolist()
        t, y = stop, found.y[:, -1] + jumps
    np.testing.assert_allclose(ours.y[0], wanted, atol=1e-8)


def ball(t: Any, y: Any, gravity: Any) -> Any:
    return [y[1], -gravity - 0.05 * y[1] * abs(y[1])]


def bounce(t: Any, y: Any, gravity: Any) -> Any:
    return y[0]


marked(bounce, direction=-1, jump=lambda t, y, gravity: [0.0, -0.8 * y[1]])


def bounced(height: float, gravity: float, end: float) -> tuple[np.ndarray, list[float]]:
    """The state at the end, and the times of bounces, by SciPy's terminal events."""

    def hits(t: Any, y: Any, gravity: Any) -> Any:
        return y[0]

    marked(hits, terminal=True, direction=-1)
    t, y, times = 0.0, np.array([height, 0.0]), list[float]()
    while True:
        found = scipy.integrate.solve_ivp(
            ball, (t, end), y, "DOP853", args=(gravity,), events=hits, rtol=1e-12, atol=1e-13
        )
        t, y = found.t[-1], found.y[:, -1]
        if found.status == 0:
            return y, times
        times.append(t)
        y = np.array([0.0, -0.8 * y[1]])


def test_a_bouncing_ball_and_derivatives_across_its_bounces() -> None:
    def end(v: Any) -> Any:
        solution = sg.solve_ivp(
            ball, (0, 2.5), [v[0], 0.0], "DOP853", events=bounce, args=(v[1],), rtol=1e-11,
            atol=1e-11,
        )  # fmt: skip
        return np.concatenate([solution.y[:, -1], solution.t_events[0][:4]])

    def wanted(v: Any) -> Any:
        y, times = bounced(v[0], v[1], 2.5)
        assert len(times) == 5
        return np.concatenate([y, times[:4]])

    point = np.array([1.0, 9.81])
    values, slopes = sg.fused_jacobian(2, end, **CPU).run(point)
    np.testing.assert_allclose(values, wanted(point), rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(slopes, differences(wanted, point, 1e-4), rtol=1e-6, atol=1e-7)


def test_events_of_numbers_are_scipy_s() -> None:
    """Terminal at an occurrence, by direction, and several of them: times and states."""

    def down(t: Any, y: Any) -> Any:
        return y[0]

    def level(t: Any, y: Any) -> Any:
        return y[1] - 0.3

    def up(t: Any, y: Any) -> Any:
        return y[0] + 0.1

    marked(down, direction=-1)
    marked(up, direction=1, terminal=2)

    def swing(t: Any, y: Any) -> Any:
        return [y[1], -np.sin(y[0])]

    given: Any = {"events": (down, level, up), "rtol": 1e-9, "atol": 1e-10}
    ours = sg.solve_ivp(swing, (0, 40), [1.0, 0.0], "DOP853", **given)
    theirs = scipy.integrate.solve_ivp(swing, (0, 40), [1.0, 0.0], "DOP853", **given)
    assert ours.status == theirs.status == 1 and "termination" in ours.message
    for name in ("t_events", "y_events"):
        for a, b in zip(ours[name], theirs[name], strict=True):
            np.testing.assert_allclose(a, b, atol=1e-7)
    np.testing.assert_allclose(ours.t[-1], theirs.t[-1], atol=1e-7)
    np.testing.assert_allclose(ours.y[:, -1], theirs.y[:, -1], atol=1e-7)


def test_more_events_than_are_recorded_are_a_failure() -> None:
    def swings(t: Any, y: Any) -> Any:
        return y[0]

    solution = sg.solve_ivp(
        lambda t, y: [y[1], -y[0]], (0, 100), [1.0, 0.0], events=swings, max_events=4
    )
    assert solution.status == -4 and "max_events" in solution.message
    assert np.isnan(solution.y[:, -1]).all()


@pytest.mark.parametrize("most", [16, 1000])
def test_bounces_that_follow_ever_more_quickly_end_in_a_failure(most: int) -> None:
    """They come ever closer before t = 1.36: the ball does not fall through the ground."""

    def ground(t: Any, y: Any) -> Any:
        return y[0]

    marked(ground, direction=-1, jump=lambda t, y: [0.0, -0.5 * y[1]])
    solution = sg.solve_ivp(
        lambda t, y: [y[1], -9.81], (0, 2), [1.0, 0.0], events=ground, max_events=most
    )
    assert solution.status < 0 and np.isnan(solution.y[:, -1]).all()
    times = solution.t_events[0][:16]
    first = np.sqrt(2 / 9.81)
    flights = first * 2.0 * 0.5 ** np.arange(1, 16)
    np.testing.assert_allclose(times, first + np.cumsum([0.0, *flights]), atol=1e-9)


def test_a_span_that_is_not_finite_fails_at_once() -> None:
    ends = np.array([1.0, np.inf, np.nan])
    solution = sg.solve_ivp(lambda t, y: -y, (0, ends), np.ones((3, 1)))
    assert solution.status.tolist() == [0, -3, -3] and solution.steps[1:].tolist() == [0, 0]
    assert np.isnan(solution.y[:, 0, -1]).tolist() == [False, True, True]


def test_a_fit_of_a_differential_equation() -> None:
    """In `sg.curve_fit`, and as the rows of a table whose solutions each have their own start."""
    t = np.linspace(0.0, 4.0, 9)

    def model(t: Any, rate: Any, limit: Any) -> Any:
        return sg.solve_ivp(
            lambda _, y: [rate * y[0] * (1 - y[0] / limit)], (0, 4), [0.1], t_eval=t, rtol=1e-9,
            atol=1e-9,
        ).y[0]  # fmt: skip

    data = 2.0 / (1 + 19 * np.exp(-1.5 * t))
    popt, _ = sg.curve_fit(model, t, data, p0=[1.0, 1.0])
    np.testing.assert_allclose(popt, [1.5, 2.0], rtol=1e-6)

    def misfit(p: Any, row: Any) -> Any:
        end = sg.solve_ivp(
            lambda _, y, rate: [-rate * y[0]], (0.0, row[0]), [row[1]], args=(p[0],), rtol=1e-9
        ).y[0, -1]
        return (end - row[2]) ** 2

    rows = np.array([[1.0, 2.0, 1.0], [0.5, 3.0, 2.0], [2.0, 1.0, 0.3]])
    loss, slope = sg.fused_forward_backward(1, misfit, row=3, **CPU).run([0.7], rows)
    ends = rows[:, 1] * np.exp(-0.7 * rows[:, 0])
    np.testing.assert_allclose(loss, np.sum((ends - rows[:, 2]) ** 2), rtol=1e-6)
    wanted = np.sum(-2 * (ends - rows[:, 2]) * ends * rows[:, 0])
    np.testing.assert_allclose(slope[0], wanted, rtol=1e-6)


def test_derivatives_of_what_has_no_solution_are_nan() -> None:
    """The second problem needs more steps than it has; the first is as it is alone."""

    def loss(v: Any) -> Any:
        solution = sg.solve_ivp(lambda t, y: -v[0] * y, (0, 1), [v[1]], rtol=1e-8, max_steps=60)
        return np.sum(solution.y[:, -1] ** 2)

    kernel = sg.fused_forward_backward(2, loss, device="cpu", dtype="float64")
    values, gradients = kernel.run([[1.0, 2.0], [1e4, 2.0]])
    assert values[0] == pytest.approx(4 * np.exp(-2.0), rel=1e-6)
    np.testing.assert_allclose(gradients[0], [-8 * np.exp(-2.0), 4 * np.exp(-2.0)], rtol=1e-6)
    assert np.isnan(values[1]) and np.isnan(gradients[1]).all()
