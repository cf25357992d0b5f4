"""Functions of JAX as functions that symgrad traces: their jaxprs, operation by operation."""

from __future__ import annotations

import functools
import itertools
import math
import operator
import os
import string
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn

import numpy as np

from symgrad.bridges.frameworks import jax
from symgrad.errors import UnsupportedError
from symgrad.expr.loops import control
from symgrad.expr.tracers import functions as sg
from symgrad.expr.tracers.array import array
from symgrad.expr.tracers.expression import Condition, Expr
from symgrad.expr.tracers.functions import int32, uint32
from symgrad.expr.tracers.integers import Word

Values = list[Any]


# --- elements at traced places --------------------------------------------------------------------


def dynamic_slice(equation: Any, x: Any, *starts: Any) -> Values:
    """Elements from starts on, which are moved so that all of them are there."""
    sizes = equation.params["slice_sizes"]
    first = [_start(s, n, k) for s, n, k in zip(starts, np.shape(x), sizes, strict=True)]
    return [_taken(x, sizes, lambda place: _sum(first, place))]


def dynamic_update_slice(equation: Any, x: Any, update: Any, *starts: Any) -> Values:
    """An array with others from starts on, which are moved likewise."""
    sizes = np.shape(update)
    first = [_start(s, n, k) for s, n, k in zip(starts, np.shape(x), sizes, strict=True)]
    for place in np.ndindex(*sizes):
        x = array(x).at[_sum(first, place)].set(np.asarray(update, object)[place])
    return [x]


def gather(equation: Any, x: Any, indices: Any) -> Values:
    """Elements of windows; what is filled in where a window is not within x, if that is asked."""
    params = equation.params
    numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
    if numbers.operand_batching_dims:
        raise UnsupportedError("from_jax: gather with batching axes of vmap at traced indices")
    window_axes = [axis for axis in range(len(sizes)) if axis not in numbers.collapsed_slice_dims]
    index, lengths = np.asarray(indices, object), np.shape(x)
    filled = math.nan if params["fill_value"] is None else params["fill_value"]

    def at(place: tuple[int, ...]) -> Any:
        batch = tuple(p for i, p in enumerate(place) if i not in numbers.offset_dims)
        offsets = dict(zip(window_axes, (place[i] for i in numbers.offset_dims), strict=True))
        starts = {axis: index[(*batch, k)] for k, axis in enumerate(numbers.start_index_map)}
        start = {axis: _start(s, lengths[axis], sizes[axis]) for axis, s in starts.items()}
        where = tuple(start.get(axis, 0) + offsets.get(axis, 0) for axis in range(len(sizes)))
        element = array(x)[where]
        return (
            sg.where(_within(starts, lengths, sizes), element, filled)
            if _drops(params)
            else element
        )

    shape = equation.outvars[0].aval.shape
    return [_array([at(place) for place in np.ndindex(*shape)], shape)]


WRITTEN: Final[Mapping[str, str]] = {
    "scatter": "set", "scatter-add": "add", "scatter-mul": "multiply", "scatter-max": "max",
    "scatter-min": "min",
}  # fmt: skip
"""How a scatter writes, by the names of ``x.at[...]``."""

UNWRITTEN: Final[Mapping[str, float]] = {
    "add": 0.0, "multiply": 1.0, "max": -math.inf, "min": math.inf,
}  # fmt: skip
"""The identity of elements."""


def scatter(equation: Any, x: Any, indices: Any, updates: Any) -> Values:
    """An array with windows written to; those that are not within it are dropped, or moved."""
    params, how = equation.params, WRITTEN[equation.primitive.name]
    numbers = params["dimension_numbers"]
    if numbers.operand_batching_dims:
        raise UnsupportedError("from_jax: scatter with batching axes (of vmap)")
    lengths, result = np.shape(x), array(x)
    window_axes = [axis for axis in range(len(lengths)) if axis not in numbers.inserted_window_dims]
    windows = zip(
        window_axes, (np.shape(updates)[i] for i in numbers.update_window_dims), strict=True
    )
    sizes = [1] * len(lengths)
    for axis, size in windows:
        sizes[axis] = size
    index, values = np.asarray(indices, object), np.asarray(updates, object)
    for place in np.ndindex(*np.shape(updates)):
        batch = tuple(p for i, p in enumerate(place) if i not in numbers.update_window_dims)
        offsets = dict(
            zip(window_axes, (place[i] for i in numbers.update_window_dims), strict=True)
        )
        axes = enumerate(numbers.scatter_dims_to_operand_dims)
        starts = {axis: index[(*batch, k)] for k, axis in axes}
        start = {axis: _start(s, lengths[axis], sizes[axis]) for axis, s in starts.items()}
        where = tuple(start.get(a, 0) + offsets.get(a, 0) for a in range(len(lengths)))
        value = values[place]
        if _drops(params):
            unwritten = UNWRITTEN[how] if how in UNWRITTEN else result[where]
            value = sg.where(_within(starts, lengths, sizes), value, unwritten)
        result = getattr(result.at[where], how)(value)
    return [result]


def is_traced(value: Any) -> bool:
    """Whether this is an expression, or an array of some."""
    if isinstance(value, np.ndarray):
        return value.dtype == object
    return not isinstance(value, (np.generic, int, float, bool, jax().Array))


def _drops(params: Mapping[str, Any]) -> bool:
    return params["mode"] == jax().lax.GatherScatterMode.FILL_OR_DROP


def _within(starts: Mapping[int, Any], lengths: Sequence[int], sizes: Sequence[int]) -> Any:
    """Whether windows that begin there are within the array."""
    within: Any = True
    for axis, start in starts.items():
        inside = sg.logical_and(start >= 0, start <= lengths[axis] - sizes[axis])
        within = sg.logical_and(within, inside)
    return within


def _start(start: Any, length: int, size: int) -> Any:
    """Where a slice begins: moved, as JAX does, so that it lies within the axis."""
    if not is_traced(start):
        return int(np.clip(start, 0, length - size))
    return 0 if length == size else sg.minimum(sg.maximum(start, 0), length - size)


def _sum(first: Sequence[Any], place: Sequence[int]) -> tuple[Any, ...]:
    return tuple(a + b for a, b in zip(first, place, strict=True))


def _taken(x: Any, shape: Sequence[int], at: Callable[[tuple[int, ...]], Any]) -> Any:
    """The elements of x at what ``at`` gives for each place of an array of a shape."""
    source = array(x)
    elements = [source[tuple(at(place))] for place in itertools.product(*map(range, shape))]
    return _array(elements, shape)


def _array(elements: Sequence[Any], shape: Sequence[int]) -> Any:
    return array(elements).reshape(tuple(shape)) if shape else elements[0]


# --- the primitives -------------------------------------------------------------------------------


def _cut_off(a: Any, b: Any) -> Any:
    """The quotient of integers cut off towards 0, as JAX's ``div`` has it: ``//`` rounds down."""
    if not isinstance(a, Word) and not isinstance(b, Word):
        return sg.trunc(a / b)
    down = a // b
    return sg.where(sg.logical_and(down < 0, down * b != a), down + 1, down)


def _shifted_bits(a: Any, by: Any) -> Any:
    """Shifted down, with 0 from above."""
    return type(a)(a.graph, (uint32(a) >> by).id) if isinstance(a, Word) else uint32(a) >> by


def _integer_power(x: Any, y: int) -> Any:
    return x**y


def _one_minus_square(x: Any) -> Any:
    """1 - x**2, as a product that keeps its digits where x is near 1 or -1."""
    return (1 - x) * (1 + x)


def _polynomial(x: Any, *coefficients: Any) -> Any:
    """By Horner's rule; the constant term is the first coefficient."""
    return functools.reduce(lambda y, c: y * x + c, reversed(coefficients))


def _clamp(low: Any, x: Any, high: Any) -> Any:
    return sg.minimum(sg.maximum(x, low), high)


def _chosen(which: Any, first: Any, second: Any, *more: Any) -> Any:
    """``select_n``: the first case where a condition does not hold, or the one of a number."""
    chosen = sg.where(which, second, first) if not more else sg.where(which == 1, second, first)
    for k, case in enumerate(more, 2):
        chosen = sg.where(which == k, case, chosen)
    return chosen


def _below(a: Any, b: Any) -> Any:
    """``lt_to``: NaN is above all numbers."""
    return sg.logical_or(a < b, sg.logical_and(sg.isnan(b), sg.logical_not(sg.isnan(a))))


def _not_above(a: Any, b: Any) -> Any:
    """``le_to``: NaN is above all numbers."""
    return sg.logical_or(a <= b, sg.isnan(b))


ELEMENTWISE: Final[dict[str, Callable[..., Any]]] = {
    "abs": sg.abs, "acos": sg.acos, "acosh": sg.acosh, "add": operator.add,
    "add_any": operator.add, "and": sg.logical_and, "asin": sg.asin, "asinh": sg.asinh,
    "atan": sg.atan, "atan2": sg.atan2, "atanh": sg.atanh, "cbrt": sg.cbrt, "ceil": sg.ceil,
    "clamp": _clamp, "cos": sg.cos, "cosh": sg.cosh, "digamma": sg.digamma, "div": operator.truediv,
    "eq": operator.eq, "erf": sg.erf, "erf_inv": sg.erfinv, "erfc": sg.erfc, "exp": sg.exp,
    "exp2": sg.exp2, "expm1": sg.expm1, "floor": sg.floor, "ge": operator.ge,
    "gt": operator.gt, "igamma": sg.gammainc, "igammac": sg.gammaincc,
    "integer_pow": _integer_power, "is_finite": sg.isfinite, "le": operator.le,
    "le_to": _not_above, "lgamma": sg.gammaln, "log": sg.log, "log1p": sg.log1p, "log2": sg.log2,
    "logistic": sg.sigmoid, "lt": operator.lt, "lt_to": _below, "max": sg.maximum,
    "min": sg.minimum, "mul": operator.mul,
    "ne": operator.ne, "neg": operator.neg, "not": sg.logical_not,
    "one_minus_square": _one_minus_square, "or": sg.logical_or, "polynomial": _polynomial,
    "pow": sg.pow, "regularized_incomplete_beta": sg.betainc, "rem": sg.fmod,
    "rsqrt": sg.rsqrt, "select_n": _chosen, "sign": sg.sign, "sin": sg.sin,
    "sinh": sg.sinh, "sqrt": sg.sqrt, "square": lambda x: x * x,
    "stop_gradient": sg.stop_gradient, "sub": operator.sub, "tan": sg.tan, "tanh": sg.tanh,
    "xor": sg.logical_xor,
}  # fmt: skip
"""Primitives that take one element of each argument."""

INTEGERS: Final[dict[str, Callable[..., Any]]] = {
    "and": operator.and_, "div": _cut_off, "le_to": operator.le, "lt_to": operator.lt,
    "not": operator.invert, "or": operator.or_, "shift_left": operator.lshift,
    "shift_right_arithmetic": operator.rshift, "shift_right_logical": _shifted_bits,
    "xor": operator.xor,
}  # fmt: skip
"""Primitives that do with integers something else than with numbers or conditions."""

REDUCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "reduce_sum": np.sum,
    "reduce_prod": np.prod,
    "reduce_max": np.max,
    "reduce_min": np.min,
    "reduce_and": lambda x, axis: _folded(sg.logical_and, x, axis),
    "reduce_or": lambda x, axis: _folded(sg.logical_or, x, axis),
}
"""Primitives that take all elements along some axes."""

ACCUMULATIONS: Final[dict[str, Callable[..., Any]]] = {
    "cumsum": np.cumsum,
    "cumprod": np.cumprod,
    "cummax": lambda x, axis: _running(sg.maximum, x, axis),
    "cummin": lambda x, axis: _running(sg.minimum, x, axis),
    "cumlogsumexp": lambda x, axis: _running(sg.logaddexp, x, axis),
}
"""Primitives that take the elements before each along an axis."""

MOVES: Final = frozenset({
    "broadcast_in_dim", "concatenate", "copy", "copy_p", "dynamic_slice", "dynamic_update_slice",
    "expand_dims", "gather", "pad", "reshape", "rev", "slice", "split", "squeeze", "stack",
    "tile", "transpose", "unstack",
})  # fmt: skip
"""Primitives that move elements: what they do with the elements' numbers says where each goes."""

INDICES: Final = {"dynamic_slice": 1, "dynamic_update_slice": 2, "gather": 1}
"""From which argument on those of `MOVES` have indices."""

CALLS: Final = frozenset(
    {
        *("checkpoint", "closed_call", "core_call", "custom_jvp_call", "eval_jaxpr"),
        *("jit", "pjit", "remat2"),
    }
)
"""Primitives that evaluate a jaxpr."""


RULES: Final[dict[str, Callable[..., Values]]] = {
    "dynamic_slice": dynamic_slice,
    "dynamic_update_slice": dynamic_update_slice,
    "gather": gather,
    **dict.fromkeys(WRITTEN, scatter),
}
"""Primitives that read and write at indices."""

JAX: Final = f"{os.sep}jax{os.sep}"
"""A part of the paths of JAX's own files."""


class Evaluation:
    """Evaluates jaxprs on expressions, on arrays of them, and on numbers."""

    def __init__(self, max_steps: int | None) -> None:
        self._max_steps = max_steps

    def closed(self, closed: Any, arguments: Sequence[Any]) -> Values:
        """The results of a closed jaxpr."""
        return self._jaxpr(closed.jaxpr, closed.consts, arguments)

    def _jaxpr(self, jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Any]) -> Values:
        """Evaluate a jaxpr, equation by equation."""
        environment: dict[Any, Any] = {}

        def value(atom: Any) -> Any:
            return _number(atom.val) if hasattr(atom, "val") else environment[atom]

        environment.update(zip(jaxpr.constvars, map(_number, consts), strict=True))
        environment.update(zip(jaxpr.invars, arguments, strict=True))
        for equation in jaxpr.eqns:
            operands = [value(atom) for atom in equation.invars]
            environment.update(
                zip(equation.outvars, self._results(equation, operands), strict=True)
            )
        return [value(atom) for atom in jaxpr.outvars]

    def _results(self, equation: Any, operands: Values) -> Values:
        """The results of an equation: by JAX of numbers alone, else by its primitive's rule."""
        name, params = equation.primitive.name, equation.params
        if not any(is_traced(v) for v in operands) and not _jaxprs(params):
            outputs = equation.primitive.bind(*map(_of_jax, operands), **params)
            return [
                _number(v) for v in (outputs if equation.primitive.multiple_results else [outputs])
            ]
        if name in INTEGERS and equation.invars[0].aval.dtype.kind in "iu":
            return [_element_by_element(INTEGERS[name], *operands)]
        if name in ELEMENTWISE:
            return [ELEMENTWISE[name](*operands, **{k: v for k, v in params.items() if k == "y"})]
        if name in REDUCTIONS:
            return [REDUCTIONS[name](operands[0], axis=tuple(params["axes"]))]
        if name in ACCUMULATIONS:
            return [_accumulated(ACCUMULATIONS[name], operands[0], **params)]
        if name in MOVES and not any(map(is_traced, operands[INDICES.get(name, len(operands)) :])):
            return _moved(equation, operands)
        if name in CALLS:
            inner = params.get("jaxpr", params.get("call_jaxpr"))
            if hasattr(inner, "consts"):
                return self.closed(inner, operands)
            return self._jaxpr(inner, (), operands)
        rule = RULES.get(name) or getattr(self, f"_{name}", None)
        return rule(equation, *operands) if rule else _refused(equation)

    # what has rules of its own -------------------------------------------------------------------

    def _convert_element_type(self, equation: Any, x: Any) -> Values:
        return [_each(_converted(equation.params["new_dtype"]), x)]

    def _round(self, equation: Any, x: Any) -> Values:
        to_even = int(equation.params["rounding_method"]) == 1
        cut = sg.trunc(x)
        return [sg.round(x) if to_even else sg.where(abs(x - cut) >= 0.5, cut + sg.sign(x), cut)]

    def _dot_general(self, equation: Any, a: Any, b: Any) -> Values:
        """A product summed over some axes and shared by others, as an einsum."""
        (summed_a, summed_b), (shared_a, shared_b) = equation.params["dimension_numbers"]
        letters = iter(string.ascii_letters)
        of_a = [next(letters) for _ in np.shape(a)]
        of_b = [next(letters) for _ in np.shape(b)]
        for i, k in zip((*summed_a, *shared_a), (*summed_b, *shared_b), strict=True):
            of_b[k] = of_a[i]
        shared = [of_a[i] for i in shared_a]
        free_a = [c for i, c in enumerate(of_a) if i not in (*summed_a, *shared_a)]
        free_b = [c for i, c in enumerate(of_b) if i not in (*summed_b, *shared_b)]
        ends = "".join(shared + free_a + free_b)
        return [np.einsum(f"{''.join(of_a)},{''.join(of_b)}->{ends}", array(a), array(b))]

    def _call_hi_primitive(self, equation: Any, *operands: Any) -> Values:
        """A primitive that JAX 0.12 and later define by simpler ones, which are evaluated."""
        simpler = functools.partial(equation.primitive.to_lojax, **equation.params)
        return self.closed(jax().make_jaxpr(simpler)(*[a.aval for a in equation.invars]), operands)

    def _cond(self, equation: Any, which: Any, *operands: Any) -> Values:
        """The branch that ``which`` chooses, when traced as a choice."""
        branches = [
            lambda *arguments, b=branch: tuple(self.closed(b, arguments))
            for branch in equation.params["branches"]
        ]
        if not is_traced(which):
            return list(branches[int(np.clip(which, 0, len(branches) - 1))](*operands))
        if len(branches) == 2:
            return list(control.cond(which > 0, branches[1], branches[0], *operands))
        return list(control.switch(which, branches, *operands))

    def _scan(self, equation: Any, *operands: Any) -> Values:
        """A scan whose step is a jaxpr."""
        p = equation.params
        first, count = _constants_and_carries(p)
        consts, init, xs = (
            operands[:first],
            operands[first : first + count],
            operands[first + count :],
        )

        def step(carry: Any, x: Any) -> Any:
            outputs = self.closed(p["jaxpr"], [*consts, *carry, *(x or ())])
            return tuple(outputs[:count]), tuple(outputs[count:])

        carry = tuple(map(_carried, init, p["jaxpr"].in_avals[first:]))
        last, ys = control.scan(step, carry, tuple(xs) or None, p["length"], p["reverse"])
        return [*last, *(ys or ())]

    def _while(self, equation: Any, *operands: Any) -> Values:
        """A while loop whose test and body are jaxprs."""
        p = equation.params
        of_cond, of_body = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]
        for_cond, for_body, init = operands[:of_cond], operands[of_cond:of_body], operands[of_body:]
        carry = tuple(map(_carried, init, p["body_jaxpr"].in_avals[p["body_nconsts"] :]))
        return list(
            control.while_loop(
                lambda c: self.closed(p["cond_jaxpr"], [*for_cond, *c])[0],
                lambda c: tuple(self.closed(p["body_jaxpr"], [*for_body, *c])),
                carry,
                self._max_steps,
            )
        )


def _refused(equation: Any) -> NoReturn:
    """Refuse a primitive, and name the user's line."""
    name, traceback = equation.primitive.name, equation.source_info.traceback
    if name.startswith("custom_vjp"):
        raise UnsupportedError(
            f"from_jax: the function has a rule of jax.custom_vjp ({name}), which symgrad "
            "cannot read: write it with sg.custom_vjp, or without the rule"
        )
    frames = [f for f in traceback.frames if JAX not in f.file_name] if traceback else []
    place = f", at {frames[0].file_name}:{frames[0].line_num}" if frames else ""
    raise UnsupportedError(f"from_jax: symgrad has nothing for JAX's {name}{place}")


def _constants_and_carries(params: Any) -> tuple[int, int]:
    """How many arguments of a ``scan`` are the same in all iterations, and how many are carried.

    JAX up to 0.10 has them as numbers, and from 0.11 on as parts of a tree of all arguments.
    """
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carries, _ = params["ft_in"].unpack()
    return len(consts), len(carries)


def _jaxprs(params: Any) -> bool:
    return any("jaxpr" in key or key == "branches" for key in params)


def _number(value: Any) -> Any:
    """A constant of JAX as NumPy's; keys of random numbers are JAX's own."""
    return value if _is_key(value) else np.asarray(value)[()]


def _of_jax(value: Any) -> Any:
    return value if _is_key(value) else jax().numpy.asarray(value)


def _is_key(value: Any) -> bool:
    dtype = getattr(value, "dtype", None)
    return dtype is not None and jax().dtypes.issubdtype(dtype, jax().dtypes.extended)


def _each(function: Callable[[Any], Any], x: Any) -> Any:
    if not np.shape(x):
        return function(x)
    flat = array(x).reshape(-1)
    return array([function(v) for v in flat]).reshape(np.shape(x))


def _converted(dtype: Any) -> Callable[[Any], Any]:
    """How an element becomes one of another dtype: of the kernel's floats, or of 32 bits.

    Raises:
        UnsupportedError: for numbers of fewer bits, which have other values.
    """
    kinds = jax().numpy
    floats = kinds.issubdtype(dtype, kinds.floating)

    def convert(x: Any) -> Any:
        if not is_traced(x):
            return np.asarray(x).astype(dtype)[()]
        if dtype.kind == "b":
            return x if isinstance(x, Condition) else x != 0
        if dtype.itemsize < 4 and not isinstance(x, Condition):
            raise UnsupportedError(
                f"from_jax: symgrad has no {dtype}: floats of fewer than 32 bits are rounded, "
                "and integers wrap around, elsewhere than its own: use float32 or int32"
            )
        if floats:
            return x.as_float()
        if isinstance(x, Condition):
            x = x.as_float()
        whole = sg.trunc(x) if isinstance(x, Expr) else x
        return uint32(whole) if dtype.kind == "u" else int32(whole)

    return convert


def _element_by_element(function: Callable[..., Any], *operands: Any) -> Any:
    shape = np.broadcast_shapes(*map(np.shape, operands))
    if not shape:
        return function(*operands)
    flat = [np.broadcast_to(np.asarray(g, object), shape).ravel() for g in operands]
    return array([function(*each) for each in zip(*flat, strict=True)]).reshape(shape)


def _folded(function: Callable[[Any, Any], Any], x: Any, axes: Sequence[int]) -> Any:
    """All elements along some axes, taken together one after the other."""
    values = np.asarray(x, object)
    moved = np.moveaxis(values, axes, range(len(axes)))
    rest_shape = moved.shape[len(axes) :]
    rows = list(moved.reshape(-1, *rest_shape))
    return functools.reduce(lambda a, b: _element_by_element(function, a, b), rows)


def _running(function: Callable[[Any, Any], Any], x: Any, axis: int) -> Any:
    """Each element with all before it along an axis."""
    rows = np.moveaxis(np.asarray(x, object), axis, 0)
    step = functools.partial(_element_by_element, function)
    scanned = np.stack([np.asarray(r, object) for r in itertools.accumulate(rows, step)])
    return array(np.moveaxis(scanned, 0, axis))


def _carried(value: Any, aval: Any) -> Any:
    """The first value of a carry, as an expression of its type: integers stay such."""
    if is_traced(value) or aval.dtype.kind == "f" or aval.dtype.kind == "b":
        return value
    return _each(uint32 if aval.dtype.kind == "u" else int32, value)


def _accumulated(function: Callable[..., Any], x: Any, axis: int, reverse: bool, **_: Any) -> Any:
    flip = (lambda a: np.flip(array(a), axis)) if reverse else (lambda a: a)
    return flip(function(flip(x), axis=axis))


def _moved(equation: Any, operands: Values) -> Values:
    """The result of a primitive of `MOVES`: the elements go where JAX moves their numbers."""
    ends = INDICES.get(equation.primitive.name, len(operands))
    flat: list[Any] = []
    places: list[Any] = []
    for value in operands[:ends]:
        shape = np.shape(value)
        size = math.prod(shape)
        places.append(np.arange(len(flat), len(flat) + size, dtype=np.int32).reshape(shape))
        flat.extend(array(value).reshape(-1) if shape else [value])
    rest = [jax().numpy.asarray(v) for v in operands[ends:]]
    params, filled = equation.params, equation.params.get("fill_value")
    if "fill_value" in params:
        params = params | {"fill_value": -1}
    outputs = equation.primitive.bind(*map(jax().numpy.asarray, places), *rest, **params)
    several = outputs if equation.primitive.multiple_results else [outputs]
    return [_picked(flat, np.asarray(k), math.nan if filled is None else filled) for k in several]


def _picked(flat: list[Any], where: np.ndarray, filled: Any) -> Any:
    """The elements of these numbers; what is filled in for a number that is none."""
    one = [flat[k] if 0 <= k < len(flat) else filled for k in where.reshape(-1).tolist()]
    return array(one).reshape(where.shape) if where.shape else one[0]


# --- functions ------------------------------------------------------------------------------------


def from_jax(f: Callable[..., Any], *, max_steps: int | None = None) -> Callable[..., Any]:
    """A function written for JAX as one that symgrad's verbs take.

    It may use what is elementwise, sums and products of arrays, indexing, ``jax.lax.scan``,
    ``fori_loop``, ``while_loop`` and ``cond``, and ``jit``: loops stay loops. When it is traced,
    JAX writes down what f does with float arrays of the same shapes, and symgrad does the same with
    its expressions. Derivatives are symgrad's, of these operations: rules of ``jax.custom_jvp`` are
    left aside, and functions with ``jax.custom_vjp`` refused.

    Args:
        f: A function of arrays, or of nests of them, without side effects.
        max_steps: The most iterations of each ``while_loop``, which derivatives in reverse mode
            need.

    Raises:
        UnsupportedError: when traced, for an operation that symgrad lacks, which is named.
        SymgradError: where JAX is missing.

    Example:
        >>> import symgrad as sg
        >>> import jax.numpy as jnp
        >>> f = sg.from_jax(lambda v: jnp.sum(jnp.sin(v) ** 2))
        >>> kernel = sg.fused_forward_backward(2, f, device="cpu")
    """
    j = jax()

    @functools.wraps(f)
    def traced(*args: Any) -> Any:
        leaves, tree = j.tree.flatten(args)
        shapes = [j.ShapeDtypeStruct(np.shape(leaf), j.numpy.zeros(()).dtype) for leaf in leaves]
        closed, shape = j.make_jaxpr(f, return_shape=True)(*j.tree.unflatten(tree, shapes))
        results = Evaluation(max_steps).closed(closed, leaves)
        return j.tree.unflatten(j.tree.structure(shape), results)

    return traced
