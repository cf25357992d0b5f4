"""Copies between the host and a device: every kind of array, in many small pieces."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from launched import Full, Interrupted
from poison import POISON

from symgrad.errors import DeviceMemoryError
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.device.gpus import Gpu
from symgrad.wgsl.memory.buffers import WaitingMapper
from symgrad.wgsl.memory.queue import PlainEncoder, Queue
from symgrad.wgsl.memory.transfer import (
    DOWNLOAD,
    Pieces,
    Segment,
    Shelf,
    Slot,
    Transfers,
    divided,
)

SMALL = 1024
"""Bytes of a piece here."""


FEW = Pieces(SMALL, least_nbytes=SMALL, queued_nbytes=0, slots=6, ahead=4, per_submit=2)
"""Small pieces, and few slots."""


class Poisoned(Shelf):
    """Slots that hold poison before they are taken."""

    def __init__(self, shelf: Shelf, gpu: Gpu) -> None:
        super().__init__(shelf.take, shelf.pieces)
        self.gpu = gpu

    def take(self) -> Slot:
        slot, mapper, poison = super().take(), self.gpu.mapper, np.full(SMALL // 4, POISON, "u4")
        if slot.started is None or slot.spare is None:
            self.gpu.write(slot.buffer, 0, poison)
            return slot
        mapper.finish(slot.started)
        mapper.view(slot.buffer, SMALL, write=True).view(np.uint32)[:] = poison
        mapper.unmap(slot.buffer)
        slot.started = mapper.start(slot.buffer, SMALL, write=True)
        return slot


@pytest.fixture
def gpu(own_gpu: Gpu) -> Gpu:
    """A GPU of each test's own, with transfers in small pieces through few slots with poison."""
    own_gpu.transfers = made = Transfers(own_gpu.buffer, own_gpu.queue, own_gpu.mapper, FEW)
    made.up, made.down = Poisoned(made.up, own_gpu), Poisoned(made.down, own_gpu)
    return own_gpu


def numbers(*shape: int) -> np.ndarray:
    """Different numbers that float32 holds exactly."""
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) - 7


def there_and_back(gpu: Gpu, array: np.ndarray) -> np.ndarray:
    return DeviceArray.from_numpy(gpu, array).numpy()


ARRAYS = {
    "in C order": numbers(123, 45),
    "one number": numbers(1),
    "no axes": np.array(3.5, np.float32),
    "no numbers": numbers(0, 3),
    "a piece": numbers(SMALL // 4),
    "a piece and a number": numbers(SMALL // 4 + 1),
    "in Fortran's order": np.asfortranarray(numbers(123, 45)),
    "every other": numbers(123, 90)[:, ::2],
    "backwards": numbers(4567)[::-1],
    "rows longer than a piece": numbers(3, 700, 2)[:, ::2],
    "three axes": numbers(5, 6, 700).transpose(2, 0, 1),
    "the same row": np.broadcast_to(numbers(5), (1234, 5)),
    "big-endian": numbers(123, 45).astype(">f4"),
    "float64": numbers(123, 45).astype(np.float64),
    "big-endian float64, not contiguous": numbers(90, 123).astype(">f8")[::2],
    "int64": numbers(123, 45).astype(np.int64),
    "uint8": (numbers(123, 45) % 200 + 7).astype(np.uint8),
    "bool": numbers(123, 45) % 3 == 0,
    "float16": (numbers(123, 45) % 1000).astype(np.float16),
}


@pytest.mark.parametrize("kind", ARRAYS)
def test_every_array_comes_back(gpu: Gpu, kind: str) -> None:
    array = ARRAYS[kind]
    for _ in range(2):  # slots are new, and then used again
        found = there_and_back(gpu, array)
        assert found.shape == array.shape and found.flags.writeable
        np.testing.assert_array_equal(found, array.astype(np.float32))


@pytest.mark.parametrize("kind", ARRAYS)
@pytest.mark.parametrize("most", [1, 7, 256, 10**6])
def test_arrays_are_divided_in_their_order(kind: str, most: int) -> None:
    array = ARRAYS[kind]
    parts = list(divided(array, most))
    assert all(0 < part.size <= most and np.shares_memory(part, array) for part in parts)
    assert np.array_equal(np.concatenate([part.ravel() for part in parts] or [[]]), array.ravel())


def test_bits_are_kept(gpu: Gpu) -> None:
    bits = np.random.default_rng(0).integers(0, 2**32, 5000, np.uint32)
    storage, found = gpu.storage(bits.nbytes), np.zeros_like(bits)
    gpu.upload(storage, bits)
    gpu.download(storage, found)
    assert np.array_equal(found, bits)


def test_an_array_that_cannot_be_written_is_read(gpu: Gpu) -> None:
    array = numbers(40, 50)
    array.flags.writeable = False
    assert np.array_equal(there_and_back(gpu, array), array)


def test_numbers_beyond_float32_are_infinite_without_a_warning(gpu: Gpu) -> None:
    found = there_and_back(gpu, np.full(3000, -1e300))
    assert np.array_equal(found, np.full(3000, -np.inf))


def test_an_array_may_be_changed_after_the_call(gpu: Gpu) -> None:
    array = numbers(100, 50)
    there = DeviceArray.from_numpy(gpu, array)
    array[:] = -1
    assert np.array_equal(there.numpy(), numbers(100, 50))


def test_numbers_come_to_arrays_of_any_kind(gpu: Gpu) -> None:
    array = numbers(60, 50)
    storage = gpu.storage(array.nbytes)
    gpu.upload(storage, array)
    targets = [
        np.zeros((60, 50)),
        np.zeros((60, 50), np.int32),
        np.zeros((60, 50), ">f8"),
        np.zeros((60, 100))[:, ::2],
        np.zeros((60, 50), order="F"),
    ]
    for target in targets:
        gpu.download(storage, target, dtype=np.dtype(np.float32))
        assert np.array_equal(target, array)


def test_a_part_of_a_buffer(gpu: Gpu) -> None:
    whole = np.full(3000, 9, np.float32)
    storage, found = gpu.storage(whole.nbytes), np.zeros(1000, np.float32)
    gpu.upload(storage, whole)
    with gpu.transfers.upload() as up:
        up.put(numbers(1000), storage.buffer, 4 * 1500)
        up.put(numbers(10), storage.buffer, 4 * 100)
    with gpu.transfers.download() as down:
        down.get(Segment(found, storage.buffer, 4 * 1499, found.dtype))
        down.get(Segment(whole, storage.buffer, 0, whole.dtype))
    assert np.array_equal(found, [9, *numbers(999)])
    expected = np.full(3000, 9.0)
    expected[1500:2500], expected[100:110] = numbers(1000), numbers(10)
    assert np.array_equal(whole, expected)


def test_arrays_share_slots(gpu: Gpu) -> None:
    whole = numbers(5000)
    storage = gpu.storage(whole.nbytes)
    gpu.upload(storage, whole)
    targets = [
        np.zeros(3),
        np.zeros((50, 2), np.int32)[:, ::2],
        np.zeros(0),
        np.zeros((700, 3), np.float32, order="F"),
        np.zeros(1, np.float32),
        np.zeros(256, np.float32),
    ]
    with gpu.transfers.download() as down:
        for _ in range(3):  # what is asked for later goes through slots that were used before
            starts = np.cumsum([0, *(t.size for t in targets[:-1])]).tolist()
            parts = zip(targets, starts, strict=True)
            down.get(*(Segment(t, storage.buffer, 4 * k, whole.dtype) for t, k in parts))
    found = np.concatenate([t.ravel() for t in targets])
    assert np.array_equal(found, whole[: len(found)])


class Watched(np.ndarray):
    """An array that calls a function before a piece of it is copied."""

    def __array_finalize__(self, source: Any) -> None:
        self.before = getattr(source, "before", lambda: None)

    def reshape(self, *shape: Any, **order: Any) -> Any:
        if shape != (-1,):
            self.before()
        return super().reshape(*shape, **order)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.before()
        super().__setitem__(key, value)


def watched(array: np.ndarray, before: Callable[[], None]) -> np.ndarray:
    result = array.view(Watched)
    result.before = before
    return result


@pytest.mark.parametrize("after", [0, 4, 17])
@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_after_an_error_within_a_piece(gpu: Gpu, after: int, error: Any) -> None:
    array, calls = numbers(100, 70), itertools.count()
    there = DeviceArray.from_numpy(gpu, array)
    storage = gpu.storage(array.nbytes)
    gpu.upload(storage, array)

    def fail() -> None:
        if next(calls) == after:
            raise error

    for copy in (gpu.upload, gpu.download):
        calls = itertools.count()
        with pytest.raises(error):
            copy(storage, watched(-array, fail))
        assert np.array_equal(there_and_back(gpu, array), array)
        assert np.array_equal(there.numpy(), array)


def through(gpu: Gpu, mapper: Any) -> Transfers:
    """Transfers in small pieces that a mapper maps."""
    return Transfers(gpu.buffer, gpu.queue, mapper, FEW)


@pytest.mark.parametrize("broken", ["start", "finish", "view", "unmap"])
def test_after_an_interrupt(gpu: Gpu, broken: str) -> None:
    array = numbers(100, 70)
    there = DeviceArray.from_numpy(gpu, array)
    for run in (lambda: DeviceArray.from_numpy(gpu, -array), there.numpy):
        gpu.transfers = through(gpu, Interrupted(gpu.mapper, broken, 8))
        with pytest.raises(KeyboardInterrupt):
            run()
        assert np.array_equal(there_and_back(gpu, array), array)
        assert np.array_equal(there.numpy(), array)


def test_no_thread_writes_to_an_array_after_an_error(gpu: Gpu) -> None:
    there, started = DeviceArray.from_numpy(gpu, numbers(100, 70)), threading.Event()

    def late() -> None:
        started.set()
        threading.Event().wait(0.05)

    def wait() -> None:
        assert started.wait(10)

    target = watched(np.zeros((100, 70), np.float32), late)
    gpu.transfers = through(gpu, Interrupted(gpu.mapper, "finish", 3, wait))
    with pytest.raises(KeyboardInterrupt), gpu.transfers.download() as down:
        down.get(there.into(target))
    seen = target.copy()
    threading.Event().wait(0.2)
    assert np.array_equal(target, seen)


def test_several_threads(gpu: Gpu) -> None:
    def work(seed: int) -> None:
        for step in range(5):
            array = numbers(500 * seed + 100 * step + 1) * seed
            assert np.array_equal(there_and_back(gpu, array), array)

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(work, range(6)))


@pytest.mark.parametrize("documented", ["mapper", "encoder"])
def test_the_documented_ways(gpu: Gpu, documented: str) -> None:
    """Of mapping alone, and of encoding alone."""
    mapper = WaitingMapper(gpu.device) if documented == "mapper" else gpu.mapper
    encoder = PlainEncoder(gpu.device) if documented == "encoder" else gpu.encoder
    gpu.transfers = Transfers(gpu.buffer, Queue(encoder), mapper, FEW)
    array = numbers(70, 90)
    for _ in range(2):
        assert np.array_equal(there_and_back(gpu, array), array)


def test_what_is_kept_is_bounded_and_let_go(gpu: Gpu) -> None:
    there_and_back(gpu, numbers(500))
    assert 0 < gpu.transfers.nbytes <= 4 * SMALL
    there_and_back(gpu, numbers(50_000))
    assert gpu.transfers.nbytes == 2 * FEW.slots * SMALL
    for _ in range(20):
        gpu.transfers.down.give(Slot(gpu.buffer(SMALL, DOWNLOAD)))
    assert gpu.transfers.nbytes == 2 * FEW.slots * SMALL
    gpu.transfers.let_go()
    assert gpu.transfers.nbytes == 0
    assert np.array_equal(there_and_back(gpu, numbers(5000)), numbers(5000))


def test_a_full_device_gives_up_its_slots(gpu: Gpu) -> None:
    there_and_back(gpu, numbers(5000))
    kept: list[int] = []
    gpu.device = Full(gpu.device, lambda: kept.append(gpu.transfers.nbytes))
    with pytest.raises(DeviceMemoryError):
        gpu.buffer(1 << 20, "STORAGE")
    assert kept[0] > 0 and kept[1] == 0


FORKED = """
import os, numpy as np, symgrad as sg
from symgrad.errors import DeviceError
from symgrad.kernel.host import threads
from symgrad.wgsl.device.gpus import open_gpu
from symgrad.wgsl.memory.transfer import Pieces, Transfers
gpu, pieces = open_gpu(), Pieces(least_nbytes=1 << 12, queued_nbytes=0)
gpu.transfers = Transfers(gpu.buffer, gpu.queue, gpu.mapper, pieces)
x = np.arange(1e5, dtype=np.float32)
there = sg.device_array(x, "gpu")
assert np.array_equal(there.numpy(), x)
child = os.fork()
if not child:
    try:
        there.numpy()
    except DeviceError:
        assert threads.threads().submit(int).result() == 0
        raise SystemExit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert np.array_equal(there.numpy(), x)
print("done")
"""


def test_a_forked_child_has_threads_of_its_own(gpu: Gpu) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "done\n", done.stderr
