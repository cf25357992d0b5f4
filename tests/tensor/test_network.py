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


LEAKED: list[Any] = []


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda: sg.network(3), TypeError, "takes a function"),  # type: ignore[arg-type]
        (lambda: sg.network(lambda x: x).vjp(), ValueError, "takes a cotangent"),
        (lambda: sg.network(lambda x: x * 2.0).vjp(np.ones(3), np.ones(2)), ValueError,
         r"the cotangent has shape \(2,\), the result \(3,\)"),
        (lambda: sg.network(np.sort).vjp(np.ones(3), np.ones(3)), TypeError,
         "np.sort is not defined within a network"),
        (lambda: sg.network(np.add.reduce).vjp(np.ones(3), 1.0), TypeError,
         "np.add.reduce is not defined"),
        (lambda: sg.network(lambda x: x if x.sum() > 0.0 else -x).vjp(np.ones(3), np.ones(3)),
         TypeError, "row"),
        (lambda: sg.network(lambda x: x if x.sum() else -x).vjp(np.ones(3), np.ones(3)),
         TypeError, "a branch cannot depend"),
        (lambda: sg.network(lambda x: np.linspace(x, 2.0)).vjp(np.ones(3), 1.0), TypeError,
         "np.linspace is not defined"),
        (lambda: sg.network(lambda x: LEAKED.append(x) or x).vjp(np.ones(3), np.ones(3))
         and sg.network(lambda x: x + LEAKED[0]).vjp(np.ones(3), np.ones(3)), ValueError,
         "another call"),
        (lambda: sg.network(lambda x: sg.network(lambda y: y * y).vjp(x, x)[0]).vjp(
            np.ones(3), np.ones(3)), TypeError, "first derivatives"),
        (lambda: sg.network(lambda x: x).vjp("three", 1.0), TypeError, "strings"),
    ],
)  # fmt: skip
def test_what_is_refused(call: Callable[[], Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(sg.SymgradError, match=text) as caught:
        call()
    assert isinstance(caught.value, kind)
