"""Edges of functions that are the same in float32 and float64."""

from __future__ import annotations

import math
from typing import Final

NAN, INF = math.nan, math.inf

PLANE: Final[tuple[tuple[str, tuple[float, ...], float], ...]] = (
    ("faddeeva_real", (0.0, 0.0), 1.0), ("faddeeva_real", (INF, 0.0), 0.0),
    ("faddeeva_real", (1.0, INF), 0.0), ("faddeeva_real", (0.0, -1.0), NAN),
    ("faddeeva_imag", (-0.0, 0.0), 0.0), ("faddeeva_imag", (INF, 2.0), 0.0),
    ("faddeeva_imag", (2.0, -1e-30), NAN), ("faddeeva_real_slope", (0.0, 1.0), 0.0),
    ("faddeeva_real_slope", (1.0, -1.0), NAN),
    ("faddeeva_imag_slope", (0.0, 0.0), 2.0 / math.sqrt(math.pi)),
    ("faddeeva_imag_slope", (INF, INF), -0.0), ("faddeeva_real_bend", (0.0, 0.0), -2.0),
    ("faddeeva_real_bend", (-INF, 0.0), 0.0), ("faddeeva_imag_bend", (0.0, 0.0), 0.0),
    ("faddeeva_imag_bend", (1.0, NAN), NAN),
)  # fmt: skip
"""Parts of the Faddeeva function and its derivatives: name, arguments, value."""

INCOMPLETE: Final[tuple[tuple[str, tuple[float, ...], float], ...]] = (
    ("gammainc", (2.0, 0.0), 0.0), ("gammainc", (2.0, INF), 1.0), ("gammainc", (INF, 2.0), 0.0),
    ("gammainc", (0.0, 2.0), 1.0), ("gammainc", (0.0, 0.0), NAN), ("gammainc", (INF, INF), NAN),
    ("gammainc", (-1.0, 2.0), NAN), ("gammaincc", (2.0, 0.0), 1.0), ("gammaincc", (2.0, INF), 0.0),
    ("gamma_density", (0.5, 0.0), INF), ("gamma_density", (1.0, 0.0), 1.0),
    ("gamma_density", (2.0, INF), 0.0), ("gamma_density", (2.0, -1.0), NAN),
    ("betainc", (2.0, 3.0, 0.0), 0.0), ("betainc", (2.0, 3.0, 1.0), 1.0),
    ("betainc", (2.0, 3.0, -0.1), NAN), ("betainc", (2.0, 3.0, 1.5), NAN),
    ("betainc", (-1.0, 3.0, 0.5), NAN), ("betainc", (2.0, -1.0, 0.5), NAN),
    ("betainc", (NAN, 3.0, 0.0), NAN), ("betainc", (2.0, 3.0, NAN), NAN),
    ("betainc", (0.0, 3.0, 0.5), 1.0), ("betainc", (2.0, 0.0, 0.5), 0.0),
    ("betainc", (0.0, 0.0, 0.5), NAN), ("betainc", (INF, 2.0, 0.5), 0.0),
    ("betainc", (2.0, INF, 0.5), 1.0), ("betainc", (INF, INF, 0.5), NAN),
    ("betainc", (1e6, 1e6, 0.5), 0.5), ("betaincc", (2.0, 3.0, 0.0), 1.0),
    ("betaincc", (2.0, 3.0, 1.0), 0.0), ("betaincc", (2.0, 3.0, 1.5), NAN),
    ("betaincc", (0.0, 3.0, 0.5), 0.0), ("betaincc", (2.0, INF, 0.5), 0.0),
    ("betaincc", (INF, 2.0, 0.5), 1.0), ("betaincc", (1.0, 2.0, 1e-30), 1.0),
    ("beta_density", (0.5, 2.0, 0.0), INF), ("beta_density", (1.0, 2.5, 0.0), 2.5),
    ("beta_density", (2.0, 0.5, 0.0), 0.0), ("beta_density", (2.0, 0.5, 1.0), INF),
    ("beta_density", (2.5, 1.0, 1.0), 2.5), ("beta_density", (2.0, 2.0, 1.0), 0.0),
    ("beta_density", (2.0, 2.0, 1.5), NAN), ("beta_density", (0.0, 2.0, 0.5), NAN),
)  # fmt: skip
"""The incomplete gamma and beta functions and their densities: name, arguments, value."""
