"""Blocks of parameters in a loss of one row: arrays whose elements are made when they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.expr.tracers.tree import tree_of
from symgrad.expr.tracing.gather import trace_row

VALUES = np.arange(8.0).reshape(4, 2) + 1


@pytest.mark.parametrize(
    "read",
    [
        lambda p: p[0, 1],
        lambda p: p[-1][-1] * len(p),
        lambda p: p[1:, 0].sum(),
        lambda p: p[[0, 2], 1].sum(),
        lambda p: p[..., None].sum(),
        lambda p: p.sum(),
        lambda p: np.sum(p),
        lambda p: p.T.ravel()[1],
        lambda p: p.flat[3],
        lambda p: sum(line.sum() for line in p),
        lambda p: (p @ np.ones(2)).sum(),
        lambda p: (np.ones(4) @ p).sum(),
        lambda p: (2 - p).sum() + (p**2).sum() - (-p).max(),
        lambda p: sg.exp(p).sum(),
        lambda p: sg.where(p > 2, p, 0).sum(),
        lambda p: np.where(p > 2, p, 0).sum(),
        lambda p: np.concatenate([p, p[:1]]).sum(),
        lambda p: np.asarray(p)[2, 1],
        lambda p: np.einsum("ij->i", p)[0],
        lambda p: np.linalg.norm(p),
    ],
)
def test_a_block_is_an_array(read: Callable[[Any], Any]) -> None:
    def loss(p: Any, r: Any) -> Any:
        assert isinstance(p, np.ndarray) and p.shape == (4, 2) and p.ndim == 2 and p.size == 8
        return read(p) * r[0]

    kernel = sg.fused_forward_backward((4, 2), loss, row=1, device="cpu", dtype="float64")
    np.testing.assert_allclose(kernel.run(VALUES, [[1.0]])[0], read(VALUES), rtol=1e-14)


def test_elements_can_be_replaced() -> None:
    def loss(p: Any, r: Any) -> Any:
        p[0] = 5 * p[1]
        p += 1
        return p[0, 0] * r[0]

    kernel = sg.fused_forward_backward((4, 2), loss, row=1, device="cpu")
    value, slopes = kernel.run(VALUES, [[2.0]])
    assert value == 2 * (5 * 3 + 1) and slopes[1, 0] == 10.0


def test_what_nothing_reads_has_no_node() -> None:
    n = {"U": (10**9, 3), "V": (10**9, 3)}
    made = trace_row(
        lambda p, r: p.U[r[0]] @ p.V[r[1]] * p.V[7, 1], tree_of({**n, "V": (50, 3)}), 2
    )
    assert list(made.parameters) == [3 * 10**9 + 22]
    assert made.graph.names == ["r0", "r1", "U_r0_0", "U_r0_1", "U_r0_2", "V_r1_0", "V_r1_1",
                                "V_r1_2", "V22"]  # fmt: skip
    whole = trace_row(lambda p, r: p.U[r[0]] @ p.V[r[0]], tree_of(n), 1)
    assert not whole.parameters and len(whole.graph.names) == 7
