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
    found = _indexed(tree, names, wrt) if tree.is_leaf else _named(tree, wrt)
    if found is None or not found[0]:
        known = names if tree.is_leaf else [block.name for block in tree.blocks]
        shown = ", ".join(known[:5]) + ", ..." * (len(known) > 5)
        raise InputError(
            f"wrt={wrt!r} is not one of the variables: give names out of {shown}"
            + (f", or positions in {tree.keys}" if tree.is_leaf else "")
        )
    return found


def _indexed(tree: Tree, names: Sequence[str], wrt: Any) -> Chosen | None:
    """Those of an array, by what indexes it or by names."""
    places = np.arange(tree.size).reshape(tree.keys)
    index = list(wrt) if isinstance(wrt, (tuple, range)) and len(tree.keys) == 1 else wrt
    given = [wrt] if isinstance(wrt, str) else index
    if isinstance(given, (list, tuple)) and all(isinstance(k, str) for k in given):
        if not {*given} <= {*names}:
            return None
        found = [names.index(k) for k in given]
        places, index = places.ravel(), found[0] if isinstance(wrt, str) else found
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
    known = {name: part for name, part in parts.items() if part is not None}
    if len(known) < len(parts):
        return None
    places = tuple(k for found, _ in known.values() for k in found)
    return places, Tree("dict", tuple(known), tuple(part for _, part in known.values()))


def _part(tree: Tree, name: str) -> Chosen | None:
    """What stands under a key, or under keys joined by dots."""
    part = tree
    for key in name.split("."):
        if part.kind != "dict" or key not in part.keys:
            return None
        part = part.children[part.keys.index(key)]
    blocks = [b for b in tree.blocks if b.name == name or b.name.startswith(f"{name}.")]
    return tuple(k for b in blocks for k in range(b.start, b.start + b.size)), part
