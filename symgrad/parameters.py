"""Parameters of losses over data: nested dicts of arrays outside, all of them in a row inside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from symgrad.arrays import real_numbers
from symgrad.errors import InputError
from symgrad.expr.gather import Block, nested


@dataclass(frozen=True)
class Nest:
    """The parameters that ``n`` asks for: a number, a shape, or nested dicts of either."""

    n: Any
    blocks: tuple[Block, ...]
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """The number of parameters."""
        return sum(b.size for b in self.blocks)

    def flat(self, params: Any) -> np.ndarray:
        """All parameters in a row.

        Raises:
            InputError: for names or shapes that are not those of ``n``. InputTypeError: for what
            holds no real numbers.
        """
        with np.errstate(over="ignore"):
            if isinstance(params, Mapping):
                values = zip(_leaves(self.n, params, ""), self.blocks, strict=True)
                parts = [_shaped(real_numbers(v, b.name), b.name, b.shape) for v, b in values]
                return np.concatenate([p.ravel() for p in parts]).astype(self.dtype, copy=False)
            whole = real_numbers(params, "params")
            single = len(self.blocks) == 1 and whole.ndim > 1
            shape = self.blocks[0].shape if single else (self.size,)
            return _shaped(whole, "params", shape).astype(self.dtype).ravel()

    def nested(self, flat: np.ndarray) -> Any:
        """As the user has them, in fresh arrays; a number for a shape of ()."""
        parts = (flat[b.start : b.start + b.size].reshape(b.shape) for b in self.blocks)
        with np.errstate(over="ignore"):
            return nested(self.n, iter([p.astype(self.dtype)[()] for p in parts]))


def _leaves(n: Any, params: Any, name: str) -> Iterator[Any]:
    """The arrays of parameters, nested as ``n``."""
    if not isinstance(n, Mapping):
        yield params
        return
    if not isinstance(params, Mapping) or set(params) != set(n):
        raise InputError(f"{f'params[{name!r}]' if name else 'params'} needs {', '.join(n)}")
    for key, size in n.items():
        yield from _leaves(size, params[key], f"{name}.{key}" if name else key)


def _shaped(array: np.ndarray, name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The array, if it has this shape; a number is as good as an array of one."""
    if array.ndim == 0 and shape == (1,):
        array = array.reshape(1)
    if array.shape != shape:
        raise InputError(f"{name} has shape {array.shape}: {shape} is needed")
    return array
