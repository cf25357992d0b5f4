"""`value_and_grad`: arguments by place and by name, what f computes beside its value, misuse."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest

import symgrad as sg
from symgrad.front import kernels
from symgrad.wgsl.device.gpus import list_gpus


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
    [("x", "is needed"), (1.5, "is needed"), ((0, -2), "twice"), (2, "only 2 arguments")],
)
def test_wrong_argnums_are_refused(argnums: Any, message: str) -> None:
    with pytest.raises(sg.InputError, match=message):
        sg.value_and_grad(loss, argnums=argnums)(P, X)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(sg.InputTypeError, match="masked"):
        sg.value_and_grad(loss)(P, np.ma.masked_less(X, 1.5))
    with pytest.raises(sg.InputTypeError, match="strings"):
        sg.value_and_grad(loss, argnums=1)(P, np.array(["1", "2"]))
    with pytest.raises(sg.InputTypeError, match="cannot use 'large'"):
        sg.value_and_grad(loss)(P, X, scale="large")
    with pytest.raises(sg.TraceError, match=r"test_functional\.py.*a loss is one scalar"):
        sg.value_and_grad(lambda x: x)(X)


# What f takes from elsewhere: it is traced at every call ------------------------------------------

FACTOR = 2.0
TABLE = {"factor": 2.0}


class Model:
    """Functions whose factor is an attribute."""

    def __init__(self) -> None:
        self.factor = 2.0

    def __call__(self, x: Any) -> Any:
        return self.factor * x[0]

    def method(self, x: Any) -> Any:
        return self.factor * x[0]


def of_closure() -> tuple[Callable[..., Any], Callable[[float], None]]:
    factor = 2.0

    def change(value: float) -> None:
        nonlocal factor
        factor = value

    return lambda x: factor * x[0], change


def of_global() -> tuple[Callable[..., Any], Callable[[float], None]]:
    def change(value: float) -> None:
        global FACTOR
        FACTOR = value

    change(2.0)
    return lambda x: FACTOR * x[0], change


def of_array() -> tuple[Callable[..., Any], Callable[[float], None]]:
    factors = np.full(3, 2.0)
    return lambda x: factors[1] * x[0], lambda value: factors.fill(value)


def of_view() -> tuple[Callable[..., Any], Callable[[float], None]]:
    """Changed through another array that shares its memory."""
    whole = np.full((4, 4), 2.0)
    part = whole[1:3, 1:3].T
    return lambda x: part[0, 1] * x[0], lambda value: whole.fill(value)


def of_default() -> tuple[Callable[..., Any], Callable[[float], None]]:
    def f(x: Any, factor: float = 2.0) -> Any:
        return factor * x[0]

    return f, lambda value: setattr(f, "__defaults__", (value,))


def of_dict() -> tuple[Callable[..., Any], Callable[[float], None]]:
    TABLE["factor"] = 2.0
    return lambda x: TABLE["factor"] * x[0], lambda value: TABLE.update(factor=value)


def of_helper() -> tuple[Callable[..., Any], Callable[[float], None]]:
    """By a function that calls one which reads an attribute of an object in a list."""
    held = [SimpleNamespace(inner=SimpleNamespace(factor=2.0))]

    def helper(x: Any) -> Any:
        return held[0].inner.factor * x

    return lambda x: helper(x[0]), lambda value: setattr(held[0].inner, "factor", value)


def of_partial() -> tuple[Callable[..., Any], Callable[[float], None]]:
    factors = np.array([2.0])
    f = functools.partial(lambda factors, x: factors[0] * x[0], factors)
    return f, lambda value: factors.fill(value)


def of_object() -> tuple[Callable[..., Any], Callable[[float], None]]:
    model = Model()
    return model, lambda value: setattr(model, "factor", value)


def of_bound_method() -> tuple[Callable[..., Any], Callable[[float], None]]:
    model = Model()
    return model.method, lambda value: setattr(model, "factor", value)


def of_custom_vjp() -> tuple[Callable[..., Any], Callable[[float], None]]:
    """The derivative alone depends on it, which no trace of f shows."""
    factors = [2.0]
    inner = sg.custom_vjp(lambda x: 2.0 * x, lambda g, y, x: (factors[0] * g,))
    return lambda x: inner(x[0]), lambda value: factors.__setitem__(0, value)


SOURCES = [
    of_closure, of_global, of_array, of_view, of_default, of_dict, of_helper, of_partial, of_object,
    of_bound_method, of_custom_vjp,
]  # fmt: skip


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: s.__name__)
@pytest.mark.parametrize("verb", [sg.value_and_grad, sg.forward_backward])
def test_what_a_function_reads_is_what_it_is_now(
    source: Any, verb: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYMGRAD_DEVICE", "cpu")
    f, change = source()
    call = sg.value_and_grad(f) if verb is sg.value_and_grad else functools.partial(verb, f)
    for factor in (2.0, 5.0, 0.25, 2.0):
        change(factor)
        value, slopes = call(np.array([4.0, 1.0]))
        assert slopes.tolist() == [factor, 0.0]
        assert value == (8.0 if source is of_custom_vjp else 4.0 * factor)


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: s.__name__)
def test_verbs_that_take_a_function_see_what_it_reads(source: Any) -> None:
    f, change = source()
    residual: Any = lambda x: 2.0 * x[0] + (f(x) - 2.0 * x[0]) - 1.0  # noqa: E731
    if source is of_custom_vjp:  # its value is none of what it reads
        residual = lambda x: f(x) - 1.0  # noqa: E731
    model: Any = lambda t, a: f([a]) * t  # noqa: E731
    t = np.linspace(0.5, 1.5, 5)
    for factor in (2.0, 4.0):
        change(factor)
        want = 0.5 if source is of_custom_vjp else 1.0 / factor
        for found in (
            sg.minimize(lambda x: residual(x) ** 2, [3.0], dtype="float64").x[0],
            sg.minimize_from(
                lambda x: residual(x) ** 2, 1, [3.0], sg.LBFGS(), device="cpu").x.item(),
            sg.curve_fit(model, t, t, p0=[0.3])[0][0],
            sg.fit_many(model, t, [t], p0=[0.3], device="cpu").x.item(),
        ):  # fmt: skip
            assert found == pytest.approx(want, rel=1e-3)


def test_equal_traces_share_a_kernel_also_long_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    assemble = kernels.assemble
    monkeypatch.setattr(kernels, "assemble", lambda *a: made.append(a) or assemble(*a))
    rounds = 2

    def f(x: Any, scale: Any) -> Any:
        for _ in range(rounds):
            x = np.sin(x) * scale + x
        return x @ x

    vg = sg.value_and_grad(f, device="cpu")
    for start in (X, 2 * X, np.array([0.5, 0.25])):
        for again in (vg, sg.value_and_grad(f, device="cpu")):
            again(start, start[0])
    assert len(made) == 1
    rounds = 500  # some 3,000 nodes
    assert vg(X, 0.5)[0] == vg(X, 0.5)[0] != vg(X, 0.25)[0]
    assert len(made) == 2
    rounds = 2
    vg(X, 0.5)
    assert len(made) == 2


def test_threads_see_what_they_changed() -> None:
    """One function, traced in several threads, each of which has a factor of its own."""
    factors: dict[int, float] = {}
    vg = sg.value_and_grad(lambda x, k: factors[k] * x @ x, device="cpu")

    def work(k: int) -> bool:
        for factor in (k + 1.0, k + 2.0, 0.5):
            factors[k] = factor
            value, slopes = vg(X, k)
            if value != 5.0 * factor or slopes.tolist() != (2 * factor * X).tolist():
                return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(24)))


# Arguments that are not traced --------------------------------------------------------------------


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclass(frozen=True)
class Layer:
    weight: Any
    bias: Any
    name: str = field(default="layer", metadata={"static": True})
    depth: int = field(default=1, metadata={"static": True})


@dataclass
class Batch:
    x: Any
    labels: Any
    mode: str = "sum"
    scale: float | None = None

    def __post_init__(self) -> None:
        self.x = np.asarray(self.x, float)  # would fail of expressions


def network(p: Any, n: Any, squared: Any, unit: Any, kind: str, index: Any, x: Any) -> Any:
    """What un-jitted JAX takes: numbers of iterations, switches, names, indices, and data."""
    for _ in range(n):
        x = np.tanh(x) if kind == "tanh" else x * 0.5
    r = p[index] * x[index]
    r = r if unit is None else r / unit
    return np.sum(r * r if squared else r)


def test_arguments_that_say_what_to_do_are_as_they_are() -> None:
    p, x = np.array([1.0, 2.0, 4.0]), np.array([0.5, -1.0, 2.0])
    vg = sg.value_and_grad(network, device="cpu", dtype="float64")
    for n in (0, np.int64(2)):
        for squared in (True, np.bool_(False)):
            for unit in (None, 2.0, 2):
                for kind in ("tanh", "half"):
                    for index in (np.array([0, 2]), [1, 1], 2, slice(1, None), (True, False, True),
                                  np.array([False, True, True])):  # fmt: skip
                        index = np.array(index) if isinstance(index, tuple) else index
                        arguments = (n, squared, unit, kind, index, x)
                        value, slopes = vg(p, *arguments)
                        want = network(p, *arguments)
                        assert value == pytest.approx(want, rel=1e-14)
                        step = [network(p + h, *arguments) - want for h in 1e-6 * np.eye(3)]
                        np.testing.assert_allclose(slopes, np.array(step) / 1e-6, atol=1e-4)


def test_data_are_no_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Floats and arrays of them may change at every call, wherever they stand."""
    made: list[Any] = []
    assemble = kernels.assemble
    monkeypatch.setattr(kernels, "assemble", lambda *a: made.append(a) or assemble(*a))

    def f(p: Any, batch: Any, more: Any, *, rate: Any) -> Any:
        r = (p * batch.x[batch.labels] - more["y"][0]) * rate
        return np.sum(r if batch.mode == "sum" else r * batch.scale)

    vg = sg.value_and_grad(f, device="cpu", dtype="float64")
    labels = np.array([1, 0])

    def run(draw: Any, labels: Any) -> None:
        batch = Batch(draw[0], labels, "scaled", float(draw[1, 0]))
        more, rate = {"y": (draw[2], None), "n": 3}, np.float32(draw[3, 0])
        value, _ = vg(draw[1], batch, more, rate=rate)
        assert value == pytest.approx(f(draw[1], batch, more, rate=rate), rel=1e-14)

    for k, draw in enumerate(np.random.default_rng(0).normal(size=(5, 4, 2))):
        run(draw, labels)
        assert len(made) == 1, f"call {k} made another kernel"
    run(np.ones((4, 2)), np.array([0, 0]))
    assert len(made) == 2


def test_gradients_are_nested_as_arguments_are() -> None:
    layers = [Layer(np.ones((2, 2)), None, "first", 2), Layer(2.0, np.array([1, 2]))]

    def f(p: Any) -> Any:
        x = X
        for layer in p["layers"]:
            for _ in range(layer.depth):
                x = layer.weight @ x if layer.name == "first" else layer.weight * x + layer.bias
        return np.sum(x) + p["pair"].first[0]

    p = {"layers": layers, "pair": Pair([1, 2], None), "none": None}
    value, slopes = sg.value_and_grad(f, device="cpu")(p)
    assert value == 2 * 12 + 3 + 1
    first, second = slopes["layers"]
    assert (first.name, first.depth, first.bias, slopes["none"]) == ("first", 2, None, None)
    assert second.weight == 12.0 and second.bias.tolist() == [1.0, 1.0]
    assert slopes["pair"].second is None and slopes["pair"].first.tolist() == [1.0, 0.0]
    assert first.weight.shape == (2, 2) and layers[0].weight.tolist() == [[1, 1], [1, 1]]


def test_anything_is_returned_beside_the_value() -> None:
    def f(x: Any, name: str) -> Any:
        y = x * x
        return y @ y, {
            "name": name, "none": None, "y": y, "list": [y[0], 3, [x[1] > 1.5]], "numbers": X,
            "layer": Layer(y[1] * 2, name),
        }  # fmt: skip

    (value, aux), _ = sg.value_and_grad(f, has_aux=True, device="cpu")(X, "a name")
    assert value == 17.0 and aux["name"] == "a name" and aux["none"] is None
    assert aux["y"].tolist() == [1.0, 4.0] and aux["list"] == [1.0, 3, [1.0]]
    assert aux["numbers"] is X and aux["layer"] == Layer(8.0, "a name")
    (_, none), _ = sg.value_and_grad(lambda x: (x @ x, None), has_aux=True, device="cpu")(X)
    assert none is None


def _of_many_types(x: Any) -> dict[str, Any]:
    """Results of elements: arrays in memory, integers of 32 bits, truth values."""
    k = (x * 1000003.7).astype(int)
    return {
        "in memory": sg.fori_loop(0, 3, lambda k, c: c.at[k].add(0.5), x),
        "integers": k, "integer": -k[-1], "words": (x * 1e9).astype(np.uint32),
        "truths": x > 1.5, "truth": x[0] > 1.5, "mixed": sg.array([x[0], 1.0]),
    }  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_results_of_elements_have_types(dtype: Any) -> None:
    """Arrays that loops carry came out as they were traced, and integers as rounded floats."""
    x = np.array([0.5, 1.25, 2.0, 3.75])
    run = sg.jit(lambda x: (_of_many_types(x), np.array([x[0], x[1]])), device="cpu", dtype=dtype)
    loss = lambda x: (np.sum(x**2), _of_many_types(x))  # noqa: E731
    (_, aux), _ = sg.value_and_grad(loss, has_aux=True, device="cpu", dtype=dtype)(x)
    words = (x.astype(dtype) * np.dtype(dtype).type(1e9)).astype(np.uint32)
    for results in (run(x)[0], aux):
        assert results["in memory"].tolist() == [1.0, 1.75, 2.5, 3.75]
        assert results["in memory"].dtype == results["mixed"].dtype == dtype
        assert results["integers"].dtype == results["integer"].dtype == np.int32
        assert results["integers"].tolist() == [500001, 1250004, 2000007, 3750013]
        assert results["integer"] == -3750013
        assert results["words"].dtype == np.uint32 and np.array_equal(results["words"], words)
        assert results["truths"].tolist() == [False, False, True, True]
        assert results["truth"].dtype == bool and not results["truth"]


@pytest.mark.parametrize("size", [4, 400])
def test_lists_in_lists_are_taken_apart(size: int) -> None:
    """They came out as they were traced."""
    x = np.arange(float(size))
    f = lambda x: [[x * 2, [x[1], 7]], [[1, 2], [3.0, 4.0]]]  # noqa: E731
    loss = lambda x: (np.sum(x), f(x))  # noqa: E731
    (_, aux), _ = sg.value_and_grad(loss, has_aux=True, device="cpu")(x)
    for result in (sg.jit(f, device="cpu")(x), aux):
        assert result[0][0].tolist() == (2 * x).tolist()
        assert result[0][1] == [1.0, 7] and result[1] == [[1, 2], [3.0, 4.0]]


def test_integers_of_both_signs_have_64_bits() -> None:
    run = sg.jit(lambda v: sg.array([sg.int32(v[0]), sg.uint32(v[1])]), device="cpu")
    result = run([-3.0, 3e9])
    assert result.dtype == np.int64 and result.tolist() == [-3, 3000000000]


@pytest.mark.parametrize("size", [4, 400])
@pytest.mark.parametrize("start", [np.arange(3.0), np.arange(3), np.array([True, False, True])])
def test_constant_results_are_arrays_of_numbers(size: int, start: Any) -> None:
    """Arrays of objects came out of functions that write to constants."""
    f = lambda x: (sg.array(start).at[0].set(start[2]), x + 1.0)  # noqa: E731
    of_jit = sg.jit(f, device="cpu")(np.ones(size))[0]
    loss = lambda x: (np.sum(x), f(x)[0])  # noqa: E731
    (_, aux), _ = sg.value_and_grad(loss, has_aux=True, device="cpu")(np.ones(size))
    for result in (of_jit, aux):
        assert type(result) is np.ndarray and result.dtype == start.dtype
        assert result.tolist() == [start[2], start[1], start[2]]


@pytest.mark.skipif(not list_gpus(), reason="no GPU and no software Vulkan driver here")
def test_arrays_on_a_gpu_stay_there() -> None:
    def both(p: Any, x: Any, picked: Any) -> Any:
        line = p["w"] * x[picked] + p["b"]
        return line @ line, {"line": line}

    want = sg.value_and_grad(both, (0, 1), has_aux=True, device="gpu")(P, X, [0, 1])
    p = {"w": 2.0, "b": sg.device_array(P["b"], "gpu")}
    picked = sg.device_array([0, 1], "gpu", "int32")
    for x in (X, sg.device_array(X, "gpu")):
        (value, aux), (slopes, others) = sg.value_and_grad(both, (0, 1), True)(p, x, picked)
        there = [value, aux["line"], slopes["w"], slopes["b"], others]
        assert all(isinstance(a, sg.DeviceArray) for a in there)
        near = [want[0][0], want[0][1]["line"], want[1][0]["w"], want[1][0]["b"], want[1][1]]
        for a, b in zip(there, near, strict=True):
            assert a.shape == np.shape(b)
            np.testing.assert_array_equal(a.numpy(), b)
    here = sg.value_and_grad(both, has_aux=True, device="cpu")(p, X, picked)
    assert here[0][0] == want[0][0] and isinstance(here[1]["b"], np.ndarray)


ONE_OR_NONE = {
    "a number's methods": lambda x: (
        np.sum(np.sum(x).ravel() ** 2) + np.sum(x).reshape(1, 1).T[0, 0]
    ),
    "a number's element": lambda x: np.sum(x)[None][0] * np.sum(x).clip(0.0, 9.0).max(),
    "einsum of nothing": lambda x: np.einsum("i,i->", x[:0], x[:0]) + x[0],
    "a product of nothing": lambda x: np.tensordot(x[:0], x[:0], 1) + x[1] * np.sum(x[:0] @ x[:0]),
}


@pytest.mark.parametrize("name", ONE_OR_NONE)
def test_numbers_are_arrays_and_arrays_may_be_empty(name: str) -> None:
    """Small arrays, which are traced by elements, lacked what large ones have."""
    f, x = ONE_OR_NONE[name], np.array([0.5, 0.7, -0.2])
    value, slope = sg.value_and_grad(f, device="cpu", dtype="float64")(x)
    assert value == pytest.approx(float(f(x)))
    ends = [[float(f(x + h * e)) for e in np.eye(3)] for h in (1e-6, -1e-6)]
    np.testing.assert_allclose(slope, np.diff(ends[::-1], axis=0)[0] / 2e-6, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("f", [np.mean, np.var, np.std])
def test_means_of_nothing_are_nan(f: Any) -> None:
    """Of numbers they were a ZeroDivisionError."""
    assert np.isnan(sg.value_and_grad(lambda x: f(x[:0]), device="cpu")(np.ones(3))[0])
    assert np.isnan(sg.fused_forward(2, lambda v: f(v[:0]), device="cpu").run([1.0, 2.0]))


def test_what_fails_by_many_elements_is_traced_whole() -> None:
    """Refused by elements, and small for whole arrays: these were not tried then."""
    x, points = np.random.default_rng(0).normal(size=31), np.array([0.0, 0.5])

    def smooth(x: Any) -> Any:
        s = np.sort(x)
        at = np.interp(0.3, np.linspace(0, 1, len(x)), s)
        return np.sum(np.cumsum(s) * x) + at + np.median(x)

    def loss(x: Any) -> Any:
        return smooth(x) + np.sum(np.searchsorted(np.sort(x), points) * 1.0)

    value, slope = sg.value_and_grad(loss, device="cpu", dtype="float64")(x)
    assert value == pytest.approx(float(loss(x)), rel=1e-12)
    want = sg.value_and_grad(smooth, device="cpu", dtype="float64")(x)[1]
    np.testing.assert_allclose(slope, want, rtol=1e-12)
