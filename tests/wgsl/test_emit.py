"""WGSL as text: complete, in bounds, safe whatever the user wrote, as it was approved."""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from strategies import random_graph

from symgrad.expr.derivatives import differentiate
from symgrad.expr.graph.node import Graph
from symgrad.expr.graph.place import Place
from symgrad.expr.laws.simplify import simplify
from symgrad.expr.ops.arithmetic import mul
from symgrad.expr.tracers import functions
from symgrad.expr.tracing.trace import trace
from symgrad.kernel.passes import uses
from symgrad.kernel.passes.schedule import Limits
from symgrad.kernel.shapes import Computation, Output
from symgrad.mathlib import define
from symgrad.wgsl.printing.printer import plan_map, print_map
from symgrad.wgsl.printing.source import Style, printable

GOLDEN = Path(__file__).parents[1] / "golden"
TINY = Limits(statements=10, transcendentals=4, accesses=8, crossing=10**9, private=10**9)
KEYWORDS = set(
    re.findall(
        r"\w+",
        """
        let var fn return if else for struct true false f32 u32 i32 bool vec3 vec4 array
        private workgroup uniform storage read read_write select min max abs exp exp2 log
        log2 sin cos tan sqrt inverseSqrt saturate floor ceil round trunc fma bitcast
        workgroupBarrier compute workgroup_size group binding builtin workgroup_id
        local_invocation_index clamp asin acos atan atan2 sinh cosh tanh pow sign
        """,
    )
)


def computation(f: Callable[[Any], Any], n: int, names: Any = None) -> Computation:
    """A loss and its gradient."""
    t = trace(f, n, names)
    loss = t.outputs[0]
    found = differentiate.vjp(t.graph, {loss: t.graph.constant(1.0)}, t.inputs)
    zero = t.graph.constant(0.0)
    roots = [loss, *[zero if i is None else i for i in found]]
    graph, roots = simplify(t.graph, roots, True, define.inlined("accurate"))
    outputs = Output("loss", (roots[0],)), Output("grad", tuple(roots[1:]))
    return Computation(getattr(f, "__name__", "f"), graph, outputs)


def sources(
    made: Computation, limits: Limits | None = None, math: Any = "accurate", **style: Any
) -> tuple[str, ...]:
    plan, shown = plan_map(made, limits), Style(math, **style)
    return print_map(made, shown, plan).modules


def emitted(f: Callable[[Any], Any], n: int, limits: Limits | None = None, names: Any = None,
            **style: Any) -> tuple[str, ...]:  # fmt: skip
    return sources(computation(f, n, names), limits, **style)


# --- a reader of WGSL: enough of it to find what is missing --------------------------------------


def code(source: str) -> str:
    return re.sub(r"//[^\n]*", "", source)


def identifiers(text: str) -> list[str]:
    return re.findall(r"(?<![\w.])[A-Za-z_]\w*", re.sub(r"(?<![\w.])\d[\w.]*", "", text))


def faults(source: str) -> Iterator[str]:
    """Names that are used before they are declared, or declared where they hide another.

    The library's own functions may use the names of a kernel's private variables for their values.
    """
    text = code(source)
    known: set[str] = set(re.findall(r"^(?:@\S+ )*(?:var<[^>]*>|fn|struct) (\w+)", text, re.M))
    known |= set(re.findall(r"var<[^>]*> (\w+)", text))
    declared: set[str] = set()
    ours = False
    for line in text.splitlines():
        if re.match(r"(@|fn |struct |var<)", line):
            if "fn " in line:
                declared, ours = set(re.findall(r"(\w+):", line)), "fn sg_" in line
            continue
        target = re.match(r"\s*let (\w+) = (.*)", line)
        loop = re.match(r"\s*for \(var (\w+) = ", line)
        declared |= {loop[1]} if loop else set()
        used = identifiers(target[2] if target else line)
        yield from (
            f"{u} is not declared: {line}" for u in used if u not in declared | known | KEYWORDS
        )
        if target:
            if target[1] in declared or (target[1] in known and not ours):
                yield f"{target[1]} hides another: {line}"
            declared.add(target[1])
    if text.count("(") != text.count(")") or text.count("{") != text.count("}"):
        yield "brackets do not match"


def nesting(line: str) -> int:
    depth = most = 0
    for c in line:
        depth += (c == "(") - (c == ")")
        most = max(most, depth)
    return most


def check(found: tuple[str, ...]) -> None:
    for source in found:
        assert list(faults(source)) == []
        assert source.isascii() or code(source).isascii()
        for line in code(source).splitlines():
            assert nesting(line) < 50
            assert len(line) < 1500
        assert "nan" not in re.sub(r"params\.nan|nan: f32", "", code(source))
        assert "inf" not in re.sub(r"params\.infinity|infinity: f32", "", code(source))


def rosenbrock(v: Any) -> Any:
    return sum((1 - a) ** 2 + 100 * (b - a**2) ** 2 for a, b in itertools.pairwise(v))


def kinks(v: Any) -> Any:
    x, y = v
    return functions.where(x > y, functions.maximum(x, 0.5) * functions.tanh(y), x / y)


def squares(v: Any) -> Any:
    return v @ v


def dense(v: Any) -> Any:
    z = v[0]
    for x in v:
        z = functions.sin(z * x + z)
    return z


def everything(v: Any) -> Any:
    """Every function of the op table."""
    a, b = v
    total = a * b
    for name in re.findall(
        r"\w+",
        """
        sqrt rsqrt cbrt exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan
        sinh cosh tanh asinh acosh atanh erf erfc sigmoid softplus relu silu gelu
        gelu_tanh abs sign floor ceil round trunc fract
        """,
    ):
        total = total + getattr(functions, name)(a)
    for name in re.findall(
        r"\w+",
        """
        hypot logaddexp atan2 minimum maximum remainder fmod copysign pow
        """,
    ):
        total = total * getattr(functions, name)(a, b)
    return (
        functions.clip(total, -3, math.inf)
        + a**13
        + b**-2
        + functions.fma(a, b, 1e-40)
        + math.nan * a
    )


FUNCTIONS: dict[str, tuple[Callable[[Any], Any], int, Limits | None]] = {
    "rosenbrock": (rosenbrock, 3, None),
    "kinks": (kinks, 2, None),
    "squares": (squares, 100, None),
    "dense": (dense, 5, TINY),
    "everything": (everything, 2, None),
    "everything cut": (everything, 2, TINY),
    "one input": (lambda v: v[0] ** 2, 1, None),
    "an input": (lambda v: v[1], 2, None),
    "a constant": (lambda v: 3.5, 2, None),
    "many inputs": (squares, 700, None),
    "long": (dense, 200, Limits(10**6, 10**6, 10**6, function=100, private=10**9)),
    "constants": (lambda v: v[0] * 1e-45 + v[0] / 0.0 - v[0] * math.inf + v[0] * -0.0, 1, None),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_sources_are_complete(name: str) -> None:
    check(emitted(*FUNCTIONS[name]))


@pytest.mark.parametrize("seed", range(15))
def test_random_graphs(seed: int) -> None:
    drawn = random_graph(seed, size=120)
    roots = [x.id for x in drawn.floats[-4:]]
    graph, roots = simplify(drawn.graph, roots, True, define.inlined("accurate"))
    made = Computation("random", graph, (Output("values", tuple(roots)),))
    for math_ in ("accurate", "fast"):
        check(sources(made, TINY if seed % 2 else None, math_))


SHORT = Limits(function=9, private=10**9)


def test_long_bodies_are_cut_into_functions() -> None:
    (source,) = emitted(dense, 20, SHORT)
    check((source,))
    parts = re.findall(r"fn part_(\d+)\(", source)
    assert len(parts) > 3 and len(re.findall(r"^  part_\d+\(point, cell\);", source, re.M)) == len(
        parts
    )
    for body in re.findall(r"fn part_\d+\(.*?\n\}", source, re.S):
        assert body.count(" = ") <= 9 + 20


def test_functions_of_a_single_input_are_given_the_point() -> None:
    (source,) = emitted(lambda v: sum(functions.sin(v[0] * k) for k in range(20)), 1, SHORT)
    check((source,))
    assert "fn part_1(point: u32, cell: u32)" in source


def test_a_cut_kernel_says_so_in_every_module() -> None:
    found = emitted(dense, 5, TINY)
    assert len(found) > 1
    for k, source in enumerate(found):
        assert f"// kernel {k + 1} of {len(found)}: " in source
        assert "cross" in source and "scratch memory" in source


def test_every_loop_of_the_gradient_is_balanced() -> None:
    (source,) = emitted(squares, 100)
    statements = [line for line in code(source).splitlines() if line.startswith("  let t")]
    assert max(line.count("+") for line in statements) <= uses.MAX_FOLDED


def test_the_header_says_what_is_computed() -> None:
    (source,) = emitted(rosenbrock, 3, title="rosenbrock: loss and gradient")
    head = source.splitlines()
    assert head[0] == "// rosenbrock: loss and gradient"
    assert head[1].startswith("// in: x (B, 3); out: loss (B, 1), grad (B, 3)")
    assert re.match(r"// \d+ operations and 28 bytes a point; math: accurate", head[2])


def test_comments_can_be_left_out() -> None:
    (plain,) = emitted(rosenbrock, 3, comments=False)
    (told,) = emitted(rosenbrock, 3)
    assert "(1 - a) ** 2" not in plain and "(1 - a) ** 2" in told
    assert code(plain).split() == code(told).split()


def test_names_of_the_user() -> None:
    (source,) = emitted(kinks, 2, names=["mass", "speed"])
    assert "let mass = x[point * 2u];" in source and "let speed = x[point * 2u + 1u];" in source


NAMES = [
    ["loss", "grad"],
    ["fn", "let"],
    ["x", "params"],
    ["t0", "t1"],
    ["sg_tanh", "point"],
    ["values", "tile"],
    ["a b", "a_b"],
    ["größe", "grö_e"],
    ["k", "rows"],
    ["select", "f32"],
    ["v_x", "x"],
    ["part_0", "cell"],
    ["min", "max"],
    ["bitcast", "tanh"],
    ["scratch", "stride"],
    ["count", "zero"],
    ["group", "local"],
    ["s0", "s1"],
]


@pytest.mark.parametrize("names", NAMES, ids="-".join)
@pytest.mark.parametrize("limits", [None, TINY, SHORT], ids=["whole", "cut", "parts"])
def test_names_that_would_be_something_else(names: list[str], limits: Limits | None) -> None:
    check(emitted(kinks, 2, limits, names))


def test_names_of_what_waits_for_a_barrier() -> None:
    names = [f"saved_1_{k}" for k in range(100)]
    assert any("let saved_1_" in source for source in emitted(squares, 100))
    check(emitted(squares, 100, names=names))


def spoilt(text: str) -> Graph:
    graph = computation(rosenbrock, 3).graph
    graph.sources = [s and Place("f.py", 1, text) for s in graph.sources]
    return graph


EVIL = [
    "a\nfn evil() {}",
    "a\r}",
    "a\u2028}",
    "a\u2029}",
    "a\u0085}",
    "a\u202e}",
    "a\x00}",
    "a\x0b}",
    "a\x0c}",
    "\u0251 = v[0] * \u03c0\xb2  # gr\xf6\xdfer als \u540d\u524d",
    "*/ } /*",
    "x" * 500,
    "\ud800",
    "a\u061c",
    "\U0001f600",
]


@pytest.mark.parametrize("text", EVIL, ids=ascii)
def test_comments_stay_comments(text: str) -> None:
    graph = spoilt(text)
    outputs = (Output("loss", (len(graph) - 1,)),)
    (source,) = sources(Computation("f", graph, outputs))
    source.encode("utf-8")
    (clean,) = sources(Computation("f", spoilt("a"), outputs))
    assert len(re.split("[\n\r\x0b\x0c\x85\u2028\u2029]", source)) == clean.count("\n") + 1
    assert code(source).split() == code(clean).split()
    assert all(len(line) < 200 for line in source.splitlines())
    assert all(c == "\n" or c.isprintable() for c in source)


@pytest.mark.parametrize("text", EVIL, ids=ascii)
def test_the_name_of_a_kernel_stays_in_its_line(text: str) -> None:
    made = computation(rosenbrock, 3)
    (clean,) = sources(made)
    for source in (*sources(made, title=text), *sources(replace(made, name=text))):
        source.encode("utf-8")
        assert code(source).split() == code(clean).split()
        assert all(c == "\n" or c.isprintable() for c in source)


def test_printable() -> None:
    assert printable("a = b * 2") == "a = b * 2"
    assert printable("x" * 80) == "x" * 69 + "..."
    assert "\n" not in printable("a\nb") and "\u202e" not in printable("\u202e")


def test_emission_is_a_function_of_its_arguments() -> None:
    assert emitted(everything, 2) == emitted(everything, 2)


def test_each_function_stands_before_its_callers() -> None:
    (source,) = emitted(everything, 2)
    defined = re.findall(r"^fn (sg_\w+)", source, re.M)
    assert len(defined) == len(set(defined)) > 10
    for k, name in enumerate(defined):
        body = source.split(f"fn {name}(")[1].partition("\n}\n")[0]
        assert set(re.findall(r"sg_\w+", body)) <= set(defined[:k])
    used = set(re.findall(r"sg_\w+", source))
    assert used == set(defined)


def test_functions_that_nobody_calls_are_left_out() -> None:
    assert "sg_" not in emitted(rosenbrock, 3)[0]


@pytest.mark.parametrize(
    ("n", "width", "fours"),
    [(4, 20, "xy"), (4, 15, "x"), (4, 12, "x"), (3, 16, "y"), (3, 64, "y"), (5, 18, "")],
)
def test_rows_of_fours_are_read_and_stored_in_fours(n: int, width: int, fours: str) -> None:
    graph = Graph()
    x = [graph.input(f"x{k}") for k in range(n)]
    nodes = tuple(graph.add(mul, x[c % n], graph.constant(c + 2.0)) for c in range(width))
    made = Computation("f", graph, (Output("y", nodes),))
    (source,) = sources(made)
    found = set(re.findall(r"(\w+): array<vec4<f32>>", source))
    assert found == set(fours)
    (by_columns,) = sources(made, columns_in=True, columns_out=True)
    assert "vec4" not in by_columns


KERNELS: dict[str, tuple[Callable[[Any], Any], int, Limits | None]] = {
    "rosenbrock_2": (rosenbrock, 2, None),
    "kinks": (kinks, 2, None),
    "squares_100": (squares, 100, None),
    "dense_cut": (dense, 4, TINY),
}


@pytest.mark.parametrize("name", KERNELS)
def test_golden(name: str) -> None:
    """What has been read and found good; SYMGRAD_UPDATE_GOLDEN=1 rewrites it, to be read again."""
    found = "\n".join(emitted(*KERNELS[name], title=f"{name}: loss and gradient"))
    path = GOLDEN / f"{name}.wgsl"
    if os.environ.get("SYMGRAD_UPDATE_GOLDEN"):
        path.write_text(found, "utf-8")
    assert found == path.read_text("utf-8")


def test_golden_files_are_those_of_kernels() -> None:
    assert {p.stem for p in GOLDEN.glob("*.wgsl")} >= set(KERNELS)
    assert np.all([p.stat().st_size < 40_000 for p in GOLDEN.glob("*.wgsl")])
