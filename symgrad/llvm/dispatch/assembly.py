"""Lists of instructions as they are written, and the memory that they work in.

Instructions are those of `symgrad.llvm.dispatch.driver`. They name memory by `Place`; where that is
is known once all are written, or when they are run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from symgrad.llvm.dispatch import driver as d

WORD: Final = 8
"""Bytes of a word."""

ITERATION: Final = 1000
"""The cost of an iteration besides that of its kernels, in additions."""


@dataclass(eq=False)
class Root:
    """Memory that is known later: ``cells`` are the words with its address, and what is added."""

    cells: list[tuple[int, int]] = field(default_factory=list, kw_only=True)

    @property
    def place(self) -> Place:
        """Its beginning."""
        return Place(self)


@dataclass(eq=False)
class Scratch(Root):
    """Memory of the program's own, in use from instruction ``first`` to ``last``."""

    nbytes: int
    first: int = -1
    last: int = -1


@dataclass(eq=False)
class Fixed(Root):
    """Numbers that are where they are."""

    numbers: np.ndarray


@dataclass(eq=False)
class Argument(Root):
    """An input or output, which each call says."""


@dataclass(frozen=True)
class Place:
    """An address: so many bytes behind the beginning of a root."""

    root: Root
    offset: int = 0

    def behind(self, nbytes: int) -> Place:
        """The place so many bytes further."""
        return Place(self.root, self.offset + nbytes)


@dataclass(eq=False)
class Moving(Root):
    """An address that changes with each iteration of a loop: see `driver`."""

    base: Place
    stride: int
    phase: int = 0
    mask: int = -1


class Assembly:
    """Instructions as they are written."""

    def __init__(self) -> None:
        self.words: list[int] = []
        self.scratch: list[Scratch] = []
        self.weight = 0
        """The cost of what has been written, in additions."""
        self._loops: list[tuple[int, Sequence[Moving]]] = []
        self._clock = 0

    def new(self, nbytes: int) -> Place:
        """Memory for the program's own use."""
        self.scratch.append(Scratch(nbytes))
        return self.scratch[-1].place

    def touch(self, place: Place) -> None:
        """Note that memory is in use now."""
        root = place.root
        if isinstance(root, Scratch):
            root.first, root.last = root.first if root.first >= 0 else self._clock, self._clock
        elif isinstance(root, Moving):
            self.touch(root.base)

    def emit(self, operation: int, *values: int | Place | None, weight: int = 0) -> int:
        """Write an instruction; the number of its first word."""
        start = len(self.words)
        self._clock += 1
        self.weight += weight
        self._write([operation, WORD * (2 + len(values)), *values])
        return start

    def _write(self, values: Sequence[int | Place | None]) -> None:
        for value in values:
            if isinstance(value, Place):
                self.touch(value)
                value.root.cells.append((len(self.words), value.offset))
            self.words.append(value if isinstance(value, int) else 0)

    def copy(
        self, to: Place, source: Place, nbytes: int, times: int = 1, steps: tuple[int, int] = (0, 0)
    ) -> None:
        """Copy bytes, so many times, with steps from one place to the next."""
        self.emit(d.COPY, to, source, nbytes, times, *steps, weight=nbytes * times // WORD)

    @contextlib.contextmanager
    def loop(
        self, count: int, moving: Sequence[Moving], counter: Place | None = None,
        order: tuple[int, int] = (0, 1), tests: int = 0, tested: Place | None = None,
    ) -> Generator[None]:  # fmt: skip
        """A context in which the instructions of a loop's iterations are written.

        The counter begins at the first number of ``order`` and goes on by the second. The loop ends
        where none of ``tests`` words of 32 bits says that there is another iteration.
        """
        counter = counter or self.new(WORD)
        start = self.emit(d.BEGIN, count, 0, counter, *order, tests, tested, 0, 0, 0)
        before, clock = self.weight, self._clock
        yield
        each = self.weight - before + ITERATION
        self.emit(d.REPEAT, WORD * start, each)
        for s in self.scratch:
            if 0 <= s.first <= clock <= s.last:  # it is needed from iteration to iteration
                s.last = self._clock
        self.words[start + d.EXIT] = WORD * len(self.words)
        self.weight = before + count * each
        self._loops.append((start, moving))

    def finish(self) -> None:
        """Write the end, and the tables of loops: those within others first."""
        self.emit(d.END, 0)
        for start, moving in self._loops:
            cells = [(m, *cell) for m in moving for cell in m.cells]
            self.words[start + d.TABLE : start + d.EXIT] = WORD * len(self.words), len(cells)
            for m, cell, offset in cells:
                self._write([WORD * cell, m.base.behind(offset), m.stride, m.phase, m.mask])
