"""The text of a module of LLVM, the memory it works in, and how long its functions may be."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Final

LONG_OPERATIONS = 2_000
"""Operations from which a kernel is cut into functions, and compiled quickly at first."""

LONG_BATCH = 800
"""As `LONG_OPERATIONS`, of vectors, whose compilation takes longer."""

FUNCTION = 300
"""Operations in one of these functions: LLVM takes 7 us for each then, and 70 us in long ones."""

FUNCTIONS_JOINED = 5
"""How many of these are one where they are compiled thoroughly, in 200 us an operation (of 2,100
in one function 1,000 us): each cut sends values through memory, which takes a network of 1,400
operations 20 % longer."""

HOT = 2e-4
"""Seconds of running for each operation after which it pays to compile a kernel thoroughly."""

MOST_THOROUGH = 50_000
"""Operations up to which that is done: it takes ten seconds of a core."""


CACHE_LINE_BYTES: Final = 64

ENTRY: Final = "packed"
"""The function of a kernel for many invocations that takes its arguments in memory."""


@dataclass(frozen=True)
class Source:
    """A module of LLVM; ``effort`` is the compiler's level of optimisation.

    ``kind`` is the type of its function in C. ``workspace`` is how many bytes of scratch memory one
    call of it needs. After ``hot`` seconds of running it pays to write and compile it thoroughly.
    """

    text: str
    kind: str
    workspace: int
    effort: int
    hot: float = math.inf

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of the text, which may be megabytes."""
        return hashlib.sha256(self.text.encode()).hexdigest()


TYPES: Final = {"ptr": "void *", "i64": "int64_t", "i1": "bool", "i32": "uint32_t"}
"""The types of parameters in C."""


def module(
    lines: Iterable[str],
    parameters: Sequence[str],
    workspace: int,
    effort: int,
    hot: float = math.inf,
) -> Source:
    """The whole text of a module, and ``workspace`` bytes to work in.

    Its functions are in ``lines``; the one that is called takes such ``parameters``.

    Stacks are realigned, as vectors that are kept there would lie across two lines of the cache.
    """
    text = "\n".join(
        [
            *lines,
            'attributes #0 = { nounwind "stackrealign" "min-legal-vector-width"="512" '
            '"prefer-vector-width"="512" }',
            "!0 = !{i32 1}",
        ]
    )
    kind = f"void (*)({', '.join(TYPES[p.split()[0]] for p in parameters)})"
    return Source(text + "\n", kind, workspace, effort, hot)


@dataclass(frozen=True)
class Workspace:
    """The memory that compiled code works in: arrays that begin at whole cache lines.

    They stand one behind the other; ``bytes`` says by their names how large they are.
    """

    bytes: Mapping[str, int]

    @cached_property
    def _ends(self) -> list[int]:
        lines = (-(-n // CACHE_LINE_BYTES) for n in self.bytes.values())
        return [CACHE_LINE_BYTES * n for n in accumulate(lines, initial=0)]

    @property
    def size(self) -> int:
        """Bytes of all of them."""
        return self._ends[-1]

    @property
    def names(self) -> list[str]:
        """The names of the arrays' addresses."""
        return [f"%{name}" for name in self.bytes]

    def addresses(self) -> list[str]:
        """The instructions after which ``%NAME`` is the address of each array."""
        return [
            f"  %{name} = getelementptr i8, ptr %workspace, i64 {start}"
            for name, start in zip(self.bytes, self._ends, strict=False)
        ]
