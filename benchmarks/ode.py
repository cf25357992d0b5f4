"""Differential equations: work and precision, and many problems with gradients, beside others.

Single problems of the test sets, the time of a call for the error that it has, beside SciPy,
Diffrax and CasADi's CVODES, all in float64; first calls, which compile, are left out. Then many
sets of rates, values and gradients of the sum of squares at the end, beside Diffrax's Kvaerno5 by
JAX's vmap, and SciPy in a loop, without gradients; these take some of the sets, once, and their
times are scaled up. Errors are beside SciPy's Radau at 1e-12.

    python benchmarks/ode.py [--sets 1000] [--peers 100] [--rounds 3]
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.integrate
import sympy
from measure import bar, interleaved, report
from ode_problems import DETEST, STIFF, Problem

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("SYMGRAD_CACHE", "")

import symgrad as sg

TOLERANCES = (1e-4, 1e-6, 1e-8)
AHEAD_OF_DIFFRAX, AHEAD_OF_SCIPY = 50, 30
"""How many times as fast values and gradients are asked to be."""

PROPORTIONAL = {"E5": "Kvaerno5"}
"""The method whose errors are compared, if not Rodas5P. In E5 y2 - y3 - y4 stays 0, which decides
all digits of y2 and y3 at the end, 1e-20 beside a start of 1.8e-3. A method of Rosenbrock solves
with a Jacobian whose entries are rounded, and loses it; the stages of Kvaerno5 keep it."""

Call = Callable[[], Any]


@functools.cache
def reference(name: str, stiff: bool) -> np.ndarray:
    """The end of a problem, by SciPy at tight tolerances."""
    p = (STIFF if stiff else DETEST)[name]
    return by_scipy(p, "Radau" if stiff else "DOP853", 1e-12 if stiff else 3e-14)


@functools.cache
def jacobian_of(fun: Callable[..., Any], size: int, rates: int) -> Callable[..., np.ndarray]:
    """The derivative of a right-hand side by y, as a function of NumPy's by SymPy."""
    t, y, k = sympy.Symbol("t"), sympy.symbols(f"y:{size}"), sympy.symbols(f"k:{rates}")
    return sympy.lambdify((t, y, k), sympy.Matrix(fun(t, y, k)).jacobian(y), "numpy", cse=True)


def by_scipy(p: Problem, method: str, rtol: float, rates: Any = None) -> np.ndarray:
    """The end by SciPy; its implicit methods are given the Jacobian."""
    implicit = method in ("Radau", "LSODA")
    given: dict[str, Any] = {"jac": jacobian_of(p.fun, len(p.y0), len(p.rates))} if implicit else {}
    solution = scipy.integrate.solve_ivp(
        p.fun, (0, p.end), p.y0, method, args=(p.rates if rates is None else rates,), rtol=rtol,
        atol=rtol * p.floor, **given,
    )  # fmt: skip
    return solution.y[:, -1] if solution.success else np.full(len(p.y0), np.nan)


def by_symgrad(p: Problem, method: str, rtol: float) -> np.ndarray:
    """The end by symgrad."""
    solution = sg.solve_ivp(
        p.fun, (0.0, p.end), np.array(p.y0, float), method, [p.end],
        args=(np.array(p.rates, float),), rtol=rtol, atol=rtol * p.floor, max_steps=200_000,
    )  # fmt: skip
    return solution.y[:, -1]


def diffrax_end(p: Problem, rtol: Any, steps: int = 4096) -> Callable[[Any], Any]:
    """The end as a function of the rates, by Diffrax's Kvaerno5."""
    import diffrax
    import jax.numpy as jnp

    term = diffrax.ODETerm(lambda t, y, k: jnp.stack([jnp.asarray(e) for e in p.fun(t, y, k)]))
    controller = diffrax.PIDController(rtol=rtol, atol=rtol * p.floor)

    def end(rates: Any) -> Any:
        solution = diffrax.diffeqsolve(
            term, diffrax.Kvaerno5(), 0.0, p.end, None, jnp.array(p.y0, float), rates,
            stepsize_controller=controller, max_steps=steps, throw=False,
        )  # fmt: skip
        ends = solution.ys
        assert ends is not None, "the end is saved"
        return jnp.where(solution.result == diffrax.RESULTS.successful, ends[0], jnp.nan)

    return end


@functools.cache
def diffrax_compiled(fun: Any) -> Callable[[Any, float], Any]:
    """The end of the problem of a right-hand side, of rates and of a tolerance."""
    import jax

    [p] = [p for p in STIFF.values() if p.fun is fun]
    return jax.jit(lambda rates, rtol: diffrax_end(p, rtol, 100_000)(rates))


def by_diffrax(p: Problem, rtol: float) -> Call:
    """The end by Diffrax, compiled."""
    import jax

    def call() -> np.ndarray:
        with jax.enable_x64(True):
            return np.asarray(diffrax_compiled(p.fun)(jax.numpy.array(p.rates, float), rtol))

    return call


def by_cvodes(p: Problem, rtol: float) -> Call:
    """The end by CasADi's CVODES, with its derived Jacobian."""
    import casadi

    y, t = casadi.SX.sym("y", len(p.y0)), casadi.SX.sym("t")
    slope = casadi.vertcat(*p.fun(t, [y[i] for i in range(len(p.y0))], p.rates))
    options = {"reltol": rtol, "abstol": rtol * p.floor, "max_num_steps": 1_000_000}
    solver = casadi.integrator("f", "cvodes", {"x": y, "t": t, "ode": slope}, 0.0, p.end, options)
    return lambda: np.asarray(solver(x0=p.y0)["xf"]).ravel()


def error(name: str, end: np.ndarray, stiff: bool = True) -> float:
    """The largest error beside the size of the solution; infinite of what has failed."""
    p, exact = (STIFF if stiff else DETEST)[name], reference(name, stiff)
    return float(
        np.nan_to_num(abs(end - exact) / np.maximum(abs(exact), p.floor), nan=np.inf).max()
    )


def precision(rounds: int) -> tuple[list[Any], list[Any]]:
    """Errors and times of single stiff problems."""
    rows, bars = [], []
    for name, p in STIFF.items():
        errors = []
        for rtol in TOLERANCES:
            calls: dict[str, Call] = {
                f"symgrad {m}": functools.partial(by_symgrad, p, m, rtol)
                for m in ("Rodas5P", "Kvaerno5", "auto")
            }
            calls |= {
                f"SciPy {m}": functools.partial(by_scipy, p, m, rtol) for m in ("Radau", "LSODA")
            }
            calls["CasADi CVODES"] = by_cvodes(p, rtol)
            if rtol == TOLERANCES[1]:
                calls["Diffrax Kvaerno5"] = by_diffrax(p, rtol)
            ends = {who: call() for who, call in calls.items()}
            took = interleaved(calls, rounds)
            for who, end in ends.items():
                rows.append({"work": name, "rtol": rtol, "by": who,
                             "error": error(name, end), "ms": 1e3 * took[who].wall})  # fmt: skip
            errors.append(error(name, ends[f"symgrad {PROPORTIONAL.get(name, 'Rodas5P')}"]))
        falls = max(b / a for a, b in itertools.pairwise(errors))
        bars.append(bar(f"error over that of 100 times the tolerance, {name}", falls, 0.5))
    return rows, bars


def classes(rounds: int) -> tuple[list[Any], list[Any]]:
    """DETEST: the worst error over the tolerance, and the time beside SciPy's, by classes."""
    rows, worst = [], 0.0
    for letter in "ABCDE":
        chosen = {n: p for n, p in DETEST.items() if n[0] == letter}
        for method, rtol in (("Tsit5", 1e-6), ("DOP853", 1e-9)):
            scipy_s = {"Tsit5": "RK45"}.get(method, method)
            ours = lambda: [by_symgrad(p, method, rtol) for p in chosen.values()]  # noqa: E731, B023
            theirs = lambda: [by_scipy(p, scipy_s, rtol) for p in chosen.values()]  # noqa: E731, B023
            pairs = [list(zip(chosen, ends(), strict=True)) for ends in (ours, theirs)]
            errors = [max(error(n, e, stiff=False) for n, e in ends) for ends in pairs]
            took = interleaved({"symgrad": ours, "SciPy": theirs}, rounds)
            for who, by, e in zip(("symgrad", "SciPy"), (method, scipy_s), errors, strict=True):
                rows.append({"work": f"DETEST {letter}", "rtol": rtol, "by": f"{who} {by}",
                             "error": e, "ms": 1e3 * took[who].wall})  # fmt: skip
            worst = max(worst, errors[0] / errors[1])
    return rows, [bar("largest error over SciPy's at the same tolerance, DETEST", worst, 20.0)]


def many(sets: int, peers: int, rounds: int) -> tuple[list[Any], list[Any]]:
    """Values and gradients of many sets of rates; peers take some of these, and are scaled up."""
    import jax

    rows, bars = [], []
    for name in ("ROBER", "HIRES", "POLLU"):
        p = STIFF[name]
        rates = p.sets(sets)
        ours_rtol, theirs_rtol = 1e-6, 1e-6

        def loss(k: Any, p: Problem = p, rtol: float = ours_rtol) -> Any:
            solution = sg.solve_ivp(
                p.fun, (0, p.end), list(p.y0), "Rodas5P", args=(k,), rtol=rtol,
                atol=rtol * p.floor, max_steps=512,
            )  # fmt: skip
            return np.sum(solution.y[:, -1] ** 2)

        start = time.perf_counter()
        kernel = sg.fused_forward_backward(len(p.rates), loss, device="cpu", dtype="float64")
        kernel.run(rates)
        first = {"symgrad": time.perf_counter() - start}
        with jax.enable_x64(True):
            end = diffrax_end(p, theirs_rtol)
            both = jax.jit(jax.vmap(jax.value_and_grad(lambda k, end=end: (end(k) ** 2).sum())))
            few = jax.numpy.array(rates[:peers])

            def of_jax(both: Any = both, few: Any = few) -> Any:
                with jax.enable_x64(True):
                    return jax.block_until_ready(both(few))

            start = time.perf_counter()
            known = of_jax()
            first["Diffrax"] = time.perf_counter() - start
        some = rates[: max(1, peers // 10)]
        calls: dict[str, Call] = {
            "symgrad": lambda kernel=kernel, rates=rates: kernel.run(rates),
            "Diffrax": of_jax,
            "SciPy": lambda p=p, some=some: [by_scipy(p, "LSODA", 1e-6, k) for k in some],
        }
        values, slopes = kernel.run(rates)
        assert np.isfinite(values).all() and np.isfinite(slopes).all(), "a problem has failed"
        took = interleaved({"symgrad": calls.pop("symgrad")}, rounds)
        took |= interleaved(calls, 1)
        counts = {"symgrad": sets, "Diffrax": peers, "SciPy": len(some)}
        scaled = {who: took[who].wall * sets / counts[who] for who in took}
        theirs = np.asarray(known[1])
        apart = float(np.median(np.linalg.norm(theirs - slopes[:peers], axis=1)
                                / np.linalg.norm(slopes[:peers], axis=1)))  # fmt: skip
        for who, by in (("symgrad", "Rodas5P, value + gradient"),
                        ("Diffrax", "Kvaerno5, value + gradient"),
                        ("SciPy", "LSODA, value alone")):  # fmt: skip
            rows.append({"work": f"{name}, {sets:,} sets", "by": f"{who} {by}",
                         "first, s": first.get(who), "ms": 1e3 * scaled[who]})  # fmt: skip
        rows[-2] |= {"sets measured": peers, "gradients apart, median": apart}
        rows[-1]["sets measured"] = len(some)
        for who, limit in (("Diffrax", AHEAD_OF_DIFFRAX), ("SciPy", AHEAD_OF_SCIPY)):
            ratio = scaled[who] / scaled["symgrad"]
            bars.append(bar(f"times as fast as {who}, {name}", ratio, limit, at_least=True))
        bars.append(bar(f"seconds to the first values and gradients, {name}",
                        first["symgrad"], 2.0))  # fmt: skip
    return rows, bars


def again(rounds: int) -> tuple[list[Any], list[Any]]:
    """A call like the last one, with other numbers: Lotka and Volterra's equations."""

    def fun(t: Any, y: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        return [a * y[0] - b * y[0] * y[1], d * y[0] * y[1] - c * y[1]]

    growth = itertools.count()

    def ours() -> Any:
        a = 1.5 + 1e-6 * next(growth)
        return sg.solve_ivp(fun, (0.0, 10.0), [10.0, 5.0], args=(a, 1.0, 3.0, 1.0)).y

    def theirs() -> Any:
        return scipy.integrate.solve_ivp(fun, (0, 10), [10.0, 5.0], args=(1.5, 1.0, 3.0, 1.0)).y

    ours()
    took = interleaved({"symgrad": ours, "SciPy": theirs}, 5 * rounds, {"symgrad": 300, "SciPy": 5})
    rows = [{"work": "Lotka-Volterra, again", "by": f"{who} {by}", "ms": 1e3 * took[who].wall}
            for who, by in (("symgrad", "Tsit5"), ("SciPy", "RK45"))]  # fmt: skip
    return rows, [bar("microseconds of a call again", 1e6 * took["symgrad"].wall, 60.0)]


def main() -> None:
    """Measure, compare the results, and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--peers", type=int, default=100, help="sets that Diffrax takes")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    parts = (
        again(given.rounds), many(given.sets, given.peers, given.rounds),
        precision(given.rounds), classes(given.rounds),
    )  # fmt: skip
    rows, bars = ([row for part in parts for row in part[k]] for k in (0, 1))
    report("ode", rows, bars, device=str(sg.devices()[-1]))


if __name__ == "__main__":
    main()
