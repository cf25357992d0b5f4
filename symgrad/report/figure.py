"""Figures of matplotlib, which is imported only here."""

from __future__ import annotations

from typing import Any

from symgrad.errors import SymgradError


def new_figure(width: float, height: float) -> Any:
    """An empty figure of a size in inches.

    Raises:
        SymgradError: where matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SymgradError("matplotlib is not installed: pip install 'symgrad[plot]'") from error
    return Figure(figsize=(width, height), layout="constrained")
