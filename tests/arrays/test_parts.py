"""Arrays larger than a device binds: whatever reads or makes them is done part by part."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.arrays.interpret import interpret
from symgrad.arrays.laws import Builder
from symgrad.arrays.parts import in_parts
from symgrad.arrays.program import ArrayProgram, Input
from symgrad.arrays.trace import program_of
from symgrad.errors import UnsupportedError
from symgrad.front.whole import WholeTrace
from symgrad.kernel.language.target import WorkgroupTarget
from symgrad.pipeline import Options
from symgrad.tensor.stages import planned
from tests.drawn_arrays import Drawn


def are_in_parts(program: ArrayProgram, most: int) -> bool:
    """Whether no array is larger but what comes and goes as a whole."""
    whole = {*program.outputs, *(a for array in program.arrays for a in array.arguments)}
    return all(a.size <= most or a in whole or isinstance(a, Input) for a in program.arrays)


@pytest.mark.parametrize("most", [6, 20, 50])
def test_random_programs_in_parts_have_the_numbers_of_whole_ones(most: int) -> None:
    cut = refused = 0
    for seed in range(50):
        drawn = Drawn(1000 * most + seed, (1, 2, 3, 5, 9), Builder())
        values = drawn.values()
        try:
            program = in_parts(drawn.program, most)
        except UnsupportedError:
            refused += 1
            continue
        cut += program is not drawn.program
        assert are_in_parts(program, most), seed
        pairs = zip(interpret(program, values), interpret(drawn.program, values), strict=True)
        for mine, whole in pairs:
            assert mine.shape == whole.shape, seed
            assert np.allclose(mine, whole, rtol=1e-12, atol=1e-12, equal_nan=True), seed
    assert cut > 10, cut
    assert refused < 8, refused


def traced(f: Callable[..., Any], *arrays: np.ndarray) -> tuple[ArrayProgram, list[Any]]:
    """A function as a program, and its inputs."""
    trace = WholeTrace(f, list(arrays))
    program = program_of(trace.tape, [trace.call(lambda leaves: iter([*leaves, {}]))])
    return program, trace.tape.arrays


CASES: dict[str, Callable[..., Any]] = {
    "elements": lambda a, b: np.tanh(a) * 2,
    "sum": lambda a, b: np.sum(np.exp(a) ** 2),
    "rows": lambda a, b: np.sum(a * a, 1),
    "columns": lambda a, b: a.max(0),
    "product": lambda a, b: np.tanh(a @ b),
    "second": lambda a, b: a.T @ (a @ b),
    "transposed": lambda a, b: a.T + 1,
    "neighbours": lambda a, b: a[1:] * a[:-1],
    "reversed": lambda a, b: a[::-1, ::-1],
    "rolled": lambda a, b: np.roll(a, 3, 0) - a,
    "reshaped": lambda a, b: a.reshape(7, -1),
    "gathered": lambda a, b: a[np.argsort(b[:, 0])[:5] % 40].sum(1),
    "positions": lambda a, b: np.argmin(a, 0),
    "position": lambda a, b: np.argmax(a),
    "looked up": lambda a, b: np.sum(a[(a > 0).astype(int) + 20, (b[:1, :1] < 0).astype(int)], 0),
    "totals": lambda a, b: np.cumsum(a, 0),
    "lines": lambda a, b: np.cumsum(a, 1),
    "sorted": lambda a, b: np.sort(a, 0) * 2,
    "standardised": lambda a, b: (a - a.mean(0)) / np.sqrt(a.var(0) + 1e-5),
    "pairs": lambda a, b: np.sum(np.exp(-np.sum((a[:, None] - a[None]) ** 2, -1)), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_what_numpy_does_to_arrays_is_done_to_parts(name: str) -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(42, 30)), rng.normal(size=(30, 4))
    program, inputs = traced(CASES[name], a, b)
    parts = in_parts(program, 300)
    assert are_in_parts(parts, 300)
    (mine,) = interpret(parts, inputs)
    assert np.allclose(mine, CASES[name](a, b), rtol=1e-12, atol=1e-12)


def test_more_parts_take_no_more_text() -> None:
    texts = list[int]()
    for most in (3000, 1500, 500):
        program, _ = traced(lambda x: np.sum(np.tanh(x) ** 2), np.ones(9000))
        plan = planned(in_parts(program, most), WorkgroupTarget(), Options("sum"))
        kernels = {step.program for part in plan.parts for step in getattr(part, "steps", ())}
        texts.append(len(kernels))
    assert texts == [texts[0]] * 3, texts


def test_reads_that_no_part_is_known_of_are_refused() -> None:
    program, _ = traced(lambda a, k: np.sum(a[k[:, None] * k]), np.ones(4000), np.arange(500))
    with pytest.raises(UnsupportedError, match=r'shape .* use device="cpu"'):
        in_parts(program, 100)


def test_a_gpu_takes_arrays_of_more_than_a_binding() -> None:
    n = 2**25 + 1001  # one binding of WebGPU's defaults has 2**25 floats
    x = np.arange(n, dtype=np.float32) % 1024 - 512.0
    run = sg.jit(lambda x: (np.sum(x**2), 2 * x), device="gpu")
    for given in (x, sg.device_array(x, device="gpu")):
        value, slope = run(given)
        assert float(value) == pytest.approx(float(np.sum(x.astype(np.float64) ** 2)), rel=1e-7)
        assert slope.shape == (n,)
        assert (np.asarray(slope) == 2 * x).all()
