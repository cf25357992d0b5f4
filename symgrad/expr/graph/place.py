"""Where in the user's program a node was made: cheap to note, resolved when somebody asks."""

from __future__ import annotations

import contextlib
import inspect
import linecache
import os
import re
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, Protocol

import numpy as np

_PACKAGE: Final = str(Path(__file__).resolve().parents[2])
_NUMPY: Final = os.path.dirname(os.path.abspath(np.__file__))
_SCIPY: Final = os.path.join(os.path.dirname(_NUMPY), "scipy", "")
_INSIDE: Final = (
    os.path.join(_PACKAGE, "arrays", ""),
    os.path.join(_PACKAGE, "cache.py"),
    os.path.join(_PACKAGE, "expr", ""),
    os.path.join(_PACKAGE, "front", ""),
    os.path.join(_PACKAGE, "mathlib", ""),
    os.path.join(_PACKAGE, "ode", ""),
    os.path.join(_PACKAGE, "pipeline.py"),
    os.path.join(_PACKAGE, "programs", ""),
    os.path.join(_PACKAGE, "tensor", ""),
    contextlib.__file__,
    os.path.join(_NUMPY, ""),
    _SCIPY,
)

_FRAMEWORK: Final = re.compile(r"[/\\](jax|jaxlib|torch)[/\\]")
"""Files of frameworks whose functions users call on expressions."""

MOST_RESOLVED: Final = 4096
"""Instructions whose lines are remembered, since functions are traced again and again."""

_resolved: dict[tuple[int, int], tuple[CodeType, Place]] = {}
"""By the id of a code object, which is held with the line, and an instruction of it."""

Positions = list[tuple[int | None, int | None, int | None, int | None]]
"""First line, last line, first column and end column of each instruction."""


@dataclass(frozen=True, slots=True)
class Place:
    """A line of the user's program: where a node was made."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return (
            f'{self.file}:{self.line}: "{self.text}"' if self.text else f"{self.file}:{self.line}"
        )


class SourceLines(Protocol):
    """The lines that a graph knows of: see `Graph`."""

    known: dict[tuple[int, int], int]
    sources: list[Any]
    place: int
    tracing: bool


@lru_cache(maxsize=4096)
def _is_inside(file: str) -> bool:
    return file.startswith(_INSIDE)


def user_frame(depth: int) -> FrameType | None:
    """The innermost frame that belongs neither to this library nor to NumPy or SciPy."""
    frame: FrameType | None = sys._getframe(depth)  # pyright: ignore[reportPrivateUsage]
    while frame is not None and _is_inside(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def scipy_function() -> str:
    """The name of SciPy's function that the user's program is in; none: empty."""
    frame, name = sys._getframe(1), ""  # pyright: ignore[reportPrivateUsage]
    while frame is not None and frame.f_code.co_filename.startswith(_INSIDE):
        is_scipys = frame.f_code.co_filename.startswith(_SCIPY)
        name = (_name_of(frame) or name) if is_scipys else name
        frame = frame.f_back
    return name


_DECORATORS: Final = ("wrapper", "wrapped", "inner")
"""Functions around others, which users do not know by these names."""


def _name_of(frame: FrameType) -> str:
    """The name that users know the function of a frame by: that of its class for its calls.

    Empty for a function around another one.
    """
    name = frame.f_code.co_name
    if name in ("__call__", "__init__") and "self" in frame.f_locals:
        return type(frame.f_locals["self"]).__name__
    return "" if name in _DECORATORS else name


def scipy_call(error: BaseException) -> tuple[str, Place] | None:
    """SciPy's function in whose code an exception was raised, and the user's line that called it.

    None if it was raised elsewhere.
    """
    frames = [*traceback.walk_tb(error.__traceback__)]
    inside = [frame.f_code.co_filename.startswith(_SCIPY) for frame, _ in frames]
    if not inside or not inside[-1]:
        return None
    first = inside.index(True)
    caller, line = frames[max(first - 1, 0)]
    file = caller.f_code.co_filename
    name = next(filter(None, (_name_of(frame) for frame, _ in frames[first:])))
    return name, Place(file, line, linecache.getline(file, line).strip())


def called_with_one(error: TypeError) -> bool:
    """Whether this library called a function that takes more arguments than the one it gave."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    inside = frame.f_code.co_filename.startswith(os.path.join(_PACKAGE, ""))
    return inside and "required positional argument" in str(error)


def called_at(error: BaseException) -> Place:
    """The line of the user's program that called a function of JAX's or PyTorch's that raised."""
    places = [
        (frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    mine = [p for p in places if not _is_inside(p[0]) and not _FRAMEWORK.search(p[0])]
    file, line = (mine or places)[-1]
    return Place(file, line, linecache.getline(file, line).strip())


def raised_at(error: BaseException) -> Place | None:
    """The line of the user's program that raised an exception; None if it was raised elsewhere."""
    *_, (frame, line) = traceback.walk_tb(error.__traceback__)
    file = frame.f_code.co_filename
    return None if _is_inside(file) else Place(file, line, linecache.getline(file, line).strip())


def place_here(graph: SourceLines) -> int:
    """The number, in ``graph.sources``, of the instruction that the user's program is at."""
    frame = user_frame(3)
    if frame is None:
        return 0
    code, at = frame.f_code, frame.f_lasti
    key = (id(code), at)  # the code object is kept by ``sources``; hashing it would read all of it
    number = graph.known.get(key)
    if number is None:
        graph.known[key] = number = len(graph.sources)
        graph.sources.append((code, at))
    return number


class OnePlace:
    """A context in which all nodes get the place that the user's program is at now."""

    __slots__ = ("_graph", "_tracing")

    def __init__(self, graph: SourceLines | None) -> None:
        self._graph, self._tracing = graph, graph is not None and graph.tracing

    def __enter__(self) -> None:
        if self._graph is not None and self._tracing:
            self._graph.place, self._graph.tracing = place_here(self._graph), False

    def __exit__(self, *_: object) -> None:
        if self._graph is not None:
            self._graph.tracing = self._tracing


def caller() -> tuple[Place, str] | None:
    """The line of the user's program that is running now, and the part of it that is."""
    frame = user_frame(2)
    if frame is None:
        return None
    positions = list(frame.f_code.co_positions())
    place = place_of(frame.f_code, frame.f_lasti, positions)
    start, end, left, right = positions[frame.f_lasti // 2]
    if start != end or left is None or right is None:
        return place, place.text
    line = linecache.getline(place.file, place.line).encode()
    return place, line[left:right].decode(errors="replace")


def describe(f: Callable[..., Any]) -> str:
    """The function's name and where it is written."""
    name = getattr(f, "__qualname__", repr(f))
    code = getattr(inspect.unwrap(f), "__code__", None) if callable(f) else None
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name


def place_of(code: CodeType, instruction: int, positions: Positions) -> Place:
    """The source line of an instruction (its byte offset) of a code object."""
    line = positions[instruction // 2][0] or code.co_firstlineno
    return Place(code.co_filename, line, linecache.getline(code.co_filename, line).strip())


def resolve_places(graph: SourceLines) -> None:
    """Replace the code objects in ``graph.sources`` by the lines they stand for."""
    positions: dict[int, Positions] = {}
    if len(_resolved) > MOST_RESOLVED:
        _resolved.clear()
    for k, source in enumerate(graph.sources):
        if isinstance(source, tuple):
            code, at = source
            resolved = _resolved.get((id(code), at))
            if resolved is None:
                if id(code) not in positions:
                    positions[id(code)] = list(code.co_positions())
                resolved = code, place_of(code, at, positions[id(code)])
                _resolved[id(code), at] = resolved
            graph.sources[k] = resolved[1]
    graph.known.clear()
