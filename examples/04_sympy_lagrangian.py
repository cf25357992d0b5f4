"""The double pendulum from its Lagrangian, written in SymPy, and nothing else.

SymPy's expression becomes one of symgrad's, whose derivatives are the equations of motion, M a = F.
One kernel makes several Runge-Kutta steps for a batch of pendulums that differ by a hair.

    python examples/04_sympy_lagrangian.py [--device cpu] [--output pendulum.png]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import sympy

import symgrad as sg

STEP, STEPS = 2e-3, 5
"""Seconds of a Runge-Kutta step, and the steps of one call."""


def double_pendulum():
    """The Lagrangian T - V for masses and lengths 1, and its symbols: angles and their rates."""
    a, b, p, q = sympy.symbols("a b p q")
    t = sympy.Symbol("t")
    upper = sympy.Matrix([sympy.sin(a + p * t), -sympy.cos(a + p * t)])
    lower = upper + sympy.Matrix([sympy.sin(b + q * t), -sympy.cos(b + q * t)])
    velocities: list[Any] = [place.diff(t).subs(t, 0) for place in (upper, lower)]
    kinetic = sum(v[0] ** 2 + v[1] ** 2 for v in velocities)
    height = (upper + lower)[1].subs(t, 0)
    return sympy.simplify(kinetic / 2 - sympy.Float(9.81) * height), (a, b, p, q)


LAGRANGIAN, SYMBOLS = double_pendulum()


def lagrangian(state):
    return sg.from_sympy(LAGRANGIAN, dict(zip(SYMBOLS, state, strict=True)))


def energy(state):
    """The conserved quantity: rate · dL/drate - L."""
    value = lagrangian(state)
    return state[2:] @ sg.grad(value, state[2:]) - value


def motion(state):
    """d/dt of (angles, rates): M a = dL/dangle - d²L/(drate dangle) rate, M = d²L/drate²."""
    angles, rates = state[:2], state[2:]
    value = lagrangian(state)
    momenta = sg.grad(value, rates)
    force = sg.grad(value, angles) - sg.jvp(momenta, angles, rates)
    m = sg.jacobian(momenta, rates)
    determinant = m[0, 0] * m[1, 1] - m[0, 1] * m[1, 0]
    first = (m[1, 1] * force[0] - m[0, 1] * force[1]) / determinant
    second = (m[0, 0] * force[1] - m[1, 0] * force[0]) / determinant
    return np.array([*rates, first, second])


def advance(state):
    """Some steps of the classical Runge-Kutta method, for a state that need not be an input."""
    for _ in range(STEPS):
        k1 = motion(state)
        k2 = motion(state + STEP / 2 * k1)
        k3 = motion(state + STEP / 2 * k2)
        k4 = motion(state + STEP * k3)
        state = state + STEP / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    return state


def draw(states: np.ndarray, drift: np.ndarray, output: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install 'symgrad[plot]'")
        return
    a, b = states[:, :, 0], states[:, :, 1]
    x, y = np.sin(a) + np.sin(b), -np.cos(a) - np.cos(b)
    times = np.arange(len(states)) * STEP * STEPS
    figure = Figure(figsize=(10, 5), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(x[:, 0], y[:, 0], color="#2e6f95", lw=0.8)
    left.set(aspect="equal", title="the lower bob of one of them")
    right.plot(times, y, lw=0.5, alpha=0.6)
    right.set(xlabel="seconds", title=f"its height in {a.shape[1]} that differ by 1e-5 in angle")
    left.set_xlabel(f"energy kept to {np.abs(drift).max():.0e} of its range")
    figure.savefig(output, dpi=100)
    print(f"picture: {output}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device")
    parser.add_argument("--pendulums", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument(
        "--output", type=Path, default=Path(tempfile.gettempdir(), "symgrad-pendulum.png")
    )
    given = parser.parse_args()

    print(f"L = {LAGRANGIAN}")
    kernel = sg.fused_forward(4, advance, device=given.device)
    energies = sg.fused_forward(4, energy, device=given.device)
    state = np.tile([2.0, 2.6, 0.0, 0.0], (given.pendulums, 1))
    state[:, 0] += 1e-5 * np.arange(given.pendulums)
    states = [state]
    begin = time.perf_counter()
    for _ in range(round(given.seconds / (STEP * STEPS))):
        states.append(kernel.run(states[-1]))
    seconds = time.perf_counter() - begin

    history = np.array(states)
    drift = (energies.run(history) - energies.run(history[:1])) / (4 * 9.81)
    print(f"{len(states) - 1} calls of {kernel.stats.operations:,} operations on "
          f"{given.pendulums} pendulums in {seconds:.2f} s on {kernel.device}")  # fmt: skip
    print(f"energy drifts by {np.abs(drift).max():.1e} of its range in {given.seconds} s")
    draw(history, drift, given.output)
    assert np.abs(drift).max() < 1e-3, "energy is not conserved"


if __name__ == "__main__":
    main()
