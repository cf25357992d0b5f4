"""The gallery: a page for each example, with what it says of itself, its picture and its code."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import site_notebook

ROOT = Path(__file__).parents[1]

TOGETHER = 2
"""How many examples run at the same time."""

LONGEST = 300
"""Seconds that an example may take."""

HEAD = """# Gallery

Programs that run in seconds. Each draws its picture and asserts its result, and is tested on the
CPU and on a GPU. The pictures here were drawn when this site was built, on the CPU.

{.gallery}
"""

NOTEBOOK = "- [![](../images/page.png)](page.md)\n  [A page that fits, in a notebook](page.md)\n"
"""The place of the notebook in the list."""


@dataclass(frozen=True)
class Example:
    """A program of examples/, its title, what it printed, and whether it drew its picture.

    Where a package is not there that it needs, it prints which, and draws nothing.
    """

    path: Path
    title: str
    printed: str
    drawn: bool

    @property
    def name(self) -> str:
        """The name of its page and its picture."""
        return self.path.stem

    @property
    def card(self) -> str:
        """Its place in the list."""
        picture = f"[![]({self.name}.png)]({self.name}.md)\n  " if self.drawn else ""
        return f"- {picture}[{self.title}]({self.name}.md)\n"

    @property
    def page(self) -> str:
        """All there is of it."""
        source = self.path.read_text("utf-8")
        picture = f"![{self.title}]({self.name}.png)\n\n" if self.drawn else ""
        return (
            f"# {self.title}\n\n{as_markdown(ast.get_docstring(ast.parse(source)) or '')}\n\n"
            f"{picture}It prints:\n\n```text\n{self.printed.strip()}\n```\n\n"
            f"## {self.path.name}\n\n```python\n{source}```\n"
        )


def as_markdown(docstring: str) -> str:
    """A docstring whose indented lines are commands."""
    return "\n\n".join(
        f"```sh\n{re.sub('^ +', '', block, flags=re.MULTILINE)}\n```"
        if block.startswith("    ")
        else block
        for block in docstring.split("\n\n")
    )


def titles() -> dict[str, str]:
    """What the README calls each example."""
    listed = re.findall(r"\[([^\]]+)\]\(examples/(\w+)\.py\)[,.]", (ROOT / "README.md").read_text())
    return {name: title[0].upper() + title[1:] for title, name in listed}


def keep(kept: Path, name: str, printed: str, picture: Path) -> None:
    """Keep what an example has printed, but for where its picture went, and the picture."""
    kept.mkdir(parents=True, exist_ok=True)
    text = re.sub(r"^picture: .*\n", "", printed, flags=re.MULTILINE)
    (kept / f"{name}.txt").write_text(text, "utf-8")
    shutil.copy(picture, kept / f"{name}.png")


def run(path: Path, kept: Path) -> str:
    """What an example prints; its picture goes where pictures are kept, unless one is there."""
    picture, text = kept / f"{path.stem}.png", kept / f"{path.stem}.txt"
    if not picture.exists():
        text.write_text(_output(path, picture), "utf-8")
    return text.read_text("utf-8")


def _output(path: Path, picture: Path) -> str:
    command = [sys.executable, path, "--device", "cpu", "--output", picture]
    done = subprocess.run(
        command, cwd=picture.parent, capture_output=True, text=True, timeout=LONGEST,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"},
    )  # fmt: skip
    absent = done.returncode and "pip install" in done.stderr
    assert absent or not done.returncode, f"{path.name}: {done.stderr}"
    return done.stderr if absent else re.sub(r"^picture: .*\n", "", done.stdout, flags=re.MULTILINE)


def write(gallery: Path, kept: Path) -> None:
    """Write the pages, with pictures from where they are kept; those not there are drawn."""
    gallery.mkdir()
    (gallery / "page.md").write_text(site_notebook.page(ROOT / "examples/page.ipynb"), "utf-8")
    paths = sorted((ROOT / "examples").glob("*.py"))
    with ThreadPoolExecutor(TOGETHER) as pool:
        printed = list(pool.map(lambda path: run(path, kept), paths))
    called, examples = titles(), []
    for path, text in zip(paths, printed, strict=True):
        picture = kept / f"{path.stem}.png"
        examples.append(Example(path, called[path.stem], text, picture.exists()))
        if picture.exists():
            shutil.copy(picture, gallery)
        (gallery / f"{path.stem}.md").write_text(examples[-1].page, "utf-8")
    cards = "".join([*(example.card for example in examples), NOTEBOOK])
    contents = "\n".join([*(example.name for example in examples), "page"])
    toctree = f"\n```{{toctree}}\n:hidden:\n\n{contents}\n```\n"
    (gallery / "index.md").write_text(f"{HEAD}{cards}{toctree}", "utf-8")
