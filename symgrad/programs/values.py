"""Values of programs: handles by kinds, numbers as constants, and indices of arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from symgrad.errors import BufferUnknownError, InputError, ProgramError, TraceError
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import TRUTH, Graph, real_number
from symgrad.expr.tracers.expression import Condition, Expr, Scalar, as_float
from symgrad.expr.tracers.integers import SignedWord, Word
from symgrad.programs.code import GLOBAL, Array, Kind

HANDLES: Final = {"f32": Expr, "i32": SignedWord, "u32": Word, "bool": Condition}
"""The handles of values by their kinds."""

Index = Any
"""A whole number or an integer value; a tuple of them, one for each axis."""


def is_global(array: Array) -> bool:
    """Whether all invocations have an array in common; or it is none."""
    if not isinstance(array, Array):
        raise BufferUnknownError(
            located(f"{array!r} is not an array: declare one by p.input, p.output and the like")
        )
    return array.space in GLOBAL


def kind_of(value: Scalar) -> Kind:
    """The kind of a value."""
    if isinstance(value, Condition):
        return "bool"
    if isinstance(value, Word):
        return "i32" if isinstance(value, SignedWord) else "u32"
    return "f32"


def constant(graph: Graph, x: Any, kind: Kind | None) -> Scalar:
    """A number as a value of a kind; of none, as a float."""
    target_kind = kind or ("bool" if isinstance(x, bool) else "f32")
    number = real_number(x)
    if target_kind == "f32":
        return Expr(graph, graph.constant(number))
    if target_kind == "bool":
        return Condition(graph, graph.intern((TRUTH, int(bool(number)))))
    if not number.is_integer():
        raise TraceError(located(f"{x!r} is not an integer: cast it by sg.int32 or sg.uint32"))
    return (SignedWord if target_kind == "i32" else Word).of(graph, int(x))


def converted(value: Scalar, kind: Kind, what: str) -> Scalar:
    """A value as one of another kind, where nobody can be mistaken about what that means."""
    if kind == "f32":
        return as_float(value)
    if kind == "bool":
        return value.is_true()
    if isinstance(value, Word):
        return (SignedWord if kind == "i32" else Word)(value.graph, value.id)
    raise TraceError(
        located(f"{what} must be {kind}, not {kind_of(value)}: cast it by sg.int32 or sg.uint32")
    )


def axis_indices(array: Array, index: Index) -> tuple[Any, ...]:
    """The indices of an element: one for each axis, or a single one in C order; () is of a number.

    Raises:
        InputError: for another number of indices.
        ProgramError: for a number that is out of bounds.
        TraceError: for what is no integer.
    """
    indices = index if isinstance(index, tuple) else (index,)
    if indices and len(indices) not in (1, len(array.shape)):
        raise InputError(
            located(
                f"{array.name}{list(indices)}: it has {len(array.shape)} axes; give as many "
                "indices, or one of its elements in a row"
            )
        )
    if not indices and array.size != 1:
        raise InputError(located(f"{array.name} has {array.size} elements: give an index"))
    shape = array.shape if len(indices) == len(array.shape) else (array.size,)[: len(indices)]
    return tuple(_whole(array, i, n) for i, n in zip(indices, shape, strict=True))


def flat_index(array: Array, axes: Sequence[Any]) -> Any:
    """The number of an element in C order, by its `axis_indices`."""
    flat: Any = 0
    sizes = array.shape if len(axes) > 1 else (array.size,)
    for i, n in zip(axes, sizes, strict=False):
        flat = i if isinstance(flat, int) and flat == 0 else flat * n + i
    return flat


def _whole(array: Array, index: Any, size: int) -> Any:
    """An index of an axis of so many elements."""
    if isinstance(index, int) and not isinstance(index, bool):
        if not 0 <= index < size:
            raise ProgramError(
                located(f"{array.name}[{index}] is out of bounds: there are {size} of them")
            )
        return index
    if isinstance(index, Word):
        return index.bits()
    raise TraceError(
        located(f"{array.name}[{index!r}]: an index is an integer; cast it by sg.uint32")
    )
