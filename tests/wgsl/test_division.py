"""Divisions by large numbers: scaled where the divisor may be large, as they are elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symgrad as sg


def source(f: Any, **options: Any) -> str:
    return sg.fused_forward(2, f, device="cpu", **options).wgsl


@pytest.mark.parametrize(
    "f",
    [
        lambda v: v[0] / 3.5,
        lambda v: v[0] / (1.0 + sg.exp(-sg.abs(v[1]))),
        lambda v: v[0] / sg.cosh(sg.tanh(v[1]) - 2.0) / sg.sqrt(2.0),
        lambda v: v[0] / (2.0 + sg.sin(v[1])),
        lambda v: v[0] / (sg.sqrt(v[0] * v[0] + v[1]) + 1e-8),
    ],
)
def test_a_divisor_that_is_known_to_be_small_stays_as_it_is(f: Any) -> None:
    assert ("sg_wide_div" in source(f)) == ("cosh" in source(f))


def test_a_divisor_that_may_be_large_is_scaled_unless_the_device_is_to_do_it() -> None:
    assert "sg_wide_div(x0, x1)" in source(lambda v: v[0] / v[1])
    assert "= 1.0f / x1" in source(lambda v: 1.0 / v[1])
    assert "x0 / x1" in source(lambda v: v[0] / v[1], math="fast")


def test_quotients_of_large_numbers_are_right() -> None:
    if not any(d.is_gpu for d in sg.devices()):
        pytest.skip("no GPU and no software Vulkan driver here")
    points = np.array([[3e38, 2.5e38], [1.0, 2.0**127], [-3e38, 1e30], [2.0, 0.0], [1.5, 2.0]])
    single = points.astype(np.float32)
    (got,) = (sg.fused_forward(2, lambda v: [v[0] / v[1]], device=0).run(single),)
    with np.errstate(divide="ignore"):
        want = single[:, 0] / single[:, 1]
    if sg.devices()[0].is_real_gpu and np.ravel(got)[1] == 0.0:
        want[1] = 0.0  # subnormal: GPUs may flush it
    np.testing.assert_allclose(np.ravel(got), want, rtol=4e-7)
