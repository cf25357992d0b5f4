"""The examples as programs; they assert their results themselves."""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import matplotlib
import pytest
from matplotlib import pyplot as plt
from site_gallery import keep

import symgrad as sg

ROOT = Path(__file__).parents[1]
SMALL = {
    "01_rosenbrock_descent.py": ("--starts", "8"),
    "02_inverse_kinematics.py": ("--targets", "50"),
    "03_himmelblau_basins.py": ("--side", "60"),
    "04_sympy_lagrangian.py": ("--pendulums", "2", "--seconds", "2"),
    "05_audit.py": (),
    "06_confidence_bands.py": (),
    "07_single_molecules.py": ("--spots", "2000"),
    "08_basins_of_minimize.py": ("--side", "60"),
    "09_network_from_disk.py": ("--rows", "60000", "--batch", "500", "--epochs", "5"),
    "10_torch_and_optax.py": (),
    "11_bundle_adjustment.py": ("--cameras", "12", "--points", "200"),
    "12_hares_and_lynx.py": ("--curves", "50"),
    "13_kalman_filter.py": ("--side", "40"),
    "14_a_million_chains.py": ("--chains", "4000"),
    "15_digits.py": ("--epochs", "10"),
    "16_mamba.py": ("--steps", "3", "--length", "16", "--width", "16", "--batch", "4"),
    "17_neural_ode.py": ("--paths", "8"),
    "18_doses.py": ("--patients", "50"),
    "19_robertson.py": ("--sets", "20"),
    "20_a_million_lorenz.py": ("--side", "50"),
    "21_petab.py": ("--starts", "10"),
}
"""The arguments that make an example quick."""

EITHER = {"10_torch_and_optax.py": ("torch", "optax")}
"""Examples with packages of which one must be there."""

NEEDED = {
    "15_digits.py": ("sklearn", "safetensors"),
    "16_mamba.py": ("safetensors",),
    "21_petab.py": ("petab", "libsbml"),
}
"""Examples with packages that all have to be there."""

LONG_LOOPS = {"21_petab.py"}
"""Examples that drivers in software refuse: they end loops after 65,535 iterations."""

GOES_ON = {
    "15_digits.py": ("--epochs", "--hidden", "16"),
    "16_mamba.py": ("--steps", "--length", "16", "--width", "16", "--batch", "4"),
}
"""Examples that go on where a checkpoint ended: how far is told by the first argument."""

KEPT = os.environ.get("SYMGRAD_PICTURES", "")
"""Where pictures are kept for the gallery of the documentation, if they are wanted."""

DEVICES = sorted({"gpu" if d.is_gpu else "cpu" for d in sg.devices()})
IN_SOFTWARE = not any(d.is_gpu and d.kind != "software" for d in sg.devices())


def test_every_example_is_tested() -> None:
    assert sorted(SMALL) == sorted(p.name for p in ROOT.glob("examples/*.py"))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", SMALL)
def test_example(name: str, device: str, tmp_path: Path) -> None:
    _require(name)
    if name in LONG_LOOPS and device == "gpu" and IN_SOFTWARE:
        pytest.skip("the driver ends loops after 65,535 iterations")
    picture = tmp_path / "picture.png"
    printed = _run(name, *SMALL[name], "--device", device, "--output", picture, within=tmp_path)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.iterdir()) == [picture]
    if KEPT and device == "cpu":
        keep(Path(KEPT), Path(name).stem, printed, picture)


@pytest.mark.parametrize("name", GOES_ON)
def test_what_is_resumed_has_the_same_bits(name: str, tmp_path: Path) -> None:
    _require(name)
    steps, *small = GOES_ON[name]
    runs = (("whole", "2", _run), ("parts", "1", _run), ("parts", "2", _run_alone))
    for file, iterations, run in runs:
        run(
            name, *small, steps, iterations, "--checkpoint", f"{file}.safetensors",
            "--device", "cpu", "--output", "picture.png", within=tmp_path,
        )  # fmt: skip
    whole, parts = (tmp_path / f"{file}.safetensors" for file in ("whole", "parts"))
    assert whole.read_bytes() == parts.read_bytes()


def _require(name: str) -> None:
    """Skip an example whose packages are not there."""
    if name in EITHER and not any(map(find_spec, EITHER[name])):
        pytest.skip(f"none of {', '.join(EITHER[name])} is installed")
    if missing := [package for package in NEEDED.get(name, ()) if not find_spec(package)]:
        pytest.skip(f"{', '.join(missing)} is not installed")


def _run(name: str, *arguments: str | Path, within: Path) -> str:
    """Run an example as a script in a folder: its output."""
    matplotlib.use("Agg")
    argv = [name, *map(str, arguments)]
    with (
        contextlib.redirect_stdout(io.StringIO()) as printed,
        contextlib.chdir(within),
        mock.patch.object(sys, "argv", argv),
    ):
        runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    plt.close("all")
    return printed.getvalue()


def _run_alone(name: str, *arguments: str | Path, within: Path) -> str:
    """Run an example in a folder, in a process of its own: its output."""
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / name, *arguments],
        cwd=within, text=True, capture_output=True, timeout=240,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
