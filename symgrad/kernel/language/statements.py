"""The parts of kernels: buffers, scopes, and the statements in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import numpy as np

from symgrad.expr import ops
from symgrad.expr.graph.node import Node, Op

Space = Literal["read", "write", "own", "group", "variable"]
"""Whose memory a buffer is: the host's, only read or also written; an invocation's; a group's.

A variable is a single number of an invocation's, in a kernel that floats: `place` makes values of
what is stored there.
"""


Operation = Literal["sum", "max", "min"]
"""Operations of a group on a value of each of its invocations."""


OPERATIONS: Final[dict[Operation, Op]] = {
    "sum": ops.add,
    "max": ops.maximum,
    "min": ops.minimum,
}
"""The operations on two values."""


BOUND: Final = ("read", "write")
"""The spaces of the host's buffers, which are arguments of a kernel."""


KINDS: Final = "fdbiu"
"""The types of values: the kernel's floats, wide floats for sums, truths, integers and words."""


NAMES: Final = {"f": "f32", "d": "f64", "b": "bool", "i": "i32", "u": "u32"}
"""Users' names of them; the kernel's floats are as wide as it computes."""


def _given(*_: Any) -> Any:
    raise AssertionError("a value of the kernel language is given by its statement")


VALUES: Final = {
    kind: Op(name=f"value_{kind}", signature=f"->{kind}", reference=_given) for kind in KINDS
}
"""Leaves ``(op, number)``: parameters of scopes, results of statements, what an invocation is."""


lane_sum: Final = Op(
    name="lane_sum", signature="f->f", reference=_given, meaning="the sum over a group in step"
)


wide_lane_sum: Final = Op(
    name="wide_lane_sum", signature="d->d", reference=_given, meaning="the same of wide floats"
)


lane_max: Final = Op(
    name="lane_max", signature="f->f", reference=_given, meaning="the largest of a group in step"
)


lane_min: Final = Op(
    name="lane_min", signature="f->f", reference=_given, meaning="the smallest of a group in step"
)


OVER_LANES: Final = {
    lane_sum: np.add,
    wide_lane_sum: np.add,
    lane_max: np.maximum,
    lane_min: np.minimum,
}
"""Operations on a value of all invocations of a group in step, as ufuncs of NumPy."""


wide_mul: Final = Op(
    name="wide_mul", signature="dd->d", reference=np.multiply, meaning="a * b of wide floats"
)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Read(Op):
    """The number at an index of a buffer that nobody writes to: a node like any other.

    It may be computed earlier than it is needed, so the index is in bounds wherever it is known.
    """

    buffer: Buffer


@dataclass(eq=False)
class Buffer:
    """An array of numbers of one kind; ``size`` is how many, or 0 where only the host knows it.

    Of one in which ``vector`` numbers stand together, if these are several, every index is
    vector * q + c, with c a known number below vector: targets may read or write those of one q
    together. Of one that is ``atomic``, several invocations add to the same numbers at the same
    time. Behind one that is ``padded`` is memory for a vector, which may be read, and have zeros
    added to it. ``data`` are the numbers of one that is read, if the kernel knows them, and not the
    host. One of a group may have rows of so many vectors, ``row``: an index may then be of row * r
    + column, or of column + c, with a known number c, which is that of a row and of a first column
    there: the column is within the row. Targets need to look only at whether it is.

    One of several axes has a ``shape``; an index counts its numbers in C order.

    One that is read may have ``floats`` of a dtype with fewer digits than the kernel's, which are
    converted as they are read.
    """

    name: str
    space: Space
    kind: str = "f"
    size: int = 0
    vector: int = 1
    atomic: bool = False
    padded: bool = False
    data: tuple[float, ...] | None = field(default=None, repr=False)
    row: int = 0
    floats: str = ""
    shape: tuple[int, ...] = ()
    read: Read = field(init=False, repr=False)

    def __post_init__(self) -> None:
        name, signature = f"read_{self.name}", f"u->{self.kind}"
        self.read = Read(name=name, signature=signature, reference=_given, buffer=self)


@dataclass(eq=False)
class Scope:
    """A scope: ids of nodes to compute and statements, one after the other.

    A ``branch`` is a side of an `If`, which no value leaves: it may not be computed elsewhere.
    """

    parent: Scope | None = None
    branch: bool = False
    items: list[int | Statement] = field(default_factory=list)
    index: dict[Node, int] = field(default_factory=dict)
    depth: int = field(init=False)

    def __post_init__(self) -> None:
        self.depth = self.parent.depth + 1 if self.parent else 0

    @property
    def statements(self) -> list[Statement]:
        """The statements among the items."""
        return [item for item in self.items if not isinstance(item, int)]

    def enclosing(self) -> Iterator[Scope]:
        """The scope itself, and those around it, from within."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent


@dataclass(eq=False)
class For:
    """``scope`` for k = lo, lo + 1, .., hi - 1, or ``down`` from hi - 1; no turn where hi <= lo.

    ``params`` are the carries at the start of a turn, first ``inits`` and then what the turn before
    ``yields``; ``results`` are what the last one yields. A loop that goes up may have a ``test``,
    known before the item number ``test_at`` of the scope: it ends where that does not hold.
    ``count`` is the k at which the loop ended: lo and the iterations taken, ``most`` at most;
    ``some`` says that lo < hi. A loop that floats has no carries and no count, and does no more
    than ``most`` iterations, whatever its bounds are.
    """

    scope: Scope
    k: int
    lo: int
    hi: int
    down: bool
    params: list[int] = field(default_factory=list)
    inits: list[int] = field(default_factory=list)
    yields: list[int] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    count: int = -1
    test: int | None = None
    test_at: int = 0
    most: int | None = None
    some: bool = False


@dataclass(eq=False)
class If:
    """One of two sides; ``results`` are what the side that is taken yields."""

    condition: int
    sides: tuple[Scope, Scope]
    yields: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    results: list[int] = field(default_factory=list)


@dataclass(eq=False)
class Load:
    """``result = buffer[index]``, read here: what somebody writes to, or what is not to be kept.

    Where it is ``agreed``, all invocations of a group read the same number, and wait for each other
    before that and behind it. In a kernel that floats, ``axes`` are what an index is made of.
    """

    result: int
    buffer: Buffer
    index: int
    agreed: bool = False
    axes: tuple[int, ...] = ()


@dataclass(eq=False)
class Store:
    """``buffer[index] = value``, or with ``add``, ``+=``; ``axes`` are as in `Load`."""

    buffer: Buffer
    index: int
    value: int
    add: bool = False
    axes: tuple[int, ...] = ()


@dataclass(eq=False)
class ReadRow:
    """``results[c] = buffer[row * width + c]`` of the columns c of a buffer that nobody writes to.

    ``row`` is the number of the invocation or of its point. A number may be read where it is first
    needed.
    """

    buffer: Buffer
    row: int
    width: int
    results: dict[int, int]


@dataclass(eq=False)
class StoreRow:
    """``buffer[cell * n + c] = values[c]`` of all n values, if there is such a point.

    All invocations of a group come here, those too that have no point.
    """

    buffer: Buffer
    values: list[int]


@dataclass(eq=False)
class Fill:
    """Zeros in all of a buffer of an invocation's own."""

    buffer: Buffer


@dataclass(eq=False)
class Routine:
    """A routine of a kernel: ``scope``, with the values that each call gives ``params``.

    It stands in the outermost scope, before its calls. It leaves what it makes in memory, waits for
    nobody, and needs no value around it but those that are computed, loaded or given there; what an
    invocation is in particular, it is told.
    """

    name: str
    scope: Scope
    params: list[int]


@dataclass(eq=False)
class Call:
    """A `Routine`, done here with these values."""

    routine: Routine
    args: list[int]


@dataclass(eq=False)
class Barrier:
    """All invocations of a group wait here for each other, and see what each has stored.

    Of the host's arrays they need not see it unless the barrier is for ``results`` too.
    """

    results: bool = True


@dataclass(eq=False)
class Let:
    """The name of a value, in a kernel that floats: it is computed where it is needed."""

    name: str
    value: int


@dataclass(eq=False)
class GroupReduce:
    """``result`` is made of the values of ``among`` neighbours, in a kernel that floats.

    Each of them gets it. They are all invocations of a group, or a power of two of them.
    """

    result: int
    operation: Operation
    value: int
    among: int


Statement = (
    For | If | Let | Load | Store | ReadRow | StoreRow | Fill | Routine | Call | Barrier
    | GroupReduce
)  # fmt: skip


def scopes_of(item: int | Statement) -> Sequence[Scope]:
    """The scopes of a statement."""
    if isinstance(item, (For, Routine)):  # a union would be made anew at every call
        return (item.scope,)
    return item.sides if isinstance(item, If) else ()


def everything(items: Iterable[int | Statement]) -> list[int | Statement]:
    """Items and all that is within them, as they are written."""
    flattened: list[int | Statement] = []
    for item in items:
        flattened.append(item)
        if not isinstance(item, int):
            for scope in scopes_of(item):
                flattened += everything(scope.items)
    return flattened


def within(*scopes: Scope) -> list[Statement]:
    """All statements of scopes and of those within them, as they are written."""
    items = everything(item for scope in scopes for item in scope.items)
    return [item for item in items if not isinstance(item, int)]


def declarations(scope: Scope) -> set[Store]:
    """The stores within that declare a variable: the first to each."""
    stores = [s for s in within(scope) if isinstance(s, Store)]
    first = {s.buffer: s for s in reversed(stores) if s.buffer.space == "variable"}
    return set(first.values())


def indices(s: Load | Store) -> list[tuple[int, int]]:
    """The indices of an access in a kernel that floats, each with how many elements it may be of.

    They are one of each axis, or a single one of the elements in C order.
    """
    if len(s.axes) > 1:
        return list(zip(s.axes, s.buffer.shape, strict=True))
    return [(s.index, s.buffer.size)]


def results_of(item: int | Statement) -> Sequence[int]:
    """The values that are known behind an item."""
    match item:
        case int():
            return (item,)
        case For(results=results, count=count):
            return *results, count
        case If(results=results):
            return results
        case Load(result=result) | GroupReduce(result=result):
            return (result,)
        case ReadRow(results=found):
            return (*found.values(),)
        case _:
            return ()
