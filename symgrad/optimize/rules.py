"""First-order methods: the update rules of the textbooks, as traced expressions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from symgrad.errors import InputError, InputTypeError
from symgrad.expr.tracers import functions
from symgrad.expr.tracers.array import array
from symgrad.optimize.arguments import number, require_method
from symgrad.optimize.method import Memory, Rate, Rule, rate_at


@dataclass(frozen=True)
class GradientDescent(Rule):
    """``x - lr * gradient``.

    Example:
        >>> import symgrad as sg
        >>> step = sg.minimize_from(lambda v: v @ v, 1, [[1.0]], sg.GradientDescent(0.25), 1)
        >>> step.x
        array([[0.5]], dtype=float32)
    """

    pure: ClassVar[bool] = True

    lr: Rate = 0.01

    def update(self, x: Any, gradient: Any, memory: Memory, step: Any) -> tuple[Any, Memory]:
        """The next point; there is no memory."""
        return x - rate_at(self.lr, step) * gradient, memory


@dataclass(frozen=True)
class Momentum(Rule):
    """``m = beta * m + gradient``, then ``x - lr * m``, or Nesterov's form of it.

    With ``nesterov`` the step is along ``gradient + beta * m``.
    Sutskever and others, 2013, "On the importance of initialization and momentum in deep learning",
    as PyTorch's SGD has it.

    Example:
        >>> import symgrad as sg
        >>> result = sg.minimize_from(
        ...     lambda v: (v[0] - 3)**2, 1, [[0.0]], sg.Momentum(0.1, beta=0.5), 200, device="cpu")
        >>> round(float(result.x[0, 0]), 3)
        3.0
    """

    pure: ClassVar[bool] = True

    lr: Rate = 0.01
    beta: float = 0.9
    nesterov: bool = False

    def start(self, n: int) -> Memory:
        """A momentum of 0."""
        return (np.zeros(n),)

    def update(self, x: Any, gradient: Any, memory: Memory, step: Any) -> tuple[Any, Memory]:
        """The next point, and the momentum that led to it."""
        m = self.beta * memory[0] + gradient
        along = gradient + self.beta * m if self.nesterov else m
        return x - rate_at(self.lr, step) * along, (m,)


@dataclass(frozen=True)
class Adam(Rule):
    """Adam: steps along the mean gradient over the root of its mean square, both bias-corrected.

    Kingma and Ba, 2015, "Adam: a method for stochastic optimization". ``1 - b**t``, by which the
    means are divided, is carried along as it is, which loses no digits in float32.

    Example:
        >>> import symgrad as sg
        >>> result = sg.minimize_from(lambda v: (v[0] - 3)**2, 1, [[0.0]], sg.Adam(0.1), 400)
        >>> bool(abs(result.x[0, 0] - 3) < 0.01)
        True
    """

    pure: ClassVar[bool] = True

    lr: Rate = 0.001
    b1: float = 0.9
    b2: float = 0.999
    eps: float = 1e-8

    def start(self, n: int) -> Memory:
        """Both means, and the weights that they have gathered."""
        return np.zeros(n), np.zeros(n), 0.0, 0.0

    def update(self, x: Any, gradient: Any, memory: Memory, step: Any) -> tuple[Any, Memory]:
        """The next point and the next means."""
        change, memory = self._change(rate_at(self.lr, step), gradient, memory)
        return x - change, memory

    def _change(self, rate: Any, gradient: Any, memory: Memory) -> tuple[Any, Memory]:
        """The step, by a root and a division for all variables, and one of each for each."""
        mean, square, weight1, weight2 = memory
        mean = self.b1 * mean + (1.0 - self.b1) * gradient
        square = self.b2 * square + (1.0 - self.b2) * (gradient * gradient)
        weight1 = self.b1 * weight1 + (1.0 - self.b1)
        weight2 = self.b2 * weight2 + (1.0 - self.b2)
        root = np.sqrt(weight2)
        size = np.sqrt(square) + self.eps * root
        return (rate * root / weight1) * mean / size, (mean, square, weight1, weight2)


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay: every step also shrinks x by ``lr * weight_decay``.

    Loshchilov and Hutter, 2019, "Decoupled weight decay regularization".

    Example:
        >>> import symgrad as sg
        >>> method = sg.AdamW(0.1, weight_decay=0.1)
        >>> result = sg.minimize_from(
        ...     lambda v: (v[0] - 3)**2, 1, [[0.0]], method, 500, device="cpu")
        >>> bool(result.x[0, 0] < 2.99)  # drawn towards 0
        True
    """

    pure: ClassVar[bool] = True

    weight_decay: float = 0.01

    def update(self, x: Any, gradient: Any, memory: Memory, step: Any) -> tuple[Any, Memory]:
        """The next point and the next means."""
        rate = rate_at(self.lr, step)
        change, memory = self._change(rate, gradient, memory)
        return x * (1.0 - rate * self.weight_decay) - change, memory


@dataclass(frozen=True)
class Clipped(Rule):
    """Another rule, given the gradient clipped.

    First each component to ``±value``, then the whole vector to the length ``norm`` at most.

    Example:
        >>> import symgrad as sg
        >>> rule = sg.Clipped(sg.GradientDescent(1.0), norm=0.5)
        >>> sg.minimize_from(lambda v: 30 * v[0] + 40 * v[1], 2, [[1.0, 1.0]], rule, 1).x
        array([[0.7, 0.6]], dtype=float32)
    """

    rule: Rule
    value: float | None = None
    norm: float | None = None

    def __post_init__(self) -> None:
        require_method(self.rule)
        if not isinstance(self.rule, Rule):
            raise InputTypeError(
                f"Clipped({type(self.rule).__name__}()): only first-order rules, such as "
                "sg.Adam(), take a clipped gradient"
            )
        limits = {"value": self.value, "norm": self.norm}
        given = {k: number(v, f"Clipped({k}=...)") for k, v in limits.items() if v is not None}
        if not given or min(given.values()) <= 0.0:
            raise InputError(
                f"Clipped(value={self.value}, norm={self.norm}): one of them is needed, above 0"
            )

    def start(self, n: int) -> Memory:
        """The memory of the rule."""
        return self.rule.start(n)

    def update(self, x: Any, gradient: Any, memory: Memory, step: Any) -> tuple[Any, Memory]:
        """The rule's update by the clipped gradient."""
        if self.value is not None:
            gradient = array([functions.clip(g, -self.value, self.value) for g in gradient])
        if self.norm is not None:
            gradient = gradient * shortened(np.linalg.norm(gradient), self.norm)
        return self.rule.update(x, gradient, memory, step)


def shortened(length: Any, limit: float) -> Any:
    """The factor that brings a vector of this length to the limit, if it is longer."""
    return limit / functions.maximum(length, limit)
