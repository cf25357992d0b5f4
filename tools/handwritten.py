"""Ten losses of research code, each beside its gradient as a careful person writes it by hand.

A derivation by hand takes what is common once, leaves out factors of 1 and terms of 0, and divides
as seldom as it can; it uses the same stable functions as the loss. ``BY_HAND[name]`` is the number
of variables, the loss, and the function that gives ``[loss, *gradient]``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

import symgrad as sg

ROW: Final = (0.7, 1.3, -0.4)
"""A row of data: constants of the losses that have any."""


def rosenbrock(v: Any) -> Any:
    return np.sum(100.0 * (v[1:] - v[:-1] ** 2) ** 2 + (1.0 - v[:-1]) ** 2)


def rosenbrock_by_hand(v: Any) -> list[Any]:
    x, y, z = v
    a, b = y - x * x, z - y * y
    p, q = 1.0 - x, 1.0 - y
    loss = 100.0 * (a * a + b * b) + (p * p + q * q)
    s, t = 400.0 * a, 400.0 * b
    return [loss, -2.0 * p - s * x, 0.5 * s - 2.0 * q - t * y, 0.5 * t]


def two_peaks(v: Any) -> Any:
    x, y, _ = ROW
    peaks = sum(v[3 * k] * np.exp(-(((x - v[3 * k + 1]) / v[3 * k + 2]) ** 2)) for k in range(2))
    return (v[6] + peaks - y) ** 2


def two_peaks_by_hand(v: Any) -> list[Any]:
    x, y, _ = ROW
    r, parts = v[6] - y, []
    for k in range(2):
        a, m, s = v[3 * k : 3 * k + 3]
        inverse = 1.0 / s
        z = (x - m) * inverse
        e = sg.exp(-(z * z))
        parts.append((inverse, z, e, a * e))
        r = r + parts[-1][-1]
    g = 2.0 * r
    slopes: list[Any] = []
    for inverse, z, e, peak in parts:
        by_m = 2.0 * (g * peak) * z * inverse
        slopes += [g * e, by_m, by_m * z]
    return [r * r, *slopes, g]


def logistic_regression(v: Any) -> Any:
    return np.logaddexp(0.0, -(v[:3] @ np.array(ROW) + v[3]))


def logistic_regression_by_hand(v: Any) -> list[Any]:
    margin = v[0] * ROW[0] + v[1] * ROW[1] + v[2] * ROW[2] + v[3]
    g = -sg.sigmoid(-margin)
    return [sg.softplus(-margin), g * ROW[0], g * ROW[1], g * ROW[2], g]


def hill_curve(v: Any) -> Any:
    bottom, top, middle, slope = v
    return (bottom + (top - bottom) / (1.0 + np.exp(slope * (middle - ROW[0]))) - ROW[1]) ** 2


def hill_curve_by_hand(v: Any) -> list[Any]:
    bottom, top, middle, slope = v
    d = middle - ROW[0]
    e = sg.exp(slope * d)
    s = 1.0 / (1.0 + e)
    height = top - bottom
    r = bottom + height * s - ROW[1]
    g = 2.0 * r
    h = g * s
    by_u = -(h * height) * (s * e)
    return [r * r, g - h, h, by_u * slope, by_u * d]


def lennard_jones(v: Any) -> Any:
    atoms = v.reshape(3, 2)
    pairs = [(0, 1), (0, 2), (1, 2)]
    squares = [np.sum((atoms[i] - atoms[j]) ** 2) for i, j in pairs]
    return sum(4.0 * (r2**-6 - r2**-3) for r2 in squares)


def lennard_jones_by_hand(v: Any) -> list[Any]:
    loss, forces = 0, [0, 0, 0, 0, 0, 0]
    for i, j in ((0, 1), (0, 2), (1, 2)):
        d = [v[2 * i + k] - v[2 * j + k] for k in range(2)]
        inverse = 1.0 / (d[0] * d[0] + d[1] * d[1])
        cube = inverse * inverse * inverse
        sixth = cube * cube
        loss = loss + 4.0 * (sixth - cube)
        g = (24.0 * cube - 48.0 * sixth) * inverse
        for k in range(2):
            forces[2 * i + k] = forces[2 * i + k] + g * d[k]
            forces[2 * j + k] = forces[2 * j + k] - g * d[k]
    return [loss, *forces]


def arm(v: Any) -> Any:
    angles = np.cumsum(v)
    x, y = np.sum(np.cos(angles)) - ROW[0], np.sum(np.sin(angles)) - ROW[1]
    return x * x + y * y


def arm_by_hand(v: Any) -> list[Any]:
    first = v[0] + v[1]
    angles = [v[0], first, first + v[2]]
    c, s = [sg.cos(a) for a in angles], [sg.sin(a) for a in angles]
    x, y = c[0] + c[1] + c[2] - ROW[0], s[0] + s[1] + s[2] - ROW[1]
    g, h = 2.0 * x, 2.0 * y
    iterations = [h * c[k] - g * s[k] for k in range(3)]
    last = iterations[1] + iterations[2]
    return [x * x + y * y, iterations[0] + last, last, iterations[2]]


def local_level(v: Any) -> Any:
    q, r = np.exp(v[0]), np.exp(v[1])
    mean, variance, loss = v[2], 1.0, 0.0
    for y in ROW:
        variance = variance + q
        s = variance + r
        e = y - mean
        loss = loss + 0.5 * (np.log(s) + e * e / s)
        gain = variance / s
        mean, variance = mean + gain * e, (1.0 - gain) * variance
    return loss


def local_level_by_hand(v: Any) -> list[Any]:
    q, r = sg.exp(v[0]), sg.exp(v[1])
    mean, variance, loss = v[2], 1.0, 0
    steps: list[tuple[Any, ...]] = []
    for y in ROW:
        predicted = variance + q
        s = predicted + r
        inverse, e = 1.0 / s, y - mean
        scaled, gain = e * inverse, predicted * inverse
        loss = loss + (sg.log(s) + e * scaled)
        rest = 1.0 - gain
        steps.append((inverse - scaled * scaled, scaled, gain, rest))
        mean, variance = mean + gain * e, rest * predicted
    by_s, scaled, _, _ = steps.pop()  # of the last step only the loss depends, not the next one
    by_variance, by_mean = by_s, -2.0 * scaled
    by_q, by_r = by_s, by_s
    for by_s, scaled, gain, rest in reversed(steps):
        share = by_mean * scaled
        own = by_s - share * gain + by_variance * (gain * gain)
        by_variance = by_s + share * rest + by_variance * (rest * rest)
        by_mean = by_mean - (2.0 * scaled + by_mean * gain)
        by_q, by_r = by_q + by_variance, by_r + own
    return [0.5 * loss, 0.5 * by_q * q, 0.5 * by_r * r, 0.5 * by_mean]


def mixture(v: Any) -> Any:
    x = ROW[0]
    terms = [-0.5 * ((x - v[k]) / v[k + 2]) ** 2 - np.log(v[k + 2]) for k in range(2)]
    return -np.logaddexp(*terms)


def mixture_by_hand(v: Any) -> list[Any]:
    x = ROW[0]
    inverses = [1.0 / v[2], 1.0 / v[3]]
    scores = [(x - v[k]) * inverses[k] for k in range(2)]
    terms = [-0.5 * (scores[k] * scores[k]) - sg.log(v[k + 2]) for k in range(2)]
    d = terms[0] - terms[1]
    weights = [sg.sigmoid(d), sg.sigmoid(-d)]
    slopes = [weights[k] * inverses[k] for k in range(2)]
    by_mean = [-(slopes[k] * scores[k]) for k in range(2)]
    by_scale = [slopes[k] + by_mean[k] * scores[k] for k in range(2)]
    return [-sg.logaddexp(*terms), *by_mean, *by_scale]


def student_t(v: Any) -> Any:
    slope, offset, scale = v
    z = (ROW[1] - slope * ROW[0] - offset) / scale
    return 2.5 * np.log1p(z * z / 4.0) + np.log(scale)


def student_t_by_hand(v: Any) -> list[Any]:
    slope, offset, scale = v
    inverse = 1.0 / scale
    z = (ROW[1] - slope * ROW[0] - offset) * inverse
    u = 0.25 * (z * z)
    g = -1.25 * z / (1.0 + u) * inverse
    return [2.5 * sg.log1p(u) + sg.log(scale), g * ROW[0], g, g * z + inverse]


def network(v: Any) -> Any:
    hidden = np.tanh(v[:3] * ROW[0] + v[3:6])
    return (hidden @ v[6:9] + v[9] - ROW[1]) ** 2


def network_by_hand(v: Any) -> list[Any]:
    x, y, _ = ROW
    hidden = [sg.tanh(v[k] * x + v[k + 3]) for k in range(3)]
    slopes = [sg.grad(h, v[k + 3]) for k, h in enumerate(hidden)]
    r = hidden[0] * v[6] + hidden[1] * v[7] + hidden[2] * v[8] + v[9] - y
    g = 2.0 * r
    by_bias = [g * v[6 + k] * slopes[k] for k in range(3)]
    return [r * r, *[b * x for b in by_bias], *by_bias, *[g * h for h in hidden], g]


Loss = Callable[[Any], Any]
BY_HAND: Final[dict[str, tuple[int, Loss, Loss]]] = {
    "Rosenbrock's function": (3, rosenbrock, rosenbrock_by_hand),
    "two Gaussian peaks": (7, two_peaks, two_peaks_by_hand),
    "logistic regression": (4, logistic_regression, logistic_regression_by_hand),
    "a dose-response curve": (4, hill_curve, hill_curve_by_hand),
    "three Lennard-Jones atoms": (6, lennard_jones, lennard_jones_by_hand),
    "an arm of three links": (3, arm, arm_by_hand),
    "a Kalman filter": (3, local_level, local_level_by_hand),
    "a mixture of two normals": (4, mixture, mixture_by_hand),
    "regression with Student's t": (3, student_t, student_t_by_hand),
    "a network of three units": (10, network, network_by_hand),
}
