"""Losses over data: tables of every kind, gradients of every parameter, on the CPU and the GPU."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from paces import pace

import symgrad as sg
from symgrad.errors import InputError, InputTypeError, TraceError
from symgrad.pipeline import DTypeName
from symgrad.values.tables import NanPolicy, Reduce

DEVICES = ["cpu", *(d.index for d in sg.devices() if d.is_gpu)]


def bell(p: Any, r: Any) -> Any:
    return (p[0] * np.exp(-(((r[0] - p[1]) / p[2]) ** 2)) - r[1]) ** 2


def table(count: int, seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed)
    return np.stack([draw.uniform(-2, 2, count), draw.uniform(0, 1, count)], axis=1)


P = np.array([0.8, 0.1, 0.9])


def truth(p: np.ndarray, rows: np.ndarray) -> tuple[float, np.ndarray]:
    u = (rows[:, 0] - p[1]) / p[2]
    e = np.exp(-(u**2))
    d = p[0] * e - rows[:, 1]
    slopes = [2 * d * e, 2 * d * p[0] * e * 2 * u / p[2], 2 * d * p[0] * e * 2 * u**2 / p[2]]
    return float(np.sum(d**2)), np.array([np.sum(s) for s in slopes])


def agree(found: tuple[float, Any], want: tuple[float, np.ndarray], rtol: float = 3e-6) -> None:
    assert isinstance(found[0], float)
    np.testing.assert_allclose(found[0], want[0], rtol=rtol)
    np.testing.assert_allclose(found[1], want[1], rtol=rtol, atol=rtol * np.abs(want[1]).max())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("count", [0, 1, 100, 70_001])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_loss_and_gradient_are_those_of_all_rows(device: Any, count: int, reduce: Reduce) -> None:
    rows = table(count)
    kernel = sg.fused_forward_backward(3, bell, row=2, reduce=reduce, device=device)
    if reduce == "mean" and not count:
        with pytest.raises(InputError, match="no rows"):
            kernel.run(P, rows)
        return
    loss, slopes = truth(P, rows.astype(np.float32).astype(np.float64))
    scale = 1 / count if reduce == "mean" else 1.0
    agree(kernel.run(P, rows), (loss * scale, slopes * scale))
    bound = kernel.bind(rows)
    assert len(bound) == count
    again = bound.run(P)
    assert again[0] == kernel.run(P, rows)[0]
    agree(again, (loss * scale, slopes * scale))


def test_float64_is_double_precision() -> None:
    rows = table(1000)
    kernel = sg.fused_forward_backward(3, bell, row=2, device="cpu", dtype="float64")
    found = kernel.run(P, rows)
    assert found[1].dtype == np.float64
    agree(found, truth(P, rows), 1e-13)


class Frame:
    """As much of a data frame as is needed: columns, a length, and columns by name."""

    def __init__(self, columns: dict[str, np.ndarray]) -> None:
        self.columns, self._values = list(columns), columns

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return Frame({k: v[key] for k, v in self._values.items()})
        return self._values[key]

    def __len__(self) -> int:
        return len(next(iter(self._values.values())))


def structured(rows: np.ndarray) -> np.ndarray:
    made = np.empty(len(rows), [("y", "f8"), ("other", "i4"), ("x", "f4")])
    made["x"], made["y"] = rows[:, 0], rows[:, 1]
    return made


@pytest.mark.parametrize(
    "make",
    [
        lambda t: {"y": t[:, 1], "x": t[:, 0]},
        lambda t: {"y": t[:, 1].tolist(), "x": t[:, 0], "unused": None},
        structured,
        lambda t: Frame({"x": t[:, 0], "y": t[:, 1]}),
        lambda t: t,
        lambda t: t.tolist(),
    ],
)
def test_tables_of_every_kind(make: Callable[[np.ndarray], Any]) -> None:
    def named(p: Any, r: Any) -> Any:
        assert len(r) == 2 and next(iter(r)) is not None
        return bell(p, [r.x, r["y"]])

    rows = table(50)
    kernel = sg.fused_forward_backward(3, named, columns=["x", "y"], device="cpu")
    agree(kernel.run(P, make(rows)), truth(P, rows))


def test_tables_are_streamed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table(1000)
    kernel = sg.fused_forward_backward(3, bell, row=2, reduce="mean", device="cpu")
    whole = kernel.run(P, rows)
    blocks = (rows[k : k + 77] for k in range(0, 1000, 77))
    agree(kernel.run(P, blocks), whole, 1e-6)
    monkeypatch.setattr("symgrad.rows.kernel.ROWS_AT_A_TIME", 100)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        np.save(path, rows.astype(np.float32))
        mapped = np.load(path, mmap_mode="r")
        agree(kernel.run(P, mapped), whole, 1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_bound_is_no_longer_the_users(device: Any, tmp_path: Path) -> None:
    kernel = sg.fused_forward_backward(3, bell, row=2, nan_policy="raise", device=device)
    rows = table(100).astype(np.float32)
    path = tmp_path / "rows.npy"
    np.save(path, rows)
    mapped = np.load(path, mmap_mode="r+")
    want = kernel.run(P, rows)
    for given in (rows, mapped):
        bound = kernel.bind(given)
        given[:] = np.nan
        agree(bound.run(P), want, 1e-6)
        assert len(bound) == 100


def test_progress_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    kernel = sg.fused_forward_backward(3, bell, row=2, device="cpu")
    with pace():
        kernel.run(P, iter([table(3), table(4)]), progress=True)
    assert "7 rows" in capsys.readouterr().err


def test_a_column_of_weights() -> None:
    rows = np.column_stack([table(200), np.random.default_rng(1).uniform(0, 3, 200)])
    kernel = sg.fused_forward_backward(
        3, bell, columns=["x", "y", "w"], weights="w", reduce="mean", device="cpu"
    )
    single = sg.fused_forward_backward(3, bell, row=2, device="cpu")
    each = [single.run(P, row[None, :2]) for row in rows]
    w = rows[:, 2]
    want = [
        sum(a * k for a, k in zip(part, w, strict=True)) / w.sum()
        for part in zip(*each, strict=True)
    ]
    agree(kernel.run(P, rows), (want[0], want[1]), 1e-5)


@pytest.mark.parametrize("policy", ["propagate", "raise", "omit"])
def test_rows_with_nan(policy: NanPolicy) -> None:
    rows = table(30)
    rows[[4, 17], 1] = np.nan
    kernel = sg.fused_forward_backward(3, bell, row=2, nan_policy=policy, device="cpu")
    if policy == "raise":
        with pytest.raises(InputError, match="2 rows hold a NaN, the first at row 4, column 1"):
            kernel.run(P, rows)
        return
    loss, slopes = kernel.run(P, rows)
    assert np.isnan(loss) == (policy == "propagate")
    if policy == "omit":
        agree((loss, slopes), truth(P, np.delete(rows, [4, 17], axis=0)))


@pytest.mark.parametrize("missing", [np.nan, None])
@pytest.mark.parametrize("policy", ["propagate", "raise", "omit"])
def test_rows_with_a_nan_for_an_index(policy: NanPolicy, missing: Any) -> None:
    rows = {"k": [0, missing, 2], "x": [1.0, 5.0, 3.0]}
    kernel = sg.fused_forward_backward(
        3, lambda p, r: p[r.k] * r.x, columns=["k", "x"], nan_policy=policy, device="cpu"
    )
    if policy == "omit":
        loss, slopes = kernel.run([2.0, 3.0, 4.0], rows)
        assert loss == 14.0 and slopes.tolist() == [1.0, 0.0, 3.0]
        assert len(kernel.bind(rows)) == 2
        return
    message = "'k' is an index, and NaN at row 1" if policy == "propagate" else "row 1, 'k'"
    with pytest.raises(InputError, match=message):
        kernel.run([2.0, 3.0, 4.0], rows)


def test_masked_entries_are_refused_as_by_other_kernels() -> None:
    masked = np.ma.masked_less(table(5), 0.0)
    rows = sg.fused_forward_backward(3, bell, row=2, device="cpu")
    named = sg.fused_forward_backward(
        3, lambda p, r: bell(p, [r.x, r.y]), columns=["x", "y"], device="cpu"
    )
    points = sg.fused_forward_backward(2, lambda v: v[0], device="cpu")
    for refused in (
        lambda: rows.run(P, masked), lambda: named.run(P, {"x": masked[:, 0], "y": masked[:, 1]}),
        lambda: rows.run(np.ma.masked_less(P, 0.5), masked.data), lambda: points.run(masked),
    ):  # fmt: skip
        with pytest.raises(InputTypeError, match=r"masked entries: fill them in"):
            refused()
    assert rows.run(P, np.ma.masked_array(masked.data))[0] == rows.run(P, masked.data)[0]


# indices ------------------------------------------------------------------------------------------


def mixed(p: Any, r: Any) -> Any:
    """A slope for all rows, an intercept and a scale for each group, and a column of a table."""
    a, b = p.groups[r.g]
    return (p.slope[0] * r.x + a * p.other[r.h, 1] + sg.exp(b) - r.y) ** 2


SHAPES = {"slope": 1, "groups": (40, 2), "other": (3, 20)}


def mixed_table(count: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(count)
    return {
        "g": draw.integers(-40, 40, count), "h": draw.integers(3, size=count).astype(float),
        "x": draw.normal(size=count), "y": draw.normal(size=count),
    }  # fmt: skip


def mixed_truth(p: dict[str, np.ndarray], t: dict[str, np.ndarray]) -> tuple[float, Any]:
    g, h = t["g"], t["h"].astype(int)
    a, b, c = p["groups"][g, 0], p["groups"][g, 1], p["other"][h, 1]
    d = p["slope"][0] * t["x"] + a * c + np.exp(b) - t["y"]
    slopes = {k: np.zeros_like(v) for k, v in p.items()}
    slopes["slope"][0] = np.sum(2 * d * t["x"])
    np.add.at(slopes["groups"][:, 0], g, 2 * d * c)
    np.add.at(slopes["groups"][:, 1], g, 2 * d * np.exp(b))
    np.add.at(slopes["other"][:, 1], h, 2 * d * a)
    return float(np.sum(d**2)), slopes


@pytest.mark.parametrize("count", [1, 15, 16, 1000, 100_003])
@pytest.mark.parametrize(
    ("device", "dtype"), [("cpu", "float64"), *((device, "float32") for device in DEVICES)]
)
def test_indices_take_and_gradients_are_added_up(count: int, device: Any, dtype: DTypeName) -> None:
    draw = np.random.default_rng(1)
    p = {k: draw.normal(size=s if isinstance(s, tuple) else (s,)) for k, s in SHAPES.items()}
    t = mixed_table(count)
    kernel = sg.fused_forward_backward(SHAPES, mixed, columns=list(t), dtype=dtype, device=device)
    want = mixed_truth(p, t)
    rtol = 2e-5 if dtype == "float32" else 1e-12
    for loss, slopes in (kernel.run(p, t), kernel.bind(t).run(p)):
        np.testing.assert_allclose(loss, want[0], rtol=rtol)
        for name, slope in slopes.items():
            assert slope.dtype == np.dtype(dtype)
            size = np.abs(want[1][name]).max()
            np.testing.assert_allclose(slope, want[1][name], rtol=rtol, atol=rtol * size)
    again = kernel.run(p, t)
    assert again[0] == loss and all(np.array_equal(again[1][k], v) for k, v in slopes.items())


@pytest.mark.parametrize("device", DEVICES)
def test_indices_in_rows_of_nothing_else(device: Any) -> None:
    kernel = sg.fused_forward_backward((3, 1), lambda p, r: p[r[0], 0] * 2, row=1, device=device)
    p, rows = [[1.0], [10.0], [100.0]], [[2], [0], [2]]
    for loss, slopes in (kernel.run(p, rows), kernel.bind(rows).run(p)):
        assert loss == 402.0 and slopes.tolist() == [[2.0], [0.0], [4.0]]
    for loss, slopes in (kernel.run(p, rows[:0]), kernel.bind(np.zeros((0, 1))).run(p)):
        assert loss == 0.0 and not slopes.any()


@pytest.mark.parametrize("device", DEVICES)
def test_two_columns_take_from_one_block(device: Any) -> None:
    kernel = sg.fused_forward_backward(
        (4, 2), lambda p, r: p[r.a, 0] * p[r.b, 1] * r.w, columns=["a", "b", "w"], device=device,
        weights="w", reduce="mean",
    )  # fmt: skip
    p = np.arange(8.0).reshape(4, 2)
    rows = {"a": [0, 1, 3, 1], "b": [1, 1, 0, 2], "w": [1.0, 2.0, 0.5, 4.0]}
    loss, slopes = kernel.run(p, rows)
    want = np.zeros((4, 2))
    for a, b, w in zip(*rows.values(), strict=True):
        want[int(a), 0] += p[int(b), 1] * w * w / 7.5
        want[int(b), 1] += p[int(a), 0] * w * w / 7.5
    np.testing.assert_allclose(slopes, want, rtol=1e-6)
    each = [p[int(a), 0] * p[int(b), 1] * w * w for a, b, w in zip(*rows.values(), strict=True)]
    np.testing.assert_allclose(loss, sum(each) / 7.5, rtol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_one_block_is_indexed_as_a_matrix(device: Any) -> None:
    kernel = sg.fused_forward_backward(
        (5, 3), lambda p, r: p[r[0], :2] @ p[r[0], 1:] * r[1], row=2, device=device
    )
    p, rows = np.arange(15.0).reshape(5, 3), np.array([[4, 1.0], [0, 2.0], [4, 0.5]])
    loss, slopes = kernel.run(p, rows)
    each = [p[int(k), :2] @ p[int(k), 1:] * w for k, w in rows]
    assert loss == sum(each)
    want = np.zeros((5, 3))
    for k, w in rows:
        a, b, c = p[int(k)]
        want[int(k)] += np.array([b, a + c, b]) * w
    np.testing.assert_allclose(slopes, want)


def test_a_wrong_index_is_refused() -> None:
    kernel = sg.fused_forward_backward((5, 1), lambda p, r: p[r[0], 0] * r[1], row=2, device="cpu")
    for wrong in (5, -6):
        with pytest.raises(InputError, match=f"column 0 is {wrong} at row 1: p has 5 entries"):
            kernel.run(np.zeros((5, 1)), [[0, 0.0], [wrong, 0.0]])
    with pytest.raises(InputError, match="column 0 is an index: whole numbers"):
        kernel.run(np.zeros((5, 1)), [[0.5, 0.0]])


def test_an_index_is_not_cut_to_32_bits() -> None:
    kernel = sg.fused_forward_backward(
        (5, 1), lambda p, r: p[r.k, 0] * r.w, columns=["k", "w"], device="cpu"
    )
    with pytest.raises(InputError, match="'k' is 4294967297 at row 0: p has 5 entries"):
        kernel.run(np.zeros((5, 1)), {"k": np.array([2**32 + 1]), "w": [1.0]})
    with pytest.raises(InputError, match="'k' is an index, and NaN at row 0"):
        kernel.run(np.zeros((5, 1)), {"k": [np.nan], "w": [1.0]})


def test_negative_indices_need_one_number_of_lines() -> None:
    kernel = sg.fused_forward_backward(
        {"a": 3, "b": 5}, lambda p, r: p.a[r[0]] * p.b[r[0]], row=1, device="cpu"
    )
    p = {"a": np.arange(3.0), "b": np.arange(5.0)}
    assert kernel.run(p, [[2]])[0] == 4.0
    with pytest.raises(InputError, match="a, b have different numbers of entries"):
        kernel.run(p, [[-1]])


def test_parameters_are_nested_as_they_were_asked_for() -> None:
    shapes = {"layer": {"w": (2, 2), "b": ()}, "level": 3, "one": 1}

    def loss(p: Any, r: Any) -> Any:
        layer = p["layer"]
        return (layer.w[0] @ layer["w"][1] + layer.b * r.x) * p.level[r.k] * p.one[0]

    kernel = sg.fused_forward_backward(shapes, loss, columns=["k", "x"], device="cpu")
    p = {"one": 2.0, "level": [1, 2, 3], "layer": {"b": 0.5, "w": [[1, 2], [3, 4]]}}
    value, slopes = kernel.run(p, {"k": [0, 2], "x": [2.0, 4.0]})
    assert value == 2 * ((11 + 1) * 1 + (11 + 2) * 3)
    assert {k: v.tolist() for k, v in slopes["layer"].items()} == {
        "w": [[24.0, 32.0], [8.0, 16.0]], "b": 2 * (2 + 4 * 3)
    }  # fmt: skip
    assert slopes["level"].tolist() == [24.0, 0.0, 26.0] and slopes["one"].tolist() == [51.0]
    assert "layer_w0" in kernel.wgsl
    flat = kernel.run([1, 2, 3, 4, 0.5, 1, 2, 3, 2], {"k": [0, 2], "x": [2.0, 4.0]})
    assert flat[0] == value
    with pytest.raises(InputError, match=r"params\['layer'\] must be a dict with"):
        kernel.run(p | {"layer": {"w": 1}}, {"k": [0], "x": [1.0]})
    with pytest.raises(InputError, match=r"layer.w has shape \(\)"):
        kernel.run(p | {"layer": {"w": 1, "b": 1}}, {"k": [0], "x": [1.0]})


@pytest.mark.parametrize("n", [(), 1])
def test_one_parameter_is_a_number(n: Any) -> None:
    scale = (lambda p, r: p * r[0]) if n == () else (lambda p, r: p[0] * r[0])
    kernel = sg.fused_forward_backward(n, scale, row=1, device="cpu")
    value, slope = kernel.run(2.0, [[3.0], [4.0]])
    assert value == 14.0 and slope == 7.0 and np.shape(slope) == (() if n == () else (1,))


# least squares ------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_least_squares_come_with_their_matrix(device: Any) -> None:
    def residuals(p: Any, r: Any) -> Any:
        return [p[0] * np.exp(p[1] * r[0]) - r[1], p[2] - r[0]]

    rows = table(500)
    found: Any = sg.fused_least_squares(3, residuals, row=2, device=device).run(P, rows)
    loss, slopes, jtj = found
    e = np.exp(P[1] * rows[:, 0])
    r = np.concatenate([P[0] * e - rows[:, 1], P[2] - rows[:, 0]])
    zero, one = np.zeros(500), np.ones(500)
    first = np.stack([e, P[0] * e * rows[:, 0], zero], axis=1)
    jacobian = np.concatenate([first, np.stack([zero, zero, one], axis=1)])
    np.testing.assert_allclose(loss, r @ r, rtol=1e-5)
    np.testing.assert_allclose(slopes, 2 * jacobian.T @ r, rtol=1e-4)
    np.testing.assert_allclose(jtj, jacobian.T @ jacobian, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("device", DEVICES)
def test_the_source_can_be_read_on_every_device(device: Any) -> None:
    def named(p: Any, r: Any) -> Any:
        return bell(p, [r.when, r.seen])

    kernel = sg.fused_forward_backward(3, named, columns=["when", "seen"], device=device)
    assert "when" in kernel.wgsl and "sg_exp" in kernel.wgsl and "fn main" in kernel.wgsl
    here = sg.fused_forward_backward(3, named, columns=["when", "seen"], device="cpu")
    assert kernel.wgsl == here.wgsl


def test_kernels_over_data_pickle() -> None:
    rows = table(100)
    for kernel in (
        sg.fused_forward_backward(3, bell, row=2, reduce="mean", device="cpu"),
        sg.fused_least_squares(3, lambda p, r: p[0] * r[0] + p[1] - r[1], row=2, device="cpu"),
    ):
        found, want = pickle.loads(pickle.dumps(kernel)).run(P, rows), kernel.run(P, rows)
        assert all(np.array_equal(a, b) for a, b in zip(found, want, strict=True))


# what users see of a kernel -----------------------------------------------------------------------


def test_the_expressions_are_those_of_a_row() -> None:
    kernel = sg.fused_forward_backward(
        {"a": 2, "b": (3, 2)}, lambda p, r: p.a[1] * p.b[r.k, 0] * r.x, columns=["k", "x", "w"],
        weights="w", device="cpu",
    )  # fmt: skip
    loss, slopes = kernel.expr
    assert str(loss) == "where(w == 0, 0, a1 * b_k_0 * x * w)"
    values = {"a1": 2.0, "b_k_0": 3.0, "x": 5.0, "w": 7.0}
    found = {name: sg.evaluate(slope, values) for name, slope in slopes.items()}
    assert found == {"a1": 105.0, "b_k_0": 70.0, "b_k_1": 0.0}
    squares = sg.fused_least_squares(2, lambda p, r: p[0] * r[0] - p[1], row=1, device="cpu")
    assert sg.evaluate(squares.expr[1]["p1"], {"p0": 3.0, "p1": 1.0, "r0": 2.0}) == -10.0


def test_the_size_is_that_of_a_row() -> None:
    kernel = sg.fused_forward_backward(
        (3, 2), lambda p, r: (p[r[0], 0] + p[r[0], 1]) * r[1], row=2, device="cpu"
    )
    stats = kernel.stats
    assert (stats.operations_loss, stats.shaders) == (2, 1)
    assert stats.bytes_per_point == 4 + 4 + 2 * 2 * 4  # a number, an index, a line and its slopes
    assert set(stats.seconds) == {"trace", "differentiate", "simplify", "compile"}
    assert "symgrad data kernel" in kernel._repr_html_() and "partials" in kernel._repr_html_()
    assert str(kernel._repr_latex_()).startswith("$$")


@pytest.mark.parametrize("device", DEVICES)
def test_a_kernel_moves_to_another_device(device: Any) -> None:
    kernel = sg.fused_forward_backward(3, bell, row=2, device="cpu").to(device)
    assert kernel.device == sg.fused_forward_backward(3, bell, row=2, device=device).device
    agree(kernel.run(P, table(100)), truth(P, table(100)))
    squares = sg.fused_least_squares(1, lambda p, r: p[0] - r[0], row=1, device="cpu").to(device)
    assert squares.run([1.0], [[3.0]])[0] == 4.0


def test_scipy_minimises_over_rows() -> None:
    optimize = pytest.importorskip("scipy.optimize")
    t = {"g": [0, 0, 1, 1], "x": [0.0, 1.0, 0.0, 2.0], "y": [1.0, 3.0, 5.0, 9.0]}
    shapes = {"level": 2, "slope": ()}
    kernel = sg.fused_forward_backward(
        shapes, lambda p, r: (p.level[r.g] + p.slope * r.x - r.y) ** 2, columns=list(t),
        device="cpu", dtype="float64",
    )  # fmt: skip
    found = optimize.minimize(kernel.as_scipy(t), np.zeros(3), jac=True)
    np.testing.assert_allclose(found.x, [1.0, 5.0, 2.0], atol=1e-5)


def test_an_audit_looks_at_every_row() -> None:
    def loss(p: Any, r: Any) -> Any:
        far = r.x + p.shift[r.k, 1]
        return (far - r.x) * p.scale[0]

    kernel = sg.fused_forward_backward(
        {"scale": 1, "shift": (3, 2)}, loss, columns=["k", "x"], device="cpu"
    )
    rows = {"k": [0, 1, 2], "x": [1.0, 2.0, 3e6]}
    p = {"scale": [2.0], "shift": [[0, 1.0], [0, 1.0], [0, 0.3]]}
    found = kernel.audit(p, rows)
    (suspect,) = found.suspects
    assert (suspect.kind, suspect.point) == ("cancellation", 2)
    assert set(suspect.results) == {"loss", "d/dscale0"}
    assert suspect.place is not None and "far - r.x" in suspect.place.text
    assert found.inputs == ("scale0", "x", "shift_k_0", "shift_k_1")
    assert suspect.x == (2.0, 3e6, 0.0, float(np.float32(0.3)))
    squares = sg.fused_least_squares(2, lambda p, r: p[0] * r[0] - p[1], row=1, device="cpu")
    names = [o.result for o in squares.audit([1.0, 1.0], [[1.0]]).outcomes]
    assert names == ["loss", "d/dp0", "d/dp1", "jtj[0, 0]", "jtj[0, 1]", "jtj[1, 1]"]


# what is refused ----------------------------------------------------------------------------------


class Promise:
    """As much of a lazy data frame as is needed."""

    columns = ("x", "y")

    def collect(self) -> Any:
        return None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"row": 0}, "row=0"),
        ({"row": 2, "columns": ["x", "y"]}, "give one of them"),
        ({"columns": ["x", "x"]}, "twice"),
        ({"columns": ["x", "no name"]}, "identifier"),
        ({"row": 2, "reduce": "max"}, 'use "sum" or "mean"'),
        ({"row": 2, "nan_policy": "skip"}, "propagate"),
        ({"row": 2, "weights": 5}, "is not a column"),
        ({"row": 2, "weights": True}, "is not a column"),
        ({"columns": ["x", "y"], "weights": np.ones(3)}, "give its name"),
        ({"row": 2, "names": ["a", "b", "c"]}, "for kernels of points"),
        ({"weights": 0}, "give row= or columns="),
        ({"reduce": "mean"}, "give row= or columns="),
        ({"nan_policy": "omit"}, "give row= or columns="),
    ],
)
def test_a_wrong_request_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        sg.fused_forward_backward(3, bell, device="cpu", **options)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros((3, 5)), r"\(3, 5\): \(N, 2\) is needed"),
        ([["a", "b"]], "real numbers"),
        ({"x": [1.0]}, "no column 'y'"),
        ({"x": [1.0, 2.0], "y": [1.0]}, "differ in length"),
        ([np.zeros((3, 2)), np.zeros((4, 2))], r"iter\(rows\)"),
        ([{"x": [1.0], "y": [2.0]}], r"iter\(rows\)"),
        (Promise(), r"Promise, has no length: collect\(\) it first"),
        ({"x": 1.0, "y": 2.0}, "has no length: arrays are needed"),
    ],
)
def test_a_wrong_table_is_refused(rows: Any, message: str) -> None:
    kernel = sg.fused_forward_backward(3, lambda p, r: bell(p, [r.x, r.y]), columns=["x", "y"],
                                       device="cpu")  # fmt: skip
    with pytest.raises((InputError, InputTypeError), match=message):
        kernel.run(P, rows)


def test_wrong_parameters_are_refused() -> None:
    kernel = sg.fused_forward_backward(3, bell, row=2, device="cpu")
    with pytest.raises(InputError, match=r"params has shape \(4,\): \(3,\) is needed"):
        kernel.run(np.zeros(4), table(3))
    with pytest.raises(InputTypeError, match="a table with 'x', 'y': parameters come first"):
        kernel.run({"x": [1.0], "y": [2.0]}, P)
    with pytest.raises(InputTypeError, match="cannot be kept"):
        kernel.bind(iter([]))
    with pytest.raises(InputError, match="that yields no table"):
        kernel.run(P, iter([]))


def test_misuse_in_a_loss_is_explained() -> None:
    with pytest.raises(sg.NameUnknownError, match="no column 'z': its columns are x, y"):
        sg.fused_forward_backward(1, lambda p, r: r.z, columns=["x", "y"], device="cpu")
    with pytest.raises(TraceError, match="an index and a number as well"):
        sg.fused_forward_backward((3, 1), lambda p, r: p[r[0], 0] * r[0], row=1, device="cpu")
    with pytest.raises(TraceError, match="taken by a column itself"):
        sg.fused_forward_backward((3, 1), lambda p, r: p[r[0] + 1, 0], row=1, device="cpu")
    with pytest.raises(InputError, match="weights='k' is a column of indices"):
        sg.fused_forward_backward(3, lambda p, r: p[r.k], columns=["k"], weights="k", device="cpu")
    with pytest.raises(InputError, match="needs row="):
        sg.fused_least_squares(3, lambda p, r: p[0], device="cpu")


def test_a_table_of_objects_is_read() -> None:
    kernel = sg.fused_forward_backward(3, bell, row=2, device="cpu")
    rows = table(5)
    assert kernel.run(P, rows.astype(object))[0] == kernel.run(P, rows)[0]
    assert kernel.run(P.astype(object), rows)[0] == kernel.run(P, rows)[0]
    with pytest.raises(InputTypeError, match="objects"):
        kernel.run(P, [[1.0, {}]])


def test_a_kernel_with_its_rows_says_how_to_pickle_it() -> None:
    bound = sg.fused_forward_backward(3, bell, row=2, device="cpu").bind(table(3))
    with pytest.raises(sg.PickleError, match=r"pickle bound\.kernel, and bind the rows again"):
        pickle.dumps(bound)
    with pytest.raises(TraceError, match="a loss is one scalar"):
        sg.fused_forward_backward(2, lambda p, r: [p[0], p[1]], row=1, device="cpu")
