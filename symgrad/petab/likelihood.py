"""The likelihood of the measurements of one simulation, and prior distributions, traced."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import sympy

from symgrad.errors import InputError
from symgrad.expr import ops
from symgrad.expr.calls.sympy_bridge import from_sympy
from symgrad.expr.loops.control import fori_loop, scan
from symgrad.expr.tracers.array import array
from symgrad.petab.sbml import TIME, symbol
from symgrad.petab.simulation import Simulation
from symgrad.petab.tables import Conditions, Measured, Setting, Slot

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

        Its name is one of PEtab's, which the package says itself.

        Raises:
            InputError: for parameters of it that are not two numbers.
        """
        name, numbers = row.get("objectivePriorType"), row.get("objectivePriorParameters")
        if not isinstance(name, str) or not name:
            return None
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


sp: Final[Any] = sympy

LN10: Final = math.log(10.0)

SCALES: Final[dict[str, Callable[[Any], Any]]] = {
    "lin": lambda x: x,
    "log": ops.exp,
    "log10": lambda x: ops.exp(x * LN10),
}
"""From the scale on which a parameter is estimated to its own."""

TRANSFORMATIONS: Final[dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]] = {
    "lin": (lambda y: y, lambda _: 0.0),
    "log": (ops.log, ops.log),
    "log10": (lambda y: ops.log(y) / LN10, lambda y: ops.log(y * LN10)),
}
"""Functions of a measurement y: the scale on which it is distributed about the model's value, and
minus the logarithm of the derivative of that, by which densities of y differ from those on it."""


@dataclass(frozen=True)
class Observable:
    """A formula of states, with the distribution of its measurements."""

    name: str
    formula: Any
    noise: Any
    transformation: str
    distribution: str


@dataclass(frozen=True)
class Compared:
    """A measurement beside the model's value, on the scale on which noise is symmetric."""

    observable: Observable
    model: Any
    sigma: Any
    measurement: Any

    @property
    def standardised(self) -> Any:
        """The measurement less the model's value, in units of sigma."""
        transform, _ = TRANSFORMATIONS[self.observable.transformation]
        return (transform(self.measurement) - transform(self.model)) / self.sigma

    @property
    def negative_log_density(self) -> Any:
        """Minus the logarithm of the density of the measurement."""
        _, jacobian = TRANSFORMATIONS[self.observable.transformation]
        apart, scale = self.standardised, ops.log(self.sigma) + jacobian(self.measurement)
        if self.observable.distribution == "laplace":
            return ops.abs(apart) + scale + math.log(2.0)
        return 0.5 * apart * apart + scale + 0.5 * math.log(2.0 * math.pi)

    @property
    def terms(self) -> tuple[Any, Any]:
        """Numbers r and w: of normal noise r**2 / 2 + w is minus the logarithm of the density."""
        return self.standardised, self.negative_log_density - 0.5 * self.standardised**2


@dataclass(frozen=True)
class Likelihood:
    """Minus the logarithm of the likelihood of a row's measurements: a loss over a table."""

    simulation: Simulation
    observables: Sequence[tuple[Observable, Measured]]
    conditions: Conditions
    scales: Mapping[str, str]
    fixed: Mapping[str, float]
    equilibrated: Slot
    """1 in simulations before which comes a steady state, 0 in others."""
    is_endless: bool
    """Whether there are measurements of steady states that simulations end in."""

    def __call__(self, v: Any, row: Any) -> Any:
        """Minus the logarithm of the likelihood of the row's measurements."""
        theta = self.parameters(v)
        values, state = self.solved(theta, row)

        def at_time(k: Any, total: Any) -> Any:
            known = self._known(values, state(k), row.time[k])
            terms = (
                ops.where(weight > 0.5, compared.negative_log_density, 0.0)
                for weight, compared in self._compared(known, theta, row, k)
            )
            return total + sum(terms)

        return fori_loop(0, len(row.time), at_time, 0.0)

    def terms(self, v: Any, row: Any) -> Any:
        """`Compared.terms` of a row's measurements, by turns; 0 where there is none."""
        return self._at_all_times(v, row, lambda compared: compared.terms)

    @property
    def is_normal(self) -> bool:
        """Whether all noise is normal, on the scales of the observables."""
        return all(o.distribution == "normal" for o, _ in self.observables)

    def predictions(self, v: Any, row: Any) -> Any:
        """The model's values of a row's measurements: times, observables, replicates, in order."""
        return self._at_all_times(v, row, lambda compared: (compared.model,))

    def _at_all_times(self, v: Any, row: Any, terms: Callable[[Compared], Iterable[Any]]) -> Any:
        """Numbers of each measurement, time by time; 0 where there is none."""
        theta = self.parameters(v)
        values, state = self.solved(theta, row)

        def at_time(carry: Any, k: Any) -> tuple[Any, Any]:
            known = self._known(values, state(k), row.time[k])
            numbers = [
                ops.where(weight > 0.5, number, 0.0)
                for weight, compared in self._compared(known, theta, row, k)
                for number in terms(compared)
            ]
            return carry, array(numbers)

        _, numbers = scan(at_time, 0.0, np.arange(len(row.time)))
        return numbers.reshape(-1)

    def parameters(self, v: Any) -> dict[str, Any]:
        """The estimated parameters by name, on their own scale."""
        return {name: SCALES[s](v[k]) for k, (name, s) in enumerate(self.scales.items())}

    def solved(
        self, theta: Mapping[str, Any], row: Any
    ) -> tuple[dict[Any, Any], Callable[[Any], Any]]:
        """Values of symbols in a row's simulation, and its states (n,) by the numbers of times."""
        during = self.conditions.simulation
        values, y0 = self._start(theta, row, during)
        if self.equilibrated.constant != 0.0:
            equilibrated = self.equilibrated.value(row, theta) > 0.5
            y0 = np.where(equilibrated, self._steady(theta, row), y0)
        y0 = self._set(y0, theta, row, during)
        states = self.simulation.states(values, y0, row.time)
        if not self.is_endless:
            return values, lambda k: states[k]
        steady = self.simulation.steady(values, y0)
        return values, lambda k: np.where(row.endless[k] > 0.5, steady, states[k])

    def _steady(self, theta: Mapping[str, Any], row: Any) -> Any:
        """The steady state under the condition before."""
        return self.simulation.steady(*self._start(theta, row, self.conditions.preequilibration))

    def _start(
        self, theta: Mapping[str, Any], row: Any, settings: Mapping[str, Setting]
    ) -> tuple[dict[Any, Any], Any]:
        """The values of all constants under a condition, by their symbols, and the first states."""
        model = self.simulation.model
        known = {symbol(k): x for k, x in {**model.parameters, **self.fixed, **theta}.items()}
        for name, setting in settings.items():
            if name not in model.initial:
                known[symbol(name)] = setting.chosen(row, theta, known.get(symbol(name)))
        for name, formula in model.initial.items():
            if name in self.fixed or name in theta:
                continue
            value = from_sympy(formula, known)
            setting = settings.get(name)
            known[symbol(name)] = setting.chosen(row, theta, value) if setting else value
        return known, array([known.pop(symbol(x)) for x in model.states])

    def _set(
        self, y: Any, theta: Mapping[str, Any], row: Any, settings: Mapping[str, Setting]
    ) -> Any:
        """States of which a condition sets some."""
        chosen = [
            settings[x].chosen(row, theta, y[k]) if x in settings else y[k]
            for k, x in enumerate(self.simulation.model.states)
        ]
        return array(chosen)

    def _known(self, values: Mapping[Any, Any], y: Any, t: Any) -> dict[Any, Any]:
        """Values of symbols at a time, those that rules assign among them."""
        model = self.simulation.model
        known = {**values, **{symbol(x): y[k] for k, x in enumerate(model.states)}, TIME: t}
        used = {s.name for s in self._symbols}
        assigned = {symbol(x): f for x, f in model.assigned.items() if x in used}
        return known | {x: from_sympy(f, known) for x, f in assigned.items()}

    @property
    def _symbols(self) -> set[Any]:
        """The symbols of all observables and their noise."""
        return {
            s for o, _ in self.observables for f in (o.formula, o.noise) for s in f.free_symbols
        }

    def require_values(self) -> None:
        """Refuse symbols that have no value, and conditions that set what rules assign."""
        model, conditions = self.simulation.model, self.conditions
        if self.is_endless and self.simulation.has_switches:
            raise InputError(
                f"{model.name}: equations that change at times, by events or in a piecewise, and "
                "measurements at the time inf are not supported together: give these the last time"
            )
        if self.is_endless and TIME in self._symbols:
            raise InputError(
                f"{model.name}: an observable depends on the time, and is measured at the time inf"
            )
        set_to = conditions.simulation.keys() | conditions.preequilibration.keys()
        if ruled := sorted(set_to & model.assigned.keys()):
            raise InputError(f"{model.name}: a condition sets {ruled[0]!r}, which a rule assigns")
        unset = {x for x, value in model.parameters.items() if value != value}
        unset |= {x for x, formula in model.initial.items() if formula is sp.nan}
        known = {*model.parameters, *model.initial} - unset
        known |= {*self.fixed, *self.scales, *set_to, *model.assigned, TIME.name}
        known |= {flag.name for flag in self.simulation.flags}
        known |= {x for o, m in self.observables for x in (o.name, *m.parameters)}
        formulas = [*model.rates, *model.initial.values(), *(e.trigger for e in model.events)]
        formulas += [f for e in model.events for _, f in e.assignments]
        used = self._symbols.union(*(f.free_symbols for f in formulas))
        if unknown := sorted({*model.states, *(s.name for s in used)} - known):
            raise InputError(f"{model.name}: there is no value of {', '.join(unknown)}")

    def _compared(
        self, known: Mapping[Any, Any], theta: Mapping[str, Any], row: Any, k: Any
    ) -> Iterator[tuple[Any, Compared]]:
        """The measurements at time k, and the weight of each."""
        for observable, measured in self.observables:
            for j in range(measured.replicates):
                slots = measured.parameters.items()
                placed = {symbol(name): s.value(row, theta, k, j) for name, s in slots}
                model = from_sympy(observable.formula, {**known, **placed})
                own = {symbol(observable.name): model}
                sigma = from_sympy(observable.noise, {**known, **placed, **own})
                measurement = getattr(row, measured.value)[k][j]
                weight = getattr(row, measured.weight)[k][j]
                yield weight, Compared(observable, model, sigma, measurement)


@dataclass(frozen=True)
class WholeTable:
    """The rows of a likelihood as constants of one function of the parameters.

    So each of many points is a lane of a kernel, in which a loop takes row by row.
    """

    likelihood: Likelihood
    columns: Mapping[str, Any]

    def loss(self, v: Any) -> Any:
        """Minus the logarithm of the likelihood of all measurements."""
        rows = len(self.columns["time"])
        return fori_loop(0, rows, lambda k, total: total + self.likelihood(v, self._row(k)), 0.0)

    def terms(self, v: Any) -> Any:
        """`Compared.terms` of all measurements, by turns."""
        rows = np.arange(len(self.columns["time"]))
        _, terms = scan(lambda carry, k: (carry, self.likelihood.terms(v, self._row(k))), 0.0, rows)
        return terms.reshape(-1)

    def _row(self, k: Any) -> Any:
        return SimpleNamespace(**{name: array(column)[k] for name, column in self.columns.items()})
