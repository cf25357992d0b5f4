"""The text of every kernel that tests compile, kept so that two versions can be compared.

A change of how kernels are written, and not of what they are, leaves their text as it was:

    pytest -p replay --replay before tests docs      # of one version
    pytest -p replay --replay after tests docs       # of another one
    python tools/replay.py before after

Each folder holds one file for each text, named by its hash, whose first line says which test
compiled it first. Texts that only one of the folders has are listed, with that test.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest

from symgrad.llvm.device import cpu
from symgrad.wgsl.device.gpu import Gpu


class Recorder:
    """Writes each text once, beside the test that is running."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.test = folder, "collection"

    def record(self, text: str, suffix: str) -> None:
        """Keep a text."""
        path = self.folder / (hashlib.sha256(text.encode()).hexdigest()[:24] + suffix)
        if not path.exists():
            path.write_text(f"{self.test}\n{text}")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Note which test is running."""
        self.test = item.nodeid


def pytest_addoption(parser: pytest.Parser) -> None:
    """The folder of the texts."""
    parser.addoption("--replay", metavar="FOLDER", help="where the text of kernels is kept")


def pytest_configure(config: pytest.Config) -> None:
    """Record what the two compilers are given."""
    if folder := config.getoption("--replay"):
        Path(folder).mkdir(parents=True, exist_ok=True)
        recorder = Recorder(Path(folder))
        config.pluginmanager.register(recorder)
        _wrap(Gpu, "pipeline", lambda gpu, source, *_, **__: recorder.record(source, ".wgsl"))
        _wrap(cpu, "key_of", lambda source: recorder.record(source.text, ".ll"))


def _wrap(owner: Any, name: str, before: Any) -> None:
    """Have ``before`` called with the arguments of a function, before it."""
    function = getattr(owner, name)

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        before(*args, **kwargs)
        return function(*args, **kwargs)

    setattr(owner, name, wrapped)


def compare(before: Path, after: Path) -> int:
    """Print which texts only one of the folders has; how many there are."""
    texts = [{p.name: p for p in folder.iterdir()} for folder in (before, after)]
    print(f"{len(texts[0].keys() & texts[1].keys()):,} texts are in both folders")
    different = 0
    for own, other, folder in ((*texts, before), (*texts[::-1], after)):
        alone = sorted(own.keys() - other.keys(), key=lambda name: own[name].open().readline())
        different += len(alone)
        print(f"{len(alone):,} only in {folder}:")
        for name in alone:
            print(f"  {name}  {own[name].open().readline().strip()}")
    return different


if __name__ == "__main__":
    sys.exit(compare(*map(Path, sys.argv[1:])) > 0)
