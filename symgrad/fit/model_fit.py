"""`fit_model`: the fit of a model to data as a result to read, with names, a table and a plot."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from symgrad.bridges.tables import in_blocks
from symgrad.errors import InputError
from symgrad.expr.tracing.trace import EVERY_STEP, frozen_for
from symgrad.fit.curve_fit import curve_fit
from symgrad.fit.data_form import Data, DataForm, NanPolicy, Refused
from symgrad.front.fused import fused_jacobian
from symgrad.optimize.arguments import names_of, real
from symgrad.report.progress import new_figure

INK, CURVE = "#22313f", "#d1495b"


@dataclass(frozen=True, eq=False)
class ModelFit:
    """A model that is fitted to data: what `fit_model` returns.

    ``values`` and ``errors`` are dicts of the parameters and their standard errors, ``covariance``
    is (n, n) in the order of ``names``. With weights 1 / sigma**2, or 1, ``chi_square`` is the
    weighted sum of squared residuals, and ``residuals`` are (M,), y - f(x), unweighted. ``x``,
    ``y`` and ``sigma`` are the data that count, without the points that were left out. Where y is
    a vector at each x, its numbers are points here, one after the other; where x is a table,
    ``x`` are the numbers of its columns, and ``model`` is of them.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> t = np.linspace(0, 4, 30)
        >>> fit = sg.fit_model(lambda t, a, b: a * np.exp(-b * t), t, 2.5 * np.exp(-1.3 * t))
        >>> {name: round(value, 6) for name, value in fit.values.items()}
        {'a': 2.5, 'b': 1.3}
        >>> fit.predict([0.0, 1.0]).round(3)
        array([2.5  , 0.681])
    """

    model: Callable[..., Any]
    names: tuple[str, ...]
    x: np.ndarray = field(repr=False)
    y: np.ndarray = field(repr=False)
    sigma: np.ndarray | None = field(repr=False)
    popt: np.ndarray
    covariance: np.ndarray = field(repr=False)
    evaluations: int
    form: DataForm | None = field(default=None, repr=False)

    @property
    def values(self) -> dict[str, float]:
        """The parameters by name."""
        return dict(zip(self.names, self.popt.tolist(), strict=True))

    @property
    def errors(self) -> dict[str, float]:
        """The standard errors of the parameters by name."""
        errors = np.sqrt(np.diag(self.covariance)).tolist()
        return dict(zip(self.names, errors, strict=True))

    @property
    def correlation(self) -> np.ndarray:
        """The correlations of the parameters, (n, n)."""
        spread = np.sqrt(np.diag(self.covariance))
        with np.errstate(invalid="ignore"):
            return self.covariance / np.outer(spread, spread)

    @cached_property
    def fitted(self) -> np.ndarray:
        """The model at the data, (M,)."""
        return self._curve(self.x)[0]

    @property
    def residuals(self) -> np.ndarray:
        """y - f(x), (M,)."""
        return self.y - self.fitted

    @property
    def chi_square(self) -> float:
        """The sum of squared residuals, each divided by its sigma if there is one."""
        length = self._length
        return length * length

    @property
    def _length(self) -> float:
        """The length of the residuals, each divided by its sigma; no square is formed of it."""
        r = self.residuals
        if self.sigma is not None and self.sigma.ndim == 2:
            return _length(np.linalg.solve(np.linalg.cholesky(self.sigma), r))
        return _length(r if self.sigma is None else r / self.sigma)

    @property
    def freedom(self) -> int:
        """The degrees of freedom: points less parameters."""
        return len(self.y) - len(self.names)

    @property
    def reduced_chi_square(self) -> float:
        """``chi_square`` by the degrees of freedom; NaN if there is none."""
        return self.chi_square / self.freedom if self.freedom > 0 else math.nan

    @property
    def aic(self) -> float:
        """Akaike's criterion of least squares, N ln(chi_square / N) + 2 n (Burnham, Anderson)."""
        return self._information + 2.0 * len(self.names)

    @property
    def bic(self) -> float:
        """Schwarz's criterion of least squares, N ln(chi_square / N) + n ln N."""
        return self._information + len(self.names) * math.log(len(self.y))

    @property
    def _information(self) -> float:
        n, length = len(self.y), self._length
        return n * (2.0 * math.log(length) - math.log(n)) if length > 0 else -math.inf

    @property
    def r_squared(self) -> float:
        """The share of the variance of y that the model explains, without weights."""
        around = _length(self.y - self.y.mean())
        return 1.0 - (_length(self.residuals) / around) ** 2 if around else math.nan

    def predict(self, x: Any) -> np.ndarray:
        """The fitted model at other x: (M,), (k, M) for k predictors, or a table -> (M,).

        A single x, a number or (k,), gives a number. Vectors of y are predicted as such, (M, d).
        """
        return self._shaped(x, lambda plain: self._curve(plain)[0])

    def band(self, x: Any) -> np.ndarray:
        """The standard error of what `predict` gives: that of a linear model near the minimum."""

        def errors(plain: np.ndarray) -> np.ndarray:
            slopes = self._curve(plain)[1]
            variance = np.einsum("...i,ij,...j->...", slopes, self.covariance, slopes)
            return np.sqrt(np.maximum(variance, 0.0))

        return self._shaped(x, errors)

    def _shaped(self, x: Any, values: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """The values of a function of plain x, in the form of the data."""
        form = self.form
        if form is None:
            return values(real(x, "x"))
        single = form.tree is None and np.ndim(x) == (0 if form.flat else 1)
        given = np.asarray(x)[..., None] if single else x
        shaped = values(form.x(given)).reshape(-1, *form.vector)
        return shaped[0] if single else shaped

    @cached_property
    def _is_of_one_x(self) -> bool:
        """Whether the model has the same values for each x alone as for all of them together."""
        data = Data.of(self.x, self.y, None, Refused(check_finite=False))
        rows = data.rows(self.model, len(self.names), "auto", "cpu", "float64")
        rows.prepare(self.popt)
        return rows.rowwise

    @cached_property
    def _kernel(self) -> Any:
        n, columns = len(self.names), 1 if self.x.ndim == 1 else len(self.x)

        def at(v: Any) -> Any:
            x = v[n] if self.x.ndim == 1 else v[n:]
            return [self.model(x, *v[:n])]

        return fused_jacobian(n + columns, at, device="cpu", dtype="float64")

    def _curve(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The model at x, (M,), and its derivatives by the parameters, (M, n)."""
        if x.ndim == self.x.ndim - 1:
            values, slopes = self._curve(x[..., None])
            return values[0], slopes[0]
        if x.ndim != self.x.ndim or x.shape[:-1] != self.x.shape[:-1]:
            raise InputError(f"x has shape {x.shape}: it was of shape {self.x.shape} in the fit")
        if not self._is_of_one_x:
            kernel = fused_jacobian(
                len(self.names), lambda v: self.model(x, *v), device="cpu", dtype="float64"
            )
            return kernel.run(self.popt)
        rows = np.atleast_2d(x).T
        points = np.hstack([np.broadcast_to(self.popt, (len(rows), len(self.popt))), rows])
        values, slopes = self._kernel.run(points)
        return values[:, 0], slopes[:, 0, : len(self.names)]

    def summary(self) -> str:
        """The fit as a table: values, standard errors, correlations and how well it fits.

        Example:
            >>> import numpy as np, symgrad as sg
            >>> x = np.linspace(0, 4, 20)
            >>> y = 2.5 * np.exp(-1.3 * x) + 0.01 * np.cos(40 * x)
            >>> print(sg.fit_model(lambda x, a, b: a * sg.exp(-b * x), x, y).summary())
            <lambda>: 20 points, 2 parameters
            <BLANKLINE>
            parameter        value  standard error  relative
            a               2.5045          0.0062    0.25 %
            b               1.3029          0.0052     0.4 %
            <BLANKLINE>
            correlations
                     a
            b     0.61
            <BLANKLINE>
            chi-square             0.001023 (18 degrees of freedom)
            reduced chi-square     5.681e-05
            R squared              0.99989
            AIC, BIC               -193.6, -191.6
        """
        name = getattr(self.model, "__name__", "the model")
        lines = [f"{name}: {len(self.y):,} points, {len(self.names)} parameters", ""]
        return "\n".join([*lines, *self._table(), "", *self._correlations(), *self._goodness()])

    def _table(self) -> list[str]:
        wide = max(9, *(len(name) for name in self.names))
        lines = [f"{'parameter':<{wide}} {'value':>12}  {'standard error':>14}  {'relative':>8}"]
        for name, value in self.values.items():
            error = self.errors[name]
            share = f"{100 * error / abs(value):.2g} %" if value else ""
            shown = _to_error(value, error)
            lines.append(f"{name:<{wide}} {shown:>12}  {f'{error:.2g}':>14}  {share:>8}")
        return lines

    def _correlations(self) -> list[str]:
        if len(self.names) < 2:
            return []
        wide = max(3, *(len(name) for name in self.names))
        head = " ".join(f"{name:>{max(wide, 6)}}" for name in self.names[:-1])
        lines = ["correlations", f"{'':<{wide}} {head}".rstrip()]
        for k, name in enumerate(self.names[1:], 1):
            row = " ".join(f"{c:>{max(wide, 6)}.2f}" for c in self.correlation[k, :k])
            lines.append(f"{name:<{wide}} {row}")
        return [*lines, ""]

    def _goodness(self) -> list[str]:
        return [
            f"chi-square             {self.chi_square:.4g} ({self.freedom} degrees of freedom)",
            f"reduced chi-square     {self.reduced_chi_square:.4g}",
            f"R squared              {self.r_squared:.5g}",
            f"AIC, BIC               {self.aic:.1f}, {self.bic:.1f}",
        ]

    def plot(self, axes: Any = None) -> Any:
        """Data, fit with a band of two standard errors, and residuals: a matplotlib figure.

        ``axes`` are two of matplotlib's, for the curve and for the residuals, if you have a figure
        already. Of several predictors, the points are shown in their order.

        Raises:
            SymgradError: where matplotlib is missing.
        """
        figure, (top, below) = _axes() if axes is None else (axes[0].figure, axes)
        single = self.x.ndim == 1
        at = self.x if single else np.arange(len(self.y))
        spread = self.sigma
        bars = spread if spread is None or spread.ndim < 2 else np.sqrt(np.diag(spread))
        top.errorbar(at, self.y, bars, fmt="o", color=INK, ms=4, mfc="white", label="data")
        fine = np.linspace(at.min(), at.max(), 400) if single else self.x
        middle, spread = self.predict(fine), 2 * self.band(fine)
        line = fine if single else at
        top.fill_between(
            line,
            middle - spread,
            middle + spread,
            color=CURVE,
            alpha=0.25,
            lw=0,
            label="two standard errors",
        )
        top.plot(line, middle, color=CURVE, label="fit")
        top.legend(frameon=False)
        below.axhline(0.0, color=CURVE, lw=1)
        below.errorbar(at, self.residuals, bars, fmt="o", color=INK, ms=3)
        below.set(ylabel="residual", xlabel="x" if single else "point")
        return figure


def _length(values: np.ndarray) -> float:
    """The Euclidean norm, of numbers whose squares may be beyond the range."""
    unit = float(np.abs(values).max(initial=0.0))
    return unit * float(np.linalg.norm(values / unit)) if unit else 0.0


def _axes() -> tuple[Any, Any]:
    figure = new_figure(7, 5)
    return figure, figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])


def _to_error(value: float, error: float) -> str:
    """A number with the digits that its error leaves, two of which are uncertain."""
    if not (math.isfinite(value) and 0 < error < math.inf):
        return f"{value:.6g}"
    digits = 1 - math.floor(math.log10(error))
    return f"{value:.{digits}f}" if -3 <= digits <= 8 and abs(value) < 1e7 else f"{value:.6g}"


@frozen_for(EVERY_STEP)
def fit_model(
    f: Callable[..., Any],
    x: Any,
    y: Any,
    p0: Any = None,
    *,
    sigma: Any = None,
    absolute_sigma: bool = False,
    bounds: Any = None,
    nan_policy: NanPolicy = None,
    **options: Any,
) -> ModelFit:
    """Fit ``f(x, a, b, ...)`` to data, with a result that has names, a table and a plot.

    Args:
        f: the model, as for `curve_fit`: of one x, or of k predictors.
        x: (M,), or (k, M) for k predictors; or a table of columns with names, (M,) or arrays at
            each point, (M, ...): a dict, a structured array or a data frame. f then takes
            ``x.name``, or ``x["name"]``, of one point, or of all if it needs them at once.
        y: (M,); or a vector or matrix at each x, (M, ...), as f gives it there: each of its numbers
            is a row of the fit.
        p0: where to start: a dict by the names of the parameters, or all in order.
        sigma: standard deviations of y, a number or (M,), infinite for points to leave out; or
            their covariance, (M, M). Of vectors also one for each number, as y is.
        absolute_sigma: whether errors are those that sigma gives, or are scaled so that the
            residuals have the deviations that they have.
        bounds: a dict of (low, high) by names, None for no bound; or as for `curve_fit`.
        nan_policy: None or "raise", or "omit" to leave out points with NaN in x or y.
        options: more of `curve_fit`: ``device``, ``dtype``, ``progress``, ``maxfev``.

    Raises:
        FitError: if no minimum is found. InputError: for data that do not fit together, and for
        names that the model does not have.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> def decay(x, amount, rate):
        ...     return amount * np.exp(-rate * x)
        >>> x = np.linspace(0, 4, 20)
        >>> fit = sg.fit_model(decay, x, 2.5 * np.exp(-1.3 * x), {"rate": 1.0},
        ...                    bounds={"rate": (0.0, None)})
        >>> {name: round(value, 6) for name, value in fit.values.items()}
        {'amount': 2.5, 'rate': 1.3}
    """
    if in_blocks(x) or in_blocks(y):
        raise InputError(
            "data in blocks: fit_model keeps them for its residuals and its plot; use "
            "sg.curve_fit, or bring them here with x.compute() and y.compute()"
        )
    form = DataForm.of(x, np.shape(y), curves=False)
    if form is not None:
        sigma = form.sigma(sigma, np.shape(y))
        f, x, y = form.model(f), form.x(x), form.y(y)
    x, y = real(x, "x"), real(y, "y")
    if x.ndim not in (1, 2) or y.ndim != 1 or x.shape[-1] != len(y):
        raise InputError(f"x has shape {x.shape}, y {y.shape}: (M,) or (k, M), and (M,) are needed")
    x, y, sigma = _counted(x, y, sigma, Refused(nan_policy=nan_policy))
    popt, pcov, info, *_ = curve_fit(
        f,
        x,
        y,
        p0,
        sigma,
        absolute_sigma,
        bounds=(-np.inf, np.inf) if bounds is None else bounds,
        full_output=True,
        **options,
    )
    names = tuple(names_of(f, len(popt)))
    return ModelFit(f, names, x, y, sigma, popt, pcov, info["nfev"], form)


def _counted(
    x: np.ndarray, y: np.ndarray, sigma: Any, refused: Refused
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """The data without the points that are to be left out, and their deviations or covariance."""
    keep = np.ones(len(y), bool)
    if refused.nan_policy == "omit":
        keep &= ~np.isnan(np.atleast_2d(x)).any(axis=0) & ~np.isnan(y)
    if sigma is None:
        return x[..., keep], y[keep], None
    sigma = real(sigma, "sigma")
    if sigma.shape == (len(y), len(y)):
        return x[..., keep], y[keep], sigma[np.ix_(keep, keep)]
    if sigma.shape not in ((), (1,), y.shape):
        raise InputError(f"sigma has shape {sigma.shape}: a number, {y.shape} or (M, M) is needed")
    sigma = np.broadcast_to(sigma, y.shape)
    keep &= ~np.isinf(sigma)
    return x[..., keep], y[keep], sigma[keep]
