"""Compiled code is kept, in memory and on disk, and a broken file on disk does no harm."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from symgrad.llvm import compiler
from symgrad.llvm.device import cpu as device
from symgrad.llvm.printing.source import Source

from .running import run
from .test_emit import ONE, chain

SOURCE = Source("define void @run(ptr %x) { ret void }\n", "void (*)(void *)", 0, 0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder for compiled code."""
    monkeypatch.setenv("SYMGRAD_CACHE", str(tmp_path / "kept"))
    device.cache_folder.cache_clear()
    device._codes.clear()  # pyright: ignore[reportPrivateUsage]
    yield tmp_path / "kept"
    device.cache_folder.cache_clear()


def test_the_host_is_described() -> None:
    host = device.host()
    assert host.name
    assert host.vector_bits in (128, 256, 512)
    assert host.threads >= 1
    assert host.shape("float64", True).lanes * 2 == host.shape("float32", True).lanes
    assert host.shape("float64", False).lanes == 1


def test_code_is_kept_in_memory(folder: Path) -> None:
    assert device.compile_source(SOURCE) is device.compile_source(SOURCE)


def test_code_is_read_from_the_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device.compile_source(SOURCE)
    assert len(list(kept(folder).iterdir())) == 1
    monkeypatch.setattr(device, "_compiled", lambda source: pytest.fail("it was on disk"))
    assert device.compile_source(SOURCE).address


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
    device._codes.clear()  # pyright: ignore[reportPrivateUsage]
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


def write(folder: Path, *numbers: int) -> list[Path]:
    """Files of 1000 bytes and a little as the cache writes them, used at these times."""
    files = [kept(folder) / f"{k:064x}.code" for k in numbers]
    for k, file in zip(numbers, files, strict=True):
        device._write(file.stem, bytes(1000))  # pyright: ignore[reportPrivateUsage]
        os.utime(file, (k, k))
    return files


def test_what_was_used_longest_ago_goes_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write(folder, 3, 1, 2, 0)
    monkeypatch.setattr(device, "CACHE_BYTES", 3000)
    device.compile_source(SOURCE)
    assert [file.exists() for file in files] == [True, False, False, False]
    assert len(list(kept(folder).iterdir())) == 2


def test_what_was_just_written_is_not_deleted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "CACHE_BYTES", 3000)
    now = int(time.time())
    assert all(file.exists() for file in write(folder, now - 5, now - 4, now - 3, now - 2, now - 1))
    device.compile_source(SOURCE)
    assert len(list(kept(folder).iterdir())) == 6


def test_a_file_that_is_used_while_others_are_pruned_stays(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write(folder, 0, 1, 2, 3)
    is_written_here = device._is_written_here  # pyright: ignore[reportPrivateUsage]

    def meanwhile(path: str) -> bool:
        os.utime(files[0])  # another process reads it
        return is_written_here(path)

    monkeypatch.setattr(device, "_is_written_here", meanwhile)
    monkeypatch.setattr(device, "CACHE_BYTES", 3000)
    device.compile_source(SOURCE)
    assert [file.exists() for file in files] == [True, False, False, True]


def test_files_of_others_are_never_touched(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "CACHE_BYTES", 1000)
    code = kept(folder)
    code.mkdir(parents=True)
    hashed = f"{0:064x}"
    foreign = [folder / "thesis.tex", folder / hashed, folder / f"{hashed}.code"]
    foreign += [code / "data.csv", code / hashed, code / f"{hashed}.code", code / "1.code"]
    for file in foreign:
        file.write_bytes(b"years of work" * 1000)
        os.utime(file, (0, 0))
    (code / f"{1:064x}.code").symlink_to(folder / "thesis.tex")
    (code / f"{2:064x}.code").mkdir()
    before = {p: (p.lstat().st_ino, p.lstat().st_mtime) for p in [*foreign, *code.iterdir()]}
    (old,) = write(folder, 3)
    device.compile_source(SOURCE)
    assert not old.exists()
    assert all((p.lstat().st_ino, p.lstat().st_mtime) == state for p, state in before.items())


def test_a_name_that_is_taken_by_another_file_is_no_obstacle(folder: Path) -> None:
    folder.mkdir()
    (folder / "symgrad").write_text("in the way")
    assert device.compile_source(SOURCE).address
    assert (folder / "symgrad").read_text() == "in the way"


def test_the_folder_is_seldom_looked_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pruning looks at every file: once in a sixteenth of the bytes kept, on average."""
    looked: list[Path] = []
    monkeypatch.setattr(device, "_prune", looked.append)
    monkeypatch.setattr(device, "CACHE_BYTES", 16 * 100 * 1000)
    for k in range(1000):
        key = hashlib.sha256(bytes([k % 256, k // 256])).hexdigest()
        device._write(key, bytes(1000))  # pyright: ignore[reportPrivateUsage]
    assert 4 <= len(looked) <= 20


def test_what_was_killed_while_it_wrote_and_what_is_old_is_deleted_in_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(folder).mkdir(parents=True)
    unfinished = kept(folder) / f"{0:064x}.a1_b2c3d.code"
    unfinished.write_bytes(compiler.HEADER + bytes(3000))
    earlier = kept(folder) / f"{1:064x}.code"
    earlier.write_bytes(compiler.MARK + b"2\n" + bytes(3000))
    for file in (unfinished, earlier):
        os.utime(file, (0, 0))
    monkeypatch.setattr(device, "CACHE_BYTES", 3000)
    device.compile_source(SOURCE)
    assert not unfinished.exists() and not earlier.exists()


def test_a_disk_that_is_full_leaves_nothing_behind(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(old: str, new: Path) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(os, "replace", full)
    assert device.compile_source(SOURCE).address
    assert list(kept(folder).iterdir()) == []


def test_processes_that_write_at_once_lose_nothing(folder: Path) -> None:
    """Each reads what it wrote, while the others write and prune."""
    program = """
import sys
from symgrad.llvm import compiler
from symgrad.llvm.device import cpu as device
device.CACHE_BYTES = 3000
keys = [f"{int(sys.argv[1]) * 100 + k:064x}" for k in range(40)]
for key in keys:
    device._write(key, key.encode() * 20)
assert all(device._read(key) == key.encode() * 20 for key in keys)
"""
    run = [sys.executable, "-c", program]
    started = [subprocess.Popen([*run, str(k)]) for k in range(3)]
    assert [process.wait() for process in started] == [0, 0, 0]
    assert len(list(kept(folder).iterdir())) == 120


def test_no_folder_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SYMGRAD_CACHE", str(tmp_path / "file" / "folder"))
    device.cache_folder.cache_clear()
    assert device.compile_source(SOURCE).address
    monkeypatch.setenv("SYMGRAD_CACHE", "")
    device.cache_folder.cache_clear()
    assert device.cache_folder() is None
    device.cache_folder.cache_clear()
