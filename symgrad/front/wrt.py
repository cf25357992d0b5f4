"""Which variables a Jacobian is made for: positions or names, as a user gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from symgrad.errors import InputError
from symgrad.expr.tracers.tree import Tree

Chosen = tuple[tuple[int, ...], Tree]
"""The places of variables in the row of all, and how they are nested."""


def chosen(tree: Tree, names: Sequence[str], wrt: Any) -> Chosen:
    """The variables of a tree that ``wrt`` asks for; None asks for all.

    Raises:
        InputError: if one of them does not exist, or there are none.
    """
    if wrt is None:
        return tuple(range(tree.size)), tree
    selection = _indexed(tree, names, wrt) if tree.is_leaf else _named(tree, wrt)
    if selection is None or not selection[0]:
        choices = names if tree.is_leaf else [block.name for block in tree.blocks]
        shown = ", ".join(choices[:5]) + ", ..." * (len(choices) > 5)
        raise InputError(
            f"wrt={wrt!r} is not one of the variables: give names out of {shown}"
            + (f", or positions in {tree.keys}" if tree.is_leaf else "")
        )
    return selection


def _indexed(tree: Tree, names: Sequence[str], wrt: Any) -> Chosen | None:
    """The chosen variables of an array, by an index or by names."""
    places = np.arange(tree.size).reshape(tree.keys)
    index = list(wrt) if isinstance(wrt, (tuple, range)) and len(tree.keys) == 1 else wrt
    keys = [wrt] if isinstance(wrt, str) else index
    if isinstance(keys, (list, tuple)) and all(isinstance(k, str) for k in keys):
        if not {*keys} <= {*names}:
            return None
        positions = [names.index(k) for k in keys]
        places, index = places.ravel(), positions[0] if isinstance(wrt, str) else positions
    try:
        picked = places[index]
    except (IndexError, TypeError, ValueError):
        return None
    if isinstance(wrt, (bool, np.bool_)):
        return None
    shape = np.shape(picked)
    return tuple(np.ravel(picked).tolist()), Tree("array", shape) if shape else Tree()


def _named(tree: Tree, wrt: Any) -> Chosen | None:
    """A part of a dict, or a dict of several parts."""
    if isinstance(wrt, str):
        return _part(tree, wrt)
    if not isinstance(wrt, (list, tuple)) or not all(isinstance(name, str) for name in wrt):
        return None
    parts = {name: _part(tree, name) for name in wrt}
    existing = {name: part for name, part in parts.items() if part is not None}
    if len(existing) < len(parts):
        return None
    places = tuple(k for part_places, _ in existing.values() for k in part_places)
    return places, Tree("dict", tuple(existing), tuple(part for _, part in existing.values()))


def _part(tree: Tree, name: str) -> Chosen | None:
    """What stands under a key, or under keys joined by dots."""
    part = tree
    for key in name.split("."):
        if part.kind != "dict" or key not in part.keys:
            return None
        part = part.children[part.keys.index(key)]
    blocks = [b for b in tree.blocks if b.name == name or b.name.startswith(f"{name}.")]
    return tuple(k for b in blocks for k in range(b.start, b.start + b.size)), part
