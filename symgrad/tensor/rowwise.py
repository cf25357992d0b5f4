"""`rowwise`: a function of the elements of rows and of their reductions, and its gradients."""

from __future__ import annotations

import inspect
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from symgrad.backend import Backend
from symgrad.errors import InputError, InputTypeError, TraceError
from symgrad.expr import ops
from symgrad.expr.derivatives.differentiate import vjp
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import Graph
from symgrad.expr.tracers.expression import Expr
from symgrad.expr.tracers.row import Reduction, Reductions, Row, rows
from symgrad.expr.tracing.trace import trace
from symgrad.kernel.language import Target
from symgrad.kernel.launch import Array, Dispatch, Launch
from symgrad.kernel.shapes import Computation, Output
from symgrad.kernel.skeletons.rowwise import LENGTH, Rowwise, RowwiseProgram
from symgrad.kernel.skeletons.tiles import FOUR
from symgrad.kernel.target import SimdTarget, WorkgroupTarget
from symgrad.mathlib.define import Math
from symgrad.pipeline import DType, Options, dtype_name, simplified
from symgrad.targets import DeviceChoice
from symgrad.tensor.dispatches import column_sums
from symgrad.tensor.kernel import Runner, Shape, TensorKernel, launched


class RowGradients:
    """The gradients of a row's elements, of what its reductions and its results give."""

    def __init__(self, reductions: Reductions, inputs: Sequence[int]) -> None:
        self.reductions, self.graph, self.inputs = reductions, reductions.graph, inputs
        self.forward = list(reductions.entries)
        self.wrt = [*inputs, *(r.symbol for r in self.forward)]
        self.each: defaultdict[int, list[int]] = defaultdict(list)
        """Cotangents of inputs by elements: a node for each element."""
        self.once: defaultdict[int, list[int]] = defaultdict(list)
        """Cotangents of reductions by rows: once for a row."""

    def of(self, result: int, cotangent: int) -> list[int]:
        """The gradients of the inputs, for a cotangent of a result."""
        self._pull(result, cotangent)
        for reduction in reversed(self.forward):
            self._through(reduction)
        return [_sum(self.graph, self.each[i]) for i in self.inputs]

    def _pull(self, node: int, cotangent: int) -> None:
        """Passes on the cotangent of a node."""
        parts = self.each if self.reductions.varies(node) else self.once
        for i, contribution in zip(
            self.wrt, vjp(self.graph, {node: cotangent}, self.wrt), strict=True
        ):
            if contribution is not None:
                parts[i].append(contribution)

    def _through(self, reduction: Reduction) -> None:
        """Passes on the cotangent of a reduction to its elements."""
        graph, i = self.graph, reduction.symbol
        each = _sum(graph, self.each[i]) if self.each[i] else None
        summed = [] if each is None else [self.reductions.of("sum", each)]
        parts = [*summed, *self.once[i]]
        if not parts:
            return
        cotangent = _sum(graph, parts)
        if reduction.kind != "sum":
            cotangent = self._shared(reduction, cotangent)
        self._pull(reduction.node, cotangent)

    def _shared(self, reduction: Reduction, cotangent: int) -> int:
        """The cotangent of an extreme: elements that are equal to it have the same part of it."""
        element, extreme, incoming = (
            Expr(self.graph, i) for i in (reduction.node, reduction.symbol, cotangent)
        )
        is_it: Any = element == extreme
        many = self.reductions.of("sum", ops.where(is_it, 1.0, 0.0).id)
        return ops.where(is_it, incoming / Expr(self.graph, many), 0.0).id


def _sum(graph: Graph, parts: Sequence[int]) -> int:
    """The sum of some nodes."""
    if not parts:
        return graph.constant(0.0)
    total = parts[0]
    for part in parts[1:]:
        total = graph.add(ops.add, total, part)
    return total


MOST_ROW_INVOCATIONS: Final = 256
"""Invocations that have a row, at most."""

LEAST_ROW_INVOCATIONS: Final = 32
"""The fewest."""

LONG_ROW_ELEMENTS: Final = 2
"""Elements for each lane of a group in step that make a row long enough for the group."""

UNITS_PER_INVOCATION: Final = 4
"""Units of columns that are worth an invocation of their own."""

NUMBERS_IN_REGISTERS: Final = 32
"""Numbers of a row that an invocation holds, at most."""


@dataclass(frozen=True)
class RowwiseWork:
    """The work of a function of rows: see `Work`."""

    name: str
    arguments: tuple[str, ...]
    forward: Rowwise
    backward: Rowwise
    """All that ``vjp`` gives: the result, and a gradient for each argument."""
    cotangents: tuple[str, ...] = ("cotangent",)

    def results(self, shapes: Sequence[Shape]) -> list[Shape]:
        """One result: see `Work`."""
        first, *others = map(tuple, shapes)
        if not first:
            raise InputError(f"{self.arguments[0]} is a number: it must have rows, (.., n)")
        for name, shape in zip(self.arguments[1:], others, strict=True):
            if shape not in (first, first[-1:]):
                raise InputError(
                    f"{name} has shape {shape}: it must have that of {self.arguments[0]}, "
                    f"{first}, or a number for each column, {first[-1:]}"
                )
        return [first[:-1] if self.forward.whole else first]

    def launch(self, kind: str, shapes: Sequence[Shape], device_target: Target) -> Launch:
        """One kernel, and the sums of gradients that rows share: see `Work`."""
        names = [*self.arguments, *["cotangent"] * (kind == "vjp")]
        shape_of = dict(zip(names, map(tuple, shapes), strict=True))
        first = shape_of[names[0]]
        n, count = first[-1], math.prod(first[:-1])
        shared = tuple(name for name in self.arguments if shape_of[name] == first[-1:] != first)
        (result,) = self.results([shape_of[name] for name in self.arguments])
        outputs = [Array("result", result)]
        sums = tuple[str, ...]()
        if kind == "vjp":
            outputs += [Array(f"d_{name}", shape_of[name]) for name in self.arguments]
            sums = tuple(f"d_{name}" for name in shared)
        rowwise = replace(self.forward if kind == "run" else self.backward, by_column=shared)
        program, target = program_of(rowwise, n, device_target)
        program = program.summing(sums, count)
        standing = {} if program.summed else rowwise.standing(sums)
        program = replace(program, rowwise=rowwise.without(standing))
        thread_groups = -(-count // program.each)
        bound = {name: name for name in (*rowwise.arrays, *(o.name for o in outputs))}
        bound = {o: name for o, name in bound.items() if o not in sums}
        if program.summed:
            partials = [Array("sums", (thread_groups, len(sums), n))]
            bound["sums"], tables = "sums", {"sums": sums}
        else:
            partials = [Array(f"each_{o}", (count, n)) for o in sums if o not in standing]
            bound |= {o: f"each_{o}" for o in sums if o not in standing}
            tables = {standing.get(o, f"each_{o}"): (o,) for o in sums}
        arguments = ("rows", count), ("n", n)
        steps = [
            Dispatch(
                program, target, (*bound.items(),), thread_groups * target.threads, 0, arguments
            )
        ]
        scratch = partials
        for table, results in tables.items():
            width = n * len(results)
            sum_steps, chunks = column_sums(table, thread_groups, width, results, device_target)
            steps, scratch = [*steps, *sum_steps], [*scratch, *chunks]
        inputs = tuple(Array(name, shape) for name, shape in shape_of.items())
        arrays = inputs, tuple(outputs), tuple(scratch)
        return Launch(f"{self.name}_{kind}", *arrays, tuple(steps))

    def runner(
        self, kind: str, shapes: Sequence[Shape], backend: Backend, options: Options
    ) -> Runner:
        """A launch: see `Work`."""
        return launched(self, kind, shapes, backend, options)


def program_of(rowwise: Rowwise, n: int, device_target: Target) -> tuple[RowwiseProgram, Target]:
    """The program for rows with n elements, and what it is written for.

    A group has a row, or, of short rows on the CPU, a lane has.
    """
    if isinstance(device_target, SimdTarget):
        long = n >= LONG_ROW_ELEMENTS * device_target.width
        return RowwiseProgram(rowwise), replace(
            device_target, threads=device_target.width
        ) if long else device_target
    quads = n % FOUR == 0
    units = n // FOUR if quads else n
    wanted = 1 << max(-(-units // UNITS_PER_INVOCATION) - 1, 0).bit_length()
    width = min(MOST_ROW_INVOCATIONS, max(LEAST_ROW_INVOCATIONS, wanted))
    iterations = -(-units // width)
    registers = iterations if iterations * (units and n // units) <= NUMBERS_IN_REGISTERS else 0
    return RowwiseProgram(rowwise, quads, registers, iterations * width != units), WorkgroupTarget(
        width, grid=True
    )


def rowwise(
    f: Callable[..., Any],
    *,
    device: DeviceChoice = None,
    math: Math = "accurate",
    dtype: DType = "float32",
    name: str | None = None,
) -> TensorKernel:
    """The kernel of a function of rows, whose ``vjp`` gives the gradients of all its arguments.

    ``f`` is called once, with a `Row` for each of its arguments, and gives what is made of each
    element, or a number of the row, such as a sum. Arithmetic and functions are of each element;
    ``x.sum()``, ``x.mean()``, ``x.max()``, ``x.min()``, ``x.var()``, ``x.std()`` and NumPy's
    functions of these names are of the whole row. ``sg.softmax``, ``sg.log_softmax`` and
    ``sg.logsumexp`` take rows too.

    ``run(x, ..)`` takes arrays: the first is (.., n), rows along the last axis, and the others have
    the same shape, or (n,), a number for each column, as weights are. The result has the shape of
    the first, or without the last axis, where f gives a number of the row.

    Raises:
        TraceError: if f gives anything else, or asks for elements one by one.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> def normalised(x, weight):
        ...     return weight * x / np.sqrt(np.mean(x * x) + 1e-6)
        >>> layer = sg.rowwise(normalised, device="cpu")
        >>> layer.run([[3.0, 4.0], [0.0, 2.0]], [1.0, 10.0]).round(3).tolist()
        [[0.849, 11.314], [0.0, 14.142]]
        >>> y, (dx, dweight) = layer.vjp([[3.0, 4.0]], [1.0, 10.0], [[1.0, 0.0]])
        >>> dweight.round(3).tolist()
        [0.849, 0.0]
    """
    if not callable(f):
        raise InputTypeError(f"rowwise takes a function of rows, not {f!r}")
    called = name or getattr(f, "__name__", "rowwise").replace("<lambda>", "rowwise")
    options = Options(called, math=math, dtype=dtype_name(dtype), comments=False)
    arguments = _arguments(f)
    forward, backward = (_traced(f, arguments, options, gradient) for gradient in (False, True))
    return TensorKernel(RowwiseWork(called, arguments, forward, backward), options, device)


def _arguments(f: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a function's arguments, all of which are arrays."""
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except ValueError:  # NumPy's functions
        return ("x",)
    if [p.kind for p in parameters] == [inspect.Parameter.VAR_POSITIONAL]:  # symgrad's
        return ("x",)
    positional = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = tuple(
        p.name for p in parameters if p.kind in positional and p.default is inspect.Parameter.empty
    )
    if not names:
        raise InputTypeError("rowwise takes a function with an argument for each array")
    return names


def _traced(
    f: Callable[..., Any], arguments: tuple[str, ...], options: Options, gradient: bool
) -> Rowwise:
    """The traced function of rows, and the gradients of its result."""
    recorded: list[Reductions] = []

    def called(v: Any) -> Any:
        *elements, length = v
        graph = elements[0].graph
        recorded.append(Reductions(graph, tuple(e.id for e in elements), length.id))
        row = f(*rows(recorded[0]))
        if not isinstance(row, Row) or graph.type(row.id) != "f":
            raise TraceError(
                located(f"a function of rows gave {row!r}: it must give a row, or a sum over one")
            )
        return row.element

    traced = trace(called, len(arguments) + 1, [*arguments, LENGTH])
    graph, (result,), (reductions,) = traced.graph, traced.outputs, recorded
    whole = () if reductions.varies(result) else ("result",)
    named = {"result": result}
    if gradient:
        cotangent = graph.input("cotangent")
        inputs = reductions.elements
        if not whole:
            reductions.elements = (*inputs, cotangent)
        gradients = RowGradients(reductions, inputs).of(result, cotangent)
        named |= {f"d_{n}": i for n, i in zip(arguments, gradients, strict=True)}
    reduced = {graph.names[graph.nodes[r.symbol][1]]: r for r in reductions.entries}
    named |= {n: r.node for n, r in reduced.items()}
    simple, roots = simplified(graph, list(named.values()), options)
    outputs = tuple(Output(n, (i,)) for n, i in zip(named, roots, strict=True))
    by_row = ("cotangent",) if whole and gradient else ()
    kinds: tuple[tuple[str, Literal["sum", "max", "min"]], ...] = tuple(
        (n, r.kind) for n, r in reduced.items()
    )
    return Rowwise(Computation(options.name, simple, outputs), kinds, (), by_row, whole)
