"""What repeats an iteration: NumPy here, or a back end's compiled loop with the same method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from symgrad.kernel.interpret import iterate
from symgrad.kernel.problems import NO_DATA, RowData
from symgrad.kernel.shapes import Iteration


class Runner(Protocol):
    """Runs steps of an iteration."""

    def run(self, state: np.ndarray, steps: int, data: RowData = NO_DATA) -> np.ndarray:
        """The states (S, s) after these steps."""
        ...


@dataclass(frozen=True)
class Interpreted:
    """The meaning of an iteration, by NumPy: slow, and the reference for compiled loops."""

    iteration: Iteration
    dtype: Any = np.float64

    def run(self, state: np.ndarray, steps: int, data: RowData = NO_DATA) -> np.ndarray:
        """The states (S, s) after these steps."""
        return iterate(self.iteration, state, steps, data, self.dtype)
