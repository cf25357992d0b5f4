"""Where everything stands in the state of a problem."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from symgrad.errors import InputError, TraceError
from symgrad.expr.tracing.trace import require_feasible
from symgrad.optimize.method import Method, array_of

COUNT, LIMIT, LOSS, STATUS, FLAG = -5, -4, -3, -2, -1


@dataclass(frozen=True)
class Layout:
    """Where everything stands in the state of a problem.

    The variables come first, then the method's memory, then the number of steps done, the limit,
    the loss, the status (see `result.MESSAGES`), and the flag: whether the problem is not done.
    `COUNT`, `LIMIT`, `LOSS`, `STATUS` and `FLAG` are places counted from the end.
    """

    n: int
    memory: tuple[Any, ...]

    @cached_property
    def kept(self) -> int:
        """The numbers in the memory."""
        return sum(np.size(part) for part in self.memory)

    @cached_property
    def size(self) -> int:
        """The numbers in a state."""
        return self.n + self.kept + 5

    def split(self, state: Any) -> tuple[Any, tuple[Any, ...], Any]:
        """The state (..., size) as variables, memory, and (count, limit, loss, status, flag)."""
        end = self.n + self.kept
        parts, at = [], self.n
        for part in self.memory:
            shape = np.shape(part)
            block = state[..., at : at + np.size(part)]
            parts.append(block.reshape(state.shape[:-1] + shape) if shape else block[..., 0][()])
            at += np.size(part)
        return state[..., : self.n], tuple(parts), state[..., end : end + 5]

    def start_of(self, part: int) -> int:
        """Where this part of the memory begins."""
        return self.n + sum(np.size(p) for p in self.memory[:part])

    def first(self, steps: int, loss: float = 0.0) -> np.ndarray:
        """The first state (size,) with so many steps to do; its variables are 0."""
        memory = [np.ravel(np.asarray(part, float)) for part in self.memory]
        return np.concatenate([np.zeros(self.n), *memory, [0.0, steps, loss, 0.0, 1.0]])


def layout_of(method: Method, n: int) -> Layout:
    """The layout of a method's states.

    Raises:
        InputError: if they are too large to be traced.
    """
    try:
        memory = method.start(n)
    except MemoryError as error:
        raise InputError(f"{method!r} keeps more for {n:,} variables than memory holds") from error
    if not isinstance(memory, tuple | list):
        raise TraceError(
            f"{type(method).__name__}.start returned {type(memory).__name__}: a tuple of numbers "
            "and arrays is needed, () for no memory"
        )
    layout = Layout(n, tuple(memory))
    require_feasible(layout.size)
    return layout


def flat(layout: Layout, memory: tuple[Any, ...]) -> list[Any]:
    """The memory as a list, its shapes checked: they stay those it began with."""
    shapes = [np.shape(part) for part in layout.memory]
    current = [np.shape(array_of(part)) for part in memory]
    if shapes != current:
        raise InputError(
            f"the method's memory began with shapes {shapes} and went on with {current}"
        )
    return [v for part in memory for v in np.asarray(array_of(part)).flat]
