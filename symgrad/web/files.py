"""Files that symgrad writes: over its own, and over nobody else's."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from symgrad.errors import InputError

MARK: Final = "Written by symgrad"
"""What stands near the beginning of every file that symgrad writes."""

BEGINNING: Final = 400
"""Characters of a file among which the mark is looked for."""


def write_files(texts: dict[Path, str]) -> None:
    """Write texts, all of them or none: each has the mark near its beginning.

    Raises:
        InputError: if there is no such folder, or a file there that symgrad did not write.
    """
    for path, text in texts.items():
        assert MARK in text[:BEGINNING], "a file of symgrad's says so"
        if path.is_dir() or not path.parent.is_dir():
            raise InputError(
                f"{path} is a folder: name a file in it"
                if path.is_dir()
                else f"{path}: there is no folder {path.parent}"
            )
        if path.exists() and not _is_ours(path):
            raise InputError(
                f"{path} exists and was not written by symgrad: choose another name, or move it"
            )
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8", newline="\n")


def _is_ours(path: Path) -> bool:
    """Whether a file bears the mark."""
    with path.open(encoding="utf-8", errors="replace") as file:
        return MARK in file.read(BEGINNING)
