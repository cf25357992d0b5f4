"""The pages of the reference: which public name stands where."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

import symgrad as sg
from symgrad.expr.tracers import functions
from symgrad.report.kernel import KernelBase


@dataclass(frozen=True)
class Group:
    """A page of the reference: its file, what it is about, and the names of symgrad it has.

    Classes of modules that need other packages are beside them, by their whole names.
    """

    file: str
    title: str
    about: str
    names: tuple[str, ...]
    beside: str = ""


def _group(file: str, title: str, about: str, names: str, beside: str = "") -> Group:
    return Group(file, title, about, tuple(names.split()), beside)


SPECIAL = "betaln interp log_softmax logsumexp polygamma softmax table wofz zeta CubicSpline"
ERRORS = " ".join(
    name
    for name in sg.__all__
    if inspect.isclass(getattr(sg, name)) and issubclass(getattr(sg, name), (Exception, Warning))
)

GROUPS = (
    _group("kernels", "Kernels of functions", "Functions of points, and what is made of them.",
           "fused_forward_backward fused_forward fused_jacobian fused_hessian fused_hvp "
           "forward_backward value_and_grad jit vmap Kernel Stats check Report"),
    _group("data", "Losses over data", "Losses, residuals and results of the rows of a table.",
           "fused_least_squares DataKernel SumsKernel RowsKernel LeastSquaresKernel BoundKernel"),
    _group("fits", "Fits", "Models fitted to curves, and functions minimised, as SciPy has them.",
           "curve_fit fit_many fit_model ModelFit minimize"),
    _group("optimisers", "Optimisers", "Methods that run in a kernel, and how to write another.",
           "minimize_from GradientDescent Momentum Adam AdamW LBFGS Newton GaussNewton "
           "LevenbergMarquardt Clipped schedules Tolerances Method Rule Evaluation Move"),
    _group("loops", "Loops and branches", "Control flow with JAX's names, in kernels.",
           "fori_loop while_loop scan cond switch fixed_point custom_root quad"),
    _group("equations", "Differential equations", "Solved for one problem or for many, in kernels.",
           "solve_ivp OdeResult Tableau from_petab PetabProblem"),
    _group("functions", "Functions", "Of expressions, of arrays of them, and of numbers. "
           ":doc:`The table of operations </ops>` has their derivatives.",
           " ".join([*functions.__all__, SPECIAL])),
    _group("expressions", "Expressions", "What is traced, by itself: built, derived, shown.",
           "var symbols Expr Condition array ExprArray TracedArray int32 uint32 grad jacobian "
           "Jacobian hessian hvp jvp vjp evaluate count_ops text latex dot from_sympy to_sympy"),
    _group("modules", "Random numbers and matrices", "Two modules of functions for kernels.",
           "random linalg"),
    _group("tensor", "Kernels of arrays", "Layers, scans, rows and updates on a device.",
           "linear gemm_bias rowwise associative_scan selective_scan causal_convolution stencil "
           "network Network adamw_update clip_by_global_norm device_put save_arrays load_arrays "
           "TensorKernel TensorStats"),
    _group("programs", "Programs", "Kernels that are written statement by statement.",
           "program grad_program Program Builder Variable"),
    _group("devices", "Devices", "Where kernels run, and arrays that stay there.",
           "devices Device device_array DeviceArray memory free_memory Memory"),
    _group("reports", "Reports", "Where precision and time go, and how far a long call has got.",
           "Audit Suspect profile Profile Progress"),
    _group("elsewhere", "Elsewhere", "Kernels for browsers and of other frameworks. Kernels also "
           "have ``export_js``, ``as_torch`` and ``as_jax``.",
           "export_html export_js from_jax", "symgrad.sklearn.CurveRegressor"),
    _group("errors", "Errors and warnings",
           "Errors are a :py:obj:`SymgradError <symgrad.SymgradError>` "
           "and the built-in error one would expect, warnings a ``UserWarning``.", ERRORS),
)  # fmt: skip


def pages() -> Iterator[tuple[str, str]]:
    """The file of each page, and its text."""
    contents = "\n".join(f"   {group.file}" for group in GROUPS)
    yield (
        "index",
        f"{_title('Reference')}\nEvery public name, with an example; "
        f":ref:`genindex` has them in order.\n\n"
        f".. toctree::\n   :maxdepth: 1\n\n{contents}\n",
    )
    for group in GROUPS:
        entries = "\n".join(map(_entry, group.names)) + _class(group.beside)
        yield group.file, f"{_title(group.title)}\n{group.about}\n\n{entries}"


def _title(text: str) -> str:
    return f"{text}\n{'=' * len(text)}\n"


def _entry(name: str) -> str:
    """What Sphinx is told to write about a public name, "random.normal" too."""
    value = operator.attrgetter(name)(sg)
    if isinstance(value, ModuleType):
        parts = "\n".join(_entry(f"{name}.{part}") for part in offered(value))
        about = f".. automodule:: {value.__name__}\n   :no-index:\n"
        return f".. py:module:: symgrad.{name}\n\n{about}\n{parts}"
    if not inspect.isclass(value):
        return f".. autofunction:: symgrad.{name}\n"
    entry = _class(f"symgrad.{name}", not issubclass(value, (Exception, Warning)))
    return entry + "   :inherited-members:\n" * issubclass(value, KernelBase)


def _class(name: str, members: bool = True) -> str:
    """A class, with what it has, if that is its own."""
    return f".. autoclass:: {name}\n{'   :members:' * members}\n" if name else ""


def offered(module: ModuleType) -> list[str]:
    """The functions and classes that a module has for users."""
    own = getattr(module, "__all__", ())
    return [
        name
        for name, value in vars(module).items()
        if (inspect.isfunction(value) or inspect.isclass(value))
        and not name.startswith("_")
        and (name in own if own else value.__module__ == module.__name__)
    ]
