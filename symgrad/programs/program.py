"""`program`: kernels that users write statement by statement, and the launches that they run as."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from symgrad.errors import InputError, InputTypeError, ProgramError, counted
from symgrad.expr import ops
from symgrad.expr.graph.node import Graph, reachable
from symgrad.kernel import launch as kernel_launch
from symgrad.kernel.language.execute import Fault, execute
from symgrad.kernel.language.ir import KernelIR, Target, operands
from symgrad.kernel.language.statements import (
    Barrier,
    Buffer,
    GroupReduce,
    Load,
    Statement,
    Store,
    indices,
)
from symgrad.kernel.language.target import GROUP_BYTES, SimdTarget
from symgrad.kernel.language.verify import Uniformity
from symgrad.kernel.launch import Launch
from symgrad.kernel.passes.place import place
from symgrad.mathlib.define import Math
from symgrad.pipeline import DType, Options, dtype_name, simplified
from symgrad.programs.builder import Builder
from symgrad.programs.code import TYPES, Array, Code, Dispatch, is_collective, shown, text
from symgrad.programs.gradient import cotangent_of, gradient
from symgrad.programs.parse import parse, settled
from symgrad.programs.trial import facts_of
from symgrad.targets import DeviceChoice
from symgrad.tensor.dispatches import each_of
from symgrad.tensor.kernel import Shape, TensorKernel, Work
from symgrad.values.arrays import real_numbers


@dataclass(frozen=True)
class Zeros:
    """A kernel that writes zeros to all of an array."""

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
class ProgramWork(Work):
    """The work of a program: see `symgrad.tensor.kernel.Work`."""

    code: Code
    options: Options
    gradient: Code | None = None
    """The program of the outputs and of the gradients of inputs that have some; None if unknown."""

    @property
    def name(self) -> str:
        """The program's name."""
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
        if isinstance(s, Barrier | GroupReduce):
            what = "a barrier" if isinstance(s, Barrier) else f"group_{s.operation}"
            raise ProgramError(
                f"{shown(code, s)}: {what} that not all invocations of a workgroup may reach, as "
                f"they part at {shown(code, head)}: put it outside, and what differs into where"
            )


def shared_bytes(dispatch: Dispatch) -> int:
    """Bytes of the arrays of a workgroup, that of its reductions among them."""
    tiles = any(isinstance(s, GroupReduce) and s.among > 1 for s in dispatch.statements)
    arrays = (a.size for a in dispatch.arrays if a.space == "group")
    return 4 * (sum(arrays) + tiles * dispatch.width)


def is_grouped(dispatch: Dispatch) -> bool:
    """Whether it matters which invocations are in one workgroup."""
    if is_collective(dispatch) or any(a.space == "group" for a in dispatch.arrays):
        return True
    roots = (i for s in dispatch.statements for i in operands(dispatch, s))
    return not {dispatch.local, dispatch.group}.isdisjoint(reachable(dispatch.graph, roots))


def target_of(dispatch: Dispatch, device_target: Target) -> Target:
    """The target that a dispatch is written for: groups as wide as it says, where that matters."""
    if isinstance(device_target, SimdTarget):
        wide = replace(device_target, width=dispatch.width, whole=False)
        return wide if is_grouped(dispatch) else replace(device_target, whole=False)
    groups = -(-dispatch.invocations // dispatch.width)
    return device_target.of_width(dispatch.width).in_grid(groups)


@dataclass(frozen=True)
class DispatchProgram:
    """The writer of a dispatch of a program: see `symgrad.kernel.launch.Program` and `place`."""

    code: Code
    number: int
    options: Options

    def __call__(self, target: Target) -> KernelIR:
        """The kernel."""
        d = self.code.dispatches[self.number]
        several = f"_{self.number + 1}" if len(self.code.dispatches) > 1 else ""
        guarded = not is_collective(d) and d.invocations % target.width > 0
        simplify = partial(_simplified, self.options)
        name = f"{self.code.name}{several}"
        return place(d, name, target, simplify, guarded, self._unsure(d))

    def _unsure(self, dispatch: Dispatch) -> dict[Statement, Collection[int]]:
        """The indices that may be beyond their axes, as inputs are, by their numbers."""
        tried = facts_of(dispatch, self.code).accesses
        accesses = (s for s in dispatch.statements if isinstance(s, Load | Store))
        every = {s: tried[s].unsure if s in tried else range(len(indices(s))) for s in accesses}
        return {s: axes for s, axes in every.items() if axes}


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
    """The dispatch that fills an array with zeros, if it has elements."""
    words: tuple[tuple[str, int], ...] = ()
    zeros = Zeros(TYPES[a.kind])
    return [each_of(zeros, device_target, [("x", a.name)], a.size, words)] if a.size else []


# Programs as users have them.


class Program(TensorKernel):
    """A program, made by `program`: ``run(*inputs)`` gives its outputs, ``vjp`` gradients as well.

    Inputs have the shapes that it declares. ``str(p)`` is its text, of which ``sg.program`` makes
    the same program. As any `TensorKernel` it has ``wgsl``, ``stats``, ``to`` and ``profile``, and
    pickles.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> squares = sg.program('''program squares
        ...   input x: f32[3]
        ...   output y: f32[3]
        ...   dispatch 3 in groups of 64:
        ...     y[cell] = x[cell] * x[cell]
        ... ''', device="cpu")
        >>> squares.run(np.array([1.0, 2.0, 3.0]))
        array([1., 4., 9.], dtype=float32)
    """

    _work: ProgramWork

    @property
    def code(self) -> Code:
        """The program's parts."""
        return self._work.code

    @property
    def options(self) -> Options:
        """The choices for it."""
        return self._options

    def __str__(self) -> str:
        return text(self.code)

    def run(self, *arrays: Any) -> Any:
        """The output for these inputs, or a tuple of outputs.

        Raises:
            InputError: for an array of another shape than the program declares.
            InputTypeError: for what holds no real numbers, or is on another device.
        """
        return _single(self._call("run", arrays, self._work))

    __call__ = run

    def vjp(self, *arrays: Any) -> tuple[Any, Any]:
        """The outputs, and the gradients: a cotangent of each output comes behind the inputs.

        The gradients are one for each input, in a tuple; of integers, and by them, there is none.

        Raises:
            InputError, InputTypeError: as ``run`` does.
            DifferentiationError: see `grad_program`.
        """
        work = self._work
        if work.gradient is None:
            work = self._work = replace(work, gradient=checked(settled(gradient(work.code))))
        results = self._call("vjp", arrays, work)
        many = len(self.code.of("output"))
        slopes = iter(results[many:])
        gradients = (next(slopes) if a.kind == "f" else None for a in self.code.of("input"))
        return _single(results[:many]), tuple(gradients)

    def interpret(self, *arrays: Any) -> Any:
        """The results of ``run``, by the NumPy interpreter in float64, which notices any race.

        Raises:
            ProgramError: for an index out of bounds, and for a race.
        """
        if len(arrays) != len(self.arguments):
            raise InputError(
                f"{self.name} takes {counted(len(self.arguments), 'array')}, not {len(arrays)}"
            )
        inputs = zip(self.code.of("input"), arrays, strict=True)
        hosted = {a.name: np.asarray(real_numbers(x, a.name), _numbers(a)) for a, x in inputs}
        self._work.results([x.shape for x in hosted.values()])
        memory = {a.name: np.zeros(a.shape, _numbers(a)) for a in self.code.arrays}
        memory |= {name: np.ascontiguousarray(x) for name, x in hosted.items()}
        try:
            for d in self.code.dispatches:
                execute(d, memory, d.invocations)
        except Fault as fault:
            where = shown(self.code, fault.statement)
            raise ProgramError(f"{where}, for these inputs: {fault}") from None
        return _single([memory[a.name] for a in self.code.of("output")])

    def _last_call(self) -> tuple[Work, str, tuple[Shape, ...]]:
        """The last call, or what the first one will be: all shapes are known."""
        shapes = tuple(a.shape for a in self.code.of("input"))
        return self._last or (self._work, "run", shapes)


def _numbers(a: Array, floats: Any = np.float64) -> np.dtype[Any]:
    """The dtype of an array on the host, where the program's real numbers are such floats."""
    return np.dtype({"f": floats, "i": np.int32, "u": np.uint32}[a.kind])


def _single(results: Sequence[Any]) -> Any:
    return results[0] if len(results) == 1 else tuple(results)


def program(
    body: Callable[[Builder], object] | str,
    *,
    name: str | None = None,
    device: DeviceChoice = None,
    math: Math = "accurate",
    dtype: DType = "float32",
) -> Program:
    """The program that a body writes: what each invocation of a kernel does, on named arrays.

    ``body`` is called once, with a `Builder`, whose methods are statements; or it is the text of a
    program. Values are expressions, so Python's operators and symgrad's functions make them:
    `where` selects, `fma` is fused, `int32` and `uint32` cast.

    Raises:
        ProgramError: for a race, a barrier that some invocations may not reach, an index out of
            bounds, and what is used before it is defined; it names the statement.
        BufferUnknownError: for an array that the program does not have, or may not write to.
        UnsupportedError: for what programs have no statement or operation for.

    Example:
        >>> import numpy as np, symgrad as sg
        >>> def scaled(p):
        ...     a, x, y = p.input("a"), p.input("x", 4), p.output("y", 4)
        ...     with p.dispatch(4) as i:
        ...         p.store(y, i, p.load(a) * sg.exp(p.load(x, i)))
        >>> scale = sg.program(scaled, device="cpu")
        >>> scale.run(2.0, np.zeros(4)).tolist()
        [2.0, 2.0, 2.0, 2.0]
        >>> y, (da, dx) = scale.vjp(2.0, np.zeros(4), np.ones(4))
        >>> float(da), dx.tolist()
        (4.0, [2.0, 2.0, 2.0, 2.0])
        >>> print(scale)
        program scaled
          input a: f32[]
          input x: f32[4]
          output y: f32[4]
          dispatch 4 in groups of 64:
            y[cell] = a[0] * exp(x[cell])
        <BLANKLINE>
    """
    if isinstance(body, str):
        code = parse(body)
        code.name = name or code.name
    elif callable(body):
        default_name = getattr(body, "__name__", "program").replace("<lambda>", "program")
        builder = Builder(name or default_name)
        body(builder)
        code = builder.code
    else:
        raise InputTypeError(f"a program is made of a function or a text, not of {body!r}")
    options = Options(code.name, math=math, dtype=dtype_name(dtype), comments=False)
    return _program_of(code, options, device)


def grad_program(p: Program) -> Program:
    """The program of another one's outputs, and of the gradients of its inputs behind them.

    It takes the inputs, and behind them ``cotangent_<output>`` for each output of floats; the
    gradients are the outputs ``grad_<input>``, one for each input of floats. They are of the sum of
    the outputs times their cotangents, and accumulated without races: where each invocation has
    elements of its own it adds to them, and elsewhere what invocations add to one element is
    gathered and added up by one of them. Loops are done again, turn by turn from the last.

    Raises:
        DifferentiationError: for an operation without a derivative, for loops that iterate an
            unknown number of times, and where the gradient would be a race or take too much memory;
            it names the statement and the remedy.

    Example:
        >>> import symgrad as sg
        >>> square = sg.program('''
        ... program square
        ...   input x: f32[3]
        ...   output y: f32[3]
        ...   dispatch 3 in groups of 64:
        ...     y[cell] = x[cell] ** 2
        ... ''', device="cpu")
        >>> print(sg.grad_program(square))
        program square_gradient
          input x: f32[3]
          input cotangent_y: f32[3]
          output y: f32[3]
          output grad_x: f32[3]
          dispatch 3 in groups of 64:
            let t1 = x[cell]
            y[cell] = t1 ** 2
            grad_x[cell] += t1 * (cotangent_y[cell] * 2.0)
        <BLANKLINE>
    """
    return _program_of(gradient(p.code), p.options, p.device)


def _program_of(code: Code, options: Options, device: DeviceChoice) -> Program:
    """The program of a code, whose text says all that it is."""
    settled_code = checked(settled(code))
    options = replace(options, name=settled_code.name)
    return Program(ProgramWork(settled_code, options), options, device)
