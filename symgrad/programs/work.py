"""What calls of programs run: launches of their dispatches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from symgrad.backend import Backend
from symgrad.errors import InputError, ProgramError
from symgrad.expr import ops
from symgrad.expr.graph.node import Graph, reachable
from symgrad.kernel import launch as kernel_launch
from symgrad.kernel.accesses import operands
from symgrad.kernel.language import KernelIR, Target
from symgrad.kernel.launch import Launch
from symgrad.kernel.layout import GROUP_BYTES
from symgrad.kernel.place import place
from symgrad.kernel.statements import Barrier, Buffer, Load, Reduce, Store
from symgrad.kernel.target import SimdTarget
from symgrad.kernel.uniform import Uniformity
from symgrad.pipeline import Options, simplified
from symgrad.programs.code import TYPES, Array, Code, Dispatch, is_collective, shown
from symgrad.programs.gradient import cotangent_of
from symgrad.programs.trial import facts_of
from symgrad.tensor.dispatches import each_of
from symgrad.tensor.kernel import Runner, Shape, launched


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
        return tuple(cotangent_of(self.code, a) for a in self.code.of("output") if a.kind == "f")

    def results(self, shapes: Sequence[Shape]) -> list[Shape]:
        """The shapes of the outputs: see `Work`."""
        for a, shape in zip(self.code.of("input"), shapes, strict=True):
            if tuple(shape) != a.shape:
                raise InputError(f"{a.name} has shape {tuple(shape)}, {self.name} takes {a.shape}")
        return [a.shape for a in self.code.of("output") if a.kind == "f"]

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
        if is_collective(d) and d.invocations % d.width:
            raise ProgramError(
                f"{code.name}: {d.invocations} invocations, which wait for each other, are no "
                f"whole workgroups of {d.width}: use {-(-d.invocations // d.width) * d.width}"
            )
        if (nbytes := shared_bytes(d)) > GROUP_BYTES:
            raise ProgramError(
                f"{code.name}: a workgroup's arrays, with what its reductions take, have "
                f"{nbytes:,} bytes, of {GROUP_BYTES:,}: use smaller ones"
            )
        _require_uniform(code, d)
        facts_of(d, code)
    return code


def _require_uniform(code: Code, dispatch: Dispatch) -> None:
    """Refuse what waits where not all invocations of a workgroup may be."""
    for s, head in Uniformity(dispatch, memory=True).parted.items():
        if isinstance(s, Barrier | Reduce):
            what = "a barrier" if isinstance(s, Barrier) else f"group_{s.operation}"
            raise ProgramError(
                f"{shown(code, s)}: {what} that not all invocations of a workgroup may reach, as "
                f"they part at {shown(code, head)}: put it outside, and what differs into where"
            )


def shared_bytes(dispatch: Dispatch) -> int:
    """Bytes of the arrays of a workgroup, that of its reductions among them."""
    tiles = any(isinstance(s, Reduce) and s.among > 1 for s in dispatch.statements)
    arrays = (a.size for a in dispatch.arrays if a.space == "group")
    return 4 * (sum(arrays) + tiles * dispatch.width)


def is_grouped(dispatch: Dispatch) -> bool:
    """Whether it matters which invocations are in one workgroup."""
    if is_collective(dispatch) or any(a.space == "group" for a in dispatch.arrays):
        return True
    roots = (i for s in dispatch.statements for i in operands(dispatch, s))
    return not {dispatch.local, dispatch.group}.isdisjoint(reachable(dispatch.graph, roots))


def target_of(dispatch: Dispatch, device_target: Target) -> Target:
    """What a dispatch is written for: groups as wide as it says, where that matters."""
    if isinstance(device_target, SimdTarget):
        wide = replace(device_target, width=dispatch.width, whole=False)
        return wide if is_grouped(dispatch) else replace(device_target, whole=False)
    groups = -(-dispatch.invocations // dispatch.width)
    return device_target.of_width(dispatch.width).in_grid(groups)


@dataclass(frozen=True)
class DispatchProgram:
    """What writes a dispatch of a program: see `symgrad.kernel.launch.Program` and `place`."""

    code: Code
    number: int
    options: Options

    def __call__(self, target: Target) -> KernelIR:
        """The kernel."""
        d = self.code.dispatches[self.number]
        several = f"_{self.number + 1}" if len(self.code.dispatches) > 1 else ""
        guarded = not is_collective(d) and d.invocations % target.width > 0
        simplify = partial(_simplified, self.options)
        return place(d, f"{self.code.name}{several}", target, simplify, guarded)


def _simplified(
    options: Options, graph: Graph, roots: Sequence[int], reread: Sequence[int]
) -> tuple[Graph, list[int]]:
    return simplified(graph, roots, options, reread=reread)


def launch_of(code: Code, options: Options, device_target: Target) -> Launch:
    """A program as a launch: what is not stored as a whole begins with zeros."""
    dispatches: list[kernel_launch.Dispatch] = []
    written: set[Buffer] = set()
    for number, d in enumerate(code.dispatches):
        target = target_of(d, device_target)
        accesses = [s for s in d.statements if isinstance(s, Load | Store)]
        uses = {s.buffer for s in accesses}
        read = {s.buffer for s in accesses if isinstance(s, Load) or s.add}
        mine = [a for a in code.arrays if a in uses]
        whole = {a for a, all_of_it in facts_of(d, code).whole.items() if all_of_it} - read
        for a in [a for a in mine if a.space != "read" and a not in written]:
            dispatches += [] if a in whole else _zeroed(a, device_target)
            written.add(a)
        bound = tuple((a.name, a.name) for a in mine)
        program = DispatchProgram(code, number, options)
        dispatches.append(kernel_launch.Dispatch(program, target, bound, d.invocations))
    unwritten = [a for a in code.of("output") if a not in written]
    dispatches += [step for a in unwritten for step in _zeroed(a, device_target)]
    inputs = [_launched(a) for a in code.of("input")]
    results = [_launched(a) for a in code.of("output")]
    scratch = [_launched(a) for a in code.of("temporary") if a in written]
    return Launch(code.name, tuple(inputs), tuple(results), tuple(scratch), tuple(dispatches))


def _launched(a: Array) -> kernel_launch.Array:
    return kernel_launch.Array(a.name, a.shape, a.kind)


def _zeroed(a: Array, device_target: Target) -> list[kernel_launch.Dispatch]:
    """What fills an array with zeros, if it has elements."""
    words: tuple[tuple[str, int], ...] = ()
    zeros = Zeros(TYPES[a.kind])
    return [each_of(zeros, device_target, [("x", a.name)], a.size, words)] if a.size else []
