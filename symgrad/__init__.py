"""symgrad: a plain Python loss in, one fused GPU kernel out.

>>> import symgrad as sg
>>> kernel = sg.fused_forward_backward(2, lambda v: (1 - v[0])**2 + 100 * (v[1] - v[0]**2)**2)
>>> kernel.run([1.0, 1.0])[0]
0.0
"""

from typing import TYPE_CHECKING, Any

from symgrad.errors import (
    BufferUnknownError,
    DeviceError,
    DeviceLostError,
    DeviceMemoryError,
    DeviceWarning,
    DifferentiationError,
    ExhaustedError,
    ExhaustedWarning,
    ForeignExpressionError,
    FrozenRandomWarning,
    InputError,
    InputTypeError,
    NamesakeWarning,
    NameUnknownError,
    PickleError,
    PrecisionWarning,
    ProgramError,
    SizeWarning,
    SymgradError,
    TraceError,
    UnsupportedError,
)
from symgrad.expr.calls import numpy_calls, special
from symgrad.expr.calls.numpy_choices import interp, table
from symgrad.expr.calls.special import (
    betaln,
    log_softmax,
    logsumexp,
    polygamma,
    softmax,
    wofz,
    zeta,
)
from symgrad.expr.semantics.show import dot, latex, text
from symgrad.expr.tracers import functions
from symgrad.expr.tracers.array import ExprArray, TracedArray, array
from symgrad.expr.tracers.expression import Condition, Expr, symbols, var
from symgrad.expr.tracers.functions import *
from symgrad.lazy import arithmetic as _arithmetic
from symgrad.lazy import cumulative as _cumulative
from symgrad.lazy import kernels as _kernels

if TYPE_CHECKING:
    from symgrad.bridges.from_jax import from_jax
    from symgrad.checks import Report, check
    from symgrad.expr.calls import random
    from symgrad.expr.calls.splines import CubicSpline
    from symgrad.expr.calls.sympy_bridge import from_sympy, to_sympy
    from symgrad.expr.calls.verbs import (
        Jacobian,
        count_ops,
        evaluate,
        grad,
        hessian,
        hvp,
        jacobian,
        jvp,
        vjp,
    )
    from symgrad.expr.linear import linalg
    from symgrad.expr.loops.control import cond, fori_loop, scan, switch, while_loop
    from symgrad.expr.loops.implicit import custom_root, fixed_point
    from symgrad.expr.loops.quadrature import quad
    from symgrad.expr.tracers.functions import int32, uint32
    from symgrad.fit.curve_fit import curve_fit
    from symgrad.fit.fit_many import fit_many
    from symgrad.fit.model_fit import ModelFit, fit_model
    from symgrad.fit.scipy_minimize import minimize
    from symgrad.front.functional import value_and_grad
    from symgrad.front.fused import (
        forward_backward,
        fused_forward,
        fused_forward_backward,
        fused_hessian,
        fused_hvp,
        fused_jacobian,
        fused_least_squares,
    )
    from symgrad.front.jit import jit, vmap
    from symgrad.front.kernels import Kernel
    from symgrad.front.network import Network, network
    from symgrad.kernel.stats import Stats
    from symgrad.ode.explicit import Tableau
    from symgrad.ode.integration import OdeResult
    from symgrad.ode.solve import solve_ivp
    from symgrad.optimize import schedules
    from symgrad.optimize.lbfgs import LBFGS
    from symgrad.optimize.least_squares import LevenbergMarquardt
    from symgrad.optimize.method import Evaluation, Method, Move, Rule, Tolerances
    from symgrad.optimize.minimize import minimize_from
    from symgrad.optimize.newton import GaussNewton, Newton
    from symgrad.optimize.result import FitError
    from symgrad.optimize.rules import Adam, AdamW, Clipped, GradientDescent, Momentum
    from symgrad.petab.problem import PetabProblem, from_petab
    from symgrad.programs.builder import Builder, Variable
    from symgrad.programs.program import Program, grad_program, program
    from symgrad.report.audit import Audit, Suspect
    from symgrad.report.device import Memory, free_memory, memory
    from symgrad.report.profiling import Profile, profile
    from symgrad.report.progress import Progress
    from symgrad.rows.bound import BoundKernel
    from symgrad.rows.each_row import RowsKernel
    from symgrad.rows.kernel import DataKernel
    from symgrad.rows.squares import LeastSquaresKernel
    from symgrad.rows.sums import SumsKernel
    from symgrad.targets import Device, device_array, devices
    from symgrad.tensor.associative import associative_scan
    from symgrad.tensor.kernel import TensorKernel, TensorStats
    from symgrad.tensor.layers import gemm_bias, linear, rowwise
    from symgrad.tensor.nests import device_put, load_arrays, save_arrays
    from symgrad.tensor.optimizers import adamw_update, clip_by_global_norm
    from symgrad.tensor.selective import selective_scan
    from symgrad.tensor.stencil import causal_convolution, stencil
    from symgrad.web.model import export_html, export_js
    from symgrad.wgsl.arrays.array import DeviceArray

__version__ = "0.2.0"

numpy_calls.install()

__all__ = [
    "LBFGS",
    "Adam",
    "AdamW",
    "Audit",
    "BoundKernel",
    "BufferUnknownError",
    "Builder",
    "Clipped",
    "Condition",
    "CubicSpline",
    "DataKernel",
    "Device",
    "DeviceArray",
    "DeviceError",
    "DeviceLostError",
    "DeviceMemoryError",
    "DeviceWarning",
    "DifferentiationError",
    "Evaluation",
    "ExhaustedError",
    "ExhaustedWarning",
    "Expr",
    "ExprArray",
    "FitError",
    "ForeignExpressionError",
    "FrozenRandomWarning",
    "GaussNewton",
    "GradientDescent",
    "InputError",
    "InputTypeError",
    "Jacobian",
    "Kernel",
    "LeastSquaresKernel",
    "LevenbergMarquardt",
    "Memory",
    "Method",
    "ModelFit",
    "Momentum",
    "Move",
    "NameUnknownError",
    "NamesakeWarning",
    "Network",
    "Newton",
    "OdeResult",
    "PetabProblem",
    "PickleError",
    "PrecisionWarning",
    "Profile",
    "Program",
    "ProgramError",
    "Progress",
    "Report",
    "RowsKernel",
    "Rule",
    "SizeWarning",
    "Stats",
    "SumsKernel",
    "Suspect",
    "SymgradError",
    "Tableau",
    "TensorKernel",
    "TensorStats",
    "Tolerances",
    "TraceError",
    "TracedArray",
    "UnsupportedError",
    "Variable",
    "adamw_update",
    "array",
    "associative_scan",
    "betaln",
    "causal_convolution",
    "check",
    "clip_by_global_norm",
    "cond",
    "count_ops",
    "curve_fit",
    "custom_root",
    "device_array",
    "device_put",
    "devices",
    "dot",
    "evaluate",
    "export_html",
    "export_js",
    "fit_many",
    "fit_model",
    "fixed_point",
    "fori_loop",
    "forward_backward",
    "free_memory",
    "from_jax",
    "from_petab",
    "from_sympy",
    "fused_forward",
    "fused_forward_backward",
    "fused_hessian",
    "fused_hvp",
    "fused_jacobian",
    "fused_least_squares",
    "gemm_bias",
    "grad",
    "grad_program",
    "hessian",
    "hvp",
    "int32",
    "interp",
    "jacobian",
    "jit",
    "jvp",
    "latex",
    "linalg",
    "linear",
    "load_arrays",
    "log_softmax",
    "logsumexp",
    "memory",
    "minimize",
    "minimize_from",
    "network",
    "polygamma",
    "profile",
    "program",
    "quad",
    "random",
    "rowwise",
    "save_arrays",
    "scan",
    "schedules",
    "selective_scan",
    "softmax",
    "solve_ivp",
    "stencil",
    "switch",
    "symbols",
    "table",
    "text",
    "to_sympy",
    "uint32",
    "value_and_grad",
    "var",
    "vjp",
    "vmap",
    "while_loop",
    "wofz",
    "zeta",
]
__all__ += functions.__all__

_LATER = {
    "symgrad.report.audit": "Audit Suspect",
    "symgrad.bridges.from_jax": "from_jax",
    "symgrad.rows.bound": "BoundKernel",
    "symgrad.checks": "Report check",
    "symgrad.rows.kernel": "DataKernel",
    "symgrad.expr.calls": "random",
    "symgrad.expr.linear": "linalg",
    "symgrad.expr.tracers.functions": "int32 uint32",
    "symgrad.expr.loops.control": "cond fori_loop scan switch while_loop",
    "symgrad.expr.loops.implicit": "custom_root fixed_point",
    "symgrad.expr.loops.quadrature": "quad",
    "symgrad.expr.calls.splines": "CubicSpline",
    "symgrad.expr.calls.sympy_bridge": "from_sympy to_sympy",
    "symgrad.expr.calls.verbs": "Jacobian count_ops evaluate grad hessian hvp jacobian jvp vjp",
    "symgrad.front.functional": "value_and_grad",
    "symgrad.front.fused": "forward_backward fused_forward fused_forward_backward fused_jacobian "
    "fused_hessian fused_hvp fused_least_squares",
    "symgrad.front.jit": "jit vmap",
    "symgrad.front.kernels": "Kernel",
    "symgrad.report.device": "Memory free_memory memory",
    "symgrad.ode.integration": "OdeResult",
    "symgrad.ode.solve": "solve_ivp",
    "symgrad.ode.explicit": "Tableau",
    "symgrad.petab.problem": "PetabProblem from_petab",
    "symgrad.optimize": "schedules",
    "symgrad.fit.curve_fit": "curve_fit",
    "symgrad.fit.fit_many": "fit_many",
    "symgrad.fit.model_fit": "ModelFit fit_model",
    "symgrad.optimize.lbfgs": "LBFGS",
    "symgrad.optimize.least_squares": "LevenbergMarquardt",
    "symgrad.optimize.method": "Evaluation Method Move Rule Tolerances",
    "symgrad.optimize.minimize": "minimize_from",
    "symgrad.optimize.newton": "GaussNewton Newton",
    "symgrad.optimize.result": "FitError",
    "symgrad.optimize.rules": "Adam AdamW Clipped GradientDescent Momentum",
    "symgrad.fit.scipy_minimize": "minimize",
    "symgrad.programs.builder": "Builder Variable",
    "symgrad.programs.program": "Program grad_program program",
    "symgrad.report.profiling": "Profile profile",
    "symgrad.report.progress": "Progress",
    "symgrad.rows.each_row": "RowsKernel",
    "symgrad.rows.sums": "SumsKernel",
    "symgrad.rows.squares": "LeastSquaresKernel",
    "symgrad.kernel.stats": "Stats",
    "symgrad.targets": "Device device_array devices",
    "symgrad.tensor.kernel": "TensorKernel TensorStats",
    "symgrad.tensor.layers": "gemm_bias linear rowwise",
    "symgrad.tensor.nests": "device_put load_arrays save_arrays",
    "symgrad.front.network": "Network network",
    "symgrad.tensor.optimizers": "adamw_update clip_by_global_norm",
    "symgrad.tensor.associative": "associative_scan",
    "symgrad.tensor.selective": "selective_scan",
    "symgrad.tensor.stencil": "causal_convolution stencil",
    "symgrad.web.model": "export_html export_js",
    "symgrad.wgsl.arrays.array": "DeviceArray",
}
"""Names by their modules, which are loaded when one is asked for: few programs need all of them."""

_arithmetic.stands_for = "symgrad.wgsl.dispatch.arithmetic"
_cumulative.stands_for = "symgrad.tensor.associative"
_kernels.stands_for = "symgrad"

_HOMES = {name: module for module, names in _LATER.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """The value of ``from module import name``, for a name of `_LATER`."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{_elsewhere(name)}")
    value = getattr(__import__(_HOMES[name], fromlist=[name]), name)
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
    return sorted([*__all__, "__version__"])
