"""The library's functions on a GPU, a software one here: accuracy and edges as on NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

from symgrad.expr import ops
from symgrad.expr.graph.node import Op
from symgrad.mathlib.define import Function
from symgrad.wgsl.printing.printer import Library

from .cases import (
    BOUNDS,
    EDGES,
    FUNCTIONS,
    INEXACT,
    TINY,
    cancelling,
    grid,
    true_values,
    truth,
    ulps,
)

compute = pytest.importorskip("wgpu.utils.compute")
PARAMS = np.array([0, 0, 0x7F800000, 0x7FC00000], np.uint32)


def source(function: Function, functions: Mapping[Op, Function]) -> str:
    """A kernel that applies a function to its buffers."""
    count = len(function.arguments)
    buffers = [
        f"@group(0) @binding({k + 1}) var<storage, read> in{k}: array<f32>;" for k in range(count)
    ]
    return "\n".join([
        "struct Params { count: u32, zero: u32, infinity: f32, nan: f32 }",
        "@group(0) @binding(0) var<storage, read> params: Params;",
        *buffers,
        f"@group(0) @binding({count + 1}) var<storage, read_write> out: array<f32>;",
        *Library(functions).definitions([function.op]),
        "@compute @workgroup_size(64) fn main(@builtin(global_invocation_id) id: vec3<u32>) {",
        "  let i = id.x + id.y * 65536u;",
        "  if (i < arrayLength(&out)) {",
        f"    out[i] = {function.name}({', '.join(f'in{k}[i]' for k in range(count))});",
        "  }",
        "}",
    ])  # fmt: skip


def run(name: str, *arguments: Any, functions: Mapping[Op, Function] = FUNCTIONS) -> Any:
    function = functions[ops.TABLE[name]]
    inputs = {k + 1: np.ascontiguousarray(a, np.float32) for k, a in enumerate(arguments)}
    size, last = len(arguments[0]), len(arguments) + 1
    try:
        found = compute.compute_with_buffers(
            {0: PARAMS, **inputs}, {last: (size, "f")}, source(function, functions),
            n=(1024, -(-size // 65536), 1),
        )  # fmt: skip
    except RuntimeError as error:
        pytest.skip(f"no GPU: {error}")
    return np.frombuffer(found[last], np.float32)


@cache
def exact() -> bool:
    """Whether the device rounds quotients as IEEE 754 has it; GPUs need not, nor roots then."""
    a, b = np.random.default_rng(0).uniform(0.5, 2.0, (2, 4096)).astype(np.float32)
    return bool(np.array_equal(run("wide_div", a, b), a / b))


def bound(name: str) -> float:
    """The largest error that a function may have on this device, in ULP."""
    return BOUNDS[name][1] if exact() else max(BOUNDS[name][1], INEXACT.get(name, 0.0))


REDUCED = {"exp": [38.0, 87.5, -75.55515], "exp2": [127.3, -99.7], "sin": [2883.46, 355.0, 1e22],
           "cos": [1570.0, 11.0, 3.4e38], "log1p": [1e-5, -0.4, 5e6]}  # fmt: skip


@pytest.mark.parametrize("name", REDUCED)
def test_reductions_survive_the_compiler(name: str) -> None:
    """Where reassociation would take them apart, errors would be 10 ULP or more."""
    x = np.array(REDUCED[name], np.float32)
    assert np.max(ulps(run(name, x), truth(name, x))) <= bound(name)


@pytest.mark.parametrize("name", BOUNDS)
def test_error_is_within_the_bound(name: str) -> None:
    arguments = grid(name)
    want, unit = true_values(name)
    got = run(name, *arguments)
    errors = ulps(got, want, unit)
    if name == "gelu" and not exact():  # x Phi(x), where Phi is subnormal and may be flushed
        errors[(got == 0.0) & (np.abs(want) < 13 * TINY)] = 0.0
    worst = int(np.argmax(errors))
    inputs = [float(a[worst]) for a in arguments]
    assert errors[worst] <= bound(name), (errors[worst], inputs, got[worst], want[worst])


@pytest.mark.parametrize("name", BOUNDS)
def test_edges_agree_with_the_op_table(name: str) -> None:
    arity = ops.TABLE[name].arity
    edges = [v.ravel() for v in np.meshgrid(*[EDGES] * arity)]
    want = truth(name, *edges)
    if name == "exp_neg_square":
        want = np.where(np.isinf(edges[0]), 0.0, want)
    unit = cancelling(name, edges)
    assert np.max(ulps(run(name, *edges), want, unit)) <= bound(name)
