"""Programs of loops, choices and arrays whose derivatives are easily wrong, for numbers as well.

Of numbers they are Python's own loops and lists, so differences of those are the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from programs import Numbers

import symgrad as sg
from symgrad.expr.graph.node import Handle
from symgrad.expr.loops.control import cond, fori_loop, scan, while_loop
from symgrad.expr.tracers.memory import array_of, zeros


@dataclass(frozen=True)
class Sample:
    """A function of ``n`` numbers between ``low`` and ``high``."""

    f: Callable[[Any], Any]
    n: int
    low: float = 0.4
    high: float = 0.9

    def points(self, count: int = 9) -> np.ndarray:
        """Points (n, count)."""
        return np.random.default_rng(7).uniform(self.low, self.high, (self.n, count))

    def values(self, at: np.ndarray) -> np.ndarray:
        """The values at points (n, count), by Python's loops."""
        return np.array([self.f([float(x) for x in point]) for point in at.T])

    def gradients(self, at: np.ndarray, step: float = 1e-6) -> np.ndarray:
        """The derivatives (n, count), by differences."""
        moves = step * np.eye(self.n)[:, :, None]
        return np.array([
            (self.values(at + move) - self.values(at - move)) / (2 * step) for move in moves
        ])  # fmt: skip


SAMPLES: dict[str, Sample] = {}


def sample(n: int, low: float = 0.4, high: float = 0.9) -> Callable[[Any], Any]:
    """A decorator that adds a function to the samples."""

    def add(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        SAMPLES[f.__name__] = Sample(f, n, low, high)
        return f

    return add


def array(values: Sequence[Any]) -> Any:
    """An array of these numbers."""
    if not any(isinstance(v, Handle) for v in values):
        return Numbers(float(v) for v in values)
    graph = next(v.graph for v in values if isinstance(v, Handle))
    return array_of(graph, list(values))


def blank(n: int, like: Any) -> Any:
    """An array of n zeros, where another number is an expression or not."""
    return zeros(like.graph, n) if isinstance(like, Handle) else Numbers([0.0] * n)


# --- numbers --------------------------------------------------------------------------------------


@sample(2)
def squares(v: Any) -> Any:
    return fori_loop(0, 5, lambda _, x: x * x * v[1] + x, v[0])


@sample(2)
def carried_product(v: Any) -> Any:
    return fori_loop(0, 6, lambda k, p: p * (v[0] + k), 1.0 + v[1])


@sample(2)
def no_turn(v: Any) -> Any:
    return fori_loop(3, 3, lambda _, x: x * x, v[0]) * v[1]


@sample(2)
def swapped_carries(v: Any) -> Any:
    """A value from before the loop is used after it, and the first carries are not 0."""
    a, b = fori_loop(0, 5, lambda _, c: (c[1] * v[0], c[0] + v[1]), (v[0] * v[1], v[1]))
    return a * b * sg.exp(v[0] * 0.1)


@sample(2, -1.0, 3.5)
def guarded_division(v: Any) -> Any:
    y = cond(v[0] > 0.0, lambda z: z / v[0], lambda z: z * 2.0, v[1])

    def body(k: Any, s: Any) -> Any:
        d = v[0] - k
        return s + cond(d > 0.0, lambda: sg.sqrt(d) / d, lambda: 0.5 * v[1])

    return y + fori_loop(0, 6, body, v[1] * 0.5)


@sample(2)
def nested_bounds(v: Any) -> Any:
    def outer(i: Any, s: Any) -> Any:
        t = fori_loop(0, i + 1, lambda j, t: t * v[0] + s * j * 0.1, v[1] * s, max_steps=6)
        return s * 0.5 + t * t * 0.1

    return fori_loop(0, 6, outer, v[1])


@sample(2)
def three_levels(v: Any) -> Any:
    def inner(k: Any, c: Any, a: Any, b: Any) -> Any:
        return sg.sin(c * v[0]) + a * 0.1 + b * k * 0.1

    def middle(_: Any, b: Any, a: Any) -> Any:
        return fori_loop(0, 5, lambda k, c: inner(k, c, a, b), b)

    return fori_loop(
        0, 5, lambda i, a: fori_loop(0, 6, lambda j, b: middle(j, b, a), a + v[1]) * 0.1, v[1]
    )


@sample(2)
def two_inner_loops(v: Any) -> Any:
    def outer(k: Any, s: Any) -> Any:
        a = fori_loop(0, 5, lambda j, a: a * v[0] + 0.1 * j, s)
        b = fori_loop(0, 6, lambda _, b: sg.sin(b) * a + k * 0.1, s * v[1])
        return a * 0.3 + b

    return fori_loop(0, 5, outer, v[1])


@sample(2)
def counter_in_strips(v: Any) -> Any:
    def body(k: Any, c: Any) -> Any:
        return c[0] + 0.1 * c[1] + 0.01 * k * v[0], c[1] - 0.1 * sg.sin(c[0]) * v[1]

    return fori_loop(0, 37, body, (v[0], v[1]))[0]


@sample(2)
def dead_carries(v: Any) -> Any:
    def body(_: Any, c: Any) -> Any:
        return c[0] * v[0], sg.exp(c[1]) * v[1] * 0.1, c[2] + 1.0

    return fori_loop(0, 6, body, (v[1], v[0], v[0]))[0]


@sample(2)
def largest_so_far(v: Any) -> Any:
    """``continue`` where the next value is no larger."""

    def body(k: Any, c: Any) -> Any:
        x = sg.sin(v[0] * 3.0 * k + v[1])
        return cond(x > c[0], lambda: (x * 1.0, c[1] + x * v[0]), lambda: (c[0] * 1.0, c[1] * 1.0))

    best, total = fori_loop(0, 8, body, (v[0] * 0.1, v[1]))
    return best * total


# --- loops with a test ----------------------------------------------------------------------------


@sample(2, 0.3, 2.0)
def newton(v: Any) -> Any:
    def step(c: Any) -> Any:
        y = c[0] - c[1] / (3.0 * c[0] * c[0])
        return y, y * y * y - v[1]

    start = (v[0] + 0.5, (v[0] + 0.5) ** 3 - v[1])
    return while_loop(lambda c: abs(c[1]) > 1e-12, step, start, max_steps=60)[0]


@sample(2)
def while_in_for(v: Any) -> Any:
    def body(k: Any, s: Any) -> Any:
        y = while_loop(lambda y: y > 1.0, lambda y: y * v[1], s + v[0] + k, max_steps=60)
        return s * 0.5 + y

    return fori_loop(0, 5, body, v[0])


@sample(2)
def do_while(v: Any) -> Any:
    def body(c: Any) -> Any:
        return c[0] * v[0] + 0.05, 0.0 * c[0] + c[0]

    y, before = while_loop(lambda c: c[1] > 0.6, body, (v[1], 1.0 + v[1]), max_steps=40)
    return y * before


@sample(2)
def loop_in_choice(v: Any) -> Any:
    def long(z: Any) -> Any:
        return fori_loop(0, 5, lambda _, s: sg.sin(s * v[1]) + s, z)

    return cond(v[0] > 0.6, long, lambda z: z * v[1], v[0])


# --- arrays ---------------------------------------------------------------------------------------


@sample(6)
def recurrent(v: Any) -> Any:
    """A scan by hand: what each step gives is read by a second loop."""
    xs = array(list(v[2:]))

    def step(k: Any, c: Any) -> Any:
        h = sg.tanh(v[0] * c[0] + v[1] * xs[k])
        return h, c[1].put(k, h * xs[k])

    h, ys = fori_loop(0, 4, step, (v[0], blank(4, v[0])))
    return h + fori_loop(0, 4, lambda k, s: s + ys[k] * ys[k], 0.1 * h)


def cholesky(v: Any, n: int) -> Any:
    """The logarithm of the determinant of a matrix, factored in place; its lower half is read."""

    def column(j: Any, c: Any) -> Any:
        a, total = c
        zero = 0.0 * v[0]
        d = a[j * n + j] - fori_loop(
            0, j, lambda k, s: s + a[j * n + k] * a[j * n + k], zero, max_steps=n
        )
        root = sg.sqrt(d)
        a = a.put(j * n + j, root)

        def rows(i: Any, a: Any) -> Any:
            s = fori_loop(0, j, lambda k, s: s + a[i * n + k] * a[j * n + k], zero, max_steps=n)
            return a.put(i * n + j, (a[i * n + j] - s) / root)

        return fori_loop(j + 1, n, rows, a, max_steps=n), total + sg.log(d)

    return fori_loop(0, n, column, (array(list(v)), 0.0 * v[0]))[1]


@sample(4)
def read_in_choice(v: Any) -> Any:
    a = array(list(v))

    def body(k: Any, s: Any) -> Any:
        return s + cond(a[k] > 0.6, lambda: a[k] * a[k] / a[0], lambda: a[k] * s)

    return fori_loop(0, 4, body, v[0])


@sample(6)
def stencil(v: Any) -> Any:
    """Each turn makes a new array of the last one."""

    def step(_: Any, u: Any) -> Any:
        return fori_loop(
            0, 6, lambda i, w: w.put(i, u[i] * v[0] + u[i + 1] * u[i] * 0.3), blank(6, v[0])
        )

    u = fori_loop(0, 5, step, array(list(v)))
    return fori_loop(0, 6, lambda i, s: s + u[i] * i, 0.0 * v[0])


@sample(6)
def two_buffers(v: Any) -> Any:
    """Two arrays, one made of the other, change places."""

    def step(_: Any, c: Any) -> Any:
        a, b = c
        return fori_loop(0, 6, lambda i, b: b.put(i, a[i] * b[i] + a[i + 1]), b), a

    a, b = fori_loop(0, 5, step, (array(list(v)), blank(6, v[0])))
    return fori_loop(0, 6, lambda i, s: s + a[i] * i + b[i], 0.0 * v[0]) * 0.01


@sample(5)
def written_in_choice(v: Any) -> Any:
    def body(k: Any, c: Any) -> Any:
        a, s = c
        a = cond(
            a[k] > 0.6,
            lambda: a.put(k, a[k] * a[k] + a[0]).put(0, a[k]),
            lambda: a.put(k, a[k] * s),
        )
        return a, s * 0.5 + a[k] * a[0]

    a, s = fori_loop(0, 5, body, (array(list(v)), v[1]))
    return s + a[0] * a[1] + a[3]


@sample(5)
def loop_that_writes_in_choice(v: Any) -> Any:
    def body(k: Any, c: Any) -> Any:
        a, s = c

        def many() -> Any:
            return fori_loop(0, k + 1, lambda i, b: b.put(i, b[i] * b[k] + 0.1), a, max_steps=5)

        a = cond(a[k] > 0.6, many, lambda: a.put(k, a[k] * s))
        return a, s * 0.5 + a[k] * a[0]

    a, s = fori_loop(0, 5, body, (array(list(v)), v[1]))
    return s + a[0] * a[1] + a[3]


@sample(4)
def while_that_writes_in_for(v: Any) -> Any:
    def body(k: Any, a: Any) -> Any:
        def iteration(a: Any) -> Any:
            return a.put(k, a[k] * v[0] * a[1]).put(3, a[k] + 0.5 * a[3])

        return while_loop(lambda a: a[k] > 0.3, iteration, a, max_steps=40)

    a = fori_loop(0, 3, body, array(list(v)))
    return a[0] * a[1] + a[2] * a[3]


@sample(3)
def two_versions_of_one(v: Any) -> Any:
    def body(k: Any, a: Any) -> Any:
        b, c = a.put(0, a[1] * a[2]), a.put(1, a[0] * a[2])
        return c.put(2, b[k] * a[2] + b[0] * 0.5)

    a = fori_loop(0, 5, body, array(list(v)))
    return a[0] + a[1] * a[2]


@sample(4)
def read_before_it_is_overwritten(v: Any) -> Any:
    def body(k: Any, c: Any) -> Any:
        a, _ = c
        old, first = a[k], a[0]
        b = fori_loop(0, 4, lambda i, b: b.put(i, b[i] * b[k] + b[0]), a)
        s = fori_loop(0, 4, lambda i, s: s * a[i] * 0.5 + b[i] * 0.1, b[k])
        z = b[k] * old * 0.2 + first * s * 0.1
        return b.put(k, z), z

    a, z = fori_loop(0, 3, body, (array(list(v)), v[0]))
    return a[0] * z + a[1] + a[3]


@sample(4)
def hopping_index(v: Any) -> Any:
    def body(k: Any, a: Any) -> Any:
        return a.put(3 - k, a[k] * a[3 - k] + v[0]).put(k, a[k] * a[0])

    a = fori_loop(0, 4, body, array(list(v)))
    return a[0] * a[1] + a[2] * a[3]


@sample(4)
def three_levels_in_place(v: Any) -> Any:
    def outer(i: Any, a: Any) -> Any:
        def middle(j: Any, a: Any) -> Any:
            return fori_loop(
                0, j + 1, lambda k, a: a.put(k, a[k] * a[j] + 0.1 * a[i]), a, max_steps=4
            )

        return fori_loop(i, 4, middle, a, max_steps=4).put(i, a[i] * a[0])

    a = fori_loop(0, 4, outer, array(list(v)))
    return a[0] * a[1] + a[2] + a[3]


@sample(4)
def overwritten_afterwards(v: Any) -> Any:
    """An array is overwritten after a loop has read it."""
    a = array(list(v))
    s = fori_loop(0, 4, lambda k, s: s * a[k] + v[0], v[1])
    b = fori_loop(0, 4, lambda k, b: b.put(k, s * b[k] * b[k]), a)
    return b[0] * b[3] + s


__all__ = ["SAMPLES", "Sample", "array", "blank", "cholesky", "scan"]
