"""Invocations that work on one problem together: what they share, and who does what of it."""

from __future__ import annotations

from collections.abc import Callable

from symgrad.expr import ops
from symgrad.kernel.language import KernelIR
from symgrad.kernel.statements import Buffer


class ThreadGroup:
    """The invocations that share a problem: a group, or a single one that shares with nobody.

    ``number`` is that of the problem, ``member`` that of the invocation in its thread group.
    """

    def __init__(self, k: KernelIR) -> None:
        self.k, self.size = k, k.target.threads
        self.alone = self.size == 1
        self.member = k.word(0) if self.alone else k.local
        self.number = k.cell if self.alone else k.group

    def array(self, name: str, size: int, kind: str = "f", vector: int = 1) -> Buffer:
        """An array that they share."""
        space = "own" if self.alone else "group"
        return self.k.buffer(name, space, kind, -(-size // vector) * vector, vector=vector)

    def wait(self) -> None:
        """Wait for the others, and see what they have stored."""
        if not self.alone:
            self.k.barrier()

    def first(self, body: Callable[[], None]) -> None:
        """Writes what the first of them does alone."""
        if self.alone:
            body()
        else:
            self.k.when(self.k.add(ops.word_lt, self.member, self.k.word(1)), body)

    def agreed(self, name: str, word: Callable[[], int]) -> int:
        """A word that the first of them finds and all get to know, in an array of this name."""
        if self.alone:
            return word()
        place, k = self.k.buffer(name, "group", "u", 1), self.k
        self.first(lambda: k.store(place, k.word(0), word()))
        return k.agreed(place, k.word(0))

    def share(self, count: int, body: Callable[[int], None]) -> None:
        """Do ``body(i)`` for all i below a word, each of them by one of the thread group."""
        self.every(self.size, self.member, count, body)

    def every(
        self, step: int, first: int, end: int, body: Callable[[int], None], start: int | None = None
    ) -> None:
        """Do ``body(i)`` for i = first, first + step, .. below the end, which is a word.

        With a ``start`` both count from there; ``first`` is below the step.
        """
        k = self.k
        iterations = end if start is None else k.add(ops.word_sub, end, start)
        if step > 1:
            up = k.add(ops.word_sub, k.add(ops.word_add, iterations, k.word(step - 1)), first)
            iterations = k.add(ops.word_div, up, k.word(step))

        def iteration(t: int, _: object) -> tuple[()]:
            i = k.add(ops.word_add, k.add(ops.word_mul, t, k.word(step)), first)
            body(i if start is None else k.add(ops.word_add, i, start))
            return ()

        k.loop(k.word(0), iterations, (), iteration)
