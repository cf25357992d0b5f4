"""NIST's data sets as problems for `curve_fit`: those of the package, and Nelson's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from symgrad.demo import demonstration
from symgrad.demo.demonstration import MODELS, agreeing_digits


@dataclass(frozen=True, eq=False)
class Case:
    """A model ``f(x, *parameters)`` with data, two starts, and certified values and deviations."""

    f: Callable[..., Any]
    x: np.ndarray
    y: np.ndarray
    starts: np.ndarray
    certified: np.ndarray
    deviations: np.ndarray

    def digits(self, found: np.ndarray) -> float:
        """The digits to which the worst of the parameters agrees with the certified one."""
        return float(agreeing_digits(found, self.certified).min())


def packaged(name: str) -> Case:
    data, model = demonstration.load(name), MODELS[name]
    return Case(
        lambda x, *b: model(x, b), data.x, data.y, data.starts, data.certified, data.deviations
    )


def nelson() -> Case:
    """Dielectric breakdown strength against time and temperature: two predictors, log(y)."""
    lines = (Path(__file__).parent / "Nelson.dat").read_text("ascii").splitlines()
    values = np.array([line.partition("=")[2].split() for line in lines[40:43]], float)
    table = np.array([line.split() for line in lines[60:188]], float)
    return Case(
        lambda x, b1, b2, b3: b1 - b2 * x[0] * np.exp(-b3 * x[1]),
        table[:, 1:].T.copy(), np.log(table[:, 0]), values[:, :2].T, values[:, 2], values[:, 3],
    )  # fmt: skip


CASES = {name: packaged(name) for name in demonstration.available()} | {"Nelson": nelson()}
