"""Columns that are arrays at each row, ``columns={"id": (), "y": (8,)}``, beside plain loops."""

from __future__ import annotations

import pickle
import re
from typing import Any

import numpy as np
import pytest
import scipy.optimize

import symgrad as sg
from symgrad.errors import PrecisionWarning
from symgrad.values.arrays import warn_if_rounded
from symgrad.values.tables import Columns, columns_of, read
from symgrad.wgsl.device.gpus import list_gpus

GPU = "gpu" if list_gpus() else None
CASES = [("cpu", "float32"), ("cpu", "float64"), *[(GPU, "float32")] * bool(GPU)]
RNG = np.random.default_rng(0)
N = 37

COLUMNS = {"id": (), "y": (3,), "M": (2, 3), "w": None}
ROWS: dict[str, Any] = {
    "id": RNG.integers(0, 4, N), "y": RNG.normal(size=(N, 3)), "M": RNG.normal(size=(N, 2, 3)),
    "w": RNG.uniform(0.5, 2.0, N),
}  # fmt: skip
SHAPES = {"level": (4, 2), "rate": ()}
FLAT, VECTOR = RNG.normal(size=9), RNG.normal(size=9)
EXACT = {"float32": 3e-5, "float64": 1e-12}
DIFFERENCES = {"float32": 3e-5, "float64": 1e-7}


def residuals(p: Any, r: Any) -> Any:
    return p.level[r.id] @ r.M - sg.exp(0.3 * p.rate) * r.y


def loss(p: Any, r: Any) -> Any:
    return (residuals(p, r) ** 2).sum()


def at_rows(flat: np.ndarray) -> np.ndarray:
    """The residuals (N, 3), row by row."""
    level, rate, found = flat[:8].reshape(4, 2), flat[8], np.zeros((N, 3), flat.dtype)
    for k in range(N):
        for j in range(3):
            product = sum(level[ROWS["id"][k], i] * ROWS["M"][k, i, j] for i in range(2))
            found[k, j] = product - np.exp(0.3 * rate) * ROWS["y"][k, j]
    return found


def jacobians(flat: np.ndarray = FLAT) -> np.ndarray:
    """The exact Jacobian (N, 3, 9), by complex steps."""
    steps = flat + 1e-30j * np.eye(9)
    return np.stack([np.imag(at_rows(v)) / 1e-30 for v in steps], axis=-1)


def slopes(flat: np.ndarray = FLAT) -> np.ndarray:
    """The gradients of the losses of all rows (N, 9)."""
    return 2 * np.einsum("kj,kjn->kn", at_rows(flat), jacobians(flat))


def hessian() -> np.ndarray:
    """That of the sum of all losses, by differences of its exact gradient."""
    h = 1e-5
    ends = [slopes(FLAT + e).sum(0) - slopes(FLAT - e).sum(0) for e in h * np.eye(9)]
    return np.array(ends) / (2 * h)


def dense(found: Any) -> np.ndarray:
    return found.toarray() if hasattr(found, "toarray") else np.asarray(found)


def row_of(nested: Any) -> np.ndarray:
    """All numbers of a gradient in a row."""
    return np.concatenate([np.ravel(nested[name]) for name in SHAPES])


def agree(found: Any, want: Any, rtol: float) -> None:
    want = np.asarray(want)
    np.testing.assert_allclose(found, want, rtol=rtol, atol=rtol * np.abs(want).max())


@pytest.mark.parametrize(("device", "dtype"), CASES)
@pytest.mark.parametrize("bound", [False, True])
class TestVerbs:
    """Every verb, of rows that come with the parameters and of bound ones."""

    def results(self, make: Any, bound: bool, *points: Any, **options: Any) -> Any:
        f = options.pop("f", loss)
        kernel = make(SHAPES, f, columns=COLUMNS, **options)
        return kernel.bind(ROWS).run(*points) if bound else kernel.run(*points, ROWS)

    def test_sums(self, device: Any, dtype: Any, bound: bool) -> None:
        of: Any = {"device": device, "dtype": dtype}
        losses = (at_rows(FLAT) ** 2).sum(1)
        for reduce, scale in (("sum", 1.0), ("mean", 1 / N)):
            make = sg.fused_forward_backward
            value, gradient = self.results(make, bound, FLAT, reduce=reduce, **of)
            agree(value, losses.sum() * scale, EXACT[dtype])
            agree(row_of(gradient), slopes().sum(0) * scale, EXACT[dtype])
        weighted = self.results(sg.fused_forward, bound, FLAT, weights="w", **of)
        agree(weighted, losses @ ROWS["w"], EXACT[dtype])

    def test_each_row(self, device: Any, dtype: Any, bound: bool) -> None:
        of: Any = {"device": device, "dtype": dtype, "reduce": None}
        found = self.results(sg.fused_forward, bound, FLAT, f=residuals, **of)
        agree(found, at_rows(FLAT), EXACT[dtype])
        values, gradients = self.results(sg.fused_forward_backward, bound, FLAT, **of)
        agree(values, (at_rows(FLAT) ** 2).sum(1), EXACT[dtype])
        agree(dense(gradients), slopes(), EXACT[dtype])
        _, found = self.results(sg.fused_jacobian, bound, FLAT, f=residuals, **of)
        agree(dense(found), jacobians().reshape(-1, 9), EXACT[dtype])

    def test_matrices(self, device: Any, dtype: Any, bound: bool) -> None:
        of: Any = {"device": device, "dtype": dtype}
        values, found = self.results(sg.fused_jacobian, bound, FLAT, f=residuals, **of)
        agree(values, at_rows(FLAT).sum(0), EXACT[dtype])
        agree(np.column_stack([np.reshape(found[k], (3, -1)) for k in SHAPES]),
              jacobians().sum(0), EXACT[dtype])  # fmt: skip
        _, _, found = self.results(sg.fused_hessian, bound, FLAT, sparse=True, **of)
        agree(dense(found), hessian(), DIFFERENCES[dtype])
        *_, product = self.results(sg.fused_hvp, bound, FLAT, VECTOR, **of)
        agree(row_of(product), hessian() @ VECTOR, DIFFERENCES[dtype])
        total, gradient, jtj = self.results(sg.fused_least_squares, bound, FLAT, f=residuals, **of)
        agree(total, (at_rows(FLAT) ** 2).sum(), EXACT[dtype])
        agree(row_of(gradient), slopes().sum(0), EXACT[dtype])
        j = jacobians().reshape(-1, 9)
        agree(dense(jtj), j.T @ j, EXACT[dtype])


def kernel(device: Any = "cpu", **options: Any) -> Any:
    return sg.fused_forward_backward(SHAPES, loss, columns=COLUMNS, device=device, **options)


def structured() -> np.ndarray:
    kinds = [("id", "i4"), ("w", "f8"), ("M", "f8", (2, 3)), ("y", "f8", (3,))]
    table = np.empty(N, kinds)
    for name in COLUMNS:
        table[name] = ROWS[name]
    return table


def as_objects(values: np.ndarray) -> np.ndarray:
    """A row's array as an object, as data frames keep them."""
    found = np.empty(len(values), object)
    found[:] = list(values)
    return found


FLATTENED = np.column_stack([ROWS["id"], ROWS["y"], ROWS["M"].reshape(N, 6), ROWS["w"]])


@pytest.mark.parametrize(
    "rows",
    [
        structured(),
        FLATTENED,
        {name: values.tolist() for name, values in ROWS.items()},
        {name: np.asfortranarray(values) for name, values in ROWS.items()},
        ROWS | {"y": as_objects(ROWS["y"]), "more": np.ones((N, 9))},
        ROWS | {"M": as_objects(ROWS["M"])},
        iter([{k: v[:20] for k, v in ROWS.items()}, {k: v[20:] for k, v in ROWS.items()}]),
    ],
    ids=["structured", "array", "lists", "Fortran", "objects", "matrices", "blocks"],
)
def test_tables_of_any_kind(rows: Any) -> None:
    made = kernel(dtype="float64")
    found, want = made.run(FLAT, rows), made.run(FLAT, ROWS)
    agree(found[0], want[0], 1e-14)
    agree(row_of(found[1]), row_of(want[1]), 1e-14)


def test_data_frames() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"id": ROWS["id"], "w": ROWS["w"]})
    frame["y"], frame["M"] = list(ROWS["y"]), list(ROWS["M"])
    want = kernel().run(FLAT, ROWS)[0]
    assert kernel().run(FLAT, frame)[0] == want
    wide = pandas.DataFrame(ROWS["y"], columns=["a", "b", "c"])
    assert kernel().run(FLAT, ROWS | {"y": wide})[0] == want


def test_data_frames_of_polars() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({name: ROWS[name] for name in ("id", "w", "y", "M")})
    assert kernel().run(FLAT, frame)[0] == kernel().run(FLAT, ROWS)[0]


def test_datasets_of_xarray() -> None:
    xarray = pytest.importorskip("xarray")
    axes = {"id": "n", "w": "n", "y": ("n", "band"), "M": ("n", "i", "band")}
    data = xarray.Dataset({name: (axes[name], ROWS[name]) for name in COLUMNS})
    assert kernel().run(FLAT, data)[0] == kernel().run(FLAT, ROWS)[0]


def test_blocks_of_dask() -> None:
    array = pytest.importorskip("dask.array")
    cut = ROWS | {"y": array.from_array(ROWS["y"], chunks=(10, 2)), "M": ROWS["M"]}
    made = kernel(dtype="float64")
    agree(made.bind(cut).run(FLAT)[0], made.run(FLAT, ROWS)[0], 1e-14)
    with pytest.raises(sg.InputError, match=r"y has shape \(37, 2\): \(N, 3\) is needed"):
        made.bind(cut | {"y": cut["y"][:, :2]})


def test_an_array_of_the_right_kind_is_not_copied() -> None:
    columns = columns_of(None, {"y": (2, 4)})
    y = RNG.normal(size=(9, 2, 4)).astype(np.float32)
    numbers, _ = read({"y": y}, columns, "float32", "propagate")
    assert numbers.shape == (9, 8) and np.shares_memory(numbers, y)
    numbers, _ = read({"y": y}, columns, "float32", "propagate", own=True)
    assert not np.shares_memory(numbers, y)


@pytest.mark.skipif(GPU is None, reason="no GPU and no software Vulkan driver here")
@pytest.mark.parametrize("here", [(), ("id",), ("y", "w"), ("M",)])
@pytest.mark.parametrize("reduce", ["sum", None])
def test_columns_on_the_device(here: Any, reduce: Any) -> None:
    made = kernel("gpu", reduce=reduce)
    there = {
        name: values if name in here else sg.device_array(
            values, "gpu", "int32" if name == "id" else "float32")
        for name, values in ROWS.items()
    }  # fmt: skip
    for found in (made.run(FLAT, there), made.bind(there).run(FLAT)):
        want = made.run(FLAT, ROWS)
        np.testing.assert_array_equal(np.asarray(found[0]), want[0])
    with pytest.raises(sg.InputError, match=r"y has shape \(37, 2\)"):
        made.run(FLAT, there | {"y": sg.device_array(ROWS["y"][:, :2], "gpu")})


@pytest.mark.skipif(GPU is None, reason="no GPU and no software Vulkan driver here")
def test_one_column_on_the_device_is_taken_as_it_is() -> None:
    made = sg.fused_forward(3, lambda p, r: p @ r.y, columns={"y": (3,)}, device="gpu")
    y = np.arange(300, dtype=np.float32).reshape(100, 3)
    part = sg.device_array(y, "gpu")[64:]
    assert made.run([1.0, 2.0, -1.0], {"y": part}) == y[64:].sum(0) @ [1.0, 2.0, -1.0]


@pytest.mark.skipif(GPU is None, reason="no GPU and no software Vulkan driver here")
def test_large_indices_beside_columns_on_the_device() -> None:
    many = 2**24 + 3
    made = sg.fused_forward({"p": many}, lambda p, r: p.p[r.k] * r.x, columns=["k", "x"],
                            device="gpu", reduce=None)  # fmt: skip
    rows = {"k": np.array([2**24, 2**24 + 1]), "x": sg.device_array([1.0, 1.0], "gpu")}
    values = np.zeros(many, np.float32)
    values[-3:] = 1.0, 2.0, 3.0
    assert np.asarray(made.run(values, rows)).tolist() == [1.0, 2.0]


def test_rows_are_arrays_of_all_their_numbers_too() -> None:
    def f(p: Any, r: Any) -> Any:
        assert len(r) == 11 and len(list(r)) == 11 and r["M"].shape == (2, 3)
        assert isinstance(r.y, sg.ExprArray) and r.y.shape == (3,)
        return p[0] * r[1] + r.M[1, 2] - r[9] + np.sum(np.asarray(r)[4:10]) - np.sum(r.M)

    made = sg.fused_forward(1, f, columns=COLUMNS, reduce=None, device="cpu", dtype="float64")
    agree(made.run([2.0], ROWS), 2 * ROWS["y"][:, 0], 1e-13)


def test_indices_in_arrays() -> None:
    ids = RNG.integers(-4, 4, (N, 2, 3))
    made = sg.fused_forward_backward(
        {"table": (4, 2), "flat": 4},
        lambda p, r: np.sum(p.table[r.ids, 1] * r.x) + sg.exp(p.flat[r.ids[1, 2]]),
        columns={"ids": (2, 3), "x": (3,)}, device="cpu", dtype="float64",
    )  # fmt: skip
    table, flat, x = RNG.normal(size=(4, 2)), RNG.normal(size=4), RNG.normal(size=(N, 3))
    value, gradient = made.run({"table": table, "flat": flat}, {"ids": ids, "x": x})
    losses, to_table, to_flat = 0.0, np.zeros((4, 2)), np.zeros(4)
    for k in range(N):
        losses += np.exp(flat[ids[k, 1, 2]])
        to_flat[ids[k, 1, 2]] += np.exp(flat[ids[k, 1, 2]])
        for i, j in np.ndindex(2, 3):
            losses += table[ids[k, i, j], 1] * x[k, j]
            to_table[ids[k, i, j], 1] += x[k, j]
    agree(value, losses, 1e-13)
    agree(gradient["table"], to_table, 1e-13)
    agree(gradient["flat"], to_flat, 1e-13)
    pairs = sg.fused_forward((4, 2), lambda p, r: p[r.ids, np.array([0, 1])], reduce=None,
                             columns={"ids": (2,)}, device="cpu")  # fmt: skip
    found = pairs.run(table, {"ids": ids[:, 0, :2] % 4})
    agree(found, table[ids[:, 0, :2] % 4, [0, 1]], 1e-6)
    with pytest.raises(sg.InputError, match=r"'ids'\[1, 0\] is 4 at row 2: flat|table has 4"):
        made.run(np.zeros(12), {"ids": np.where(np.arange(N) == 2, 4, 0)[:, None, None]
                                * np.array([[0, 0, 0], [1, 0, 0]]), "x": x})  # fmt: skip


class TestFits:
    """Minima, of rows that all starts share and of rows of each."""

    columns: Any = {"t": (), "y": (2,)}  # noqa: RUF012

    @staticmethod
    def misfit(p: Any, r: Any) -> Any:
        return p[:2] + p[2:] * r.t - r.y

    @staticmethod
    def fitted(t: np.ndarray, y: np.ndarray) -> np.ndarray:
        found = np.linalg.lstsq(np.column_stack([np.ones_like(t), t]), y, rcond=None)[0]
        return found.ravel()

    @pytest.mark.parametrize(("device", "dtype"), CASES)
    @pytest.mark.parametrize("method", [sg.LevenbergMarquardt(), sg.LBFGS()], ids=["LM", "LBFGS"])
    def test_minimize(self, device: Any, dtype: Any, method: Any) -> None:
        made = sg.fused_least_squares(
            4, self.misfit, columns=self.columns, device=device, dtype=dtype
        )
        t, y = RNG.normal(size=(2, 20)), RNG.normal(size=(2, 20, 2))
        rtol = 2e-3 if dtype == "float32" else 1e-6
        shared = made.minimize(np.zeros((3, 4)), method, rows={"t": t[0], "y": y[0]})
        agree(shared.x, [self.fitted(t[0], y[0])] * 3, rtol)
        own = made.minimize(np.zeros((2, 4)), method, rows={"t": t, "y": y})
        agree(own.x, [self.fitted(t[k], y[k]) for k in range(2)], rtol)
        half = made.minimize(np.zeros((2, 4)), method, rows={"t": t[0], "y": y, "more": 1.0})
        agree(half.x, [self.fitted(t[0], y[k]) for k in range(2)], rtol)
        with pytest.raises(sg.InputError, match=r"y has shape \(2, 20, 3\)"):
            made.minimize(np.zeros((2, 4)), method, rows={"t": t, "y": np.ones((2, 20, 3))})

    def test_minimize_with_look_ups(self) -> None:
        made = kernel(dtype="float64")
        found = made.minimize(FLAT, sg.LBFGS(), rows=ROWS)
        want = scipy.optimize.minimize(
            lambda v: (at_rows(v) ** 2).sum(), FLAT, jac=lambda v: slopes(v).sum(0), tol=1e-9
        )
        assert found.fun <= want.fun * (1 + 1e-9)

    def test_fit(self) -> None:
        made = sg.fused_least_squares(
            SHAPES, lambda p, r: p.level[r.id] @ r.M + p.rate * r.y[:2].sum() - r.y,
            columns=COLUMNS, device="cpu", dtype="float64",
        )  # fmt: skip
        found = made.fit(np.zeros(9), ROWS)
        design = np.zeros((N, 3, 9))
        for k in range(N):
            design[k, :, 2 * ROWS["id"][k] : 2 * ROWS["id"][k] + 2] = ROWS["M"][k].T
            design[k, :, 8] = ROWS["y"][k, :2].sum()
        want = np.linalg.lstsq(design.reshape(-1, 9), ROWS["y"].ravel(), rcond=None)[0]
        agree(row_of(found.x), want, 1e-7)


class TestPolicies:
    """What is done to rows that are not as they should be."""

    def test_nan(self) -> None:
        y = ROWS["y"].copy()
        y[5, 2] = np.nan
        rows = ROWS | {"y": y}
        with pytest.raises(sg.InputError, match=r"1 rows hold a NaN, the first at row 5, 'y'\[2\]"):
            kernel(nan_policy="raise").run(FLAT, rows)
        left = {name: np.delete(values, 5, axis=0) for name, values in ROWS.items()}
        assert kernel(nan_policy="omit").run(FLAT, rows)[0] == kernel().run(FLAT, left)[0]
        assert np.isnan(kernel().run(FLAT, rows)[0])

    def test_rounding_is_told_once_for_a_column(self) -> None:
        with pytest.warns(PrecisionWarning, match=r"'y'\[1\] has values that float32") as told:
            kernel().run(FLAT, ROWS | {"y": ROWS["y"] * [1.0, 1e-7, 1e-7] + [0.0, 1.0, 1.0]})
        assert len(told) == 1
        assert not warn_if_rounded(ROWS["y"][:, 0], "y", "float32")

    def test_labels(self) -> None:
        made = sg.fused_forward(
            {"p": 3}, lambda p, r: p.p[r.who[0]] * r.x - p.p[r.who[1]],
            columns={"who": (2,), "x": ()}, reduce=None, device="cpu",
        )  # fmt: skip
        rows = {"who": [["b", "c"], ["a", "b"]], "x": [1.0, 2.0]}
        assert made.run([1.0, 2.0, 4.0], rows).tolist() == [-2.0, 0.0]
        assert made.codes["who"].tolist() == ["a", "b", "c"]
        with pytest.raises(sg.InputError, match="who holds 'd'"):
            made.run([1.0, 2.0, 4.0], {"who": [["a", "d"]], "x": [1.0]})
        with pytest.raises(sg.InputTypeError, match="y holds labels, 'a' at row 1, and is comp"):
            kernel().run(FLAT, ROWS | {"y": [[None] * 3, *[["a"] * 3] * (N - 1)]})
        objects = ROWS["M"].astype(object)
        objects[2, 0, 1] = {}
        with pytest.raises(sg.InputTypeError, match=r"M holds objects, .* at row 2"):
            kernel().run(FLAT, ROWS | {"M": objects})

    def test_dates(self) -> None:
        made = sg.fused_forward(1, lambda p, r: p[0] * (r.when[1] - r.when[0]), reduce=None,
                                columns={"when": (2,)}, device="cpu")  # fmt: skip
        when = np.array([["2026-01-01", "2026-01-03"], ["2026-02-01", "2026-01-31"]], "M8[D]")
        assert made.run([1.0], {"when": when}).tolist() == [2.0, -1.0]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"y": ROWS["y"][:, :2]}, r"y has shape \(37, 2\): \(N, 3\) is needed, as columns={'y'"),
        ({"y": ROWS["w"]}, r"y has shape \(37,\): \(N, 3\) is needed"),
        ({"M": ROWS["M"].reshape(N, 6)}, r"M has shape \(37, 6\): \(N, 2, 3\) is needed"),
        ({"w": ROWS["y"]}, r"w has shape \(37, 3\): \(N,\) is needed, or columns={'w': \(3,\)}"),
        ({"w": ROWS["w"][1:]}, "differ in length: {'id': 37, 'y': 37, 'M': 37, 'w': 36}"),
        ({"y": [[1.0, 2.0], [1.0]]}, "y is not a column of numbers"),
    ],
)
def test_tables_of_other_shapes_are_refused(change: Any, text: str) -> None:
    with pytest.raises(sg.InputError, match=text):
        kernel().run(FLAT, ROWS | change)


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"y": (0,)}, "at least 1 number along each axis"),
        ({"y": 8}, r"the shape of an array, such as \(3,\)"),
        ({"y": (10**6, 10**6)}, "too"),
        ({"y": (8,), "y z": ()}, "each an identifier"),
    ],
)
def test_declarations_are_checked(columns: Any, text: str) -> None:
    with pytest.raises(sg.InputError, match=text):
        sg.fused_forward(1, lambda p, r: p[0] * r.y[0], columns=columns, device="cpu")


def test_a_weight_is_one_number() -> None:
    with pytest.raises(sg.InputError, match=r"weights='y' is a column of arrays \(3,\)"):
        kernel(weights="y")


def test_labels_may_still_be_declared() -> None:
    columns: Columns = columns_of(None, {"a": ("x", "y"), "b": ["x"], "c": (2,), "d": ()})
    assert columns.count == 5 and set(columns.codes) == {"a", "b"}


def test_kernels_travel_and_show_themselves() -> None:
    made = kernel()
    again = pickle.loads(pickle.dumps(made))
    assert again.run(FLAT, ROWS)[0] == made.run(FLAT, ROWS)[0]
    assert "rows of id, y (3,), M (2, 3), w;" in repr(made) and made.columns == (*COLUMNS,)
    assert {"y2", "M5"} <= set(re.findall(r"\w+", made.wgsl))


def test_audits_read_them() -> None:
    gap = lambda p, r: (sg.sqrt(r.x**2 + p[0]) - r.x).sum()  # noqa: E731
    made = sg.fused_forward_backward(1, gap, columns={"x": (2,)}, device="cpu")
    found = made.audit([1.0], {"x": [[1.0, 1.0], [1.0, 5000.0]]})
    assert [(s.kind, s.point) for s in found.suspects] == [("cancellation", 1)]


def test_modules_for_browsers_take_all_numbers_in_a_row(tmp_path: Any) -> None:
    given: Any = {"device": "cpu", "name": "misfit", "comments": False}
    named = sg.fused_least_squares(
        4, lambda p, r: p[:2] + p[2:] * r.tt - r.yy, columns={"tt": (), "yy": (2,)}, **given
    )
    plain = sg.fused_least_squares(4, lambda p, r: p[:2] + p[2:] * r[0] - r[1:], row=3, **given)
    texts: list[str] = []
    for made in (named, plain):
        made.export_js(tmp_path / "misfit.mjs", sg.LevenbergMarquardt())
        texts.append((tmp_path / "misfit.mjs").read_text())
    found, want = texts
    for old, new in (("tt", "r0"), ("yy0", "r1"), ("yy1", "r2")):
        found = re.sub(rf"\b{old}\b", new, found)
    assert found == want
