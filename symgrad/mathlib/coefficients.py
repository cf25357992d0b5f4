"""Tables of coefficients: numbers in lines, as `tools/fit.py` finds them."""

from __future__ import annotations

Coefficients = tuple[float, ...]
"""Coefficients of a polynomial, the one of the lowest power first."""


def coefficients(table: str) -> Coefficients:
    """The numbers of a table, which has white space between them.

    Example:
        >>> coefficients('''
        ...     1.0 0.5
        ...     -0.25
        ... ''')
        (1.0, 0.5, -0.25)
    """
    return tuple(map(float, table.split()))
