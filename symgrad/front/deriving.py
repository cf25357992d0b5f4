"""From f and a derivation to a kernel: the common part of the verbs of `symgrad.front.fused`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from symgrad.backend import placed
from symgrad.errors import InputError, InputTypeError, TraceError, counted
from symgrad.expr.calls.verbs import jacobian
from symgrad.expr.derivatives import differentiate
from symgrad.expr.derivatives.accumulate import Mode, Sought, accumulated
from symgrad.expr.derivatives.transpose import Checkpoint
from symgrad.expr.graph.place import describe
from symgrad.expr.laws.simplify import Level
from symgrad.expr.tracers.array import array
from symgrad.expr.tracers.expression import lift
from symgrad.expr.tracers.tree import Sizes, Tree
from symgrad.expr.tracing.trace import Trace, require_feasible, scalar, variables
from symgrad.front.choice import LARGE_POINT, whole_or_elements
from symgrad.front.kernels import Kernel, assemble
from symgrad.front.running import Inputs
from symgrad.front.whole_kernels import gradient_of_whole
from symgrad.kernel.shapes import unique
from symgrad.mathlib.define import Math
from symgrad.pipeline import Built, Derivation, DType, Options, Wanted, build, dtype_name
from symgrad.targets import choose_any
from symgrad.values.nested import (
    Array,
    Result,
    Scalar,
    Sparse,
    derivatives,
    nested_result,
    of_row,
    variables_of,
)

Function = Callable[..., Any]

Maker = Callable[[Built, Inputs, Options, str, Any, bool], Kernel]
"""A function that makes a kernel: `assemble`, or `shared`."""


@dataclass(frozen=True)
class Making:
    """How a kernel is made, for which device, and the user's names for its variables.

    ``make`` is `shared` for kernels that no user sees.
    """

    options: Options
    device: Any = None
    names: Sequence[str] | None = None
    make: Maker = assemble


def options_of(
    f: Function,
    name: str | None,
    math: Math,
    dtype: DType,
    simplify: Level,
    comments: bool,
    roll: bool = True,
    checkpoint: Checkpoint = "auto",
) -> Options:
    """The options of a kernel, checked as far as they can be before tracing."""
    if not callable(f):
        raise TraceError(f"f is a function of an array of n variables, not {f!r}")
    title = name or getattr(f, "__name__", "f")
    return Options(title, math, dtype_name(dtype), simplify, comments, roll, checkpoint)


def squares_kernel(n: Sizes, f: Function, *, device: Any, **options: Any) -> Kernel:
    """The kernel of the sum of squares of residuals of points, its gradient and JᵀJ."""
    tree = variables_of(n)

    def derive(traced: Trace) -> list[Wanted]:
        graph = traced.graph
        with differentiate.deriving(graph):
            r, v = (variables(graph, ids) for ids in (traced.outputs, traced.inputs))
            slopes = jacobian(r, v).toarray()
            parts = np.sum(r * r), 2.0 * (slopes.T @ r), slopes.T @ slopes
            loss, grad, matrix = (
                tuple(lift(graph, e).id for e in np.ravel(array(part))) for part in parts
            )
        return [
            Wanted("loss", loss, Scalar()),
            Wanted("grad", grad, derivatives(tree)),
            Wanted("jtj", matrix, Array((tree.size, tree.size))),
        ]

    kernel_options = options_of(f, None, comments=True, **options)
    derivation = Derivation(("squares", tree), derive)
    return kernel_of(f, tree, derivation, "squares", Making(kernel_options, device))


def gradient_kernel(
    n: Any,
    f: Function,
    making: Making,
    wrt: int | None = None,
    aux: bool = False,
    mode: Mode = "reverse",
) -> Kernel:
    """The kernel of a loss of n variables and its derivatives for the first ``wrt`` of them.

    None is all of them, nested as n is. With ``aux`` f returns the loss and what else is wanted.
    One loss is differentiated in reverse, unless ``mode`` says otherwise.
    """
    tree = variables_of(n)
    result = derivatives(tree) if wrt is None else Array((wrt,))

    def derive(traced: Trace) -> list[Wanted]:
        traced, more = _with_aux(traced, f) if aux else (traced, [])
        loss = scalar(traced, f).outputs[0]
        sought = Sought((loss,), traced.inputs[:wrt])
        entries, chosen_mode = accumulated(traced.graph, sought, mode)
        gradient = dense(traced, [entries.get((0, k)) for k in range(len(sought.wrt))])
        wanted = Wanted("grad", gradient, result, chosen_mode)
        return [Wanted("loss", (loss,), Scalar()), wanted, *more]

    derivation = Derivation(("gradient", result, aux, mode), derive)
    by_elements = partial(kernel_of, f, tree, derivation, "loss and gradient", making)
    if wrt is not None or aux or mode != "reverse":
        return by_elements()
    return whole_or_elements(
        lambda _: gradient_of_whole(f, tree, making.options, making.device),
        by_elements,
        large=tree.size > LARGE_POINT,
    )


def values_kernel(f: Function, tree: Tree, making: Making) -> Kernel:
    """The kernel of all that a function of the variables of a tree returns, nested likewise."""

    def derive(traced: Trace) -> list[Wanted]:
        if not traced.outputs:
            raise TraceError("f returned an empty container: there is nothing to compute")
        return [Wanted("values", traced.outputs, nested_result(traced.structure))]

    return kernel_of(f, tree, Derivation("values", derive), "values", making, single=True)


def pair_of(f: Function, result: Any) -> Any:
    """The loss and what else a function returned.

    Raises:
        TraceError: if it is no pair.
    """
    if not isinstance(result, tuple) or len(result) != 2:
        raise TraceError(f"{describe(f)} did not return a pair: has_aux=True needs (loss, aux)")
    return result


def _with_aux(traced: Trace, f: Function) -> tuple[Trace, list[Wanted]]:
    """The trace of the loss alone, and what was returned beside it."""
    parts = pair_of(f, traced.structure.children if traced.structure.kind is tuple else ())
    loss, rest = traced.outputs[: parts[0].size], traced.outputs[parts[0].size :]
    alone = replace(traced, outputs=loss, structure=parts[0])
    return alone, [Wanted("aux", rest, nested_result(parts[1]))]


def kernel_of(
    f: Function,
    tree: Tree,
    derivation: Derivation,
    what: str,
    making: Making,
    single: bool = False,
) -> Kernel:
    """The kernel of what a derivation wants of f, a function of the variables of a tree."""
    target = choose_any(making.device)
    options, names = placed(making.options, target), names_of(making.names, tree)
    built = build(of_row(f, tree), tree.size, derivation, options, names)
    title = f"{options.name}: {what}"
    return making.make(built, Inputs(("x",), (tree,)), options, title, target, single)


def names_of(names: Sequence[str] | None, tree: Tree) -> Sequence[str]:
    """The user's names for the variables, or those of the arrays that they stand in."""
    n = tree.size
    require_feasible(n)
    if names is None and tree.is_leaf:
        return [f"x{k}" for k in range(n)]
    if names is None:
        default_names = [
            b.name_of(k) for b in tree.blocks for k in range(b.start, b.start + b.size)
        ]
        return unique([name.replace(".", "_") for name in default_names])
    if not all(isinstance(name, str) and name for name in names):
        raise InputTypeError(f"names are strings, not {names!r}")
    if len(names) != n or len(set(names)) != n:
        raise InputError(
            f"names must name {counted(n, 'variable')}, each differently, not {names!r}"
        )
    return list(names)


def seed_of(traced: Trace, root: int) -> dict[int, int]:
    """The cotangent of one value: 1."""
    return {root: traced.graph.constant(1.0)}


def dense(traced: Trace, derivatives: Sequence[int | None]) -> tuple[int, ...]:
    """Derivatives with zeros where they are structurally 0."""
    zero = traced.graph.constant(0.0)
    return tuple(zero if i is None else i for i in derivatives)


def matrix_of(
    traced: Trace,
    name: str,
    entries: dict[tuple[int, int], int],
    shape: tuple[int, int],
    result: Result,
    sparse: bool,
) -> Wanted:
    """A matrix of derivatives as one array of results, dense or its nonzero entries only."""
    rows, columns = shape
    if not sparse:
        cells = [entries.get((r, c)) for r in range(rows) for c in range(columns)]
        return Wanted(name, dense(traced, cells), result)
    ordered = sorted(entries) or [(0, 0)]
    counts = np.bincount([r for r, _ in ordered], minlength=rows)
    indptr = tuple(int(k) for k in np.concatenate([[0], np.cumsum(counts)]))
    pattern = Sparse(shape, tuple(c for _, c in ordered), indptr)
    return Wanted(name, dense(traced, [entries.get(rc) for rc in ordered]), pattern)
