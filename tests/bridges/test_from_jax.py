"""Functions of JAX as kernels: values and gradients beside JAX's own, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bridges.losses import POINTS

import symgrad as sg

jax: Any = pytest.importorskip("jax")
jnp, lax = jax.numpy, jax.lax

MATRIX = np.arange(9.0).reshape(3, 3) / 10


pytestmark = pytest.mark.usefixtures("jax_in_float64")


def oscillator(v: Any) -> Any:
    """Steps of Heun's method, of which the carry and what is stacked both count."""

    def slope(y: Any) -> Any:
        return jnp.stack([y[1], -(v[0] ** 2) * y[0] - v[1] ** 2 * y[1]])

    def step(y: Any, drive: Any) -> Any:
        guess = y + 0.05 * slope(y)
        return y + 0.025 * (slope(y) + slope(guess)) + drive * v[2], y[0]

    last, passed = lax.scan(step, jnp.array([1.0, 0.5]), jnp.linspace(0, 0.01, 50))
    return last.sum() + (passed**2).mean()


CASES: dict[str, Any] = {
    "indices": lambda v: v[0] * v[-1] + jnp.sum(v[1:]) + v[jnp.array([2, 0])] @ v[::2],
    "where": lambda v: jnp.where(v > 0, jnp.log(jnp.abs(v)), v).mean(),
    "softmax": lambda v: jax.nn.softmax(v) @ MATRIX @ v + jax.scipy.special.logsumexp(v),
    "activations": lambda v: jax.nn.gelu(v[0]) + jax.nn.softplus(v[1]) + jax.nn.silu(v[2]),
    "reductions": lambda v: jnp.linalg.norm(v) + jnp.var(v) + jnp.max(v) + jnp.prod(v),
    "cumulative": lambda v: jnp.cumsum(v)[-1] * lax.cumsum(v, reverse=True)[1] + jnp.cumprod(v)[2],
    "products": lambda v: jnp.einsum("ij,j,k->ik", MATRIX, v, v).sum() + jnp.outer(v, v).T[0].sum(),
    "batched": lambda v: (jnp.stack([MATRIX, MATRIX * v]) @ jnp.stack([MATRIX, MATRIX.T])).sum(),
    "moved": lambda v: jnp.concatenate([v, v[::-1] ** 2]).reshape(2, 3).T[1] @ jnp.pad(v, 1)[:2],
    "set": lambda v: (v.at[1].set(v[0] * 2.0).at[2].add(v[1]) ** 2).sum(),
    "special": lambda v: jax.scipy.stats.norm.logpdf(v[0], v[1], jnp.exp(v[2])) + jnp.hypot(*v[:2]),
    "gammas": lambda v: jax.scipy.special.gammaln(jnp.exp(v[0])) + jax.scipy.special.erf(v[1]),
    "clip": lambda v: jnp.clip(v, -0.5, 0.5).sum() + jnp.round(v[0]) * v[1] + jnp.sign(v[2]),
    "vmap": lambda v: jax.vmap(lambda a: jnp.sin(a) * v[0])(v).sum(),
    "grad": lambda v: (jax.grad(lambda u: jnp.sin(u[0]) * u[1] * u[2])(v) ** 2).sum(),
    "cond": lambda v: lax.cond(v[0] > 0, lambda a: jnp.log(a), lambda a: a**2, jnp.abs(v[0])),
    "switch": lambda v: lax.switch(
        jnp.int32(jnp.floor(2 * v[0])), [lambda a: a, lambda a: a * a, jnp.sin], v[1]
    ),
    "fori": lambda v: lax.fori_loop(0, 10, lambda i, c: c * v[0] + i, 1.0),
    "looked up": lambda v: lax.fori_loop(0, 3, lambda i, c: c * v[i] + i * v[2 - i], 1.0),
    "written": lambda v: lax.fori_loop(
        0, 3, lambda i, a: a.at[i].set(a[(i + 1) % 3] * v[i]), v
    ).sum(),
    "scan": oscillator,
    "scan of nothing": lambda v: lax.scan(lambda c, _: (c * v[0], c), v[1], None, length=4)[1],
    "scan of scans": lambda v: lax.scan(
        lambda c, x: lax.scan(lambda d, y: (d * x + v[0] * y, d), c, v), v[1], v[:2]
    )[1],
    "bits": lambda v: v[0] * ((whole(v[1]) & whole(v[2])) + (whole(v[0]) | 5) - ~whole(v[1])),
    "xor": lambda v: v[0] * ((whole(v[1]) ^ whole(v[2])) + (whole(v[1]) << 2) + (whole(v[2]) >> 1)),
    "logical shift": lambda v: v[0] * lax.shift_right_logical(whole(v[1]), jnp.int32(28)),
    "quotients": lambda v: v[0] * (whole(v[1]) // 7 + whole(v[2]) // -3 + divmod(whole(v), 4)[1]),
    "cut off": lambda v: v * lax.div(whole(v), jnp.int32([3, -3, 7])),
    "counter": lambda v: lax.fori_loop(0, 6, lambda i, c: c * 0.9 + v[i // 2] * (i & 3), 0.0),
    "interpolation": lambda v: jnp.interp(v, jnp.linspace(-1, 2, 5), jnp.arange(5.0) ** 2) * v,
    "any": lambda v: jnp.where((v > 0.5).any(), v, 1.0) * jnp.where(jnp.all(v < 1.0), v[0], v[1]),
    "largest so far": lambda v: lax.cummax(v) * lax.cummin(v, reverse=True) + lax.cumlogsumexp(v),
    "away": lambda v: v * lax.round(v * 3.0, lax.RoundingMethod.AWAY_FROM_ZERO),
    "repeated": lambda v: jnp.tile(v, 2) * jnp.repeat(v, 2),
    "cases": lambda v: lax.select_n(jnp.clip(whole(v[0]), 0, 2), v[0], v[1], v[2]),
    "filled": lambda v: jnp.take(v, jnp.array([0, 9]), mode="fill", fill_value=2.0) * v[0],
    "filled, looked up": lambda v: (
        jnp.take(v, jnp.abs(whole(v[0])), mode="fill", fill_value=2.0) * v[1]
        + v.at[jnp.abs(whole(v[1]))].get(mode="clip")
    ),
    "dropped": lambda v: v.at[9].set(v[0]).at[jnp.array([1, 9])].add(v[1]) * v,
    "dropped, looked up": lambda v: v.at[whole(v[0])].set(2.0).at[whole(v[1])].add(v[2]) * v,
    "moved into place": lambda v: v.at[jnp.abs(whole(v[0]))].set(v[1] * 2.0, mode="clip") * v,
    "other updates": lambda v: v.at[1].multiply(v[0]).at[2].max(v[1]).at[whole(v[0])].min(v[2]) * v,
    "random constants": lambda v: v * jax.random.normal(jax.random.key(3), (3,)),
}


def whole(x: Any) -> Any:
    return jnp.int32(jnp.floor(3.0 * x))


def check(case: Any) -> None:
    """Values and gradients of the sum of what a function gives are JAX's."""
    f = lambda v: jnp.sum(case(v))  # noqa: E731
    kernel = sg.fused_forward_backward(3, sg.from_jax(f), device="cpu", dtype="float64")
    loss, gradient = kernel.run(POINTS)
    compiled = jax.jit(jax.value_and_grad(f))  # of one point: XLA has mapped cumulative sums wrong
    for at, point in enumerate(POINTS):
        wanted, slopes = compiled(point)
        assert np.allclose(loss[at], wanted, rtol=1e-12)
        assert np.allclose(gradient[at], slopes, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_those_of_jax(name: str) -> None:
    check(CASES[name])


RECENT: dict[str, Any] = {
    "log2": lambda v: lax.log2(jnp.abs(v)),
    "one_minus_square": lambda v: v * lax.one_minus_square(v),
    "polynomial": lambda v: lax.polynomial(v, [1.0, v[0], 3.0, 4.0]),
}
"""Primitives that not every JAX has."""


@pytest.mark.parametrize("name", RECENT)
def test_primitives_of_recent_releases(name: str) -> None:
    if not hasattr(lax, name):
        pytest.skip(f"this JAX has no lax.{name}")
    check(RECENT[name])


def test_a_while_loop_has_the_gradient_that_jax_lacks() -> None:
    def grown(v: Any) -> Any:
        return lax.while_loop(
            lambda c: c[0] < 10.0, lambda c: (c[0] * v[0], c[1] + v[1]), (v[0], 0.0)
        )[1]

    kernel = sg.fused_forward_backward(2, sg.from_jax(grown, max_steps=50), device="cpu")
    loss, gradient = kernel.run([2.0, 3.0])  # 2, 4, 8, 16: three iterations
    assert (loss, gradient.tolist()) == (9.0, [0.0, 3.0])


def test_loops_stay_loops() -> None:
    long = lambda v: lax.fori_loop(0, 1000, lambda i, c: c * v[0] + i, 1.0)  # noqa: E731
    kernel = sg.fused_forward_backward(1, sg.from_jax(long), device="cpu")
    assert len(kernel.wgsl.splitlines()) < 80


def test_nests_are_as_jax_has_them() -> None:
    f = sg.from_jax(lambda p, x: {"y": p["a"] * x, "z": (jnp.sum(p["b"]),)})
    kernel = sg.fused_forward({"a": (), "b": (2,)}, lambda p: f(p, 3.0), device="cpu")
    assert kernel.run({"a": 2.0, "b": [1.0, 4.0]}) == {"y": 6.0, "z": (5.0,)}


REFUSED: dict[str, Any] = {
    "sort": lambda v: jnp.sort(v)[0],
    "argmax": lambda v: jnp.argmax(v) * v[0],
    "bfloat16": lambda v: v.astype(jnp.bfloat16).astype(float).sum(),
    "uint8": lambda v: v[0] * jnp.int32(300 * v[1]).astype(jnp.uint8),
    "fft": lambda v: jnp.fft.fft(v).real.sum(),
    "custom_vjp": jax.custom_vjp(lambda v: v.sum()),
}
REFUSED["custom_vjp"].defvjp(lambda v: (v.sum(), None), lambda _, g: (jnp.ones(3) * g,))


@pytest.mark.parametrize("name", REFUSED)
def test_what_symgrad_lacks_is_named(name: str) -> None:
    with pytest.raises(sg.UnsupportedError, match=f"from_jax: .*{name}"):
        sg.fused_forward_backward(3, sg.from_jax(REFUSED[name]), device="cpu")
