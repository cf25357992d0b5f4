"""Writes the pages of docs/ that show tables, and the functions of the rows that are public.

python tools/generate_docs.py [--check]
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import reference_pages
from handwritten import BY_HAND, Loss

from symgrad.expr.calls.compositions import UFUNCS_COMPOSED
from symgrad.expr.calls.numpy_calls import ACCUMULATED, FUNCTIONS, MOVES, UFUNCS
from symgrad.expr.calls.special import SCIPY
from symgrad.expr.derivatives.differentiate import vjp
from symgrad.expr.graph.node import INPUT, Graph, Handle, Masked, Op, reachable
from symgrad.expr.laws.simplify import LAWS
from symgrad.expr.ops import TABLE
from symgrad.expr.ops.arithmetic import div, reciprocal
from symgrad.expr.ops.law import Law, Pattern, show
from symgrad.expr.semantics.show import text
from symgrad.expr.tracers.expression import WRAP
from symgrad.expr.tracers.functions import names
from symgrad.expr.tracing.trace import trace
from symgrad.mathlib.define import functions, inlined
from symgrad.pipeline import Options, simplified
from symgrad.wgsl.printing.operations import SINGLE

ROOT = Path(__file__).parents[1]
FUNCTIONS_FILE = "symgrad/expr/tracers/functions.py"
BENCHMARKS = ROOT / "benchmarks"
NOTE = "<!-- Written by tools/generate_docs.py: change the table it names, and run it again. -->"
BEGIN = "# Written by tools/generate_docs.py from the rows that are public:\n"
END = "# The end of what is written by it.\n"
INTEGER = 3
"""What stands for a constant integer argument."""

OPS_HEAD = f"""{NOTE}

# Operations

Every operation has one row in [the op table](../symgrad/expr/ops), from which this page is made.

A signature reads `ff->f`: f is a float, b a condition, i a constant integer, u a word of 32 bits.
The cost is in additions. A derivative is shown as the differentiator builds it, before it is
simplified: y (or "value") is the value of the operation, and g, where it occurs, the cotangent of
that value, so that a branch not taken contributes nothing, not even NaN. WGSL is what
`math="accurate"` emits; a function `sg_...` is defined in the kernel that calls it. With
`math="fast"` the device's own function is used wherever WGSL has one. With `math="strict"` every
product and sum is also rounded where it stands, neither fused with another nor reordered, and so is
every quotient and square root: llvmpipe, SwiftShader, the CPU and NumPy give the same bits, except
for subnormals, which WGSL allows to be flushed.

"""

VARIABLES = "abcp"
"""The names of the variables of a law, as the conditions have them."""

LAWS_HEAD = f"""{NOTE}

# Laws

The simplifier rewrites the left side of a law into its right side. **Exact** laws give the same
float32 bits for every input, ±0, infinities and NaN included, and are always used. **Real** laws
are true of real numbers but may change rounding, a signed zero or the domain: they are used where
their condition is proven of the operands, and all of them with `simplify="real"`. The laws of one
operation stand in its row of [the op table](../symgrad/expr/ops), those between operations in
[simplify.py](../symgrad/expr/laws/simplify.py).

That holds for what you wrote. Derivatives are made by symgrad: by default their factors are also
regrouped, so that their last bit or two may differ from what each law would give.

"""

BENCHMARKS_HEAD = f"""{NOTE}

# Benchmarks

What [the scripts in benchmarks/](../benchmarks/README.md) measured last, from
[their results](../benchmarks/results), beside other libraries in the same run. A bar is a
requirement that was set beforehand; those that are missed are listed like those that are met.
Times depend on the machine, which each section names with its load, and compare only within a
section.

"""

NUMPY_HEAD = f"""{NOTE}

# NumPy and SciPy

The names of NumPy and SciPy that take expressions and arrays of them, from
[the tables](../symgrad/expr) that make it so. All others raise a `TraceError`. Arrays of
expressions also have NumPy's operators, indexing, and methods.

A number 0 among the elements of an array, as in a matrix that is mostly zeros, says that nothing is
there: in sums, differences and products of arrays it vanishes, also beside infinity and NaN.
Expressions are real: of a complex number write the real and the imaginary part.

"""

BY_HAND_HEAD = f"""{NOTE}

# Beside kernels written by hand

How many operations, and how many divisions among them, a kernel of a loss and its gradient has, and
how many what a careful person writes for it has: each thing once, no factor of 1, no term of 0, one
division for each denominator ([the losses and their derivations](../tools/handwritten.py), which
are the kernels' to rounding). Exponentials and logarithms count as one operation, sigmoids and the
like as what they are made of.

By default, what you write keeps its rounding, so a quotient stays one although the gradient divides
by the same denominator; with `simplify="real"`, as with `math="fast"`, it is a product with their
one reciprocal. You did not write the derivative, so its rounding is free: its constant factors are
one, and products that the loss has are used again. Two operations of the derivative of a logarithm
make it NaN outside the domain, which a person leaves out. Powers of large exponents are within 4
ULP, those of a Lennard-Jones potential too, which cubes of a reciprocal by hand leave 8 ULP off;
with `math="fast"` they are the products by hand.

"""

WIDE = 8
"""Columns from which a table is turned on its side, if that makes it narrower."""


# --- operations -----------------------------------------------------------------------------------


def ops_page() -> str:
    """docs/ops.md."""
    rows = [op for op in TABLE.values() if op.arity]
    index = ["| operation | meaning | cost |", "|---|---|---|"]
    index += [f"| [`{call(op)}`](#{op.name}) | {cell(op.meaning)} | {op.cost} |" for op in rows]
    return OPS_HEAD + "\n".join(index) + "\n\n" + "\n".join(section(op) for op in rows)


def section(op: Op) -> str:
    """All that the table says of one operation."""
    facts = [f"signature `{op.signature}`, cost {op.cost}"]
    facts += [f"domain: {op.domain}"] if op.domain else []
    facts += [f"edges: {op.edges}"] if op.edges else []
    facts += derivative(op)
    facts += [f"WGSL: {wgsl(op)}"]
    lines = "\n".join(f"- {stars(fact)}" for fact in facts)
    return f"## {op.name}\n\n`{call(op)}`: {stars(op.meaning)}.\n\n{lines}\n"


def call(op: Op) -> str:
    return f"{op.name}({', '.join(names(op))})"


def derivative(op: Op) -> list[str]:
    """The definition or the derivatives of an operation as text."""
    if op.compose:
        return [f"defined as `{shown(op.compose(*arguments(op)))}`"]
    if "f" not in op.signature.split("->")[0] or not op.signature.endswith("f"):
        return []
    if op.partials is None and op.vjp is None:
        return []
    given = arguments(op)
    value = variable(given[0].graph, "f", "value" if "y" in names(op) else "y")
    if op.partials:
        parts = op.partials(value, *given)
    else:
        assert op.vjp
        parts = op.vjp(variable(given[0].graph, "f", "g"), value, *given)
    start = "g d/d" if op.vjp else "d/d"
    return [
        f"d/d{name}: none, asking for it is a `DifferentiationError`"
        if k < op.parameters
        else f"{start}{name} = `{shown(part)}`{integer_note(op)}"
        for k, (name, part, type_) in enumerate(zip(names(op), parts, op.signature, strict=False))
        if type_ == "f"
    ]


def integer_note(op: Op) -> str:
    at = op.signature.find("i")
    return f" for {names(op)[at]} = {INTEGER}" if at >= 0 else ""


def arguments(op: Op) -> list[Any]:
    """Free variables of an operation's types in one graph; a constant for an integer."""
    graph = Graph()
    graph.tracing = False
    types = op.signature.split("->")[0]
    return [
        integer(graph) if t == "i" else variable(graph, t, name)
        for t, name in zip(types, names(op), strict=True)
    ]


def variable(graph: Graph, type_: str, name: str) -> Any:
    return WRAP[type_](graph, graph.input(name))


def integer(graph: Graph) -> Any:
    return WRAP["i"](graph, graph.intern((TABLE["integer"], INTEGER)))


def shown(part: Any) -> str:
    if part is None:
        return "0"
    if isinstance(part, Masked):
        part = TABLE["where"](part.condition, part.value, 0.0)
    return "; ".join(text(part).splitlines()) if isinstance(part, Handle) else str(part)


def wgsl(op: Op) -> str:
    """How an operation is written in a kernel."""
    if op.transparent:
        return "nothing: it is its argument"
    if op.compose or op in inlined("accurate"):
        return "expanded into other operations"
    accurate, fast = functions("accurate"), functions("fast")
    if op not in accurate:
        return f"`{SINGLE.pattern(op).format(*names(op))}`"
    own = f"`{accurate[op].name}({', '.join(names(op))})`"
    return own if op in fast else f"{own}; fast: `{SINGLE.pattern(op).format(*names(op))}`"


def functions_file() -> str:
    """The module of public functions, with one for each row that is public."""
    file = (ROOT / FUNCTIONS_FILE).read_text("utf-8")
    start, begin, rest = file.partition(BEGIN)
    _, end, after = rest.partition(END)
    rows = [op.name for op in TABLE.values() if op.public]
    lines = [f"{name} = _public(ops.{name})" for name in rows]
    exported = sorted([*rows, *re.findall(r"^def ([a-z]\w*)", after, re.MULTILINE)], key=natural)
    names = [f'    "{name}",' for name in exported]
    block = "\n".join([*lines, "", "__all__ = [", *names, "]", ""])
    return start + begin + block + end + after


def natural(name: str) -> list[str | int]:
    """What names are sorted by, log2 before log10."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


# --- NumPy ----------------------------------------------------------------------------------------


def numpy_page() -> str:
    """docs/numpy.md."""
    sections = {
        "Ufuncs": map(numpy_name, [*UFUNCS, *UFUNCS_COMPOSED, np.matmul]),
        "Ufuncs that reduce and accumulate": map(numpy_name, ACCUMULATED),
        "Functions": map(numpy_name, FUNCTIONS),
        "Functions that move elements": map(numpy_name, MOVES),
        "Ufuncs of scipy.special": (f"scipy.special.{name}" for name in SCIPY),
    }
    lists = {title: ", ".join(f"`{n}`" for n in sorted(names)) for title, names in sections.items()}
    return NUMPY_HEAD + "\n".join(f"## {title}\n\n{names}\n" for title, names in lists.items())


def numpy_name(function: Any) -> str:
    """The name by which users call one of NumPy's functions."""
    name = function.__name__
    homes = {"np": np, "np.linalg": np.linalg, "np.lib.stride_tricks": np.lib.stride_tricks}
    return next(f"{home}.{name}" for home, m in homes.items() if getattr(m, name, None) is function)


# --- laws -----------------------------------------------------------------------------------------


def laws_page() -> str:
    """docs/laws.md."""
    return LAWS_HEAD + "\n".join(f"{part}" for part in strengths()) + "\n"


def strengths() -> Iterator[str]:
    for strength in ("exact", "real"):
        laws = [law for law in LAWS if law.strength == strength]
        yield f"## {strength.capitalize()}: {len(laws)} laws\n"
        yield "| from | to | when |\n|---|---|---|"
        yield from (law_row(law) for law in laws)
        yield ""


def law_row(law: Law) -> str:
    graph = Graph()
    graph.tracing = False
    inputs = [graph.input(name) for name in VARIABLES]
    sides = [written(graph, inputs, side) for side in (law.left, law.right)]
    if sides[0] == sides[1]:  # two operations that are written alike
        sides = [show(side, VARIABLES) for side in (law.left, law.right)]
    left, right = (bars(side) for side in sides)
    return f"| `{left}` | `{right}` | {cell(law.guard.text) if law.guard else ''} |"


def written(graph: Graph, inputs: Sequence[int], pattern: Pattern) -> str:
    """One side of a law in the notation of expressions."""
    i = node(graph, inputs, pattern)
    return text(WRAP[graph.type(i)](graph, i))


def node(graph: Graph, inputs: Sequence[int], pattern: Pattern) -> int:
    op = pattern[0]
    if op is INPUT:
        return inputs[pattern[1]]
    if not op.arity:
        return graph.intern(pattern)
    return graph.intern((op, *[node(graph, inputs, part) for part in pattern[1:]]))  # as it stands


# --- kernels by hand ------------------------------------------------------------------------------


def by_hand_page() -> str:
    """docs/by_hand.md."""
    rows = [by_hand_row(name, *entry) for name, entry in BY_HAND.items()]
    return BY_HAND_HEAD + table(rows)


def by_hand_row(name: str, n: int, loss: Loss, by_hand: Loss) -> dict[str, Any]:
    """The operations and divisions of one loss and its gradient, derived and by hand."""
    hand = size(by_hand, n, Options("f", simplify=False))
    default, real, fast = (
        size(loss, n, options)
        for options in (Options("f"), Options("f", simplify="real"), Options("f", math="fast"))
    )
    return {
        "loss and gradient": name,
        "by hand": f"{hand[0]} ({hand[1]} divisions)",
        "default": f"{default[0]} ({default[1]})",
        'simplify="real"': f"{real[0]} ({real[1]})",
        'math="fast"': f"{fast[0]} ({fast[1]})",
        "default over by hand": default[0] / hand[0],
    }


def size(f: Loss, n: int, options: Options) -> tuple[int, int]:
    """The operations and divisions of f, or, if it is one scalar, of f and its gradient."""
    traced = trace(f, n)
    graph, roots = traced.graph, list(traced.outputs)
    if len(roots) == 1:
        found = vjp(graph, {roots[0]: graph.constant(1.0)}, traced.inputs)
        roots += [i for i in found if i is not None]
    graph, roots = simplified(graph, roots, options)
    used = [graph.nodes[i][0] for i in reachable(graph, roots) if graph.nodes[i][0].arity]
    return len(used), sum(op in (div, reciprocal) for op in used)


# --- benchmarks -----------------------------------------------------------------------------------


def benchmarks_page() -> str:
    """docs/benchmarks.md."""
    paths = sorted(BENCHMARKS.glob("results/*.json"))
    found = {p.stem: json.loads(p.read_text("utf-8")) for p in paths}
    index = [
        {
            "benchmark": f"[{name}](#{name})",
            "bars met": f"{sum(b['met'] for b in r['bars'])} of {len(r['bars'])}",
            "on": r.get("device", r["machine"]["processor"]),
            "date": r["machine"]["date"][:10],
        }
        for name, r in found.items()
    ]
    sections = [results(name, r) for name, r in found.items()]
    return BENCHMARKS_HEAD + table(index) + "\n\n" + "\n".join(sections)


def results(name: str, result: Mapping[str, Any]) -> str:
    """One benchmark: what it is, where it ran, which bars it met, and its numbers."""
    rows, same = without_constants(result["rows"])
    known = {"benchmark", "machine", "rows", "bars"}
    facts = {k.replace("_", " "): v for k, v in result.items() if k not in known} | same
    bars_table = table([
        {"bar": b["bar"], "required": required(b), "measured": b["measured"],
         "": "met" if b["met"] else "MISSED"}
        for b in result["bars"]
    ])  # fmt: skip
    parts = [
        f"## {name}", described(name),
        place(result["machine"], facts), bars_table, table(turned(rows)),
    ]  # fmt: skip
    return "\n\n".join(p for p in parts if p) + "\n"


def required(bar: Mapping[str, Any]) -> str:
    """A limit with its direction, which follows from what met or missed it."""
    most = bar["met"] == (bar["measured"] <= bar["limit"])
    return f"{'≤' if most else '≥'} {shown_number(bar['limit'])}"


def described(name: str) -> str:
    """What the script that writes a result says of itself, without the command line."""
    paths = {p.relative_to(BENCHMARKS).with_suffix(""): p for p in BENCHMARKS.glob("**/*.py")}
    scripts = {"_".join(where.parts): p for where, p in paths.items()}
    fitting = [stem for stem in scripts if f"{name}_".startswith(f"{stem}_")]
    if not fitting:
        return ""
    script = scripts[max(fitting, key=len)]
    text = ast.get_docstring(ast.parse(script.read_text("utf-8")), clean=False) or ""
    paragraphs = [p.strip() for p in text.split("\n\n") if not p.startswith(" ")]
    where = script.relative_to(BENCHMARKS).as_posix()
    return "\n\n".join([*map(stars, paragraphs), f"[{script.name}](../benchmarks/{where})"])


def place(machine: Mapping[str, Any], facts: Mapping[str, Any]) -> str:
    """The machine, its software, and what else is the same for all rows."""
    system = machine["system"].partition("-")[0]
    packages = [f"{k} {v}" for k, v in machine["packages"].items()]
    software = ", ".join([f"Python {machine['python']}", *packages])
    lines = [
        f"{machine['processor']}, {machine['cores']} cores, {system}; load at the end "
        f"{shown_number(machine['load'])}; {machine['date'][:10]}",
        software, *[f"{k}: {shown_number(v)}" for k, v in facts.items()],
    ]  # fmt: skip
    return "\n".join(f"- {stars(line)}" for line in lines)


def without_constants(
    rows: Sequence[Mapping[str, Any]],
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Rows without the texts that all of them share, and these texts."""
    heads = list(dict.fromkeys(key for row in rows for key in row))
    same = {
        h: rows[0][h]
        for h in heads
        if len(rows) > 1 and isinstance(rows[0].get(h), str) and len({r.get(h) for r in rows}) == 1
    }
    return [{k: v for k, v in row.items() if k not in same} for row in rows], same


def turned(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A wide and low table on its side, another as it is."""
    heads = list(dict.fromkeys(key for row in rows for key in row))
    if len(heads) < max(WIDE, len(rows)):
        return [dict(row) for row in rows]
    titles = [f"{shown_number(row.get(heads[0]))}{' ' * k}" for k, row in enumerate(rows)]
    return [
        {heads[0]: h} | {t: row.get(h) for t, row in zip(titles, rows, strict=True)}
        for h in heads[1:]
    ]


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as a Markdown table, numbers to the right."""
    heads = list(dict.fromkeys(key for row in rows for key in row))
    if not heads:
        return ""
    texts = [h for h in heads if any(isinstance(row.get(h), str) for row in rows)]
    lines = [
        [stars(h.strip()) for h in heads],
        ["---" if h in texts else "---:" for h in heads],
        *[[cell(shown_number(row.get(h))) for h in heads] for row in rows],
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def shown_number(value: Any) -> str:
    """A value as people read it: three digits of a fraction, all of a whole number."""
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(map(shown_number, value))
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "; ".join(str(value).splitlines())
    whole = isinstance(value, int) or abs(value) >= 100
    return f"{value:,.0f}" if whole else f"{value:.3g}"


# --- files ----------------------------------------------------------------------------------------


def bars(content: str) -> str:
    """Text whose bars do not end a cell of a table, in code too."""
    return content.replace("|", "\\|")


def stars(content: str) -> str:
    """Text whose stars are no emphasis outside of code."""
    parts = content.split("`")
    return "`".join(p if k % 2 else p.replace("*", "\\*") for k, p in enumerate(parts))


def cell(content: str) -> str:
    """Text in a cell of a table."""
    return bars(stars(content))


# --- what `python -m symgrad bench` compares with -------------------------------------------------

KNOWN = {
    "gpu": {
        "a call for one point, 100 variables": ("call_overhead_gpu", {"work": "symgrad"}, "us", 1),
        "gradients of Rosenbrock's function, 10 variables": (
            "h200_copy", {"work": "symgrad math=accurate"}, "us, least", 16_000_000),
        "loss over rows, 4 Gaussians, with gradient": (
            "rows_gpu", {"work": "4 Gaussians", "by": "symgrad accurate"}, "us", 16_000_000),
        "Runge-Kutta steps, with gradients": (
            "loops_gpu", {"work": "RK4, 100,000 problems x 1,000 steps", "way": "symgrad"}, "ms",
            100_000_000),
        "fits of 11 x 11 pixels, 5 parameters": (
            "optimisers_gpu", {"work": "11 x 11 fits, minimize_from"}, "ms", 1_000_000),
    },
    "cpu": {
        "a call for one point, 100 variables": (
            "cpu", {"work": "one point, Rosenbrock n = 100", "by": "symgrad"}, "us", 1),
        "gradients of Rosenbrock's function, 10 variables": (
            "cpu", {"work": "1 M points, Rosenbrock n = 10, (B, n)", "by": "symgrad"}, "us",
            1_000_000),
        "loss over rows, 4 Gaussians, with gradient": (
            "rows_cpu", {"work": "4 Gaussians", "by": "symgrad accurate"}, "us", 1_000_000),
        "Runge-Kutta steps, with gradients": (
            "loops", {"work": "RK4, 2,000 problems x 1,000 steps", "way": "symgrad"}, "ms",
            2_000_000),
        "fits of 11 x 11 pixels, 5 parameters": (
            "optimisers_cpu", {"work": "11 x 11 fits, minimize_from"}, "ms", 20_000),
    },
}  # fmt: skip
"""Which benchmark's result has the time of each workload, and how many of its unit that took."""


def bench_reference() -> str:
    """symgrad/demo/data/reference.json."""
    found = {kind: {work: _known(*it) for work, it in of.items()} for kind, of in KNOWN.items()}
    return json.dumps(found, indent=1) + "\n"


def _known(name: str, row: Mapping[str, str], key: str, count: int) -> dict[str, Any]:
    result = json.loads((BENCHMARKS / "results" / f"{name}.json").read_text("utf-8"))
    (time,) = (r[key] for r in result["rows"] if row.items() <= r.items())
    seconds = time * (1e-3 if key == "ms" else 1e-6)
    figure = seconds * 1e6 if count == 1 else count / seconds
    return {"figure": figure, "device": result["device"], "date": result["machine"]["date"][:10]}


PAGES = {
    "docs/ops.md": ops_page,
    "docs/numpy.md": numpy_page,
    "docs/laws.md": laws_page,
    "docs/by_hand.md": by_hand_page,
    "docs/benchmarks.md": benchmarks_page,
    FUNCTIONS_FILE: functions_file,
    "symgrad/demo/data/reference.json": bench_reference,
    **{
        f"docs/reference/{file}.md": partial(reference_pages.page, file)
        for file in reference_pages.FILES
    },
}


def main(arguments: Sequence[str]) -> int:
    """Write the pages, or with --check say which of them are out of date."""
    stale = 0
    for name, page in PAGES.items():
        path, content = ROOT / name, page()
        if not path.exists() or path.read_text("utf-8") != content:
            stale += 1
            print(f"{name} is out of date" if "--check" in arguments else f"wrote {path}")
            if "--check" not in arguments:
                path.write_text(content, "utf-8")
    return stale if "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
