"""Activations as epilogues: a traced function of one number, and its derivative."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from symgrad.errors import InputTypeError, TraceError
from symgrad.expr.derivatives.differentiate import vjp
from symgrad.expr.tracing.trace import Trace
from symgrad.kernel.skeletons.epilogue import Epilogue
from symgrad.pipeline import Derivation, Options, Wanted, build
from symgrad.values.results import Scalar

Activation = Callable[[Any], Any]
"""A function of one number, of symgrad's or NumPy's operations."""


def of_one_number(f: Activation | None) -> Activation:
    """An activation as a function, to be traced.

    Raises:
        InputTypeError: if f is no function. TraceError: when it is called, and gives several.
    """
    if f is None:
        return lambda z: z
    if not callable(f):
        raise InputTypeError(f"activation={f!r}: use a function such as sg.gelu, or None")

    def traced(z: Any) -> Any:
        result = f(z)
        if isinstance(result, tuple | list | dict | np.ndarray):
            raise TraceError(f"the activation returned {result!r}: one number is needed")
        return result

    return traced


def epilogue(
    f: Activation | None,
    options: Options,
    bias: bool,
    kept: bool = False,
    gradient: bool = False,
    summed: str = "",
) -> Epilogue:
    """The epilogue of a sum: ``result`` = f(sum + bias).

    Where it is asked for: what f is of, ``kept``, and ``slope``, which is the ``gradient`` of the
    result times the derivative of f; it is not, if the gradient itself is ``summed``.

    Raises:
        InputTypeError: if f is no function. TraceError: if it does not return one number.
    """
    function = of_one_number(f)
    names = ["sum", *["bias"] * bias, *["gradient"] * gradient]

    def activated(v: Any) -> Any:
        before = v[0] + v[1] if bias else v[0]
        return function(before), before

    kind = "activation", kept, gradient and summed != "gradient"
    built = build(
        activated, len(names), Derivation(kind, partial(_wanted, *kind[1:])), options, names
    )
    return Epilogue(built.computation, ("bias",), summed)


def _wanted(kept: bool, gradient: bool, traced: Trace) -> Sequence[Wanted]:
    graph, (result, before) = traced.graph, traced.outputs
    wanted = [Wanted("result", (result,), Scalar())]
    if kept:
        wanted.append(Wanted("kept", (before,), Scalar()))
    if gradient:
        (slope,) = vjp(graph, {result: traced.inputs[-1]}, traced.inputs[:1])
        node = graph.constant(0.0) if slope is None else slope
        wanted.append(Wanted("slope", (node,), Scalar()))
    return wanted
