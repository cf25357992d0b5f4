"""Audits blame the right operation, on the right line, and nothing where nothing is wrong."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from catalog import network, rosenbrock, uniform

import symgrad as sg
from symgrad.expr.semantics.evaluate import ulps
from symgrad.report.audit import Audit, Suspect


def audit(f: Callable[[Any], Any], points: Any, **options: Any) -> Audit:
    n = np.shape(points)[-1]
    return sg.fused_forward_backward(n, f, device="cpu").audit(points, **options)


def found(audit: Audit, kind: str) -> Suspect:
    """The only suspect of its kind."""
    (suspect,) = [s for s in audit.suspects if s.kind == kind]
    return suspect


def line_of(f: Callable[..., Any], text: str) -> int:
    lines, first = inspect.getsourcelines(f)
    return next(first + k for k, line in enumerate(lines) if text in line)


def cancelling(v: Any) -> Any:
    x = 3 * v[0]
    shifted = x - 1e-6
    difference = x - shifted
    return 2 * difference + 0 * v[1]


def test_a_cancellation_is_at_the_subtraction_and_not_before_or_after() -> None:
    result = audit(cancelling, [[0.5, 1.0], [1.0, 2.0]])
    (suspect,) = result.suspects
    assert suspect.kind == "cancellation"
    assert suspect.place is not None
    assert suspect.place.file == __file__
    assert suspect.place.line == line_of(cancelling, "difference = x - shifted")
    assert suspect.place.text == "difference = x - shifted"
    assert suspect.results == {"loss": 1.0}
    assert suspect.ulp_in < 1
    assert suspect.ulp > 1e4
    assert suspect.float64 == pytest.approx(1e-6, rel=1e-6)
    assert suspect.x == ((0.5, 1.0), (1.0, 2.0))[suspect.point]
    assert not result.clean


def test_a_cancellation_that_does_no_harm_is_not_blamed() -> None:
    def f(v: Any) -> Any:
        return (v[0] - (v[0] - 1e-8)) + v[0]

    assert audit(f, [[1.0], [3.0]]).clean
    assert audit(f, [[1.0], [3.0]]).suspects == ()


def test_overflow_in_float32_only() -> None:
    suspects = audit(lambda v: sg.exp(v[0]) ** 2, [[1.0], [70.0]]).suspects
    assert {s.kind for s in suspects} == {"overflow"}
    assert suspects[0].operation == "exp(x0)**2"
    assert (suspects[0].point, suspects[0].x) == (1, (70.0,))
    assert suspects[0].float32 == math.inf
    assert suspects[0].float64 == pytest.approx(math.exp(140))
    assert not suspects[0].in_float64_too
    assert {name for s in suspects for name in s.results} == {"loss", "d/dx0"}


def test_the_first_cause_stands_first() -> None:
    suspects = audit(lambda v: sg.log(1 + sg.exp(v[0])), [[100.0]]).suspects
    assert [(s.kind, s.operation) for s in suspects] == [
        ("overflow", "exp(x0)"), ("NaN", "exp(x0) * (1 / (exp(x0) + 1))"),
    ]  # fmt: skip


def test_nan_is_blamed_where_it_is_born_and_not_where_it_is_inherited() -> None:
    def f(v: Any) -> Any:
        root = sg.sqrt(-v[0])
        return sg.exp(root * 3 + 1)

    result = audit(f, [[4.0]])
    assert found(result, "NaN").operation == "sqrt(-x0)"
    assert found(result, "NaN").in_float64_too
    assert found(result, "NaN").results == {"loss": 1.0, "d/dx0": 1.0}
    assert len(result.suspects) == 1


def test_what_comes_in_broken_may_go_out_broken() -> None:
    assert audit(lambda v: sg.sqrt(v[0]), [[math.nan], [math.inf], [1.0]]).clean


def test_a_nan_that_is_not_chosen_is_no_suspect() -> None:
    result = audit(lambda v: sg.where(v[0] > 0, sg.log(v[0]), v[0]), [[-1.0], [2.0]])
    assert result.clean
    assert not result.suspects


def test_underflow_is_blamed_where_a_result_needs_what_was_lost() -> None:
    result = audit(lambda v: sg.exp(-20 * v[0]) * 1e30, [[5.0]])
    suspect = found(result, "underflow")
    assert suspect.operation == "exp(x0 * -20)"
    assert suspect.float64 == pytest.approx(math.exp(-100))
    assert audit(lambda v: sg.exp(-20 * v[0]), [[6.0]]).clean  # the result itself is that small


def test_a_comparison_that_comes_out_differently() -> None:
    def f(v: Any) -> Any:
        return sg.where(v[0] + 1e-9 > v[0], 1.0, 2.0)

    suspect = found(audit(f, [[1.0]]), "decision")
    assert "<" in suspect.operation
    assert (suspect.float32, suspect.float64) == (0.0, 1.0)


def test_trouble_in_the_gradient_alone() -> None:
    result = audit(lambda v: sg.sqrt(v[0] * v[0]), [[0.0], [1.0]])
    assert [s.kind for s in result.suspects] == ["infinity", "NaN"]
    assert all(s.results == {"d/dx0": 1.0} and s.point == 0 for s in result.suspects)
    assert result.suspects[0].place is not None
    assert "sqrt(v[0] * v[0])" in result.suspects[0].place.text


def test_a_derivative_written_by_hand() -> None:
    def f(v: Any) -> Any:
        t = sg.tanh(v[0])
        slope = 1 - t**2
        return [t, slope]

    points = [[8.0], [0.1]]
    (suspect,) = sg.fused_forward(1, f, device="cpu").audit(points).suspects
    assert (suspect.kind, suspect.results) == ("cancellation", {"values[1]": 1.0})
    assert suspect.place is not None
    assert suspect.place.line == line_of(f, "slope = 1 - t**2")
    assert sg.fused_jacobian(1, lambda v: [sg.tanh(v[0])], device="cpu").audit(points).clean


def test_operations_of_one_line_are_one_suspect() -> None:
    result = audit(lambda v: np.sum((v + 1e6) - 1e6), np.full((3, 5), 0.1))
    (suspect,) = result.suspects
    assert suspect.count == 5
    assert "(and 4 more)" in str(result)


def test_sums_of_derivatives_have_a_line_too() -> None:
    def variance(v: Any) -> Any:
        return np.sum(v**2) / len(v) - (np.sum(v) / len(v)) ** 2

    result = audit(variance, 1000 + uniform(4))
    (suspect,) = [s for s in result.suspects if "d/dx0" in s.results]
    assert suspect.place is not None
    assert suspect.place.line == line_of(variance, "return")
    assert (suspect.kind, suspect.count) == ("cancellation", 5)  # the loss and its derivatives
    assert set(suspect.results) == {"loss", "d/dx0", "d/dx1", "d/dx2", "d/dx3"}


@pytest.mark.parametrize(
    ("f", "n"), [(rosenbrock, 10), (network, 17), (lambda v: sg.softplus(v[0]), 1)]
)
def test_clean_functions_have_no_suspects(f: Callable[[Any], Any], n: int) -> None:
    result = audit(f, uniform(n), least=2000.0)
    assert result.clean
    assert result.suspects == ()
    assert "every result is within 2000 ULP" in str(result)


def test_softplus_is_clean_where_its_textbook_form_is_not() -> None:
    assert audit(lambda v: sg.softplus(v[0]), [[-80.0], [-20.0], [0.0], [100.0]]).clean
    bad = audit(lambda v: sg.log(1 + sg.exp(v[0])), [[-20.0], [0.0]])
    assert found(bad, "amplification").operation == "log(exp(x0) + 1)"


@pytest.mark.parametrize("verb", [sg.fused_hessian, sg.fused_jacobian])
@pytest.mark.parametrize("sparse", [False, True])
def test_results_of_matrices_are_named(verb: Any, sparse: bool) -> None:
    def f(v: Any) -> Any:
        y = sg.exp(v[0] * v[1])
        return y * y if verb is sg.fused_hessian else [v[0], y * y]

    suspects = verb(2, f, sparse=sparse, device="cpu").audit([10.0, 6.0]).suspects
    names = {name for s in suspects for name in s.results}
    last = "hessian[1, 1]" if verb is sg.fused_hessian else "jacobian[1, 1]"
    assert last in names
    assert not {"jacobian[0, 0]", "values[0]"} & names


def test_kernels_of_two_arrays() -> None:
    kernel = sg.fused_hvp(2, lambda v: sg.exp(v[0]) * v[1], device="cpu")
    suspects = kernel.audit([80.0, 1e6], [1.0, 0.0]).suspects
    assert {"loss", "d/dx0", "product[0]"} <= {name for s in suspects for name in s.results}


def test_many_points_are_looked_at_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    points = np.linspace(-8, 8, 61)[:, None]

    def f(v: Any) -> Any:
        return sg.log(1 + sg.exp(3 * v[0]))

    whole = audit(f, points)
    monkeypatch.setattr("symgrad.report.audit.VALUES_AT_A_TIME", 40)
    parts = audit(f, points)
    assert [(s.kind, s.operation) for s in parts.suspects] == [
        (s.kind, s.operation) for s in whole.suspects
    ]
    assert whole.outcomes == parts.outcomes


def test_real_simplification_is_audited_as_it_runs() -> None:
    def f(v: Any) -> Any:
        return sg.log(sg.exp(v[0]))

    assert not sg.fused_forward(1, f, device="cpu").audit([100.0]).clean
    assert sg.fused_forward(1, f, device="cpu", simplify="real").audit([100.0]).clean


def test_small_errors_that_add_up_are_said_to() -> None:
    def f(v: Any) -> Any:
        for _ in range(300):
            v = v * 1.0000001 + 0.1
        return v[0]

    result = audit(f, [[1.0]], least=2.0)
    assert not result.clean
    assert not result.suspects
    assert "small errors add up" in str(result)


def test_no_points_and_no_operations() -> None:
    kernel = sg.fused_forward_backward(2, lambda v: 3.0, device="cpu")
    assert kernel.audit(np.empty((0, 2))).clean
    assert kernel.audit([1.0, 2.0]).clean


@pytest.mark.parametrize(
    ("points", "error"),
    [([1.0, 2.0], sg.InputError), (["a"], sg.InputTypeError), ([[1.0], []], sg.InputError)],
)
def test_bad_points_are_refused_as_by_run(points: Any, error: type[Exception]) -> None:
    kernel = sg.fused_forward_backward(1, lambda v: v[0], device="cpu")
    with pytest.raises(error) as ours:
        kernel.audit(points)
    with pytest.raises(error) as runs:
        kernel.run(points)
    assert str(ours.value) == str(runs.value)


def test_tables_are_aligned_and_in_html() -> None:
    result = audit(cancelling, [[0.5, 1.0]])
    lines = str(result).splitlines()
    assert lines[1].startswith("kind")
    assert lines[2].startswith("cancellation")
    assert lines[1].index("explains") == lines[2].index("loss 100%")
    assert "test_audit.py:" in lines[3]
    assert repr(result) == str(result)
    page = result._repr_html_()
    assert "<td>cancellation</td>" in page
    assert "&quot;difference = x - shifted&quot;" in page


def test_ulps_of_a_float32() -> None:
    one = np.float64(1.0)
    assert ulps(one + 2.0**-23, one) == 1.0
    assert ulps(one - 2.0**-23, one) == 1.0
    assert ulps(np.float64(1e-50), np.float64(2e-50)) > 2**22
    assert ulps(np.float64(0.0), np.float64(2e-50), 2.0**-149) < 1
    assert ulps(np.float64(np.nan), np.float64(np.nan)) == 0
    assert ulps(np.float64(np.inf), one) == np.inf
