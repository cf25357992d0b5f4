"""Kernels as ES modules without dependencies, and what TypeScript is to know of them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from symgrad.errors import InputError

MARK: Final = "Written by symgrad"
"""The mark near the beginning of every file that symgrad writes."""

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


Description = dict[str, Any]
"""Numbers, strings, None, and lists and dicts of them, as JSON holds them."""

MODULES: Final = ".mjs", ".js"
"""The suffixes of ES modules."""

PARTS: Final = {
    "points": ("launch", "points"),
    "rows": ("launch", "rows"),
    "minimization": ("launch", "points", "minimize"),
    "launch": ("launch", "arrays"),
}
"""The files of the runtime that each part of a description needs beside ``gpu``."""


@dataclass(frozen=True)
class Exported:
    """A kernel as data, with its sources: ``kind`` is its interface in ``types.d.ts``."""

    title: str
    kind: str
    description: Description
    sources: Sequence[str]

    @property
    def javascript(self) -> str:
        """The ES module."""
        return "\n".join(
            [
                f"// {MARK}: {self.title}.",
                "//",
                "// const kernel = await create(await requestDevice());",
                "// What is called how, and gives what, says the file of types beside it.",
                "",
                *(text_of("runtime", name) for name in self._parts),
                f"const description = {json.dumps(self.description, indent=1, allow_nan=True)};",
                "",
                "/** The sources of the kernel. */",
                f"export const wgsl = [{','.join(map(literal, self.sources))}];",
                "",
                "/** The kernel on a device. */",
                "export const create = (device) => open(device, description, wgsl);",
                "",
            ]
        )

    @property
    def typescript(self) -> str:
        """The declarations of the module's types."""
        return "\n".join(
            [
                f"// {MARK}: {self.title}.",
                "",
                text_of("runtime", "types.d.ts"),
                "/** The sources of the kernel. */",
                "export const wgsl: string[];",
                "",
                "/** The kernel on a device. */",
                f"export function create(device: GPUDevice): Promise<{self.kind}>;",
                "",
            ]
        )

    def write(self, path: str | Path) -> None:
        """Write the module, and the file of its types beside it.

        Raises:
            InputError: for a name that does not end in .mjs or .js, and as `write_files` does.
        """
        place = Path(path)
        if place.suffix not in MODULES:
            raise InputError(f"{place}: the name of a module ends in {' or '.join(MODULES)}")
        types = place.with_suffix(".d.mts" if place.suffix == ".mjs" else ".d.ts")
        write_files({place: self.javascript, types: self.typescript})

    @property
    def _parts(self) -> list[str]:
        """The files of the runtime, in their order."""
        parts = [part for name in self.description for part in PARTS.get(name, ())]
        return [f"{name}.js" for name in dict.fromkeys(["gpu", *parts, "open"])]


def literal(text: str) -> str:
    """A text as a template of JavaScript, which can be read."""
    return "`" + re.sub(r"[\\`]|\$(?=\{)", r"\\\g<0>", text) + "`"


def in_a_script(javascript: str) -> str:
    """A program as it may stand in a page: nothing in its texts ends or begins a script there."""
    return re.sub(r"<(?=/script|!--|script)", r"\\x3c", javascript, flags=re.IGNORECASE)


@cache
def text_of(folder: str, name: str) -> str:
    """A file that lies in the package."""
    return files("symgrad.web").joinpath(folder, name).read_text("utf-8")
