"""What the text of a kernel says."""

from __future__ import annotations

from symgrad.expr import ops
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.listing import listing
from symgrad.kernel.language.target import WorkgroupTarget

WANTED = """
kernel all(read x: f32, write y: f32, own a: f32[4], group tile: f32[8]):
  let v1 = x[cell]
  a = 0
  for k in 0 .. count with y = v1, total = 0.5:
    let v2 = y < 2.5
    while v2
    let v3 = v1 * y
    a[k] += v3
    next y = v3, total = y
  end y_2 = y, total_2 = total
  let v4 = v1 < y_2
  if v4:
    let v5 = exp(v1)
    give v6 = v5
  else:
    give v6 = total_2
  let v7 = cell < count
  if v7:
    tile[local] = v6
  for v8 in 1 .. group down:
    barrier
  let v9 = tile[local]
  y[cell] = v9
"""


def test_all_that_a_kernel_can_do() -> None:
    k = KernelIR(WorkgroupTarget(8), "all")
    x, y = k.buffer("x", "read"), k.buffer("y", "write")
    a, tile = k.buffer("a", "own", size=4), k.buffer("tile", "group", size=8)
    value = k.load(x, k.cell)
    k.fill(a)

    def body(i: int, carries: list[int]) -> list[int]:
        k.names |= {i: "k", carries[0]: "y", carries[1]: "total"}
        then = k.add(ops.mul, carries[0], value)
        k.store(a, i, then, add=True)
        return [then, carries[0]]

    (last, total), _ = k.loop(
        k.word(0), k.count, [value, k.constant(0.5)], body,
        test=lambda _, c: k.add(ops.lt, c[0], k.constant(2.5)),
    )  # fmt: skip
    k.names |= {last: "y", total: "total"}
    (kept,) = k.choose(k.add(ops.lt, value, last), lambda: [k.add(ops.exp, value)], lambda: [total])
    k.when(k.add(ops.word_lt, k.cell, k.count), lambda: k.store(tile, k.local, kept))
    k.loop(k.word(1), k.group, [], lambda *_: k.barrier() or [], down=True)
    k.store(y, k.cell, k.load(tile, k.local))
    assert listing(k) == WANTED.strip()
