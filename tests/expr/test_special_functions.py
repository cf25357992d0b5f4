"""Special functions in kernels of both precisions, against mpmath and SciPy."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

import symgrad as sg

special = pytest.importorskip("scipy.special")


def kernel(f: Any, n: int, dtype: Any = "float64") -> Any:
    return sg.fused_forward_backward(n, f, device="cpu", dtype=dtype)


CASES = ["erfcx", "gamma"]


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("dtype", "ulps"), [("float64", 20), ("float32", 20)])
def test_values_and_slopes(name: str, dtype: Any, ulps: float) -> None:
    """Of SciPy's ufuncs of expressions, too."""
    x = np.array([-4.3, -0.6, 0.04, 0.5, 1.3, 3.3, 7.7, 25.0])
    values, slopes = kernel(lambda v: getattr(special, name)(v[0]), 1, dtype).run(x[:, None])
    given, least = np.float64(np.asarray(x, dtype)), ulps * np.finfo(dtype).eps
    np.testing.assert_allclose(values, getattr(special, name)(given), rtol=least)
    with mpmath.workdps(40):
        f = {
            "erfcx": lambda t: mpmath.exp(t * t) * mpmath.erfc(t), "gamma": mpmath.gamma,
        }[name]  # fmt: skip
        want = [float(mpmath.diff(f, t)) for t in np.atleast_1d(given).tolist()]
    np.testing.assert_allclose(slopes[:, 0], want, rtol=least, atol=least)


def test_poles_of_the_gamma_function_are_scipys() -> None:
    x = np.array([0.0, -0.0, -1.0, -7.0, np.inf, -np.inf, np.nan, 171.6, 172.0, -171.5, -200.5])
    found = sg.fused_forward(1, lambda v: sg.gamma(v[0]), device="cpu", dtype="float64").run(
        x[:, None]
    )
    np.testing.assert_allclose(found, special.gamma(x), rtol=1e-13, atol=1e-307)
    np.testing.assert_allclose(sg.gamma(x), special.gamma(x), rtol=1e-13, atol=1e-307)
