"""What calls of programs run: launches of their dispatches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from symgrad.backend import Backend
from symgrad.errors import InputError, ProgramError
from symgrad.expr import ops
from symgrad.kernel import launch as kernel_launch
from symgrad.kernel.language import KernelIR, Target
from symgrad.kernel.launch import Launch
from symgrad.kernel.layout import GROUP_BYTES
from symgrad.pipeline import Options
from symgrad.programs.code import TYPES, Array, Code, is_collective
from symgrad.programs.gradient import cotangent_of
from symgrad.programs.lower import DispatchProgram, read, shared_bytes, target_of, used
from symgrad.programs.trial import facts_of
from symgrad.programs.uniform import require_uniform
from symgrad.tensor.dispatches import each_of
from symgrad.tensor.kernel import Runner, Shape, launched

KINDS: Final = {"f32": "f", "i32": "i", "u32": "u"}
"""The kinds of a launch's arrays."""


@dataclass(frozen=True)
class Zeros:
    """What writes zeros to all of an array."""

    kind: str

    def __call__(self, target: Target) -> KernelIR:
        """The kernel."""
        k = KernelIR(target, "zeros")
        buffer = k.buffer("x", "write", self.kind)
        zero = k.constant(0.0) if self.kind == "f" else k.word(0)
        inside = k.add(ops.word_lt, k.cell, k.count)
        k.when(inside, lambda: k.store(buffer, k.cell, zero))
        return k


@dataclass(frozen=True)
class ProgramWork:
    """The work of a program: see `symgrad.tensor.kernel.Work`."""

    code: Code
    options: Options
    gradient: Code | None = None
    """What gives the outputs, and the gradients of the inputs that have some; None if unknown."""

    @property
    def name(self) -> str:
        """What the program is called."""
        return self.code.name

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the inputs."""
        return tuple(a.name for a in self.code.of("input"))

    @property
    def cotangents(self) -> tuple[str, ...]:
        """The names of the cotangents of the outputs that have some."""
        return tuple(cotangent_of(self.code, a) for a in self.code.of("output") if a.is_active)

    def results(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The shapes of the outputs: see `Work`."""
        for a, shape in zip(self.code.of("input"), shapes, strict=True):
            if tuple(shape) != a.shape:
                raise InputError(f"{a.name} has shape {tuple(shape)}, {self.name} takes {a.shape}")
        return [a.shape for a in self.code.of("output") if a.is_active]

    def launch(self, kind: str, shapes: Sequence[Shape], device_target: Target) -> Launch:
        """The dispatches, one after the other: see `Work`."""
        code = self.code
        if kind == "vjp":
            assert self.gradient, "the gradient is made before it is asked for"
            code = self.gradient
        return launch_of(code, self.options, device_target)

    def runner(
        self, kind: str, shapes: Sequence[Shape], backend: Backend, options: Options
    ) -> Runner:
        """A launch: see `Work`."""
        return launched(self, kind, shapes, backend, options)


def checked(code: Code) -> Code:
    """A program that has no fault that is seen before it has inputs.

    Raises:
        ProgramError: for a barrier or a reduction that some invocations may not reach, a race, an
            index out of bounds, or a place that is read before anything is stored there.
    """
    if not code.dispatches:
        raise ProgramError(f"{code.name} does nothing: it has no dispatch")
    for d in code.dispatches:
        if is_collective(d.body) and d.invocations % d.width:
            raise ProgramError(
                f"{code.name}: {d.invocations} invocations, which wait for each other, are no "
                f"whole workgroups of {d.width}: use {-(-d.invocations // d.width) * d.width}"
            )
        if (nbytes := shared_bytes(d)) > GROUP_BYTES:
            raise ProgramError(
                f"{code.name}: a workgroup's arrays, with what its reductions take, have "
                f"{nbytes:,} bytes, of {GROUP_BYTES:,}: use smaller ones"
            )
        require_uniform(code, d)
        facts_of(d, code)
    return code


def launch_of(code: Code, options: Options, device_target: Target, bounded: bool = False) -> Launch:
    """A program as a launch: what is not stored as a whole begins with zeros.

    For interpreters, who refuse an index out of bounds, it is ``bounded``: see `DispatchProgram`.
    """
    dispatches: list[kernel_launch.Dispatch] = []
    written: set[Array] = set()
    for number, d in enumerate(code.dispatches):
        target = target_of(code, d, device_target)
        uses = used(d)
        mine = [a for a in code.arrays if a in uses]
        whole = {a for a, all_of_it in facts_of(d, code).whole.items() if all_of_it} - read(d)
        for a in [a for a in mine if a.space != "input" and a not in written]:
            dispatches += [] if a in whole else _zeroed(a, device_target)
            written.add(a)
        bound = tuple((a.name, a.name) for a in mine)
        program = DispatchProgram(code, number, options, bounded)
        dispatches.append(kernel_launch.Dispatch(program, target, bound, d.invocations))
    unwritten = [a for a in code.of("output") if a not in written]
    dispatches += [step for a in unwritten for step in _zeroed(a, device_target)]
    inputs = [_launched(a) for a in code.of("input")]
    results = [_launched(a) for a in code.of("output")]
    scratch = [_launched(a) for a in code.of("temporary") if a in written]
    return Launch(code.name, tuple(inputs), tuple(results), tuple(scratch), tuple(dispatches))


def _launched(a: Array) -> kernel_launch.Array:
    return kernel_launch.Array(a.name, a.shape, KINDS[a.kind])


def _zeroed(a: Array, device_target: Target) -> list[kernel_launch.Dispatch]:
    """What fills an array with zeros, if it has elements."""
    words: tuple[tuple[str, int], ...] = ()
    zeros = Zeros(TYPES[a.kind])
    return [each_of(zeros, device_target, [("x", a.name)], a.size, words)] if a.size else []
