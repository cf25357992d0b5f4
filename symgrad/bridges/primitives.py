"""What the primitives of JAX do, on symgrad's expressions and arrays of them."""

from __future__ import annotations

import itertools
import math
import operator
import os
import string
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

import numpy as np

from symgrad.bridges.jax import jax
from symgrad.errors import UnsupportedError
from symgrad.expr.handles import functions as sg
from symgrad.expr.handles.array import array
from symgrad.expr.handles.casts import int32, uint32
from symgrad.expr.handles.expression import Condition, Expr
from symgrad.expr.handles.integers import Word
from symgrad.expr.loops import choices, control

Values = list[Any]


def _quotient(a: Any, b: Any) -> Any:
    """Of integers JAX's ``div`` is cut off towards 0, as a word's ``//`` is not."""
    if isinstance(a, Word) or isinstance(b, Word):
        raise UnsupportedError("lax.div of integers that are traced: use // or floats")
    return a / b


def _integer_power(x: Any, y: int) -> Any:
    return x**y


def _clamp(low: Any, x: Any, high: Any) -> Any:
    return sg.minimum(sg.maximum(x, low), high)


def _chosen(which: Any, *cases: Any) -> Any:
    """``select_n``: the first case where a condition does not hold."""
    if len(cases) != 2:
        raise UnsupportedError("select_n of more than two cases: use nested jnp.where")
    return sg.where(which, cases[1], cases[0])


ELEMENTWISE: Final[dict[str, Callable[..., Any]]] = {
    "abs": sg.abs, "acos": sg.acos, "acosh": sg.acosh, "add": operator.add,
    "add_any": operator.add, "and": sg.logical_and, "asin": sg.asin, "asinh": sg.asinh,
    "atan": sg.atan, "atan2": sg.atan2, "atanh": sg.atanh, "cbrt": sg.cbrt, "ceil": sg.ceil,
    "clamp": _clamp, "cos": sg.cos, "cosh": sg.cosh, "digamma": sg.digamma, "div": _quotient,
    "eq": operator.eq, "erf": sg.erf, "erf_inv": sg.erfinv, "erfc": sg.erfc, "exp": sg.exp,
    "exp2": sg.exp2, "expm1": sg.expm1, "floor": sg.floor, "ge": operator.ge,
    "gt": operator.gt, "igamma": sg.gammainc, "igammac": sg.gammaincc,
    "integer_pow": _integer_power, "is_finite": sg.isfinite, "le": operator.le,
    "lgamma": sg.gammaln, "log": sg.log, "log1p": sg.log1p, "logistic": sg.sigmoid,
    "lt": operator.lt, "max": sg.maximum, "min": sg.minimum, "mul": operator.mul,
    "ne": operator.ne, "neg": operator.neg, "not": sg.logical_not, "or": sg.logical_or,
    "pow": sg.pow, "regularized_incomplete_beta": sg.betainc, "rem": sg.fmod,
    "rsqrt": sg.rsqrt, "select_n": _chosen, "sign": sg.sign, "sin": sg.sin,
    "sinh": sg.sinh, "sqrt": sg.sqrt, "square": lambda x: x * x,
    "stop_gradient": sg.stop_gradient, "sub": operator.sub, "tan": sg.tan, "tanh": sg.tanh,
    "xor": sg.logical_xor,
}  # fmt: skip
"""Primitives that take one element of each argument."""

REDUCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "reduce_sum": np.sum,
    "reduce_prod": np.prod,
    "reduce_max": np.max,
    "reduce_min": np.min,
}
"""Primitives that take all elements along some axes."""

ACCUMULATIONS: Final[dict[str, Callable[..., Any]]] = {"cumsum": np.cumsum, "cumprod": np.cumprod}
"""Primitives that take the elements before each along an axis."""

MOVES: Final = frozenset({
    "broadcast_in_dim", "concatenate", "copy", "copy_p", "dynamic_slice", "dynamic_update_slice",
    "expand_dims", "gather", "pad", "reshape", "rev", "slice", "split", "squeeze", "stack",
    "transpose",
})  # fmt: skip
"""Primitives that move elements: what they do with the elements' numbers says where each goes."""

INDICES: Final = {"dynamic_slice": 1, "dynamic_update_slice": 2, "gather": 1}
"""From which argument on those of `MOVES` have indices."""

CALLS: Final = frozenset(
    {"checkpoint", "closed_call", "core_call", "custom_jvp_call", "jit", "pjit", "remat2"}
)
"""Primitives that evaluate a jaxpr."""


JAX: Final = f"{os.sep}jax{os.sep}"
"""What the paths of JAX's own files have in them."""


class Evaluation:
    """Evaluates jaxprs on expressions, on arrays of them, and on numbers."""

    def __init__(self, max_steps: int | None) -> None:
        self._max_steps = max_steps

    def closed(self, closed: Any, arguments: Sequence[Any]) -> Values:
        """The results of a closed jaxpr."""
        return self._jaxpr(closed.jaxpr, closed.consts, arguments)

    def _jaxpr(self, jaxpr: Any, consts: Sequence[Any], arguments: Sequence[Any]) -> Values:
        known: dict[Any, Any] = {}

        def value(atom: Any) -> Any:
            return np.asarray(atom.val)[()] if hasattr(atom, "val") else known[atom]

        known.update(zip(jaxpr.constvars, map(_number, consts), strict=True))
        known.update(zip(jaxpr.invars, arguments, strict=True))
        for equation in jaxpr.eqns:
            given = [value(atom) for atom in equation.invars]
            known.update(zip(equation.outvars, self._results(equation, given), strict=True))
        return [value(atom) for atom in jaxpr.outvars]

    def _results(self, equation: Any, given: Values) -> Values:
        name, params = equation.primitive.name, equation.params
        if not any(_is_traced(v) for v in given) and not _jaxprs(params):
            found = equation.primitive.bind(*map(jax().numpy.asarray, given), **params)
            return [_number(v) for v in (found if equation.primitive.multiple_results else [found])]
        if name in ELEMENTWISE:
            return [ELEMENTWISE[name](*given, **{k: v for k, v in params.items() if k == "y"})]
        if name in REDUCTIONS:
            return [REDUCTIONS[name](given[0], axis=tuple(params["axes"]))]
        if name in ACCUMULATIONS:
            return [_accumulated(ACCUMULATIONS[name], given[0], **params)]
        if name in MOVES and not any(map(_is_traced, given[INDICES.get(name, len(given)) :])):
            return _moved(equation, given)
        if name in CALLS:
            inner = params.get("jaxpr", params.get("call_jaxpr"))
            if hasattr(inner, "consts"):
                return self.closed(inner, given)
            return self._jaxpr(inner, (), given)
        rule = getattr(self, f"_{name.replace('-', '_')}", None)
        return rule(equation, *given) if rule else _refused(equation)

    # what has rules of its own -------------------------------------------------------------------

    def _convert_element_type(self, equation: Any, x: Any) -> Values:
        return [_each(_converted(np.dtype(equation.params["new_dtype"])), x)]

    def _round(self, equation: Any, x: Any) -> Values:
        to_even = int(equation.params["rounding_method"]) == 1
        return [sg.round(x) if to_even else sg.sign(x) * sg.floor(sg.abs(x) + 0.5)]

    def _dot_general(self, equation: Any, a: Any, b: Any) -> Values:
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

    def _dynamic_slice(self, equation: Any, x: Any, *starts: Any) -> Values:
        sizes = equation.params["slice_sizes"]
        first = [_start(s, n, k) for s, n, k in zip(starts, np.shape(x), sizes, strict=True)]
        return [_taken(x, sizes, lambda place: _sum(first, place))]

    def _dynamic_update_slice(self, equation: Any, x: Any, update: Any, *starts: Any) -> Values:
        sizes = np.shape(update)
        first = [_start(s, n, k) for s, n, k in zip(starts, np.shape(x), sizes, strict=True)]
        for place in np.ndindex(*sizes):
            x = array(x).at[_sum(first, place)].set(np.asarray(update, object)[place])
        return [x]

    def _gather(self, equation: Any, x: Any, indices: Any) -> Values:
        params = equation.params
        numbers, sizes = params["dimension_numbers"], params["slice_sizes"]
        if numbers.operand_batching_dims:
            raise UnsupportedError("from_jax: gather with batching axes of vmap at traced indices")
        kept = [axis for axis in range(len(sizes)) if axis not in numbers.collapsed_slice_dims]
        index, lengths = np.asarray(indices, object), np.shape(x)

        def at(place: tuple[int, ...]) -> list[Any]:
            batch = tuple(p for i, p in enumerate(place) if i not in numbers.offset_dims)
            offsets = dict(zip(kept, (place[i] for i in numbers.offset_dims), strict=True))
            start = {
                axis: _start(index[(*batch, k)], lengths[axis], sizes[axis])
                for k, axis in enumerate(numbers.start_index_map)
            }
            return [start.get(axis, 0) + offsets.get(axis, 0) for axis in range(len(sizes))]

        return [_taken(x, equation.outvars[0].aval.shape, at)]

    def _scatter(self, equation: Any, x: Any, indices: Any, updates: Any) -> Values:
        return self._scattered(equation, x, indices, updates, "set")

    def _scatter_add(self, equation: Any, x: Any, indices: Any, updates: Any) -> Values:
        return self._scattered(equation, x, indices, updates, "add")

    def _scattered(self, equation: Any, x: Any, indices: Any, updates: Any, how: str) -> Values:
        numbers = equation.params["dimension_numbers"]
        if numbers.operand_batching_dims:
            raise UnsupportedError("from_jax: scatter with batching axes (of vmap)")
        rank, found = len(np.shape(x)), array(x)
        kept = [axis for axis in range(rank) if axis not in numbers.inserted_window_dims]
        for place in np.ndindex(*np.shape(updates)):
            batch = tuple(p for i, p in enumerate(place) if i not in numbers.update_window_dims)
            where = dict(zip(kept, (place[i] for i in numbers.update_window_dims), strict=True))
            for k, axis in enumerate(numbers.scatter_dims_to_operand_dims):
                start = np.asarray(indices, object)[(*batch, k)]
                where[axis] = where.get(axis, 0) + start
            target = found.at[tuple(where.get(axis, 0) for axis in range(rank))]
            found = getattr(target, how)(np.asarray(updates, object)[place])
        return [found]

    def _cond(self, equation: Any, which: Any, *operands: Any) -> Values:
        branches = [
            lambda *given, b=branch: tuple(self.closed(b, given))
            for branch in equation.params["branches"]
        ]
        if not _is_traced(which):
            return list(branches[int(np.clip(which, 0, len(branches) - 1))](*operands))
        if len(branches) == 2:
            return list(choices.cond(which > 0, branches[1], branches[0], *operands))
        return list(choices.switch(which, branches, *operands))

    def _scan(self, equation: Any, *given: Any) -> Values:
        p = equation.params
        first, carried = p["num_consts"], p["num_consts"] + p["num_carry"]
        consts, init, xs = given[:first], given[first:carried], given[carried:]

        def step(carry: Any, x: Any) -> Any:
            found = self.closed(p["jaxpr"], [*consts, *carry, *(x or ())])
            return tuple(found[: p["num_carry"]]), tuple(found[p["num_carry"] :])

        carry = tuple(map(_carried, init, p["jaxpr"].in_avals[first:]))
        last, ys = control.scan(step, carry, tuple(xs) or None, p["length"], p["reverse"])
        return [*last, *(ys or ())]

    def _while(self, equation: Any, *given: Any) -> Values:
        p = equation.params
        of_cond, of_body = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]
        for_cond, for_body, init = given[:of_cond], given[of_cond:of_body], given[of_body:]
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
    name, traceback = equation.primitive.name, equation.source_info.traceback
    if name.startswith("custom_vjp"):
        raise UnsupportedError(
            f"from_jax: the function has a rule of jax.custom_vjp ({name}), which symgrad "
            "cannot read: write it with sg.custom_vjp, or without the rule"
        )
    frames = [f for f in traceback.frames if JAX not in f.file_name] if traceback else []
    place = f", at {frames[0].file_name}:{frames[0].line_num}" if frames else ""
    raise UnsupportedError(f"from_jax: symgrad has nothing for JAX's {name}{place}")


def _jaxprs(params: Any) -> bool:
    return any("jaxpr" in key or key == "branches" for key in params)


def _number(value: Any) -> Any:
    """A constant of JAX as NumPy's."""
    return np.asarray(value)[()]


def _is_traced(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.dtype == object
    return not isinstance(value, (np.generic, int, float, bool))


def _each(function: Callable[[Any], Any], x: Any) -> Any:
    if not np.shape(x):
        return function(x)
    flat = array(x).reshape(-1)
    return array([function(v) for v in flat]).reshape(np.shape(x))


def _converted(dtype: np.dtype[Any]) -> Callable[[Any], Any]:
    """How an element becomes one of another dtype."""

    def convert(x: Any) -> Any:
        if not _is_traced(x):
            return dtype.type(x)
        if dtype.kind == "f":
            return x.as_float()
        if dtype.kind == "b":
            return x if isinstance(x, Condition) else x != 0
        if isinstance(x, Condition):
            x = x.as_float()
        whole = sg.trunc(x) if isinstance(x, Expr) else x
        return uint32(whole) if dtype.kind == "u" else int32(whole)

    return convert


def _carried(value: Any, aval: Any) -> Any:
    """The first value of a carry, as an expression of its type: integers stay such."""
    if _is_traced(value) or aval.dtype.kind == "f" or aval.dtype.kind == "b":
        return value
    return _each(uint32 if aval.dtype.kind == "u" else int32, value)


def _accumulated(function: Callable[..., Any], x: Any, axis: int, reverse: bool, **_: Any) -> Any:
    flip = (lambda a: np.flip(array(a), axis)) if reverse else (lambda a: a)
    return flip(function(flip(x), axis=axis))


def _moved(equation: Any, given: Values) -> Values:
    """What a primitive of `MOVES` gives: it moves the elements' numbers, and they follow."""
    ends = INDICES.get(equation.primitive.name, len(given))
    flat: list[Any] = []
    places: list[Any] = []
    for value in given[:ends]:
        shape = np.shape(value)
        size = math.prod(shape)
        places.append(np.arange(len(flat), len(flat) + size, dtype=np.int32).reshape(shape))
        flat.extend(array(value).reshape(-1) if shape else [value])
    rest = [jax().numpy.asarray(v) for v in given[ends:]]
    found = equation.primitive.bind(*map(jax().numpy.asarray, places), *rest, **equation.params)
    several = found if equation.primitive.multiple_results else [found]
    return [_picked(flat, np.asarray(where)) for where in several]


def _picked(flat: list[Any], where: np.ndarray) -> Any:
    """The elements of these numbers; NaN for a number that is none, as JAX fills with."""
    one = [flat[k] if 0 <= k < len(flat) else math.nan for k in where.reshape(-1).tolist()]
    return array(one).reshape(where.shape) if where.shape else one[0]


def _start(start: Any, length: int, size: int) -> Any:
    """Where a slice begins: moved, as JAX does, so that it lies within the axis."""
    if not _is_traced(start):
        return int(np.clip(start, 0, length - size))
    return 0 if length == size else sg.minimum(sg.maximum(start, 0), length - size)


def _sum(first: Sequence[Any], place: Sequence[int]) -> tuple[Any, ...]:
    return tuple(a + b for a, b in zip(first, place, strict=True))


def _taken(x: Any, shape: Sequence[int], at: Callable[[tuple[int, ...]], Any]) -> Any:
    """The elements of x at what ``at`` gives for each place of an array of a shape."""
    source = array(x)
    found = [source[tuple(at(place))] for place in itertools.product(*map(range, shape))]
    return array(found).reshape(tuple(shape)) if shape else found[0]
