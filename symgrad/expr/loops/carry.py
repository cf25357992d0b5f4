"""Carries of loops and results of choices: nests of numbers, as the user has them and as nodes."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, TraceError
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import Graph, Handle
from symgrad.expr.tracers.array import TracedArray, array, in_memory
from symgrad.expr.tracers.expression import WRAP, Condition, operand, require_graph
from symgrad.expr.tracers.integers import KINDS, SignedWord, Word, is_typed, kind_of
from symgrad.expr.tracers.memory import LEAST_SWEPT, Array, SignedArray, View, WordArray
from symgrad.expr.tracers.tree import Tree, apart, flatten

_WORDS: Final = {
    "f": "a number",
    "b": "a condition",
    "u": "a uint32",
    "s": "an int32",
    "F": "an array",
    "W": "an array of uint32",
    "S": "an array of int32",
}
"""The names of types in messages; signed integers are words in the graph."""

_INTEGERS: Final = {"u": Word, "s": SignedWord}

_ARRAYS: Final = {"F": Array, "W": WordArray, "S": SignedArray}
"""Arrays in memory by their types."""

HANDLES: Final = WRAP | _INTEGERS | _ARRAYS
"""The handles of values of each type."""

OF_TYPE: Final = _ARRAYS | {"f": Array, "b": Array, "u": WordArray, "s": SignedArray}
"""The arrays in memory of values of a type."""


@dataclass(frozen=True)
class Nest:
    """How numbers are nested, and of each block of the tree the types of its nodes.

    A block of several numbers that are kept in memory is one node, an array.
    """

    tree: Tree
    kinds: tuple[str, ...]

    @property
    def types(self) -> str:
        """The type of each node."""
        return "".join(self.kinds)

    def wrap(self, graph: Graph, ids: Sequence[int]) -> Any:
        """The nest of these nodes."""
        pairs = zip(self.types, ids, strict=True)
        handles = iter([HANDLES[kind](graph, i) for kind, i in pairs])
        blocks = zip(self.tree.blocks, self.kinds, strict=True)
        parts = (_leaf(block.shape, [next(handles) for _ in kind]) for block, kind in blocks)
        return self.tree.nest(parts, None)

    def names(self, name: str) -> list[str]:
        """A name for each node, those without one after ``name``."""
        names: list[str] = []
        for block, kind in zip(self.tree.blocks, self.kinds, strict=True):
            path = "" if self.tree.is_leaf else block.name.replace(".", "_")
            start = path if path.isidentifier() else f"{name}{path}"
            single = not block.shape or is_memory(kind)
            names += [start] if single else [f"{start}{k}" for k in range(block.size)]
        return names

    def joined(self, other: Nest) -> Nest:
        """This nest, with numbers where either has a number and the other a condition.

        Arrays are in memory where they are so in either.
        """
        if self.tree != other.tree:
            return self
        pairs = zip(self.kinds, other.kinds, strict=True)
        return replace(self, kinds=tuple(_joined(a, b) for a, b in pairs))

    def in_memory(self, other: Nest) -> Nest:
        """This nest, with arrays in memory where the other has them in memory."""
        if self.tree != other.tree:
            return self
        pairs = zip(self.kinds, other.kinds, strict=True)
        return replace(self, kinds=tuple(b if is_memory(b) else a for a, b in pairs))

    def ids(self, graph: Graph, value: Any, what: str) -> list[int]:
        """The nodes of a value that is nested like this.

        Raises:
            TraceError: if it is not; ``what`` is what it is called there.
        """
        try:
            parts = list(self.tree.parts(value, what))
        except (InputError, KeyError) as error:
            same = "the initial carry, or the other branch, has this structure"
            raise TraceError(located(f"{error}: {same}")) from error
        leaves: list[Any] = []
        for part, block, kind in zip(parts, self.tree.blocks, self.kinds, strict=True):
            name = what if self.tree.is_leaf else f"{what}: {block.name}"
            if is_memory(kind) and block.shape:
                _require_shape(part, block.shape, name)
                leaves.append(in_memory(graph, part).view.array)
            else:
                leaves += _elements(part, block.shape, name)
        return [_of_type(graph, x, t, what) for x, t in zip(leaves, self.types, strict=True)]


def flattened(graph: Graph, value: Any, what: str) -> tuple[list[int], Nest]:
    """The nodes of a nest of numbers, and how they are nested.

    Raises:
        TraceError: if there is anything else in it.
    """
    values, tree = flatten(value, lambda part: _read(graph, part, what))
    leaves, kinds = iter(values), list[str]()
    for block in tree.blocks:
        first = next(leaves) if block.size else None
        alone = not block.size or not block.shape or isinstance(first, Array)
        rest = [] if alone else [next(leaves) for _ in range(block.size - 1)]
        kinds.append("".join(_type(x) for x in (first, *rest)) if block.size else "")
    nest = Nest(tree, tuple(kinds))
    return [_of_type(graph, x, t, what) for x, t in zip(values, nest.types, strict=True)], nest


def is_memory(kind: str) -> bool:
    """Whether a block of this type is an array in memory."""
    return kind in _ARRAYS


def _joined(a: str, b: str) -> str:
    """The types of what is chosen from two blocks of the same shape."""
    if is_memory(a) or is_memory(b):
        return a if is_memory(a) else b
    return "".join("f" if {*pair} == {"b", "f"} else pair[0] for pair in zip(a, b, strict=True))


def _read(graph: Graph, value: Any, what: str) -> tuple[list[Any], Tree] | None:
    """The numbers of an array, one handle if it is in memory, or a number; None of a container.

    A long array is put into memory.
    """
    if isinstance(value, TracedArray) and value.shape:
        return [in_memory(value.graph, value).view.array], Tree("array", value.shape)
    if isinstance(value, np.ndarray) and value.ndim:
        elements = _elements(value, value.shape, what)
        if value.size >= LEAST_SWEPT and set(map(_type, elements)) == {"f"}:
            elements = [in_memory(graph, value).view.array]
        return elements, Tree("array", value.shape)
    return (_elements(value, (), what), Tree()) if apart(value) is None else None


def _elements(value: Any, shape: tuple[int, ...], what: str) -> list[Any]:
    """The numbers of an array of this shape; () is one number."""
    _require_shape(value, shape, what)
    if isinstance(value, np.ndarray) and value.dtype.name in KINDS:
        return list(value.flat)
    if shape or isinstance(value, np.ndarray):
        return list(np.ravel(array(value)).tolist())
    if not isinstance(value, (Handle, int, float, np.number, np.bool_)):
        kind = type(value).__name__
        raise TraceError(located(f"{what} holds {value!r} ({kind}), which is not a number"))
    return [value]


def _require_shape(value: Any, shape: tuple[int, ...], what: str) -> None:
    in_memory = isinstance(value, TracedArray)
    actual = () if isinstance(value, Handle) else value.shape if in_memory else np.shape(value)
    if actual != shape:
        raise TraceError(located(f"{what} has the shape {actual}, not {shape}"))


def _leaf(shape: tuple[int, ...], handles: Sequence[Handle]) -> Any:
    if not shape:
        return handles[0]
    if handles and isinstance(handles[0], Array):
        return TracedArray(View.whole(handles[0], shape))
    parts = np.empty(len(handles), dtype=object)
    parts[:] = handles
    return array(parts.reshape(shape))


def _type(value: Any) -> str:
    if isinstance(value, (bool, np.bool_, Condition)):
        return "b"
    if is_typed(value):
        return "s" if kind_of(value) is SignedWord else "u"
    if isinstance(value, SignedArray):
        return "S"
    return value.type if isinstance(value, Array) else "f"


def _of_type(graph: Graph, value: Any, expected: str, what: str) -> int:
    """The node of a number, which is to be of this type; a condition may be a number, 1 or 0."""
    kind = _type(value)
    if isinstance(value, Handle):
        require_graph(graph, value)
    elif expected in _INTEGERS and isinstance(value, numbers.Integral):
        return _INTEGERS[expected].of(graph, int(value)).id
    if kind != expected and (kind, expected) != ("b", "f"):
        raise TraceError(located(f"{what} is {_WORDS[kind]} where it has to be {_WORDS[expected]}"))
    return value.id if expected in _INTEGERS else operand(graph, value, expected)
