"""The hash-consed DAG, one arena in which arguments stand before their users, and walks over it."""

from __future__ import annotations

import gc
import numbers
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ContextDecorator
from contextvars import ContextVar
from copy import copy as copy_of
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, ClassVar, Final, TypeVar

import numpy as np

from symgrad.errors import InputError, InputTypeError, TraceError
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.place import Place
from symgrad.lazy import definitions

# --- arrays that are traced as a whole ------------------------------------------------------------
# Arrays that are traced as a whole: what the floors below know of them.

OPEN_TAPE: Final[ContextVar[Any]] = ContextVar("OPEN_TAPE", default=None)
"""The tape of the innermost function that is being traced as a whole, if there is one."""


class ElementsNeededError(TraceError):
    """A function asks for the elements of an array one by one, and so has to be traced by them.

    Its message has the user's line.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message if "\n  at " in message else located(message))


class NoSuchNameError(ElementsNeededError, AttributeError):
    """A whole array lacks an attribute that arrays of elements may have."""


class Whole:
    """An array of any size, of which a trace knows the shape and how an element is computed.

    `symgrad.arrays` has what it can do; functions of symgrad ask it before they look at elements.
    """

    functions: ClassVar[dict[Any, Callable[..., Any]]] = {}
    """Functions of NumPy and symgrad on whole arrays, by themselves."""

    def mapped(self, function: Callable[..., Any], arguments: Sequence[Any]) -> Any:
        """A function of elements, of these arguments broadcast against each other."""
        raise NotImplementedError

    def lift(self, value: Any) -> Any:
        """Numbers as a whole array of the same trace."""
        raise NotImplementedError


def whole_among(arguments: Sequence[Any]) -> Whole | None:
    """The first whole array among some arguments."""
    for a in arguments:
        if isinstance(a, Whole):
            return a
    return None


# --- graphs ---------------------------------------------------------------------------------------

Noted = TypeVar("Noted")

Node = tuple[Any, ...]
"""``(op, *argument ids)``; a leaf has a payload instead: ``(CONST, bits)``, ``(INPUT, k)``."""

_DOUBLE: Final = struct.Struct("<d")
_WORD: Final = struct.Struct("<Q")


def float_bits(value: float) -> int:
    """The 64 bits of a double, so that -0.0 and 0.0 differ and NaN equals itself."""
    return int(_WORD.unpack(_DOUBLE.pack(value))[0])


@lru_cache(maxsize=4096)
def bits_float(bits: int) -> float:
    """The double with these 64 bits."""
    return float(_DOUBLE.unpack(_WORD.pack(bits))[0])


def _by_definition(op: Op, *arguments: Any) -> Any:
    """The operation of NumPy's numbers, as its definition in kernels has it."""
    return definitions.value(op, *arguments)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Op:
    """One row of the op table: everything that symgrad knows about an operation.

    ``signature`` reads ``"ff->f"`` with f float, b bool, i int32, u uint32, F and W arrays of
    floats and of words, p a pair of floats (in definitions), t the results of a loop or a choice.
    ``reference`` is the meaning, a NumPy function; of a row without one it is the row's definition
    in kernels, in float64. Of ``partials(y, *args)`` and ``vjp(g, y,
    *args)`` a row has at most one: the partial derivatives, or, where a product would turn 0*inf
    into NaN, the cotangents themselves; None marks a structural zero. A row with ``compose`` is
    never a node: calling it builds its definition from other rows. ``special`` gives what the
    operation is of particular arguments, as of constants, and None for all others.
    """

    name: str
    signature: str
    reference: Callable[..., Any] = _by_definition
    meaning: str = ""
    partials: Callable[..., Sequence[Any]] | None = None
    vjp: Callable[..., Sequence[Any]] | None = None
    compose: Callable[..., Any] | None = None
    special: Callable[..., Any] | None = None
    laws: Callable[..., Sequence[Any]] | None = None
    wgsl: str = ""
    """An expression of WGSL, which may name what depends on the dtype: ``{f}``, ``{one}``, .."""
    wgsl_f64: str = ""
    """The expression in float64, where that is another."""
    llvm: str = ""
    """Instructions of LLVM: ``name = instruction; ...; instruction``, the last one's the value."""
    llvm_v8f64: str = ""
    """Instructions for vectors of eight float64 on CPUs with AVX-512, which give the same bits."""
    exact: Callable[..., Any] | None = None
    """The meaning on mpmath's numbers; elementary functions have it in SymPy and in the tests."""
    sympy: Callable[..., Any] | None = None
    """The meaning in SymPy; without it there, it gets a function of the row's name and partials."""
    scipy: bool = False
    """Whether ``scipy.special`` has a ufunc of this name and these arguments."""
    cost: int = 1
    interval: Callable[..., tuple[float, float]] | None = None
    """The `symgrad.expr.ops.interval` of its values by those of its arguments."""
    definition: Callable[..., Any] | None = None
    """Its definition in kernels by other rows, unless `symgrad.mathlib` defines it."""
    public: bool = False
    """Whether it is a function of `symgrad` for users."""
    parameters: int = 0
    """How many of the first arguments there is no derivative by: asking for one is an error."""
    commutative: bool = False
    transcendental: bool = False
    transparent: bool = False
    """Whether the value is the first argument: the row is there for its derivative only."""
    whole: bool = False
    """Whether integers, of which no kernel has any, give an integer: an index, say."""
    constant: bool = False
    """Whether it is a leaf whose value the node itself says."""
    domain: str = ""
    edges: str = ""
    points: tuple[tuple[float, ...], ...] = ()
    example: float | None = None
    """The value at the first of the points, to 12 digits, of public rows without a reference."""
    latex: str = ""
    arity: int = field(init=False)
    result: str = field(init=False)

    def __post_init__(self) -> None:
        arguments, result = self.signature.split("->")
        object.__setattr__(self, "arity", len(arguments))
        object.__setattr__(self, "result", result)
        if self.reference is _by_definition:
            object.__setattr__(self, "reference", partial(_by_definition, self))

    def __call__(self, *args: Any) -> Any:
        """The expression ``op(*args)``, or, of numbers alone, what the reference makes of them."""
        for a in args:
            if isinstance(a, Handle):
                return a.build(self, args)
        kinds = self.signature
        values = [_DOUBLES[kinds[k]](real_number(a)) for k, a in enumerate(args)]
        with np.errstate(all="ignore"):
            return np.asarray(self.reference(*values)).item()

    def __repr__(self) -> str:
        return f"<op {self.name}>"


class Handle:
    """A node of a graph, and a share in the graph's life."""

    __slots__ = ("graph", "id")
    is_integer: ClassVar[bool] = False
    """Whether it is an integer of the user's."""
    counts: ClassVar[bool] = False
    """Whether it is an integer beside one: a condition, or a counter."""
    is_row: ClassVar[bool] = False
    """Whether it stands for all elements of a row, one of which a node is."""

    def __init__(self, graph: Graph, i: int) -> None:
        self.graph = graph
        self.id = i

    def build(self, op: Op, args: Sequence[Any]) -> Any:
        """The expression ``op(*args)`` in this handle's graph."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Masked:
    """A cotangent that is ``value`` where the condition holds, and 0 elsewhere whatever it is.

    Differentiation keeps the condition beside the value and selects last of all: selecting first
    and multiplying by a partial later would make NaN of 0 * inf in the branch not taken.
    """

    condition: Any
    value: Any


_DOUBLES: Final[dict[str, Callable[[Any], Any]]] = {
    "f": np.float64,
    "b": np.bool_,
    "i": np.int32,
    "u": np.uint32,
}
"""NumPy's scalars for numbers of each type."""


def real_number(value: Any) -> float:
    """The value as a double; a clear error for what is not one real number."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, Whole):
        raise ElementsNeededError(located("a whole array as a number of an expression"))
    if not isinstance(value, (numbers.Real, np.bool_, np.number)) or isinstance(
        value, np.complexfloating
    ):
        kind, remedy = type(value).__name__, ""
        if isinstance(value, numbers.Complex):
            remedy = ": expressions are real; write the real and the imaginary part as two of them"
        raise InputTypeError(located(f"cannot use {value!r} ({kind}) as a real number{remedy}"))
    try:
        return float(value)
    except OverflowError as error:
        raise InputError(located(f"{str(value)[:20]}... is beyond the range of a float")) from error


def _leaf(signature: str) -> Callable[..., Any]:
    def reference(*_: Any) -> Any:
        raise AssertionError(f"a leaf {signature} has no arguments to compute from")

    return reference


def _constant(name: str, kind: str) -> Op:
    return Op(name=name, signature=f"->{kind}", reference=_leaf(name), constant=True)


def _leaves_of(name: str) -> dict[str, Op]:
    """A leaf of each type that values of regions have."""
    return {
        kind: Op(name=f"{name}_{kind}", signature=f"->{kind}", reference=_leaf(name))
        for kind in "bufFW"
    }


CONST: Final = _constant("const", "f")
INTEGER: Final = _constant("integer", "i")
WORD: Final = _constant("word", "u")
TRUTH: Final = _constant("truth", "b")
INPUT: Final = Op(name="input", signature="->f", reference=_leaf("input"))

_PAIR: Final = Op(name="input_p", signature="->p", reference=_leaf("input"))

INPUTS: Final = _leaves_of("input") | {"f": INPUT, "p": _PAIR}
"""Inputs by their types, ``(op, number)``; of an array ``(op, number, length)``."""

ANY_INPUT: Final = frozenset(INPUTS.values())

HOLES: Final = _leaves_of("hole")
"""Leaves that stand for inputs of a region while it is traced: see `region.hole`."""

ANY_HOLE: Final = frozenset(HOLES.values())

LEAVES: Final = (CONST, INTEGER, WORD, TRUTH, *INPUTS.values(), *HOLES.values())
ARRAYS: Final = "FW"
"""The types of arrays."""
STRUCTURED: Final = ARRAYS + "t"
"""The types of what no single instruction computes: arrays, and results of loops and choices."""


class Graph:
    """An arena of hash-consed nodes.

    Invariants:
      1. The arguments of node i are ids smaller than i: arena order is topological order.
      2. No two nodes are equal, so equal expressions have equal ids.
      3. A commutative node's arguments are in ascending order of their ids.
      4. ``places[i]`` is the number, in ``sources``, of the line that made node i; 0 is none.
      5. Nodes are only ever appended. One thread at a time builds a graph; any number may read it.
    """

    __slots__ = (
        "__weakref__",
        "_floats",
        "_heads",
        "derived",
        "index",
        "known",
        "names",
        "nodes",
        "notes",
        "place",
        "places",
        "repeats",
        "sources",
        "tracing",
    )

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.places: list[int] = []
        self.names: list[str] = []
        """Input names, by input number."""
        self.sources: list[Any] = [None]
        """`Place`, or (code object, instruction) until ``resolve_places`` has run."""
        self.known: dict[tuple[int, int], int] = {}
        self.notes: dict[type, Any] = {}
        """Notes that floors above keep with the graph, by type: see `note`."""
        self.derived: list[range] = []
        """The nodes that differentiation made, and not the user."""
        self.repeats: list[tuple[int, int, int]] | None = None
        """Nodes that were made once more, if that is recorded: the number of nodes at that time,
        the node, and the place."""
        self.place = 0
        """The place that new nodes get."""
        self.tracing = True
        """Whether new nodes are the user's, so that their lines are looked up."""
        self.index: dict[Node, int] = {}
        """The ids of the nodes."""
        self._floats: dict[float, int] = {}
        self._heads = 0, frozenset[Op]()

    @classmethod
    def of(
        cls, nodes: list[Node], places: list[int], names: Sequence[str], sources: list[Any]
    ) -> Graph:
        """The graph of these nodes, for which the invariants hold; it is the user's no more."""
        graph = cls.__new__(cls)
        graph.__setstate__(
            {"nodes": nodes, "places": places, "names": list(names), "sources": sources}
        )
        return graph

    def copy(self) -> Graph:
        """A graph of the same nodes; those that are added to it are not the user's."""
        copy = Graph.of(list(self.nodes), list(self.places), self.names, list(self.sources))
        copy.derived = list(self.derived)
        copy.notes = {kind: copy_of(note) for kind, note in self.notes.items()}
        return copy

    def note(self, kind: type[Noted]) -> Noted:
        """The note of this type, ``kind()`` if there is none yet; a copy has a copy of it."""
        note = self.notes.get(kind)
        if note is None:
            note = self.notes[kind] = kind()
        return note

    def __len__(self) -> int:
        return len(self.nodes)

    def __repr__(self) -> str:
        return f"<Graph of {len(self.nodes)} nodes, {len(self.names)} inputs>"

    def intern(self, node: Node) -> int:
        """The id of this node, made now unless it exists; commutative arguments are in order."""
        new = len(self.nodes)
        number = self.index.setdefault(node, new)
        if number == new:
            self.nodes.append(node)
            self.places.append(self.place)
        elif self.repeats is not None:
            self.repeats.append((new, number, self.place))
        return number

    def __getattr__(self, name: str) -> Any:
        if name != "index":
            raise AttributeError(name)
        self.index = {node: i for i, node in enumerate(self.nodes)}
        return self.index

    def release(self) -> None:
        """Give back the memory that only building needs; it is made again if more is built."""
        self._floats = {}
        self.known = {}
        self.index = {}
        del self.index

    def add(self, op: Op, *args: int) -> int:
        """The id of ``op(*args)``."""
        if op.commutative and args[0] > args[1]:
            args = (args[1], args[0], *args[2:])
        node = (op, *args)
        new = len(self.nodes)
        number = self.index.setdefault(node, new)  # as `intern` does, without another call
        if number == new:
            self.nodes.append(node)
            self.places.append(self.place)
        elif self.repeats is not None:
            self.repeats.append((new, number, self.place))
        return number

    def find(self, op: Op, *args: int) -> int | None:
        """The id of ``op(*args)``, if there is such a node."""
        if op.commutative and args[0] > args[1]:
            args = (args[1], args[0], *args[2:])
        return self.index.get((op, *args))

    def constant(self, value: float) -> int:
        """The id of a float constant."""
        number = self._floats.get(value) if value else None
        if number is None:
            number = self.intern((CONST, float_bits(value)))
            if value:
                self._floats[value] = number
        return number

    def input(self, name: str, kind: str = "f", length: int | None = None) -> int:
        """The id of a new input; only those of a region are of other types than float."""
        self.names.append(name)
        size = () if length is None else (length,)
        return self.intern((INPUTS[kind], len(self.names) - 1, *size))

    def input_named(self, name: str) -> int:
        """The id of the input of this name."""
        if name not in self.names:
            raise InputError(f"there is no variable named {name!r}")
        return self.intern((INPUT, self.names.index(name)))

    @property
    def heads(self) -> frozenset[Op]:
        """The operations and leaves that occur, needed or not: only new nodes are looked at."""
        seen, heads = self._heads
        if seen < len(self.nodes):
            heads = heads.union([node[0] for node in self.nodes[seen:]])
            self._heads = len(self.nodes), heads
        return heads

    def args(self, i: int) -> Sequence[int]:
        """The argument ids of node i; none for a leaf."""
        node = self.nodes[i]
        return node[1:] if node[0].arity else ()

    def type(self, i: int) -> str:
        """The type of node i: f, b, i, u, F, W or t, as in the signature of an `Op`."""
        return self.nodes[i][0].result

    def value(self, i: int) -> float | None:
        """The value of a float constant, None for any other node."""
        node = self.nodes[i]
        return bits_float(node[1]) if node[0] is CONST else None

    def place_of(self, i: int) -> Place | None:
        """The user's line that made node i, if it is known; call ``resolve_places`` first."""
        return self.sources[self.places[i]]

    @staticmethod
    def leaf_value(node: Node) -> float | int:
        """The value of a constant leaf."""
        return bits_float(node[1]) if node[0] is CONST else node[1]

    def __getstate__(self) -> dict[str, Any]:
        return {
            "nodes": self.nodes,
            "places": self.places,
            "names": self.names,
            "sources": self.sources,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self.place, self.tracing, self.known, self._floats, self.derived = 0, False, {}, {}, []
        self.repeats, self.notes, self._heads = None, {}, (0, frozenset())


class paused_gc(ContextDecorator):
    """No garbage collection within, or in a function that this decorates.

    Graphs have no cycles, and walking them is most of its cost.
    """

    def _recreate_cm(self) -> paused_gc:
        return paused_gc()

    def __enter__(self) -> None:
        self._enabled = gc.isenabled()
        gc.disable()

    def __exit__(self, *_: object) -> None:
        if self._enabled:
            gc.enable()


# --- walks ----------------------------------------------------------------------------------------


_STRETCH: Final = 64
"""Nodes that are looked at one by one before the next one that is needed is searched for."""


def reachable(graph: Graph, roots: Iterable[int], start: int = 0) -> list[int]:
    """The ids that the roots depend on, the roots among them, in ascending order from ``start``.

    Users stand behind their arguments: from the last root down, each node is seen once.
    """
    nodes, ends = graph.nodes, [*roots]
    needed = bytearray(max(ends, default=-1) + 1)
    for i in ends:
        needed[i] = 1
    order: list[int] = []
    end = len(needed)
    while (last := needed.rfind(1, start, end)) >= 0:
        end = max(start, last + 1 - _STRETCH)
        for i in range(last, end - 1, -1):
            if not needed[i]:
                continue
            order.append(i)
            node = nodes[i]
            arity = node[0].arity
            if arity == 2:  # as the last, but most are one of these: in half the time
                needed[node[1]] = needed[node[2]] = 1
            elif arity == 1:
                needed[node[1]] = 1
            elif arity == 3:
                needed[node[1]] = needed[node[2]] = needed[node[3]] = 1
            elif arity:
                for a in node[1:]:
                    needed[a] = 1
    order.reverse()
    return order


def inputs_of(graph: Graph) -> list[int]:
    """The input nodes, by input number."""
    numbered, count = dict[int, int](), len(graph.names)
    for i, node in enumerate(graph.nodes):
        if len(numbered) == count:  # most stand at the beginning
            break
        if node[0] in ANY_INPUT:
            numbered[node[1]] = i
    return [numbered[k] for k in sorted(numbered)]


def users(graph: Graph, order: Sequence[int]) -> dict[int, int]:
    """How often each of these nodes is an argument of another of them."""
    counts = dict.fromkeys(order, 0)
    nodes = graph.nodes
    for i in order:
        node = nodes[i]
        if node[0].arity:
            for a in node[1:]:
                counts[a] += 1
    return counts


def flags(graph: Graph, ranges: Iterable[range]) -> bytearray:
    """1 for the nodes in these ranges, 0 for all others."""
    marks = bytearray(len(graph))
    for r in ranges:
        marks[r.start : r.stop] = b"\1" * len(r)
    return marks


def leaves(graph: Graph, order: Iterable[int]) -> Iterator[int]:
    """The nodes among these that have no arguments."""
    return (i for i in order if not graph.nodes[i][0].arity)
