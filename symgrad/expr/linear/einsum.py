"""np.einsum of expressions: pairs of operands are contracted in a good order."""

from __future__ import annotations

import functools
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from symgrad.errors import TraceError, counted
from symgrad.expr.graph.misuse import located
from symgrad.expr.graph.node import whole_among
from symgrad.expr.tracers.along import add_elements, multiply_elements, reduce
from symgrad.expr.tracers.array import array, map_elements, plain

Term = tuple[str, np.ndarray]
"""An operand with a letter for each of its axes."""


def einsum(*operands: Any, optimize: Any = True) -> Any:
    """np.einsum of any form; ``optimize=False`` multiplies all operands before it sums."""
    subscripts, given = _pairs_of(operands)
    whole = whole_among(given)
    arrays = [plain(a) if whole is None else whole.functions["whole"](a, *given) for a in given]
    contract = _contracted if whole is None else whole.functions["contract"]
    inputs, output = _letters_of(subscripts, [a.ndim for a in arrays])
    terms = list(zip(inputs, arrays, strict=True))
    lengths(terms, subscripts)
    if len(terms) > 2 and optimize is not False:
        text = f"{','.join(inputs)}->{output}"
        dummies = [np.broadcast_to(np.empty(()), a.shape) for a in arrays]
        order = np.einsum_path(text, *dummies, optimize="greedy")[0]
        for group in order[1:-1]:
            chosen = [terms[k] for k in group]
            terms = [t for k, t in enumerate(terms) if k not in group]
            needed = set(output).union(*[letters for letters, _ in terms])
            letters_left = "".join(sorted({c for letters, _ in chosen for c in letters} & needed))
            terms.append((letters_left, contract(chosen, letters_left)))
    return contract(terms, output)


def _pairs_of(operands: Sequence[Any]) -> tuple[str, list[Any]]:
    """The subscripts as text, also where they were given as lists of numbers behind the arrays."""
    if isinstance(operands[0], str):
        return operands[0].replace(" ", ""), list(operands[1:])
    pairs = list(operands)
    output = pairs.pop() if len(pairs) % 2 else None
    inputs = ",".join(_letters(numbers) for numbers in pairs[1::2])
    text = inputs if output is None else f"{inputs}->{_letters(output)}"
    return text, pairs[::2]


def _letters(numbers: Sequence[Any]) -> str:
    return "".join("..." if k is Ellipsis else string.ascii_letters[k] for k in numbers)


def _letters_of(subscripts: str, ndims: Sequence[int]) -> tuple[list[str], str]:
    """The letters of each operand's axes and of the result's; an ellipsis has letters too."""
    inputs, arrow, output = subscripts.partition("->")
    texts = inputs.split(",")
    if len(texts) != len(ndims):
        raise TraceError(
            located(
                f"np.einsum({subscripts!r}) takes {counted(len(texts), 'operand')}, "
                f"not {len(ndims)}"
            )
        )
    free = [c for c in string.ascii_letters if c not in subscripts]
    hidden = [n - len(t.replace("...", "")) for t, n in zip(texts, ndims, strict=True)]
    if any(h < 0 or (h > 0 and "..." not in t) for t, h in zip(texts, hidden, strict=True)):
        raise TraceError(located(f"np.einsum({subscripts!r}): an operand has other axes"))
    widest = "".join(free[: max(hidden)])
    if not arrow:
        once = sorted(c for c in set(inputs) - set(",.") if inputs.count(c) == 1)
        output = ("..." if "..." in inputs else "") + "".join(once)
    letters = [
        t.replace("...", widest[len(widest) - h :]) for t, h in zip(texts, hidden, strict=True)
    ]
    return letters, output.replace("...", widest)


def _diagonal(letters: str, a: np.ndarray) -> Term:
    """The operand with each letter once: of two axes of one letter the diagonal."""
    for c in sorted(set(letters)):
        while letters.count(c) > 1:
            first, second = letters.index(c), letters.rindex(c)
            a = np.diagonal(a, axis1=first, axis2=second)
            letters = letters[:first] + letters[first + 1 : second] + letters[second + 1 :] + c
    return letters, a


def lengths(terms: Sequence[tuple[str, Any]], subscripts: str = "") -> dict[str, int]:
    """The length along each letter; axes of length 1 are repeated.

    Raises:
        TraceError: if axes of one letter have others.
    """
    sizes: dict[str, int] = {}
    for letters, a in terms:
        for c, size in zip(letters, a.shape, strict=True):
            if 1 not in (size, sizes.get(c, 1)) and sizes[c] != size:
                axis = c if c in subscripts else "..."
                message = f"np.einsum({subscripts!r}): axis {axis} is {sizes[c]} and {size} long"
                raise TraceError(located(message))
            sizes[c] = size if sizes.get(c, 1) == 1 else sizes[c]
    return sizes


def _broadcast(terms: Sequence[Term]) -> list[Term]:
    """The operands with the same length along each letter, that of an axis of length 1 repeated."""
    sizes = lengths(terms)
    return [(letters, np.broadcast_to(a, [sizes[c] for c in letters])) for letters, a in terms]


def _contracted(terms: Sequence[Term], output: str) -> Any:
    """The product of operands, summed over all letters but those that are kept."""
    terms = _broadcast([_diagonal(*term) for term in terms])
    summed = [_summed(t, output, [other for other, _ in terms if other is not t[0]]) for t in terms]
    letters = output + "".join(sorted({c for own, _ in summed for c in own} - set(output)))
    product = functools.reduce(_product, [_aligned(t, letters) for t in summed])
    axes = tuple(range(len(output), len(letters)))
    return array(reduce(add_elements, product, axes) if axes else product)[()]


def _product(a: Any, b: Any) -> Any:
    return map_elements(multiply_elements, a, b)


def _summed(term: Term, output: str, others: Sequence[str]) -> Term:
    """The operand without the letters that it alone has: their sum comes before the product."""
    letters, a = term
    own = [k for k, c in enumerate(letters) if c not in output and not any(c in o for o in others)]
    if not own or not others:
        return term
    rest = "".join(c for k, c in enumerate(letters) if k not in own)
    return rest, plain(reduce(add_elements, a, tuple(own)))


def _aligned(term: Term, letters: str) -> np.ndarray:
    own, a = term
    moved = a.transpose([own.index(c) for c in letters if c in own])
    return moved[tuple(slice(None) if c in own else None for c in letters)]
