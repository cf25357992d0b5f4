"""What is used wrongly says what to write instead."""

from __future__ import annotations

import linecache
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.linalg
import scipy.ndimage
import scipy.optimize
import scipy.special

import symgrad as sg

VERBS: Any = sg
"""The verbs, without annotations that would find the misuse first."""


def into_numbers(v: Any) -> Any:
    out = np.zeros(2)
    for k in range(2):
        out[k] = v[k] * 2.0
    return out.sum()


def added_to_numbers(v: Any) -> Any:
    out = np.ones(2)
    out[0] += v[0]
    return out[0]


def product() -> Any:
    """An expression that dies with its test: all expressions that are alive share a graph."""
    x, y = sg.symbols("x y")
    return x * y


MISUSE: dict[str, tuple[Callable[[], Any], str]] = {
    "assignment": (lambda: sg.fused_forward(2, into_numbers), r"out = sg\.array\(np\.zeros"),
    "addition": (lambda: sg.fused_forward(2, added_to_numbers), r"sg\.array"),
    "float": (lambda: sg.fused_forward(1, lambda v: float(v[0])), r"leave out float\(...\)"),
    "complex": (lambda: sg.fused_forward(1, lambda v: complex(v[0])), "the imaginary part"),
    "1j": (lambda: sg.fused_forward(1, lambda v: 1j * v[0]), "the imaginary part"),
    "complex array": (lambda: sg.fused_forward(1, lambda v: v[0] * np.array([1j])), "imaginary"),
    "max of a list": (
        lambda: sg.fused_forward(2, lambda v: np.max([v[0], v[1]])),
        r"np\.max\(sg\.array\(",
    ),
    "maximum of a list": (
        lambda: sg.fused_forward(2, lambda v: np.maximum([v[0], v[1]], 0.5)),
        r"np\.maximum\(sg\.array\(",
    ),
    "insert": (
        lambda: sg.fused_forward(2, lambda v: np.insert(np.zeros(2), 1, v[0])),
        r"give NumPy one that can, as in sg\.array\(np\.zeros",
    ),
    "a function of SciPy's": (
        lambda: sg.fused_forward(1, lambda v: scipy.special.struve(1.0, v[0])),
        r"special\.struve is not .*, erf, erfc, .*, xlogy, zeta\), or.*sg\.table\(",
    ),
    "one that others make": (
        lambda: sg.fused_forward(1, lambda v: scipy.special.rgamma(v)),
        r"write 1 / sg\.gamma\(x\)",
    ),
    "one that wraps another": (
        lambda: sg.fused_forward(1, lambda v: scipy.special.lambertw(v[0])),
        r"^scipy\.special\._lambertw .*\n.*\n  SciPy's lambertw computes with numbers",
    ),
    "one that asks": (
        lambda: sg.fused_forward(2, lambda v: scipy.special.logsumexp(v)),
        r"SciPy's code asks for it\n.*\n.* sg\.logsumexp",
    ),
    "hessian of f at numbers": (
        lambda: VERBS.hessian(lambda v: v[0], [1.0]),
        r"at a point, sg\.hessian\(f\)\(x\)",
    ),
    "grad of f at numbers": (
        lambda: VERBS.grad(lambda v: v, [1.0]),
        r"at a point, sg\.grad\(f\)\(x\)",
    ),
    "hessian for nothing": (lambda: sg.hessian(product()), "the variables to differentiate for"),
    "jacobian for nothing": (
        lambda: sg.jacobian([product()]),
        "the variables to differentiate for",
    ),
    "grad for numbers": (lambda: sg.grad(product(), [1.0, 2.0]), "the expressions themselves"),
}


@pytest.mark.parametrize("name", MISUSE)
def test_a_message_says_what_to_write(name: str) -> None:
    misuse, remedy = MISUSE[name]
    with pytest.raises(sg.SymgradError, match=remedy):
        misuse()


def test_minimising_over_data_needs_a_method_and_a_table() -> None:
    kernel = sg.fused_forward_backward(1, lambda p, r: (p[0] - r[0]) ** 2, row=1, device="cpu")
    for method in (None, sg.LBFGS()):
        with pytest.raises(sg.InputError, match=r"kernel.minimize\(starts, sg.LBFGS\(\), rows="):
            kernel.minimize({"a": 1.0}, method)


def test_a_kept_expression_names_the_function_that_returns_it() -> None:
    kept: list[Any] = []
    sg.fused_forward(1, lambda v: kept.append(sg.sin(v[0])) or v[0], device="cpu")
    with pytest.raises(
        sg.ForeignExpressionError, match=r"test_misuse.py:\d+\) returned sin\(x0\)"
    ) as e:
        sg.fused_forward(1, lambda v: kept[0], device="cpu")
    assert "kept.append(sg.sin(v[0]))" in str(e.value)
    assert "pipeline" not in str(e.value)


@pytest.mark.parametrize(
    ("f", "remedy"),
    [
        (lambda v: scipy.linalg.expm(v.reshape(2, 2))[0, 0], r"use sg\.linalg\.expm"),
        (
            lambda v: scipy.integrate.solve_ivp(lambda t, y: -y, (0, 1), [v[0]]).y[0, -1],
            r"use sg\.solve_ivp\(f, \(start, end\), y0\)",
        ),
        (lambda v: scipy.linalg.solve(v.reshape(2, 2), [1, 2])[0], r"np\.linalg\.solve"),
        (lambda v: scipy.optimize.brentq(lambda t: t - v[0], 0, 1), r"sg\.custom_root"),
        (lambda v: scipy.ndimage.gaussian_filter(v, 1.0)[0], "matrix of the filter"),
        (lambda x, y: x * y, r"lambda v: f\(\*v\)"),
    ],
)
def test_calls_that_need_numbers_say_what_to_write(f: Any, remedy: str) -> None:
    with pytest.raises(sg.TraceError, match=rf"(?s){remedy}"):
        sg.fused_forward(4, f, device="cpu")


FRAMEWORKS = {
    "jnp.sin(v[0])": "Error interpreting argument to <function sin> as an abstract array. The "
    "problematic value is of type <class 'symgrad.expr.tracers.expression.Expr'>",
    "jnp.array(v)": "Value 'x0' with dtype object is not a valid JAX array type.",
    "torch.sin(v[0])": "sin(): argument 'input' (position 1) must be Tensor, not Expr",
}
"""What JAX 0.10 and PyTorch 2.9 say, by what they were asked."""


@pytest.mark.parametrize("code", FRAMEWORKS)
def test_functions_of_other_frameworks_are_named(code: str) -> None:
    module, name = code.partition("(")[0].split(".")
    whose, folder = ("PyTorch", "torch") if module == "torch" else ("JAX", "jax")
    linecache.cache["<asked>"] = len(code), None, [code], "<asked>"
    space: dict[str, Any] = {"text": FRAMEWORKS[code]}
    refusing = "def refuse(*_):\n    raise TypeError(text)"
    exec(compile(refusing, f"/packages/{folder}/core.py", "exec"), space)
    space[module] = types.SimpleNamespace(**{name: space["refuse"]})

    def f(v: Any) -> Any:
        return eval(compile(code, "<asked>", "eval"), {**space, "v": v})

    with pytest.raises(sg.TraceError, match=f"{whose}'s functions take {whose}'s") as error:
        sg.fused_forward(1, f)
    assert f"NumPy's, np.{name}, or" in str(error.value)
