"""Functions that call kernels of arrays, and their gradients, beside complex steps in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
from tensor_arrays import drawn, error

import symgrad as sg
from symgrad.expr.tracers.tree import flatten
from symgrad.targets import DeviceChoice

DEVICES: list[Literal["cpu", "gpu"]] = ["cpu", "gpu"]
BOUND = 2e-5


def parameters() -> tuple[dict[str, Any], np.ndarray, np.ndarray]:
    """Of a network with two layers, a batch, and what it is to give."""
    rng = np.random.default_rng(0)
    p = {
        "W": drawn(rng, (6, 4)), "b": drawn(rng, (6,)), "out": [drawn(rng, (3, 6)), np.zeros(3)],
        "scale": drawn(rng, (6,)), "unused": np.ones(2),
    }  # fmt: skip
    return p, drawn(rng, (5, 4)), drawn(rng, (5, 3)) ** 2


def network(device: DeviceChoice, dtype: Any = "float32") -> sg.Network:
    hidden = sg.linear(sg.tanh, device=device, dtype=dtype)
    out = sg.linear(device=device, dtype=dtype)
    entropy = sg.rowwise(lambda z, t: -(t * sg.log_softmax(z)).sum(), device=device, dtype=dtype)

    @sg.network
    def loss(p: Any, x: Any, t: Any) -> Any:
        h = hidden(x, p["W"], p["b"])
        mixed = h + 0.5 * h[:, ::-1] * p["scale"] - np.tanh(h[0]) / (2.0 + h[:, :1] ** 2)
        penalty = 0.1 * (p["out"][0] ** 2).sum(axis=1, keepdims=True).mean()
        return entropy(out(mixed, *p["out"]), t).reshape(-1).mean() + penalty

    return loss


def by_numpy(p: Any, x: np.ndarray, t: np.ndarray) -> Any:
    h = np.tanh(x @ p["W"].T + p["b"])
    mixed = h + 0.5 * h[:, ::-1] * p["scale"] - np.tanh(h[0]) / (2.0 + h[:, :1] ** 2)
    z = mixed @ p["out"][0].T + p["out"][1]
    logs = z - np.log(np.exp(z).sum(1, keepdims=True))
    return -(t * logs).sum(1).mean() + 0.1 * (p["out"][0] ** 2).sum(1).mean()


def slopes(p: Any, x: np.ndarray, t: np.ndarray) -> list[np.ndarray]:
    """The gradients, by complex steps."""
    leaves, tree = flatten([p, x, t])
    found = []
    for n, leaf in enumerate(leaves):
        wanted = np.zeros(leaf.shape)
        for at in np.ndindex(leaf.shape):
            moved = [a.astype(complex) for a in leaves]
            moved[n][at] += 1e-30j
            wanted[at] = np.imag(by_numpy(*tree.nest(iter(moved), None))) / 1e-30
        found.append(wanted)
    return found


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_of_all_arguments(device: Literal["cpu", "gpu"]) -> None:
    arguments = parameters()
    given = sg.device_put(list(arguments), device)
    loss = network(device)
    value, gradients = loss.vjp(*given, 1.0)
    assert float(value) == pytest.approx(by_numpy(*arguments), rel=1e-6)
    assert float(loss.run(*given)) == pytest.approx(float(value), rel=1e-6)
    found, wanted = flatten(list(gradients))[0], slopes(*arguments)
    kind = sg.DeviceArray if device == "gpu" else np.ndarray
    assert all(isinstance(a, kind) for a in found)
    assert gradients[0].keys() == arguments[0].keys()
    assert max(error(a, w) for a, w in zip(found, wanted, strict=True)) <= BOUND


def test_float64_on_the_cpu() -> None:
    arguments = parameters()
    _, gradients = network("cpu", "float64").vjp(*arguments, 1.0)
    pairs = zip(flatten(list(gradients))[0], slopes(*arguments), strict=True)
    assert max(error(a, w) for a, w in pairs) <= 1e-12


@pytest.mark.parametrize("device", DEVICES)
def test_several_results_of_which_some_are_used(device: DeviceChoice) -> None:
    """What nobody uses has cotangents of 0, and a nest of results one of such cotangents."""
    scan = sg.selective_scan(state=True, device=device)
    rng = np.random.default_rng(1)
    row, cell = (2, 6, 3), (2, 6, 4)
    u, b, c = drawn(rng, row), drawn(rng, cell), drawn(rng, cell)
    delta, a = rng.uniform(0.1, 0.5, row), -rng.uniform(0.1, 1.0, (3, 4))
    arrays = (u, delta, a, b, c, np.ones(3), drawn(rng, (2, 3, 4)))
    given = sg.device_put(arrays, device)
    g = drawn(rng, row)

    @sg.network
    def only(*arrays: Any) -> Any:
        y, _ = scan(*arrays)
        return {"twice": y + y, "first": arrays[0]}

    result, gradients = only.vjp(*given, {"twice": g, "first": np.ones(row)})
    (y, _), wanted = scan.vjp(*arrays, 2.0 * g, np.zeros((2, 3, 4)))
    assert np.array_equal(np.asarray(result["twice"]), 2.0 * y)
    expected = [wanted[0] + 1.0, *wanted[1:]]
    pairs = zip(gradients, expected, strict=True)
    assert max(error(a, np.asarray(w, np.float64)) for a, w in pairs) <= 1e-6


def test_layers_keep_what_their_activations_are_of(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = sg.linear(sg.gelu, device="cpu")
    asked = []
    vjp = layer.vjp

    def watched(*arrays: Any, kept: Any = None) -> Any:
        asked.append(kept is not None)
        return vjp(*arrays, kept=kept)

    monkeypatch.setattr(layer, "vjp", watched)
    sg.network(lambda x, w, b: layer(x, w, b)).vjp(np.eye(2), np.eye(2), np.ones(2), np.eye(2))
    assert asked == [True]


def test_networks_within_networks() -> None:
    layer = sg.linear(sg.tanh, bias=False, device="cpu")
    inner = sg.network(lambda x, w: layer(x, w))
    outer = sg.network(lambda x, w: inner(inner(x, w), w))
    x, w, g = np.eye(2), np.array([[0.5, 1.0], [-1.0, 0.2]]), np.ones((2, 2))
    y, (dx, dw) = outer.vjp(x, w, g)
    once, first = layer.run(x, w), layer.run(layer.run(x, w), w)
    np.testing.assert_allclose(y, first, rtol=1e-6)
    slope = (1 - first**2) * g
    back = (1 - once**2) * (slope @ w)
    np.testing.assert_allclose(dx, back @ w, rtol=1e-5)
    np.testing.assert_allclose(dw, slope.T @ once + back.T @ x, rtol=1e-5)


def test_arrays_between_kernels_are_numpys() -> None:
    """Attention of products, transposes and a softmax by a kernel, beside complex steps."""
    softmax = sg.rowwise(sg.softmax, device="cpu", dtype="float64")

    @sg.network
    def attention(q: Any, k: Any, v: Any) -> Any:
        return np.sort(softmax(q @ k.T), axis=-1) @ np.concatenate([v, v[:1]])[1:]

    def expected(q: Any, k: Any, v: Any) -> Any:
        e = np.exp(q @ k.T)
        return np.sort(e / e.sum(-1, keepdims=True), -1) @ np.concatenate([v, v[:1]])[1:]

    rng = np.random.default_rng(2)
    arrays, g = [drawn(rng, (4, 3)), drawn(rng, (5, 3)), drawn(rng, (5, 2))], drawn(rng, (4, 2))
    result, gradients = attention.vjp(*arrays, g)
    np.testing.assert_allclose(result, expected(*arrays), rtol=1e-12)
    for n, found in enumerate(gradients):
        for at in np.ndindex(found.shape):
            moved = [a.astype(complex) for a in arrays]
            moved[n][at] += 1e-30j
            wanted = np.sum(g * np.imag(expected(*moved))) / 1e-30
            assert found[at] == pytest.approx(wanted, abs=1e-12)


def test_kernels_are_functions_of_jit_and_value_and_grad() -> None:
    layer = sg.linear(np.tanh, bias=False, device="cpu", dtype="float64")
    rng = np.random.default_rng(3)
    x, w = drawn(rng, (3, 2)), drawn(rng, (4, 2))
    run = sg.jit(lambda x, w: layer(x, w).T, device="cpu", dtype="float64")
    np.testing.assert_allclose(run(x, w), np.tanh(w @ x.T), rtol=1e-12)
    loss = sg.value_and_grad(
        lambda x, w: np.sum(layer(x, w) ** 2), argnums=(0, 1), device="cpu", dtype="float64"
    )
    value, (dx, dw) = loss(x, w)
    y = np.tanh(x @ w.T)
    slope = 2.0 * y * (1.0 - y**2)
    assert value == pytest.approx(np.sum(y**2), rel=1e-12)
    np.testing.assert_allclose(dx, slope @ w, rtol=1e-12)
    np.testing.assert_allclose(dw, slope.T @ x, rtol=1e-12)


def test_a_network_sees_another_kernel_in_its_closure() -> None:
    layer = sg.linear(np.tanh, bias=False, device="cpu")
    run = sg.network(lambda x, w: layer(x, w) + 1.0)
    x, w = np.full((1, 1), 0.5), np.ones((1, 1))
    assert [run(x, w).item() for _ in range(2)] == [pytest.approx(1 + np.tanh(0.5))] * 2
    layer = sg.linear(np.exp, bias=False, device="cpu")
    assert run(x, w).item() == pytest.approx(1 + np.exp(0.5))


def test_cotangents_are_matched_by_their_names() -> None:
    pair = sg.network(lambda x: {"a": x, "b": 2.0 * x})
    _, (dx,) = pair.vjp(np.ones(2), {"b": np.array([1.0, 0.0]), "a": np.array([0.0, 5.0])})
    assert dx.tolist() == [2.0, 5.0]


LEAKED: list[Any] = []


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda: sg.network(3), TypeError, "takes a function"),  # type: ignore[arg-type]
        (lambda: sg.network(lambda x: x).vjp(), ValueError, "takes a cotangent"),
        (lambda: sg.network(lambda x: x * 2.0).vjp(np.ones(3), np.ones(2)), ValueError,
         r"the cotangent has shape \(2,\), the result \(3,\)"),
        (lambda: sg.network(lambda x: x if x.sum() > 0.0 else -x).vjp(np.ones(3), np.ones(3)),
         TypeError, "neither true nor false"),
        (lambda: sg.network(lambda x: x if x.sum() else -x).vjp(np.ones(3), np.ones(3)),
         TypeError, "neither true nor false"),
        (lambda: sg.network(lambda x: x).vjp(np.ones(3), (np.ones(3), np.ones(3))), ValueError,
         "must be one array, not a tuple"),
        (lambda: sg.network(lambda x: LEAKED.append(x) or x).vjp(np.ones(3), np.ones(3))
         and sg.network(lambda x: x + LEAKED[0]).vjp(np.ones(3), np.ones(3)), TypeError,
         "another trace"),
        (lambda: sg.network(lambda x: sg.network(lambda y: y * y).vjp(x, x)[0]).vjp(
            np.ones(3), np.ones(3)), TypeError, "use sg.grad or sg.value_and_grad"),
        (lambda: sg.network(lambda x: x).vjp("three", 1.0), TypeError, "strings"),
    ],
)  # fmt: skip
def test_what_is_refused(call: Callable[[], Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(sg.SymgradError, match=text) as caught:
        call()
    assert isinstance(caught.value, kind)
