"""What an accurate kernel on the CPU rounds otherwise than NumPy: products that one sum uses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from strategies import bits, copied, points, random_graph, values

import symgrad as sg
from symgrad.expr import ops
from symgrad.expr.graph.node import INPUT, Graph, inputs_of, reachable
from symgrad.expr.semantics.evaluate import leaf
from symgrad.llvm.device.cpu import host
from symgrad.llvm.printing.operations import lone_products, uses_of

TABLE = (
    ops.add, ops.sub, ops.mul, ops.div, ops.neg, ops.reciprocal, ops.abs, ops.sqrt, ops.integer_pow,
    ops.where, ops.lt, ops.le, ops.eq, ops.ne, ops.logical_not, ops.isnan, ops.minimum,
    ops.maximum, ops.sign, ops.floor, ops.round, ops.fract,
)  # fmt: skip


def contracted(graph: Graph, roots: list[int], at: np.ndarray) -> np.ndarray:
    """The roots in float32, operation by operation, but a sum and its own product in one."""
    order = [i for i in reachable(graph, roots) if graph.nodes[i][0].arity]
    uses = uses_of(graph, order, roots)
    alone = lone_products(graph, order, uses) if host().fused else frozenset[int]()
    found: dict[int, Any] = dict(zip(inputs_of(graph), at, strict=True))
    with np.errstate(all="ignore"):
        for i in reachable(graph, roots):
            op, *args = graph.nodes[i]
            if not op.arity:
                found[i] = found[i] if op is INPUT else leaf(graph.nodes[i], np.float32)
                continue
            mine = [k for k in (1, 0) if op in (ops.add, ops.sub) and args[k] in alone]
            if not mine:
                found[i] = op.reference(*[found[a] for a in args])
                continue
            terms = [np.float64(found[a]) for a in args]
            _, a, b = graph.nodes[args[mine[0]]]
            terms[mine[0]] = np.float64(found[a]) * np.float64(found[b])  # exact
            found[i] = rounded_once(terms[0], terms[1] if op is ops.add else -terms[1])
    return np.array([np.broadcast_to(np.float32(found[r]), at.shape[1]) for r in roots])


def rounded_once(a: Any, b: Any) -> Any:
    """a + b of doubles as a float32: what the double of the sum lost makes its last bit odd."""
    total = np.asarray(a + b)
    part = total - a
    lost = (a - (total - part)) + (b - part)
    even = np.ascontiguousarray(total).view(np.uint64) % 2 == 0
    up = np.nextafter(total, np.copysign(np.inf, lost))
    return np.where((lost != 0.0) & np.isfinite(lost) & even, up, total).astype(np.float32)


@pytest.mark.parametrize("simplify", [True, False])
@pytest.mark.parametrize("start", range(0, 300, 60))
def test_nothing_else_differs(start: int, simplify: bool) -> None:
    drawn = [random_graph(seed, table=TABLE, size=11) for seed in range(start, start + 60)]
    at = points(3, 150, start)
    made = sg.fused_forward(
        3, lambda v: [copied(d.graph, d.root, list(v)) for d in drawn], device="cpu",
        simplify=simplify,
    )  # fmt: skip
    got = np.array(made.run(np.ascontiguousarray(at.T)))
    graph, outputs = made._computation.graph, made._computation.outputs
    want = contracted(graph, [i for o in outputs for i in o.nodes], at)
    np.testing.assert_array_equal(bits(got), bits(want))
    numpys = np.array([values(d.graph, [d.root], at)[0] for d in drawn])
    assert np.mean(bits(got) == bits(numpys)) > 0.98


def test_a_product_that_is_used_twice_is_rounded_as_it_stands() -> None:
    at = points(2, 500, 1)
    made = sg.fused_forward(2, lambda v: [v[0] * v[1] + 0.1, v[0] * v[1]], device="cpu")
    with np.errstate(all="ignore"):
        want = at[0] * at[1] + np.float32(0.1)
    np.testing.assert_array_equal(bits(made.run(np.ascontiguousarray(at.T))[0]), bits(want))
