"""GradBench's evals as functions of whole arrays beside JAX, on the CPU in float64.

The text is one, with NumPy's names as ``np``, for symgrad and for JAX, whose functions are compiled
by `jit`, and whose arguments are its arrays already. First calls are in processes of their own,
where the library has compiled another function before, without a cache of compiled code; making
the arrays is a part of them.

    python benchmarks/gradbench/arrays.py [gmm ba ...]
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ |= {"JAX_PLATFORMS": "cpu", "SYMGRAD_CACHE": ""}

from measure import bar, in_fresh_process, interleaved, once, report

import symgrad as sg
from symgrad.expr.tracers.tree import flatten

ROUNDS = 15
Arrays = list[numpy.ndarray]


@dataclass(frozen=True)
class Library:
    """The names that symgrad and JAX have by themselves, beside NumPy's."""

    np: Any
    fori_loop: Any
    scan: Any
    vmap: Any
    grad: Any
    jvp: Any
    forward: Any
    """Jacobians by tangents."""
    reverse: Any
    """Jacobians by cotangents."""
    slopes: Callable[[Any, tuple[int, ...]], Any]
    """A function that gives a value and its gradients by some arguments, compiled."""
    compiled: Callable[[Any], Any]
    call: Callable[[Any, Arrays], Callable[[], Any]]
    """The call that is measured."""


def own() -> Library:
    """symgrad."""
    how: Any = {"device": "cpu", "dtype": "float64"}
    return Library(
        numpy, sg.fori_loop, sg.scan, sg.vmap, sg.grad, sg.jvp, sg.jacobian, sg.jacobian,
        lambda f, wrt: sg.value_and_grad(f, wrt, **how),
        lambda f: sg.jit(f, **how),
        lambda run, arrays: lambda: run(*arrays),
    )  # fmt: skip


def peer() -> Library:
    """JAX."""
    jax: Any = importlib.import_module("jax")
    jax.config.update("jax_enable_x64", True)

    def call(run: Any, arrays: Arrays) -> Callable[[], Any]:
        placed = jax.device_put(arrays)
        return lambda: jax.block_until_ready(run(*placed))

    return Library(
        jax.numpy, jax.lax.fori_loop, jax.lax.scan, jax.vmap, jax.grad, jax.jvp, jax.jacfwd,
        jax.jacrev, lambda f, wrt: jax.jit(jax.value_and_grad(f, wrt)), jax.jit, call,
    )  # fmt: skip


LIBRARIES: dict[str, Callable[[], Library]] = {"symgrad": own, "JAX": peer}


def normal(*shape: int) -> numpy.ndarray:
    """Normal numbers, the same at each call."""
    return numpy.random.default_rng(0).normal(size=shape)


# --- lse, llsq, ode -------------------------------------------------------------------------------

Function = Callable[..., Any]


def lse(lib: Library) -> Function:
    """The logarithm of a sum of exponentials."""
    np = lib.np

    def value(v: Any) -> Any:
        largest = np.max(v)
        return largest + np.log(np.sum(np.exp(v - largest)))

    return value


def llsq(lib: Library) -> Function:
    """A polynomial's misfit to the signs of 10,000 numbers, by powers.

    The powers are NumPy's numbers, which neither library computes again at each call.
    """
    np, n = lib.np, 10_000
    t = -1 + numpy.arange(n) * 2 / (n - 1)

    def misfit(p: Any) -> Any:
        powers = t[:, None] ** numpy.arange(len(p))
        return 0.5 * np.sum((np.sign(t) - powers @ p) ** 2)

    return misfit


def rates(n: int) -> Arrays:
    """The parameters of n equations."""
    return [abs(normal(n))]


def ode(lib: Library, steps: int) -> Function:
    """The end of y' = p * (1, y_0, y_1, ...), by Runge and Kutta's method."""
    np, fori_loop, h = lib.np, lib.fori_loop, 2.0 / steps

    def end(p: Any) -> Any:
        def slope(y: Any) -> Any:
            return np.concatenate([p[:1], p[1:] * y[:-1]])

        def step(_: Any, y: Any) -> Any:
            a = slope(y)
            b = slope(y + h / 2 * a)
            c = slope(y + h / 2 * b)
            return y + h / 6 * (a + 2 * b + 2 * c + slope(y + h * c))

        return fori_loop(0, steps, step, np.zeros(p.shape))[-1]

    return end


# --- gmm ------------------------------------------------------------------------------------------


def gmm(lib: Library, d: int) -> Function:
    """The logarithm of the posterior of a mixture of Gaussians, without its constant."""
    np, total = lib.np, lse(lib)
    columns, rows = numpy.triu_indices(d, 1)

    def posterior(alpha: Any, mu: Any, q: Any, lower: Any, data: Any) -> Any:
        scale = np.exp(q)
        factor = (np.eye(d) * scale[:, None, :]).at[:, rows, columns].set(lower)
        apart = np.einsum("kij,nkj->nki", factor, data[:, None, :] - mu[None])
        logs = alpha + np.sum(q, 1) - 0.5 * np.sum(apart**2, -1)
        largest = np.max(logs, 1)
        shares = np.log(np.sum(np.exp(logs - largest[:, None]), 1))
        prior = 0.5 * (np.sum(scale**2) + np.sum(lower**2)) - np.sum(q)
        return np.sum(largest + shares) - len(data) * total(alpha) + prior

    return posterior


def mixture(n: int, d: int, k: int) -> Arrays:
    """The parameters and the points of a mixture."""
    r = numpy.random.default_rng(0)
    parts = r.normal(size=k), r.random((k, d)), r.normal(size=(k, d)) * 0.3
    return [*parts, r.normal(size=(k, d * (d - 1) // 2)) * 0.3, r.normal(size=(n, d))]


# --- lstm, kmeans ---------------------------------------------------------------------------------


def lstm(lib: Library) -> Function:
    """The loss of a recurrent network with diagonal weights."""
    np, scan = lib.np, lib.scan

    def sigmoid(v: Any) -> Any:
        return 1 / (1 + np.exp(-v))

    def loss(main: Any, extra: Any, state: Any, sequence: Any) -> Any:
        layers, width = len(main) // 2, sequence.shape[1]
        parts = main.reshape(2 * layers, 4, width)

        def step(carry: Any, row: Any) -> Any:
            memory, (now, wanted) = list(carry), row
            x = now * extra[0]
            for k in range(0, 2 * layers, 2):
                (w, b), hidden, cell = parts[k : k + 2], memory[k], memory[k + 1]
                forget, leave = sigmoid(x * w[0] + b[0]), sigmoid(x * w[2] + b[2])
                enter = sigmoid(hidden * w[1] + b[1]) * np.tanh(hidden * w[3] + b[3])
                cell = cell * forget + enter
                x = leave * np.tanh(cell)
                memory[k : k + 2] = x, cell
            said = x * extra[1] + extra[2]
            gain = wanted * (said - np.log(np.sum(np.exp(said)) + 2))
            return tuple(memory), np.sum(gain)

        rows = sequence[:-1], sequence[1:]
        _, gains = scan(step, tuple(state[k] for k in range(2 * layers)), rows)
        return -np.sum(gains) / (len(sequence) - 1) / width

    return loss


def characters(layers: int, count: int, width: int = 14) -> Arrays:
    """The weights of a network, its state, and a sequence."""
    r = numpy.random.default_rng(0)
    main, extra = r.normal(size=(2 * layers, 4 * width)) * 0.3, r.normal(size=(3, width))
    state = r.normal(size=(2 * layers, width)) * 0.3
    return [main, extra, state, (r.random((count, width)) < 0.3) * 1.0]


def kmeans(lib: Library) -> Function:
    """Newton's direction of centres: the Hessian is diagonal."""
    np, grad, jvp = lib.np, lib.grad, lib.jvp

    def direction(centres: Any, points: Any) -> Any:
        def cost(c: Any) -> Any:
            return np.sum(np.min(np.sum((points[:, None] - c[None]) ** 2, -1), 1))

        slope, curvature = jvp(grad(cost), (centres,), (np.ones(centres.shape),))
        return slope / curvature

    return direction


# --- ba -------------------------------------------------------------------------------------------


def turned(lib: Library) -> Function:
    """Points turned around an axis by its length, as Rodrigues has it."""
    np = lib.np

    def rodrigues(axis: Any, points: Any) -> Any:
        square = np.sum(axis * axis)
        angle = np.sqrt(np.where(square > 0, square, 1.0))
        w = axis / angle
        along = np.sum(points * w, -1, keepdims=True) * w * (1 - np.cos(angle))
        around = points * np.cos(angle) + np.cross(w, points) * np.sin(angle) + along
        return np.where(square > 0, around, points + np.cross(axis, points))

    return rodrigues


def ba(lib: Library) -> Function:
    """The blocks of the Jacobian of bundle adjustment."""
    np, vmap, reverse, rodrigues = lib.np, lib.vmap, lib.reverse, turned(lib)

    def error(camera: Any, point: Any, weight: Any, seen: Any) -> Any:
        x = rodrigues(camera[:3], point - camera[3:6])
        flat = x[:2] / x[2]
        square = np.sum(flat * flat)
        bent = flat * (1 + camera[9] * square + camera[10] * square * square)
        return weight * (bent * camera[6] + camera[7:9] - seen)

    def jacobian(cameras: Any, points: Any, weights: Any, seen: Any, i: Any, j: Any) -> Any:
        blocks = vmap(reverse(error, argnums=(0, 1, 2)))(cameras[i], points[j], weights, seen)
        return blocks, -2 * weights

    return jacobian


def scene(n: int, m: int, p: int) -> Arrays:
    """Cameras, points, weights, and observations of points by cameras."""
    r = numpy.random.default_rng(0)
    places, focus, rest = r.normal(size=(n, 6)) * 0.3, 1 + r.random((n, 1)), r.normal(size=(n, 4))
    cameras = numpy.concatenate([places, focus, rest * 0.05], 1)
    k = numpy.arange(p, dtype=numpy.int32)
    points = r.normal(size=(m, 3)) + numpy.array([0, 0, 5])
    return [cameras, points, r.random(p), r.normal(size=(p, 2)), k % n, k % m]


# --- ht -------------------------------------------------------------------------------------------

BONES, CORNERS = 22, 544
PARENTS = [-1, 0, *(1 if k % 4 == 2 else k - 1 for k in range(2, BONES))]


def ht(lib: Library, count: int, touched: bool) -> Function:
    """The Jacobian of a hand's residuals at so many points: corners, or places in triangles."""
    np, forward, rodrigues = lib.np, lib.forward, turned(lib)
    r = numpy.random.default_rng(0)
    base, inverse = numpy.tile(numpy.eye(4), (2, BONES, 1, 1))
    base[:, :3, 3], inverse[:, :3, 3] = r.normal(size=(2, BONES, 3))
    places = numpy.concatenate([r.normal(size=(CORNERS, 3)), numpy.ones((CORNERS, 1))], 1)
    weights = r.random((CORNERS, BONES))
    weights /= weights.sum(1, keepdims=True)
    corners, seen = r.integers(0, CORNERS, (3, count)), r.normal(size=(count, 3))
    axes, last = numpy.eye(3), numpy.array([[0.0, 0, 0, 1]])

    def rotation(a: int, b: int, angle: Any) -> Any:
        across = numpy.outer(axes[b], axes[a]) - numpy.outer(axes[a], axes[b])
        plane = numpy.diag(axes[a] + axes[b])
        return np.cos(angle) * plane + np.sin(angle) * across + (axes - plane)

    def skin(theta: Any) -> Any:
        world, angle = [], 6
        for k in range(BONES):
            own = base[k]
            if k >= 2 and (k - 2) % 4 < 3:
                turn, angle = rotation(1, 2, theta[angle]), angle + 1
                if (k - 2) % 4 == 0:
                    turn, angle = rotation(0, 1, theta[angle]) @ turn, angle + 1
                upper = np.concatenate([own[:3, :3] @ turn, own[:3, 3:]], 1)
                own = np.concatenate([upper, last], 0)
            world.append(own if PARENTS[k] < 0 else world[PARENTS[k]] @ own)
        moves = np.stack([w @ inverse[k] for k, w in enumerate(world)])
        moved = np.einsum("bij,vj->vbi", moves[:, :3], places)
        return rodrigues(theta[:3], np.sum(weights[:, :, None] * moved, 1)) + theta[3:6]

    def simple(theta: Any) -> Any:
        return forward(lambda t: seen - skin(t)[corners[0]])(theta)

    def complicated(theta: Any, us: Any) -> Any:
        u, v = us[:, :1], us[:, 1:]

        def residual(t: Any) -> Any:
            moved = skin(t)
            a, b, c = moved[corners[0]], moved[corners[1]], moved[corners[2]]
            return seen - (u * a + v * b + (1 - u - v) * c)

        return forward(residual)(theta)

    return complicated if touched else simple


def pose(count: int, touched: bool) -> Arrays:
    """The angles of a hand, and places in triangles."""
    r = numpy.random.default_rng(1)
    theta, us = r.normal(size=26) * 0.3 + 0.1, r.random((count, 2)) * 0.5
    return [theta, us] if touched else [theta]


# --- what is measured -----------------------------------------------------------------------------

Case = tuple[Callable[[Library], Function], Callable[[], Arrays], tuple[int, ...]]

CASES: dict[str, Case] = {
    **{f"lse n {n:,}": (lse, partial(lambda n: [normal(n)], n), (0,)) for n in (1000, 10**6)},
    **{f"llsq m {m}": (llsq, partial(lambda m: [normal(m)], m), (0,)) for m in (16, 128)},
    **{
        f"ode n {n:,} s {s:,}": (partial(ode, steps=s), partial(rates, n), (0,))
        for n, s in ((300, 1000), (1000, 1000), (10_000, 100))
    },
    **{
        f"gmm n 1,000 d {d} k {k}": (partial(gmm, d=d), partial(mixture, 1000, d, k), (0, 1, 2, 3))
        for d, k in ((2, 5), (10, 25), (32, 25))
    },
    **{
        f"lstm {layers} layers, {n:,}": (lstm, partial(characters, layers, n), (0, 1))
        for layers, n in ((2, 1024), (4, 4096))
    },
    **{
        f"kmeans n {n:,} k {k} d {d}": (
            kmeans, partial(lambda n, k, d: [normal(k, d), normal(n, d) + 0.1], n, k, d), (),
        )
        for n, k, d in ((1000, 10, 4), (10_000, 50, 8))
    },
    "ba 31,843 observations": (ba, partial(scene, 49, 7776, 31_843), ()),
    **{
        f"ht {'complicated' if touched else 'simple'} {n:,}": (
            partial(ht, count=n, touched=touched), partial(pose, n, touched), (),
        )
        for touched in (False, True) for n in (200, 2000)
    },
}  # fmt: skip
"""Functions, their arrays, and which of these gradients are by; none of what is a derivative."""


def work(maker: str, name: str) -> Callable[[], Any]:
    """The call of a case."""
    make, arrays, wrt = CASES[name]
    lib = LIBRARIES[maker]()
    f = make(lib)
    return lib.call(lib.slopes(f, wrt) if wrt else lib.compiled(f), arrays())


def first(maker: str, name: str) -> None:
    """Print the seconds of a first call, on the wall and of all cores, as JSON."""
    lib = LIBRARIES[maker]()
    lib.call(lib.slopes(lse(lib), (0,)), [normal(64, 64)])()
    took = once(lambda: work(maker, name)())[1]
    print(json.dumps([took.wall, took.cpu]))


def main(wanted: Sequence[str]) -> None:
    """Measure the cases of some evals, or all: peers in turns."""
    table, bars = [], []
    for name in (n for n in CASES if not wanted or n.split()[0] in wanted):
        works = {maker: work(maker, name) for maker in LIBRARIES}
        results = [[numpy.asarray(a) for a in flatten(call())[0]] for call in works.values()]
        for a, b in zip(*results, strict=True):
            numpy.testing.assert_allclose(
                a, b, rtol=1e-8, atol=1e-8 * max(1.0, float(numpy.max(abs(b))))
            )
        took = {maker: once(call)[1] for maker, call in works.items()}
        often = {maker: max(1, int(0.01 / t.wall)) for maker, t in took.items()}
        steady = interleaved(works, ROUNDS, often)
        begun = {
            m: numpy.min([in_fresh_process(__file__, "--first", m, name) for _ in range(2)], axis=0)
            for m in LIBRARIES
        }
        ratios = {
            "steady": steady["symgrad"].wall / steady["JAX"].wall,
            "steady, CPU time": steady["symgrad"].cpu / steady["JAX"].cpu,
            "first call": begun["symgrad"][0] / begun["JAX"][0],
            "first call, CPU time": begun["symgrad"][1] / begun["JAX"][1],
        }
        times = {f"ms: {m}": 1e3 * s.wall for m, s in steady.items()}
        table.append(
            {"case": name} | times | {f"first, s: {m}": s[0] for m, s in begun.items()} | ratios
        )
        bars += [bar(f"{what} over JAX's: {name}", r, 1.0) for what, r in ratios.items()]
        print(json.dumps(table[-1]), flush=True)
    report("gradbench_arrays", table, bars, keep=not wanted)


if __name__ == "__main__":
    first(*sys.argv[2:]) if sys.argv[1:2] == ["--first"] else main(sys.argv[1:])
