"""Every verb over data: sums of Jacobians and Hessians, and the results of each row."""

from __future__ import annotations

import pickle
from typing import Any
from unittest import mock

import numpy as np
import pytest
from machines import cores

import symgrad as sg
from symgrad.errors import InputError, TraceError
from symgrad.values.tables import Reduce

DEVICES = ["cpu", *(d.index for d in sg.devices() if d.is_gpu)]
RNG = np.random.default_rng(0)
N = 300

# a logistic regression, whose derivatives NumPy knows in closed form
A = np.column_stack([np.ones(N), RNG.normal(size=(N, 2))])
Y = RNG.integers(0, 2, N)
ROWS = {"a": A[:, 1], "b": A[:, 2], "y": Y}
P, V = np.array([0.1, 0.5, -0.3]), np.array([1.0, 2.0, 3.0])
MU = 1 / (1 + np.exp(-A @ P))
LOSSES = np.logaddexp(0, A @ P) - Y * (A @ P)
SLOPES = (MU - Y)[:, None] * A
CURVES = (MU * (1 - MU))[:, None, None] * A[:, :, None] * A[:, None, :]

# a model with parameters that rows look up by two indices
SHAPES = {"u": (4, 2), "s": (), "t": 2}
WHO, OTHER, B = RNG.integers(0, 4, N), RNG.integers(0, 4, N), RNG.normal(size=N)
LOOKED = {"who": WHO, "other": OTHER, "b": B}
FLAT, VECTOR = RNG.normal(size=11), RNG.normal(size=11)


def eta(p: Any, r: Any) -> Any:
    return p[0] + p[1] * r.a + p[2] * r.b


def logistic(p: Any, r: Any) -> Any:
    return sg.softplus(eta(p, r)) - r.y * eta(p, r)


def model(p: Any, r: Any) -> Any:
    first, second = p.u[r.who], p.u[r.other]
    return sg.exp(p.s * r.b) * first[0] * second[1] + p.t[1] * r.b * first[1] ** 2


def at_rows(flat: np.ndarray) -> np.ndarray:
    u = flat[:8].reshape(4, 2)
    return np.exp(flat[8] * B) * u[WHO, 0] * u[OTHER, 1] + flat[10] * B * u[WHO, 1] ** 2


def jacobian(flat: np.ndarray) -> np.ndarray:
    """The exact Jacobian (N, 11), by complex steps."""
    steps = flat + 1e-30j * np.eye(11)
    return np.array([np.imag(at_rows(v)) / 1e-30 for v in steps]).T


def hessian(flat: np.ndarray) -> np.ndarray:
    """That of the sum of all rows, by differences of the exact gradient."""
    h = 1e-5
    return np.array([(jacobian(flat + e).sum(0) - jacobian(flat - e).sum(0)) / (2 * h)
                     for e in h * np.eye(11)])  # fmt: skip


def agree(found: Any, want: Any, rtol: float = 2e-5) -> None:
    want = np.asarray(want)
    np.testing.assert_allclose(found, want, rtol=rtol, atol=rtol * np.abs(want).max())


def columns(device: Any, **options: Any) -> dict[str, Any]:
    return {"columns": ["a", "b", "y"], "device": device} | options


def looked(device: Any, **options: Any) -> dict[str, Any]:
    return {"columns": ["who", "other", "b"], "device": device} | options


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_sums(reduce: Reduce, device: Any) -> None:
    count = N if reduce == "mean" else 1
    kernel = sg.fused_hessian(3, logistic, **columns(device, reduce=reduce))
    for found in (kernel.run(P, ROWS), kernel.bind(ROWS).run(P)):
        assert isinstance(found[0], float) and found[2].dtype == np.float32
        for part, want in zip(found, (LOSSES, SLOPES, CURVES), strict=True):
            agree(part, want.sum(axis=0) / count)
    sparse = sg.fused_hessian(3, logistic, **columns(device, reduce=reduce, sparse=True))
    agree(sparse.run(P, ROWS)[2].toarray(), CURVES.sum(axis=0) / count)
    kernel = sg.fused_hvp(3, logistic, **columns(device, reduce=reduce))
    for found in (kernel.run(P, V, ROWS), kernel.bind(ROWS).run(P, V)):
        agree(found[1], SLOPES.sum(axis=0) / count)
        agree(found[2], CURVES.sum(axis=0) @ V / count)
    f = lambda p, r: {"mean": sg.sigmoid(eta(p, r)), "more": [p[1] * r.a, r.b]}  # noqa: E731
    found = sg.fused_forward(3, f, **columns(device, reduce=reduce)).run(P, ROWS)
    agree(found["mean"], MU.sum() / count)
    agree(found["more"], [0.5 * A[:, 1].sum() / count, A[:, 2].sum() / count])
    values, matrix = sg.fused_jacobian(
        3, lambda p, r: [sg.sigmoid(eta(p, r)), p[2] * r.y], **columns(device, reduce=reduce)
    ).run(P, ROWS)
    agree(values, [MU.sum() / count, -0.3 * Y.sum() / count])
    agree(matrix, [((MU * (1 - MU)) @ A) / count, [0, 0, Y.sum() / count]])


@pytest.mark.parametrize("device", DEVICES)
def test_results_of_each_row(device: Any) -> None:
    kernel = sg.fused_forward(3, lambda p, r: sg.sigmoid(eta(p, r)), **columns(device, reduce=None))
    found = kernel.run(P, ROWS)
    assert found.shape == (N,) and found.dtype == np.float32
    agree(found, MU)
    agree(kernel.bind(ROWS).run(P), MU)
    blocks = [{k: v[:7] for k, v in ROWS.items()}, {k: v[7:] for k, v in ROWS.items()}]
    np.testing.assert_array_equal(kernel.run(P, iter(blocks)), found)
    assert kernel.run(P, {k: v[:0] for k, v in ROWS.items()}).shape == (0,)
    for verb, parts in (
        (sg.fused_forward_backward, (LOSSES, SLOPES)),
        (sg.fused_hessian, (LOSSES, SLOPES, CURVES)),
    ):
        found = verb(3, logistic, **columns(device, reduce=None)).run(P, ROWS)
        for part, want in zip(found, parts, strict=True):
            assert part.shape == want.shape
            agree(part, want)
    found = sg.fused_hvp(3, logistic, **columns(device, reduce=None)).run(P, V, ROWS)
    agree(found[2], CURVES @ V)
    f = lambda p, r: (p[0] * r.a, sg.array([r.b, p[1] * r.y]))  # noqa: E731
    first, second = sg.fused_forward(3, f, **columns(device, reduce=None)).run(P, ROWS)
    assert (first.shape, second.shape) == ((N,), (N, 2))
    agree(second, np.column_stack([A[:, 2], 0.5 * Y]))
    values, slopes = sg.fused_jacobian(3, f, **columns(device, reduce=None)).run(P, ROWS)
    assert (values.shape, slopes.shape) == ((N, 3), (N, 3, 3))
    agree(slopes[:, 0, 0], A[:, 1])
    agree(slopes[:, 2, 1], Y)
    assert np.count_nonzero(slopes[:, 1]) == 0


def test_named_parameters_give_named_results() -> None:
    shapes = {"level": (), "slopes": 2}
    f = lambda p, r: sg.softplus(p.level + p.slopes[0] * r.a + p.slopes[1] * r.b)  # noqa: E731
    params = {"level": P[0], "slopes": P[1:]}
    _, first, second = sg.fused_hessian(shapes, f, **columns("cpu")).run(params, ROWS)
    assert first["slopes"].shape == (2,) and np.shape(first["level"]) == ()
    agree(second["slopes"]["slopes"], CURVES.sum(0)[1:, 1:])
    agree(second["level"]["slopes"], CURVES.sum(0)[0, 1:])
    _, rows = sg.fused_jacobian(shapes, f, **columns("cpu", reduce=None)).run(params, ROWS)
    assert rows["slopes"].shape == (N, 1, 2) and rows["level"].shape == (N, 1)
    agree(rows["slopes"][:, 0], MU[:, None] * A[:, 1:])


@pytest.mark.parametrize("device", DEVICES)
def test_parameters_that_rows_look_up(device: Any) -> None:
    want, slopes, curves = at_rows(FLAT), jacobian(FLAT), hessian(FLAT)
    agree(sg.fused_forward(SHAPES, model, **looked(device)).run(FLAT, LOOKED), want.sum())
    each = sg.fused_forward(SHAPES, model, **looked(device, reduce=None))
    agree(each.run(FLAT, LOOKED), want)
    two = lambda p, r: [model(p, r), 2 * p.u[r.other, 0] * r.b]  # noqa: E731
    values, rows = sg.fused_jacobian(SHAPES, two, **looked(device, reduce=None)).run(FLAT, LOOKED)
    assert rows.shape == (2 * N, 11) and rows.has_canonical_format and rows.nnz <= 8 * N
    agree(values[:, 0], want)
    agree(rows.toarray()[::2], slopes)
    np.testing.assert_allclose(rows.toarray()[1::2].sum(1), 2 * B, rtol=1e-6)
    _, summed = sg.fused_jacobian(SHAPES, two, **looked(device)).run(FLAT, LOOKED)
    agree(summed["u"][0], slopes.sum(0)[:8].reshape(4, 2))
    agree(summed["u"][1, :, 0], 2 * np.bincount(OTHER, B))
    agree(summed["s"][0], slopes.sum(0)[8])
    first = sg.fused_forward_backward(SHAPES, model, **looked(device, reduce=None))
    agree(first.run(FLAT, LOOKED)[1].toarray(), slopes)
    product = sg.fused_hvp(SHAPES, model, **looked(device))
    for found in (product.run(FLAT, VECTOR, LOOKED), product.bind(LOOKED).run(FLAT, VECTOR)):
        agree(product.in_a_row(found[1]), slopes.sum(0))
        agree(product.in_a_row(found[2]), curves @ VECTOR, 1e-4)
    second = sg.fused_hessian(SHAPES, model, **looked(device, sparse=True, reduce="mean"))
    for found in (second.run(FLAT, LOOKED), second.bind(LOOKED).run(FLAT)):
        agree(found[0], want.mean())
        agree(second.in_a_row(found[1]), slopes.mean(0))
        agree(found[2].toarray(), curves / N, 1e-4)
    dense = sg.fused_hessian(SHAPES, model, **looked(device)).run(FLAT, LOOKED)[2]
    agree(dense["u"]["t"].reshape(8, 2), curves[:8, 9:], 1e-4)


@pytest.mark.parametrize("device", DEVICES)
def test_weights_of_rows(device: Any) -> None:
    rows = ROWS | {"w": np.where(np.arange(N) % 3, 2.0, 0.0), "a": np.where(
        np.arange(N) % 3, A[:, 1], 1e30)}  # fmt: skip
    w = rows["w"]
    options = {"columns": [*ROWS, "w"], "weights": "w", "device": device}
    found = sg.fused_hessian(3, logistic, reduce="mean", **options).run(P, rows)
    agree(found[2], np.tensordot(w, CURVES, 1) / w.sum())
    found = sg.fused_hvp(3, logistic, **options).run(P, V, rows)
    agree(found[2], np.tensordot(w, CURVES, 1) @ V)
    found = sg.fused_forward_backward(3, logistic, reduce=None, **options).run(P, rows)
    agree(found[1], w[:, None] * SLOPES)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_a_regularizer_is_added_once(reduce: Reduce, device: Any) -> None:
    count = N if reduce == "mean" else 1
    options = columns(device, reduce=reduce, regularizer=lambda p: 0.5 * V @ p**2)
    loss, first = sg.fused_forward_backward(3, logistic, **options).run(P, ROWS)
    agree(loss, LOSSES.sum() / count + 0.5 * V @ P**2)
    agree(first, SLOPES.sum(0) / count + V * P)
    kernel = sg.fused_hessian(3, logistic, **options)
    again = pickle.loads(pickle.dumps(kernel)).bind(ROWS)
    agree(again.run(P)[2], CURVES.sum(0) / count + np.diag(V))
    product = sg.fused_hvp(3, logistic, **options).run(P, V, ROWS)[2]
    agree(product, CURVES.sum(0) @ V / count + V * V)
    squares = sg.fused_least_squares(
        3, lambda p, r: eta(p, r) - r.y,
        **columns(device, reduce=reduce, regularizer=lambda p: 2.0 * p),
    )  # fmt: skip
    loss, first, matrix = squares.run(P, ROWS)
    r = A @ P - Y
    agree(loss, r @ r / count + 4 * P @ P)
    agree(first, 2 * A.T @ r / count + 8 * P)
    agree(matrix, A.T @ A / count + 4 * np.eye(3))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("sparse", [False, True])
def test_a_regularizer_of_values_and_of_jacobians(
    reduce: Reduce, device: Any, sparse: bool
) -> None:
    count = N if reduce == "mean" else 1
    f = lambda p, r: [eta(p, r), eta(p, r) ** 2]  # noqa: E731
    prior = lambda p: [p[0] * p[2], 2.0 * p[1]]  # noqa: E731
    options = columns(device, reduce=reduce, regularizer=prior)
    at = A @ P
    values = np.array([at.sum(), at @ at]) / count + [P[0] * P[2], 2 * P[1]]
    slopes = np.array([A.sum(0), 2 * at @ A]) / count + [[P[2], 0, P[0]], [0, 2, 0]]
    agree(sg.fused_forward(3, f, **options).run(P, ROWS), values)
    kernel = sg.fused_jacobian(3, f, sparse=sparse, **options)
    for found in (kernel.run(P, ROWS), pickle.loads(pickle.dumps(kernel)).bind(ROWS).run(P)):
        agree(found[0], values)
        agree(found[1].toarray() if sparse else found[1], slopes)
    looks = looked(device, regularizer=lambda p: [p.s * p.u[1, 0]], reduce=reduce)
    found = sg.fused_jacobian(SHAPES, lambda p, r: [model(p, r)], **looks).run(FLAT, LOOKED)[1]
    also = np.zeros(11)
    also[[2, 8]] = FLAT[8], FLAT[2]
    want = jacobian(FLAT).sum(0) / count + also
    agree(np.concatenate([np.ravel(found[name]) for name in SHAPES]), want)


def test_a_regularizer_is_nested_as_what_it_is_added_to() -> None:
    f = lambda p, r: {"fit": (eta(p, r) - r.y) ** 2, "both": [r.a, r.b * p[1]]}  # noqa: E731
    prior = lambda p: {"fit": p @ p, "both": [0.0, p[0]]}  # noqa: E731
    found = sg.fused_forward(3, f, **columns("cpu", regularizer=prior)).run(P, ROWS)
    agree(found["fit"], ((A @ P - Y) ** 2).sum() + P @ P)
    agree(found["both"], [A[:, 1].sum(), P[1] * A[:, 2].sum() + P[0]])
    for wrong in (lambda p: p @ p, lambda p: {"fit": p @ p, "both": 0.0}, lambda p: [p[0], p[:2]]):
        with pytest.raises(TraceError, match="that are nested and shaped alike"):
            sg.fused_forward(3, f, **columns("cpu", regularizer=wrong))
    with pytest.raises(TraceError, match=r"returns an array \(2,\), where .* an array \(3,\)"):
        sg.fused_jacobian(3, lambda p, r: p * r.a, **columns("cpu", regularizer=lambda p: p[:2]))
    with pytest.raises(InputError, match="added to a sum over rows"):
        sg.fused_jacobian(3, eta, **columns("cpu", reduce=None, regularizer=lambda p: p))


def test_a_regularizer_of_named_parameters_and_of_looked_up_ones() -> None:
    penalty = lambda p: np.sum(sg.array(p.u) ** 2) + p.s**2  # noqa: E731
    options = looked("cpu", regularizer=penalty, sparse=True)
    _, first, second = sg.fused_hessian(SHAPES, model, **options).run(FLAT, LOOKED)
    agree(first["u"], (jacobian(FLAT).sum(0) + 2 * FLAT)[:8].reshape(4, 2))
    agree(second.toarray(), hessian(FLAT) + 2 * np.diag([1] * 9 + [0] * 2), 1e-4)


@pytest.mark.parametrize("method", [sg.LevenbergMarquardt(), sg.LBFGS(), sg.Newton()],
                         ids=lambda m: type(m).__name__)  # fmt: skip
def test_a_regularizer_is_minimised_with_the_loss(method: Any) -> None:
    rows = ROWS | {"w": np.where(np.arange(N) % 3, 2.0, 0.0)}
    ridge = np.sqrt(5.0)
    counts: dict[Reduce, int] = {"sum": 1, "mean": N}
    for reduce, count in counts.items():
        kernel = sg.fused_least_squares(
            3, lambda p, r: eta(p, r) - r.y, regularizer=lambda p: ridge * p, reduce=reduce,
            columns=list(ROWS), device="cpu", dtype="float64",
        )  # fmt: skip
        found = kernel.minimize(np.zeros(3), method, 200, rows=ROWS)
        want = np.linalg.solve(A.T @ A / count + 5 * np.eye(3), A.T @ Y / count)
        np.testing.assert_allclose(found.x, want, rtol=1e-5)
        np.testing.assert_allclose(found.fun, kernel.run(want, ROWS)[0], rtol=1e-8)
    weighted = sg.fused_least_squares(
        3, lambda p, r: eta(p, r) - r.y, regularizer=lambda p: ridge * p, weights="w",
        columns=[*ROWS, "w"], device="cpu", dtype="float64",
    )  # fmt: skip
    found = weighted.minimize(np.zeros(3), method, 200, rows=rows)
    right = A.T @ (rows["w"] * Y)
    want = np.linalg.solve((A.T * rows["w"]) @ A + 5 * np.eye(3), right)
    np.testing.assert_allclose(found.x, want, rtol=1e-5)


def test_kernels_travel_and_say_what_they_are() -> None:
    for verb, options, more in (
        (sg.fused_hessian, looked("cpu", sparse=True), ()),
        (sg.fused_hvp, looked("cpu"), (VECTOR,)),
        (sg.fused_jacobian, looked("cpu", reduce=None), ()),
    ):
        kernel = verb(SHAPES, model, **options)
        again = pickle.loads(pickle.dumps(kernel))
        found, want = again.run(FLAT, *more, LOOKED), kernel.run(FLAT, *more, LOOKED)
        np.testing.assert_array_equal(found[0], want[0])
        assert again.outputs == kernel.outputs and "11 parameters" in repr(again)
        assert "fn main" in kernel.wgsl and kernel.stats.operations > 0 and kernel.expr
    audit = sg.fused_hessian(3, logistic, **columns("cpu")).audit(P, ROWS)
    assert not audit.suspects
    each = sg.fused_forward(3, eta, **columns("cpu", reduce=None)).to("cpu")
    assert each.run(P, ROWS).shape == (N,)


def test_what_is_refused() -> None:
    with pytest.raises(InputError, match='use "sum" or "mean", or None'):
        sg.fused_hessian(3, logistic, **columns("cpu", reduce="max"))
    with pytest.raises(InputError, match="are for rows: give row= or columns="):
        sg.fused_forward(3, lambda p: p[0], reduce=None)
    with pytest.raises(InputError, match="are for rows: give row= or columns="):
        sg.fused_jacobian(3, lambda p: [p[0]], weights="w")
    with pytest.raises(InputError, match="regularizer= is for rows: add it to f"):
        sg.fused_hessian(3, lambda p: p[0], regularizer=lambda p: p[0])
    with pytest.raises(InputError, match="added to a sum over rows"):
        sg.fused_hessian(3, logistic, **columns("cpu", reduce=None, regularizer=lambda p: p[0]))
    with pytest.raises(InputError, match="a sparse Hessian for each row"):
        sg.fused_hessian(SHAPES, model, **looked("cpu", reduce=None))
    with pytest.raises(InputError, match=r"use sg\.fused_jacobian"):
        sg.fused_least_squares(3, eta, **columns("cpu", reduce=None))
    with pytest.raises(TraceError, match="a loss is one scalar"):
        sg.fused_hessian(3, lambda p, r: [p[0], r.a], **columns("cpu"))
    with pytest.raises(InputError, match="run takes params, vector and rows, not 2 arguments"):
        sg.fused_hvp(3, logistic, **columns("cpu")).run(P, ROWS)
    with pytest.raises(InputError, match="only a loss that is summed"):
        sg.fused_forward(3, eta, **columns("cpu")).minimize(P, sg.LBFGS(), rows=ROWS)
    with pytest.raises(InputError, match="check compares"):
        sg.check(sg.fused_forward_backward(3, logistic, **columns("cpu", reduce=None)), P, ROWS)
    kernel = sg.fused_forward_backward(3, logistic, **columns("cpu", regularizer=lambda p: p[0]))
    with pytest.raises(InputError, match="without a regularizer"):
        sg.check(kernel, P, ROWS)


def test_residuals_of_a_prior_beside_those_of_looked_up_parameters() -> None:
    kernel = sg.fused_least_squares(SHAPES, model, **looked("cpu", regularizer=lambda p: 2.0 * p.t))
    plain = sg.fused_least_squares(SHAPES, model, **looked("cpu"))
    found, want = kernel.run(FLAT, LOOKED), plain.run(FLAT, LOOKED)
    agree(found[0], want[0] + 4 * FLAT[9:] @ FLAT[9:])
    agree(found[1]["t"], want[1]["t"] + 8 * FLAT[9:])
    agree(found[2].toarray(), want[2].toarray() + np.diag([0] * 9 + [4, 4]))
    with pytest.raises(InputError, match=r"fit\(\) takes no regularizer"):
        kernel.fit(FLAT, LOOKED)
    with pytest.raises(InputError, match="as_scipy needs a loss"):
        sg.fused_forward(3, eta, **columns("cpu")).as_scipy(ROWS)


@pytest.mark.parametrize("device", DEVICES)
def test_a_function_of_columns_alone_has_no_slopes(device: Any) -> None:
    values, slopes = sg.fused_jacobian(
        3, lambda p, r: sg.exp(r.a) * r.b, **columns(device, reduce=None)
    ).run(P, ROWS)
    np.testing.assert_allclose(values[:, 0], np.exp(A[:, 1]) * A[:, 2], rtol=1e-5)
    np.testing.assert_array_equal(slopes, np.zeros((N, 1, 3)))


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_rows_are_put_side_by_side_by_several_threads(chunk: int) -> None:
    values = sg.fused_forward(SHAPES, model, **looked("cpu", reduce=None, dtype="float64"))
    want = values.run(FLAT, LOOKED)
    with mock.patch("symgrad.rows.each_row.ROWS_AT_A_TIME", chunk), cores(3):
        for _ in range(3):
            np.testing.assert_array_equal(values.run(FLAT, LOOKED), want)
    np.testing.assert_allclose(want, at_rows(FLAT), rtol=1e-12)


@pytest.mark.parametrize("device", DEVICES)
def test_what_no_row_changes_is_computed_once(device: Any) -> None:
    """Rotations of a matrix of parameters: the inverse and the roots are of no row."""

    def model(p: Any, r: Any) -> Any:
        inverse = np.linalg.inv(p.matrix)
        steady = sg.fori_loop(0, 20, lambda k, x: 0.5 * (x + p.scale / x), p.scale)
        return [
            sg.tanh(inverse[0] @ [r.x, r.y]) * steady,
            inverse[1, 0] * 1.0,
            steady + p.level[r.k],
        ]

    rng = np.random.default_rng(0)
    n = {"matrix": (2, 2), "scale": (), "level": (3,)}
    p = {"matrix": rng.normal(size=(2, 2)) + 2 * np.eye(2), "scale": 3.0, "level": np.arange(3.0)}
    rows = {"x": rng.normal(size=50), "y": rng.normal(size=50), "k": rng.integers(0, 3, 50)}
    columns = ["x", "y", "k"]
    kernel = sg.fused_forward(n, model, columns=columns, reduce=None, device=device)
    inverse, root = np.linalg.inv(p["matrix"]), np.sqrt(3.0)
    expected = np.stack(
        [
            np.tanh(inverse[0] @ [rows["x"], rows["y"]]) * root,
            np.full(50, inverse[1, 0]),
            root + rows["k"],
        ],
        axis=1,
    )
    bound = kernel.bind(rows)
    for found in (kernel.run(p, rows), bound.run(p)):
        assert np.allclose(np.stack(found, axis=1), expected, rtol=1e-5, atol=1e-6)
    double = sg.fused_jacobian(
        n, model, columns=columns, reduce=None, device="cpu", dtype="float64"
    )
    _, jacobian = double.run(p, rows)
    flat = np.concatenate([p["matrix"].ravel(), [3.0], p["level"]])
    for k in range(8):
        step = 1e-6 * np.eye(8)[k]
        ahead, behind = (double.run(flat + h, rows)[0].ravel() for h in (step, -step))
        assert np.allclose(jacobian[:, [k]].toarray()[:, 0], (ahead - behind) / 2e-6, atol=1e-8)


def test_an_entry_that_a_row_looks_up_twice_has_one_derivative() -> None:
    """And one that it reads besides; bound, the pattern is found once, for any parameters."""
    kernel = sg.fused_jacobian(
        {"h": (3,)}, lambda p, r: [p.h[r.i] * p.h[r.j] * r.t, p.h[0] + 2.0 * p.h[r.i]],
        columns=["i", "j", "t"], reduce=None, device="cpu", dtype="float64",
    )  # fmt: skip
    i, j, t = np.array([0, 1, 2, 1]), np.array([0, 2, 1, 1]), np.array([1.0, 2.0, 3.0, 4.0])
    bound = kernel.bind({"i": i, "j": j, "t": t})
    for h in (np.array([2.0, 3.0, 5.0]), np.array([-1.0, 0.5, 7.0])):
        wanted = np.zeros((4, 2, 3))
        for row in range(4):
            wanted[row, 0, i[row]] += h[j[row]] * t[row]
            wanted[row, 0, j[row]] += h[i[row]] * t[row]
            wanted[row, 1, 0] += 1.0
            wanted[row, 1, i[row]] += 2.0
        for _, jacobian in (bound.run(h), kernel.run(h, {"i": i, "j": j, "t": t})):
            assert jacobian.has_canonical_format
            assert jacobian.toarray().tolist() == wanted.reshape(8, 3).tolist()
            jacobian.data[:] = 0.0  # the user's own
            jacobian.indices[:] = 0
