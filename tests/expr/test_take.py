"""``np.take`` and its kin at indices that are expressions: NumPy's, and its gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import symgrad as sg

TABLE = np.random.default_rng(2).normal(size=(3, 4))

CASES: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, ...]]] = {
    "flat": (lambda a, k: np.take(a, k), (2,)),
    "one": (lambda a, k: np.take(a, k), ()),
    "rows": (lambda a, k: np.take(a, k, axis=0), ()),
    "columns": (lambda a, k: np.take(a, k, axis=1), (2, 2)),
    "last axis": (lambda a, k: np.take(a, k, -1), (3,)),
    "wrapped": (lambda a, k: np.take(a, k + 20, mode="wrap"), (2,)),
    "clipped": (lambda a, k: np.take(a, 10 * k, axis=0, mode="clip"), (2,)),
    "along": (lambda a, k: np.take_along_axis(a, k, 1), (3, 2)),
    "along the first": (lambda a, k: np.take_along_axis(a, k, 0), (2, 4)),
    "along all": (lambda a, k: np.take_along_axis(a, k, None), (5,)),
    "index": (lambda a, k: a[k], (2,)),
    "method": (lambda a, k: a.take(k, 1), (2,)),
}


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("name", CASES)
def test_what_is_taken_is_numpys(name: str, device: Any) -> None:
    take, shape = CASES[name]
    indices = np.random.default_rng(5).integers(0, 3, size=shape)
    kernel = sg.fused_forward(
        {"a": (3, 4), "k": shape}, lambda v: take(v["a"], sg.int32(v["k"])), device=device
    )
    found = kernel.run({"a": TABLE, "k": indices})
    np.testing.assert_array_equal(found, take(TABLE, indices).astype("float32"))


def test_the_gradient_goes_to_what_was_taken() -> None:
    def loss(v: Any) -> Any:
        return np.sum(np.take(v["a"], sg.int32(v["k"]), axis=0) ** 2)

    kernel = sg.fused_forward_backward({"a": (3, 4), "k": (2,)}, loss, device="cpu")
    _, grads = kernel.run({"a": TABLE, "k": [2.0, 2.0]})
    wanted = np.zeros((3, 4))
    wanted[2] = 4 * TABLE[2]
    np.testing.assert_allclose(grads["a"], wanted, rtol=1e-6)
    assert not grads["k"].any()


def test_beyond_the_end_is_the_nearest() -> None:
    kernel = sg.fused_forward(3, lambda v: np.take(v[:2], sg.int32(v[2])), device="cpu")
    assert kernel.run([[1.0, 2.0, 9.0], [1.0, 2.0, -9.0]]).ravel().tolist() == [2.0, 1.0]
