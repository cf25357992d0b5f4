"""Loops over whole arrays: `sg.fori_loop`, `scan` and `while_loop`, choices, and `sg.vmap`.

The body is traced once, on a tape of its own, and becomes a program: of the iteration's number, the
carries, rows of arrays that the loop goes through, and what it takes from around it. The loop is a
call in the program around it (`symgrad.arrays.array_loop`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from symgrad.arrays import rules
from symgrad.arrays.algorithms import result
from symgrad.arrays.array_loop import AROUND, CARRY, COUNTER, ROW, ArrayLoop, looping
from symgrad.arrays.laws import Builder
from symgrad.arrays.program import ArrayProgram, Input, Tabulate
from symgrad.arrays.rules import chosen
from symgrad.arrays.scalars import Array, Read
from symgrad.arrays.tape import Lowering, Operation, Tape, View, open_tape, opened, operand_rule
from symgrad.arrays.whole import WholeArray, anchor_of
from symgrad.errors import InputError, TraceError
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.place import describe
from symgrad.expr.tracers.tree import Tree, flatten

MOST_ITERATIONS: Final = 2**31 - 1
"""The bound of a loop that has none of its own."""

MOST_KEPT: Final = 2**27
"""Numbers of carries that are kept for the derivative; longer loops keep those of strips."""


@dataclass(frozen=True)
class Traced:
    """A loop on a tape: the operations of its body, the roles of their operands, its results."""

    operations: tuple[Operation, ...]
    roles: tuple[str, ...]
    given: str
    """The kinds of the operands."""
    ranks: tuple[int, ...]
    """The numbers of their axes, as the body has them."""
    results: tuple[int, ...]
    kinds: str
    """The kinds of the results."""
    count: int
    reverse: bool
    tested: bool


def looped(lowering: Lowering, attribute: Any, shape: tuple[int, ...], *views: View) -> View:
    """A result of a loop: the loop, and the result's number."""
    traced, number = attribute
    b = lowering.builder
    pairs = zip(views, traced.roles, strict=True)
    operands = tuple(
        (lowering.batched if r in (CARRY, ROW) else lowering.stored)(v) for v, r in pairs
    )
    key = traced, operands
    if key not in lowering.loops:
        orders = [_order(lowering, a, r) for a, r in zip(operands, traced.roles, strict=True)]
        pairs = zip(operands, orders, strict=True)
        given = tuple(a if o is None else _source(b, a) for a, o in pairs)
        loop = _lowered(traced, given, orders, lowering)
        lowering.loops[key] = looping(b, loop, given)
    whole = lowering.of(result(b, lowering.loops[key], number))
    if traced.kinds[number] != "b":
        return whole
    return View(whole.shape, "b", lambda i: lowering.truth(whole.read(i)))


def _order(lowering: Lowering, array: Array, role: str) -> tuple[int, ...] | None:
    """The axes of an array from around, by those of another one that it is all of."""
    b = lowering.builder
    if role != AROUND or lowering.outer or not isinstance(array, Tabulate) or array in b.apart:
        return None
    head, args = b.op(array.body), tuple(b.args(array.body))
    if not isinstance(head, Read) or sorted(args) != sorted(array.counters):
        return None
    whole = head.array.size == array.size and 1 not in array.shape
    return tuple(map(array.counters.index, args)) if whole else None


def _source(b: Builder, array: Array) -> Array:
    """The array that another one has the elements of."""
    assert isinstance(array, Tabulate), "it is tabulated"
    return b.array_of(array.body)


def _input_view(b: Builder, array: Input, order: Sequence[int] | None) -> View:
    """An input of a body, with its axes in the order that the body knows."""
    if order is None:
        return View(array.shape, array.kind, lambda i: b.element(array, i), array)
    shape = tuple(array.shape[order.index(k)] for k in range(len(order)))
    return View(shape, array.kind, lambda i: b.element(array, [i[k] for k in order]))


def _lowered(
    traced: Traced,
    operands: Sequence[Array],
    orders: Sequence[Sequence[int] | None],
    around: Lowering,
) -> ArrayLoop:
    """A loop of a tape over a program; some arrays from around it have their axes in orders."""
    b, outer = Builder(), around.outer
    inner = Lowering(b, [b.counter(around.builder.extent(c)) for c in outer])
    axis = len(outer)
    for k, (array, role) in enumerate(zip(operands, traced.roles, strict=True)):
        shape = array.shape if role != ROW else (*array.shape[:axis], *array.shape[axis + 1 :])
        new = Input(shape=() if role == COUNTER else shape, kind=array.kind, number=k)
        inner.inputs.append(new)
        whole = _input_view(b, new, orders[k])
        alone = len(shape) == traced.ranks[k]
        view = whole if role == COUNTER or alone else inner.of(new)
        inner.operands.append(_of_kind(inner, view, traced.given[k]))
    views = inner.run(traced.operations)
    results = [views[k] for k in traced.results]
    if traced.tested and outer:
        carries = [v for v, role in zip(inner.operands, traced.roles, strict=True) if role == CARRY]
        results = [_while(inner, carries[0], *pair) for pair in zip(results, carries, strict=True)]
    outputs = tuple(map(inner.batched, results))
    program = ArrayProgram(b, tuple(inner.inputs), outputs)
    return ArrayLoop(program, traced.roles, traced.count, axis, traced.reverse, traced.tested)


def _while(lowering: Lowering, going: View, new: View, old: View) -> View:
    """A carry that stays as it is where a loop has ended, while others that are mapped go on."""

    def read(i: Sequence[int]) -> int:
        return chosen(lowering, going.read(()), new.read(i), old.read(i))

    return View(new.shape, new.kind, read)


def _of_kind(lowering: Lowering, view: View, kind: str) -> View:
    """A view of integers as one of truth values, where they are."""
    if kind != "b":
        return view
    return View(view.shape, "b", lambda i: lowering.truth(view.read(i)))


class Body:
    """The body of a loop while it is traced, on a tape of its own.

    Operands are the number of the iteration, the carries, and the rows of arrays; more are taken
    from around it as the body uses them.
    """

    def __init__(
        self, tape: Tape, inits: Sequence[WholeArray], arrays: Sequence[WholeArray]
    ) -> None:
        self.tape, self._outer = Tape(tape), WholeArray(tape, 0)
        zero = self._outer.lift(np.zeros((), np.int64))
        self.roles = [COUNTER, *[CARRY] * len(inits), *[ROW] * len(arrays)]
        numbers = [self.tape.operand(a.number, fresh=True) for a in (zero, *inits)]
        numbers += [self.tape.operand(a.number, 0) for a in arrays]
        self.counter, *rest = (WholeArray(self.tape, k) for k in numbers)
        self.carries, self.rows = rest[: len(inits)], rest[len(inits) :]

    def ends(self, count: int, outputs: Sequence[WholeArray], **how: bool) -> list[WholeArray]:
        """The results of the loop, on the tape around it."""
        inner, outer = self.tape, self._outer.tape
        roles = (*self.roles, *[AROUND] * (len(inner.taken) - len(self.roles)))
        given = "".join(outer.kinds[k] for k in inner.taken)
        kinds = "".join(o.kind for o in outputs)
        numbers = tuple(o.number for o in outputs)
        ranks = tuple(len(o.shape) for o in inner.operations if o.rule is operand_rule)
        traced = Traced(
            inner.key, roles, given, ranks, numbers, kinds, count, how.get("reverse", False),
            how.get("tested", False),
        )  # fmt: skip
        results = []
        for k, o in enumerate(outputs):
            shape = o.shape if k < len(self.carries) else (count, *o.shape)
            number = outer.add(looped, (traced, k), tuple(inner.taken), shape, o.kind)
            results.append(WholeArray(outer, number))
        return results


def _tape() -> tuple[Tape, WholeArray]:
    tape = open_tape()
    assert tape is not None, "a function of whole arrays is traced"
    return tape, WholeArray(tape, 0)


def _carry(init: Any) -> tuple[list[WholeArray], Tree]:
    """The first carries as whole arrays, and how they are nested."""
    _, anchor = _tape()
    leaves, tree = flatten(init)
    return [anchor.lift(leaf).copied() for leaf in leaves], tree


def _next(
    f: Callable[..., Any], body: Body, value: Any, inits: Sequence[WholeArray]
) -> list[WholeArray]:
    """The next carries, of the shapes of the first ones.

    Raises:
        TraceError: if they are nested otherwise or of other shapes.
    """
    anchor = body.counter
    leaves = flatten(value)[0]
    shapes = [i.shape for i in inits]
    wholes = [anchor.lift(leaf) for leaf in leaves]
    if [w.shape for w in wholes] != shapes:
        given = ", ".join(str(w.shape) for w in wholes)
        raise TraceError(
            located(
                f"{describe(f)} returns arrays of shapes {given} for carries of shapes "
                f"{', '.join(map(str, shapes))}: a loop carries what it begins with"
            )
        )
    return wholes


def _loop(
    f: Callable[..., Any], init: Any, arrays: Sequence[WholeArray], count: int,
    step: Callable[[Body, Any], tuple[Any, Sequence[Any]]], **how: bool,
) -> tuple[Any, list[WholeArray]]:  # fmt: skip
    """The last carry of a loop, nested as the first one, and the rows it gives, stacked.

    ``step(body, carry)`` gives the next carry, and rows. A carry that begins as an integer and goes
    on as a real number is one from the start, which takes another trace.
    """
    tape, _ = _tape()
    inits, tree = _carry(init)
    while True:
        body = Body(tape, inits, arrays)
        with opened(body.tape):
            carry = tree.nest(iter([c.copied() for c in body.carries]), None)
            value, rows = step(body, carry)
            ends = _next(f, body, value, inits)
            kinds = [max(i.kind, e.kind, key="bif".index) for i, e in zip(inits, ends, strict=True)]
            more = [body.counter.lift(row) for row in rows]
            ends = [e.astype(KINDS_OF[k]) for e, k in zip(ends, kinds, strict=True)]
        if kinds == [i.kind for i in inits]:
            results = body.ends(count, [*ends, *more], **how)
            return tree.nest(iter(results[: len(ends)]), None), results[len(ends) :]
        inits = [i.astype(KINDS_OF[k]) for i, k in zip(inits, kinds, strict=True)]


KINDS_OF: Final = {"f": float, "i": np.int64, "b": bool}
"""A data type of each kind."""


def fori_loop(lo: Any, hi: Any, body: Callable[[Any, Any], Any], init: Any, most: Any) -> Any:
    """`sg.fori_loop` of whole arrays."""
    if isinstance(lo, WholeArray) or isinstance(hi, WholeArray):
        start, end = (_tape()[1].lift(x).astype(np.int64) for x in (lo, hi))
        carry = while_loop(
            lambda c: c[0] < end, lambda c: (c[0] + 1, body(c[0], c[1])), (start, init), most
        )
        return carry[1]
    count, first = max(int(hi) - int(lo), 0), int(lo)
    if not count:
        return init
    return _in_strips(
        body, init, [], count, lambda b, k, carry: (body(k + first, carry), ()), False
    )[0]


def while_loop(
    going: Callable[[Any], Any], body: Callable[[Any], Any], init: Any, most: int | None
) -> Any:
    """`sg.while_loop` of whole arrays; numbers are NaN where it goes on after ``most``."""
    leaves, tree = _carry(init)
    begin = tree.nest(iter(leaves), None)

    def step(b: Body, carry: Any) -> tuple[Any, Sequence[Any]]:
        value = body(carry[1])
        return (b.counter.lift(going(value)).astype(bool), value), ()

    first = _tape()[1].lift(going(begin)).astype(bool)
    count = MOST_ITERATIONS if most is None else most
    (again, end), _ = _loop(body, (first, begin), [], count, step, tested=True)
    if most is None:
        return end
    ends, nest = flatten(end)
    return nest.nest((np.where(again, np.nan, e) if e.kind == "f" else e for e in ends), None)


def scan(
    step: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, length: int | None,
    reverse: bool,
) -> tuple[Any, Any]:  # fmt: skip
    """`sg.scan` of whole arrays."""
    _, anchor = _tape()
    leaves, tree = ([], None) if xs is None else flatten(xs)
    arrays = [anchor.lift(x) for x in leaves]
    counts = {len(a) for a in arrays} | ({length} if length is not None else set[int]())
    if len(counts) != 1:
        raise TraceError(located(f"scan goes through arrays of one length, not of {counts or '?'}"))
    count, nests = counts.pop(), list[Tree]()

    def once(b: Body, k: Any, carry: Any) -> tuple[Any, Sequence[Any]]:
        rows = None if tree is None else tree.nest(iter(b.rows), None)
        value = step(carry, rows)
        if not isinstance(value, tuple) or len(value) != 2:
            raise TraceError(located(f"{describe(step)} returns no pair of a carry and a y"))
        ys, nest = ([], Tree(tuple)) if value[1] is None else flatten(value[1])
        nests.append(nest)
        return value[0], ys

    carry, stacked = _in_strips(step, init, arrays, count, once, reverse)
    return carry, nests[-1].nest(iter(stacked), None) if stacked else None


def _in_strips(
    f: Callable[..., Any], init: Any, arrays: Sequence[WholeArray], count: int,
    step: Callable[[Body, Any, Any], tuple[Any, Sequence[Any]]], reverse: bool,
) -> tuple[Any, list[WholeArray]]:  # fmt: skip
    """A loop that is counted: one whose carries would be many to keep is a loop over strips."""
    tape, anchor = _tape()
    carried = sum(c.size for c in _carry(init)[0])
    strip = _strip(tape.checkpoint, count, carried)
    if strip >= count:
        return _loop(f, init, arrays, count, lambda b, c: step(b, b.counter, c), reverse=reverse)
    strips = count // strip
    whole = strips * strip
    start = count - whole if reverse else 0
    parts = [a[start : start + whole].reshape(strips, strip, *a.shape[1:]) for a in arrays]
    rest = [a[:start] if reverse else a[whole:] for a in arrays]

    def through(outer: Body, carry: Any) -> tuple[Any, Sequence[Any]]:
        first = outer.counter * strip + start

        def once(b: Body, c: Any) -> tuple[Any, Sequence[Any]]:
            return step(b, b.counter + first, c)

        return _loop(f, carry, outer.rows, strip, once, reverse=reverse)

    carry, ys = _loop(f, init, parts, strips, through, reverse=reverse)
    ys = [y.reshape(whole, *y.shape[2:]) for y in ys]
    if whole == count:
        return carry, ys
    offset = 0 if reverse else whole
    carry, others = _loop(
        f, carry, rest, count - whole, lambda b, c: step(b, b.counter + offset, c), reverse=reverse
    )
    pairs = [(o, y) if reverse else (y, o) for y, o in zip(ys, others, strict=True)]
    return carry, [anchor.functions[np.concatenate](pair) for pair in pairs]


def _strip(checkpoint: Any, count: int, carried: int) -> int:
    """The iterations of a strip, whose first carries alone are kept: see `Checkpoint`."""
    if checkpoint == "keep" or (checkpoint == "auto" and count * carried <= MOST_KEPT):
        return count
    return math.isqrt(max(count - 1, 0)) + 1 if isinstance(checkpoint, str) else checkpoint


def cond(pred: Any, then: Callable[[], Any], otherwise: Callable[[], Any]) -> Any:
    """`sg.cond` of whole arrays: both sides are computed."""
    (first, nest), (second, other) = flatten(then()), flatten(otherwise())
    if nest != other:
        raise TraceError(located("the sides of a choice give results that are nested differently"))
    pairs = zip(first, second, strict=True)
    return nest.nest((np.where(pred, a, b) for a, b in pairs), None)


TABLE: Final[dict[Any, Callable[..., Any]]] = {
    "fori_loop": fori_loop,
    "while_loop": while_loop,
    "scan": scan,
    "cond": cond,
}
"""The functions that loops and choices are in a function of whole arrays."""


# Functions of whole arrays along an axis: the tape of the function becomes one operation.


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
