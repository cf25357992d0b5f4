"""Rows of a table in one test, where what they have in common is what takes the time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def row(**named: object) -> Iterator[None]:
    """A context whose exceptions say of which row of a table they are."""
    try:
        yield
    except BaseException as error:
        error.add_note("where " + ", ".join(f"{name} = {value!r}" for name, value in named.items()))
        raise
