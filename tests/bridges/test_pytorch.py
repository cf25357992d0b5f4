"""Kernels as functions of PyTorch: gradients of any order, batches, dtypes, and refusals."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest
from bridges.losses import NESTED, POINTS, ROWS, bent, bent_of, line

import symgrad as sg

torch: Any = pytest.importorskip("torch")


@pytest.fixture(scope="module")
def loss() -> Any:
    return sg.fused_forward_backward(3, bent(sg), device="cpu", dtype="float64").as_torch()


@pytest.fixture
def x() -> Any:
    return torch.tensor(POINTS, requires_grad=True)


def test_gradients_of_two_orders_are_those_of_differences(loss: Any, x: Any) -> None:
    check = torch.autograd
    assert check.gradcheck(loss, x, check_forward_ad=True, check_batched_grad=True)
    assert check.gradgradcheck(loss, x)


@pytest.mark.parametrize("verb", ["grad", "jacrev", "jacfwd", "hessian"])
def test_transforms_go_through(loss: Any, verb: str) -> None:
    found, wanted = (
        torch.func.vmap(getattr(torch.func, verb)(f))(torch.tensor(POINTS))
        for f in (loss, bent(torch))
    )
    assert torch.allclose(found, wanted, rtol=1e-12)


@pytest.mark.parametrize("modes", itertools.product(["jacfwd", "jacrev"], repeat=3), ids="-".join)
def test_third_derivatives_in_any_modes(loss: Any, modes: tuple[str, ...]) -> None:
    found, wanted = (
        functools.reduce(lambda g, mode: getattr(torch.func, mode)(g), modes, f)
        for f in (loss, bent(torch))
    )
    x = torch.tensor(POINTS)
    assert torch.allclose(torch.func.vmap(found)(x), torch.func.vmap(wanted)(x), rtol=1e-12)


def test_tangents_in_tangents_of_values() -> None:
    kernel = sg.fused_forward(3, lambda v: [bent(sg)(v)], device="cpu", dtype="float64")
    values = kernel.as_torch()
    twice = lambda f: torch.func.jacfwd(torch.func.jacfwd(f))(torch.tensor(POINTS[0]))  # noqa: E731
    assert torch.allclose(twice(lambda v: values(v)[0]), twice(bent(torch)), rtol=1e-12)


def test_tensors_in_lists_have_gradients(loss: Any) -> None:
    a = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(loss([a, 2.0, torch.tensor(1.0)]), a)
    whole = torch.tensor([0.5, 2.0, 1.0], dtype=torch.float64)
    assert torch.allclose(found, torch.func.grad(bent(torch))(whole)[0], rtol=1e-12)


@pytest.mark.parametrize(
    "made",
    [
        lambda: torch.ones(3) * 1j,
        lambda: torch.ones(3).to_sparse(),
        lambda: torch.ones(3, device="meta"),
        lambda: "abc",
        lambda: None,
    ],
)
def test_what_holds_no_real_numbers_is_refused(loss: Any, made: Any) -> None:
    with pytest.raises(sg.InputTypeError, match="x is"):
        loss(made())


def test_values_of_nested_tensors() -> None:
    kernel = sg.fused_forward(NESTED, lambda v: bent_of(v, sg), device="cpu", dtype="float64")
    values = kernel.as_torch()
    a = torch.tensor(POINTS[:, :2], requires_grad=True)
    b = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    call = lambda a, b: torch.stack(list(values({"a": a, "b": b})))  # noqa: E731
    wanted = torch.stack(bent_of({"a": a.T, "b": b}, torch))
    assert torch.allclose(call(a, b), wanted, rtol=1e-14)
    assert torch.autograd.gradcheck(call, (a, b), check_forward_ad=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_tensors_keep_their_dtype(dtype: Any) -> None:
    loss = sg.fused_forward_backward(3, bent(sg), device="cpu").as_torch()
    x = torch.tensor(POINTS, dtype=dtype, requires_grad=True)
    found = loss(x)
    found.sum().backward()
    assert found.dtype == x.grad.dtype == dtype
    wanted = torch.func.vmap(bent(torch))(x.detach().double())
    assert torch.allclose(found.double(), wanted, rtol=2 * torch.finfo(dtype).eps, atol=1e-6)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # by torch.compile
def test_a_model_around_it_is_compiled(loss: Any, x: Any) -> None:
    model = torch.compile(lambda x: (loss(2.0 * x) ** 2).sum(), backend="eager")
    model(x).backward()
    compiled, x.grad = x.grad, None
    (loss(2.0 * x) ** 2).sum().backward()
    assert torch.equal(compiled, x.grad)


def test_a_loss_over_data() -> None:
    bound = sg.fused_forward_backward(2, line, row=2, device="cpu", dtype="float64").bind(ROWS)
    loss = bound.as_torch()
    p = torch.tensor([[0.5, 1.0], [0.0, 2.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(loss, p)
    with pytest.raises(sg.DifferentiationError, match=r"use sg\.fused_hvp"):
        torch.autograd.gradgradcheck(loss, p)


def test_an_optimiser_of_torch_finds_the_minimum() -> None:
    bowl = lambda v: (v[0] - 1) ** 2 + 10 * (v[1] + 2) ** 2  # noqa: E731
    loss = sg.fused_forward_backward(2, bowl, device="cpu").as_torch()
    x = torch.zeros(2, requires_grad=True)
    optimiser = torch.optim.LBFGS([x], line_search_fn="strong_wolfe")

    def closure() -> Any:
        optimiser.zero_grad()
        value = loss(x)
        value.backward()
        return value

    optimiser.step(closure)
    assert np.allclose(x.detach(), [1.0, -2.0], atol=1e-4)


def test_what_is_refused(loss: Any) -> None:
    with pytest.raises(sg.InputError, match=r"takes \(3,\)"):
        loss(torch.zeros(4))
    with pytest.raises(sg.InputError, match="as_torch needs a kernel of fused_forward_backward"):
        sg.fused_hessian(2, lambda v: v[0] * v[1], device="cpu").as_torch()
    each = sg.fused_forward_backward(2, line, row=2, reduce=None, device="cpu").bind(ROWS)
    with pytest.raises(sg.InputError, match="as_torch needs a loss, summed over rows"):
        each.as_torch()
