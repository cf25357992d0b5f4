"""What loops carry and choices give: nests of numbers, as the user has them and as nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, TraceError
from symgrad.expr.array import array
from symgrad.expr.expression import WRAP, Condition, Word, operand, require_graph
from symgrad.expr.misuse import located
from symgrad.expr.node import Graph, Handle
from symgrad.expr.tree import Tree, apart, flatten
from symgrad.expr.versions import Array

_WORDS: Final = {
    "f": "a number", "b": "a condition", "u": "a word", "F": "an array", "W": "an array of words",
}  # fmt: skip
"""What values of each type are called."""


@dataclass(frozen=True)
class Nest:
    """How numbers are nested, and the type of each."""

    tree: Tree
    types: str

    def wrap(self, graph: Graph, ids: Sequence[int]) -> Any:
        """The nest of these nodes."""
        handles = iter([WRAP[t](graph, i) for t, i in zip(self.types, ids, strict=True)])
        parts = (_leaf(block.shape, handles, block.size) for block in self.tree.blocks)
        return self.tree.nest(parts, None)

    def names(self, name: str) -> list[str]:
        """A name for each number, those without one after ``name``."""
        found: list[str] = []
        for block in self.tree.blocks:
            path = "" if self.tree.is_leaf else block.name.replace(".", "_")
            start = path if path.isidentifier() else f"{name}{path}"
            several = [f"{start}{k}" for k in range(block.size)]
            found += several if block.shape else [start]
        return found

    def joined(self, other: Nest) -> Nest:
        """The same nest, with numbers where either has a number and the other a condition."""
        if self.tree != other.tree:
            return self
        pairs = zip(self.types, other.types, strict=True)
        return replace(self, types="".join("f" if {*p} == {"b", "f"} else p[0] for p in pairs))

    def ids(self, graph: Graph, value: Any, what: str) -> list[int]:
        """The nodes of a value that is nested like this.

        Raises:
            TraceError: if it is not; ``what`` is what it is called there.
        """
        try:
            parts = list(self.tree.parts(value, what))
        except (InputError, KeyError) as error:
            same = "it is nested as what is carried first, or what the other side gives"
            raise TraceError(located(f"{error}: {same}")) from error
        leaves: list[Any] = []
        for part, block in zip(parts, self.tree.blocks, strict=True):
            name = what if self.tree.is_leaf else f"{what}: {block.name}"
            leaves += _elements(part, block.shape, name)
        return [_of_type(graph, x, t, what) for x, t in zip(leaves, self.types, strict=True)]


def flattened(graph: Graph, value: Any, what: str) -> tuple[list[int], Nest]:
    """The nodes of a nest of numbers, and how they are nested.

    Raises:
        TraceError: if there is anything else in it.
    """
    found, tree = flatten(value, lambda part: _read(part, what))
    types = "".join(_type(x) for x in found)
    ids = [_of_type(graph, x, t, what) for x, t in zip(found, types, strict=True)]
    return ids, Nest(tree, types)


def _read(value: Any, what: str) -> tuple[list[Any], Tree] | None:
    """The numbers of an array, or a number; None of a container."""
    if isinstance(value, np.ndarray) and value.ndim:
        return _elements(value, value.shape, what), Tree("array", value.shape)
    return (_elements(value, (), what), Tree()) if apart(value) is None else None


def _elements(value: Any, shape: tuple[int, ...], what: str) -> list[Any]:
    """The numbers of an array of this shape; () is one number."""
    found = () if isinstance(value, Handle) else np.shape(value)
    if found != shape:
        raise TraceError(located(f"{what} has the shape {found}, not {shape}"))
    if shape or isinstance(value, np.ndarray):
        return list(np.ravel(array(value)).tolist())
    if not isinstance(value, (Handle, int, float, np.number, np.bool_)):
        kind = type(value).__name__
        raise TraceError(located(f"{what} holds {value!r} ({kind}), which is no number"))
    return [value]


def _leaf(shape: tuple[int, ...], handles: Iterator[Handle], size: int) -> Any:
    if not shape:
        return next(handles)
    parts = np.empty(size, dtype=object)
    parts[:] = [next(handles) for _ in range(size)]
    return array(parts.reshape(shape))


def _type(value: Any) -> str:
    if isinstance(value, (bool, np.bool_, Condition)):
        return "b"
    if isinstance(value, Word):
        return "u"
    return value.type if isinstance(value, Array) else "f"


def _of_type(graph: Graph, value: Any, wanted: str, what: str) -> int:
    """The node of a number, which is to be of this type; a condition may be a number, 1 or 0."""
    found = _type(value)
    if isinstance(value, Handle):
        require_graph(graph, value)
    if found != wanted and (found, wanted) != ("b", "f"):
        raise TraceError(located(f"{what} is {_WORDS[found]} where it has to be {_WORDS[wanted]}"))
    return operand(graph, value, wanted)
