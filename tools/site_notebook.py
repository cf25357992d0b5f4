"""Notebooks of examples/: run, and as pages of the gallery that show what the notebook shows."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def run(path: Path) -> Iterator[tuple[str, str, Any]]:
    """The kind of each cell, its text, and the value of the expression that its code ends with."""
    space: dict[str, Any] = {}
    for cell in json.loads(path.read_text("utf-8"))["cells"]:
        text = "".join(cell["source"])
        code = cell["cell_type"] == "code"
        yield cell["cell_type"], text, _value(text, space) if code else None


def _value(source: str, space: dict[str, Any]) -> Any:
    *body, last = ast.parse(source).body
    if not isinstance(last, ast.Expr):
        body, last = [*body, last], None
    exec(compile(ast.Module(body, []), "cell", "exec"), space)
    return last and eval(compile(ast.Expression(last.value), "cell", "eval"), space)


def page(path: Path) -> str:
    """A notebook as Markdown; what it shows as HTML is shown."""
    return "\n\n".join(
        text if kind == "markdown" else f"```python\n{text}\n```{_html(value)}"
        for kind, text, value in run(path)
    )


def _html(value: Any) -> str:
    shown = value._repr_html_() if hasattr(value, "_repr_html_") else ""
    return f"\n\n```{{raw}} html\n{shown}\n```" if shown else ""
