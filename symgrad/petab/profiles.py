"""Profiles of likelihoods, and pictures of them, of fits, and of the ends of many starts."""

# matplotlib has types of its own making:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

# Profiles of a likelihood: the best that is possible for each value of one parameter.

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


def grid_of(count: int, axes: Any) -> list[Any]:
    """So many axes, which are made unless they are given."""
    import matplotlib.pyplot as plt

    if axes is not None:
        return list(np.ravel(axes))
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    size = (4.0 * columns, 3.0 * rows)
    _, grid = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for unused in grid.flat[count:]:
        unused.set_axis_off()
    return list(grid.flat[:count])


def plot_fits(
    table: Any, curves: Mapping[tuple[str, str], tuple[Any, Any]], axes: Any
) -> list[Any]:
    """Measurements, as points, beside the model, as lines: an axes for each observable.

    ``curves`` has times and the model's values by observable and condition.
    """
    names = list(dict.fromkeys(table["observableId"]))
    grid = grid_of(len(names), axes)
    for axis, name in zip(grid, names, strict=False):
        of_observable = table[table["observableId"] == name]
        groups = of_observable.groupby("simulationConditionId", sort=False)
        for k, (condition, rows) in enumerate(groups):
            axis.plot(rows["time"], rows["measurement"], "o", color=f"C{k % 10}", markersize=4)
            times, values = curves[name, condition]
            axis.plot(times, values, color=f"C{k % 10}", label=condition)
        axis.set(title=name, xlabel="time", ylabel="measurement, model")
        if 1 < len(groups) <= 8:
            axis.legend(fontsize="small")
    return grid


def plot_waterfall(values: NDArray[np.float64], axes: Any) -> Any:
    """The ends of all starts, best first: how far each is from the best, plus 1."""
    (axis,) = grid_of(1, axes)
    ordered = np.sort(values[np.isfinite(values)])
    above = ordered - ordered[0] + 1.0
    axis.semilogy(np.arange(1, len(above) + 1), above, ".-")
    axis.set(xlabel="start, best first", ylabel="loss less its least, plus 1")
    axis.set_ylim(0.8, max(10.0, 1.25 * above[-1]))
    return axis


def plot_profiles(profiles: Sequence[LikelihoodProfile], axes: Any) -> list[Any]:
    """Profiles, an axes each, with the floor of the interval of 95 %."""
    grid = grid_of(len(profiles), axes)
    for axis, profile in zip(grid, profiles, strict=False):
        best = np.nanmax(profile.loglikelihood)
        axis.plot(profile.values, profile.loglikelihood - best, ".-")
        axis.axhline(-0.5 * CHI_SQUARED[0.95], color="grey", linestyle="--")
        axis.set(title=profile.parameter, ylabel="log-likelihood less its largest")
    return grid
