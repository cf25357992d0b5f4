"""Compiled code is kept, in memory and on disk, and a broken file on disk does no harm."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from symgrad.llvm import compiler
from symgrad.llvm.device import cpu as device
from symgrad.llvm.device.cpu import CodeFiles
from symgrad.llvm.printing.source import Source

from .running import run
from .test_emit import ONE, chain

SOURCE = Source("define void @run(ptr %x) { ret void }\n", "void (*)(void *)", 0, 0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for compiled code."""
    monkeypatch.setenv("SYMGRAD_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


def test_the_host_is_described() -> None:
    host = device.host()
    assert host.name
    assert host.vector_bits in (128, 256, 512)
    assert host.threads >= 1
    assert host.shape("float64", True).lanes * 2 == host.shape("float32", True).lanes
    assert host.shape("float64", False).lanes == 1


def test_code_is_kept_in_memory(folder: Path) -> None:
    assert device.compile_source(SOURCE) is device.compile_source(SOURCE)


def test_code_is_read_from_the_disk(folder: Path) -> None:
    device.compile_source(SOURCE)
    (path,) = kept(folder).iterdir()
    os.utime(path, (0, 0))
    assert device.compile_source(SOURCE).address
    assert path.stat().st_mtime > 0, "it was used"
    assert list(kept(folder).iterdir()) == [path]
    assert device.find_code(replace(SOURCE, effort=1)) is None


def test_with_less_effort_the_code_is_another_and_the_bits_are_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, points = chain(20), np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    want = run(made, ONE, points)
    monkeypatch.setenv("SYMGRAD_EFFORT", "0")
    for found, wanted in zip(run(made, ONE, points), want, strict=True):
        np.testing.assert_array_equal(found, wanted)
    head = len(compiler.HEADER) + 32 + 64 + 1  # with a digest, and a key
    first, second = (path.read_bytes()[head:] for path in kept(folder).iterdir())
    assert first != second


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b"", lambda b: b[:50] + b"x" * 99])
def test_a_broken_file_is_compiled_anew(folder: Path, damage: object) -> None:
    made, points = chain(20), np.ones((3, 3), np.float32)
    want = run(made, ONE, points)
    (path,) = kept(folder).iterdir()
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    np.testing.assert_array_equal(run(made, ONE, points)[0], want[0])


def test_code_under_the_name_of_another_is_not_run(folder: Path) -> None:
    """It is whole, but was compiled from another text: a copy, or a folder that went wrong."""
    points = np.random.default_rng(0).uniform(0.1, 0.9, (3, 3)).astype(np.float32)
    made, other = chain(20), chain(21)
    want = run(made, ONE, points)[0]
    (path,) = kept(folder).iterdir()
    run(other, ONE, points)
    (foreign,) = set(kept(folder).iterdir()) - {path}
    path.write_bytes(foreign.read_bytes())
    np.testing.assert_array_equal(run(made, ONE, points)[0], want)
    assert compiler.unsealed(path.stem, path.read_bytes()), "it was written anew"


def test_files_name_what_was_compiled(folder: Path) -> None:
    device.compile_source(SOURCE)
    (path,) = kept(folder).iterdir()
    content = path.read_bytes()
    assert path.stem == device.key_of(SOURCE)
    assert path.stem.encode() in content
    assert compiler.unsealed(path.stem, content)
    assert compiler.unsealed(path.stem[::-1], content) is None
    assert compiler.unsealed(path.stem[:-1], content) is None


def kept(folder: Path) -> Path:
    """Where compiled code lies within the folder that the user named."""
    return folder / "symgrad" / "code"


def write(files: CodeFiles, *numbers: int) -> list[Path]:
    """Files of 1000 bytes and a little, used at these times."""
    paths = [files.folder / f"{k:064x}.code" for k in numbers]
    for k, path in zip(numbers, paths, strict=True):
        files.write(path.stem, bytes(1000))
        os.utime(path, (k, k))
    return paths


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    paths = write(CodeFiles(tmp_path), 3, 1, 2, 0)
    CodeFiles(tmp_path, 3000).write(f"{9:064x}", bytes(1000))
    assert [path.exists() for path in paths] == [True, False, False, False]
    assert len(list(tmp_path.iterdir())) == 2


def test_what_was_just_written_is_not_deleted(tmp_path: Path) -> None:
    files, now = CodeFiles(tmp_path, 3000), int(time.time())
    paths = write(files, now - 5, now - 4, now - 3, now - 2, now - 1)
    assert all(path.exists() for path in paths)
    files.write(f"{9:064x}", bytes(1000))
    assert len(list(tmp_path.iterdir())) == 6


def test_a_file_that_is_used_while_others_are_pruned_stays(tmp_path: Path) -> None:
    paths = write(CodeFiles(tmp_path), 0, 1, 2, 3)

    class Meanwhile(CodeFiles):
        def is_code(self, path: str) -> bool:
            os.utime(paths[0])  # another process reads it
            return super().is_code(path)

    Meanwhile(tmp_path, 3000).write(f"{9:064x}", bytes(1000))
    assert [path.exists() for path in paths] == [True, False, False, True]


def test_files_of_others_are_never_touched(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    hashed = f"{0:064x}"
    foreign = [tmp_path / "thesis.tex", tmp_path / hashed, tmp_path / f"{hashed}.code"]
    foreign += [code / "data.csv", code / hashed, code / f"{hashed}.code", code / "1.code"]
    for file in foreign:
        file.write_bytes(b"years of work" * 1000)
        os.utime(file, (0, 0))
    (code / f"{1:064x}.code").symlink_to(tmp_path / "thesis.tex")
    (code / f"{2:064x}.code").mkdir()
    before = {p: (p.lstat().st_ino, p.lstat().st_mtime) for p in [*foreign, *code.iterdir()]}
    files = CodeFiles(code, 1000)
    (old,) = write(files, 3)
    files.write(f"{9:064x}", bytes(1000))
    assert not old.exists()
    assert all((p.lstat().st_ino, p.lstat().st_mtime) == state for p, state in before.items())


def test_a_name_that_is_taken_by_another_file_is_no_obstacle(folder: Path) -> None:
    folder.mkdir()
    (folder / "symgrad").write_text("in the way")
    assert device.compile_source(SOURCE).address
    assert (folder / "symgrad").read_text() == "in the way"


def test_the_folder_is_seldom_looked_at(tmp_path: Path) -> None:
    """Pruning looks at every file: once in a sixteenth of the bytes kept, on average."""
    looked: list[Path] = []

    class Looking(CodeFiles):
        def prune(self) -> None:
            looked.append(self.folder)

    files = Looking(tmp_path, 16 * 100 * 1000)
    for k in range(1000):
        files.write(hashlib.sha256(bytes([k % 256, k // 256])).hexdigest(), bytes(1000))
    assert 4 <= len(looked) <= 20


def test_what_was_killed_while_it_wrote_and_what_is_old_is_deleted_in_time(tmp_path: Path) -> None:
    unfinished = tmp_path / f"{0:064x}.a1_b2c3d.code"
    unfinished.write_bytes(compiler.HEADER + bytes(3000))
    earlier = tmp_path / f"{1:064x}.code"
    earlier.write_bytes(compiler.MARK + b"2\n" + bytes(3000))
    for file in (unfinished, earlier):
        os.utime(file, (0, 0))
    CodeFiles(tmp_path, 3000).write(f"{9:064x}", bytes(1000))
    assert not unfinished.exists() and not earlier.exists()


def test_a_name_that_cannot_be_written_leaves_nothing_behind(folder: Path) -> None:
    """As a full disk."""
    path = kept(folder) / f"{device.key_of(SOURCE)}.code"
    path.mkdir(parents=True)
    assert device.compile_source(SOURCE).address
    assert list(kept(folder).iterdir()) == [path]


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    """Each reads what it wrote, while the others write and prune."""
    program = """
import sys
from pathlib import Path
from symgrad.llvm.device.cpu import CodeFiles
files = CodeFiles(Path(sys.argv[1]), 3000)
keys = [f"{int(sys.argv[2]) * 100 + k:064x}" for k in range(40)]
for key in keys:
    files.write(key, key.encode() * 20)
assert all(files.read(key) == key.encode() * 20 for key in keys)
"""
    run = [sys.executable, "-c", program, str(tmp_path)]
    started = [subprocess.Popen([*run, str(k)]) for k in range(3)]
    assert [process.wait() for process in started] == [0, 0, 0]
    assert len(list(tmp_path.iterdir())) == 120


def test_no_folder_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    for name in (str(tmp_path / "file" / "folder"), ""):
        monkeypatch.setenv("SYMGRAD_CACHE", name)
        assert device.code_files() is None
        assert device.compile_source(SOURCE).address
