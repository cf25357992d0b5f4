"""Derivatives, values and substitution of expressions: what users call on them."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from symgrad.errors import InputError, NamesakeWarning, TraceError
from symgrad.expr.calls import transforms
from symgrad.expr.derivatives import differentiate
from symgrad.expr.derivatives.accumulate import Entries, Mode, Sought, accumulated
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import INPUT, Graph, Handle, leaves, reachable
from symgrad.expr.graph.place import resolve_places
from symgrad.expr.graph.region import regions
from symgrad.expr.loops.open_loop import require_closed
from symgrad.expr.semantics.evaluate import evaluate_graph
from symgrad.expr.tracers.array import ExprArray, TracedArray, array
from symgrad.expr.tracers.expression import Expr, lift, node_name, require_graph
from symgrad.expr.tracers.integers import Word, refuse_integer
from symgrad.expr.tracers.tree import Tree, flatten


def grad(expr: Any, wrt: Any = None, *, argnums: Any = None, has_aux: bool = False) -> Any:
    """The derivatives of an expression, by one reverse sweep: df/dx for each x of ``wrt``.

    ``wrt`` is a variable, giving one expression, or a sequence of them, giving an array of the
    same shape, or a dict of either, as named parameters are, giving a dict of them. Any expression
    that was made on the way to ``expr`` may stand for a variable; a warning says so where what
    else the function computes is the same expression, by which it is differentiated too.

    Of a function it is what ``jax.grad`` is: ``sg.grad(f, argnums=0)`` is a function that gives the
    gradient of f, nested as the arguments ``argnums``; with ``has_aux`` f returns a pair, and so
    does the gradient: itself, and what f returned second. At numbers it is that of
    `value_and_grad`, which has options; inside a traced function it is a part of that.

    Raises:
        ForeignExpressionError: if ``wrt`` belongs to another trace than ``expr``.
        TraceError: for what is neither an expression nor a function.

    Example:
        >>> import symgrad as sg
        >>> x, y = sg.symbols("x y")
        >>> sg.grad(x * y + sg.sin(x), x)
        y + cos(x)
        >>> sg.evaluate(sg.grad(lambda t: t**3)(x * y), {x: 1.0, y: 2.0})
        12.0
        >>> sg.grad(lambda t: t**3)(2.0)
        np.float32(12.0)
    """
    if callable(expr):
        return transforms.grad(expr, _argnums("grad", wrt, argnums), has_aux)
    _require_wrt("grad", wrt)
    graph = require_expression(expr).graph
    ids = _ids(graph, wrt)
    _warn_of_namesakes(graph, ids)
    derivatives = differentiate.vjp(graph, {expr.id: graph.constant(1.0)}, ids)
    return _shaped(wrt, [_or_zero(graph, i) for i in derivatives])


def _argnums(verb: str, second: Any, argnums: Any) -> Any:
    """The arguments to differentiate a function for, given in order or by name."""
    if second is not None and argnums is not None:
        raise InputError("argnums is given twice")
    wanted = next((k for k in (second, argnums) if k is not None), 0)
    each = wanted if isinstance(wanted, (tuple, list)) else [wanted]
    if not all(isinstance(k, (int, np.integer)) for k in each):
        raise InputError(
            f"sg.{verb}(f, {wanted!r}): the second argument says which arguments of f to "
            f"differentiate for, by their numbers; at a point, sg.{verb}(f)(x)"
        )
    return wanted


def _require_wrt(verb: str, wrt: Any) -> None:
    if wrt is None:
        raise TraceError(f"sg.{verb}(expr, wrt) needs the variables to differentiate for")


def vjp(
    exprs: Any, *primals: Any, wrt: Any = None, cotangents: Any = None, has_aux: bool = False
) -> Any:
    """The vector-Jacobian product: the derivatives of sum(cotangent * expr), in one sweep.

    ``sg.vjp(exprs, wrt, cotangents)`` is nested as ``wrt``. Of a function, at numbers or
    inside a trace, ``sg.vjp(f, *primals)`` is what ``jax.vjp`` is: the value of f, and a function
    that makes a tuple of cotangents, one for each argument, of a cotangent of the value.

    Example:
        >>> import symgrad as sg
        >>> x, y = sg.symbols("x y")
        >>> sg.vjp([x * y, x + y], [x, y], [1.0, 3.0])[0]
        y + 3
    """
    if callable(exprs):
        return transforms.vjp(exprs, primals, has_aux)
    others = [*primals, *(v for v in (wrt, cotangents) if v is not None)]
    if len(others) != 2:
        raise TraceError("sg.vjp(exprs, wrt, cotangents) needs the variables, and the cotangents")
    wrt, cotangents = others
    outputs = _outputs(exprs)
    graph = require_expression(outputs[0]).graph
    total: dict[int, list[int]] = {}
    for output, cotangent in zip(outputs, _list(cotangents), strict=True):
        if not _is_number_zero(cotangent):
            total.setdefault(output.id, []).append(lift(graph, cotangent).id)
    sums = {i: differentiate.balanced_sum(graph, parts) for i, parts in total.items()}
    derivatives = differentiate.vjp(graph, sums, _ids(graph, wrt))
    return _shaped(wrt, [_or_zero(graph, i) for i in derivatives])


def jvp(exprs: Any, wrt: Any, tangents: Any) -> Any:
    """The Jacobian-vector product: how the expressions change along the tangents, forward mode.

    Of a function, at numbers or inside a trace, ``sg.jvp(f, primals, tangents)`` is what
    ``jax.jvp`` is: the value of f and its tangent; primals and tangents are tuples with an entry
    for each argument.

    Example:
        >>> import symgrad as sg
        >>> x, y = sg.symbols("x y")
        >>> sg.jvp(x * y, [x, y], [1.0, 0.0])
        y
    """
    if callable(exprs):
        return transforms.jvp(exprs, wrt, tangents)
    outputs = _outputs(exprs)
    graph = require_expression(outputs[0]).graph
    seeds = {
        i: lift(graph, t).id
        for i, t in zip(_ids(graph, wrt), _list(tangents), strict=True)
        if not _is_number_zero(t)
    }
    derivatives = differentiate.jvp(graph, seeds, [o.id for o in outputs])
    return _shaped(exprs, [_or_zero(graph, i) for i in derivatives])


def hvp(expr: Any, wrt: Any, vector: Any) -> Any:
    """The product of the Hessian with a vector, forward over reverse: it costs a few gradients.

    Of a function of one argument ``sg.hvp(f, x, vector)`` is that at x, numbers or traced.

    Example:
        >>> import symgrad as sg
        >>> x, y = sg.symbols("x y")
        >>> sg.hvp(x * x * y, [x, y], [0.0, 1.0])[0]
        x * 2
    """
    if callable(expr):
        return transforms.hvp(expr, wrt, vector)
    return jvp(grad(expr, wrt), wrt, vector)


@dataclass(frozen=True, eq=False)
class Jacobian:
    """A matrix of derivatives, of which only the entries that are not structurally 0 are kept.

    Entry k stands in row ``rows[k]`` and column ``columns[k]``, row by row. They were made in
    "forward", "reverse" or "mixed" ``mode``.

    Example:
        >>> import symgrad as sg
        >>> x, y = sg.symbols("x y")
        >>> jacobian = sg.jacobian([x * y, y**2], [x, y])
        >>> [(int(i), int(j)) for i, j in zip(jacobian.rows, jacobian.columns)]  # (1, 0) is none
        [(0, 0), (0, 1), (1, 1)]
    """

    shape: tuple[int, int]
    rows: tuple[int, ...]
    columns: tuple[int, ...]
    entries: tuple[Expr, ...]
    mode: Mode

    @property
    def nnz(self) -> int:
        """The number of entries that are not structurally 0."""
        return len(self.entries)

    @property
    def pattern(self) -> np.ndarray:
        """Where the entries are, a bool array of the matrix's shape."""
        result = np.zeros(self.shape, dtype=bool)
        result[list(self.rows), list(self.columns)] = True
        return result

    def toarray(self) -> ExprArray:
        """The matrix as an array of expressions, with 0.0 where it is structurally 0."""
        result = np.full(self.shape, 0.0, dtype=object)
        for r, c, entry in zip(self.rows, self.columns, self.entries, strict=True):
            result[r, c] = entry
        return result.view(ExprArray)

    def __getitem__(self, index: Any) -> Any:
        return self.toarray()[index]

    def __repr__(self) -> str:
        return f"<Jacobian {self.shape[0]} x {self.shape[1]} with {self.nnz} entries>"


def jacobian(exprs: Any, wrt: Any = None, mode: Mode = "auto", *, argnums: Any = None) -> Any:
    """The Jacobian of expressions with respect to variables, with its sparsity.

    Of a function ``sg.jacobian(f, argnums=0)`` is what ``jax.jacobian`` is: a function that gives
    arrays, shaped as the results and then as the arguments. Inside a trace they are of expressions;
    at numbers they are those of ``sg.jit(sg.jacobian(f))``, to which `jit` gives options.

    ``mode`` is "reverse", "forward", "mixed", or "auto" for the cheapest: see `fused_jacobian`.
    Only what is not structurally 0 is computed, so a sparse Jacobian of any size costs as much as
    its entries.

    Raises:
        InputError: for another mode.

    Example:
        >>> import symgrad as sg
        >>> x, y = sg.symbols("x y")
        >>> sg.jacobian([x * x, x * y], [x, y]).pattern
        array([[ True, False],
               [ True,  True]])
    """
    if callable(exprs):
        return transforms.jacobian(exprs, _argnums("jacobian", wrt, argnums), mode)
    _require_wrt("jacobian", wrt)
    outputs, variables = _outputs(exprs), _list(wrt)
    graph = _common_graph([*outputs, *variables])
    roots = [o.id if isinstance(o, Handle) else None for o in outputs]
    entries = accumulated(graph, Sought(roots, _ids(graph, wrt)), mode)
    return _matrix(graph, *entries, (len(outputs), len(variables)))


def hessian(expr: Any, wrt: Any = None, mode: Mode = "auto", *, argnums: Any = None) -> Any:
    """The Hessian of an expression, with its sparsity: the Jacobian of its gradient.

    Of a function ``sg.hessian(f, argnums=0)`` is what ``jax.hessian`` is: see `jacobian`.

    It is symmetric; each pair of entries is one expression. ``mode`` is that of `jacobian`; the
    gradient itself is made in reverse.

    Example:
        >>> import symgrad as sg
        >>> x, y = sg.symbols("x y")
        >>> sg.hessian(x**2 * y, [x, y]).toarray()[0, 0]
        y * 2
        >>> sg.hessian(lambda t: t**3)(2.0)
        np.float32(12.0)
    """
    if callable(expr):
        by = _argnums("hessian", wrt, argnums)
        return transforms.jacobian(transforms.grad(expr, by, has_aux=False), by, mode)
    _require_wrt("hessian", wrt)
    graph = require_expression(expr).graph
    ids = _ids(graph, wrt)
    gradient = differentiate.vjp(graph, {expr.id: graph.constant(1.0)}, ids)
    entries = accumulated(graph, Sought(gradient, ids, symmetric=True), mode)
    return _matrix(graph, *entries, (len(ids), len(ids)))


def _matrix(graph: Graph, entries: Entries, mode: Mode, shape: tuple[int, int]) -> Jacobian:
    ordered = sorted(entries)
    return Jacobian(
        shape,
        tuple(r for r, _ in ordered),
        tuple(c for _, c in ordered),
        tuple(Expr(graph, entries[rc]) for rc in ordered),
        mode,
    )


# --- values ---------------------------------------------------------------------------------------


def evaluate(expr: Any, values: Mapping[Any, Any], dtype: Any = np.float64) -> Any:
    """The value of an expression, by the NumPy reference that every device must agree with.

    ``values`` maps variables, or their names, to numbers or arrays, which broadcast. An array of
    expressions gives an array with its axes first.

    Raises:
        InputError: if a variable that the expression needs has no value.

    Example:
        >>> import symgrad as sg
        >>> x = sg.var("x")
        >>> sg.evaluate(x * x, {x: [1.0, 2.0, 3.0]})
        array([1., 4., 9.])
    """
    exprs = _list(expr)
    graph = _common_graph(exprs)
    given = {_variable(graph, k): np.asarray(v, dtype=dtype) for k, v in values.items()}
    kept = [isinstance(e, Handle) and not isinstance(e, Word) for e in exprs]
    roots = [e.id if k else lift(graph, e).id for e, k in zip(exprs, kept, strict=True)]
    _require_values(graph, roots, given)
    shape = np.broadcast_shapes(*[v.shape for v in given.values()])
    flat = {
        i: np.ascontiguousarray(np.broadcast_to(v, shape)).reshape(-1) for i, v in given.items()
    }
    results = [np.array(r).reshape(shape) for r in evaluate_graph(graph, roots, flat, dtype)]
    if isinstance(expr, Handle):
        return results[0] if shape else results[0].item()
    return np.array(results).reshape(np.shape(array(expr)) + shape)


def _variable(graph: Graph, key: Any) -> int:
    if isinstance(key, Handle):
        require_graph(graph, key)
        return key.id
    return graph.input_named(key)


def _require_values(graph: Graph, roots: Iterable[int], given: Mapping[int, Any]) -> None:
    require_closed(graph, roots)
    needed = [i for i in leaves(graph, reachable(graph, roots)) if graph.nodes[i][0] is INPUT]
    missing = [node_name(Expr(graph, i)) for i in needed if i not in given]
    if missing:
        raise InputError(f"no value for {', '.join(missing[:5])}: give one for every variable")


def count_ops(expr: Any) -> dict[str, int]:
    """How often each operation occurs in an expression (or several), shared ones counted once.

    What stands in a loop counts once, however many iterations it takes.

    Example:
        >>> import symgrad as sg
        >>> x = sg.var("x")
        >>> sg.count_ops(sg.sin(x) * sg.sin(x) + 1)
        {'add': 1, 'mul': 1, 'sin': 1}
    """
    exprs = _list(expr)
    graph = _common_graph(exprs)
    roots = [e.id for e in exprs if isinstance(e, Handle)]
    inner = [(body.graph, body.yields) for body in regions(graph, roots)]
    counts = Counter(
        part.nodes[i][0].name
        for part, ends in ((graph, roots), *inner)
        for i in reachable(part, ends)
        if part.nodes[i][0].arity
    )
    return dict(sorted(counts.items()))


# --- arguments ------------------------------------------------------------------------------------


def require_expression(value: Any) -> Handle:
    """The value, if it is an expression that has derivatives."""
    if not isinstance(value, Handle):
        raise TraceError(f"expected an expression of sg.var or sg.symbols, not {value!r}")
    if isinstance(value, Word):
        refuse_integer(value, "what is differentiated")
    return value


def _outputs(exprs: Any) -> list[Any]:
    outputs = _list(exprs)
    for value in outputs:
        if isinstance(value, Word):
            refuse_integer(value, "what is differentiated")
    return outputs


def _list(values: Any) -> list[Any]:
    return flatten(values, _elements)[0]


def _elements(values: Any) -> tuple[list[Any], Tree] | None:
    """The elements of an array, or of what is one; None of a mapping."""
    if isinstance(values, Handle):
        return [values], Tree()
    if isinstance(values, Mapping):
        return None
    elements = np.asarray(array(values))
    return list(elements.flat), Tree("array", elements.shape)


def _common_graph(values: Sequence[Any]) -> Graph:
    handles = [v for v in values if isinstance(v, Handle)]
    if not handles:
        raise TraceError("expected at least one expression of sg.var or sg.symbols")
    for h in handles:
        require_graph(handles[0].graph, h)
    return handles[0].graph


def _ids(graph: Graph, wrt: Any) -> list[int]:
    variables = flatten(wrt, _variables)[0]
    for v in variables:
        require_graph(graph, _require_variable(v))
        if isinstance(v, Word):
            refuse_integer(v, "what is differentiated by")
    return [v.id for v in variables]


def _warn_of_namesakes(graph: Graph, ids: Iterable[int]) -> None:
    """Warn of variables that are expressions which the function wrote on several lines."""
    wanted = {i for i in ids if graph.nodes[i][0].arity}
    again = [(i, place) for _, i, place in graph.repeats or () if i in wanted and place]
    apart = next(((i, place) for i, place in again if place != graph.places[i]), None)
    if apart is None:
        return
    resolve_places(graph)
    i, place = apart
    warnings.warn(
        located(
            f"the derivative is taken with respect to {Expr(graph, i)!r}, which two lines compute "
            f"({graph.place_of(i)} and {graph.sources[place]}): both count as the variable; use "
            "sg.grad of a function to tell them apart"
        ),
        NamesakeWarning,
        stacklevel=3,
    )


def _variables(values: Any) -> tuple[list[Any], Tree] | None:
    """As `_elements`; those of an array in memory are read anew, and nothing depends on them."""
    among = values if isinstance(values, (list, tuple)) else [values]
    if any(isinstance(v, TracedArray) for v in among):
        raise TraceError(
            located(
                "the variables to differentiate for are an array that a loop gave or that was "
                "written to: give the expressions that it was made of"
            )
        )
    return _elements(values)


def _require_variable(value: Any) -> Handle:
    """The variable to differentiate for, if it is an expression."""
    if not isinstance(value, Handle):
        kind = "a number" if isinstance(value, (int, float, np.number)) else type(value).__name__
        raise TraceError(
            f"the variables to differentiate for hold {value!r}, {kind}: give the expressions "
            "themselves, of sg.var, sg.symbols or a traced function, and numbers afterwards, to "
            "sg.evaluate; of a function at numbers, use sg.value_and_grad(f)(x)"
        )
    return value


def _or_zero(graph: Graph, i: int | None) -> Expr:
    return Expr(graph, graph.constant(0.0) if i is None else i)


def _is_number_zero(value: Any) -> bool:
    return not isinstance(value, Handle) and value == 0


def _shaped(like: Any, results: list[Expr]) -> Any:
    flat = np.empty(len(results), dtype=object)
    flat[:] = results
    row = flat.view(ExprArray)
    _, tree = flatten(like, _elements)
    return tree.nest(block.of(row)[()] for block in tree.blocks)
