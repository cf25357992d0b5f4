"""Prior distributions of parameters, by the names of PEtab."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from symgrad.errors import InputError
from symgrad.expr import ops

Density = Callable[[Any, float, float], Any]


def _normal(x: Any, mean: float, deviation: float) -> Any:
    apart = (x - mean) / deviation
    return 0.5 * apart * apart + math.log(deviation) + 0.5 * math.log(2.0 * math.pi)


def _laplace(x: Any, location: float, scale: float) -> Any:
    return ops.abs(x - location) / scale + math.log(2.0 * scale)


def _uniform(x: Any, low: float, high: float) -> Any:
    inside = ops.logical_and(x >= low, x <= high)
    return ops.where(inside, math.log(high - low), math.inf)


def _of_logarithm(density: Density) -> Density:
    """The density of a number whose natural logarithm has this one."""
    return lambda x, a, b: density(ops.log(x), a, b) + ops.log(x)


NEGATIVE_LOG_DENSITIES: Final[dict[str, Density]] = {
    "uniform": _uniform,
    "normal": _normal,
    "laplace": _laplace,
    "logNormal": _of_logarithm(_normal),
    "logLaplace": _of_logarithm(_laplace),
}
"""Minus the logarithms of densities of a number with two parameters."""

ON_SCALE: Final = {
    "parameterScaleUniform": "uniform",
    "parameterScaleNormal": "normal",
    "parameterScaleLaplace": "laplace",
}
"""Distributions of a parameter on the scale on which it is estimated."""


@dataclass(frozen=True)
class Prior:
    """The prior distribution of the parameter number ``place``: its name and its two parameters."""

    parameter: str
    place: int
    name: str
    numbers: tuple[float, float]

    @classmethod
    def of(cls, parameter: str, place: int, row: Any) -> Prior | None:
        """The objective prior in a row of the table of parameters; None where there is none.

        Raises:
            InputError: for a distribution that PEtab does not have.
        """
        name, numbers = row.get("objectivePriorType"), row.get("objectivePriorParameters")
        if not isinstance(name, str) or not name:
            return None
        if name not in NEGATIVE_LOG_DENSITIES and name not in ON_SCALE:
            choices = ", ".join([*NEGATIVE_LOG_DENSITIES, *ON_SCALE])
            raise InputError(f"the prior {name!r} of {parameter}: there are {choices}")
        try:
            low, high = (float(part) for part in str(numbers).split(";"))
        except ValueError as error:
            raise InputError(
                f"the prior of {parameter} takes two numbers, as 0;1, not {numbers!r}"
            ) from error
        return cls(parameter, place, name, (low, high))

    def negative_log_density(self, v: Sequence[Any], theta: Sequence[Any]) -> Any:
        """Of the parameters on the scales of estimation, and on their own."""
        if self.name in ON_SCALE:
            density = NEGATIVE_LOG_DENSITIES[ON_SCALE[self.name]]
            return density(v[self.place], *self.numbers)
        return NEGATIVE_LOG_DENSITIES[self.name](theta[self.place], *self.numbers)
