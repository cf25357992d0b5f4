"""Random numbers in a kernel, `symgrad.random`: from keys, with JAX's names and JAX's bits.

A key gives the same numbers wherever it is used, so whoever wants others takes another key: by
`split`, or by `fold_in` of what numbers the use, as the counter of a loop or the number of a point.
The bits are those of Threefry-2x32 with 20 rounds, as JAX has them for the same key where its
``jax_threefry_partitionable`` is True, as it is unless set otherwise; they are the same on every
device. Numbers have 23 random bits, as JAX's of float32 have, whatever the kernel's dtype is.

Each point of a batch has a key of its own if what it is made of differs from point to point, as in
``sg.random.key(v[0])`` with a column of whole numbers (in float32 up to 2**24; fold in a second
column beyond). To derivatives a random number is a constant: ``mean + spread * normal(key)`` has
those by ``mean`` and ``spread``.

Example:
    >>> import symgrad as sg
    >>> draw = lambda v: sg.random.normal(sg.random.key(v[0]))
    >>> kernel = sg.fused_forward(1, draw, device="cpu")
    >>> kernel.run([1.0]) == kernel.run([1.0]), kernel.run([1.0]) == kernel.run([2.0])
    (True, False)
"""

from __future__ import annotations

from symgrad.expr.calls.draws import bernoulli, exponential, gumbel, normal, randint, uniform
from symgrad.expr.calls.keys import Key, bits, fold_in, key, split
from symgrad.expr.calls.random_choices import categorical, choice, permutation
from symgrad.expr.calls.rejection import gamma, poisson

__all__ = [
    "Key",
    "bernoulli",
    "bits",
    "categorical",
    "choice",
    "exponential",
    "fold_in",
    "gamma",
    "gumbel",
    "key",
    "normal",
    "permutation",
    "poisson",
    "randint",
    "split",
    "uniform",
]


def __dir__() -> list[str]:
    return sorted(__all__)
