"""Where states are makes no difference: kept or streamed, on the host or on a device."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from iterations import compiled
from machines import code_sizes
from optimize.problems import DOUBLE, rosenbrock, rosenbrock_residuals
from paces import pace

import symgrad as sg
from symgrad.expr.graph.node import reachable
from symgrad.kernel.skeletons.steps import iterate_launch
from symgrad.optimize.method import Bounds
from symgrad.optimize.problem import Problem, iteration
from symgrad.optimize.result import MESSAGES, Messages
from symgrad.pipeline import DTypeName, Options
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.dispatch.compiled import printed_kernel, steps_target
from symgrad.wgsl.printing.source import Style

STARTS = np.random.default_rng(0).normal(size=(1003, 2)).astype(np.float32)
METHODS = [sg.Adam(0.02), sg.LBFGS(3), sg.LevenbergMarquardt()]
FIELDS = "x", "fun", "nit", "status", "success"
HAS_GPU = sg.devices()[0].is_gpu
needs_gpu = pytest.mark.skipif(not HAS_GPU, reason="no GPU")


def by_name(method: Any) -> str:
    return type(method).__name__


def loss_of(method: Any) -> Any:
    return rosenbrock_residuals if method.needs == "squares" else rosenbrock


def require_same(found: Any, want: Any) -> None:
    for name in FIELDS:
        np.testing.assert_array_equal(np.asarray(found[name]), np.asarray(want[name]), name)


@pytest.mark.parametrize("count", [0, 1, 15, 1003])
@pytest.mark.parametrize("method", METHODS, ids=by_name)
def test_streamed_states_end_as_kept_ones(method: Any, count: int) -> None:
    starts = STARTS[:count]
    with code_sizes(near_bytes=8192):
        found = sg.minimize_from(loss_of(method), 2, starts, method, 60, device="cpu")
    kept = sg.minimize_from(loss_of(method), 2, starts, method, 60, device="cpu", memory=True)
    require_same(found, kept)
    assert "memory" not in found
    assert all(len(part) == count for part in kept.memory)
    assert found.x.dtype == found.fun.dtype == np.float32


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_streamed_data_of_each_problem(dtype: DTypeName) -> None:
    rates, x = np.linspace(0.3, 2.0, 501), np.linspace(0.0, 3.0, 7)
    own = np.exp(-np.outer(rates, x))[:, :, None]

    def minimized(method: Any, **options: Any) -> Any:
        residual = lambda p, r: sg.exp(-p[0] * r[0]) - r[1]  # noqa: E731
        square = lambda p, r: residual(p, r) ** 2  # noqa: E731
        f = residual if method.needs == "squares" else square
        shared = x[:, None]
        return sg.minimize_from(
            f, 1, np.ones((501, 1)), method, 300, shared=shared, own=own, device="cpu",
            dtype=dtype, **options,
        )  # fmt: skip

    for method in (sg.LevenbergMarquardt(), sg.Momentum(0.02)):
        with code_sizes(near_bytes=8192):
            found = minimized(method)
        require_same(found, minimized(method, memory=True))
        np.testing.assert_allclose(found.x[:, 0], rates, rtol=2e-3)
        assert (found.fun < 1e-5).all()


def operations(method: Any, f: Any, n: int, **options: Any) -> list[dict[str, int]]:
    """How often each operation stands in the update of each iteration."""
    found: list[dict[str, int]] = []

    def counted(made: Any) -> Any:
        graph, counts = made.update.graph, dict[str, int]()
        for i in reachable(graph, [i for o in made.update.outputs for i in o.nodes]):
            name = graph.nodes[i][0].name
            counts[name] = counts.get(name, 0) + 1
        found.append(counts)
        return compiled(made)

    sg.minimize_from(f, n, np.ones((1, n)), method, 3, runner=counted, device="cpu", **options)
    return found


def test_rules_without_tolerances_compute_the_loss_in_the_end() -> None:
    f = lambda v: sg.log(v[0]) + v[0]  # noqa: E731
    steps, end = operations(sg.GradientDescent(0.1), f, 1)
    assert "log" not in steps and "log" in end
    assert "log" in operations(sg.GradientDescent(0.1), f, 1, history=True)[0]
    assert "log" in operations(sg.GradientDescent(0.1), f, 1, tol=1e-3)[0]
    assert len(operations(sg.LBFGS(), f, 1)) == 1


def test_losses_without_a_value_are_found_at_the_end() -> None:
    rule = sg.GradientDescent(0.125)
    loss = lambda v: v[0] + sg.where(v[0] < 0.0, np.inf, 0.0)  # noqa: E731
    found = sg.minimize_from(loss, 1, [[-1.0], [4.0]], rule, 3, **DOUBLE)
    assert found.status.tolist() == [-2, 0]
    assert found.nit.tolist() == [3, 3]
    assert np.isinf(found.fun[0]) and found.best == 1


def test_gradients_without_a_value_end_a_descent_where_it_is() -> None:
    rule = sg.GradientDescent(0.125)
    found = sg.minimize_from(lambda v: sg.sqrt(v[0]), 1, [[0.0], [4.0]], rule, 3, **DOUBLE)
    assert found.status.tolist() == [-2, 0]
    assert found.nit.tolist() == [0, 3]
    assert found.x[0, 0] == 0.0
    assert found.best == 1


def test_a_step_of_levenberg_and_marquardt_has_a_quotient_and_a_root_for_each_variable() -> None:
    (update,) = operations(
        sg.LevenbergMarquardt(), lambda p, r: sum(p) * r[0], 5, shared=np.ones((6, 1))
    )
    assert sum(update.get(name, 0) for name in ("div", "reciprocal")) <= 6
    assert update["sqrt"] <= 5 + 5
    assert sum(update.values()) - update["const"] - update["input"] <= 537


@pytest.mark.parametrize(("dtype", "unit"), [("float32", 1e-14), ("float64", 1e-100)])
def test_levenberg_and_marquardt_in_any_unit(dtype: DTypeName, unit: float) -> None:
    x = np.linspace(0.0, 2.0, 20)
    rows = np.stack([x, 3.0 * np.exp(-0.5 * x)], axis=1)
    found = sg.minimize_from(
        lambda p, r: p[0] * unit * sg.exp(-p[1] * r[0]) + 0.0 * p[2] - r[1], 3,
        [[1.0 / unit, 1.0, 7.0]], sg.LevenbergMarquardt(), 60, shared=rows, device="cpu",
        dtype=dtype,
    )  # fmt: skip
    np.testing.assert_allclose(found.x[0], [3.0 / unit, 0.5, 7.0], rtol=1e-4)
    assert found.success[0]


def test_messages_are_made_when_they_are_asked_for() -> None:
    found = Messages(np.array([0, 1, -2, 1]))
    assert len(found) == 4
    assert found[2] == MESSAGES[-2]
    assert list(found[1:3]) == [MESSAGES[1], MESSAGES[-2]]
    assert np.array(found).tolist() == [MESSAGES[s] for s in (0, 1, -2, 1)]
    assert "2 x the gradient" in repr(found)


@pytest.mark.parametrize("values", [[2.0, np.nan, 1.0], [-np.inf, 2.0, 1.0], [np.inf, 3.0, 1.0]])
def test_the_best_is_finite(values: list[float]) -> None:
    starts = np.array(values)[:, None]
    assert sg.minimize_from(lambda v: v[0], 1, starts, sg.Momentum(0.0), 0, **DOUBLE).best == 2


@pytest.mark.parametrize("device", ["cpu", pytest.param("gpu", marks=needs_gpu)])
def test_progress_is_shown(device: Any, capsys: Any) -> None:
    options: dict[str, Any] = {"device": device}
    quiet = sg.minimize_from(rosenbrock, 2, STARTS, sg.Adam(0.02), 300, **options)
    shown = capsys.readouterr()
    assert not shown.out and not shown.err
    with pace():
        found = sg.minimize_from(
            rosenbrock, 2, STARTS, sg.Adam(0.02), 300, progress=True, **options
        )
    assert "300 of 300 steps" in capsys.readouterr().err
    require_same(found, quiet)


@needs_gpu
def test_to_see_how_far_a_run_is_one_number_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    read, numpy = list[int](), DeviceArray.numpy
    monkeypatch.setattr(DeviceArray, "numpy", lambda a: (read.append(a.size), numpy(a))[1])
    sg.minimize_from(
        rosenbrock, 2, STARTS, sg.Adam(0.02), 100, device="gpu", progress=lambda _: None
    )
    assert read and set(read) == {1}


@needs_gpu
@pytest.mark.parametrize("method", METHODS, ids=by_name)
@pytest.mark.parametrize("bounds", [None, (-0.5, 0.5)])
def test_starts_on_a_device(method: Any, bounds: Any) -> None:
    there = sg.device_array(STARTS, "gpu")
    found = sg.minimize_from(loss_of(method), 2, there, method, 60, bounds=bounds)
    want = sg.minimize_from(loss_of(method), 2, STARTS, method, 60, bounds=bounds, device="gpu")
    assert all(isinstance(found[name], type(there)) for name in FIELDS)
    require_same(found, want)
    assert found.message[0] == want.message[0]
    assert "best" not in found
    on_cpu = sg.minimize_from(loss_of(method), 2, STARTS, method, 60, bounds=bounds, device="cpu")
    same = (found.status.numpy() > 0) == on_cpu.success
    near = np.abs(want.x - on_cpu.x).max(axis=1) < 5e-3
    assert same.mean() > 0.98 and near.mean() > 0.98


@needs_gpu
@pytest.mark.parametrize(("problems", "rows"), [(70, 25), (3, 200)])
def test_rules_over_data_on_a_device(problems: int, rows: int) -> None:
    x, rates = np.linspace(0.0, 3.0, rows)[:, None], np.linspace(0.3, 2.0, problems)
    data: dict[str, Any] = {"shared": x, "own": np.exp(-rates[:, None, None] * x)}
    there: dict[str, Any] = {name: sg.device_array(a, "gpu") for name, a in data.items()}
    loss = lambda p, r: (sg.exp(-p[0] * r[0]) - r[1]) ** 2  # noqa: E731
    starts, rule = np.ones((problems, 1)), sg.Adam(0.03)
    found = sg.minimize_from(loss, 1, starts, rule, 300, reduce="mean", **there)
    want = sg.minimize_from(loss, 1, starts, rule, 300, reduce="mean", device="gpu", **data)
    require_same(found, want)
    np.testing.assert_allclose(found.x[:, 0], rates, rtol=5e-3)


@needs_gpu
def test_curves_on_a_device() -> None:
    x, rates = np.linspace(0.0, 3.0, 25), np.linspace(0.3, 2.0, 70)
    curves = 2.0 * np.exp(-np.outer(rates, x))
    f = lambda x, a, b: a * np.exp(-b * x)  # noqa: E731
    there, first = sg.device_array(curves, "gpu"), np.ones((70, 2))
    want = sg.fit_many(f, x, curves, [1.0, 1.0], covariance=True, device="gpu")
    found = sg.fit_many(f, x, there, [1.0, 1.0], covariance=True)
    require_same(found, want)
    np.testing.assert_array_equal(found.cov, want.cov)
    assert all(isinstance(found[name], type(there)) for name in FIELDS) and "memory" not in found
    both = sg.fit_many(f, x, there, sg.device_array(first, "gpu"))
    require_same(both, want)
    assert isinstance(both.x, type(there))


@needs_gpu
def test_arrays_on_a_device_that_do_not_fit() -> None:
    there = sg.device_array(STARTS, "gpu")
    with pytest.raises(sg.InputError, match=r"starts has shape \(1003, 2\): \(S, 3\)"):
        sg.minimize_from(rosenbrock, 3, there, sg.Adam())
    with pytest.raises(sg.InputTypeError, match="cannot be read by"):
        sg.minimize_from(rosenbrock, 2, there, sg.Adam(), device="cpu")
    x = np.ones((1003, 1, 2))
    with pytest.raises(sg.InputError, match="with Y on a device"):
        sg.fit_many(lambda x, a: a * x[0], x, there, [1.0])


INTERRUPTED = """
import os, signal, threading
import numpy as np
import symgrad as sg
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background ignores
starts = np.random.default_rng(0).uniform(-2, 2, (20_000, 2))
loss = lambda v: (1 - v[0])**2 + 100 * (v[1] - v[0]**2)**2
sg.minimize_from(loss, 2, starts, sg.Adam(1e-7), 10, device="cpu")
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    sg.minimize_from(loss, 2, starts, sg.Adam(1e-7), 2**24 - 1, memory={memory}, device="cpu")
except KeyboardInterrupt:
    print("interrupted")
"""


@pytest.mark.parametrize("memory", [False, True])
def test_long_runs_can_be_interrupted(memory: bool) -> None:
    script = INTERRUPTED.format(memory=memory)  # it would take a quarter of an hour to its end
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=100, check=True
    )
    assert ended.stdout == "interrupted\n"


@pytest.mark.parametrize("method", [sg.LevenbergMarquardt(), sg.LBFGS()], ids=["LM", "LBFGS"])
def test_kernels_of_many_parameters_can_be_written(method: Any) -> None:
    n = 30 if method.needs == "squares" else 50

    def residual(p: Any, r: Any) -> Any:
        return sum(c * sg.exp(-((r[0] - k) ** 2)) for k, c in enumerate(p)) - r[1]

    f = residual if method.needs == "squares" else lambda p, r: residual(p, r) ** 2
    stop, options = method.tolerances(1e-7), Options("fit", "accurate", "float32", True, False)
    made = iteration(Problem(f, n, 1, 1), method, Bounds.of(-np.inf, np.inf, n), stop, options)
    (dispatch,) = iterate_launch(made, steps_target(made, together=False)).dispatches
    assert "fn main" in printed_kernel(dispatch, Style()).modules[0]
