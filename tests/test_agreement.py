"""The same numbers everywhere: every kernel on every device here, and both front ends take it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from bounds import Interval, intervals
from catalog import Case, every, examples, losses, random_cases, row_case, rows
from tint import check_with_tint, needs_tint

import symgrad as sg
from symgrad.expr.graph.node import inputs_of
from symgrad.expr.semantics.evaluate import evaluate_graph

pytestmark = pytest.mark.usefixtures("full_effort")
GPUS = [d for d in sg.devices() if d.is_gpu]


def flat(result: Any) -> Iterator[np.ndarray]:
    """The arrays in a result of any nesting."""
    if isinstance(result, dict):
        result = list(result.values())
    if isinstance(result, (tuple, list)):
        for part in result:
            yield from flat(part)
    else:
        yield np.asarray(result)


def difference(got: Any, want: Any) -> float:
    """The largest difference of results, relative to the size of each array; NaN must be NaN."""
    worst = 0.0
    for a, b in zip(flat(got), flat(want), strict=True):
        a, b = a.astype(np.float64), b.astype(np.float64)
        np.testing.assert_array_equal(np.isnan(a), np.isnan(b))
        same = (a == b) | np.isnan(b)
        scale = np.max(np.abs(b), initial=1e-30, where=np.isfinite(b))
        worst = max(worst, float(np.max(np.where(same, 0.0, np.abs(a - b)), initial=0.0) / scale))
    return worst


@dataclass(frozen=True)
class Target:
    """What computes a kernel: a device in a dtype, or NumPy's interpreter of the expressions."""

    device: sg.Device | str
    dtype: str = "float32"

    def __str__(self) -> str:
        return f"{self.device} {self.dtype}"

    @property
    def is_gpu(self) -> bool:
        return isinstance(self.device, sg.Device)

    def answers(self, case: Case) -> np.ndarray:
        """The results (B, columns), of all the arrays of the kernel side by side."""
        if self.device == "numpy":
            graph, roots = expressions(case.make(device="cpu"))
            given = dict(zip(inputs_of(graph), case.points.T, strict=True))
            return np.array(evaluate_graph(graph, roots, given, np.float32), np.float64).T
        result = case.make(device=self.device, dtype=self.dtype).run(case.points)
        columns = [a.astype(np.float64).reshape(len(case.points), -1) for a in flat(result)]
        return np.concatenate(columns, axis=1)


TARGETS: Final = [*map(Target, GPUS), Target("cpu"), Target("cpu", "float64"), Target("numpy")]
_possible: dict[str, list[Interval]] = {}


def expressions(kernel: sg.Kernel) -> tuple[Any, list[int]]:
    """The graph of a kernel before it is lowered, and its results in it."""

    def leaves(found: Any) -> Iterator[Any]:
        if isinstance(found, tuple):
            for part in found:
                yield from leaves(part)
        else:
            yield found

    roots = list(leaves(kernel.expr))
    return roots[0].graph, [r.id for r in roots]


def possible(case: Case) -> list[Interval]:
    """What each result of a case may be, given that every operation errs a little."""
    if case.name not in _possible:
        graph, roots = expressions(case.make(device="cpu"))
        _possible[case.name] = intervals(graph, roots, case.points)
    return _possible[case.name]


def pairs() -> Iterator[Any]:
    """Every case on every target; of the random ones, GPUs have a third by default.

    Software ones compile the 50 graphs of a kernel for a second.
    """
    random = [case.name for case in random_cases()]
    for case in (*every(), *examples(), *random_cases()):
        for target in () if case.has_loops else TARGETS:
            left_out = target.is_gpu and case.name in random[1::3] + random[2::3]
            marks = [pytest.mark.slow] if left_out else []
            yield pytest.param(case, target, marks=marks, id=f"{case}-{target}")


@pytest.mark.parametrize(("case", "target"), [*pairs()])
def test_answers_differ_by_no_more_than_conditioning_explains(case: Case, target: Target) -> None:
    answers = target.answers(case)
    for k, interval in enumerate(possible(case)):
        right = interval.contains(answers[:, k])
        if target.is_gpu:  # WGSL lets compilers assume that there are no infinities and NaN
            right |= ~interval.finite
        wrong = np.flatnonzero(~right)
        assert wrong.size == 0, (
            f"result {k} at {case.points[wrong[0]]}: {answers[wrong[0], k]!r} is not between "
            f"{interval.low[wrong[0]]!r} and {interval.high[wrong[0]]!r}"
        )


def test_random_graphs_are_well_conditioned_enough_to_tell() -> None:
    widths = np.array([i.relative_width for case in random_cases() for i in possible(case)])
    assert widths.shape[0] > 1000
    assert np.mean(widths < 1e-5) > 0.7
    finite = np.mean([i.finite for case in random_cases() for i in possible(case)])
    assert finite > 0.6


SWIFTSHADER: Final = Path("/usr/lib/chromium/vk_swiftshader_icd.json")


@pytest.mark.skipif(not SWIFTSHADER.exists(), reason="no SwiftShader: it comes with chromium")
@pytest.mark.skipif("VK_DRIVER_FILES" in os.environ, reason="this is another driver's run")
def test_swiftshader_agrees() -> None:
    sample = "(not random or 100- or 175- or 900-)"  # of the random graphs: it compiles slowly
    chosen = f"(explains or loop) and SwiftShader and {sample}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--no-header", __file__, "-k", chosen],
        cwd=Path(__file__).parents[1], text=True, capture_output=True, timeout=600,
        env={**os.environ, "VK_DRIVER_FILES": str(SWIFTSHADER)},
    )  # fmt: skip
    if done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED:
        pytest.skip("wgpu does not show SwiftShader")
    assert done.returncode == 0, done.stdout[-4000:]


@pytest.mark.parametrize("case", every(), ids=str)
def test_float32_on_the_cpu_agrees_with_float64(case: Case) -> None:
    single = case.make(device="cpu").run(case.points)
    double = case.make(device="cpu", dtype="float64").run(case.points)
    assert difference(single, double) < 4e-6


@pytest.mark.parametrize("device", GPUS, ids=str)
@pytest.mark.parametrize("case", every(), ids=str)
def test_every_gpu_agrees_with_the_cpu(case: Case, device: sg.Device) -> None:
    kernel = case.make(device=device)
    assert difference(kernel.run(case.points), kernel.to("cpu").run(case.points)) < 2e-5


@pytest.mark.parametrize("device", sg.devices(), ids=str)
@pytest.mark.parametrize("case", losses(), ids=str)
def test_a_row_of_a_batch_is_the_point_run_alone(case: Case, device: sg.Device) -> None:
    kernel = case.make(device=device)
    batch, gradients = kernel.run(case.points)
    for k in (0, 33, 69):
        loss, gradient = kernel.run(case.points[k])
        assert np.float32(loss).tobytes() == batch[k].tobytes()
        assert gradient.tobytes() == gradients[k].tobytes()


@pytest.mark.parametrize("math", ["accurate", "fast"])
@needs_tint
def test_tint_takes_every_kernel(math: str) -> None:
    sources = {
        f"{case} {k}": module
        for case in every()
        for k, module in enumerate(case.make(device="cpu", math=math).modules)
    }
    verdicts = check_with_tint(list(sources.values()))
    refused = {name: v for name, v in zip(sources, verdicts, strict=True) if v is not None}
    assert not refused


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_values_of_a_row_are_its_reference(row: Any) -> None:
    case = row_case(row)
    values, _ = case.make(device="cpu", dtype="float64").run(case.points.astype(np.float64))
    want = [
        row.reference(*[np.float64(v) > 0.5 if t == "b" else np.float64(v)
                        for v, t in zip(p, row.signature, strict=False)])
        for p in case.points
    ]  # fmt: skip
    np.testing.assert_allclose(values, np.asarray(want, np.float64), rtol=1e-12)
