"""Tracing of functions of whole arrays, and the programs that their tapes become."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from symgrad.arrays import functions, linear, loops, rules
from symgrad.arrays.fuse import fused
from symgrad.arrays.loops import mapped
from symgrad.arrays.program import ArrayProgram
from symgrad.arrays.tape import Lowering, Tape, open_tape
from symgrad.arrays.whole import WholeArray, anchor_of
from symgrad.errors import DifferentiationError, InputError, TraceError
from symgrad.expr.derivatives.accumulate import Mode, require_mode
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import paused_gc
from symgrad.expr.graph.place import describe
from symgrad.expr.tracers.tree import Tree, flatten

functions.install()
WholeArray.functions.update(linear.TABLE | loops.TABLE)


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


class _Call:
    """A call of a function of whole arrays at variables of its own, in the place of arguments."""

    def __init__(
        self, f: Callable[..., Any], args: Sequence[Any], named: Any, chosen: Sequence[int],
        tape: Tape | None = None,
    ) -> None:  # fmt: skip
        tape = tape or open_tape()
        assert tape is not None, "whole arrays are traced"
        self.anchor = anchor_of(tape)
        self.nests = [flatten(args[k]) for k in chosen]
        self.variables = [variable(self.anchor, v) for leaves, _ in self.nests for v in leaves]
        copies = iter([v.copied() for v in self.variables])
        given = list(args)
        for k, (_, tree) in zip(chosen, self.nests, strict=True):
            given[k] = tree.nest(copies)
        self.result = f(*given, **named)

    def results(self, value: Any) -> tuple[list[WholeArray], Tree]:
        """The arrays of what the function returned, or of a part of it, and how they are nested."""
        leaves, tree = flatten(value)
        return [self.anchor.lift(leaf) for leaf in leaves], tree

    def nested(self, arrays: Iterable[Any]) -> list[Any]:
        """Arrays, one for each variable, nested as the arguments."""
        rest = iter(arrays)
        return [tree.nest(rest) for _, tree in self.nests]

    def pulled(self, outputs: Sequence[WholeArray], seeds: Iterable[Any]) -> list[WholeArray]:
        """The cotangents of the variables, from those of results; integers have none."""
        pairs = [(o, s) for o, s in zip(outputs, seeds, strict=True) if o.kind == "f"]
        arrays = [self._like(o, s, "a cotangent") for o, s in pairs]
        return pulled_back([o for o, _ in pairs], arrays, self.variables)

    def pushed(self, outputs: Sequence[WholeArray], tangents: Iterable[Any]) -> list[WholeArray]:
        """The tangents of results, from those of the variables.

        Cotangents are linear in those of the results, and their transpose is the derivative.
        """
        pairs = zip(self.variables, tangents, strict=True)
        along = [self._like(v, t, "a tangent") for v, t in pairs]
        zeros = [np.broadcast_to(self.anchor.lift(np.zeros(())), o.shape) for o in outputs]
        cotangents = [variable(self.anchor, z) for z in zeros]
        return pulled_back(self.pulled(outputs, cotangents), along, cotangents)

    def _like(self, array: WholeArray, value: Any, what: str) -> WholeArray:
        """A tangent or cotangent of an array, which has its shape."""
        whole = self.anchor.lift(value)
        if whole.shape != array.shape:
            raise InputError(
                f"{what} of shape {whole.shape} is for an array of shape {array.shape}: "
                "it needs that shape"
            )
        return whole.astype(float)


def nested_gradient(
    f: Callable[..., Any], chosen: Sequence[int], has_aux: bool, args: Sequence[Any], named: Any
) -> tuple[Any, list[Any]]:
    """The value of a function of whole arrays and its gradients, on their tape."""
    call = _Call(f, args, named, chosen)
    output = call.anchor.lift(call.result[0] if has_aux else call.result)
    if output.shape:
        raise TraceError(
            located(f"{describe(f)} returned {output}: a gradient is of one real number")
        )
    _require_real(output, f"what {describe(f)} returned")
    return call.result, call.nested(gradients(output, call.variables))


def nested_vjp(f: Callable[..., Any], primals: Sequence[Any], has_aux: bool) -> tuple[Any, ...]:
    """The value of a function, and what makes cotangents of the arguments: see `vjp`."""
    call = _Call(f, primals, {}, range(len(primals)))
    value, *aux = call.result if has_aux else (call.result,)
    outputs, tree = call.results(value)

    def pull(cotangent: Any) -> tuple[Any, ...]:
        return tuple(call.nested(call.pulled(outputs, tree.parts(cotangent, "a cotangent"))))

    return value, pull, *aux


def nested_jvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Any) -> tuple[Any, Any]:
    """The value of a function, and how it changes along tangents: see `jvp`."""
    call = _Call(f, primals, {}, range(len(primals)))
    outputs, tree = call.results(call.result)
    parts = [
        part
        for (_, nest), tangent in zip(call.nests, tangents, strict=True)
        for part in nest.parts(tangent, "a tangent")
    ]
    return call.result, tree.nest(iter(call.pushed(outputs, parts)))


def nested_jacobian(
    f: Callable[..., Any], chosen: Sequence[int], mode: Mode, args: Sequence[Any], named: Any
) -> tuple[Tree, Iterator[list[Any]]]:
    """How results are nested, and for each the derivatives by the arguments: see `jacobian`.

    A row of the matrix is a cotangent pulled back, a column a tangent pushed forward: the function
    is mapped over the elements of which there are fewer, or over those that ``mode`` names.
    """
    require_mode(mode)
    call = _Call(f, args, named, chosen)
    outputs, tree = call.results(call.result)
    variables = call.variables
    fewer = sum(v.size for v in variables) < sum(o.size for o in outputs)
    forward = mode == "forward" or (mode != "reverse" and fewer)
    elements = variables if forward else outputs

    def derivatives(which: int, k: WholeArray) -> list[WholeArray]:
        inner = _Call(f, args, named, chosen, k.tape)
        results = inner.results(inner.result)[0]
        seeds = [
            np.where(np.arange(a.size) == k, 1.0, 0.0).reshape(a.shape) if n == which
            else np.zeros(a.shape)
            for n, a in enumerate(elements)
        ]  # fmt: skip
        return inner.pushed(results, seeds) if forward else inner.pulled(results, seeds)

    def blocks(which: int) -> list[WholeArray]:
        """The derivatives of all results, or by all variables, for the elements of one array."""
        numbers = np.arange(elements[which].size)
        one = functools.partial(derivatives, which)
        axis = -1 if forward else 0
        return mapped(one, 0, axis, (call.anchor.lift(numbers),), call.anchor.tape)

    table = [blocks(n) for n in range(len(elements))]
    rows = zip(*table, strict=True) if forward else table
    shaped = (
        call.nested(
            block.reshape((*o.shape, *v.shape)) for block, v in zip(row, variables, strict=True)
        )
        for o, row in zip(outputs, rows, strict=True)
    )
    return tree, shaped


def variable(anchor: WholeArray, value: Any) -> WholeArray:
    """An array to differentiate by, apart from all that it is equal to."""
    if isinstance(value, WholeArray):
        _require_real(value, "what is differentiated by")
    whole = anchor.lift(value).astype(float)
    return whole.then(rules.fresh, len(anchor.tape.operations), whole.shape, kind="f")


def _require_real(array: WholeArray, what: str) -> None:
    """Refuse an array of integers, or of truth values."""
    if array.kind != "f":
        raise DifferentiationError(
            located(
                f"{what} is an array of integers, {array}, and has no derivative: use real "
                "numbers, as a.astype(float)"
            )
        )


def variables(tape: Tape, arrays: Sequence[Any]) -> list[WholeArray]:
    """Inputs of a tape with these numbers."""
    return [WholeArray(tape, tape.input(a)) for a in arrays]


WholeArray.functions |= {
    "value_and_grad": nested_gradient,
    "vjp": nested_vjp,
    "jvp": nested_jvp,
    "jacobian": nested_jacobian,
}
