"""Derivatives of functions, as JAX's: each is taken at inputs of its own.

A function is called with fresh inputs, holes of the graph that is traced. What it returns is
differentiated by these, and then they are replaced by the arguments. So it does not matter what
else an argument is equal to, nor whether it is a number, and nested derivatives are kept apart.
Called with numbers where nothing is traced, a derivative is itself traced and run as kernels.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from symgrad.errors import InputError, InputTypeError, TraceError, counted
from symgrad.expr.derivatives import differentiate
from symgrad.expr.derivatives.accumulate import Mode, Sought, accumulated
from symgrad.expr.graph.arrays import ZEROS, size_of
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import OPEN_TAPE, Graph, Handle, Whole
from symgrad.expr.graph.place import OnePlace, describe
from symgrad.expr.graph.rebuild import substituted
from symgrad.expr.graph.region import hole
from symgrad.expr.loops.open_loop import Nest, flattened, graph_among, is_memory
from symgrad.expr.tracers.array import ExprArray, TracedArray, array, in_memory, plain
from symgrad.expr.tracers.expression import Expr, as_float, lift
from symgrad.expr.tracers.integers import Word, refuse_integer
from symgrad.expr.tracers.memory import View
from symgrad.expr.tracers.tree import Tree, flatten
from symgrad.lazy import kernels


def chosen(argnums: Any, count: int) -> list[int]:
    """The arguments that ``argnums`` names, counted from the first.

    Raises:
        InputError: if it names none, or one twice.
    """
    wanted = [argnums] if isinstance(argnums, (int, np.integer)) else list(np.atleast_1d(argnums))
    if not all(isinstance(k, (int, np.integer)) for k in wanted):
        raise InputError(f"argnums={argnums!r}: the number of an argument, or several, is needed")
    if any(not -count <= k < count for k in wanted):
        raise InputError(f"argnums={argnums}: only {counted(count, 'argument')} came by position")
    positions = [int(k) % count for k in wanted]
    if len(set(positions)) < len(positions):
        raise InputError(f"argnums={argnums} names an argument twice")
    return positions


class _Inputs:
    """Fresh inputs in the place of an argument: holes, nested as it is."""

    def __init__(self, graph: Graph, argument: Any, scalars: bool = False) -> None:
        what = "an argument to differentiate for"
        _require_real(argument)
        if scalars and isinstance(argument, TracedArray):
            argument = argument.elements()
        _, nest = flattened(graph, argument, what)
        kinds = (
            k if is_memory(k) and not scalars else "f" * block.size
            for k, block in zip(nest.kinds, nest.tree.blocks, strict=True)
        )
        self.nest: Nest = replace(nest, kinds=tuple(kinds))
        with OnePlace(graph):
            self.actual = self.nest.ids(graph, argument, what)
            self.holes = [hole(graph, graph.type(i), size_of(graph, i)) for i in self.actual]

    def wrapped(self, graph: Graph, ids: Sequence[int]) -> Any:
        """Nodes, nested as the argument."""
        return self.nest.wrap(graph, ids)


def _require_real(argument: Any) -> None:
    for leaf in flatten(argument)[0]:
        if isinstance(leaf, Word):
            refuse_integer(leaf, "what is differentiated by")


class _Call:
    """A call of a function at fresh inputs: what it returned, and what it is at the arguments."""

    def __init__(
        self, f: Callable[..., Any], args: Sequence[Any], named: dict[str, Any],
        among: Sequence[int], scalars: bool = False,
    ) -> None:  # fmt: skip
        graph = graph_among(*args, *named.values())
        assert graph is not None, "nothing is traced: kernels compute the numbers"
        self.graph, self.f = graph, f
        self.inputs = [_Inputs(graph, args[k], scalars) for k in among]
        given = list(args)
        for k, fresh in zip(among, self.inputs, strict=True):
            given[k] = fresh.wrapped(graph, fresh.holes)
        self.result = f(*given, **named)

    @property
    def holes(self) -> list[int]:
        """The inputs, of all arguments in order."""
        return [h for fresh in self.inputs for h in fresh.holes]

    def at_arguments(self, ids: Sequence[int]) -> list[int]:
        """Nodes with the arguments in place of the inputs."""
        actual = [i for fresh in self.inputs for i in fresh.actual]
        return substituted(self.graph, ids, dict(zip(self.holes, actual, strict=True)))

    def scalar(self, value: Any) -> int:
        """The node of a result that is one real number."""
        if isinstance(value, np.ndarray) and not value.ndim:
            value = value.item()
        if isinstance(value, Word):
            refuse_integer(value, f"what {describe(self.f)} returned")
        if isinstance(value, (np.ndarray, TracedArray)) or not isinstance(
            value, (Handle, int, float, np.number)
        ):
            raise TraceError(
                located(f"{describe(self.f)} returned {value!r}: a gradient is of one real number")
            )
        return lift(self.graph, value).id

    def nested(self, result: Any) -> Any:
        """A result where the arguments stand for the inputs: expressions in it are of these."""
        leaves, tree = flatten(result, _leaf)
        groups = [_nodes(self.graph, leaf) for leaf in leaves]
        ids = iter(self.at_arguments([i for group in groups for i in group]))
        nested_leaves = [_again(self.graph, leaf, ids) for leaf in leaves]
        return tree.nest(iter(nested_leaves), None)

    def gradients(self, root: int) -> Iterator[Any]:
        """The derivatives of a number by each argument, nested as it is."""
        graph, holes = self.graph, self.holes
        cotangents = differentiate.vjp(graph, {root: graph.constant(1.0)}, holes)
        return self._by_argument(cotangents)

    def pulled(self, cotangents: dict[int, int]) -> Iterator[Any]:
        """The transposed derivative applied to cotangents, for each argument."""
        return self._by_argument(differentiate.vjp(self.graph, cotangents, self.holes))

    def _by_argument(self, cotangents: Sequence[int | None]) -> Iterator[Any]:
        graph, start = self.graph, len(self.graph)
        pairs = zip(cotangents, self.holes, strict=True)
        whole = [_zero(graph, h) if g is None else g for g, h in pairs]
        ids = iter(self.at_arguments(whole))
        graph.derived.append(range(start, len(graph)))
        return (fresh.wrapped(graph, [next(ids) for _ in fresh.holes]) for fresh in self.inputs)


def _zero(graph: Graph, like: int) -> int:
    n = size_of(graph, like)
    return graph.constant(0.0) if n is None else graph.intern((ZEROS, n))


def _leaf(value: Any) -> tuple[list[Any], Tree] | None:
    """Arrays and handles as they are; None of a container."""
    whole = isinstance(value, (Handle, TracedArray, np.ndarray))
    return ([value], Tree()) if whole else None


def _nodes(graph: Graph, leaf: Any) -> list[int]:
    if isinstance(leaf, Handle):
        return [leaf.id]
    if isinstance(leaf, TracedArray):
        return [in_memory(graph, leaf).view.array.id]
    if isinstance(leaf, np.ndarray) and leaf.dtype == object:
        return [e.id for e in leaf.flat if isinstance(e, Handle)]
    return []


def _again(graph: Graph, leaf: Any, ids: Iterator[int]) -> Any:
    """A leaf like this one, of other nodes."""
    if isinstance(leaf, Handle):
        return type(leaf)(graph, next(ids))
    if isinstance(leaf, TracedArray):
        whole = in_memory(graph, leaf).view.array
        return TracedArray(View.whole(type(whole)(graph, next(ids)), leaf.shape))
    if isinstance(leaf, np.ndarray) and leaf.dtype == object:
        elements = np.empty(leaf.size, dtype=object)
        elements[:] = [type(e)(graph, next(ids)) if isinstance(e, Handle) else e for e in leaf.flat]
        return elements.reshape(leaf.shape).view(type(leaf))
    return leaf


def _alone(argnums: Any, parts: Iterator[Any]) -> Any:
    return next(parts) if isinstance(argnums, (int, np.integer)) else tuple(parts)


def are_whole(*arguments: Any) -> bool:
    """Whether a function of these is one of whole arrays: one is traced, and none is an element."""
    if OPEN_TAPE.get() is None:
        return False
    return not any(isinstance(leaf, Handle) for a in arguments for leaf in flatten(a)[0])


def value_and_grad_at(
    f: Callable[..., Any], argnums: Any, has_aux: bool, args: Any, named: Any
) -> tuple[Any, Any]:
    """The value of a function of expressions and its gradient: see `value_and_grad`."""
    if are_whole(*args, *named.values()):
        nested = Whole.functions["value_and_grad"]
        value, parts = nested(f, chosen(argnums, len(args)), has_aux, args, named)
        return value, _alone(argnums, iter(parts))
    call = _Call(f, args, named, chosen(argnums, len(args)))
    value, *aux = _with_aux(call, has_aux)
    root = call.scalar(value)
    first = call.nested([Expr(call.graph, root), *aux])
    return (tuple(first) if has_aux else first[0]), _alone(argnums, call.gradients(root))


def _with_aux(call: _Call, has_aux: bool) -> tuple[Any, ...]:
    if not has_aux:
        return (call.result,)
    if not isinstance(call.result, tuple) or len(call.result) != 2:
        raise TraceError(
            located(f"{describe(call.f)} returns a pair with has_aux, not {call.result!r}")
        )
    return call.result


def are_numbers(*arguments: Any) -> bool:
    """Whether arguments are numbers, and nothing is traced: kernels compute the result."""
    return OPEN_TAPE.get() is None and graph_among(*arguments) is None


def grad(f: Callable[..., Any], argnums: Any, has_aux: bool) -> Callable[..., Any]:
    """A function that gives the gradient of f, and what else it returns."""
    of_numbers = functools.cache(lambda: kernels.value_and_grad(f, argnums, has_aux))

    @functools.wraps(f)
    def gradient(*args: Any, **named: Any) -> Any:
        if are_numbers(*args, *named.values()):
            value, derivatives = of_numbers()(*args, **named)
        else:
            value, derivatives = value_and_grad_at(f, argnums, has_aux, args, named)
        return (derivatives, value[1]) if has_aux else derivatives

    return gradient


def jacobian(f: Callable[..., Any], argnums: Any, mode: Mode) -> Callable[..., Any]:
    """A function that gives the derivatives of all results of f, shaped as results, arguments."""
    of_numbers = functools.cache(lambda: kernels.jit(matrix))

    @functools.wraps(f)
    def matrix(*args: Any, **named: Any) -> Any:
        if are_numbers(*args, *named.values()):
            return of_numbers()(*args, **named)
        if are_whole(*args, *named.values()):
            of_whole = Whole.functions["jacobian"]
            tree, parts = of_whole(f, chosen(argnums, len(args)), mode, args, named)
            return tree.nest(_alone(argnums, iter(part)) for part in parts)
        call = _Call(f, args, named, chosen(argnums, len(args)), scalars=True)
        graph = call.graph
        roots, tree = flatten(call.result, lambda value: _numbers(graph, value))
        entries, _ = accumulated(graph, Sought(roots, call.holes), mode)
        places = sorted(entries)
        start = len(graph)
        ids = call.at_arguments([entries[p] for p in places])
        graph.derived.append(range(start, len(graph)))
        dense = np.zeros((len(roots), len(call.holes)), dtype=object)
        dense[:] = 0.0
        for place, i in zip(places, ids, strict=True):
            dense[place] = Expr(graph, i)
        return tree.nest(_by_results(call, tree, dense, argnums), None)

    return matrix


def _by_results(call: _Call, tree: Tree, dense: np.ndarray, argnums: Any) -> Iterator[Any]:
    """For each array of results the derivatives by each argument, nested as that is."""
    for out in tree.blocks:
        rows = dense[out.start : out.start + out.size]

        def parts(rows: np.ndarray = rows, shape: tuple[int, ...] = out.shape) -> Iterator[Any]:
            start = 0
            for fresh in call.inputs:
                inner = fresh.nest.tree
                columns = rows[:, start : start + len(fresh.holes)]
                start += len(fresh.holes)
                blocks = (
                    columns[:, b.start : b.start + b.size].reshape((*shape, *b.shape))
                    for b in inner.blocks
                )
                yield inner.nest((_shaped(b) for b in blocks), None)

        yield _alone(argnums, parts())


def _shaped(a: np.ndarray) -> Any:
    return a.view(ExprArray) if a.ndim else a[()]


def _numbers(graph: Graph, value: Any) -> tuple[list[int], Tree] | None:
    """The nodes of a number or an array; None of a container."""
    if isinstance(value, (Handle, int, float, np.number)):
        return [lift(graph, as_float(value)).id], Tree()
    if isinstance(value, (np.ndarray, TracedArray)):
        elements = plain(value)
        return [lift(graph, as_float(e)).id for e in elements.flat], Tree("array", elements.shape)
    return None


def jvp(f: Callable[..., Any], primals: Any, tangents: Any) -> tuple[Any, Any]:
    """The value of f, and how it changes along the tangents."""
    if not isinstance(primals, (tuple, list)) or len(primals) != len(tangents):
        raise InputTypeError(
            located("sg.jvp(f, primals, tangents) takes two tuples, an entry for each argument")
        )
    if are_numbers(*primals, *tangents):
        return kernels.jit(functools.partial(jvp, f))(primals, tangents)
    if are_whole(*primals, *tangents):
        return Whole.functions["jvp"](f, primals, tangents)
    call = _Call(f, primals, {}, range(len(primals)), scalars=True)
    graph = call.graph
    tangent_ids = [
        i
        for fresh, tangent in zip(call.inputs, tangents, strict=True)
        for i in fresh.nest.ids(graph, tangent, "a tangent")
    ]
    zero = graph.constant(0.0)
    seeds = {h: t for h, t in zip(call.holes, tangent_ids, strict=True) if t != zero}
    roots, tree = flatten(call.result, lambda value: _numbers(graph, value))
    derivatives = differentiate.jvp(graph, seeds, roots) if seeds else [None] * len(roots)
    moved = call.at_arguments([zero if i is None else i for i in derivatives])
    flat = np.empty(len(roots), dtype=object)
    flat[:] = [Expr(graph, i) for i in moved]
    blocks = (_shaped(np.asarray(b.of(flat))) for b in tree.blocks)
    return call.nested(call.result), tree.nest(blocks, None)


def vjp(f: Callable[..., Any], primals: Any, has_aux: bool) -> tuple[Any, ...]:
    """The value of f, and what makes cotangents of the arguments of one of the value."""
    if are_numbers(*primals):
        return _vjp_of_numbers(f, primals, has_aux)
    if are_whole(*primals):
        return Whole.functions["vjp"](f, primals, has_aux)
    call = _Call(f, primals, {}, range(len(primals)))
    graph = call.graph
    value, *aux = _with_aux(call, has_aux)
    roots, tree = flatten(value, lambda part: _numbers(graph, part))

    def pull(cotangent: Any) -> tuple[Any, ...]:
        parts = tree.parts(cotangent, "a cotangent")
        given = [e for part in parts for e in array(part).flat]
        seeds: dict[int, list[int]] = {}
        for root, g in zip(roots, given, strict=True):
            if isinstance(g, Handle) or g != 0:
                seeds.setdefault(root, []).append(lift(graph, g).id)
        sums = {r: differentiate.balanced_sum(graph, parts) for r, parts in seeds.items()}
        return tuple(call.pulled(sums))

    return (call.nested(value), pull, *[call.nested(a) for a in aux])


def _vjp_of_numbers(f: Callable[..., Any], primals: Any, has_aux: bool) -> tuple[Any, ...]:
    value = kernels.jit(f)(*primals)
    pulled = kernels.jit(lambda primals, g: vjp(f, primals, has_aux)[1](g))
    pull = functools.partial(pulled, primals)
    return (value[0], pull, value[1]) if has_aux else (value, pull)


def hvp(f: Callable[..., Any], point: Any, vector: Any) -> Any:
    """The Hessian of f at a point, times a vector: forward over reverse."""
    return jvp(grad(f, 0, False), (point,), (vector,))[1]
