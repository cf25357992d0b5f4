"""Reads NIST's Statistical Reference Datasets for nonlinear regression, as NIST publishes them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from symgrad.errors import InputError

DATA = files("symgrad.demo") / "data"


@dataclass(frozen=True, eq=False)
class Dataset:
    """Data with a model, two starting points, and parameters certified to eleven digits.

    Invariants:
      1. ``x`` and ``y`` have shape (observations,).
      2. ``starts`` has shape (2, parameters); ``certified`` and ``deviations`` (parameters,).
    """

    name: str
    level: str
    model: str
    response: str
    predictor: str
    starts: np.ndarray
    certified: np.ndarray
    deviations: np.ndarray
    residual_sum: float
    x: np.ndarray
    y: np.ndarray

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the parameters: b1, b2, ..."""
        return tuple(f"b{k + 1}" for k in range(len(self.certified)))


def available() -> tuple[str, ...]:
    """The names of the data sets that come with symgrad."""
    return tuple(sorted(f.name.removesuffix(".dat") for f in DATA.iterdir() if ".dat" in f.name))


def load(name: str) -> Dataset:
    """The data set of this name, upper and lower case being the same.

    Raises:
        InputError: if there is none, naming those there are.

    Example:
        >>> from symgrad.demo.nist import load
        >>> data = load("misra1a")
        >>> data.model, len(data.x)
        ('y = b1*(1-exp[-b2*x]) + e', 14)
    """
    file_name = {n.lower(): n for n in available()}.get(name.lower())
    if file_name is None:
        raise InputError(f"there is no data set {name!r}: choose one of {', '.join(available())}")
    return parse((DATA / f"{file_name}.dat").read_text("ascii"))


def parse(text: str) -> Dataset:
    """A data set with one predictor from the text of its ``.dat`` file.

    The head of the file names the lines on which starting values, certified values and data stand.

    Raises:
        InputError: if the text is no such file.
    """
    lines = text.splitlines()
    first, last = _lines_of(text, "Starting Values")
    values = np.array([_numbers(line.partition("=")[2]) for line in lines[first - 1 : last]])
    first, last = _lines_of(text, "Data")
    table = np.array([_numbers(line) for line in lines[first - 1 : last]])
    if values.ndim != 2 or values.shape[1] != 4 or table.ndim != 2 or table.shape[1] != 2:
        raise InputError("a data set needs two starts, certified values, and columns y and x")
    return Dataset(
        name=_matched(r"Dataset Name:\s+(\w+)", text),
        level=_matched(r"(\w+) Level of Difficulty", text).lower(),
        model=" ".join(_matched(r"\n\s+(y\s+=.*?)\n\s*\n", text).split()),
        response=_variable("y", text),
        predictor=_variable("x", text),
        starts=values[:, :2].T.copy(),
        certified=values[:, 2],
        deviations=values[:, 3],
        residual_sum=_numbers(_matched(r"Residual Sum of Squares:\s+(\S+)", text))[0],
        x=table[:, 1],
        y=table[:, 0],
    )


def _lines_of(text: str, what: str) -> tuple[int, int]:
    """The first and the last line, counted from 1, on which the file says that something stands."""
    pattern = rf"{what}\s+\(lines\s+(\d+)\s+to\s+(\d+)\)"
    return int(_matched(pattern, text, 1)), int(_matched(pattern, text, 2))


def _matched(pattern: str, text: str, group: int = 1) -> str:
    match = re.search(pattern, text, re.DOTALL)
    if match is None:
        raise InputError(f"this is not a NIST data set: nothing in it matches {pattern!r}")
    return match[group]


def _variable(name: str, text: str) -> str:
    """The description of a variable in the file: "electron mobility" for y, or just "y"."""
    match = re.search(rf"\({name} = ([^)]+)\)", text)
    return match[1].replace("[", "(").replace("]", ")") if match else name


def _numbers(line: str) -> list[float]:
    try:
        return [float(word) for word in line.split()]
    except ValueError as error:
        raise InputError(
            f"a line of the data set holds something other than numbers: {line}"
        ) from error
