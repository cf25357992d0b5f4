"""Which operations are defined here rather than by a device, and their definitions as graphs."""

from __future__ import annotations

import inspect
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial, update_wrapper
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any, Final, Literal, get_args

from symgrad.errors import InputError, UnsupportedError
from symgrad.expr import ops
from symgrad.expr.graph.node import Graph, Node, Op, inputs_of, reachable
from symgrad.expr.graph.region import in_regions
from symgrad.expr.laws.simplify import Definition, Rewriter, simplify
from symgrad.expr.references import is_product, power_chain, power_product
from symgrad.expr.tracers.expression import WRAP, Expr
from symgrad.mathlib import (
    bessel,
    bits,
    elliptic,
    error_function,
    exponential,
    gamma,
    incomplete,
    incomplete_beta,
    inline,
    order,
    quotient,
    rounding,
    trigonometric,
)
from symgrad.mathlib.arrange import in_turns, merge_constants, share_reductions, with_fused
from symgrad.mathlib.barriers import DIVISIONS, with_barriers
from symgrad.mathlib.double import digits, logistic
from symgrad.mathlib.double import error_function as double_error_function
from symgrad.mathlib.double import exponential as double_exponential
from symgrad.mathlib.double import quotient as double_quotient
from symgrad.mathlib.double import trigonometric as double_trigonometric
from symgrad.mathlib.meeting import Meetings, Passage, passage
from symgrad.mathlib.pair import arithmetic, plane
from symgrad.mathlib.pair import circular as pair_circular
from symgrad.mathlib.pair import error_function as pair_error_function
from symgrad.mathlib.pair import exponential as pair_exponential
from symgrad.mathlib.pair import quotient as pair_quotient
from symgrad.mathlib.pair.expression import on_pairs, paired

Math = Literal["accurate", "fast", "strict"]

MATH: Final = get_args(Math)
"""The choices of ``math=``."""

Formula = Callable[..., Any]


def _definitions(*modules: ModuleType) -> dict[Op, Formula]:
    """The functions of modules that bear the names of operations, and take no digits."""
    own = {f.__name__: f for module in modules for f in _functions(module) if not _has_digits(f)}
    return {ops.TABLE[name]: f for name, f in own.items() if name in ops.TABLE}


def _with_digits(digits: Any, module: ModuleType) -> dict[Op, Formula]:
    """The functions of a module that bear the names of operations, with these digits."""
    own = {f.__name__: f for f in _functions(module) if _has_digits(f)}
    return {
        ops.TABLE[name]: update_wrapper(partial(f, digits=digits), f)
        for name, f in own.items()
        if name in ops.TABLE
    }


def _functions(module: ModuleType) -> list[FunctionType]:
    """The functions that a module defines itself."""
    own = [f for f in vars(module).values() if isinstance(f, FunctionType)]
    return [f for f in own if f.__module__ == module.__name__]


def _has_digits(f: FunctionType) -> bool:
    return "digits" in f.__code__.co_varnames[: f.__code__.co_argcount]


INLINE: Final[Mapping[Op, Formula]] = {
    **_definitions(inline, bessel),
    ops.real_reciprocal: trigonometric.real_reciprocal,
    ops.real_reciprocal_square: trigonometric.real_reciprocal_square,
    ops.direction: trigonometric.direction,
    **{op: op.definition for op in ops.TABLE.values() if op.definition},
}
"""The definitions that graphs in float32 expand, those in rows of the op table among them."""

_SINGLE: Final[Mapping[Op, Formula]] = {
    **_definitions(order, quotient, exponential, trigonometric, error_function),
    **_with_digits(gamma.SINGLE, gamma),
    **_with_digits(bessel.SINGLE, bessel),
    **_with_digits(elliptic.SINGLE, elliptic),
    **_with_digits(error_function.SINGLE, error_function),
    **_with_digits(incomplete.SINGLE, incomplete),
    **_with_digits(incomplete_beta.SINGLE, incomplete_beta),
}

FORMULAS: Final[Mapping[Op, Formula]] = {op: f for op, f in _SINGLE.items() if op not in INLINE}
"""The definitions that are functions of a kernel."""

ROUNDED: Final[Mapping[Op, Formula]] = _definitions(rounding)
"""Further definitions of math="strict", for devices that do not round these correctly."""

COMPARED: Final[Mapping[Op, Formula]] = {ops.minimum: order.smaller, ops.maximum: order.larger}
"""Definitions that are shorter for back ends in which comparisons with NaN are false."""

DOUBLE: Final[Mapping[Op, Formula]] = {
    **COMPARED,
    ops.sign: order.sign,
    ops.remainder: quotient.remainder,
    **_definitions(
        double_quotient,
        double_exponential,
        double_trigonometric,
        double_error_function,
        logistic,
    ),
    **_with_digits(digits.GAMMA, gamma),
    **_with_digits(digits.BESSEL, bessel),
    **_with_digits(digits.ELLIPTIC, elliptic),
    **_with_digits(digits.FADDEEVA, error_function),
    **_with_digits(digits.INCOMPLETE, incomplete),
    **_with_digits(digits.BETA, incomplete_beta),
}
"""The definitions in float64."""

DOUBLE_ALONE: Final[Mapping[Op, Formula]] = {
    ops.round: bits.rounded,
    ops.scalb: bits.scaled,
}
"""Further definitions of what has no reliable counterpart in WGSL's float64."""

PAIRED: Final[Mapping[Op, Formula]] = _definitions(
    arithmetic, pair_exponential, pair_circular, plane, pair_error_function, pair_quotient
)
"""The definitions on pairs of float32, by the operations on floats that they are beside."""

SHARED: Final[Mapping[Op, Formula]] = {
    **{op: f for op, f in DOUBLE.items() if op not in PAIRED and op not in INLINE},
    ops.gelu_tanh: logistic.gelu_tanh,
    ops.gelu_tanh_slope: logistic.gelu_tanh_slope,
    **_with_digits(replace(digits.GAMMA, circular=gamma.circles), gamma),
    **_with_digits(replace(digits.ELLIPTIC, largest=elliptic.LARGEST), elliptic),
}
"""The definitions in float64 that are taken on pairs operation by operation.

On pairs sines and cosines are those of turns, which are 0 at whole numbers.
"""

OF_PAIRS: Final = {paired(op): formula for op, formula in PAIRED.items()} | {
    paired(op): on_pairs(formula, lambda: inlined("accurate", "float32x2"))
    for op, formula in SHARED.items()
}
"""All definitions on pairs, by the operations on pairs."""

_SELDOM: Final = (
    ops.far_quarters, ops.far_angle, ops.far_sin, ops.far_cos, ops.far_tan, ops.far_modulus,
)  # fmt: skip
_RARE: Final = frozenset({*_SELDOM, *map(paired, _SELDOM)})
"""Operations that are worth a branch: long, and needed by few arguments."""

_CHOICES: Final = frozenset({ops.where, paired(ops.where)})


@dataclass(frozen=True)
class Function:
    """An operation that a back end emits as a function of its own, and calls.

    ``graph`` is simplified and holds nothing but the definition; it may use operations that are
    functions themselves, never in a circle. ``arguments`` are its input nodes, in order.
    """

    op: Op
    name: str
    graph: Graph
    root: int
    arguments: tuple[int, ...]
    doc: str

    @property
    def rare(self) -> tuple[int, ...]:
        """The condition and the call of a body that may begin "if (condition) { return call; }".

        It does where the body chooses, last of all, between a call of a formula and something
        else; empty for all others.
        """
        nodes = self.graph.nodes
        node = nodes[self.root]
        chooses = node[0] in _CHOICES and nodes[node[2]][0] in _RARE
        return node[1:3] if chooses else ()


class Functions(Mapping[Op, Function]):
    """Functions by their operations, each defined when it is first asked for.

    ``finish`` makes of a definition what is kept.
    """

    def __init__(
        self,
        formulas: Mapping[Op, Formula],
        finish: Callable[[Function], Function],
        dtype: str = "float32",
    ) -> None:
        self._formulas = formulas
        self._finish = finish
        self._dtype = dtype
        self._functions: dict[Op, Function] = {}

    def __getitem__(self, op: Op) -> Function:
        if op not in self._functions:
            self._functions[op] = self._finish(define(op, self._formulas[op], self._dtype))
        return self._functions[op]

    def __contains__(self, op: object) -> bool:
        return op in self._formulas

    def __iter__(self) -> Iterator[Op]:
        return iter(self._formulas)

    def __len__(self) -> int:
        return len(self._formulas)


@cache
def functions(math: str, dtype: str = "float32") -> Mapping[Op, Function]:
    """The operations to be emitted as functions; some call others of them, never in a circle.

    With ``math="fast"``, only those that WGSL lacks or has wrong by design: a row of the op table
    that carries a WGSL text is then left to the device. With ``math="strict"``, quotients and roots
    that are rounded correctly are among them. In float64 devices have no more than quotients and
    roots, which they round correctly, and the functions are the same for any ``math``. In
    float32x2 they are those of pairs, and of float32 what these call.
    """
    if dtype == "float64":
        every = {**DOUBLE, **DOUBLE_ALONE}
        return Functions(every, partial(_with_barriers, math=math, dtype=dtype), dtype)
    if dtype == "float32x2":
        return _of_pairs(functions("strict" if math == "strict" else "accurate"), math)
    return _named({**_formulas(math), **(ROUNDED if math == "strict" else {})}, math)


@cache
def rounding_functions(math: str, dtype: str = "float32") -> Mapping[Op, Function]:
    """The functions for a back end whose own quotients and roots are rounded correctly.

    Its comparisons are those of IEEE 754, too.
    """
    if dtype == "float32x2":
        return _of_pairs(rounding_functions("strict" if math == "strict" else "accurate"), math)
    return _named({**_formulas(math), **COMPARED}, math)


def _of_pairs(single: Mapping[Op, Function], math: str) -> Mapping[Op, Function]:
    """The functions of pairs, beside those of float32, which they call.

    They say themselves what must be opaque, unless all is.
    """

    def finish(function: Function) -> Function:
        graph, (root,) = with_barriers(function.graph, [function.root], math, variable=False)
        return replace(function, graph=graph, root=root, arguments=tuple(inputs_of(graph)))

    return ChainMap(Functions(OF_PAIRS, finish), single)  # type: ignore[arg-type]


def operation(op: Op, dtype: str) -> Op:
    """The operation that kernels of a dtype have of one of the op table.

    Raises:
        UnsupportedError: for one on floats that pairs do not have.
    """
    if dtype != "float32x2" or "f" not in op.signature:
        return op
    own = paired(op)
    if own in OF_PAIRS:
        return own
    if op in FORMULAS or op in INLINE or op.wgsl:
        raise UnsupportedError(
            f'{op.name} is not defined for dtype="float32x2": use dtype="float64" or "float32"'
        )
    return op


def _formulas(math: str) -> dict[Op, Formula]:
    every = {**FORMULAS, **INLINE}
    return {op: f for op, f in every.items() if math != "fast" or not op.wgsl}


def _named(formulas: Mapping[Op, Formula], math: str) -> Functions:
    return Functions(formulas, partial(_with_barriers, math=math))


@cache
def double() -> Mapping[Op, Function]:
    """The operations as functions in float64, for back ends that round each one as written."""
    return Functions(DOUBLE, lambda function: function, "float64")


def name_of(op: Op) -> str:
    """The name of the function of an operation; those of pairs bear the operation's own."""
    return op.name if op in OF_PAIRS else f"sg_{op.name}"


@cache
def inlined(math: str, dtype: str = "float32") -> Mapping[Op, Definition]:
    """The operations that ``simplify(..., definitions=)`` expands, and how.

    In float64, and in pairs, those that are functions there are not expanded; powers of pairs are
    products by repeated squaring, as they have digits to spare.
    """
    kept = {"float64": DOUBLE, "float32x2": {**PAIRED, **SHARED}}.get(dtype, {})
    expanded = {op: _expansion(op, f) for op, f in INLINE.items() if op not in kept}
    by_squares = math == "fast" or dtype == "float32x2"
    return MappingProxyType(
        {
            **expanded,
            ops.integer_pow: _expand_fast_integer_pow if by_squares else _expand_integer_pow,
            ops.pow: _expand_pow,
            ops.pow_times: _expand_pow_times,
        }
    )


def lower(
    graph: Graph, roots: Sequence[int], math: str, dtype: str, reread: Iterable[int] = ()
) -> tuple[Graph, list[int]]:
    """A simplified graph, and its regions, as back ends get it.

    In float32, constants that differ in float64 only are one, and sines of multiples of pi are
    those of turns; in float32 and in pairs, sines and cosines of one argument share their
    reduction. What compilers must not see through is opaque, also from roots, by their numbers,
    that are ``reread``, as inputs.
    """
    lowered = list(roots)
    if dtype == "float32":
        graph, lowered = _arranged(graph, roots, math)
    if dtype == "float32x2":
        graph, lowered = _of_pairs_arranged(graph, roots, math)
    meetings = None
    if math != "strict" and dtype != "float32x2":  # sums of pairs are opaque themselves
        callee, sums = partial(_passage, math=math, dtype=dtype), math == "accurate"
        meetings = Meetings(graph, lowered, callee, dtype, sums, ends=reread)
    return with_barriers(graph, lowered, math, meetings=meetings)


def _arranged(graph: Graph, roots: Sequence[int], math: str) -> tuple[Graph, list[int]]:
    """A graph, and its regions, with equal constants, turns and shared reductions."""
    graph, arranged = in_regions(graph, roots, partial(_arranged, math=math))
    if math == "fast":
        return merge_constants(graph, arranged)
    return share_reductions(*in_turns(graph, arranged), merging=True)


def _of_pairs_arranged(graph: Graph, roots: Sequence[int], math: str) -> tuple[Graph, list[int]]:
    """A graph, and its regions, with shared reductions, and products that are one with sums."""
    graph, arranged = in_regions(graph, roots, partial(_of_pairs_arranged, math=math))
    graph, arranged = share_reductions(graph, arranged)
    return (graph, arranged) if math == "strict" else with_fused(graph, arranged)


@cache
def _passage(op: Op, math: str, dtype: str) -> Passage | None:
    """The passage of constants through an operation, if it is a function of kernels."""
    f = functions(math, dtype).get(op)
    if f is None:
        return None
    callee = partial(_passage, math=math, dtype=dtype)
    return passage(f.graph, f.root, f.arguments, callee, dtype)


def _with_barriers(function: Function, math: str, dtype: str = "float32") -> Function:
    """A function as kernels call it, whose callers see to it that no divisor of theirs vanishes."""
    graph, roots = function.graph, [function.root]
    callee = partial(_passage, math=math, dtype=dtype)
    meetings = None if math == "strict" else Meetings(graph, roots, callee, dtype)
    graph, (root,) = with_barriers(
        graph,
        roots,
        math,
        variable=function.op in DIVISIONS,
        meetings=meetings,
        compensated=dtype == "float64",
    )
    return replace(function, graph=graph, root=root, arguments=tuple(inputs_of(graph)))


def require_math(math: str) -> None:
    """Refuse what is no choice of how accurate functions are."""
    if math not in MATH:
        choices = ", ".join(f'"{name}"' for name in MATH[:-1]) + f' or "{MATH[-1]}"'
        raise InputError(f"math={math!r} is not a choice: use {choices}")


@cache
def define(op: Op, formula: Formula, dtype: str = "float32") -> Function:
    """The function of an operation that a formula defines."""
    traced, root = _trace(op, formula)
    graph, (root,) = simplify(traced, [root], True, inlined("accurate", dtype))
    doc = (formula.__doc__ or f"{op.meaning}.").partition("\n")[0]
    return Function(op, name_of(op), graph, root, tuple(inputs_of(graph)), doc)


@cache
def _trace(op: Op, formula: Formula) -> tuple[Graph, int]:
    """The graph of a definition, whose inputs are named as its parameters, and its root."""
    graph = Graph()
    graph.tracing = False
    code = inspect.unwrap(formula).__code__
    names = code.co_varnames[: code.co_argcount]
    kinds = zip(names, op.signature[: op.arity], strict=False)
    parameters = [WRAP[t](graph, graph.input(n, t)) for n, t in kinds]
    return graph, formula(*parameters).id


@cache
def primitive(math: str) -> Mapping[Op, Definition]:
    """The definitions that leave nothing but operations of the device: for an interpreter."""
    formulas = {**FORMULAS, **INLINE, **ROUNDED}
    own = {op: _expansion(op, formulas[op]) for op in functions(math)}
    return MappingProxyType({**own, **inlined(math)})


def _expansion(op: Op, formula: Formula) -> Definition:
    """The definition that writes the formula's graph into a rewriter's."""

    def expand(rewriter: Rewriter, *arguments: int) -> int:
        return _replay(_formula_steps(op, formula), rewriter, arguments)

    return expand


@cache
def _formula_steps(op: Op, formula: Formula) -> Steps:
    return _steps(*_trace(op, formula))


def _expand_integer_pow(rewriter: Rewriter, x: int, exponent: int) -> int:
    """x**k by the products of `power_product`, a reciprocal at the end if k < 0; or as a power."""
    k: int = rewriter.graph.nodes[exponent][1]
    if k == 0:
        return rewriter.constant(1.0)
    if not is_product(k):
        return rewriter.make(ops.pow, x, rewriter.constant(float(k)))
    power = _replay(_accurate_power(k), rewriter, (x,))
    return rewriter.make(ops.reciprocal, power) if k < 0 else power


def _expand_fast_integer_pow(rewriter: Rewriter, x: int, exponent: int) -> int:
    """x**k, and 1/x to the k, by repeated squaring: all powers of x share their products."""
    k: int = rewriter.graph.nodes[exponent][1]
    if k == 0 or not is_product(k):
        return _expand_integer_pow(rewriter, x, exponent)
    base = rewriter.make(ops.reciprocal, x) if k < 0 else x
    return _replay(_fast_power(abs(k)), rewriter, (base,))


def _expand_pow(rewriter: Rewriter, x: int, exponent: int) -> int:
    """x**1.5 as x * sqrt(x); the function for all other exponents."""
    if rewriter.graph.value(exponent) == 1.5:
        return rewriter.make(ops.mul, x, rewriter.make(ops.sqrt, x))
    return rewriter.graph.add(ops.pow, x, exponent)


def _expand_pow_times(rewriter: Rewriter, c: int, x: int, p: int, k: int) -> int:
    """c x**(p + k), each k a formula of its own."""
    return _replay(_shifted_power(rewriter.graph.nodes[k][1]), rewriter, (c, x, p))


Steps = tuple[Node, ...]
"""A graph as a list of nodes, whose ids are positions: inputs first, then these, the root last."""


@cache
def _accurate_power(k: int) -> Steps:
    return _steps_of_power(lambda x: power_product(x, k, ops.first_digits))


@cache
def _fast_power(k: int) -> Steps:
    return _steps_of_power(lambda x: power_chain(x, k))


def _steps_of_power(power: Callable[[Expr], Expr]) -> Steps:
    graph = Graph()
    graph.tracing = False
    return _steps(graph, power(Expr(graph, graph.input("x"))).id)


@cache
def _shifted_power(k: int) -> Steps:
    graph = Graph()
    graph.tracing = False
    c, x, p = (Expr(graph, graph.input(name)) for name in "cxp")
    return _steps(graph, inline.power_times(c, x, p, k).id)


def _steps(graph: Graph, root: int) -> Steps:
    position = {i: k for k, i in enumerate(inputs_of(graph))}
    steps: list[Node] = []
    for i in reachable(graph, [root]):
        if i not in position:
            node = graph.nodes[i]
            steps.append((node[0], *[position[a] for a in node[1:]]) if node[0].arity else node)
            position[i] = len(position)
    return tuple(steps)


def _replay(steps: Steps, rewriter: Rewriter, arguments: tuple[int, ...]) -> int:
    values = list(arguments)
    for step in steps:
        if step[0].arity:
            values.append(rewriter.make(step[0], *[values[a] for a in step[1:]]))
        else:
            values.append(rewriter.graph.intern(step))
    return values[-1]
