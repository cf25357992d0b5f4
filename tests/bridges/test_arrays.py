"""Functions of whole arrays beside JAX in float64: values, gradients, second derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from drawn_functions import drawn

import symgrad as sg

jax: Any = pytest.importorskip("jax")
jnp = jax.numpy


pytestmark = pytest.mark.usefixtures("jax_in_float64")


def attention(xp: Any, q: Any, k: Any, v: Any) -> Any:
    """Causal attention of queries, keys and values of shape (heads, time, width)."""
    t = q.shape[1]
    scores = xp.where(np.tri(t) > 0, q @ xp.swapaxes(k, 1, 2) / np.sqrt(q.shape[2]), -1e9)
    e = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
    return xp.sum(xp.tanh(e / xp.sum(e, axis=-1, keepdims=True) @ v) ** 2)


def convolution(xp: Any, x: Any, w: Any, b: Any) -> Any:
    """A layer of a 3 x 3 convolution with channels, and a maximum over windows."""
    h, k = x.shape[1] - 2, x.shape[2] - 2
    views = xp.stack([x[:, i : i + h, j : j + k] for i in range(3) for j in range(3)])
    y = xp.einsum("vchw,ocv->ohw", views, w) + b[:, None, None]
    return xp.sum(xp.reshape(y, (-1, h // 2, 2, k // 2, 2)).max(axis=(2, 4)) ** 2)


def graph(xp: Any, x: Any, w: Any, b: Any) -> Any:
    """A sum over the edges of a graph, of which vertices come up again."""
    start, end = np.arange(60) % 17, np.arange(60) * 7 % 20
    messages = xp.tanh(x[start] @ w - x[end]) * b[end % 3]
    return xp.sum(messages * xp.log1p(xp.exp(x[start])))


def heat(xp: Any, u: Any, c: Any, mask: Any) -> Any:
    """Steps of a stencil with a mask, and the squares of gradients of the last."""
    for _ in range(3):
        moved = sum(xp.roll(u, s, a) for s in (1, -1) for a in (0, 1))
        u = xp.where(mask > 0.0, u + c[0] * (moved - 4.0 * u), u)
    return xp.mean((u[1:] - u[:-1]) ** 2) + xp.cumsum(u, axis=1)[:, -1] @ u[:, 0]


RNG = np.random.default_rng(5)
CASES: dict[str, tuple[Any, tuple[tuple[int, ...], ...]]] = {
    "attention": (attention, ((3, 20, 18), (3, 20, 18), (3, 20, 18))),
    "convolution": (convolution, ((3, 22, 18), (4, 3, 9), (4,))),
    "graph": (graph, ((20, 52), (52, 52), (3, 52))),
    "heat": (heat, ((40, 30), (1,), (40, 30))),
}


@pytest.mark.parametrize("name", CASES)
def test_value_and_grad_is_jaxs(name: str) -> None:
    f, shapes = CASES[name]
    arrays = [RNG.normal(size=s) for s in shapes]
    argnums = tuple(range(len(arrays)))
    own = sg.value_and_grad(lambda *x: f(np, *x), argnums, device="cpu", dtype="float64")
    value, grads = own(*arrays)
    expected, slopes = jax.jit(jax.value_and_grad(lambda *x: f(jnp, *x), argnums))(*arrays)
    assert np.isclose(value, expected, rtol=1e-12)
    for a, b in zip(grads, slopes, strict=True):
        assert np.allclose(a, b, rtol=1e-10, atol=1e-11 * np.max(np.abs(b)))


@pytest.mark.parametrize("seed", range(200, 206))
def test_second_derivatives_of_drawn_functions_are_jaxs(seed: int) -> None:
    f = drawn(seed, length=5)
    rng = np.random.default_rng(seed)
    arrays = [rng.normal(size=s) for s in f.shapes]

    def squares(grad: Any, xp: Any) -> Any:
        return lambda x: xp.sum(grad(lambda y: f(xp, y, *arrays[1:]))(x) ** 2)

    wide = np.broadcast_to(arrays[0], (1100, *arrays[0].shape))
    own = sg.jit(sg.vmap(sg.grad(squares(sg.grad, np))), device="cpu", dtype="float64")
    expected = np.asarray(jax.jit(jax.grad(squares(jax.grad, jnp)))(arrays[0]))
    assert np.allclose(own(wide)[7], expected, rtol=1e-8, atol=1e-9 * (1 + np.abs(expected).max()))
