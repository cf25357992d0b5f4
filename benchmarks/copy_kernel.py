"""A copy written by hand, the limit of what kernels can do with memory: 16 bytes an invocation."""

from __future__ import annotations

COPY = """
@group(0) @binding(1) var<storage, read> source: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> copied: array<vec4<f32>>;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
  for (var i = id.x; i < arrayLength(&source); i += groups.x * 256u) { copied[i] = source[i]; }
}
"""

BINDINGS = 1, 2
"""Of the source and of the copy; symgrad's own kernels have their uniform block at 0."""


def copy_workgroups(nbytes: int) -> int:
    """How many copy so many bytes, as far as a dispatch has room for them."""
    return min(-(-nbytes // 4096), 65_535)
