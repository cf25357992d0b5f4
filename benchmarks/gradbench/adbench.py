"""The evals gmm, ba, ht, lstm and kmeans, of ADBench and GradBench: losses and residuals over data.

Šrajer, Kukelova and Fitzgibbon, "A benchmark of selected algorithmic differentiation tools on some
problems in computer vision and machine learning", 2018.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from prepared import Call, Eval, Where

import symgrad as sg

# --- a mixture of Gaussians: the logarithm of the posterior ---------------------------------------


def mixture(given: Any) -> tuple[Any, Any, Any, Any]:
    """The parameters, the logarithm of the likelihood of a point, the rest, and its constant.

    The inverse of a covariance is QᵀQ, with Q lower triangular: exp(q) in the diagonal, and l below
    it, by columns. The prior is Wishart's.
    """
    n, k, d = given["n"], given["k"], given["d"]
    gamma, m = given["gamma"], given["m"]
    p = {name: np.array(given[name]) for name in ("alpha", "mu", "q", "l")}
    p["l"] = p["l"].reshape(k, d * (d - 1) // 2)
    below = [(row, column) for column in range(d) for row in range(column + 1, d)]

    def likelihood(p: Any, x: Any) -> Any:
        exponents = []
        for j in range(k):
            apart = [x[i] - p.mu[j, i] for i in range(d)]
            scaled = [sg.exp(p.q[j, i]) * apart[i] for i in range(d)]
            for at, (row, column) in enumerate(below):
                scaled[row] = scaled[row] + p.l[j, at] * apart[column]
            squares = sum(z * z for z in scaled)
            exponents.append(p.alpha[j] + np.sum(p.q[j]) - 0.5 * squares)
        return sg.logsumexp(sg.array(exponents))

    def rest(p: Any) -> Any:
        squares = np.sum(np.exp(2 * p.q)) + (np.sum(p.l**2) if d > 1 else 0.0)
        prior = m * np.sum(p.q) - 0.5 * gamma**2 * squares
        return prior - n * sg.logsumexp(p.alpha)

    freedom = d + m + 1
    multigamma = d * (d - 1) / 4 * math.log(math.pi) + sum(
        math.lgamma(0.5 * (freedom - i)) for i in range(d)
    )
    volume = freedom * d * (math.log(gamma) - 0.5 * math.log(2)) - multigamma
    return p, likelihood, rest, k * volume - 0.5 * n * d * math.log(2 * math.pi)


def _mixture_kernel(given: Any, where: Where, make: Any) -> tuple[Any, Any, float]:
    p, likelihood, rest, constant = mixture(given)
    shapes = {name: value.shape for name, value in p.items() if value.size}
    kernel = make(shapes, likelihood, row=given["d"], regularizer=rest, name="gmm", **where)
    bound = kernel.bind(np.array(given["x"]))
    return bound, {name: p[name] for name in shapes}, constant


def gmm(given: Any, where: Where) -> Call:
    """gmm::objective."""
    bound, p, constant = _mixture_kernel(given, where, sg.fused_forward)
    return lambda: bound.run(p) + constant


def gmm_jacobian(given: Any, where: Where) -> Call:
    """gmm::jacobian, nested as the parameters are."""
    bound, p, _ = _mixture_kernel(given, where, sg.fused_forward_backward)
    empty = {} if "l" in p else {"l": np.zeros((given["k"], 0))}
    return lambda: bound.run(p)[1] | empty


# --- bundle adjustment: residuals of observations, and their sparse Jacobian ----------------------

CAMERA, POINT = 11, 3


def rotated(axis: Any, x: Any) -> Any:
    """A vector turned about an axis by its length (Rodrigues)."""
    square = axis @ axis
    turned = square > 0.0
    angle = sg.sqrt(sg.where(turned, square, 1.0))
    w = axis / angle
    around = x * sg.cos(angle) + np.cross(w, x) * sg.sin(angle) + w * (w @ x) * (1 - sg.cos(angle))
    return sg.where(turned, around, x + np.cross(axis, x))


def reprojection(p: Any, r: Any) -> Any:
    """The weighted difference between where a camera sees a point and where it was seen."""
    camera = sg.array([p.cameras[r.camera, i] for i in range(CAMERA)])
    x = sg.array([p.points[r.point, i] for i in range(POINT)])
    seen = rotated(camera[:3], x - camera[3:6])
    flat = seen[:2] / seen[2]
    square = flat @ flat
    bent = flat * (1 + camera[9] * square + camera[10] * square**2)
    apart = bent * camera[6] + camera[7:9] - sg.array([r.u, r.v])
    return list(p.weights[r.weight] * apart)


def weight_error(p: Any, r: Any) -> Any:
    """How far a weight is from 1."""
    return 1 - p.weights[r.weight] ** 2


def scene(given: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Parameters and observations: one camera, one point and one weight, many times."""
    n, m, p = given["n"], given["m"], given["p"]
    k = np.arange(p)
    parameters = {
        "cameras": np.tile(given["cam"], (n, 1)),
        "points": np.tile(given["x"], (m, 1)),
        "weights": np.full(p, given["w"]),
    }
    u, v = given["feat"]
    observed = {"u": np.full(p, u), "v": np.full(p, v)}
    return parameters, observed | {"camera": k % n, "point": k % m, "weight": k}


def _of_scene(verb: Any, given: Any, where: Where) -> tuple[Any, Any]:
    """Calls of a verb for the reprojections and for the weights."""
    parameters, table = scene(given)
    shapes = {name: value.shape for name, value in parameters.items()}
    kernel = verb(shapes, reprojection, columns=list(table), reduce=None, **where).bind(table)
    weights = {"weights": parameters["weights"]}
    own = {"weight": table["weight"]}
    other = verb(
        {"weights": shapes["weights"]}, weight_error, columns=["weight"], reduce=None, **where
    ).bind(own)
    return lambda: kernel.run(parameters), lambda: other.run(weights)


def ba(given: Any, where: Where) -> Call:
    """ba::objective: the first errors, as all are the same, and how many there are."""
    errors, weights = _of_scene(sg.fused_forward, given, where)

    def call() -> Any:
        first, second = np.stack(errors(), axis=1), weights()
        return {
            "reproj_error": {"elements": first[0], "repeated": len(first)},
            "w_err": {"element": second[0], "repeated": len(second)},
        }

    return call


def ba_jacobian(given: Any, where: Where) -> Call:
    """ba::jacobian: a matrix in compressed rows, those of weights below those of observations."""
    errors, weights = _of_scene(sg.fused_jacobian, given, where)
    before = CAMERA * given["n"] + POINT * given["m"]

    def call() -> Any:
        upper, lower = errors()[1], weights()[1]
        return {
            "rows": np.concatenate([upper.indptr, upper.indptr[-1] + lower.indptr[1:]]),
            "cols": np.concatenate([upper.indices, before + lower.indices]),
            "vals": np.concatenate([upper.data, lower.data]),
        }

    return call


# --- hand tracking: residuals of points on a hand that bones move ---------------------------------

FINGERS = 5


def pose(theta: Any, bones: int) -> list[list[Any]]:
    """The angles of each bone: each finger has one that bends in two ways, and two in one."""
    angles: list[list[Any]] = [[0.0, 0.0, 0.0] for _ in range(bones)]
    given = iter(theta[6:])
    for finger in range(FINGERS):
        for joint in range(3):
            angles[2 + 4 * finger + joint][0] = next(given)
            if joint == 0:
                angles[2 + 4 * finger][1] = next(given)
    return angles


def turn(a: int, b: int, angle: Any) -> Any:
    """A rotation from axis a to axis b, as a matrix."""
    found = sg.array(np.eye(3))
    found = found.at[a, a].set(sg.cos(angle)).at[b, b].set(sg.cos(angle))
    return found.at[b, a].set(sg.sin(angle)).at[a, b].set(-sg.sin(angle))


def bones_moved(theta: Any, model: Any) -> list[Any]:
    """Where each bone takes the points of the hand at rest: matrices (3, 4)."""
    at_rest = np.array(model["inverse_base_absolutes"])
    base = np.array(model["base_relatives"])
    placed: list[Any] = []
    for k, (x, z, y) in enumerate(pose(theta, model["bone_count"])):
        own = turn(0, 1, z) @ turn(0, 2, y) @ turn(1, 2, x)
        moved = np.concatenate([base[k][:3, :3] @ own, base[k][:3, 3:]], axis=1)
        parent = model["parents"][k]
        if parent >= 0:
            by = placed[parent]
            shifted = by[:, :3] @ moved[:, 3] + by[:, 3]
            moved = np.concatenate([by[:, :3] @ moved[:, :3], shifted[:, None]], axis=1)
        placed.append(moved)
    return [
        np.concatenate(
            [a[:, :3] @ b[:3, :3], (a[:, :3] @ b[:3, 3] + a[:, 3])[:, None]], axis=1
        )
        for a, b in zip(placed, at_rest, strict=True)
    ]  # fmt: skip


def hand(given: Any) -> tuple[Any, np.ndarray, np.ndarray, int]:
    """The residual of a point, the parameters, the table of points, and its number of columns.

    A row has the corners of a triangle of the hand, each with its place at rest and its weight for
    each bone, where the triangle is touched, and the point itself. Two parameters that are 0 change
    where it is touched: their derivatives are those by u.
    """
    data, us = given["data"], np.array(given["us"]).reshape(-1, 2)
    model, touched = data["model"], len(us) > 0
    places = np.array(data["model"]["base_positions"])[:, :3]
    weights = np.array(data["model"]["weights"])
    corners = np.array(data["correspondences"])[:, None]
    if touched:
        corners = np.array(model["triangles"])[corners[:, 0]]
    known = np.concatenate([places[corners], weights[corners]], axis=2).reshape(len(corners), -1)
    points = np.array(data["points"])
    table = np.concatenate([known, us if touched else np.zeros((len(points), 2)), points], axis=1)
    wide, count = 3 + weights.shape[1], corners.shape[1]
    mirror = np.array([-1.0 if model["is_mirrored"] else 1.0, 1.0, 1.0])
    free = 2 if touched else 0

    def residual(p: Any, r: Any) -> Any:
        theta = p[free:]
        moved = bones_moved(theta, model)

        def corner(k: int) -> Any:
            at = sg.array([r[k * wide + i] for i in range(3)])
            each = (m[:, :3] @ at + m[:, 3] for m in moved)
            return sum(r[k * wide + 3 + b] * x for b, x in enumerate(each)) * mirror

        found = corner(0)
        if touched:
            u, v = r[count * wide] + p[0], r[count * wide + 1] + p[1]
            found = u * found + v * corner(1) + (1 - u - v) * corner(2)
        seen = rotated(theta[:3], found) + theta[3:6]
        return [r[count * wide + 2 + i] - seen[i] for i in range(3)]

    parameters = np.concatenate([np.zeros(free), given["theta"]])
    return residual, parameters, table, table.shape[1]


def ht(given: Any, where: Where) -> Call:
    """ht::objective."""
    residual, p, table, width = hand(given)
    kernel = sg.fused_forward(len(p), residual, row=width, reduce=None, name="ht", **where)
    bound = kernel.bind(table)
    return lambda: np.stack(bound.run(p), axis=1).ravel()


def ht_jacobian(given: Any, where: Where) -> Call:
    """ht::jacobian, by u first where there is any."""
    residual, p, table, width = hand(given)
    kernel = sg.fused_jacobian(len(p), residual, row=width, reduce=None, name="ht", **where)
    bound = kernel.bind(table)
    return lambda: bound.run(p)[1].reshape(-1, len(p))


# --- long short-term memory, with diagonal weights ------------------------------------------------


def lstm_loss(given: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """The loss of a sequence, and the parameters."""
    p = {"main": np.array(given["main_params"]), "extra": np.array(given["extra_params"])}
    state, sequence = np.array(given["state"]), np.array(given["sequence"])
    layers, width = len(p["main"]) // 2, sequence.shape[1]

    def loss(p: Any) -> Any:
        def step(carry: Any, characters: Any) -> Any:
            memory, (now, wanted) = list(carry), characters
            x = now * p.extra[0]
            for k in range(layers):
                w, b = (p.main[2 * k + i].reshape(4, width) for i in (0, 1))
                hidden, cell = memory[2 * k], memory[2 * k + 1]
                forget = sg.sigmoid(x * w[0] + b[0])
                enter = sg.sigmoid(hidden * w[1] + b[1])
                leave = sg.sigmoid(x * w[2] + b[2])
                cell = cell * forget + enter * np.tanh(hidden * w[3] + b[3])
                x = leave * np.tanh(cell)
                memory[2 * k : 2 * k + 2] = x, cell
            said = x * p.extra[1] + p.extra[2]
            return tuple(memory), wanted @ (said - np.log(np.sum(np.exp(said)) + 2))

        _, gains = sg.scan(step, tuple(state), (sequence[:-1], sequence[1:]))
        return -np.sum(gains) / (len(sequence) - 1) / width

    return loss, p


def _lstm_kernel(verb: Any, given: Any, where: Where) -> Any:
    loss, p = lstm_loss(given)
    return verb({name: value.shape for name, value in p.items()}, loss, name="lstm", **where), p


def lstm(given: Any, where: Where) -> Call:
    """lstm::objective."""
    kernel, p = _lstm_kernel(sg.fused_forward, given, where)
    return lambda: kernel.run(p)


def lstm_jacobian(given: Any, where: Where) -> Call:
    """lstm::jacobian: the gradient, row by row."""
    kernel, p = _lstm_kernel(sg.fused_forward_backward, given, where)
    return lambda: np.concatenate([g.ravel() for g in kernel.run(p)[1].values()])


# --- clusters: Newton's direction, whose Hessian is diagonal --------------------------------------


def nearest(p: Any, x: Any) -> Any:
    """The square of the distance to the nearest centre."""
    k, d = p.centres.shape
    squares = [sum((p.centres[j, i] - x[i]) ** 2 for i in range(d)) for j in range(k)]
    return np.min(sg.array(squares))


def kmeans(given: Any, where: Where) -> Call:
    """kmeans::cost."""
    centres, points = np.array(given["centroids"]), np.array(given["points"])
    shape = {"centres": centres.shape}
    kernel = sg.fused_forward(shape, nearest, row=points.shape[1], **where)
    bound = kernel.bind(points)
    return lambda: bound.run({"centres": centres})


def kmeans_direction(given: Any, where: Where) -> Call:
    """kmeans::dir: the gradient over the diagonal of the Hessian, its product with ones."""
    centres, points = np.array(given["centroids"]), np.array(given["points"])
    kernel = sg.fused_hvp({"centres": centres.shape}, nearest, row=points.shape[1], **where)
    bound, ones = kernel.bind(points), {"centres": np.ones(centres.shape)}

    def call() -> Any:
        _, gradient, product = bound.run({"centres": centres}, ones)
        return gradient["centres"] / product["centres"]

    return call


EVALS: dict[str, Eval] = {
    "gmm": {"objective": gmm, "jacobian": gmm_jacobian},
    "ba": {"objective": ba, "jacobian": ba_jacobian},
    "ht": {"objective": ht, "jacobian": ht_jacobian},
    "lstm": {"objective": lstm, "jacobian": lstm_jacobian},
    "kmeans": {"cost": kmeans, "dir": kmeans_direction},
}
