"""Products of matrices as work to be shared out: which tiles, and in how many parts of the sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from symgrad.kernel.skeletons.tiles import Tiles


@dataclass(frozen=True)
class Batch:
    """Which of an operand's ``count`` matrices the product number z has: ``z / each % count``."""

    each: int = 1
    count: int = 1


ONE: Final = Batch()
"""There is a single one."""


@dataclass(frozen=True)
class Problem:
    """``batch`` products of matrices (m, k) and (k, n)."""

    m: int
    n: int
    k: int
    batch: int = 1
    a: Batch = ONE
    b: Batch = ONE


CHOICES: Final = (
    (Tiles(), 1.0),
    (Tiles(32, 32, 32, 4, 4), 0.5),
    (Tiles(128, 16, 16, 4, 4), 0.3),
    (Tiles(16, 128, 16, 4, 4), 0.3),
)
"""Tiles, and about how much of a device's rate they reach, compared to the first."""

WIDE_CHOICES: Final = (
    (Tiles(64, 32, 16, 4, 4), 1.0),
    (Tiles(64, 64, 16, 4, 4), 0.95),
    (Tiles(16, 128, 16, 4, 4), 0.9),
    (Tiles(128, 16, 16, 4, 4), 0.8),
    (Tiles(32, 32, 32, 4, 4), 0.8),
)
"""Tiles of numbers of 8 bytes, of which registers hold half as many; rates are of an H200."""

AT_ONCE: Final = 264
"""Groups of 256 invocations that large devices run at once."""

FEWEST_STEPS: Final = 128
"""The shortest reduction that is worth a group of its own."""

MOST_SPLITS: Final = 64
"""Parts that a reduction is done in, at most."""


def chosen(m: int, n: int, k: int, batch: int, itemsize: int = 4) -> tuple[Tiles, int]:
    """The tiles for a product of such numbers, and in how many parts its reduction is done."""
    rates = dict(CHOICES if itemsize == 4 else WIDE_CHOICES)
    return min(
        ((tiles, splits) for tiles in rates for splits in _splits(tiles, m, n, k, batch)),
        key=lambda choice: _seconds(*choice, m, n, k, batch) / rates[choice[0]],
    )


def _splits(tiles: Tiles, m: int, n: int, k: int, batch: int) -> Sequence[int]:
    groups = groups_of(tiles, m, n) * batch
    most = min(k // FEWEST_STEPS, MOST_SPLITS, AT_ONCE * 256 // tiles.width // groups)
    return 1, *[2**p for p in range(1, 7) if 2**p <= most]


def groups_of(tiles: Tiles, m: int, n: int) -> int:
    """The tiles of a matrix."""
    return -(-m // tiles.rows) * -(-n // tiles.columns)


def _seconds(tiles: Tiles, splits: int, m: int, n: int, k: int, batch: int) -> float:
    """About how long a product takes, in no unit: rounds of groups, and the sums of the parts."""
    groups = groups_of(tiles, m, n) * batch * splits
    rounds = -(-groups // (AT_ONCE * 256 // tiles.width))
    each = tiles.rows * tiles.columns * (-(-k // splits) + 4 * tiles.depth)
    return rounds * each * 256 / tiles.width + (splits > 1) * batch * m * n * splits / 2
