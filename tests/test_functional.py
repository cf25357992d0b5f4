"""`value_and_grad`: arguments by place and by name, what f computes beside its value, misuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import symgrad as sg


def loss(p: Any, x: Any, scale: Any = 1.0, shift: Any = 0.0) -> Any:
    return np.sum((p["w"] * x + p["b"] - shift) ** 2) * scale


P = {"w": 2.0, "b": np.array([1.0, 3.0])}
X = np.array([1.0, 2.0])


def test_arguments_by_name_are_not_differentiated_for() -> None:
    value, slopes = sg.value_and_grad(loss, argnums=(1, 0))(P, X, shift=X, scale=0.5)
    r = 2 * X + P["b"] - X
    assert value == 0.5 * r @ r
    np.testing.assert_allclose(slopes[0], 2 * r)
    np.testing.assert_allclose(slopes[1]["b"], r)
    assert slopes[1]["w"] == r @ X


def test_what_is_computed_beside_the_value_is_returned() -> None:
    def both(p: Any, x: Any) -> Any:
        line = p["w"] * x + p["b"]
        return line @ line, {"line": line, "first": line[0], "count": 2}

    (value, aux), slopes = sg.value_and_grad(both, has_aux=True)(P, X)
    assert value == 9.0 + 49.0 and aux["line"].tolist() == [3.0, 7.0]
    assert aux["first"] == 3.0 and aux["count"] == 2.0
    assert slopes["b"].tolist() == [6.0, 14.0]
    with pytest.raises(sg.TraceError, match=r"loss \(.*needs \(loss, aux\)"):
        sg.value_and_grad(loss, has_aux=True)(P, X)


def test_the_number_of_arguments_may_change() -> None:
    f = sg.value_and_grad(lambda *xs: sum(x @ x for x in xs), argnums=-1)
    assert f(X)[1].tolist() == [2.0, 4.0]
    assert f(X, 2 * X)[1].tolist() == [4.0, 8.0]
    assert f(2 * X, X)[1].tolist() == [2.0, 4.0]


@pytest.mark.parametrize(
    ("argnums", "message"),
    [("x", "is needed"), (1.5, "is needed"), ((0, -2), "twice"), (2, "beyond the 2 given")],
)
def test_wrong_argnums_are_refused(argnums: Any, message: str) -> None:
    with pytest.raises(sg.InputError, match=message):
        sg.value_and_grad(loss, argnums=argnums)(P, X)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(sg.InputTypeError, match="masked"):
        sg.value_and_grad(loss)(P, np.ma.masked_less(X, 1.5))
    with pytest.raises(sg.InputTypeError, match="strings"):
        sg.value_and_grad(loss)(P, X, scale="large")
    with pytest.raises(sg.TraceError, match=r"test_functional\.py.*a loss is one scalar"):
        sg.value_and_grad(lambda x: x)(X)
    with pytest.raises(sg.TraceError, match=r"use sg\.value_and_grad"):
        sg.grad(lambda x: x)  # pyright: ignore[reportArgumentType]
