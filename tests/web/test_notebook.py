"""The notebook among the examples: it runs, and shows its page inline, which fits."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import Chromium

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples/page.ipynb"
CELLS = [cell for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"] if "outputs" in cell]

FITTED = """
const frame = document.querySelector("iframe");
const at = (id) => frame.contentDocument.getElementById(id);
const until = async (met) => {
  for (let k = 0; k < 600 && !met(); k++) await new Promise((done) => setTimeout(done, 50));
};
await until(() => at("fit") && !at("fit").disabled);
at("fit").click();
await until(() => at("fit").textContent === "Fit");
const numbers = frame.contentDocument.querySelectorAll("input[type=number]");
return [...numbers].map((i) => i.valueAsNumber);
"""


@pytest.fixture(scope="module")
def shown() -> list[Any]:
    """What the cells end with, one after the other, and the fit that the last of them made."""
    space: dict[str, Any] = {}
    values = [value_of("".join(cell["source"]), space) for cell in CELLS]
    return [*values, space["fit"]]


def value_of(source: str, space: dict[str, Any]) -> Any:
    """What a cell shows: the value of the expression that it ends with, if it does."""
    *body, last = ast.parse(source).body
    if not isinstance(last, ast.Expr):
        body, last = [*body, last], None
    exec(compile(ast.Module(body, []), NOTEBOOK.name, "exec"), space)
    return last and eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), space)


def test_the_notebook_is_kept_without_what_it_shows() -> None:
    assert len(CELLS) > 2
    assert [cell["outputs"] for cell in CELLS] == [[]] * len(CELLS)


def test_the_notebook_shows_the_page_and_it_fits_there(shown: list[Any], browser: Chromium) -> None:
    *values, fit = shown
    (page,) = (value for value in values if hasattr(value, "_repr_html_"))
    notebook = browser.folder / "notebook.html"
    notebook.write_text(f"<!doctype html><h1>A notebook</h1>{page._repr_html_()}", "utf-8")
    with browser.page(notebook.name) as opened:
        found = opened.run(FITTED)
    np.testing.assert_allclose(found, fit.popt, rtol=1e-3)
