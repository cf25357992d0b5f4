"""Blocked linear algebra on a GPU: its kernels by their meaning, and results beside LAPACK's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.linalg
from tint import check_with_tint, needs_tint

import symgrad as sg
from symgrad.arrays.linear import called
from symgrad.arrays.tape import Tape
from symgrad.arrays.trace import program_of, variables
from symgrad.kernel.language.target import WorkgroupTarget
from symgrad.kernel.stages.plan import Segment
from symgrad.pipeline import Options
from symgrad.report.kernel import sources_of
from symgrad.tensor.stages import planned

RNG = np.random.default_rng(5)
N = 70
ANY = RNG.normal(size=(2, N, N))
DEFINITE = ANY @ ANY.mT + np.eye(N)
LOWER, RIGHT = np.linalg.cholesky(DEFINITE), RNG.normal(size=(2, N, 9))


def triangular(lower: bool, trans: int) -> Callable[..., Any]:
    """The solution of a triangular system, of numbers by LAPACK."""

    def solved(a: Any, b: Any) -> Any:
        if not isinstance(a, np.ndarray):
            return sg.linalg.solve_triangular(a, b, lower=lower, trans=trans)
        return np.stack(
            [scipy.linalg.solve_triangular(*x, trans, lower=lower) for x in zip(a, b, strict=True)]
        )

    return solved


def transposed_solution(a: Any, b: Any) -> Any:
    """The solution of a transposed system, as derivatives of solutions have it."""
    if isinstance(a, np.ndarray):
        return np.linalg.solve(a.mT, b)
    return called("solve", a, b, options=(True,))[0]


CALLS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray, ...]]] = {
    "cholesky": (lambda a: np.linalg.cholesky(a), (DEFINITE,)),
    "solve": (lambda a, b: np.linalg.solve(a, b), (ANY, RIGHT)),
    "solve_transposed": (transposed_solution, (ANY, RIGHT)),
    "inv": (lambda a: np.linalg.inv(a), (ANY,)),
    "slogdet": (lambda a: np.stack(np.linalg.slogdet(a)), (ANY,)),
    "lower": (triangular(True, 0), (LOWER, RIGHT)),
    "lower_transposed": (triangular(True, 1), (LOWER, RIGHT)),
    "upper": (triangular(False, 0), (LOWER.mT, RIGHT)),
    "upper_transposed": (triangular(False, 1), (LOWER.mT, RIGHT)),
}


def segment(name: str) -> tuple[Segment, list[np.ndarray]]:
    """The launch of a call, and the arrays that it takes."""
    f, arrays = CALLS[name]
    tape = Tape()
    program = program_of(tape, [f(*variables(tape, arrays))])
    (part,) = planned(program, WorkgroupTarget(), Options("algorithm", dtype="float32")).parts
    assert isinstance(part, Segment)
    numbers = {a: arrays[a.number] for a in program.inputs}
    return part, [x for a, x in numbers.items() if a in part.inputs]


@pytest.mark.parametrize("name", CALLS)
def test_kernels_mean_what_lapack_does(name: str) -> None:
    """They are executed in float64, where a race or an index out of bounds is a fault."""
    part, arrays = segment(name)
    part.launch.verify()
    (result,) = part.launch.execute(arrays)
    f, operands = CALLS[name]
    np.testing.assert_allclose(result, f(*operands), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [1, 2, 33])
@pytest.mark.parametrize("name", CALLS)
def test_matrices_of_any_size_on_a_gpu(name: str, n: int) -> None:
    """One number is a matrix too, and axes of length 1 have no counters."""
    f, arrays = CALLS[name]
    small = [x[:, :n, : min(n, x.shape[-1])] for x in arrays]
    if name == "cholesky":
        small = [x @ x.mT + np.eye(n) for x in small]
    got = sg.jit(f, device="gpu")(*small)
    np.testing.assert_allclose(got, f(*small), rtol=2e-3, atol=2e-4)


@needs_tint
def test_tint_takes_the_kernels() -> None:
    launches = [segment(name)[0].launch for name in CALLS]
    sources = [s for x in launches for s in sources_of(x, Options("algorithm"), "")]
    different = list(dict.fromkeys(sources))
    assert check_with_tint(different) == [None] * len(different)


def covariance(x: Any) -> Any:
    distances = np.sum((x[:, None] - x[None]) ** 2, -1)
    return np.exp(-0.5 * distances) + 0.3 * np.eye(len(x))


def by_factor(x: Any, y: Any) -> Any:
    """The negative logarithm of a Gaussian process's marginal likelihood."""
    lower = np.linalg.cholesky(covariance(x))
    white = sg.linalg.solve_triangular(lower, y, lower=True)
    return 0.5 * np.sum(white**2) + np.sum(np.log(np.diagonal(lower)))


def by_solution(x: Any, y: Any) -> Any:
    """The same by solve and slogdet."""
    matrix = covariance(x)
    return 0.5 * y @ np.linalg.solve(matrix, y) + 0.5 * np.linalg.slogdet(matrix)[1]


@pytest.mark.parametrize("process", [by_factor, by_solution])
def test_a_gaussian_process_on_a_gpu(process: Callable[..., Any]) -> None:
    x = RNG.normal(size=(150, 3))
    y = np.sin(x[:, 0])
    value, grad = sg.value_and_grad(process, device="gpu")(x, y)
    wanted = sg.value_and_grad(process, device="cpu", dtype="float64")(x, y)
    assert np.isclose(value, wanted[0], rtol=1e-5)
    assert np.allclose(grad, wanted[1], rtol=1e-3, atol=1e-4)


def test_on_a_gpu_too_no_factor_and_no_solution_are_nan() -> None:
    broken = np.stack([np.eye(N), np.eye(N)])
    broken[1, 66, 66] = -1.0
    factors = sg.jit(np.linalg.cholesky, device="gpu")(broken)
    assert np.isnan(factors).mean((1, 2)).tolist() == [0.0, 1.0]
    singular = np.eye(N)
    singular[3] = singular[4]
    both = sg.jit(lambda a, b: (np.linalg.solve(a, b), *np.linalg.slogdet(a)), device="gpu")
    x, sign, logarithm = both(singular, np.ones(N))
    assert np.isnan(x).all() and sign == 0 and logarithm == -np.inf
