"""Kernels as functions of JAX: its transforms, Optax and Diffrax around them."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from bridges.losses import NESTED, POINTS, ROWS, bent, bent_of, line

import symgrad as sg

jax: Any = pytest.importorskip("jax")
jnp = jax.numpy


pytestmark = pytest.mark.usefixtures("jax_in_float64")


@functools.cache
def loss() -> Any:
    return sg.fused_forward_backward(3, bent(sg), device="cpu", dtype="float64").as_jax()


TRANSFORMS: dict[str, Any] = {
    "value": lambda f: f,
    "grad": jax.grad,
    "hessian": lambda f: jax.jacrev(jax.grad(f)),
    "third": lambda f: jax.jacrev(jax.jacrev(jax.grad(f))),
    "value_and_grad": lambda f: lambda x: jnp.hstack(jax.value_and_grad(f)(x)),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_go_through(name: str, compiled: bool) -> None:
    transform = TRANSFORMS[name]
    found = jax.vmap(transform(loss()))
    wanted = jax.jit(jax.vmap(transform(bent(jnp))))(POINTS)
    assert np.allclose((jax.jit(found) if compiled else found)(POINTS), wanted, rtol=1e-12)


def test_batches_without_vmap() -> None:
    assert np.allclose(loss()(jnp.array(POINTS)), bent(np)(POINTS.T), rtol=1e-14)


def test_values_of_nested_arrays() -> None:
    kernel = sg.fused_forward(NESTED, lambda v: bent_of(v, sg), device="cpu", dtype="float64")
    x = {"a": jnp.array(POINTS[0, :2]), "b": jnp.array(2.0)}
    found, wanted = (
        jax.jit(jax.jacrev(f))(x) for f in (kernel.as_jax(), lambda v: bent_of(v, jnp))
    )
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert np.allclose(a, b, rtol=1e-13)


def test_a_loss_over_data() -> None:
    bound = sg.fused_forward_backward(2, line, row=2, device="cpu", dtype="float64").bind(ROWS)
    wanted = lambda p: jnp.sum((p[0] + p[1] * ROWS[:, 0] - ROWS[:, 1]) ** 2)  # noqa: E731
    p = jnp.array([0.5, 1.0])
    assert np.allclose(jax.jit(jax.grad(bound.as_jax()))(p), jax.grad(wanted)(p), rtol=1e-13)
    with pytest.raises(sg.DifferentiationError, match=r"use sg\.fused_hvp"):
        jax.jacrev(jax.grad(bound.as_jax()))(p)


def test_optax_finds_the_minimum() -> None:
    optax: Any = pytest.importorskip("optax")
    bowl = lambda v: (v[0] - 1) ** 2 + 10 * (v[1] + 2) ** 2  # noqa: E731
    kernel = sg.fused_forward_backward(2, bowl, device="cpu").as_jax()
    rule, x = optax.adam(0.1), jnp.zeros(2, "float32")

    def step(carry: Any, _: None) -> Any:
        x, state = carry
        updates, state = rule.update(jax.grad(kernel)(x), state)
        return (optax.apply_updates(x, updates), state), None

    (x, _), _ = jax.jit(lambda c: jax.lax.scan(step, c, None, 400))((x, rule.init(x)))
    assert np.allclose(x, [1.0, -2.0], atol=1e-3)


def test_diffrax_integrates_a_field() -> None:
    diffrax: Any = pytest.importorskip("diffrax")
    pendulum = lambda xp: lambda y: [y[1], -xp.sin(y[0])]  # noqa: E731
    field = sg.fused_forward(2, pendulum(sg), device="cpu", dtype="float64").as_jax()

    def end(f: Any) -> Any:
        term = diffrax.ODETerm(lambda t, y, args: jnp.stack(list(f(y))))
        return lambda y: (
            diffrax.diffeqsolve(term, diffrax.Heun(), 0, 1, 0.1, y, max_steps=16).ys[-1].sum()
        )

    start = jnp.array([1.0, 0.0])
    found, wanted = (jax.jit(jax.grad(end(f)))(start) for f in (field, pendulum(jnp)))
    assert np.allclose(found, wanted, rtol=1e-12)


def test_what_is_refused() -> None:
    with pytest.raises(sg.InputError, match=r"takes \(3,\)"):
        loss()(jnp.zeros(4))
    with pytest.raises(sg.InputError, match="as_jax needs a kernel of fused_forward_backward"):
        sg.fused_hessian(2, lambda v: v[0] * v[1], device="cpu").as_jax()
    for made in (jnp.ones(3) * 1j, "abc", object()):
        with pytest.raises(sg.InputTypeError, match=r"x (is not an array|holds complex)"):
            loss()(made)


@pytest.mark.parametrize(
    "f",
    [
        lambda v: jnp.sin(v[0]),
        lambda v: jnp.sum(v**2),
        lambda v: jnp.array([v[0], 2.0])[0],
        lambda v: jnp.where(v[0] > 0, v[0], 0.0),
        lambda v: jax.lax.sin(v[0]),
    ],
)
def test_jaxs_functions_of_expressions_are_refused_with_numpys(f: Any) -> None:
    with pytest.raises(sg.TraceError, match=r"use NumPy's, .*\n.*test_jax\.py:\d+"):
        sg.fused_forward(2, f, device="cpu")
