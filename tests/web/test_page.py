"""Pages that fit a model: in Chromium from a file, and without WebGPU."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import Chromium

import symgrad as sg
from symgrad.web.kernels import in_a_script, literal

UNTIL = """
const at = (id) => document.getElementById(id);
const until = async (met) => {
  for (let k = 0; k < 600; k++) {
    if (met()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(document.body.innerText);
};
"""
READY = UNTIL + "await until(() => !at('fit').disabled || !at('trouble').hidden);"
VALUES = "[...document.querySelectorAll('input[type=number]')].map((i) => i.valueAsNumber)"
FIT = "at('fit').click(); await until(() => at('fit').textContent === 'Fit');"


def peak(x: Any, height: Any, centre: Any, width: Any, background: Any) -> Any:
    return height * sg.exp(-0.5 * ((x - centre) / width) ** 2) + background


def data() -> tuple[np.ndarray, np.ndarray]:
    x = np.linspace(0, 10, 120)
    noise = 0.05 * np.random.default_rng(3).normal(size=x.size)
    return x, peak(x, 3.0, 4.2, 0.8, 0.5) + noise


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "peak.html"
    x, y = data()
    sg.export_html(peak, path, [1.0, 5.0, 2.0, 0.0], x=x, y=y, title="<Peak> & more",
                   bounds=([0.0, 0.0, 0.1, -1.0], [9.0, 10.0, 5.0, 1.0]))  # fmt: skip
    return path


def test_a_page_fits_as_curve_fit_does(written: Path, browser: Chromium, tmp_path: Path) -> None:
    wanted, _ = sg.curve_fit(peak, *data(), [1.0, 5.0, 2.0, 0.0], device="cpu")
    with browser.page(written.as_uri()) as page:
        found, status, title = page.run(
            READY + FIT + f"return [{VALUES}, at('status').textContent, document.title]"
        )
        np.testing.assert_allclose(found, wanted, rtol=1e-3)
        assert title == "<Peak> & more"
        assert "tolerance" in status
        sources = page.run("return [...document.querySelectorAll('pre')].map((e) => e.textContent)")
        assert len(sources) > 3 and all("@compute" in source for source in sources)
        page.screenshot(tmp_path / "wide.png")
        page.resize(390, 844)
        assert page.run("return document.documentElement.scrollWidth") <= 390


def test_data_are_pasted(written: Path, browser: Chromium) -> None:
    """With a heading, semicolons, and commas in numbers, as spreadsheets in Europe write them."""
    x, y = data()
    rows = "\n".join(f"{a:.4f};{b + 1:.4f}".replace(".", ",") for a, b in zip(x, y, strict=True))
    with browser.page(written.as_uri()) as page:
        paste = "at('data').value = text; at('data').dispatchEvent(new Event('input'));"
        told = "at('read').textContent"
        none, read, found = page.run(
            f"{READY} const none = ((text) => {{ {paste} return {told}; }})('nothing');"
            f"return await (async (text) => {{ {paste} {FIT}"
            f"return [none, {told}, {VALUES}]; }})(rows)",
            rows="time; signal\n" + rows,
        )
    assert none == "No rows of two numbers."
    assert read == "120 rows"
    wanted, _ = sg.curve_fit(peak, x, y + 1, [1.0, 5.0, 2.0, 0.0], device="cpu",
                             bounds=([0.0, 0.0, 0.1, -1.0], [9.0, 10.0, 5.0, 1.0]))  # fmt: skip
    np.testing.assert_allclose(found, wanted, rtol=2e-3)


def test_sliders_draw_the_model_anew(written: Path, browser: Chromium) -> None:
    picture = "at('plot').toDataURL()"
    with browser.page(written.as_uri()) as page:
        before, after, shown, ends = page.run(
            READY + "await new Promise((r) => setTimeout(r, 300));"
            f"const before = {picture}; const slider = document.querySelector('input[type=range]');"
            "slider.value = 6; slider.dispatchEvent(new Event('input'));"
            f"await until(() => {picture} !== before);"
            f"return [before, {picture}, {VALUES}[0], [slider.min, slider.max]]"
        )
    assert before != after
    assert shown == pytest.approx(6, rel=1e-3)
    assert [float(v) for v in ends] == [0.0, 9.0]


def test_without_webgpu_a_page_says_how_to_switch_it_on(written: Path, browser: Chromium) -> None:
    hide = "Object.defineProperty(Navigator.prototype, 'gpu', { get: () => undefined });"
    with browser.page(written.as_uri(), before=hide) as page:
        told, disabled = page.run(READY + "return [at('trouble').textContent, at('fit').disabled]")
    assert "no WebGPU" in told and "--enable-unsafe-webgpu" in told
    assert disabled


def test_a_page_without_data_begins_with_an_example(browser: Chromium, tmp_path: Path) -> None:
    sg.export_html(lambda x, a, b: a * sg.exp(-b * x), tmp_path / "decay.html")
    with browser.page((tmp_path / "decay.html").as_uri()) as page:
        read, values = page.run(f"{READY} const read = at('read').textContent; {FIT}"
                                f"return [read, {VALUES}]")  # fmt: skip
    assert read == "60 rows, an example"
    np.testing.assert_allclose(values, [1.2, 1.2], rtol=0.1)


def test_a_notebook_shows_the_page(browser: Chromium, tmp_path: Path) -> None:
    shown = sg.export_html(lambda x, a, b: a + b * x, tmp_path / "line.html")
    assert repr(shown) == f"<symgrad page {tmp_path / 'line.html'}>"
    with browser.page("blank.html") as page:
        names = page.run(
            f"{UNTIL} document.body.innerHTML = cell; const inner = () =>"
            " document.querySelector('iframe').contentDocument;"
            "await until(() => inner()?.getElementById('fit')?.disabled === false);"
            "return [...inner().querySelectorAll('.parameter label')].map((e) => e.textContent);",
            cell=shown._repr_html_(),
        )
    assert names == ["a", "b"]


def test_nothing_within_a_script_ends_it() -> None:
    text = "a `${b}` \\ </script> <!-- <SCRIPT"
    page = in_a_script(f"const a = {literal(text)};")
    assert "</script" not in page and "<!--" not in page and "<SCRIPT" not in page
    node = shutil.which("node")
    if node:
        command = [node, "-e", f"{page} console.log(a)"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout == f"{text}\n"


def test_pages_refuse_what_does_not_fit(tmp_path: Path) -> None:
    with pytest.raises(sg.InputError, match=r"ends in \.html"):
        sg.export_html(peak, tmp_path / "peak.pdf")
    with pytest.raises(sg.InputError, match=r"both \(M,\) are needed"):
        sg.export_html(peak, tmp_path / "peak.html", x=[1.0, 2.0], y=[1.0])
    with pytest.raises(sg.InputError, match="outside of the bounds"):
        sg.export_html(peak, tmp_path / "peak.html", [9.0] * 4, bounds=(0.0, 1.0))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("model", "options", "text"),
    [
        (lambda x, a, b: a * (x - np.mean(x)) + b, {}, "gives other values for all x together"),
        (lambda x, a, b: a * x + b, {"p0": [1.0]}, "p0 has 1 parameter,"),
        (lambda x, a, b: a * x + b, {"p0": {"c": 1.0}}, "p0 names 'c'"),
        (lambda x, a, b: a * x + b, {"x": ["1"], "y": ["2"]}, "x holds"),
        (lambda x, a, b: a * x + b, {"x": [1.0], "y": np.ma.masked_all(1)}, "y has masked entries"),
    ],
)
def test_models_and_data_that_are_not_of_one_x(
    model: Any, options: Any, text: str, tmp_path: Path
) -> None:
    with pytest.raises(sg.SymgradError, match=text):
        sg.export_html(model, tmp_path / "page.html", **options)


def test_starts_and_bounds_by_names(tmp_path: Path) -> None:
    line = lambda x, slope, level: slope * x + level  # noqa: E731
    here, there = tmp_path / "here.html", tmp_path / "there.html"
    sg.export_html(line, here, {"level": 2.0}, bounds={"slope": (0.0, 4.0)})
    sg.export_html(line, there, [2.0, 2.0], bounds=([0.0, -np.inf], [4.0, np.inf]))
    assert here.read_text() == there.read_text()
