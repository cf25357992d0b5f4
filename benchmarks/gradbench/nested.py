"""The evals saddle and particle: descents whose objectives contain descents and derivatives.

Pearlmutter and Siskind, "Using Programming Language Theory to Make Automatic Differentiation Sound
and Efficient", 2008. A name such as "fr" says the modes of the outer and of the inner derivative.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from prepared import Call, Eval, Where

import symgrad as sg

Function = Callable[[Any], Any]
TableGradient = Callable[[Any, Any], Any]

ENOUGH = 1e-5
"""How short a gradient, or a step, ends a descent."""

FIRST_RATE = 1e-5
GROWS_AFTER = 10
"""Steps in a row that led down, after which the rate doubles; it halves when one does not."""

MOST = 2000
"""Iterations that no descent and no flight needs."""

TIME_STEP = 0.1


def reverse(y: Any, x: Any) -> Any:
    """The gradient by one reverse sweep."""
    return sg.grad(y, x)


def forward(y: Any, x: Any) -> Any:
    """The gradient by a forward sweep for each variable."""
    return sg.array([sg.jvp(y, x, list(e)) for e in np.eye(len(x))])


SLOPES: dict[str, TableGradient] = {"f": forward, "r": reverse}


def descended(f: Function, slope: TableGradient, start: Any) -> Any:
    """Where gradient descent with a rate that adapts ends."""

    def step(state: Any) -> Any:
        x, least, rate, count, _ = state
        gradient = slope(f(x), x)
        grows = count >= GROWS_AFTER
        rate, count = sg.where(grows, 2 * rate, rate), sg.where(grows, 0.0, count)
        trial = x - rate * gradient
        value = f(trial)
        ends = (gradient @ gradient <= ENOUGH**2) | ((trial - x) @ (trial - x) <= ENOUGH**2)
        taken = (value < least) & ~ends
        return (
            sg.where(taken, trial, x),
            sg.where(taken, value, least),
            sg.where(taken, rate, rate / 2),
            sg.where(taken, count + 1, 0.0),
            sg.where(ends, 0.0, 1.0),
        )

    first = (start, f(start), FIRST_RATE, 0.0, 1.0)
    return sg.while_loop(lambda state: state[4] > 0.5, step, first, max_steps=MOST)[0]


def bowl(x: Any, y: Any) -> Any:
    """What has a saddle at 0."""
    return x @ x - y @ y


def saddle(modes: str, given: Any, where: Where) -> Call:
    """The x that minimises the maximum over y, and that y."""
    outer, inner = (SLOPES[mode] for mode in modes)

    def point(start: Any) -> Any:
        def greatest(x: Any) -> Any:
            return bowl(x, descended(lambda y: -bowl(x, y), inner, start))

        x = descended(greatest, outer, start)
        y = descended(lambda y: -bowl(x, y), outer, start)
        return [*x, *y]

    kernel, start = sg.fused_forward(2, point, **where), np.array(given["start"])
    return lambda: kernel.run(start)


def potential(x: Any, w: Any) -> Any:
    """That of two charges at (10, 10 - w) and (10, 0)."""
    right, height = x[0] - 10, x[1] - (10 - w)
    return 1 / sg.sqrt(right**2 + height**2) + 1 / sg.sqrt(right**2 + x[1] ** 2)


def landing(w: Any, slope: TableGradient) -> Any:
    """The square of where a particle meets the axis, by Euler's method and a last partial step."""

    def after(x: Any, velocity: Any) -> Any:
        return x + TIME_STEP * velocity

    def step(state: Any) -> Any:
        x, velocity = state
        return after(x, velocity), velocity - TIME_STEP * slope(potential(x, w), x)

    first = sg.array([0.0, 8.0]), sg.array([0.75, 0.0])
    x, velocity = sg.while_loop(lambda s: after(*s)[1] > 0.0, step, first, max_steps=MOST)
    end = x - x[1] / velocity[1] * velocity
    return end[0] ** 2


def particle(modes: str, given: Any, where: Where) -> Call:
    """The w with which the particle meets the origin."""
    outer, inner = (SLOPES[mode] for mode in modes)

    def best(v: Any) -> Any:
        return descended(lambda w: landing(w[0], inner), outer, v)[0]

    kernel, start = sg.fused_forward(1, best, **where), [given["w"]]
    return lambda: kernel.run(start)


MODES = "ff", "fr", "rf", "rr"

EVALS: dict[str, Eval] = {
    "saddle": {modes: partial(saddle, modes) for modes in MODES},
    "particle": {modes: partial(particle, modes) for modes in MODES},
}
