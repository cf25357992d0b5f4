"""Steps of arrays like earlier ones, as the iterations of a loop of Python's are: planned once.

Arrays are alike if they are the same scalars of other arrays of the same shapes, by counters of the
same extents. Then they have the same kernels, which other arrays are bound to.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import replace

from symgrad.arrays.program import Tabulate
from symgrad.arrays.scalars import COUNTER, Array, Read, Reduce, Scalars
from symgrad.kernel.stages.steps import AnyStep, Step


class _Form:
    """Scalars by the places at which nodes and arrays are met first: alike ones have one key."""

    def __init__(self, scalars: Scalars) -> None:
        self.scalars = scalars
        self.arrays: dict[Array, int] = {}
        self.key: list[Hashable] = []
        self._nodes: dict[int, int] = {}

    def add_array(self, array: Array) -> int:
        """The place of an array."""
        place = self.arrays.get(array)
        if place is None:
            place = self.arrays[array] = len(self.arrays)
            self.key += place, array.shape, array.kind
        return place

    def add(self, root: int) -> int:
        """The place of a root; all nodes that it needs have theirs, the first arguments first."""
        nodes, places = self.scalars.graph.nodes, self._nodes
        waiting = [root]
        while waiting:
            i = waiting[-1]
            op = nodes[i][0]
            needed = [*self.scalars.args(i), *(op.counters if isinstance(op, Reduce) else ())]
            missing = [a for a in needed if a not in places]
            if missing and i not in places:
                waiting += reversed(missing)
                continue
            waiting.pop()
            if i not in places:
                places[i] = len(places)
                self._describe(i, op, [places[a] for a in needed])
        return places[root]

    def _describe(self, i: int, op: object, needed: Sequence[int]) -> None:
        match op:
            case Read(array=array):
                self.key += "read", self.add_array(array), *needed
            case Reduce(operator=operator, counters=counters):
                self.key += operator, len(counters), *needed
            case _ if op is COUNTER:
                self.key += "counter", self.scalars.extent(i)
            case _:  # a leaf is a node of its own in the graph
                self.key += (id(op), *needed) if needed else ("leaf", i)


class Repeated:
    """The steps of the arrays of a program, those of like arrays planned once.

    Steps are not those of others if they read arrays where copies of these are ``packed``.
    """

    def __init__(self, scalars: Scalars, packed: Collection[Array]) -> None:
        self._scalars, self._packed = scalars, packed
        self._known: dict[Hashable, tuple[list[Array], list[Step]]] = {}

    def steps(
        self,
        what: Hashable,
        arrays: Sequence[Array],
        stored: Collection[Array],
        make: Callable[[], Iterable[AnyStep]],
    ) -> list[AnyStep]:
        """The steps of some arrays, of which some are ``stored``: those of like ones, or new ones.

        ``what`` else they depend on is the same for like arrays.
        """
        form = _Form(self._scalars)
        for array in arrays:
            if not isinstance(array, Tabulate):
                return [*make()]
            form.key += form.add_array(array), array in stored
            form.key += [form.add(i) for i in (*array.counters, array.body)]
        key, own = (what, *form.key), [*form.arrays]
        if key not in self._known:
            in_place = not any(a in self._packed for a in own)
            steps = [*make()]
            dispatches = [s for s in steps if isinstance(s, Step)]
            if in_place and len(dispatches) == len(steps):
                self._known[key] = own, dispatches
            return steps
        before, known = self._known[key]
        return self._again(dict(zip(before, own, strict=True)), known)

    def _again(self, places: dict[Array, Array], steps: Sequence[Step]) -> list[AnyStep]:
        """Steps with other arrays in the places of some; what lies between is new."""

        def bound(buffers: Iterable[tuple[str, Array]]) -> tuple[tuple[str, Array], ...]:
            for _, array in buffers:
                if array not in places:
                    places[array] = Array(shape=array.shape, kind=array.kind)
            return tuple((name, places[array]) for name, array in buffers)

        return [replace(s, reads=bound(s.reads), writes=bound(s.writes)) for s in steps]
