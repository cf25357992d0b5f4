"""The public names, and the modules that have them: `symgrad` loads each when it is asked for."""

from symgrad.bridges.from_jax import from_jax as from_jax
from symgrad.checks import Report as Report, check as check
from symgrad.errors import (
    BufferUnknownError as BufferUnknownError,
    DeviceError as DeviceError,
    DeviceLostError as DeviceLostError,
    DeviceMemoryError as DeviceMemoryError,
    DeviceWarning as DeviceWarning,
    DifferentiationError as DifferentiationError,
    ExhaustedError as ExhaustedError,
    ExhaustedWarning as ExhaustedWarning,
    ForeignExpressionError as ForeignExpressionError,
    FrozenRandomWarning as FrozenRandomWarning,
    InputError as InputError,
    InputTypeError as InputTypeError,
    NamesakeWarning as NamesakeWarning,
    NameUnknownError as NameUnknownError,
    PickleError as PickleError,
    PrecisionWarning as PrecisionWarning,
    ProgramError as ProgramError,
    SizeWarning as SizeWarning,
    SymgradError as SymgradError,
    TraceError as TraceError,
    UnsupportedError as UnsupportedError,
)
from symgrad.expr.calls import random as random
from symgrad.expr.calls.numpy_functions import interp as interp, table as table
from symgrad.expr.calls.special import (
    betaln as betaln,
    log_softmax as log_softmax,
    logsumexp as logsumexp,
    polygamma as polygamma,
    softmax as softmax,
    wofz as wofz,
    zeta as zeta,
)
from symgrad.expr.calls.splines import CubicSpline as CubicSpline
from symgrad.expr.calls.sympy_bridge import from_sympy as from_sympy, to_sympy as to_sympy
from symgrad.expr.calls.verbs import (
    Jacobian as Jacobian,
    count_ops as count_ops,
    evaluate as evaluate,
    grad as grad,
    hessian as hessian,
    hvp as hvp,
    jacobian as jacobian,
    jvp as jvp,
    vjp as vjp,
)
from symgrad.expr.linear import linalg as linalg
from symgrad.expr.loops.control import (
    cond as cond,
    fori_loop as fori_loop,
    scan as scan,
    switch as switch,
    while_loop as while_loop,
)
from symgrad.expr.loops.implicit import custom_root as custom_root, fixed_point as fixed_point
from symgrad.expr.loops.quadrature import quad as quad
from symgrad.expr.semantics.show import dot as dot, latex as latex, text as text
from symgrad.expr.tracers.array import (
    ExprArray as ExprArray,
    TracedArray as TracedArray,
    array as array,
)
from symgrad.expr.tracers.expression import (
    Condition as Condition,
    Expr as Expr,
    symbols as symbols,
    var as var,
)
from symgrad.expr.tracers.functions import *
from symgrad.expr.tracers.functions import int32 as int32, uint32 as uint32
from symgrad.fit.curve_fit import curve_fit as curve_fit
from symgrad.fit.fit_many import fit_many as fit_many
from symgrad.fit.model_fit import ModelFit as ModelFit, fit_model as fit_model
from symgrad.fit.scipy_minimize import minimize as minimize
from symgrad.front.functional import value_and_grad as value_and_grad
from symgrad.front.fused import (
    forward_backward as forward_backward,
    fused_forward as fused_forward,
    fused_forward_backward as fused_forward_backward,
    fused_hessian as fused_hessian,
    fused_hvp as fused_hvp,
    fused_jacobian as fused_jacobian,
    fused_least_squares as fused_least_squares,
)
from symgrad.front.jit import jit as jit, vmap as vmap
from symgrad.front.kernels import Kernel as Kernel
from symgrad.front.network import Network as Network, network as network
from symgrad.kernel.stats import Stats as Stats
from symgrad.ode.explicit import Tableau as Tableau
from symgrad.ode.integration import OdeResult as OdeResult
from symgrad.ode.solve import solve_ivp as solve_ivp
from symgrad.optimize import schedules as schedules
from symgrad.optimize.lbfgs import LBFGS as LBFGS
from symgrad.optimize.least_squares import LevenbergMarquardt as LevenbergMarquardt
from symgrad.optimize.method import (
    Evaluation as Evaluation,
    Method as Method,
    Move as Move,
    Rule as Rule,
    Tolerances as Tolerances,
)
from symgrad.optimize.minimize import minimize_from as minimize_from
from symgrad.optimize.newton import GaussNewton as GaussNewton, Newton as Newton
from symgrad.optimize.result import FitError as FitError
from symgrad.optimize.rules import (
    Adam as Adam,
    AdamW as AdamW,
    Clipped as Clipped,
    GradientDescent as GradientDescent,
    Momentum as Momentum,
)
from symgrad.petab.problem import PetabProblem as PetabProblem, from_petab as from_petab
from symgrad.programs.builder import Builder as Builder, Variable as Variable
from symgrad.programs.program import (
    Program as Program,
    grad_program as grad_program,
    program as program,
)
from symgrad.report.audit import Audit as Audit, Suspect as Suspect
from symgrad.report.device import Memory as Memory, free_memory as free_memory, memory as memory
from symgrad.report.profiling import Profile as Profile, profile as profile
from symgrad.report.progress import Progress as Progress
from symgrad.rows.bound import BoundKernel as BoundKernel
from symgrad.rows.each_row import RowsKernel as RowsKernel
from symgrad.rows.kernel import DataKernel as DataKernel
from symgrad.rows.squares import LeastSquaresKernel as LeastSquaresKernel
from symgrad.rows.sums import SumsKernel as SumsKernel
from symgrad.targets import Device as Device, device_array as device_array, devices as devices
from symgrad.tensor.associative import associative_scan as associative_scan
from symgrad.tensor.kernel import TensorKernel as TensorKernel, TensorStats as TensorStats
from symgrad.tensor.layers import gemm_bias as gemm_bias, linear as linear, rowwise as rowwise
from symgrad.tensor.nests import (
    device_put as device_put,
    load_arrays as load_arrays,
    save_arrays as save_arrays,
)
from symgrad.tensor.optimizers import (
    adamw_update as adamw_update,
    clip_by_global_norm as clip_by_global_norm,
)
from symgrad.tensor.selective import selective_scan as selective_scan
from symgrad.tensor.stencil import causal_convolution as causal_convolution, stencil as stencil
from symgrad.web.model import export_html as export_html, export_js as export_js
from symgrad.wgsl.arrays.array import DeviceArray as DeviceArray

__all__: list[str]
__version__: str
