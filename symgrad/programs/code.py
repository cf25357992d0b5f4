"""The parts of a program: arrays, and dispatches, which are kernels whose values float."""

from __future__ import annotations

import keyword
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from symgrad.errors import BufferUnknownError, InputError, ProgramError, TraceError
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import TRUTH, Graph, real_number
from symgrad.expr.tracers.expression import Condition, Expr, Scalar, as_float
from symgrad.expr.tracers.integers import SignedWord, Word
from symgrad.kernel.language.ir import KernelIR
from symgrad.kernel.language.listing import FloatingListing, Line
from symgrad.kernel.language.statements import (
    BOUND,
    Barrier,
    Buffer,
    GroupReduce,
    Space,
    Statement,
    within,
)
from symgrad.kernel.language.target import WorkgroupTarget

Role = Literal["input", "output", "temporary", "workgroup", "private", "variable"]
"""The role of an array: the caller's, which is read or returned, a program's own between
dispatches, a workgroup's, or an invocation's; or an invocation's variable, of one number."""

Kind = Literal["f32", "i32", "u32", "bool"]
"""The types of numbers. Floats are as wide as the program computes: float64 if it does."""

KINDS: Final[dict[Kind, str]] = {"f32": "f", "i32": "i", "u32": "u", "bool": "b"}
"""The letters by which kernels call these types."""

NAMES: Final[dict[str, Kind]] = {kind: name for name, kind in KINDS.items()}
"""The names of types in programs."""

WORDS: Final = frozenset([
    "program", "input", "output", "temporary", "workgroup", "private", "dispatch", "groups", "of",
    "let", "var", "if", "else", "for", "in", "down", "most", "barrier", "cell", "local", "group",
    "group_sum", "group_max", "group_min", "inf", "nan", "f32", "i32", "u32", "bool", "float32",
    "int32", "uint32", *keyword.kwlist,
])  # fmt: skip
"""The words of the text of programs, and those that Python keeps for itself: they are no names."""

TYPES: Final = {"f": "f", "i": "u", "u": "u", "b": "b"}
"""The types of their nodes: a signed integer is the word of its bits."""

HANDLES: Final = {"f": Expr, "i": SignedWord, "u": Word, "b": Condition}
"""The handles of values by their kinds."""

Index = Any
"""A whole number or an integer value; a tuple of them, one for each axis."""

_SPACES: Final[dict[Role, Space]] = {
    "input": "read",
    "output": "write",
    "temporary": "write",
    "workgroup": "group",
    "private": "own",
    "variable": "variable",
}


class Array(Buffer):
    """Numbers of one kind, of a known shape, in memory; or a variable."""

    def __init__(self, name: str, role: Role, kind: str, shape: tuple[int, ...]) -> None:
        super().__init__(name, _SPACES[role], kind, math.prod(shape), shape=shape)
        self.role: Role = role

    def __repr__(self) -> str:
        shape = "" if self.role == "variable" else list(self.shape)
        return f"<{self.role} {self.name}: {NAMES[self.kind]}{shape}>"


class Dispatch(KernelIR):
    """A kernel of so many ``invocations``, in workgroups of ``width``, whose values float.

    Invariants:
      1. Its scopes hold statements only, and no carries.
      2. The leaves of a value are made before it is needed, in its scope or one around it.
      3. The first store to a variable declares it.
    """

    def __init__(self, code: Code, invocations: int, width: int) -> None:
        super().__init__(WorkgroupTarget(width), graph=code.graph, floating=True)
        self.invocations, self.width = invocations, width
        self.buffers += code.arrays

    @property
    def arrays(self) -> list[Array]:
        """Its own arrays: those of a workgroup, and of an invocation."""
        arrays = (a for a in self.buffers if isinstance(a, Array))
        return [a for a in arrays if a.space not in BOUND]

    @property
    def statements(self) -> list[Statement]:
        """All its statements, in order."""
        return within(self.main)


def is_collective(dispatch: Dispatch) -> bool:
    """Whether invocations of a workgroup wait for each other."""
    return any(isinstance(s, Barrier | GroupReduce) for s in dispatch.statements)


@dataclass(eq=False)
class Code:
    """A program: what its text says. No two arrays or values known at one place have one name."""

    name: str
    graph: Graph = field(default_factory=Graph)
    arrays: list[Array] = field(default_factory=list)
    dispatches: list[Dispatch] = field(default_factory=list)
    places: dict[Statement, tuple[int, str]] = field(default_factory=dict)
    """The lines of the user's that statements stand on, and of what: a file, or the program."""

    def of(self, role: Role) -> list[Array]:
        """The arrays of a role, in order."""
        return [a for a in self.arrays if a.role == role]

    def lines(self) -> Iterator[Line]:
        """The lines of its text, with the statements that they say."""
        yield f"program {self.name}", ()
        for a in self.arrays:
            yield f"  {_declared(a)}", ()
        listing = FloatingListing(self.dispatches, [a.name for a in self.arrays])
        for d in self.dispatches:
            yield f"  dispatch {d.invocations} in groups of {d.width}:", ()
            for a in d.arrays:
                yield f"    {_declared(a)}", ()
            yield from listing.lines(d, "    ")


def text(code: Code) -> str:
    """A program as text, which `symgrad.programs.parse` reads."""
    return "\n".join(line for line, _ in code.lines()) + "\n"


def shown(code: Code, statement: Statement | None) -> str:
    """A statement as its line in the program's text, and where the user has it, for messages."""
    for n, (line, statements) in enumerate(code.lines(), 1):
        if statement and statement in statements:
            number, where = code.places.get(statement, (n, code.name))
            return f"{line.strip().rstrip(':')!r}, line {number} of {where}"
    raise AssertionError("the statement is none of the program's")


def _declared(a: Array) -> str:
    return f"{a.role} {a.name}: {NAMES[a.kind]}[{', '.join(map(str, a.shape))}]"


def is_global(array: Buffer) -> bool:
    """Whether all invocations have an array in common; or it is none."""
    if not isinstance(array, Buffer):
        raise BufferUnknownError(
            located(f"{array!r} is not an array: declare one by p.input, p.output and the like")
        )
    return array.space in BOUND


def kind_of(value: Scalar) -> str:
    """The kind of a value."""
    if isinstance(value, Word):
        return "i" if isinstance(value, SignedWord) else "u"
    return "b" if isinstance(value, Condition) else "f"


def constant(graph: Graph, x: Any, kind: str | None) -> Scalar:
    """A number as a value of a kind; of none, as a float."""
    target_kind = kind or ("b" if isinstance(x, bool) else "f")
    number = real_number(x)
    if target_kind == "f":
        return Expr(graph, graph.constant(number))
    if target_kind == "b":
        return Condition(graph, graph.intern((TRUTH, int(bool(number)))))
    if not number.is_integer():
        raise TraceError(located(f"{x!r} is not an integer: cast it by sg.int32 or sg.uint32"))
    return (SignedWord if target_kind == "i" else Word).of(graph, int(x))


def converted(value: Scalar, kind: str, what: str) -> Scalar:
    """A value as one of another kind, where nobody can be mistaken about what that means."""
    if kind == "f":
        return as_float(value)
    if kind == "b":
        return value.is_true()
    if isinstance(value, Word):
        return (SignedWord if kind == "i" else Word)(value.graph, value.id)
    kinds = f"{NAMES[kind]}, not {NAMES[kind_of(value)]}"
    raise TraceError(located(f"{what} must be {kinds}: cast it by sg.int32 or sg.uint32"))


def axis_indices(array: Buffer, index: Index) -> tuple[Any, ...]:
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


def flat_index(array: Buffer, axes: Sequence[Any]) -> Any:
    """The number of an element in C order, by its `axis_indices`."""
    flat: Any = 0
    sizes = array.shape if len(axes) > 1 else (array.size,)
    for i, n in zip(axes, sizes, strict=False):
        flat = i if isinstance(flat, int) and flat == 0 else flat * n + i
    return flat


def _whole(array: Buffer, index: Any, size: int) -> Any:
    """An index of an axis of so many elements."""
    if isinstance(index, int) and not isinstance(index, bool):
        if not 0 <= index < size:
            raise ProgramError(
                located(f"{array.name}[{index}] is out of bounds: the axis has {size} elements")
            )
        return index
    if isinstance(index, Word):
        return index.bits()
    raise TraceError(
        located(f"{array.name}[{index!r}]: an index is an integer; cast it by sg.uint32")
    )
