"""Programs with loops of one problem, written once for symgrad and for JAX.

What differs is how a library writes a loop, and which loops it can differentiate in reverse: JAX
has no reverse mode through a ``while_loop``, so there its inner loop takes all turns there may be.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

import symgrad as sg

Mode = Literal["forward", "reverse"]

LAYERS, WIDTH, CHARACTERS = 2, 14, 1024
"""The network: its stacked layers, the characters of its alphabet, and those of its text."""

ELEMENTS, STEPS = 10_000, 100
"""The equation: its elements, and the steps of the method."""

RATE, ENOUGH, MOST = 0.1, 1e-20, 120
"""The descents: their rate, the square of the slope at which they end, and their turns at most."""


@dataclass(frozen=True)
class Library:
    """What programs are written with: NumPy's functions, loops, and derivatives of functions."""

    np: Any
    scan: Callable[..., Any]
    fori_loop: Callable[..., Any]
    until: Callable[..., Any]
    """``until(cond, body, init, mode)``: a while loop that is differentiated in this mode."""
    slope: Callable[[Mode, Callable[[Any], Any], Any], Any]


@dataclass(frozen=True)
class Program:
    """A function of one point, whose gradient is wanted, if not only its value."""

    name: str
    f: Callable[[Library, Any], Any]
    point: np.ndarray
    gradient: bool = True
    remade: bool = False
    """Whether JAX is tried with its steps computed again in reverse mode, too."""


# --- two stacked layers of long short-term memory over a text -------------------------------------


def text() -> np.ndarray:
    """Characters, one row of zeros and a one for each."""
    draw = np.random.default_rng(0)
    return np.eye(WIDTH)[draw.integers(0, WIDTH, CHARACTERS + 1)]


def lstm(lib: Library, v: Any) -> Any:
    """How badly the network predicts each next character of a text."""
    n = LAYERS * 8 * WIDTH
    weights, ends = v[:n].reshape(LAYERS, 2, 4, WIDTH), v[n:].reshape(3, WIDTH)

    def sigmoid(x: Any) -> Any:
        return 1 / (1 + lib.np.exp(-x))

    def layer(w: Any, b: Any, state: Any, x: Any) -> Any:
        hidden, cell = state
        forget, kept = sigmoid(x * w[0] + b[0]), sigmoid(hidden * w[1] + b[1])
        cell = cell * forget + kept * lib.np.tanh(hidden * w[3] + b[3])
        return sigmoid(x * w[2] + b[2]) * lib.np.tanh(cell), cell

    def step(carry: Any, characters: Any) -> Any:
        states, total = carry
        now, following = characters
        x, new = now * ends[0], []
        for (w, b), state in zip(weights, states, strict=True):
            new.append(layer(w, b, state, x))
            x = new[-1][0]
        guess = x * ends[1] + ends[2]
        right = guess - lib.np.log(lib.np.sum(lib.np.exp(guess)) + 2)
        return (tuple(new), total + lib.np.sum(following * right)), None

    zero, characters = np.zeros(WIDTH), text()
    start = tuple((zero, zero) for _ in range(LAYERS)), 0.0
    (_, total), _ = lib.scan(step, start, (characters[:-1], characters[1:]))
    return -total / (CHARACTERS * WIDTH)


# --- an equation of many elements -----------------------------------------------------------------


def decays(lib: Library, v: Any) -> Any:
    """The square of where an equation of many elements ends, by the method of Runge and Kutta."""

    def slope(y: Any) -> Any:
        return 0.5 - y * y * y

    def step(_: Any, y: Any) -> Any:
        a = slope(y)
        b = slope(y + 0.005 * a)
        c = slope(y + 0.005 * b)
        d = slope(y + 0.01 * c)
        return y + 0.01 / 6 * (a + 2 * b + 2 * c + d)

    end = lib.fori_loop(0, STEPS, step, v)
    return lib.np.sum(end * end)


# --- gradient descent inside gradient descent -----------------------------------------------------


def nested(outer: Mode, inner: Mode) -> Callable[[Library, Any], Any]:
    """The least over x of the greatest over y of a saddle, each to convergence.

    The descent over x goes by the slope of what the one over y ends at, through its loop.
    """

    def saddle(x: Any, y: Any) -> Any:
        return x[0] ** 2 + x[1] ** 2 - y[0] ** 2 - y[1] ** 2 + x[0] * y[1]

    def f(lib: Library, v: Any) -> Any:
        def descend(mode: Mode, g: Callable[[Any], Any], x: Any, through: Any) -> Any:
            def turn(state: Any) -> Any:
                slope = lib.slope(mode, g, state[0])
                return state[0] - RATE * slope, slope[0] ** 2 + slope[1] ** 2

            return lib.until(lambda state: state[1] > ENOUGH, turn, (x, 1.0), through)[0]

        def greatest(x: Any) -> Any:
            return saddle(x, descend(inner, lambda y: -saddle(x, y), v[2:], outer))

        return greatest(descend(outer, greatest, v[:2], "forward"))

    return f


def programs() -> list[Program]:
    """All of them, with their points."""
    draw = np.random.default_rng(0)
    numbers = LAYERS * 8 * WIDTH + 3 * WIDTH
    modes: list[Mode] = ["forward", "reverse"]
    start = np.array([1.0, -0.7, 0.5, 0.3])
    return [
        Program(f"LSTM, {LAYERS} layers, {CHARACTERS:,} characters", lstm,
                0.3 * draw.normal(size=numbers), remade=True),
        Program(f"RK4, one equation of {ELEMENTS:,} elements x {STEPS} steps", decays,
                draw.uniform(0.2, 1.2, ELEMENTS), remade=True),
        *[Program(f"descent in descent, {a} over {b}", nested(a, b), start, gradient=False)
          for a in modes for b in modes],
    ]  # fmt: skip


def ours() -> Library:
    """Programs of symgrad."""

    def slope(mode: Mode, g: Callable[[Any], Any], x: Any) -> Any:
        if mode == "reverse":
            return sg.grad(g(x), x)
        return sg.array([sg.jvp(g(x), x, list(e)) for e in np.eye(len(x))])

    def until(cond: Any, body: Any, init: Any, mode: Mode) -> Any:
        return sg.while_loop(cond, body, init, max_steps=MOST)

    return Library(np, sg.scan, sg.fori_loop, until, slope)


def of_jax(remade: bool) -> Library:
    """Programs of JAX, whose steps may be computed again in reverse mode."""
    jax = importlib.import_module("jax")
    lax, wrap = jax.lax, jax.checkpoint if remade else lambda step: step

    def fori_loop(lo: int, hi: int, body: Any, init: Any) -> Any:
        step = wrap(lambda carry, k: (body(k, carry), None))
        return lax.scan(step, init, jax.numpy.arange(lo, hi))[0]

    def until(cond: Any, body: Any, init: Any, mode: Mode) -> Any:
        if mode == "forward":
            return lax.while_loop(cond, body, init)

        def step(state: Any, _: Any) -> Any:
            return lax.cond(cond(state), body, lambda same: same, state), None

        return lax.scan(step, init, None, length=MOST)[0]

    def slope(mode: Mode, g: Callable[[Any], Any], x: Any) -> Any:
        return (jax.grad if mode == "reverse" else jax.jacfwd)(g)(x)

    def scan(step: Any, init: Any, xs: Any) -> Any:
        return lax.scan(wrap(step), init, xs)

    return Library(jax.numpy, scan, fori_loop, until, slope)
