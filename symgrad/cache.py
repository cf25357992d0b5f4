"""Bounded caches of values that are made once."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Once(Generic[Key, Value]):
    """A bounded map whose values are made once, also when several threads ask at the same time.

    The least recently used are forgotten while all together weigh more than ``limit``, except for
    the last. If making a value fails, the next who asks tries again.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._weight = 0
        self._lock = threading.Lock()
        self._slots: OrderedDict[Key, _Slot[Value]] = OrderedDict()
        self._newest: _Slot[Value] | None = None

    def get(self, key: Key, make: Callable[[], Value], weight: int = 1) -> Value:
        """The value of ``key``, made now if there is none."""
        with self._lock:
            slot = self._slots.get(key)
            if slot is None:
                slot = self._slots[key] = _Slot(weight)
                self._weight += weight
            if slot is not self._newest:  # moving it takes the hash of all of the key again
                self._slots.move_to_end(key)
                self._newest = slot
            while self._weight > self._limit and len(self._slots) > 1:
                self._weight -= self._slots.popitem(last=False)[1].weight
        with slot.lock:
            if not slot.values:
                slot.values.append(make())
            return slot.values[0]

    def find(self, key: Key) -> Value | None:
        """The value of ``key``, if it has been made."""
        slot = self._slots.get(key)
        return slot.values[0] if slot is not None and slot.values else None


class _Slot(Generic[Value]):
    """A value that is there (one item) or not yet (none)."""

    def __init__(self, weight: int) -> None:
        self.weight = weight
        self.lock = threading.Lock()
        self.values: list[Value] = []
