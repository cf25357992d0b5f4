"""Whole optimisations inside one kernel: Adam from many starts, and many fits of one model.

"The loop" is the compiled iteration alone, from states to states; "minimize_from" is what a user
calls, with the loss of every step. All in float32, in turns.

    python benchmarks/optimisers.py [--rounds 20] [--device cpu] [--starts 100000] [--fits 20000]
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
from measure import bar, interleaved, report

import symgrad as sg
from symgrad.backend import backend_of
from symgrad.kernel.shapes import NO_DATA, Iteration, RowData
from symgrad.optimize.states import Compiled
from symgrad.pipeline import Options
from symgrad.targets import choose

STEPS = 200
LIMIT = 30e-3
"""Seconds for 200 Adam steps from 100,000 starts, on two cores with AVX-512."""

Call = Callable[..., Any]


def rastrigin(v: Any) -> Any:
    """The sum of x**2 - 10 cos(2 pi x), and 10 n."""
    return sum(x * x - 10 * sg.cos(2 * np.pi * x) for x in v) + 10 * len(v)


def adam(s: Any) -> list[Any]:
    """A step of Adam on Rastrigin's function, by hand; the state is x, m, v, b1**t, b2**t, flag."""
    x, m, v, (b1, b2, flag) = s[:4], s[4:8], s[8:12], s[12:]
    g = 2 * x + 20 * np.pi * sg.sin(2 * np.pi * x)
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * (g * g)
    b1, b2 = 0.9 * b1, 0.999 * b2
    root = sg.sqrt(1 - b2)
    x = x - (0.01 * root / (1 - b1)) * m / (sg.sqrt(v) + 1e-8 * root)
    return [*x, *m, *v, b1, b2, flag]


def alone(loop: Any, state: Any, steps: int, device: Any, data: RowData = NO_DATA) -> Call:
    """The steps from states that are there, as the loop keeps them, which it copies."""
    if not choose(device).is_gpu:
        return lambda: loop.run(state, steps, data)
    resident = sg.device_array(state, device)
    return lambda: loop.run(resident, steps, data).wait()


def descents(count: int, device: Any) -> dict[str, Call]:
    """Adam from many starts: the loop alone, and as a user calls it."""
    starts = np.random.default_rng(0).uniform(-5, 5, (count, 4)).astype(np.float32)
    state = np.zeros((count, 15), np.float32)
    state[:, :4], state[:, 12:] = starts, 1
    update = sg.fused_forward(15, adam, device="cpu")._computation
    loop = Compiled(Iteration(update, 15), Options("adam"), backend_of(choose(device)))
    return {
        "Adam, the loop": alone(loop, state, STEPS, device),
        "Adam, minimize_from": lambda: sg.minimize_from(
            rastrigin, 4, starts, sg.Adam(0.01), STEPS, device=device
        ),
    }


def jax_descend(jax: Any) -> Call:
    """The same in JAX: jit(vmap(fori_loop)), from starts to ends."""
    m = importlib.import_module("jax.numpy")
    slope = jax.grad(lambda x: (x * x - 10 * m.cos(2 * m.pi * x)).sum() + 40)

    def step(t: Any, carry: Any) -> Any:
        x, a, b = carry
        g = slope(x)
        a, b = 0.9 * a + 0.1 * g, 0.999 * b + 0.001 * g * g
        k = t + 1.0
        return x - 0.01 * (a / (1 - 0.9**k)) / (m.sqrt(b / (1 - 0.999**k)) + 1e-8), a, b

    def descend(x: Any) -> Any:
        return jax.lax.fori_loop(0, STEPS, step, (x, m.zeros(4), m.zeros(4)))[0]

    return jax.jit(jax.vmap(descend))


def jax_descents(count: int) -> dict[str, Call]:
    """The same descents by JAX, between arrays on its device."""
    try:
        jax = importlib.import_module("jax")
    except ImportError:
        return {}
    starts = np.random.default_rng(0).uniform(-5, 5, (count, 4)).astype(np.float32)
    x, compiled = jax.device_put(starts), jax_descend(jax)
    jax.block_until_ready(compiled(x))
    return {"Adam, JAX jit(vmap(fori_loop))": lambda: jax.block_until_ready(compiled(x))}


class Recorded:
    """A runner that remembers what it was given, to be run again with data on the device."""

    def __init__(self, loop: Any, device: Any) -> None:
        self.loop, self.device = loop, device
        self.given: Any = None

    def run(self, state: Any, steps: int, data: RowData = NO_DATA) -> Any:
        self.given = self.given or (state.copy(), steps, data)
        return self.loop.run(state, steps, data)

    def again(self) -> Call:
        """A call that does the first run again, from states and data that stay on the device."""
        state, steps, data = self.given
        return alone(self.loop, state, steps, self.device, data)


def gaussian(p: Any, row: Any) -> Any:
    """The residual of a round Gaussian on a background: amplitude, centre, width, offset."""
    x, y, seen = row
    bell = sg.exp(-((x - p[1]) ** 2 + (y - p[2]) ** 2) / (2 * p[3] ** 2))
    return p[0] * bell + p[4] - seen


def fits(count: int, device: Any, pixels: int = 11) -> dict[str, Call]:
    """Levenberg and Marquardt's method for many images of one spot each."""
    draw = np.random.default_rng(1)
    y, x = (a.ravel().astype(np.float32) for a in np.mgrid[:pixels, :pixels])
    middle = (pixels - 1) / 2
    low = [500, middle - 1, middle - 1, 1.2, 20]
    high = [1500, middle + 1, middle + 1, 2, 40]
    a, x0, y0, width, offset = draw.uniform(low, high, (count, 5)).T[:, :, None]
    exact = a * np.exp(-((x - x0) ** 2 + (y - y0) ** 2) / (2 * width**2)) + offset
    images = draw.poisson(exact).astype(np.float32)
    first = np.full((count, 5), [0, middle, middle, 1.5, 0], np.float32)
    first[:, 0], first[:, 4] = np.ptp(images, axis=1), images.min(axis=1)
    shared, own = np.stack([x, y], axis=1), images[:, :, None]

    target = choose(device)
    kept: list[Recorded] = []

    def fit(runner: Any = None) -> Any:
        method = sg.LevenbergMarquardt()
        return sg.minimize_from(
            gaussian, 5, first, method, 50, shared=shared, own=own, device=device, runner=runner
        )

    def recorded(made: Iteration) -> Recorded:
        kept.append(Recorded(Compiled(made, Options("fits"), backend_of(target)), target))
        return kept[0]

    found = fit(recorded)
    print(
        f"{pixels} x {pixels}: {found.success.mean():.3%} converged, {found.nit.mean():.2f} steps"
    )
    assert found.success.mean() > 0.999, f"only {found.success.mean():.2%} of the fits converged"
    works: dict[str, Call] = {f"{pixels} x {pixels} fits, minimize_from": fit}
    if target.is_gpu:
        works[f"{pixels} x {pixels} fits, all on the device"] = kept[0].again()
    return works


def main() -> None:
    """Measure, print, keep."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--starts", type=int, default=100_000)
    parser.add_argument("--fits", type=int, default=20_000)
    parser.add_argument("--pixels", type=int, nargs="*", default=[11])
    chosen = parser.parse_args()
    device = int(chosen.device) if chosen.device.isdecimal() else chosen.device
    works = descents(chosen.starts, device) | jax_descents(chosen.starts)
    for pixels in chosen.pixels:
        works |= fits(chosen.fits, device, pixels)
    together = dict.fromkeys(works, 1 if chosen.device == "cpu" else 5)
    found = interleaved(works, chosen.rounds, together)
    rows = [
        {"work": name, "ms": 1e3 * s.wall, "ms of all cores": 1e3 * s.cpu}
        for name, s in found.items()
    ]
    bars = []
    peers = [s.wall for name, s in found.items() if "JAX" in name]
    if peers:
        bars.append(bar("Adam, the loop, over JAX", found["Adam, the loop"].wall / peers[0], 0.25))
    if chosen.device == "cpu" and chosen.starts == 100_000:
        took = found["Adam, the loop"].wall
        bars.append(bar("200 Adam steps from 100,000 starts, seconds", took, LIMIT))
    where = str(choose(device))
    kind = "gpu" if choose(device).is_gpu else "cpu"
    report(f"optimisers_{kind}", rows, bars, device=where, starts=chosen.starts, fits=chosen.fits)


if __name__ == "__main__":
    main()
