"""Compiled code on disk: files that any number of processes read, write and delete."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from pathlib import Path
from typing import Final

from symgrad.llvm import compiler

NAME: Final = re.compile(r"[0-9a-f]{64}(\.\w+)?\.code")
"""The names of files: a key, and a mark where the file is not finished yet."""

MOST_BYTES: Final = 256 * 2**20
"""The most that is kept, beyond what was just written; what was used longest ago goes."""

RECENT_SECONDS: Final = 60
"""How long a file is kept after it was used, whatever its size."""


class CodeFiles:
    """The code that is kept in a folder, by keys that are hashes; ``most`` bytes of it, about."""

    def __init__(self, folder: Path, most: int = MOST_BYTES) -> None:
        self.folder, self.most = folder, most

    def read(self, key: str) -> bytes | None:
        """The entry under a key, if it is whole and was written under that key."""
        path = self.folder / f"{key}.code"
        try:
            content = path.read_bytes()
        except OSError:
            return None
        compiled = compiler.unsealed(key, content)
        if compiled is not None:
            with contextlib.suppress(OSError):  # a disk that can only be read
                os.utime(path)
        return compiled

    def write(self, key: str, compiled: bytes) -> None:
        """Keep code under a key: whole or not at all, whoever else writes it at the same time."""
        content = compiler.sealed(key, compiled)
        with contextlib.suppress(OSError):
            unfinished = self._unfinished(key, content)
            try:
                os.replace(unfinished, self.folder / f"{key}.code")
            except OSError:
                os.unlink(unfinished)
            if self._is_turn(key, len(content)):
                self.prune()

    def _unfinished(self, key: str, content: bytes) -> str:
        """A file with this content under a name that nobody reads."""
        handle, path = tempfile.mkstemp(prefix=f"{key}.", suffix=".code", dir=self.folder)
        try:
            with open(handle, "wb") as file:
                file.write(content)
        except OSError:
            os.unlink(path)
            raise
        return path

    def _is_turn(self, key: str, size: int) -> bool:
        """Whether to prune after this write, which takes a look at every file.

        Once in ``most / 16`` bytes that all processes together write, on average: keys are hashes,
        so those below a number are drawn at random. A write thus looks at 16 files on average,
        however many there are.
        """
        return int(key[:8], 16) * self.most < 16 * size << 32

    def prune(self) -> None:
        """Delete what was used longest ago of the files written here, where too much is kept.

        What was used within ``RECENT_SECONDS`` stays, since another process may be about to read
        it.
        """
        with os.scandir(self.folder) as entries:
            ours = [
                e for e in entries if NAME.fullmatch(e.name) and e.is_file(follow_symlinks=False)
            ]
        files = sorted((s.st_mtime, s.st_size, e.path) for e in ours if (s := _state(e)))
        total, now = sum(size for _, size, _ in files), time.time()
        for used, size, path in files:
            if total <= self.most or used > now - RECENT_SECONDS:
                break
            with contextlib.suppress(OSError):
                if self.is_code(path) and os.stat(path).st_mtime == used:
                    os.unlink(path)
            total -= size

    def is_code(self, path: str) -> bool:
        """Whether a file begins as those that are written here do, whichever version wrote it."""
        with open(path, "rb") as file:
            return file.read(len(compiler.MARK)) == compiler.MARK


def _state(entry: os.DirEntry[str]) -> os.stat_result | None:
    """The size and the time of a file, or None where another process has deleted it."""
    with contextlib.suppress(OSError):
        return entry.stat(follow_symlinks=False)
    return None
