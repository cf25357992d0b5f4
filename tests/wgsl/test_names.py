"""Names: identifiers that WGSL takes, different ones, the user's where possible."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symgrad.expr.graph.node import Graph
from symgrad.wgsl.names import identifier, names_of_inputs, unique

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
]


def names(*given: str) -> list[str]:
    graph = Graph()
    for name in given:
        graph.input(name)
    return names_of_inputs(graph)


@pytest.mark.parametrize("name", ["a", "mass", "x0", "theta_1", "aB9", "m_"])
def test_good_names_are_kept(name: str) -> None:
    assert identifier(name) == name


@pytest.mark.parametrize(
    "name",
    [
        *RESERVED,
        "x",
        "params",
        "tile",
        "scratch",
        "main",
        "point",
        "cell",
        "first",
        "local",
        "rows",
        "k",
        "min",
        "select",
        "bitcast",
        "clamp",
        "array",
        "t12",
        "s3",
        "sg_tanh",
        "part_0",
        "stride",
        "true",
        "sqrt",
        "loss",
        "grad",
        "values",
        "hessian",
        "jacobian",
        "product",
    ],
)
def test_names_that_mean_something_else_are_prefixed(name: str) -> None:
    """WGSL's own, the kernel's own, and those of the arrays of results, which kernels write to."""
    found = names(name)[0]
    assert found != name and IDENTIFIER.fullmatch(found)


@pytest.mark.parametrize(
    "name", ["", "_", "__", "1a", "größe", "ξ", "a b", "a-b", "x__y", "a.b", "名前", "a\n}"]
)
def test_other_names_are_made_identifiers(name: str) -> None:
    assert IDENTIFIER.fullmatch(names(name)[0])


@given(
    st.lists(
        st.text(max_size=6) | st.sampled_from([*RESERVED, "a", "a_2", "a_3", "v_fn", "v_x", "x"]),
        max_size=12,
    )
)
def test_names_are_different_identifiers(given_names: list[str]) -> None:
    found = names(*given_names)
    assert len(set(found)) == len(found) == len(given_names)
    assert all(IDENTIFIER.fullmatch(n) for n in found)
    assert not set(found) & {*RESERVED, "x"}


def test_unique() -> None:
    assert unique(["a", "b"]) == ["a", "b"]
    assert unique(["a", "a", "a"])[0] == "a" and len(set(unique(["a", "a", "a_2", "a"]))) == 4
