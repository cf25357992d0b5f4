"""Casts between real numbers and integers of 32 bits, and the bits of random numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from symgrad.expr.graph.node import Op
from symgrad.expr.references import reference

# Rows are set by hand: what belongs together stands on one line.
# fmt: off

uint32 = Op(
    name="uint32", signature="f->u", reference=reference.uint32, cost=8,
    meaning="the unsigned integer that is x rounded towards 0, or the nearest one; 0 of NaN",
    exact=lambda x: min(max(int(x), 0), 2**32 - 1), points=((29.7,), (-3.5,), (3e9,)),
)
int32 = Op(
    name="int32", signature="f->u", reference=reference.int32, cost=6,
    meaning="the word of the signed integer that is x rounded towards 0, or the nearest; 0 of NaN",
    exact=lambda x: min(max(int(x), -(2**31)), 2**31 - 1) % 2**32,
    points=((29.7,), (-3.5,), (3e9,)),
)
uint32_float = Op(
    name="uint32_float", signature="u->f", reference=lambda w: np.asarray(w, np.float64), cost=5,
    meaning="the word as a real number, rounded once", points=((29,), (0xFFFFFF01,)),
)
int32_float = Op(
    name="int32_float", signature="u->f", cost=9,
    reference=lambda w: np.asarray(w, np.uint32).view(np.int32).astype(np.float64),
    meaning="the word as a signed number, rounded once", points=((29,), (0xFFFFFF01,)),
)


def _threefry(k: int) -> Any:
    return lambda *words: reference.threefry(*words)[k]


threefry_first = Op(
    name="threefry_first", signature="uuuu->u", reference=_threefry(0), cost=120,
    meaning="the first word of Threefry-2x32's block (c, d) under the key (a, b), 20 rounds",
    points=((0, 0, 0, 0), (0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3)),
)
threefry_second = Op(
    name="threefry_second", signature="uuuu->u", reference=_threefry(1), cost=120,
    meaning="the second word of Threefry-2x32's block (c, d) under the key (a, b), 20 rounds",
    points=((0, 0, 0, 0), (0x13198A2E, 0x03707344, 0x243F6A88, 0x85A308D3)),
)
