"""Programs drawn at random: all devices agree, gradients are what differences say, texts read."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from drawn_programs import as_tuple, drawn, points, slope
from tint import check_with_tint, needs_tint

import symgrad as sg
from symgrad.kernel.language.target import WorkgroupTarget
from symgrad.kernel.launch import Launch
from symgrad.pipeline import Options
from symgrad.programs.code import Code
from symgrad.programs.program import launch_of as launch_of_program
from symgrad.wgsl.printing.printer import print_kernel
from symgrad.wgsl.printing.source import Style

SEEDS = range(12)
ON_GPUS = (1, 4, 10, 47, 67)
"""The last two have values over barriers that llvmpipe made anew, and wrongly."""


@cache
def program(seed: int) -> sg.Program:
    return sg.program(drawn(seed), device="cpu", dtype="float64")


@cache
def gradient(seed: int) -> sg.Program:
    return sg.grad_program(program(seed))


def error(found: Sequence[Any], wanted: Sequence[Any]) -> float:
    """The largest difference, relative to the largest number of each array."""
    return max(
        float(np.max(np.abs(a - b)) / (1 + np.max(np.abs(b))))
        for a, b in zip(found, wanted, strict=True)
    )


def given(seed: int) -> tuple[list[Any], list[Any]]:
    """The inputs of a program, and cotangents of its outputs, which floats hold exactly."""
    p, rng = program(seed), np.random.default_rng(seed + 1)
    inputs = [x if x.dtype == np.uint32 else np.float32(x) for x in points(p, seed)]
    return inputs, [np.float32(rng.normal(size=a.shape)) for a in p.code.of("output")]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_text_gives_the_same_program(seed: int) -> None:
    for p in (program(seed), gradient(seed)):
        assert str(sg.program(str(p), device="cpu")) == str(p)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_gradient_is_what_differences_say(seed: int) -> None:
    (inputs, cotangents), rng = given(seed), np.random.default_rng(seed)
    inputs = [np.asarray(x, np.float64) if x.dtype == np.float32 else x for x in inputs]
    step = [rng.normal(size=x.shape) if x.dtype == np.float64 else None for x in inputs]
    found = as_tuple(gradient(seed).interpret(*inputs, *cotangents))[len(cotangents) :]
    steps = [d for d in step if d is not None]
    along = sum(np.sum(g * d) for g, d in zip(found, steps, strict=True))
    wanted = slope(program(seed), inputs, cotangents, step)
    assert along == pytest.approx(wanted, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("seed", SEEDS[:5])
def test_the_cpu_computes_what_the_interpreter_does(seed: int) -> None:
    inputs, cotangents = given(seed)
    wanted = as_tuple(gradient(seed).interpret(*inputs, *cotangents))
    result, gradients = program(seed).vjp(*inputs, *cotangents)
    found = [*as_tuple(result), *(g for g in gradients if g is not None)]
    assert error(found, wanted) < 1e-12
    assert error(as_tuple(program(seed).run(*inputs)), wanted[: len(cotangents)]) < 1e-12


@pytest.mark.parametrize("seed", ON_GPUS)
def test_a_gpu_computes_what_the_interpreter_does(seed: int) -> None:
    inputs, cotangents = given(seed)
    wanted = as_tuple(gradient(seed).interpret(*inputs, *cotangents))
    p = sg.program(str(program(seed)), device="gpu")
    result, gradients = p.vjp(*inputs, *cotangents)
    assert error([*as_tuple(result), *(g for g in gradients if g is not None)], wanted) < 2e-5


@needs_tint
def test_tint_takes_their_kernels() -> None:
    sources: list[str] = []
    for seed in SEEDS:
        launches = launch_of(program(seed).code), launch_of(gradient(seed).code)
        for d in (d for launch in launches for d in launch.dispatches):
            sources += print_kernel(d.kernel, Style(comments=False)).modules
    assert check_with_tint(sources) == [None] * len(sources)


def launch_of(code: Code) -> Launch:
    return launch_of_program(code, Options(code.name), WorkgroupTarget())
