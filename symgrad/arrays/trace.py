"""Tracing of functions of whole arrays, and the programs that their tapes become."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from symgrad.arrays import assembled, compositions, functions, linear, loops, rules
from symgrad.arrays.fuse import fused
from symgrad.arrays.lower import Lowering
from symgrad.arrays.program import ArrayProgram
from symgrad.arrays.tape import Tape
from symgrad.arrays.whole import WholeArray, innermost
from symgrad.expr.graph.node import paused_gc
from symgrad.expr.tracers.tree import flatten

functions.install()
WholeArray.functions.update(linear.TABLE | loops.TABLE | compositions.TABLE | assembled.TABLE)


def gradients(output: WholeArray, wrt: Sequence[WholeArray]) -> list[WholeArray]:
    """The derivatives of one number by whole arrays, on the same tape."""
    return pulled_back([output], [output.lift(np.ones(()))], wrt)


def pulled_back(
    outputs: Sequence[WholeArray], cotangents: Sequence[WholeArray], wrt: Sequence[WholeArray]
) -> list[WholeArray]:
    """The cotangents of whole arrays, from those of outputs, on the same tape."""
    arrays, n = (*outputs, *cotangents, *wrt), len(outputs)
    assert all(a.tape is arrays[0].tape for a in arrays), "all are of one tape"
    operands = tuple([a.number for a in arrays])
    return [
        WholeArray(w.tape, w.tape.add(rules.gradient, (k, n), operands, w.shape))
        for k, w in enumerate(wrt)
    ]


@paused_gc()
def program_of(tape: Tape, outputs: Sequence[WholeArray], fuse: bool = True) -> ArrayProgram:
    """The program that computes some arrays of a tape from its inputs."""
    lowering = Lowering()
    views = lowering.run(tape.operations)
    arrays = [lowering.stored(views[o.number]) for o in outputs]
    if fuse:
        arrays = fused(lowering.builder, arrays)
    return ArrayProgram(lowering.builder, tuple(lowering.inputs), tuple(arrays))


def nested_gradient(
    f: Callable[..., Any], chosen: Sequence[int], has_aux: bool, args: Sequence[Any], named: Any
) -> tuple[Any, list[Any]]:
    """The value of a function of whole arrays and its gradients, on their tape."""
    anchor = innermost([leaf for a in (*args, *named.values()) for leaf in flatten(a)[0]])
    nests = {k: flatten(args[k]) for k in chosen}
    fresh = {k: [variable(anchor, leaf) for leaf in leaves] for k, (leaves, _) in nests.items()}
    given = list(args)
    for k, (_, tree) in nests.items():
        given[k] = tree.nest(v.copied() for v in fresh[k])
    value = f(*given, **named)
    output = innermost([leaf for leaves in fresh.values() for leaf in leaves] or [anchor]).lift(
        value[0] if has_aux else value
    )
    derivatives = iter(gradients(output, [v for leaves in fresh.values() for v in leaves]))
    return value, [tree.nest(next(derivatives) for _ in leaves) for leaves, tree in nests.values()]


def variable(anchor: WholeArray, value: Any) -> WholeArray:
    """An array to differentiate by, apart from all that it is equal to."""
    whole = anchor.lift(value)
    return whole.then(rules.fresh, len(anchor.tape.operations), whole.shape, kind="f")


def variables(tape: Tape, arrays: Sequence[Any]) -> list[WholeArray]:
    """Inputs of a tape with these numbers."""
    return [WholeArray(tape, tape.input(a)) for a in arrays]


WholeArray.functions["value_and_grad"] = nested_gradient
