// dense_cut: loss and gradient
// in: x (B, 4); out: loss (B, 1), grad (B, 4); float32, C order, one invocation a point
// 31 operations and 36 bytes a point; math: accurate
// kernel 1 of 3: one shader of this length compiles slowly, so the graph
// is cut where few values are alive; 7 values cross through scratch memory

struct Params { count: u32, zero: u32, infinity: f32, nan: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> loss: array<f32>;
@group(0) @binding(3) var<storage, read_write> grad: array<f32>;
@group(0) @binding(4) var<storage, read_write> scratch: array<vec4<f32>>;

// the length of a row of scratch: the points, rounded up to whole workgroups
fn stride() -> u32 { return (params.count + 63u) / 64u * 64u; }

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let first = group.x * 64u;
  let cell = first + local;
  let point = min(cell, params.count - 1u);  // past the end: the last point again
  let x0 = x[point * 4u + 0u];
  let t5 = x0 + x0 * x0;                                // z = functions.sin(z * x + z)
  let t6 = sin(t5);
  let x1 = x[point * 4u + 1u];
  let t8 = t6 + x1 * t6;
  let t9 = sin(t8);
  let x2 = x[point * 4u + 2u];
  let t11 = t9 + x2 * t9;
  let t12 = sin(t11);
  scratch[0u * stride() + cell] = vec4<f32>(t12, t11, t9, t8);
  scratch[1u * stride() + cell] = vec4<f32>(t6, t5, 0.0f, 0.0f);
}

// dense_cut: loss and gradient
// in: x (B, 4); out: loss (B, 1), grad (B, 4); float32, C order, one invocation a point
// 31 operations and 36 bytes a point; math: accurate
// kernel 2 of 3: one shader of this length compiles slowly, so the graph
// is cut where few values are alive; 7 values cross through scratch memory

struct Params { count: u32, zero: u32, infinity: f32, nan: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> loss: array<f32>;
@group(0) @binding(3) var<storage, read_write> grad: array<f32>;
@group(0) @binding(4) var<storage, read_write> scratch: array<vec4<f32>>;
var<workgroup> tile: array<f32, 128>;

// the length of a row of scratch: the points, rounded up to whole workgroups
fn stride() -> u32 { return (params.count + 63u) / 64u * 64u; }

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let first = group.x * 64u;
  let cell = first + local;
  let point = min(cell, params.count - 1u);  // past the end: the last point again
  let x3 = x[point * 4u + 3u];
  let s0 = scratch[0u * stride() + cell];
  let t12 = s0.x;
  let t11 = s0.y;
  let t9 = s0.z;
  let t8 = s0.w;
  let t14 = t12 + x3 * t12;                             // z = functions.sin(z * x + z)
  let t15 = sin(t14);
  let t16 = cos(t14);
  let t17 = t12 * t16;
  let t21 = (t16 + x3 * t16) * cos(t11);
  let t22 = t9 * t21;
  let x2 = x[point * 4u + 2u];
  let t26 = (t21 + x2 * t21) * cos(t8);
  scratch[2u * stride() + cell] = vec4<f32>(t26, 0.0f, 0.0f, 0.0f);
  if (cell < params.count) {
    loss[point] = t15;
  }
  tile[local * 2u + 0u] = t22;
  tile[local * 2u + 1u] = t17;
  workgroupBarrier();
  let rows = min(64u, params.count - first);
  if (local < rows * 2u) { grad[(first + local / 2u) * 4u + 2u + local % 2u] = tile[local]; }
  if (64u + local < rows * 2u) { grad[(first + (64u + local) / 2u) * 4u + 2u + (64u + local) % 2u] = tile[64u + local]; }
}

// dense_cut: loss and gradient
// in: x (B, 4); out: loss (B, 1), grad (B, 4); float32, C order, one invocation a point
// 31 operations and 36 bytes a point; math: accurate
// kernel 3 of 3: one shader of this length compiles slowly, so the graph
// is cut where few values are alive; 7 values cross through scratch memory

struct Params { count: u32, zero: u32, infinity: f32, nan: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> loss: array<f32>;
@group(0) @binding(3) var<storage, read_write> grad: array<f32>;
@group(0) @binding(4) var<storage, read_write> scratch: array<vec4<f32>>;
var<workgroup> tile: array<f32, 128>;

// the length of a row of scratch: the points, rounded up to whole workgroups
fn stride() -> u32 { return (params.count + 63u) / 64u * 64u; }

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let first = group.x * 64u;
  let cell = first + local;
  let point = min(cell, params.count - 1u);  // past the end: the last point again
  let s1 = scratch[1u * stride() + cell];
  let t6 = s1.x;
  let t5 = s1.y;
  let s2 = scratch[2u * stride() + cell];
  let t26 = s2.x;
  let t27 = t6 * t26;                                   // z = functions.sin(z * x + z)
  let x1 = x[point * 4u + 1u];
  let t31 = (t26 + x1 * t26) * cos(t5);
  let x0 = x[point * 4u + 0u];
  let t32 = x0 * t31;
  let t34 = t32 + (t31 + t32);
  tile[local * 2u + 0u] = t34;
  tile[local * 2u + 1u] = t27;
  workgroupBarrier();
  let rows = min(64u, params.count - first);
  if (local < rows * 2u) { grad[(first + local / 2u) * 4u + 0u + local % 2u] = tile[local]; }
  if (64u + local < rows * 2u) { grad[(first + (64u + local) / 2u) * 4u + 0u + (64u + local) % 2u] = tile[64u + local]; }
}
