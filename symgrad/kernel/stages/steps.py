"""Steps of plans: dispatches of kernels, whose arrays have no names yet, and what NumPy does."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod
from operator import mul
from typing import Any, Final

import numpy as np

from symgrad.arrays.program import Call, Joined, Part, Scan, Scatter, Tabulate
from symgrad.arrays.scalars import COUNTER, Array, Read, Reduce, Scalars
from symgrad.kernel.host.memory import POOL, ResidentArray
from symgrad.kernel.language.ir import Target
from symgrad.kernel.launch import Dispatch, Program
from symgrad.kernel.stages.products import Contraction, Operand


class HostStep:
    """A step that NumPy does: what it reads and writes, and how.

    ``run`` takes the arrays that it reads, and gives those that it writes.
    """

    inputs: tuple[Array, ...]
    writes: tuple[Array, ...]
    title: str

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results of these arrays, which stay as they are."""
        raise NotImplementedError


class CallStep(HostStep):
    """An algorithm on whole arrays, by its NumPy function."""

    def __init__(self, call: Call, results: Mapping[int, Array]) -> None:
        self.call, self.results, self.title = call, results, f"call {call.name}"
        self.inputs, self.writes = tuple(dict.fromkeys(call.operands)), tuple(results.values())
        self._numbers = tuple(results)

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The results that are needed: see `HostStep`."""
        known = dict(zip(self.inputs, arrays, strict=True))
        operands = [known[a] for a in self.call.operands]
        results = self.call.reference(*operands, *self.call.options)
        return [np.asarray(results[n]) for n in self._numbers]


class PartStep(HostStep):
    """Part of an array, of the host or of a device, which is a view of it."""

    def __init__(self, part: Part) -> None:
        self.inputs, self.writes = (part.whole,), (part,)
        self.title = f"part {list(part.shape)} from {part.first} on"
        self._place, self._shape = slice(part.first, part.first + part.size), part.shape

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """The part: see `HostStep`."""
        return [arrays[0].reshape(-1)[self._place].reshape(self._shape)]


class JoinStep(HostStep):
    """Arrays of the host, or of a device, one behind the other in one."""

    def __init__(self, joined: Joined) -> None:
        self.inputs, self.writes = joined.parts, (joined,)
        self.title = f"joined {list(joined.shape)}"

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """The whole: see `HostStep`."""
        (joined,) = self.writes
        flat = [a.reshape(-1) for a in arrays]
        if isinstance(flat[0], ResidentArray):
            return [flat[0].joined(flat[1:]).reshape(joined.shape)]
        whole = POOL.empty((joined.size,), flat[0].dtype)
        np.concatenate(flat, out=whole)
        return [whole.reshape(joined.shape)]


ACCUMULATED: Final[dict[str, np.ufunc]] = {
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


class ScanStep(HostStep):
    """Running totals of an array along an axis."""

    def __init__(self, scan: Scan, elements: Array) -> None:
        self.inputs, self.writes, self.title = (elements,), (scan,), f"scan {scan.operator}"
        self._function, self._axis = ACCUMULATED[scan.operator], scan.axis
        way = slice(None, None, -1 if scan.reverse else 1)
        self._order = (*[slice(None)] * scan.axis, way)

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The totals: see `HostStep`."""
        (elements,) = arrays
        totals = POOL.empty(elements.shape, elements.dtype)
        with np.errstate(all="ignore"):
            order = self._order
            self._function.accumulate(elements[order], self._axis, out=totals[order])
        return [totals]


def places_of(index: Sequence[np.ndarray], shape: Sequence[int]) -> np.ndarray:
    """The numbers of elements in C order, by their indices; that behind the last one is nowhere."""
    place = np.zeros(index[0].shape, np.intp)
    inside = np.ones(index[0].shape, bool)
    for i, n in zip(index, shape, strict=True):
        place *= n
        place += i
        inside &= i.view(np.uint32) < n
    place[~inside] = prod(shape)
    return place


class ScatterStep(HostStep):
    """Zeros, to which what stands in a list is added in its order: the list's axes are indices."""

    def __init__(self, scatter: Scatter, parts: Sequence[Tabulate]) -> None:
        self.inputs, self.writes, self.title = tuple(parts), (scatter,), "scatter"

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The sums: see `HostStep`."""
        *index, values = arrays
        (scatter,) = self.writes
        place = places_of(index, scatter.shape)
        sums = np.bincount(place.reshape(-1), values.reshape(-1), scatter.size + 1)
        return [sums[:-1].astype(values.dtype).reshape(scatter.shape)]


# --- products -------------------------------------------------------------------------------------


def matrices(operand: Operand, values: np.ndarray, batch: int, outer: int) -> np.ndarray:
    """Matrices of an operand, (batch, outer, inner), of which so many axes each are made."""
    strides = [n * values.itemsize for n in operand.strides]
    view: Any = np.ndarray(
        operand.shape, values.dtype, values, operand.first * values.itemsize, strides
    )
    many, rows = prod(operand.shape[:batch]), prod(operand.shape[batch : batch + outer])
    view = view.reshape(many, rows, prod(operand.shape[batch + outer :]))
    steps = [n // values.itemsize for n in view.strides[1:]]
    return view if 1 in steps and min(steps) > 0 else np.ascontiguousarray(view)


Side = tuple[int, list[tuple[int, int]]]
"""A factor of products: the number at which it begins, and the lengths and strides of the batch, of
rows or columns, and of the sum."""

MOST_APART: Final = 64
"""Parts of a batch, at most, in which a BLAS is called from the instructions of a plan."""


class ProductStep(HostStep):
    """Products of matrices, by the BLAS of NumPy: an array (batch, rows, columns)."""

    def __init__(self, left: Operand, right: Operand, c: Contraction, result: Array) -> None:
        self.left, self.right = left, right
        self.inputs = tuple(dict.fromkeys((left.array, right.array)))
        self.writes, self.title = (result,), "product"
        self._batch, self._rows, self._columns = len(c.batch), len(c.rows), len(c.columns)

    @property
    def sides(self) -> Iterator[tuple[Side, Side]]:
        """Both factors, in as many parts of the batch as a BLAS takes them in, one after the other.

        None where matrices stand in memory as no BLAS takes them, or in very many parts.
        """
        factors = (self.left, self._rows), (self.right, self._columns)
        for apart in range(self._batch + 1):
            outer = self.left.shape[:apart]
            if prod(outer) > MOST_APART:
                return
            ends = [(apart, self._batch, self._batch + n, len(f.shape)) for f, n in factors]
            left, right = (f.merged(e) for (f, _), e in zip(factors, ends, strict=True))
            if left is None or right is None:
                continue
            for index in np.ndindex(*outer):
                first, second = (
                    f.first + sum(map(mul, index, f.strides)) for f, _ in factors
                )  # fmt: skip
                yield (first, left), (second, right)
            return

    def run(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The products: see `HostStep`."""
        known = dict(zip(self.inputs, arrays, strict=True))
        a = matrices(self.left, known[self.left.array], self._batch, self._rows)
        b = matrices(self.right, known[self.right.array], self._batch, self._columns)
        result = POOL.empty(self.writes[0].shape, a.dtype)
        stacked = result.reshape(len(a), a.shape[1], b.shape[1])
        with np.errstate(all="ignore"):
            if len(a) == 1:
                np.matmul(a[0], b[0].T, out=stacked[0])
            else:
                np.matmul(a, b.mT, out=stacked)
        return [result]


# --- dispatches -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Step:
    """A dispatch of a program.

    ``reads`` and ``writes`` are its buffers, by their names, and the arrays that they are bound to.
    """

    program: Program
    target: Target
    reads: tuple[tuple[str, Array], ...]
    writes: tuple[tuple[str, Array], ...]
    count: int
    groups: int
    words: tuple[tuple[str, int], ...]
    title: str

    @property
    def inputs(self) -> tuple[Array, ...]:
        """The arrays that are read."""
        return tuple(a for _, a in self.reads)

    @property
    def outputs(self) -> tuple[Array, ...]:
        """The arrays that are written."""
        return tuple(a for _, a in self.writes)

    def dispatch(self, names: Mapping[Array, Any]) -> Dispatch:
        """The dispatch on arrays of these names."""
        arrays = tuple((buffer, names[a]) for buffer, a in (*self.reads, *self.writes))
        return Dispatch(self.program, self.target, arrays, self.count, self.groups, self.words)


def numbered(letter: str, arrays: Iterable[Array]) -> tuple[tuple[str, Array], ...]:
    """Arrays bound to the buffers of this letter and their number."""
    return tuple((f"{letter}{n}", a) for n, a in enumerate(arrays))


def widths(writes: Sequence[Array]) -> tuple[int, ...]:
    """How many neighbours are the same array, for each array; nothing if all are one each."""
    counts = tuple(len(list(group)) for _, group in groupby(writes, key=id))
    return () if len(counts) == len(writes) else counts


AnyStep = Step | HostStep


# --- steps like earlier ones ----------------------------------------------------------------------
# A loop of Python's leaves the arrays of its iterations behind, which are like each other: the same
# scalars of other arrays of the same shapes, by counters of the same extents. Their kernels are the
# same too, so that steps are planned for the first ones, and other arrays are bound to them.


class Form:
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

    @property
    def counters(self) -> list[int]:
        """The counters in the order of their places."""
        return [i for i in self._nodes if self.scalars.op(i) is COUNTER]

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

    Steps are not those of others if they read arrays where copies of these are ``packed``, or
    copies that were made for earlier ones.
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
        form = Form(self._scalars)
        for array in arrays:
            if not isinstance(array, Tabulate):
                return [*make()]
            form.key += form.add_array(array), array in stored
            form.key += [form.add(i) for i in (*array.counters, array.body)]
        key, own = (what, *form.key), [*form.arrays]
        if key not in self._known:
            steps = [*make()]
            dispatches = [s for s in steps if isinstance(s, Step)]
            known = {*own, *(a for s in dispatches for a in s.outputs)}
            in_place = not any(a in self._packed for a in own)
            in_place &= all(a in known for s in dispatches for a in s.inputs)
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
