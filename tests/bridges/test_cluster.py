"""Data in blocks of Dask's: the numbers of one machine, also where a worker is killed."""

from __future__ import annotations

import os
import pickle
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.optimize

import symgrad as sg
from symgrad.bridges import cluster as cluster_of_dask
from symgrad.bridges.cluster import Blocks, arrived, kept, tree_sum
from symgrad.fit.curves import TravellingModel

da: Any = pytest.importorskip("dask.array", reason="needs dask")

RNG = np.random.default_rng(3)
ROWS = RNG.normal(size=(1000, 3))
ROWS[:, 2] = 1.5 + 0.7 * np.sin(ROWS[:, 0]) - ROWS[:, 1] + 0.1 * RNG.normal(size=1000)
BLOCKS = da.from_array(ROWS, chunks=(130, 2))
P = [1.0, 0.5, -0.8]


def loss(p: Any, r: Any) -> Any:
    return (p[0] + p[1] * sg.sin(r[0]) + p[2] * r[1] - r[2]) ** 2


def decay(x: Any, amount: Any, rate: Any) -> Any:
    return amount * np.exp(-rate * x)


def kernel(**options: Any) -> Any:
    made = {"row": 3, "device": "cpu", "dtype": "float64"} | options
    return sg.fused_forward_backward(3, loss, **made)


@pytest.fixture(params=["here", "workers"])
def anywhere(request: pytest.FixtureRequest) -> None:
    """Without a client, and with one."""
    if request.param == "workers":
        request.getfixturevalue("client")


def agree(found: Any, want: Any) -> None:
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_sums_are_those_of_one_machine(reduce: str) -> None:
    made = kernel(reduce=reduce)
    bound = made.bind(BLOCKS)
    assert len(bound) == 1000
    agree(bound.run(P), made.run(P, ROWS))


def test_sums_have_the_same_bits_wherever_blocks_are(client: Any) -> None:
    there = kernel().bind(BLOCKS).run(P)
    blocks = [kernel().run(P, ROWS[k : k + 130]) for k in range(0, 1000, 130)]
    assert there[0] == tree_sum([b[0] for b in blocks])
    assert there[1].tolist() == tree_sum([b[1] for b in blocks]).tolist()


def test_blocks_are_shared_out_evenly(client: Any) -> None:
    """Blocks that no worker has yet: each is given its part of them, to within a few."""
    rows = da.random.default_rng(0).uniform(size=(1600, 3), chunks=(100, 3))
    earlier = {key for keys in client.has_what().values() for key in keys}  # of other tests
    bound = kernel().bind(rows)
    bound.run(P)
    blocks = [[k for k in keys if "_bound" in str(k)] for keys in client.has_what().values()]
    held = [len(set(keys) - earlier) for keys in blocks]
    assert sum(held) == 16
    assert min(held) >= 6


def test_bound_blocks_know_their_client(cluster: Any) -> None:
    with cluster.as_current():
        bound = kernel().bind(BLOCKS)
    distributed = pytest.importorskip("distributed", reason="needs distributed")
    with distributed.Client(n_workers=1, processes=False, dashboard_address=":0"):  # the default
        agree(bound.run(P), kernel().run(P, ROWS))
    agree(bound.run(P), kernel().run(P, ROWS))


@pytest.mark.usefixtures("anywhere")
def test_tables_may_be_named_columns() -> None:
    named = lambda p, r: loss(p, [r.a, r.b, r.c])  # noqa: E731
    made = sg.fused_forward_backward(3, named, columns=list("abc"), device="cpu", dtype="float64")
    columns = {"a": BLOCKS[:, 0], "b": BLOCKS[:, 1].rechunk(77), "c": ROWS[:, 2]}
    agree(made.bind(columns).run(P), made.run(P, dict(zip("abc", ROWS.T, strict=True))))


def test_a_data_frame_is_bound_by_its_partitions(client: Any) -> None:
    frames = pytest.importorskip("dask.dataframe", reason="needs dask.dataframe")
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    frame = pandas.DataFrame(ROWS, columns=list("abc"))
    named = lambda p, r: loss(p, [r.a, r.b, r.c])  # noqa: E731
    made = sg.fused_forward_backward(3, named, columns=list("abc"), device="cpu", dtype="float64")
    agree(made.bind(frames.from_pandas(frame, npartitions=5)).run(P), made.run(P, frame))


def test_columns_of_data_frames_are_bound() -> None:
    frames = pytest.importorskip("dask.dataframe", reason="needs dask.dataframe")
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    frame = frames.from_pandas(pandas.DataFrame(ROWS, columns=list("abc")), npartitions=5)
    named = lambda p, r: loss(p, [r.u, r.v, r.w])  # noqa: E731
    made = sg.fused_forward_backward(3, named, columns=list("uvw"), device="cpu", dtype="float64")
    found = made.bind({"u": frame.a, "v": frame.b, "w": frame["c"]}).run(P)
    agree(found, kernel().run(P, ROWS))
    with pytest.raises(sg.InputError, match="column 'w' is not cut as they are"):
        made.bind({"u": frame.a, "v": frame.b, "w": ROWS[:, 2]})


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"a": BLOCKS[:, 0], "b": ROWS[:-1, 1]}, "column 'b' has 999 rows beside 1000"),
        ({"a": BLOCKS[:, 0], "b": BLOCKS[:-1, 1]}, "column 'b' has 999 rows beside 1000"),
        ({"a": BLOCKS, "b": ROWS[:, 1]}, r"a has shape \(1000, 3\)"),
        ({"a": BLOCKS[:, 0], "b": BLOCKS[200:, 1][BLOCKS[200:, 0] > 0]}, "compute_chunk_sizes"),
    ],
)
def test_columns_that_do_not_go_together_are_refused(columns: Any, text: str) -> None:
    made = sg.fused_forward_backward(2, lambda p, r: p[0] * r.a, columns=list("ab"), device="cpu")
    with pytest.raises(sg.InputError, match=text):
        made.bind(columns)


def test_a_worker_whose_device_cannot_run_a_kernel_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYMGRAD_DEVICE", "nowhere")
    with pytest.raises(sg.DeviceError, match=r"SYMGRAD_DEVICE is 'nowhere': .*SYMGRAD_DEVICE=cpu"):
        arrived(pickle.dumps(kernel(reduce="mean")))


def test_other_derivatives_are_summed_too(client: Any) -> None:
    made = sg.fused_hessian(3, loss, row=3, device="cpu", dtype="float64")
    agree(made.bind(BLOCKS).run(P), made.run(P, ROWS))


def test_a_worker_that_is_killed_costs_time_and_not_the_result(client: Any) -> None:
    bound = kernel(reduce="mean").bind(BLOCKS)
    fun, calls = bound.as_scipy(), 0

    def watched(x: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3:
            os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        return fun(x)

    want = scipy.optimize.minimize(fun, np.zeros(3), jac=True)
    found = scipy.optimize.minimize(watched, np.zeros(3), jac=True)
    assert calls > 4 and found.x.tolist() == want.x.tolist() and found.fun == want.fun


def test_the_only_worker_may_be_killed() -> None:
    """Dask starts another one, by another address."""
    distributed = pytest.importorskip("distributed", reason="needs distributed")
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as one,
        distributed.Client(one) as client,
    ):
        bound = kernel().bind(BLOCKS)
        want = bound.run(P)
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        found = bound.run(P)
    assert found[0] == want[0] and found[1].tolist() == want[1].tolist()


def held_blocks(rows: Any) -> Blocks:
    return kept(kernel(), list(rows.rechunk({1: -1}).to_delayed().ravel()), False)


def killed_once(rows: Any, flat: np.ndarray, done: Path) -> Any:
    """The sums of rows; the first worker that is asked is killed in the midst of it."""
    with suppress(FileExistsError):
        done.touch(exist_ok=False)
        os.kill(os.getpid(), signal.SIGKILL)
    return rows.totals(flat).parts[0]


def test_a_worker_may_be_killed_in_the_middle_of_a_call(client: Any, tmp_path: Path) -> None:
    blocks = held_blocks(BLOCKS)
    done = tmp_path / "done"
    found = blocks.ask(killed_once, np.array(P), done)
    assert done.exists()
    for k, sums in zip(range(0, 1000, 130), found, strict=True):
        value, gradient = kernel().run(P, ROWS[k : k + 130])
        assert sums.tolist() == [value, *gradient]


def waited(rows: Any, seconds: float) -> int:
    """The number of rows, after a while."""
    time.sleep(seconds)
    return rows.count


def test_a_call_may_take_longer_than_a_look(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_of_dask, "SECONDS_BETWEEN_LOOKS", 0.01)
    blocks = held_blocks(BLOCKS[:300])
    assert blocks.ask(waited, 0.1) == [130, 130, 40]


def refused(rows: Any) -> None:
    raise OSError(f"no answer for {rows.count} rows")


def test_what_goes_wrong_at_a_block_is_raised(client: Any) -> None:
    """Also what looks as if a worker were lost."""
    blocks = held_blocks(BLOCKS)
    with pytest.raises(OSError, match="no answer for 130 rows"):
        blocks.ask(refused)


def test_blocks_that_were_cancelled_are_missed(client: Any) -> None:
    bound = kernel().bind(BLOCKS)
    distributed = pytest.importorskip("distributed", reason="needs distributed")
    client.cancel([distributed.Future(k, client) for k in [*client.futures]], force=True)
    with pytest.raises(sg.DeviceError, match="bind the collection again"):
        bound.run(P)


def test_what_is_wrong_with_a_block_is_told(client: Any) -> None:
    bad = ROWS.copy()
    bad[700, 1] = np.nan
    with pytest.raises(sg.InputError, match="NaN"):
        kernel(nan_policy="raise").bind(da.from_array(bad, chunks=(100, 3)))
    with pytest.raises(sg.InputError, match="3 dimensions"):
        kernel().bind(BLOCKS[None])
    looked = sg.fused_forward_backward(
        {"t": (4,)}, lambda p, r: p["t"][r.k] * r.y, columns=["k", "y"], device="cpu"
    )
    with pytest.raises(sg.InputError, match="has 4 entries"):
        looked.bind({"k": da.arange(5, chunks=2), "y": da.ones(5, chunks=2)})


def test_steps_in_a_kernel_need_data_of_one_machine() -> None:
    with pytest.raises(sg.InputError, match=r"bind\(rows\)\.as_scipy\(\)"):
        kernel().minimize(np.zeros(3), sg.LBFGS(), rows=BLOCKS)


def test_what_is_no_table_of_points_is_refused() -> None:
    made = sg.fused_jacobian(3, lambda v: [v[0], v[1] * v[2]], sparse=True, device="cpu")
    with pytest.raises(sg.InputError, match="sparse=False"):
        made.run(BLOCKS)
    named = sg.fused_forward({"a": (), "b": ()}, lambda v: v["a"] * v["b"], device="cpu")
    with pytest.raises(sg.InputError, match=r"x is a dict: .* dask\.array\.stack"):
        named.run({"a": BLOCKS[:, 0], "b": BLOCKS[:, 1]})


def test_points_in_blocks_are_run_when_they_are_asked_for(client: Any) -> None:
    made = sg.fused_forward(3, lambda v: {"a": v[0] * v[1], "b": [v[2], sg.exp(v)]}, device="cpu")
    found = made.run(BLOCKS)
    want = made.run(ROWS)
    assert found["b"][1].shape == (1000, 3) and found["b"][1].dtype == np.float32
    assert found["b"][1].numblocks == (8, 1)
    for a, b in ((found["a"], want["a"]), *zip(found["b"], want["b"], strict=True)):
        np.testing.assert_array_equal(a.compute(), b)
    with pytest.raises(sg.InputError, match=r"points in blocks are \(B, 3\)"):
        made.run(BLOCKS[0])


def test_results_go_to_disk_block_by_block(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr", reason="needs zarr")
    made = sg.fused_forward(3, lambda v: v[0] * v[1], device="cpu")
    made.run(BLOCKS).to_zarr(str(tmp_path / "values.zarr"))
    stored = zarr.open_array(str(tmp_path / "values.zarr"), mode="r")
    np.testing.assert_array_equal(stored[:], made.run(ROWS))
    assert stored.chunks[0] == 130


T = np.linspace(0.0, 3.0, 20)
TRUE = RNG.uniform(0.5, 2.0, (50, 2))
CURVES = decay(T, TRUE[:, :1], TRUE[:, 1:]) + 0.01 * RNG.normal(size=(50, 20))


@pytest.mark.usefixtures("anywhere")
@pytest.mark.parametrize(
    ("x", "options"),
    [
        (T, {"p0": [1.0, 1.0]}),
        (T, {"covariance": True, "bounds": {"rate": (0.0, 5.0)}}),
        (T[None], {"p0": TRUE, "sigma": 1.0 + T, "f": lambda x, a, b: decay(x[0], a, b)}),
        (np.tile(T, (50, 1)), {"sigma": np.tile(1.0 + T, (50, 1)), "nan_policy": "omit"}),
        (da.from_array(np.tile(T, (50, 1)), chunks=(13, 20)), {"p0": {"amount": TRUE[:, 0]}}),
    ],
    ids=["one start", "covariance", "starts", "own x", "x in blocks"],
)
def test_curves_in_blocks_are_fitted_as_all_at_once(x: Any, options: dict[str, Any]) -> None:
    f = options.get("f", decay)
    options = {name: value for name, value in options.items() if name != "f"}
    found = sg.fit_many(f, x, da.from_array(CURVES, chunks=(13, 7)), device="cpu", **options)
    want = sg.fit_many(f, np.asarray(x), CURVES, device="cpu", **options)
    assert found.x.numblocks == (4, 1) and found.x.shape == (50, 2)
    for name in ("x", "fun", "nit", "success", "status", *(["cov"] if "cov" in want else [])):
        np.testing.assert_allclose(found[name].compute(), want[name], rtol=1e-12)


def test_curves_of_a_data_frame_go_to_parquet(tmp_path: Path) -> None:
    frames = pytest.importorskip("dask.dataframe", reason="needs dask.dataframe")
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    curves = frames.from_pandas(pandas.DataFrame(CURVES), npartitions=3)
    found = sg.fit_many(decay, T, curves, [1.0, 1.0], device="cpu")
    table = frames.from_dask_array(found.x, columns=["amount", "rate"])
    table.to_parquet(tmp_path / "fits")
    stored = pandas.read_parquet(tmp_path / "fits")
    want = sg.fit_many(decay, T, CURVES, [1.0, 1.0], device="cpu")
    np.testing.assert_array_equal(stored.to_numpy(), want.x)


def test_models_travel_as_expressions() -> None:
    model = pickle.loads(pickle.dumps(TravellingModel(lambda x, a, b: decay(x, a, b), None, 2)))
    np.testing.assert_allclose(model(T, 2.0, 0.7), decay(T, 2.0, 0.7), rtol=1e-15)
    x, a, b = sg.symbols("x a b")
    assert sg.text(model(x, a, b)) == sg.text(decay(x, a, b))


def test_what_fits_in_blocks_refuse() -> None:
    curves = da.from_array(CURVES, chunks=(13, 20))
    with pytest.raises(sg.InputError, match="progress: curves in blocks"):
        sg.fit_many(decay, T, curves, progress=True)
    unknown = curves[curves[:, 0] > 0]
    with pytest.raises(sg.InputError, match="compute_chunk_sizes"):
        sg.fit_many(decay, T, unknown, TRUE, device="cpu")
    with pytest.raises(sg.InputError, match="p0 has 60 rows beside 50"):
        sg.fit_many(decay, T, curves, np.ones((60, 2)), device="cpu")
    with pytest.raises(sg.InputError, match=r"Y has shape \(20,\)"):
        sg.fit_many(decay, T, curves[0], device="cpu")
    found = sg.fit_many(decay, T, unknown, [1.0, 1.0], device="cpu")
    assert found.x.compute().shape == (50, 2)


def test_arrays_of_xarray_stay_in_blocks() -> None:
    xr = pytest.importorskip("xarray", reason="needs xarray")
    whole = xr.DataArray(CURVES.reshape(5, 10, 20), {"time": T}, ("lat", "lon", "time"))
    found = sg.fit_many(decay, "time", whole.chunk(lat=2), device="cpu")
    want = sg.fit_many(decay, "time", whole, device="cpu")
    assert found.parameters.chunks is not None
    for name in want.data_vars:
        np.testing.assert_allclose(found[name], want[name], rtol=1e-12)


@pytest.mark.filterwarnings("ignore:who holds 1 labels")
@pytest.mark.usefixtures("anywhere")
def test_labels_have_one_number_in_all_blocks() -> None:
    """A worker that meets other labels first would number them otherwise."""
    names = np.array(["b"] * 10 + ["a"] * 10)
    table = {"who": da.from_array(names, chunks=10), "y": da.from_array(np.ones(20), chunks=10)}
    options: Any = {"columns": ["who", "y"], "device": "cpu"}
    f = lambda p, r: p[r.who] * r.y  # noqa: E731
    with pytest.raises(sg.InputError, match="who holds "):
        sg.fused_forward_backward(2, f, **options).bind(table).run([1.0, 2.0])
    made = sg.fused_forward_backward(2, f, codes={"who": ["a", "b"]}, **options)
    assert made.bind(table).run([1.0, 2.0])[0] == 30.0
