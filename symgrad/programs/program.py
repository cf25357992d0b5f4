"""`program`: kernels that users write statement by statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from symgrad.errors import InputError, InputTypeError, ProgramError, counted
from symgrad.kernel.execute import Fault, execute
from symgrad.mathlib.define import Math
from symgrad.pipeline import DType, Options, dtype_name, require_options
from symgrad.programs.builder import Builder
from symgrad.programs.code import Array, Code, shown, text
from symgrad.programs.gradient import gradient
from symgrad.programs.parse import parse, settled
from symgrad.programs.work import ProgramWork, checked
from symgrad.targets import DeviceChoice
from symgrad.tensor.kernel import Shape, TensorKernel, Work
from symgrad.values.arrays import real_numbers


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
        """What it consists of."""
        return self._work.code

    @property
    def options(self) -> Options:
        """What was chosen for it."""
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
        """What ``run`` gives, by the NumPy interpreter in float64, which notices any race.

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

    def _dtype_of(self, name: str) -> np.dtype[Any]:
        dtypes = (_numbers(a, self.dtype) for a in self.code.arrays if a.name == name)
        return next(dtypes, self.dtype)

    def _last_call(self) -> tuple[Work, str, tuple[Shape, ...]]:
        """The last call, or what the first one will be: all shapes are known."""
        shapes = tuple(a.shape for a in self.code.of("input"))
        return self._last or (self._work, "run", shapes)


def _numbers(a: Array, floats: Any = np.float64) -> np.dtype[Any]:
    """What the numbers of an array are on the host, where the program's are such floats."""
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
    require_options(options)
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
