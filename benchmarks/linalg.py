"""Small dense matrices and chains of random numbers in kernels, beside JAX.

The likelihood of 8 numbers under a Gaussian process, with its 19 slopes, for 100,000 problems, and
Hamiltonian Monte Carlo of normal densities: 200 steps of 10 leapfrogs for each of many chains. On
a GPU the chains alone, which stay there: the likelihoods are in float64.

    python benchmarks/linalg.py [--problems 100000] [--chains 20000] [--rounds 5] [--device cpu]
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from measure import bar, interleaved, report

os.environ.setdefault("SYMGRAD_CACHE", "")  # code on disk would make every first call but one quick

import symgrad as sg

SIZE = 8
STEPS, LEAPFROGS, LENGTH = 200, 10, 0.1
AHEAD = 5
"""How many times as fast as JAX symgrad is asked to be."""

Call = Callable[[], Any]


def likelihood(v: Any, numpy: Any, solve: Callable[..., Any]) -> Any:
    """Minus the log-likelihood, without its constant: places, values and three parameters."""
    x, y, (height, length, noise) = v[:SIZE], v[SIZE : 2 * SIZE], v[2 * SIZE :]
    apart = (x[:, None] - x[None, :]) / length
    cov = height**2 * numpy.exp(-0.5 * apart**2) + noise**2 * numpy.eye(SIZE)
    lower = numpy.linalg.cholesky(cov)
    z = solve(lower, y, lower=True)
    return 0.5 * numpy.sum(z * z) + numpy.sum(numpy.log(numpy.diag(lower)))


def problems(count: int) -> np.ndarray:
    """(count, 19) numbers."""
    draw = np.random.default_rng(0)
    x = np.sort(draw.uniform(0, 3, (count, SIZE)), axis=1) + 0.3 * np.arange(SIZE)
    y = draw.normal(size=(count, SIZE))
    return np.concatenate(
        [x, y, draw.uniform(0.8, 1.2, (count, 2)), draw.uniform(0.3, 0.5, (count, 1))], axis=1
    )


def chain(n: int) -> Callable[[Any], Any]:
    """Where a chain ends, and the mean of its squares over all steps, by its number."""

    def leapfrog(_: Any, state: Any) -> Any:
        x, p = state
        p = p - 0.5 * LENGTH * x
        x = x + LENGTH * p
        return x, p - 0.5 * LENGTH * x

    def f(v: Any) -> Any:
        own = sg.random.fold_in(sg.random.key(0), v[0])

        def step(k: Any, state: Any) -> Any:
            x, total = state
            push, choose = sg.random.split(sg.random.fold_in(own, k))
            p = sg.random.normal(push, n)
            y, q = sg.fori_loop(0, LEAPFROGS, leapfrog, (x, p))
            gained = 0.5 * (x @ x + p @ p - y @ y - q @ q)
            x = np.where(np.log(sg.random.uniform(choose)) < gained, y, x)
            return x, total + x @ x

        start = sg.random.normal(sg.random.fold_in(own, STEPS), n)
        return sg.fori_loop(0, STEPS, step, (start, v[0] * 0.0))[1] / (n * STEPS)

    return f


def chain_in_jax(n: int) -> Callable[[Any], Any]:
    """The same, with the same random numbers."""
    import jax
    import jax.numpy as jnp

    def leapfrog(_: Any, state: Any) -> Any:
        x, p = state
        p = p - 0.5 * LENGTH * x
        x = x + LENGTH * p
        return x, p - 0.5 * LENGTH * x

    def f(number: Any) -> Any:
        own = jax.random.fold_in(jax.random.key(0), number)

        def step(state: Any, k: Any) -> Any:
            x, total = state
            push, choose = jax.random.split(jax.random.fold_in(own, k))
            p = jax.random.normal(push, (n,))
            y, q = jax.lax.fori_loop(0, LEAPFROGS, leapfrog, (x, p))
            gained = 0.5 * (x @ x + p @ p - y @ y - q @ q)
            x = jnp.where(jnp.log(jax.random.uniform(choose)) < gained, y, x)
            return (x, total + x @ x), None

        start = jax.random.normal(jax.random.fold_in(own, STEPS), (n,))
        (_, total), _ = jax.lax.scan(step, (start, 0.0), jnp.arange(STEPS))
        return total / (n * STEPS)

    return f


def likelihoods(count: int) -> dict[str, Call]:
    """Loss and gradient of all problems in float64."""
    points = problems(count)
    made = sg.fused_forward_backward(
        2 * SIZE + 3, lambda v: likelihood(v, np, sg.linalg.solve_triangular),
        device="cpu", dtype="float64",
    )  # fmt: skip
    calls: dict[str, Call] = {"symgrad": lambda: made.run(points)}
    try:
        import jax
        import jax.numpy as jnp
        import jax.scipy.linalg
    except ImportError:
        return calls
    with jax.enable_x64(True):
        f = lambda v: likelihood(v, jnp, jax.scipy.linalg.solve_triangular)  # noqa: E731
        both = jax.jit(jax.vmap(jax.value_and_grad(f)))

    def of_jax() -> Any:
        with jax.enable_x64(True):
            return jax.block_until_ready(both(points))

    return calls | {"JAX": of_jax}


def chains(count: int, n: int, device: Any) -> dict[str, Call]:
    """All chains, in float32."""
    made = sg.fused_forward(1, chain(n), device=device)
    numbers: Any = np.arange(count, dtype=np.float32)[:, None]
    if device != "cpu":
        numbers = sg.device_array(numbers, device)
    calls: dict[str, Call] = {"symgrad": lambda: np.asarray(made.run(numbers))}
    try:
        import jax
    except ImportError:
        return calls
    batched = jax.jit(jax.vmap(chain_in_jax(n)))
    whole = np.arange(count, dtype=np.uint32)
    return calls | {"JAX": lambda: jax.block_until_ready(batched(whole))}


def first_of(result: Any) -> Any:
    """The losses, where gradients stand beside them."""
    return result[0] if isinstance(result, tuple) else result


def main() -> None:
    """Measure, compare the results, and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--problems", type=int, default=100_000)
    parser.add_argument("--chains", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cpu", help='"cpu", or the index of a GPU')
    given = parser.parse_args()
    device: Any = int(given.device) if given.device.isdecimal() else given.device
    works: dict[str, Callable[[], dict[str, Call]]] = {
        f"HMC, {n}-D, {given.chains:,} chains": lambda n=n: chains(given.chains, n, device)
        for n in (2, 20)
    }
    if device == "cpu":
        name = f"Gaussian process {SIZE} x {SIZE}, loss + gradient, {given.problems:,} problems"
        works = {f"{name}, float64": lambda: likelihoods(given.problems)} | works
    rows, bars = [], []
    for name, make in works.items():
        start = time.perf_counter()
        calls = make()
        first, results = {}, {}
        for who, call in calls.items():
            results[who] = call()
            first[who], start = time.perf_counter() - start, time.perf_counter()
        took = interleaved(calls, given.rounds)
        for who in calls:
            rows.append(
                {"work": name, "by": who, "first, s": first[who], "ms": 1e3 * took[who].wall}
            )
        if "JAX" in results:
            means = [np.mean(np.asarray(first_of(results[who]))) for who in ("symgrad", "JAX")]
            apart = np.abs(means[0] - means[1])
            rows[-1]["means apart"] = float(apart)
            ratio = took["JAX"].wall / took["symgrad"].wall
            bars.append(bar(f"times as fast as JAX, {name}", ratio, AHEAD, at_least=True))
    where = sg.devices()[-1 if device == "cpu" else device]
    report("linalg" if device == "cpu" else "linalg_gpu", rows, bars, device=str(where))


if __name__ == "__main__":
    main()
