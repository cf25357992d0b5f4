"""Rows of points: read and stored by one statement, of which a kernel says where it goes wrong."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from symgrad.expr import ops
from symgrad.kernel.language.execute import execute
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.listing import listing
from symgrad.kernel.language.statements import Buffer
from symgrad.kernel.language.target import SimdTarget, WorkgroupTarget
from symgrad.kernel.language.verify import faults, verify


def swapped(target: WorkgroupTarget | SimdTarget) -> KernelIR:
    """Columns 2 and 0 of x (B, 3), and their sum."""
    k = KernelIR(target, "swapped")
    x, y = k.buffer("x", "read"), k.buffer("y", "write")
    found = k.read_row(x, target.point(k), 3, (0, 2))
    k.names |= {found[0]: "a", found[2]: "b"}
    k.store_row(y, [found[2], found[0], k.add(ops.add, found[0], found[2])])
    return k


@pytest.mark.parametrize(
    ("target", "count"), [(SimdTarget(4), 8), (WorkgroupTarget(4), 7)], ids=str
)
def test_rows_are_read_and_stored(target: WorkgroupTarget | SimdTarget, count: int) -> None:
    k = swapped(target)
    verify(k)
    x, y = np.arange(24.0).reshape(8, 3)[:count].copy(), np.zeros((count, 3))
    execute(k, {"x": x, "y": y}, count)
    np.testing.assert_array_equal(y, np.stack([x[:, 2], x[:, 0], x[:, 0] + x[:, 2]], 1))


def test_they_are_listed() -> None:
    assert listing(swapped(SimdTarget(4))).splitlines()[1:] == [
        "  let a = x[cell, 0]",
        "  let b = x[cell, 2]",
        "  let v1 = a + b",
        "  y[cell] = b, a, v1",
    ]


def stored(k: KernelIR, y: Buffer) -> None:
    k.store_row(y, [k.constant(1.0)])


WRONG: dict[str, tuple[Callable[[KernelIR, Buffer, Buffer], object], str]] = {
    "a row of what is read": (lambda k, x, y: k.store_row(x, [k.constant(1.0)]), "space 'read'"),
    "a row of what is written": (lambda k, x, y: k.read_row(y, k.cell, 1, (0,)), "space 'write'"),
    "words in a row of floats": (lambda k, x, y: k.store_row(y, [k.word(1)]), "takes f, not u"),
    "a row that only some store": (
        lambda k, x, y: k.when(k.add(ops.word_lt, k.cell, k.word(3)), lambda: stored(k, y)),
        "control flow may vary",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_them_is_said(name: str) -> None:
    write, fault = WRONG[name]
    k = KernelIR(SimdTarget(4))
    write(k, k.buffer("x", "read"), k.buffer("y", "write"))
    assert any(fault in found for found in faults(k))


def test_an_arena_may_begin_with_a_graph() -> None:
    """What is added to it later is found there if it is there, and stands behind it otherwise."""
    first = swapped(SimdTarget(4)).graph
    total = next(i for i, node in enumerate(first.nodes) if node[0] is ops.add)
    k = KernelIR(SimdTarget(4), graph=first)
    assert k.graph is not first and k.graph.nodes[: len(first)] == first.nodes
    assert k.add(ops.add, *first.args(total)) == total
    assert k.add(ops.mul, *first.args(total)) >= len(first)
    assert len(first.nodes) < len(k.graph.nodes)
