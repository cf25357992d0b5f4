"""Models of one's own as regressors of scikit-learn (``pip install 'symgrad[sklearn]'``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from symgrad.errors import InputError
from symgrad.fit.model_fit import fit_model
from symgrad.optimize.arguments import parameters_of
from symgrad.targets import DeviceChoice


class CurveRegressor(RegressorMixin, BaseEstimator):
    """A function of x and parameters as a regressor: least squares with exact derivatives.

    It stands in pipelines, grid searches and cross-validation as any of scikit-learn's does. What
    makes a fit is what `sg.fit_model` takes.

    Args:
        model: ``f(x, a, b, ...)`` with NumPy's functions or symgrad's: x is (n_samples,) where X
            has one feature, and otherwise (n_features, n_samples), so that ``x[0]`` is the first.
        p0: where to start: a dict by the names of the parameters, or all in order; 1 by default.
        bounds: a dict of (low, high) by names, None for no bound; or ``(low, high)`` in order.
        absolute_sigma: whether sample weights are 1 / sigma**2 of y, so that standard errors are
            those that sigma gives; or relative, and errors are scaled by the residuals.
        device: the CPU by default: see `sg.curve_fit`.
        max_nfev: the most evaluations of the model, or None for `sg.curve_fit`'s limit.

    Attributes:
        fit_: the `sg.ModelFit`, with ``summary()``, ``plot()`` and the covariance.
        parameters_: a dict of the parameters.
        errors_: a dict of their standard errors.
        n_features_in_: how many features X had; feature_names_in_: their names, if it had any.

    Example:
        >>> import numpy as np
        >>> from sklearn.model_selection import GridSearchCV
        >>> from symgrad.sklearn import CurveRegressor
        >>> def decay(x, amount, rate):
        ...     return amount * np.exp(-rate * x)
        >>> def hyperbola(x, amount, rate):
        ...     return amount / (1 + rate * x)
        >>> X = np.random.default_rng(0).permutation(np.linspace(0, 4, 40))[:, None]
        >>> y = decay(X[:, 0], 2.5, 1.3)
        >>> search = GridSearchCV(CurveRegressor(decay), {"model": [hyperbola, decay]}).fit(X, y)
        >>> search.best_params_["model"].__name__
        'decay'
        >>> {name: round(value, 6) for name, value in search.best_estimator_.parameters_.items()}
        {'amount': 2.5, 'rate': 1.3}
    """

    def __init__(
        self,
        model: Callable[..., Any],
        *,
        p0: Any = None,
        bounds: Any = None,
        absolute_sigma: bool = False,
        device: DeviceChoice = None,
        max_nfev: int | None = None,
    ) -> None:
        self.model = model
        self.p0 = p0
        self.bounds = bounds
        self.absolute_sigma = absolute_sigma
        self.device = device
        self.max_nfev = max_nfev

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> CurveRegressor:
        """Fit the parameters to X (n_samples, n_features) and y (n_samples,).

        Weights multiply the squared residuals: a sample of weight 2 is one that is there twice, and
        one of weight 0 is left out.

        Raises:
            FitError: if no minimum is found. InputError: a ValueError, for fewer samples than
            parameters, and for names that the model does not have.
        """
        validated = validate_data(self, X, y, y_numeric=True, dtype=float)
        points, values = np.asarray(validated[0]), np.asarray(validated[1], float)
        sigma = None
        if sample_weight is not None:
            weight = _weights(sample_weight, len(values))
            positive = weight > 0
            points, values, sigma = (
                points[positive],
                values[positive],
                1 / np.sqrt(weight[positive]),
            )
        limit: dict[str, Any] = {} if self.max_nfev is None else {"max_nfev": self.max_nfev}
        _require_samples(len(values), self.model, self.p0)
        self.fit_ = fit_model(
            self.model,
            _predictors(points),
            values,
            self.p0,
            sigma=sigma,
            bounds=self.bounds,
            absolute_sigma=self.absolute_sigma,
            device=self.device,
            **limit,
        )
        self.parameters_, self.errors_ = self.fit_.values, self.fit_.errors
        return self

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The fitted model at X (n_samples, n_features): (n_samples,).

        With ``return_std``, a pair with the standard error of the curve there, (n_samples,): that
        of a linear model near the minimum, without the scatter of y.
        """
        check_is_fitted(self)
        x = _predictors(np.asarray(validate_data(self, X, reset=False, dtype=float)))
        predictions = self.fit_.predict(x)
        return (predictions, self.fit_.band(x)) if return_std else predictions


def _require_samples(count: int, model: Callable[..., Any], p0: Any) -> None:
    is_positional = p0 is not None and not isinstance(p0, Mapping)
    needed = np.asarray(p0).size if is_positional else parameters_of(model)
    if count < needed:
        raise InputError(
            f"{needed} parameters are not determined by n_samples = {count}: give at least as "
            "many samples as parameters"
        )


def _predictors(X: np.ndarray) -> np.ndarray:
    return X[:, 0] if X.shape[1] == 1 else X.T


def _weights(sample_weight: Any, count: int) -> np.ndarray:
    """Sample weights, (n_samples,), none of them negative, and some positive."""
    if np.isscalar(sample_weight):
        sample_weight = np.broadcast_to(np.asarray(sample_weight), count)
    weight = np.asarray(
        check_array(sample_weight, ensure_2d=False, input_name="sample_weight"), float
    )
    if weight.shape != (count,) or (weight < 0).any():
        raise InputError(
            f"sample_weight has shape {weight.shape}, from {weight.min():g} on: a number or "
            f"({count},), none of them negative, is needed"
        )
    if not weight.any():
        raise InputError("sample_weight is zero for all samples: some have to count")
    return weight
