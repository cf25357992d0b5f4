"""Functions with loops and choices as users write them, of arrays of numbers as well.

Of numbers they are Python's own loops, so that those, and differences of them, are the reference.
Most are what some peer gets wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import symgrad as sg


@dataclass(frozen=True)
class Flow:
    """A function of ``n`` numbers between ``low`` and ``high``; ``smooth`` ones have Hessians."""

    f: Callable[[Any], Any]
    n: int
    low: float = 0.4
    high: float = 0.9
    smooth: bool = True

    def points(self, count: int = 5) -> np.ndarray:
        """Points (count, n)."""
        return np.random.default_rng(5).uniform(self.low, self.high, (count, self.n))

    def value(self, at: np.ndarray) -> float:
        """The value at a point, by Python's loops."""
        return float(self.f(at))


FLOWS: dict[str, Flow] = {}


def flow(n: int, low: float = 0.4, high: float = 0.9, smooth: bool = True) -> Callable[..., Any]:
    """A decorator that adds a function to the table."""

    def add(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        FLOWS[f.__name__] = Flow(f, n, low, high, smooth)
        return f

    return add


# --- loops ----------------------------------------------------------------------------------------


@flow(2)
def carried_product(v: Any) -> Any:
    return sg.fori_loop(0, 6, lambda k, p: p * (v[0] + k), v[1])


@flow(3, 0.4, 6.9)
def squared_as_often_as_a_value_says(v: Any) -> Any:
    """``x = x * x`` where each point takes its own iterations."""
    iterations = sg.minimum(sg.floor(v[2]), 6)
    return sg.fori_loop(0, iterations, lambda _, x: x * x * 0.1 + x * v[1] * 0.1, v[0])


@flow(3)
def carries_of_each_other(v: Any) -> Any:
    """The second is made of the first and the last, and both of these of it."""
    a, b, c = sg.fori_loop(
        0, 5, lambda _, s: (0.9 * s[1], s[0] + 0.1 * s[2], s[1] * s[1]), (v[0], v[1], v[2])
    )
    return a * b + sg.sin(c)


@flow(2)
def updated_in_place(v: Any) -> Any:
    a = sg.fori_loop(0, 5, lambda k, a: a.at[k].set(v[0] * k + v[1]), sg.array(np.zeros(5)))
    a = sg.fori_loop(1, 5, lambda k, a: a.at[k].add(a[k - 1] * a[k]), a)
    return a[3] * a[4] + np.sum(a)


@flow(3, -2.0, 0.4)
def no_turn_at_all(v: Any) -> Any:
    """The first carry, whose cotangent is that of the result."""
    iterations = sg.minimum(sg.floor(v[2]), 0.0)
    end = sg.fori_loop(0, iterations, lambda _, c: (c[0] * c[1], c[1] / 0.0), (v[0], v[1]))
    return end[0] * 3.0 + end[1] * end[0]


@flow(3, 0.4, 4.9)
def nested_bounds_of_values(v: Any) -> Any:
    def outer(i: Any, s: Any) -> Any:
        inner = sg.fori_loop(
            i, sg.floor(v[1]) + 1, lambda j, t: t * 0.5 + s * j * v[2], s, max_steps=5
        )
        return sg.fori_loop(0, i, lambda j, t: t * 0.3 + j * s, inner) * 0.1

    return sg.fori_loop(0, sg.minimum(sg.floor(v[0]), 4), outer, v[2])


@flow(2, -1.0, 2.5, smooth=False)
def guarded_inside_a_loop(v: Any) -> Any:
    """No NaN of the side not taken leaks into the gradient, by a choice or by selection."""

    def body(k: Any, s: Any) -> Any:
        d = v[0] - k
        chosen = sg.cond(d > 0.0, lambda: np.sqrt(d) / d, lambda: v[1] * 0.5)
        safe = sg.where(d > 0.0, d, 1.0)
        return s + chosen + sg.where(d > 0.0, np.sqrt(safe) / safe, v[1])

    return sg.fori_loop(0, 4, body, v[1])


@flow(2)
def carry_used_now_and_then(v: Any) -> Any:
    def body(k: Any, c: Any) -> Any:
        s, t = c
        return sg.cond(k % 2 > 0.5, lambda: (s + t * v[0], t), lambda: (s, t * v[1] + 0.1))

    return sg.fori_loop(0, 7, body, (v[0], v[1]))[0]


@flow(2, -0.9, 0.9, smooth=False)
def loop_in_a_choice_in_a_loop(v: Any) -> Any:
    def body(k: Any, s: Any) -> Any:
        def long() -> Any:
            return sg.fori_loop(0, k + 1, lambda j, t: np.sin(t) * v[0] + 0.1 * j, s)

        return sg.cond(s > 0.1, long, lambda: s * v[0] + 0.3)

    return sg.fori_loop(0, 6, body, v[1])


@flow(4)
def gradients_by_all_that_a_scan_has(v: Any) -> Any:
    """By its first carry, what it goes through, what it closes over, and a bound (zero)."""

    def step(h: Any, x: Any) -> tuple[Any, Any]:
        h = np.tanh(h * v[1] + x)
        return h, h * x

    h, ys = sg.scan(step, v[0], v[1:])
    iterations = sg.minimum(sg.floor(2 + 0.1 * v[3]), 3)
    return h + np.sum(ys * ys) + sg.fori_loop(0, iterations, lambda _, s: s * v[0], 1.0)


@flow(5)
def scan_of_nests_from_the_end(v: Any) -> Any:
    def step(c: Any, x: Any) -> tuple[Any, Any]:
        state = {"a": c["a"] * v[0] + x["u"], "b": c["b"] + x["w"][0] * x["w"][1]}
        return state, (state["a"] * state["b"], sg.array([c["a"], x["u"]]))

    xs = {"u": v[1:4], "w": np.arange(6.0).reshape(3, 2) * 0.1}
    end, (products, pairs) = sg.scan(step, {"a": v[4], "b": 1.0}, xs, reverse=True)
    return end["a"] + end["b"] + products[0] * products[2] + np.sum(pairs[:, 0] * pairs[:, 1])


@flow(2)
def scan_over_steps_alone(v: Any) -> Any:
    end, ys = sg.scan(lambda c, _: (c * v[0] + 0.1, c * c), v[1], length=4)
    return end + np.sum(ys)


@flow(2, 0.5, 0.9)
def halved_until_small(v: Any) -> Any:
    def body(c: Any) -> Any:
        return c[0] * v[0], c[1].at[1].add(c[0] * v[1])

    start = v[1] * 1.0, sg.array([v[0], 1.0])
    y, a = sg.while_loop(lambda c: c[0] > 0.1, body, start, max_steps=60)
    return y + a[1] * a[0]


@flow(2)
def custom_derivative_in_a_loop(v: Any) -> Any:
    def pulled(g: Any, y: Any, x: Any, a: Any) -> Any:
        return g * a * (1.0 - y * y), g * x * (1.0 - y * y)

    step = sg.custom_vjp(lambda x, a: np.tanh(x * a), pulled)
    return sg.fori_loop(0, 6, lambda k, s: step(s, v[0]) + v[1] * k * 0.1, v[1])


@flow(2)
def loop_in_a_custom_derivative(v: Any) -> Any:
    def power(x: Any, a: Any) -> Any:
        return sg.fori_loop(0, 6, lambda _, s: np.sin(s) * a, x)

    def pulled(g: Any, _: Any, x: Any, a: Any) -> Any:
        return tuple(g * slope for slope in sg.grad(power(x, a), [x, a]))

    return sg.custom_vjp(power, pulled)(v[0], v[1]) * v[1]


# --- choices --------------------------------------------------------------------------------------


@flow(3)
def switched(v: Any) -> Any:
    branches = [lambda s: s * v[0], lambda s: s + v[1], lambda s: np.sin(s) * v[2]]
    return sg.fori_loop(0, 5, lambda k, s: sg.switch(k, branches, s), v[0])


@flow(2, -0.9, 0.9, smooth=False)
def switched_by_a_value(v: Any) -> Any:
    def side(s: Any) -> Any:
        return {"a": s / v[0], "b": (s, s * 2.0)}

    def other(s: Any) -> Any:
        return {"a": s * v[0], "b": (1.0, s)}

    found = sg.switch(sg.floor(v[0] * 2), [other, side, other], v[1])
    return found["a"] + found["b"][0] * found["b"][1]


# --- arrays in memory -----------------------------------------------------------------------------


@flow(4)
def matrices_in_place(v: Any) -> Any:
    def row(i: Any, a: Any) -> Any:
        return sg.fori_loop(0, 2, lambda j, a: a.at[i, j].set(v[2 * i + j] * (1 + i)), a)

    a = sg.fori_loop(0, 2, row, sg.array(np.zeros((2, 2))))
    b = sg.fori_loop(0, 3, lambda i, b: b.at[1].multiply(b[0, ::-1]), a)
    return np.sum(b) * b[1, 0] + (b @ b)[0, 1] + np.trace(b.T)


@flow(3)
def written_where_a_choice_says(v: Any) -> Any:
    def body(k: Any, a: Any) -> Any:
        return sg.cond(a[k] > 0.6, lambda: a.at[k].multiply(v[0]), lambda: a.at[k].set(v[1] * a[0]))

    a = sg.fori_loop(0, 3, body, sg.array([v[0], v[1], v[2]]))
    return a[0] * a[1] + a[2]


@flow(6)
def longest_common_path(v: Any) -> Any:
    """A recurrence over a table: each element is made of the neighbours before it."""

    def row(i: Any, t: Any) -> Any:
        def column(j: Any, t: Any) -> Any:
            best = np.logaddexp(t[i - 1, j], t[i, j - 1])
            return t.at[i, j].set(best + v[i - 1] * v[2 + j])

        return sg.fori_loop(1, 4, column, t)

    t = sg.fori_loop(1, 3, row, sg.array(np.full((3, 4), 0.1)))
    return t[2, 3]


@flow(5)
def read_by_a_computed_index(v: Any) -> Any:
    """Places of a table by a value, whose derivative is that of what is read."""
    table = sg.array([v[0], v[1], v[2], 2.0])

    def body(k: Any, s: Any) -> Any:
        place = sg.floor(s)
        place = place if isinstance(place, sg.Expr) else int(place)
        return s + table[(k * 3) % 4] * table[place] * v[4]

    return sg.fori_loop(0, 3, body, v[3])
