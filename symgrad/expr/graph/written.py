"""What was written to an array where an element of a version of it is read."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from symgrad.expr.graph.arrays import WRITES, length
from symgrad.expr.graph.node import WORD, Graph


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
