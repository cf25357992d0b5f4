"""Machines that this one is taken for: with other vectors, sizes of code, and cores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from symgrad.kernel.host import threads
from symgrad.llvm.device.cpu import host, taken_for


@contextmanager
def code_sizes(**sizes: Any) -> Iterator[None]:
    """A context in which code is written in the ways of these `CodeSizes`."""
    with taken_for(replace(host(), sizes=replace(host().sizes, **sizes))):
        yield


@contextmanager
def vectors_of(bits: int) -> Iterator[None]:
    """A context in which vectors have so many bits, or as many as there are."""
    with taken_for(replace(host(), vector_bits=min(bits, host().vector_bits))):
        yield


@contextmanager
def cores(count: int, pieces: int = threads.CHUNKS) -> Iterator[None]:
    """A context in which the least work is worth the threads of so many cores, piece by piece."""
    costs: dict[str, Any] = {"OPERATION": 1.0, "CHUNKS": pieces, "available": lambda: count}
    with mock.patch.multiple(threads, **costs):
        yield
