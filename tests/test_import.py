"""What ``import symgrad`` loads, and what only those need who use it."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import symgrad as sg

LATER = ("cffi", "pycparser", "sympy", "mpmath", "wgpu", "scipy", "matplotlib", "pandas", "IPython")
"""Packages that most programs never need, or not at once."""


def python(code: str) -> str:
    """What code prints in a process of its own."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert not done.returncode, done.stderr
    return done.stdout


def test_importing_loads_no_package_that_is_needed_later() -> None:
    code = f"""
import sys
import symgrad as sg
sg.fused_forward_backward(2, lambda v: sg.gammaln(v[0]) * v[1], device="cpu").run([2.5, 1.0])
print([name for name in {LATER} if name in sys.modules])
"""
    assert python(code) == "[]\n"


@pytest.mark.parametrize("name", ["check", "Report", "from_sympy", "to_sympy"])
def test_what_needs_sympy_is_loaded_when_it_is_asked_for(name: str) -> None:
    code = f"""
import sys
import symgrad as sg
assert {name!r} in dir(sg) and "sympy" not in sys.modules
print(sg.{name}.__name__, "sympy" in sys.modules)
"""
    assert python(code) == f"{name} True\n"


def test_importing_loads_the_expressions_alone() -> None:
    code = """
import sys
import symgrad
loaded = {name.split(".")[1] for name in sys.modules if name.startswith("symgrad.")}
print(loaded & {"wgsl", "llvm", "kernel", "mathlib", "optimize", "pipeline", "kernels"})
later = "derivatives.sweep", "loops.control", "linear.linalg", "laws.simplify", "calls.verbs"
print([name for name in later if f"symgrad.expr.{name}" in sys.modules])
"""
    assert python(code) == "set()\n[]\n"


@pytest.mark.parametrize(
    "first",
    ["np.sqrt(sg.var('x'))", "np.stack([sg.var('x')])",
     "sg.minimize_from(lambda v: v @ v, 2, [[1.0, 2.0]], sg.Adam(0.5), 1, device='cpu').x"],
)  # fmt: skip
def test_numpy_takes_expressions_whatever_is_loaded_first(first: str) -> None:
    assert python(f"import numpy as np, symgrad as sg; print({first})").strip()


def test_public_names_are_those_that_type_checkers_see() -> None:
    stub = ast.parse(Path(sg.__file__).with_suffix(".pyi").read_text("utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    aliases = [alias for node in imports for alias in node.names if alias.name != "*"]
    assert all(alias.asname == alias.name for alias in aliases)  # others would not be exported
    (rows,) = (node.module for node in imports if node.names[0].name == "*")
    names = [alias.name for alias in aliases] + importlib.import_module(str(rows)).__all__
    assert sorted(names) == sorted(sg.__all__) and len(names) == len({*names})


def test_a_star_imports_all_public_names() -> None:
    names: dict[str, object] = {}
    exec("from symgrad import *", names)
    assert {*sg.__all__} <= {*names}


def test_every_public_name_is_there() -> None:
    for name in sg.__all__:
        assert getattr(sg, name) is not None
    with pytest.raises(AttributeError, match="module 'symgrad' has no attribute 'nothing'"):
        getattr(sg, "nothing")  # noqa: B009


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("kv", r"'kv': call scipy\.special\.kv, which takes traced"),
        ("arctan2", r"'arctan2': call np\.arctan2"),
        ("exprel", r"'exprel': write np\.expm1\(x\) / x"),
    ],
)
def test_functions_of_other_packages_are_named(name: str, remedy: str) -> None:
    with pytest.raises(AttributeError, match=remedy):
        getattr(sg, name)
