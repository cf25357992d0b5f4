"""Sums of products over rows -> WGSL: a workgroup's rows leave factors behind, which all multiply.

An invocation computes a row and writes the factors of its results to workgroup memory, in quads.
Then each adds up the products of two quads over many of these rows, in registers: so one module
has very many results, and what a row needs is computed once. What is no product is one with 1.
Where the memory does not take all factors of a row, they come in stages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from symgrad.expr.graph.node import Op
from symgrad.kernel.plan import Reduction
from symgrad.kernel.products import NO_FACTOR, products_of
from symgrad.mathlib.define import Function
from symgrad.wgsl.emit import Style
from symgrad.wgsl.reduce_module import Module
from symgrad.wgsl.reduce_stages import Factors
from symgrad.wgsl.reduce_tile import Tile, cut
from symgrad.wgsl.vectors import COMPONENTS

WIDTH: Final = 64
"""Invocations of a workgroup, and rows whose factors are in its memory."""

QUADS: Final = 15
"""Quads of a row there, at most: odd, so that neighbours are in different banks of it."""

PAIRS: Final = WIDTH // 4
"""Pairs of quads of a stage, at most: so an invocation adds up at most 16 rows one by one,
which rounds no more than elsewhere."""

MOST: Final = 1024
"""Results of a module, at most."""

CELLS: Final = 3
"""Products that are added up for each that is wanted, at most: the others in a pair of quads."""

Quad = tuple[int, ...]
"""Up to four factors, of which a row's are written and read together."""


@dataclass(frozen=True)
class Step:
    """Pairs of quads whose products are added up together, by the numbers of their quads."""

    quads: tuple[Quad, ...]
    blocks: tuple[tuple[int, int], ...]

    @property
    def teams(self) -> int:
        """Invocations that share the rows of a pair: a power of 2."""
        return 1 << ((WIDTH // len(self.blocks)).bit_length() - 1)


class Products:
    """The results of a tile as products, and the stages in which they are added up."""

    def __init__(self, tile: Tile) -> None:
        self.tile = tile
        terms = products_of(tile.reduction, tile.split.each, most=1).terms
        self.pairs = [(tile.roots[k], NO_FACTOR) for k in tile.summed]
        places = {k: c for c, k in enumerate(tile.summed)}
        for k, ((a, b),) in terms.items():
            if (place := places.get(tile.results.start + k)) is not None:
                self.pairs[place] = (a, b)
        self._quads = list(_quads(self.pairs))
        self._place = {i: (q, c) for q, quad in enumerate(self._quads) for c, i in enumerate(quad)}
        self._blocks = list(dict.fromkeys(sorted(self._block(pair) for pair in self.pairs)))
        self.steps = list(self._steps())

    @property
    def cells(self) -> tuple[int, ...]:
        """For each result its number among all products that are added up."""
        start = {block: 16 * k for k, block in enumerate(self._blocks)}
        found: list[int] = []
        for a, b in self.pairs:
            if self._place[a] > self._place[b]:
                a, b = b, a
            row, column = self._place[a][1], self._place[b][1]
            found.append(start[self._block((a, b))] + 4 * row + column)
        return tuple(found)

    def pay(self) -> bool:
        """Whether they are worth it: there are few factors, and products, for many results."""
        factors, results = len(self._place), len(self.pairs)
        return 2 * factors <= results and 16 * len(self._blocks) <= CELLS * results

    def _block(self, pair: tuple[int, int]) -> tuple[int, int]:
        a, b = sorted(self._place[i][0] for i in pair)
        return a, b

    def _steps(self) -> Iterator[Step]:
        """As many pairs of quads together as the memory and the invocations take."""
        taken: list[tuple[int, int]] = []
        for block in self._blocks:
            if len({q for pair in (*taken, block) for q in pair}) > QUADS or len(taken) == PAIRS:
                yield self._step(taken)
                taken = []
            taken.append(block)
        if taken:
            yield self._step(taken)

    def _step(self, blocks: list[tuple[int, int]]) -> Step:
        used = {q: k for k, q in enumerate(dict.fromkeys(q for pair in blocks for q in pair))}
        return Step(
            tuple(self._quads[q] for q in used), tuple((used[a], used[b]) for a, b in blocks)
        )


def _quads(pairs: Iterable[tuple[int, int]]) -> Iterator[Quad]:
    """All factors in fours: those with the same partners together."""
    partners: dict[int, dict[int, None]] = {}
    for a, b in pairs:
        partners.setdefault(a, {})[b] = None
        partners.setdefault(b, {})[a] = None
    alike: dict[frozenset[int], list[int]] = {}
    for i, others in partners.items():
        alike.setdefault(frozenset(others), []).append(i)
    rest: list[int] = []
    for factors in alike.values():
        whole = len(factors) // 4 * 4
        yield from (tuple(factors[k : k + 4]) for k in range(0, whole, 4))
        rest += factors[whole:]
    yield from (tuple(rest[k : k + 4]) for k in range(0, len(rest), 4))


def in_products(reduction: Reduction) -> list[Products]:
    """The results of a reduction in tiles of products, or none if it does not pay."""
    if reduction.lookups:
        return []
    found = [Products(tile) for tile in cut(reduction, MOST)]
    return found if all(products.pay() for products in found) else []


class ProductsModule(Module):
    """The module of a tile whose results are products of factors in workgroup memory."""

    width = WIDTH

    def __init__(self, products: Products, functions: Mapping[Op, Function], style: Style) -> None:
        super().__init__(products.tile, functions, style)
        self.cells, self.steps = products.cells, products.steps
        kept = [i for step in self.steps for quad in step.quads for i in quad]
        self.factors = Factors(self.once, self.calls, style, kept)
        self.stride = max(len(step.quads) for step in self.steps) | 1
        """Quads from one row in workgroup memory to the next."""

    @property
    def used(self) -> set[Op]:
        """The operations at a row."""
        return self.factors.used

    @property
    def memory(self) -> str:
        """What is in workgroup memory: the factors of all rows, and then sums."""
        return f"array<vec4<f32>, {max(self.stride, 4) * WIDTH}>"

    def rows(self) -> Iterator[str]:
        """The function that keeps factors, and the one that finds the pairs of quads."""
        yield from self.factors.body()
        words = [16 * a + b for step in self.steps for a, b in step.blocks]
        yield "// which quads are multiplied: 16 times the first one's number, and the second's"
        yield "fn quads_of(pair: u32) -> u32 {"
        yield f"  var words = array<u32, {len(words)}>("
        for k in range(0, len(words), 16):
            yield f"    {', '.join(f'{word}u' for word in words[k : k + 16])},"
        yield "  );"
        yield "  return words[pair];"
        yield "}"
        yield ""

    def work(self) -> Iterator[str]:
        """The rows of the workgroup, and then its sums."""
        start = 0
        for k, step in enumerate(self.steps):
            count = len(step.blocks)
            yield f"  let pair{k} = quads_of({f'{start}u + ' * bool(start)}local % {count}u);"
            yield f"  let team{k} = local / {count}u;"
            yield from (f"  var sum{k}_{c} = vec4<f32>();" for c in range(4))
            start += count
        step = f"{WIDTH}u * groups.x"
        yield f"  for (var first = {WIDTH}u * group.x; first < params.count; first += {step}) {{"
        yield "    keep_row(min(first + local, params.count - 1u), first + local < params.count);"
        for k, step in enumerate(self.steps):
            yield from self._added(k, step)
        yield "  }"
        start = 0
        for k, step in enumerate(self.steps):
            yield from self._written(k, step, start)
            start += 4 * len(step.blocks)

    def _added(self, k: int, step: Step) -> Iterator[str]:
        """The lines that write the factors of a stage, and add up their products."""
        for c, quad in enumerate(step.quads):
            values = [self.factors.factors[i] for i in quad] + ["0.0f"] * (4 - len(quad))
            yield f"    tile[{self.stride}u * local + {c}u] = vec4<f32>({', '.join(values)});"
        yield "    workgroupBarrier();"
        yield from (f"    var part{k}_{c} = vec4<f32>();" for c in range(4))
        jump = self.stride * step.teams
        places = f"var at = {self.stride}u * team{k}; at < {WIDTH * self.stride}u; at += {jump}u"
        yield f"    for ({places}) {{"
        yield f"      let left = tile[at + pair{k} / 16u];"
        yield f"      let right = tile[at + pair{k} % 16u];"
        yield from (f"      part{k}_{c} += left.{COMPONENTS[c]} * right;" for c in range(4))
        yield "    }"
        yield from (f"    sum{k}_{c} += part{k}_{c};" for c in range(4))
        yield "    workgroupBarrier();"

    def _written(self, k: int, step: Step, start: int) -> Iterator[str]:
        """The lines that add up the sums of the teams, and write them."""
        count = 4 * len(step.blocks)
        yield from (f"  tile[4u * local + {c}u] = sum{k}_{c};" for c in range(4))
        yield "  workgroupBarrier();"
        yield f"  for (var quad = local; quad < {count}u; quad += {WIDTH}u) {{"
        more = f"var k = quad + {count}u; k < {count * step.teams}u; k += {count}u"
        yield "    var sum = tile[quad];"
        yield f"    for ({more}) {{ sum += tile[k]; }}"
        head = len(self.tile.results) * 2 - len(self.tile.summed)
        yield f"    let to = {head}u + 4u * ({start}u + quad) * groups.x + group.x;"
        for c in range(4):
            to = f"to + {f'{c}u * ' * (c > 1)}groups.x" if c else "to"
            yield f"    partials[{to}] = sum.{COMPONENTS[c]};"
        yield "  }"
        yield "  workgroupBarrier();"
