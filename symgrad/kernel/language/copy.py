"""Items of one kernel, written into another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from symgrad.kernel.language.ir import KernelIR, operands
from symgrad.kernel.language.statements import (
    Barrier,
    Fill,
    For,
    If,
    Load,
    ReadRow,
    Statement,
    Store,
    StoreRow,
    everything,
    results_of,
)


def needs(kernel: KernelIR, items: Sequence[int | Statement]) -> set[int]:
    """The values, and known numbers, that items need and do not make."""
    needed: set[int] = set()
    computed: set[int] = set()
    for item in everything(items):
        needed.update(operands(kernel, item))
        computed.update(results_of(item))
        if isinstance(item, For):
            needed.update(item.yields if item.test is None else [*item.yields, item.test])
            computed.update([item.k, *item.params])
        if isinstance(item, If):
            needed.update(i for yields in item.yields for i in yields)
    return needed - computed


class Copy:
    """The values of ``source`` copied into ``kernel``, which has the same buffers."""

    def __init__(self, source: KernelIR, kernel: KernelIR) -> None:
        self.source, self.kernel = source, kernel
        kernel.graph.sources = source.graph.sources
        for name in source.arguments.values():
            kernel.argument(name)
        self.known = dict(zip(source.given, kernel.given, strict=True))
        self.known |= {i: kernel.length(b) for b, i in source.lengths.items()}

    def value(self, i: int) -> int:
        """The copy of a value."""
        if i in self.known:
            return self.known[i]
        node = self.source.graph.nodes[i]
        assert node[0].constant, f"{i} is needed before it is known"
        return self.kernel.intern(node, self.kernel.main)

    def values(self, ids: Iterable[int]) -> list[int]:
        """The copies of values."""
        return [self.value(i) for i in ids]

    def know(self, ids: Sequence[int], values: Sequence[int]) -> None:
        """Note what values have become, and what the user calls them."""
        for i, value in zip(ids, values, strict=True):
            self.known[i] = value
            if i in self.source.names:
                self.kernel.names[value] = self.source.names[i]

    def items(self, items: Iterable[int | Statement]) -> None:
        """Write items to where the kernel is."""
        for item in items:
            self.item(item)

    def item(self, item: int | Statement) -> None:
        """Write one item."""
        k = self.kernel
        match item:
            case int():
                op, *args = self.source.graph.nodes[item]
                k.graph.place = self.source.graph.places[item]
                self.know([item], [k.add(op, *self.values(args))])
            case Load():
                load = k.agreed if item.agreed else k.load
                self.know([item.result], [load(item.buffer, self.value(item.index))])
            case Store():
                k.store(item.buffer, self.value(item.index), self.value(item.value), item.add)
            case ReadRow():
                columns = item.results
                row = k.read_row(item.buffer, self.value(item.row), item.width, columns)
                self.know([*columns.values()], [row[c] for c in columns])
            case StoreRow():
                k.store_row(item.buffer, self.values(item.values))
            case Fill(buffer=buffer):
                k.fill(buffer)
            case Barrier(results=results):
                k.barrier(results)
            case If():
                sides = [self._side(item, n) for n in (0, 1)]
                self.know(item.results, k.choose(self.value(item.condition), *sides))
            case For():
                bounds = self.value(item.lo), self.value(item.hi)
                results, count = self.loop(item, bounds, self.values(item.inits), item.most)
                self.know([*item.results, item.count], [*results, count])

    def _side(self, choice: If, n: int) -> Callable[[], Sequence[int]]:
        def write() -> Sequence[int]:
            self.items(choice.sides[n].items)
            return self.values(choice.yields[n])

        return write

    def loop(
        self, s: For, bounds: tuple[int, int], inits: Sequence[int], most: int | None
    ) -> tuple[list[int], int]:
        """Write a loop, with bounds of its own; its results and its count."""

        def test(k: int, carries: Sequence[int]) -> int:
            self.know([s.k, *s.params], [k, *carries])
            self.items(s.scope.items[: s.test_at])
            assert s.test is not None, "only loops with a test have one"
            return self.value(s.test)

        def body(k: int, carries: Sequence[int]) -> Sequence[int]:
            self.know([s.k, *s.params], [k, *carries])
            self.items(s.scope.items[s.test_at :])
            return self.values(s.yields)

        self.kernel.graph.place = self.source.graph.places[s.k]
        return self.kernel.loop(
            *bounds, inits, body, down=s.down, test=None if s.test is None else test, most=most
        )
