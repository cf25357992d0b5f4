"""PEtab problems from their files: likelihoods and gradients beside references, and refusals."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

import symgrad as sg

pytest.importorskip("petab")
libsbml = pytest.importorskip("libsbml")

DATA = Path(__file__).parents[1] / "data" / "petab"

LOGLIKELIHOODS = {
    "Boehm_JProteomeRes2014": -138.22199693517703,
    "Bruno_JExpBot2016": 46.688176988431806,
    "Elowitz_Nature2000": 63.20279991419332,
    "Fujita_SciSignal2010": 53.08377736998929,
    "Zheng_PNAS2012": 278.33353271001477,
}
"""At the nominal parameters, as AMICI's own tests have them (AMICI, BSD-3)."""

CRAUSTE = -190.963977575746
"""By SciPy's DOP853 and Radau at rtol=1e-12, which agree in 12 digits: AMICI's own number, which is
of a solution to 1e-8, is -190.96522."""


@functools.cache
def problem(name: str) -> sg.PetabProblem:
    """A problem of the benchmark collection."""
    return sg.from_petab(DATA / name / f"{name}.yaml")


@pytest.mark.parametrize("name", LOGLIKELIHOODS)
def test_loglikelihoods(name: str) -> None:
    assert problem(name).loglikelihood() == pytest.approx(LOGLIKELIHOODS[name], rel=1e-6)


def test_an_unstable_model() -> None:
    value = problem("Crauste_CellSystems2017").loglikelihood()
    assert value == pytest.approx(CRAUSTE, rel=1e-8)


@pytest.mark.parametrize(
    "name", ["Boehm_JProteomeRes2014", "Fujita_SciSignal2010", "Zheng_PNAS2012"]
)
def test_gradients_are_as_differences(name: str) -> None:
    """Along a random direction, away from the optimum, where gradients are not small."""
    one = problem(name)
    rng = np.random.default_rng(1)
    low, high = one.bounds
    point = np.clip(one.nominal + rng.uniform(-0.2, 0.2, low.shape), low + 0.01, high - 0.01)
    direction = rng.choice([-1.0, 1.0], low.shape)
    _, gradient = one.value_and_grad(point)
    h = 1e-4
    sides = [one.loglikelihood(point + k * h * direction) for k in (-2, -1, 1, 2)]
    difference = (sides[0] - 8 * sides[1] + 8 * sides[2] - sides[3]) / (12 * h)
    assert gradient @ direction == pytest.approx(difference, rel=1e-5)


def test_points_at_once_are_as_one_by_one() -> None:
    one = problem("Boehm_JProteomeRes2014")
    points = one.nominal + np.random.default_rng(0).uniform(-0.1, 0.1, (3, len(one.ids)))
    values, gradients = one.value_and_grad(points)
    for k, point in enumerate(points):
        value, gradient = one.value_and_grad(point)
        assert values[k] == pytest.approx(value, rel=1e-9)
        np.testing.assert_allclose(gradients[k], gradient, rtol=1e-6)


def test_fisher_information() -> None:
    """Fisher's information beside differences of the model's values and of sigma."""
    one = problem("Boehm_JProteomeRes2014")
    h, columns = 1e-4, []
    measured = one.simulate()
    sigma = 10.0 ** one.nominal[[one.ids.index(s) for s in measured["noiseParameters"]]]
    for direction in np.eye(len(one.ids)):
        ends = [one.simulate(one.nominal + k * h * direction)["simulation"] for k in (-1, 1)]
        columns.append((ends[1] - ends[0]) / (2 * h) / sigma)
    jacobian = np.array(columns).T
    wanted = jacobian.T @ jacobian
    for k, name in enumerate(one.ids):
        if name.startswith("sd_"):
            wanted[k, k] += 2 * np.log(10) ** 2 * (measured["noiseParameters"] == name).sum()
    largest = np.maximum(wanted.diagonal(), 1e-2)  # one parameter is hardly seen at all
    scale = np.sqrt(np.outer(largest, largest))
    np.testing.assert_allclose(one.fisher() / scale, wanted / scale, atol=1e-4)


def test_the_simulated_table_gives_the_likelihood() -> None:
    one = problem("Bruno_JExpBot2016")
    table = one.simulate()
    sigma = table["noiseParameters"].astype(float)
    apart = (table["measurement"] - table["simulation"]) / sigma
    total = -0.5 * np.sum(apart**2 + np.log(2 * np.pi * sigma**2))
    assert one.loglikelihood() == pytest.approx(total, rel=1e-9)


def test_estimation_by_squares_and_a_profile() -> None:
    """A known optimum, from starts near it; and a profile that falls off to both sides."""
    one = problem("Bruno_JExpBot2016")
    starts = one.nominal + np.random.default_rng(0).uniform(-0.1, 0.1, (4, len(one.ids)))
    result = one.minimize(starts, steps=60)
    best = result.x[result.best]
    assert -result.fun[result.best] >= one.loglikelihood() - 1e-6
    assert result.fun[result.best] == pytest.approx(-one.loglikelihood(best), rel=1e-9)
    profile = one.profile("kb1", best, span=0.05, points=5, steps=40)
    assert profile.loglikelihood.argmax() == 2
    low, high = profile.interval()
    assert low < best[one.ids.index("kb1")] < high


def test_parameters_by_name() -> None:
    one = problem("Bruno_JExpBot2016")
    scale = dict(zip(one.ids, 10.0**one.nominal, strict=True))
    assert one.loglikelihood(scale) == pytest.approx(one.loglikelihood(), rel=1e-12)
    with pytest.raises(sg.InputError, match="missing, or unknown: kb1"):
        one.loglikelihood({k: v for k, v in scale.items() if k != "kb1"})
    with pytest.raises(sg.InputError, match=r"\(2,\)"):
        one.loglikelihood([1.0, 2.0])


# --- models of our own ----------------------------------------------------------------------------

DECAY = """\
<?xml version="1.0" encoding="UTF-8"?>
<sbml xmlns="http://www.sbml.org/sbml/level3/version1/core" level="3" version="1">
<model id="decay">
<listOfCompartments><compartment id="cell" size="2" constant="true"/></listOfCompartments>
<listOfSpecies>
<species id="A" compartment="cell" initialConcentration="3" hasOnlySubstanceUnits="false"
 boundaryCondition="false" constant="false"/>
</listOfSpecies>
<listOfParameters>
<parameter id="k" value="0.5" constant="true"/><parameter id="dose" value="2" constant="true"/>
<parameter id="moment" value="1.5" constant="true"/>
</listOfParameters>
{rules}
<listOfReactions><reaction id="r" reversible="false" fast="false">
<listOfReactants><speciesReference species="A" stoichiometry="1" constant="true"/></listOfReactants>
<kineticLaw><math xmlns="http://www.w3.org/1998/Math/MathML">{law}</math></kineticLaw>
</reaction></listOfReactions>
{events}
</model></sbml>
"""
LAW = "<apply><times/><ci>cell</ci><ci>k</ci><ci>A</ci></apply>"
TIME = '<csymbol encoding="text" definitionURL="http://www.sbml.org/sbml/symbols/time">t</csymbol>'
DOSE = """
<listOfEvents><event id="dosing" useValuesFromTriggerTime="true">
<trigger initialValue="true" persistent="true"><math xmlns="http://www.w3.org/1998/Math/MathML">
{trigger}</math></trigger>{delay}
<listOfEventAssignments><eventAssignment variable="A">
<math xmlns="http://www.w3.org/1998/Math/MathML"><apply><plus/><ci>A</ci><ci>dose</ci></apply></math>
</eventAssignment></listOfEventAssignments></event></listOfEvents>
"""
AT_TIME = f"<apply><geq/>{TIME}<ci>moment</ci></apply>"
AT_LEVEL = "<apply><lt/><ci>A</ci><cn>1</cn></apply>"
AFTER = f"""<apply><times/><ci>cell</ci><ci>A</ci><piecewise><piece><ci>k</ci>
<apply><lt/>{TIME}<ci>moment</ci></apply></piece><otherwise><cn>0</cn></otherwise></piecewise></apply>"""
TIMES = np.array([0.0, 0.7, 1.4, 1.6, 2.5, 4.0])


def written(
    folder: Path, sbml: str, transformation: str = "lin", noise: str = "normal", sigma: str = "0.3"
) -> Path:
    """A PEtab problem of this model, with one observable of A."""
    (folder / "model.xml").write_text(sbml)
    ids = (
        "observableId\tobservableFormula\tnoiseFormula\tobservableTransformation\tnoiseDistribution"
    )
    (folder / "observables.tsv").write_text(
        f"{ids}\nobs\t2 * A\t{sigma}\t{transformation}\t{noise}\n"
    )
    (folder / "conditions.tsv").write_text("conditionId\tconditionName\nc\tonly\n")
    rows = [f"obs\tc\t{3 + 0.1 * t}\t{t}" for t in TIMES]
    head = "observableId\tsimulationConditionId\tmeasurement\ttime"
    (folder / "measurements.tsv").write_text("\n".join([head, *rows]) + "\n")
    head = "parameterId\tparameterScale\tlowerBound\tupperBound\tnominalValue\testimate"
    rows = [f"{name}\tlog10\t0.01\t100\t{x}\t1" for name, x in
            {"k": 0.5, "dose": 2.0, "moment": 1.5}.items()]  # fmt: skip
    (folder / "parameters.tsv").write_text("\n".join([head, *rows]) + "\n")
    (folder / "problem.yaml").write_text(
        "format_version: 1\nparameter_file: parameters.tsv\nproblems:\n- condition_files: "
        "[conditions.tsv]\n  measurement_files: [measurements.tsv]\n  observable_files: "
        "[observables.tsv]\n  sbml_files: [model.xml]\n"
    )
    return folder / "problem.yaml"


def dosed(times: Any, k: float, dose: float, moment: float) -> Any:
    """A, with a dose at a moment."""
    after = np.where(times >= moment, dose * np.exp(-k * (times - moment)), 0.0)
    return 3 * np.exp(-k * times) + after


def refilled(times: Any, k: float, dose: float, _: float) -> Any:
    """A, with a dose whenever it falls to 1."""
    first, period = np.log(3.0) / k, np.log(1.0 + dose) / k
    since = np.where(times < first, 0.0, np.mod(times - first, period))
    return np.where(times < first, 3 * np.exp(-k * times), (1 + dose) * np.exp(-k * since))


def stopped(times: Any, k: float, _: float, moment: float) -> Any:
    """A, which decays up to a moment."""
    return 3 * np.exp(-k * np.minimum(times, moment))


MODELS = {
    "a dose at a time": (dosed, LAW, DOSE.format(trigger=AT_TIME, delay="")),
    "a dose at a level": (refilled, LAW, DOSE.format(trigger=AT_LEVEL, delay="")),
    "a rate that ends": (stopped, AFTER, ""),
}


@pytest.mark.parametrize("name", MODELS)
def test_events_and_conditions_on_the_time(tmp_path: Path, name: str) -> None:
    """Values and gradients beside solutions in closed form, by the moment of the event, too."""
    solution, law, events = MODELS[name]
    one = sg.from_petab(written(tmp_path, DECAY.format(rules="", law=law, events=events)))

    def loglikelihood(p: Any) -> float:
        apart = (3 + 0.1 * TIMES - 2 * solution(TIMES, *10.0**p)) / 0.3
        return float(-0.5 * np.sum(apart**2 + np.log(2 * np.pi * 0.09)))

    value, gradient = one.value_and_grad()
    assert value == pytest.approx(loglikelihood(one.nominal), rel=1e-6)
    h = 1e-5
    for k, direction in enumerate(np.eye(3)):
        ends = [loglikelihood(one.nominal + s * h * direction) for s in (-1, 1)]
        assert gradient[k] == pytest.approx((ends[1] - ends[0]) / (2 * h), rel=1e-5, abs=1e-5)


BALANCE = f"<apply><minus/>{LAW}<apply><times/><ci>cell</ci><ci>dose</ci></apply></apply>"
CONSTANT = "<apply><times/><ci>cell</ci><ci>dose</ci></apply>"


def written_with_an_end(folder: Path, law: str) -> Path:
    """A problem whose last measurement is of the steady state."""
    path = written(folder, DECAY.format(rules="", law=law, events=""))
    table = folder / "measurements.tsv"
    table.write_text(table.read_text().replace(f"\t{TIMES[-1]}\n", "\tinf\n"))
    return path


def test_measurements_of_the_steady_state(tmp_path: Path) -> None:
    """A gain of ``dose`` and a loss by k, in closed form."""
    one = sg.from_petab(written_with_an_end(tmp_path, BALANCE))
    times = np.append(TIMES[:-1], np.inf)

    def loglikelihood(p: Any) -> float:
        k, dose, _ = 10.0**p
        value = dose / k + (3 - dose / k) * np.exp(-k * times)
        return scipy.stats.norm.logpdf(3 + 0.1 * TIMES, 2 * value, 0.3).sum()

    value, gradient = one.value_and_grad()
    assert value == pytest.approx(loglikelihood(one.nominal), rel=1e-7)
    for k, direction in enumerate(1e-5 * np.eye(3)):
        ends = [loglikelihood(one.nominal + s * direction) for s in (-1, 1)]
        assert gradient[k] == pytest.approx((ends[1] - ends[0]) / 2e-5, rel=1e-6, abs=1e-6)
    without = sg.from_petab(written_with_an_end(tmp_path, CONSTANT))
    with pytest.raises(sg.InputError, match="do not determine a steady state"):
        without.loglikelihood()


STIMULUS = f"""<apply><minus/>{LAW}<apply><times/><ci>cell</ci><piecewise><piece><ci>dose</ci>
<apply><geq/>{TIME}<ci>moment</ci></apply></piece><otherwise><ci>rest</ci></otherwise></piecewise>
</apply></apply>"""


@pytest.mark.parametrize("moment", [1.5, -1.0])
def test_a_steady_state_before_a_stimulus_at_a_time(tmp_path: Path, moment: float) -> None:
    """``rest / k`` before, and towards ``dose / k`` after a moment, which may be before the start.

    The steady state is that before all switches.
    """
    sbml = DECAY.format(rules="", law=STIMULUS, events="").replace(
        "</listOfParameters>", '<parameter id="rest" value="1" constant="true"/></listOfParameters>'
    )
    path = written(tmp_path, sbml)
    table = tmp_path / "measurements.tsv"
    head, *rows = table.read_text().splitlines()
    rows = [head + "\tpreequilibrationConditionId", *(f"{row}\tc" for row in rows)]
    table.write_text("\n".join(rows) + "\n")
    table = tmp_path / "parameters.tsv"
    table.write_text(table.read_text().replace("moment\tlog10\t0.01", "moment\tlin\t-2"))
    one = sg.from_petab(path)

    def loglikelihood(p: Any) -> float:
        k, dose = 10.0 ** p[:2]
        since = np.maximum(TIMES - max(p[2], 0.0), 0.0)
        value = dose / k + (1.0 - dose) / k * np.exp(-k * since)
        return scipy.stats.norm.logpdf(3 + 0.1 * TIMES, 2 * value, 0.3).sum()

    point = np.append(one.nominal[:2], moment)
    value, gradient = one.value_and_grad(point)
    assert value == pytest.approx(loglikelihood(point), rel=1e-7)
    for k, direction in enumerate(1e-5 * np.eye(3)):
        ends = [loglikelihood(point + s * direction) for s in (-1, 1)]
        assert gradient[k] == pytest.approx((ends[1] - ends[0]) / 2e-5, rel=1e-5, abs=1e-5)


def test_estimation_of_the_size_of_noise(tmp_path: Path) -> None:
    """Beside SciPy on the solution in closed form: the ends of all starts, also one at a bound."""
    one = sg.from_petab(written(tmp_path, DECAY.format(rules="", law=LAW, events=""), sigma="dose"))
    measured, (k, sigma) = 3 + 0.1 * TIMES, (one.ids.index(name) for name in ("k", "dose"))

    def loss(p: Any) -> float:
        rate, width = 10.0 ** np.asarray(p)
        return -scipy.stats.norm.logpdf(measured, 6 * np.exp(-rate * TIMES), width).sum()

    wanted = scipy.optimize.minimize(loss, [-1.0, 0.0], method="Nelder-Mead", tol=1e-9)
    result = one.minimize(8, seed=1)
    assert result.success.all() and result.x.shape == (8, 3)
    np.testing.assert_allclose(result.fun, wanted.fun, rtol=1e-6)
    np.testing.assert_allclose(result.x[:, [k, sigma]], np.tile(wanted.x, (8, 1)), atol=1e-3)
    single = one.minimize(one.nominal)
    assert single.x.shape == (3,) and single.fun == pytest.approx(wanted.fun, rel=1e-6)
    few = one.minimize(8, seed=1, steps=2)
    assert not few.success.any() and (few.nit == 2).all() and "steps ran out" in few.message[0]
    profile = one.profile("dose", single.x, span=0.1, points=3)
    assert profile.success.all() and profile.loglikelihood.argmax() == 1


PRIORS: dict[str, Any] = {  # of a parameter x on its own scale, or of log10(x)
    "normal": scipy.stats.norm(0.4, 0.2),
    "laplace": scipy.stats.laplace(0.4, 0.2),
    "logNormal": scipy.stats.lognorm(0.2, scale=np.exp(0.4)),
    "logLaplace": scipy.stats.loglaplace(1 / 0.2, scale=np.exp(0.4)),
    "uniform": scipy.stats.uniform(0.2, 4.0),
    "parameterScaleNormal": scipy.stats.norm(0.4, 0.2),
    "parameterScaleLaplace": scipy.stats.laplace(0.4, 0.2),
    "parameterScaleUniform": scipy.stats.uniform(-1.0, 2.0),
}


def written_with_priors(folder: Path, priors: list[str]) -> Path:
    """A problem whose parameters have these priors, in order."""
    path = written(folder, DECAY.format(rules="", law=LAW, events=""))
    table = folder / "parameters.tsv"
    head, *rows = table.read_text().splitlines()
    numbers = {"uniform": "0.2;4.2", "parameterScaleUniform": "-1;1"}
    rows = [f"{row}\t{name}\t{numbers.get(name, '0.4;0.2') if name else ''}"
            for row, name in zip(rows, priors, strict=True)]  # fmt: skip
    head += "\tobjectivePriorType\tobjectivePriorParameters"
    table.write_text("\n".join([head, *rows]) + "\n")
    return path


@pytest.mark.parametrize(
    "priors",
    [["normal", "laplace", "logNormal"], ["logLaplace", "parameterScaleNormal", ""],
     ["uniform", "parameterScaleLaplace", "parameterScaleUniform"]],
)  # fmt: skip
def test_priors(tmp_path: Path, priors: list[str]) -> None:
    """Beside SciPy's densities, of which those of no parameter on its scale see the logarithm."""
    one = sg.from_petab(written_with_priors(tmp_path, priors))
    points = np.stack([one.nominal, one.nominal - 0.1, one.nominal + 0.07])

    def logprior(p: Any) -> float:
        seen = [x if name.startswith("parameterScale") else 10.0**x
                for name, x in zip(priors, p, strict=True)]  # fmt: skip
        return sum(PRIORS[n].logpdf(x) for n, x in zip(priors, seen, strict=True) if n)

    np.testing.assert_allclose(one.logprior(points), [*map(logprior, points)], rtol=1e-12)
    assert one.logprior() == pytest.approx(logprior(one.nominal), rel=1e-12)


def test_estimation_with_a_prior(tmp_path: Path) -> None:
    """What is minimised is minus the logarithm of likelihood times prior, and no value is less."""
    one = sg.from_petab(written_with_priors(tmp_path, ["normal", "laplace", "logNormal"]))
    result = one.minimize(one.nominal)
    posterior = one.loglikelihood(result.x) + one.logprior(result.x)
    assert result.success and result.fun == pytest.approx(-posterior, rel=1e-9)
    near = result.x + 1e-2 * np.random.default_rng(0).normal(size=(20, 3))
    assert (one.loglikelihood(near) + one.logprior(near) < posterior).all()
    with pytest.raises(sg.InputError, match="but is 'cauchy'"):
        sg.from_petab(written_with_priors(tmp_path, ["cauchy", "", ""]))


@pytest.mark.parametrize("transformation", ["lin", "log", "log10"])
@pytest.mark.parametrize("noise", ["normal", "laplace"])
def test_distributions_of_noise(tmp_path: Path, transformation: str, noise: str) -> None:
    """Beside SciPy's densities of the transformed measurement, times the derivative of that."""
    path = written(tmp_path, DECAY.format(rules="", law=LAW, events=""), transformation, noise)
    measured, model = 3 + 0.1 * TIMES, 2 * 3 * np.exp(-0.5 * TIMES)
    transform = {"lin": lambda y: y, "log": np.log, "log10": np.log10}[transformation]
    slope = {"lin": 0 * measured, "log": np.log(measured), "log10": np.log(measured * np.log(10))}
    density = {"normal": scipy.stats.norm, "laplace": scipy.stats.laplace}[noise]
    logs = density.logpdf(transform(measured), transform(model), 0.3) - slope[transformation]
    assert sg.from_petab(path).loglikelihood() == pytest.approx(logs.sum(), rel=1e-7)


def test_refusals(tmp_path: Path) -> None:
    delay = "<delay><math xmlns='http://www.w3.org/1998/Math/MathML'><cn>1</cn></math></delay>"
    late = DECAY.format(rules="", law=LAW, events=DOSE.format(trigger=AT_TIME, delay=delay))
    with pytest.raises(sg.InputError, match="the delay of the event 'dosing'"):
        sg.from_petab(written(tmp_path, late))
    with pytest.raises(sg.InputError, match="there is no file"):
        sg.from_petab(tmp_path / "missing.yaml")
    name = "Boehm_JProteomeRes2014"
    shutil.copytree(DATA / name, tmp_path / name)
    table = tmp_path / name / f"measurementData_{name}.tsv"
    table.write_text(table.read_text().replace("sd_pSTAT5A_rel", "sd_unknown"))
    with pytest.raises(sg.InputError, match="sd_unknown"):
        sg.from_petab(tmp_path / name / f"{name}.yaml")


def test_pictures() -> None:
    pytest.importorskip("matplotlib").use("Agg")
    one = problem("Boehm_JProteomeRes2014")
    axes = one.plot_fits()
    assert [axis.get_title() for axis in axes] == ["pSTAT5A_rel", "pSTAT5B_rel", "rSTAT5A_rel"]
    assert axes[0].lines[1].get_ydata()[0] == pytest.approx(one.simulate()["simulation"].iloc[0])
