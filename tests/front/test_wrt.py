"""The variables that a Jacobian is made for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symgrad as sg


def outputs(v: Any) -> list[Any]:
    return [v[0] * v[1] + v[3], sg.exp(v[2]) * v[0], v[1] * v[3] ** 2]


AT = np.array([0.5, 1.5, -0.25, 2.0])


@pytest.mark.parametrize(
    "wrt",
    [
        0, -1, [2], [3, 0], (1, 2), range(2), slice(1, 3), slice(None, None, -1), np.array([0, 3]),
        np.array([True, False, False, True]), [1, 1], np.int64(2), [[0, 1], [2, 3]],
    ],
    ids=repr,
)  # fmt: skip
def test_positions_index_the_columns(wrt: Any) -> None:
    whole = sg.fused_jacobian(4, outputs, dtype="float64", device="cpu")
    kernel = sg.fused_jacobian(4, outputs, wrt=wrt, dtype="float64", device="cpu")
    index = list(wrt) if isinstance(wrt, (tuple, range)) else wrt
    values, jacobian = kernel.run(AT)
    np.testing.assert_array_equal(values, whole.run(AT)[0])
    np.testing.assert_allclose(jacobian, whole.run(AT)[1][:, index], rtol=1e-15)
    batch = np.stack([AT, 2 * AT, AT - 1])
    np.testing.assert_allclose(kernel.run(batch)[1], whole.run(batch)[1][:, :, index], rtol=1e-15)


def test_names_are_those_of_the_variables() -> None:
    whole = sg.fused_jacobian(4, outputs, device="cpu").run(AT)[1]
    named = {"names": ["a", "b", "c", "d"], "device": "cpu"}
    assert (sg.fused_jacobian(4, outputs, wrt="c", **named).run(AT)[1] == whole[:, 2]).all()
    picked = sg.fused_jacobian(4, outputs, wrt=["d", "a"], **named).run(AT)[1]
    assert (picked == whole[:, [3, 0]]).all()
    given = sg.fused_jacobian(4, outputs, wrt="x2", device="cpu").run(AT)[1]
    assert (given == whole[:, 2]).all()


def test_keys_are_those_of_nested_variables() -> None:
    shapes = {"w": (2, 3), "layer": {"a": (), "b": 2}}
    at = {"w": np.arange(6.0).reshape(2, 3), "layer": {"a": 2.0, "b": [0.5, 1.5]}}

    def f(p: Any) -> Any:
        return p.w @ np.ones(3) * p.layer.a + p.layer.b

    def of(wrt: Any) -> Any:
        return sg.fused_jacobian(shapes, f, wrt=wrt, device="cpu").run(at)[1]

    whole = of(None)
    assert (of("w") == whole["w"]).all() and of("w").shape == (2, 2, 3)
    assert of("layer").keys() == {"a", "b"} and (of("layer")["b"] == whole["layer"]["b"]).all()
    assert (of("layer.a") == whole["layer"]["a"]).all() and of("layer.a").shape == (2,)
    both = of(["layer.b", "w"])
    assert list(both) == ["layer.b", "w"] and (both["w"] == whole["w"]).all()
    assert (both["layer.b"] == whole["layer"]["b"]).all()


def test_shaped_variables_are_indexed_as_arrays() -> None:
    def f(m: Any) -> Any:
        return m @ m @ np.array([1.0, 2.0])

    at = np.array([[1.0, 2.0], [3.0, 4.0]])
    whole = sg.fused_jacobian((2, 2), f, device="cpu").run(at)[1]
    for wrt in ((0, 1), 1, slice(0, 1), np.array([[True, False], [False, True]])):
        found = sg.fused_jacobian((2, 2), f, wrt=wrt, device="cpu").run(at)[1]
        index = (slice(None), *wrt) if isinstance(wrt, tuple) else (slice(None), wrt)
        assert (found == whole[index]).all() and found.shape == whole[index].shape


def test_what_is_not_asked_for_is_not_computed() -> None:
    def f(v: Any) -> list[Any]:
        return [sg.exp(v[0]) * k + sg.sin(v[1]) * sg.cos(k * v[2]) for k in range(1, 5)]

    one = sg.fused_jacobian(3, f, wrt=[0], device="cpu")
    assert one.stats.operations <= sg.fused_forward(3, f, device="cpu").stats.operations + 4
    sparse = sg.fused_jacobian(4, outputs, wrt=[2, 3], sparse=True, device="cpu").run(AT)[1]
    assert sparse.shape == (3, 2) and sparse.nnz == 3


@pytest.mark.parametrize(
    "wrt", [4, -5, "z", ["x0", "z"], [], 1.5, True, {"x0"}, [0, "x1"], slice(9, 12)], ids=repr
)
def test_variables_that_do_not_exist(wrt: Any) -> None:
    with pytest.raises(
        sg.InputError, match=r"is not one of the variables: give names out of x0, x1"
    ):
        sg.fused_jacobian(4, outputs, wrt=wrt, device="cpu")


@pytest.mark.parametrize("wrt", ["c", ["a", "c"], 0, [], ["a", 1], "b.z"], ids=repr)
def test_keys_that_do_not_exist(wrt: Any) -> None:
    with pytest.raises(
        sg.InputError, match=r"is not one of the variables: give names out of a, b\.x"
    ):
        sg.fused_jacobian({"a": 2, "b": {"x": 1}}, lambda p: p.a, wrt=wrt, device="cpu")


def test_rows_are_differentiated_for_all_parameters() -> None:
    both: Any = {"wrt": 0, "row": 1}
    with pytest.raises(sg.InputError, match="wrt= is for kernels of points"):
        sg.fused_jacobian(2, lambda p, r: [p[0] * r[0]], device="cpu", **both)
