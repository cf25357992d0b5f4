"""Iterations with a matrix on the CPU: a vector of problems at a time, their matrices in memory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import numpy as np

from symgrad.expr.node import Op
from symgrad.kernel import watch
from symgrad.kernel.plan import Iteration
from symgrad.kernel.programs.normal import COUNT, normal_program
from symgrad.kernel.target import InStep
from symgrad.llvm.instruction import Shape
from symgrad.llvm.pointers import NULL, address
from symgrad.llvm.printer import print_kernel
from symgrad.llvm.recompile import Function
from symgrad.mathlib.define import Function as Definition

WORDS: Final = 2**31 - 1
"""Steps, and numbers of an array, that compiled code counts in one call, at most."""


class MatrixSteps:
    """Does steps of whole blocks of problems, as functions that `emit_iteration` writes do."""

    def __init__(
        self, iteration: Iteration, functions: Mapping[Op, Definition], shape: Shape
    ) -> None:
        self._iteration, self._shape = iteration, shape
        with watch.stage("emit"):
            kernel = normal_program(iteration, InStep(shape.lanes))
        kind = "void (*)(void *, void *, void *, void *, void *, int64_t, int64_t, bool, int32_t, "
        write = partial(print_kernel, kernel, functions, shape, None)
        self._function = Function(write, f"{kind}int32_t)")
        self.workspace = self._function.workspace
        """How many bytes of scratch memory a call needs."""

    def __call__(
        self, states: Any, shared: Any, own: Any, room: Any,
        first: int, end: int, steps: int, rows: int,
    ) -> None:  # fmt: skip
        """Change the states of the problems from ``first`` to ``end``; arrays are addresses."""
        it, size, lanes = self._iteration, self._shape.itemsize, self._shape.lanes
        progress = np.zeros(3, np.uint32)
        progress[COUNT] = rows
        widest, mine = max(it.state, rows * it.own), size * rows * it.own
        most = max(1, WORDS // (widest * lanes)) * lanes
        for k in range(first, end, most):
            arrays = own if own == NULL else own + k * mine, shared, states + k * size * it.state
            count, problems = min(steps, WORDS), min(most, end - k)
            self._function.call(*arrays, address(progress), room, 0, problems, False, count, 0)
