"""Names: identifiers that WGSL takes, different ones, the user's where possible."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symgrad.expr import ops
from symgrad.expr.graph.node import Graph
from symgrad.kernel.shapes import Computation, Output, unique
from symgrad.wgsl.printing.printer import print_map
from symgrad.wgsl.printing.source import Style, identifier

IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
RESERVED = [
    "fn",
    "let",
    "var",
    "struct",
    "loop",
    "f32",
    "vec3",
    "override",
    "enable",
    "NULL",
    "Self",
    "async",
    "std",
    "this",
    "read",
    "read_write",
    "storage",
    "workgroup",
]


def names(*given: str) -> list[str]:
    """What a kernel calls its inputs."""
    graph = Graph()
    roots = tuple(graph.add(ops.neg, graph.input(name)) for name in given)
    made = Computation("f", graph, (Output("loss", roots),))
    (source,) = print_map(made, Style()).modules
    read = re.findall(r"let (\w+) = \w+(?:\[point.*\]|\.[xyzw]);", source)
    return [name for name in read if f" {name}.x;" not in source]


@pytest.mark.parametrize("name", ["a", "mass", "x0", "theta_1", "aB9", "m_"])
def test_good_names_are_kept(name: str) -> None:
    assert identifier(name) == name


@pytest.mark.parametrize(
    "name",
    [
        *RESERVED,
        "params",
        "tile",
        "scratch",
        "main",
        "point",
        "cell",
        "first",
        "local",
        "rows",
        "min",
        "select",
        "bitcast",
        "clamp",
        "array",
        "t12",
        "sg_tanh",
        "stride",
        "true",
        "sqrt",
    ],
)
def test_names_that_mean_something_else_are_changed(name: str) -> None:
    """WGSL's own, and the kernel's own."""
    found = names(name)[0]
    assert found != name and IDENTIFIER.fullmatch(found)


@pytest.mark.parametrize("name", ["x", "loss"])
def test_arrays_give_way_to_the_names_of_inputs(name: str) -> None:
    assert names(name) == [name]


@pytest.mark.parametrize(
    "name", ["", "_", "__", "1a", "größe", "ξ", "a b", "a-b", "x__y", "a.b", "名前", "a\n}"]
)
def test_other_names_are_made_identifiers(name: str) -> None:
    assert IDENTIFIER.fullmatch(names(name)[0])


@given(
    st.lists(
        st.text(max_size=6) | st.sampled_from([*RESERVED, "a", "a_2", "a_3", "v_x", "x", "x_quad"]),
        max_size=12,
    )
)
def test_names_are_different_identifiers(given_names: list[str]) -> None:
    found = names(*given_names) if given_names else []
    assert len(set(found)) == len(found) == len(given_names)
    assert all(IDENTIFIER.fullmatch(n) for n in found)
    assert not set(found) & {*RESERVED}


def test_unique() -> None:
    assert unique(["a", "b"]) == ["a", "b"]
    assert unique(["a", "a", "a"])[0] == "a" and len(set(unique(["a", "a", "a_2", "a"]))) == 4
