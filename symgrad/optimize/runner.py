"""What repeats an iteration: NumPy here, or a back end's compiled loop with the same method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from symgrad.kernel.interpret import iterate
from symgrad.kernel.plan import Iteration


class Runner(Protocol):
    """Runs steps of an iteration."""

    def run(
        self, state: np.ndarray, steps: int, shared: np.ndarray | None = None,
        own: np.ndarray | None = None,
    ) -> np.ndarray:  # fmt: skip
        """state (S, s), shared (R, ks), own (S, R, ko) -> the state after these steps."""
        ...


@dataclass(frozen=True)
class Interpreted:
    """The meaning of an iteration, by NumPy: slow, and the reference for compiled loops."""

    iteration: Iteration
    dtype: Any = np.float64

    def run(
        self, state: np.ndarray, steps: int, shared: np.ndarray | None = None,
        own: np.ndarray | None = None,
    ) -> np.ndarray:  # fmt: skip
        """state (S, s), shared (R, ks), own (S, R, ko) -> the state after these steps."""
        return iterate(self.iteration, state, steps, shared, own, self.dtype)
