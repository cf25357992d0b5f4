"""A user's script, which pyright reads and nobody runs: what it accepts, infers and refuses."""
# pyright: strict, reportUnnecessaryTypeIgnoreComment=error, reportUnknownLambdaType=none
# pyright: reportUnknownMemberType=none, reportUnknownVariableType=none, reportUnknownArgumentType=none

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, assert_type

import numpy as np

import symgrad as sg


def rosenbrock(v: sg.ExprArray) -> Any:
    return (1 - v[0]) ** 2 + 100 * (v[1] - v[0] ** 2) ** 2


def waves(v: Any) -> Any:
    return np.sum(np.sin(v) * np.exp(-v[0])) + 2 * v[1] / np.sqrt(1 + v[0] ** 2) - sg.erf(v[1])


# points
kernel = sg.fused_forward_backward(2, rosenbrock)
assert_type(kernel, sg.Kernel)
loss, gradient = kernel.run([1.0, 2.0])
print(f"{loss:.3f}", gradient.tolist(), kernel.stats.operations, kernel.wgsl)
print(kernel.minimize(np.zeros((3, 2)), sg.LBFGS()).x.round(3))
print(kernel.to("cpu").run(np.ones((5, 2)))[1].shape, kernel.to(sg.devices()[0]).name)
named = sg.fused_forward_backward(2, waves, names=["a", "b"], math="fast", simplify="real")
assert_type(named, sg.Kernel)
shapes = {"weights": (3, 2), "bias": ()}
starts = {"weights": np.zeros((3, 2)), "bias": 0.0}
assert_type(sg.fused_forward(shapes, lambda p: p.weights @ [1.0, 2.0] + p.bias), sg.Kernel)
assert_type(sg.fused_forward((), lambda x: np.exp(x)), sg.Kernel)
assert_type(sg.fused_jacobian(2, lambda v: [v[0] * v[1], np.hypot(v[0], v[1])], wrt=0), sg.Kernel)
assert_type(sg.fused_hessian(2, waves, sparse=True, mode="forward"), sg.Kernel)
assert_type(sg.fused_hvp(2, waves, dtype="float64", device="cpu"), sg.Kernel)
for dtype in (np.float32, np.float64, np.dtype("float64"), gradient.dtype):
    sg.fused_forward_backward(2, waves, dtype=dtype, device="cpu")
for device in ("cpu", "gpu", 0, sg.devices()[0], None):
    sg.fused_forward_backward(2, waves, device=device)
for math in ("accurate", "fast", "strict"):
    sg.fused_forward_backward(2, waves, math=math)

# rows
table = {"x": np.linspace(0, 1, 9), "y": np.linspace(1, 3, 9)}
line = sg.fused_forward_backward(2, lambda p, r: (p[0] + p[1] * r.x - r.y) ** 2, columns=["x", "y"])
assert_type(line, sg.DataKernel)
loss, gradient = line.run([0.0, 1.0], table)
print(line.bind(table).run([0.0, 1.0]), line.stats.seconds, line.to("cpu").codes)
print(line.minimize([0.0, 0.0], sg.Adam(0.1), rows=table).x)
assert_type(
    sg.fused_forward_backward(2, lambda p, r: p[0] * r[0], row=1, reduce="mean"), sg.DataKernel
)
assert_type(
    sg.fused_forward_backward(2, lambda p, r: p[0] * r[0], row=1, reduce=None), sg.RowsKernel
)
assert_type(sg.fused_forward(2, lambda p, r: p[0] * r[0], row=1), sg.SumsKernel)
assert_type(sg.fused_forward(2, lambda p, r: p[0] * r[0], row=1, reduce=None), sg.RowsKernel)
assert_type(sg.fused_jacobian(2, lambda p, r: [p[0] * r[0]], row=1), sg.SumsKernel)
assert_type(
    sg.fused_hessian(2, lambda p, r: p[0] * r[0], row=1, regularizer=lambda p: p[0]),
    sg.SumsKernel | sg.RowsKernel,
)
assert_type(sg.fused_hvp(2, lambda p, r: p[0] * r[0], row=1, nan_policy="omit"), sg.SumsKernel)
squares = sg.fused_least_squares(2, lambda p, r: p[0] + p[1] * r[0] - r[1], row=2)
assert_type(squares, sg.LeastSquaresKernel)
assert_type(squares.to("cpu"), sg.LeastSquaresKernel)
print(squares.fit([0.0, 0.0], [[0.0, 1.0], [1.0, 2.0]], dtype=np.float64).x)

# functions
popt, pcov = sg.curve_fit(lambda x, a, b: a * np.exp(-b * x), table["x"], table["y"], p0=[1, 1])
print(popt.round(3), np.sqrt(np.diag(pcov)))
print(sg.fit_many(lambda x, a: a * x, table["x"], [table["y"]], [1.0], nan_policy="omit").x)
print(sg.minimize_from(rosenbrock, 2, [[0.0, 0.0]], sg.Newton(), dtype="float64", device="cpu").x)
box = {"weights": (0.0, None)}
nested = sg.minimize_from(lambda p: np.sum(p.weights**2), shapes, starts, sg.LBFGS(), bounds=box)
print(nested.x["weights"], sg.minimize(lambda p: p["w"] ** 2, {"w": 2.0}).x["w"])
value, slopes = sg.value_and_grad(lambda p: p["w"] ** 2, device="cpu")({"w": 2.0})


@dataclass
class Ball:
    height: sg.Expr
    speed: sg.Expr


def flight(v: sg.ExprArray) -> sg.Expr:
    def step(k: sg.Expr, now: Ball) -> Ball:
        return Ball(now.height + 0.01 * now.speed, now.speed - 0.0981)

    ball = sg.fori_loop(0, 100, step, Ball(v[0], v[1]))
    ball = sg.while_loop(lambda b: b.height > 0, lambda b: step(v[0], b), ball, max_steps=1000)
    ball, heights = sg.scan(lambda b, x: (step(v[0], b), b.height * x), ball, np.ones(3))
    total = sg.fori_loop(0, 3, lambda k, a: a.at[k].add(heights[k]), np.zeros(3)).sum()
    side = sg.cond(total > 0, lambda: ball.height, lambda: ball.speed)
    root = sg.fixed_point(lambda x: 0.5 * (x + 2.0 / x), 1.0)
    return sg.switch(v[0], [lambda x: x, lambda x: x * root], side)


print(sg.fused_forward(2, flight).run([1.0, 0.0], exhausted="warn"))
sg.scan(lambda c, x: (c, x), 0.0, np.ones(3), backwards=True)  # pyright: ignore

# what is none of the choices
sg.fused_forward_backward(2, waves, math="exact")  # pyright: ignore
sg.fused_forward_backward(2, waves, dtype="float16")  # pyright: ignore
sg.fused_forward_backward(2, waves, dtype=np.int32)  # pyright: ignore
sg.fused_forward_backward(2, waves, device="cuda")  # pyright: ignore
sg.fused_forward_backward(2, waves, simplify="all")  # pyright: ignore
sg.fused_forward_backward(2, waves, row=2, reduce="max")  # pyright: ignore
sg.fused_forward_backward(2, waves, row=2, nan_policy="skip")  # pyright: ignore
sg.fused_forward_backward(2, waves, reduce="mean", names=["a", "b"])  # pyright: ignore
sg.fused_forward_backward(2, waves, row=2, reduce=None, regularizer=waves)  # pyright: ignore
sg.fused_forward(2, waves, row=2, reduce=None, regularizer=waves)  # pyright: ignore
sg.fused_jacobian(2, waves, mode="backward")  # pyright: ignore
sg.fused_hessian(2, waves, jit=True)  # pyright: ignore
sg.fused_least_squares(2, waves, row=1, math="Fast")  # pyright: ignore
sg.curve_fit(waves, table["x"], table["y"], nan_policy="propagate")  # pyright: ignore
sg.fit_many(waves, table["x"], [table["y"]], dtype="double")  # pyright: ignore
sg.minimize_from(waves, 2, [0.0, 0.0], sg.LBFGS(), reduce="max")  # pyright: ignore
sg.value_and_grad(waves, math="quick")  # pyright: ignore
sg.device_array([1.0], device="cuda")  # pyright: ignore
kernel.to("tpu")  # pyright: ignore
line.to("tpu")  # pyright: ignore
