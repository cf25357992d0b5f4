"""Calls without a trace: a function of arrays computes what it is now, at every call."""

from __future__ import annotations

import copy
import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

import symgrad as sg
from symgrad.front import functional, jit

A = np.linspace(-1.0, 1.0, 300).reshape(20, 15)
SHIFT = 0.5
SHARES = np.linspace(0.0, 1.0, 15)
OPTIONS: Any = {"device": "cpu", "dtype": "float64"}


def of_globals(a: Any) -> Any:
    return np.sum(np.cos(a - SHIFT) * SHARES)


def of_module(xp: Any) -> Callable[..., Any]:
    return lambda a: xp.sum(xp.sin(a))


def numpy_of_mine() -> Any:
    """A module with NumPy's functions, of which the test may change some."""
    module = ModuleType("numpy of mine")
    vars(module).update(cos=np.cos, sin=np.sin, sum=np.sum)
    return module


def scaled(a: Any, power: Any, *, by: Any = 1.0) -> Any:
    return np.sum(by * a**power)


@pytest.fixture(autouse=True, params=[20, 2], ids=["whole", "elements"])
def _size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "A", A[: request.param])


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each trace of a function, of whole arrays or by their elements."""
    noted, by_elements = list[int](), functional.gradient_kernel

    def noting(*args: Any) -> Any:
        noted.append(1)
        return by_elements(*args)

    class Noting(functional.WholeTrace):
        def __init__(self, *args: Any, **options: Any) -> None:
            noted.append(1)
            super().__init__(*args, **options)

    monkeypatch.setattr(functional, "WholeTrace", Noting)
    monkeypatch.setattr(functional, "gradient_kernel", noting)
    monkeypatch.setattr(jit, "WholeTrace", Noting)
    return noted


def test_a_plain_function_is_traced_once_for_each_form(traces: list[int]) -> None:
    run = sg.value_and_grad(scaled, **OPTIONS)
    for a in (A, A + 1.0):
        value, grad = run(a, 2, by=3.0)
        np.testing.assert_allclose(value, 3.0 * np.sum(a**2), rtol=1e-14)
        np.testing.assert_allclose(grad, 6.0 * a, rtol=1e-14)
    assert len(traces) == 1
    value, grad = run(A, 3, by=2.0)
    np.testing.assert_allclose(grad, 6.0 * A**2, rtol=1e-14)
    value, grad = run(A[:-1], 3, by=-1.0)
    np.testing.assert_allclose(value, -np.sum(A[:-1] ** 3), rtol=1e-14)
    assert len(traces) == 3
    value, grad = run(A, 3.0, by=2.0)  # a float is data, and no constant as an int is
    np.testing.assert_allclose(grad, 6.0 * A**2, rtol=1e-12)
    assert len(traces) == 4


def of_parts(a: Any) -> Any:
    """What a generator reads is a variable of its own, as in ``q, k, v = (...)``."""
    b, c = (a[n::2] for n in range(2))
    named = dict(zip(("b", "c"), (b, c), strict=True))
    return np.sum(np.tanh(named["b"]) * np.cos(SHIFT * named["c"]))


def test_a_step_with_a_derivative_is_traced_once(
    traces: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    step = sg.jit(lambda a: a - 0.1 * sg.value_and_grad(of_parts)(a)[1], **OPTIONS)
    slope = sg.value_and_grad(of_parts, **OPTIONS)
    for shift in (0.5, 0.25):
        monkeypatch.setitem(globals(), "SHIFT", shift)
        for _ in range(2):
            wanted = np.empty_like(A)
            wanted[::2] = np.cos(shift * A[1::2]) / np.cosh(A[::2]) ** 2
            wanted[1::2] = -shift * np.sin(shift * A[1::2]) * np.tanh(A[::2])
            np.testing.assert_allclose(step(A), A - 0.1 * wanted, rtol=1e-12)
            np.testing.assert_allclose(slope(A)[1], wanted, rtol=1e-12, atol=1e-15)
    assert len(traces) == 4


def test_what_is_silent_about_zeros_is_traced_once(traces: list[int]) -> None:
    def f(a: Any) -> Any:
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.nan_to_num(SHARES / SHARES * 0.5)
        return np.sum(a * shares)

    run = sg.value_and_grad(f, **OPTIONS)
    for a in (A, A + 1.0):
        assert run(a)[0] == pytest.approx(np.sum(a * np.where(SHARES == 0.0, 0.0, 0.5)))
    assert len(traces) == 1


def test_results_are_nested_and_fresh(traces: list[int]) -> None:
    run = sg.jit(lambda p: {"rows": np.tanh(p["a"] @ p["x"]), "negative": p["a"] < 0.0}, **OPTIONS)
    first, second = (run({"a": A, "x": x}) for x in (SHARES, SHARES + 1.0))
    np.testing.assert_allclose(first["rows"], np.tanh(A @ SHARES), rtol=1e-13)
    np.testing.assert_allclose(second["rows"], np.tanh(A @ (SHARES + 1.0)), rtol=1e-13)
    assert (second["negative"] == (A < 0.0)).all() and second["negative"].dtype == bool
    assert len(traces) == 1


def test_values_follow_what_changes() -> None:
    numpy = numpy_of_mine()
    module = {**globals(), "np": numpy}
    function = FunctionType(of_globals.__code__, module)
    value, run = lambda: run(A)[0], sg.value_and_grad(function, **OPTIONS)
    assert [value(), value()] == [pytest.approx(np.sum(np.cos(A - 0.5) * SHARES))] * 2
    module["SHIFT"] = 1.5
    assert [value(), value()] == [pytest.approx(np.sum(np.cos(A - 1.5) * SHARES))] * 2
    shares = SHARES.copy()
    module["SHARES"] = shares
    assert value() == value()
    shares[3] = -7.0
    assert [value(), value()] == [pytest.approx(np.sum(np.cos(A - 1.5) * shares))] * 2
    shares[3] = -0.0
    assert value() == pytest.approx(np.sum(np.cos(A - 1.5) * shares))
    numpy.cos = np.exp
    assert value() == pytest.approx(np.sum(np.exp(A - 1.5) * shares))
    changed = FunctionType(scaled.__code__, module, "changed", (2,))
    run = sg.value_and_grad(changed, **OPTIONS)
    changed.__kwdefaults__ = {"by": 1.0}
    assert [value(), value()] == [pytest.approx(np.sum(A**2))] * 2
    changed.__kwdefaults__["by"] = 5.0
    assert value() == pytest.approx(5.0 * np.sum(A**2))
    changed.__kwdefaults__ = {"by": 4.0}
    assert value() == pytest.approx(4.0 * np.sum(A**2))
    changed.__kwdefaults__ = {"by": 5.0}
    changed.__defaults__ = (3,)
    assert value() == pytest.approx(5.0 * np.sum(A**3))
    changed.__code__ = of_globals.__code__
    assert value() == pytest.approx(np.sum(np.exp(A - 1.5) * shares))


def test_a_module_that_is_an_argument_is_watched_too() -> None:
    numpy = numpy_of_mine()
    f = of_module(numpy)
    run = sg.value_and_grad(lambda a: f(a), **OPTIONS)
    assert [run(A)[0], run(A)[0]] == [pytest.approx(np.sum(np.sin(A)), abs=1e-12)] * 2
    numpy.sin = np.exp
    assert run(A)[0] == pytest.approx(np.sum(np.exp(A)))


def test_functions_with_a_state_are_traced_at_every_call(traces: list[int]) -> None:
    calls = list[int]()

    def counting(a: Any) -> Any:
        calls.append(1)
        return np.sum(a) * len(calls)

    run = sg.value_and_grad(counting, **OPTIONS)
    values = [run(A + 1.0)[0] for _ in range(3)]
    np.testing.assert_allclose(values, np.sum(A + 1.0) * np.arange(1, 4), rtol=1e-14)
    assert len(traces) == 3


def test_integers_that_are_constants_are_compared() -> None:
    run = sg.value_and_grad(lambda a, rows: np.sum(a[rows] ** 2), **OPTIONS)
    rows = np.array([0, 1, 1])
    assert [run(A, rows)[0], run(A, rows)[0]] == [pytest.approx(np.sum(A[rows] ** 2))] * 2
    rows[0] = 1
    assert run(A, rows)[0] == pytest.approx(3.0 * np.sum(A[1] ** 2))


def test_what_a_function_returns_beside_its_value_is_of_each_call(traces: list[int]) -> None:
    run = sg.value_and_grad(
        lambda a: (np.sum(a**2), {"tanh": np.tanh(a[0])}), has_aux=True, **OPTIONS
    )
    for a in (A, A + 1.0):
        (value, aux), grad = run(a)
        assert value == pytest.approx(np.sum(a**2))
        np.testing.assert_allclose(aux["tanh"], np.tanh(a[0]), rtol=1e-13)
        np.testing.assert_allclose(grad, 2.0 * a, rtol=1e-14)
    assert len(traces) == 1
    run = sg.value_and_grad(lambda a: (np.sum(a**2), "squares"), has_aux=True, **OPTIONS)
    assert [run(A)[0][1] for _ in range(2)] == ["squares"] * 2


def test_lists_and_stores_of_elements_are_plain(traces: list[int]) -> None:
    orders, shares = [3, 1], np.array([0.5, 2.0])

    def summed(a: Any) -> Any:
        known = np.zeros(len(orders))
        for n, order in enumerate(orders):
            known[n] = order * shares[n]
        b = np.tanh(a).reshape(-1)
        b[0] = known[np.tril_indices(2, -1)[1][0]]
        return np.sum(b) * known[1]

    def wanted() -> float:
        return (np.tanh(A).ravel()[1:].sum() + orders[0] * shares[0]) * orders[1] * shares[1]

    run = sg.value_and_grad(summed, **OPTIONS)
    assert [run(A)[0] for _ in range(3)] == [pytest.approx(wanted())] * 3
    assert len(traces) == 1
    orders[1] = 7
    assert run(A)[0] == pytest.approx(wanted())
    shares[0] = -1.0
    assert run(A)[0] == pytest.approx(wanted())
    orders.append(2)
    with pytest.raises(IndexError):
        run(A)


def test_stores_that_change_what_is_elsewhere_are_done_at_every_call(traces: list[int]) -> None:
    count = np.zeros(1)

    def counting(a: Any) -> Any:
        count[0] += 1.0
        return np.sum(a) * count[0]

    run = sg.value_and_grad(counting, **OPTIONS)
    values = [run(A + 1.0)[0] for _ in range(3)]
    np.testing.assert_allclose(values, np.sum(A + 1.0) * np.arange(1, 4), rtol=1e-14)
    assert len(traces) == 3


@pytest.mark.parametrize("dtype", ["?", "i1", "u8", "f2", "f4", ">f8", "g", "c16"])
def test_arrays_of_every_type_are_followed(dtype: str) -> None:
    """Long doubles and complex numbers are not compared, and so traced at every call."""
    factors = np.ones(A.shape).astype(dtype)
    run = sg.value_and_grad(lambda a: np.sum(np.real(factors) * a), **OPTIONS)
    for _ in range(2):
        assert run(A)[0] == pytest.approx(np.sum(A), abs=1e-12)
    factors[0] = 0
    assert run(A)[0] == pytest.approx(np.sum(A[1:]), abs=1e-12)


def test_large_arrays_are_followed(traces: list[int]) -> None:
    large = np.linspace(0.0, 1.0, 400_000)
    run = sg.value_and_grad(lambda a: np.sum(a) * np.sum(large), **OPTIONS)

    def wanted() -> Any:
        return [pytest.approx(np.sum(A + 1.0) * np.sum(large))] * 2

    assert [run(A + 1.0)[0] for _ in range(2)] == wanted()
    assert len(traces) == 1
    large[-1] = 1e6
    assert [run(A + 1.0)[0] for _ in range(2)] == wanted()
    assert len(traces) == 2


@pytest.mark.parametrize("size", [300, 200_000])
def test_arrays_that_cannot_be_written_to_are_followed(size: int) -> None:
    """Others may: by a view that is older, or of which it is one, or after a change of flags."""
    table = np.ones(size)
    older, view = table[:], table[:]
    table.flags.writeable = view.flags.writeable = False
    for array in (table, view):
        run = sg.value_and_grad(lambda a, t=array: np.sum(a) * np.sum(t), **OPTIONS)
        for factor in (1.0, 2.0):
            older[:] = factor
            assert run(A + 1.0)[0] == pytest.approx(factor * size * np.sum(A + 1.0))
        table.flags.writeable = True
        table[:] = 3.0
        table.flags.writeable = False
        assert run(A + 1.0)[0] == pytest.approx(3.0 * size * np.sum(A + 1.0))


# --- models that are objects ----------------------------------------------------------------------


class State(NamedTuple):
    position: Any
    steps: int = 0


@dataclass(frozen=True)
class Settings:
    rate: float = 0.5
    names: dict[str, float] = field(default_factory=lambda: {"power": 2.0})


class Layer:
    __slots__ = ("factors", "shift")

    def __init__(self, factors: Any, shift: float) -> None:
        self.factors, self.shift = factors, shift

    def __call__(self, x: Any) -> Any:
        return np.tanh(self.factors * x + self.shift)


class Base:
    scale = 1.0

    def loss(self, a: Any) -> Any:
        return np.sum(np.exp(a)) * self.scale


class Library(NamedTuple):
    xp: Any
    power: int = 2


class Model(Base):
    """A model as research code has it: layers, settings, a base, properties, checks."""

    def __init__(self) -> None:
        self.layers = [Layer(SHARES.copy(), 0.1), Layer(SHARES + 1.0, 0.2)]
        self.settings = Settings()
        self.lib = Library(np)
        self.scaled = functools.partial(scaled, power=self.lib.power)

    @property
    def rate(self) -> float:
        return self.settings.rate * math.sqrt(4.0)

    @staticmethod
    def checked(a: Any) -> Any:
        if a.ndim != 2 or not isinstance(a.shape, tuple):
            raise ValueError(f"an array of {a.ndim} axes")
        return a

    def loss(self, a: Any) -> Any:
        state = State(self.checked(a))
        for layer in self.layers:
            state = State(layer(state.position), state.steps + 1)
        squares = self.scaled(a) * self.settings.names["power"]
        total = functools.reduce(lambda u, v: u + v, itertools.islice(state.position, 1))
        sums = self.lib.xp.sum(state.position) * self.rate + self.lib.xp.sum(total)
        return sums + super().loss(a) + squares


def wanted_of(model: Model, a: Any) -> float:
    """The model's loss, by NumPy."""
    return float(model.loss(a))


def replace_the_rate(model: Model) -> None:
    model.settings = Settings(0.75)


def change_a_setting(model: Model) -> None:
    model.settings.names["power"] = 3.0


def change_an_array(model: Model) -> None:
    model.layers[0].factors[2] = 9.0


def change_a_slot(model: Model) -> None:
    model.layers[1].shift = -1.0


def drop_a_layer(model: Model) -> None:
    del model.layers[0]


def shadow_the_class(model: Model) -> None:
    model.scale = 4.0


def change_the_base(_: Model) -> None:
    Base.scale = 2.0


def change_a_method(_: Model) -> None:
    Layer.__call__ = lambda self, x: np.sin(self.factors * x)  # type: ignore[method-assign]


def change_a_property(_: Model) -> None:
    Model.rate = property(lambda self: 7.0)  # type: ignore[assignment]


def become_another(model: Model) -> None:
    model.__class__ = type("Another", (Model,), {"checked": staticmethod(lambda a: 2.0 * a)})


def have_other_attributes(model: Model) -> None:
    model.__dict__ = {**model.__dict__, "scale": 3.0}


CHANGES = [
    replace_the_rate, change_a_setting, change_an_array, change_a_slot, drop_a_layer,
    shadow_the_class, change_the_base, change_a_method, change_a_property, become_another,
    have_other_attributes,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_objects_are_followed(
    change: Callable[[Model], None], traces: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for kind, name in ((Base, "scale"), (Layer, "__call__"), (Model, "rate")):
        monkeypatch.setattr(kind, name, vars(kind)[name])  # which is undone at the end
    model = Model()
    run = sg.value_and_grad(model.loss, **OPTIONS)
    before = wanted_of(model, A)
    assert [run(A)[0] for _ in range(3)] == [pytest.approx(before)] * 3
    assert len(traces) == 1
    change(model)
    assert wanted_of(model, A) != pytest.approx(before)
    assert [run(A)[0] for _ in range(2)] == [pytest.approx(wanted_of(model, A))] * 2
    assert len(traces) == 2


class Counter:
    """An object that counts its calls, in what only a subclass of built-in types has."""

    def __init__(self) -> None:
        self.calls = itertools.count(1)

    def loss(self, a: Any) -> Any:
        return np.sum(a) * next(self.calls)


class Growing:
    def __init__(self) -> None:
        self.calls = 0

    def loss(self, a: Any) -> Any:
        self.calls += 1
        return np.sum(a) * self.calls


class ByName:
    def __init__(self) -> None:
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        self.calls += 1
        return self.calls

    def loss(self, a: Any) -> Any:
        return np.sum(a) * self.anything


class Hidden:
    def __init__(self) -> None:
        self.calls = 0

    def loss(self, a: Any) -> Any:
        self.__dict__["calls"] += 1
        return np.sum(a) * self.calls


@pytest.mark.parametrize("kind", [Counter, Growing, ByName, Hidden])
def test_objects_that_count_are_traced_at_every_call(kind: Any, traces: list[int]) -> None:
    run = sg.value_and_grad(kind().loss, **OPTIONS)
    values = [run(A + 1.0)[0] for _ in range(3)]
    np.testing.assert_allclose(values, np.sum(A + 1.0) * np.arange(1, 4), rtol=1e-14)
    assert len(traces) == 3


def test_attributes_of_functions_are_followed(traces: list[int]) -> None:
    def loss(a: Any) -> Any:
        return np.sum(a) * scaling.scale

    scaling: Any = of_module(np)
    scaling.scale = 2.0
    run = sg.value_and_grad(loss, **OPTIONS)
    assert [run(A + 1.0)[0] for _ in range(2)] == [pytest.approx(2.0 * np.sum(A + 1.0))] * 2
    assert len(traces) == 1
    scaling.scale = 3.0
    assert run(A + 1.0)[0] == pytest.approx(3.0 * np.sum(A + 1.0))


@pytest.mark.parametrize("axes", [0, 1])
def test_functions_that_are_mapped_are_followed(axes: int, traces: list[int]) -> None:
    """What `sg.vmap`, `sg.grad` and `sg.jit` make of a function is what it is made of."""
    rows = np.ones((4, 4)) * np.arange(4.0)
    scale = np.array([1.0])
    mapped = sg.vmap(sg.grad(lambda x: scale[0] * np.sum(x**2) * x[0]), in_axes=axes)
    run = sg.jit(lambda r: np.sum(mapped(r), axis=1), **OPTIONS)

    def wanted() -> Any:
        of_rows = rows.T if axes else rows
        return scale[0] * (2.0 * of_rows.sum(1) * of_rows[:, 0] + (of_rows**2).sum(1))

    for _ in range(2):
        np.testing.assert_allclose(run(rows), wanted(), rtol=1e-13)
    assert len(traces) == 1
    scale[0] = -3.0
    np.testing.assert_allclose(run(rows), wanted(), rtol=1e-13)


class Plain:
    """An object without attributes, beside which others may have some."""

    def sum(self, a: Any) -> Any:
        return np.sum(a)


SETTINGS = ModuleType("settings of mine")


def scaled_if_told(place: Any) -> Callable[[Any], Any]:
    def loss(a: Any) -> Any:
        try:
            scale = place.scale
        except AttributeError:
            scale = 1.0
        return np.sum(a) * scale

    return loss


def doubled_if_true(place: Any) -> Callable[[Any], Any]:
    return lambda a: np.sum(a) * (1.0 if place else 2.0)


@pytest.mark.parametrize("where", ["object", "class", "module", "special"])
def test_what_was_absent_is_followed(
    where: str, traces: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = SETTINGS if where == "module" else Plain()
    target: Any = place if where in ("object", "module") else Plain
    loss = doubled_if_true(place) if where == "special" else scaled_if_told(place)
    run = sg.value_and_grad(loss, **OPTIONS)
    assert [run(A + 1.0)[0] for _ in range(2)] == [pytest.approx(np.sum(A + 1.0))] * 2
    assert len(traces) == 1
    if where == "special":
        monkeypatch.setattr(target, "__bool__", lambda self: False, raising=False)
    else:
        monkeypatch.setattr(target, "scale", 2.0, raising=False)
    assert [run(A + 1.0)[0] for _ in range(2)] == [pytest.approx(2.0 * np.sum(A + 1.0))] * 2


def test_methods_may_be_named_as_builtins_are(traces: list[int]) -> None:
    model = Plain()
    run = sg.value_and_grad(lambda a: model.sum(a) + np.sum(a), **OPTIONS)
    assert [run(A + 1.0)[0] for _ in range(3)] == [pytest.approx(2.0 * np.sum(A + 1.0))] * 3
    assert len(traces) == 1


class Setting:
    """A class whose constructor calls what is elsewhere."""

    scale = 2.0

    def __init__(self, x: Any) -> None:
        self.x = x

    @property
    def x(self) -> Any:
        return self._x

    @x.setter
    def x(self, value: Any) -> None:
        self._x = value * Setting.scale


class Storing:
    scale = 2.0

    def __init__(self, x: Any) -> None:
        self.x = x

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value * Storing.scale)


class Shown:
    kind = "first"

    def __repr__(self) -> str:
        return self.kind


class Keyed:
    key = 1

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return hash(self) == hash(other)


class Stored:
    def __init__(self) -> None:
        self.x = 1.0

    @property
    def x(self) -> float:
        return self._x

    @x.setter
    def x(self, value: float) -> None:
        self._x = value * Setting.scale


class Made:
    def __init__(self) -> None:
        self.scale = Setting.scale

    @classmethod
    def make(cls) -> Made:
        return cls()


class Mapped:
    def keys(self) -> list[str]:
        return ["x"] if Setting.scale else []

    def __getitem__(self, name: str) -> float:
        return Setting.scale

    def sum(self, *_: Any, **__: Any) -> float:
        return Setting.scale


MADE, FORMAT = Made(), "%s"
MAPPING: Any = Mapped()
SUM: Any = np.sum
SHOWN, KEYED, FACTOR = Shown(), Keyed(), {0: 2.0}
TABLE = {"first": 2.0, "second": 3.0}
BY_HASH = {1: 2.0, 2: 3.0}
OF_OBJECTS: Any = np.frompyfunc(lambda x: x * FACTOR[0], 1, 1)
SCALING: Any = functools.partial(np.sum)

UNSEEN: dict[str, tuple[Callable[[Any], Any], Any, str, Any]] = {
    "a setter": (lambda a: np.sum(Setting(a).x), Setting, "scale", 3.0),
    "__setattr__": (lambda a: np.sum(Storing(a).x), Storing, "scale", 3.0),
    "an f-string": (lambda a: np.sum(a) * TABLE[f"{SHOWN}"], Shown, "kind", "second"),
    "a percent sign": (lambda a: np.sum(a) * TABLE["%r" % SHOWN], Shown, "kind", "second"),  # noqa: UP031
    "str.format": (lambda a: np.sum(a) * TABLE["{}".format(SHOWN)], Shown, "kind", "second"),  # noqa: UP032
    "a hash": (lambda a: np.sum(a) * BY_HASH[KEYED], Keyed, "key", 2),  # type: ignore[index]
    "a field of a format": (
        lambda a: np.sum(a) * TABLE[f"{SHOWN.kind}"],
        Shown,
        "kind",
        "second",
    ),
    "a format that is elsewhere": (
        lambda a: np.sum(a) * TABLE[FORMAT % SHOWN],
        Shown,
        "kind",
        "second",
    ),
    "a setter of a name that is stored": (
        lambda a: np.sum(a) * Stored()._x,
        Setting,
        "scale",
        3.0,
    ),
    "a constructor that a class method calls": (
        lambda a: np.sum(a) * MADE.make().scale,
        Setting,
        "scale",
        3.0,
    ),
    "keys of a mapping": (lambda a: np.sum(a) * {**MAPPING}["x"], Setting, "scale", 3.0),
    "a method that NumPy calls": (lambda a: np.sum(a) * SUM(MAPPING), Setting, "scale", 3.0),
}


@pytest.mark.parametrize("name", UNSEEN)
def test_what_python_calls_by_itself_is_followed(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    f, target, attribute, value = UNSEEN[name]
    run = sg.value_and_grad(f, **OPTIONS)
    assert [run(A + 1.0)[0] for _ in range(2)] == [pytest.approx(2.0 * np.sum(A + 1.0))] * 2
    monkeypatch.setattr(target, attribute, value)
    assert run(A + 1.0)[0] == pytest.approx(3.0 * np.sum(A + 1.0))


def test_functions_of_objects_and_attributes_of_partials_are_followed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    SCALING.scale = 2.0
    run = sg.value_and_grad(
        lambda a: SCALING(a) * SCALING.scale + np.sum(a) * float(OF_OBJECTS(1.0)), **OPTIONS
    )
    assert [run(A + 1.0)[0] for _ in range(2)] == [pytest.approx(4.0 * np.sum(A + 1.0))] * 2
    SCALING.scale = 3.0
    assert run(A + 1.0)[0] == pytest.approx(5.0 * np.sum(A + 1.0))
    monkeypatch.setitem(FACTOR, 0, 4.0)
    assert run(A + 1.0)[0] == pytest.approx(7.0 * np.sum(A + 1.0))


def test_integers_that_a_function_changes_are_those_of_the_call() -> None:
    def f(a: Any, i: Any) -> Any:
        i[0] += 1
        return np.sum(a[i] ** 2)

    a = np.arange(600.0).reshape(4, 150) + 1.0
    run = sg.value_and_grad(f, **OPTIONS)
    for k in (0, 1, 0):
        assert run(a, np.array([k]))[0] == pytest.approx(np.sum(a[k + 1] ** 2))


@dataclass
class Printed:
    rate: float = 2.0


class Pair(NamedTuple):
    rate: float = 2.0
    name: str = "w"


@pytest.mark.parametrize("make", [Printed, Settings, Pair])
def test_strings_beside_data_classes_are_plain(make: Any, traces: list[int]) -> None:
    """Their own strings are those of their fields, which are compared."""
    settings, rates = make(), {"w0": 1.0, "w1": 2.0}

    def loss(a: Any) -> Any:
        """Of 100 % of the rows."""
        total = sum(rates[f"w{k}"] * settings.rate for k in range(2))
        message = f"{a.ndim + 1} axes of {settings}"
        if a.ndim != 2:
            raise ValueError(message)
        return np.sum(a.astype(a.dtype)) * total

    run = sg.value_and_grad(loss, **OPTIONS)
    for _ in range(2):
        assert run(A + 1.0)[0] == pytest.approx(3.0 * settings.rate * np.sum(A + 1.0))
    assert len(traces) == 1


def test_keys_of_arguments_are_those_of_the_call() -> None:
    run = sg.value_and_grad(
        lambda p: sum(np.sum(x) * (2.0 if type(k) is bool else k) for k, x in p.items()), **OPTIONS
    )
    for key in (1, True, 1.0):
        factor = 2.0 if key is True else 1.0
        assert run({key: A + 1.0})[0] == pytest.approx(factor * np.sum(A + 1.0))
        assert [type(k) for k in run({key: A})[1]] == [type(key)]


class Line(NamedTuple):
    rows: Any
    shift: Any

    def at(self, x: Any) -> Any:
        return self.rows @ x + self.shift


@dataclass
class Scaled:
    line: Any
    scale: Any
    power: int = field(default=2, metadata={"static": True})

    @property
    def doubled(self) -> Any:
        return 2.0 * self.scale


def of_objects(p: Any) -> Any:
    return p.doubled * np.sum(p.line.at(SHARES) ** p.power)


def expected_of(p: Any) -> Any:
    return 2.0 * p.scale * np.sum((p.line.rows @ SHARES + p.line.shift) ** p.power)


def test_calls_with_named_tuples_and_data_classes_are_recalled(traces: list[int]) -> None:
    run = sg.value_and_grad(of_objects, **OPTIONS)
    copy.copy(Scaled(1.0, 1.0))  # after the first copy of one the class has a list of its slots
    for k in range(3):
        p = Scaled(Line(A + k, 0.5 * k), 1.5 - k)
        value, slopes = run(p)
        assert value == pytest.approx(expected_of(p), rel=1e-12)
        assert type(slopes) is Scaled
        assert type(slopes.line) is Line
        assert slopes.scale == pytest.approx(value / p.scale, rel=1e-12)
    assert len(traces) == 1
    for power in (3, 2, 3):
        p = Scaled(Line(A, 1.0), 2.0, power)
        assert run(p)[0] == pytest.approx(expected_of(p), rel=1e-12)
    assert len(traces) == 2


def test_methods_of_arguments_may_change(
    traces: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, p = sg.jit(of_objects, **OPTIONS), copy.copy(Scaled(Line(A, 0.5), 1.5))
    before = [float(run(p)) for _ in range(2)]
    monkeypatch.setattr(Line, "at", lambda self, x: self.rows @ x)
    p_alone = Scaled(Line(A, 0.0), 1.5)
    assert [float(run(p)) for _ in range(2)] == [pytest.approx(expected_of(p_alone))] * 2
    monkeypatch.setattr(Scaled, "doubled", 3.0)
    assert float(run(p)) == pytest.approx(expected_of(p_alone) / p.scale * 1.5)
    assert before == [pytest.approx(expected_of(p))] * 2
    assert len(traces) == 3


def test_objects_with_more_than_their_fields_are_traced(traces: list[int]) -> None:
    run = sg.jit(lambda p: p.extra * np.sum(p.line.rows), **OPTIONS)
    for extra in (1.0, 2.0, 2.0):
        p = copy.copy(Scaled(Line(A, 0.5), 1.5))
        vars(p)["extra"] = extra
        assert float(run(p)) == pytest.approx(extra * np.sum(A), rel=1e-12, abs=1e-12)
    assert len(traces) == 3
