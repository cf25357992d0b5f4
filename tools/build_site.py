"""Builds the site of the documentation: pages, reference and gallery.

    pip install '.[docs]'
    python tools/build_site.py build/site [--pictures folder]

Sphinx fails on every warning, so every link within the site leads somewhere. The examples run on
the CPU to draw the gallery's pictures, but for those in the folder, where pictures are kept.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import site_gallery
import site_reference

import symgrad as sg

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^(```.*?^```\n)", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[([^\]]*)\]\((\.\./[^)#\s]*)[^)]*\)")
REFERENCE = re.compile(r"\[([^\]]*)\]\(reference/README\.md\)")
NAME = re.compile(r"(?<!\[)`(sg\.(\w+)[^`\n]*)`")


def linked(page: str) -> str:
    """A page whose names lead to the reference, and whose links stay within the site."""
    parts = FENCE.split(REFERENCE.sub(r"{doc}`\1 <reference/index>`", page))
    return "".join(
        part.replace("\n\n```\n", "\n```\n")  # the empty line is for doctest
        if k % 2
        else NAME.sub(_name, LINK.sub(_link, part))
        for k, part in enumerate(parts)
    )


def _link(match: re.Match[str]) -> str:
    """What is not on the site is named by its place in the sources."""
    text, target = match[1], match[2]
    up, place = "../" * (target.count("../") - 1), target.replace("../", "").rstrip("/")
    if place.startswith("examples"):
        page = "index" if place == "examples" else Path(place).stem
        return f"[{text}]({up}gallery/{page}.md)"
    if place in text or place.endswith(text):
        return f"`{place}`"
    return f"{text} (`{place}`)"


def _name(match: re.Match[str]) -> str:
    text, name = match[1], match[2]
    return f"{{py:obj}}`{text} <symgrad.{name}>`" if name in sg.__all__ else match[0]


def gather(sources: Path, pictures: Path) -> None:
    """Put all that the site is made of into a folder."""
    shutil.copytree(ROOT / "docs", sources, ignore=shutil.ignore_patterns("reference"))
    for page in sources.rglob("*.md"):
        page.write_text(linked(page.read_text("utf-8")), "utf-8")
    (sources / "reference").mkdir()
    for file, text in site_reference.pages():
        (sources / "reference" / f"{file}.rst").write_text(text, "utf-8")
    site_gallery.write(sources / "gallery", pictures)


def main(arguments: list[str]) -> int:
    """Gather, and run Sphinx."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--pictures", type=Path, help="where pictures are kept for the next time")
    parser.add_argument("--builder", default="html", help="what Sphinx does, such as linkcheck")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        pictures = (given.pictures or Path(folder, "pictures")).absolute()
        pictures.mkdir(parents=True, exist_ok=True)
        gather(Path(folder, "docs"), pictures)
        options = [
            f"--builder={given.builder}", "--fail-on-warning", "--keep-going", "--quiet",
            f"--conf-dir={ROOT / 'tools/sphinx'}", f"--doctree-dir={folder}/trees",
        ]  # fmt: skip
        sphinx = [sys.executable, "-m", "sphinx", *options, Path(folder, "docs"), given.output]
        return subprocess.run(sphinx).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
