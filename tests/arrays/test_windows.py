"""Products whose operands go through several axes of arrays, as windows do, read these in place."""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest
from tint import check_with_tint, needs_tint

import symgrad as sg

RNG = np.random.default_rng(0)


def convolved(x: Any, w: Any, pad: int) -> Any:
    """The convolution of images with channels, by NumPy's windows."""
    around = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    windows = np.lib.stride_tricks.sliding_window_view(around, w.shape[2:], axis=(2, 3))
    return np.einsum("bchwij,ocij->bohw", windows, w)


def networked(pad: int) -> Callable[..., Any]:
    def loss(x: Any, w: Any, v: Any) -> Any:
        return np.sum(np.tanh(convolved(np.tanh(convolved(x, w, pad)), v, pad)) ** 2)

    return loss


def along_a_line(x: Any, w: Any) -> Any:
    """A causal convolution of sequences."""
    k = w.shape[0]
    around = np.pad(x, ((0, 0), (k - 1, 0), (0, 0)))
    terms = np.stack([around[:, n : n + x.shape[1]] for n in range(k)])
    return np.sum(np.tanh(np.einsum("kbtc,kco->bto", terms, w)))


def strided(x: Any, w: Any) -> Any:
    around = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(around, (3, 3), axis=(2, 3))
    return np.sum(np.tanh(np.einsum("bchwij,ocij->bohw", windows[:, :, ::2, ::2], w)) ** 2)


def flipped(x: Any, w: Any) -> Any:
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2], axis=2)
    return np.sum(np.tanh(np.einsum("bclk,ock->bol", windows[..., ::-1], w)) ** 2)


def heads(x: Any, w: Any) -> Any:
    """Attention whose queries, keys and values stand beside each other."""
    b, t, d = x.shape
    q, k, v = ((x @ w).reshape(b, t, 3, 2, d // 2)[:, :, n].swapaxes(1, 2) for n in range(3))
    s = q @ k.swapaxes(-1, -2) * 0.1
    e = np.exp(s - s.max(-1, keepdims=True))
    return np.sum(((e / e.sum(-1, keepdims=True)) @ v) ** 2)


def drawn(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [RNG.normal(size=shape, scale=shape[-1] ** -0.5) for shape in shapes]


CASES: dict[str, tuple[Callable[..., Any], list[np.ndarray]]] = {
    "padded": (networked(1), drawn((2, 16, 8, 16), (32, 16, 3, 3), (16, 32, 3, 3))),
    "valid": (networked(0), drawn((3, 32, 10, 9), (16, 32, 2, 3), (48, 16, 3, 2))),
    "few channels": (networked(2), drawn((4, 3, 16, 16), (16, 3, 5, 5), (20, 16, 5, 5))),
    "line": (along_a_line, drawn((2, 40, 32), (3, 32, 24))),
    "strided": (strided, drawn((2, 16, 16, 16), (32, 16, 3, 3))),
    "flipped": (flipped, drawn((3, 32, 70), (48, 32, 5))),
    "heads": (heads, drawn((2, 48, 64), (64, 192))),
}


@pytest.mark.parametrize("case", CASES)
def test_windows_have_the_derivatives_of_what_they_are_of(case: str) -> None:
    f, arrays = CASES[case]
    argnums = tuple(range(len(arrays)))
    value, slopes = sg.value_and_grad(f, argnums, device="gpu")(*arrays)
    wanted, meant = sg.value_and_grad(f, argnums, device="cpu", dtype="float64")(*arrays)
    np.testing.assert_allclose(value, wanted, rtol=1e-5)
    for slope, m in zip(slopes, meant, strict=True):
        np.testing.assert_allclose(slope, m, rtol=1e-4, atol=1e-5 * np.abs(m).max())


def test_no_window_is_stored() -> None:
    f, arrays = CASES["padded"]
    run = sg.jit(sg.value_and_grad(f, (0, 1, 2)), device="gpu")
    run(*arrays)
    shapes = re.findall(r"[sy]\d+\[([\d, ]+)\]", str(run.stages))
    images = max(prod(map(int, shape.split(","))) for shape in shapes)
    assert images == 2 * 32 * 12 * 20  # what is padded for the derivative


def test_heads_are_read_where_they_stand() -> None:
    f, arrays = CASES["heads"]
    run = sg.jit(f, device="gpu")
    run(*arrays)
    assert str(run.stages).count("48 x 48 x 32, 4 times") == 1
    assert "elements" not in str(run.stages).split("48 x 48 x 32")[0]


@needs_tint
@pytest.mark.parametrize("case", CASES)
def test_tint_takes_the_kernels(case: str) -> None:
    f, arrays = CASES[case]
    run = sg.jit(sg.value_and_grad(f, tuple(range(len(arrays)))), device="gpu")
    run(*arrays)
    modules = [f"struct Params{m}" for m in run.wgsl.split("struct Params")[1:]]
    assert modules and check_with_tint(modules) == [None] * len(modules)


@pytest.mark.parametrize("key", [
    np.s_[:, :3, :3], np.s_[:, :3], np.s_[:, :, 1:3], np.s_[:, ::-1, ::2], np.s_[:, 1:3, -2:, 1:],
])  # fmt: skip
@pytest.mark.parametrize("shape", [(2, -1), (-1,), (-1, 2), (2, 2, -1)])
def test_slices_in_other_shapes_have_their_slopes(key: Any, shape: tuple[int, ...]) -> None:
    """What the slice leaves out has none: it once had that of elements behind it."""
    a, factors = RNG.normal(size=(2, 4, 4, 2)), RNG.normal(size=(2, 4))
    product = a @ factors
    weights = RNG.normal(size=product[key].reshape(shape).shape)
    loss = lambda a: np.sum(weights * (a @ factors)[key].reshape(shape) ** 2)  # noqa: E731
    wanted = np.zeros_like(product)
    wanted[key] = 2 * weights.reshape(product[key].shape) * product[key]
    slope = sg.jit(sg.grad(loss), device="cpu", dtype="float64")(a)
    np.testing.assert_allclose(slope, wanted @ factors.T, rtol=1e-12)
