"""What stands in arrays and in indices: expressions, numbers, and arrays of either."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from symgrad.errors import TraceError
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import Graph, Handle, real_number


def plain(value: Any) -> Any:
    """As an ordinary object array, whose elements NumPy moves around without looking."""
    if isinstance(value, Handle):
        if value.is_row:
            raise TraceError(located("the elements of a row are not known one by one"))
        result = np.empty((), dtype=object)
        result[()] = value
        return result
    elements = np.asarray(value)
    return unpacked(elements) if elements.dtype == object else elements


def unpacked(a: np.ndarray) -> np.ndarray:
    """Objects without arrays of no axes among them, as which NumPy keeps what stands in lists."""
    if not any(isinstance(e, np.ndarray) for e in a.flat):
        return a
    result = np.empty(a.shape, dtype=object)
    result.reshape(-1)[:] = [e[()] if isinstance(e, np.ndarray) else e for e in a.flat]
    return result


def as_elements(value: Any) -> Any:
    """What is put into an array: expressions and numbers, or arrays of them with axes."""
    value = plain(value) if isinstance(value, (list, tuple, np.ndarray)) else value
    return value[()] if isinstance(value, np.ndarray) else value


def parts_of(key: Any) -> tuple[Any, ...]:
    """What an index has for each axis."""
    return key if isinstance(key, tuple) else (key,)


def takes_values(key: Any) -> bool:
    """Whether an index holds expressions."""
    return any(isinstance(e, Handle) for e in each_of(key))


def each_of(key: Any) -> Iterator[Any]:
    """All that stands in an index."""
    for part in parts_of(key):
        if isinstance(part, slice):
            yield from (part.start, part.stop, part.step)
        else:
            yield from plain(part).flat if isinstance(part, (list, np.ndarray)) else (part,)


def numbers_of(values: Any, whole: bool) -> Any:
    """The values as NumPy's floating-point numbers, or integers that may stay so."""
    numbers = np.asarray(values)
    if numbers.dtype.kind not in "fiub":
        numbers = np.reshape([real_number(v) for v in numbers.flat], numbers.shape)
    if numbers.dtype.kind not in ("fiu" if whole else "f"):
        numbers = numbers.astype(np.float64)
    return numbers[()]


def graph_of(arrays: Sequence[np.ndarray]) -> Graph | None:
    """The graph of the first expression in them."""
    return next((e.graph for a in arrays for e in a.flat if isinstance(e, Handle)), None)
