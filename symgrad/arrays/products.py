"""NumPy's products of whole arrays, and lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from symgrad.arrays import rules
from symgrad.arrays.arguments import axes_of, refuse, whole
from symgrad.arrays.choices import where
from symgrad.arrays.reductions import largest, total
from symgrad.arrays.shapes import squeeze
from symgrad.arrays.tape import broadcast
from symgrad.arrays.whole import WholeArray
from symgrad.expr import ops
from symgrad.expr.linear.einsum import letters_of, pairs_of
from symgrad.expr.linear.matrices import powers


def contract(inputs: Sequence[str], output: str, *operands: Any) -> WholeArray:
    """A sum of products, by the letters of the operands' axes and of the result's.

    Of integers it is one, modulo 2**32, and of truths whether any product holds, as in NumPy.
    """
    arrays = [whole(a, operands) for a in operands]
    sizes: dict[str, int] = {}
    for letters, a in zip(inputs, arrays, strict=True):
        for c, n in zip(letters, a.shape, strict=True):
            if sizes.get(c, 1) not in (1, n) and n != 1:
                raise ValueError(f"axis {c} of a product is {sizes[c]} and {n} long")
            sizes[c] = n if sizes.get(c, 1) == 1 else sizes[c]
    shape = tuple(sizes[c] for c in output)
    kinds = {a.kind for a in arrays}
    kind = "f" if "f" in kinds else "i"
    attribute = tuple(inputs), output, kind
    product = arrays[0].then(rules.contracted, attribute, shape, *arrays[1:], kind=kind)
    return product if kinds != {"b"} else product.astype(bool)


def matmul(a: Any, b: Any, /, out: None = None) -> WholeArray:
    """``a @ b``."""
    refuse(out=out)
    a, b = whole(a, b), whole(b, a)
    if not a.ndim or not b.ndim:
        raise ValueError("matmul needs arrays: use * to multiply by a number")
    if a.shape[-1] != b.shape[max(0, b.ndim - 2)]:
        raise ValueError(f"matmul: shapes {a.shape} and {b.shape} do not match")
    lead = "abcdefghij"
    batch = broadcast([a.shape[:-2], b.shape[:-2]]) if a.ndim > 1 and b.ndim > 1 else ()
    first = (
        lead[len(batch) - max(0, a.ndim - 2) : len(batch)] if batch else lead[: max(0, a.ndim - 2)]
    )
    second = (
        lead[len(batch) - max(0, b.ndim - 2) : len(batch)] if batch else lead[: max(0, b.ndim - 2)]
    )
    rows, columns = "x" * (a.ndim > 1), "z" * (b.ndim > 1)
    output = (first if len(first) > len(second) else second) + rows + columns
    return contract([f"{first}{rows}y", f"{second}y{columns}"], output, a, b)


def einsum(*operands: Any, optimize: Any = True) -> WholeArray:
    """np.einsum: pairs of operands are contracted in a good order."""
    text, arrays = pairs_of(operands)
    arrays = [whole(a, operands) for a in arrays]
    inputs, output = letters_of(text, [a.ndim for a in arrays])
    inputs = list(inputs)
    if len(arrays) > 2 and optimize is not False:
        whole_text = f"{','.join(inputs)}->{output}"
        dummies = [np.broadcast_to(np.empty(()), a.shape) for a in arrays]
        order = np.einsum_path(whole_text, *dummies, optimize="greedy")[0]
        for group in order[1:-1]:
            chosen = sorted(group, reverse=True)
            taken = [(inputs.pop(k), arrays.pop(k)) for k in chosen]
            needed = set(output).union(*inputs)
            letters = "".join(sorted(set("".join(c for c, _ in taken)) & needed))
            arrays.append(contract([c for c, _ in taken], letters, *[a for _, a in taken]))
            inputs.append(letters)
    return contract(inputs, output, *arrays)


def length(x: WholeArray, axis: Any, keepdims: bool) -> WholeArray:
    """The root of the sum of squares, scaled by a power of two: none overflows or vanishes.

    Its derivative is 0 at 0, as that of `numpy.linalg.norm` is here.
    """
    axes = axes_of(x, axis)
    if not x.size:
        return total(abs(x), axes, keepdims=keepdims)
    size = largest(abs(x.mapped(ops.stop_gradient, (x,))), axes, keepdims=True)
    scaled = x * size.mapped(_up, (size,))
    squares = total(scaled * scaled, axes, keepdims=True)
    nothing = squares == 0.0
    root = where(nothing, 0.0, np.sqrt(where(nothing, 1.0, squares)))
    result = root * size.mapped(_down, (size,))
    return result if keepdims else squeeze(result, axes)


def _up(size: Any) -> Any:
    """The power of two by which a number of this size is near 1."""
    return powers(size)[0]


def _down(size: Any) -> Any:
    """The inverse of `_up`."""
    return powers(size)[1]
