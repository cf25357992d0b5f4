"""Loops and choices in losses over data: on every device the sums of what each row is alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from flow import FLOWS, Flow
from kernel.test_stage import reduction
from reference_kernels import reduce_rows

import symgrad as sg
from symgrad.errors import DeviceError, InputError
from symgrad.kernel.language.execute import execute
from symgrad.kernel.language.target import SimdTarget
from symgrad.kernel.language.verify import verify
from symgrad.kernel.skeletons.row_sums_workgroup import row_sums_workgroup
from symgrad.kernel.skeletons.row_tile import tiles
from symgrad.kernel.skeletons.sums_in_lanes import row_sums_simd
from symgrad.wgsl.dispatch.sums import emit_reduction
from symgrad.wgsl.printing.source import Style

PARAMETERS = [0.5, 0.3, 1.2]


def euler(p: Any, r: Any, steps: int = 40) -> Any:
    def step(_: Any, s: Any) -> Any:
        return s + (p[0] * s - p[1] * sg.sin(s * r[0])) / steps

    return (sg.fori_loop(0, steps, step, p[2] * r[1]) - r[2]) ** 2


def unrolled(p: Any, r: Any, steps: int = 40) -> Any:
    s = p[2] * r[1]
    for _ in range(steps):
        s = s + (p[0] * s - p[1] * sg.sin(s * r[0])) / steps
    return (s - r[2]) ** 2


def table(count: int, columns: int = 3) -> np.ndarray:
    return np.random.default_rng(count).uniform(0.2, 1.0, (count, columns))


def close(found: Any, want: Any, device: str, dtype: str) -> None:
    slack = 1e-12 if dtype == "float64" else 2e-5
    np.testing.assert_allclose(found[0], want[0], rtol=slack)
    np.testing.assert_allclose(found[1], want[1], rtol=slack, atol=slack * np.abs(want[1]).max())


DEVICES = [("cpu", "float64"), ("cpu", "float32"), ("gpu", "float32")]


@pytest.mark.parametrize(("device", "dtype"), DEVICES)
@pytest.mark.parametrize("count", [1, 16, 17, 1003])
def test_a_loop_has_the_sums_of_its_turns_written_out(device: Any, dtype: Any, count: int) -> None:
    looped = sg.fused_forward_backward(3, euler, row=3, device=device, dtype=dtype)
    plain = sg.fused_forward_backward(3, unrolled, row=3, device="cpu", dtype="float64", roll=False)
    rows = table(count)
    close(looped.run(PARAMETERS, rows), plain.run(PARAMETERS, rows), device, dtype)


def over_rows(flow: Flow) -> tuple[int, Any]:
    """A flow whose first numbers are parameters, and the others a row's."""
    count = (flow.n + 1) // 2

    def loss(p: Any, r: Any) -> Any:
        at = [*(p[k] for k in range(count)), *(r[k] for k in range(flow.n - count))]
        return flow.f(sg.array(at) if hasattr(sg, "array") else np.array(at))

    return count, loss


@pytest.mark.parametrize(("device", "dtype"), DEVICES)
@pytest.mark.parametrize("name", sorted(n for n, f in FLOWS.items() if f.n > 1))
def test_sums_are_those_of_points(name: str, device: Any, dtype: Any) -> None:
    flow = FLOWS[name]
    count, loss = over_rows(flow)
    points = flow.points(37)
    points[:, :count] = points[0, :count]
    reference = sg.fused_forward_backward(flow.n, flow.f, device="cpu", dtype="float64")
    values, slopes = reference.run(points)
    columns = flow.n - count
    kernel = sg.fused_forward_backward(count, loss, row=columns, device=device, dtype=dtype)
    found = kernel.run(points[0, :count], points[:, count:])
    close(found, (values.sum(), slopes[:, :count].sum(0)), device, dtype)


def test_weights_and_means() -> None:
    kernel, plain = (
        sg.fused_forward_backward(3, f, row=4, weights=3, reduce="mean", device="cpu")
        for f in (euler, unrolled)
    )
    rows = table(100, 4)
    rows[::3, 3] = 0.0
    close(kernel.run(PARAMETERS, rows), plain.run(PARAMETERS, rows), "cpu", "float32")


def test_derivatives_of_second_order_and_squares() -> None:
    rows = table(50)
    for make in (sg.fused_hessian, sg.fused_jacobian):
        found, want = (
            make(3, f, row=3, device="cpu", dtype="float64").run(PARAMETERS, rows)
            for f in (euler, unrolled)
        )
        for a, b in zip(found, want, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11)
    fits = [
        sg.fused_least_squares(3, f, row=3, device="cpu", dtype="float64").fit(PARAMETERS, rows)
        for f in (euler, unrolled)
    ]
    np.testing.assert_allclose(fits[0].x, fits[1].x, rtol=1e-8)


def test_what_loops_keep_on_a_gpu_may_be_more_than_variables_hold() -> None:
    def long(p: Any, r: Any) -> Any:
        return euler(p, r, 300)

    gpu, cpu = (
        sg.fused_forward_backward(3, long, row=3, device=device) for device in ("gpu", "cpu")
    )
    assert "scratch" in gpu.wgsl
    rows = table(5000)
    close(gpu.run(PARAMETERS, rows), cpu.run(PARAMETERS, rows), "gpu", "float32")


def test_rows_of_an_invocation_are_fewer_where_loops_are_long() -> None:
    """Some drivers end all loops of an invocation after 65,535 iterations together."""
    most = {
        steps: emit_reduction(reduction(lambda p, r, n=steps: euler(p, r, n), 3, 3), Style())
        for steps in (40, 2_000, 10_000)
    }
    iterations = {steps: module.printed.iterations for steps, (module,) in most.items()}
    rows = {steps: module.program.most for steps, (module,) in most.items()}
    assert max(iterations.values()) <= 60_000
    assert rows[40] == 128 and 1 <= rows[10_000] <= rows[2_000] < 128


def test_loops_that_a_driver_would_end_are_refused_there() -> None:
    def endless(p: Any, r: Any) -> Any:
        return sg.fori_loop(0, 70_000, lambda _, s: s * p[0], r[0])

    kernel = sg.fused_forward(3, endless, row=3, device="cpu")
    if sg.devices()[-1].kind == "software":
        with pytest.raises(DeviceError, match="ends the loops of a kernel"):
            kernel.to("gpu")


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("count", [1, 70, 3000])
def test_loops_over_looked_up_lines(device: Any, count: int) -> None:
    """Decay at a rate of the row's place, towards a level that all rows share."""

    def loss(p: Any, r: Any) -> Any:
        rate, start = p.rate[r.place], p.start[r.site]
        end = sg.fori_loop(0, 20, lambda k, s: s + 0.1 * rate * (p.level - s), start)
        return (end - r.y) ** 2

    draw = np.random.default_rng(count)
    table = {"place": draw.integers(0, 5, count), "site": draw.integers(0, 40, count),
             "y": draw.uniform(size=count)}  # fmt: skip
    p = {"rate": draw.uniform(0.5, 1.5, 5), "start": draw.uniform(size=40), "level": 0.3}
    shapes = {"rate": (5,), "start": (40,), "level": ()}
    kernel = sg.fused_forward_backward(shapes, loss, columns=list(table), device=device)
    found, slopes = kernel.run(p, table)

    rate, start = p["rate"][table["place"]], p["start"][table["site"]]
    q = 1 - 0.1 * rate
    end = p["level"] + (start - p["level"]) * q**20
    wrong = end - table["y"]
    by_rate = 2 * wrong * (start - p["level"]) * 20 * q**19 * -0.1
    want = {"rate": np.bincount(table["place"], by_rate, 5),
            "start": np.bincount(table["site"], 2 * wrong * q**20, 40),
            "level": np.sum(2 * wrong * (1 - q**20))}  # fmt: skip
    np.testing.assert_allclose(found, np.sum(wrong**2), rtol=1e-5)
    for name, slope in want.items():
        scale = np.abs(slope).max()
        np.testing.assert_allclose(slopes[name], slope, rtol=1e-4, atol=2e-5 * scale)


@pytest.mark.parametrize("count", [1, 9, 100])
@pytest.mark.parametrize("block", [3, 8])
def test_groups_in_the_interpreter(count: int, block: int) -> None:
    made = reduction(lambda p, r: euler(p, r, 5), 3, 3)
    (tile,) = tiles(made)
    kernel = row_sums_workgroup(tile, 64, block)
    verify(kernel)
    p, rows, groups, results = np.array(PARAMETERS), table(count), 3, 4
    sums = np.full(results * (1 + groups), np.nan)
    execute(kernel, {"rows": rows, "parameters": p, "partials": sums}, count, groups)
    found = sums[:results] * sums[results:].reshape(results, groups).sum(axis=1)
    np.testing.assert_allclose(found, reduce_rows(made, p, rows), rtol=1e-12)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_parameters_and_columns_that_are_first_read_in_a_branch(device: Any) -> None:
    """Only one side is computed: the logarithm of no row is NaN."""

    def loss(p: Any, r: Any) -> Any:
        return sg.cond(r[0] > 0, lambda: p[0] * sg.log(r[0]) * r[1], lambda: p[1] * r[0] ** 2)

    rows = np.random.default_rng(0).uniform(-1, 1, (100, 2))
    x, y = rows.T
    kernel = sg.fused_forward_backward(2, loss, row=2, device=device)
    logs, squares = (np.log(np.abs(x)) * y)[x > 0].sum(), (x[x <= 0] ** 2).sum()
    value, slopes = kernel.run([0.5, 0.7], rows)
    np.testing.assert_allclose(value, 0.5 * logs + 0.7 * squares, rtol=1e-5)
    np.testing.assert_allclose(slopes, [logs, squares], rtol=1e-5)


def test_many_results_of_loops_are_summed_in_several_modules() -> None:
    def loss(p: Any, r: Any) -> Any:
        def step(_: Any, s: Any) -> Any:
            x, y = s
            return x + 0.01 * sg.sin(y * p[0] + p[1]), y + 0.01 * (x * p[2] - r[0] * p[3]) * p[4]

        x, y = sg.fori_loop(0, 9, step, (p[5] * r[1] + p[6], p[7] * r[0] + p[8]))
        return (p[9] * x + p[10] * y - p[11]) ** 2

    p, rows = np.random.default_rng(0).uniform(0.3, 1.0, 12), table(70, 2)
    gpu, cpu = (sg.fused_hessian(12, loss, row=2, device=device) for device in ("gpu", "cpu"))
    assert len(gpu.modules) == 2
    for a, b in zip(gpu.run(p, rows), cpu.run(p, rows), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5 * np.abs(b).max())


VERBS = {
    "sum": lambda f, **o: sg.fused_forward_backward(3, f, row=3, device="cpu", **o),
    "each row": lambda f, **o: sg.fused_forward_backward(
        3, f, row=3, reduce=None, device="cpu", **o
    ),
    "squares": lambda f, **o: sg.fused_least_squares(3, f, row=3, device="cpu", **o),
    "hessian": lambda f, **o: sg.fused_hessian(3, f, row=3, device="cpu", **o),
}


@pytest.mark.parametrize("verb", VERBS)
def test_loops_keep_what_is_asked_for(verb: str) -> None:
    whole, strips = (VERBS[verb](euler, checkpoint=choice) for choice in ("keep", 8))
    assert not whole.stats.strips and strips.stats.strips == (8,)
    assert strips.stats.kept < whole.stats.kept
    for a, b in zip(*(k.run(PARAMETERS, table(40)) for k in (whole, strips)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("verb", VERBS)
def test_constants_that_float32_cannot_hold_are_refused(verb: str) -> None:
    def large(p: Any, r: Any) -> Any:
        return (p[0] * r[0] * 1e39 - r[1]) ** 2

    with pytest.raises(InputError, match=r"1e\+39 is beyond float32"):
        VERBS[verb](large)
    VERBS[verb](large, dtype="float64")


# parameters that loops index ----------------------------------------------------------------------

KINDS, SIZE = 5, 6
MIXTURE = {"weight": (KINDS,), "mean": (KINDS, SIZE), "factor": (KINDS, SIZE, SIZE)}


def mixture(p: Any, r: Any) -> Any:
    """The log-density of a mixture of Gaussians, with factors of their precisions."""
    x = np.array([r[c] for c in range(SIZE)])

    def add(k: Any, total: Any) -> Any:
        z = p["factor"][k] @ (x - p["mean"][k])
        return np.logaddexp(total, p["weight"][k] - 0.5 * np.sum(z * z))

    return sg.fori_loop(0, KINDS, add, -1e30)


def mixture_of(p: dict[str, np.ndarray], rows: np.ndarray) -> tuple[float, dict[str, np.ndarray]]:
    """The sum of it over rows, and its gradient, by hand."""
    c = rows[:, None, :] - p["mean"]
    z = np.einsum("kij,nkj->nki", p["factor"], c)
    terms = p["weight"] - 0.5 * np.sum(z * z, axis=2)
    total = np.logaddexp.reduce(terms, axis=1)
    share = np.exp(terms - total[:, None])
    return total.sum(), {
        "weight": share.sum(0),
        "mean": np.einsum("nk,kij,nki->kj", share, p["factor"], z),
        "factor": -np.einsum("nk,nki,nkj->kij", share, z, c),
    }


@pytest.mark.parametrize(("device", "dtype"), DEVICES[:2])
@pytest.mark.parametrize("count", [1, 7, 300, 1003])
@pytest.mark.parametrize("weights", [None, SIZE])
def test_a_loop_indexes_parameters(
    device: Any, dtype: Any, count: int, weights: int | None
) -> None:
    draw = np.random.default_rng(5)
    p = {name: draw.normal(size=shape) for name, shape in MIXTURE.items()}
    rows = draw.normal(size=(count, SIZE + 1))
    rows[:, SIZE] = np.arange(count) % 3 != 1  # without weight the values may be anything
    rows[1::3, :SIZE] *= 1.0 if weights is None else np.inf
    kernel = sg.fused_forward_backward(
        MIXTURE, mixture, row=SIZE + 1, device=device, dtype=dtype, weights=weights
    )
    counted = rows if weights is None else rows[rows[:, SIZE] > 0]
    found, want = kernel.run(p, rows), mixture_of(p, counted[:, :SIZE])
    slack = 1e-12 if dtype == "float64" else 2e-5
    assert found[0] == pytest.approx(want[0], rel=slack)
    for name, slope in want[1].items():
        most = np.abs(slope).max()
        np.testing.assert_allclose(found[1][name], slope, rtol=slack, atol=slack * most)


@pytest.mark.parametrize("weights", [None, SIZE])
def test_slopes_of_indexed_parameters_are_added_where_they_are_summed(weights: Any) -> None:
    kernel = sg.fused_forward_backward(
        MIXTURE, mixture, row=SIZE + 1, device="cpu", weights=weights
    )
    made = row_sums_simd(kernel._traced.reduction, SimdTarget(8))
    verify(made)
    own = {b.name: b.size for b in made.buffers if b.space == "own"}
    sizes = sorted(size for name, size in own.items() if name.startswith("slopes"))
    assert sizes == [KINDS, KINDS * SIZE, KINDS * SIZE * SIZE]
    assert not [name for name, size in own.items() if name.startswith("array") and size > KINDS]
    assert len(made.graph) < 1500, "results are stored by loops"


def test_slopes_that_are_read_again_are_no_sums() -> None:
    def loss(p: Any, r: Any) -> Any:
        total = sg.fori_loop(0, 30, lambda k, t: t + p["a"][k] * r[0], 0.0)
        return total**2 + p["a"][3] * r[0]

    kernel = sg.fused_forward_backward({"a": (30,)}, loss, row=1, device="cpu", dtype="float64")
    a, rows = np.linspace(-1.0, 2.0, 30), table(50, 1)
    value, slopes = kernel.run({"a": a}, rows)
    x = rows[:, 0]
    assert value == pytest.approx(np.sum((a.sum() * x) ** 2 + a[3] * x), rel=1e-12)
    want = np.full(30, np.sum(2 * a.sum() * x**2)) + (np.arange(30) == 3) * x.sum()
    np.testing.assert_allclose(slopes["a"], want, rtol=1e-12)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_an_index_of_parameters_may_stand_behind_another(device: Any) -> None:
    def loss(p: Any, r: Any) -> Any:
        return sg.fori_loop(0, 3, lambda k, t: t + p[1, k] * p[k, 0] * r[0] ** k, 0.0)

    kernel = sg.fused_forward_backward((3, 3), loss, row=1, device=device)
    p, rows = np.arange(1.0, 10.0).reshape(3, 3), table(20, 1)
    powers = np.sum(rows ** np.arange(3), axis=0)
    value, slopes = kernel.run(p, rows)
    want = np.zeros((3, 3))
    want[1] += p[:, 0] * powers
    want[:, 0] += p[1] * powers
    assert value == pytest.approx(np.sum(p[1] * p[:, 0] * powers), rel=1e-6)
    np.testing.assert_allclose(slopes, want, rtol=1e-5)
