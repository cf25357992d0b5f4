"""`jit` and `vmap`: JAX's verbs, for functions of arrays of any size."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from symgrad.arrays.loops import mapped
from symgrad.arrays.recording import Recording
from symgrad.arrays.tape import open_tape
from symgrad.errors import InputError, UnsupportedError
from symgrad.expr.graph.written_out import ManyElementsError
from symgrad.expr.laws.simplify import Level
from symgrad.expr.loops.open_loop import traced_graph
from symgrad.front.choice import whole_or_elements
from symgrad.front.deriving import Making, options_of, values_kernel
from symgrad.front.functional import Arguments, ByElements, ElementsCall, Returned
from symgrad.front.kernels import Kernel, shared
from symgrad.front.recall import Recall
from symgrad.front.whole import TracedCall, WholeTrace, runner
from symgrad.mathlib.define import Math
from symgrad.pipeline import DType
from symgrad.targets import DeviceChoice
from symgrad.tensor.stages import CompiledArrays
from symgrad.values.arrays import warn_if_rounded
from symgrad.values.nested import variables_of


def jit(
    f: Callable[..., Any],
    *,
    device: DeviceChoice = None,
    math: Math = "accurate",
    dtype: DType = "float32",
    simplify: Level = True,
) -> Jitted:
    """A function that computes what f does by kernels, as ``jax.jit`` does.

    f takes arrays, or dicts, lists, tuples and dataclasses of them, and returns such. Arrays of
    floats and floats are data; all else f gets as it is: ints, bools, strings, arrays of integers
    as indices, whose numbers may change without another trace. `value_and_grad` says more of
    arguments, and is the same with a gradient. Results are NumPy's arrays, or `DeviceArray` where
    one came in. The text of the kernels does not depend on sizes: `print(run.stages)` shows what
    ran last.

    f is traced at every call, and equal traces share the kernels; where nothing that it refers to
    can have changed, the trace is left out. Inside a traced function it is f. A function of
    hundreds of operations on single elements is traced by them, as one kernel, and so is one that
    asks for the elements of its arrays one by one.

    Raises:
        UnsupportedError: for what cannot be traced.

    Example:
        >>> import numpy as np
        >>> import symgrad as sg
        >>> smooth = sg.jit(lambda a, w: {"rows": np.tanh(a @ w), "sum": a.sum()}, device="cpu")
        >>> out = smooth(np.eye(300), np.ones(300))
        >>> out["rows"].shape, float(out["sum"])
        ((300,), 300.0)
    """
    return Jitted(f, options_of(f, None, math, dtype, simplify, True), device)


class Jitted:
    """A function that runs as kernels: see `jit`."""

    def __init__(self, f: Callable[..., Any], options: Any, device: DeviceChoice) -> None:
        functools.update_wrapper(self, f)
        self._f, self._options = f, options
        self._recall: Recall[TracedCall | ByElements] = Recall(f)
        self._last: CompiledArrays | Kernel | None = None
        self._device: Any = device

    def __call__(self, *args: Any, **named: Any) -> Any:
        """The results of the function, computed by kernels."""
        if open_tape() is not None:
            return self._f(*args, **named)
        if (call := self._recall.find(args, named)) is not None:
            self._last = call.program.compiled
            return call.run()
        arguments = Arguments([*args, named], ())
        for array in arguments.data:
            if isinstance(array, np.ndarray):
                warn_if_rounded(array, "an argument", self._options.dtype)
        trace = functools.partial(self._program, arguments)
        program = self._recall.traced(trace, args, named)
        self._last = program.compiled
        return program.run(arguments.arrays)

    def _program(
        self, arguments: Arguments, recording: Recording | None
    ) -> TracedCall | ByElements:
        """A call as a program of whole arrays, or as a kernel of their elements."""
        return whole_or_elements(
            lambda _: self._traced(arguments, recording),
            lambda: self._by_elements(arguments),
            large=True,
        )

    def _traced(self, arguments: Arguments, recording: Recording | None) -> TracedCall | ByElements:
        """A call as a program."""
        traced = WholeTrace(self._f, arguments.arrays, by_elements=False)
        result = Returned(traced.call(lambda arrays: arguments.whole(arrays, (), recording)))
        traced.require_whole()
        run = runner(self._options, arguments.device(self._device))
        stays = arguments.stay(run.device)
        return run.call(traced, result.arrays, stays, result.nest, result.others, recording)

    def _by_elements(self, arguments: Arguments) -> ByElements:
        """A call of a function that works on the elements of its arrays one by one."""
        call = ElementsCall(self._f, arguments)
        making = Making(self._options, arguments.device(self._device), make=shared)
        kernel = values_kernel(call.of_flat, variables_of(arguments.size), making)
        floats = self._options.floats.type

        def nest(values: Any) -> Any:
            return call.nested([floats(v) if isinstance(v, float) else v for v in values])

        return ByElements(kernel, arguments.stay(kernel.device), nest, not call.is_traced)

    @property
    def stages(self) -> Any:
        """The stages of the last call: what runs, one after the other, on which device.

        Raises:
            InputError: if there was none, or it was one kernel of numbers.
        """
        if isinstance(self._ran, Kernel):
            raise InputError(
                "the function works on elements one by one: it ran as one kernel, run.wgsl"
            )
        return self._ran.plan

    @property
    def wgsl(self) -> str:
        """The kernels of the last call as a GPU gets them; the CPU runs stages by LLVM.

        Calls of LAPACK and the like, which run on the host, are not among them.

        Raises:
            InputError: if there was none.
        """
        return self._ran.wgsl

    @property
    def _ran(self) -> CompiledArrays | Kernel:
        """The kernels of the last call."""
        if self._last is None:
            raise InputError("the function has not been called: its stages depend on shapes")
        return self._last


def vmap(
    f: Callable[..., Any],
    in_axes: Any = 0,
    out_axes: Any = 0,
    axis_size: int | None = None,
    **options: Any,
) -> Callable[..., Any]:
    """A function that maps f over axes of its arguments, as ``jax.vmap`` does.

    Args:
        f: a function of arrays, or nests of them.
        in_axes: the axis of each argument by position that f gets elements along; None for what it
            gets as a whole. One for all arguments, or a sequence, whose parts may be nested as
            arguments are. What is given by name is mapped over its first axes.
        out_axes: where the axis stands in the results, likewise; None for what does not depend on
            the place.
        axis_size: how many elements there are, where no argument says it.
        **options: those of `jit`, where the function is called with numbers. In a function that is
            traced as a whole it is a part of its kernels.

    Raises:
        InputError: where arrays are not of one length along the axes, have no such axis, or nests
            do not fit.

    Example:
        >>> import numpy as np
        >>> import symgrad as sg
        >>> distances = sg.vmap(lambda x, y: np.sqrt(np.sum((x - y)**2)), (0, None), device="cpu")
        >>> distances(np.array([[3.0, 4.0], [0.0, 1.0]]), np.zeros(2))
        array([5., 1.], dtype=float32)
    """

    @functools.wraps(f)
    def of_arrays(*args: Any, **named: Any) -> Any:
        tape = open_tape()
        if tape is None:
            raise UnsupportedError(
                "sg.vmap maps functions of whole arrays, and this one needs the elements of its "
                "arrays one by one: write the loop, or a batch of points of sg.fused_forward"
            )
        return mapped(f, in_axes, out_axes, args, tape, named, axis_size)

    run = jit(of_arrays, **options)

    @functools.wraps(f)
    def mapping(*args: Any, **named: Any) -> Any:
        if open_tape() is None and traced_graph() is not None:
            raise ManyElementsError(
                "sg.vmap is for functions of whole arrays, which sg.value_and_grad and sg.jit "
                "trace; in one of single numbers write the loop, or a batch of points"
            )
        return run(*args, **named)

    return mapping
