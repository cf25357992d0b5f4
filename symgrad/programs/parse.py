"""The text of programs, read: line by line, and values by Python's grammar of expressions."""

from __future__ import annotations

import ast
import copyreg
import operator
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final, cast

from symgrad.errors import BufferUnknownError, ProgramError, SymgradError, UnsupportedError, counted
from symgrad.expr import ops
from symgrad.expr.tracers.casts import int32, uint32
from symgrad.expr.tracers.expression import WRAP, Scalar, operand
from symgrad.expr.tracers.integers import Word
from symgrad.programs.builder import Builder, Variable
from symgrad.programs.code import Array, Code, Kind, text

_HEAD: Final = re.compile(r"program (?P<name>\w+)$")
_ARRAY: Final = re.compile(
    r"(?P<space>input|output|temporary|workgroup|private) (?P<name>\w+): (?P<kind>\w+)"
    r"\[(?P<shape>[\d, ]*)\]$"
)
_DISPATCH: Final = re.compile(r"dispatch (?P<invocations>\d+) in groups of (?P<group>\d+):$")
_LET: Final = re.compile(r"let (?P<name>\w+) = (?P<value>.+)$")
_VAR: Final = re.compile(r"var (?P<name>\w+)(: (?P<kind>\w+))? = (?P<value>.+)$")
_IF: Final = re.compile(r"if (?P<condition>.+):$")
_FOR: Final = re.compile(
    r"for (?P<name>\w+) in (?P<lo>.+?) \.\. (?P<hi>.+?)(?P<down> down)?( most (?P<most>\d+))?:$"
)
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


def parse(source: str) -> Code:
    """The program that a text says.

    Raises:
        ProgramError: for what is no statement, and for a name that is not known where it is used.
        BufferUnknownError: for an array that there is none of.
        UnsupportedError: for an operation that programs do not have.
    """
    return _Parser(source).code()


def settled(code: Code) -> Code:
    """The same program, as its text says it.

    Of a sum and a product, the operand that is older stands first; so reading a text may exchange
    some, once or twice, until the order is that of the text.
    """
    source, before, parsed = text(code), "", code
    while source != before:
        parsed, before = parse(source), source
        source = text(parsed)
    return parsed


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
        """What names stand for where the text is at."""
        self._read: dict[str, Any] = {}
        """What variables are, of those that the statement has asked for."""

    def code(self) -> Code:
        """The program."""
        head = self._matched(_HEAD, self._lines[0][1].strip()) if self._lines else None
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

    def _matched(self, pattern: re.Pattern[str], line: str) -> dict[str, Any] | None:
        match = pattern.match(line)
        return None if match is None else match.groupdict()

    def _refuse(self, what: str, kind: type[SymgradError] = ProgramError) -> Any:
        number, line = self._lines[min(self._at, len(self._lines) - 1)]
        raise kind(f"line {number}, {line.strip()!r}: {what}")

    def _block(self, indent: int) -> None:
        """The lines of a block, which begin alike."""
        names = dict(self._names)
        while self._indent() == indent:
            self._read = {}
            try:
                self._line(self._lines[self._at][1].strip(), indent)
            except SymgradError as error:
                if str(error).startswith("line "):
                    raise
                self._refuse(str(error), type(error))
        if self._indent() > indent:
            self._refuse("it is further to the right than the lines around it")
        self._names = names

    def _inner(self, manager: AbstractContextManager[Any], indent: int, name: str = "") -> None:
        """The block of the line that is being read."""
        with manager as index:
            self._at += 1
            if self._indent() <= indent:
                self._at -= 1
                self._refuse("it has no block: write `pass` for an empty one")
            before = dict(self._names)
            if name:
                self._names[name] = index
            self._block(self._indent())
            self._names = before

    def _line(self, line: str, indent: int) -> None:
        for pattern, read in self._readers():
            fields = self._matched(pattern, line)
            if fields is not None:
                read(fields, indent)
                return
        if line not in ("barrier", "pass"):
            self._refuse("this is not a statement of programs", UnsupportedError)
        if line == "barrier":
            self.builder.barrier()
        self._at += 1

    def _readers(self) -> list[tuple[re.Pattern[str], Callable[[dict[str, Any], int], None]]]:
        return [
            (_ARRAY, self._array),
            (_DISPATCH, self._dispatch),
            (_LET, self._let),
            (_VAR, self._var),
            (_IF, self._if),
            (re.compile(r"else:$"), self._else),
            (_FOR, self._for),
            (_STORE, self._store),
            (_ASSIGN, self._assign),
        ]

    # statements ----------------------------------------------------------------------------------

    def _array(self, fields: dict[str, Any], _: int) -> None:
        declare = getattr(self.builder, fields["space"])
        shape = tuple(int(n) for n in fields["shape"].split(",") if n.strip())
        self._names[fields["name"]] = declare(fields["name"], shape, fields["kind"])
        self._at += 1

    def _dispatch(self, fields: dict[str, Any], indent: int) -> None:
        manager = self.builder.dispatch(int(fields["invocations"]), int(fields["group"]))
        self._inner(manager, indent, "cell")

    def _let(self, fields: dict[str, Any], _: int) -> None:
        self._names[fields["name"]] = self.builder.let(fields["name"], self._value(fields["value"]))
        self._at += 1

    def _var(self, fields: dict[str, Any], _: int) -> None:
        kind, value = cast(Kind | None, fields["kind"]), self._value(fields["value"])
        self._names[fields["name"]] = self.builder.var(fields["name"], value, kind)
        self._at += 1

    def _if(self, fields: dict[str, Any], indent: int) -> None:
        self._inner(self.builder.if_(self._value(fields["condition"])), indent)

    def _else(self, _: dict[str, Any], indent: int) -> None:
        self._inner(self.builder.else_(), indent)

    def _for(self, fields: dict[str, Any], indent: int) -> None:
        lo, hi = self._value(fields["lo"]), self._value(fields["hi"])
        most = None if fields["most"] is None else int(fields["most"])
        down, name = fields["down"] is not None, fields["name"]
        self._inner(self.builder.for_(lo, hi, down=down, most=most, name=name), indent, name)

    def _store(self, fields: dict[str, Any], _: int) -> None:
        array = self._array_named(fields["array"])
        index = self._value(fields["index"])
        write = self.builder.add if fields["add"] else self.builder.store
        write(array, index, self._value(fields["value"]))
        self._at += 1

    def _assign(self, fields: dict[str, Any], _: int) -> None:
        variable = self._known(fields["name"])
        self.builder.assign(variable, self._value(fields["value"]))
        self._at += 1

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
