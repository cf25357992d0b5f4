"""The memory that compiled code works in, cut into rooms that begin at whole lines of the cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

LINE: Final = 64
"""Bytes of a line of the cache."""


class Workspace:
    """Rooms one behind the other, each of which instructions know by its name."""

    def __init__(self, rooms: Mapping[str, int] | None = None) -> None:
        """Makes rooms of so many bytes."""
        self.size = 0
        self._starts: dict[str, int] = {}
        for name, nbytes in (rooms or {}).items():
            self.room(name, nbytes)

    def room(self, name: str, nbytes: int) -> None:
        """Make one more room."""
        self._starts[name] = self.size
        self.size += -(-nbytes // LINE) * LINE

    @property
    def names(self) -> list[str]:
        """The names of the rooms' addresses."""
        return [f"%{name}" for name in self._starts]

    def addresses(self) -> list[str]:
        """The instructions after which ``%NAME`` is the address of each room."""
        return [
            f"  %{name} = getelementptr i8, ptr %workspace, i64 {start}"
            for name, start in self._starts.items()
        ]
