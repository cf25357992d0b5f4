"""The functions that several benchmarks measure."""

from __future__ import annotations

from typing import Any

import symgrad as sg


def chain(x: Any) -> Any:
    """The dense chain: every step needs the last one twice, so trees of it grow as 2**n."""
    z = x[0]
    for x_i in x:
        z = sg.sin(z * x_i + z)
    return z


def rosenbrock(x: Any) -> Any:
    """The sum of 100 (x[i+1] - x[i]**2)**2 + (1 - x[i])**2."""
    return sum(100 * (x[i + 1] - x[i] ** 2) ** 2 + (1 - x[i]) ** 2 for i in range(len(x) - 1))
