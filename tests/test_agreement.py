"""The same numbers everywhere: every kernel on every device here, and both front ends take it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from bounds import Interval, intervals
from catalog import Case, every, examples, losses, random_cases
from tables import row
from tint import check_with_tint, needs_tint

import symgrad as sg
from symgrad.expr.graph.node import Op, inputs_of
from symgrad.expr.semantics.evaluate import evaluate_graph


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


def side_by_side(case: Case, result: Any) -> np.ndarray:
    """The results (B, columns), of all the arrays of a kernel side by side."""
    columns = [a.astype(np.float64).reshape(len(case.points), -1) for a in flat(result)]
    return np.concatenate(columns, axis=1)


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


def by_numpy(case: Case, kernel: sg.Kernel) -> np.ndarray:
    """The results (B, columns) of NumPy's interpreter of the expressions, in float32."""
    graph, roots = expressions(kernel)
    given = dict(zip(inputs_of(graph), case.points.T, strict=True))
    return np.array(evaluate_graph(graph, roots, given, np.float32), np.float64).T


_possible: dict[Case, list[Interval]] = {}


def possible(case: Case, kernel: sg.Kernel) -> list[Interval]:
    """What each result of a case may be, given that every operation errs a little."""
    if case not in _possible:
        _possible[case] = intervals(*expressions(kernel), case.points)
    return _possible[case]


def check_possible(
    case: Case, answers: np.ndarray, within: list[Interval], infinities: bool = True
) -> None:
    """Answers differ by no more than conditioning explains; of infinities only if they are kept."""
    for k, interval in enumerate(within):
        right = interval.contains(answers[:, k])
        if not infinities:
            right |= ~interval.finite
        wrong = np.flatnonzero(~right)
        assert wrong.size == 0, (
            f"result {k} at {case.points[wrong[0]]}: {answers[wrong[0], k]!r} is not between "
            f"{interval.low[wrong[0]]!r} and {interval.high[wrong[0]]!r}"
        )


def check_rows_alone(case: Case, kernel: sg.Kernel) -> None:
    """A row of a batch has the bits of the point run alone."""
    batch, gradients = kernel.run(case.points)
    for k in (0, 33, 69):
        loss, gradient = kernel.run(case.points[k])
        assert np.float32(loss).tobytes() == batch[k].tobytes()
        assert gradient.tobytes() == gradients[k].tobytes()


def is_left_out(case: Case) -> bool:
    """Whether it is one of two in three random cases."""
    return case in random_cases() and random_cases().index(case) % 3 != 0


def pairs() -> Iterator[Any]:
    """Every case on every device; of the random ones, GPUs have a third by default.

    Compilers take a second for the 50 graphs of a kernel: those of software GPUs, and LLVM, which
    optimises the same third.
    """
    for case in (*every(), *examples(), *random_cases()):
        left_out = is_left_out(case)
        for device in sorted(sg.devices(), key=lambda d: d.is_gpu):
            marks = [pytest.mark.slow] if left_out and device.is_gpu else []
            yield pytest.param(case, device, marks=marks, id=f"{case}-{device}")


def reference(op: Op, points: np.ndarray) -> np.ndarray:
    """The values of an operation by its row of the table, in float64."""

    def value(point: np.ndarray) -> Any:
        arguments = zip(point, op.signature, strict=False)
        return op.reference(*[np.float64(v) > 0.5 if t == "b" else np.float64(v)
                              for v, t in arguments])  # fmt: skip

    return np.asarray([value(point) for point in points], np.float64)


def check_cpu(case: Case) -> None:
    """In both types, as NumPy does; the types are alike, and float64 is the reference of a row."""
    kernels = {t: case.make(device="cpu", dtype=t) for t in ("float32", "float64")}
    results = {t: kernel.run(case.points) for t, kernel in kernels.items()}
    if not case.has_loops:
        within = possible(case, kernels["float32"])
        answers = {t: side_by_side(case, result) for t, result in results.items()}
        answers["numpy"] = by_numpy(case, kernels["float32"])
        for target, answer in answers.items():
            with row(target=target):
                check_possible(case, answer, within)
    if case in every():
        assert difference(results["float32"], results["float64"]) < 4e-6
    if case.row:
        want = reference(case.row, case.points)
        np.testing.assert_allclose(results["float64"][0], want, rtol=1e-12)
    if case in losses():
        check_rows_alone(case, kernels["float32"])


def check_gpu(case: Case, device: sg.Device) -> None:
    """And what the CPU answers; WGSL lets compilers assume that there are no infinities and NaN."""
    kernel = case.make(device=device)
    result = kernel.run(case.points)
    if not case.has_loops:
        within = possible(case, kernel)
        check_possible(case, side_by_side(case, result), within, infinities=False)
    if case in every():
        assert difference(result, kernel.to("cpu").run(case.points)) < 2e-5
    if case in losses():
        check_rows_alone(case, kernel)


@pytest.mark.parametrize(("case", "device"), [*pairs()])
def test_answers_differ_by_no_more_than_conditioning_explains(
    case: Case, device: sg.Device, request: pytest.FixtureRequest
) -> None:
    """A GPU follows the CPU, whose code for the case and whose intervals it needs."""
    if not is_left_out(case):
        request.getfixturevalue("full_effort")
    if device.is_gpu:
        check_gpu(case, device)
    else:
        check_cpu(case)


def test_random_graphs_are_well_conditioned_enough_to_tell() -> None:
    cases = random_cases()
    within = [i for case in cases for i in possible(case, case.make(device="cpu"))]
    widths = np.array([i.relative_width for i in within])
    assert widths.shape[0] > 1000
    assert np.mean(widths < 1e-5) > 0.7
    assert np.mean([i.finite for i in within]) > 0.6


SWIFTSHADER: Final = Path("/usr/lib/chromium/vk_swiftshader_icd.json")


@pytest.mark.skipif(not SWIFTSHADER.exists(), reason="no SwiftShader: it comes with chromium")
@pytest.mark.skipif("VK_DRIVER_FILES" in os.environ, reason="this is another driver's run")
def test_swiftshader_agrees() -> None:
    sample = "(not random or 175- or 900-)"  # of the random graphs: it compiles slowly
    chosen = f"SwiftShader and {sample}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--no-header", __file__, "-k", chosen],
        cwd=Path(__file__).parents[1], text=True, capture_output=True, timeout=600,
        env={**os.environ, "VK_DRIVER_FILES": str(SWIFTSHADER)},
    )  # fmt: skip
    if done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED:
        pytest.skip("wgpu does not show SwiftShader")
    assert done.returncode == 0, done.stdout[-4000:]


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
