"""The order of work on a device, and when it starts."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import symgrad as sg
from symgrad.wgsl.device.gpus import Gpu
from symgrad.wgsl.memory import queue as module
from symgrad.wgsl.memory.queue import (
    GATHER_SECONDS,
    SOON,
    STEPS_GATHERED,
    SUBMITTED_STEPS,
    Copy,
    Queue,
    Step,
    Work,
)

pytestmark = pytest.mark.usefixtures("quick_collection")


class Told:
    """An encoder that notes what it is told, after an exception if there is one to be raised."""

    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.error: BaseException | None = None

    def write(self, buffer: Any, start: int, data: np.ndarray) -> None:
        self.seen.append(("write", buffer))

    def submit(self, work: Sequence[Work]) -> None:
        error, self.error = self.error, None
        if error:
            raise error
        self.seen.append([_named(w) for w in work])


def _named(work: Work) -> Any:
    """The pipeline of a step, the source of a copy, and the buffer of zeros."""
    if isinstance(work, Step):
        return work.pipeline
    return work.source if isinstance(work, Copy) else work.buffer


def step(name: Any) -> Step:
    return Step(name, None, 1)


def eventually(holds: Callable[[], bool]) -> bool:
    """Whether it holds within some seconds."""
    until = time.monotonic() + 20
    while not holds() and time.monotonic() < until:
        time.sleep(0.001)
    return holds()


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def queue(told: Told) -> Queue:
    """A queue whose device has just got something to do.

    However slow the machine is, steps come soon after that, and no thread starts them.
    """
    made = Queue(told, soon=1e6, patience=1e5)
    made.submit([step(0)])
    return made


def test_a_step_starts_at_once_where_nothing_was_submitted_just_before(told: Told) -> None:
    queue = Queue(told)
    queue.add([step(1)])
    assert told.seen == [[1]]
    time.sleep(2 * SOON)
    queue.add([step(2)])
    assert told.seen == [[1], [2]]


def test_steps_in_quick_succession_start_together(queue: Queue, told: Told) -> None:
    for k in range(1, 2 * STEPS_GATHERED + 2):
        queue.add([step(k)])
    assert [len(steps) for steps in told.seen] == [1, STEPS_GATHERED, STEPS_GATHERED]
    queue.flush()
    assert [k for steps in told.seen for k in steps] == list(range(2 * STEPS_GATHERED + 2))
    queue.flush()
    assert len(told.seen) == 4


def test_steps_that_are_timed_start_one_by_one(queue: Queue, told: Told) -> None:
    queue.eager = True
    for k in range(1, 4):
        queue.add([step(k)])
    assert told.seen == [[0], [1], [2], [3]]


def test_all_that_comes_after_gathered_steps_stays_after_them(queue: Queue, told: Told) -> None:
    queue.add([step(1)])
    queue.write("a", 0, np.zeros(1))
    queue.add([step(2), Copy("b", 0, "c", 0, 4), step(3)])
    queue.submit([step(4), Copy("c", 0, "d", 0, 4)])
    queue.submit([])
    assert told.seen == [[0], [1], ("write", "a"), [2, "b", 3, 4, "c"], []]


def test_a_thread_starts_what_nobody_asks_for(told: Told) -> None:
    before, queue = threading.active_count(), Queue(told, soon=1e6)
    wanted = queue._wanted
    queue.submit([])
    queue.add([step(1)])
    queue.add([step(2)])
    assert eventually(lambda: told.seen == [[], [1, 2]])
    assert eventually(lambda: not wanted.is_set())
    queue.add([step(3)])
    assert eventually(lambda: told.seen == [[], [1, 2], [3]])
    del queue
    gc.collect()
    assert eventually(lambda: threading.active_count() <= before)
    assert GATHER_SECONDS < 0.01


def test_steps_that_an_interrupt_kept_from_the_device_start_later(queue: Queue, told: Told) -> None:
    queue.add([step(1)])
    told.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        queue.submit([step(2)])
    queue.submit([step(3)])
    assert told.seen == [[0], [1, 3]]


def test_a_mistake_is_told_once(queue: Queue, told: Told) -> None:
    queue.add([step(1)])
    told.error = RuntimeError("a mistake")
    with pytest.raises(RuntimeError, match="a mistake"):
        queue.submit([step(2)])
    queue.submit([step(3)])
    assert told.seen == [[0], [1], [3]], "what was gathered is not to blame"


def test_gathered_steps_do_not_start_again_where_long_work_is_refused(
    queue: Queue, told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long work goes to the device in parts, of which the first have started by then."""
    submit = told.submit

    def refusing(work: Sequence[Work]) -> None:
        submit(work[:SUBMITTED_STEPS])
        if len(work) > SUBMITTED_STEPS:
            raise RuntimeError("a mistake")

    monkeypatch.setattr(told, "submit", refusing)
    queue.add([step(1)])
    with pytest.raises(RuntimeError, match="a mistake"):
        queue.submit([step(k) for k in range(2, SUBMITTED_STEPS + 2)] + [step("wrong")])
    queue.submit([step(3)])
    started = [k for steps in told.seen for k in steps]
    assert started.count(1) == 1


def test_who_asks_next_is_told_that_gathered_steps_were_refused(told: Told) -> None:
    queue = Queue(told, soon=1e6)
    queue.submit([])
    told.error = RuntimeError("refused")
    queue.add([step(1)])
    assert eventually(lambda: told.error is None)
    for ask in (queue.flush, lambda: queue.submit([step(2)])):
        with pytest.raises(RuntimeError, match="refused"):
            ask()
        queue.submit([step(3)])
        queue._refused = RuntimeError("refused")
    with pytest.raises(RuntimeError, match="refused"):
        queue.write("a", 0, np.zeros(1))
    assert told.seen == [[], [3], [3]]


def test_nothing_starts_when_python_has_ended(queue: Queue, told: Told) -> None:
    queue.add([step(1)])
    module._end()
    queue.flush()
    assert told.seen == [[0]]


def test_threads_may_queue_at_once(queue: Queue, told: Told) -> None:
    def work(name: str) -> None:
        for k in range(200):
            queue.add([step((name, k))])

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    queue.flush()
    seen = [key for steps in told.seen[1:] for key in steps]
    for name in "abcd":
        assert [k for n, k in seen if n == name] == list(range(200))


def test_a_loop_on_the_device_gives_the_same_however_it_starts(gpu: Gpu) -> None:
    slopes = lambda v: 0.25 * v[0] ** 2 + v[0] * v[1] - 0.5 * v[1] ** 2  # noqa: E731
    kernel = sg.fused_forward_backward(2, slopes, device="gpu")

    def loop(soon: float) -> np.ndarray:
        gpu.queue.soon = soon
        x = sg.device_array(np.arange(20.0).reshape(10, 2), device="gpu")
        for _ in range(30):
            x = kernel.run(x)[1]
        return x.numpy()

    found, gathered, _ = loop(0.0), loop(1e6), loop(SOON)
    assert np.all(np.isfinite(found)) and found.any()
    np.testing.assert_array_equal(found, gathered)


def test_a_process_ends_with_work_in_its_queue(gpu: Gpu) -> None:
    code = """
import numpy as np, symgrad as sg
kernel = sg.fused_forward(2, lambda v: v[0] * v[1], device="gpu")
x = sg.device_array(np.ones((100, 2)), device="gpu")
held = [kernel.run(x) for _ in range(5)]
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, b""), done.stderr
