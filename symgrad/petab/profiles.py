"""Profiles of a likelihood: the best that is possible for each value of one parameter."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

CHI_SQUARED: Final = {0.68: 0.98894, 0.9: 2.70554, 0.95: 3.84146, 0.99: 6.63490}
"""Quantiles of the chi-squared distribution of one degree of freedom."""


@dataclass(frozen=True)
class LikelihoodProfile:
    """The largest likelihood for each value of one parameter, the others being chosen for it.

    ``values`` (k,) are on the scale of estimation, ``loglikelihood`` (k,) is without priors, ``x``
    (k, n) has all parameters, and ``success`` (k,) says where a minimum was reached.
    """

    parameter: str
    values: NDArray[np.float64]
    loglikelihood: NDArray[np.float64]
    x: NDArray[np.float64]
    success: NDArray[np.bool_]

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Where the parameter is with this probability, by the likelihood-ratio test.

        Between points of the profile it is interpolated; an end that the profile does not reach is
        -inf or inf. (Venzon & Moolgavkar, 1988, A method for computing profile-likelihood-based
        confidence intervals.)
        """
        floor = float(np.nanmax(self.loglikelihood)) - 0.5 * CHI_SQUARED[level]
        best = int(np.nanargmax(self.loglikelihood))
        below = self._crossing(range(best, 0, -1), -1, floor)
        above = self._crossing(range(best, len(self.values) - 1), 1, floor)
        return -math.inf if below is None else below, math.inf if above is None else above

    def _crossing(self, places: range, step: int, floor: float) -> float | None:
        """Where the likelihood falls to the floor on one side of the best; None: it does not."""
        for k in places:
            inner, outer = self.loglikelihood[k], self.loglikelihood[k + step]
            if inner >= floor > outer:
                share = (inner - floor) / (inner - outer)
                return float(self.values[k] + share * (self.values[k + step] - self.values[k]))
        return None
