"""Columns that hold no numbers: labels, categories, booleans and dates, and what is refused."""

from __future__ import annotations

import datetime
import pickle
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import symgrad as sg

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
        sg.InputError, match=r"city holds 'd', which is not among the labels so far, 'a'"
    ):
        kernel.run([1, 2, 3], {"city": ["a", "d"], "x": [1, 1]})
    other = {"city": Categories([0, 1], ["c", "a"]), "x": [1, 1]}  # another order of categories
    assert kernel.run([1, 2, 3], other).tolist() == [3.0, 1.0]


def test_labels_that_are_declared_beforehand() -> None:
    kernel = picked(3, columns={"city": ["Rome", "Oslo", "Bern"], "x": None})
    blocks = [{"city": [name], "x": [1]} for name in ("Bern", "Rome", "Oslo")]
    assert kernel.run([1, 2, 3], iter(blocks)).tolist() == [3.0, 1.0, 2.0]
    with pytest.raises(sg.InputError, match="different labels, in a list"):
        picked(3, columns={"city": ["a", "a"], "x": None})


def test_missing_labels_are_as_the_policy_says() -> None:
    rows = {"city": np.array(["a", None, "b", float("nan")], object), "x": [1, 1, 1, 1]}
    assert picked(2, nan_policy="omit").run([1, 2], rows).tolist() == [1.0, 2.0]
    with pytest.raises(sg.InputError, match="NaN at row 1: mend it"):
        picked(2).run([1, 2], rows)


def test_labels_that_are_compared() -> None:
    kernel = sg.fused_forward(1, lambda p, r: sg.where(r.group == 1, p[0], 0.0), columns=["group"],
                              reduce=None, device="cpu")  # fmt: skip
    assert kernel.run(2.0, {"group": ["no", "yes", "no"]}).tolist() == [0.0, 2.0, 0.0]
    assert kernel.run(2.0, {"group": ["yes"]}).tolist() == [2.0]


TABLE = sg.array(np.array([1.0, 2.0, 4.0]))
USES: dict[str, Any] = {
    "an index of data": lambda p, r: p[0] * TABLE[r.c],
    "an integer": lambda p, r: sg.where(sg.int32(r.c) == 1, p[0], p[1]),
    "a switch": lambda p, r: sg.switch(sg.int32(r.c), [lambda: p[0], lambda: p[1], lambda: 0.0]),
    "compared in a loop": lambda p, r: sg.fori_loop(
        0, 3, lambda k, y: y + sg.where(r.c == k, p[0], 0.0), 0.0
    ),
}
MISUSES: dict[str, Any] = {
    "a factor": lambda p, r: p[0] * r.c,
    "returned": lambda p, r: r.c,
    "chosen": lambda p, r: sg.where(p[0] > 0, r.c, p[1]),
    "in a loop": lambda p, r: sg.fori_loop(0, 3, lambda k, y: y + r.c * p[0], 0.0),
    "carried": lambda p, r: sg.fori_loop(0, 3, lambda k, c: (c[1], c[1] * p[0]), (1.0, r.c))[0],
    "iterations": lambda p, r: sg.while_loop(lambda c: c < 9.0, lambda c: c + 1.0 + r.c, p[0]),
    "one side": lambda p, r: sg.cond(p[0] > 0, lambda: r.c, lambda: p[1]),
    "compared with other labels": lambda p, r: sg.where(r.c == r.d, p[0], p[1]),
}


@pytest.mark.parametrize("use", USES)
def test_codes_may_be_compared_and_index(use: str) -> None:
    kernel = sg.fused_forward(2, USES[use], columns=["c"], reduce=None, device="cpu")
    found = kernel.run([2.0, 3.0], {"c": ["a", "b", "c"]})
    numbers = sg.fused_forward(2, USES[use], columns=["c"], reduce=None, device="cpu")
    assert found.tolist() == numbers.run([2.0, 3.0], {"c": [0, 1, 2]}).tolist()


@pytest.mark.parametrize("misuse", MISUSES)
def test_codes_are_no_quantities(misuse: str) -> None:
    kernel = sg.fused_forward(2, MISUSES[misuse], columns=["c", "d"], reduce=None, device="cpu")
    kernel.run([2.0, 3.0], {"c": [0, 1], "d": [1, 1]})
    for labels in (["a", "b"], Categories([0, 1], ["a", "b"])):
        with pytest.raises(
            sg.InputTypeError, match=r"c holds labels, 'a' at row 0, and is computed"
        ):
            kernel.run([2.0, 3.0], {"c": labels, "d": ["a", "b"]})


LINE = {"columns": ["x", "y"], "device": "cpu"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["10", "20", "5"], r"x holds text, '10' at row 0, .*numpy.asarray\(x, float\)"),
        (["10", "ND", "5"], r"x holds text, 'ND' at row 1, .*errors=\"coerce\""),
        (np.array(["1e3", None, "2"], object), r"x holds text, '1e3' at row 0"),
        (Categories([0, 1, 0], ["10", "20"]), r"x holds text, '10' at row 0"),
    ],
)
def test_text_is_no_number_in_any_verb(values: Any, message: str) -> None:
    rows = {"x": values, "y": [10.0, 20.0, 5.0]}
    square, rest = lambda p, r: (p[0] * r.x - r.y) ** 2, lambda p, r: p[0] * r.x - r.y
    kernels = [
        sg.fused_forward_backward(1, square, **LINE),
        sg.fused_least_squares(1, rest, **LINE),
    ]
    calls = [lambda k=k: k.run([1.0], rows) for k in kernels]
    calls += [lambda: kernels[1].fit([1.0], rows), lambda: kernels[0].bind(rows)]
    calls += [lambda: kernels[0].minimize([1.0], sg.LBFGS(), rows=rows)]
    for call in calls:
        with pytest.raises(sg.InputTypeError, match=message):
            call()


@pytest.mark.parametrize(
    "verb", [sg.curve_fit, sg.fit_model, lambda f, x, y: sg.fit_many(f, x, [y])]
)
@pytest.mark.parametrize("text", [["10", "20", "5"], np.array([1.0, "2", 3.0], object)])
def test_text_is_no_data_of_fits(verb: Any, text: Any) -> None:
    for x, y in ((text, [1.0, 2.0, 3.0]), ([1.0, 2.0, 3.0], text)):
        with pytest.raises(sg.InputTypeError, match=r"holds text.*numpy.asarray\("):
            verb(lambda x, a: a * x, x, y)


def test_text_that_reads_as_numbers_is_no_label_unless_named_so() -> None:
    with pytest.raises(sg.InputTypeError, match="city holds text that reads as a number, '1'"):
        picked(3).run([1, 2, 3], {"city": ["2", "10", "1"], "x": [1, 1, 1]})
    named = picked(3, columns={"city": ["1", "2", "10"], "x": None})
    assert named.run([1, 2, 3], {"city": ["2", "10"], "x": [1, 1]}).tolist() == [2.0, 3.0]


def test_codes_travel_to_other_kernels() -> None:
    fitted = picked(3)
    fitted.run([1, 2, 3], {"city": ["Bern", "Oslo", "Rome"], "x": [1, 1, 1]})
    few = {"city": ["Oslo", "Rome"], "x": [1, 1]}
    for codes in (
        fitted.codes,
        dict(fitted.codes),
        {"city": ["Bern", "Oslo", "Rome"], "other": "ab"},
    ):
        assert picked(3, codes=codes).run([1, 2, 3], few).tolist() == [2.0, 3.0]
    first, second = picked(3), picked(3, codes=(shared := picked(3)).codes)
    second.run([1, 2, 3], {"city": ["b", "c", "a"], "x": [1, 1, 1]})
    assert shared.run([1, 2, 3], {"city": ["c"], "x": [1]}).tolist() == [3.0]
    assert first.codes == {}
    with pytest.raises(sg.InputTypeError, match="a mapping from columns to their labels"):
        picked(3, codes=["a"])
    with pytest.raises(sg.InputError, match="give columns= too"):
        sg.fused_forward(1, lambda v: v[0], codes=fitted.codes)


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
        2,
        lambda p, r: p[0] + sg.where(r.who == 1, p[1], 0.0) - r.y,
        columns=["who", "y"],
        device="cpu",
    )
    rows = {"who": ["x", "y", "x"], "y": [1.0, 5.0, 1.0]}
    found = group.minimize([0.0, 0.0], sg.LevenbergMarquardt(), rows=rows)
    np.testing.assert_allclose(found.x, [1.0, 4.0], rtol=1e-5)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.array([1.0, [2]], object), r"x holds objects, \[2\] at row 1: a column holds numbers"),
        (np.array([1.0, "a"], object), "x holds objects, 'a' at row 1 beside numbers"),
        (np.array([1.0, object], object), "x holds objects, <class 'object'> at row 1"),
        (np.array([1j, 2.0]), "x holds complex numbers"),
    ],
    ids=["lists", "mixed", "classes", "complex"],
)
def test_objects_are_refused(values: Any, message: str) -> None:
    kernel = sg.fused_forward(1, lambda p, r: p[0] * r.x, columns=["x"], reduce=None, device="cpu")
    with pytest.raises(sg.InputTypeError, match=message):
        kernel.run(1.0, {"x": values})


def test_labels_need_names_of_columns() -> None:
    kernel = sg.fused_forward(1, lambda p, r: p[0] * r[0], row=1, reduce=None, device="cpu")
    with pytest.raises(
        sg.InputTypeError, match=r"rows holds strings.*labels and dates are coded in"
    ):
        kernel.run(1.0, [["a"], ["b"]])


def test_fewer_labels_than_entries_are_told_of() -> None:
    """As where predictions are made of some of the labels that were fitted."""
    few = {"city": ["Oslo", "Rome"], "x": [1, 1]}
    with pytest.warns(
        UserWarning, match=r"city holds 2 labels, and p has 3 entries.*codes="
    ) as told:
        picked(3).run([1, 2, 3], few)
    assert [w.filename for w in told] == [__file__]
    beside = sg.fused_forward(
        3, lambda p, r: p[r.city] * r.x + p[2], columns=["city", "x"], reduce=None, device="cpu"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert beside.run([1, 2, 3], few).tolist() == [4.0, 5.0]
        picked(3, codes={"city": ["Bern", "Oslo", "Rome"]}).run([1, 2, 3], few)
