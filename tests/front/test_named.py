"""Kernels of points whose variables have shapes and names: results are nested as they are."""

from __future__ import annotations

import pickle
import sys
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.optimize

import symgrad as sg
from symgrad.errors import InputError, NameUnknownError, TraceError
from symgrad.expr.tracers.tree import Blocks

DEVICES = ["cpu", *(d.index for d in sg.devices() if d.is_gpu)]

SHAPES = {"w": (2, 2), "inner": {"b": (), "c": 3}}
W, B, C = np.array([[1.0, 2.0], [3.0, 4.0]]), 0.5, np.array([1.0, -2.0, 3.0])
POINT = {"inner": {"c": C, "b": B}, "w": W}
FLAT = np.array([*W.ravel(), B, *C])


def of_row(v: Any) -> Any:
    """A loss of the same numbers in a row."""
    w, b, c = v[:4].reshape(2, 2), v[4], v[5:]
    return np.sum(w @ w) * b**2 + np.sum(c**2) * w[0, 1] * b


def loss(p: Any) -> Any:
    return of_row(np.concatenate([p.w.ravel(), sg.array([p["inner"].b]), p.inner["c"]]))


def same(found: Any, want: np.ndarray, lead: tuple[int, ...] = ()) -> None:
    """Nested derivatives are those for the numbers in a row, (*lead, 8)."""
    assert list(found) == ["w", "inner"] and list(found["inner"]) == ["b", "c"]
    np.testing.assert_allclose(found["w"], want[..., :4].reshape(*lead, 2, 2), rtol=1e-6)
    np.testing.assert_allclose(found["inner"]["b"], want[..., 4], rtol=1e-6)
    np.testing.assert_allclose(found["inner"]["c"], want[..., 5:], rtol=1e-6)


def test_points_beyond_the_range_of_float32_are_infinite_without_a_word() -> None:
    kernel = sg.fused_forward({"a": (2,), "b": ()}, lambda p: [p.a[0], p.a[1], p.b], device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for b in (-1e300, np.float64(-1e300)):
            assert kernel.run({"a": np.array([1e300, 2.0]), "b": b}) == [np.inf, 2.0, -np.inf]


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_are_nested_as_the_variables(device: Any) -> None:
    kernel = sg.fused_forward_backward(SHAPES, loss, device=device)
    value, slopes = kernel.run(POINT)
    want, right = sg.fused_forward_backward(8, of_row, device=device).run(FLAT)
    assert value == want
    same(slopes, right)
    same(kernel.run(FLAT)[1], right)
    np.testing.assert_array_equal(kernel.in_a_row(slopes), right)
    assert kernel.inputs == ("w0", "w1", "w2", "w3", "inner_b0", "inner_c0", "inner_c1", "inner_c2")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "b", [0.5, 1, np.float32(2.0), np.array(0.25), 1e300, -np.inf, np.nan, [0.5, 0.75]], ids=repr
)
def test_points_of_any_numbers_give_what_their_rows_give(b: Any, dtype: Any) -> None:
    kernel = sg.fused_forward_backward(SHAPES, loss, device="cpu", dtype=dtype)
    rows = np.array([[*W.ravel(), one, *C] for one in np.atleast_1d(b)])
    rows = rows if np.ndim(b) else rows[0]
    for w, c in ((W, C), (W.astype(dtype), C.astype(dtype)), (W.T.copy().T, C.tolist())):
        point = {"inner": {"c": c, "b": b}, "w": w}
        for _ in range(2):  # what is kept of the first call is not in the second
            value, slopes = kernel.run(point)
            want, right = kernel.run(rows)
            np.testing.assert_array_equal(value, want)
            np.testing.assert_array_equal(slopes["w"], right["w"])
            np.testing.assert_array_equal(slopes["inner"]["b"], right["inner"]["b"])
            slopes["w"][...] = 0.0


@pytest.mark.parametrize("device", DEVICES)
def test_batches_stand_before_the_shapes_and_broadcast(device: Any) -> None:
    kernel = sg.fused_forward_backward(SHAPES, loss, device=device)
    b = np.linspace(0.1, 2.0, 5)
    values, slopes = kernel.run({"w": W, "inner": {"b": b, "c": np.tile(C, (5, 1))}})
    rows = np.array([np.r_[W.ravel(), v, C] for v in b])
    want, right = sg.fused_forward_backward(8, of_row, device=device).run(rows)
    np.testing.assert_array_equal(values, want)
    same(slopes, right, (5,))
    with pytest.raises(InputError, match="the batches of x do not go together"):
        kernel.run({"w": np.ones((4, 2, 2)), "inner": {"b": b, "c": C}})


@pytest.mark.parametrize("device", DEVICES)
def test_second_derivatives_are_nested_twice(device: Any) -> None:
    value, slopes, matrix = sg.fused_hessian(SHAPES, loss, device=device).run(POINT)
    want, right, full = sg.fused_hessian(8, of_row, device=device).run(FLAT)
    assert value == want
    same(slopes, right)
    same(matrix["w"], full[:4].reshape(2, 2, 8), (2, 2))
    same(matrix["inner"]["b"], full[4])
    same(matrix["inner"]["c"], full[5:], (3,))
    batch = sg.fused_hessian(SHAPES, loss, device=device).run(np.tile(FLAT, (4, 1)))[2]
    assert batch["w"]["w"].shape == (4, 2, 2, 2, 2) and batch["w"]["inner"]["b"].shape == (4, 2, 2)
    sparse = sg.fused_hessian(SHAPES, loss, sparse=True, device=device).run(POINT)[2]
    np.testing.assert_allclose(sparse.toarray(), full, rtol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_jacobians_and_products(device: Any) -> None:
    values, rows = sg.fused_jacobian(
        SHAPES, lambda p: [p.inner.b * p.w[0, 1], p.inner.c[2] ** 2], device=device
    ).run(POINT)
    assert values.tolist() == [1.0, 9.0]
    same(rows, np.array([[0, B, 0, 0, 2.0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 6.0]]), (2,))
    found = sg.fused_hvp(SHAPES, loss, device=device).run(POINT, POINT)
    want = sg.fused_hvp(8, of_row, device=device).run(FLAT, FLAT)
    assert found[0] == want[0]
    same(found[1], want[1])
    same(found[2], want[2])


@pytest.mark.parametrize("device", DEVICES)
def test_shapes(device: Any) -> None:
    kernel = sg.fused_hessian((2, 2), lambda w: np.sum(w @ w), device=device)
    value, slopes, matrix = kernel.run(W)
    assert value == 54.0 and (slopes.shape, matrix.shape) == ((2, 2), (2, 2, 2, 2))
    np.testing.assert_array_equal(kernel.run(np.tile(W, (3, 1, 1)))[1], [slopes] * 3)
    one = sg.fused_hessian((), lambda x: x**3, device=device)
    assert one.run(2.0) == (8.0, 12.0, 12.0)
    assert one.run([[1.0, 2.0]])[2].tolist() == [[6.0, 12.0]]


def test_wrong_points_are_refused() -> None:
    kernel = sg.fused_forward_backward(SHAPES, loss, device="cpu")
    with pytest.raises(InputError, match=r"x must be a dict with the keys 'w', 'inner'"):
        kernel.run({"w": W})
    with pytest.raises(InputError, match=r"x\['inner'\] must be a dict with the keys 'b', 'c'"):
        kernel.run({"w": W, "inner": {"b": B}})
    with pytest.raises(InputError, match=r"w has shape \(3, 2\): the kernel takes \(2, 2\) or"):
        kernel.run({"w": np.ones((3, 2)), "inner": {"b": B, "c": C}})
    with pytest.raises(InputError, match=r"takes \(8,\) or \(\.\.\., 8\)"):
        kernel.run(np.ones(7))
    with pytest.raises(InputError, match="a number of parameters, a shape, or dicts"):
        sg.fused_forward({"w": 2.5}, lambda p: p.w[0])


def test_a_kernel_with_names_travels_and_is_checked() -> None:
    kernel = sg.fused_forward_backward(SHAPES, loss, device="cpu", dtype="float64")
    again = pickle.loads(pickle.dumps(kernel))
    same(again.run(POINT)[1], kernel.in_a_row(kernel.run(FLAT)[1]))
    assert sg.check(kernel, np.tile(FLAT, (3, 1)))
    bowl = sg.fused_forward_backward(
        {"a": 2, "b": ()}, lambda p: np.sum((p.a - 1) ** 2) + p.b**2, device="cpu", dtype="float64"
    )
    found: Any = scipy.optimize.minimize(bowl.as_scipy(), [3.0, 4.0, 5.0], jac=True)
    np.testing.assert_allclose(found.x, [1, 1, 0], atol=1e-6)


# results that are written to the user's arrays ----------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("batch", [(), (7,)])
def test_nested_results_are_written(batch: tuple[int, ...], device: Any) -> None:
    x = np.random.default_rng(0).uniform(1, 2, (*batch, 4))
    for f in (
        lambda v: v[0] * v[1],
        lambda v: v.reshape(2, 2) * 2,
        lambda v: {"sum": v[0] + v[1], "pair": (v * 2, [v[2], v[3]])},
    ):
        kernel = sg.fused_forward(4, f, device=device)
        want = kernel.run(x)
        out = _empty(want)
        assert kernel.run(x, out=out) is out
        _require_same(out, want)


def _empty(result: Any) -> Any:
    if isinstance(result, dict):
        return {name: _empty(v) for name, v in result.items()}
    if isinstance(result, (list, tuple)):
        return type(result)(map(_empty, result))
    return np.empty(np.shape(result), np.float32)


def _require_same(found: Any, want: Any) -> None:
    if isinstance(want, dict):
        found, want = list(found.values()), list(want.values())
    if isinstance(want, (list, tuple)):
        for a, b in zip(found, want, strict=True):
            _require_same(a, b)
    else:
        np.testing.assert_array_equal(found, want)


def test_nested_derivatives_are_written() -> None:
    kernel = sg.fused_hessian(SHAPES, loss, device="cpu")
    want = kernel.run(POINT)
    out = _empty(want)
    kernel.run(POINT, out=out)
    _require_same(out, want)
    with pytest.raises(InputError, match=r"out for grad\['inner'\] must be a dict"):
        kernel.run(POINT, out=(out[0], {"w": out[1]["w"], "inner": {}}, out[2]))
    with pytest.raises(InputError, match=r"a NumPy array of float32 and shape \(2, 2\)"):
        kernel.run(POINT, out=(out[0], {**out[1], "w": np.empty(4, np.float32)}, out[2]))


# named parameters are a mapping -------------------------------------------------------------------


def test_traced_parameters_are_a_mapping() -> None:
    def f(p: Any) -> Any:
        def model(a: Any, b: Any) -> Any:
            return np.sum(a) * b

        assert list(p) == ["a", "b"] and len(p) == 2 and "a" in p and "c" not in p
        assert list(p.keys()) == ["a", "b"] and p.get("c") is None and "a, b" in repr(p)
        fixed = sg.stop_gradient(p)
        grown = dict(p) | {"b": p.b + 1}
        return model(**p) + fixed.b * np.sum(fixed["a"]) + model(**grown) + sum(
            np.sum(v) for v in p.values()
        )  # fmt: skip

    for kernel, more in (
        (sg.fused_forward_backward({"a": 2, "b": ()}, f, device="cpu"), ()),
        (sg.fused_forward_backward({"a": 2, "b": ()}, lambda p, r: f(p), row=1, device="cpu"),
         ([[0.0]],)),
    ):  # fmt: skip
        value, slopes = kernel.run({"a": [1.0, 2.0], "b": 3.0}, *more)
        assert value == 9 + 9 + 12 + 6
        assert slopes["a"].tolist() == [8.0, 8.0] and slopes["b"] == 7.0


def test_parameters_named_as_methods_of_mappings() -> None:
    kernel = sg.fused_forward_backward(
        {"items": 2, "keys": ()}, lambda p: p.items[0] * p["keys"], device="cpu"
    )
    assert kernel.run({"items": [2.0, 5.0], "keys": 3.0})[0] == 6.0
    with pytest.raises(NameUnknownError, match="no parameters 'x': the blocks are items, keys"):
        sg.fused_forward({"items": 2, "keys": ()}, lambda p: p["x"])


def test_tree_functions_know_named_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[type, Any] = {}
    fake = SimpleNamespace(
        register_pytree_node=lambda kind, flat, whole: known.update({kind: (flat, whole)})
    )
    monkeypatch.setitem(sys.modules, "jax.tree_util", fake)  # pyright: ignore[reportArgumentType]
    made = Blocks({"a": 1, "b": 2})
    flat, whole = known[Blocks]
    parts, names = flat(made)
    assert parts == (1, 2) and dict(whole(names, parts)) == dict(made)


def test_gradients_for_dicts_and_for_numbers() -> None:
    x, y = sg.symbols("x y")
    found = sg.grad(x * y + y, {"pair": [x, y], "y": y})
    assert [str(e) for e in found["pair"]] == ["y", "x + 1"] and str(found["y"]) == "x + 1"
    for wrt in (1.0, [x, 2.0], np.ones(2)):
        with pytest.raises(TraceError, match=r"a number: give the expressions.*sg\.evaluate"):
            sg.grad(x * y, wrt)


def test_stop_gradient_of_nests() -> None:
    def f(v: Any) -> Any:
        fixed = sg.stop_gradient({"a": v, "b": (v[0], [v, v[1]])})
        return np.sum(fixed["a"] * v) + fixed["b"][0] * v[1] + np.sum(fixed["b"][1][0]) * v[0]

    assert sg.fused_forward_backward(2, f, device="cpu").run([2.0, 3.0])[1].tolist() == [7.0, 5.0]


def test_forward_backward_of_containers() -> None:
    x = {"w": W, "more": (np.arange(2.0), 3.0)}
    loss, gradient = sg.forward_backward(lambda p: np.sum(p.w**2) * p.more[1] + p.more[0][1], x)
    assert loss == 3 * np.sum(W**2) + 1.0 and type(gradient["more"]) is tuple
    np.testing.assert_allclose(gradient["w"], 6 * W)
    assert gradient["more"][0].tolist() == [0.0, 1.0] and gradient["more"][1] == np.sum(W**2)
    assert sg.forward_backward(lambda v: v @ v, [3.0, 4.0])[1].tolist() == [6.0, 8.0]
    with pytest.raises(TypeError, match="x holds strings"):
        sg.forward_backward(lambda p: p.w, {"w": "a"})


# minimisations ------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_minimisations_from_nested_starts(device: Any) -> None:
    kernel = sg.fused_forward_backward(
        {"a": 2, "b": ()}, lambda p: np.sum((p.a - 1) ** 2) + (p.b - 3) ** 2, device=device
    )
    found = kernel.minimize({"a": np.full((5, 2), 2.0), "b": np.arange(5.0)}, sg.LBFGS(), 50)
    assert (found.x["a"].shape, found.x["b"].shape, found.fun.shape) == ((5, 2), (5,), (5,))
    np.testing.assert_allclose(found.x["a"], 1.0, atol=1e-4)
    one = kernel.minimize({"a": [2.0, 0.0], "b": 1.0}, sg.LBFGS(), 50, history=True)
    np.testing.assert_allclose(one.x["a"], [1.0, 1.0], atol=1e-4)
    assert one.x["b"] == pytest.approx(3.0, abs=1e-4) and one.success and np.ndim(one.fun) == 0
    assert "tolerance" in one.message and one.history.ndim == 1
    assert kernel.minimize(np.zeros((4, 3)), sg.LBFGS(), 50).x.shape == (4, 3)
    square = sg.fused_forward_backward((2, 2), lambda w: np.sum((w - 1) ** 2), device=device)
    assert square.minimize(np.zeros((5, 2, 2)), sg.LBFGS(), 50).x.shape == (5, 2, 2)
    assert square.minimize(np.zeros((2, 2)), sg.LBFGS(), 50).x.shape == (2, 2)
    with pytest.raises(InputError, match="starts must be a dict with the keys 'a', 'b'"):
        kernel.minimize({"a": [0.0, 0.0]}, sg.LBFGS())


def test_minimisations_over_data_from_nested_starts() -> None:
    x = np.linspace(0, 1, 30)
    rows = {"x": x, "y": 2.0 - 3.0 * x}
    kernel = sg.fused_least_squares(
        {"level": (), "slope": ()}, lambda p, r: p.level + p.slope * r.x - r.y, columns=["x", "y"],
        device="cpu", dtype="float64",
    )  # fmt: skip
    found = kernel.minimize({"level": 0.0, "slope": 0.0}, sg.LevenbergMarquardt(), rows=rows)
    assert found.x["level"] == pytest.approx(2.0) and found.x["slope"] == pytest.approx(-3.0)
    assert found.success and np.ndim(found.success) == 0
    many = kernel.minimize({"level": np.zeros(3), "slope": 1.0}, sg.LBFGS(), rows=rows)
    np.testing.assert_allclose(many.x["slope"], [-3.0] * 3, rtol=1e-5)


SIZES: Any = {"a": 2, "inner": {"b": ()}}


def quadratic(p: Any) -> Any:
    return np.sum((p.a - 1) ** 2) + (p["inner"].b - 3) ** 2


@pytest.mark.parametrize("device", DEVICES)
def test_minimisations_of_named_variables(device: Any) -> None:
    start = {"a": [2.0, 0.0], "inner": {"b": 1.0}}
    seen: list[Any] = []
    one = sg.minimize_from(
        quadratic, SIZES, start, sg.LBFGS(), 50, device=device,
        callback=lambda found: seen.append(found.x["inner"]["b"]),
    )  # fmt: skip
    assert one.success and seen and np.shape(one.fun) == np.shape(one.x["inner"]["b"]) == ()
    np.testing.assert_allclose(one.x["a"], 1.0, atol=1e-4)
    many = sg.minimize_from(
        quadratic, SIZES, {"a": np.zeros((4, 2)), "inner": {"b": 0.0}}, sg.Newton(), 50,
        bounds={"inner": {"b": (None, 2.0)}}, device=device,
    )  # fmt: skip
    assert many.x["a"].shape == (4, 2) and many.best is not None
    np.testing.assert_allclose(many.x["inner"]["b"], 2.0, atol=1e-4)
    assert sg.minimize_from(quadratic, SIZES, np.zeros((4, 3)), sg.Adam(), 3).x.shape == (4, 3)
    with pytest.raises(InputError, match="starts must be a dict with the keys 'a', 'inner'"):
        sg.minimize_from(quadratic, SIZES, {"a": [0.0, 0.0]}, sg.LBFGS(), device=device)


def test_minimisations_of_shaped_variables() -> None:
    for starts, shape in ((W, (2, 2)), (np.stack([W] * 3), (3, 2, 2)), (W.ravel(), (4,))):
        found = sg.minimize_from(
            lambda w: np.sum((w @ w - 2 * w) ** 2), (2, 2), starts, sg.LBFGS(), 5, device="cpu"
        )
        assert found.x.shape == shape
    for starts, shape in ((2.0, ()), (np.arange(5.0), (5,)), (np.ones((5, 1)), (5, 1))):
        found = sg.minimize_from(lambda x: (x - 3) ** 2, (), starts, sg.Newton(), 5, device="cpu")
        assert np.shape(found.x) == shape
        np.testing.assert_allclose(found.x, 3.0)


def test_residuals_of_named_variables_over_data() -> None:
    x = np.linspace(0, 1, 30)
    found = sg.minimize_from(
        lambda p, r: p.level + p.slope * r[0] - r[1], {"level": (), "slope": ()},
        {"level": 0.0, "slope": 0.0}, sg.LevenbergMarquardt(), device="cpu", dtype="float64",
        shared=np.stack([x, 2.0 - 3.0 * x], axis=1),
    )  # fmt: skip
    assert found.x["level"] == pytest.approx(2.0) and found.x["slope"] == pytest.approx(-3.0)


@pytest.mark.parametrize("regularizer", [None, lambda p: [p.c[0], p.c[1] * p.w[1, 0]]])
@pytest.mark.parametrize("device", DEVICES)
def test_jtj_of_nested_parameters(device: Any, regularizer: Any) -> None:
    n = {"w": (2, 2), "c": 2, "s": ()}

    def residual(p: Any, r: Any) -> Any:
        return [p.w[0, 0] * r[0] + p.c[1], p.w[1, 0] * p.s * r[1] + p.w[0, 1]]

    def in_a_row(v: Any, r: Any) -> Any:
        return residual(SimpleNamespace(w=v[:4].reshape(2, 2), c=v[4:6], s=v[6]), r)

    also = regularizer and (
        lambda v: regularizer(SimpleNamespace(w=v[:4].reshape(2, 2), c=v[4:6], s=v[6]))
    )
    flat, rows = np.arange(1.0, 8.0), np.random.default_rng(1).uniform(size=(20, 2))
    options: Any = {"row": 2, "device": device}
    kernel = sg.fused_least_squares(n, residual, regularizer=regularizer, **options)
    want = sg.fused_least_squares(7, in_a_row, regularizer=also, **options).run(flat, rows)[2]
    point = {"w": flat[:4].reshape(2, 2), "c": flat[4:6], "s": 7.0}
    for found in (kernel.run(point, rows)[2], kernel.bind(rows).run(point)[2]):
        assert list(found) == list(found["w"]) == ["w", "c", "s"]
        assert found["w"]["c"].shape == (2, 2, 2) and found["s"]["s"].shape == ()
        np.testing.assert_array_equal(found["w"]["w"].reshape(4, 4), want[:4, :4])
        np.testing.assert_array_equal(found["c"]["w"].reshape(2, 4), want[4:6, :4])
        np.testing.assert_array_equal(found["s"]["c"], want[6, 4:6])
