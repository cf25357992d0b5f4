"""Where the library's functions are tested, and how far they may be from the true values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from symgrad.expr import ops
from symgrad.expr.node import CONST, INPUT, Graph, Op, reachable
from symgrad.mathlib.define import Function, functions

Array = Any
FUNCTIONS: Final = functions("accurate")
TINY: Final = float(np.finfo(np.float32).tiny)

BOUNDS: Final[dict[str, tuple[float, float]]] = {
    "minimum": (0.0, 0.0), "maximum": (0.0, 0.0), "sign": (0.0, 0.0),
    "fmod": (0.0, 0.0), "remainder": (0.51, 0.51),
    "pow": (3.1, 4.5), "cbrt": (0.75, 0.75), "hypot": (1.2, 1.2),
    "expm1": (1.05, 65.0), "log1p": (2.2, 5.6), "log10": (1.95, 4.9), "exp_neg_square": (2.1, 100),
    "sinh": (1.65, 65.0), "cosh": (1.7, 65.0), "tanh": (1.4, 2.6),
    "asinh": (2.2, 3.3), "acosh": (1.75, 2.6), "atanh": (1.35, 2.4),
    "asin": (2.4, 2.4), "acos": (1.2, 1.3), "atan": (2.05, 2.1), "atan2": (2.05, 2.1),
    "erf": (1.4, 1.6), "erfc": (3.9, 100.0),
}  # fmt: skip
"""Largest error measured, in ULP, a little rounded up: with exp, log, .. correctly rounded, and on
llvmpipe and SwiftShader with theirs, whose exp is off by 62 ULP at 80: hence the large figures."""

EXACT: Final[dict[Op, Callable[[Array], Array]]] = {
    ops.exp: np.exp, ops.exp2: np.exp2, ops.log: np.log, ops.log2: np.log2, ops.sqrt: np.sqrt,
}  # fmt: skip

EDGES: Final = np.array(
    [
        np.nan,
        np.inf,
        3.4e38,
        1e30,
        100.0,
        3.0,
        2.5,
        2.0,
        1.0,
        0.5,
        1e-4,
        1e-30,
        0.0,
        -np.inf,
        -3.4e38,
        -1e30,
        -100.0,
        -3.0,
        -2.5,
        -2.0,
        -1.0,
        -0.5,
        -1e-4,
        -1e-30,
        -0.0,
    ],
    np.float32,
)


def evaluate(function: Function, *arguments: Array) -> Array:
    """The function in float32, with the built-ins of `EXACT` correctly rounded."""
    graph = function.graph
    values: dict[int, Array] = dict(zip(function.arguments, arguments, strict=True))
    with np.errstate(all="ignore"):
        for i in reachable(graph, [function.root]):
            node = graph.nodes[i]
            if node[0].arity:
                values[i] = _apply(node[0], [values[a] for a in node[1:]])
            elif node[0] is not INPUT:
                kind = np.float32 if node[0] is CONST else {"u": np.uint32}.get(node[0].result, int)
                values[i] = kind(Graph.leaf_value(node))
    return np.broadcast_to(values[function.root], arguments[0].shape)


def _apply(op: Op, arguments: list[Array]) -> Array:
    if op in FUNCTIONS:
        return evaluate(FUNCTIONS[op], *arguments)
    if op in EXACT:
        return np.float32(EXACT[op](np.float64(arguments[0])))
    return op.reference(*arguments)


def truth(name: str, *arguments: Array) -> Array:
    """The true values, in double."""
    with np.errstate(all="ignore"):
        return ops.TABLE[name].reference(*[np.float64(a) for a in arguments])


def ulps(got: Array, want: Array) -> Array:
    """The errors in units of the last place of the true values, 0 where these are not normal."""
    with np.errstate(all="ignore"):
        nearest = np.float32(want)
        error = np.abs(np.float64(got) - want) / np.spacing(np.maximum(np.abs(nearest), TINY))
    normal = (np.abs(want) >= TINY) & np.isfinite(nearest)
    same = np.where(np.isnan(want), np.isnan(got), got == nearest)
    unbounded = ~np.isfinite(nearest) & ~same
    return np.where(unbounded, np.inf, np.where(normal, error, 0.0))


def grid(name: str, count: int = 20_000) -> tuple[Array, ...]:
    """Arguments for a function: log-spaced, near 1, and where its exponentials matter."""
    seed = np.random.default_rng(1)
    arguments = [_spread(seed, count) for _ in FUNCTIONS[ops.TABLE[name]].arguments]
    if name == "pow":
        return _bases_and_exponents(seed, arguments[0])
    if len(arguments) == 2:
        near = np.exp(seed.uniform(-9, 9, count)) * seed.choice([-1, 1], count)
        with np.errstate(over="ignore", under="ignore"):
            arguments[1][:count] = np.float32(arguments[0][:count] * near)
    return tuple(np.where(np.abs(a) < TINY, np.float32(1), a) for a in arguments)


def _spread(seed: np.random.Generator, count: int) -> Array:
    parts = [
        np.exp(seed.uniform(np.log(1.2e-38), np.log(3.4e38), count)),
        np.exp(seed.uniform(np.log(1e-6), np.log(110.0), 2 * count)),
        seed.uniform(0.0, 10.0, 2 * count),
        1.0 + seed.uniform(-1.0, 1.0, count) * 2.0 ** seed.uniform(-24.0, 0.0, count),
    ]
    return np.float32(np.concatenate(parts) * seed.choice([-1, 1], 6 * count))


def _bases_and_exponents(seed: np.random.Generator, bases: Array) -> tuple[Array, Array]:
    """Powers over the whole range of float32, and whole exponents of negative bases."""
    wanted = seed.uniform(-126.0, 128.0, len(bases))
    with np.errstate(divide="ignore"):
        exponents = np.clip(wanted / np.log2(np.abs(np.float64(bases))), -1e30, 1e30)
    negative = seed.random(len(bases)) < 0.2
    bases = np.where(negative, -np.abs(bases), np.abs(bases))
    return bases, np.float32(np.where(negative, np.round(exponents), exponents))
