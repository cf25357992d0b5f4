"""Iterations with a matrix on the CPU: a vector of problems at a time, their matrices in memory."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from symgrad.expr.graph.node import Op
from symgrad.kernel import watch
from symgrad.kernel.plan import Iteration
from symgrad.kernel.programs.normal import COUNT, normal_program
from symgrad.kernel.target import InStep
from symgrad.llvm.instruction import Shape
from symgrad.llvm.pointers import address
from symgrad.llvm.printer import print_kernel
from symgrad.llvm.recompile import Function
from symgrad.mathlib.define import Function as Definition


class MatrixSteps:
    """Does steps of whole blocks of problems, as the steps of other iterations are done."""

    def __init__(
        self, iteration: Iteration, functions: Mapping[Op, Definition], shape: Shape
    ) -> None:
        with watch.stage("emit"):
            kernel = normal_program(iteration, InStep(shape.lanes))
        write = partial(print_kernel, kernel, functions, shape, None)
        self._function = Function(write)
        self.workspace = self._function.workspace
        """How many bytes of scratch memory a call needs."""

    def __call__(
        self, own: Any, shared: Any, states: Any, room: Any, count: int, steps: int, rows: int
    ) -> None:
        """Change the states of so many problems; arrays are addresses."""
        progress = np.zeros(3, np.uint32)
        progress[COUNT] = rows
        arrays = own, shared, states, address(progress)
        self._function.call(*arrays, room, 0, count, False, steps, 0)
