// kinks: loss and gradient
// in: x (B, 2); out: loss (B, 1), grad (B, 2); float32, C order, one invocation a point
// 35 operations and 20 bytes a point; math: accurate

struct Params { count: u32, zero: u32, infinity: f32, nan: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> loss: array<f32>;
@group(0) @binding(3) var<storage, read_write> grad: array<f32>;
var<workgroup> tile: array<f32, 512>;

// 4**k times a polynomial for the exponential of r = x - 2k ln 2, subtracted in two steps.
fn sg_exp(x: f32) -> f32 {
  let t9 = 252.0f * saturate(0.0028624902f * x + 0.49910715f) + 1.2582786e+07f;
  let t15 = bitcast<f32>((bitcast<u32>(t9) << 23u) + 0x3f800000u);
  let t19 = bitcast<f32>(bitcast<u32>(bitcast<f32>(bitcast<u32>(t9) + params.zero) - 1.2582912e+07f) + params.zero);
  let t26 = bitcast<f32>(bitcast<u32>(x - 1.3862915f * t19) + params.zero) - 2.8572135e-06f * t19;
  let t39 = t26 * (t26 * (t26 * (0.00026575543f * t26 + 0.0013478664f) + 0.0083246995f) + 0.04167755f) + 0.1666666f;
  let t49 = bitcast<f32>(bitcast<u32>(t15 * (1.0f + t26 * (t26 * (t26 * t39 + 0.49999934f) + 1.0f))) + params.zero);
  return select(t15 * t49, 0.0f, x < (-104.0f));
}

// The larger of a and b; NaN if either is.
fn sg_maximum(a: f32, b: f32) -> f32 {
  return select(select(select(b, a, b < a), b, (bitcast<u32>(b) & 0x7fffffffu) > 0x7f800000u), a, (bitcast<u32>(a) & 0x7fffffffu) > 0x7f800000u);
}

// 1 - 2e/(1 + e) with the sign of x, e = exp(-2|x|); for |x| < 0.625 a polynomial.
fn sg_tanh(x: f32) -> f32 {
  let t1 = abs(x);
  let t6 = sg_exp(-abs(2.0f * x));
  let t12 = t1 * t1;
  let t30 = t12 * (t12 * (t12 * (0.020639088f - 0.0057049873f * t12) - 0.053739715f) + 0.13331442f) - 0.3333328f;
  let t37 = bitcast<f32>((bitcast<u32>(select(1.0f - 2.0f * (t6 * (1.0f / (t6 + 1.0f))), t1 + t1 * t12 * t30, t1 < 0.625f)) & 0x7fffffffu) | (bitcast<u32>(x) & 0x80000000u));
  return select(t37, x, (t1 < 1e-04f) | ((bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u));
}

// a/b, both divided by 4 where 1/b, by which devices multiply, is subnormal and flushed.
fn sg_wide_div(a: f32, b: f32) -> f32 {
  let t7 = select(1.0f, 0.25f, 8.507059e+37f < abs(b));
  return a * t7 / (b * t7);
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let first = group.x * 256u;
  let cell = first + local;
  let point = min(cell, params.count - 1u);
  let x1 = x[point * 2u + 1u];
  let x0 = x[point * 2u];
  let t1 = x1 < x0;                                     // return functions.where(x > y, functions.maximum(x, 0.5) * functions.t...
  let t2 = sg_maximum(x0, 0.5f);
  let t3 = sg_tanh(x1);
  let t4 = sg_wide_div(x0, x1);
  let t5 = select(t4, t2 * t3, t1);
  let t6 = 1.0f / x1;
  let t7 = sg_exp(-abs(2.0f * x1));
  let t8 = 1.0f / (1.0f + t7);
  let t9 = x0 < 0.5f;
  let t10 = t1 & !t9;
  let t11 = select(-(t4 * t6), t2 * (4.0f * (t7 * (t8 * t8))), t1);
  let t12 = select(0.0f, select(t6, 0.0f, t1) + select(0.0f, t3 * select(select(params.nan, 0.5f, x0 == 0.5f), 1.0f, (0.5f < x0) | t9), t10), !t1 | t10);
  if (cell < params.count) {
    loss[cell] = t5;
  }
  let rows = min(256u, params.count - first);
  tile[local * 2u] = t12;
  tile[local * 2u + 1u] = t11;
  workgroupBarrier();
  if (rows == 256u) {
    grad[first * 2u + local] = tile[local];
    grad[first * 2u + 256u + local] = tile[256u + local];
  } else {
    for (var k = local; k < rows * 2u; k += 256u) { grad[first * 2u + k] = tile[k]; }
  }
}
