"""Shares of rows: how they are cut, and cut anew when a device has become slow or was lost."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from symgrad import multi_device as module
from symgrad.errors import DeviceLostError, DeviceWarning
from symgrad.multi_device import SharedSums
from symgrad.targets import Device

NO_PARAMETERS = np.empty(0, np.float32)


class Slow:
    """Sums of rows on a device that takes so many seconds for each, and may be lost."""

    seconds = 0.0

    def __init__(self, per_row: float) -> None:
        self.per_row, self.is_lost = per_row, False

    def bind(self, rows: np.ndarray, indices: Any) -> Share:
        return Share(self, rows)


class Share:
    """Some rows of it."""

    def __init__(self, on: Slow, rows: np.ndarray) -> None:
        self.on, self.rows = on, rows

    def run(self, numbers: np.ndarray) -> np.ndarray:
        time.sleep(self.on.per_row * len(self.rows))
        if self.on.is_lost:
            raise DeviceLostError("gone")
        return self.rows.sum(axis=0, dtype=float)


def bound(names: str, devices: Sequence[Slow], count: int) -> Any:
    """Rows 0, 1, 2, ... on devices of these names."""
    kinds = [Device(k, f"{name} of sums", "cpu", "none") for k, name in enumerate(names)]
    rows = np.arange(count, dtype=np.float32)[:, None]
    return SharedSums(list(zip(kinds, devices, strict=True))).bind(rows)


def rows_of(made: Any) -> list[int]:
    return [count for _, count in made.shares]


@pytest.mark.parametrize("count", [0, 1, 255, 256, 1000, 5000])
def test_all_rows_are_summed(count: int) -> None:
    made = bound("abc", [Slow(0.0), Slow(0.0), Slow(0.0)], count)
    assert made.run(NO_PARAMETERS) == count * (count - 1) / 2
    assert sum(rows_of(made)) == count


def test_devices_of_one_name_have_equal_shares() -> None:
    made = bound("aa", [Slow(1e-6), Slow(2e-5)], 2048)
    made.run(NO_PARAMETERS)
    assert rows_of(made) == [1024, 1024]


def test_other_devices_have_shares_by_their_speeds() -> None:
    made = bound("ab", [Slow(1e-5), Slow(4e-5)], 5120)
    assert made.run(NO_PARAMETERS) == 5119 * 5120 / 2
    assert 2 * rows_of(made)[1] < rows_of(made)[0] < 5120
    again = rows_of(made)
    made.run(NO_PARAMETERS)
    assert rows_of(made) == again


def test_a_device_that_becomes_slow_gives_rows_away() -> None:
    late = Slow(2e-6)
    made = bound("aa", [Slow(2e-6), late], 8192)
    made.run(NO_PARAMETERS)
    late.per_row = 5e-5
    for _ in range(module.SLOW_RUNS - 1):
        made.run(NO_PARAMETERS)
    assert rows_of(made) == [4096, 4096]
    with pytest.warns(DeviceWarning, match="a of sums .* has become slow"):
        made.run(NO_PARAMETERS)
    assert rows_of(made)[1] < 2048
    assert made.run(NO_PARAMETERS) == 8191 * 8192 / 2


def test_work_that_takes_longer_on_all_devices_stays_where_it_is() -> None:
    both = [Slow(1e-6), Slow(1e-6)]
    made = bound("aa", both, 8192)
    made.run(NO_PARAMETERS)
    for device in both:
        device.per_row = 2e-5
    for _ in range(module.SLOW_RUNS + 1):
        made.run(NO_PARAMETERS)
    assert min(rows_of(made)) > 2048


def test_the_rows_of_one_that_is_lost_go_to_the_others() -> None:
    late = Slow(0.0)
    made = bound("aa", [Slow(0.0), late], 1000)
    late.is_lost = True
    with pytest.warns(DeviceWarning, match="was lost: its share goes to the other devices"):
        assert made.run(NO_PARAMETERS) == 999 * 1000 / 2
    assert rows_of(made) == [1000]


def test_all_are_lost() -> None:
    both = [Slow(0.0), Slow(0.0)]
    made = bound("ab", both, 1000)
    for device in both:
        device.is_lost = True
    with pytest.warns(DeviceWarning), pytest.raises(DeviceLostError, match="all devices were lost"):
        made.run(NO_PARAMETERS)
