"""symgrad: a plain Python loss in, one fused GPU kernel out.

>>> import symgrad as sg
>>> kernel = sg.fused_forward_backward(2, lambda v: (1 - v[0])**2 + 100 * (v[1] - v[0]**2)**2)
>>> kernel.run([1.0, 1.0])[0]
0.0
"""

import ast as _ast
from functools import cache as _cache
from pathlib import Path as _Path
from typing import Any

from symgrad.expr.calls import numpy_calls, special
from symgrad.expr.tracers import functions
from symgrad.expr.tracers.functions import *
from symgrad.lazy import arithmetic as _arithmetic
from symgrad.lazy import cumulative as _cumulative
from symgrad.lazy import definitions as _definitions
from symgrad.lazy import kernels as _kernels
from symgrad.lazy import machine_code as _machine_code

__version__ = "0.2.0"

numpy_calls.install()

_arithmetic.stands_for = "symgrad.wgsl.dispatch.arithmetic"
_cumulative.stands_for = "symgrad.tensor.associative"
_machine_code.stands_for = "symgrad.llvm.device.cpu"
_definitions.stands_for = "symgrad.mathlib.evaluate"
_kernels.stands_for = "symgrad"


@_cache
def _homes() -> dict[str, str]:
    """The module of each public name, as the stub beside this file tells type checkers.

    Most programs need few of these modules: each is loaded when a name of it is asked for.
    """
    loader: Any = __spec__.loader  # which reads from a zip file, too
    stub = _ast.parse(loader.get_data(str(_Path(__file__).with_suffix(".pyi"))))
    imports = [node for node in stub.body if isinstance(node, _ast.ImportFrom)]
    return {a.name: str(i.module) for i in imports for a in i.names if a.asname}


def __getattr__(name: str) -> Any:
    """The value of ``from module import name``, and all public names as ``__all__``."""
    if name == "__all__":
        return [*sorted(_homes()), *functions.__all__]
    if name not in _homes():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_elsewhere(name)}")
    value = getattr(__import__(_homes()[name], fromlist=[name]), name)
    globals()[name] = value
    return value


def _elsewhere(name: str) -> str:
    """Where a function stands that traced functions call by the name of another package."""
    if name in special.SCIPY:
        return f": call scipy.special.{name}, which takes traced values"
    if name in special.INSTEAD:
        return f": write {special.INSTEAD[name]}"
    if any(ufunc.__name__ == name for ufunc in numpy_calls.UFUNCS):
        return f": call np.{name}, which takes traced values"
    return ""


def __dir__() -> list[str]:
    return sorted([*__getattr__("__all__"), "__version__"])
