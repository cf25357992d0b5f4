"""The evals hello, lse, llsq, det and ode, of functions of one vector."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from prepared import Call, Eval, Where

import symgrad as sg


def square(x: float, where: Where) -> Call:
    """hello::square, x**2."""
    kernel = sg.fused_forward(1, lambda v: v[0] ** 2, **where)
    return lambda: kernel.run([x])


def double(x: float, where: Where) -> Call:
    """hello::double, the derivative of x**2."""
    kernel = sg.fused_forward_backward(1, lambda v: v[0] ** 2, **where)
    return lambda: kernel.run([x])[1][0]


def log_sum_exp(v: Any) -> Any:
    """The logarithm of the sum of exponentials, shifted by the largest exponent."""
    largest = np.max(v)
    return largest + np.log(np.sum(np.exp(v - largest)))


def lse(given: Any, where: Where) -> Call:
    """lse::primal."""
    x = np.array(given["x"])
    kernel = sg.fused_forward(len(x), log_sum_exp, **where)
    return lambda: kernel.run(x)


def lse_gradient(given: Any, where: Where) -> Call:
    """lse::gradient."""
    x = np.array(given["x"])
    kernel = sg.fused_forward_backward(len(x), log_sum_exp, **where)
    return lambda: kernel.run(x)[1]


def misfit(p: Any, row: Any) -> Any:
    """Half the squared difference between a polynomial and a value, by Horner's scheme."""
    value = p[-1]
    for coefficient in reversed(p[:-1]):
        value = value * row.t + coefficient
    return 0.5 * (row.s - value) ** 2


def samples(n: int) -> dict[str, np.ndarray]:
    """The signs of n evenly spaced numbers from -1 to 1."""
    t = -1 + np.arange(n) * 2 / (n - 1)
    return {"t": t, "s": np.sign(t)}


def llsq(given: Any, where: Where) -> Call:
    """llsq::primal, a loss over rows that are bound."""
    kernel = sg.fused_forward(len(given["x"]), misfit, columns=["t", "s"], **where)
    bound, x = kernel.bind(samples(given["n"])), np.array(given["x"])
    return lambda: bound.run(x)


def llsq_gradient(given: Any, where: Where) -> Call:
    """llsq::gradient."""
    kernel = sg.fused_forward_backward(len(given["x"]), misfit, columns=["t", "s"], **where)
    bound, x = kernel.bind(samples(given["n"])), np.array(given["x"])
    return lambda: bound.run(x)[1]


def by_minors(v: Any) -> Any:
    """A determinant by expansion by minors, each of which is expanded once."""
    n = round(len(v) ** 0.5)
    a = v.reshape(n, n)

    @cache
    def minor(columns: tuple[int, ...]) -> Any:
        row = n - len(columns)
        if len(columns) == 1:
            return a[row, columns[0]]
        return sum(
            (-1) ** k * a[row, column] * minor(columns[:k] + columns[k + 1 :])
            for k, column in enumerate(columns)
        )

    return minor(tuple(range(n)))


def det(given: Any, where: Where) -> Call:
    """det::primal."""
    kernel, a = sg.fused_forward(len(given["A"]), by_minors, **where), np.array(given["A"])
    return lambda: kernel.run(a)


def det_gradient(given: Any, where: Where) -> Call:
    """det::gradient, by rows."""
    kernel = sg.fused_forward_backward(len(given["A"]), by_minors, **where)
    a = np.array(given["A"])
    return lambda: kernel.run(a)[1]


END = 2.0
"""The time at which the equations' solution is wanted."""


def solution(x: Any, steps: int) -> Any:
    """y at the end, where y_0' = x_0 and y_i' = x_i y_(i-1), by Runge and Kutta's method."""
    h = END / steps

    def slope(y: Any) -> Any:
        return np.concatenate([x[:1], x[1:] * y[:-1]])

    def step(_: Any, y: Any) -> Any:
        a = slope(y)
        b = slope(y + h / 2 * a)
        c = slope(y + h / 2 * b)
        d = slope(y + h * c)
        return y + h / 6 * (a + 2 * b + 2 * c + d)

    return sg.fori_loop(0, steps, step, np.zeros(len(x)))


def ode(given: Any, where: Where) -> Call:
    """ode::primal."""
    x, steps = np.array(given["x"]), given["s"]
    kernel = sg.fused_forward(len(x), lambda v: solution(v, steps), **where)
    return lambda: kernel.run(x)


def ode_gradient(given: Any, where: Where) -> Call:
    """ode::gradient, of the last element."""
    x, steps = np.array(given["x"]), given["s"]
    kernel = sg.fused_forward_backward(len(x), lambda v: solution(v, steps)[-1], **where)
    return lambda: kernel.run(x)[1]


EVALS: dict[str, Eval] = {
    "hello": {"square": square, "double": double},
    "lse": {"primal": lse, "gradient": lse_gradient},
    "llsq": {"primal": llsq, "gradient": llsq_gradient},
    "det": {"primal": det, "gradient": det_gradient},
    "ode": {"primal": ode, "gradient": ode_gradient},
}
