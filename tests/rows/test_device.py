"""Kernels over data take rows that are on a GPU, and leave them there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from launched import room_for

import symgrad as sg
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.device.gpus import list_gpus, open_gpu
from symgrad.wgsl.dispatch import sums as reduce_dispatch
from symgrad.wgsl.memory.transfer import Download

if not list_gpus():
    pytest.skip("no GPU and no software Vulkan driver here", allow_module_level=True)

DRAW = np.random.default_rng(0)
TABLE = DRAW.uniform(0.5, 1.5, (1003, 3)).astype(np.float32)
P = np.array([0.3, -0.7])


def line(p: Any, r: Any) -> Any:
    return (p[0] + p[1] * sg.exp(r[0]) * r[2] - r[1]) ** 2


def heights(p: Any, r: Any) -> Any:
    return (p.height[r.who] * sg.exp(-p.rate * r.t) - r.y) ** 2


NAMED: dict[str, Any] = {
    "who": DRAW.integers(0, 5, 1003).astype(np.int32), "t": TABLE[:, 0], "y": TABLE[:, 1],
}  # fmt: skip
SHAPES = {"height": 5, "rate": ()}
PARAMS = {"height": np.arange(5.0), "rate": 0.5}


def there(array: Any, dtype: Any = "float32") -> DeviceArray:
    return sg.device_array(array, "gpu", dtype)


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of the arrays that have come from a device."""
    sizes: list[int] = []
    get = Download.get

    def counted(self: Download, *parts: Any) -> None:
        sizes.extend(part.nbytes for part in parts)
        get(self, *parts)

    monkeypatch.setattr(Download, "get", counted)
    return sizes


@pytest.mark.parametrize("first", [0, 64])
@pytest.mark.parametrize("policy", ["propagate", "raise", "omit"])
def test_numbers_stay(first: int, policy: Any, fetched: list[int]) -> None:
    kernel = sg.fused_forward_backward(2, line, row=3, device="gpu", nan_policy=policy)
    rows = there(TABLE)[first:]
    loss, grads = kernel.run(P, TABLE[first:])
    for run in (kernel.bind(rows).run, lambda p: kernel.run(p, rows)):
        found, slopes = run(P)
        assert found == loss
        np.testing.assert_array_equal(slopes, grads)
    assert sum(fetched) <= 4 * 3 * 2, "numbers came to the host"


def test_several_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reduce_dispatch, "_checked_block", lambda *_: 128)
    kernel = sg.fused_forward_backward(2, line, row=3, device="gpu")
    want, found = kernel.bind(TABLE).run(P), kernel.bind(there(TABLE)).run(P)
    assert found[0] == want[0]
    np.testing.assert_array_equal(found[1], want[1])


def test_no_rows_and_one_column() -> None:
    kernel = sg.fused_forward_backward(1, lambda p, r: (p[0] - r[0]) ** 2, row=1, device="gpu")
    assert kernel.run([1.0], there(np.empty((0, 1))))[0] == 0.0
    assert kernel.run([1.0], there([1.0, 2.0, 4.0]))[0] == 10.0


def test_nan_is_found_there() -> None:
    table = TABLE.copy()
    table[7, 1] = np.nan
    kernels = {
        policy: sg.fused_forward_backward(2, line, row=3, device="gpu", nan_policy=policy)
        for policy in ("propagate", "raise", "omit")
    }
    assert np.isnan(kernels["propagate"].run(P, there(table))[0])
    with pytest.raises(sg.InputError, match="1 rows hold a NaN, the first at row 7, column 1"):
        kernels["raise"].run(P, there(table))
    assert kernels["omit"].run(P, there(table))[0] == kernels["omit"].run(P, table)[0]


def test_rows_that_a_device_has_no_memory_for() -> None:
    kernel = sg.fused_forward_backward(2, line, row=3, device="gpu")
    table = np.tile(TABLE, (50, 1))
    want = kernel.run(P, table)
    with room_for(open_gpu(kernel.device.index), table.nbytes // 2):
        bound = kernel.bind(table)
        given, table[:] = table.copy(), np.nan
        found = bound.run(P)
    np.testing.assert_allclose(found[0], want[0], rtol=1e-6)
    np.testing.assert_allclose(found[1], want[1], rtol=1e-5)
    assert kernel.bind(given).run(P)[0] == want[0]


def test_weights() -> None:
    kernel = sg.fused_forward_backward(2, line, row=3, weights=2, reduce="mean", device="gpu")
    assert kernel.run(P, there(TABLE))[0] == kernel.run(P, TABLE)[0]


@pytest.mark.parametrize("dtype", ["int32", "uint32", "float32"])
def test_indices_and_named_columns(dtype: str) -> None:
    columns = list(NAMED)
    kernel = sg.fused_forward_backward(SHAPES, heights, columns=columns, device="gpu")
    rows = {"who": there(NAMED["who"], dtype), "t": there(NAMED["t"]), "y": NAMED["y"]}
    want, slopes = kernel.bind(NAMED).run(PARAMS)
    found, near = kernel.bind(rows).run(PARAMS)
    np.testing.assert_allclose(found, want, rtol=1e-6)
    for name in slopes:
        np.testing.assert_allclose(near[name], slopes[name], rtol=1e-5, atol=1e-4)
    wrong = rows | {"who": there(NAMED["who"] + 1, "int32")}
    with pytest.raises(sg.InputError, match="'who' is 5 at row"):
        kernel.bind(wrong)
    with pytest.raises(sg.InputError, match="columns differ in length"):
        kernel.bind(rows | {"t": there(NAMED["t"][1:])})


def test_columns_of_whole_numbers_are_numbers() -> None:
    kernel = sg.fused_forward_backward(
        2, lambda p, r: (p[0] * r.k - r.y) ** 2, columns=["k", "y"], device="gpu"
    )
    rows: dict[str, Any] = {"k": np.arange(9, dtype=np.int32), "y": np.ones(9, np.float32)}
    moved = {"k": there(rows["k"], "int32"), "y": there(rows["y"])}
    assert kernel.run(P, moved)[0] == kernel.run(P, rows)[0]


@pytest.mark.parametrize("make", [sg.fused_forward, sg.fused_jacobian])
def test_results_at_each_row_stay(make: Any) -> None:
    model = lambda p, r: p[0] * sg.exp(p[1] * r[0]) + 2.0 * r[1]  # noqa: E731
    kernel = make(3, model, row=3, reduce=None, device="gpu")
    point, rows = np.array([0.3, -0.7, 1.0]), there(TABLE)
    want = kernel.run(point, TABLE)
    for found in (kernel.run(point, rows), kernel.bind(rows).run(point)):
        pairs = zip(found, want, strict=True) if isinstance(want, tuple) else [(found, want)]
        for a, b in pairs:
            assert isinstance(a, DeviceArray)
            np.testing.assert_array_equal(a.numpy(), b)


def test_arrays_that_do_not_fit() -> None:
    kernel = sg.fused_forward_backward(2, line, row=3, device="gpu")
    with pytest.raises(sg.InputError, match=r"rows has shape \(1003, 2\)"):
        kernel.bind(there(TABLE[:, :2]))
    on_cpu = sg.fused_forward_backward(2, line, row=3, device="cpu")
    assert on_cpu.run(P, there(TABLE))[0] == on_cpu.run(P, TABLE)[0]


def test_squares_whose_products_need_the_numbers_here() -> None:
    residual = lambda p, r: p.height[r.who] * r.t - r.y  # noqa: E731
    kernel = sg.fused_least_squares({"height": 5}, residual, columns=list(NAMED), device="gpu")
    rows = {"who": there(NAMED["who"], "int32"), "t": there(NAMED["t"]), "y": there(NAMED["y"])}
    want, found = kernel.run(PARAMS["height"], NAMED), kernel.run(PARAMS["height"], rows)
    np.testing.assert_allclose(found[0], want[0], rtol=1e-6)
    np.testing.assert_allclose(found[2].toarray(), want[2].toarray(), rtol=1e-6)
