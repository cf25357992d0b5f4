// rosenbrock_2: loss and gradient
// in: x (B, 2); out: loss (B, 1), grad (B, 2); float32, C order, one invocation a point
// 12 operations and 20 bytes a point; math: accurate

struct Params { count: u32, zero: u32, infinity: f32, nan: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> loss: array<f32>;
@group(0) @binding(3) var<storage, read_write> grad: array<f32>;
var<workgroup> tile: array<f32, 512>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let first = group.x * 256u;
  let cell = first + local;
  let point = min(cell, params.count - 1u);
  let x0 = x[point * 2u];
  let t1 = 1.0f - x0;                                   // return sum((1 - a) ** 2 + 100 * (b - a**2) ** 2 for a, b in itertools...
  let x1 = x[point * 2u + 1u];
  let t2 = x1 - x0 * x0;
  let t3 = t1 * t1 + 100.0f * (t2 * t2);
  let t4 = 200.0f * t2;
  let t5 = x0 * (-400.0f * t2) - 2.0f * t1;
  if (cell < params.count) {
    loss[cell] = t3;
  }
  let rows = min(256u, params.count - first);
  tile[local * 2u] = t5;
  tile[local * 2u + 1u] = t4;
  workgroupBarrier();
  if (rows == 256u) {
    grad[first * 2u + local] = tile[local];
    grad[first * 2u + 256u + local] = tile[256u + local];
  } else {
    for (var k = local; k < rows * 2u; k += 256u) { grad[first * 2u + k] = tile[k]; }
  }
}
