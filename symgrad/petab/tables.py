"""Tables of PEtab as columns of a table of simulations, and what each simulation is given."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from symgrad.errors import InputError
from symgrad.expr import ops

Entry = float | str
"""A number, or the name of a parameter that is estimated."""

PARAMETERS_OF: Final = {"observable": "observableParameters", "noise": "noiseParameters"}
"""The columns of the table of measurements that fill the place-holders of formulas."""


@dataclass(frozen=True)
class Slot:
    """An array of entries in every row: as a constant, or as columns of the table of simulations.

    A value is a column of numbers plus, for each parameter that is named somewhere, that parameter
    times a column of ones and zeros.
    """

    constant: Entry | None
    numbers: str = ""
    masks: tuple[tuple[str, str], ...] = ()

    def value(self, row: Any, theta: Mapping[str, Any], *index: Any) -> Any:
        """The element at an index, of a traced row, where parameters have these values."""
        if self.constant is not None:
            return theta[self.constant] if isinstance(self.constant, str) else self.constant

        def at(column: str) -> Any:
            element = getattr(row, column)
            for k in index:
                element = element[k]
            return element

        return sum((at(mask) * theta[name] for name, mask in self.masks), at(self.numbers))


@dataclass
class SimulationTable:
    """The columns of a table that has a row for each simulation."""

    columns: dict[str, NDArray[np.float64]] = field(default_factory=dict)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of an element of each column."""
        return {name: column.shape[1:] for name, column in self.columns.items()}

    def add(self, name: str, values: Any) -> str:
        """A new column, (rows, ...)."""
        self.columns[name] = np.ascontiguousarray(values, np.float64)
        return name

    def slot(self, name: str, entries: Any) -> Slot:
        """Columns for these entries (rows, ...), or none where all are the same."""
        distinct: set[Entry] = set(entries.flat)
        if len(distinct) == 1:
            return Slot(next(iter(distinct)))
        is_name = np.vectorize(lambda e: isinstance(e, str), otypes=[bool])(entries)
        numbers = self.add(name, np.where(is_name, 0.0, entries))
        names = sorted(e for e in distinct if isinstance(e, str))
        masks = tuple((n, self.add(f"{name}_{k}", entries == n)) for k, n in enumerate(names))
        return Slot(None, numbers, masks)


@dataclass(frozen=True)
class Measured:
    """The measurements of an observable: columns of shape (times, replicates).

    ``value`` and ``weight`` are names of columns; where the weight is 0 there is no measurement.
    ``parameters`` fill the place-holders of the formulas of the observable and of its noise.
    """

    observable: str
    replicates: int
    value: str
    weight: str
    parameters: Mapping[str, Slot]
    places: NDArray[np.intp]
    """The measurements, by their places in the table of measurements, (m,)."""
    at: tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]
    """The row, the time and the replicate of each."""


@dataclass(frozen=True)
class Setting:
    """The value that a condition sets an entity to; ones and zeros say whether it does."""

    value: Slot
    is_set: Slot

    def chosen(self, row: Any, theta: Mapping[str, Any], otherwise: Any) -> Any:
        """The value that a row's condition sets, or else ``otherwise``."""
        if self.is_set.constant is not None:
            return self.value.value(row, theta) if self.is_set.constant else otherwise
        is_set = self.is_set.value(row, theta) > 0.5
        return ops.where(is_set, self.value.value(row, theta), otherwise)


@dataclass(frozen=True)
class Conditions:
    """Settings by the names of entities: in simulations, and before them."""

    simulation: Mapping[str, Setting]
    preequilibration: Mapping[str, Setting]


def entry(value: Any, fixed: Mapping[str, float], estimated: Sequence[str], where: str) -> Entry:
    """A cell of a table as a number, or as the name of a parameter that is estimated.

    Raises:
        InputError: for a name that no parameter has.
    """
    text = str(value).strip()
    try:
        return float(text)
    except ValueError:
        pass
    if text in fixed:
        return fixed[text]
    if text in estimated:
        return text
    raise InputError(f"{where}: {text!r} is neither a number nor in the table of parameters")


class Layout:
    """Rows of simulations: their conditions, their times, and where each measurement stands."""

    def __init__(self, measurements: Any) -> None:
        self.measurements = measurements
        before = measurements.get("preequilibrationConditionId")
        ids = measurements["simulationConditionId"].tolist()
        befores = [""] * len(ids) if before is None else ["" if is_empty(b) else b for b in before]
        pairs = list(zip(befores, ids, strict=True))
        self.simulations: list[tuple[str, str]] = list(dict.fromkeys(pairs))
        """Pairs of the condition before, or "", and the condition of each simulation."""
        self.is_equilibrated = any(condition for condition, _ in self.simulations)
        """Whether a steady state comes before some simulation."""
        self.row = np.array([self.simulations.index(pair) for pair in pairs])
        time = measurements["time"].to_numpy(float)
        if np.isnan(time).any():
            raise InputError("a measurement has no time")
        if (time < 0.0).any():
            raise InputError("measurements at negative times: simulations begin at the time 0")
        each = [np.unique(time[self.row == k]) for k in range(len(self.simulations))]
        longest = max(map(len, each))
        self.times = np.stack([np.pad(t, (0, longest - len(t)), mode="edge") for t in each])
        """(rows, times): those of each simulation, the last of them repeated where it has fewer."""
        self.in_steady_state = np.isinf(self.times)
        """(rows, times): whether a measurement is of the steady state, at the time inf, instead."""
        ends = np.max(self.times, axis=1, where=~self.in_steady_state, initial=0.0, keepdims=True)
        self.times = np.where(self.in_steady_state, ends, self.times)
        self.step = np.array(
            [np.searchsorted(each[r], t) for r, t in zip(self.row, time, strict=True)]
        )

    def equilibrated(self, table: SimulationTable) -> Slot:
        """1 in simulations before which comes a steady state, 0 in others."""
        return table.slot(
            "equilibrated", np.array([float(bool(b)) for b, _ in self.simulations], object)
        )

    def measured(
        self, table: SimulationTable, k: int, observable: str, cell: Any
    ) -> Measured | None:
        """The columns of an observable, number k of all; None if nobody has measured it."""
        places = np.flatnonzero(self.measurements["observableId"].to_numpy() == observable)
        if not len(places):
            return None
        replicate = self._replicates(places)
        shape = *self.times.shape, int(replicate.max()) + 1
        at = self.row[places], self.step[places], replicate
        value, weight = np.ones(shape), np.zeros(shape)
        value[at] = self.measurements["measurement"].to_numpy(float)[places]
        weight[at] = 1.0
        slots = {
            name: table.slot(f"{kind}{k}_{number}", self._spread(shape, at, entries))
            for kind, column in PARAMETERS_OF.items()
            for number, entries in enumerate(self._entries(column, places, cell), 1)
            for name in [f"{kind}Parameter{number}_{observable}"]
        }
        names = table.add(f"value{k}", value), table.add(f"weight{k}", weight)
        return Measured(observable, shape[2], *names, slots, places, at)

    def _replicates(self, places: NDArray[np.intp]) -> NDArray[np.intp]:
        """The how-manieth of its simulation and time each measurement is."""
        seen: dict[tuple[int, int], int] = {}
        numbers = []
        for pair in zip(self.row[places], self.step[places], strict=True):
            numbers.append(seen.get(pair, 0))
            seen[pair] = numbers[-1] + 1
        return np.array(numbers)

    def _entries(self, column: str, places: NDArray[np.intp], cell: Any) -> list[list[Entry]]:
        """The entries of each place-holder, in the order of the measurements."""
        if column not in self.measurements:
            return []
        cells = self.measurements[column].to_numpy(object)[places]
        parts = [[] if is_empty(c) else str(c).split(";") for c in cells]
        if len({len(p) for p in parts}) > 1:
            raise InputError(f"{column} has more entries for some measurements than for others")
        return [[cell(p[k], column) for p in parts] for k in range(len(parts[0]))]

    def _spread(self, shape: tuple[int, ...], at: Any, entries: list[Entry]) -> NDArray[np.object_]:
        """Entries in their places; where there is no measurement, one of the others."""
        spread = np.full(shape, entries[0], object)
        spread[at] = np.array(entries, object)
        return spread


def conditions_of(table: SimulationTable, conditions: Any, layout: Layout, cell: Any) -> Conditions:
    """Settings of the table of conditions, in each simulation and before it."""
    after: dict[str, Setting] = {}
    before: dict[str, Setting] = {}
    for k, name in enumerate(c for c in conditions.columns if c != "conditionName"):
        column = conditions[name]

        def setting(prefix: str, ids: Sequence[str], k: int = k, column: Any = column) -> Setting:
            cells = [column.loc[condition] for condition in ids]
            entries = [0.0 if is_empty(c) else cell(c, "the table of conditions") for c in cells]
            is_set = [float(not is_empty(c)) for c in cells]
            return Setting(
                table.slot(f"{prefix}{k}", np.array(entries, object)),
                table.slot(f"{prefix}{k}_set", np.array(is_set, object)),
            )

        after[name] = setting("during", [c for _, c in layout.simulations])
        before[name] = setting("before", [b or c for b, c in layout.simulations])
    return Conditions(after, before)


def is_empty(cell: Any) -> bool:
    """Whether a cell of a table has no entry."""
    return cell is None or (isinstance(cell, float) and math.isnan(cell)) or cell == ""
