"""docs/which_verb.md: each row's verb does its task with the dtype and on the device it says."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import symgrad as sg

PAGE = (Path(__file__).parents[1] / "docs/which_verb.md").read_text("utf-8")
X = np.arange(4.0)
Y = np.array([1.0, 2.0, 2.5, 5.0])
ROWS = {"x": X, "y": Y}
NAMES: Any = {"columns": ["x", "y"]}
POINT = np.array([1.0, 2.0])


def loss(v: Any) -> Any:
    return v[0] ** 2 + v[0] * v[1] ** 2


def line(x: Any, a: Any, b: Any) -> Any:
    return a + b * x


def residual(p: Any, row: Any) -> Any:
    return line(row.x, *p) - row.y


def square(p: Any, row: Any) -> Any:
    return (line(row[0], *p) - row[1]) ** 2


def copied(p: sg.Builder) -> None:
    x, y = p.input("x", 4), p.output("y", 4)
    with p.dispatch(4) as i:
        p.store(y, i, p.load(x, i))


def at_three() -> Any:
    x = sg.var("x")
    return sg.evaluate(sg.grad(x**2, x), {"x": 3.0})


TASKS: dict[str, Callable[[], Any]] = {
    "a loss and its gradient, at many points":
        lambda: sg.fused_forward_backward(2, loss).run(POINT)[1],
    "values alone, one or several": lambda: sg.fused_forward(2, loss).run(POINT[None]),
    "a Jacobian, dense or sparse":
        lambda: sg.fused_jacobian(2, lambda v: [loss(v), v[1]]).run(POINT)[1],
    "a Hessian, dense or sparse": lambda: sg.fused_hessian(2, loss).run(POINT)[2],
    "a Hessian times a vector": lambda: sg.fused_hvp(2, loss).run(POINT, POINT)[2],
    "the gradient of a function of arrays, as in JAX": lambda: sg.value_and_grad(loss)(POINT)[1],
    "a function of arrays as kernels, as `jax.jit` makes it": lambda: sg.jit(np.tanh)(np.ones(3)),
    "a function mapped over an axis, as `jax.vmap` does it":
        lambda: sg.vmap(np.sum)(np.ones((2, 3))),
    "a loss and its gradient once, to try it": lambda: sg.forward_backward(loss, POINT)[1],
    "a loss over the rows of a table":
        lambda: sg.fused_forward_backward(2, lambda p, r: residual(p, r)**2, **NAMES).run(
            POINT, ROWS)[1],
    "a prediction or a residual for each row":
        lambda: sg.fused_forward(2, residual, **NAMES, reduce=None).run(POINT, ROWS),
    "one curve fitted, as SciPy does it": lambda: sg.curve_fit(line, X, Y)[0],
    "one curve fitted, with names, errors and a table": lambda: sg.fit_model(line, X, Y).popt,
    "many curves fitted by one model": lambda: sg.fit_many(line, X, [Y, Y]).x,
    "least squares with thousands of parameters that rows look up":
        lambda: sg.fused_least_squares(2, residual, **NAMES, device="cpu").fit(POINT, ROWS).x,
    "one minimum from one start, as SciPy does it, with constraints":
        lambda: sg.minimize(lambda v: (v[0] - 1) ** 2, [3.0]).x,
    "minima from many starts":
        lambda: sg.fused_forward_backward(2, loss).minimize([POINT], sg.LBFGS(), 3).x,
    "many minimisations, each with data of its own":
        lambda: sg.minimize_from(
            square, 2, [POINT], sg.LBFGS(), 3, own=np.stack([X, Y], axis=1)[None]).x,
    "a differential equation solved, as SciPy does it, or many at once":
        lambda: sg.solve_ivp(lambda t, y: -y, (0, 1), POINT).y,
    "a layer of a network, with gradients":
        lambda: sg.linear().run(np.ones((2, 3)), np.ones((2, 3)), np.zeros(2)),
    "softmax, layer norm and other functions of rows of a matrix":
        lambda: sg.rowwise(lambda x: x / np.sum(x)).run(np.ones((2, 3))),
    "a kernel written statement by statement": lambda: sg.program(copied).run(X),
    "a gradient, Jacobian or Hessian at a point, as in JAX": lambda: sg.grad(loss)(POINT),
    "a derivative as a formula": at_three,
}  # fmt: skip

TABLE = {
    cells[0]: cells[1:]
    for row in re.findall(r"^\| (.* \| .* \| float.* \| .*) \|$", PAGE, re.MULTILINE)
    if (cells := row.split(" | "))
}


def test_every_row_has_its_task() -> None:
    assert list(TABLE) == list(TASKS)


@pytest.mark.parametrize("task", TASKS)
def test_the_verb_has_the_default_precision(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYMGRAD_DEVICE", "cpu")
    assert TABLE[task][1].startswith(str(np.asarray(TASKS[task]()).dtype))


@pytest.mark.parametrize("task", TASKS)
def test_the_verb_has_the_default_device(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What takes the first GPU by default takes what SYMGRAD_DEVICE names, and the CPU's do not."""
    monkeypatch.setenv("SYMGRAD_DEVICE", "9999")
    if TABLE[task][2] == "CPU":
        TASKS[task]()
    else:
        assert TABLE[task][2] == "first GPU"
        with pytest.raises(sg.DeviceError, match="no device 9999"):
            TASKS[task]()


def test_many_fits_on_a_gpu_are_in_float32() -> None:
    gpus = [d for d in sg.devices() if d.is_gpu]
    if not gpus:
        pytest.skip("no GPU and no software driver here")
    assert sg.fit_many(line, X, [Y, Y], device=gpus[0]).x.dtype == np.float32


@pytest.mark.parametrize("task", TASKS)
def test_the_verb_is_public(task: str) -> None:
    (first, *_) = re.findall(r"`(?:sg|kernel)\.(\w+)\(", TABLE[task][0])
    assert hasattr(sg, first) or hasattr(sg.Kernel, first)
    used = TASKS[task].__code__
    names = {
        *used.co_names,
        *sum((c.co_names for c in used.co_consts if hasattr(c, "co_names")), ()),
    }
    assert first in names


def test_fun_is_what_was_minimised() -> None:
    cpu: Any = {"device": "cpu", "dtype": "float64"}
    best = np.polynomial.Polynomial.fit(X, Y, 1).convert().coef
    squares = float(((line(X, *best) - Y) ** 2).sum())
    kernel = sg.fused_least_squares(2, residual, **NAMES, **cpu)
    found = kernel.minimize([0.0, 0.0], sg.LevenbergMarquardt(), rows=ROWS)
    data = {"shared": np.stack([X, Y], axis=1), **cpu}
    starts, lm = [[0.0, 0.0]], sg.LevenbergMarquardt()
    values = [
        found.fun,
        kernel.run(found.x, ROWS)[0],
        sg.minimize(lambda p: np.sum((line(X, *p) - Y) ** 2), [0.0, 0.0]).fun,
        sg.minimize_from(square, 2, starts, sg.LBFGS(), **data).fun[0],
        2 * sg.minimize_from(lambda p, r: line(r[0], *p) - r[1], 2, starts, lm, **data).fun[0],
        2 * sg.fit_many(line, X, [Y], device="cpu").fun[0],
        2 * kernel.fit([0.0, 0.0], ROWS).cost,
        float(np.sum(kernel.fit([0.0, 0.0], ROWS).fun ** 2)),
    ]
    assert np.allclose(values, squares, rtol=1e-10)
