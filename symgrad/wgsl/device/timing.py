"""Watches a GPU through a call: what goes up, is queued, is computed, and comes back.

While a call is watched, each dispatch is waited for, so that one thing is done after another and
each has a time of its own.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Sequence
from typing import Any, Final

from symgrad.kernel.host.watch import Watch
from symgrad.wgsl.device.gpu import Timestamps
from symgrad.wgsl.device.gpus import Gpu
from symgrad.wgsl.memory.buffers import Staging
from symgrad.wgsl.memory.queue import Step, Work
from symgrad.wgsl.memory.transfer import Download, Upload

TRIES: Final = 5
"""Waits for nothing of which the shortest is what waiting costs."""

WAYS: Final = {
    "upload": ((Upload, "put"), (Upload, "flush"), (Upload, "__exit__")),
    "download": ((Download, "get"), (Download, "__exit__"), (Staging, "read")),
}
"""Methods that move numbers, by their stage."""


class GpuWatch:
    """The work of a GPU for a call that is watched; ``used`` says whether that is anything.

    ``by_timestamps`` says whether kernels are timed by the device's clock, or else by how much
    longer one waits for them than for nothing.
    """

    def __init__(self, gpu: Gpu, watch: Watch) -> None:
        self._gpu, self._watch = gpu, watch
        self._submit, self._wait = gpu.encoder.submit, gpu.mapper.wait
        self._times: Timestamps | None = gpu.tool(timestamps_of)
        self._kernel, self.used = 0.0, False
        self._nothing = 0.0 if self._times else min(self._idle() for _ in range(TRIES))

    @property
    def name(self) -> str:
        """The name of the GPU."""
        return self._gpu.info.name

    @property
    def by_timestamps(self) -> bool:
        """Whether kernels are timed by the device's clock."""
        return self._times is not None

    @contextlib.contextmanager
    def on(self) -> Generator[None]:
        """A context in which calls of the watched thread are seen."""
        gpu, watch = self._gpu, self._watch
        self._kernel, self.used = 0.0, False
        if self._times:
            self._times.start()
        gpu.queue.flush()
        with contextlib.ExitStack() as stack:
            gpu.queue.eager = True
            stack.callback(setattr, gpu.queue, "eager", False)
            for name, ways in WAYS.items():
                for owner, method in ways:
                    stack.enter_context(_seen(owner, method, watch, name))
            stack.enter_context(_seen(gpu.encoder, "write", watch, "upload"))
            stack.enter_context(_seen(gpu.mapper, "map", watch, "download"))
            stack.enter_context(_seen(gpu.mapper, "wait", watch, "queue"))
            stack.enter_context(_instead(gpu.encoder, "submit", self._watched_submit))
            yield
        self._finish()

    def _watched_submit(self, work: Sequence[Work]) -> None:
        """Submit, and wait for it if anything is computed."""
        watch = self._watch
        self.used |= watch.is_mine
        computes = any(isinstance(item, Step) for item in work)
        if not watch.is_mine or (not computes and watch.is_in_stage):
            self._submit(work)
            return
        if not computes:
            with watch.stage("queue"):
                self._submit(work)
            return
        with watch.stage("upload"):  # what is still on its way
            self._wait()
        with watch.stage("queue"):
            self._run(work)

    def _run(self, work: Sequence[Work]) -> None:
        """Submit and wait, and add the time of the kernels, less that of waiting for nothing."""
        timed = self._times is not None and self._times.next()
        start = time.perf_counter()
        try:
            self._submit(work)
            self._wait()
        finally:
            if self._times is not None:
                self._times.stop()
        if not timed:
            self._kernel += max(0.0, time.perf_counter() - start - self._nothing)

    def _idle(self) -> float:
        """How long it takes to have nothing done and to wait for it."""
        start = time.perf_counter()
        self._submit([])
        self._wait()
        return time.perf_counter() - start

    def _finish(self) -> None:
        """Of what was queued and waited for, the kernels' part is a stage of its own."""
        if not self.used:
            return
        if self._times:
            self._kernel += float(self._times.seconds().sum())
        queued = self._watch.seconds.get("queue", 0.0)
        kernel = min(self._kernel, queued)
        for name, seconds in (("upload", 0.0), ("queue", -kernel), ("kernel", kernel)):
            self._watch.add(name, seconds)
        self._watch.add("download", 0.0)


def timestamps_of(gpu: Gpu) -> Timestamps | None:
    """The device's clock, if it has one."""
    return gpu.timestamps()


@contextlib.contextmanager
def _instead(owner: Any, name: str, function: Callable[..., Any]) -> Generator[None]:
    """A context in which an object, or a class, has another method."""
    own = vars(owner).get(name)
    setattr(owner, name, function)
    try:
        yield
    finally:
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)


@contextlib.contextmanager
def _seen(owner: Any, name: str, watch: Watch, stage: str) -> Generator[None]:
    """A context in which a method is a stage of the watched call, unless that is in one."""
    method = getattr(owner, name)

    def seen(*arguments: Any, **options: Any) -> Any:
        if not watch.is_mine or watch.is_in_stage:
            return method(*arguments, **options)
        with watch.stage(stage):
            return method(*arguments, **options)

    with _instead(owner, name, seen):
        yield
