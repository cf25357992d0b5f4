"""That the pages made from tables are up to date, and what the README shows is what one gets."""

from __future__ import annotations

import doctest
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text("utf-8")
PAGES = [ROOT / "README.md", *ROOT.glob("docs/*.md"), ROOT / "symgrad" / "data" / "README.md"]


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate_docs", ROOT / "tools/generate_docs.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["ops.md", "laws.md"])
def test_pages_are_those_of_the_tables(name: str, generator: ModuleType) -> None:
    found = (ROOT / "docs" / name).read_text("utf-8")
    assert found == generator.PAGES[name](), "run: python tools/generate_docs.py"


def test_every_operation_has_a_section(generator: ModuleType) -> None:
    sections = re.findall(r"^## (\w+)$", generator.ops_page(), re.MULTILINE)
    assert sections == [op.name for op in generator.TABLE.values() if op.arity]


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


def test_the_readme_says_how_to_try_and_to_test() -> None:
    assert "`pip install '.[demo]' && python -m symgrad demo`" in README
    assert "`pip install '.[test]' && pytest`" in README


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)\)", page.read_text("utf-8"))
    own = [t for t in targets if not t.startswith("https://")]
    assert [t for t in own if not (page.parent / t).exists()] == []


def test_pictures_are_small() -> None:
    pictures = list(ROOT.glob("docs/images/*"))
    assert pictures
    assert all(p.stat().st_size < 200_000 for p in pictures)
