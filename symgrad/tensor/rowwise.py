"""`rowwise`: a function of the elements of rows and of their reductions, and its gradients."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from symgrad.arrays.mapping import mapped
from symgrad.arrays.tape import open_tape
from symgrad.arrays.whole import WholeArray
from symgrad.errors import InputError, InputTypeError, TraceError
from symgrad.expr.graph.misuse import located
from symgrad.mathlib.define import Math
from symgrad.pipeline import DType, Options, dtype_name
from symgrad.targets import DeviceChoice
from symgrad.tensor.array_work import ArrayWork
from symgrad.tensor.kernel import Shape, TensorKernel


def rowwise(
    f: Callable[..., Any],
    *,
    device: DeviceChoice = None,
    math: Math = "accurate",
    dtype: DType = "float32",
    name: str | None = None,
) -> TensorKernel:
    """The kernel of a function of rows, whose ``vjp`` gives the gradients of all its arguments.

    ``f`` is written for one row: it is called with one-dimensional arrays, one for each argument,
    and gives an array as long as these, or a number of the row, such as a sum. It may do what
    functions of `jit` do. It is called once for arguments of some shapes.

    ``run(x, ..)`` takes arrays: the first is (.., n), rows along the last axis, and the others have
    the same shape, or (n,), a number for each column, as weights are. The result has the shape of
    the first, or without the last axis, where f gives a number of the row.

    Raises:
        TraceError: of ``run`` and ``vjp``, if f gives anything else, or cannot be traced.

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
    work = ArrayWork(called, _arguments(f), partial(_over_rows, f), _require, options)
    return TensorKernel(work, options, device)


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


def _require(names: Sequence[str], shapes: Sequence[Shape]) -> None:
    """Refuse what has no rows, or others than the first argument."""
    first, *others = map(tuple, shapes)
    if not first:
        raise InputError(f"{names[0]} is a number: it must have rows, (.., n)")
    for name, shape in zip(names[1:], others, strict=True):
        if shape not in (first, first[-1:]):
            raise InputError(
                f"{name} has shape {shape}: it must have that of {names[0]}, "
                f"{first}, or a number for each column, {first[-1:]}"
            )


def _over_rows(f: Callable[..., Any], *arrays: WholeArray) -> WholeArray:
    """The results of a function of rows, mapped over the axes before the last one."""
    if arrays[0].ndim > 1:
        axes = [0 if a.ndim > 1 else None for a in arrays]
        tape = open_tape()
        assert tape is not None, "it is traced on one"
        return mapped(partial(_over_rows, f), axes, 0, arrays, tape)
    row = f(*arrays)
    if not isinstance(row, WholeArray) or row.kind != "f" or row.shape not in ((), arrays[0].shape):
        raise TraceError(
            located(f"a function of rows gave {row!r}: it must give a row, or a sum over one")
        )
    return row
