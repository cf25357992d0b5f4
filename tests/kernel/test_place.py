"""Kernels whose values float: where they come to stand, and what becomes of their variables."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from symgrad.expr import ops
from symgrad.expr.graph.node import INTEGER, WORD, Graph
from symgrad.kernel.language.execute import Fault, execute
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.listing import listing
from symgrad.kernel.language.statements import (
    Barrier,
    Buffer,
    For,
    GroupReduce,
    If,
    Load,
    Scope,
    Store,
    within,
)
from symgrad.kernel.language.target import SimdTarget, WorkgroupTarget
from symgrad.kernel.language.verify import Uniformity, verify
from symgrad.kernel.passes.place import place

WIDTH = 4


class Writer:
    """Writes a kernel that floats, statement by statement."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.k = KernelIR(WorkgroupTarget(WIDTH), graph=self.graph, floating=True)
        self.x, self.y = self.k.buffer("x", "read"), self.k.buffer("y", "write")
        self.none = self.graph.intern((INTEGER, 0))

    def variable(self, name: str, first: int) -> Buffer:
        variable = Buffer(name, "variable", size=1)
        self.set(variable, first)
        return variable

    def set(self, variable: Buffer, value: int) -> None:
        self.k.at.items.append(Store(variable, self.none, value))

    def get(self, buffer: Buffer, index: int | None = None) -> int:
        result = self.k.value("f", buffer.name)
        self.k.at.items.append(Load(result, buffer, self.none if index is None else index))
        return result

    def loop(self, hi: int, most: int | None = None) -> For:
        loop = For(Scope(self.k.at), self.k.value("u", "k"), self.word(0), hi, False, most=most)
        self.k.at.items.append(loop)
        return loop

    def branch(self, condition: int) -> If:
        branch = If(condition, (Scope(self.k.at, True), Scope(self.k.at, True)))
        self.k.at.items.append(branch)
        return branch

    def word(self, n: int) -> int:
        return self.graph.intern((WORD, n))


WANTED = """
kernel kernel(read x: f32, write y: f32):
  var total: f32 = 0.0
  for k in 0 .. cell + 1 most 3:
    total = total + x[k]
  if total < 0.0:
    var inner: f32 = total
    total = inner + total
  y[cell] = total
"""


def test_the_text_of_a_kernel_that_floats_has_its_variables() -> None:
    assert listing(sums().k) == WANTED.strip()


def as_it_is(graph: Graph, roots: Sequence[int], _: Sequence[int]) -> tuple[Graph, list[int]]:
    return graph, list(roots)


def sums() -> Writer:
    """y[i] = the sum of x[k] for the k up to i, three at most, twice where that is negative."""
    w = Writer()
    total = w.variable("total", w.graph.constant(0.0))
    loop = w.loop(w.graph.add(ops.word_add, w.k.cell, w.word(1)), most=3)
    with w.k.inside(loop.scope):
        w.set(total, w.graph.add(ops.add, w.get(total), w.get(w.x, loop.k)))
    branch = w.branch(w.graph.add(ops.lt, w.get(total), w.graph.constant(0.0)))
    with w.k.inside(branch.sides[0]):
        inner = w.variable("inner", w.get(total))
        w.set(total, w.graph.add(ops.add, w.get(inner), w.get(total)))
    total_of_all = w.get(total)
    w.k.store(w.y, w.k.cell, total_of_all)
    return w


@pytest.mark.parametrize("target", [WorkgroupTarget(WIDTH), SimdTarget(WIDTH, whole=False)])
def test_variables_become_carries_and_results(target: SimdTarget | WorkgroupTarget) -> None:
    kernel = place(sums().k, "sums", target, as_it_is, guarded=True)
    verify(kernel)
    assert {b.space for b in kernel.buffers} == {"read", "write"}
    (loop,) = (s for s in within(kernel.main) if isinstance(s, For))
    assert [kernel.names[i] for i in loop.params] == ["total"]
    x = np.random.default_rng(0).normal(size=7)
    y = np.zeros(7)
    execute(kernel, {"x": x, "y": y}, 7)
    wanted = np.array([x[: min(i + 1, 3)].sum() for i in range(7)])
    assert np.allclose(y, np.where(wanted < 0, 2 * wanted, wanted))
    execute(sums().k, {"x": x, "y": y}, 7)
    assert np.allclose(y, np.where(wanted < 0, 2 * wanted, wanted))


@pytest.mark.parametrize("among", [1, 2, WIDTH])
def test_reductions_are_known_to_all_neighbours(among: int) -> None:
    w = Writer()
    result, value = w.k.value("f", "sum"), w.get(w.x, w.k.cell)
    w.k.at.items.append(GroupReduce(result, "sum", value, among))
    w.k.store(w.y, w.k.cell, result)
    kernel = place(w.k, "sums", WorkgroupTarget(WIDTH), as_it_is)
    verify(kernel)
    x, y = np.random.default_rng(0).normal(size=8), np.zeros(8)
    execute(kernel, {"x": x, "y": y}, 8)
    wanted = np.repeat(x.reshape(-1, among).sum(1), among)
    assert np.allclose(y, wanted)
    execute(w.k, {"x": x, "y": y}, 8)
    assert np.allclose(y, wanted)


def test_a_fault_of_a_kernel_that_floats_names_the_statement() -> None:
    w = Writer()
    table = Buffer("table", "own", size=8, shape=(2, 4))
    w.k.buffers.append(table)
    axes = w.word(0), w.k.local
    flat = w.graph.add(ops.word_add, w.k.local, w.word(0))
    w.k.at.items.append(store := Store(table, flat, w.graph.constant(1.0), axes=axes))
    arrays = {"x": np.zeros(4), "y": np.zeros(4)}
    execute(w.k, arrays, 4)
    table.shape = (4, 2)
    with pytest.raises(Fault, match="index 2 of axis 1 of table") as caught:
        execute(w.k, arrays, 4)
    assert caught.value.statement is store


def test_a_variable_varies_where_invocations_part() -> None:
    w = Writer()
    same, other = (w.variable(name, w.graph.constant(0.0)) for name in ("same", "other"))
    branch = w.branch(w.graph.add(ops.word_lt, w.k.local, w.word(2)))
    with w.k.inside(branch.sides[0]):
        w.set(other, w.graph.constant(1.0))
        w.k.barrier()
    values = w.get(same), w.get(other)
    uniformity = Uniformity(w.k)
    assert [uniformity.varies(i) for i in values] == [False, True]
    parted = {type(s): head for s, head in uniformity.parted.items()}
    assert parted == {Store: branch, Barrier: branch}


def test_a_variable_that_varies_later_varies_from_the_second_iteration_on() -> None:
    w = Writer()
    v = w.variable("v", w.graph.constant(0.0))
    loop = w.loop(w.word(3))
    with w.k.inside(loop.scope):
        first = w.get(v)
        w.set(v, w.get(w.x, w.k.cell))
    assert Uniformity(w.k).varies(first)
