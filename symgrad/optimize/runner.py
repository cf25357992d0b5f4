"""Runners of iterations, such as a device's compiled launch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from symgrad.backend import Backend
from symgrad.kernel.problems import NO_DATA, Problems, RowData, problems_of
from symgrad.kernel.shapes import Iteration
from symgrad.pipeline import Options


class Runner(Protocol):
    """Runs steps of an iteration."""

    def run(self, state: np.ndarray, steps: int, data: RowData = NO_DATA) -> np.ndarray:
        """The states (S, s) after these steps."""
        ...


@dataclass(frozen=True)
class Compiled:
    """The launch of an iteration on a device, compiled once, in the form that suits the data."""

    iteration: Iteration
    options: Options
    backend: Backend

    def run(self, state: Any, steps: int, data: RowData = NO_DATA) -> Any:
        """The states (S, s) after these steps, on the host or on the device as they were.

        Raises:
            InputError: for arrays of other shapes.
        """
        problems = problems_of(self.iteration, state.shape, data)
        launched = self.launched(self.rows_together(problems))
        return launched.run(state, *data.arrays(problems.count), steps=steps)[0]

    def rows_together(self, problems: Problems) -> bool:
        """Whether invocations share the rows of a problem, for problems of these sizes."""
        return self.backend.rows_together(self.iteration, problems)

    def launched(self, together: bool = False) -> Any:
        """The launch, in which the rows of a problem are worked on ``together``, or not."""
        return self.backend.iteration(self.iteration, self.options, together)
