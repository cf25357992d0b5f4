"""Modules that are loaded when they are first needed, as most programs never need them."""

from __future__ import annotations

import importlib
from typing import Any, Final


class Lazy:
    """A module of which nothing is loaded before one of its names is asked for.

    ``stands_for`` is the module's name; a package leaves it to those above to name what is theirs.
    """

    def __init__(self, stands_for: str = "") -> None:
        self.stands_for = stands_for

    def __getattr__(self, name: str) -> Any:
        value = getattr(importlib.import_module(self.stands_for), name)
        setattr(self, name, value)
        return value


arithmetic: Final[Any] = Lazy()
"""The module that computes with arrays on a device; the package says which one it is."""

cumulative: Final[Any] = Lazy()
"""The module that scans arrays on a device; the package says which one it is."""

machine_code: Final[Any] = Lazy()
"""The module that compiles modules of LLVM for the host; the package says which one it is."""

definitions: Final[Any] = Lazy()
"""The module that evaluates definitions of kernels with NumPy; the package says which one it is."""

kernels: Final[Any] = Lazy()
"""The package, which runs functions of numbers as kernels: `jit` and `value_and_grad`."""

mpmath: Final[Any] = Lazy("mpmath")
sympy: Final[Any] = Lazy("sympy")
linalg: Final[Any] = Lazy("symgrad.expr.linear.linalg")
control: Final[Any] = Lazy("symgrad.expr.loops.control")
