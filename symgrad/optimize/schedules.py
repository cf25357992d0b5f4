"""Learning rates that change: functions of the number of steps done, traced with the rule.

Example:
    >>> import symgrad as sg
    >>> method = sg.Adam(sg.schedules.Cosine(0.1, steps=300))
    >>> result = sg.minimize_from(lambda v: v[0]**2, 1, [[1.0]], method, 300, device="cpu")
    >>> bool(abs(result.x[0, 0]) < 1e-3)
    True
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from symgrad.expr.tracers import functions
from symgrad.optimize.method import Rate, rate_at

__all__ = ["Constant", "Cosine", "Exponential", "Warmup"]


@dataclass(frozen=True)
class Constant:
    """A rate that is the same at every step.

    Example:
        >>> import symgrad as sg
        >>> sg.schedules.Constant(0.1)(1000)
        0.1
    """

    lr: float

    def __call__(self, step: Any) -> Any:
        """The rate after a number of steps."""
        return self.lr


@dataclass(frozen=True)
class Exponential:
    """``lr * decay**(step / steps)``: a factor of ``decay`` every ``steps`` steps.

    Example:
        >>> from symgrad.optimize.schedules import Exponential
        >>> float(Exponential(0.5, decay=0.1, steps=10)(20.0))
        0.005
    """

    lr: float
    decay: float
    steps: float = 1.0

    def __call__(self, step: Any) -> Any:
        """The rate after a number of steps."""
        return self.lr * functions.exp2(step * (np.log2(self.decay) / self.steps))


@dataclass(frozen=True)
class Cosine:
    """Half a wave from ``lr`` down to ``final`` in ``steps`` steps, and ``final`` from then on.

    Loshchilov and Hutter, 2017, "SGDR: stochastic gradient descent with warm restarts".

    Example:
        >>> from symgrad.optimize.schedules import Cosine
        >>> rate = Cosine(0.5, steps=100)
        >>> [round(float(rate(step)), 3) for step in (0.0, 50.0, 100.0, 150.0)]
        [0.5, 0.25, 0.0, 0.0]
    """

    lr: float
    steps: float
    final: float = 0.0

    def __call__(self, step: Any) -> Any:
        """The rate after a number of steps."""
        iteration = functions.minimum(step * (np.pi / self.steps), np.pi)
        return self.final + (self.lr - self.final) * 0.5 * (1.0 + functions.cos(iteration))


@dataclass(frozen=True)
class Warmup:
    """Another rate, after ``steps`` steps in which it rises in equal parts from 0.

    The other rate's steps are counted from the end of the rise. ``rate`` is a number or a schedule.

    Example:
        >>> from symgrad.optimize.schedules import Warmup
        >>> [float(Warmup(0.5, 4)(step)) for step in (0.0, 2.0, 9.0)]
        [0.0, 0.25, 0.5]
    """

    rate: Rate
    steps: float

    def __call__(self, step: Any) -> Any:
        """The rate after a number of steps."""
        rising = rate_at(self.rate, step * 0.0) * (step / self.steps)
        after = rate_at(self.rate, functions.maximum(step - self.steps, 0.0))
        return functions.where(step < self.steps, rising, after)


def __dir__() -> list[str]:
    return sorted(__all__)
