"""What users see of kernels: what ``run`` takes, and what it says to what it does not."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.expr import ops
from symgrad.mathlib.define import Math


def test_one_variable_is_a_number() -> None:
    kernel = sg.fused_forward_backward(1, lambda v: v[0] ** 2, device="cpu")
    loss, gradient = kernel.run(3.0)
    assert loss == 9.0 and gradient.tolist() == [6.0]


def test_results_cannot_be_written_to_one_place() -> None:
    kernel = sg.fused_forward_backward(2, lambda v: v @ v, device="cpu")
    whole = np.empty((2, 3), np.float32)
    apart = np.empty(2, np.float32), np.empty((2, 2), np.float32)
    assert kernel.run(np.eye(2), out=apart) is apart
    flat = whole.reshape(-1)
    with pytest.raises(sg.InputError, match="share memory: each needs its own"):
        kernel.run(np.eye(2), out=(flat[:2], flat[1:5].reshape(2, 2)))


def test_a_list_of_results_may_get_other_arrays_between_calls() -> None:
    kernel = sg.fused_forward_backward(2, lambda v: v[0] * v[1], device="cpu")
    x, out = np.array([2, 3], np.float32), [np.empty((), np.float32), np.empty(2, np.float32)]
    kernel.run(x, out=out)
    out[1] = np.zeros(2, np.float32)
    kernel.run(x, out=out)
    assert out[1].tolist() == [3.0, 2.0]


@pytest.mark.parametrize("f", [np.sum, np.linalg.norm, sum])
def test_functions_written_in_c_are_run_too(f: Any) -> None:
    loss, _ = sg.forward_backward(f, [3.0, 4.0])
    assert loss == f([3.0, 4.0])


def test_an_array_cannot_be_indexed_by_a_condition() -> None:
    with pytest.raises(sg.TraceError, match=r"use sg\.where\n.*test_kernels.py"):
        sg.fused_forward_backward(2, lambda v: v[v > 0].sum(), device="cpu")
    with pytest.raises(IndexError, match="out of bounds"):
        sg.fused_forward_backward(2, lambda v: v[2], device="cpu")


def test_only_a_loss_is_given_to_scipy() -> None:
    with pytest.raises(sg.InputError, match="as_scipy needs a kernel of"):
        sg.fused_jacobian(2, lambda v: [v[0]], device="cpu").as_scipy()


def test_expressions_pickle() -> None:
    x = sg.var("x")
    kernel = sg.fused_forward(1, lambda v: sg.sin(v[0]) ** 2, device="cpu")
    for expr in (sg.sin(x) ** 2, kernel.expr):
        again = pickle.loads(pickle.dumps(expr))
        assert str(again) == str(expr)
        name = again.graph.names[0]
        assert sg.evaluate(again, {name: 0.5}) == np.sin(0.5) ** 2


NAMES = (
    "softplus", "sigmoid", "silu", "gelu", "gelu_tanh", "relu", "logaddexp", "erf", "erfc", "cbrt",
    "rsqrt", "tan", "pow", "hypot", "atan2", "remainder", "tanh", "expm1", "log1p",
)  # fmt: skip


@pytest.mark.parametrize("math", ["accurate", "fast", "strict"])
@pytest.mark.parametrize("name", NAMES)
def test_kernels_in_float64_show_the_wgsl_that_a_gpu_would_get(name: str, math: Math) -> None:
    """Their graphs keep operations that those in float32 have expanded."""
    f = ops.TABLE[name]
    loss = lambda v: f(*v[: f.arity])  # noqa: E731
    points = sg.fused_hessian(2, loss, device="cpu", dtype="float64", math=math)
    rows = sg.fused_forward_backward(
        2, lambda p, r: loss(p * r), row=2, device="cpu", dtype="float64", math=math
    )
    for kernel in (points, rows):
        assert "fn main" in kernel.wgsl
        called = set(re.findall(r"sg_\w+", kernel.wgsl))
        assert called == {t for t in called if f"fn {t}(" in kernel.wgsl}
