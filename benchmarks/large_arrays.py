"""Functions of large arrays on a GPU, value and all gradients, beside JAX: first and later calls.

Arrays stay on the device, products are in float32 without TF32, and a time is that of a call among
ten in a row, until the last is done, after ten others: a GPU that has worked for another library
takes its time to change. JAX convolves by its own operation, symgrad by windows and
``np.einsum``; all else is the same text. "MLP step" is a step of training: gradients are clipped to
a norm of 1, and AdamW moves the parameters, by `sg.adamw_update` and by JAX's operations.

    python benchmarks/large_arrays.py [--device gpu] [--small] [--rounds 8]
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import itertools
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from measure import bar, once, report

import symgrad as sg

CALLS = 10
DRAW = np.random.default_rng(0)
LIMITS = {
    "tanh squares": 0.61, "standardised columns": 1.0, "tanh(A @ x)": 0.94, "GPT block": 1.19,
    "ResNet block": 1.35, "pairs": 0.56, "Gaussian process": 1.39, "Sinkhorn": 0.86,
}  # fmt: skip
"""The times that are asked for, over JAX's on an H200 when they were."""

STEP_MILLISECONDS = 1.5
"""The time that is asked for a step of training, on an H200."""

RATE, DECAY = 1e-3, 1e-2
"""How fast AdamW learns, and how weights decay."""

Function = Callable[..., Any]


class Case(NamedTuple):
    """A function, its arguments, and which of them there are gradients for, or are ``trained``."""

    function: Function
    arrays: tuple[np.ndarray, ...]
    argnums: tuple[int, ...]
    trained: bool = False


class Library(NamedTuple):
    """The functions of symgrad or of JAX."""

    np: Any
    solve_triangular: Any
    convolved: Any


def drawn(*shape: int, scale: float = 1.0) -> np.ndarray:
    """Normal numbers in float32."""
    return (scale * DRAW.normal(size=shape)).astype(np.float32)


def standardised(lib: Library, a: Any) -> Any:
    """A power of columns without their means and spreads."""
    return lib.np.sum(((a - a.mean(0)) ** 2 / (a.var(0) + 1e-5)) ** 1.5)


def layer_norm(xp: Any, x: Any, gain: Any, bias: Any) -> Any:
    """Rows without their means and spreads."""
    c = x - x.mean(-1, keepdims=True)
    return c / xp.sqrt((c * c).mean(-1, keepdims=True) + 1e-5) * gain + bias


def gelu(xp: Any, x: Any) -> Any:
    """The activation of GPT-2."""
    return 0.5 * x * (1 + xp.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def block(heads: int) -> Function:
    """A block of a causal transformer, with so many heads of attention."""

    def loss(lib: Library, x: Any, mask: Any, *p: Any) -> Any:
        xp = lib.np
        g1, b1, wq, bq, wo, bo, g2, b2, w1, c1, w2, c2 = p
        batch, length, width = x.shape
        size = width // heads
        joined = layer_norm(xp, x, g1, b1) @ wq + bq
        joined = joined.reshape(batch, length, 3, heads, size)
        q, k, v = (joined[:, :, n].swapaxes(1, 2) for n in range(3))
        scores = q @ k.swapaxes(-1, -2) / np.float32(size**0.5) + mask
        e = xp.exp(scores - scores.max(-1, keepdims=True))
        o = (e / e.sum(-1, keepdims=True)) @ v
        x = x + o.swapaxes(1, 2).reshape(batch, length, width) @ wo + bo
        x = x + gelu(xp, layer_norm(xp, x, g2, b2) @ w1 + c1) @ w2 + c2
        return (x * x).mean()

    return loss


def convolved(x: Any, w: Any) -> Any:
    """A 3 x 3 convolution that keeps the size, of channels by filters."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))  # pyright: ignore[reportCallIssue, reportArgumentType]
    return np.einsum("bchwij,ocij->bohw", windows, w)


def normalised(xp: Any, x: Any, gain: Any, bias: Any) -> Any:
    """Channels without their means and spreads over a batch."""
    c = x - x.mean((0, 2, 3), keepdims=True)
    spread = xp.sqrt((c**2).mean((0, 2, 3), keepdims=True) + 1e-5)
    return c / spread * gain[:, None, None] + bias[:, None, None]


def residual_block(
    lib: Library, x: Any, w1: Any, g1: Any, b1: Any, w2: Any, g2: Any, b2: Any
) -> Any:
    """Two convolutions with norms, and what they are added to."""
    xp = lib.np
    h = xp.maximum(normalised(xp, lib.convolved(x, w1), g1, b1), 0.0)
    out = xp.maximum(normalised(xp, lib.convolved(h, w2), g2, b2) + x, 0.0)
    return (out * out).mean()


def gaussian_process(lib: Library, p: Any, x: Any, y: Any) -> Any:
    """The negative logarithm of a likelihood, by a Cholesky factor."""
    xp = lib.np
    d = x[:, None] - x[None]
    k = xp.exp(p[0]) * xp.exp(-0.5 * d * d * xp.exp(p[1])) + xp.exp(p[2]) * xp.eye(len(x))
    factor = xp.linalg.cholesky(k)
    z = lib.solve_triangular(factor, y, lower=True)
    return 0.5 * xp.sum(z * z) + xp.sum(xp.log(xp.diagonal(factor)))


def pairs(lib: Library, x: Any) -> Any:
    """The sum of a Gaussian kernel over all pairs of points."""
    xp = lib.np
    return xp.sum(xp.exp(-xp.sum((x[:, None] - x[None]) ** 2, -1)))


def sinkhorn(count: int) -> Function:
    """The cost of a transport plan after some iterations, written out by Python."""

    def cost(lib: Library, c: Any, a: Any, b: Any) -> Any:
        xp = lib.np
        k = xp.exp(-c)
        u, v = a, b
        for _ in range(count):
            u = a / (k @ v)
            v = b / (k.T @ u)
        return xp.sum(u[:, None] * k * c * v[None])

    return cost


def perceptron(lib: Library, x: Any, y: Any, *p: Any) -> Any:
    """The cross entropy of three layers with labels that are rows of a unit matrix."""
    xp = lib.np
    w1, b1, w2, b2, w3, b3 = p
    h = xp.maximum(x @ w1 + b1, 0.0)
    h = xp.maximum(h @ w2 + b2, 0.0)
    s = h @ w3 + b3
    s = s - s.max(1, keepdims=True)
    return -xp.mean(xp.sum(y * (s - xp.log(xp.sum(xp.exp(s), 1, keepdims=True))), 1))


def cases(small: bool) -> dict[str, Callable[[], Case]]:
    """The functions, their arguments, and which of these there are gradients for."""

    def size(n: int, less: int) -> int:
        return less if small else n

    def transformer() -> Case:
        batch, length, width, heads = size(8, 2), size(512, 64), size(768, 96), size(12, 3)
        mask = np.triu(np.full((length, length), -1e9, np.float32), 1)
        s = width**-0.5
        norms = 1 + drawn(width, scale=0.1), drawn(width, scale=0.1)
        p = (
            *norms, drawn(width, 3 * width, scale=s), drawn(3 * width, scale=0.1),
            drawn(width, width, scale=s), drawn(width, scale=0.1),
            *norms, drawn(width, 4 * width, scale=s), drawn(4 * width, scale=0.1),
            drawn(4 * width, width, scale=s / 2), drawn(width, scale=0.1),
        )  # fmt: skip
        return Case(block(heads), (drawn(batch, length, width), mask, *p), (0, *range(2, 14)))

    def residual() -> Case:
        batch, channels, side = size(64, 4), size(64, 8), size(32, 16)

        def one() -> tuple[np.ndarray, ...]:
            weights = drawn(channels, channels, 3, 3, scale=(9 * channels) ** -0.5)
            return weights, 1 + drawn(channels, scale=0.1), drawn(channels, scale=0.1)

        arrays = drawn(batch, channels, side, side), *one(), *one()
        return Case(residual_block, arrays, tuple(range(7)))

    def process() -> Case:
        x = np.sort(DRAW.uniform(0, 10, size(1000, 200))).astype(np.float32)
        p = np.array([0.1, 1.0, -2.0], np.float32)
        return Case(gaussian_process, (p, x, np.sin(x)), (0,))

    def transport() -> Case:
        n = size(1000, 100)
        share = np.full(n, 1 / n, np.float32)
        return Case(sinkhorn(size(100, 10)), (np.abs(drawn(n, n)), share, share), (0,))

    def layers() -> Case:
        batch, sizes = size(4096, 128), [784, size(1024, 64), size(1024, 64), 10]
        ends = itertools.pairwise(sizes)
        p = ((drawn(a, b, scale=a**-0.5), drawn(b, scale=0.1)) for a, b in ends)
        y = np.eye(10, dtype=np.float32)[DRAW.integers(0, 10, batch)]
        arrays = drawn(batch, 784), y, *itertools.chain(*p)
        return Case(perceptron, arrays, tuple(range(2, 8)), trained=True)

    n, wide = size(8192, 512), size(10_000, 512)
    return {
        "tanh squares": lambda: Case(
            lambda lib, a: lib.np.sum(lib.np.tanh(a) ** 2), (drawn(wide, wide),), (0,),
        ),
        "standardised columns": lambda: Case(standardised, (drawn(n, n),), (0,)),
        "tanh(A @ x)": lambda: Case(
            lambda lib, a, x: lib.np.sum(lib.np.tanh(a @ x)), (drawn(n, n), drawn(n)), (0, 1),
        ),
        "MLP step": layers,
        "GPT block": transformer,
        "ResNet block": residual,
        "pairs": lambda: Case(pairs, (drawn(size(20_000, 1000), 3),), (0,)),
        "Gaussian process": process,
        "Sinkhorn": transport,
    }  # fmt: skip


def own(case: Case, device: Any) -> Callable[[], Any]:
    """The case by symgrad: a call, until it is done."""
    f, arrays, argnums, trained = case
    lib = Library(np, sg.linalg.solve_triangular, convolved)
    run = sg.value_and_grad(lambda *x: f(lib, *x), argnums, device=device)
    there = [sg.device_array(a, device) for a in arrays]
    update = sg.adamw_update(RATE, weight_decay=DECAY, max_norm=1.0, device=device)
    state = None

    def call() -> Any:
        nonlocal state
        value, slopes = run(*there)
        if trained:
            there[argnums[0] :], state = update.run(there[argnums[0] :], list(slopes), state)
        return value, slopes

    def calls(count: int = CALLS) -> Any:
        for _ in range(count - 1):
            call()
        value, slopes = call()
        return value.numpy(), [s.numpy() for s in slopes] if count == 1 else []

    return calls


def peer(case: Case, device: Any) -> Callable[[], Any]:
    """The case by JAX."""
    jax: Any = importlib.import_module("jax")
    jax.config.update("jax_default_matmul_precision", "highest")
    f, arrays, argnums, trained = case
    xp = jax.numpy

    def convolve(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, (1, 1), "SAME")

    solve = importlib.import_module("jax.scipy.linalg").solve_triangular
    lib = Library(xp, solve, convolve)
    gradient = jax.value_and_grad(lambda *x: f(lib, *x), argnums)
    there = [jax.device_put(a) for a in arrays]
    first = argnums[0]
    state = 0.0, *(([0 * p for p in there[first:]],) * 2 if trained else ())

    def moved(p: Any, m: Any, v: Any, done: Any) -> Any:
        step = m / (1 - 0.9**done) / (xp.sqrt(v / (1 - 0.999**done)) + 1e-8)
        return p - RATE * (step + DECAY * p)

    def step(data: Any, p: Any, state: Any) -> Any:
        value, slopes = gradient(*data, *p)
        scale = xp.minimum(1.0, 1.0 / xp.sqrt(sum(xp.sum(g * g) for g in slopes)))
        done, m, v = state
        m = [0.9 * a + 0.1 * scale * g for a, g in zip(m, slopes, strict=True)]
        v = [0.999 * a + 0.001 * (scale * g) ** 2 for a, g in zip(v, slopes, strict=True)]
        p = [moved(*parts, done + 1) for parts in zip(p, m, v, strict=True)]
        return (value, slopes), p, (done + 1, m, v)

    run = jax.jit(step if trained else gradient)

    def call() -> Any:
        nonlocal state
        if not trained:
            return run(*there)
        result, there[first:], state = run(there[:first], there[first:], state)
        return result

    def calls(count: int = CALLS) -> Any:
        for _ in range(count - 1):
            call()
        value, slopes = jax.block_until_ready(call())
        return np.asarray(value), [np.asarray(s) for s in slopes] if count == 1 else []

    return calls


def require_alike(name: str, results: dict[str, Any]) -> None:
    """Refuse to time what does not compute the same."""
    (value, slopes), *others = results.values()
    for other, more in others:
        np.testing.assert_allclose(value, other, rtol=1e-3, err_msg=name)
        for a, b in zip(slopes, more, strict=True):
            scale = np.abs(b).max() + 1e-30
            np.testing.assert_allclose(a / scale, b / scale, atol=2e-3, err_msg=name)


def main() -> None:
    """Measure every case, peers in turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="gpu")
    parser.add_argument("--small", action="store_true", help="sizes for a machine without a GPU")
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    makers = {"own": own} | ({"JAX": peer} if importlib.util.find_spec("jax") else {})
    rows, bars = [], []
    for name, make in cases(options.small).items():
        case = make()
        works, first, results = {}, {}, {}
        for maker, start in makers.items():
            works[maker] = start(case, options.device)
            begin = time.perf_counter()
            results[maker] = works[maker](1)
            first[maker] = time.perf_counter() - begin
        require_alike(name, results)
        require_alike(name, {maker: work() for maker, work in works.items()})
        seconds = dict.fromkeys(works, math.inf)
        for _ in range(options.rounds):
            for maker, work in works.items():
                work()
                seconds[maker] = min(seconds[maker], once(work)[1].wall)
        milliseconds = {m: 1e3 * s / CALLS for m, s in seconds.items()}
        rows.append(
            {"case": name}
            | {f"first, s: {m}": s for m, s in first.items()}
            | {f"a call, ms: {m}": ms for m, ms in milliseconds.items()}
        )
        if "JAX" in makers and not options.small:
            ratio = milliseconds["own"] / milliseconds["JAX"]
            if case.trained:
                bars.append(bar(f"a call, ms: {name}", milliseconds["own"], STEP_MILLISECONDS))
            else:
                bars.append(bar(f"a call over JAX's: {name}", ratio, LIMITS[name]))
            bars.append(bar(f"first call over JAX's: {name}", first["own"] / first["JAX"], 1.0))
    report("large_arrays", rows, bars, keep=not options.small)


if __name__ == "__main__":
    main()
