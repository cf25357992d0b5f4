"""What a notebook shows of a kernel: all of a small one, the ends of a long one."""

from __future__ import annotations

from typing import Any

import symgrad as sg
from symgrad.report.progress import LONGEST_SOURCE, shortened


def long(v: Any) -> Any:
    return sum(sg.sin(v[0] + k) * v[1] for k in range(3000))


def test_a_small_kernel_is_shown_whole() -> None:
    kernel = sg.fused_forward_backward(2, lambda v: v[0] * v[1], device="cpu", name="f")
    page = kernel._repr_html_()
    assert "more lines" not in page and kernel.wgsl.splitlines()[0] in page
    assert kernel._repr_latex_() == "$$x_{0} \\, x_{1}$$"


def test_a_large_kernel_is_not() -> None:
    kernel = sg.fused_forward_backward(2, long, device="cpu", roll=False)
    page = kernel._repr_html_()
    assert len(page) < 300_000 and "more lines: print(kernel.wgsl) shows all" in page
    assert kernel._repr_latex_() is None and kernel.expr[0]._repr_latex_() is None


def test_the_ends_of_a_long_source_are_kept() -> None:
    lines = [f"line {k}" for k in range(LONGEST_SOURCE + 5)]
    found = shortened("\n".join(lines)).splitlines()
    half = LONGEST_SOURCE // 2
    assert found[:half] == lines[:half] and found[-half:] == lines[-half:]
    assert "5 more lines" in found[half] and len(found) == LONGEST_SOURCE + 1
    assert shortened("\n".join(lines[:-5])) == "\n".join(lines[:-5])
