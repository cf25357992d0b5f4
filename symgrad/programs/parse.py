"""The text of programs, read: line by line, and values by Python's grammar of expressions."""

from __future__ import annotations

import ast
import copyreg
import operator
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final

from symgrad.errors import BufferUnknownError, ProgramError, SymgradError, UnsupportedError, counted
from symgrad.expr import ops
from symgrad.expr.tracers.expression import WRAP, Scalar, operand
from symgrad.expr.tracers.functions import int32, uint32
from symgrad.expr.tracers.integers import Word
from symgrad.kernel.language.statements import Let, Load, Statement
from symgrad.programs.builder import Builder, Variable
from symgrad.programs.code import Array, Code, Kind, text

_HEAD: Final = re.compile(r"program (?P<name>\w+)$")
_ARRAY: Final = re.compile(
    r"(?P<space>input|output|temporary|workgroup|private) (?P<name>\w+): (?P<kind>\w+)"
    r"\[(?P<shape>[\d, ]*)\]$"
)
_DISPATCH: Final = re.compile(r"dispatch (?P<invocations>\d+) in groups of (?P<group>\d+):$")
_LET: Final = re.compile(r"let (?P<name>\w+) = (?P<value>.+)$")
_VAR: Final = re.compile(r"var (?P<name>\w+)(?:: (?P<kind>\w+))? = (?P<value>.+)$")
_IF: Final = re.compile(r"if (?P<condition>.+):$")
_FOR: Final = re.compile(
    r"for (?P<name>\w+) in (?P<lo>.+?) \.\. (?P<hi>.+?)(?P<down> down)?(?: most (?P<most>\d+))?:$"
)
_ELSE: Final = re.compile(r"else:$")
_BARRIER: Final = re.compile(r"barrier$")
_PASS: Final = re.compile(r"pass$")
_STORE: Final = re.compile(r"(?P<array>\w+)\[(?P<index>.*)\] (?P<add>\+?)= (?P<value>.+)$")
_ASSIGN: Final = re.compile(r"(?P<name>\w+) = (?P<value>.+)$")

_BINARY: Final[dict[type[ast.AST], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
    ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.Lt: operator.lt,
    ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}  # fmt: skip
_REDUCTIONS: Final = ("group_sum", "group_max", "group_min")
_NUMBERS: Final = {"inf": float("inf"), "nan": float("nan")}


_Block = tuple[AbstractContextManager[Any], str]
"""The context that opens the block of a line, and the name of its value in it."""


def parse(source: str) -> Code:
    """The program that a text says.

    Raises:
        ProgramError: for what is no statement, and for a name that is not known where it is used.
        BufferUnknownError: for an array that there is none of.
        UnsupportedError: for an operation that programs do not have.
    """
    return _Parser(source).code()


def settled(code: Code) -> Code:
    """The program as its text says it.

    Of a sum and a product, the operand that is older stands first; so reading a text may exchange
    some, once or twice, until the order is that of the text.
    """
    source, before, parsed = text(code), "", code
    while source != before:
        parsed, before = parse(source), source
        source = text(parsed)
    places = {key: code.places[s] for key, s in reversed([*_keys(code)]) if s in code.places}
    parsed.places |= {s: places[key] for key, s in _keys(parsed) if key in places}
    return parsed


def _keys(code: Code) -> Iterator[tuple[object, Statement]]:
    """The statements, and what they have in common with those of the same text.

    That is the order of all but loads, which may stand in one line several times.
    """
    order = 0
    for d in code.dispatches:
        for s in d.statements:
            yield (order, s.buffer.name if isinstance(s, Load) else type(s)), s
            order += not isinstance(s, Load | Let)


def _reduced(code: Code) -> tuple[Any, ...]:
    return parse, (text(code),)


copyreg.pickle(Code, _reduced)  # a program pickles as its text, which says all that it is


class _Parser:
    def __init__(self, source: str) -> None:
        lines = (
            (n, line.partition("#")[0].rstrip()) for n, line in enumerate(source.split("\n"), 1)
        )
        self._lines = [(n, line) for n, line in lines if line]
        self._at = 0
        self._names: dict[str, Any] = {}
        """The values of names where the text is at."""
        self._read: dict[str, Any] = {}
        """The present values of the variables that the statement has asked for."""
        self._readers: list[tuple[re.Pattern[str], Callable[..., _Block | None]]] = [
            (_ARRAY, self._array),
            (_DISPATCH, self._dispatch),
            (_LET, self._let),
            (_VAR, self._var),
            (_IF, self._if),
            (_ELSE, lambda: (self.builder.else_(), "")),
            (_FOR, self._for),
            (_STORE, self._store),
            (_ASSIGN, self._assign),
            (_BARRIER, lambda: self.builder.barrier()),
            (_PASS, lambda: None),
        ]

    def code(self) -> Code:
        """The program."""
        head = _HEAD.match(self._lines[0][1].strip()) if self._lines else None
        if head is None:
            raise ProgramError("the text of a program begins with `program` and its name")
        self.builder = Builder(head["name"])
        self._at = 1
        if self._at < len(self._lines):
            self._block(self._indent())
        if self._at < len(self._lines):
            self._refuse("it is further to the left than the program begins")
        return self.builder.code

    # lines ---------------------------------------------------------------------------------------

    def _indent(self) -> int:
        """How far to the right the next line begins; -1 at the end."""
        if self._at >= len(self._lines):
            return -1
        line = self._lines[self._at][1]
        return len(line) - len(line.lstrip())

    def _refuse(self, what: str, kind: type[SymgradError] = ProgramError) -> Any:
        number, line = self._lines[min(self._at, len(self._lines) - 1)]
        raise kind(f"line {number}, {line.strip()!r}: {what}")

    def _block(self, indent: int) -> None:
        """The lines of a block, which begin alike."""
        names = dict(self._names)
        while self._indent() == indent:
            self._read, self.builder.line = {}, self._lines[self._at][0]
            try:
                self._line(self._lines[self._at][1].strip(), indent)
            except SymgradError as error:
                if str(error).startswith("line "):
                    raise
                self._refuse(str(error), type(error))
            self._at += 1
        if self._indent() > indent:
            self._refuse("it is further to the right than the lines around it")
        self._names = names

    def _line(self, line: str, indent: int) -> None:
        """A line, and the block that it begins."""
        matches = ((pattern.match(line), read) for pattern, read in self._readers)
        match, read = next(((m, read) for m, read in matches if m), (None, None))
        if match is None or read is None:
            self._refuse("this is not a statement of programs", UnsupportedError)
            return
        block = read(**match.groupdict())
        if block:
            manager, name = block
            with manager as index:
                self._inner(indent, {name: index} if name else {})

    def _inner(self, indent: int, names: dict[str, Any]) -> None:
        """The block of the line that is being read; its last line is the one that is read then."""
        self._at += 1
        if self._indent() <= indent:
            self._at -= 1
            self._refuse("it has no block: write `pass` for an empty one")
        before, self._names = self._names, self._names | names
        self._block(self._indent())
        self._names = before
        self._at -= 1

    # statements ----------------------------------------------------------------------------------

    def _array(self, space: str, name: str, kind: str, shape: str) -> None:
        sizes = tuple(int(n) for n in shape.split(",") if n.strip())
        self._names[name] = getattr(self.builder, space)(name, sizes, kind)

    def _dispatch(self, invocations: str, group: str) -> _Block:
        return self.builder.dispatch(int(invocations), int(group)), "cell"

    def _let(self, name: str, value: str) -> None:
        self._names[name] = self.builder.let(name, self._value(value))

    def _var(self, name: str, kind: Kind | None, value: str) -> None:
        self._names[name] = self.builder.var(name, self._value(value), kind)

    def _if(self, condition: str) -> _Block:
        return self.builder.if_(self._value(condition)), ""

    def _for(self, name: str, lo: str, hi: str, down: str | None, most: str | None) -> _Block:
        limit = None if most is None else int(most)
        bounds = self._value(lo), self._value(hi)
        return self.builder.for_(*bounds, down=down is not None, most=limit, name=name), name

    def _store(self, array: str, index: str, add: str, value: str) -> None:
        write = self.builder.add if add else self.builder.store
        write(self._array_named(array), self._value(index), self._value(value))

    def _assign(self, name: str, value: str) -> None:
        self.builder.assign(self._known(name), self._value(value))

    # values --------------------------------------------------------------------------------------

    def _known(self, name: str) -> Any:
        if name in self._names:
            return self._names[name]
        raise ProgramError(f"{name} is not known here: it is used before it is defined")

    def _array_named(self, name: str) -> Array:
        array = self._names.get(name)
        if not isinstance(array, Array):
            raise BufferUnknownError(f"there is no array {name} here: declare it first")
        return array

    def _value(self, source: str) -> Any:
        try:
            tree = ast.parse(source, mode="eval").body
        except SyntaxError as error:
            raise ProgramError(f"{source!r} is no value: {error.msg}") from error
        return self._of(tree)

    def _of(self, tree: ast.AST) -> Any:
        match tree:
            case ast.Constant(value=bool() | int() | float() as number):
                return number
            case ast.Name(id=name):
                return self._named(name)
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return -self._of(inner)
            case ast.UnaryOp(op=ast.Invert(), operand=inner):
                return ~self._of(inner)
            case ast.BinOp(left=a, op=op, right=b) if type(op) in _BINARY:
                return _BINARY[type(op)](self._of(a), self._of(b))
            case ast.Compare(left=a, ops=[op], comparators=[b]) if type(op) in _BINARY:
                return _BINARY[type(op)](self._of(a), self._of(b))
            case ast.Subscript(value=ast.Name(id=name), slice=index):
                return self.builder.load(self._array_named(name), self._of(index))
            case ast.Tuple(elts=parts):
                return tuple(map(self._of, parts))
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                return self._called(name, [self._of(a) for a in arguments])
            case _:
                shown = ast.unparse(tree)
                raise UnsupportedError(
                    f"{shown}: programs do not have this operation; use &, | and ~"
                )

    def _named(self, name: str) -> Any:
        if name in _NUMBERS:
            return _NUMBERS[name]
        if name in ("local", "group"):
            return getattr(self.builder, name)
        value = self._known(name)
        if not isinstance(value, Variable):
            return value
        if name not in self._read:
            self._read[name] = value.value
        return self._read[name]

    def _called(self, name: str, arguments: list[Any]) -> Any:
        if name in _REDUCTIONS:
            return getattr(self.builder, name)(*arguments)
        if name == "float32":
            return 1.0 * arguments[0]
        integer = any(isinstance(a, Word) for a in arguments)
        if name in ("int32", "uint32") and (integer or not isinstance(arguments[0], Scalar)):
            return (int32 if name == "int32" else uint32)(*arguments)
        op = ops.TABLE.get(name)
        if op is None or (op.arity == 0 and op.compose is None):
            raise UnsupportedError(f"programs have no operation {name}")
        if op.arity != len(arguments):
            raise ProgramError(
                f"{name} takes {counted(op.arity, 'argument')}, not {len(arguments)}"
            )
        has_rule = integer and "u" not in op.signature  # that of `symgrad.expr.tracers`
        if op.compose is not None or has_rule:
            return op(*arguments)
        graph = self.builder.code.graph
        ids = [operand(graph, a, op.signature[n]) for n, a in enumerate(arguments)]
        return WRAP[op.result](graph, graph.add(op, *ids))
