"""What users see of kernels of points: what ``run`` takes, and what it says to what it does not."""

from __future__ import annotations

import symgrad as sg


def test_one_variable_is_a_number() -> None:
    kernel = sg.fused_forward_backward(1, lambda v: v[0] ** 2, device="cpu")
    loss, gradient = kernel.run(3.0)
    assert loss == 9.0 and gradient.tolist() == [6.0]
