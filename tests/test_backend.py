"""What compiles for a device is asked alike, whichever device it is."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import symgrad as sg
from symgrad import targets
from symgrad.backend import backend_of
from symgrad.errors import DeviceError

DEVICES = ["cpu", "gpu"]


@pytest.mark.parametrize("name", DEVICES)
def test_programs_are_run_alike(name: str) -> None:
    backend = backend_of(targets.choose(name))  # pyright: ignore[reportArgumentType]
    kernel = sg.fused_forward(2, lambda v: v[0] * v[1], device="cpu")
    launched = backend.map(kernel._computation, kernel._options)
    (found,) = launched.run(np.array([[2, 3], [4, 5]], np.float32))
    np.testing.assert_array_equal(found.ravel(), [6, 20])


def test_each_refuses_what_it_does_not_compute_in() -> None:
    cpu, gpu = (backend_of(targets.choose(name)) for name in ("cpu", "gpu"))
    for backend in (cpu, gpu):
        backend.require("float32")
        backend.require(backend.dtype)
    lacking = replace(gpu.device, dtypes=("float32",))
    with pytest.raises(DeviceError, match='device="cpu"'):
        backend_of(lacking).require("float64")
    assert cpu.on_host and cpu.owner is None
    assert not gpu.on_host and gpu.owner is gpu.owner is not None


@pytest.mark.parametrize("name", DEVICES)
def test_arrays_are_bound_where_programs_take_them(name: str) -> None:
    backend = backend_of(targets.choose(name))  # pyright: ignore[reportArgumentType]
    kernel = sg.fused_forward(2, lambda v: v[0] * v[1], device="cpu")
    launched = backend.map(kernel._computation, kernel._options)
    x = backend.array(np.array([[2, 3], [4, 5]], np.float32))
    y = backend.array(np.zeros((2, 1), np.float32))
    launched.bind([x], [y])()
    backend.wait()
    np.testing.assert_array_equal(np.asarray(y).ravel(), [6, 20])


@pytest.mark.parametrize("name", DEVICES)
def test_points_are_made_some_at_a_time(name: str) -> None:
    backend = backend_of(targets.choose(name))  # pyright: ignore[reportArgumentType]
    kernel = sg.fused_forward(1, lambda v: v[0] + 1.0, device="cpu")
    launched = backend.map(kernel._computation, kernel._options)
    points, found = np.arange(100, dtype=np.float32)[:, None], np.empty((100, 1), np.float32)
    launched.run_filled(lambda some: points[some].copy(), 32, [found])
    np.testing.assert_array_equal(found, points + 1)
