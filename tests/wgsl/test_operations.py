"""Expressions as text: literals that read back, and as few parentheses as are right."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import Drawn, bits, graphs, points, random_graph, values

from symgrad.expr import ops
from symgrad.expr.graph.node import CONST, INPUT, INTEGER, TRUTH, WORD, Graph, float_bits, reachable
from symgrad.expr.tracers.expression import Expr
from symgrad.mathlib.barriers import with_barriers
from symgrad.wgsl.printing.operations import DOUBLE, PRIMARY, SINGLE, Floats, form_of, render

OPERATORS = (
    ops.add,
    ops.sub,
    ops.mul,
    ops.div,
    ops.neg,
    ops.reciprocal,
    ops.abs,
    ops.sqrt,
    ops.where,
    ops.lt,
    ops.le,
    ops.eq,
    ops.ne,
    ops.logical_and,
    ops.logical_or,
    ops.logical_xor,
    ops.logical_not,
    ops.isnan,
    ops.isinf,
    ops.isfinite,
    ops.floor,
    ops.copysign,
    ops.opaque,
)
"""Rows with a WGSL text that rounds as NumPy does."""

WRITTEN = re.compile(r"(?<![\w.])(\d+\.?\d*(?:e[+-]?\d+)?)f\b")


class Params:
    nan, infinity = np.float32(math.nan), np.float32(math.inf)
    zero = np.uint32(0)


SCOPE: dict[str, Any] = {
    "params": Params,
    "F": np.float32,
    "U": np.uint32,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "select": lambda b, a, c: np.where(c, a, b),
    "u_bits": lambda x: np.asarray(x, np.float32).view(np.uint32),
    "f_bits": lambda x: np.asarray(x, np.uint32).view(np.float32),
    "true": np.True_,
    "false": np.False_,
}


def python(text: str) -> str:
    """WGSL as Python, with the same parentheses; what binds differently is always in them."""
    text = text.replace("bitcast<u32>", "u_bits").replace("bitcast<f32>", "f_bits")
    text = re.sub(r"\b(0x[0-9a-f]+)u", r"U(\1)", text)
    text = re.sub(r"!(?!=)", "~", text)
    return WRITTEN.sub(r"F(\1)", text)


def read(text: str, **scope: Any) -> Any:
    with np.errstate(all="ignore"):
        return eval(python(text), SCOPE | scope)


def same(a: Any, b: Any) -> bool:
    return bool(bits(np.asarray(a, np.float32)) == bits(np.asarray(b, np.float32)))


@given(st.integers(0, 2**32 - 1))
def test_every_float32_reads_back(word: int) -> None:
    value = np.uint32(word).view(np.float32)
    text, _ = SINGLE.literal((CONST, float_bits(float(value))))
    assert same(read(text), value), text


EDGES = [
    0.0, -0.0, 1.0, -1.0, 0.1, 1e39, -1e39, 1e300, 1e-46, -1e-46, 1e-45, -1e-40, 1.1754942e-38,
    1.1754944e-38, 3.4028235e38, -3.4028235e38, 16777217.0, 1e16, 1e15, 123456792.0, 1e-5, math.inf,
    -math.inf, math.nan, 3.40282357e38, 2.0**-149, 1 / 3,
]  # fmt: skip


@pytest.mark.parametrize("value", EDGES)
def test_doubles_are_rounded_to_float32_once(value: float) -> None:
    text, _ = SINGLE.literal((CONST, float_bits(value)))
    with np.errstate(over="ignore"):
        assert same(read(text), np.float32(value)), text


@pytest.mark.parametrize("value", EDGES)
def test_literals_are_wgsl(value: float) -> None:
    text, binding = SINGLE.literal((CONST, float_bits(value)))
    number = r"-?\d+(\.\d+|(\.\d+)?e[+-]\d+)f"
    number += r"|bitcast<f32>\(0x[0-9a-f]{1,8}u\)|-?params\.(infinity|nan)"
    assert re.fullmatch(number, text), text
    assert (binding == PRIMARY) != text.startswith("-")
    if text.endswith("f"):  # Chrome refuses what is beyond the largest number before it is rounded
        assert abs(float(text[:-1])) <= float(np.finfo(np.float32).max)


@given(st.integers(0, 2**64 - 1))
def test_every_float64_reads_back(word: int) -> None:
    value = np.uint64(word).view(np.float64)
    text, _ = DOUBLE.literal((CONST, float_bits(float(value))))
    known = {"params.infinity": math.inf, "-params.infinity": -math.inf, "params.nan": math.nan}
    if match := re.fullmatch(r"bitcast<f64>\(0x([0-9a-f]+)lu\)", text):
        known[text] = float(np.uint64(int(match[1], 16)).view(np.float64))
    read_back = known[text] if text in known else float(text.removesuffix("lf"))
    assert np.float64(read_back).view(np.uint64) == word or math.isnan(value), text


def test_other_leaves() -> None:
    assert SINGLE.literal((TRUTH, 1)) == ("true", PRIMARY)
    assert SINGLE.literal((TRUTH, 0))[0] == "false"
    assert SINGLE.literal((INTEGER, -3))[0] == "-3i"
    assert SINGLE.literal((WORD, 0x7FC00000))[0] == "0x7fc00000u"
    assert SINGLE.literal((WORD, -1))[0] == "0xffffffffu"


def folded(drawn: Drawn, root: int) -> str:
    """The whole graph as one expression."""
    texts: dict[int, Any] = {}
    for i in reachable(drawn.graph, [root]):
        node = drawn.graph.nodes[i]
        if node[0] is INPUT:
            texts[i] = (drawn.graph.names[node[1]], PRIMARY)
        elif node[0].arity:
            texts[i] = render(drawn.graph, i, texts, {})
    return texts[root][0] if root in texts else SINGLE.literal(drawn.graph.nodes[root])[0]


def check(drawn: Drawn) -> None:
    at = points(3, 60)
    for x in drawn.floats[-3:]:
        text = folded(drawn, x.id)
        found = read(text, **{f"x{k}": a for k, a in enumerate(at)})
        expected = values(drawn.graph, [x.id], at)[0]
        wrong = bits(np.broadcast_to(np.asarray(found, np.float32), expected.shape)) != bits(
            expected
        )
        assert not wrong.any(), f"{text} of {drawn!r}"


@given(graphs(7, table=OPERATORS))
def test_parentheses(drawn: Drawn) -> None:
    check(drawn)


@pytest.mark.parametrize("seed", range(60))
def test_parentheses_in_larger_expressions(seed: int) -> None:
    check(random_graph(seed, size=14, table=OPERATORS[:6] if seed % 2 else OPERATORS))


def variables() -> tuple[Expr, Expr, Expr]:
    graph = Graph()
    graph.tracing = False
    return tuple(Expr(graph, graph.input(n)) for n in "abc")  # type: ignore[return-value]


A, B, C = variables()
TEXTS = {
    "c + (a + b)": A + B + C,
    "a - b - c": A - B - C,
    "a - (b - c)": A - (B - C),
    "a - (b + c)": A - (B + C),
    "c + a * b": A * B + C,
    "c * (a + b)": (A + B) * C,
    "a / b / c": A / B / C,
    "a / (b / c)": A / (B / C),
    "a / (b * c)": A / (B * C),
    "1.0f / (a * b)": ops.reciprocal(A * B),
    "-a": -A,
    "-(a + b)": -(A + B),
    "a - (-b)": ops.sub(A, -B),
    "-(-a)": -(-A),  # noqa: B002
    "2.0f * a": A * 2.0,
    "a * (-b)": A * -B,
    "exp(a + b)": ops.exp(A + B),
    "a - (-2.0f)": A - -2.0,
    "-2.0f * a": A * -2.0,
    "select(b, a, a < c)": ops.where(A < C, A, B),
    "sqrt(a * a)": ops.sqrt(A * A),
}


@pytest.mark.parametrize("text", TEXTS)
def test_texts(text: str) -> None:
    e = TEXTS[text]
    assert folded(Drawn(e.graph, [], [e]), e.id) == text


def test_logic_is_always_in_parentheses() -> None:
    e = ops.where((A < B) & ((B < C) | ~(A < C)), A, B)
    text = folded(Drawn(e.graph, [], [e]), e.id)
    assert text == "select(b, a, (a < b) & ((b < c) | !(a < c)))"


def test_division_by_a_literal_zero_is_hidden() -> None:
    for e, sign in ((A / 0.0, ""), (A / -0.0, "-"), (A / 1e-50, ""), (A / -1e-50, "-")):
        graph, (root,) = with_barriers(e.graph, [e.id], "fast")
        text = folded(Drawn(graph, [], []), root)
        assert text == f"a / bitcast<f32>(bitcast<u32>({sign}0.0f) + params.zero)"


def test_functions_are_called_by_name() -> None:
    e = ops.tanh(A + 1.0)
    texts: dict[int, Any] = {A.id: ("a", PRIMARY), (A + 1.0).id: ("a + 1.0f", 5)}
    assert render(e.graph, e.id, texts, {ops.tanh: "sg_tanh"}) == ("sg_tanh(a + 1.0f)", PRIMARY)
    with pytest.raises(AssertionError, match="no WGSL for tanh"):
        render(e.graph, e.id, texts, {})


@pytest.mark.parametrize("floats", [SINGLE, DOUBLE], ids=lambda floats: floats.type)
@pytest.mark.parametrize("op", [op for op in ops.TABLE.values() if op.wgsl], ids=lambda op: op.name)
def test_every_row_s_pattern_uses_each_argument(op: Any, floats: Floats) -> None:
    text, _ = form_of(floats.pattern(op))(*[(f"ARG{k}", PRIMARY) for k in range(op.arity)])
    assert all(f"ARG{k}" in text for k in range(op.arity)) and "{" not in text
    assert text.count("(") == text.count(")")
