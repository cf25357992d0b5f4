"""Arrays as values: the rows that read them, and that make new versions of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from symgrad.expr.graph.node import ARRAYS, HOLES, INPUTS, WORD, Graph, Op
from symgrad.lazy import Lazy


class ArrayOp(Op):
    """A row about arrays, which NumPy holds as (elements, points); past the end is the last one."""

    __slots__ = ()

    def __reduce__(self) -> str:
        return self.name.upper()  # the name of the row in this module


def _full(name: str, signature: str, value: float, dtype: Any) -> ArrayOp:
    def reference(length: int) -> Any:
        return np.full((length, 1), value, dtype)

    return ArrayOp(name=name, signature=signature, reference=reference, constant=True)


ZEROS: Final = _full("zeros", "->F", 0.0, np.float64)
"""``(ZEROS, length)``: an array of zeros, a constant."""
EMPTY: Final = _full("empty", "->F", np.nan, np.float64)
"""``(EMPTY, length)``: an array of which every number is written before it is read."""
EMPTY_W: Final = _full("empty_w", "->W", 2**32 - 1, np.uint32)
"""``(EMPTY_W, length)``: an array of words, as `EMPTY` is one of numbers."""


def read(a: Any, i: Any) -> Any:
    """The numbers at these indices of arrays (elements, points)."""
    i = np.minimum(i, len(a) - 1)
    if np.ndim(i) == 0:
        return a[i].copy()  # the array may be overwritten
    points = np.arange(len(i))
    return a[i, points if a.shape[1] > 1 else 0]


def write(a: Any, i: Any, value: Any, add: bool, mask: Any = None) -> None:
    """Write numbers to these indices of arrays (elements, points), of the points in a mask."""
    points = np.arange(a.shape[1]) if mask is None else np.flatnonzero(mask)
    i, value = (np.broadcast_to(x, (a.shape[1],))[points] for x in (i, value))
    i = np.minimum(i, len(a) - 1)
    a[i, points] = a[i, points] + value if add else value


def _written(add: bool) -> Callable[..., Any]:
    """The reference of a write, which copies the array of all points."""

    def reference(a: Any, i: Any, value: Any) -> Any:
        width = max(a.shape[1], np.size(i), np.size(value))
        copy = np.array(np.broadcast_to(a, (len(a), width)))
        write(copy, i, value, add)
        return copy

    return reference


GET: Final = ArrayOp(
    name="get", signature="Fu->f", reference=read, meaning="element i of the array a"
)
GET_W: Final = ArrayOp(
    name="get_w", signature="Wu->u", reference=read, meaning="element i of the array a of words"
)
PUT: Final = ArrayOp(
    name="put",
    signature="Fuf->F",
    reference=_written(add=False),
    meaning="the array a with x as element i",
)
PUT_W: Final = ArrayOp(
    name="put_w",
    signature="Wuu->W",
    reference=_written(add=False),
    meaning="the array a of words with x as element i",
)
ADD_AT: Final = ArrayOp(
    name="add_at",
    signature="Fuf->F",
    reference=_written(add=True),
    meaning="the array a with x added to element i",
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ArrayRule(ArrayOp):
    """A row that is its first argument, an array, and has derivatives of its own by the others.

    ``vjp`` gives the cotangents of the arguments, and ``push(y, *arguments, *changes)`` the tangent
    of y, where None is the change of an argument that does not change; None in place of a function
    says that the derivative is 0. The row is a constant of the module ``home``.
    """

    push: Callable[..., Any] | None
    home: str

    def __reduce__(self) -> Any:
        return _rule_of, (self.home, self.name)


def _rule_of(home: str, name: str) -> ArrayRule:
    return getattr(Lazy(home), name.upper())


def array_rule(
    home: str,
    name: str,
    signature: str,
    meaning: str,
    vjp: Callable[..., Any] | None = None,
    push: Callable[..., Any] | None = None,
) -> ArrayRule:
    """The row of this name and meaning: see `ArrayRule`."""
    return ArrayRule(
        name=name,
        signature=signature,
        reference=lambda x, *_: np.array(x),
        transparent=True,
        meaning=meaning,
        vjp=vjp,
        push=push,
        home=home,
    )


DETACHED: Final = array_rule(__name__, "detached", "F->F", "the array, whose derivative is 0")

FRESH: Final = (ZEROS, EMPTY, EMPTY_W)
"""Leaves that are new arrays: ``(op, length)``."""
WRITES: Final = (PUT, PUT_W, ADD_AT)
"""Operations that give a new version of their first argument."""
READS: Final = {"F": GET, "W": GET_W}
"""The row that reads an array of each type."""
PUTS: Final = {"F": PUT, "W": PUT_W}
"""The row that writes to an array of each type."""
EMPTIES: Final = {"F": EMPTY, "W": EMPTY_W}
"""The leaf of each type of which every number is written before it is read."""


def length(graph: Graph, i: int) -> int:
    """The length of an array: that of what it is a version of."""
    while True:
        op, *rest = graph.nodes[i]
        if op in _SIZED:
            return rest[-1]
        if op.result not in ARRAYS:
            raise AssertionError(f"node {i}, {op.name}, is no array")
        if op.signature[0] == "t":  # a result of a loop or a choice, which says of what
            graph, i = op.origin(graph, rest[0])
        else:
            i = rest[0]


_SIZED: Final = {*FRESH, *(leaves[kind] for leaves in (INPUTS, HOLES) for kind in ARRAYS)}
"""Leaves that say how long they are, last of all."""


def size_of(graph: Graph, i: int) -> int | None:
    """The length of an array, and None of any other value."""
    return length(graph, i) if graph.type(i) in ARRAYS else None


# --- which write an element was made by -----------------------------------------------------------


@dataclass
class _Chain:
    """Versions of an array in a row, each with an element more that was written at a known index.

    ``base`` is the version before the first; ``places[i]`` are, in ascending order, the positions
    in the chain of those that wrote to element i, and ``versions`` all of them.
    """

    base: int
    size: int
    versions: list[int] = field(default_factory=list)
    places: dict[int, list[int]] = field(default_factory=dict)


class Writes:
    """The writes to the arrays of a graph, by what they wrote to.

    To find the last one to an element takes as long for a thousand versions as for one.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known: dict[int, tuple[_Chain, int] | None] = {}

    def last(self, array: int, at: int) -> int:
        """The version that wrote the element ``at`` of an array, or as far back as that is seen.

        It is a version whose write may be to this element, or what no write has made.
        """
        op, *payload = self._graph.nodes[at]
        if op is not WORD:
            return array
        (i,) = payload
        while (place := self._place(array)) is not None:
            chain, position = place
            if i >= chain.size:  # it is the last element, as all past the end are
                return array
            wrote = chain.places.get(i, [])
            n = bisect_right(wrote, position)
            if n:
                return chain.versions[wrote[n - 1]]
            array = chain.base
        return array

    def _place(self, array: int) -> tuple[_Chain, int] | None:
        """The chain that a version is part of, and its position there; None of any other array."""
        missing: list[int] = []
        while array not in self._known:
            if self._index(array) is None:
                self._known[array] = None
            else:
                missing.append(array)
                array = self._graph.nodes[array][1]
        for version in reversed(missing):
            self._known[version] = self._appended(version, self._known[array])
            array = version
        return self._known[array]

    def _appended(self, version: int, before: tuple[_Chain, int] | None) -> tuple[_Chain, int]:
        """Append a version to the chain of the one before it, or begin a chain at a branch."""
        parent = self._graph.nodes[version][1]
        if before is None or before[1] != len(before[0].versions) - 1:  # others go on from there
            size = before[0].size if before else length(self._graph, parent)
            before = _Chain(parent, size), -1
        chain, position = before[0], before[1] + 1
        chain.versions.append(version)
        index = self._index(version)
        assert index is not None, "a chain is of writes at known indices"
        chain.places.setdefault(min(index, chain.size - 1), []).append(position)
        return chain, position

    def _index(self, array: int) -> int | None:
        """Where a version wrote, if it did so at a known index."""
        op, *args = self._graph.nodes[array]
        if op not in WRITES:
            return None
        index, *payload = self._graph.nodes[args[1]]
        return payload[0] if index is WORD else None
