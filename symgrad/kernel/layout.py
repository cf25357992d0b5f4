"""The buffers of a map kernel: what stands in which binding, and how a batch is cut into chunks."""

from __future__ import annotations

from dataclasses import dataclass

WORKGROUP = 64
"""Invocations per workgroup: the size at which staged stores reach the copy bandwidth."""

MAX_WORKGROUPS = 65_535
"""WebGPU's default limit of workgroups in one dimension of a dispatch."""


@dataclass(frozen=True)
class Layout:
    """The arrays of one map kernel over a batch of B points.

    Binding 0 is the uniform block (count, zero, infinity, nan), binding 1 the points (B, n_inputs),
    bindings 2, 3, .. one array (B, columns) for each entry of ``outputs``, and the last binding,
    present when ``scratch`` > 0, an array of ``scratch`` rows of ``stride(B)`` vec4<f32>, which
    carries values from one kernel of the submit to the next.

    Invariants: all arrays are C-contiguous; n_inputs >= 1; every count in ``outputs`` >= 1.
    """

    n_inputs: int
    outputs: tuple[int, ...]
    scratch: int = 0

    @staticmethod
    def stride(points: int) -> int:
        """Points rounded up to whole workgroups: the row length of the scratch array."""
        return -(-points // WORKGROUP) * WORKGROUP

    def chunk(self, max_binding: int, itemsize: int = 4) -> int:
        """The most points that one dispatch takes, a multiple of WORKGROUP (so offsets align)."""
        widest = max(
            self.n_inputs * itemsize, *(k * itemsize for k in self.outputs), 16 * self.scratch
        )
        fit = max_binding // widest // WORKGROUP * WORKGROUP
        return min(fit, MAX_WORKGROUPS * WORKGROUP)
