"""Products of array programs on a GPU, by the tile skeleton."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gcd, prod
from typing import Any, Final

from symgrad.arrays.scalars import COUNTER, Array, Read, Reduce, Scalars
from symgrad.cache import Once
from symgrad.expr.graph.node import Graph, paused_gc, reachable
from symgrad.kernel.language.target import MAX_WORKGROUPS, WorkgroupTarget
from symgrad.kernel.shapes import Computation, Output
from symgrad.kernel.skeletons import tiles
from symgrad.kernel.skeletons.matmul import Epilogue, FinishProgram, MatmulProgram
from symgrad.kernel.skeletons.tiles import Digits, chosen, groups_of
from symgrad.kernel.stages.one_pass import is_at
from symgrad.kernel.stages.products import Contraction, Operand
from symgrad.kernel.stages.sizes import EPILOGUE_COST
from symgrad.kernel.stages.steps import Step
from symgrad.kernel.stages.translate import Simplify, Translation

# --- epilogues ------------------------------------------------------------------------------------
# Epilogues of products of matrices: elements that are computed in the kernel of the product.
#
# A bias, an activation and its derivative, or what is added to a product, read numbers of the same
# element, of its column, or of its row and column in every matrix of a batch.

CACHED: Final = 256
"""Most epilogues that are kept."""

Elements = Collection[tuple[Array, int]]
"""Arrays, and the scalars that their elements are."""

_known: Once[Any, Epilogue] = Once(CACHED)
"""Epilogues by all that they are: kernels of equal ones are the same."""


@dataclass(frozen=True, eq=False)
class Ending:
    """The epilogue of a product, with the arrays that it reads and writes, by its buffers."""

    epilogue: Epilogue
    reads: tuple[tuple[str, Array], ...] = ()
    writes: tuple[tuple[str, Array], ...] = ()


def _nothing() -> Epilogue:
    graph = Graph()
    graph.tracing = False
    sums = graph.input("sum")
    return Epilogue(Computation("product", graph, (Output("result", (sums,)),)))


NOTHING: Final = _nothing()
"""The sums themselves: one object, as equal kernels have equal epilogues."""


@paused_gc()
def ending(s: Scalars, elements: Elements, c: Contraction, simplify: Simplify) -> Ending | None:
    """The epilogue that writes arrays whose elements are made of a product's, if there is one.

    The elements stand as the product's results do: matrix by matrix, and row by row.
    """
    t = Translation(s, ())
    known, names, arrays = {c.reduction: t.graph.input("sum")}, dict[Any, str](), list[Array]()
    places: dict[str, list[str]] = {"column": [], "matrix": []}
    roots = [root for _, root in elements]
    stack, seen = [*roots], {c.reduction}
    while stack:
        i = stack.pop()
        if i in seen:
            continue
        seen.add(i)
        op = s.op(i)
        if op is COUNTER or isinstance(op, Reduce):
            return None
        if not isinstance(op, Read):
            stack.extend(s.args(i))
            continue
        place = _place(s, i, op.array, c)
        if place is None or op.array.kind != "f":
            return None
        if (op.array, place) not in names:
            name = names[op.array, place] = f"e{len(names)}"
            arrays.append(op.array)
            known[i] = t.graph.input(name)
            if place in places:
                places[place].append(name)
        else:
            known[i] = t.graph.input_named(names[op.array, place])
    graph, nodes = simplify(t.graph, t.values(roots, known))
    if sum(graph.nodes[i][0].cost for i in reachable(graph, nodes)) > EPILOGUE_COST:
        return None
    results = [f"result{n or ''}" for n in range(len(nodes))]
    outputs = tuple(Output(name, (i,)) for name, i in zip(results, nodes, strict=True))
    by = [tuple(names) for names in places.values()]
    key = tuple(graph.nodes), tuple(graph.names), outputs, *by
    new = Epilogue(Computation("product", graph, outputs), by[0], by_matrix=by[1])
    epilogue = _known.get(key, lambda: new)
    reads = zip(names.values(), arrays, strict=True)
    writes = zip(results, (array for array, _ in elements), strict=True)
    return Ending(epilogue, tuple(reads), tuple(writes))


def _place(s: Scalars, read: int, array: Array, c: Contraction) -> str | None:
    """Which of a product's elements read the same number: none, those of a column, or a batch."""
    index: dict[str, Sequence[int]] = {
        "element": (*c.batch, *c.rows, *c.columns),
        "column": c.columns,
        "matrix": (*c.rows, *c.columns),
    }
    return next((name for name, counters in index.items() if is_at(s, read, array, counters)), None)


# --- tiles ----------------------------------------------------------------------------------------

FINISH_WIDTH: Final = 256
"""Invocations of a group that add up parts of sums."""


DEPTH: Final = 16
"""The terms of which some have the same digits but the lowest, if tiles are to have such."""

MOST_DIGITS: Final = 4
"""Digits of a number of an operand, at most."""

Axes = Sequence[tuple[int, int]]
"""Lengths and strides of axes, the innermost first."""


@dataclass(frozen=True)
class TileOperand:
    """An operand of the tile skeleton, and its arguments without its name.

    So many neighbouring terms have the same digits but the lowest, if that is known of tiles.
    """

    operand: tiles.Operand
    words: dict[str, int]
    even: int = 0


def tile_operand(o: Operand, c: Contraction, own: Sequence[int]) -> TileOperand | None:
    """An operand as the tile skeleton takes it, if it stands in memory as that reads it."""
    ends = 0, len(c.batch), len(c.batch) + len(own), len(o.shape)
    parts = [slice(a, b) for a, b in pairwise(ends)]
    matrix, row, term = (_step(o.shape[p], o.strides[p]) for p in parts)
    if o.first or matrix is None or row is None or term is None or 1 not in (row, term):
        axes = [_axes(o.shape[p], o.strides[p]) for p in parts]
        return _of_digits(o.array.size, o.first, *axes)
    along = term == 1
    step, beside = (row, parts[2]) if along else (term, parts[1])
    lengths = step, matrix, o.array.size, prod(o.shape[beside])
    quads = all(n % tiles.FOUR == 0 for n in lengths)
    each, count = tiles.FOUR if quads else 1, prod(o.shape[parts[0]]) if matrix else 1
    words = {"row": step // each, "size": matrix // each, "each": 1, "count": count}
    return TileOperand(tiles.Operand(along, quads), words)


def _axes(shape: Sequence[int], strides: Sequence[int]) -> Axes:
    """Axes of more than one element, those that are one merged."""
    axes = list[tuple[int, int]]()
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if axes and stride == axes[-1][0] * axes[-1][1]:
            axes[-1] = n * axes[-1][0], axes[-1][1]
        elif n > 1:
            axes.append((n, stride))
    return axes


def _of_digits(size: int, first: int, matrix: Axes, own: Axes, term: Axes) -> TileOperand | None:
    """An operand with a digit for each axis, if it stands in memory as the skeleton reads it."""
    every = (*matrix, *own, *term)
    if not own or not term or max(map(len, (matrix, own, term))) > MOST_DIGITS:
        return None
    if first < 0 or any(stride < 0 for _, stride in every):
        return None
    even, beside = term[0][0] % DEPTH == 0, own[0][0] % tiles.FOUR == 0
    along = term[0][1] == 1 and (own[0][1] != 1 or not beside)
    if not along and own[0][1] != 1:
        return None
    near = term[0] if along else own[0]
    far = [axis[1] for axis in every if axis is not near]
    whole = even and (along or beside)
    quads = whole and all(n % tiles.FOUR == 0 for n in (size, first, *far))
    each = tiles.FOUR if quads else 1
    words = {"first": first // each}
    for part, axes in (("matrix", matrix), ("own", own), ("term", term)):
        for k, (n, stride) in enumerate(axes):
            is_near = axes[k] is near
            words[f"{part}_step_{k}"] = 1 if is_near else stride // each
            if k < len(axes) - 1:
                words[f"{part}_count_{k}"] = n // each if is_near else n
    digits = Digits(len(matrix), len(own), len(term), beside and not along, even)
    return TileOperand(tiles.Operand(along, quads, digits), words, term[0][0] if even else 0)


def _step(shape: Sequence[int], strides: Sequence[int]) -> int | None:
    """The step from each element to the next through some axes, if it is one and not negative."""
    axes = list(zip(reversed(shape), reversed(strides), strict=True))
    first = axes[0][1] if axes else 0
    reached = first
    for n, stride in axes:
        if stride != reached:
            return None
        reached *= n
    return first if first >= 0 else None


def tile_product(
    s: Scalars, left: Operand, right: Operand, c: Contraction, end: Ending, itemsize: int
) -> Iterator[Step]:
    """The dispatches of products (batch, rows, columns); the operands stand as tiles read them."""
    m, n, depth, batch = (prod(map(s.extent, x)) for x in (c.rows, c.columns, c.summed, c.batch))
    a, b = tile_operand(left, c, c.rows), tile_operand(right, c, c.columns)
    assert a is not None and b is not None, "an operand is stored that tiles do not read"
    even = gcd(a.even, b.even)
    shares, splits = chosen(m, n, depth, batch, itemsize, even)
    groups = groups_of(shares, m, n) * batch * splits
    steps = -(-depth // shares.depth)
    edges = bool(m % shares.rows or n % shares.columns) or groups > MAX_WORKGROUPS
    ragged = bool(depth % shares.depth)
    epilogue = NOTHING if splits > 1 else end.epilogue
    program = MatmulProgram(
        shares, a.operand, b.operand, epilogue, ragged, edges, n % tiles.FOUR == 0
    )
    numbers = {
        "m": m, "n": n, "depth": depth, "splits": splits, "turns": -(-steps // splits),
        "total": groups,
    }  # fmt: skip
    for name, o in (("a", a), ("b", b)):
        numbers |= {f"{name}_{what}": word for what, word in o.words.items()}
    words = tuple((name, numbers[name]) for name in program.arguments)
    operands, title = (("a", left.array), ("b", right.array)), f"{m} x {n} x {depth}, {batch} times"
    sums = Array(shape=(splits * batch * m * n,))
    reads, writes = (*operands, *end.reads), end.writes
    if splits > 1:
        reads, writes = operands, (("result", sums),)
    count = groups * shares.width
    yield Step(program, program.target, reads, writes, count, groups, words, title)
    if splits > 1:
        size = batch * m * n
        target = WorkgroupTarget(FINISH_WIDTH).in_grid(-(-size // FINISH_WIDTH))
        finish, words = FinishProgram(end.epilogue, splits), (("n", n), ("size", m * n))
        reads = (("parts", sums), *end.reads)
        yield Step(finish, target, reads, end.writes, size, 0, words, f"{size} sums")
