"""Warnings of lines of the user's program that write out very many operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from symgrad.errors import SizeWarning, SymgradError, warn
from symgrad.expr.graph.node import Graph, Op
from symgrad.expr.graph.place import Place, caller, resolve_places

MOST_WRITTEN_OUT: Final = 20_000
"""Operations of one line up to which nothing is said: they take about a second."""


MOST_ELEMENTS: Final = 2_000
"""Elements of one operation up to which arrays are traced by them where they could be whole."""

MOST_OF_ONE_CALL: Final = 1_000
"""Operations up to which a trace for one call is by elements where arrays could be whole.

Kernels of so many take as long to compile as those of whole arrays, and run as fast; of four times
as many ten times as long, on llvmpipe.
"""

_whole_instead: ContextVar[bool] = ContextVar("_whole_instead", default=False)

_one_call: ContextVar[bool] = ContextVar("_one_call", default=False)


class ManyElementsError(SymgradError):
    """An operation writes out many elements of arrays, which can be traced as a whole."""


class AlgorithmError(ManyElementsError):
    """An algorithm is better on arrays as a whole, however small they are."""


@contextmanager
def whole_instead(one_call: bool = False) -> Generator[None]:
    """Within, operations on many elements are refused: see `ManyElementsError`.

    Of a trace for ``one_call``, rather than a kernel for any number of points, algorithms that are
    better by LAPACK are refused, too.
    """
    tokens = _whole_instead.set(True), _one_call.set(one_call)
    try:
        yield
    finally:
        _whole_instead.reset(tokens[0])
        _one_call.reset(tokens[1])


def prefer_whole(count: int, graph: Graph | None = None) -> None:
    """Refuse so many elements, if they are many, within `whole_instead`.

    Of a trace for one call they are added to the operations of the graph.

    Raises:
        ManyElementsError: as it says.
    """
    if graph is not None and _one_call.get():
        is_much = len(graph) + count > MOST_OF_ONE_CALL
    else:
        is_much = count > MOST_ELEMENTS and _whole_instead.get()
    if is_much:
        raise ManyElementsError(f"{count:,} elements")


def prefer_algorithm(name: str) -> None:
    """Refuse the elements of an algorithm within `whole_instead` of one call.

    Raises:
        AlgorithmError: as it says.
    """
    if _one_call.get():
        raise AlgorithmError(f"the elements of {name}")


class SizeNote:
    """A note of a graph: whether the user knows of a line that writes out much of it."""

    has_warned = False


def warn_of_elements(graph: Graph | None, count: int) -> None:
    """Warn before the line that is running writes out ``count`` operations of elements.

    They may take minutes, in which nothing else would be said.

    Raises:
        ManyElementsError: within `whole_instead`.
    """
    prefer_whole(count, graph)
    if count < MOST_WRITTEN_OUT or graph is None or graph.note(SizeNote).has_warned:
        return
    graph.note(SizeNote).has_warned = True
    line = caller()
    _warn(count, line[0] if line else None)


def warn_of_lines(graph: Graph, source: Graph) -> None:
    """Warn of the line that has written out most, unless the user knows of one in its source."""
    if len(graph) < MOST_WRITTEN_OUT or source.note(SizeNote).has_warned:
        return
    resolve_places(graph)
    times = Counter(
        p for p, node in zip(graph.places, graph.nodes, strict=True) if _counts(node[0])
    )
    lines = Counter[Place]()
    for number, count in times.items():
        if (place := graph.sources[number]) is not None:
            lines[place] += count
    for place, count in lines.most_common(1):
        if count >= MOST_WRITTEN_OUT:
            source.note(SizeNote).has_warned = True
            _warn(count, place)


def _counts(op: Op) -> bool:
    """Whether it is an operation on numbers, rather than a leaf or what arrays and loops are of."""
    return type(op) is Op and op.arity > 0


def _warn(count: int, place: Place | None) -> None:
    warn(
        f"{count:,} operations are written out one by one by a single line, and more by its "
        "derivatives: that takes seconds to minutes; write operations on arrays that take no "
        "elements apart, of which sg.value_and_grad and sg.jit make kernels that do not grow with "
        "them, a loop (sg.fori_loop, sg.scan), which is as short for any number of iterations, or "
        "a loss over data as a kernel over rows (columns=)" + (f"\n  at {place}" if place else ""),
        SizeWarning,
    )
