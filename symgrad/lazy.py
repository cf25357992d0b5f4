"""Modules that are loaded when they are first needed, as most programs never need them."""

from __future__ import annotations

import importlib
from typing import Any, Final


class Lazy:
    """A module of which nothing is loaded before one of its names is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        found = getattr(importlib.import_module(self._name), name)
        setattr(self, name, found)
        return found


cumulative: Final[Any] = Lazy("symgrad.tensor.cumulative")
"""Kernels that are made of arrays, which arrays have methods for."""

mpmath: Final[Any] = Lazy("mpmath")
sympy: Final[Any] = Lazy("sympy")
linalg: Final[Any] = Lazy("symgrad.expr.linear.linalg")
