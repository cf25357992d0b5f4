"""The names that code looks up, and whether it reaches or changes what it does not name."""

from __future__ import annotations

import dis
import functools
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Final

OTHER_WAYS: Final = (
    "IMPORT", "STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR", "STORE_NAME", "DELETE", "MATCH_CLASS"
)  # fmt: skip
"""How the names of instructions begin by which code reaches, or changes, what is not its own.

Elements may be stored: of arrays and lists that are not its own it is seen that they have changed;
and attributes of what ``__init__`` makes.
"""

BY_NAME: Final = frozenset(
    {"__annotations__", "__builtins__", "__closure__", "__code__", "__defaults__", "__dict__",
     "__doc__", "__getattribute__", "__globals__", "__kwdefaults__", "__module__", "__name__",
     "__qualname__", "__setattr__", "__subclasses__"}
)  # fmt: skip
"""The attributes by which code reaches what it does not name."""

CONSTRUCTORS: Final = frozenset({"__init__", "__new__", "__post_init__"})
"""The methods that a class calls, with an object that nobody else has seen yet."""

COMPARISONS: Final = frozenset({"__eq__", "__ge__", "__gt__", "__le__", "__lt__", "__ne__"})
"""The methods of data classes that ask for the class of an object, and make none of it."""

STRINGS: Final = "BUILD_STRING", "FORMAT_", "CONVERT_VALUE"
"""How the names of instructions begin that make strings of objects."""

LOADS: Final = "CACHE", "CALL", "LOAD_", "PRECALL", "PUSH_NULL"
"""How the names of those begin that may stand between a string and the exception that has it."""

FIELDS_OF_STRINGS: Final = re.compile(r"\{[^}]*[.\[]")
"""Parts of strings by which `str.format` reads attributes or elements."""


@dataclass(frozen=True)
class References:
    """The names that code, with the code within it, looks up: global ones, and attributes."""

    names: tuple[str, ...]
    attributes: tuple[str, ...]
    elsewhere: bool
    """Whether it reaches what is not its own in other ways."""
    prints: bool
    """Whether it makes strings of objects, other than those of exceptions that are raised."""


@functools.lru_cache(256)
def references_of(code: CodeType) -> References:
    """The names that code looks up, with the code of the functions within it."""
    instructions = [i for part in _within(code) for i in dis.get_instructions(part)]
    names = {i.argval for i in instructions if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    reads = "LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER"
    attributes = {i.argval for i in instructions if i.opname.startswith(reads)}
    attributes -= {"__class__"} if code.co_name in COMPARISONS else set()
    lasting = (i for part in _within(code) for i in _lasting(part))
    own = (i for i in lasting if i.opname != "STORE_DEREF" or i.argval in code.co_freevars)
    elsewhere = any(i.opname.startswith(OTHER_WAYS) for i in own)
    constants = [c for part in _within(code) for c in part.co_consts if isinstance(c, str)]
    by_percent = any(i.opname == "BINARY_OP" and i.argrepr in ("%", "%=") for i in instructions)
    prints = "format" in attributes or (by_percent and any("%" in text for text in constants))
    prints |= any(map(_prints, _within(code)))
    elsewhere |= "format_map" in attributes
    elsewhere |= "format" in attributes and any(map(FIELDS_OF_STRINGS.search, constants))
    elsewhere |= bool(attributes & BY_NAME) and code.co_name not in CONSTRUCTORS
    return References(tuple(sorted(names)), tuple(sorted(attributes)), elsewhere, prints)


def _prints(code: CodeType) -> bool:
    """Whether code makes strings of objects, other than those of exceptions that it raises."""
    instructions = [i for i in dis.get_instructions(code) if i.opname != "EXTENDED_ARG"]
    for n, i in enumerate(instructions):
        if i.opname.startswith(STRINGS):
            after = itertools.dropwhile(
                lambda j: j.opname.startswith((*STRINGS, *LOADS)), instructions[n:]
            )
            if getattr(next(after, None), "opname", None) != "RAISE_VARARGS":
                return True
    return False


def _lasting(code: CodeType) -> Iterator[dis.Instruction]:
    """The instructions of code, less those by which ``__init__`` fills the object that is new."""
    first = code.co_varnames[0] if code.co_argcount and code.co_name in CONSTRUCTORS else None
    before = None
    for i in dis.get_instructions(code):
        of_first = before is not None and before.opname.startswith("LOAD_FAST") and (
            before.argval == first or (type(before.argval) is tuple and before.argval[-1] == first)
        )  # fmt: skip
        if not (of_first and i.opname == "STORE_ATTR"):
            yield i
        before = i


def _within(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _within(constant)
