"""The messages of misuse: what went wrong in a traced function, on which line, and the remedy."""

from __future__ import annotations

import re
from typing import Final, NoReturn

import numpy as np

from symgrad.errors import SymgradError, TraceError
from symgrad.expr.graph.place import (
    Place,
    called_at,
    called_with_one,
    caller,
    raised_at,
    scipy_call,
    scipy_function,
)

MATH_NAMES: Final = {"fabs": "abs", "dist": "hypot"}
"""Functions of math that symgrad has by another name."""


_FOR_SCIPYS: Final = {
    **dict.fromkeys(
        ("solve", "inv", "det", "lstsq", "eigh", "eigvalsh", "cholesky", "norm"),
        "use NumPy's, np.linalg.{}",
    ),
    **dict.fromkeys(("logsumexp", "softmax", "log_softmax", "polygamma"), "use sg.{}"),
    "trapezoid": "use NumPy's, np.trapezoid",
    **dict.fromkeys(
        ("cho_factor", "cho_solve"), "use np.linalg.cholesky and sg.linalg.solve_triangular"
    ),
    **dict.fromkeys(("lu", "lu_factor", "lu_solve"), "use np.linalg.solve"),
    **dict.fromkeys(("sqrtm", "logm"), "of a symmetric matrix use np.linalg.eigh"),
    **dict.fromkeys(
        ("svd", "svdvals"),
        "use np.linalg.lstsq for singular values, np.linalg.eigh(A.T @ A) for all",
    ),
    "solve_triangular": "use sg.linalg.solve_triangular",
    "expm": "use sg.linalg.expm",
    **dict.fromkeys(
        ("solve_ivp", "odeint"),
        "use sg.solve_ivp(f, (start, end), y0), which also solves within a traced function",
    ),
    **dict.fromkeys(
        ("brentq", "brenth", "bisect", "newton", "root", "root_scalar", "fsolve"),
        "use sg.custom_root, which differentiates the root that your own solver finds",
    ),
    **dict.fromkeys(
        ("minimize", "minimize_scalar", "least_squares", "curve_fit"),
        "use sg.custom_root of the gradient, or sg.fixed_point, which differentiate the end of an "
        "iteration",
    ),
    **dict.fromkeys(
        ("interp1d", "CubicSpline", "make_interp_spline", "BSpline", "PPoly", "splrep", "splev"),
        "use np.interp or sg.CubicSpline",
    ),
    **dict.fromkeys(
        ("pdf", "logpdf", "pmf", "logpmf"),
        "write the density out, with sg.gammaln and sg.betaln where it has factorials",
    ),
    **dict.fromkeys(
        ("cdf", "logcdf", "sf", "logsf", "ppf", "isf"),
        "use the function of the distribution: sg.ndtr, sg.log_ndtr, sg.ndtri, sg.gammainc, "
        "sg.betainc, or write it out",
    ),
    **dict.fromkeys(
        ("quad", "quad_vec", "fixed_quad", "tanhsinh"),
        "use sg.quad, which integrates a traced function in the kernel",
    ),
    **dict.fromkeys(
        ("dblquad", "tplquad", "nquad"), "use sg.quad of a function that calls sg.quad"
    ),
    **dict.fromkeys(
        ("gaussian_filter", "convolve", "correlate", "uniform_filter", "map_coordinates"),
        "use np.convolve, np.interp, or a product with the matrix of the filter",
    ),
}
"""Remedies for Python functions of SciPy's, by name."""


def _for_scipys(name: str) -> str:
    """The remedy for a call of SciPy's function of this name."""
    remedy = _FOR_SCIPYS.get(name, "of SciPy only ufuncs, such as gammaln, can be traced")
    return f"\n  SciPy's {name} computes with numbers: {remedy.format(name)}"


_FRAMEWORKS: Final = re.compile(
    r"symgrad\.expr\.tracers\.|not a valid JAX array type|does not accept dtype object|"
    r"must be Tensor, not \w*(Expr|Condition)"
)
"""Complaints of JAX and PyTorch about expressions."""


def _for_frameworks(complaint: str, place: Place) -> str:
    """The remedy for a function of JAX's or PyTorch's, on this line."""
    whose = "PyTorch" if "Tensor" in complaint else "JAX"
    called = re.search(r"\b(?:jnp|jax\.numpy|jax\.nn|jax\.lax|lax|torch)\.(\w+)\(", place.text)
    name = f", np.{called[1]}" if called and hasattr(np, called[1]) else ""
    return (
        f"{whose}'s functions take {whose}'s arrays, not expressions: use NumPy's{name}, or "
        f"symgrad's\n  at {place}"
    )


_NUMPYS: Final = re.compile(r"\b(?:np|numpy)\.([\w.]+)\(\s*([\[(])?")
"""A call of NumPy's, and whether it begins with a list."""


def _list_given(part: str) -> str:
    """The remedy where NumPy's function got a list, which it turns into an array of its own."""
    match = _NUMPYS.search(part)
    if not match or not match[2]:
        return ""
    return f"NumPy turns a list into an array of its own; use np.{match[1]}(sg.array([...]), ...)"


def located(message: str) -> str:
    """The message with the user's line below it, and what to do where SciPy's code is at work."""
    line, name = caller(), scipy_function()
    place = f"\n  at {line[0]}" if line else ""
    return f"{message}{place}{_for_scipys(name) if name else ''}"


_AS_INDICES: Final = re.compile(
    "valid indices|used as indices|Cannot cast array data from dtype.*int64"
)
"""NumPy's complaints of expressions that look up elements of its arrays."""


class Explaining:
    """A context in which complaints that expressions are no numbers say what to write.

    Those are of SciPy's functions, and of NumPy's arrays of numbers that are indexed.
    """

    __slots__ = ()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (IndexError, TypeError)) and _AS_INDICES.search(str(error)):
            place = raised_at(error) or called_at(error)
            if place:
                raise TraceError(
                    "a NumPy array of numbers takes integers as indices, not an expression such "
                    "as the counter of a loop: use sg.array(a)[k]"
                    f"\n  at {place}"
                ) from error
        elif isinstance(error, TypeError) and called_with_one(error):
            raise TraceError(
                "a traced function takes all its variables as one array: write lambda v: f(*v), "
                f"or take them apart in it, as x, y = v ({error})"
            ) from error
        elif isinstance(error, Exception) and not isinstance(error, SymgradError):
            call = scipy_call(error)
            if call:
                name, place = call
                message = f"SciPy's {name} takes no expressions\n  at {place}"
                raise TraceError(f"{message}{_for_scipys(name)}") from error
            if _FRAMEWORKS.search(str(error)):
                raise TraceError(_for_frameworks(str(error), called_at(error))) from error


def refuse_bool() -> NoReturn:
    """Raise the error of asking whether an expression is true."""
    line = caller()
    part = line[1] if line else ""
    if scipy_function():
        remedy = "SciPy's code asks whether it is"
    elif _list_given(part):
        remedy = _list_given(part)
    elif re.search(r"\b(min|max)\(", part):
        remedy = "Python's min and max compare values; use sg.minimum and sg.maximum"
    elif re.search(r"\b(sorted|sort|argsort)\(", part):
        remedy = "sorting depends on values; use sg.minimum and sg.maximum, or sg.where"
    elif re.search(r"\bin\b", part) and "for " not in part:
        remedy = "`in` compares values; use sg.where on comparisons joined by |"
    elif line and re.search(r"\b(and|or|not)\b", line[0].text):
        remedy = "use & for and, | for or, ~ for not, and sg.where(condition, a, b) to choose"
    else:
        remedy = "use sg.where(condition, a, b), which takes both branches into the kernel"
    raise TraceError(
        located(f"an expression is neither true nor false while f is traced: {remedy}")
    )


def refuse_number(kind: str) -> NoReturn:
    """Raise the error of asking for the value of an expression."""
    line = caller()
    part = line[1] if line else ""
    called = re.search(r"\bmath\.(\w+)\(", part)
    if scipy_function():
        remedy = "SciPy's code asks for it"
    elif called:
        name = MATH_NAMES.get(called[1], called[1])
        remedy = f"use sg.{name} instead of math.{called[1]}"
    elif kind == "float" and _NUMPYS.search(part):
        remedy = _list_given(part) or (
            "an array of numbers cannot hold expressions; give NumPy one that can, as in "
            "sg.array(np.zeros(3))"
        )
    elif kind == "float" and line and re.search(r"\]\s*[-+*/]?=(?!=)", line[0].text):
        remedy = (
            "an array of numbers cannot hold expressions; begin with an array that can, as in "
            "out = sg.array(np.zeros(3))"
        )
    elif kind == "complex":
        remedy = "expressions are real; write the real and the imaginary part as two of them"
    elif kind == "index":
        remedy = (
            "an index or a range must be known while f is traced; use plain Python "
            "integers, and sg.fori_loop "
            "for a loop whose number of iterations depends on values"
        )
    else:
        is_format = kind.startswith("the format")
        remedy = f"leave out {kind if is_format else f'{kind}(...)'}"
        remedy += "" if is_format else "; for the functions of math use sg.sin, sg.exp, ..."
    raise TraceError(located(f"an expression has no value while f is traced: {remedy}"))
