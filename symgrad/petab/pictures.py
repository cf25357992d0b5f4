"""Pictures of fits, of the ends of many starts, and of profiles, by matplotlib."""

# matplotlib has types of its own making:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportMissingTypeStubs=false

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from symgrad.petab.profiles import CHI_SQUARED, LikelihoodProfile


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
