"""How Sphinx makes the site of what tools/build_site.py has gathered."""

from __future__ import annotations

import re
from typing import Any

import symgrad as sg

project = "symgrad"
release = sg.__version__
copyright = "the symgrad authors, MIT licence"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
myst_heading_anchors = 3
myst_enable_extensions = ["attrs_block"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # docstrings say what is given, in words
python_maximum_signature_line_length = 80
napoleon_use_ivar = True
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = "symgrad"
html_static_path = ["style.css"]
html_css_files = ["style.css"]
html_copy_source = False
html_show_sphinx = False

MARK = re.compile(r"(``.+?``|`[^`]+`)(?=(\w?))|([*|\\]|_\b)", re.DOTALL)
"""Code in a docstring, and what else is markup in reStructuredText and means itself in ours."""

EXAMPLE = re.compile(r"(^ *>>>.*?(?=\n *\n|\Z))", re.MULTILINE | re.DOTALL)
"""An example, to the end of its paragraph."""


def as_restructured(lines: list[str]) -> list[str]:
    """The lines of a docstring with its code in reStructuredText's marks, and links to names."""
    parts = EXAMPLE.split("\n".join(lines))
    return "".join(part if k % 2 else marked(part) for k, part in enumerate(parts)).split("\n")


def marked(text: str) -> str:
    """Text without examples."""
    return MARK.sub(lambda m: code(m[1]) + "\\ " * bool(m[2]) if m[1] else f"\\{m[3]}", text)


def code(part: str) -> str:
    """A piece of code, which leads to its entry if it is a public name: `sg.where`, `Kernel`."""
    text = " ".join(part.strip("`").split())
    name = re.split(r"[.(\[]", text.removeprefix("sg."))[0]
    meant = text.startswith("sg.") or name != name.lower()  # a class by its own name
    if meant and name in sg.__all__:
        return f":py:obj:`{text} <symgrad.{name}>`"
    return f"``{text}``"


def setup(app: Any) -> None:
    """Called by Sphinx."""

    def rewrite(app: Any, what: str, name: str, it: Any, options: Any, lines: list[str]) -> None:
        lines[:] = as_restructured(lines)

    app.connect("autodoc-process-docstring", rewrite, priority=100)  # before napoleon
