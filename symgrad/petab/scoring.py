"""Fisher's scoring in trust regions: many maxima of a likelihood of normal noise at once.

The likelihoods and their derivatives are computed by a kernel, those of all starts that go on in
one call; what is done between two calls is NumPy's, for all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from symgrad.optimize.result import ENDED_BY_USER, Messages, optimize_result
from symgrad.report.progress import Asked, reporting

Floats = NDArray[np.float64]

FIRST_RADIUS: Final = 0.1
"""The first radius of a trust region, in widths of the box: a decade of ten."""

LARGEST_RADIUS: Final = 0.5
LEAST_RADIUS: Final = 1e-9
"""The radius at which no step is believed to lead further."""

SHORT: Final = 1e-2
"""The size of steps below which the curvature that Fisher's information has not may count."""

SLANT: Final = 1e-3
"""The least cosine of a step and the error of its gradient for that to tell of curvature."""

BOX: Final = 10.0
"""The unit of a variable without bounds."""

WIDE: Final = 1e-3
"""The radius from which on a step that promises little tells of a minimum."""

PROMISED: Final = 1e-6
"""How much a step may promise at a minimum: a change of a log-likelihood that says nothing."""

BELIEVED: Final = 1e-4
"""The part of what a step promised that it must keep to be taken."""

SECULAR_STEPS: Final = 20
"""Steps of Newton's method for the multiplier of a trust region, which converge from one side."""

PASSES: Final = 4
"""How often a step is computed again without the variables that it takes to their bounds."""


@dataclass(frozen=True)
class Model:
    """Quadratic models (S,), (S, n), (S, n, n) of minus the logarithm of a likelihood."""

    value: Floats
    gradient: Floats
    hessian: Floats

    @classmethod
    def of_normal(cls, terms: Floats, slopes: Floats) -> Model:
        """From standardised residuals r and logarithms of densities' widths w, by turns.

        ``terms`` is (S, 2 m) and ``slopes`` its derivatives (S, 2 m, n). The value is the sum of
        ``r**2 / 2 + w``, and the Hessian Fisher's expected information.
        """
        r, w = terms[:, 0::2], terms[:, 1::2]
        of_r, of_w = slopes[:, 0::2], slopes[:, 1::2]
        gradient = np.einsum("sm,smn->sn", r, of_r) + of_w.sum(axis=1)
        of_y = of_r + r[..., None] * of_w  # of the model's value alone, in units of sigma
        hessian = of_y.swapaxes(1, 2) @ of_y + 2.0 * (of_w.swapaxes(1, 2) @ of_w)
        return cls((0.5 * r * r + w).sum(axis=1), gradient, hessian).checked()

    def checked(self) -> Model:
        """The model with an infinite value wherever anything in it is not finite."""
        sums = self.value + self.gradient.sum(axis=1) + self.hessian.sum(axis=(1, 2))
        return Model(np.where(np.isfinite(sums), self.value, np.inf), self.gradient, self.hessian)

    def __add__(self, other: Model) -> Model:
        parts = zip(vars(self).values(), vars(other).values(), strict=True)
        return Model(*(a + b for a, b in parts)).checked()

    def __getitem__(self, some: Any) -> Model:
        return Model(self.value[some], self.gradient[some], self.hessian[some])

    def bent(self, missing: Floats) -> Model:
        """The models with more curvature."""
        return Model(self.value, self.gradient, self.hessian + missing)

    def put(self, some: Any, other: Model) -> None:
        """Replace some of the models."""
        for name, values in vars(other).items():
            getattr(self, name)[some] = values

    def promised(self, step: Floats) -> Floats:
        """How much steps (S, n) lower the model."""
        bent = 0.5 * (self.hessian @ step[..., None])[..., 0]
        return -np.einsum("sn,sn->s", self.gradient + bent, step)


def minimized(
    model: Callable[[Floats], Model],
    starts: Floats,
    low: Floats,
    high: Floats,
    steps: int,
    progress: Asked = False,
) -> Any:
    """SciPy's result, batched, of starts (S, n) within bounds that broadcast to them.

    Quadratic models are minimised within a radius, in widths of the box, exactly (Moré & Sorensen,
    1983, Computing a trust region step). Variables that would leave their bounds are put there, and
    the others computed again. Where residuals stay large, Fisher's information lacks curvature: it
    is learned from gradients, and used where it has predicted the last step better (Dennis, Gay &
    Welsch, 1981, An adaptive nonlinear least-squares algorithm).
    """
    search = _Search(model, starts, low, high)
    with reporting(progress, "starts", len(starts)) as report:
        for _ in range(steps):
            if not search.goes_on.any():
                break
            search.advance()
            try:
                report(int((~search.goes_on).sum()), lambda: float(search.at.value.min()))
            except StopIteration:
                search.status[search.goes_on] = ENDED_BY_USER
                break
    return search.result()


class _Search:
    """The starts of a search, where each is, and what is known of the curvature there."""

    def __init__(
        self, model: Callable[[Floats], Model], starts: Floats, low: Floats, high: Floats
    ) -> None:
        self._model = model
        self._low, self._high = (np.broadcast_to(bound, starts.shape) for bound in (low, high))
        width = np.max(self._high - self._low, axis=0)
        self._unit = np.where(np.isfinite(width) & (width > 0.0), width, BOX)
        count, n = starts.shape
        self._x = np.clip(starts, self._low, self._high)
        self.at = model(self._x)
        self.status = np.where(np.isfinite(self.at.value), 0, -2)
        self._radius, self._steps = np.full(count, FIRST_RADIUS), np.zeros(count, int)
        self._missing, self._bends = np.zeros((count, n, n)), np.zeros(count, bool)

    @property
    def goes_on(self) -> NDArray[np.bool_]:
        """Which starts have not ended (S,)."""
        return self.status == 0

    def advance(self) -> None:
        """A trial step of all that go on."""
        some, unit = np.flatnonzero(self.goes_on), self._unit
        x, radius, missing = self._x[some], self._radius[some], self._missing[some]
        fisher = self.at[some]
        bent = fisher.bent(missing)
        quadratic = fisher.bent(self._bends[some, None, None] * missing)
        step = _step(quadratic, radius, unit, self._low[some] - x, self._high[some] - x)
        size, promised = np.linalg.norm(step / unit, axis=1), quadratic.promised(step)
        ahead = self._model(x + step)
        fallen = np.where(np.isfinite(ahead.value), fisher.value - ahead.value, -np.inf)
        kept = fallen / np.where(promised > 0.0, promised, np.inf)
        errors = [np.abs(fallen - known.promised(step)) for known in (bent, fisher)]
        self._bends[some] = (errors[0] < errors[1]) & (size < SHORT)
        self._missing[some] = _with_secant(missing, fisher, ahead, step, unit)
        self._radius[some] = _next_radius(radius, size, kept)
        better = kept > BELIEVED
        moved = some[better]
        self._x[moved] += step[better]
        self.at.put(moved, ahead[better])
        self._steps[some] += 1
        near = (promised <= PROMISED) & (self._radius[some] >= np.minimum(WIDE, size))
        self.status[some] = np.where(near, 2, np.where(self._radius[some] < LEAST_RADIUS, -1, 0))

    def result(self) -> Any:
        """SciPy's result, batched."""
        best = int(np.argmin(self.at.value)) if len(self._x) else None
        return optimize_result(
            x=self._x, fun=self.at.value, nit=self._steps, status=self.status,
            success=self.status > 0, message=Messages(self.status), best=best,
        )  # fmt: skip


def _with_secant(missing: Floats, at: Model, ahead: Model, step: Floats, unit: Floats) -> Floats:
    """The curvature that is missing, with what the gradients at the ends of steps tell of it.

    The symmetric update of rank one, on scaled variables.
    """
    scales = np.outer(unit, unit)
    expected = (0.5 * (at.hessian + ahead.hessian) + missing) * scales
    turned, step = (ahead.gradient - at.gradient) * unit, step / unit
    apart = turned - (expected @ step[..., None])[..., 0]
    along = np.einsum("sn,sn->s", apart, step)
    sizes = np.linalg.norm(apart, axis=1) * np.linalg.norm(step, axis=1)
    told = (np.isfinite(ahead.value) & (np.abs(along) > SLANT * sizes))[:, None, None]
    update = apart[:, :, None] * apart[:, None, :] / np.where(told, along[:, None, None], 1.0)
    return np.where(told, missing + update / scales, missing)


def _next_radius(radius: Floats, size: Floats, kept: Floats) -> Floats:
    """Radii after steps of this size that have kept such parts of their promises."""
    longer = np.minimum(2.0 * radius, LARGEST_RADIUS)
    grown = np.where((kept > 0.75) & (size > 0.8 * radius), longer, radius)
    return np.where(kept > 0.25, grown, 0.25 * np.minimum(size, radius))


def _step(at: Model, radius: Floats, unit: Floats, low: Floats, high: Floats) -> Floats:
    """Steps (S, n) that minimise models within radii, in these units, and within bounds."""
    gradient, hessian = at.gradient * unit, at.hessian * np.outer(unit, unit)
    low, high = low / unit, high / unit
    free = ~(((low >= 0.0) & (gradient > 0.0)) | ((high <= 0.0) & (gradient < 0.0)))
    inner = edge = np.zeros_like(gradient)
    for _ in range(PASSES):
        pulled = gradient + (hessian @ edge[..., None])[..., 0]
        both = free[:, :, None] & free[:, None, :]
        inner = _within(np.where(both, hessian, 0.0), np.where(free, pulled, 0.0), radius)
        over = free & ((inner < low) | (inner > high))
        if not over.any():
            break
        edge = np.where(over, np.clip(inner, low, high), edge)
        free &= ~over
    return np.clip(np.where(free, inner, edge), low, high) * unit


def _within(hessian: Floats, gradient: Floats, radius: Floats) -> Floats:
    """Minima of quadratic models within radii."""
    curvature, axes = np.linalg.eigh(hessian)
    along = (axes.swapaxes(1, 2) @ gradient[..., None])[..., 0]
    least = 1e-14 * np.abs(curvature).max(axis=1) + np.finfo(float).tiny ** 0.5
    multiplier = np.maximum(0.0, -curvature[:, 0]) + least
    for _ in range(SECULAR_STEPS):
        sums = curvature + multiplier[:, None]
        part = along / sums
        size = np.linalg.norm(part, axis=1)
        slope = (part * part / sums).sum(axis=1)
        longer = size * size * (size - radius) / np.where(slope > 0.0, slope * radius, 1.0)
        multiplier = multiplier + np.where(size > radius, longer, 0.0)
    return -(axes @ (along / (curvature + multiplier[:, None]))[..., None])[..., 0]
