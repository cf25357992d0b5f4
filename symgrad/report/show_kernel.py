"""A kernel in a notebook: its source with highlighting, and its statistics."""

from __future__ import annotations

import html as escape
import re
from typing import Final

_TOKENS: Final = re.compile(
    r"(?P<comment>//[^\n]*)|(?P<keyword>\b(?:fn|let|var|for|if|return|struct)\b)"
    r"|(?P<type>\b(?:f32|u32|i32|bool|array|vec3|vec4|bitcast)\b)|(?P<attribute>@\w+)"
    r"|(?P<number>\b\d[\w.]*(?:e-?\d+)?f?\b)"
)
_COLOURS: Final = {
    "comment": "#6a737d",
    "keyword": "#a626a4",
    "type": "#0184bc",
    "attribute": "#986801",
    "number": "#b35900",
}


LONGEST_SOURCE: Final = 1000
"""The lines of the longest source that a notebook shows whole."""


def html(title: str, stats: str, source: str) -> str:
    """The kernel as HTML; the source folded away, with its syntax in colour.

    Of a long source the first and last lines are shown.
    """
    return (
        f"<details><summary><b>{escape.escape(title)}</b><br>{escape.escape(stats)}</summary>"
        f'<pre style="line-height:1.25">{highlight(shortened(source))}</pre></details>'
    )


def shortened(source: str) -> str:
    """A source of at most `LONGEST_SOURCE` lines; a longer one without its middle."""
    lines = source.splitlines()
    left = len(lines) - LONGEST_SOURCE
    if left <= 0:
        return source
    half = LONGEST_SOURCE // 2
    note = f"// ... {left:,} more lines: print(kernel.wgsl) shows all ..."
    return "\n".join([*lines[:half], note, *lines[-half:]])


def highlight(source: str) -> str:
    """WGSL as HTML spans."""
    parts: list[str] = []
    end = 0
    for token in _TOKENS.finditer(source):
        parts.append(escape.escape(source[end : token.start()]))
        colour = _COLOURS[token.lastgroup or "comment"]
        parts.append(f'<span style="color:{colour}">{escape.escape(token[0])}</span>')
        end = token.end()
    return "".join([*parts, escape.escape(source[end:])])
