"""Functions of JAX as functions that symgrad traces: their jaxprs, operation by operation."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from symgrad.bridges.jax import jax
from symgrad.bridges.primitives import Evaluation


def from_jax(f: Callable[..., Any], *, max_steps: int | None = None) -> Callable[..., Any]:
    """A function written for JAX as one that symgrad's verbs take.

    It may use what is elementwise, sums and products of arrays, indexing, ``jax.lax.scan``,
    ``fori_loop``, ``while_loop`` and ``cond``, and ``jit``: loops stay loops. When it is traced,
    JAX writes down what f does with float arrays of the same shapes, and symgrad does the same with
    its expressions. Derivatives are symgrad's, of these operations: rules of ``jax.custom_jvp`` are
    left aside, and functions with ``jax.custom_vjp`` refused.

    Args:
        f: A function of arrays, or of nests of them, without side effects.
        max_steps: The most iterations of each ``while_loop``, which derivatives in reverse mode
            need.

    Raises:
        UnsupportedError: when traced, for an operation that symgrad lacks, which is named.
        SymgradError: where JAX is missing.

    Example:
        >>> import symgrad as sg
        >>> import jax.numpy as jnp
        >>> f = sg.from_jax(lambda v: jnp.sum(jnp.sin(v) ** 2))
        >>> kernel = sg.fused_forward_backward(2, f, device="cpu")
    """
    j = jax()

    @functools.wraps(f)
    def traced(*args: Any) -> Any:
        leaves, tree = j.tree.flatten(args)
        shapes = [j.ShapeDtypeStruct(np.shape(leaf), j.numpy.zeros(()).dtype) for leaf in leaves]
        closed, shape = j.make_jaxpr(f, return_shape=True)(*j.tree.unflatten(tree, shapes))
        results = Evaluation(max_steps).closed(closed, leaves)
        return j.tree.unflatten(j.tree.structure(shape), results)

    return traced
