"""The rules of operations on whole arrays: which view each one becomes.

``rule(lowering, attribute, shape, *views)``. The attribute says all about the operation that is no
operand, hashable, and so is known before anything is lowered.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from symgrad.arrays import algorithms
from symgrad.arrays.elements import IntegerElement, counted_truth, element, node_of
from symgrad.arrays.gradient import cotangents
from symgrad.arrays.laws import Builder
from symgrad.arrays.program import Scan, Tabulate
from symgrad.arrays.scalars import integer_mul, integer_where, is_negative, truncated
from symgrad.arrays.tape import Index, Lowering, View
from symgrad.expr import ops
from symgrad.expr.graph.node import ElementsNeededError

Shape = tuple[int, ...]

# --- elements -------------------------------------------------------------------------------------


def elementwise(lowering: Lowering, attribute: Any, shape: Shape, *views: View) -> View:
    """A function of elements; the attribute has it, the numbers among its arguments, the kind."""
    function, arguments, _, kind = attribute
    b = lowering.builder

    def read(index: Index) -> int:
        rest = iter(views)
        operands = [
            element(b, lowering.at(next(rest), index)) if a is None else a[0] for a in arguments
        ]
        if function is ops.where and kind != "f":
            branches = (node_of(b, o, kind) for o in operands[1:])
            return chosen(lowering, node_of(b, operands[0], "b"), *branches)
        if kind == "i":
            operands = [counted_truth(b, o) for o in operands]
        try:
            return node_of(b, function(*operands), kind)
        except TypeError as error:
            if not any(isinstance(o, IntegerElement) for o in operands):
                raise
            raise ElementsNeededError(f"an operation on integers: {error}") from error

    return lowering.tabulated(shape, kind, read)


def cast(lowering: Lowering, kind: str, shape: Shape, view: View) -> View:
    """Elements as those of another kind; real numbers are rounded towards 0."""
    b = lowering.builder

    def read(index: Index) -> int:
        value = view.read(index)
        if view.kind == "f" and kind == "i":
            return b.apply(truncated, value)
        return node_of(b, element(b, value), kind)

    return View(shape, kind, read)


def filled(lowering: Lowering, attribute: Any, shape: Shape) -> View:
    """An array of one number, of a kind."""
    value, kind = attribute[1], attribute[0]
    number = node_of(lowering.builder, value, kind)
    return View(shape, kind, lambda _: number)


def counted(lowering: Lowering, attribute: Any, shape: Shape) -> View:
    """Integers, ``start + step * k`` along an axis, which is the only long one."""
    start, step, axis = attribute
    b = lowering.builder
    return View(shape, "i", lambda index: b.plus((step, index[axis]), offset=start))


# --- views ----------------------------------------------------------------------------------------


def strided(lowering: Lowering, attribute: Any, shape: Shape, view: View) -> View:
    """A view that strides tell: for each axis of the operand see `symgrad.arrays.views.Entry`."""
    b = lowering.builder

    def read(index: Index) -> int:
        return view.read(
            [
                b.plus(*[(step, index[axis]) for axis, step in terms], offset=start)
                for start, terms in attribute
            ]
        )

    return View(shape, view.kind, read)


def reshaped(lowering: Lowering, _: Any, shape: Shape, view: View) -> View:
    """Elements in another shape, in their order: an index as a number with other digits."""
    b = lowering.builder
    if 0 in shape:
        return filled(lowering, (view.kind, 0), shape)

    def read(index: Index) -> int:
        flat = b.number(0)
        for i, n in zip(index, shape, strict=True):
            flat = b.plus((n, flat), i)
        digits = []
        for n in reversed(view.shape[1:]):
            flat, digit = b.divide(flat, n)
            digits.append(digit)
        return view.read([flat, *reversed(digits)] if view.shape else [])

    return View(shape, view.kind, read)


def joined(lowering: Lowering, axis: int, shape: Shape, *views: View) -> View:
    """Arrays one behind the other along an axis."""
    b = lowering.builder
    kind = "f" if any(v.kind == "f" for v in views) else views[0].kind
    views = tuple(v for v in views if v.shape[axis]) or views[:1]

    def read(index: Index) -> int:
        ends, end = [], 0
        for v in views:
            ends.append(end)
            end += v.shape[axis]
        value: int | None = None
        for v, start in reversed(list(zip(views, ends, strict=True))):
            own = [*index[:axis], b.plus(index[axis], offset=-start), *index[axis + 1 :]]
            part = node_of(b, element(b, v.read(own)), kind)
            if value is None:
                value = part
                continue
            before = b.below(index[axis], b.number(start + v.shape[axis]))
            value = chosen(lowering, before, part, value)
        assert value is not None, "there is something to join"
        return value

    if len(views) > 2 or kind == "f":
        return lowering.tabulated(shape, kind, read)
    return View(shape, kind, read)


def chosen(lowering: Lowering, condition: int, a: int, b: int) -> int:
    """``a`` where a condition holds, else ``b``: floats, integers or truth values."""
    builder = lowering.builder
    kind = builder.graph.type(a)
    if kind == "i":
        return builder.apply(integer_where, condition, a, b)
    if kind == "f":
        return builder.apply(ops.where, condition, a, b)
    either = builder.apply(ops.logical_and, builder.opposite(condition), b)
    return builder.apply(ops.logical_or, builder.both(condition, a), either)


def gathered(lowering: Lowering, attribute: Any, shape: Shape, view: View, *indices: View) -> View:
    """An index with arrays of integers: for each axis of the operand (how, what).

    ("axis", k) reads axis k of the result from a start by a step; ("at", k) index array k, which
    stands at axes ``first`` and on of the result. Of what is computed, and may lie beyond the axis,
    "nearest" takes the nearest element; "dropped" any, and nothing of its derivative goes anywhere.
    """
    entries, first = attribute
    b = lowering.builder
    common = max((len(v.shape) for v in indices), default=0)

    def read(index: Index) -> int:
        places = []
        for n, (how, what, start, step) in zip(view.shape, entries, strict=True):
            if how != "axis":
                at = lowering.at(indices[what], index[first : first + common])
                at = at if how == "at" else wrapped(b, at, n)
                places.append(nearest(b, at, n) if how == "nearest" else at)
            elif what is None:
                places.append(b.number(start))
            else:
                places.append(b.plus((step, index[what]), offset=start))
        return view.read(places)

    return View(shape, view.kind, read)


def wrapped(b: Builder, i: int, n: int) -> int:
    """An index of an axis of n elements, which counts from its end where it is negative."""
    if b.span(i)[0] >= 0:
        return i
    return b.apply(integer_where, b.apply(is_negative, i), b.plus(i, offset=n), i)


def nearest(b: Builder, i: int, n: int) -> int:
    """An index within an axis of n elements: 0 where it is less, and the last where it is more."""
    (low, high), zero, last = b.span(i), b.number(0), b.number(n - 1)
    if low < 0:
        i = b.apply(integer_where, b.below(i, zero), zero, i)
    return b.apply(integer_where, b.below(last, i), last, i) if high >= n else i


def written(
    lowering: Lowering, attribute: Any, shape: Shape, view: View, value: View, *starts: View
) -> View:
    """An array with others in the place of a view, which reads some axes at computed ``starts``."""
    b = lowering.builder
    entries, computed = attribute
    at = dict(zip(computed, starts, strict=True))

    def read(index: Index) -> int:
        conditions, own = [], [b.number(0)] * len(value.shape)
        for k, (i, n, (start, terms)) in enumerate(zip(index, shape, entries, strict=True)):
            if not terms:
                place = wrapped(b, at[k].read([]), n) if k in at else b.number(start)
                conditions.append(b.same(i, place))
                continue
            [(axis, step)] = terms
            flipped = step < 0
            offset = b.plus((-1 if flipped else 1, i), offset=start if flipped else -start)
            place, rest = b.divide(offset, abs(step))
            conditions += [b.same(rest, b.number(0)), b.inside(place, value.shape[axis])]
            own[axis] = place
        inside = b.all_of(conditions)
        kind = view.kind
        new = node_of(b, element(b, value.read(own)), kind)
        return chosen(lowering, inside, new, view.read(index))

    return lowering.tabulated(shape, view.kind, read)


# --- reductions -----------------------------------------------------------------------------------


def reduced(lowering: Lowering, attribute: Any, shape: Shape, view: View) -> View:
    """A reduction over axes by an operator; of real numbers, or of integers."""
    operator, axes = attribute
    b = lowering.builder
    kept = [k for k in range(len(view.shape)) if k not in axes]
    kind = "i" if view.kind == "b" else view.kind

    def read(index: Index) -> int:
        counters = {k: b.counter(view.shape[k]) for k in axes}
        places = dict(zip(kept, index, strict=True))
        places |= dict(zip(axes, b.indices(list(counters.values())), strict=True))
        value = view.read([places[k] for k in range(len(view.shape))])
        return b.reduce(operator, list(counters.values()), node_of(b, element(b, value), kind))

    return lowering.of(lowering.stored(View(shape, kind, read)))


def positioned(lowering: Lowering, attribute: Any, shape: Shape, view: View) -> View:
    """The position of the first largest or smallest element along an axis."""
    operator, axis = attribute
    b = lowering.builder

    def read(index: Index) -> int:
        k = b.counter(view.shape[axis])
        [place] = b.indices([k])
        value = view.read([*index[:axis], place, *index[axis:]])
        if view.shape[axis] == 1:
            return b.number(0)
        real = node_of(b, element(b, value), "f")
        return b.pick(b.reduction(operator, [k], real, place), 1)

    return lowering.of(lowering.stored(View(shape, "i", read)))


def contracted(lowering: Lowering, attribute: Any, shape: Shape, *views: View) -> View:
    """A sum of products: letters of each operand's axes, and of the result's, and the kind."""
    inputs, output, kind = attribute
    b = lowering.builder
    multiply = partial(b.apply, ops.mul if kind == "f" else integer_mul)
    sizes: dict[str, int] = {}
    for letters, view in zip(inputs, views, strict=True):
        for c, n in zip(letters, view.shape, strict=True):
            sizes[c] = max(n, sizes.get(c, 1)) if n else 0

    def read(index: Index) -> int:
        summed = {c: b.counter(n) for c, n in sizes.items() if c not in output}
        places = dict(zip(output, index, strict=True))
        places |= dict(zip(summed, b.indices(list(summed.values())), strict=True))
        zero, product = b.number(0), None
        for letters, view in zip(inputs, views, strict=True):
            own = [zero if n == 1 else places[c] for c, n in zip(letters, view.shape, strict=True)]
            factor = node_of(b, element(b, view.read(own)), kind)
            product = factor if product is None else multiply(product, factor)
        assert product is not None, "there are operands"
        return b.reduce("add", list(summed.values()), product)

    return lowering.tabulated(shape, kind, read)


def scanned(lowering: Lowering, attribute: Any, shape: Shape, view: View) -> View:
    """Running totals along an axis."""
    operator, axis, reverse = attribute
    b = lowering.builder
    counters = [b.counter(n) for n in shape]
    kind = "i" if view.kind == "b" else view.kind
    counters, body = lowering.closed(
        counters, node_of(b, element(b, view.read(b.indices(counters))), kind)
    )
    scan = Scan(
        shape=tuple(map(b.extent, counters)), kind=kind, counters=tuple(counters), body=body,
        axis=axis + len(lowering.outer), operator=operator, reverse=reverse,
    )  # fmt: skip
    return lowering.of(scan)


def called(lowering: Lowering, attribute: Any, shape: Shape, *views: View) -> View:
    """A result of an algorithm on whole arrays: its name, options, and the result's number."""
    name, options, number = attribute
    b = lowering.builder
    call = algorithms.calling(b, name, [lowering.batched(v) for v in views], options)
    return lowering.of(algorithms.result(b, call, number))


# --- derivatives ----------------------------------------------------------------------------------


def fresh(lowering: Lowering, _: Any, shape: Shape, view: View) -> View:
    """An array that is differentiated by, apart from all that it is equal to."""
    b = lowering.builder
    own = [b.counter(n) for n in shape]
    counters, body = lowering.closed(own, view.read(b.indices(own)))
    extents = tuple(map(b.extent, counters))
    array = Tabulate(shape=extents, kind="f", counters=tuple(counters), body=body)
    b.apart.add(array)
    return lowering.of(array)


def gradient(lowering: Lowering, attribute: tuple[int, int], shape: Shape, *views: View) -> View:
    """The cotangent of variable ``which``, for those of so many outputs: all are made together.

    The operands are the outputs, their cotangents, and the variables.
    """
    which, n = attribute
    arrays = [lowering.batched(v) for v in views]
    key = n, *arrays
    if key not in lowering.gradients:
        b = lowering.builder
        slopes = cotangents(b, arrays[:n], arrays[2 * n :], arrays[n : 2 * n])
        lowering.gradients[key] = slopes
    return lowering.of(lowering.gradients[key][which])


# --- functions that are mapped --------------------------------------------------------------------


def mapped(lowering: Lowering, attribute: Any, shape: Shape, *views: View) -> View:
    """A function of the elements along an axis of each operand; None: of all of it each time.

    The attribute has the function's operations, the axes, the number of its result, and its axis;
    None for a result that is the same everywhere.
    """
    operations, axes, count, result, axis = attribute
    b = lowering.builder
    key = operations, axes, count, tuple(map(id, views))
    if key not in lowering.mapped:
        counter = b.counter(count)
        inner = Lowering(b, [*lowering.outer, counter])
        at = b.indices([counter])[0]
        inner.operands = [_along(v, k, at) for v, k in zip(views, axes, strict=True)]
        lowering.mapped[key] = inner, inner.run(operations)
    inner, results = lowering.mapped[key]
    array = inner.batched(results[result])
    whole = lowering.of(array)
    if whole.kind == "i" and results[result].kind == "b":
        whole = View(whole.shape, "b", lambda i, v=whole: lowering.truth(v.read(i)))
    if axis is None:
        return View(shape, whole.kind, lambda i: whole.read([b.number(0), *i]))
    if not axis:
        return whole
    return View(shape, whole.kind, lambda i: whole.read([i[axis], *i[:axis], *i[axis + 1 :]]))


def _along(view: View, axis: int | None, at: int) -> View:
    """A view at one place along an axis."""
    if axis is None:
        return view
    shape = (*view.shape[:axis], *view.shape[axis + 1 :])
    return View(shape, view.kind, lambda i: view.read([*i[:axis], at, *i[axis:]]))
