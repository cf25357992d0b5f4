"""Functions of arrays drawn at random, that NumPy, JAX and symgrad can all call."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

import symgrad as sg

Function = Callable[..., Any]
Step = tuple[str, Function, tuple[int, ...]]

UNARY: dict[str, Function] = {
    "tanh": lambda xp, a: xp.tanh(a),
    "sin": lambda xp, a: xp.sin(a),
    "exp": lambda xp, a: xp.exp(-(a**2)),
    "square": lambda xp, a: a * a,
    "sqrt": lambda xp, a: xp.sqrt(a * a + 1.0),
    "abs": lambda xp, a: xp.abs(a),
    "relu": lambda xp, a: xp.maximum(a, 0.1),
    "where": lambda xp, a: xp.where(a > 0.2, a, xp.sin(a)),
    "affine": lambda xp, a: 0.5 - 2.0 * a,
}
BINARY: dict[str, Function] = {
    "add": lambda xp, a, b: a + b,
    "sub": lambda xp, a, b: a - b,
    "mul": lambda xp, a, b: a * b,
    "div": lambda xp, a, b: a / (1.5 + xp.sin(b)),
    "max": lambda xp, a, b: xp.maximum(a, b),
    "less": lambda xp, a, b: xp.where(a < b, a, 2.0 * b),
}


@dataclass(frozen=True)
class DrawnFunction:
    """A function of arrays of these shapes, as steps that each make an array of earlier ones."""

    shapes: tuple[tuple[int, ...], ...]
    steps: tuple[Step, ...]

    def __call__(self, xp: Any, *arrays: Any) -> Any:
        """A scalar, by the functions of NumPy or JAX."""
        values = list(arrays)
        for _, function, places in self.steps:
            values.append(function(xp, *[values[k] for k in places]))
        return sum(xp.sum(xp.tanh(v)) for v in values[-3:])

    def __repr__(self) -> str:
        lines = [f"v{k} = array{s}" for k, s in enumerate(self.shapes)]
        lines += [
            f"v{k} = {name}({', '.join(f'v{p}' for p in places)})"
            for k, (name, _, places) in enumerate(self.steps, len(self.shapes))
        ]
        return "\n".join(lines)


def drawn(seed: int, length: int = 8) -> DrawnFunction:
    """The function of this seed."""
    rng = np.random.default_rng(seed)
    sizes = [int(n) for n in rng.choice([1, 2, 3, 4, 5, 6], 3, replace=False)]
    shapes = [tuple(rng.choice(sizes, rng.integers(1, 4)).tolist()) for _ in range(3)]
    known, steps = list(shapes), list[Step]()
    while len(steps) < length:
        step = _step(rng, known)
        if step is None:
            continue
        name, function, places = step
        shape = np.shape(function(np, *[np.ones(known[p]) for p in places]))
        if prod(shape) > 400:
            continue
        known.append(shape)
        steps.append((name, function, places))
    return DrawnFunction(tuple(shapes), tuple(steps))


def _step(rng: np.random.Generator, shapes: Sequence[tuple[int, ...]]) -> Step | None:
    kind = rng.choice(["unary", "binary", "move", "reduce", "product", "read", "loop"])
    a = int(rng.integers(max(0, len(shapes) - 4), len(shapes)))
    shape = shapes[a]
    if kind == "unary":
        name = str(rng.choice(list(UNARY)))
        return name, UNARY[name], (a,)
    if kind == "binary":
        partners = [k for k, s in enumerate(shapes) if _broadcasts(s, shape)]
        name = str(rng.choice(list(BINARY)))
        return name, BINARY[name], (a, int(rng.choice(partners)))
    if not shape:
        return None
    if kind == "product":
        partners = [k for k, s in enumerate(shapes) if s and s[max(0, len(s) - 2)] == shape[-1]]
        partners = [k for k in partners if _broadcasts(shapes[k][:-2], shape[:-2])]
        if not partners:
            return None
        return "matmul", lambda xp, x, y: xp.matmul(x, y), (a, int(rng.choice(partners)))
    make = {"move": _move, "reduce": _reduction, "read": _read, "loop": _loop}[kind]
    name, function = make(rng, shape)
    return name, function, (a,)


def _broadcasts(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return all(m == n or 1 in (m, n) for m, n in zip(reversed(a), reversed(b), strict=False))


def _move(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[str, Function]:
    axis = int(rng.integers(len(shape)))
    order = [int(k) for k in rng.permutation(len(shape))]
    size, shift = prod(shape), int(rng.integers(-3, 4))
    flat = [n for n in range(1, size + 1) if size % n == 0]
    rows = int(rng.choice(flat)) if flat else 1
    last = (slice(None),) * axis
    widths = [(k == axis, 2 * (k == axis)) for k in range(len(shape))]
    choices: list[tuple[str, Function]] = [
        (f"transpose{order}", lambda xp, x: xp.transpose(x, order)),
        (f"reshape{rows}", lambda xp, x: xp.reshape(x, (rows, -1))),
        (f"flip{axis}", lambda xp, x: xp.flip(x, axis)),
        (f"roll{shift},{axis}", lambda xp, x: xp.roll(x, shift, axis)),
        (f"pad{axis}", lambda xp, x: xp.pad(x, widths)),
        (f"stack{axis}", lambda xp, x: xp.stack([x, 2.0 * x], axis)),
        (f"join{axis}", lambda xp, x: xp.concatenate([x[(*last, slice(1, None))], x], axis)),
        ("new", lambda xp, x: x[..., None, :]),
    ]
    return choices[rng.integers(len(choices))]


def _reduction(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[str, Function]:
    axis, kept = int(rng.integers(len(shape))), bool(rng.integers(2))
    names = ["sum", "mean", "max", "min", "var", "prod", "cumsum"]
    name = str(rng.choice(names))
    if name == "cumsum":
        return f"cumsum{axis}", lambda xp, x: xp.cumsum(x, axis)
    return f"{name}{axis}{kept}", lambda xp, x: getattr(xp, name)(x, axis=axis, keepdims=kept)


def _read(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[str, Function]:
    axis = int(rng.integers(len(shape)))
    n = shape[axis]
    step = int(rng.choice([-2, -1, 2, 3]))
    at = rng.integers(0, n, size=int(rng.integers(1, 5)))
    lead = (slice(None),) * axis
    k = int(rng.integers(n))
    choices: list[tuple[str, Function]] = [
        (f"[{axis}: ::{step}]", lambda xp, x: x[(*lead, slice(None, None, step))]),
        (f"[{axis}: {at}]", lambda xp, x: x[(*lead, at)]),
        (f"[{axis}: {k}]", lambda xp, x: x[(*lead, k)]),
        (f"[{axis}: {k}:]", lambda xp, x: x[(*lead, slice(k, None))]),
    ]
    return choices[rng.integers(len(choices))]


def _loop(rng: np.random.Generator, shape: tuple[int, ...]) -> tuple[str, Function]:
    axis, count = int(rng.integers(len(shape))), int(rng.integers(0, 5))
    reverse = bool(rng.integers(2))

    def carried(xp: Any, x: Any) -> Any:
        step = lambda k, c: xp.sin(c * xp.tanh(x)) + 0.1 * k * c  # noqa: E731
        return _loops(xp).fori_loop(1, count, step, x)

    def scanned(xp: Any, x: Any) -> Any:
        rows = xp.moveaxis(x, axis, 0)
        step = lambda c, row: (xp.tanh(c + row), c * xp.tanh(row))  # noqa: E731
        end, ys = _loops(xp).scan(step, rows[0] * 0.5, rows, reverse=reverse)
        return ys + end

    choices: list[tuple[str, Function]] = [
        (f"loop{count}", carried),
        (f"scan{axis}{reverse}", scanned),
    ]
    return choices[rng.integers(len(choices))]


def _loops(xp: Any) -> Any:
    """The functions of loops beside NumPy's, or JAX's, functions."""
    return sg if xp is np else importlib.import_module("jax").lax
