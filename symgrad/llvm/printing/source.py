"""The text of a module of LLVM, the memory it works in, and how long its functions may be."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Final

MOST_THOROUGH = 50_000
"""Operations up to which that is done: it takes ten seconds of a core."""


CACHE_LINE_BYTES: Final = 64

ENTRY: Final = "packed"
"""The function of a kernel for many invocations that takes its arguments in memory."""


@dataclass(frozen=True)
class CodeSizes:
    """The sizes, in operations, at which code is written, or compiled, in another way."""

    long: int = 2_000
    """From here on a kernel is cut into functions, and compiled quickly at first."""
    long_batch: int = 800
    """As ``long``, of vectors, whose compilation takes longer."""
    function: int = 300
    """In one of these functions: LLVM takes 7 us for each then, and 70 us in long ones."""
    joined: int = 5
    """How many of these are one where they are compiled thoroughly, in 200 us an operation (of
    2,100 in one function 1,000 us): each cut sends values through memory, which takes a network of
    1,400 operations 20 % longer."""
    inlined: int = 6_000
    """Of the library's functions, up to which they are written where they are called: a call costs
    more than a short function."""
    written_twice: int = 500
    """Items of a loop, and operations of functions that it calls, up to which its iterations are
    written with a mask, and without."""
    written_masked: int = 120
    """As ``written_twice``, where instructions take masks: LLVM takes as long for both."""
    written_thrice: int = 40
    """As ``written_masked``, of loops that hold others."""
    hot: float = 2e-4
    """Seconds of running for each operation after which it pays to compile a kernel thoroughly."""
    carried_numbers: int = 160
    """Of a state that the compiler is left to find registers or memory for, at most."""
    carried_results: int = 24
    """Of a sum over rows, up to which accumulators stay in registers."""
    factor_bytes: int = 2**18
    """Of factors that blocks of rows leave behind, which have to stay in the cache."""
    near_bytes: int = 2**19
    """Of the states that are worked on at a time where none are kept: they stay in the cache."""


USUAL_SIZES: Final = CodeSizes()
"""The sizes of code for every CPU."""


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
