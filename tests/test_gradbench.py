"""The GradBench tool: each eval at its smallest, through the protocol, beside NumPy alone.

Derivatives are those of complex steps through NumPy's version of the same function.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from scipy.special import multigammaln  # pyright: ignore[reportAttributeAccessIssue]

ROOT = Path(__file__).parents[1]
TOOL = ROOT / "benchmarks/gradbench/run.py"
STEP = 1e-30

draw = np.random.default_rng(0)
Function = Callable[[np.ndarray], Any]


def slopes(f: Function, x: Any) -> np.ndarray:
    """The Jacobian by complex steps, (results, variables), exact to rounding."""
    x = np.asarray(x, dtype=float)
    moved = (x + 1j * STEP * e for e in np.eye(len(x)))
    return np.stack([np.imag(np.ravel(f(v))) / STEP for v in moved], axis=1)


# --- the functions, by NumPy ----------------------------------------------------------------------


def log_sum_exp(v: Any) -> Any:
    shift = v.real.max()
    return shift + np.log(np.sum(np.exp(v - shift)))


def polynomial_misfit(x: Any, n: int) -> Any:
    t = -1 + np.arange(n) * 2 / (n - 1)
    return 0.5 * np.sum((np.sign(t) - np.vander(t, len(x), increasing=True) @ x) ** 2)


def leibniz(v: Any, n: int) -> Any:
    a = v.reshape(n, n)
    if n == 1:
        return a[0, 0]
    rest = (leibniz(np.delete(a[1:], k, axis=1).ravel(), n - 1) for k in range(n))
    return sum((-1) ** k * a[0, k] * minor for k, minor in enumerate(rest))


def chain(x: Any, steps: int) -> Any:
    """The end of y' = x * (1, y_0, y_1, ...)."""
    y, h = np.zeros_like(x), 2.0 / steps
    slope = lambda y: x * np.concatenate([[1.0], y[:-1]])  # noqa: E731
    for _ in range(steps):
        a = slope(y)
        b = slope(y + h / 2 * a)
        c = slope(y + h / 2 * b)
        y = y + h / 6 * (a + 2 * b + 2 * c + slope(y + h * c))
    return y


def posterior(v: Any, given: Any) -> Any:
    """Densities and a Wishart prior, as textbooks have them."""
    k, d, n = given["k"], given["d"], given["n"]
    alpha, mu, q, lower = np.split(v, np.cumsum([k, k * d, k * d]))
    mu, q, lower = mu.reshape(k, d), q.reshape(k, d), lower.reshape(k, -1)
    x, total, freedom = np.array(given["x"]), 0.0, d + given["m"] + 1
    densities = np.zeros((n, k), dtype=v.dtype)
    scale = np.eye(d) / given["gamma"] ** 2
    for j in range(k):
        factor = np.diag(np.exp(q[j])).astype(v.dtype)
        factor.T[np.triu_indices(d, 1)] = lower[j]
        apart = (x - mu[j]) @ factor.T
        densities[:, j] = np.exp(q[j].sum() - 0.5 * (apart**2).sum(axis=1))
        inverse = factor.T @ factor
        total += 0.5 * given["m"] * 2 * q[j].sum()
        total -= 0.5 * np.trace(np.linalg.inv(scale) @ inverse)
        total -= 0.5 * freedom * (d * np.log(2) + np.log(np.linalg.det(scale)))
        total -= multigammaln(freedom / 2, d)
    share = np.exp(alpha) / np.exp(alpha).sum()
    return total + np.log(densities @ share).sum() - 0.5 * n * d * np.log(2 * np.pi)


def rodrigues(axis: Any, x: Any) -> Any:
    angle = np.sqrt(np.sum(axis**2))
    w = axis / angle
    turned = x * np.cos(angle) + np.cross(w, x) * np.sin(angle)
    return turned + w * np.sum(w * x) * (1 - np.cos(angle))


def observed(v: Any, feat: Any) -> Any:
    """The error of one observation by its camera (11), point (3) and weight (1)."""
    camera, x, w = v[:11], v[11:14], v[14]
    seen = rodrigues(camera[:3], x - camera[3:6])
    flat = seen[:2] / seen[2]
    square = np.sum(flat**2)
    bent = flat * (1 + camera[9] * square + camera[10] * square**2)
    return w * (bent * camera[6] + camera[7:9] - feat)


def rotation(a: int, b: int, angle: Any) -> Any:
    found = np.eye(4, dtype=complex)
    found[a, a] = found[b, b] = np.cos(angle)
    found[b, a], found[a, b] = np.sin(angle), -np.sin(angle)
    return found


def hand(v: Any, given: Any) -> Any:
    """The residuals of all points, by matrices (4, 4)."""
    model, us = given["data"]["model"], np.array(given["us"]).reshape(-1, 2)
    theta, du = v[len(v) - len(given["theta"]) :], v[: len(v) - len(given["theta"])]
    angles = np.zeros((model["bone_count"], 3), dtype=complex)
    angles[[2 + 4 * f + j for f in range(5) for j in range(3)], 0] = np.delete(
        theta[6:], [4 * f + 1 for f in range(5)]
    )
    angles[[2 + 4 * f for f in range(5)], 1] = theta[7::4]
    absolutes: list[Any] = []
    for k, (x, z, y) in enumerate(angles):
        own = rotation(0, 1, z) @ rotation(0, 2, y) @ rotation(1, 2, x)
        own = np.array(model["base_relatives"][k]) @ own
        parent = model["parents"][k]
        absolutes.append(own if parent < 0 else absolutes[parent] @ own)
    moved = [a @ np.array(b) for a, b in zip(absolutes, model["inverse_base_absolutes"])]  # noqa: B905
    places = np.array(model["base_positions"])
    weights = np.array(model["weights"])
    corners = np.einsum("vb,bij,vj->vi", weights, np.array(moved), places)[:, :3]
    corners[:, 0] *= -1 if model["is_mirrored"] else 1
    skin = [rodrigues(theta[:3], x) + theta[3:6] for x in corners]
    errors = []
    for i, (at, point) in enumerate(zip(given["data"]["correspondences"], given["data"]["points"])):  # noqa: B905
        found = skin[at]
        if len(us):
            a, b = us[i] + du
            p, q, r = (skin[c] for c in model["triangles"][at])
            found = a * p + b * q + (1 - a - b) * r
        errors.append(np.array(point) - found)
    return np.array(errors).ravel()


def sequence_loss(v: Any, given: Any) -> Any:
    state, seen = np.array(given["state"]), np.array(given["sequence"])
    main = v[: np.size(given["main_params"])].reshape(len(state), 4, -1)
    extra = v[np.size(given["main_params"]) :].reshape(3, -1)
    memory, total = state.astype(v.dtype), 0.0
    sigmoid = lambda z: 1 / (1 + np.exp(-z))  # noqa: E731
    for now, wanted in itertools.pairwise(seen):
        x = now * extra[0]
        for k in range(0, len(memory), 2):
            (wf, wi, wo, wc), (bf, bi, bo, bc) = main[k], main[k + 1]
            hidden, cell = memory[k], memory[k + 1]
            cell = cell * sigmoid(x * wf + bf) + sigmoid(hidden * wi + bi) * np.tanh(
                hidden * wc + bc
            )
            x = sigmoid(x * wo + bo) * np.tanh(cell)
            memory[k], memory[k + 1] = x, cell
        said = x * extra[1] + extra[2]
        total += wanted @ (said - np.log(np.sum(np.exp(said)) + 2))
    return -total / ((len(seen) - 1) * seen.shape[1])


# --- the inputs, and what is expected -------------------------------------------------------------

BONES, POINTS = 22, 3
GMM = {
    "d": 3, "k": 2, "n": 5, "m": 1, "gamma": 1.5,
    "x": draw.normal(size=(5, 3)).tolist(), "alpha": draw.normal(size=2).tolist(),
    "mu": draw.uniform(size=(2, 3)).tolist(), "q": draw.normal(size=(2, 3)).tolist(),
    "l": draw.normal(size=(2, 3)).tolist(),
}  # fmt: skip
FLAT = np.concatenate([np.ravel(GMM[name]) for name in ("alpha", "mu", "q", "l")])
BA = {
    "n": 2, "m": 3, "p": 5, "w": 0.7, "feat": [0.3, -0.2], "x": [0.1, -0.4, 3.0],
    "cam": [0.02, -0.1, 0.3, 0.1, 0.2, -2.0, 1.7, 0.05, -0.03, 0.1, -0.02],
}  # fmt: skip
LSTM = {
    "main_params": draw.normal(size=(4, 12)).tolist(),
    "extra_params": draw.normal(size=(3, 3)).tolist(),
    "state": draw.normal(size=(4, 3)).tolist(),
    "sequence": draw.uniform(size=(6, 3)).tolist(),
}
KMEANS = {"points": draw.normal(size=(12, 2)), "centroids": draw.normal(size=(3, 2))}


def matrices() -> list[Any]:
    return [np.vstack([draw.normal(size=(3, 4)), [0, 0, 0, 1]]).tolist() for _ in range(BONES)]


def hand_input(us: bool, mirrored: bool) -> dict[str, Any]:
    model = {
        "bone_count": BONES, "bone_names": [""] * BONES,
        "parents": [-1, 0, *(1 if k % 4 == 2 else k - 1 for k in range(2, BONES))],
        "base_relatives": matrices(), "inverse_base_absolutes": matrices(),
        "base_positions": np.hstack([draw.normal(size=(6, 3)), np.ones((6, 1))]).tolist(),
        "weights": draw.uniform(size=(6, BONES)).tolist(),
        "triangles": [[0, 1, 2], [3, 4, 5], [1, 3, 5]], "is_mirrored": mirrored,
    }  # fmt: skip
    data = {
        "model": model, "correspondences": [2, 0, 1],
        "points": draw.normal(size=(POINTS, 3)).tolist(),
    }  # fmt: skip
    theta = (0.3 * draw.normal(size=26)).tolist()
    return {"theta": theta, "data": data, "us": draw.uniform(size=2 * POINTS * us).tolist()}


def ba_objective() -> Any:
    one = np.array([*BA["cam"], *BA["x"], BA["w"]])
    error = observed(one, np.array(BA["feat"]))
    return {
        "reproj_error": {"elements": error, "repeated": BA["p"]},
        "w_err": {"element": 1 - BA["w"] ** 2, "repeated": BA["p"]},
    }


def ba_jacobian() -> Any:
    """Two rows of 15 numbers for each observation, then one of one number for each weight."""
    n, m, p = BA["n"], BA["m"], BA["p"]
    one = np.array([*BA["cam"], *BA["x"], BA["w"]])
    block = slopes(lambda v: observed(v, np.array(BA["feat"])), one)
    dense = np.zeros((3 * p, 11 * n + 3 * m + p))
    for k in range(p):
        at = np.r_[11 * (k % n) + np.arange(11), 11 * n + 3 * (k % m) + np.arange(3)]
        dense[2 * k : 2 * k + 2, [*at, 11 * n + 3 * m + k]] = block
        dense[2 * p + k, 11 * n + 3 * m + k] = -2 * BA["w"]
    found = scipy.sparse.csr_array(dense)
    return {"rows": found.indptr, "cols": found.indices, "vals": found.data}


def kmeans(direction: bool) -> Any:
    points, centres = KMEANS["points"], KMEANS["centroids"]
    squares = ((points[:, None] - centres) ** 2).sum(axis=2)
    nearest = np.argmin(squares, axis=1)
    if not direction:
        return squares.min(axis=1).sum()
    return np.array([centres[j] - points[nearest == j].mean(axis=0) for j in range(len(centres))])


def gmm_slopes() -> Any:
    found = np.split(slopes(lambda v: posterior(v, GMM), FLAT)[0], np.cumsum([2, 6, 6]))
    parts = dict(zip(("alpha", "mu", "q", "l"), found, strict=True))
    return {name: part.reshape(np.shape(GMM[name])) for name, part in parts.items()}


VECTOR = draw.normal(size=6)
MATRIX = draw.normal(size=16)
SIMPLE, TOUCHED = hand_input(us=False, mirrored=False), hand_input(us=True, mirrored=True)
WEIGHTS = np.concatenate([np.ravel(LSTM["main_params"]), np.ravel(LSTM["extra_params"])])


def hand_slopes(given: Any) -> Any:
    free = 2 if given["us"] else 0
    found = slopes(lambda v: hand(v, given), [*np.zeros(free), *given["theta"]])
    return found.reshape(-1, free + 26)


MODES = "ff", "fr", "rf", "rr"
CASES: list[tuple[str, str, Any, Callable[[], Any]]] = [
    ("hello", "square", 3.0, lambda: 9.0),
    ("hello", "double", 3.0, lambda: 6.0),
    ("lse", "primal", {"x": VECTOR}, lambda: log_sum_exp(VECTOR)),
    ("lse", "gradient", {"x": VECTOR}, lambda: slopes(log_sum_exp, VECTOR)[0]),
    ("llsq", "primal", {"x": VECTOR, "n": 9}, lambda: polynomial_misfit(VECTOR, 9)),
    ("llsq", "gradient", {"x": VECTOR, "n": 9},
     lambda: slopes(lambda v: polynomial_misfit(v, 9), VECTOR)[0]),
    ("det", "primal", {"A": MATRIX, "ell": 4}, lambda: np.linalg.det(MATRIX.reshape(4, 4))),
    ("det", "gradient", {"A": MATRIX, "ell": 4},
     lambda: slopes(lambda v: leibniz(v, 4), MATRIX)[0]),
    ("ode", "primal", {"x": VECTOR, "s": 7}, lambda: chain(VECTOR, 7)),
    ("ode", "gradient", {"x": VECTOR, "s": 7},
     lambda: slopes(lambda v: chain(v, 7)[-1], VECTOR)[0]),
    ("gmm", "objective", GMM, lambda: posterior(FLAT, GMM)),
    ("gmm", "jacobian", GMM, gmm_slopes),
    ("ba", "objective", BA, ba_objective),
    ("ba", "jacobian", BA, ba_jacobian),
    ("ht", "objective", SIMPLE, lambda: hand(np.array(SIMPLE["theta"]), SIMPLE).real),
    ("ht", "jacobian", SIMPLE, lambda: hand_slopes(SIMPLE)),
    ("ht", "objective", TOUCHED, lambda: hand(np.array([0, 0, *TOUCHED["theta"]]), TOUCHED).real),
    ("ht", "jacobian", TOUCHED, lambda: hand_slopes(TOUCHED)),
    ("lstm", "objective", LSTM, lambda: sequence_loss(WEIGHTS, LSTM)),
    ("lstm", "jacobian", LSTM, lambda: slopes(lambda v: sequence_loss(v, LSTM), WEIGHTS)[0]),
    ("kmeans", "cost", KMEANS, lambda: kmeans(direction=False)),
    ("kmeans", "dir", KMEANS, lambda: kmeans(direction=True)),
    *(("saddle", modes, {"start": [1.0, 1.0]}, lambda: [0.0] * 4) for modes in MODES),
    *(("particle", modes, {"w": 0.0}, lambda: 0.2071918746486116) for modes in MODES),
]  # fmt: skip
"""Each eval's functions, with an input and what its own validation, or NumPy, expects."""

TOLERANCES: dict[str, dict[str, Any]] = {"saddle": {"rtol": 0, "atol": 2e-5}}
"""The descents of saddle end within 1e-5 of it, by either coordinate."""

EVALS = (
    "ba",
    "det",
    "gmm",
    "hello",
    "ht",
    "kmeans",
    "llsq",
    "lse",
    "lstm",
    "ode",
    "particle",
    "saddle",
)


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    return value.tolist() if isinstance(value, np.ndarray) else value


@pytest.fixture(scope="module")
def answers() -> list[dict[str, Any]]:
    """What the tool says to a start, a definition of each eval, all cases, and an analysis."""
    messages: list[dict[str, Any]] = [{"kind": "start", "eval": "all"}]
    messages += [{"kind": "define", "module": name} for name in (*EVALS, "nothing")]
    for module, function, given, _ in CASES:
        repeated = given | {"min_runs": 2, "min_seconds": 0.0} if isinstance(given, dict) else given
        asked = {"module": module, "function": function, "input": plain(repeated)}
        messages.append({"kind": "evaluate", "description": "small"} | asked)
    messages.append(
        {"kind": "evaluate", "module": "lse", "function": "primal", "input": {"x": ["no"]}}
    )
    messages.append({"kind": "analysis", "of": 1, "valid": True})
    lines = "".join(json.dumps({"id": k} | m) + "\n" for k, m in enumerate(messages))
    done = subprocess.run(
        [sys.executable, TOOL], input=lines, capture_output=True, text=True, timeout=300, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert not done.returncode, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["id"] for answer in found] == list(range(len(messages)))
    return found


def test_the_protocol(answers: list[dict[str, Any]]) -> None:
    assert answers[0]["tool"] == "symgrad"
    defined = answers[1 : len(EVALS) + 2]
    assert [answer["success"] for answer in defined] == [True] * len(EVALS) + [False]
    *_, failed, analysis = answers
    assert not failed["success"] and "InputTypeError" in failed["error"]
    assert analysis == {"id": len(answers) - 1}
    assert {module for module, *_ in CASES} == set(EVALS)


@pytest.mark.parametrize("k", range(len(CASES)), ids=lambda k: f"{CASES[k][0]}-{CASES[k][1]}-{k}")
def test_a_function_of_an_eval(k: int, answers: list[dict[str, Any]]) -> None:
    module, _, given, expected = CASES[k]
    answer = answers[len(EVALS) + 2 + k]
    assert answer["success"], answer.get("error")
    runs = [t for t in answer["timings"] if t["name"] == "evaluate"]
    assert len(runs) == (2 if isinstance(given, dict) else 1)
    assert all(t["nanoseconds"] > 0 for t in runs)
    tolerances: dict[str, Any] = TOLERANCES.get(module, {"rtol": 1e-9, "atol": 1e-10})
    require_same(answer["output"], expected(), tolerances)


def require_same(found: Any, wanted: Any, tolerances: dict[str, Any]) -> None:
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for name, part in wanted.items():
            require_same(found[name], part, tolerances)
    else:
        found, wanted = np.array(found), np.array(wanted)
        assert found.shape == wanted.shape
        assert np.allclose(found, wanted.real, **tolerances), (found, wanted)
        assert math.isfinite(float(np.sum(found)))
