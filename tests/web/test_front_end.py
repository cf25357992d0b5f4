"""Chrome takes every kernel of the catalogue, and computes the short ones as the CPU does.

Its front end is newer than the one that npm has.
"""

from __future__ import annotations

import catalog
import numpy as np
import pytest
from chromium import Chromium, Page
from web.modules import assert_near, calls

import symgrad as sg

ASK = """
const taken = await (await navigator.gpu.requestAdapter()).requestDevice();
const refused = [];
for (const [name, code] of sources) {
  taken.pushErrorScope("validation");
  const { messages } = await taken.createShaderModule({ code }).getCompilationInfo();
  await taken.popErrorScope();
  const wrong = messages.find((m) => m.type === "error");
  if (wrong) refused.push([name, wrong.lineNum, wrong.message]);
}
return refused;
"""


def test_every_kernel_is_taken(page: Page) -> None:
    kernels = [(case.name, case.make(device="cpu")) for case in catalog.every()]
    sources = [(name, source) for name, kernel in kernels for source in kernel.modules]
    assert page.run(ASK, sources=sources) == []


def test_the_largest_number_is_no_literal_beyond_it(page: Page) -> None:
    most = float(np.finfo(np.float32).max)
    kernel = sg.fused_forward(1, lambda v: sg.minimum(v[0], most) + sg.maximum(v[0], -most))
    assert page.run(ASK, sources=[("largest", kernel.wgsl)]) == []
    refused = page.run(ASK, sources=[("beyond", kernel.wgsl.replace(repr(most), "3.4028235e+38"))])
    assert refused[0][0] == "beyond"


SHORT = 700
"""Lines of a kernel: SwiftShader compiles for minutes those that are much longer."""


@pytest.mark.slow
@pytest.mark.parametrize("case", [*catalog.loops(), *catalog.others(), *catalog.losses()], ids=str)
def test_results_are_those_of_the_cpu(case: catalog.Case, browser: Chromium, page: Page) -> None:
    kernel = case.make(device="cpu")
    if kernel.wgsl.count("\n") > SHORT:
        pytest.skip("too long for SwiftShader")
    points = case.points.astype(np.float32)
    found = calls(browser, page, kernel.export_js, "await kernel.run(x)", x=points)
    for name, wanted in zip(kernel.outputs, kernel._compiled().run(points), strict=True):
        assert_near(found[name], wanted, 100.0)
