"""Functions drawn at random from NumPy's, of numbers as NumPy computes them, and traced."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import symgrad as sg

Step = Callable[..., Any]


def is_numbers(*values: Any) -> bool:
    return not any(isinstance(v, sg.ExprArray) or hasattr(v, "tape") for v in values)


def updated(a: Any, key: Any, name: str, values: Any) -> Any:
    """``a.at[key]``, or of numbers what it means."""
    if not is_numbers(a, values):
        return getattr(a.at[key], name)(values)
    copy = np.array(a)
    if name == "set":
        copy[key] = values
    else:
        {"add": np.add, "multiply": np.multiply, "max": np.maximum}[name].at(copy, key, values)
    return copy


def loop(n: int, body: Callable[[Any, Any], Any], a: Any) -> Any:
    if not is_numbers(a):
        return sg.fori_loop(0, n, body, a)
    for k in range(n):
        a = body(k, a)
    return a


def scan(body: Callable[[Any, Any], Any], a: Any, rows: Any) -> Any:
    """The values that a scan gives."""
    if not is_numbers(a, rows):
        return sg.scan(body, a, rows)[1]
    values = []
    for row in rows:
        a, value = body(a, row)
        values.append(value)
    return np.stack(values)


def cond(holds: Any, yes: Callable[[], Any], no: Callable[[], Any]) -> Any:
    if not is_numbers(holds):
        return sg.cond(holds, yes, no)
    return yes() if holds else no()


def mapped(f: Callable[[Any], Any], a: Any) -> Any:
    return sg.vmap(f)(a) if not is_numbers(a) else np.stack([f(row) for row in a])


class DrawnNumPy:
    """A function ``f(x, y)`` of a few steps, each of which takes arrays of those before it."""

    def __init__(self, seed: int) -> None:
        self.random, rng = random.Random(seed), np.random.default_rng(seed)
        sizes = self.random.sample([1, 2, 3, 4, 5], 3)
        shape = lambda rank: tuple(self.random.choice(sizes) for _ in range(rank))  # noqa: E731
        self.inputs = [rng.normal(size=shape(self.random.choice([1, 2, 2, 3]))) for _ in range(2)]
        self.rng, self.steps = rng, list[tuple[Step, tuple[int, ...]]]()
        self.values: list[np.ndarray] = [*self.inputs]
        self.kinds = (
            self.elements, self.pair, self.moved, self.cropped, self.cropped, self.reduced,
            self.taken, self.written, self.product, self.ordered, self.looped, self.mapped,
        )  # fmt: skip
        while len(self.steps) < 4:
            self.add(*self.random.choice(self.kinds)())
        self.weights = [rng.normal(size=v.shape) for v in self.values[2:]]

    def add(self, step: Step, *operands: int) -> None:
        """Take a step on, unless NumPy refuses it, or its numbers are large or very many."""
        with np.errstate(all="ignore"):
            try:
                value = np.asarray(step(*(self.values[k] for k in operands)))
            except (ValueError, IndexError):
                return
            if value.size <= 200 and value.ndim < 5 and np.all(np.abs(value) < 30):
                self.steps.append((step, operands))
                self.values.append(value)

    def __call__(self, *inputs: Any) -> list[Any]:
        values = [*inputs]
        for step, operands in self.steps:
            values.append(step(*(values[k] for k in operands)))
        return values[len(inputs) :]

    def loss(self, *inputs: Any) -> Any:
        """A number of all results."""
        results = zip(self.weights, self(*inputs), strict=True)
        return sum(np.sum(w * np.tanh(v)) for w, v in results)

    # steps ---------------------------------------------------------------------------------------

    def one(self) -> tuple[int, np.ndarray]:
        """An array with axes, one of the last ones sooner."""
        known = [k for k, v in enumerate(self.values) if v.ndim and v.size]
        k = self.random.choice([*known, *known[-2:]])
        return k, self.values[k]

    def key(self, n: int) -> slice:
        choice = self.random.choice
        return slice(choice([None, 0, n // 2, -1]), choice([None, n, -n]), choice([1, 2, -1, None]))

    def elements(self) -> tuple[Any, ...]:
        return self.random.choice([
            np.tanh, np.abs, lambda a: a * a * 0.5, lambda a: np.exp(-a * a), np.sin,
            lambda a: np.maximum(a, 0.1), lambda a: np.sqrt(a * a + 1.0), lambda a: (a > 0) * a,
        ]), self.one()[0]  # fmt: skip

    def pair(self) -> tuple[Any, ...]:
        return self.random.choice([
            lambda a, b: a + b, lambda a, b: a * b, lambda a, b: np.where(a > 0.2, a, b),
            lambda a, b: a / (1.5 + b * b), np.minimum, lambda a, b: a[..., None] - b,
        ]), self.one()[0], self.one()[0]  # fmt: skip

    def moved(self) -> tuple[Any, ...]:
        k, a = self.one()
        axis, by = self.random.randrange(a.ndim), self.random.randint(-3, 3)
        return self.random.choice([
            lambda a: a.T, lambda a: np.roll(a, by, axis), lambda a: np.flip(a, axis),
            lambda a: np.pad(a, abs(by), mode="edge"), lambda a: np.repeat(a, 2, axis),
            lambda a: np.concatenate([a, 2.0 * a], axis), lambda a: np.stack([a, -a], axis),
            lambda a: np.pad(a, [(1, 2)] * a.ndim), lambda a: np.swapaxes(a, 0, axis),
        ]), k  # fmt: skip

    def cropped(self) -> tuple[Any, ...]:
        """A slice, in another shape."""
        k, a = self.one()
        key = tuple(map(self.key, a.shape))
        size = a[key].size
        rows = self.random.choice([n for n in range(1, size + 1) if size % n == 0] or [1])
        weights = self.rng.normal(size=(size // rows, 2))
        return self.random.choice([
            lambda a: np.tanh(a)[key].reshape(rows, -1) @ weights,
            lambda a: (a * a.sum(-1, keepdims=True))[key].reshape(-1),
            lambda a: np.cumsum(a, -1)[key].reshape(rows, -1) @ weights,
        ]), k  # fmt: skip

    def reduced(self) -> tuple[Any, ...]:
        k, a = self.one()
        some = self.random.sample(range(a.ndim), self.random.randint(0, a.ndim))
        options: Any = {"axis": tuple(some), "keepdims": self.random.random() < 0.5}
        return self.random.choice([
            lambda a: np.sum(a, **options), lambda a: np.mean(a, **options, where=a < 9.0),
            lambda a: np.max(a, **options), lambda a: np.prod(a, **options),
            lambda a: np.var(a, **options), lambda a: np.min(a, **options, initial=0.3),
            lambda a: np.exp(a - a.max(-1, keepdims=True)) / 2.0,
        ]), k  # fmt: skip

    def taken(self) -> tuple[Any, ...]:
        k, a = self.one()
        n = len(a)
        places = self.rng.integers(-n, n, self.random.choice([(3,), (2, 2)]))
        return self.random.choice([
            lambda a: a[places], lambda a: a[np.argsort(a.ravel())[:3] % n],
            lambda a: a[..., ::-1][(np.abs(a.ravel()[:4]) * 2).astype(int) % n],
            lambda a: np.take_along_axis(a, np.argsort(np.sin(a), -1), -1), lambda a: a[None, -1],
        ]), k  # fmt: skip

    def written(self) -> tuple[Any, ...]:
        k, a = self.one()
        n, key = len(a), self.key(len(a))
        places, name = self.rng.integers(0, n, 3), self.random.choice(["add", "multiply", "max"])
        return self.random.choice([
            lambda a: updated(a, places, name, 0.7), lambda a: updated(a, key, "set", 2.0),
            lambda a: updated(a, np.argsort(a.ravel())[:2] % n, "add", a[0]),
            lambda a: updated(a, a > 0.3, "set", 0.5), lambda a: updated(a, key, "add", a[key]),
        ]), k  # fmt: skip

    def product(self) -> tuple[Any, ...]:
        return self.random.choice([
            lambda a, b: np.einsum("...i,...i->...", a, b), lambda a, b: a @ b, np.outer,
            lambda a, b: np.einsum("...i,ji->...j", a, b), lambda a, b: np.tensordot(a, b, 1),
            lambda a, _: np.swapaxes(a, -1, -2) @ a, lambda a, b: np.einsum("i...,i->...", a, b),
        ]), self.one()[0], self.one()[0]  # fmt: skip

    def ordered(self) -> tuple[Any, ...]:
        k, a = self.one()
        axis = self.random.randrange(-a.ndim, a.ndim)
        return self.random.choice([
            lambda a: np.sort(a, axis), lambda a: np.cumsum(a, axis), np.median,
            lambda a: np.cumprod(a, axis), lambda a: np.maximum.accumulate(a, axis), np.diff,
        ]), k  # fmt: skip

    def looped(self) -> tuple[Any, ...]:
        k, a = self.one()
        n = len(a)
        return self.random.choice([
            lambda a: loop(3, lambda k, c: np.sin(c + 0.1 * k) * np.tanh(a), a),
            lambda a: loop(n, lambda k, c: updated(c, k, "set", np.tanh(c[k - 1] + c[k])), a),
            lambda a: scan(lambda c, row: (np.tanh(c + row), c * row), a[0] * 0.5, a),
            lambda a: cond(np.sum(a) > 0.2, lambda: np.sin(a), lambda: 2.0 * a),
            lambda a: loop(2, lambda _, c: cond(np.sum(c) > 0, lambda: c * 0.5, lambda: c + a), a),
        ]), k  # fmt: skip

    def mapped(self) -> tuple[Any, ...]:
        return self.random.choice([
            lambda a: mapped(lambda row: np.tanh(row) * np.sum(row), a),
            lambda a: mapped(lambda row: np.cumsum(row.ravel())[::-1], a),
            lambda a: mapped(lambda row: loop(2, lambda _, c: np.sin(c) + row, row), a),
            lambda a: mapped(lambda row: np.sort(row.ravel()) ** 2, a),
        ]), self.one()[0]  # fmt: skip


def along(f: Callable[..., Any], inputs: list[np.ndarray], ways: list[np.ndarray]) -> Any:
    """The derivative along a direction, by Richardson's extrapolation of central differences."""

    def difference(h: float) -> Any:
        up, down = (f(*[x + s * h * d for x, d in zip(inputs, ways, strict=True)]) for s in (1, -1))
        return (up - down) / (2 * h)

    return (4 * difference(1e-4) - difference(2e-4)) / 3
