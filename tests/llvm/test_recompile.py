"""Hot kernels are compiled anew, in a process of their own, and give the same bits."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import pytest
from machines import code_sizes

import symgrad as sg
from symgrad.kernel.shapes import Computation
from symgrad.llvm.device import cpu as device
from symgrad.llvm.device import recompile
from symgrad.llvm.device.recompile import Function, Job
from symgrad.llvm.printing.source import CodeSizes

from .running import emitted
from .test_emit import ONE, chain

FFI = cffi.FFI()


HOT = CodeSizes(long=100, long_batch=100, function=64, hot=0.0)
"""Kernels of many functions, which are hot at once."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder for compiled code."""
    monkeypatch.setenv("SYMGRAD_CACHE", str(tmp_path))


def function(made: Computation, sizes: CodeSizes = HOT) -> Function:
    """One of a computation at a point."""
    shape = replace(ONE, sizes=sizes)
    return Function(lambda thorough: emitted(made, shape, thorough))


class Called:
    """A function at a point, called."""

    def __init__(self, seed: int = 0, sizes: CodeSizes = HOT) -> None:
        made = chain(250 + seed, 3)
        self.function = function(made, sizes)
        self.x = np.linspace(0.1, 1.0, 3, dtype=np.float32)

    def bits(self) -> bytes:
        """The results. Threads may ask for them, so each call has memory of its own to work in."""
        room = np.empty(self.function.workspace, np.uint8)
        y, z = np.full(1, np.nan, np.float32), np.full(4, np.nan, np.float32)
        arrays: list[Any] = [self.x, y, z, room]
        self.function.call(*[FFI.from_buffer(a) for a in arrays])
        return y.tobytes() + z.tobytes()

    @property
    def codes(self) -> int:
        """How often it has been compiled."""
        return len(self.function._codes)  # pyright: ignore[reportPrivateUsage]

    @property
    def job(self) -> Job | None:
        """What compiles it anew."""
        return self.function._job  # pyright: ignore[reportPrivateUsage]

    def until_compiled(self, first: bytes) -> None:
        """Call it until it has been."""
        end = time.monotonic() + 60
        while self.codes < 2:
            assert self.bits() == first
            assert time.monotonic() < end, "nothing was compiled"
        assert self.bits() == first


def test_a_hot_function_is_compiled_anew_and_keeps_its_bits() -> None:
    called = Called()
    first = called.bits()
    assert called.job is not None, "it is hot at once"
    called.until_compiled(first)
    assert called.job is None
    del called
    again = Called()
    assert again.bits() == first
    assert again.job is None and again.codes == 2, "what was compiled before is on disk"
    assert again.bits() == first


def test_a_function_called_once_starts_nothing() -> None:
    called = Called(1, replace(HOT, hot=1.0))
    called.bits()
    assert called.job is None and called.codes == 1


def test_short_code_is_compiled_once_and_for_all() -> None:
    assert isinstance(function(chain(20, 3)).call, FFI.CData), "there is nothing between"


@pytest.mark.parametrize("program", ["", None, "/bin/sh", "python of nobody"])
def test_where_no_process_starts_the_code_stays(
    program: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    called = Called(3)
    first = called.bits()
    for _ in range(100):
        assert called.bits() == first
    assert called.job is None and called.codes == 1


def test_a_process_that_fails_is_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "python"
    program.symlink_to("/bin/false")
    monkeypatch.setattr(sys, "executable", str(program))
    called = Called(4)
    first, end = called.bits(), time.monotonic() + 60
    while called.job is not None:
        assert called.bits() == first
        assert time.monotonic() < end
    assert called.codes == 1


def test_threads_share_what_is_compiled() -> None:
    called = Called(5)
    first, found = called.bits(), set[bytes]()

    def work() -> None:
        while called.codes < 2:
            found.add(called.bits())
        found.add(called.bits())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(60)
    assert found == {first}
    assert called.codes == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_goes_on_with_what_it_has() -> None:
    called = Called(6)
    first = called.bits()
    assert called.job is not None
    child = os.fork()
    if not child:
        same = all(called.bits() == first for _ in range(2000))
        os._exit(0 if same and called.codes == 1 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    called.until_compiled(first)


def test_the_process_of_a_function_that_is_gone_ends() -> None:
    called = Called(7)
    called.bits()
    assert called.job is not None
    process = called.job._process  # pyright: ignore[reportPrivateUsage]
    del called
    assert process.poll() is not None


ENDING = """
import numpy as np, symgrad as sg
from machines import code_sizes
kernel = sg.fused_forward(400, lambda v: np.prod(sg.sin(v)), device="cpu")
with code_sizes(long=100, long_batch=100, hot=0.0):
    for _ in range(3):
        kernel.run(np.ones(400, np.float32))
[job] = [f._job for f in kernel._launched._points._compiled.values()]
print(job._process.pid)
"""


@pytest.mark.skipif(not hasattr(os, "kill") or sys.platform == "win32", reason="asks for a process")
def test_the_end_of_a_process_waits_for_nothing() -> None:
    paths = os.pathsep.join([*sys.path, str(Path(__file__).parents[1])])
    environment = {**os.environ, "PYTHONWARNINGS": "error", "PYTHONPATH": paths}
    found = subprocess.run(
        [sys.executable, "-c", ENDING], env=environment, capture_output=True, text=True, check=True
    )
    assert not found.stderr
    with pytest.raises(ProcessLookupError):
        os.kill(int(found.stdout), 0)


# the same bits ------------------------------------------------------------------------------------


def rows_loss(terms: int, k: int) -> Any:
    """A loss of a row with many operations, of k parameters."""

    def loss(p: Any, r: Any) -> Any:
        return sum(
            sg.sin(p[i % k] * r[0] + i) * sg.exp(-p[(i + 1) % k] * r[1]) for i in range(terms)
        )

    return loss


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("terms", "k"), [(40, 5), (300, 5), (40, 40)])
@pytest.mark.parametrize("math", ["accurate", "strict"])
def test_sums_have_the_same_bits(
    terms: int, k: int, dtype: Any, math: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In registers or in memory, cut or whole, with a rest of rows."""
    monkeypatch.setattr(recompile, "find_code", device.compile_source)
    loss = rows_loss(terms, k)
    draw = np.random.default_rng(0)
    with code_sizes(**vars(HOT)):
        kernel = sg.fused_forward_backward(k, loss, row=2, device="cpu", dtype=dtype, math=math)
        bound = kernel.bind(draw.random((531, 2)))
    p = draw.random(k)
    (compiled,) = kernel._sums.kernels.values()  # pyright: ignore[reportPrivateUsage]
    function: Function = compiled.function
    value, slopes = bound.run(p)
    assert len(function._codes) == 2  # pyright: ignore[reportPrivateUsage]
    found = bound.run(p)
    assert found[0] == value
    np.testing.assert_array_equal(found[1], slopes)
