"""Fits of parameters that rows look up, beside SciPy's, closed forms, and NumPy's algebra."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.optimize
from scenes import DUBROVNIK, Scene, drawn, misfit, read_bal, reprojection

import symgrad as sg
from symgrad.errors import InputError, TraceError
from symgrad.rows import squares
from symgrad.rows.sparse_fit import solve
from symgrad.rows.sparse_normal import RowSystem
from symgrad.values.tables import Reduce

GPUS = [d.index for d in sg.devices() if d.is_gpu]


def model_of(scene: Scene, **options: Any) -> Any:
    parameters, table = scene
    shapes = {name: block.shape for name, block in parameters.items()}
    return sg.fused_least_squares(shapes, reprojection, columns=list(table), **options)


def in_a_row(parameters: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([block.ravel() for block in parameters.values()])


def by_scipy(scene: Scene, **options: Any) -> Any:
    """SciPy's fit, its Jacobian by differences where it is not structurally 0."""
    parameters, table = scene
    cameras, count = parameters["camera"].shape[0], len(table["u"])
    sparsity = np.zeros((count, 2, 9 * cameras + parameters["point"].size))
    for k in range(9):
        sparsity[np.arange(count), :, 9 * table["camera"] + k] = 1
    for k in range(3):
        sparsity[np.arange(count), :, 9 * cameras + 3 * table["point"] + k] = 1

    def residuals(x: np.ndarray) -> np.ndarray:
        blocks = np.split(x, [9 * cameras])
        nested = {"camera": blocks[0].reshape(-1, 9), "point": blocks[1].reshape(-1, 3)}
        return misfit(nested, table).ravel()

    return scipy.optimize.least_squares(
        residuals, in_a_row(parameters), x_scale="jac",
        jac_sparsity=sparsity.reshape(2 * count, -1), **options,
    )  # fmt: skip


# bundle adjustment --------------------------------------------------------------------------------


def test_dubrovnik() -> None:
    """There are more parameters than residuals: nothing is left of them."""
    scene = read_bal(DUBROVNIK)
    found = model_of(scene).fit(*scene)
    assert found.success, found.message
    np.testing.assert_allclose(found.fun, misfit(found.x, scene[1]), atol=1e-8)
    assert found.cost == pytest.approx(0.5 * np.sum(found.fun**2))
    assert found.cost < 1e-20 < by_scipy(scene, max_nfev=20).cost


def test_a_drawn_scene_ends_where_scipy_does() -> None:
    scene = drawn(5, 40, 4)
    found, want = model_of(scene).fit(*scene), by_scipy(scene, ftol=1e-10)
    assert found.success, found.message
    assert found.cost == pytest.approx(want.cost, rel=1e-7)
    assert found.optimality < 1e-3
    assert found.nfev < 30 < want.nfev or found.nfev <= want.nfev


@pytest.mark.parametrize("device", GPUS)
def test_residuals_on_a_gpu(device: int) -> None:
    scene = drawn(4, 30, 3)
    found = model_of(scene).fit(*scene, device=device)
    want = model_of(scene).fit(*scene)
    assert found.success, found.message
    assert found.cost == pytest.approx(want.cost, rel=1e-3)


@pytest.mark.parametrize(("shape", "seed"), [((4, 30, 3), 9), ((3, 15, 3), 9), ((5, 20, 4), 3)])
def test_a_last_step_that_rounding_hides_is_judged_by_slopes(
    shape: tuple[int, int, int], seed: int
) -> None:
    """In float32 the loss there may seem to rise: the gradients at both ends tell that it falls."""
    scene = drawn(*shape, seed=seed)
    found = model_of(scene).fit(*scene, device="cpu", dtype="float32")
    assert found.success, found.message
    assert found.cost == pytest.approx(model_of(scene).fit(*scene).cost, rel=1e-4)


@pytest.mark.parametrize("loss", ["huber", "soft_l1", "cauchy", "arctan"])
def test_robust_losses_are_scipys(loss: str) -> None:
    scene = drawn(4, 20, 3, seed=3)
    scene[1]["u"][::10] += 30.0
    options: dict[str, Any] = {"loss": loss, "f_scale": 1.5}
    found = model_of(scene).fit(*scene, **options)
    assert found.success, found.message
    there = by_scipy((found.x, scene[1]), **options, max_nfev=1)
    assert found.cost == pytest.approx(there.cost)
    np.testing.assert_allclose(model_of(scene).in_a_row(found.grad), there.grad, atol=1e-4)
    onward = by_scipy((found.x, scene[1]), **options, max_nfev=10)
    assert found.cost == pytest.approx(onward.cost, rel=1e-6)


# mixed models -------------------------------------------------------------------------------------


def plants(count: int = 200, seed: int = 0) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(seed)
    return {
        "field": draw.integers(0, 7, count), "kind": draw.integers(0, 5, count),
        "x": draw.normal(size=count), "z": draw.normal(size=count),
        "y": draw.normal(size=count), "w": draw.uniform(0.5, 2.0, count),
    }  # fmt: skip


def design(rows: dict[str, np.ndarray]) -> np.ndarray:
    """Columns of slope, (level, trend) of each field, and level of each kind."""
    fields, kinds = np.eye(7)[rows["field"]], np.eye(5)[rows["kind"]]
    return np.column_stack([rows["z"], fields, fields * rows["x"][:, None], kinds])


SIZES = {"slope": (), "level": 7, "trend": 7, "kind": 5}


def growth(p: Any, r: Any) -> Any:
    return p.slope * r.z + p.level[r.field] + p.trend[r.field] * r.x + p.kind[r.kind] - r.y


NOTHING = {"slope": 0.0, "level": np.zeros(7), "trend": np.zeros(7), "kind": np.zeros(5)}


@pytest.mark.parametrize("weights", [None, "w"])
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_a_mixed_model_has_the_closed_form(weights: str | None, reduce: Reduce) -> None:
    rows = plants()
    model = sg.fused_least_squares(
        SIZES, growth, columns=list(rows), weights=weights, reduce=reduce, device="cpu"
    )
    found = model.fit(NOTHING, rows)
    root = np.sqrt(rows["w"]) if weights else np.ones(200)
    matrix, right = design(rows) * root[:, None], rows["y"] * root
    want = matrix @ np.linalg.lstsq(matrix, right, rcond=None)[0]  # levels may be shifted
    np.testing.assert_allclose((found.fun + rows["y"]) * root, want, atol=1e-7)
    share = 1.0 if reduce == "sum" else 1.0 / np.sum(root * root)
    assert found.cost == pytest.approx(0.5 * share * np.sum((want - right) ** 2))
    assert found.success and found.nit < 15
    assert found.cost == pytest.approx(0.5 * model.run(found.x, rows)[0], rel=1e-5)


def test_bound_kernels_find_once_which_rows_share_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    class Counted(RowSystem):
        def __init__(self, *given: Any) -> None:
            made.append(len(made))
            super().__init__(*given)

    monkeypatch.setattr(squares, "RowSystem", Counted)
    scene = drawn(4, 30, 3)
    model = model_of(scene, device="cpu", dtype="float64")
    bound = model.bind(scene[1])
    first, again = (bound.run(scene[0])[2] for _ in range(2))
    assert len(made) == 1
    first.data[:], first.indices[:] = 0.0, 0  # results are the caller's own
    other = {name: block + 0.01 for name, block in scene[0].items()}
    for parameters in (scene[0], other):
        want = model.run(parameters, scene[1])[2]
        assert (bound.run(parameters)[2] != want).nnz == 0
    assert (again != model.run(*scene)[2]).nnz == 0


def test_blocks_that_no_core_shares_out_evenly_are_all_computed() -> None:
    """With 7 views of 1,801 points: no whole number of strips, whatever their length."""
    scene = drawn(12, 1801, 7)
    x = model_of(scene)._parameters.flat(scene[0])
    task, target = model_of(scene)._task("float64"), squares.Target.of(None, None)
    normal = task.system(task.table(scene[1], "float64"), target).at(x)
    added = 1e-2 * normal.squares
    h = solve(normal, added)
    np.testing.assert_allclose(normal @ h + added * h, -normal.gradient, rtol=1e-6, atol=1e-5)


def test_jtj_of_a_run_is_sparse() -> None:
    rows = plants(50)
    matrix = design(rows)
    model: Any = sg.fused_least_squares(
        SIZES, growth, columns=list(rows), device="cpu", weights="w"
    )
    point = NOTHING | {"slope": 2.0}
    residuals = 2.0 * rows["z"] - rows["y"]
    halves = ({k: v[:20] for k, v in rows.items()}, {k: v[20:] for k, v in rows.items()})
    for loss, gradient, jtj in (
        model.run(point, rows), model.bind(rows).run(point), model.run(point, iter(halves))
    ):  # fmt: skip
        assert loss == pytest.approx(np.sum(rows["w"] * residuals**2), rel=1e-6)
        slopes = matrix.T @ (rows["w"] * residuals)
        np.testing.assert_allclose(model.in_a_row(gradient), 2 * slopes, rtol=1e-4, atol=1e-4)
        want = matrix.T @ (rows["w"][:, None] * matrix)
        np.testing.assert_allclose(jtj.toarray(), want, rtol=1e-5, atol=1e-5)
        assert jtj.nnz <= np.count_nonzero(want) + 14 and jtj.dtype == np.float32


def test_random_effects_have_priors_that_are_rows() -> None:
    """Henderson's equations of a mixed model: levels are drawn around 0, with a known deviation."""
    rows, tau = plants(), 0.4
    data = {k: np.concatenate([rows[k], np.zeros(7, rows[k].dtype)]) for k in ("z", "y")}
    data |= {"field": np.concatenate([rows["field"], np.arange(7)]), "prior": np.arange(207) >= 200}

    def residual(p: Any, r: Any) -> Any:
        return np.where(
            r.prior == 1, p.level[r.field] / tau, p.slope * r.z + p.level[r.field] - r.y
        )

    found = sg.fused_least_squares(
        {"slope": (), "level": 7}, residual, columns=["z", "y", "field", "prior"]
    ).fit({"slope": 0.0, "level": np.zeros(7)}, data)
    matrix = np.column_stack([rows["z"], np.eye(7)[rows["field"]]])
    shrunk = matrix.T @ matrix + np.diag([0.0] + [1 / tau**2] * 7)
    want = np.linalg.solve(shrunk, matrix.T @ rows["y"])
    np.testing.assert_allclose([found.x["slope"], *found.x["level"]], want, atol=1e-7)


def test_standard_errors() -> None:
    """Those of the linear model; the levels of kinds are relative to a known one."""
    rows = plants()
    model = sg.fused_least_squares(
        SIZES, lambda p, r: [growth(p, r), 10.0 * p.kind[0]], columns=list(rows), weights="w"
    )
    found = model.fit(NOTHING, rows, errors=True)
    matrix = np.concatenate([design(rows), 10.0 * np.eye(20)[np.full(200, 15)]])
    weight = np.concatenate([rows["w"], rows["w"]])
    inverse = np.linalg.inv(matrix.T @ (weight[:, None] * matrix))
    want = np.sqrt(np.diag(inverse) * 2 * found.cost / (400 - 20))
    np.testing.assert_allclose(np.concatenate([np.ravel(e) for e in found.errors.values()]),
                               want, rtol=1e-6)  # fmt: skip


def test_standard_errors_that_are_not_determined() -> None:
    rows = plants()
    model = sg.fused_least_squares(SIZES, growth, columns=list(rows))
    with pytest.warns(scipy.optimize.OptimizeWarning, match="not determined") as warned:
        found = model.fit(NOTHING, rows, errors=True)
    assert [w.filename for w in warned] == [__file__]
    assert np.isinf(found.errors["level"]).all()
    few = {name: v[rows["field"] < 6] for name, v in rows.items()}
    alone = sg.fused_least_squares(
        {"level": 7}, lambda p, r: p.level[r.field] - r.y, columns=list(rows)
    )
    found = alone.fit({"level": np.full(7, -0.5)}, few, errors=True, bounds=(-9.0, 0.0))
    counts = np.bincount(few["field"], minlength=7)
    for k, error in enumerate(found.errors["level"]):
        if k == 6:
            assert np.isinf(error)
        elif found.x["level"][k] == 0.0:
            assert error == 0.0
        else:
            held = np.count_nonzero(found.x["level"][:6])
            s = np.sqrt(np.sum(found.fun**2) / (len(found.fun) - held))
            assert error == pytest.approx(s / np.sqrt(counts[k]))


def test_groups_alone() -> None:
    """No parameter is left when those of the groups are eliminated."""
    rows = plants()
    model = sg.fused_least_squares(
        {"p": (7, 2)}, lambda p, r: p.p[r.field] @ np.array([1.0, r.x]) - r.y, columns=list(rows)
    )
    found = model.fit({"p": np.zeros((7, 2))}, rows)
    for k in range(7):
        mine = rows["field"] == k
        want = np.polyfit(rows["x"][mine], rows["y"][mine], 1)[::-1]
        np.testing.assert_allclose(found.x["p"][k], want, atol=1e-8)


def test_parameters_without_lookups() -> None:
    """The same verb fits them, to what curve_fit finds."""
    x = np.linspace(0, 4, 30)
    rows = np.stack([x, 2.5 * np.exp(-1.3 * x) + 0.01 * np.cos(9 * x)], axis=1)
    model = sg.fused_least_squares(2, lambda p, r: p[0] * np.exp(-p[1] * r[0]) - r[1], row=2)
    found = model.fit([1.0, 1.0], rows)
    want, _ = sg.curve_fit(lambda x, a, b: a * np.exp(-b * x), *rows.T)
    np.testing.assert_allclose(found.x, want, rtol=1e-6)
    assert found.success and found.fun.shape == (30,)


# one block, looked up twice -----------------------------------------------------------------------


def network(noise: float, seed: int = 1) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Distances between points of a plane, and a start near them."""
    draw = np.random.default_rng(seed)
    place = draw.uniform(0, 10, (12, 2))
    a, b = np.triu_indices(12, 1)
    far = np.linalg.norm(place[a] - place[b], axis=1) + noise * draw.normal(size=len(a))
    return place + 0.3 * draw.normal(size=place.shape), {"a": a, "b": b, "far": far}


def stretch(p: Any, r: Any) -> Any:
    return np.hypot(*(p[r.a] - p[r.b])) - r.far


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_distances_within_one_block(noise: float) -> None:
    """Shifts and iterations of all points change nothing: damping takes care of that."""
    start, rows = network(noise)
    found = sg.fused_least_squares((12, 2), stretch, columns=list(rows)).fit(start, rows)

    def residuals(x: np.ndarray) -> np.ndarray:
        place = x.reshape(12, 2)
        return np.linalg.norm(place[rows["a"]] - place[rows["b"]], axis=1) - rows["far"]

    want = scipy.optimize.least_squares(residuals, start.ravel(), xtol=1e-12, ftol=1e-12)
    assert found.success, found.message
    assert found.cost <= want.cost * (1.0 + 1e-9) + 1e-20
    np.testing.assert_allclose(found.fun, residuals(found.x.ravel()), atol=1e-12)
    np.testing.assert_allclose(found.x.mean(axis=0), start.mean(axis=0), atol=0.05)


def test_both_indices_may_name_the_same_line() -> None:
    rows = {"a": [0, 0, 1, 2], "b": [0, 1, 1, 0], "y": [4.0, 5.0, 6.0, 1.0]}
    found = sg.fused_least_squares(
        3, lambda p, r: p[r.a] + p[r.b] - r.y, columns=list(rows)
    ).fit(np.zeros(3), rows)  # fmt: skip
    np.testing.assert_allclose(found.x, [2.0, 3.0, -1.0], atol=1e-9)


def test_a_block_that_is_read_as_a_whole_too() -> None:
    """Levels that are measured one by one, and their sum in each row as well."""
    rows = {"k": np.array([0, 1, 2, 3, 3]), "y": np.array([1.0, 2.0, 4.0, 3.0, 3.5])}
    model: Any = sg.fused_least_squares(
        4, lambda p, r: [p[r.k] - r.y, 0.5 * np.sum(p) - 6.0], columns=list(rows)
    )
    matrix = np.concatenate([np.eye(4)[rows["k"]], np.full((5, 4), 0.5)])
    want = np.linalg.lstsq(matrix, np.concatenate([rows["y"], np.full(5, 6.0)]), rcond=None)[0]
    np.testing.assert_allclose(model.fit(np.zeros(4), rows).x, want, atol=1e-9)
    _, _, jtj = model.run(np.zeros(4), rows)
    np.testing.assert_allclose(jtj.toarray(), matrix.T @ matrix, rtol=1e-6)


# rows that tell nothing, and limits ---------------------------------------------------------------


def test_lines_that_no_row_looks_up_stay() -> None:
    rows = {"k": [0, 2, 2], "y": [1.0, 2.0, 4.0]}
    found = sg.fused_least_squares(
        {"level": 4, "all": 1}, lambda p, r: p.level[r.k] - r.y, columns=["k", "y"]
    ).fit({"level": np.full(4, 7.0), "all": [5.0]}, rows)
    np.testing.assert_allclose(found.x["level"], [1.0, 7.0, 3.0, 7.0], atol=1e-9)
    assert found.x["all"] == [5.0] and found.success


def test_policies_for_nan() -> None:
    rows = plants()
    gone = rows | {"y": np.where(np.arange(200) % 9 == 0, np.nan, rows["y"])}
    left = {name: v[np.arange(200) % 9 != 0] for name, v in rows.items()}
    models = {
        policy: sg.fused_least_squares(SIZES, growth, columns=list(rows), nan_policy=policy)
        for policy in ("omit", "propagate", "raise")
    }
    found, want = models["omit"].fit(NOTHING, gone), models["omit"].fit(NOTHING, left)
    assert found.cost == pytest.approx(want.cost)
    lost = models["propagate"].fit(NOTHING, gone)
    assert not lost.success and lost.status == -2
    with pytest.raises(InputError, match="rows hold a NaN"):
        models["raise"].fit(NOTHING, gone)


def test_rows_of_weight_0_contribute_nothing() -> None:
    rows = plants()
    idle = np.arange(200) % 4 == 0
    weighted = rows | {"w": np.where(idle, 0.0, 1.0), "y": np.where(idle, np.inf, rows["y"])}
    model = sg.fused_least_squares(SIZES, growth, columns=list(rows), weights="w")
    found = model.fit(NOTHING, weighted)
    want = model.fit(NOTHING, {name: v[~idle] for name, v in (rows | {"w": np.ones(200)}).items()})
    assert found.success and found.cost == pytest.approx(want.cost)


@pytest.mark.parametrize("low", [-0.1, 0.05])
def test_bounds_are_kept(low: float) -> None:
    rows = plants()
    bounds = ({k: np.full_like(v, low) for k, v in NOTHING.items()}, 0.2)
    start = {k: np.full_like(v, 0.1) for k, v in NOTHING.items()}
    found = sg.fused_least_squares(SIZES, growth, columns=list(rows)).fit(
        start, rows, bounds=bounds
    )
    want = scipy.optimize.lsq_linear(design(rows), rows["y"], (low, 0.2), tol=1e-13)
    assert found.success, found.message
    assert found.cost == pytest.approx(want.cost, rel=1e-7)
    flat = np.concatenate([np.ravel(v) for v in found.x.values()])
    assert flat.min() == low and flat.max() == 0.2


def test_no_success_is_claimed_where_steps_ran_out() -> None:
    scene = drawn(4, 20, 3)
    found = model_of(scene).fit(*scene, steps=2)
    assert (found.success, found.status, found.nit) == (False, 0, 2)


def test_no_success_is_claimed_where_the_model_is_flat() -> None:
    """Its exponential underflows: every gradient is 0 there, and the residuals are not."""
    rows = {"k": [0, 0], "x": [1.0, 2.0], "y": [-1.0, -1.0]}
    found = sg.fused_least_squares(
        (1, 1), lambda p, r: np.exp(p[r.k, 0] * r.x) - r.y, columns=list(rows)
    ).fit([[0.0]], rows, steps=2000)
    assert not found.success and found.status in (-1, -3)


def test_what_is_refused() -> None:
    rows = plants()
    model = sg.fused_least_squares(SIZES, growth, columns=list(rows), weights="w")
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"loss": "square"}, 'loss=.square.: use one of "linear"'),
        ({"f_scale": 0.0}, "f_scale=0.0: a positive number"),
        ({"bounds": (1.0, 2.0)}, "the start is outside"),
        ({"bounds": (1.0, 0.0)}, "a lower bound is above"),
        ({"bounds": 3}, "bounds are .low, high."),
        ({"ftol": -1.0}, "ftol=-1.0: a tolerance cannot be negative"),
        ({"steps": 0}, "steps=0"),
        ({"dtype": "float16"}, "dtype='float16' is not a choice"),
    )
    for options, words in cases:
        with pytest.raises(InputError, match=words):
            model.fit(NOTHING, rows, **options)
    with pytest.raises(InputError, match=r"'w' is -1\.0 at row 3: weights of squares"):
        model.fit(NOTHING, rows | {"w": np.where(np.arange(200) == 3, -1.0, 1.0)})
    with pytest.raises(InputError, match="no rows"):
        model.fit(NOTHING, {name: v[:0] for name, v in rows.items()})
    with pytest.raises(InputError, match=r"'field' is 7 at row 0: level has 7 entries"):
        model.fit(NOTHING, {name: v[:1] for name, v in rows.items()} | {"field": [7]})
    with pytest.raises(
        InputError, match=r"sparse normal equations: use kernel\.fit\(start, rows\)"
    ):
        model.minimize(np.zeros(20), sg.LevenbergMarquardt(), rows=rows)
    with pytest.raises(TraceError, match="without its Python function"):
        pickle.loads(pickle.dumps(model)).fit(NOTHING, rows)


@pytest.mark.parametrize("scale", [0.0, 1.0])
def test_errors_of_parameters_without_effect_are_infinite(scale: float) -> None:
    """Also where the fit is exact: infinity times no residuals is infinite."""
    groups = sg.fused_least_squares(
        {"level": 4, "slope": ()}, lambda p, r: p.level[r.group] + p.slope * r.zero - r.y,
        columns=["group", "zero", "y"], device="cpu",
    )  # fmt: skip
    y = np.array([1.0, 1.0, 2.0, 2.0, 3.0, 3.0]) + scale * np.array([0, 1, 0, 1, 0, 1])
    rows = {"group": [0, 0, 1, 1, 2, 2], "zero": np.zeros(6), "y": y}
    found = groups.fit({"level": np.zeros(4), "slope": 0.0}, rows, errors=True)
    want = [scale * np.sqrt(0.25)] * 3 + [np.inf]
    np.testing.assert_allclose(found.errors["level"], want, atol=1e-12)
    assert np.isinf(found.errors["slope"])
