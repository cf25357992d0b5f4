"""Iterations that every back end runs: by hand, from traces, with and without data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from reference_kernels import iterate

import symgrad as sg
from symgrad.backend import backend_of
from symgrad.kernel.shapes import Computation, Iteration, Reduction, RowData
from symgrad.kernel.stage import hoisted
from symgrad.optimize.states import Compiled
from symgrad.pipeline import DTypeName, Options
from symgrad.targets import choose

Function = Callable[[Any], Any]


def compiled(iteration: Iteration, device: Any = "cpu", dtype: DTypeName = "float32") -> Compiled:
    """What runs an iteration on a device."""
    return Compiled(iteration, Options("steps", dtype=dtype), backend_of(choose(device)))


def computation(f: Function, n: int, dtype: DTypeName = "float32") -> Computation:
    """What a function of n numbers, which returns a list, computes."""
    return sg.fused_forward(n, f, device="cpu", dtype=dtype)._computation


def rows(f: Function, parameters: int, columns: int, dtype: DTypeName = "float32") -> Reduction:
    """The sums of a function of parameters and a row's columns."""
    made = computation(f, parameters + columns, dtype)
    factors = (made.graph.constant(1.0),) * sum(len(o.nodes) for o in made.outputs)
    return hoisted(Reduction("rows", made.graph, made.outputs, parameters, factors))


def rosenbrock(dtype: DTypeName = "float32") -> Iteration:
    """Gradient descent until the gradient is small; the state is x, y, steps, flag."""

    def update(s: Any) -> Any:
        x, y, count, _ = s
        gx, gy = -400 * x * (y - x * x) - 2 * (1 - x), 200 * (y - x * x)
        going = sg.where(gx * gx + gy * gy < 0.3, 0.0, 1.0)
        return [x - 5e-4 * gx, y - 5e-4 * gy, count + 1, going]

    return Iteration(computation(update, 4, dtype), 4)


def rosenbrock_starts(count: int) -> np.ndarray:
    state = np.random.default_rng(count).uniform(-1, 1.2, (count, 4))
    state[:, 2], state[:, 3] = 0, np.arange(count) % 5 != 4
    return state


def countdown(dtype: DTypeName = "float32") -> Iteration:
    """x grows by one in each step until as many are done as are left; the state is x, left."""
    return Iteration(computation(lambda s: [s[0] + 1, s[1] - 1], 2, dtype), 2)


def long_chain(operations: int, dtype: DTypeName = "float32") -> Iteration:
    """A long body: a chain of products, a few sines and conditions, whose values live long."""

    def update(s: Any) -> Any:
        values = [s[0], s[1], s[2]]
        while len(values) * 5 < operations + 50:
            a, b, c = values[-1], values[-2], values[-(len(values) % min(40, len(values))) - 1]
            step = sg.sin(b) if len(values) % 16 == 0 else b / (1.5 + a * a)
            values.append(sg.where(a < b, 0.5 * c, 0.25 * a) + 0.3 * step)
        return [*values[-3:], s[3] - 1]

    return Iteration(computation(update, 4, dtype), 4)


def long_starts(count: int) -> np.ndarray:
    state = np.random.default_rng(count).uniform(-1, 1, (count, 4))
    state[:, 3] = np.arange(count) % 4
    return state


@dataclass(frozen=True)
class Fit:
    """A fit by steps down the gradient: the iteration, its states and its data."""

    iteration: Iteration
    state: np.ndarray
    shared: np.ndarray | None
    own: np.ndarray | None

    @property
    def data(self) -> RowData:
        """Both."""
        return RowData(self.shared, self.own)

    def expected(self, steps: int, dtype: Any = np.float64) -> np.ndarray:
        """The interpreter's answer."""
        return iterate(self.iteration, self.state, steps, self.data, dtype)

    def first(self, count: int) -> Fit:
        """The same iteration with the first ``count`` rows alone."""
        return replace(
            self,
            shared=None if self.shared is None else self.shared[:count],
            own=None if self.own is None else self.own[:, :count].copy(),
        )


def fit(problems: int, count: int, data: str, dtype: DTypeName = "float32", more: int = 0) -> Fit:
    """Curves a exp(-b x) + c, each to ``count`` points: "own", "shared" or "both" (x, weight | y).

    ``more`` columns of the sums are made of many operations.
    """

    def row(v: Any) -> Any:
        a, b, c, x, w, y = v
        e = sg.exp(-b * x)
        r = (a * e + c - y) * sg.where(c > 5.0, 2.0, 1.0) * w
        extra = [sg.sin(k * r * x) / (1.0 + k) for k in range(1, more + 1)]
        return [r * e, -a * x * r * e, r, r * r, *extra]

    def update(v: Any) -> Any:
        state, sums = v[:6], v[6:]
        rate = 0.2 / count
        new = [state[k] - rate * sums[k] for k in range(3)]
        small = sum(s * s for s in sums[:3]) < 1e-4 * count
        extra = sum(sums[4:], 0.0)
        return [*new, sums[3] + 1e-3 * extra, state[4] + 1, sg.where(small, 0.0, 1.0)]

    made = rows(row, 3, 3, dtype)
    shared = {"own": 0, "shared": 3, "both": 2}[data]
    iteration = Iteration(computation(update, 10 + more, dtype), 6, made, shared)
    draw = np.random.default_rng(problems + count)
    x, w = np.linspace(0, 3, count), draw.uniform(0.5, 1, count)
    true = draw.uniform(0.5, 2, (problems, 3))
    y = true[:, :1] * np.exp(-true[:, 1:2] * x) + true[:, 2:]
    every = np.stack([*np.broadcast_arrays(x, w, y)], axis=2)
    state = np.zeros((problems, 6))
    state[:, :3] = true + draw.uniform(-0.3, 0.3, (problems, 3))
    state[:, 5] = np.arange(problems) % 7 != 6
    return Fit(
        iteration,
        state,
        every[0, :, :shared].copy() if shared else None,
        every[:, :, shared:].copy() if shared < 3 else None,
    )


@cache
def sums_over_rows(data: str, count: int) -> np.ndarray:
    """What 60 steps of `fit(35, 100, data)` make of the first rows, in every dtype and form."""
    return fit(35, 100, data).first(count).expected(60)
