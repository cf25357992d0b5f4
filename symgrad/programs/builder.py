"""The statements of programs as methods, with blocks by ``with``."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from symgrad.errors import (
    BufferUnknownError,
    InputError,
    ProgramError,
    TraceError,
    UnsupportedError,
)
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import ANY_INPUT, INTEGER, reachable
from symgrad.expr.graph.place import user_frame
from symgrad.expr.tracers.expression import Scalar, require_graph
from symgrad.expr.tracers.integers import BITS, Word
from symgrad.kernel.language.statements import (
    Barrier,
    For,
    GroupReduce,
    If,
    Let,
    Load,
    Operation,
    Scope,
    Statement,
    Store,
)
from symgrad.kernel.language.target import GROUP_INVOCATIONS
from symgrad.programs.code import (
    HANDLES,
    KINDS,
    TYPES,
    WORDS,
    Array,
    Code,
    Dispatch,
    Index,
    Kind,
    Role,
    axis_indices,
    constant,
    converted,
    flat_index,
    is_global,
    kind_of,
)


class Variable:
    """A number that assignments change: ``value`` is what it is at this point of the program.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> def total(p):
        ...     x, y = p.input("x", 4), p.output("y", 1)
        ...     with p.dispatch(1):
        ...         sum = p.var("sum", 0.0)
        ...         with p.for_(0, 4) as k:
        ...             p.assign(sum, sum.value + p.load(x, k))
        ...         p.store(y, 0, sum.value)
        >>> sg.program(total, device="cpu").run(np.arange(4.0))
        array([6.], dtype=float32)
    """

    def __init__(self, builder: Builder, array: Array, scope: Scope) -> None:
        self._builder, self.array, self.scope = builder, array, scope

    @property
    def value(self) -> Any:
        """The present value, which stays as it is, whatever is assigned later."""
        return self._builder.get(self)

    def __repr__(self) -> str:
        return repr(self.array)


class Builder:
    """The object that the body of a program is written with: see `symgrad.program`.

    Values are expressions, with Python's operators and symgrad's functions: `where` selects, `fma`
    is fused, `int32` and `uint32` cast. A value is what it was where it was made: a `load` reads
    when it is called.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> def doubled(p):
        ...     x, y = p.input("x", 4), p.output("y", 4)
        ...     with p.dispatch(4) as i:
        ...         p.store(y, i, 2.0 * p.load(x, i))
        >>> sg.program(doubled, device="cpu").run(np.arange(4.0))
        array([0., 2., 4., 6.], dtype=float32)
    """

    def __init__(self, name: str, traced: bool = True) -> None:
        self.code, self._traced = Code(name), traced
        self.line = 0
        """The line of a text that is read, if there is one."""
        self._names: set[str] = set()
        self._known: list[set[int]] = []
        """The leaves that are made in each open block."""
        self._needs: dict[int, frozenset[int]] = {}
        """The leaves that values are made of."""
        self._dispatch: Dispatch | None = None

    # arrays --------------------------------------------------------------------------------------

    def input(self, name: str, shape: int | Sequence[int] = (), kind: Kind = "f32") -> Array:
        """An array that the caller gives, which is only read."""
        return self._array(name, "input", shape, kind)

    def output(self, name: str, shape: int | Sequence[int] = (), kind: Kind = "f32") -> Array:
        """An array that the caller gets, of zeros until something is stored."""
        return self._array(name, "output", shape, kind)

    def temporary(self, name: str, shape: int | Sequence[int] = (), kind: Kind = "f32") -> Array:
        """An array of the program's own, of zeros at first, which later dispatches may read."""
        return self._array(name, "temporary", shape, kind)

    def workgroup(self, name: str, shape: int | Sequence[int], kind: Kind = "f32") -> Array:
        """An array of each workgroup, of which nothing is known until something is stored."""
        return self._array(name, "workgroup", shape, kind)

    def private(self, name: str, shape: int | Sequence[int], kind: Kind = "f32") -> Array:
        """An array of each invocation, of which nothing is known until something is stored."""
        return self._array(name, "private", shape, kind)

    def _array(self, name: str, role: Role, shape: int | Sequence[int], kind: Kind) -> Array:
        is_shared = role not in ("workgroup", "private")
        _require_kind(name, kind, [k for k in KINDS if k != "bool" or not is_shared])
        if not name.isidentifier() or not name.isascii() or name in WORDS:
            raise InputError(located(f"no array can be called {name!r}: use letters and digits"))
        if name in self._names:
            raise InputError(located(f"the name {name} is taken: use another one"))
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        if not all(isinstance(n, int) and n >= 0 for n in sizes):
            raise InputError(
                located(f"{name} has the shape {shape!r}: it must consist of whole numbers")
            )
        array = Array(name, role, KINDS[kind], sizes)
        self._names.add(name)
        if is_shared:
            if self._dispatch:
                raise ProgramError(located(f"declare {array} before any dispatch"))
            self.code.arrays.append(array)
            return array
        if array.size == 0:
            raise InputError(located(f"{name} has no elements: an array of its space has some"))
        self._open(f"declare {array}").buffers.append(array)
        return array

    # dispatches ----------------------------------------------------------------------------------

    @contextmanager
    def dispatch(self, invocations: int, group: int = 64) -> Generator[Word]:
        """A block that so many invocations do, each with a number of its own, which this gives.

        They are in workgroups of ``group``, a power of two from 2 to 256. Dispatches are done one
        after the other. What is beyond the last invocation does nothing; so where invocations wait
        for each other, by `barrier` or `group_sum`, they fill whole workgroups.
        """
        if self._dispatch:
            raise ProgramError(located("a dispatch cannot stand in another dispatch"))
        if group not in [2**n for n in range(1, GROUP_INVOCATIONS.bit_length())]:
            raise InputError(
                located(f"a group of {group}: use a power of two from 2 to {GROUP_INVOCATIONS}")
            )
        if not 1 <= invocations < 2**BITS - GROUP_INVOCATIONS:
            raise InputError(located(f"{invocations} invocations: there must be at least one"))
        self._dispatch = dispatch = Dispatch(self.code, invocations, group)
        self.code.dispatches.append(dispatch)
        with self._block(dispatch.main, dispatch.cell, dispatch.local, dispatch.group):
            yield Word(self.code.graph, dispatch.cell)
        self._dispatch = None

    @property
    def local(self) -> Word:
        """The number of the invocation in its workgroup."""
        return Word(self.code.graph, self._open("local").local)

    @property
    def group(self) -> Word:
        """The number of its workgroup."""
        return Word(self.code.graph, self._open("group").group)

    def _open(self, what: str) -> Dispatch:
        if self._dispatch is None:
            raise ProgramError(
                located(f"{what}: it stands outside any dispatch: use `with p.dispatch(..):`")
            )
        return self._dispatch

    @contextmanager
    def _block(self, scope: Scope, *leaves: int) -> Generator[None]:
        self._known.append(set(leaves))
        with self._open("a block").inside(scope):
            yield
        self._known.pop()

    # values --------------------------------------------------------------------------------------

    def _value(self, x: Any, kind: str | None = None, what: str = "a value") -> Scalar:
        """A number or an expression as a value of a kind, all of whose leaves are known here."""
        graph = self.code.graph
        if isinstance(x, Variable):
            raise TraceError(located(f"{x!r} stands for {what}: use its .value"))
        if isinstance(x, Scalar):
            require_graph(graph, x)
            scalar = x
        else:
            scalar = constant(graph, x, kind)
        if kind is not None and kind_of(scalar) != kind:
            scalar = converted(scalar, kind, what)
        self._require_known(scalar.id, what)
        return scalar

    def needs(self, i: int) -> frozenset[int]:
        """The leaves that a value is made of."""
        graph, leaves = self.code.graph, self._needs
        for n in () if i in leaves else reachable(graph, [i]):
            if n not in leaves:
                parts = (leaves[a] for a in graph.args(n))
                leaves[n] = frozenset({n} if graph.nodes[n][0] in ANY_INPUT else ()).union(*parts)
        return leaves[i]

    def _require_known(self, i: int, what: str) -> None:
        visible = set[int]().union(*self._known)
        for leaf in sorted(self.needs(i) - visible):
            graph = self.code.graph
            name = graph.names[graph.nodes[leaf][1]]
            raise ProgramError(
                located(
                    f"{what} needs {name}, which is not known here: it was made in a block that "
                    "has ended; make it before that block, or keep it in a variable"
                )
            )

    def _do(self, statement: Statement, what: str) -> None:
        """Write a statement, and note on which line of the user's that is."""
        self._open(what).at.items.append(statement)
        if self.line:
            self.code.places[statement] = self.line, self.code.name
        elif self._traced and (frame := user_frame(2)):
            self.code.places[statement] = frame.f_lineno, frame.f_code.co_filename

    def _gives(self, make: Callable[[int], Statement], name: str, kind: str) -> Any:
        """The result of a statement."""
        leaf = self._open(name).value(TYPES[kind], name)
        self._do(make(leaf), name)
        self._known[-1].add(leaf)
        return HANDLES[kind](self.code.graph, leaf)

    def fresh(self, name: str) -> str:
        """A name like this that nothing has."""
        if not name.isidentifier() or not name.isascii():
            raise InputError(located(f"no value can be called {name!r}: use letters and digits"))
        wanted = self.unused(name)
        self._names.add(wanted)
        return wanted

    def unused(self, name: str) -> str:
        """The name, or one like it, that nothing has so far."""
        wanted, k = name, 2
        while wanted in self._names or wanted in WORDS:
            wanted, k = f"{name}_{k}", k + 1
        return wanted

    def let(self, name: str, value: Any) -> Any:
        """The value, which is called so in the text of the program and in its kernels."""
        scalar = self._value(value, what=f"let {name}")
        self._do(Let(self.fresh(name), scalar.id), "let")
        return scalar

    def var(self, name: str, value: Any, kind: Kind | None = None) -> Variable:
        """A variable that begins with a value, of whose kind it is; a number is a float."""
        if kind is not None:
            _require_kind(name, kind, list(KINDS))
        initial = self._value(value, kind and KINDS[kind], f"var {name}")
        array = Array(self.fresh(name), "variable", kind_of(initial), ())
        self._do(Store(array, self._nowhere, initial.id), "var")
        return Variable(self, array, self._open("var").at)

    def get(self, variable: Variable) -> Any:
        """The present value of a variable: see `Variable.value`."""
        array = self._of(variable)
        return self._gives(lambda i: Load(i, array, self._nowhere), array.name, array.kind)

    def assign(self, variable: Variable, value: Any) -> None:
        """Change a variable."""
        array = self._of(variable)
        scalar = self._value(value, array.kind, f"{array.name} = ..")
        self._do(Store(array, self._nowhere, scalar.id), "assign")

    def _of(self, variable: Variable) -> Array:
        if not isinstance(variable, Variable):
            raise TraceError(located(f"{variable!r} is not a variable: make one by p.var"))
        if variable.scope not in self._open(repr(variable)).at.enclosing():
            raise ProgramError(
                located(f"{variable!r} is not known here: declare it before the block")
            )
        return variable.array

    @property
    def _nowhere(self) -> int:
        """The index of a variable."""
        return self.code.graph.intern((INTEGER, 0))

    # memory --------------------------------------------------------------------------------------

    def load(self, array: Array, index: Index = ()) -> Any:
        """The number at an index of an array, as it is now."""
        at, axes = self._index(array, index)
        load = partial(Load, buffer=array, index=at, axes=axes)
        return self._gives(load, array.name, array.kind)

    def store(self, array: Array, index: Index, value: Any) -> None:
        """Write a number to an index of an array."""
        self._store(array, index, value, False)

    def add(self, array: Array, index: Index, value: Any) -> None:
        """Add a number to the one at an index, which no other invocation may do to that one."""
        self._store(array, index, value, True)

    def _store(self, array: Array, index: Index, value: Any, add: bool) -> None:
        (at, axes), shown = self._index(array, index), f"{array.name}[..] {'+' * add}= .."
        if array.space == "read":
            raise BufferUnknownError(
                located(f"{shown}: {array.name} is an input, and can only be read")
            )
        if add and array.kind == "b":
            raise UnsupportedError(located(f"{shown}: conditions have no sum"))
        scalar = self._value(value, array.kind, shown)
        self._do(Store(array, at, scalar.id, add, axes), shown)

    def _index(self, array: Array, index: Index) -> tuple[int, tuple[int, ...]]:
        """The number of an element in C order, and the indices that it is made of."""
        mine = self.code.arrays if is_global(array) else self._open("an index").buffers
        if array not in mine:
            raise BufferUnknownError(
                located(f"{array!r} is not an array of this program, or of this dispatch")
            )
        what, axes = f"an index of {array.name}", axis_indices(array, index)
        flat = self._value(flat_index(array, axes), "u", what).id
        if len(axes) < 2:
            return flat, (flat,)
        return flat, tuple(self._value(axis, "u", what).id for axis in axes)

    # blocks --------------------------------------------------------------------------------------

    @contextmanager
    def if_(self, condition: Any) -> Generator[None]:
        """A block that is done where a condition holds."""
        scope = self._open("if").at
        sides = Scope(scope, branch=True), Scope(scope, branch=True)
        self._do(If(self._value(condition, "b", "if").id, sides), "if")
        with self._block(sides[0]):
            yield

    @contextmanager
    def else_(self) -> Generator[None]:
        """A block that is done where the condition of the `if_` just before does not hold."""
        items = self._open("else").at.items
        last = items[-1] if items else None
        if not isinstance(last, If) or last.sides[1].items:
            raise ProgramError(located("else: there is no if just before it"))
        with self._block(last.sides[1]):
            yield

    @contextmanager
    def for_(
        self, lo: Any, hi: Any, *, down: bool = False, most: int | None = None, name: str = "k"
    ) -> Generator[Word]:
        """A block that is done for each counter lo, lo + 1, .., hi - 1, or ``down`` from there.

        There are ``most`` iterations at most, if that is known: what is beyond them is not done.
        """
        start, end = (self._value(x, "u", "a bound of a loop").id for x in (lo, hi))
        if most is not None and not 0 < most < 2**BITS:
            raise InputError(located(f"most {most} iterations: use a number above 0"))
        dispatch = self._open("for")
        counter, scope = dispatch.value("u", self.fresh(name)), Scope(dispatch.at)
        self._do(For(scope, counter, start, end, down, most=most), "for")
        with self._block(scope, counter):
            yield Word(self.code.graph, counter)

    # workgroups ----------------------------------------------------------------------------------

    def barrier(self) -> None:
        """Wait for all invocations of the workgroup; what they have stored can be loaded then."""
        self._do(Barrier(), "barrier")

    def group_sum(self, value: Any, among: int | None = None) -> Any:
        """The sum of the values of all invocations of the workgroup, which each of them gets.

        ``among`` is of so many neighbours instead, a power of two: a subgroup.
        """
        return self._reduce("sum", value, among)

    def group_max(self, value: Any, among: int | None = None) -> Any:
        """The largest of the values: see `group_sum`."""
        return self._reduce("max", value, among)

    def group_min(self, value: Any, among: int | None = None) -> Any:
        """The smallest of the values: see `group_sum`."""
        return self._reduce("min", value, among)

    def _reduce(self, operation: Operation, value: Any, among: int | None) -> Any:
        what = f"group_{operation}"
        width = self._open(what).width
        many = width if among is None else among
        if many not in [2**n for n in range(width.bit_length())]:
            raise InputError(located(f"{what} among {many}: use a power of two up to {width}"))
        if isinstance(value, Word):
            raise UnsupportedError(located(f"{what} is of real numbers: use 1.0 * i of an integer"))
        scalar = self._value(value, "f", what)
        return self._gives(lambda i: GroupReduce(i, operation, scalar.id, many), what, "f")


def _require_kind(name: str, kind: str, kinds: Sequence[str]) -> None:
    if kind not in kinds:
        raise UnsupportedError(located(f"{name} of {kind!r}: it may be of {', '.join(kinds)}"))
