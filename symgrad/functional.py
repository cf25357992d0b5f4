"""`value_and_grad`: JAX's verb, for functions of arrays and nested containers of arrays."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from symgrad.arrays import real_numbers
from symgrad.errors import InputError
from symgrad.expr.simplify import Level
from symgrad.fused import gradient_kernel, options_of
from symgrad.kernels import Kernel


@dataclass(frozen=True)
class Tree:
    """The nesting of an argument: ``kind`` is "array" with a shape, or a container's class."""

    kind: Any
    keys: tuple[Any, ...] = ()
    children: tuple[Tree, ...] = ()

    @property
    def size(self) -> int:
        """The numbers in all its arrays."""
        if self.kind == "array":
            return int(np.prod(self.keys))
        return sum(c.size for c in self.children)

    def build(self, flat: Any) -> Any:
        """The nesting, its arrays filled from a flat one in order; a scalar for shape ()."""
        if self.kind == "array":
            return flat.reshape(self.keys) if self.keys else flat[0]
        parts = built(self.children, flat)
        if self.kind is dict:
            return dict(zip(self.keys, parts, strict=True))
        return self.kind(*parts) if hasattr(self.kind, "_fields") else self.kind(parts)


def built(trees: Sequence[Tree], flat: Any) -> list[Any]:
    """Several nestings, filled from one flat array, of which there may be more."""
    ends = itertools.accumulate(t.size for t in trees)
    return [t.build(flat[end - t.size : end]) for t, end in zip(trees, ends, strict=True)]


def flatten(value: Any) -> tuple[Tree, list[np.ndarray]]:
    """The nesting of an argument and its arrays; dicts are taken in the order of their keys."""
    if isinstance(value, dict):
        keys = tuple(sorted(value, key=lambda k: (type(k).__name__, k)))
        return _container(dict, keys, [value[k] for k in keys])
    if isinstance(value, tuple) or (isinstance(value, list) and _holds_containers(value)):
        return _container(type(value), (), list(value))
    leaf = real_numbers(value, "an argument")
    return Tree("array", leaf.shape), [leaf]


def _holds_containers(value: list[Any]) -> bool:
    """Whether a list is a container of arrays rather than an array written as lists."""
    return any(isinstance(v, (dict, tuple, np.ndarray)) for v in value)


def _container(
    kind: Any, keys: tuple[Any, ...], values: Sequence[Any]
) -> tuple[Tree, list[np.ndarray]]:
    parts = [flatten(v) for v in values]
    return Tree(kind, keys, tuple(t for t, _ in parts)), [a for _, arrays in parts for a in arrays]


def value_and_grad(
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False, *,
    device: Any = None, math: str = "accurate", dtype: str = "float32", simplify: Level = True,
) -> Callable[..., tuple[Any, Any]]:  # fmt: skip
    """A function that returns the value of f and its gradient, as ``jax.value_and_grad`` does.

    f takes arrays, or dicts, lists and tuples of them, and returns a scalar. Shapes are taken from
    each call and a kernel is kept for every combination of them. ``argnums`` are the arguments
    that the gradient is taken for: an int gives one gradient, a sequence a tuple of them, each
    nested as its argument. Arguments given by name are never among them. With ``has_aux`` f
    returns the scalar and anything else that it computed, and the result is
    ``((value, aux), gradient)``. The options are those of `fused_forward_backward`.

    Raises:
        InputError: if argnums names no argument, or one twice. InputTypeError: for arguments that
        hold no real numbers. TraceError: if f returns something else.

    Example:
        >>> import numpy as np
        >>> import symgrad as sg
        >>> loss = lambda p, x: np.sum((p["w"] * x + p["b"])**2)
        >>> value, grad = sg.value_and_grad(loss)({"w": 2.0, "b": 1.0}, np.array([1.0, 2.0]))
        >>> value, float(grad["w"])
        (34.0, 26.0)
    """
    kernels: dict[Any, Kernel] = {}
    options = options_of(f, None, math, dtype, simplify, comments=True)

    @functools.wraps(f)
    def run(*args: Any, **named: Any) -> tuple[Any, Any]:
        chosen = _chosen(argnums, len(args))
        given = [*args, named]
        order = chosen + [k for k in range(len(given)) if k not in chosen]
        parts = [flatten(given[k]) for k in order]
        trees = tuple(t for t, _ in parts)
        key = trees, tuple(order)
        if key not in kernels:
            wrt = sum(t.size for t in trees[: len(chosen)])
            total = sum(t.size for t in trees)
            flat_f = _flat(f, trees, order)
            kernels[key] = gradient_kernel(total, flat_f, wrt, options, device, aux=has_aux)
        flat = np.concatenate([a.ravel() for _, arrays in parts for a in arrays])
        value, gradient, *aux = kernels[key].run(flat)
        grads = tuple(built(trees[: len(chosen)], gradient.copy()))
        first = (value, *aux) if has_aux else value
        return first, grads[0] if isinstance(argnums, (int, np.integer)) else grads

    return run


def _chosen(argnums: int | Sequence[int], count: int) -> list[int]:
    """The arguments that ``argnums`` names, counted from the first."""
    wanted = [argnums] if isinstance(argnums, (int, np.integer)) else list(np.atleast_1d(argnums))
    if not all(isinstance(k, (int, np.integer)) for k in wanted):
        raise InputError(f"argnums={argnums!r}: the number of an argument, or several, is needed")
    if any(not -count <= k < count for k in wanted):
        raise InputError(f"argnums={argnums} names an argument beyond the {count} given in order")
    found = [int(k) % count for k in wanted]
    if len(set(found)) < len(found):
        raise InputError(f"argnums={argnums} names an argument twice")
    return found


def _flat(f: Callable[..., Any], trees: Sequence[Tree], order: Sequence[int]) -> Callable[..., Any]:
    """f as a function of one flat array, whose pieces are its arguments in this order.

    The last argument holds those that were given by name.
    """

    @functools.wraps(f)
    def flat_f(v: Any) -> Any:
        parts = built(trees, v)
        *args, named = (parts[order.index(k)] for k in range(len(trees)))
        return f(*args, **named)

    return flat_f
