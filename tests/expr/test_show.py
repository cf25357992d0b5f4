"""Text, LaTeX and Graphviz source of expressions: golden texts, long and shared ones, big ones."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from symgrad.expr import ops
from symgrad.expr.graph.node import LEAVES, Graph, Op
from symgrad.expr.loops.control import cond, fori_loop, while_loop
from symgrad.expr.semantics.evaluate import evaluate_graph
from symgrad.expr.semantics.show import COUNTED, REPR, dot, latex, number, short_text, text
from symgrad.expr.tracers import functions as F
from symgrad.expr.tracers.expression import Expr, var

HERE: Final = Path(__file__).name
GRAPH: Final = Graph()  # its own: other tests may have made variables in another order
x, y, z = (Expr(GRAPH, GRAPH.input(name)) for name in "xyz")

GOLDEN: Final = [
    (F.sin(x) * 2 + y, "sin(x) * 2 + y", r"2 \, \sin\left(x\right) + y"),
    (x - (y + z), "x - (y + z)", r"x - \left(y + z\right)"),
    (x - y - z, "x - y - z", "x - y - z"),
    (x - y * z, "x - y * z", r"x - y \, z"),
    ((x + y) * z, "z * (x + y)", r"z \, \left(x + y\right)"),
    (x * y * z, "x * y * z", r"x \, y \, z"),
    (x * (y / z), "x * (y / z)", r"x \, \frac{y}{z}"),
    (x / (y * z), "x / (y * z)", r"\frac{x}{y \, z}"),
    (x / y / z, "x / y / z", r"\frac{\frac{x}{y}}{z}"),
    (1 / (1 / x), "1 / (1 / x)", r"\frac{1}{\frac{1}{x}}"),
    (-(x + y), "-(x + y)", r"-\left(x + y\right)"),
    (ops.neg(-x), "-(-x)", r"-\left(-x\right)"),
    ((-x) ** 2, "(-x)**2", r"\left(-x\right)^{2}"),
    (-(x**2), "-x**2", "-x^{2}"),
    (x - (-y), "x - -y", r"x - \left(-y\right)"),
    (x**-3, "x**-3", "x^{-3}"),
    ((x**y) ** z, "(x**y)**z", r"\left(x^{y}\right)^{z}"),
    (x ** (y**z), "x**(y**z)", "x^{y^{z}}"),
    ((x / y) ** 2, "(x / y)**2", r"\left(\frac{x}{y}\right)^{2}"),
    (F.exp(x) ** 2, "exp(x)**2", r"\left(e^{x}\right)^{2}"),
    (ops.exp_neg_square(x + y), "exp_neg_square(x + y)", r"e^{-\left(x + y\right)^2}"),
    (F.sqrt(x + 1), "sqrt(x + 1)", r"\sqrt{x + 1}"),
    (F.hypot(x, y), "hypot(x, y)", r"\mathrm{hypot}\left(x, y\right)"),
    (F.stop_gradient(x), "stop_gradient(x)", r"\mathrm{stop\_gradient}\left(x\right)"),
    (z * (x % y), "z * remainder(x, y)", r"z \, \left(x \bmod y\right)"),
    (x * 2.0**80, "x * 1.2089258196146292e+24", r"1.2089258196146292 \cdot 10^{24} \, x"),
    (x * 1e-7, "x * 1e-07", r"10^{-7} \, x"),
    (x * -3, "x * -3", r"-3 \, x"),
    (y + x * -3, "x * -3 + y", r"-3 \, x + y"),
    (y - x * -3, "y - x * -3", r"y - \left(-3 \, x\right)"),
    (x * -0.0, "x * -0.0", r"-0.0 \, x"),
    (x * (2.0**x), "x * exp2(x)", r"x \cdot 2^{x}"),
    (x + math.inf, "x + inf", r"x + \infty"),
    (x + math.nan, "x + nan", r"x + \mathrm{nan}"),
    (x < y, "x < y", "x < y"),
    (~((x < y) | (y <= z)), "~((x < y) | (y <= z))", r"\neg \left(x < y \vee y \le z\right)"),
    ((x < y) & ((y < z) | (x < z)), "(x < y) & ((y < z) | (x < z))",
     r"x < y \wedge \left(y < z \vee x < z\right)"),
    (x * F.where(x < y, x, y), "x * where(x < y, x, y)",
     r"x \, \left(\begin{cases} x & x < y \\ y & \text{otherwise} \end{cases}\right)"),
]  # fmt: skip


@pytest.mark.parametrize(("expr", "plain", "tex"), GOLDEN, ids=[g[1] for g in GOLDEN])
def test_golden(expr: Any, plain: str, tex: str) -> None:
    assert text(expr) == plain
    assert latex(expr) == tex
    assert repr(expr) == text(expr)


@pytest.mark.parametrize(
    ("value", "expected"),
    [(2.0, "2"), (-0.0, "-0.0"), (0.0, "0"), (0.1, "0.1"), (-3.0, "-3"), (1e16, "1e+16"),
     (1e15, "1000000000000000"), (5e-324, "5e-324"), (math.inf, "inf"), (math.nan, "nan")],
)  # fmt: skip
def test_numbers(value: float, expected: str) -> None:
    assert number(value) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("x", "x"), ("x0", "x_{0}"), ("x_12", "x_{12}"), ("alpha", r"\alpha"), ("x_", "x"),
     ("theta2", r"\theta_{2}"), ("v_max", r"v_{\mathrm{max}}"), ("speed", r"\mathrm{speed}"),
     ("_", r"\mathrm{\_}"), ("λ", "λ"), ("x_0_1", "x_{0,1}"), ("a_b_c", "a_{b,c}")],
)  # fmt: skip
def test_names_in_latex(name: str, expected: str) -> None:
    assert latex(var(name)) == expected


NUMPY_ROWS: Final = [
    op for op in ops.TABLE.values()
    if op not in LEAVES and op.compose is None and set(op.signature) <= set("f->")
]  # fmt: skip


@pytest.mark.parametrize("op", NUMPY_ROWS, ids=lambda op: op.name)
def test_text_is_python_that_means_the_same(op: Op) -> None:
    """Each row between others, read back by Python with the rows' references."""
    graph = Graph()
    u, v, w = (Expr(graph, graph.input(n)) for n in "uvw")
    first = op(*[u + v, u * w, v - w][: op.arity])
    for expr in (first * u - first, -first / (first + w), (first**2) / first):
        point = {n: np.array([p]) for n, p in zip("uvw", (0.3, 0.25, 0.5), strict=True)}
        arrays = dict(enumerate(point.values()))
        expected = evaluate_graph(graph, [expr.id], arrays)[0]
        scope = {o.name: o.reference for o in NUMPY_ROWS}
        with np.errstate(all="ignore"):
            found = eval(text(expr), {**scope, **point})
        np.testing.assert_allclose(found, expected, rtol=1e-13, equal_nan=True)
        assert latex(expr).count("{") == latex(expr).count("}")
        assert latex(expr).count(r"\left") == latex(expr).count(r"\right")


# --- long expressions -----------------------------------------------------------------------------


def squared(count: int) -> Expr:
    value: Any = x
    for _ in range(count):
        value = value * value + 1
    return value


def test_what_is_shared_gets_a_name_in_long_expressions_only() -> None:
    assert text(squared(2)) == "(x * x + 1) * (x * x + 1) + 1"
    lines = text(squared(100)).splitlines()
    assert lines[:2] == [
        "t0 = (x * x + 1) * (x * x + 1) + 1",
        "t1 = (t0 * t0 + 1) * (t0 * t0 + 1) + 1",
    ]
    assert len("\n".join(lines)) < 5_000
    scope: dict[str, Any] = {"x": 0.1}
    exec("\n".join([*text(squared(5)).splitlines()[:-1]]), scope)
    found = eval(text(squared(5)).splitlines()[-1], scope)
    expected = evaluate_graph(x.graph, [squared(5).id], {x.id: np.array([0.1])})[0][0]
    assert found == pytest.approx(expected, rel=1e-14)


def test_long_latex_is_aligned() -> None:
    shown = latex(squared(100))
    assert shown.startswith(r"\begin{aligned} t_{0} &= ")
    assert shown.endswith(r"\end{aligned}")
    assert len(shown) < 10_000


def test_names_of_values_avoid_those_of_variables() -> None:
    t0 = value = var("t0")
    for _ in range(10):
        value = value * value + t0
    assert text(value).startswith("t1 = ")


def test_a_long_repr_is_short_and_counts() -> None:
    shown = short_text(squared(100))
    assert len(shown) <= REPR
    assert shown.endswith(" <200 operations>")
    assert repr(squared(100)) == shown


def test_a_small_expression_of_a_big_graph_is_shown_whole() -> None:
    squared(COUNTED)
    assert short_text(x * 5 + y) == "x * 5 + y"


def test_a_sum_of_hundreds_is_complete() -> None:
    total: Any = sum(x * k for k in range(2, 1000))
    shown = text(total)
    assert all(f"x * {k}" in shown for k in range(2, 1000))


@pytest.mark.parametrize("show", [text, latex, short_text, dot])
def test_a_chain_of_a_hundred_thousand(show: Any) -> None:
    graph = Graph()
    graph.tracing = False
    i = graph.input("x")
    one = graph.constant(1.0)
    for _ in range(50_000):
        i = graph.add(ops.add, graph.add(ops.sin, i), one)
    assert show(Expr(graph, i))


# --- Graphviz -------------------------------------------------------------------------------------


def test_dot_golden() -> None:
    graph = Graph()
    a, b = Expr(graph, graph.input("a")), Expr(graph, graph.input("b"))
    product = a * b  # the "user's" line
    lines = dot([product / 2, product]).splitlines()
    tooltip = next(line for line in lines if "mul" in line)
    assert tooltip.startswith('  n2 [label="mul", shape=ellipse, style=bold, tooltip="')
    assert HERE in tooltip
    assert tooltip.endswith('\\"product = a * b  # the \\"user\'s\\" line\\""];')
    assert [line.split(", tooltip")[0] for line in lines] == [
        "digraph expression {",
        "  rankdir=BT; ordering=in;",
        '  node [fontname="monospace"];',
        '  n0 [label="a", shape=box];',
        '  n1 [label="b", shape=box];',
        '  n2 [label="mul", shape=ellipse, style=bold',
        "  n0 -> n2;",
        "  n1 -> n2;",
        '  n3 [label="2", shape=plaintext',
        '  n4 [label="div", shape=ellipse, style=bold',
        "  n2 -> n4;",
        "  n3 -> n4;",
        "}",
    ]


def test_dot_is_deterministic_and_escaped() -> None:
    graph = Graph()
    a = Expr(graph, graph.input('quote" back\\slash'))
    assert dot(a) == dot([a])
    assert r'label="quote\" back\\slash"' in dot(a)
    assert dot([]) == "digraph expression {\n  rankdir=BT; ordering=in;\n" + (
        '  node [fontname="monospace"];\n}'
    )


def test_a_constant_has_no_name() -> None:
    long = squared(100) * 0.3333333333333333 + squared(99) / 0.3333333333333333
    assert "= 0.3333333333333333\n" not in text(long)


# --- loops and choices ----------------------------------------------------------------------------


def test_a_loop_is_shown_as_it_is_written() -> None:
    def body(k: Any, state: Any) -> Any:
        inner = fori_loop(0, k + 1, lambda j, s: s + j * x, state["b"])
        return {"a": state["a"] * x + k, "b": inner}

    end = fori_loop(1, 5, body, {"a": x, "b": 2.0})
    assert text(end["a"] + end["b"]).splitlines() == [
        "a, b = x, 2",
        "for k in range(1, 5):",
        "    s = b",
        "    for j in range(0, k + 1):",
        "        s = j * x + s",
        "    a, b = a * x + k, s",
        "a + b",
    ]
    assert r"\mathbf{for}\ 1 \le k < 5: \\ & \quad s \leftarrow b" in latex(end["a"] + end["b"])


def test_a_choice_is_shown_as_it_is_written() -> None:
    chosen = cond(x > 1, lambda: while_loop(lambda c: c > 1, lambda c: c / 2, x), lambda: x * x)
    assert text(chosen - 1).splitlines() == [
        "if 1 < x:",
        "    c = x",
        "    for k in range(0, 0xffffffff):",
        "        if not (1 < c): break",
        "        c = c / 2",
        "    t0 = c",
        "else:",
        "    t0 = x * x",
        "t0 - 1",
    ]


def test_a_region_is_a_frame_of_its_own() -> None:
    source = dot(fori_loop(0, 3, lambda k, y: y * x + k, x))
    assert "subgraph cluster_n" in source
    assert source.count('label="k"') == 1
    names = set(re.findall(r"^ *(n\w+) \[", source, re.MULTILINE))
    ends = re.findall(r"(n\w+) -> (n\w+);", source)
    assert {n for pair in ends for n in pair} <= names
