"""Arguments of optimisers: real numbers, and models with names and bounds; or a clear error."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, Final

import numpy as np

from symgrad.errors import InputError, InputTypeError, SymgradError, TraceError, counted
from symgrad.expr.graph.place import describe
from symgrad.expr.tracers.tree import Tree
from symgrad.optimize.method import Bounds, Method, Tolerances, array_of
from symgrad.values.arrays import EPSILON, host_dtype, warn_if_rounded
from symgrad.values.nested import rows_of

VAR_KEYWORD: Final = inspect.Parameter.VAR_KEYWORD


def real(values: Any, name: str, dtype: str = "float64") -> np.ndarray:
    """The values as a C-contiguous array of real numbers."""
    return _rounded(as_given(values, name), dtype)


def real_columns(
    values: Any, name: str, dtype: str, axis: int | None = -1, convert: bool = True
) -> np.ndarray:
    """As `real`, of data whose columns are along an axis, or which are all one column.

    They need not be converted, for a device to do it on their way.

    Warns of columns that this dtype rounds coarsely beside their spread: see `PrecisionWarning`.
    """
    array = as_given(values, name)
    if axis is None or not array.ndim:
        warned = warn_if_rounded(array, name, dtype)
    else:
        columns = np.moveaxis(array, axis, 0)
        names = [f"column {k} of {name}" if len(columns) > 1 else name for k in range(len(columns))]
        warned = sum(warn_if_rounded(c, n, dtype) for c, n in zip(columns, names, strict=True)) > 0
    return _rounded(array, dtype) if convert or warned else array  # so that it is told once


def as_given(values: Any, name: str) -> np.ndarray:
    """The values as an array of real numbers, of the dtype they have."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise InputTypeError(
            f"{name} has masked entries: leave them out of all data alike, or fill them in, with "
            ".filled(...)"
        )
    try:
        array = np.asarray(values)
        if array.dtype.kind in "USO" and any(isinstance(v, (str, bytes)) for v in array.flat):
            raise InputTypeError(
                f"{name} holds text: numbers are needed; convert it beforehand, by "
                f"numpy.asarray({name}, float), or by pandas.to_numeric({name}, "
                'errors="coerce") if some of it is no number'
            )
        if array.dtype.kind == "O":
            array = array.astype(np.float64)
    except InputTypeError:
        raise
    except (TypeError, ValueError) as error:
        raise InputTypeError(f"{name} is not an array of real numbers: {error}") from error
    if array.dtype.kind not in "fiub":
        raise InputTypeError(f"{name} holds {array.dtype} values: real numbers are needed")
    return array


def _rounded(array: np.ndarray, dtype: str) -> np.ndarray:
    kind = host_dtype(dtype)
    if array.dtype == kind:
        return np.ascontiguousarray(array) if array.ndim else array.copy()
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array, kind) if array.ndim else array.astype(kind)


def real_matrix(values: Any, name: str, n: int, dtype: str, convert: bool = True) -> np.ndarray:
    """The values as an array (S, n); a single row may stand alone.

    They need not be converted, for a device to do it on their way.
    """
    matrix = np.atleast_2d(real(values, name, dtype) if convert else as_given(values, name))
    if matrix.ndim != 2 or matrix.shape[1] != n:
        raise InputError(f"{name} has shape {np.shape(values)}: (S, {n}) or ({n},) is needed")
    return matrix


def whole(value: Any, name: str, least: int, most: int) -> int:
    """The value as an integer within a range; floats that are whole are taken."""
    integer: Any = value
    try:
        if isinstance(value, float) and value.is_integer():
            integer = int(value)
        integer = operator.index(integer)
    except TypeError as error:
        raise InputTypeError(f"{name}={value!r}: a whole number is needed") from error
    if not least <= integer <= most:
        raise InputError(f"{name}={value!r}: between {least:,} and {most:,} can be counted")
    return integer


def number(value: Any, name: str) -> float:
    """The value as a float that is not NaN."""
    array = real(value, name)
    if array.ndim or np.isnan(array):
        raise InputError(f"{name}={value!r}: one number is needed")
    return float(array)


def require_method(method: Any) -> None:
    """Refuse what is no method."""
    if isinstance(method, Method):
        return
    if isinstance(method, type) and issubclass(method, Method):
        raise InputTypeError(f"method is the class {method.__name__}: use {method.__name__}(...)")
    raise InputTypeError(
        f"method={method!r} is not one of symgrad's: use one such as sg.LBFGS() or sg.Adam(0.01); "
        "sg.minimize takes the names of SciPy's"
    )


def tolerances_of(tol: float | Tolerances | None, method: Method, dtype: str) -> Tolerances:
    """The tolerances that are asked for, or those of the method."""
    if isinstance(tol, Tolerances):
        parts = vars(tol).items()
        return Tolerances(
            **{k: None if v is None else _tolerance(v, f"Tolerances({k}=...)") for k, v in parts}
        )
    own = method.tolerances(EPSILON[dtype])
    return own if tol is None else Tolerances(_tolerance(tol, "tol"), own.loss, own.step)


def _tolerance(value: Any, name: str) -> float:
    tolerance = number(value, name)
    if tolerance < 0.0:
        raise InputError(f"{name} is {value!r}: a tolerance cannot be negative")
    return tolerance


def bounds_of(bounds: Any, tree: Tree) -> Bounds:
    """The bounds: ``(low, high)``, SciPy's ``Bounds``, or a pair for each variable in a row.

    Two pairs for two variables might be ``(low, high)`` as well, and are refused. Of nested
    variables low and high may be nested likewise, or a dict has the bounds of some or all names.
    """
    if bounds is None:
        return Bounds.of(-np.inf, np.inf, tree.size)
    if isinstance(bounds, Mapping) and tree.kind == "dict":
        return _by_name(bounds, tree)
    try:
        box = Bounds.of(*_sides(bounds, tree), tree.size)
    except (TypeError, ValueError) as error:
        wanted = f"numbers or arrays of {tree.size}" + ", or nested" * (not tree.is_leaf)
        raise InputError(f"bounds are (low, high), {wanted}: {error}") from error
    if not np.all(np.asarray(box.low) <= np.asarray(box.high)):
        raise InputError("bounds: a lower bound is above the upper one, or is not a number")
    return box


def _by_name(bounds: Mapping[str, Any], tree: Tree) -> Bounds:
    """The bounds of each name, which may have none."""
    unknown = [name for name in bounds if name not in tree.keys]
    if unknown:
        known = ", ".join(map(str, tree.keys))
        raise InputError(f"bounds: there is no variable {unknown[0]!r}: the names are {known}")
    named = zip(tree.keys, tree.children, strict=True)
    parts = [bounds_of(bounds.get(name), child) for name, child in named]
    return Bounds(
        tuple(v for part in parts for v in part.low), tuple(v for part in parts for v in part.high)
    )


def _sides(bounds: Any, tree: Tree) -> tuple[Any, Any]:
    """The lower and the upper bounds, each a number or all in a row."""
    if hasattr(bounds, "lb") and hasattr(bounds, "ub"):
        return _in_row(bounds.lb, tree), _in_row(bounds.ub, tree)
    pairs, n = list(bounds), tree.size
    if len(pairs) == 2 and any(map(tree.is_nest, pairs)):
        return _in_row(pairs[0], tree), _in_row(pairs[1], tree)
    if len(pairs) == n and all(np.shape(pair) == (2,) for pair in pairs):
        if n != 2 or _is_open(pairs):
            return _lows_and_highs(pairs)
        if isinstance(bounds, list) or all(isinstance(pair, tuple) for pair in pairs):
            raise InputError(
                f"bounds={bounds!r} might be pairs of two variables or (low, high): use "
                "scipy.optimize.Bounds(low, high), or a tuple of two lists or arrays"
            )
    low, high = pairs
    return (
        -np.inf if low is None else _in_row(low, tree),
        np.inf if high is None else _in_row(high, tree),
    )


def _in_row(side: Any, tree: Tree) -> Any:
    """A bound that is nested or shaped as the variables, in a row; a number as it is."""
    if tree.is_nest(side) or np.size(side) > 1:
        return rows_of(tree, side, "bounds", batched=False)
    return side


def _lows_and_highs(pairs: list[Any]) -> tuple[np.ndarray, np.ndarray]:
    """The first and the second ends of pairs, None for an open one."""
    ends = ((-np.inf, np.inf) if p is None else (p, p) for pair in pairs for p in pair)
    flat = np.array(list(ends), float).reshape(len(pairs), 2, 2)
    return flat[:, 0, 0], flat[:, 1, 1]


def _is_open(pairs: list[Any]) -> bool:
    """Whether an end of a pair is None: then the pairs are those of variables."""
    return any(end is None for pair in pairs for end in pair)


def takes_result(callback: Callable[..., Any]) -> bool:
    """Whether a callback asks for the result so far by name, as SciPy knows it."""
    try:
        return {*inspect.signature(callback).parameters} == {"intermediate_result"}
    except ValueError:  # of some built-in functions there is no signature
        return False


def parameters_of(f: Callable[..., Any]) -> int:
    """The parameters that a model names after x; those of keywords alone are no parameters."""
    if type(f) is FunctionType and not vars(f) and not f.__code__.co_flags & inspect.CO_VARARGS:
        named = f.__code__.co_argcount  # a signature takes as long as a trace
        if named > 1:
            return named - 1
    kinds = [p.kind for p in inspect.signature(f).parameters.values()]
    named = [k for k in kinds if k not in (inspect.Parameter.KEYWORD_ONLY, VAR_KEYWORD)]
    if inspect.Parameter.VAR_POSITIONAL in named or len(named) < 2:
        raise InputError("Unable to determine number of fit parameters: give p0")
    return len(named) - 1


def require_taken(f: Callable[..., Any], n: int) -> None:
    """Refuse a start of n parameters for a model that takes another number of them behind x."""
    plain = type(f) is FunctionType and not f.__code__.co_flags & inspect.CO_VARARGS
    if plain and f.__code__.co_argcount == n + 1:
        return  # a signature takes as long as a trace
    try:
        signature = inspect.signature(f)
    except ValueError:  # of some built-in functions there is none
        return
    try:
        signature.bind(*[None] * (n + 1))
    except TypeError as error:
        raise InputError(
            f"p0 has {counted(n, 'parameter')}, and the model "
            f"{getattr(f, '__name__', 'f')}{signature} "
            f"takes another number after x: {error}"
        ) from error


def start_within(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Where SciPy starts: 1, the middle between two bounds, or 1 away from a single one."""
    below, above = np.isfinite(low), np.isfinite(high)
    if not (below.any() or above.any()):
        return np.ones(len(low))
    with np.errstate(invalid="ignore"):
        middle = 0.5 * (low + high)
    return np.select([below & above, below, above], [middle, low + 1, high - 1], 1.0)


# Models as users write them: starts and bounds by names, and whether one is of a single x.

MISTAKES: Final = (SymgradError, TypeError, ValueError, IndexError, AttributeError)
"""Errors of a model that cannot be called or traced with what it is given."""

ROWS_COMPARED: Final = 8
"""Rows at which the model is compared with its values for all x."""


def names_of(f: Callable[..., Any], count: int) -> list[str]:
    """The names of a model's parameters behind x; p0, p1, .. of one that takes any number."""
    parameters = list(inspect.signature(f).parameters.values())
    if any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters):
        return [f"p{k}" for k in range(count)]
    return [p.name for p in parameters[1:] if p.kind is not inspect.Parameter.KEYWORD_ONLY][:count]


def in_order(f: Callable[..., Any], p0: Any, bounds: Any) -> tuple[Any, Any]:
    """Starts and bounds that are given by names as arrays, in the order of the parameters.

    What is not named starts where SciPy would start it, and has no bounds. A bound of None is none.

    Raises:
        InputError: for a name that the model has no parameter of.
    """
    if not isinstance(p0, Mapping) and not isinstance(bounds, Mapping):
        return p0, bounds
    names = names_of(f, parameters_of(f))
    if isinstance(bounds, Mapping):
        pairs = zip(names, _values_by_name(names, bounds, "bounds", (None, None)), strict=True)
        ends = np.array([_ends(name, pair) for name, pair in pairs])
        bounds = ends[:, 0], ends[:, 1]
    if isinstance(p0, Mapping):
        low, high = (-np.inf, np.inf) if bounds is None else sides_of(bounds)
        sides = (np.broadcast_to(np.asarray(side, float), len(names)) for side in (low, high))
        starts = start_within(*sides)
        values = [
            _values_by_name([n], p0, "p0", s, names)[0] for n, s in zip(names, starts, strict=True)
        ]
        starts = [real(v, f"p0[{n!r}]") for n, v in zip(names, values, strict=True)]
        p0 = np.stack(np.broadcast_arrays(*starts), axis=-1)
    return p0, bounds


def one_value(f: Callable[..., Any], x: Any, value: Any) -> Any:
    """The value of a model at one x.

    Raises:
        TraceError: if it is several.
    """
    if np.ndim(array_of(value)):
        raise TraceError(
            f"{describe(f)} returned {np.size(array_of(value))} values for one x: one is needed; "
            f"it was given x of shape {np.shape(x)}"
        )
    return value


def sides_of(bounds: Any) -> Any:
    """``(low, high)``, also of SciPy's ``Bounds``."""
    return (bounds.lb, bounds.ub) if hasattr(bounds, "lb") else bounds


def _ends(name: str, pair: Any) -> tuple[float, float]:
    """A parameter's bounds as numbers; None is none."""
    try:
        low, high = pair
        return -np.inf if low is None else float(low), np.inf if high is None else float(high)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"bounds[{name!r}] is {pair!r}: (low, high) is needed, two numbers for all fits, or "
            "None for no bound"
        ) from error


def _values_by_name(
    names: Sequence[str],
    given: Mapping[str, Any],
    what: str,
    default: Any,
    known: Sequence[str] | None = None,
) -> list[Any]:
    unknown = sorted(set(given) - set(known or names))
    if unknown:
        raise InputError(
            f"{what} names {', '.join(map(repr, unknown))}: the model has "
            f"{', '.join(known or names)}"
        )
    return [given.get(name, default) for name in names]


def is_of_one_x(f: Callable[..., Any], x: np.ndarray, p: np.ndarray) -> bool | None:
    """Whether the values of a model for all x of a curve are those for each alone.

    None if numbers do not tell, as it is not a model of numbers or is not finite.
    """
    places = np.unique(np.linspace(0, x.shape[-1] - 1, ROWS_COMPARED).astype(int)) if x.size else []
    with np.errstate(all="ignore"):
        try:
            whole = np.asarray(f(x, *p), float)
            each = np.asarray([np.squeeze(f(x[..., k], *p)) for k in places], float)
        except MISTAKES:
            return None  # not a model of numbers: tracing will tell
    if whole.shape != x.shape[-1:] or each.shape != (len(places),):
        return None
    scale = np.abs(whole).max(initial=0.0)
    if not np.isfinite(whole).all():
        return None
    return np.allclose(each, whole[places], 1e-4, 1e-4 * scale)


def require_of_one_x(f: Callable[..., Any], x: np.ndarray, p: np.ndarray) -> None:
    """Refuse a model of which the values for all x of a curve are others than for each alone."""
    if is_of_one_x(f, x, p) is False:
        raise InputError(
            f"{describe(f)} gives other values for all x together than for each alone, and is "
            "traced for one x: compute what depends on all of x, such as its mean, outside of it"
        )
