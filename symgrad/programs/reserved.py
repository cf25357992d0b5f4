"""The words that are no names in programs."""

from __future__ import annotations

import keyword
from typing import Final

WORDS: Final = frozenset(
    [
        "program",
        "input",
        "output",
        "temporary",
        "workgroup",
        "private",
        "dispatch",
        "groups",
        "of",
        "let",
        "var",
        "if",
        "else",
        "for",
        "in",
        "down",
        "most",
        "barrier",
        "cell",
        "local",
        "group",
        "group_sum",
        "group_max",
        "group_min",
        "inf",
        "nan",
        "f32",
        "i32",
        "u32",
        "bool",
        "float32",
        "int32",
        "uint32",
    ]
) | frozenset(keyword.kwlist)
"""The words of the text of programs, and those that Python keeps for itself."""
