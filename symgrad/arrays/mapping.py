"""Functions of whole arrays along an axis: the tape of the function becomes one operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from symgrad.arrays import rules
from symgrad.arrays.tape import Tape, opened, operand_rule
from symgrad.arrays.whole import WholeArray, anchor_of
from symgrad.errors import InputError
from symgrad.expr.tracers.tree import flatten


def axes_of(value: Any, axes: Any, what: str) -> list[int | None]:
    """The axis of each leaf of a nest: one for all, or nested as it is or above.

    Raises:
        InputError: where the nests do not fit.
    """
    if axes is None or isinstance(axes, int):
        return [axes] * len(flatten(value)[0])
    if isinstance(value, (list, tuple)) and isinstance(axes, (list, tuple)):
        if len(value) == len(axes):
            pairs = zip(value, axes, strict=True)
            return [k for v, a in pairs for k in axes_of(v, a, what)]
    elif isinstance(value, dict) and isinstance(axes, dict) and value.keys() == axes.keys():
        return [k for name in value for k in axes_of(value[name], axes[name], what)]
    raise InputError(f"{what}={axes!r} is not nested as what it is for")


def mapped(
    f: Callable[..., Any], in_axes: Any, out_axes: Any, args: Sequence[Any], tape: Tape
) -> Any:
    """The results of a function along axes of its arguments, whole arrays of a tape among them."""
    anchor = anchor_of(tape)
    inner = Tape(tape)
    axes = in_axes if isinstance(in_axes, (list, tuple)) else [in_axes] * len(args)
    if len(axes) != len(args):
        raise InputError(f"in_axes={in_axes!r} is for {len(axes)} arguments, not {len(args)}")
    count: int | None = None
    given, along = [], list[int | None]()
    for argument, axis in zip(args, axes, strict=True):
        leaves, tree = flatten(argument)
        filled = []
        for leaf, k in zip(leaves, axes_of(argument, axis, "in_axes"), strict=True):
            if k is None:
                filled.append(leaf)
                continue
            whole = anchor.lift(leaf)
            k %= max(whole.ndim, 1)
            if k >= whole.ndim or count not in (None, whole.shape[k]):
                raise InputError(f"in_axes={in_axes!r}: arrays of {count} and {whole.shape}")
            count = whole.shape[k]
            filled.append(WholeArray(inner, inner.operand(whole.number, k)))
            along.append(k)
        given.append(tree.nest(iter(filled)))
    if count is None:
        raise InputError(f"in_axes={in_axes!r} maps over no array")
    with opened(inner):
        value = f(*given)
    return _results(value, out_axes, inner, count)


def _results(value: Any, out_axes: Any, inner: Tape, count: int) -> Any:
    """The results of a function that was mapped, of all places."""
    leaves, tree = flatten(value)
    assert inner.outer is not None, "it is mapped on a tape"
    anchor = anchor_of(inner)
    wholes = [anchor.lift(leaf) for leaf in leaves]
    axes = axes_of(value, out_axes, "out_axes")
    places = tuple(a[1] for rule, a, *_ in inner.operations if rule is operand_rule)
    results = []
    for whole, axis in zip(wholes, axes, strict=True):
        k = (axis or 0) % (whole.ndim + 1)
        shape = (*whole.shape[:k], count, *whole.shape[k:])
        attribute = inner.key, places, count, whole.number, k
        operands = tuple(inner.taken)
        number = inner.outer.add(rules.mapped, attribute, operands, shape, whole.kind)
        results.append(WholeArray(inner.outer, number))
    return tree.nest(iter(results))
