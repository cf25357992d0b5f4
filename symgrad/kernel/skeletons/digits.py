"""Operands of products whose rows, columns or terms go through several axes of an array.

A window of an image has its own columns and terms, of which none is copied: the number of a row, a
column, a term or a matrix has a digit for each axis, and each digit has a step through memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from symgrad.kernel.language.index import Index


class Digits(NamedTuple):
    """How many digits the number of a matrix has, that of a row or column, and that of a term.

    Fours of rows or columns are ``beside`` each other in memory, if so. Where a tile's terms are
    ``even``, they have the same digits but the lowest.
    """

    matrix: int
    own: int
    term: int
    beside: bool = True
    even: bool = True

    def arguments(self, name: str) -> Iterator[str]:
        """The arguments of an operand: where it begins, and the counts and steps of digits.

        The lowest digit is the first; the highest one needs no count.
        """
        yield f"{name}_first"
        for part in ("matrix", "own", "term"):
            many = getattr(self, part)
            yield from (f"{name}_{part}_count_{k}" for k in range(many - 1))
            yield from (f"{name}_{part}_step_{k}" for k in range(many))

    def place(self, g: Mapping[str, Index], name: str, part: str, number: Index) -> Index:
        """How far a number is through memory."""
        place, last = Index(number.k, number.k.word(0)), getattr(self, part) - 1
        for k in range(last + 1):
            digit = number
            if k < last:
                number, digit = divmod(number, g[f"{name}_{part}_count_{k}"])
            step = digit * g[f"{name}_{part}_step_{k}"]
            place = place + step if k else step
        return place
