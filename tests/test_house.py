"""The layering rule of symgrad, read off its imports, and that what is public is explained."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, TypeVar, cast

from site_reference import offered

import symgrad

ROOT = Path(__file__).parents[1]
LAYERS = """
    errors cache lazy < expr < arrays < mathlib values < kernel < llvm wgsl
    < pipeline targets < multi_device < backend < report < optimize < bridges web
    < rows tensor < programs < front < fit < ode < petab < checks demo sklearn
    < symgrad __main__
"""
WITHIN_PACKAGES = {
    "expr": """
    graph < references < ops < semantics < tracers < laws < derivatives < loops < linear < calls
    < tracing
""",
    "kernel": """
    host language < passes shapes < stage stats < launch < skeletons < stages
""",
    "wgsl": "printing < memory < device < arrays < dispatch",
    "llvm": "compiler < printing < device < dispatch",
}


def floors(layers: str) -> dict[str, int]:
    """How high each folder or file stands: what is below knows nothing of what is above."""
    return {
        package: k for k, packages in enumerate(layers.split("<")) for package in packages.split()
    }


FLOORS = {"symgrad": floors(LAYERS)} | {name: floors(it) for name, it in WITHIN_PACKAGES.items()}
"""The floors of symgrad's packages, and of the packages within some of them."""

REQUIRED = {"numpy", "sympy", "mpmath", "_cffi_backend"}
OPTIONAL = {
    "safetensors",
    "scipy",
    "matplotlib",
    "rich",
    "IPython",
    "pandas",
    "torch",
    "jax",
    "xarray",
    "dask",
    "distributed",
    "petab",
    "libsbml",
}
BRIDGES = {"symgrad.sklearn": "sklearn"}
"""Modules that are imported by name, and that are of another package's classes."""
DRIVERS = {"wgpu": "wgsl", "llvmlite": "llvm"}
DRIVER_MODULES = ("wgsl.device.gpus", "llvm.compiler")


@dataclass(frozen=True)
class Import:
    """``module`` imports ``target``; ``deferred`` to when a function is called, or at once."""

    module: str
    target: str
    deferred: bool

    @property
    def package(self) -> str:
        """The distribution that the target belongs to."""
        return self.target.partition(".")[0]


@cache
def modules() -> dict[str, ast.Module]:
    """The syntax trees of symgrad by dotted name."""
    paths = sorted(ROOT.glob("symgrad/**/*.py"))
    names = [".".join(p.relative_to(ROOT).with_suffix("").parts) for p in paths]
    trees = [ast.parse(p.read_text("utf-8")) for p in paths]
    return {n.removesuffix(".__init__"): t for n, t in zip(names, trees, strict=True)}


FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda
N = TypeVar("N", bound=ast.AST)


@cache
def nodes() -> dict[type[ast.AST], list[tuple[str, ast.AST, bool]]]:
    """All nodes of these trees by type: each with its module, and whether a function holds it."""
    by_type: defaultdict[type[ast.AST], list[tuple[str, ast.AST, bool]]] = defaultdict(list)
    waiting = [(name, tree, False) for name, tree in modules().items()]
    while waiting:
        name, node, inner = waiting.pop()
        by_type[type(node)].append((name, node, inner))
        inner = inner or isinstance(node, FUNCTIONS)
        waiting += [(name, child, inner) for child in ast.iter_child_nodes(node)]
    return by_type


def nodes_of(kind: type[N]) -> list[tuple[str, N, bool]]:
    """Those of a type."""
    return cast("list[tuple[str, N, bool]]", nodes()[kind])


def targets(node: ast.AST, known: set[str]) -> Iterator[str]:
    """The modules that a node imports, if it is an import."""
    match node:
        case ast.Import(names=names):
            yield from (a.name for a in names)
        case ast.ImportFrom(module=str(base), names=names):
            inner = (f"{base}.{a.name}" for a in names)
            yield from (name if name in known else base for name in inner)
        case ast.Call(
            func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module"),
            args=[ast.Constant(value=str(name)), *_],
        ):
            yield name


@cache
def every_import() -> set[Import]:
    """All imports of symgrad's modules."""
    known = set(modules())
    return {
        Import(module, target, inner)
        for kind in (ast.Import, ast.ImportFrom, ast.Call)
        for module, node, inner in nodes_of(kind)
        for target in targets(node, known)
    }


@cache
def within() -> set[Import]:
    """Those of symgrad's own modules."""
    return {i for i in every_import() if i.package == "symgrad"}


@cache
def outside() -> set[Import]:
    """Those of other packages than Python's own."""
    others = every_import() - within()
    return {i for i in others if i.package not in sys.stdlib_module_names}


def package(module: str, depth: int = 1) -> str:
    """The folder or file of symgrad, or of a package of it, that a module stands in."""
    parts = module.split(".")
    return parts[depth] if depth < len(parts) else parts[-1]


def may_import(a: str, b: str, depth: int = 1) -> bool:
    """Whether module a may import b: one of its own package, or of a lower floor."""
    floors, low, high = package(a, depth - 1), package(b, depth), package(a, depth)
    if low == high:
        return depth == 2 or high not in FLOORS or may_import(a, b, depth=2)
    return FLOORS[floors][low] < FLOORS[floors][high]


def is_driver(i: Import) -> bool:
    """Whether the import is of wgpu or llvmlite in a place where it belongs."""
    home = i.module.removeprefix("symgrad.")
    return home in DRIVER_MODULES and home.startswith(DRIVERS.get(i.package, " "))


def test_imports_go_down() -> None:
    assert {i for i in within() if not may_import(i.module, i.target)} == set()


def test_only_the_command_line_imports_the_front_door() -> None:
    assert {i.module for i in within() if i.target == "symgrad"} <= {"symgrad.__main__"}


def test_imports_have_no_cycles() -> None:
    graph: defaultdict[str, set[str]] = defaultdict(set)
    for i in within():
        graph[i.module].add(i.target)
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the cycle


def test_only_optional_packages_are_imported_late() -> None:
    late = {i for i in every_import() if i.deferred and not is_driver(i)}
    assert {i for i in late if i.package not in OPTIONAL} == set()


def test_what_is_imported_early_is_required() -> None:
    early = {i for i in outside() if not i.deferred and not is_driver(i)}
    own = {i for i in early if BRIDGES.get(i.module) == i.package}
    assert {i for i in early - own if i.package not in REQUIRED} == set()
    assert {i.module for i in within() if i.target in BRIDGES} == set()


def test_an_optional_package_is_imported_in_one_place() -> None:
    places: defaultdict[str, set[str]] = defaultdict(set)
    for i in outside():
        if i.package in OPTIONAL:
            places[i.target].add(i.module)
    assert {target: where for target, where in places.items() if len(where) > 1} == {}


def test_drivers_stay_in_their_packages() -> None:
    assert {i for i in outside() if i.package in DRIVERS and not is_driver(i)} == set()


CONNECTIONS = {"socket", "urllib", "http", "requests", "ftplib", "smtplib", "asyncio", "httpx"}


def test_nothing_is_sent_anywhere() -> None:
    imported = {i.package for i in every_import()}
    assert "numpy" in imported
    assert imported & CONNECTIONS == set()


def test_source_is_emitted_without_drivers_and_optional_packages() -> None:
    barred = sorted({*DRIVERS, *OPTIONAL})
    bar = f"import sys; sys.modules.update(dict.fromkeys({barred}))"
    program = f"{bar}; import symgrad.pipeline, symgrad.wgsl.printing.source"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=120)


def own_docstring(value: Any) -> str:
    """What is said of something itself, and not of what it inherits from."""
    return (vars(value).get("__doc__") if inspect.isclass(value) else inspect.getdoc(value)) or ""


def test_public_names_have_docstrings() -> None:
    def explained(name: str) -> bool:
        own = own_docstring(getattr(symgrad, name))
        return bool(own) and not own.startswith(f"{name}(")  # the signature: a dataclass's own

    assert symgrad.__all__
    assert [name for name in symgrad.__all__ if not explained(name)] == []


def test_public_names_have_examples_that_run() -> None:
    """They run as doctests, with those of all modules."""
    values = {name: getattr(symgrad, name) for name in symgrad.__all__}
    modules = [value for value in values.values() if inspect.ismodule(value)]
    values |= {f"{m.__name__}.{name}": getattr(m, name) for m in modules for name in offered(m)}
    assert len(values) > len(symgrad.__all__)
    assert [name for name, value in values.items() if ">>>" not in own_docstring(value)] == []


def test_the_page_of_the_pipeline_shows_the_packages() -> None:
    page = (ROOT / "docs/pipeline.md").read_text("utf-8")
    rows = re.findall(r"^\| ((?:`[a-z_]+` ?)+)\|", page, re.MULTILINE)
    shown = [re.findall(r"[a-z_]+", row) for row in rows]
    layers = [
        [layer.split() for layer in it.split("<")] for it in (LAYERS, *WITHIN_PACKAGES.values())
    ]
    assert shown == layers[0][:-1] + [layer for inner in layers[1:] for layer in inner]


def test_back_ends_have_printers_of_one_shape() -> None:
    page = (ROOT / "docs/adding.md").read_text("utf-8")
    table = page[page.index("| file of `printing` |") : page.index("LLVM's has besides")]
    shared = set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE))
    rooms: defaultdict[str, set[str]] = defaultdict(set)
    for path in ROOT.glob("symgrad/*/printing/[!_]*.py"):
        rooms[path.parts[-3]].add(path.stem)
    assert rooms.keys() == set(DRIVERS.values())
    assert {room: files - shared for room, files in rooms.items()} == {
        "wgsl": set(),
        "llvm": {"builder", "indices"},
    }
    assert {room: shared - files for room, files in rooms.items()} == {"wgsl": set(), "llvm": set()}


RETIRED = {"turn", "turns", "team", "teams", "traits"}
"""Names that have given way to those of the glossary, but in mathlib, where circles have turns."""


def test_names_are_those_of_the_glossary() -> None:
    stored = {(m, n.id) for m, n, _ in nodes_of(ast.Name) if not isinstance(n.ctx, ast.Load)}
    arguments = {(m, n.arg) for m, n, _ in nodes_of(ast.arg)}
    attributes = {(m, n.attr) for m, n, _ in nodes_of(ast.Attribute)}
    old = {(m, word) for m, word in stored | arguments | attributes if word in RETIRED}
    circles = "symgrad.mathlib", "symgrad.expr.ops"
    assert {(m, word) for m, word in old if not m.startswith(circles)} == set()


GRAMMAR_WORDS = {"found", "made", "there", "here"}
"""Names that say nothing of a value: it is named by what it is."""

IN_EXAMPLE = re.compile(r"^\s*(?:>>>|\.\.\.)\s+(\w+) = ", re.MULTILINE)
"""Names that are assigned in the examples of docstrings."""


def test_values_are_named_by_what_they_are() -> None:
    names = {(m, n.id) for m, n, _ in nodes_of(ast.Name) if isinstance(n.ctx, ast.Store)}
    names |= {(m, n.arg) for m, n, _ in nodes_of(ast.arg)}
    texts = [(m, n.value) for m, n, _ in nodes_of(ast.Constant) if isinstance(n.value, str)]
    names |= {(m, name) for m, text in texts for name in IN_EXAMPLE.findall(text)}
    assert {(m, name) for m, name in names if name in GRAMMAR_WORDS} == set()


CLAUSE = re.compile(r"(What|Those|The same|Their|That (of|by|on))\b")
"""Beginnings of docstrings whose subject stands somewhere else, or which do not name it."""


def test_docstrings_name_their_subject() -> None:
    riddles = {
        f"{m}:{s.lineno}: {s.value}"
        for m, node, _ in nodes_of(ast.Expr)
        if isinstance(s := node.value, ast.Constant)
        and isinstance(s.value, str)
        and CLAUSE.match(s.value)
    }
    assert riddles == set()


def test_the_glossary_names_what_there_is() -> None:
    page = (ROOT / "docs/glossary.md").read_text("utf-8")
    places = re.findall(r"`([a-z_]+/?[a-z_/]*(?:\.py)?)`", page)
    assert places and [p for p in places if not (ROOT / "symgrad" / p).exists()] == []
