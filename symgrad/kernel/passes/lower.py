"""Level 1 in level 2: a graph with regions is written into a kernel, its arrays as buffers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from symgrad.expr import ops
from symgrad.expr.graph.arrays import ADD_AT, FRESH, READS, WRITES, ZEROS, ArrayOp, length
from symgrad.expr.graph.node import ARRAYS, WORD, Graph, Op
from symgrad.expr.graph.region import TURNS, Choice, Loop, Pick, Region
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.statements import Buffer
from symgrad.kernel.language.views import View, element
from symgrad.kernel.passes.in_place import Writers, in_place

# --- intervals of words ---------------------------------------------------------------------------
# Intervals of the words of a kernel that is being written.

ALL: Final = (0, 2**32 - 1)
"""The bounds of any word."""

Interval = tuple[int, int]
"""The smallest and the largest that a word can be."""


class Bounds:
    """Intervals of words. Of a loop it is told when its body is begun, before there is a `For`.

    Of what the host gives, some intervals may be ``known``.

    Example:
        >>> from symgrad.kernel.language.target import SimdTarget
        >>> k = KernelIR(SimdTarget(4))
        >>> Bounds(k).of(k.offset(k.local, 5, 1))
        (1, 16)
    """

    def __init__(self, kernel: KernelIR, known: Mapping[int, Interval] | None = None) -> None:
        self.kernel = kernel
        self._known: dict[int, Interval] = {kernel.local: (0, kernel.target.width - 1)}
        self._known |= known or {}
        self._starts: dict[int, tuple[int, int]] = {}
        """The least value of a loop's counter, as a node, and how far it goes beyond at most."""

    def begin(self, k: int, lo: int, hi: int, most: int | None) -> None:
        """A loop: its counter, its bounds, and its iterations at most."""
        (first, latest), (_, end) = self.of(lo), self.of(hi)
        iterations = end - first if most is None else min(most, end - first)
        self._known[k] = first, max(first, min(end, latest + iterations) - 1)
        self._starts[k] = lo, max(0, iterations - 1)

    def of(self, i: int) -> Interval:
        """The smallest and the largest number that a word can be."""
        interval = self._known.get(i)
        if interval is None:
            interval = self._known[i] = self._computed(i)
        return interval

    def _computed(self, i: int) -> Interval:
        node, args = self.kernel.graph.nodes[i], self.kernel.graph.args(i)
        if node[0] is WORD:
            return node[1], node[1]
        if node[0] is ops.word_sub:
            lo, iterations = self._starts.get(args[0], (None, 0))
            if lo == args[1]:
                return 0, iterations
        rule = _RULES.get(node[0])
        if rule is None:
            return ALL
        low, high = rule(*map(self.of, args))
        return (low, high) if low >= ALL[0] and high <= ALL[1] else ALL


def _quotient(a: Interval, b: Interval) -> Interval:
    return (a[0] // b[1], a[1] // b[0]) if b[0] else ALL


_RULES: Final[dict[Op, Callable[..., Interval]]] = {
    ops.word_add: lambda a, b: (a[0] + b[0], a[1] + b[1]),
    ops.word_sub: lambda a, b: (a[0] - b[1], a[1] - b[0]),
    ops.word_mul: lambda a, b: (a[0] * b[0], a[1] * b[1]),
    ops.word_div: _quotient,
    ops.word_min: lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    ops.word_where: lambda _, a, b: (min(a[0], b[0]), max(a[1], b[1])),
    ops.word_and: lambda a, b: (0, min(a[1], b[1])),
}
"""The bounds of a result, from those of the arguments; beyond those of words it may be any."""


# --- lowering -------------------------------------------------------------------------------------

Value = int | Buffer | View
"""A node of level 1 in a kernel: a value, or the place of an array."""

Known = Mapping[int, Value]
"""The values of some nodes of a graph."""

Given = Callable[[int], Value]
"""A function that writes an input, where it is first needed."""

Copied = frozenset[tuple[int, int]]
"""Which nodes write to a copy of which arrays."""

SPECIAL: Final = (ArrayOp, Loop, Choice, Pick)
"""The operations that are more than one on numbers."""

KINDS: Final = {"F": "f", "W": "u"}
"""The kinds of the numbers in arrays, by their types."""


@dataclass(frozen=True)
class Adding:
    """Arrays of the caller's to which a graph only adds, by their nodes.

    ``value`` gives what is added to one of them, of what the graph would add.
    """

    arrays: Mapping[int, Buffer]
    value: Callable[[Buffer, int], int]


NOTHING: Final = Adding({}, lambda _, value: value)
"""No array is added to."""


def inline(
    kernel: KernelIR, graph: Graph, roots: Sequence[int], known: Known, given: Given | None = None
) -> list[int]:
    """Write what the roots, which are no arrays, need to where the kernel is; their values.

    Args:
        kernel: what is written to.
        graph: nodes, among them loops, choices and arrays.
        roots: what is needed of them.
        known: what some nodes are, the graph's inputs among them; arrays are not written to.
        given: writes what any other input is, where it is first needed.
    """
    return numbers(written(kernel, graph, roots, known, given))


def inlined(
    kernel: KernelIR, graph: Graph, roots: Sequence[int], known: Known, given: Given | None = None
) -> Iterator[int]:
    """As `inline`, of one root after the other, where there are no arrays.

    What is done with one can stand before what is for the next. Next to each other, their square
    roots and divisions would wait for one another.
    """
    place, context = kernel.graph.place, _Context(kernel, NOTHING)
    lowering = _Lowering(context, graph, dict(known), set(known), given)
    for value in lowering.in_turn(roots):
        kernel.graph.place = place
        yield from numbers([value])
    kernel.graph.place = place


def written(
    kernel: KernelIR,
    graph: Graph,
    roots: Sequence[int],
    known: Known,
    given: Given | None = None,
    adding: Adding = NOTHING,
) -> list[Value]:
    """As `inline`, of roots that may be arrays too, which are in buffers then.

    Those that are added to stay where they are; roots may be versions of them.
    """
    place = kernel.graph.place
    env = {**known, **adding.arrays}
    lowering = _Lowering(_Context(kernel, adding), graph, env, set(known), given)
    values = lowering.roots(roots)
    kernel.graph.place = place
    return values


def numbers(values: Sequence[Value]) -> list[int]:
    """The values that are not arrays."""
    return [v for v in values if isinstance(v, int)]


class _Context:
    """The state that all graphs of a lowering share."""

    def __init__(self, kernel: KernelIR, adding: Adding) -> None:
        self.kernel, self.writers, self.bounds = kernel, Writers(), Bounds(kernel)
        self._added, self._value = set(adding.arrays.values()), adding.value
        self._lines = {line: n for n, line in enumerate(kernel.graph.sources)}

    def added(self, array: Buffer, value: int) -> int:
        """The value that is written to an array where a graph writes one."""
        return self._value(array, value) if array in self._added else value

    def places(self, graph: Graph) -> list[int]:
        """The numbers that the lines of a graph have in the kernel."""
        sources = self.kernel.graph.sources
        for line in graph.sources:
            if line not in self._lines:
                self._lines[line] = len(sources)
                sources.append(line)
        return [self._lines[line] for line in graph.sources]


class _Env(dict[int, Any]):
    """Values by nodes; a leaf gets its value where it is first needed."""

    def __init__(self, known: Mapping[int, Any], make: Callable[[int], Value]) -> None:
        super().__init__(known)
        self._make = make

    def __missing__(self, i: int) -> Any:
        return self._make(i)


class _Lowering:
    """One graph, written to one scope; ``env`` is what its nodes have become so far.

    ``frozen`` are the arrays that are not to be written to: of others, or of other iterations.
    ``given`` writes inputs.
    """

    def __init__(
        self,
        context: _Context,
        graph: Graph,
        known: Mapping[int, Any],
        frozen: set[int],
        given: Given | None = None,
    ) -> None:
        self.context, self.kernel = context, context.kernel
        self.graph, self.frozen, self._given = graph, frozen, given
        self.env = _Env(known, self._leaf)
        self.places = context.places(graph)

    def roots(self, roots: Sequence[int], pure: bool = False) -> list[Value]:
        """Write what these need; if it is to be ``pure``, no array that there is is written to."""
        frozen = self._any if pure else self.frozen.__contains__
        order = in_place(self.graph, roots, self.env, self.context.writers, frozen)
        nodes, places, kernel, env = self.graph.nodes, self.graph.places, self.kernel, self.env
        if order.is_straight and not kernel.at.depth:
            kernel.extend(self.graph, order.nodes, env, self.places)
            return [env[r] for r in roots]
        for i in order.nodes:
            node = nodes[i]
            kernel.graph.place = self.places[places[i]]
            if isinstance(node[0], SPECIAL):
                self._write(i, order.copied)
            elif node[0].arity:
                env[i] = kernel.add(node[0], *[env[a] for a in node[1:]])
        return [env[r] for r in roots]

    def in_turn(self, roots: Sequence[int]) -> Iterator[Value]:
        """The values of `roots`, one by one; together where one might write what another reads."""
        if any(op.result in ARRAYS for op in self.graph.heads):
            yield from self.roots(roots)
        else:
            for r in roots:
                yield from self.roots([r])

    @staticmethod
    def _any(_: int) -> bool:
        return True

    def _leaf(self, i: int) -> Value:
        """The value of a leaf that is first needed: of a fresh array, a new buffer each time."""
        node = self.graph.nodes[i]
        if node[0] in FRESH:
            return self._fresh(i)
        if node[0].constant:
            value = self.kernel.intern(node, self.kernel.main)
        else:
            assert self._given, f"{node[0].name} is a leaf that is not known"
            arena, place = self.kernel.graph, self.kernel.graph.place
            arena.place = 0
            value = self._given(i)
            arena.place = place
        self.env[i] = value
        return value

    def number(self, i: int) -> int:
        """The value of a node that is no array."""
        (value,) = numbers([self.env[i]])
        return value

    def array(self, i: int) -> Buffer | View:
        """Where a node is that is an array."""
        array = self.env[i]
        assert not isinstance(array, int), f"node {i} is no array"
        return array

    # arrays --------------------------------------------------------------------------------------

    def _fresh(self, i: int, name: str = "") -> Buffer:
        """A new buffer for an array of this type and length, zeroed if it is one of zeros."""
        kind = KINDS[self.graph.type(i)]
        buffer = self._buffer(kind, length(self.graph, i), name)
        if self.graph.nodes[i][0] is ZEROS:
            self.kernel.fill(buffer)
        return buffer

    def _buffer(self, kind: str, size: int, name: str = "") -> Buffer:
        """A new buffer, which is called ``name`` and a number."""
        known = name if name.isidentifier() and name.isascii() else "array"
        number = sum(b.space == "own" for b in self.kernel.buffers)
        return self.kernel.buffer(f"{known}_{number}", "own", kind, size)

    def copy(self, source: Buffer | View, target: Buffer | None = None) -> Buffer:
        """The numbers of an array in another one, or in a new one."""
        k = self.kernel
        name = source.name.rpartition("_")[0] if isinstance(source, Buffer) else ""
        buffer = target or self._buffer(source.kind, source.size, name)

        def iteration(i: int, _: Sequence[int]) -> Sequence[int]:
            k.store(buffer, i, element(k, source, i))
            return ()

        k.loop(k.word(0), k.word(source.size), (), iteration)
        return buffer

    def _to_write(self, i: int, version: int, copied: Copied) -> Buffer:
        """The buffer of a version that node i overwrites, or of a copy of it."""
        array = self.array(version)
        if isinstance(array, View) or (i, version) in copied:
            return self.copy(array)
        return array

    def _index(self, array: Buffer | View, i: int) -> int:
        """An index of an array: past the end it is the last one."""
        index, last = self.number(i), array.size - 1
        if self.context.bounds.of(index)[1] <= last:
            return index
        return self.kernel.add(ops.word_min, index, self.kernel.word(last))

    # nodes ---------------------------------------------------------------------------------------

    def _write(self, i: int, copied: Copied) -> None:
        """Writes a node that is no operation on numbers: an array, a loop or a choice."""
        op, args = self.graph.nodes[i][0], self.graph.args(i)
        if op in WRITES:
            self.env[i] = array = self._to_write(i, args[0], copied)
            index = self._index(array, args[1])
            value = self.context.added(array, self.number(args[2]))
            self.kernel.store(array, index, value, op is ADD_AT)
        elif op in READS.values():
            array = self.array(args[0])
            self.env[i] = element(self.kernel, array, self._index(array, args[1]))
        elif isinstance(op, Loop):
            self.env[i] = self._loop(i, op, copied)
        elif isinstance(op, Choice):
            self.env[i] = self._choice(i, op, copied)
        elif isinstance(op, Pick):
            self.env[i] = self._picked(args[0], op.index)

    def _picked(self, owner: int, index: int) -> Value:
        """A result of a loop or a choice; of a loop also how many iterations it took."""
        result = self.env[owner][index]
        if index != TURNS:
            return result
        return self.kernel.add(ops.word_sub, result, self.number(self.graph.args(owner)[0]))

    def within(self, body: Region, known: Sequence[Value], frozen: Sequence[int]) -> _Lowering:
        """A region, whose parameters are known, to be written to where the kernel is."""
        env = dict(zip(body.params, known, strict=True))
        return _Lowering(self.context, body.graph, env, set(frozen))

    def call(self, values: Sequence[int], names: Sequence[str]) -> None:
        """Note what the user calls some values."""
        self.kernel.names.update((v, n) for v, n in zip(values, names, strict=True) if n)

    # loops ---------------------------------------------------------------------------------------

    def _loop(self, i: int, op: Loop, copied: Copied) -> dict[int, Value]:
        lo, hi, *rest = self.graph.args(i)
        inits = self._inits(i, rest[: op.carries], op.body.graph.names[1:], copied)
        first, last = self.number(lo), self.number(hi)
        last = self._end(op, first, last)
        iteration = _Iteration(
            self, op, inits, [self.env[a] for a in rest[op.carries :]], (first, last)
        )
        test = iteration.test if op.test else None
        results, count = self.kernel.loop(
            first, last, numbers(inits), iteration.body, down=op.down, test=test, most=op.most
        )
        self.call(results, iteration.names)
        return {**dict(enumerate(_merged(inits, results))), TURNS: count}

    def _inits(
        self, i: int, args: Sequence[int], names: Sequence[str], copied: Copied
    ) -> list[Value]:
        """The first values of carries; arrays are in buffers that the loop may write to."""
        return [
            self.env[a]
            if self.graph.type(a) not in ARRAYS
            else self._fresh(a, name)
            if self.graph.nodes[a][0] in FRESH
            else self._to_write(i, a, copied)
            for a, name in zip(args, names, strict=False)
        ]

    def _end(self, op: Loop, lo: int, hi: int) -> int:
        """The end of a loop that has ``most`` iterations at most, whatever its bounds are."""
        k, (low, high) = self.kernel, self.context.bounds.of(lo)
        if op.most is None or self.context.bounds.of(hi)[1] - low <= op.most:
            return hi
        latest = k.add(ops.word_add, lo, k.word(op.most))
        if high + op.most <= ALL[1]:
            return k.add(ops.word_min, hi, latest)
        within = k.add(ops.word_lt, k.add(ops.word_sub, hi, lo), k.word(op.most))
        backwards = k.add(ops.word_lt, hi, lo)  # as no turn is taken then, lo does as well
        end = k.add(ops.word_where, within, hi, latest)
        return k.add(ops.word_where, backwards, lo, end)

    # choices -------------------------------------------------------------------------------------

    def _choice(self, i: int, op: Choice, copied: Copied) -> dict[int, Value]:
        condition, *args = self.graph.args(i)
        chosen = self.context.writers.chosen(op)
        mine = set(chosen.values())
        values = [
            self._to_write(i, a, copied) if n in mine else self.env[a] for n, a in enumerate(args)
        ]
        frozen = [p for n, p in enumerate(op.body.params) if n not in mine]
        homes = self._homes(op, chosen, values)

        def side(first: int) -> Callable[[], Sequence[int]]:
            def write() -> Sequence[int]:
                inner = self.within(op.body, values, frozen)
                yields = inner.roots(op.body.yields[first : first + op.results])
                inner.settle(yields, homes)
                return numbers(yields)

            return write

        results = self.kernel.choose(self.number(condition), side(0), side(op.results))
        return dict(enumerate(_merged(homes, results)))

    def _homes(
        self, op: Choice, chosen: Mapping[int, int], known: Sequence[Value]
    ) -> list[Value | None]:
        """Where each result that is an array comes to stand, from whichever side."""
        graph = op.body.graph
        return [
            None
            if graph.type(y) not in ARRAYS
            else known[chosen[n]]
            if n in chosen
            else self._buffer(KINDS[graph.type(y)], length(graph, y))
            for n, y in enumerate(op.body.yields[: op.results])
        ]

    # where things belong -------------------------------------------------------------------------

    def settle(self, values: Sequence[Value], homes: Sequence[Value | None]) -> None:
        """Copy arrays to where they belong, all at once: one may stand where another belongs."""
        moves = [
            (a, home)
            for a, home in zip(values, homes, strict=True)
            if not isinstance(a, int) and isinstance(home, Buffer) and a is not home
        ]
        targets = {home for _, home in moves}
        safe_moves = [(self.copy(a) if a in targets else a, home) for a, home in moves]
        for source, home in safe_moves:
            self.copy(source, home)


class _Iteration:
    """A turn of a loop, which is written where the loop's scope is open."""

    def __init__(
        self,
        outside: _Lowering,
        op: Loop,
        inits: Sequence[Value],
        captures: Sequence[Value],
        ends: tuple[int, int],
    ) -> None:
        self.outside, self.op, self.inits = outside, op, inits
        self.captures, self.ends = captures, ends
        graph, params = op.body.graph, op.body.params[1 : 1 + op.carries]
        self.names = [graph.names[graph.nodes[p][1]] for p in params if graph.type(p) not in ARRAYS]
        self._inner: _Lowering | None = None

    def inner(self, k: int, params: Sequence[int]) -> _Lowering:
        """The region, as the test and then the rest of it are written."""
        if self._inner is None:
            known = [k, *_merged(self.inits, params), *self.captures]
            self.outside.context.bounds.begin(k, *self.ends, self.op.most)
            body = self.op.body
            self._inner = self.outside.within(body, known, body.params[1 + self.op.carries :])
            self.outside.call([k, *params], [body.graph.names[0], *self.names])
        return self._inner

    def test(self, k: int, params: Sequence[int]) -> int:
        """Whether the turn is taken; nothing is written to before that is known."""
        inner, (wanted,) = self.inner(k, params), self.op.body.yields[self.op.carries :]
        inner.roots([wanted], pure=True)
        return inner.number(wanted)

    def body(self, k: int, params: Sequence[int]) -> Sequence[int]:
        """The next carries; arrays stay where they are."""
        inner = self.inner(k, params)
        carries = inner.roots(self.op.body.yields[: self.op.carries])
        inner.settle(carries, self.inits)
        return numbers(carries)


def _merged(where: Sequence[Value | None], values: Sequence[int]) -> list[Value]:
    """The buffers in ``where``, and for all others the values, in turn."""
    rest = iter(values)
    return [a if isinstance(a, Buffer) else next(rest) for a in where]
