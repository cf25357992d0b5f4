"""`from_petab`: parameter estimation from the files of a PEtab problem."""

# petab and pandas have no types, or need not be here:
# pyright: reportMissingImports=false, reportMissingTypeStubs=false, reportUnknownLambdaType=false
# pyright: reportUnknownArgumentType=false, reportUnknownMemberType=false
# pyright: reportUnknownVariableType=false

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from symgrad.errors import InputError, SymgradError
from symgrad.front.fused import (
    fused_forward,
    fused_forward_backward,
    fused_hessian,
    fused_jacobian,
)
from symgrad.optimize.lbfgs import LBFGS
from symgrad.optimize.minimize import minimize_from
from symgrad.petab.likelihood import Likelihood, Observable, Prior, WholeTable
from symgrad.petab.profiles import LikelihoodProfile, plot_fits, plot_profiles, plot_waterfall
from symgrad.petab.sbml import read_model
from symgrad.petab.scoring import Model, minimized
from symgrad.petab.simulation import Simulation, Solver
from symgrad.petab.tables import Entry, Layout, SimulationTable, conditions_of, entry
from symgrad.targets import DeviceChoice

TO_SCALE: Final[dict[str, Callable[[Any], Any]]] = {
    "lin": lambda x: x,
    "log": np.log,
    "log10": np.log10,
}
"""From a parameter's own scale to that on which it is estimated."""

MOST_NUMBERS: Final = 2**24
"""Numbers of Jacobians that are in memory at once."""


class PetabProblem:
    """A problem of parameter estimation: a model, its measurements, and their likelihood.

    Parameters are arrays (n,) of those that are estimated, in the order of `ids` and on the scales
    on which the table of parameters has them estimated, or dicts of them by their names, on the
    parameters' own scales; None stands for the nominal ones. Arrays (S, n) are S points at once.

    Example:
        >>> import symgrad as sg
        >>> problem = sg.from_petab("problem.yaml")  # doctest: +SKIP
        >>> problem.loglikelihood()  # doctest: +SKIP
        -138.22199
    """

    def __init__(self, problem: Any, solver: Solver, device: DeviceChoice) -> None:
        parameters = problem.parameter_df
        estimated = parameters[parameters["estimate"] == 1]
        self.ids: list[str] = estimated.index.tolist()
        """The names of the estimated parameters."""
        self.scales: dict[str, str] = dict(zip(self.ids, estimated["parameterScale"], strict=True))
        """"lin", "log" or "log10": on which each is estimated."""
        self.nominal = self._scaled(estimated["nominalValue"])
        """Nominal values (n,) of the estimated parameters, on these scales."""
        self.bounds = self._scaled(estimated["lowerBound"]), self._scaled(estimated["upperBound"])
        """The lowest and the largest values (n,), on these scales."""
        self.tables = problem
        """The ``petab.Problem`` with all tables."""
        self._device: Any = device
        rest = parameters[parameters["estimate"] != 1]["nominalValue"]
        self._fixed: dict[str, float] = rest.astype(float).to_dict()
        self._layout = Layout(problem.measurement_df)
        self._table = SimulationTable()
        self._likelihood = self._read(problem, solver)
        priors = [Prior.of(name, k, row) for k, (name, row) in enumerate(estimated.iterrows())]
        self._priors = [prior for prior in priors if prior is not None]

    def _scaled(self, values: Any) -> NDArray[np.float64]:
        pairs = zip(values, self.scales.values(), strict=True)
        return np.array([TO_SCALE[scale](float(x)) for x, scale in pairs])

    def _read(self, problem: Any, solver: Solver) -> Likelihood:
        """The likelihood, with the columns of the table that it reads."""
        layout, table = self._layout, self._table
        table.add("time", layout.times)
        endless = layout.in_steady_state.any()
        if endless:
            table.add("endless", layout.in_steady_state.astype(float))
        model = read_model(problem.model.sbml_document, problem.model.model_id or "the model")
        measured = [
            (o, m)
            for k, o in enumerate(_observables(problem.observable_df))
            if (m := layout.measured(table, k, o.name, self._entry)) is not None
        ]
        conditions = conditions_of(table, problem.condition_df, layout, self._entry)
        likelihood = Likelihood(
            Simulation(model, solver),
            measured,
            conditions,
            self.scales,
            self._fixed,
            layout.equilibrated(table),
            bool(endless),
        )
        likelihood.require_values()
        return likelihood

    def _entry(self, value: Any, where: str) -> Entry:
        return entry(value, self._fixed, self.ids, where)

    # --- the likelihood ---------------------------------------------------------------------------

    def loglikelihood(self, p: Any = None) -> Any:
        """The logarithm of the likelihood: a float, or (S,) of points (S, n).

        It is NaN where the equations have no solution.
        """
        return self.value_and_grad(p)[0]

    def value_and_grad(self, p: Any = None) -> tuple[Any, NDArray[np.float64]]:
        """The logarithm of the likelihood, and its gradient on the scales of estimation."""
        point = self.point(p)
        loss, gradient = (self._bound if point.ndim == 1 else self._points).run(point)
        return -loss, -gradient

    def hessian(self, p: Any = None) -> NDArray[np.float64]:
        """The second derivatives (n, n) of the logarithm of the likelihood."""
        return -self._hessian.run(self.point(p))[2]

    def fisher(self, p: Any = None) -> NDArray[np.float64]:
        """The expected Fisher information (n, n), or (S, n, n), on the scales of estimation.

        Of normal noise, with the part of its estimated size: the sum of
        ``(dy dy' + 2 ds ds') / s**2`` over measurements. Its inverse is the covariance of the
        parameters, as the measurements tell them.

        Raises:
            InputError: for noise of Laplace's distribution.
        """
        if not self._likelihood.is_normal:
            raise InputError("fisher is of normal noise; take hessian, of any distribution")
        point = self.point(p)
        return self._scores(np.atleast_2d(point)).hessian[0 if point.ndim == 1 else ...]

    def logprior(self, p: Any = None) -> Any:
        """The logarithm of the prior density: a float, or (S,) of points (S, n)."""
        if not self._priors:
            return 0.0 if self.point(p).ndim == 1 else np.zeros(len(self.point(p)))
        return -self._prior.run(self.point(p))

    def simulate(self, p: Any = None) -> Any:
        """The table of measurements with the model's values, in a column ``simulation``."""
        table = self.tables.measurement_df.copy()
        table["simulation"] = self._placed(
            self._predictions.run(self.point(p), self._table.columns)
        )
        return table

    def point(self, p: Any) -> NDArray[np.float64]:
        """Parameters as an array (n,) or (S, n) on the scales of estimation.

        Raises:
            InputError: for another shape, or a dict that has other names.
        """
        if p is None:
            unknown = [x for x, value in zip(self.ids, self.nominal, strict=True) if value != value]
            if unknown:
                raise InputError(
                    f"the table of parameters has no nominal value of {', '.join(unknown)}: give "
                    "values of all parameters"
                )
            return self.nominal
        if isinstance(p, Mapping):
            if set(p) != set(self.ids):
                odd = sorted({*p} ^ {*self.ids})
                raise InputError(f"parameters that are missing, or unknown: {', '.join(odd)}")
            return self._scaled(p[name] for name in self.ids)
        point = np.asarray(p, np.float64)
        if point.shape[-1:] != (len(self.ids),) or point.ndim > 2:
            raise InputError(
                f"parameters have the shape {point.shape}: give ({len(self.ids)},), or points "
                f"(S, {len(self.ids)}), in the order of .ids"
            )
        return point

    # --- estimation -------------------------------------------------------------------------------

    def minimize(
        self, starts: Any = 1000, *, seed: int = 0, steps: int = 1000, progress: Any = False
    ) -> Any:
        """Estimate the parameters from many starts at once, within their bounds.

        What is minimised is minus the logarithm of the likelihood and of the prior: of normal
        noise, also of a size that is estimated, by Fisher's scoring, whose steps go to the minimum
        of a quadratic model with the expected Fisher information, within a trust region; of other
        noise by `LBFGS`.

        Args:
            starts: how many, which are drawn as the table of parameters says, by PEtab's own
                package; or an array (S, n), on the scales of estimation.
            seed: of the draws.
            steps: the most steps.
            progress: as for `minimize_from`.

        Returns:
            SciPy's result, batched, as of `minimize_from`: ``x`` (S, n), ``fun`` (S,), minus the
            logarithm of likelihood times prior, ``success`` (S,), and ``best``.
        """
        first = self.starts(int(starts), seed) if np.ndim(starts) == 0 else starts
        first = self.point(first)
        if not self._likelihood.is_normal:
            return self._posterior.minimize(
                first, LBFGS(), steps, bounds=self.bounds, progress=progress
            )
        if first.ndim == 2:
            return minimized(self._model, first, *self.bounds, steps, progress)
        result = minimized(self._model, first[None], *self.bounds, steps, progress)
        del result.best
        return type(result)({name: values[0] for name, values in result.items()})

    def starts(self, count: int, seed: int = 0) -> NDArray[np.float64]:
        """Starts (count, n) on the scales of estimation, as PEtab's package draws them."""
        from petab.v1.sampling import sample_parameter_startpoints

        return sample_parameter_startpoints(self.tables.parameter_df, count, seed)

    def profile(
        self, parameter: str, x: Any, *, span: float = 1.0, points: int = 21, steps: int = 500
    ) -> LikelihoodProfile:
        """The best likelihood for values of one parameter around an optimum x (n,).

        All values are tried at once, each from the optimum.

        Args:
            parameter: its name.
            x: where the likelihood is largest, such as ``result.x[result.best]``.
            span: how far to go to either side, on the scale of estimation.
            points: how many values.
            steps: the most steps of each.
        """
        if parameter not in self.ids:
            raise InputError(f"{parameter!r} is not estimated: there are {', '.join(self.ids)}")
        place, best = self.ids.index(parameter), self.point(x)
        low, high = (bound[place] for bound in self.bounds)
        values = np.linspace(max(low, best[place] - span), min(high, best[place] + span), points)
        result = self._with_fixed(place, values, best, steps)
        ends = result.x.copy()
        ends[:, place] = values
        return LikelihoodProfile(parameter, values, -result.fun, ends, result.success)

    def _with_fixed(
        self, place: int, values: NDArray[np.float64], best: NDArray[np.float64], steps: int
    ) -> Any:
        """The minima of the loss where one parameter has these values, from the best of all."""
        starts = np.tile(best, (len(values), 1))
        if self._likelihood.is_normal:
            low, high = (np.tile(bound, (len(values), 1)) for bound in self.bounds)
            low[:, place] = high[:, place] = values
            return minimized(self._scores, starts, low, high, steps)

        def loss(v: Any, row: Any) -> Any:
            return self._whole.loss([row[0] if k == place else x for k, x in enumerate(v)])

        return minimize_from(
            loss, len(best), starts, LBFGS(), steps, own=values[:, None, None], bounds=self.bounds,
            dtype="float64", device=self._device,
        )  # fmt: skip

    # --- pictures ---------------------------------------------------------------------------------

    def plot_fits(self, p: Any = None, axes: Any = None) -> list[Any]:
        """Measurements beside the model: an axes for each observable. It needs matplotlib."""
        table = self.simulate(p)
        groups = table.groupby(["observableId", "simulationConditionId"], sort=False)
        curves = {
            key: (g["time"], g["simulation"])
            for key, rows in groups
            for g in [rows.sort_values("time")]
        }
        return plot_fits(table, curves, axes)

    def plot_waterfall(self, result: Any, axes: Any = None) -> Any:
        """The ends of all starts, best first. It needs matplotlib."""
        return plot_waterfall(np.asarray(result.fun), axes)

    def plot_profiles(self, profiles: Sequence[LikelihoodProfile], axes: Any = None) -> list[Any]:
        """Profiles, an axes each. It needs matplotlib."""
        return plot_profiles(profiles, axes)

    # --- kernels ----------------------------------------------------------------------------------

    @property
    def _options(self) -> dict[str, Any]:
        return {"dtype": "float64", "device": self._device, "columns": self._table.shapes}

    @cached_property
    def _bound(self) -> Any:
        kernel = fused_forward_backward(len(self.ids), self._likelihood, **self._options)
        return kernel.bind(self._table.columns)

    @cached_property
    def _hessian(self) -> Any:
        kernel = fused_hessian(len(self.ids), self._likelihood, **self._options)
        return kernel.bind(self._table.columns)

    @cached_property
    def _whole(self) -> WholeTable:
        return WholeTable(self._likelihood, self._table.columns)

    @cached_property
    def _points(self) -> Any:
        """Minus the logarithm of the likelihood at many points."""
        return fused_forward_backward(
            len(self.ids), self._whole.loss, dtype="float64", device=self._device
        )

    @cached_property
    def _posterior(self) -> Any:
        """Minus the logarithm of likelihood times prior at many points."""
        if not self._priors:
            return self._points

        def loss(v: Any) -> Any:
            return self._whole.loss(v) + self._negative_log_prior(v)

        return fused_forward_backward(len(self.ids), loss, dtype="float64", device=self._device)

    @cached_property
    def _terms(self) -> Any:
        """The terms of normal densities at many points, with their Jacobian."""
        return fused_jacobian(
            len(self.ids), self._whole.terms, mode="forward", dtype="float64", device=self._device
        )

    def _scores(self, points: NDArray[np.float64]) -> Model:
        """Models of minus the logarithm of the likelihood at points (S, n)."""
        numbers = 2 * len(self.ids) * sum(m.places.size for _, m in self._likelihood.observables)
        parts = np.array_split(points, 1 + len(points) * numbers // MOST_NUMBERS)
        models = [vars(Model.of_normal(*self._terms.run(part))).values() for part in parts]
        return Model(*(np.concatenate(same) for same in zip(*models, strict=True)))

    def _model(self, points: NDArray[np.float64]) -> Model:
        """Models of minus the logarithm of likelihood times prior at points (S, n)."""
        scores = self._scores(points)
        return scores + Model(*self._prior_model.run(points)) if self._priors else scores

    @cached_property
    def _prior_model(self) -> Any:
        return fused_hessian(
            len(self.ids), self._negative_log_prior, dtype="float64", device=self._device
        )

    @cached_property
    def _predictions(self) -> Any:
        return fused_forward(
            len(self.ids), self._likelihood.predictions, reduce=None, **self._options
        )

    @cached_property
    def _prior(self) -> Any:
        return fused_forward(
            len(self.ids), self._negative_log_prior, dtype="float64", device=self._device
        )

    def _negative_log_prior(self, v: Any) -> Any:
        theta = [*self._likelihood.parameters(v).values()]
        return sum(prior.negative_log_density(v, theta) for prior in self._priors)

    # --- measurements -----------------------------------------------------------------------------

    def _placed(self, predictions: NDArray[np.float64]) -> NDArray[np.float64]:
        """Predictions of rows, (rows, times * values), as a column of the table of measurements."""
        placed = np.full(len(self.tables.measurement_df), np.nan)
        by_time = predictions.reshape(*self._layout.times.shape, -1)
        first = 0
        for _, measured in self._likelihood.observables:
            row, time, replicate = measured.at
            placed[measured.places] = by_time[row, time, first + replicate]
            first += measured.replicates
        return placed


def from_petab(
    path: str | Path,
    *,
    method: str = "Rodas5P",
    rtol: float = 1e-8,
    atol: float = 1e-12,
    max_steps: int = 10_000,
    device: DeviceChoice = "cpu",
) -> PetabProblem:
    """A problem of parameter estimation from its files, in the PEtab format of version 1.

    The model is SBML: reactions, rules, initial assignments and events become differential
    equations, whose solution and likelihood are traced as any function is. Each simulation is a
    row of a table, so that all conditions are computed side by side, and so are all starts of an
    estimation. Gradients are those of the steps that are taken; of steady states before
    simulations they are by the implicit function theorem.

    (Schmiester et al., 2021, PEtab: Interoperable specification of parameter estimation problems
    in systems biology. It needs the packages petab and python-libsbml: ``pip install
    'symgrad[petab]'``.)

    Args:
        path: the YAML file of the problem.
        method: which method solves the equations: see `solve_ivp`.
        rtol: how large its errors may be, relatively.
        atol: how large they may be, absolutely.
        max_steps: the most steps of a simulation.
        device: where: likelihoods are in float64.

    Raises:
        InputError: for files that are not valid, and for what is not supported, by its name.

    Example:
        >>> import symgrad as sg
        >>> problem = sg.from_petab("Boehm_JProteomeRes2014.yaml")  # doctest: +SKIP
        >>> value, gradient = problem.value_and_grad()  # doctest: +SKIP
    """
    try:
        import petab.v1 as petab
    except ImportError as error:
        raise SymgradError(
            "from_petab needs the packages petab and python-libsbml: pip install 'symgrad[petab]'"
        ) from error
    if not Path(path).is_file():
        raise InputError(f"there is no file {path}: give the YAML file of a PEtab problem")
    problem: Any = petab.Problem.from_yaml(str(path))
    if problem.model is None or problem.model.type_id != "sbml":
        raise InputError(f"{path}: models are SBML")
    _require_valid(problem, str(path))
    return PetabProblem(problem, Solver(method, rtol, atol, max_steps), device)


def _require_valid(problem: Any, path: str) -> None:
    """Refuse tables that PEtab's own checks refuse, with what these say."""
    import petab.v1 as petab

    said: list[str] = []

    class Listener(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    logger, listener = logging.getLogger("petab"), Listener(logging.ERROR)
    logger.addHandler(listener)
    try:
        if petab.lint_problem(problem):
            raise InputError(f"{path}: {' '.join(said) or 'the tables are not valid PEtab'}")
    finally:
        logger.removeHandler(listener)


def _observables(table: Any) -> Iterator[Observable]:
    """The rows of the table of observables."""
    from petab.v1.math import sympify_petab

    for name, row in table.iterrows():
        transformation = row.get("observableTransformation")
        distribution = row.get("noiseDistribution")
        yield Observable(
            str(name),
            sympify_petab(row["observableFormula"]),
            sympify_petab(row["noiseFormula"]),
            transformation if isinstance(transformation, str) and transformation else "lin",
            distribution if isinstance(distribution, str) and distribution else "normal",
        )
