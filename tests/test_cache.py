"""Values of a cache are made once, whoever asks, and forgotten by their weight."""

from __future__ import annotations

import threading
import time

import pytest

from symgrad.cache import Once


def test_a_value_is_made_once_for_all_threads() -> None:
    made: list[int] = []
    once: Once[str, int] = Once(4)

    def make() -> int:
        time.sleep(0.02)
        made.append(1)
        return len(made)

    threads = [threading.Thread(target=once.get, args=("key", make)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]


def test_a_value_that_failed_is_made_again_and_old_ones_are_forgotten() -> None:
    once: Once[int, float] = Once(2)
    with pytest.raises(ZeroDivisionError):
        once.get(0, lambda: 1 / 0)
    assert once.get(0, lambda: 1) == 1
    assert [once.get(key, lambda: 2) for key in (0, 1, 2)] == [1, 2, 2]
    assert once.get(0, lambda: 3) == 3


def test_what_is_kept_is_bounded_by_its_weight() -> None:
    once: Once[str, object] = Once(10)
    made = {key: once.get(key, object, weight) for key, weight in (("a", 4), ("b", 4), ("c", 2))}
    assert all(once.get(key, object) is value for key, value in made.items())  # c used last
    once.get("d", object, 3)
    assert once.get("b", object, 4) is made["b"] and once.get("c", object, 2) is made["c"]
    heavy = once.get("heavy", object, 99)
    assert once.get("heavy", object, 99) is heavy
    assert once.get("b", object, 4) is not made["b"]
