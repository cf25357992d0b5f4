"""The memory that compiled code works in, in arrays that begin at whole cache lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

CACHE_LINE_BYTES: Final = 64


class Workspace:
    """Arrays one behind the other, each of which instructions know by its name."""

    def __init__(self, arrays: Mapping[str, int] | None = None) -> None:
        """Reserves arrays of so many bytes."""
        self.size = 0
        self._starts: dict[str, int] = {}
        for name, nbytes in (arrays or {}).items():
            self.reserve(name, nbytes)

    def reserve(self, name: str, nbytes: int) -> None:
        """Reserve one more array."""
        self._starts[name] = self.size
        self.size += -(-nbytes // CACHE_LINE_BYTES) * CACHE_LINE_BYTES

    @property
    def names(self) -> list[str]:
        """The names of the arrays' addresses."""
        return [f"%{name}" for name in self._starts]

    def addresses(self) -> list[str]:
        """The instructions after which ``%NAME`` is the address of each array."""
        return [
            f"  %{name} = getelementptr i8, ptr %workspace, i64 {start}"
            for name, start in self._starts.items()
        ]
