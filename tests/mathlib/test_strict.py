"""math="strict": the bits of NumPy's single operations, on a GPU as well."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from strategies import bits, copied, points, random_graph, values

import symgrad as sg
from symgrad.expr import ops
from symgrad.expr.graph.node import Graph, Op, inputs_of, reachable
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.arrange import share_reductions
from symgrad.mathlib.barriers import with_barriers
from symgrad.mathlib.define import Function, functions

from .cases import BOUNDS, FUNCTIONS, TINY, evaluate, grid
from .emulate import Emulated, expanded
from .test_gpu import run


def in_order(function: Function) -> Function:
    """A definition as a strict kernel has it, also one that kernels expand."""
    graph, (root,) = with_barriers(function.graph, [function.root], "strict", variable=False)
    return replace(function, graph=graph, root=root, arguments=tuple(inputs_of(graph)))


STRICT = {op: in_order(f) for op, f in {**FUNCTIONS, **functions("strict")}.items()}


def heads(graph: Graph, roots: list[int]) -> list[Op]:
    return [graph.nodes[i][0] for i in reachable(graph, roots)]


def test_sine_and_cosine_of_one_argument_share_its_reduction() -> None:
    graph = Graph()
    graph.tracing = False
    x, y = (Expr(graph, graph.input(name)) for name in "xy")
    roots = [ops.sin(x * y).id, ops.cos(x * y).id, ops.cos(x).id]
    found = heads(*share_reductions(graph, roots))
    assert [found.count(op) for op in (ops.quarters, ops.angle, ops.sine, ops.cosine)] == [1] * 4
    assert [found.count(op) for op in (ops.sin, ops.cos)] == [0, 1]


def test_a_single_sine_stays_what_it_is() -> None:
    graph = Graph()
    root = ops.sin(Expr(graph, graph.input("x"))).id
    assert share_reductions(graph, [root]) == (graph, [root])


SUMS = {ops.add, ops.sub, ops.mul, ops.div}


@pytest.mark.parametrize("op", STRICT, ids=lambda op: op.name)
def test_no_sum_is_made_of_bare_sums_or_products(op: Op) -> None:
    graph = STRICT[op].graph
    for i in reachable(graph, [STRICT[op].root]):
        node = graph.nodes[i]
        if node[0] in SUMS:
            assert not {graph.nodes[a][0] for a in node[1:]} & SUMS


@pytest.mark.parametrize("name", BOUNDS)
def test_a_gpu_gives_the_bits_of_numpy(name: str) -> None:
    """Also where its own quotients and roots are off, but for subnormals that it flushes."""
    arguments = grid(name, 3000)
    got = run(name, *arguments, functions=STRICT)
    want = evaluate(STRICT[ops.TABLE[name]], *arguments, functions=STRICT)
    same = got.view(np.uint32) == np.ascontiguousarray(want).view(np.uint32)
    same |= np.isnan(got) & np.isnan(want)
    flushed = (got == 0.0) & (np.abs(want) < 16 * TINY)
    wrong = np.flatnonzero(~(same | flushed))
    assert not len(wrong), ([float(a[wrong[0]]) for a in arguments], got[wrong], want[wrong])


@pytest.mark.parametrize("name", BOUNDS)
def test_flushing_subnormals_changes_no_other_bits(name: str) -> None:
    """What normal results are made of is normal, but for gelu's: Phi is smaller by its argument."""
    given = grid(name, 3000)
    if len(given) == 1:  # where exponentials become subnormal
        ends = [np.linspace(-end, end, 12_501, dtype=np.float32) for end in (16.0, 104.0)]
        given = (np.concatenate([given[0], *ends]),)
    graph, inputs, roots = expanded(name, "strict")
    values = dict(zip(inputs, given, strict=True))
    (got,) = Emulated(flushes=True).evaluate(graph, roots[:1], values)
    (want,) = Emulated().evaluate(graph, roots[:1], values)
    same = np.float32(got).view(np.uint32) == np.float32(want).view(np.uint32)
    same |= np.isnan(got) & np.isnan(want)
    flushed = (got == 0.0) & (np.abs(want) < (13 * TINY if name == "gelu" else TINY))
    wrong = np.flatnonzero(~(same | flushed))
    assert not len(wrong), ([float(a[wrong[0]]) for a in given], got[wrong], want[wrong])


def test_a_strict_kernel_says_so_and_is_the_same_on_all_devices() -> None:
    if not any(d.is_gpu for d in sg.devices()):
        pytest.skip("no GPU and no software Vulkan driver here")

    def f(v: Any) -> Any:
        wave = sg.sin(v[0] + v[1] * v[2])
        return sg.exp(-v[0] * v[1] - v[1] * v[2]) * wave + sg.sqrt(v[0] * v[0] / 3)

    points = np.random.default_rng(5).uniform(-2, 2, (1000, 3)).astype(np.float32)
    results = []
    for device in (0, "cpu"):
        kernel = sg.fused_forward_backward(3, f, device=device, math="strict")
        assert "math: strict" in kernel.wgsl
        results.append(kernel.run(points))
    for gpu, cpu in zip(*results, strict=True):
        np.testing.assert_array_equal(gpu, cpu)


ROUNDED_OPS = (
    ops.add, ops.sub, ops.mul, ops.div, ops.neg, ops.reciprocal, ops.abs, ops.sqrt, ops.integer_pow,
    ops.where, ops.lt, ops.le, ops.eq, ops.ne, ops.logical_and, ops.logical_not, ops.isnan,
    ops.minimum, ops.maximum, ops.sign, ops.floor, ops.round, ops.fract,
)  # fmt: skip
"""What NumPy rounds correctly or not at all."""

TOGETHER = 30
"""Functions in one kernel."""


@pytest.mark.parametrize("device", sg.devices(), ids=str)
@pytest.mark.parametrize("start", range(0, 300, TOGETHER))
def test_random_functions_have_the_bits_of_numpy(device: sg.Device, start: int) -> None:
    """Of infinities, NaN, zeros of either sign and huge numbers too; none is subnormal."""
    drawn = [random_graph(seed, table=ROUNDED_OPS, size=11) for seed in range(start, start + 30)]
    at = points(3, 150, start)
    every = [values(d.graph, [x.id for x in d.floats], at) for d in drawn]
    want = np.array([v[-1] for v in every])
    flushed = np.array([((np.abs(v) < TINY) & (v != 0.0)).any(axis=0) for v in every])
    made = sg.fused_forward(
        3, lambda v: [copied(d.graph, d.root, list(v)) for d in drawn], device=device, math="strict"
    )
    got = np.array(made.run(np.ascontiguousarray(at.T)))
    wrong = np.argwhere((bits(got) != bits(want)) & ~flushed)
    assert not len(wrong), (drawn[wrong[0][0]], at[:, wrong[0][1]])
    assert np.mean(flushed) < 0.4


def significands(seed: int, count: int) -> Any:
    """Floats of all normal sizes, half of them with few bits or nearly a power of two."""
    random = np.random.default_rng(seed)
    bits = random.integers(0, 1 << 23, count)
    few = (1 << random.integers(0, 23, count)) * random.integers(0, 4, count)
    near = np.where(random.random(count) < 0.5, few, (1 << 23) - 1 - few) & 0x7FFFFF
    bits = np.where(random.random(count) < 0.5, bits, near)
    sizes = random.integers(1, 255, count) << 23
    return np.uint32(bits | sizes | random.integers(0, 2, count) << 31).view(np.float32)


ROUNDED = ["div", "reciprocal", "sqrt", "rsqrt"]
WANTED: dict[str, Any] = {
    "div": np.divide, "reciprocal": np.reciprocal, "sqrt": np.sqrt,
    "rsqrt": lambda x: np.reciprocal(np.sqrt(x)),
}  # fmt: skip


def same_if_normal(got: Any, want: Any) -> None:
    """The same bits where results are normal, infinite or NaN."""
    kept = ~(np.abs(want) < 2 * TINY)
    np.testing.assert_array_equal(got[kept], want[kept])


def pairs(name: str, count: int) -> list[Any]:
    given = [significands(k, count) for k in range(ops.TABLE[name].arity)]
    if name == "div":  # quotients close to halfway between two floats
        half = np.float32(given[1] * 0.5)
        given[0][: count // 4] = np.nextafter(given[1], half)[: count // 4]
    normal = np.all([np.abs(a) >= TINY for a in given], axis=0)
    return [a[normal] for a in given]


@pytest.mark.parametrize("fuses", [0, 1, 2])
@pytest.mark.parametrize("off", [0.0, 2.5, 8.3])
@pytest.mark.parametrize("name", ROUNDED)
def test_quotients_and_roots_are_rounded_correctly(name: str, off: float, fuses: int) -> None:
    """Whatever the device makes of them: quotients off by 3 ULP, roots by a third of 8.3."""
    given = pairs(name, 300_000)
    off = min(off, 3.0) if name in ("div", "reciprocal") else off
    graph, inputs, roots = expanded(name, "strict")
    device = Emulated(off=off, fuses=fuses)
    got = device.evaluate(graph, roots[:1], dict(zip(inputs, given, strict=True)))[0]
    with np.errstate(all="ignore"):
        same_if_normal(got, WANTED[name](*given))


@pytest.mark.parametrize("name", ROUNDED)
def test_quotients_and_roots_are_rounded_correctly_on_a_gpu(name: str) -> None:
    given = pairs(name, 300_000)
    with np.errstate(all="ignore"):
        same_if_normal(run(name, *given, functions=STRICT), WANTED[name](*given))
