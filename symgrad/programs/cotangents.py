"""Cotangents of values and variables, while the statements of a block are taken from the last."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from symgrad.kernel.statements import Buffer
from symgrad.programs.builder import Builder, Variable

Key = int | Buffer
"""A leaf of the program that is differentiated, or a variable of it."""


class Cotangents:
    """Those that are known in a block; ``outer`` are the variables that hold some around it.

    In straight code a cotangent is a value. What a block within another one adds to it is in a
    variable, which both have.
    """

    def __init__(self, builder: Builder, outer: dict[Key, Variable]) -> None:
        self.builder, self._outer = builder, set(outer)
        self.variables = dict(outer)
        self._values: dict[Key, Any] = {}
        self._changed: set[Key] = set()

    def get(self, key: Key) -> Any:
        """A cotangent; None is zero."""
        if key not in self._values and key in self.variables:
            self._values[key] = self.variables[key].value
        return self._values.get(key)

    def add(self, key: Key, g: Any) -> None:
        """Add to one."""
        before = self.get(key)
        self._values[key] = g if before is None else before + g
        self._changed.add(key)

    def take(self, key: Key) -> Any:
        """One, which is zero from now on."""
        cotangent = self.get(key)
        self._values[key] = None
        self._changed.add(key)
        return cotangent

    def _settle(self, key: Key) -> None:
        """Write one to its variable."""
        if key in self._changed:
            value = self._values.get(key)
            self.builder.assign(self.variables[key], 0.0 if value is None else value)
            self._changed.discard(key)

    def lend(self, keys: Iterable[tuple[Key, str]]) -> dict[Key, Variable]:
        """Variables that hold these, to be changed by a block that begins here."""
        lent: dict[Key, Variable] = {}
        for key, name in keys:
            if key in self.variables:
                self._settle(key)
            else:
                value = self.get(key)
                first = 0.0 if value is None else value
                self.variables[key] = self.builder.var(f"d_{name}", first)
                self._changed.discard(key)
            self._values.pop(key, None)
            lent[key] = self.variables[key]
        return lent

    def end(self) -> None:
        """The end of the block: what it has changed of others' goes to their variables."""
        for key in sorted(self._changed & self._outer, key=_order):
            self._settle(key)


def _order(key: Key) -> tuple[int, str]:
    return (key, "") if isinstance(key, int) else (-1, key.name)
