"""Adds up the partial sums of many workgroups on the GPU, so that few numbers come back."""

from __future__ import annotations

from typing import Final

FOLD_INVOCATIONS: Final = 256
"""Invocations that add up the partial sums of one result: a workgroup."""

FOLD: Final = f"""\
// adds up partial sums, the rounding errors kept: a workgroup a result, its sum and what that lacks
struct Params {{ count: u32, zero: u32, infinity: f32, nan: f32 }}

@group(0) @binding(0) var<uniform> params: Params;  // count: the partial sums of a result
@group(0) @binding(1) var<storage, read> partials: array<f32>;  // after other numbers
@group(0) @binding(2) var<storage, read_write> sums: array<vec2<f32>>;
var<workgroup> tile: array<vec2<f32>, {FOLD_INVOCATIONS}>;

// x as compilers must round it where it stands
fn opaque(x: f32) -> f32 {{ return bitcast<f32>(bitcast<u32>(x) + params.zero); }}

// the sum of a and b with its rounding error (Knuth's TwoSum)
fn added(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {{
  let sum = opaque(a.x + b.x);
  let part = opaque(sum - a.x);
  return vec2<f32>(sum, (a.y + b.y) + ((a.x - opaque(sum - part)) + (b.x - part)));
}}

@compute @workgroup_size({FOLD_INVOCATIONS})
fn main(@builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {{
  let first = arrayLength(&partials) - (groups.x - group.x) * params.count;
  var sum = vec2<f32>();
  for (var k = local; k < params.count; k += {FOLD_INVOCATIONS}u) {{
    sum = added(sum, vec2<f32>(partials[first + k], 0.0f));
  }}
  tile[local] = sum;
  for (var half = {FOLD_INVOCATIONS // 2}u; half > 0u; half /= 2u) {{
    workgroupBarrier();
    if (local < half) {{ tile[local] = added(tile[local], tile[local + half]); }}
  }}
  if (local == 0u) {{ sums[group.x] = tile[0]; }}
}}
"""
