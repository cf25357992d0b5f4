"""Functions of whole arrays along an axis: the tape of the function becomes one operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    f: Callable[..., Any], in_axes: Any, out_axes: Any, args: Sequence[Any], tape: Tape,
    named: Mapping[str, Any] | None = None, axis_size: int | None = None,
) -> Any:  # fmt: skip
    """The results of a function along axes of its arguments, whole arrays of a tape among them.

    Arguments that are given by name are mapped over their first axes.
    """
    anchor, inner = anchor_of(tape), Tape(tape)
    axes = in_axes if isinstance(in_axes, (list, tuple)) else [in_axes] * len(args)
    if len(axes) != len(args):
        raise InputError(f"in_axes={in_axes!r} is for {len(axes)} arguments, not {len(args)}")
    count = axis_size

    def at_one_place(argument: Any, axis: Any) -> Any:
        nonlocal count
        leaves, tree = flatten(argument)
        filled = []
        for leaf, k in zip(leaves, axes_of(argument, axis, "in_axes"), strict=True):
            if k is None or leaf is None:
                filled.append(leaf)
                continue
            whole = anchor.lift(leaf)
            k = _axis(k, whole.ndim, f"in_axes={in_axes!r}: an array of shape {whole.shape}")
            if count not in (None, whole.shape[k]):
                raise InputError(f"in_axes={in_axes!r}: arrays of {count} and {whole.shape}")
            count = whole.shape[k]
            filled.append(WholeArray(inner, inner.operand(whole.number, k)))
        return tree.nest(iter(filled))

    given = [at_one_place(a, k) for a, k in zip(args, axes, strict=True)]
    by_name = {name: at_one_place(a, 0) for name, a in (named or {}).items()}
    if count is None:
        raise InputError(
            f"in_axes={in_axes!r} maps over no array: name an axis, or how many times it is called "
            "by axis_size="
        )
    with opened(inner):
        value = f(*given, **by_name)
    return _results(value, out_axes, inner, count)


def _axis(k: int, ndim: int, what: str) -> int:
    """An axis from the front."""
    if not -ndim <= k < ndim:
        raise InputError(f"{what} has no axis {k}")
    return k % ndim


def _results(value: Any, out_axes: Any, inner: Tape, count: int) -> Any:
    """The results of a function that was mapped, of all places."""
    leaves, tree = flatten(value)
    assert inner.outer is not None, "it is mapped on a tape"
    anchor, axes = anchor_of(inner), axes_of(value, out_axes, "out_axes")
    wholes = [None if leaf is None else anchor.lift(leaf) for leaf in leaves]
    places = tuple(a[1] for rule, a, *_ in inner.operations if rule is operand_rule)
    varying = _varying(inner)
    results: list[WholeArray | None] = []
    for whole, axis in zip(wholes, axes, strict=True):
        if whole is None:
            results.append(None)
            continue
        shape, k = whole.shape, axis
        if axis is not None:
            what = f"out_axes={out_axes!r}: a result of shape {shape}, of {count} places,"
            k = _axis(axis, whole.ndim + 1, what)
            shape = (*shape[:k], count, *shape[k:])
        elif whole.number in varying:
            raise InputError(
                f"out_axes={out_axes!r}: None is for what is the same at all {count} places, and a "
                f"result of shape {shape} is not: name the axis that they stand along"
            )
        attribute = inner.key, places, count, whole.number, k
        operands = tuple(inner.taken)
        number = inner.outer.add(rules.mapped, attribute, operands, shape, whole.kind)
        results.append(WholeArray(inner.outer, number))
    return tree.nest(iter(results))


def _varying(tape: Tape) -> set[int]:
    """The operations of a function that is mapped whose results depend on the place."""
    varying = set[int]()
    for k, (rule, attribute, operands, _) in enumerate(tape.operations):
        is_mapped = rule is operand_rule and attribute[1] is not None
        if is_mapped or not varying.isdisjoint(operands):
            varying.add(k)
    return varying
