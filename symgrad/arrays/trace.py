"""Tracing of functions of whole arrays, and the programs that their tapes become."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from symgrad.arrays import functions, linear, rules
from symgrad.arrays.fuse import fused
from symgrad.arrays.lower import Lowering
from symgrad.arrays.program import Program
from symgrad.arrays.tape import Tape
from symgrad.arrays.whole import WholeArray
from symgrad.expr.graph.node import paused_gc

functions.install()
WholeArray.functions.update(linear.TABLE)


def gradients(output: WholeArray, wrt: Sequence[WholeArray]) -> list[WholeArray]:
    """The derivatives of one number by whole arrays, on the same tape."""
    seed = output.lift(np.ones(()))
    return [
        output.then(rules.gradient, k, w.shape, seed, *wrt, kind="f") for k, w in enumerate(wrt)
    ]


@paused_gc()
def program_of(tape: Tape, outputs: Sequence[WholeArray], fuse: bool = True) -> Program:
    """The program that computes some arrays of a tape from its inputs."""
    lowering = Lowering()
    views = lowering.run(tape.operations)
    arrays = [lowering.stored(views[o.number]) for o in outputs]
    if fuse:
        arrays = fused(lowering.builder, arrays)
    return Program(lowering.builder, tuple(lowering.inputs), tuple(arrays))


def variable(tape: Tape, value: Any) -> WholeArray:
    """An array to differentiate by, apart from all that it is equal to."""
    if not isinstance(value, WholeArray):
        number = tape.add(rules.filled, ("f", 0.0), (), ())
        value = WholeArray(tape, number).lift(value)
    return value.then(rules.fresh, len(tape.operations), value.shape, kind="f")


def variables(tape: Tape, arrays: Sequence[Any]) -> list[WholeArray]:
    """Inputs of a tape with these numbers."""
    return [WholeArray(tape, tape.input(a)) for a in arrays]
