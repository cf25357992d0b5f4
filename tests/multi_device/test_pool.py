"""Work that is shared out: every thing once, in its place, whoever is slow, lost or hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
import pytest

from symgrad import multi_device as module
from symgrad.errors import DeviceLostError, DeviceWarning
from symgrad.multi_device import Arrays, DevicePool, Member
from symgrad.targets import Device

Work = Callable[[int], None]

_numbers = iter(range(10_000))


def members(*works: Work, names: str = "abcdef") -> list[Member]:
    """Members that do something with how many things they are given."""
    found = zip(names, works, strict=False)
    return [Member(Device(next(_numbers), name, "software", "none"), work) for name, work in found]


def squares(pool: DevicePool, count: int) -> np.ndarray:
    """The squares of the first integers, each member's work done on the way."""

    def work(member: Member, part: slice, arrays: Arrays) -> None:
        member.tool(part.stop - part.start)
        arrays[0][part] += np.arange(part.start, part.stop) ** 2

    (found,) = pool.fill(count, [np.zeros(count)], work)
    return found


def naps(seconds: float) -> Work:
    return lambda count: time.sleep(seconds * count)


def nothing(count: int) -> None:
    pass


def lost(count: int) -> None:
    raise DeviceLostError("gone")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAITED_SECONDS", 0.05)
    monkeypatch.setattr(module, "WAITED_TIMES", 1.0)


@pytest.mark.parametrize("count", [0, 1, 9, 10, 100, 1003])
@pytest.mark.parametrize("names", ["aaa", "abc", "aab"])
def test_everything_is_done_once_and_in_its_place(count: int, names: str) -> None:
    pool = DevicePool(members(nothing, nothing, nothing, names=names), least=5)
    for _ in range(3):
        np.testing.assert_array_equal(squares(pool, count), np.arange(count) ** 2)


def test_the_quicker_gets_more() -> None:
    given = [0, 0]

    def noting(k: int, seconds: float) -> Work:
        def work(count: int) -> None:
            given[k] += count
            time.sleep(seconds * count)

        return work

    pool = DevicePool(members(noting(0, 2e-4), noting(1, 2e-5)), least=20)
    squares(pool, 1000)
    given[:] = 0, 0
    squares(pool, 2000)
    assert sum(given) == 2000
    assert given[1] > 2 * given[0] > 0


def test_devices_of_one_name_have_equal_shares_at_first() -> None:
    assert DevicePool(members(nothing, nothing, names="aa"), 1).shares(
        members(nothing, nothing, names="aa")
    ) == [0.5, 0.5]
    assert DevicePool([], 1).shares(members(nothing, nothing)) is None


@pytest.mark.parametrize("count", [7, 400])
def test_the_share_of_one_that_is_lost_goes_to_the_others(count: int) -> None:
    pool = DevicePool(members(lost, nothing, nothing), least=5)
    with pytest.warns(DeviceWarning, match=r"a \(software, none\) was lost: its share goes to"):
        np.testing.assert_array_equal(squares(pool, count), np.arange(count) ** 2)
    np.testing.assert_array_equal(squares(pool, count), np.arange(count) ** 2)  # with no warning


def test_one_that_is_lost_at_its_last_piece_loses_no_work() -> None:
    rest = threading.Event()

    def lost_late(count: int) -> None:
        rest.wait(10.0)
        raise DeviceLostError("gone")

    def last(count: int) -> None:
        rest.set()

    pool = DevicePool(members(lost_late, last, names="aa"), least=5)
    with pytest.warns(DeviceWarning):
        np.testing.assert_array_equal(squares(pool, 100), np.arange(100) ** 2)


def test_all_are_lost() -> None:
    pool = DevicePool(members(lost, lost), least=5)
    with pytest.warns(DeviceWarning), pytest.raises(DeviceLostError, match="all devices were lost"):
        squares(pool, 100)
    with pytest.raises(DeviceLostError, match=r"a \(software, none\), b \(software, none\)"):
        squares(pool, 3)


@pytest.mark.usefixtures("impatient")
def test_what_one_that_hangs_writes_later_is_not_seen() -> None:
    hangs, ended, end = [False], threading.Event(), threading.Event()

    def sometimes(count: int) -> None:
        if hangs[0]:
            end.wait(20.0)
            ended.set()

    pool = DevicePool(members(sometimes, nothing, names="aa"), least=5)
    squares(pool, 100)  # from now on it is known how long a piece takes
    hangs[0] = True
    with pytest.warns(DeviceWarning, match="takes much longer than the other devices"):
        found = squares(pool, 100)
    np.testing.assert_array_equal(found, np.arange(100) ** 2)
    np.testing.assert_array_equal(squares(pool, 100), np.arange(100) ** 2)  # without it
    hangs[0] = False
    end.set()
    assert ended.wait(10.0)
    time.sleep(0.05)
    np.testing.assert_array_equal(found, np.arange(100) ** 2)
    assert len(pool.present) == 2


def test_other_errors_are_the_users() -> None:
    def wrong(count: int) -> None:
        raise ZeroDivisionError("mine")

    with pytest.raises(ZeroDivisionError, match="mine"):
        squares(DevicePool(members(wrong, nothing, names="aa"), least=5), 100)


def test_the_user_may_end_it() -> None:
    done: list[int] = []

    def told(count: int) -> bool:
        done.append(count)
        return True

    pool = DevicePool(members(naps(1e-4), nothing), least=5)
    pool.fill(1000, [np.zeros(1000)], lambda member, part, arrays: member.tool(5), told)
    assert 0 < done[-1] <= 20
