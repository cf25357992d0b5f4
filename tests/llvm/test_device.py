"""Compiled code is kept, in memory and on disk, and a broken file on disk does no harm."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from symgrad.llvm import device
from symgrad.llvm.body import Source

from .running import run
from .test_emit import ONE, chain

SOURCE = Source("define void @run(ptr %x) { ret void }\n", 0, 0)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder for compiled code."""
    monkeypatch.setenv("SYMGRAD_CACHE", str(tmp_path / "kept"))
    device.cache_folder.cache_clear()
    device._kept.clear()  # pyright: ignore[reportPrivateUsage]
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
    assert len(list(folder.iterdir())) == 1
    monkeypatch.setattr(device, "_compiled", lambda source: pytest.fail("it was on disk"))
    assert device.compile_source(SOURCE).address


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b"", lambda b: b[:50] + b"x" * 99])
def test_a_broken_file_is_compiled_anew(folder: Path, damage: object) -> None:
    made, points = chain(20), np.ones((3, 3), np.float32)
    want = run(made, ONE, points)
    (path,) = folder.iterdir()
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    np.testing.assert_array_equal(run(made, ONE, points)[0], want[0])


def test_what_was_used_longest_ago_goes_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.mkdir()
    for k in range(4):
        (folder / f"{k}").write_bytes(bytes(1000))
        os.utime(folder / f"{k}", (k, k))
    monkeypatch.setattr(device, "CACHE_BYTES", 3000)
    device.compile_source(SOURCE)
    left = {p.name for p in folder.iterdir()}
    assert {"0", "1"}.isdisjoint(left)
    assert "3" in left


def test_no_folder_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SYMGRAD_CACHE", str(tmp_path / "file" / "folder"))
    device.cache_folder.cache_clear()
    assert device.compile_source(SOURCE).address
    monkeypatch.setenv("SYMGRAD_CACHE", "")
    device.cache_folder.cache_clear()
    assert device.cache_folder() is None
    device.cache_folder.cache_clear()
