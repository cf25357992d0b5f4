"""The examples, each as a program of its own; they assert their results themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import symgrad as sg

ROOT = Path(__file__).parents[1]
SMALL = {
    "01_rosenbrock_descent.py": ("--starts", "8"),
    "02_inverse_kinematics.py": ("--targets", "50"),
    "03_himmelblau_basins.py": ("--side", "60"),
    "04_sympy_lagrangian.py": ("--pendulums", "2", "--seconds", "2"),
    "05_audit.py": (),
    "06_confidence_bands.py": (),
    "07_single_molecules.py": ("--spots", "20000"),
    "08_basins_of_minimize.py": ("--side", "60"),
    "09_network_from_disk.py": ("--rows", "60000", "--batch", "500", "--epochs", "5"),
    "10_torch_and_optax.py": (),
    "11_bundle_adjustment.py": ("--cameras", "12", "--points", "200"),
    "12_hares_and_lynx.py": ("--curves", "50"),
    "13_kalman_filter.py": ("--side", "40"),
    "14_a_million_chains.py": ("--chains", "4000"),
}
"""The arguments that make an example quick."""

EITHER = {"10_torch_and_optax.py": ("torch", "optax")}
"""Examples with packages of which one must be there."""

DEVICES = sorted({"gpu" if d.is_gpu else "cpu" for d in sg.devices()})


def test_every_example_is_tested() -> None:
    assert sorted(SMALL) == sorted(p.name for p in ROOT.glob("examples/*.py"))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", SMALL)
def test_example(name: str, device: str, tmp_path: Path) -> None:
    if name in EITHER and not any(map(find_spec, EITHER[name])):
        pytest.skip(f"none of {', '.join(EITHER[name])} is installed")
    picture = tmp_path / "picture.png"
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / name, *SMALL[name],
         "--device", device, "--output", picture],
        cwd=tmp_path, text=True, capture_output=True, timeout=240,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert list(tmp_path.iterdir()) == [picture]
