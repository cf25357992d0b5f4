"""Models made by libsbml, in conditions that override them, beside SciPy's solutions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.stats

import symgrad as sg

pytest.importorskip("petab")
libsbml = pytest.importorskip("libsbml")

TIMES = [0.0, 0.5, 2.0]
CONDITIONS = {
    "as_it_is": {},
    "larger": {"big": 4.0, "small": 0.8, "A": 0.9},
    "set": {"gain": "k", "S": 0.4, "stimulus": 2.0},
}
PAIRS = [("", "as_it_is"), ("", "larger"), ("", "set"), ("as_it_is", "set"), ("larger", "set")]
RULES = {"growth": "0.2 * back / gain"}
INITIAL = {"gain": "1 + 2 * k", "C": "A + k + clock"}


def model(rules: dict[str, str] = RULES, stoichiometry: float | None = 1.0) -> str:
    """A and B are exchanged between compartments; C, an amount, grows; S is a boundary."""
    document = libsbml.SBMLDocument(3, 1)
    made = document.createModel()
    made.setId("exchange")
    rules = {"clock": "time", **rules}

    def formula(holder: Any, text: str) -> None:
        holder.setMath(libsbml.parseL3Formula(text))

    function = made.createFunctionDefinition()
    function.setId("product")
    formula(function, "lambda(x, y, x * y)")
    for name, size in {"big": 2.0, "small": 0.5}.items():
        made.createCompartment().setId(name)
        made.getCompartment(name).setSize(size)
        made.getCompartment(name).setConstant(name not in rules)
    for name, place, start, amounts in (
        ("A", "big", "Amount", False), ("B", "small", "Concentration", True),
        ("C", "small", "Amount", True), ("S", "big", "Amount", False),
    ):  # fmt: skip
        species = made.createSpecies()
        species.setId(name)
        species.setCompartment(place)
        species.setHasOnlySubstanceUnits(amounts)
        species.setBoundaryCondition(name == "S")
        species.setConstant(False)
        getattr(species, f"setInitial{start}")(1.5)
    for name, value in {"k": 0.7, "gain": 1.0, "stimulus": 0.5, **dict.fromkeys(rules)}.items():
        if name in ("big", "small"):
            continue
        parameter = made.createParameter()
        parameter.setId(name)
        parameter.setConstant(name not in rules)
        if value is not None:
            parameter.setValue(value)
    for create, formulas in (
        (made.createAssignmentRule, rules), (made.createInitialAssignment, INITIAL),
    ):  # fmt: skip
        for name, text in formulas.items():
            assignment = create()
            (assignment.setSymbol if formulas is INITIAL else assignment.setVariable)(name)
            formula(assignment, text)
    for name, taken, given, law, local in (
        ("forth", "A", "B", "big * product(k, A) * stimulus", {}),
        ("back", "B", "A", "q * B", {"q": 0.3}),
        ("grow", "S", "C", "growth * S", {}),
        ("shrink", "C", "", "q * C", {"q": 0.6}),
    ):
        reaction = made.createReaction()
        reaction.setId(name)
        reaction.setReversible(False)
        reaction.setFast(False)
        for create, species in ((reaction.createReactant, taken), (reaction.createProduct, given)):
            if species:
                reference = create()
                reference.setSpecies(species)
                reference.setConstant(True)
                if stoichiometry is not None:
                    reference.setStoichiometry(stoichiometry)
        formula(reaction.createKineticLaw(), law)
        for key, value in local.items():
            parameter = reaction.getKineticLaw().createLocalParameter()
            parameter.setId(key)
            parameter.setValue(value)
    return libsbml.writeSBMLToString(document)


def written(
    folder: Path, sbml: str, times: Sequence[float] = TIMES, conditions: Any = CONDITIONS
) -> Path:
    """A problem of a model, in which A, B and the speed of a reaction are measured."""
    names = sorted({name for settings in conditions.values() for name in settings})
    tables = {
        "observables": [
            ("observableId", "observableFormula", "noiseFormula"),
            ("oA", "observableParameter1_oA * A + offset", "noiseParameter1_oA * (1 + A)"),
            ("oB", "B / small + forth", "0.2"),
            ("oC", "C", "sigma"),
        ],
        "conditions": [
            ("conditionId", *names),
            *((c, *(s.get(name, "") for name in names)) for c, s in conditions.items()),
        ],
        "measurements": [
            ("observableId", "preequilibrationConditionId", "simulationConditionId", "measurement",
             "time", "observableParameters", "noiseParameters"),
            *((o, before, c, 1 + 0.1 * t, t, *(("scaling", "sigma") if o == "oA" else ("", "")))
              for before, c in PAIRS for o in ("oA", "oB", "oC") for t in times),
        ],
        "parameters": [
            ("parameterId", "parameterScale", "lowerBound", "upperBound", "nominalValue",
             "estimate"),
            ("k", "log10", 0.01, 10, 0.7, 1), ("scaling", "log", 0.1, 10, 1.3, 1),
            ("offset", "lin", -1, 1, 0.1, 1), ("sigma", "log10", 0.01, 1, 0.25, 1),
        ],
    }  # fmt: skip
    for name, rows in tables.items():
        (folder / f"{name}.tsv").write_text("".join("\t".join(map(str, r)) + "\n" for r in rows))
    (folder / "model.xml").write_text(sbml)
    (folder / "problem.yaml").write_text(
        "format_version: 1\nparameter_file: parameters.tsv\nproblems:\n- condition_files: "
        "[conditions.tsv]\n  measurement_files: [measurements.tsv]\n  observable_files: "
        "[observables.tsv]\n  sbml_files: [model.xml]\n"
    )
    return folder / "problem.yaml"


def constants(c: dict[str, Any], k: Any) -> tuple[Any, Any, Any]:
    """Of a condition: the rates of exchange and of growth, and what S is."""
    gain = k if "gain" in c else 1 + 2 * k
    return c["big"] * k * c["stimulus"], 0.2 * 0.3 / gain, c.get("S", 1.5 / c["big"])


def simulated(now: dict[str, Any], y0: Any, k: float) -> Any:
    """A, B and C at all times, by SciPy."""
    forth, growth, supply = constants(now, k)

    def slope(_: float, y: Any) -> list[float]:
        moved = forth * y[0] - 0.3 * y[1]
        return [-moved / now["big"], moved, growth * y[1] * supply - 0.6 * y[2]]

    return scipy.integrate.solve_ivp(
        slope, (0, TIMES[-1]), y0, "DOP853", t_eval=TIMES, rtol=1e-12, atol=1e-14
    ).y


def steady(then: dict[str, Any], y0: Any, k: float) -> list[float]:
    """The steady state, in which the amount of A and B together is what it was."""
    forth, growth, supply = constants(then, k)
    a = (y0[0] * then["big"] + y0[1]) / (then["big"] + forth / 0.3)
    b = a * forth / 0.3
    return [a, b, growth * b * supply / 0.6]


def loglikelihood(p: Any) -> float:
    """The sum over all simulations."""
    k, scaling, offset, sigma = 10 ** p[0], np.exp(p[1]), p[2], 10 ** p[3]
    total = 0.0
    for before, condition in PAIRS:
        base = {"big": 2.0, "small": 0.5, "stimulus": 0.5}
        now, then = ({**base, **CONDITIONS[c]} for c in (condition, before or condition))
        first = then.get("A", 1.5 / then["big"])
        y0 = [first, 1.5 * then["small"], first + k]
        a, b, c = simulated(now, steady(then, y0, k) if before else y0, k)
        forth = constants(now, k)[0]
        for values, s in (
            (scaling * a + offset, sigma * (1 + a)),
            (b / now["small"] + forth * a, 0.2),
            (c, sigma),
        ):
            logs = scipy.stats.norm.logpdf(1 + 0.1 * np.array(TIMES), values, s)
            total += float(np.sum(logs))
    return total


def test_conditions_override_what_formulas_depend_on(tmp_path: Path) -> None:
    """Sizes, boundaries, initial assignments; steady states of sums of unlike volumes."""
    one = sg.from_petab(written(tmp_path, model()))
    value, gradient = one.value_and_grad()
    assert value == pytest.approx(loglikelihood(one.nominal), rel=1e-7)
    h = 1e-4
    for g, direction in zip(gradient, np.eye(4), strict=True):
        ends = [loglikelihood(one.nominal + s * h * direction) for s in (-1, 1)]
        assert g == pytest.approx((ends[1] - ends[0]) / (2 * h), rel=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sbml": model({"growth": "time + A", "big": "2 + time"})}, "'big' changes its size"),
        ({"sbml": model(stoichiometry=None)}, "'A' without a stoichiometry"),
        ({"sbml": model({"growth": "0.1 * time"})}, "rates depend on the time"),
        ({"sbml": model({"growth": "unset"})}, "unset"),
        ({"times": [-1.0, 2.0]}, "negative times"),
        ({"conditions": {**CONDITIONS, "set": {"growth": 1.0}}}, "'growth', which a rule assigns"),
    ],
)
def test_what_is_not_supported_is_named(tmp_path: Path, options: Any, message: str) -> None:
    with pytest.raises(sg.InputError, match=message):
        sg.from_petab(written(tmp_path, **{"sbml": model(), **options})).loglikelihood()


def test_nominal_values_that_are_missing(tmp_path: Path) -> None:
    path = written(tmp_path, model())
    table = tmp_path / "parameters.tsv"
    table.write_text(table.read_text().replace("\t0.7\t", "\t\t"))
    with pytest.raises(sg.InputError, match="no nominal value of k"):
        sg.from_petab(path).loglikelihood()
