"""Kernels of arrays in functions that are traced as a whole: calls of programs, and gradients.

A kernel runs as it does by itself, on arrays where they are, between the stages of a program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np

from symgrad.arrays import algorithms
from symgrad.arrays.algorithms import ALGORITHMS, Algorithm
from symgrad.arrays.laws import Builder
from symgrad.arrays.program import Call
from symgrad.arrays.scalars import Array
from symgrad.arrays.tape import Lowering, Tape, View
from symgrad.arrays.whole import WholeArray, innermost
from symgrad.errors import UnsupportedError
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import Handle, whole_among
from symgrad.expr.graph.written_out import ManyElementsError
from symgrad.expr.loops.open_loop import traced_graph

Shape = tuple[int, ...]

KERNEL: Final = "kernel"
GRADIENT: Final = "gradient of a kernel"
WHEREVER: Final = KERNEL, GRADIENT
"""Algorithms that take arrays on the device or on the host, and give such."""


class ArrayKernel(Protocol):
    """A kernel of arrays, as programs call it."""

    def shapes(self, shapes: Sequence[Shape], keep: bool) -> Sequence[Shape]:
        """The shapes of the results, and to ``keep`` of the residuals behind them."""
        ...

    def forward(self, arrays: Sequence[Any], keep: bool) -> Sequence[Any]:
        """The results, and to ``keep`` the residuals: what gradients need of the forward pass."""
        ...

    def backward(
        self, arrays: Sequence[Any], cotangents: Sequence[Any], residuals: Sequence[Any]
    ) -> Sequence[Any]:
        """The cotangents of all arguments, from those of the results."""
        ...


def traced(kernel: ArrayKernel, arguments: Sequence[Any]) -> list[WholeArray] | None:
    """The results of a kernel on the tape of its arguments, if one of these is a whole array."""
    if whole_among(arguments) is None:
        if traced_graph() is not None and any(_has_expressions(a) for a in arguments):
            raise ManyElementsError(
                located("a kernel of arrays takes whole arrays: use sg.jit or sg.value_and_grad")
            )
        return None
    anchor = innermost(arguments)
    lifted = [anchor.lift(a) for a in arguments]
    operands = tuple([(a if a.kind == "f" else a.astype(float)).number for a in lifted])
    shapes = kernel.shapes([a.shape for a in lifted], False)
    return [
        WholeArray(anchor.tape, anchor.tape.add(kernel_rule, (kernel, k), operands, tuple(shape)))
        for k, shape in enumerate(shapes)
    ]


def _has_expressions(argument: Any) -> bool:
    is_array = isinstance(argument, np.ndarray) and argument.dtype.kind == "O"
    return is_array or isinstance(argument, Handle)


def kernels_of(tape: Tape) -> list[Any]:
    """The kernels that a traced function calls."""
    return [o.attribute[0] for o in tape.operations if o.rule is kernel_rule]


def kernel_rule(lowering: Lowering, attribute: Any, shape: Shape, *views: View) -> View:
    """Result number ``attribute[1]`` of a kernel."""
    kernel, number = attribute
    if lowering.outer:
        raise UnsupportedError("a kernel of arrays within sg.vmap: give it arrays with the axis")
    operands = [lowering.stored(v) for v in views]
    call = algorithms.calling(lowering.builder, KERNEL, operands, (kernel, False))
    return lowering.of(algorithms.result(lowering.builder, call, number))


def _shapes(*given: Any) -> tuple[Shape, ...]:
    *shapes, kernel, keep = given
    return tuple(map(tuple, kernel.shapes(shapes, keep)))


def _forward(*given: Any) -> list[Any]:
    *arrays, kernel, keep = given
    return list(kernel.forward(arrays, keep))


def _gradient_shapes(*given: Any) -> tuple[Shape, ...]:
    *shapes, _, arguments, _ = given
    return tuple(shapes[:arguments])


def _backward(*given: Any) -> list[Any]:
    *arrays, kernel, arguments, results = given
    behind = arguments + results
    return list(kernel.backward(arrays[:arguments], arrays[arguments:behind], arrays[behind:]))


def _pulled(
    b: Builder, call: Call, cotangents: Mapping[int, Array], active: set[Array]
) -> list[tuple[Array, Array]]:
    """The cotangents of the operands; those of results that nothing needs are 0."""
    kernel, operands, results = call.options[0], call.operands, len(call.shapes)
    kept = algorithms.calling(b, KERNEL, operands, (kernel, True))
    b.keeping[call] = kept
    residuals = [algorithms.result(b, kept, k) for k in range(results, len(kept.shapes))]
    zero = b.graph.constant(0.0)
    seeds = [
        cotangents[k] if k in cotangents else b.tabulate(shape, lambda *_: zero)
        for k, shape in enumerate(call.shapes)
    ]
    options = kernel, len(operands), results
    back = algorithms.calling(b, GRADIENT, (*operands, *seeds, *residuals), options)
    return [(o, algorithms.result(b, back, k)) for k, o in enumerate(operands)]


ALGORITHMS[KERNEL] = Algorithm(KERNEL, _forward, _shapes, together=_pulled)
ALGORITHMS[GRADIENT] = Algorithm(GRADIENT, _backward, _gradient_shapes)
