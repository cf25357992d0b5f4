"""Places: every node knows the user's line that made it."""

from __future__ import annotations

import linecache
from typing import Any

import numpy as np
import pytest

from symgrad.expr.graph.node import Graph
from symgrad.expr.graph.place import Place, resolve_places
from symgrad.expr.tracers import functions
from symgrad.expr.tracing.trace import trace


def helper(x: Any) -> Any:
    return functions.sin(x)  # in a helper


def f(v: Any) -> Any:
    a = v[0] * 2.0  # multiply
    b = np.exp(a)  # a ufunc
    c = helper(b)
    d = (v @ v +
         v[1])  # fmt: skip
    return a + b + c + np.sum(v**3) + d


LINES = {
    "mul": "a = v[0] * 2.0  # multiply",
    "exp": "b = np.exp(a)  # a ufunc",
    "sin": "return functions.sin(x)  # in a helper",
    "integer_pow": "return a + b + c + np.sum(v**3) + d",
}


@pytest.mark.parametrize("name", LINES)
def test_lines(name: str) -> None:
    graph = trace(f, 2).graph
    (place,) = {graph.place_of(i) for i, node in enumerate(graph.nodes) if node[0].name == name
                and (name != "mul" or graph.value(node[2]) == 2.0)}  # fmt: skip
    assert place is not None and place.file == __file__
    assert place.text == LINES[name] == linecache.getline(__file__, place.line).strip()
    assert str(place) == f'{__file__}:{place.line}: "{LINES[name]}"'


def test_inputs_have_none() -> None:
    graph = trace(f, 2).graph
    assert graph.place_of(0) is None


def test_no_code_object_is_kept() -> None:
    graph = trace(f, 2).graph
    assert all(s is None or isinstance(s, Place) for s in graph.sources)
    assert not graph.known
    resolve_places(graph)  # again: nothing is left to do


def test_source_that_is_not_in_a_file() -> None:
    scope: dict[str, Any] = {}
    exec("def g(v):\n    return v[0] * 3.0", scope)
    graph = trace(scope["g"], 1).graph
    place = graph.place_of(len(graph) - 1)
    assert place is not None and (place.file, place.line, place.text) == ("<string>", 2, "")
    assert str(place) == "<string>:2"


def test_one_place_for_an_instruction_however_often_it_runs() -> None:
    def loop(v: Any) -> Any:
        z = v[0]
        for _ in range(50):
            z = z * z
        return z

    graph = trace(loop, 1).graph
    assert len(graph.sources) == 2


def test_instructions_of_different_functions_are_told_apart() -> None:
    """Code objects that are freed during a trace may have their addresses used again."""

    def g(v: Any) -> Any:
        z = v[0]
        for k in range(30):
            scope: dict[str, Any] = {}
            exec(compile(f"def h(x):\n    return x * {k + 0.5}", f"<part {k}>", "exec"), scope)
            z = scope["h"](z)
            del scope
        return z

    graph = trace(g, 1).graph
    files = {p.file for i in range(1, len(graph)) if (p := graph.place_of(i)) and "part" in p.file}
    assert len(files) == 30


def test_graphs_that_are_not_traced_have_no_places() -> None:
    graph = Graph()
    graph.tracing = False
    graph.input("x")
    assert graph.places == [0] and graph.place_of(0) is None
