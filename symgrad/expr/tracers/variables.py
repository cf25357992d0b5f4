"""Free variables: expressions without a traced function."""

from __future__ import annotations

import re
import threading
import weakref

from symgrad.errors import InputError, InputTypeError
from symgrad.expr.graph.node import INPUT, Graph
from symgrad.expr.tracers.expression import Expr

_here = threading.local()
"""Each thread's arena of free variables, kept alive by its expressions alone."""


def var(name: str) -> Expr:
    """A free variable; the same name gives the same one while any of its expressions lives.

    Raises:
        InputTypeError: if the name is no string. InputError: if it is no identifier.

    Example:
        >>> import symgrad as sg
        >>> x = sg.var("x")
        >>> sg.evaluate(x + 1, {x: 2.0})
        3.0
    """
    if not isinstance(name, str):
        raise InputTypeError(f"a variable's name is a string, not {name!r}")
    if not name.isidentifier():
        raise InputError(f"{name!r} is not a valid variable name: use letters, digits and _")
    graph = _arena()
    if name in graph.names:
        return Expr(graph, graph.intern((INPUT, graph.names.index(name))))
    return Expr(graph, graph.input(name))


def symbols(names: str) -> list[Expr]:
    """Several variables: ``"x y z"``, ``"x, y"``, or a range, ``"x0:4"`` for x0 to x3.

    Example:
        >>> import symgrad as sg
        >>> [repr(v) for v in sg.symbols("a b0:2")]
        ['a', 'b0', 'b1']
    """
    words = [w for w in re.split(r"[\s,]+", names) if w]
    if not words:
        raise InputError("symbols needs the name of at least one variable")
    graph = _arena()  # one arena for all, also where each would be freed before the next is made
    variables = [var(name) for word in words for name in _range(word)]
    assert all(v.graph is graph for v in variables), "variables made together share an arena"
    return variables


def _arena() -> Graph:
    graph = getattr(_here, "graph", lambda: None)()
    if graph is None:
        graph = Graph()
        _here.graph = weakref.ref(graph)
    return graph


def _range(word: str) -> list[str]:
    match = re.fullmatch(r"(\w*?)(\d*):(\d+)", word)
    if not match:
        return [word]
    return [f"{match[1]}{k}" for k in range(int(match[2] or 0), int(match[3]))]
