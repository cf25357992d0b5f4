"""`value_and_grad`: JAX's verb, for functions of arrays and nested containers of arrays."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from symgrad.errors import InputError, InputTypeError
from symgrad.expr.array import array
from symgrad.fused import fused_forward_backward
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
    f: Callable[..., Any], argnums: int | Sequence[int] = 0, **options: Any
) -> Callable[..., tuple[float, Any]]:
    """A function that returns the value of f and its gradient, as ``jax.value_and_grad`` does.

    f takes arrays, or dicts, lists and tuples of them, and returns a scalar. Shapes are taken from
    each call and a kernel is kept for every combination of them. ``argnums`` are the arguments
    that the gradient is taken for: an int gives one gradient, a sequence a tuple of them, each
    nested as its argument. ``options`` are those of `fused_forward_backward`.

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
    wanted = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    @functools.wraps(f)
    def run(*args: Any) -> tuple[float, Any]:
        if any(not -len(args) <= k < len(args) for k in wanted):
            raise InputError(f"argnums={argnums} names an argument beyond the {len(args)} given")
        chosen = [k % len(args) for k in wanted]
        order = chosen + [k for k in range(len(args)) if k not in chosen]
        parts = [flatten(args[k]) for k in order]
        trees = tuple(t for t, _ in parts)
        if trees not in kernels:
            kernels[trees] = _kernel(f, trees, order, len(chosen), options)
        flat = np.concatenate([a.ravel() for _, arrays in parts for a in arrays] or [np.zeros(0)])
        value, gradient = kernels[trees].run(flat)
        ends = np.cumsum([t.size for t in trees])[: len(chosen)]
        pieces = np.split(gradient, ends)
        grads = tuple(t.build(p.copy()) for t, p in zip(trees, pieces, strict=False))[: len(chosen)]
        return value, grads[0] if isinstance(argnums, int) else grads

    return run


def _kernel(
    f: Callable[..., Any], trees: Sequence[Tree], order: Sequence[int], _: int, options: Any
) -> Kernel:
    """The kernel of f for arguments nested like this."""

    def flat_f(v: Any) -> Any:
        ends = np.cumsum([t.size for t in trees])[:-1]
        built = [t.build(p) for t, p in zip(trees, np.split(array(v), ends), strict=True)]
        args = [built[order.index(k)] for k in range(len(trees))]
        return f(*args)

    flat_f.__name__ = getattr(f, "__name__", "f")
    return fused_forward_backward(sum(t.size for t in trees), flat_f, **options)
