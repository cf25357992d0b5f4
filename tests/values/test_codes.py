"""Columns that hold no numbers: labels, categories, booleans and dates, and what is refused."""

from __future__ import annotations

import datetime
import pickle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.errors import InputError, InputTypeError

DEVICES = ["cpu", *(d.index for d in sg.devices() if d.is_gpu)]


def picked(count: int, device: Any = "cpu", **options: Any) -> Any:
    """The line that each row looks up, times a number of the row."""
    return sg.fused_forward(
        count, lambda p, r: p[r.city] * r.x, columns=options.pop("columns", ["city", "x"]),
        reduce=options.pop("reduce", None), device=device, **options,
    )  # fmt: skip


class Categories:
    """As much of a pandas categorical series as is needed."""

    def __init__(self, codes: list[int], categories: list[str]) -> None:
        self.cat = SimpleNamespace(codes=np.array(codes), categories=np.array(categories))

    def __len__(self) -> int:
        return len(self.cat.codes)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "cities",
    [
        ["Rome", "Bern", "Rome", "Oslo"],
        np.array(["Rome", "Bern", "Rome", "Oslo"]),
        np.array(["Rome", "Bern", "Rome", "Oslo"], object),
        np.array([b"Rome", b"Bern", b"Rome", b"Oslo"]),
        Categories([2, 0, 2, 1], ["Bern", "Oslo", "Rome"]),
    ],
    ids=["list", "array", "objects", "bytes", "categories"],
)
def test_labels_are_indices(cities: Any, device: Any) -> None:
    kernel = picked(3, device)
    rows = {"city": cities, "x": [1.0, 1.0, 2.0, 1.0]}
    assert kernel.run([1.0, 2.0, 3.0], rows).tolist() == [3.0, 1.0, 6.0, 2.0]
    labels = [v.decode() if isinstance(v, bytes) else v for v in kernel.codes["city"].tolist()]
    assert labels == ["Bern", "Oslo", "Rome"]
    assert "city (3 labels), x" in repr(kernel)
    assert kernel.bind(rows).run([1.0, 2.0, 3.0]).tolist() == [3.0, 1.0, 6.0, 2.0]


def test_codes_stay_what_they_were() -> None:
    kernel = picked(3)
    kernel.run([1, 2, 3], {"city": ["b", "c", "a"], "x": [1, 1, 1]})
    later = {"city": ["c", "b"], "x": [1, 1]}
    for again in (kernel, pickle.loads(pickle.dumps(kernel)), kernel.to("cpu")):
        assert again.run([1, 2, 3], later).tolist() == [3.0, 2.0]
    with pytest.raises(
        InputError, match=r"city holds 'd', which is none of the labels so far, 'a'"
    ):
        kernel.run([1, 2, 3], {"city": ["a", "d"], "x": [1, 1]})
    other = {"city": Categories([0, 1], ["c", "a"]), "x": [1, 1]}  # another order of categories
    assert kernel.run([1, 2, 3], other).tolist() == [3.0, 1.0]


def test_labels_that_are_declared_beforehand() -> None:
    kernel = picked(3, columns={"city": ["Rome", "Oslo", "Bern"], "x": None})
    blocks = [{"city": [name], "x": [1]} for name in ("Bern", "Rome", "Oslo")]
    assert kernel.run([1, 2, 3], iter(blocks)).tolist() == [3.0, 1.0, 2.0]
    with pytest.raises(InputError, match="different labels, in a list"):
        picked(3, columns={"city": ["a", "a"], "x": None})


def test_missing_labels_are_as_the_policy_says() -> None:
    rows = {"city": np.array(["a", None, "b", float("nan")], object), "x": [1, 1, 1, 1]}
    assert picked(2, nan_policy="omit").run([1, 2], rows).tolist() == [1.0, 2.0]
    with pytest.raises(InputError, match="NaN at row 1: mend it"):
        picked(2).run([1, 2], rows)


def test_a_label_as_a_number() -> None:
    kernel = sg.fused_forward(1, lambda p, r: p[0] * r.group, columns=["group"], reduce=None,
                              device="cpu")  # fmt: skip
    assert kernel.run(2.0, {"group": ["no", "yes", "no"]}).tolist() == [0.0, 2.0, 0.0]
    assert kernel.run(2.0, {"group": ["yes"]}).tolist() == [2.0]


def test_booleans_are_0_and_1() -> None:
    kernel = sg.fused_forward(1, lambda p, r: p[0] * r.on, columns=["on"], reduce=None,
                              device="cpu")  # fmt: skip
    for on in ([True, False], np.array([True, False]), np.array([True, False], object)):
        assert kernel.run(2.0, {"on": on}).tolist() == [2.0, 0.0]
    assert kernel.codes == {}


def test_dates_are_days() -> None:
    kernel = sg.fused_forward(
        (), lambda p, r: p * r.when + r.took, columns=["when", "took"], reduce=None, device="cpu",
        dtype="float64",
    )  # fmt: skip
    when = np.array(["2024-03-01T12", "2024-03-01", "NaT", "2024-03-11"], "datetime64[h]")
    took = np.array([0, 36, 0, 0], "timedelta64[h]")
    found = kernel.run(2.0, {"when": when, "took": took})
    assert found[[0, 1, 3]].tolist() == [1.0, 1.5, 20.0] and np.isnan(found[2])
    assert kernel.codes["when"] == np.datetime64("2024-03-01")
    objects = np.array([datetime.datetime(2024, 2, 29), datetime.date(2024, 3, 2)], object)
    assert kernel.run(1.0, {"when": objects, "took": [0, 0]}).tolist() == [-1.0, 1.0]
    fixed = sg.fused_forward(
        1, lambda p, r: p[0] * r.t, columns={"t": np.datetime64("2020-01-01")}, reduce=None,
        device="cpu",
    )  # fmt: skip
    assert fixed.run(1.0, {"t": np.array(["2020-01-03"], "datetime64[s]")}).tolist() == [2.0]


def test_labels_in_every_kernel_over_data() -> None:
    names = np.array(["b", "a", "b", "c"])
    rows = {"who": names, "y": [1.0, 2.0, 3.0, 4.0]}
    kernel = sg.fused_forward_backward(
        3, lambda p, r: (p[r.who] - r.y) ** 2, columns=["who", "y"], device="cpu"
    )
    loss, slopes = kernel.run([2.0, 2.0, 4.0], rows)
    assert loss == 2.0 and slopes.tolist() == [0.0, 0.0, 0.0]
    group = sg.fused_least_squares(
        2, lambda p, r: p[0] + p[1] * r.who - r.y, columns=["who", "y"], device="cpu"
    )
    rows = {"who": ["x", "y", "x"], "y": [1.0, 5.0, 1.0]}
    found = group.minimize([0.0, 0.0], sg.LevenbergMarquardt(), data=rows)
    np.testing.assert_allclose(found.x, [1.0, 4.0], rtol=1e-5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.array([1.0, [2]], object), r"x holds objects, \[2\] at row 1: a column is of numbers"),
        (np.array([1.0, "a"], object), "x holds objects, 'a' at row 1 beside numbers"),
        (np.array([1.0, object], object), "x holds objects, <class 'object'> at row 1"),
        (np.array([1j, 2.0]), "x holds complex numbers"),
    ],
    ids=["lists", "mixed", "classes", "complex"],
)
def test_objects_are_refused(values: Any, message: str) -> None:
    kernel = sg.fused_forward(1, lambda p, r: p[0] * r.x, columns=["x"], reduce=None, device="cpu")
    with pytest.raises(InputTypeError, match=message):
        kernel.run(1.0, {"x": values})


def test_labels_need_names_of_columns() -> None:
    kernel = sg.fused_forward(1, lambda p, r: p[0] * r[0], row=1, reduce=None, device="cpu")
    with pytest.raises(InputTypeError, match=r"rows holds strings.*labels and dates are coded in"):
        kernel.run(1.0, [["a"], ["b"]])
