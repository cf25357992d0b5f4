"""Code that is compiled quickly at first, and thoroughly once it has run for long.

Compiling thoroughly takes ten times as long. It is done in a process of its own, which the calls
of the function look after: LLVM lets one thread of a process compile at a time, and a thread of
ours would keep a fork, and the end of the process, waiting for it.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable
from typing import IO, Any, Final

import numpy as np

from symgrad.kernel.host import watch
from symgrad.kernel.host.memory import LARGE_BYTES, POOL
from symgrad.llvm import compiler
from symgrad.llvm.device.cpu import (
    NULL,
    Code,
    address,
    compile_source,
    find_code,
    function,
    host,
    keep_code,
    key_of,
)
from symgrad.llvm.printing.source import Source

MOST_STAYING: Final = 2**20
"""Bytes of scratch memory that stay with a thread, at most: those near its core."""

LOOK: Final = 0.02
"""Seconds of running after which a call looks again whether a process has ended."""


class Function:
    """A compiled function, as Python calls it without the interpreter's lock.

    ``write`` gives its source, to be compiled quickly or thoroughly; both give the same bits.
    """

    def __init__(self, write: Callable[[bool], Source]) -> None:
        with watch.stage("emit"):
            source = write(False)
        self.workspace = source.workspace
        """How many bytes of scratch memory a call needs."""
        self._write, self._kind = write, source.kind
        self._spent, self._due = 0.0, source.hot
        self._job: Job | None = None
        self._lock, self._local = threading.Lock(), threading.local()
        self._codes: list[Code] = []  # a call may be running in any of them
        self._run: Any = None
        with watch.stage("compile"):
            self._take(compile_source(source))

    @property
    def call(self) -> Callable[..., None]:
        """The function, for as long as this object lives: the code itself, if it is for good."""
        return watch.code(self._run if self._due == math.inf else self._timed)

    @property
    def entry(self) -> int:
        """The address of the function that takes all arguments in memory, of the code as it is."""
        return self._codes[-1].entry

    @property
    def may_improve(self) -> bool:
        """Whether there may be better code, once it has run for long."""
        return self._due < math.inf

    def new_workspace(self) -> Any:
        """Memory for calls to work in, one after the other."""
        if not self.workspace:
            return NULL
        memory: Any = POOL.empty((self.workspace,), np.dtype(np.uint8))
        return address(memory)

    def own_workspace(self) -> Any:
        """Memory for the next call of this thread, whose caches may still have it."""
        if self.workspace > MOST_STAYING:
            return self.new_workspace()
        if self.workspace >= LARGE_BYTES:
            return _staying(self.workspace)
        try:
            return self._local.workspace
        except AttributeError:
            memory = self._local.workspace = self.new_workspace()
            return memory

    def _take(self, code: Code) -> None:
        self._codes.append(code)
        self._run = function(self._kind, code.address)

    def _timed(self, *arguments: Any) -> None:
        start = time.perf_counter()
        self._run(*arguments)
        self.spend(time.perf_counter() - start)

    def spend(self, seconds: float) -> None:
        """Note for how long it has run, and look for better code if that is due."""
        self._spent += seconds
        if self._spent >= self._due and self._lock.acquire(blocking=False):
            try:
                self._due = self._spent + self._improved()
            finally:
                self._lock.release()

    def _improved(self) -> float:
        """Take better code if there is some; the seconds of running until the next look."""
        if self._job is None:
            source = self._write(True)
            assert source.workspace <= self.workspace, "thorough code keeps no more in memory"
            code = find_code(source)
            if code is None:
                self._job = Job.start(source)
                if self._job is None:
                    return math.inf
                self._end = weakref.finalize(self, self._job.end)
                return LOOK
        elif self._job.is_running:
            return LOOK
        else:
            compiled = self._job.compiled()
            code = keep_code(self._job.source, compiled) if compiled else None
            self._end()
            self._job = None
        if code is not None:
            self._take(code)
        return math.inf


_workspaces: Final = threading.local()


def _staying(size: int) -> Any:
    """Memory that stays with the thread, for one call after the other, of whatever function."""
    if size > getattr(_workspaces, "size", 0):
        _workspaces.size, memory = size, POOL.empty((size,), np.dtype(np.uint8))
        _workspaces.address = address(memory)
    return _workspaces.address


class Job:
    """A source that is being compiled by another process.

    In a forked child it has failed, for it is the parent's.
    """

    def __init__(self, source: Source, command: list[str]) -> None:
        """Raises OSError where no process can be started."""
        self.source, self._pid = source, os.getpid()
        with contextlib.ExitStack() as stack:
            self._result = stack.enter_context(tempfile.TemporaryFile())
            self._process = _started(source, command, self._result)
            stack.pop_all()

    @classmethod
    def start(cls, source: Source) -> Job | None:
        """The job, or None where no process can be started: a program may embed Python."""
        command = compiler.program()
        if command is not None:
            with contextlib.suppress(OSError):
                return cls(source, command)
        return None

    @property
    def is_running(self) -> bool:
        """Whether it may yet end well."""
        return os.getpid() == self._pid and self._process.poll() is None

    def compiled(self) -> bytes | None:
        """The code of a job that has ended, if it ended well."""
        if os.getpid() != self._pid:
            return None
        self._result.seek(0)
        return compiler.unsealed(key_of(self.source), self._result.read())

    def end(self) -> None:
        """Have it run no longer, and forget what it has made."""
        self._result.close()
        if os.getpid() == self._pid:
            self._process.kill()
            self._process.wait()


def _started(source: Source, command: list[str], result: IO[bytes]) -> subprocess.Popen[bytes]:
    """A process that writes the code of a module to a file."""
    request = {
        "path": sys.path,
        "key": key_of(source),
        "text": source.text,
        "effort": source.effort,
        "cpu": host().name,
        "features": host().features,
    }
    no_window = getattr(subprocess, "CREATE_NO_WINDOW", 0)
    with tempfile.TemporaryFile("w+") as order:
        json.dump(request, order)
        order.seek(0)
        return subprocess.Popen(
            command,
            stdin=order,
            stdout=result,
            stderr=subprocess.DEVNULL,
            creationflags=no_window,
        )
