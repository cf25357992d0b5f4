"""Minimisations from starts that are nested as a kernel's variables are, and their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from symgrad.errors import InputError
from symgrad.expr.tree import Tree
from symgrad.parameters import rows_of


def minimize_nested(tree: Tree, starts: Any, run: Callable[[Any], Any]) -> Any:
    """What ``run`` makes of starts (S, n), or of starts that are nested as the variables.

    Then ``x`` is nested likewise.

    Raises:
        InputError: for starts that are nested otherwise.
    """
    if not _is_nested(tree, starts):
        return run(starts)
    rows = rows_of(tree, starts, "starts")
    if rows.ndim > 2:
        raise InputError(f"starts have a batch of {rows.shape[:-1]}: one axis, or none, is needed")
    result = run(rows)
    result.x = tree.arrays(result.x)
    return result


def _is_nested(tree: Tree, starts: Any) -> bool:
    """Whether starts are nested or shaped as variables that are no array (n,)."""
    if isinstance(starts, Mapping):
        return True
    if not tree.is_leaf or len(tree.keys) < 2:
        return False
    shape = np.shape(starts)
    flat = len(shape) in (1, 2) and shape[-1] == tree.size
    return not flat and shape[len(shape) - len(tree.keys) :] == tree.keys
