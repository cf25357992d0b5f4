"""Sizes from which arrays are computed in one way or another, and widths of groups."""

from __future__ import annotations

from typing import Final

CHUNK_COST: Final = 20_000.0
"""The cost in additions, of lanes, from which a chunk of a row is worth a thread's while."""

CHUNK_VECTORS: Final = 4
"""Vectors that such a chunk has, at least."""

MOST_PARTS: Final = 64
"""Parts that a reduction is done in, at most, on the host."""

GPU_PARTS: Final = 256
"""Parts that a reduction is done in, at most, on a GPU."""

FEW_PARTS: Final = 16
"""Parts that a reduction is done in along a counter that no lanes move along, at least."""

LONG: Final = 4096
"""Terms from which sums keep their rounding errors."""

PASS_ELEMENTS: Final = 4096
"""Elements from which a sum and other arrays are computed in one pass."""

PASS_PARTS: Final = 4096
"""Parts that a pass over all elements is done in, at most, on a GPU."""

FEW_ELEMENTS: Final = 16_384
"""Elements from which a GPU is busy with one invocation each."""

BUSY_ELEMENTS: Final = 2**18
"""Elements with which a GPU is as busy as it can be, with one invocation each."""

SHARED_TERMS: Final = 64
"""Terms from which a group shares a reduction."""

MANY_TERMS: Final = 1024
"""Terms from which a group shares a reduction where one invocation each leaves a GPU idle."""

SPLIT_TERMS: Final = 8_192
"""Terms from which a reduction is done in parts, where there are few elements."""

ACROSS_READS: Final = 2**18
"""Terms of all elements from which few elements whose terms are far apart are done in parts."""

BESIDE: Final = 8
"""Neighbours whose terms are far apart that a group has: so many numbers are read together."""

BESIDE_READS: Final = 2**21
"""Terms of all elements up to which groups have such neighbours, rather than do sums in parts."""

ROW_READS: Final = 2**14
"""Elements of all rows from which the host adds up their columns as it reduces them."""

MOST_ITERATIONS: Final = 50_000
"""Iterations that an invocation does in all its loops, at most: llvmpipe ends it after 65,535."""

SCAN_LENGTH: Final = 128
"""Elements of a line that an invocation scans, at least, where lines are in parts."""

HOST_PRODUCT: Final = 30_000, 4
"""Products of numbers, and rows, columns and terms, from which a BLAS is called."""

TILE_PRODUCT: Final = 2**18, 16
"""As `HOST_PRODUCT`, from which a GPU does it by tiles."""

SHORT_AXIS: Final = 4
"""Elements of a last axis that are computed together, at most, where they share work."""

FOUR: Final = 4
"""Numbers that are read, and written, together."""

FLOAT_BYTES: Final = 4
"""The bytes of numbers that are read in fours."""

FOURS: Final = 2**18
"""Elements from which each invocation has four of them."""

ROWS_TOGETHER: Final = 4
"""Rows that share reads and are a group's, at most."""

ROW_SUMS: Final = 8
"""Sums that a group has for such rows, at most."""

ROW_GROUPS: Final = 1024
"""Groups that such rows leave, at least: as many as keep a GPU busy."""

TERMS_TOGETHER: Final = 8
"""Terms of a sum that are computed together where they wait for memory, at most."""

FEW_TERMS: Final = 3
"""Terms from which they are."""

READS_TOGETHER: Final = 16
"""Numbers that are read for them, at most."""

WAITING_COST: Final = 12
"""The cost in additions of a term up to which it waits for memory."""

LEAST_ROWS_EACH: Final = 8
"""Rows that a group adds up columns of, at least."""

ROW_INVOCATIONS: Final = 2**16
"""Invocations of the groups that share rows whose columns they add up."""

EPILOGUE_COST: Final = 16
"""The cost in additions of what follows a product in its kernel, which is written out, at most."""

WRITTEN_OUT: Final = 256
"""Nodes of a short reduction whose terms are written out, at most."""

SHARED_COST: Final = 8
"""The cost in additions of work that is worth it."""

WRITTEN: Final = 3
"""Arrays that a kernel writes, at most, or has besides those that it reads."""

GROUP_WIDTH: Final = 128
"""Invocations of a group that shares a reduction."""

SCAN_WIDTH: Final = 64
"""Invocations of a group that scan lines."""

WARP: Final = 32
"""Invocations of a group that read memory together."""

ELEMENT_WIDTH: Final = 256
"""Invocations of a group in which each has an element."""
