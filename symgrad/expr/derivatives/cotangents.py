"""The rules of one node: what it hands to its arguments of a cotangent, and how these add up.

A zero cotangent or tangent is absent, never a node: it absorbs whatever it would be multiplied by,
also infinity and NaN. No function here recurses over the graph.
"""

from __future__ import annotations

import functools
from collections.abc import Container, Generator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from symgrad.errors import DifferentiationError
from symgrad.expr import ops
from symgrad.expr.graph.arrays import GET
from symgrad.expr.graph.node import (
    CONST,
    Graph,
    Handle,
    Masked,
    Op,
    float_bits,
    reachable,
    real_number,
)
from symgrad.expr.graph.place import resolve_places
from symgrad.expr.graph.region import Loop, Pick, close, hole, loop_op
from symgrad.expr.laws.facts import FLOAT32_LARGEST
from symgrad.expr.tracers.expression import WRAP, Expr, lift

_ONE = (CONST, float_bits(1.0))
_MINUS_ONE = (CONST, float_bits(-1.0))


@contextmanager
def deriving(graph: Graph) -> Generator[None]:
    """Within, new nodes take the place of the node that is being differentiated."""
    tracing, place = graph.tracing, graph.place
    graph.tracing = False
    try:
        yield
    finally:
        graph.tracing, graph.place = tracing, place


@contextmanager
def differentiating(graph: Graph) -> Generator[None]:
    """As `deriving`; and the new nodes are marked as derivatives, which the user did not write."""
    start = len(graph)
    with deriving(graph):
        yield
    graph.derived.append(range(start, len(graph)))


Contribution = tuple[int | None, int]
"""A term of a cotangent: the condition outside of which it is 0 (None: it holds everywhere), and
its value where the condition holds."""


def collected(graph: Graph, parts: list[Contribution]) -> Contribution:
    """The sum of several contributions."""
    if len(parts) == 1:
        return parts[0]
    grouped: dict[int | None, list[int]] = {}
    for mask, g in parts:
        grouped.setdefault(mask, []).append(g)
    sums = {mask: balanced_sum(graph, terms) for mask, terms in grouped.items()}
    if len(sums) == 2:
        (first, a), (second, b) = sums.items()
        choice = _choice(graph, first, second)
        if choice is not None:
            condition, outer = choice
            return outer, graph.add(ops.where, condition, a, b)
    if len(sums) == 1:
        return next(iter(sums.items()))
    total = balanced_sum(graph, [selected(graph, part) for part in sums.items()])
    masks = list(sums)
    if None in masks:
        return None, total
    return functools.reduce(lambda a, b: graph.add(ops.logical_or, a, b), masks), total  # type: ignore[arg-type]


def _choice(graph: Graph, a: int | None, b: int | None) -> tuple[int, int | None] | None:
    """For masks that are the two sides of one choice: what is chosen by, and where at all."""
    if a is None or b is None:
        return None
    if _opposite(graph, a, b):
        return a, None
    left, right = graph.nodes[a], graph.nodes[b]
    if left[0] is right[0] is ops.logical_and:
        for outer in set(left[1:]) & set(right[1:]):
            inner, other = sum(left[1:]) - outer, sum(right[1:]) - outer
            if _opposite(graph, inner, other):
                return inner, outer
    return None


def _opposite(graph: Graph, a: int, b: int) -> bool:
    return graph.nodes[a] == (ops.logical_not, b) or graph.nodes[b] == (ops.logical_not, a)


def selected(graph: Graph, part: Contribution) -> int:
    """The contribution as one node: 0 where its condition does not hold."""
    mask, g = part
    return g if mask is None else graph.add(ops.where, mask, g, graph.constant(0.0))


def masked(graph: Graph, mask: int | None, g: Any) -> Contribution:
    """The contribution to an argument, 0 wherever its user's cotangent is."""
    if not isinstance(g, Masked):
        return mask, g
    return _both(graph, mask, g.condition.id), lift(graph, g.value).id


def product(graph: Graph, a: Contribution, b: Contribution) -> Contribution:
    """The product of two contributions, which holds where both do."""
    return _both(graph, a[0], b[0]), _times(graph, a[1], b[1])


def _times(graph: Graph, a: int, b: int) -> int:
    """``a * b``, without the node where one factor is 1 or -1."""
    for factor, other in ((a, b), (b, a)):
        if graph.nodes[factor] == _ONE:
            return other
        if graph.nodes[factor] == _MINUS_ONE:
            return graph.add(ops.neg, other)
    return graph.add(ops.mul, a, b)


def _both(graph: Graph, a: int | None, b: int | None) -> int | None:
    """The condition that two conditions hold, of which None always does."""
    if a is None or a == b:
        return b
    return a if b is None else graph.add(ops.logical_and, a, b)


def active_between(graph: Graph, roots: Any, wrt: Sequence[int]) -> list[int]:
    """The nodes that some root depends on and that depend on ``wrt``, in ascending order.

    None is older than all of ``wrt``: where a traced loop differentiates what its last step made,
    the steps before are not looked at.
    """
    nodes = graph.nodes
    active = set(wrt)
    order: list[int] = []
    for i in reachable(graph, roots, min(wrt, default=len(graph))):
        node = nodes[i]
        if i in active or (node[0].arity and not active.isdisjoint(node[1:])):
            active.add(i)
            order.append(i)
    return order


STRUCTURES: Final = "FWt"
"""The types of arrays, and of the results of loops and choices."""


def is_structure(graph: Graph, i: int) -> bool:
    """Whether node i is about arrays, loops or choices: its derivatives follow from no partials."""
    op = graph.nodes[i][0]
    return op.result in STRUCTURES or op is GET or op.__class__ is Pick


def balanced_sum(graph: Graph, parts: list[int]) -> int:
    """The sum as a balanced tree: the error grows with the logarithm of the number of parts."""
    while len(parts) > 1:
        paired = [graph.add(ops.add, a, b) for a, b in zip(parts[::2], parts[1::2], strict=False)]
        parts = paired + parts[len(paired) * 2 :]
    return parts[0]


def pull_back(graph: Graph, i: int, g: int, active: set[int]) -> list[tuple[int, Any]]:
    """The cotangents, ids, numbers or `Masked`, that node i hands to its active arguments."""
    node = graph.nodes[i]
    op = node[0]
    if not op.arity:
        return []
    arguments = node[1:]
    if op is ops.add:  # the most frequent one, in a quarter of the time
        return [(a, g) for a in arguments if a in active]
    handles = [WRAP[graph.nodes[a][0].result](graph, a) for a in arguments]
    if op.partials is not None:
        if op.parameters:
            _require_no_parameter(graph, i, active)
        if arguments == (arguments[0],) * 2 and op is ops.mul:
            return [(arguments[0], scaled(graph, scaled(graph, g, 2.0), handles[0]))]
        partials = op.partials(Expr(graph, i), *handles)
        chosen = [
            (a, p)
            for a, p in zip(arguments, partials, strict=True)
            if p is not None and a in active
        ]
        return _contributions(graph, g, chosen)
    if op.vjp is None or op.result in STRUCTURES:
        return []  # a condition is piecewise constant, and arrays are the sweeps' affair
    cotangents = op.vjp(Expr(graph, g), Expr(graph, i), *handles)
    pairs = [
        (a, _contribution(graph, s))
        for a, s in zip(arguments, cotangents, strict=True)
        if a in active
    ]
    return [(a, g) for a, g in pairs if g is not None]


def _require_no_parameter(graph: Graph, i: int, active: set[int]) -> None:
    """Raise an error if a derivative is asked for of which there is none.

    Raises:
        DifferentiationError: it names the function, its parameter and its line.
    """
    op, *arguments = graph.nodes[i]
    for k, a in enumerate(arguments[: op.parameters]):
        if a in active and _passes_on(graph, a, active):
            resolve_places(graph)
            place = graph.place_of(i)
            raise DifferentiationError(
                f"symgrad has no derivative of {_subject(op)} with respect to its {_ORDINALS[k]} "
                "argument, which depends on the variables. Write the integral of the density by "
                "sg.quad, which has one, or give that argument as a number or as "
                "sg.stop_gradient(...)" + (f"\n  at {place}" if place else "")
            )


def _subject(op: Op) -> str:
    """The name that users know of a function, or what a function that they do not call means."""
    return op.name if op.public else f'"{op.meaning}"'


_ORDINALS: Final = ("first", "second", "third")


def _passes_on(graph: Graph, a: int, active: set[int]) -> bool:
    """Whether a change of what is differentiated by changes node a: not so behind a floor."""
    stack, one = [a], graph.constant(1.0)
    while stack:
        i = stack.pop()
        if is_structure(graph, i) or active.isdisjoint(graph.args(i)):
            return True
        stack += [b for b, _ in pull_back(graph, i, one, active)]
    return False


def _contributions(graph: Graph, g: int, partials: list[tuple[int, Any]]) -> list[tuple[int, int]]:
    """g times each partial; of one that is a multiple of another, that multiple of what this gives.

    So the two of a quotient a/b = y, r and -(y*r) with r = 1/b, are g*r and -(y*(g*r)).
    """
    if len(partials) == 2 and _is_variable(graph, g):
        (a, p), (b, q) = partials
        factor = _cofactor(graph, q, p)
        if factor is not None:
            first = scaled(graph, g, p)
            sign, other = factor
            multiple = graph.add(ops.mul, other, first)
            return [(a, first), (b, graph.add(ops.neg, multiple) if sign else multiple)]
    return [(a, scaled(graph, g, p)) for a, p in partials]


def _is_variable(graph: Graph, i: int) -> bool:
    return graph.nodes[i][0] is not CONST


def _cofactor(graph: Graph, product: Any, factor: Any) -> tuple[bool, int] | None:
    """Whether ``product`` is the negative, and the other factor, of a multiple of ``factor``."""
    if product.__class__ is not Expr or factor.__class__ is not Expr:
        return None
    node = graph.nodes[product.id]
    negative = node[0] is ops.neg
    node = graph.nodes[node[1]] if negative else node
    if node[0] is not ops.mul or factor.id not in node[1:]:
        return None
    return negative, node[1] + node[2] - factor.id


def _contribution(graph: Graph, value: Any) -> Any:
    """A cotangent of a row's ``vjp`` as a node id or `Masked`; None for a zero."""
    if value is None or isinstance(value, Masked):
        return value
    if isinstance(value, Handle):
        return lift(graph, value).id
    return graph.constant(real_number(value)) if value != 0 else None


def scaled(graph: Graph, g: int, partial: Any) -> int:
    """``g * partial``, without the node where one factor is 1 or -1."""
    if graph.nodes[g] == _ONE:
        return partial.id if partial.__class__ is Expr else graph.constant(float(partial))
    if partial.__class__ is Expr:
        return graph.add(ops.mul, partial.id, g)
    if partial == 1:
        return g
    if partial == -1:
        return graph.add(ops.neg, g)
    return graph.add(ops.mul, graph.constant(float(partial)), g)


# Sums of many terms, carried with their rounding errors: the hundred-thousandth is not lost.

LEAST_ITERATIONS: Final = 2**12
"""Iterations from which on the sums that a loop carries are compensated."""

PLAIN: Final = 2**5
"""Terms of a sum that is one of those of another sum up to which it is not compensated."""

MOST_TERMS: Final = 64
"""Terms of a sum up to which the carry is looked for among them."""


def compensated(op: Loop, runs: int = 1, anew: Container[int] = ()) -> tuple[Loop, int]:
    """The loop, and how many carries it has more, each 0 at first, behind its own.

    A carry x that becomes a sum x + d has another one, what its sums have lost by rounding: it is
    added to the next d (Dekker's sum, exact where d is the smaller). No derivative sees it. The
    iterations that count are those of all ``runs``, as a sum may go on from run to run, but for
    carries ``anew``, which begin at 0 in each, and have few terms. A loop inside has iterations as
    well.
    """
    terms = (op.most or 0) * _iterations_inside(op)
    if terms * runs < LEAST_ITERATIONS:
        return op, 0
    short = terms <= PLAIN
    graph, m, yields = op.body.copy(), op.carries, list(op.body.yields)
    k, *params = op.body.params
    errors: list[int] = []
    lost: list[int] = []
    for j in range(m):
        term = None if short and j in anew else _term(graph, params[j], yields[j])
        if term is not None:
            name = f"{graph.names[1 + j]}_error"
            graph.place = graph.places[yields[j]]
            errors.append(hole(graph, "f", name=name))
            yields[j], after = _two_sum(graph, params[j], graph.add(ops.add, term, errors[-1]))
            lost.append(after)
    region, _ = close(
        graph, [k, *params[:m], *errors, *params[m:]], [*yields[:m], *lost, *yields[m:]]
    )
    return loop_op(region, m + len(lost), op.test, op.down, op.most), len(lost)


def _iterations_inside(op: Loop) -> int:
    """The most iterations of a loop inside an iteration of this one, with those inside that."""
    inside = (node[0] for node in op.body.graph.nodes if isinstance(node[0], Loop))
    return max(((loop.most or 1) * _iterations_inside(loop) for loop in inside), default=1)


def _two_sum(graph: Graph, x: int, d: int) -> tuple[int, int]:
    """x + d rounded, and what was lost by rounding."""
    total = graph.add(ops.opaque, graph.add(ops.add, x, d))
    taken = graph.add(ops.opaque, graph.add(ops.sub, total, x))
    finite = graph.add(ops.le, graph.add(ops.abs, total), graph.constant(FLOAT32_LARGEST))
    lost = graph.add(ops.where, finite, graph.add(ops.sub, d, taken), graph.constant(0.0))
    return total, graph.add(ops.stop_gradient, lost)


def _term(graph: Graph, carry: int, then: int) -> int | None:
    """The term added to a carry; None of a whole number, as those are counted exactly."""
    parts, terms = [(then, False)], list[int]()
    seen = 0
    while parts and len(terms) < MOST_TERMS:
        i, negative = parts.pop()
        op, *args = graph.nodes[i]
        if i == carry and not negative:
            seen += 1
        elif op is ops.add or op is ops.sub:
            parts += [(args[0], negative), (args[1], negative != (op is ops.sub))]
        else:
            terms.append(graph.add(ops.neg, i) if negative else i)
    if parts or seen != 1 or not terms:
        return None
    value = graph.value(terms[0])
    counted = len(terms) == 1 and value is not None and value.is_integer()
    return None if counted else balanced_sum(graph, terms)
