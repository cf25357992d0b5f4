"""The notebook among the examples: it runs, and shows its page inline, which fits."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from chromium import Chromium
from site_notebook import run

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples/page.ipynb"

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


def test_the_notebook_is_kept_without_what_it_shows() -> None:
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    assert {str(cell.get("outputs", [])) for cell in cells} == {"[]"}


def test_the_notebook_shows_the_page_and_it_fits_there(browser: Chromium) -> None:
    *values, fitted = [value for _, _, value in run(NOTEBOOK) if value is not None]
    (page,) = values
    notebook = browser.folder / "notebook.html"
    notebook.write_text(f"<!doctype html><h1>A notebook</h1>{page._repr_html_()}", "utf-8")
    with browser.page(notebook.name) as opened:
        np.testing.assert_allclose(opened.run(FITTED), [*fitted.values()], rtol=1e-3)
