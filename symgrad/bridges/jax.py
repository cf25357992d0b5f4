"""Kernels as JAX's functions: ``jit``, ``vmap`` and ``grad`` go through them."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from symgrad.bridges.rows import Loss, RowFunction
from symgrad.errors import DifferentiationError, InputTypeError, SymgradError
from symgrad.expr.tracers.tree import Tree
from symgrad.values.parameters import rows_of
from symgrad.values.results import Result


@functools.cache
def jax() -> Any:
    """JAX."""
    try:
        return importlib.import_module("jax")
    except ImportError as error:
        raise SymgradError("as_jax and from_jax need JAX: pip install 'symgrad[jax]'") from error


@functools.cache
def functions() -> Any:
    """``rows(function, x)`` and ``pair(loss, x)``: JAX's functions, made when first used."""
    j, jnp = jax(), jax().numpy

    def outside(run: Callable[..., Any], x: Any, *tails: tuple[int, ...]) -> Any:
        """The results of a function of NumPy's arrays, each of the batch of x and its tail."""
        shapes = [j.ShapeDtypeStruct((*x.shape[:-1], *tail), x.dtype) for tail in tails]

        def call(x: Any) -> list[np.ndarray]:
            return [np.asarray(result, shapes[0].dtype) for result in run(np.asarray(x))]

        return j.pure_callback(call, shapes, x, vmap_method="expand_dims")

    @functools.partial(j.custom_vjp, nondiff_argnums=(0,))
    def rows(function: RowFunction, x: Any) -> Any:
        """A `RowFunction` at rows x (..., n)."""
        return outside(lambda x: [function.run(x)], x, (function.m,))[0]

    def rows_forward(function: RowFunction, x: Any) -> tuple[Any, Any]:
        return rows(function, x), x

    def rows_backward(function: RowFunction, x: Any, g: Any) -> tuple[Any]:
        return (rows(function.pulled, jnp.concatenate([x, g], -1)),)

    rows.defvjp(rows_forward, rows_backward)

    @functools.partial(j.custom_vjp, nondiff_argnums=(0,))
    def pair(loss: Loss, x: Any) -> tuple[Any, Any]:
        """A `Loss` and its gradient at rows x (..., n): the gradient is at hand for backward."""
        value, gradient = outside(loss.pair, x, (), (loss.n,))
        return value, gradient

    def pair_forward(loss: Loss, argument: Any) -> tuple[Any, Any]:
        value, gradient = pair(loss, argument.value)
        return (value, gradient), (argument.value, gradient)

    def pair_backward(loss: Loss, residuals: tuple[Any, Any], cotangents: Any) -> tuple[Any]:
        x, gradient = residuals
        g, direction = cotangents
        zero = j.custom_derivatives.SymbolicZero
        pulled = jnp.zeros_like(x) if isinstance(g, zero) else g[..., None] * gradient
        if isinstance(direction, zero):
            return (pulled,)
        if loss.curvature is None:
            raise DifferentiationError(
                "second derivatives of a loss over data are not available here: use sg.fused_hvp"
            )
        both = jnp.concatenate([x, direction], -1)
        return (pulled + rows(loss.curvature.pushed, both),)

    pair.defvjp(pair_forward, pair_backward, symbolic_zeros=True)
    return SimpleNamespace(rows=rows, pair=pair)


def as_jax(function: Loss | RowFunction, tree: Tree, result: Result) -> Callable[[Any], Any]:
    """A function of arrays nested as the tree that gives its result, or the loss, as JAX's."""
    jnp = jax().numpy

    def read(value: Any, name: str) -> Any:
        try:
            array = jnp.asarray(value)
        except (TypeError, ValueError) as error:
            raise InputTypeError(f"{name} is not an array of real numbers: {error}") from error
        if jnp.issubdtype(array.dtype, jnp.complexfloating):
            raise InputTypeError(f"{name} holds {array.dtype}: take x.real and x.imag apart")
        return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(float)

    def call(x: Any) -> Any:
        row = rows_of(tree, x, "x", read=read, xp=jnp)
        if isinstance(function, RowFunction):
            return result.of(functions().rows(function, row), row.shape[:-1])
        return functions().pair(function, row)[0]

    return call
