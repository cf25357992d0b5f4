"""Parameter estimation from PEtab files: fits, the ends of many starts, and profiles.

Without a file it writes a problem of its own, with the format's SBML and tables: a protein that a
stimulus activates, and that is switched off again, measured with noise whose size is estimated.

    python examples/21_petab.py [problem.yaml] [--starts 100] [--device cpu] [--output petab.png]
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import time
from pathlib import Path

import numpy as np

import symgrad as sg

TRUE = {"on": 0.4, "off": 0.15, "scale": 3.0, "noise": 0.1}

SBML = """<?xml version="1.0" encoding="UTF-8"?>
<sbml xmlns="http://www.sbml.org/sbml/level3/version1/core" level="3" version="1">
<model id="switch">
<listOfCompartments><compartment id="cell" size="1" constant="true"/></listOfCompartments>
<listOfSpecies>
<species id="rest" compartment="cell" initialConcentration="1" hasOnlySubstanceUnits="false"
 boundaryCondition="false" constant="false"/>
<species id="active" compartment="cell" initialConcentration="0" hasOnlySubstanceUnits="false"
 boundaryCondition="false" constant="false"/>
</listOfSpecies>
<listOfParameters><parameter id="on" value="1" constant="true"/>
<parameter id="off" value="1" constant="true"/>
<parameter id="stimulus" value="1" constant="true"/></listOfParameters>
<listOfReactions>
<reaction id="activation" reversible="false" fast="false">
<listOfReactants><speciesReference species="rest" stoichiometry="1" constant="true"/>
</listOfReactants><listOfProducts>
<speciesReference species="active" stoichiometry="1" constant="true"/></listOfProducts>
<kineticLaw><math xmlns="http://www.w3.org/1998/Math/MathML"><apply><times/><ci>cell</ci>
<ci>on</ci><ci>stimulus</ci><ci>rest</ci></apply></math></kineticLaw></reaction>
<reaction id="silencing" reversible="false" fast="false">
<listOfReactants><speciesReference species="active" stoichiometry="1" constant="true"/>
</listOfReactants><listOfProducts>
<speciesReference species="rest" stoichiometry="1" constant="true"/></listOfProducts>
<kineticLaw><math xmlns="http://www.w3.org/1998/Math/MathML"><apply><times/><ci>cell</ci>
<ci>off</ci><ci>active</ci></apply></math></kineticLaw></reaction>
</listOfReactions></model></sbml>
"""


def written(folder: Path) -> Path:
    """A problem with two stimuli, whose measurements are drawn."""
    draw, stimuli = np.random.default_rng(0), {"weak": 0.5, "strong": 2.0}
    rows = ["observableId\tsimulationConditionId\ttime\tmeasurement"]
    for name, stimulus in stimuli.items():
        speed = TRUE["on"] * stimulus + TRUE["off"]
        for t in np.linspace(0.5, 15.0, 12):
            active = TRUE["on"] * stimulus / speed * (1.0 - np.exp(-speed * t))
            value = TRUE["scale"] * active + TRUE["noise"] * draw.normal()
            rows.append(f"seen\t{name}\t{t}\t{value}")
    parameters = [f"{name}\tlog10\t0.001\t1000\t{x}\t1" for name, x in TRUE.items()]
    head = "parameterId\tparameterScale\tlowerBound\tupperBound\tnominalValue\testimate"
    files = {
        "model.xml": SBML,
        "measurements.tsv": "\n".join(rows),
        "parameters.tsv": "\n".join([head, *parameters]),
        "observables.tsv": "observableId\tobservableFormula\tnoiseFormula\n"
        "seen\tscale * active\tnoise",
        "conditions.tsv": "\n".join(
            ["conditionId\tstimulus", *(f"{name}\t{x}" for name, x in stimuli.items())]
        ),
        "problem.yaml": "format_version: 1\nparameter_file: parameters.tsv\nproblems:\n"
        "- condition_files: [conditions.tsv]\n  measurement_files: [measurements.tsv]\n"
        "  observable_files: [observables.tsv]\n  sbml_files: [model.xml]\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text + "\n")
    return folder / "problem.yaml"


def draw(problem: sg.PetabProblem, result: object, best: np.ndarray, output: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print("no picture: pip install 'symgrad[plot]'")
        return
    profiles = [problem.profile(name, best) for name in problem.ids[:2]]
    for profile in profiles:
        low, high = profile.interval()
        print(f"{profile.parameter}: from {10**low:.3g} to {10**high:.3g} with 95 %")
    figure = Figure(figsize=(10, 7), layout="constrained")
    axes = figure.subplots(2, 2)
    problem.plot_fits(best, axes[0, :1])
    problem.plot_waterfall(result, axes[0, 1])
    problem.plot_profiles(profiles, axes[1])
    figure.savefig(output, dpi=110)
    print(f"picture: {output}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("problem", type=Path, nargs="?")
    parser.add_argument("--starts", type=int, default=100)
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--output", type=Path, default=Path(tempfile.gettempdir(), "symgrad-petab.png")
    )
    asked = parser.parse_args()
    logging.getLogger("petab").setLevel(logging.ERROR)

    with tempfile.TemporaryDirectory() as folder:
        path = asked.problem or written(Path(folder))
        problem = sg.from_petab(path, max_steps=1000, device=asked.device)
        start = time.perf_counter()
        result = problem.minimize(asked.starts)
        seconds = time.perf_counter() - start
    best = result.x[result.best]
    least = result.fun[result.best]
    share = np.mean(result.fun < least + 0.01)
    print(f"{asked.starts} starts in {seconds:.1f} s, {share:.0%} at the best: {-least:.4f}")
    for name, x in zip(problem.ids, best, strict=True):
        print(f"{name:24s} {10**x if problem.scales[name] == 'log10' else x:.4g}")
    draw(problem, result, best, asked.output)

    assert least <= -problem.loglikelihood() + 1e-6, "the true parameters are likelier"
    if asked.problem is None:
        assert np.abs(best - problem.nominal).max() < 0.2, "not the true parameters"


if __name__ == "__main__":
    main()
