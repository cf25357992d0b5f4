"""The site of the documentation: its reference is complete, and its pages fit a phone."""

from __future__ import annotations

import importlib.util
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import build_site
import pytest
import reference_pages
import site_gallery
import site_reference
from chromium import PROGRAM, Chromium

import symgrad as sg

ROOT = Path(__file__).parents[1]
SITE = os.environ.get("SYMGRAD_SITE")
PHONE = 390
"""Pixels of a phone's width."""


@pytest.fixture(scope="module")
def conf() -> ModuleType:
    spec = importlib.util.spec_from_file_location("conf", ROOT / "tools/sphinx/conf.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_has_one_place_in_the_reference() -> None:
    found = Counter(name for group in site_reference.GROUPS for name in group.names)
    assert found == Counter(sg.__all__)


def test_pages_of_the_reference_list_what_their_modules_offer() -> None:
    pages = dict(site_reference.pages())
    assert ".. autofunction:: symgrad.random.normal\n" in pages["modules"]
    assert ".. autoclass:: symgrad.schedules.Cosine\n   :members:\n" in pages["optimisers"]
    assert all(f"   {file}\n" in pages["index"] for file in pages if file != "index")


def test_every_page_is_in_the_contents() -> None:
    index = ROOT / "docs/index.md"
    trees = re.findall(r"^```{toctree}\n.*?\n\n(.*?)\n```", index.read_text("utf-8"), re.M | re.S)
    listed = [name for tree in trees for name in tree.split()]
    pages = {str(page.relative_to(ROOT / "docs"))[:-3] for page in ROOT.glob("docs/**/*.md")}
    pages -= {f"reference/{file}" for file in reference_pages.FILES}  # the site makes its own
    assert sorted(listed) == sorted(pages - {"index"} | {"gallery/index", "reference/index"})


def test_every_error_has_its_remedy() -> None:
    page = (ROOT / "docs/howto/errors.md").read_text("utf-8")
    assert [name for name in site_reference.ERRORS.split() if f"sg.{name}`" not in page] == []


def test_the_readme_has_a_title_for_every_example() -> None:
    assert sorted(site_gallery.titles()) == sorted(p.stem for p in ROOT.glob("examples/*.py"))


def test_links_stay_within_the_site_and_names_lead_to_the_reference() -> None:
    page = (
        "`sg.fit_many(x)`, [rows](../symgrad/expr/ops), [laws.py](../laws.py), "
        "[a](../examples/05_audit.py), `sg.no`"
    )
    want = (
        "{py:obj}`sg.fit_many(x) <symgrad.fit_many>`, rows (`symgrad/expr/ops`), "
        "`laws.py`, [a](gallery/05_audit.md), `sg.no`"
    )
    assert build_site.linked(page) == want
    assert build_site.linked("[all](../../examples)") == "[all](../gallery/index.md)"
    assert build_site.linked("```\n`sg.grad`\n\n```\n") == "```\n`sg.grad`\n```\n"


def test_docstrings_become_what_sphinx_reads(conf: ModuleType) -> None:
    lines = [
        "|x| is `sg.abs(x)`, a `Kernel`",
        "of ``2 *",
        "b``.",
        "",
        ">>> 2 * 3",
        "6",
        "",
        "`Kernel`s a_*b",
    ]
    want = [
        r"\|x\| is :py:obj:`sg.abs(x) <symgrad.abs>`, a :py:obj:`Kernel <symgrad.Kernel>`",
        "of ``2 * b``.", "", ">>> 2 * 3", "6", "", r":py:obj:`Kernel <symgrad.Kernel>`\ s a\_\*b",
    ]  # fmt: skip
    assert conf.as_restructured(lines) == want


def test_commands_of_an_example_are_a_block() -> None:
    text = "What.\n\nMore.\n\n    python a.py\n    python b.py\n"
    assert (
        site_gallery.as_markdown(text) == "What.\n\nMore.\n\n```sh\npython a.py\npython b.py\n\n```"
    )


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    if not SITE or not PROGRAM:
        pytest.skip("SYMGRAD_SITE names no site that was built, or there is no Chromium")
    browser = Chromium(tmp_path_factory.mktemp("profile"), Path(SITE))
    yield browser
    browser.close()


def test_pages_fit_a_phone_and_show_their_pictures(browser: Chromium) -> None:
    """Nothing but code and tables, which scroll by themselves, is wider than the screen."""
    assert SITE
    pages = (page.relative_to(SITE) for page in sorted(Path(SITE).rglob("*.html")))
    faults = {}
    with browser.page("index.html", width=PHONE, height=844) as shown:
        for page in (page for page in pages if not str(page).startswith("_")):
            shown.open(f"{browser.address}/{page}")
            over = shown.run("return document.documentElement.scrollWidth - innerWidth")
            empty = "return [...document.images].filter(i => !i.naturalWidth).map(i => i.src)"
            if (found := (over, shown.run(empty))) != (0, []):
                faults[str(page)] = found
    assert faults == {}
