"""That the pages made from tables are up to date, and what the README shows is what one gets."""

from __future__ import annotations

import doctest
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import reference_pages

import symgrad as sg
from symgrad.demo import demonstration
from symgrad.expr.graph.written_out import MOST_ELEMENTS, MOST_OF_ONE_CALL
from symgrad.front.choice import LARGE_POINT, LEAST_WHOLE
from symgrad.report.progress import PlainScreen

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
PAGES = [
    *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "symgrad/demo/data/README.md"
]  # fmt: skip

NEW = """New.

[new.py](../benchmarks/new.py)

- P, 2 cores, Linux; load at the end 0.5; 2030-01-02
- Python 3.12, numpy 2
- points: 5

| bar | required | measured |  |
| --- | --- | ---: | --- |
| seconds | ≤ 1 | 0.5 | met |
| rate | ≥ 2 | 1 | MISSED |

| work | s | n |
| --- | ---: | ---: |
| a\\|b | 0.0123 | 1,000,000 |
| c | 1,234 |  |
"""

GENERATED = [
    "docs/ops.md", "docs/numpy.md", "docs/laws.md", "docs/by_hand.md", "docs/benchmarks.md",
    "symgrad/expr/tracers/functions.py", "symgrad/demo/data/reference.json",
    *(f"docs/reference/{file}.md" for file in reference_pages.FILES),
]  # fmt: skip


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "tools/generate_docs.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", GENERATED)
def test_pages_are_those_of_the_tables(name: str, generator: ModuleType) -> None:
    found = (ROOT / name).read_text("utf-8")
    assert found == generator.PAGES[name](), "run: python tools/generate_docs.py"


def test_every_operation_has_a_section(generator: ModuleType) -> None:
    sections = re.findall(r"^## (\w+)$", generator.ops_page(), re.MULTILINE)
    assert sections == [op.name for op in generator.TABLE.values() if op.arity]


def test_every_result_has_a_section_with_all_its_bars(generator: ModuleType) -> None:
    page = generator.benchmarks_page()
    for path in ROOT.glob("benchmarks/results/*.json"):
        result = json.loads(path.read_text("utf-8"))
        section = page.partition(f"\n## {path.stem}\n")[2].partition("\n## ")[0]
        rows = [line for line in section.splitlines() if line.endswith((" met |", "MISSED |"))]
        assert len(rows) == len(result["bars"])
        assert sum("MISSED" in row for row in rows) == sum(not b["met"] for b in result["bars"])


def test_benchmarks_that_are_new_are_shown(generator: ModuleType, tmp_path: Path) -> None:
    rows = [{"work": "a|b", "s": 0.0123456, "n": 10**6}, {"work": "c", "s": 1234.5, "n": None}]
    machine = {"date": "2030-01-02T03:04", "processor": "P", "cores": 2, "system": "Linux-1",
               "load": 0.5, "python": "3.12", "packages": {"numpy": "2"}}  # fmt: skip
    bars = [{"bar": "seconds", "limit": 1, "measured": 0.5, "met": True},
            {"bar": "rate", "limit": 2.0, "measured": 1.0, "met": False}]  # fmt: skip
    result = {"benchmark": "new", "machine": machine, "points": 5, "rows": rows, "bars": bars}
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "new.json").write_text(json.dumps(result), "utf-8")
    (tmp_path / "new.py").write_text('"""New.\n\n    python new.py\n"""', "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generator, "BENCHMARKS", tmp_path)
        section = generator.benchmarks_page().partition("## new\n\n")[2]
    assert section == NEW


def test_check_changes_nothing() -> None:
    command = [sys.executable, ROOT / "tools" / "generate_docs.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, text=True,
                          capture_output=True, timeout=120)  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "")


def test_the_readme_shows_the_kernel_of_its_first_example() -> None:
    start, _, rest = README.partition("```wgsl\n")
    example = doctest.DocTestParser().get_doctest(start, {}, "README.md", "README.md", 0)
    doctest.DocTestRunner(verbose=False).run(example, clear_globs=False)
    assert example.globs["kernel"].wgsl.rstrip("\n") == rest.partition("\n```")[0]


def test_the_readme_shows_what_the_demonstration_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """But for float32's columns, which differ among devices in their last digits."""
    demonstration.run_demo(PlainScreen(), "Thurber", "cpu")
    said = capsys.readouterr().out.splitlines()
    start = next(k for k, line in enumerate(said) if "certified by NIST" in line)
    assert said[start] in README
    rows = [line.split() for line in README.splitlines() if re.match(r"b\d  ", line)]
    want = [line.split() for line in said[start + 2 : start + 9]]
    assert [(r[0], r[1], *r[4:]) for r in rows] == [(r[0], r[1], *r[4:]) for r in want]


def test_the_page_of_devices_says_what_its_loop_prints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not any(d.is_gpu for d in sg.devices()):
        pytest.skip("no GPU and no software Vulkan driver here")
    page = (ROOT / "docs/numbers.md").read_text("utf-8")
    (loop,) = (b for b in re.findall(r"```python\n(.*?)```", page, re.S) if "device_array" in b)
    rosenbrock = lambda v: (1 - v[0]) ** 2 + 100 * (v[1] - v[0] ** 2) ** 2  # noqa: E731
    space = {"np": np, "sg": sg, "rosenbrock": rosenbrock}
    exec(loop, space)
    start = rosenbrock(np.random.default_rng(0).normal(size=(10_000, 2)).T).mean()
    said = re.findall(r"# ([\d.]+), from ([\d.]+) at the start", loop)
    assert said == [(f"{float(capsys.readouterr().out):.2f}", f"{start:.0f}")]


def test_the_page_of_arrays_has_the_numbers_of_the_rule() -> None:
    page = " ".join((ROOT / "docs/arrays.md").read_text("utf-8").split())
    large = f"({LEAST_WHOLE} elements and more of one call, {LARGE_POINT:,} variables of a kernel)"
    each = f"no operation has more than {MOST_ELEMENTS:,}; of one call"
    together = f"as long as all have no more than {MOST_OF_ONE_CALL:,} together"
    begun_again = f"come to more than {MOST_OF_ONE_CALL:,} operations"
    assert [text for text in (large, each, together, begun_again) if text not in page] == []


def test_the_readme_says_how_to_try_and_to_test() -> None:
    assert "`pip install '.[demo]' && python -m symgrad demo`" in README
    assert "`pip install '.[test]' && pytest -n auto`" in README


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", page.read_text("utf-8"))
    targets = re.findall(r"\]\(([^)#\s]+)\)", text)
    own = [t for t in targets if not t.startswith("https://")]
    assert [t for t in own if not (page.parent / t).exists()] == []


def test_pictures_are_small() -> None:
    pictures = list(ROOT.glob("docs/images/*"))
    assert pictures
    assert all(p.stat().st_size < 200_000 for p in pictures)


def test_commands_that_install_run_in_a_checkout() -> None:
    """No package index has symgrad yet, and the extras that pages name exist."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    pages = {page: page.read_text("utf-8") for page in [*PAGES, ROOT / "benchmarks/README.md"]}
    commands = [c for text in pages.values() for c in re.findall(r"pip install [^`\n]*", text)]
    named = [re.findall(r"\.\[([\w,]+)\]", command) for command in commands]
    assert len(commands) > 5 and all(named)
    assert {e for n in named for e in n[0].split(",")} <= set(extras["optional-dependencies"])


STUMBLED_OVER = r"\bnobody\b", r"\bbut for\b", r"\bis told by\b", r"\bof Dask's\b", r"^What no\b"
"""What a native reader stumbles over."""


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_pages_are_idiomatic(page: Path) -> None:
    text = page.read_text("utf-8")
    assert [m for pattern in STUMBLED_OVER for m in re.findall(pattern, text, re.MULTILINE)] == []
