"""Copies between the host and a device: every kind of array, in many small pieces."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from poison import POISON

from symgrad.errors import DeviceMemoryError
from symgrad.wgsl.arrays.array import DeviceArray
from symgrad.wgsl.device.gpus import Gpu
from symgrad.wgsl.memory import transfer
from symgrad.wgsl.memory.encoding import PlainEncoder
from symgrad.wgsl.memory.mapping import WaitingMapper
from symgrad.wgsl.memory.queue import Queue
from symgrad.wgsl.memory.transfer import Segment, Shelf, Slot, Transfers, divided

SMALL = 1024
"""Bytes of a piece here."""


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pieces, and few slots."""
    for name, value in (
        ("SLOT_BYTES", SMALL),
        ("LEAST_PIECE_BYTES", SMALL),
        ("QUEUED_BYTES", 0),
        ("SLOTS", 6),
    ):
        monkeypatch.setattr(transfer, name, value)
    monkeypatch.setattr(transfer, "SLOTS_AHEAD", 4)
    monkeypatch.setattr(transfer, "SLOTS_PER_SUBMIT", 2)


@pytest.fixture
def pieces(small: None, gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> Transfers:
    """The device's transfers, in small pieces through few slots, which hold poison before."""
    made = Transfers(gpu.buffer, gpu.queue, gpu.mapper)
    monkeypatch.setattr(gpu, "transfers", made)
    take, poison = Shelf.take, np.full(SMALL // 4, POISON, np.uint32)

    def poisoned(shelf: Shelf) -> Slot:
        slot = take(shelf)
        if shelf is made._up:
            gpu.mapper.finish(slot.started)
            gpu.mapper.view(slot.buffer, SMALL, write=True).view(np.uint32)[:] = poison
            gpu.mapper.unmap(slot.buffer)
            slot.started = gpu.mapper.start(slot.buffer, SMALL, write=True)
        else:
            gpu.write(slot.buffer, 0, poison)
        return slot

    monkeypatch.setattr(Shelf, "take", poisoned)
    return made


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
def test_every_array_comes_back(gpu: Gpu, pieces: Transfers, kind: str) -> None:
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


def test_bits_are_kept(gpu: Gpu, pieces: Transfers) -> None:
    bits = np.random.default_rng(0).integers(0, 2**32, 5000, np.uint32)
    storage, found = gpu.storage(bits.nbytes), np.zeros_like(bits)
    gpu.upload(storage, bits)
    gpu.download(storage, found)
    assert np.array_equal(found, bits)


def test_an_array_that_cannot_be_written_is_read(gpu: Gpu, pieces: Transfers) -> None:
    array = numbers(40, 50)
    array.flags.writeable = False
    assert np.array_equal(there_and_back(gpu, array), array)


def test_numbers_beyond_float32_are_infinite_without_a_warning(gpu: Gpu, pieces: Transfers) -> None:
    found = there_and_back(gpu, np.full(3000, -1e300))
    assert np.array_equal(found, np.full(3000, -np.inf))


def test_an_array_may_be_changed_after_the_call(gpu: Gpu, pieces: Transfers) -> None:
    array = numbers(100, 50)
    there = DeviceArray.from_numpy(gpu, array)
    array[:] = -1
    assert np.array_equal(there.numpy(), numbers(100, 50))


def test_numbers_come_to_arrays_of_any_kind(gpu: Gpu, pieces: Transfers) -> None:
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


def test_a_part_of_a_buffer(gpu: Gpu, pieces: Transfers) -> None:
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


def test_arrays_share_slots(gpu: Gpu, pieces: Transfers) -> None:
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


@pytest.mark.parametrize("after", [0, 4, 17])
@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
def test_after_an_error_within_a_piece(
    gpu: Gpu, pieces: Transfers, monkeypatch: pytest.MonkeyPatch, after: int, error: Any
) -> None:
    array = numbers(100, 70)
    there, copied, calls = DeviceArray.from_numpy(gpu, array), transfer._copied, iter(range(10**6))

    def failing(*given: Any) -> None:
        if next(calls) == after:
            raise error
        copied(*given)

    for run in (lambda: DeviceArray.from_numpy(gpu, -array), there.numpy):
        with monkeypatch.context() as patch:
            calls = iter(range(10**6))
            patch.setattr(transfer, "_copied", failing)
            with pytest.raises(error):
                run()
        assert np.array_equal(there_and_back(gpu, array), array)
        assert np.array_equal(there.numpy(), array)


@pytest.mark.parametrize("broken", ["start", "finish", "view", "unmap"])
def test_after_an_interrupt(
    gpu: Gpu, pieces: Transfers, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    array = numbers(100, 70)
    there, calls = DeviceArray.from_numpy(gpu, array), iter(range(10**6))
    works = getattr(gpu.mapper, broken)

    def interrupted(*given: Any, **named: Any) -> Any:
        if next(calls) == 8:
            raise KeyboardInterrupt
        return works(*given, **named)

    for run in (lambda: DeviceArray.from_numpy(gpu, -array), there.numpy):
        with monkeypatch.context() as patch:
            calls = iter(range(10**6))
            patch.setattr(gpu.mapper, broken, interrupted)
            with pytest.raises(KeyboardInterrupt):
                run()
        assert np.array_equal(there_and_back(gpu, array), array)
        assert np.array_equal(there.numpy(), array)


def test_no_thread_writes_to_an_array_after_an_error(
    gpu: Gpu, pieces: Transfers, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, started = DeviceArray.from_numpy(gpu, numbers(100, 70)), threading.Event()
    finish, copied, calls = gpu.mapper.finish, transfer._copied, iter(range(10**6))

    def late(*given: Any) -> None:
        started.set()
        threading.Event().wait(0.05)
        copied(*given)

    def interrupted(given: Any) -> None:
        if next(calls) == 3:
            assert started.wait(10)
            raise KeyboardInterrupt
        finish(given)

    target = np.zeros((100, 70), np.float32)
    with monkeypatch.context() as patch:
        patch.setattr(transfer, "_copied", late)
        patch.setattr(gpu.mapper, "finish", interrupted)
        with pytest.raises(KeyboardInterrupt), gpu.transfers.download() as down:
            down.get(there.into(target))
    seen = target.copy()
    threading.Event().wait(0.2)
    assert np.array_equal(target, seen)


def test_several_threads(gpu: Gpu, pieces: Transfers) -> None:
    def work(seed: int) -> None:
        for step in range(5):
            array = numbers(500 * seed + 100 * step + 1) * seed
            assert np.array_equal(there_and_back(gpu, array), array)

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(work, range(6)))


@pytest.mark.parametrize("documented", ["mapper", "encoder"])
def test_the_documented_ways(
    small: None, gpu: Gpu, monkeypatch: pytest.MonkeyPatch, documented: str
) -> None:
    mapper = WaitingMapper(gpu._device) if documented == "mapper" else gpu.mapper
    encoder = PlainEncoder(gpu._device) if documented == "encoder" else gpu.encoder
    made = Transfers(gpu.buffer, Queue(encoder), mapper)
    monkeypatch.setattr(gpu, "transfers", made)
    array = numbers(70, 90)
    for _ in range(2):
        assert np.array_equal(there_and_back(gpu, array), array)


def test_what_is_kept_is_bounded_and_let_go(gpu: Gpu, pieces: Transfers) -> None:
    there_and_back(gpu, numbers(500))
    assert 0 < pieces.nbytes <= 4 * SMALL
    there_and_back(gpu, numbers(50_000))
    assert pieces.nbytes == 2 * transfer.SLOTS * SMALL
    many = [Slot(gpu.buffer(SMALL, transfer.DOWNLOAD)) for _ in range(20)]
    for slot in many:
        pieces._down.give(slot)
    assert pieces.nbytes == 2 * transfer.SLOTS * SMALL
    pieces.let_go()
    assert pieces.nbytes == 0
    assert np.array_equal(there_and_back(gpu, numbers(5000)), numbers(5000))


def test_a_full_device_gives_up_its_slots(
    gpu: Gpu, pieces: Transfers, monkeypatch: pytest.MonkeyPatch
) -> None:
    there_and_back(gpu, numbers(5000))

    def create(nbytes: int, usage: str) -> Any:
        kept.append(pieces.nbytes)
        raise gpu.translated(RuntimeError("Not enough memory left."))

    kept: list[int] = []
    monkeypatch.setattr(gpu, "_create_buffer", create)
    with pytest.raises(DeviceMemoryError):
        gpu.buffer(1 << 20, "STORAGE")
    assert kept[0] > 0 and kept[1] == 0


FORKED = """
import os, numpy as np, symgrad as sg
from symgrad.errors import DeviceError
from symgrad.kernel import copying
from symgrad.wgsl.memory import transfer
transfer.QUEUED_BYTES, transfer.SMALLEST, copying.LEAST_PIECE_BYTES = 0, 1 << 12, 1 << 12
x = np.arange(1e5, dtype=np.float32)
there = sg.device_array(x, "gpu")
assert np.array_equal(there.numpy(), x)
child = os.fork()
if not child:
    try:
        there.numpy()
    except DeviceError:
        assert copying.threads().submit(int).result() == 0
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
