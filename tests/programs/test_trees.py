"""Sums over a workgroup by halves, written out as programs have them, and their gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.targets import DeviceChoice

WIDTH = 64
Joins = Callable[[sg.Builder, Any], Any]


def counted(p: sg.Builder, tile: Any) -> Any:
    """A loop in which half is a variable."""
    half = p.var("half", WIDTH // 2, "u32")
    with p.for_(0, 6):
        with p.if_(p.local < half.value):
            p.store(tile, p.local, p.load(tile, p.local) + p.load(tile, p.local + half.value))
        p.barrier()
        p.assign(half, half.value // 2)
    return tile


def written_out(p: sg.Builder, tile: Any) -> Any:
    for half in (32, 16, 8, 4, 2, 1):
        with p.if_(p.local < half):
            p.add(tile, p.local, p.load(tile, p.local + half))
        p.barrier()
    return tile


def neighbours_first(p: sg.Builder, tile: Any) -> Any:
    with p.for_(0, 6) as k:
        step = sg.uint32(1) << k
        with p.if_(p.local % (2 * step) < 1):
            p.store(tile, p.local, p.load(tile, p.local) + p.load(tile, p.local + step))
        p.barrier()
    return tile


def one_invocation(p: sg.Builder, tile: Any) -> Any:
    sums = p.workgroup("total_of_group", 1)
    with p.if_(p.local < 1):
        total = p.var("total", 0.0)
        with p.for_(0, WIDTH) as k:
            p.assign(total, total.value + p.load(tile, k))
        p.store(sums, 0, total.value)
    p.barrier()
    return sums


JOINS: list[Joins] = [counted, written_out, neighbours_first, one_invocation]


def shares(joins: Joins, n: int) -> Callable[[sg.Builder], None]:
    """y = exp(x) / the sum of exp(x) over its workgroup, and that sum."""

    def body(p: sg.Builder) -> None:
        x, y, sums = p.input("x", n), p.output("y", n), p.output("sums", n // WIDTH)
        with p.dispatch(n, group=WIDTH) as i:
            tile = p.workgroup("tile", WIDTH)
            mine = sg.exp(p.load(x, i))
            p.store(tile, p.local, mine)
            p.barrier()
            total = joins(p, tile)
            p.store(y, i, mine / p.load(total, 0))
            with p.if_(p.local < 1):
                p.store(sums, p.group, p.load(total, 0))

    return body


def expected(x: np.ndarray, g: np.ndarray, g_sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    e, g = np.exp(x.reshape(-1, WIDTH)), g.reshape(-1, WIDTH)
    y = e / e.sum(axis=1, keepdims=True)
    dx = y * (g - (g * y).sum(axis=1, keepdims=True)) + g_sums[:, None] * e
    return y.reshape(-1), dx.reshape(-1)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("joins", JOINS, ids=lambda f: f.__name__)
def test_a_sum_by_halves_has_a_gradient(joins: Joins, device: DeviceChoice) -> None:
    n, rng = 4 * WIDTH, np.random.default_rng(0)
    x, g, g_sums = rng.normal(size=n), rng.normal(size=n), rng.normal(size=n // WIDTH)
    (y, sums), (dx,) = sg.program(shares(joins, n), device=device).vjp(x, g, g_sums)
    wanted, slope = expected(x, g, g_sums)
    assert np.allclose(y, wanted, rtol=1e-5)
    assert np.allclose(sums, np.exp(x).reshape(-1, WIDTH).sum(axis=1), rtol=1e-5)
    assert np.allclose(dx, slope, rtol=1e-4, atol=1e-5)


def test_groups_that_are_too_many_to_be_tried_are_like_the_others() -> None:
    n, rng = 2**17, np.random.default_rng(0)
    x, g, g_sums = rng.normal(size=n), rng.normal(size=n), rng.normal(size=n // WIDTH)
    program = sg.program(shares(counted, n), device="cpu", dtype="float64")
    (y, _), (dx,) = program.vjp(x, g, g_sums)
    wanted, slope = expected(x, g, g_sums)
    assert np.allclose(y, wanted, rtol=1e-13)
    assert np.allclose(dx, slope, rtol=1e-11, atol=1e-12)


def test_a_group_of_its_own_kind_is_not_taken_for_granted() -> None:
    """Only the groups in the middle, which are not tried, meet at one place."""
    n = 2**18

    def body(p: sg.Builder) -> None:
        x, y = p.input("x", n), p.output("y", n)
        with p.dispatch(n, group=WIDTH) as i:
            tile = p.workgroup("tile", WIDTH)
            p.store(tile, p.local, p.load(x, i))
            p.barrier()
            middle = p.group == n // WIDTH // 2
            p.store(y, i, p.load(tile, sg.where(middle, sg.uint32(3), p.local)) ** 2)

    x = np.random.default_rng(0).normal(size=n)
    program = sg.program(body, device="cpu", dtype="float64")
    _, (dx,) = program.vjp(x, np.ones(n))
    wanted = 2 * x
    first = n // 2
    wanted[first : first + WIDTH] = 0.0
    wanted[first + 3] = WIDTH * 2 * x[first + 3]
    assert np.allclose(dx, wanted, rtol=1e-12)


def test_a_reduction_whose_result_has_no_gradient_still_waits() -> None:
    def body(p: sg.Builder) -> None:
        x, y = p.input("x", WIDTH), p.output("y", WIDTH)
        with p.dispatch(WIDTH, group=WIDTH) as i:
            tile = p.workgroup("tile", WIDTH)
            p.store(tile, p.local, p.load(x, i))
            p.barrier()
            here = p.load(tile, p.local)
            most = p.group_max(1.0 * p.local)
            there = p.load(tile, WIDTH - 1 - p.local)
            p.store(y, i, sg.where(most > 9.0, here * there, 0.0))

    x, g = np.random.default_rng(0).normal(size=(2, WIDTH))
    program = sg.program(body, device="gpu")
    _, (dx,) = program.vjp(x, g)
    assert np.allclose(dx, (g + g[::-1]) * x[::-1], rtol=1e-5, atol=1e-6)
    assert np.allclose(sg.grad_program(program).interpret(x, g)[1], dx, rtol=1e-5, atol=1e-6)
