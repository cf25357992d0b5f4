"""The kernel that moves most bytes in a second: a copy, of four numbers at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from symgrad.kernel.layout import MAX_WORKGROUPS
from symgrad.wgsl.device.gpus import Gpu
from symgrad.wgsl.memory.encoding import Step

COPIERS: Final = 256
"""Invocations of a workgroup."""

QUAD_BYTES: Final = 16
"""Bytes that an invocation copies at a time."""

COPY: Final = f"""// in: source; out: copied, as long
struct Params {{ count: u32, zero: u32, infinity: f32, nan: f32 }}

@group(0) @binding(0) var<uniform> params: Params;  // count: of vectors
@group(0) @binding(1) var<storage, read> source: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> copied: array<vec4<f32>>;

@compute @workgroup_size({COPIERS})
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {{
  for (var i = id.x; i < params.count; i += groups.x * {COPIERS}u) {{ copied[i] = source[i]; }}
}}
"""


def copying(gpu: Gpu, nbytes: int) -> tuple[Callable[[int], None], int]:
    """Has a GPU copy so many bytes, or as many as it binds, over and over; and says how many."""
    nbytes = min(nbytes, gpu.max_binding, gpu.max_buffer) // QUAD_BYTES * QUAD_BYTES
    arrays = [gpu.storage(nbytes) for _ in "st"]
    count = nbytes // QUAD_BYTES
    with gpu.guard:
        bound = gpu.bind(count, [(array.buffer, 0, nbytes) for array in arrays])
        step = Step(gpu.pipeline(COPY, 1), bound, min(-(-count // COPIERS), MAX_WORKGROUPS))

    def run(iterations: int) -> None:
        with gpu.guard:
            gpu.submit([step] * iterations)
            gpu.wait()

    return run, nbytes
