"""`value_and_grad`: JAX's verb, for functions of arrays and nested containers of arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from symgrad.errors import InputError, InputTypeError
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
        ends = np.cumsum([c.size for c in self.children])[:-1]
        parts = [c.build(p) for c, p in zip(self.children, np.split(flat, ends), strict=True)]
        if self.kind is dict:
            return dict(zip(self.keys, parts, strict=True))
        return self.kind(*parts) if hasattr(self.kind, "_fields") else self.kind(parts)


def flatten(value: Any) -> tuple[Tree, list[np.ndarray]]:
    """The nesting of an argument and its arrays; dicts are taken in the order of their keys."""
    if isinstance(value, dict):
        keys = tuple(sorted(value))
        return _container(dict, keys, [value[k] for k in keys])
    if isinstance(value, tuple) or (isinstance(value, list) and _holds_containers(value)):
        return _container(type(value), (), list(value))
    leaf = np.asarray(value)
    if leaf.dtype.kind not in "fiub":
        raise InputTypeError(f"an argument holds {leaf.dtype} values: real numbers are needed")
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
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, *, device: Any = None,
    math: str = "accurate", dtype: str = "float32", simplify: Level = True,
) -> Callable[..., tuple[float, Any]]:  # fmt: skip
    """A function that returns the value of f and its gradient, as ``jax.value_and_grad`` does.

    f takes arrays, or dicts, lists and tuples of them, and returns a scalar. Shapes are taken from
    each call and a kernel is kept for every combination of them. ``argnums`` are the arguments
    that the gradient is taken for: an int gives one gradient, a sequence a tuple of them, each
    nested as its argument. The options are those of `fused_forward_backward`.

    Raises:
        InputError: if argnums names no argument. InputTypeError: for arguments that hold no real
        numbers.

    Example:
        >>> import numpy as np
        >>> import symgrad as sg
        >>> loss = lambda p, x: np.sum((p["w"] * x + p["b"])**2)
        >>> value, grad = sg.value_and_grad(loss)({"w": 2.0, "b": 1.0}, np.array([1.0, 2.0]))
        >>> value, float(grad["w"])
        (34.0, 26.0)
    """
    kernels: dict[tuple[Tree, ...], Kernel] = {}
    options = options_of(f, None, math, dtype, simplify, comments=True)

    @functools.wraps(f)
    def run(*args: Any) -> tuple[float, Any]:
        chosen = _chosen(argnums, len(args))
        order = chosen + [k for k in range(len(args)) if k not in chosen]
        parts = [flatten(args[k]) for k in order]
        trees = tuple(t for t, _ in parts)
        if trees not in kernels:
            wrt = sum(t.size for t in trees[: len(chosen)])
            total = sum(t.size for t in trees)
            kernels[trees] = gradient_kernel(total, _flat(f, trees, order), wrt, options, device)
        flat = np.concatenate([a.ravel() for _, arrays in parts for a in arrays])
        value, gradient = kernels[trees].run(flat)
        ends = np.cumsum([t.size for t in trees])[: len(chosen) - 1]
        pieces = np.split(gradient, ends)
        grads = tuple(t.build(p.copy()) for t, p in zip(trees, pieces, strict=False))
        return value, grads[0] if isinstance(argnums, int) else grads

    return run


def _chosen(argnums: int | Sequence[int], count: int) -> list[int]:
    wanted = [argnums] if isinstance(argnums, int) else list(argnums)
    if any(not -count <= k < count for k in wanted):
        raise InputError(f"argnums={argnums} names an argument beyond the {count} given")
    return [k % count for k in wanted]


def _flat(f: Callable[..., Any], trees: Sequence[Tree], order: Sequence[int]) -> Callable[..., Any]:
    """f as a function of one flat array, whose pieces are its arguments in this order."""

    def flat_f(v: Any) -> Any:
        ends = np.cumsum([t.size for t in trees])[:-1]
        built = [t.build(p) for t, p in zip(trees, np.split(v, ends), strict=True)]
        return f(*[built[order.index(k)] for k in range(len(trees))])

    return flat_f
