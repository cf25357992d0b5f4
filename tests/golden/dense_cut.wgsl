// dense_cut: loss and gradient
// in: x (B, 4); out: loss (B, 1), grad (B, 4); float32, C order, one invocation a point
// 31 operations and 36 bytes a point; math: accurate
// kernel 1 of 3: one shader of this length compiles slowly, so the graph
// is cut where few values are alive; 7 values cross through scratch memory

struct Params { count: u32, zero: u32, infinity: f32, nan: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> loss: array<f32>;
@group(0) @binding(3) var<storage, read_write> grad: array<f32>;
@group(0) @binding(4) var<storage, read_write> scratch: array<vec4<f32>>;

// sin(a), cos(a), -sin(a) or -cos(a): a polynomial, chosen by the last bits of q.
fn sg_sine(a: f32, q: f32) -> f32 {
  let t2 = bitcast<u32>(q);
  let t7 = a * a;
  let t22 = t7 * (t7 * (t7 * (2.4433128e-05f * t7 - 0.0013887316f) + 0.041666646f) - 0.5f) + 1.0f;
  let t39 = select(a + a * t7 * (t7 * (0.00833216f - 0.00019515256f * t7) - 0.16666655f), a, abs(a) < 1e-04f);
  return bitcast<f32>(bitcast<u32>(select(t39, t22, 0u < (t2 & 1u))) ^ ((t2 & 2u) << 30u));
}

// 12582912 + k, k modulo 4 the quarter turns nearest to x, for 3,000 < |x| < inf.
fn sg_far_quarters(x: f32) -> f32 {
  let t1 = bitcast<u32>(x);
  let t3 = t1 & 0x7fffffffu;
  let t7 = (t3 & 0x7fffffu) | 0x800000u;
  let t11 = (t3 >> 23u) - 120u;
  let t15 = 0u < (t11 & 32u);
  let t21 = select(0x4e441529u, 0xfc2757d1u, t15);
  let t23 = select(0xfc2757d1u, 0xf534ddc0u, t15);
  let t31 = 0u < (t11 & 64u);
  let t38 = 0u < (t11 & 128u);
  let t40 = select(select(select(0xa2f9836eu, 0x4e441529u, t15), t23, t31), 0xdb629599u, t38);
  let t41 = select(select(t21, select(0xf534ddc0u, 0xdb629599u, t15), t31), 0x3c439041u, t38);
  let t44 = t11 & 31u;
  let t45 = 31u - t44;
  let t54 = (t40 << t44) | ((t41 >> 1u) >> t45);
  let t58 = (t41 << t44) | ((select(select(t23, select(0xdb629599u, 0x3c439041u, t15), t31), 0xfe5163abu, t38) >> 1u) >> t45);
  let t60 = t7 >> 16u;
  let t62 = t7 & 0xffffu;
  let t63 = t58 >> 16u;
  let t64 = t58 & 0xffffu;
  let t68 = t60 * t64 + ((t62 * t64) >> 16u);
  let t76 = t60 * t63 + ((t68 >> 16u) + ((t62 * t63 + (0xffffu & t68)) >> 16u));
  let t81 = t7 * ((select(select(select(0u, 0xa2f9836eu, t15), t21, t31), 0xf534ddc0u, t38) << t44) | ((t40 >> 1u) >> t45));
  let t82 = t54 >> 16u;
  let t83 = t54 & 0xffffu;
  let t87 = t60 * t83 + ((t62 * t83) >> 16u);
  let t95 = t60 * t82 + ((t87 >> 16u) + ((t62 * t82 + (0xffffu & t87)) >> 16u));
  let t101 = (t81 + (select(0u, 1u, (t76 + t7 * t54) < t76) + t95) + 0x20000000u) >> 30u;
  return bitcast<f32>(select(t101, 0u - t101, 0x7fffffffu < t1) + 0x4b400000u);
}

// x less the nearest multiple of pi/2, for 3,000 < |x| < inf; NaN beyond.
fn sg_far_angle(x: f32) -> f32 {
  let t1 = bitcast<u32>(x);
  let t3 = t1 & 0x7fffffffu;
  let t7 = (t3 & 0x7fffffu) | 0x800000u;
  let t11 = (t3 >> 23u) - 120u;
  let t15 = 0u < (t11 & 32u);
  let t21 = select(0x4e441529u, 0xfc2757d1u, t15);
  let t23 = select(0xfc2757d1u, 0xf534ddc0u, t15);
  let t31 = 0u < (t11 & 64u);
  let t38 = 0u < (t11 & 128u);
  let t40 = select(select(select(0xa2f9836eu, 0x4e441529u, t15), t23, t31), 0xdb629599u, t38);
  let t41 = select(select(t21, select(0xf534ddc0u, 0xdb629599u, t15), t31), 0x3c439041u, t38);
  let t44 = t11 & 31u;
  let t45 = 31u - t44;
  let t54 = (t40 << t44) | ((t41 >> 1u) >> t45);
  let t58 = (t41 << t44) | ((select(select(t23, select(0xdb629599u, 0x3c439041u, t15), t31), 0xfe5163abu, t38) >> 1u) >> t45);
  let t60 = t7 >> 16u;
  let t62 = t7 & 0xffffu;
  let t63 = t58 >> 16u;
  let t64 = t58 & 0xffffu;
  let t68 = t60 * t64 + ((t62 * t64) >> 16u);
  let t76 = t60 * t63 + ((t68 >> 16u) + ((t62 * t63 + (0xffffu & t68)) >> 16u));
  let t78 = t76 + t7 * t54;
  let t82 = t54 >> 16u;
  let t83 = t54 & 0xffffu;
  let t87 = t60 * t83 + ((t62 * t83) >> 16u);
  let t96 = select(0u, 1u, t78 < t76) + (t60 * t82 + ((t87 >> 16u) + ((t62 * t82 + (0xffffu & t87)) >> 16u)));
  let t99 = (t7 * ((select(select(select(0u, 0xa2f9836eu, t15), t21, t31), 0xf534ddc0u, t38) << t44) | ((t40 >> 1u) >> t45)) + t96) << 2u;
  let t102 = t99 | (t78 >> 30u);
  let t105 = 0u - (t102 >> 31u);
  let t106 = t102 ^ t105;
  let t107 = (t78 << 2u) ^ t105;
  let t117 = 1.5258789e-05f * f32(t106 >> 16u);
  let t129 = 1.5707964f * (2.3283064e-10f * f32(0xffffu & t106) + (3.5527137e-15f * f32(t107 >> 16u) + 5.421011e-20f * f32(0xffffu & t107)));
  let t141 = bitcast<f32>(((t1 ^ t102) & 0x80000000u) ^ bitcast<u32>(bitcast<f32>(bitcast<u32>(1.5703125f * t117) + params.zero) + bitcast<f32>(bitcast<u32>(0.0004838268f * t117 + t129) + params.zero)));
  return select(params.nan, t141, (bitcast<u32>(x) & 0x7fffffffu) < 0x7f800000u);
}

// The sine of |x| > 3,000 less k quarter turns, and of these.
fn sg_far_sin(x: f32) -> f32 {
  return sg_sine(sg_far_angle(x), sg_far_quarters(x));
}

// The sine of x less k quarter turns, and of these.
fn sg_sin(x: f32) -> f32 {
  if (3000.0f < abs(x)) { return sg_far_sin(x); }
  let t4 = 0.63661975f * x + 1.2582912e+07f;
  let t11 = bitcast<f32>(bitcast<u32>(bitcast<f32>(bitcast<u32>(t4) + params.zero) - 1.2582912e+07f) + params.zero);
  let t26 = bitcast<f32>(bitcast<u32>(bitcast<f32>(bitcast<u32>(bitcast<f32>(bitcast<u32>(x - 1.5705566f * t11) + params.zero) - 0.00023967028f * t11) + params.zero) - 1.5890691e-08f * t11) + params.zero) - 2.563344e-12f * t11;
  return sg_sine(t26, t4);
}

// the length of a row of scratch: the points, rounded up to whole workgroups
fn stride() -> u32 { return (params.count + 63u) / 64u * 64u; }

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let cell = group.x * 64u + local;
  let point = min(cell, params.count - 1u);
  let x_quad = x[point];
  let x0 = x_quad.x;
  let t1 = x0 + x0 * x0;                                // z = functions.sin(z * x + z)
  let t2 = sg_sin(t1);
  let x1 = x_quad.y;
  let t3 = t2 + x1 * t2;
  let t4 = sg_sin(t3);
  let x2 = x_quad.z;
  let t5 = t4 + x2 * t4;
  let t6 = sg_sin(t5);
  scratch[0u * stride() + cell] = vec4<f32>(t6, t5, t4, t3);
  scratch[1u * stride() + cell] = vec4<f32>(t2, t1, 0.0f, 0.0f);
}

// dense_cut: loss and gradient
// in: x (B, 4); out: loss (B, 1), grad (B, 4); float32, C order, one invocation a point
// 31 operations and 36 bytes a point; math: accurate
// kernel 2 of 3: one shader of this length compiles slowly, so the graph
// is cut where few values are alive; 7 values cross through scratch memory

struct Params { count: u32, zero: u32, infinity: f32, nan: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> loss: array<f32>;
@group(0) @binding(3) var<storage, read_write> grad: array<f32>;
@group(0) @binding(4) var<storage, read_write> scratch: array<vec4<f32>>;
var<workgroup> tile: array<f32, 128>;

// 12582912 + k, k modulo 4 the quarter turns nearest to x, for 3,000 < |x| < inf.
fn sg_far_quarters(x: f32) -> f32 {
  let t1 = bitcast<u32>(x);
  let t3 = t1 & 0x7fffffffu;
  let t7 = (t3 & 0x7fffffu) | 0x800000u;
  let t11 = (t3 >> 23u) - 120u;
  let t15 = 0u < (t11 & 32u);
  let t21 = select(0x4e441529u, 0xfc2757d1u, t15);
  let t23 = select(0xfc2757d1u, 0xf534ddc0u, t15);
  let t31 = 0u < (t11 & 64u);
  let t38 = 0u < (t11 & 128u);
  let t40 = select(select(select(0xa2f9836eu, 0x4e441529u, t15), t23, t31), 0xdb629599u, t38);
  let t41 = select(select(t21, select(0xf534ddc0u, 0xdb629599u, t15), t31), 0x3c439041u, t38);
  let t44 = t11 & 31u;
  let t45 = 31u - t44;
  let t54 = (t40 << t44) | ((t41 >> 1u) >> t45);
  let t58 = (t41 << t44) | ((select(select(t23, select(0xdb629599u, 0x3c439041u, t15), t31), 0xfe5163abu, t38) >> 1u) >> t45);
  let t60 = t7 >> 16u;
  let t62 = t7 & 0xffffu;
  let t63 = t58 >> 16u;
  let t64 = t58 & 0xffffu;
  let t68 = t60 * t64 + ((t62 * t64) >> 16u);
  let t76 = t60 * t63 + ((t68 >> 16u) + ((t62 * t63 + (0xffffu & t68)) >> 16u));
  let t81 = t7 * ((select(select(select(0u, 0xa2f9836eu, t15), t21, t31), 0xf534ddc0u, t38) << t44) | ((t40 >> 1u) >> t45));
  let t82 = t54 >> 16u;
  let t83 = t54 & 0xffffu;
  let t87 = t60 * t83 + ((t62 * t83) >> 16u);
  let t95 = t60 * t82 + ((t87 >> 16u) + ((t62 * t82 + (0xffffu & t87)) >> 16u));
  let t101 = (t81 + (select(0u, 1u, (t76 + t7 * t54) < t76) + t95) + 0x20000000u) >> 30u;
  return bitcast<f32>(select(t101, 0u - t101, 0x7fffffffu < t1) + 0x4b400000u);
}

// x less the nearest multiple of pi/2, for 3,000 < |x| < inf; NaN beyond.
fn sg_far_angle(x: f32) -> f32 {
  let t1 = bitcast<u32>(x);
  let t3 = t1 & 0x7fffffffu;
  let t7 = (t3 & 0x7fffffu) | 0x800000u;
  let t11 = (t3 >> 23u) - 120u;
  let t15 = 0u < (t11 & 32u);
  let t21 = select(0x4e441529u, 0xfc2757d1u, t15);
  let t23 = select(0xfc2757d1u, 0xf534ddc0u, t15);
  let t31 = 0u < (t11 & 64u);
  let t38 = 0u < (t11 & 128u);
  let t40 = select(select(select(0xa2f9836eu, 0x4e441529u, t15), t23, t31), 0xdb629599u, t38);
  let t41 = select(select(t21, select(0xf534ddc0u, 0xdb629599u, t15), t31), 0x3c439041u, t38);
  let t44 = t11 & 31u;
  let t45 = 31u - t44;
  let t54 = (t40 << t44) | ((t41 >> 1u) >> t45);
  let t58 = (t41 << t44) | ((select(select(t23, select(0xdb629599u, 0x3c439041u, t15), t31), 0xfe5163abu, t38) >> 1u) >> t45);
  let t60 = t7 >> 16u;
  let t62 = t7 & 0xffffu;
  let t63 = t58 >> 16u;
  let t64 = t58 & 0xffffu;
  let t68 = t60 * t64 + ((t62 * t64) >> 16u);
  let t76 = t60 * t63 + ((t68 >> 16u) + ((t62 * t63 + (0xffffu & t68)) >> 16u));
  let t78 = t76 + t7 * t54;
  let t82 = t54 >> 16u;
  let t83 = t54 & 0xffffu;
  let t87 = t60 * t83 + ((t62 * t83) >> 16u);
  let t96 = select(0u, 1u, t78 < t76) + (t60 * t82 + ((t87 >> 16u) + ((t62 * t82 + (0xffffu & t87)) >> 16u)));
  let t99 = (t7 * ((select(select(select(0u, 0xa2f9836eu, t15), t21, t31), 0xf534ddc0u, t38) << t44) | ((t40 >> 1u) >> t45)) + t96) << 2u;
  let t102 = t99 | (t78 >> 30u);
  let t105 = 0u - (t102 >> 31u);
  let t106 = t102 ^ t105;
  let t107 = (t78 << 2u) ^ t105;
  let t117 = 1.5258789e-05f * f32(t106 >> 16u);
  let t129 = 1.5707964f * (2.3283064e-10f * f32(0xffffu & t106) + (3.5527137e-15f * f32(t107 >> 16u) + 5.421011e-20f * f32(0xffffu & t107)));
  let t141 = bitcast<f32>(((t1 ^ t102) & 0x80000000u) ^ bitcast<u32>(bitcast<f32>(bitcast<u32>(1.5703125f * t117) + params.zero) + bitcast<f32>(bitcast<u32>(0.0004838268f * t117 + t129) + params.zero)));
  return select(params.nan, t141, (bitcast<u32>(x) & 0x7fffffffu) < 0x7f800000u);
}

// cos(a), -sin(a), -cos(a) or sin(a): a polynomial, chosen by the last bits of q.
fn sg_cosine(a: f32, q: f32) -> f32 {
  let t2 = bitcast<u32>(q);
  let t7 = a * a;
  let t24 = select(a + a * t7 * (t7 * (0.00833216f - 0.00019515256f * t7) - 0.16666655f), a, abs(a) < 1e-04f);
  let t39 = t7 * (t7 * (t7 * (2.4433128e-05f * t7 - 0.0013887316f) + 0.041666646f) - 0.5f) + 1.0f;
  return bitcast<f32>(bitcast<u32>(select(t39, t24, 0u < (t2 & 1u))) ^ (((t2 + 1u) & 2u) << 30u));
}

// The cosine of |x| > 3,000 less k quarter turns, and of these.
fn sg_far_cos(x: f32) -> f32 {
  return sg_cosine(sg_far_angle(x), sg_far_quarters(x));
}

// The cosine of x less k quarter turns, and of these.
fn sg_cos(x: f32) -> f32 {
  if (3000.0f < abs(x)) { return sg_far_cos(x); }
  let t4 = 0.63661975f * x + 1.2582912e+07f;
  let t11 = bitcast<f32>(bitcast<u32>(bitcast<f32>(bitcast<u32>(t4) + params.zero) - 1.2582912e+07f) + params.zero);
  let t26 = bitcast<f32>(bitcast<u32>(bitcast<f32>(bitcast<u32>(bitcast<f32>(bitcast<u32>(x - 1.5705566f * t11) + params.zero) - 0.00023967028f * t11) + params.zero) - 1.5890691e-08f * t11) + params.zero) - 2.563344e-12f * t11;
  return sg_cosine(t26, t4);
}

// sin(a), cos(a), -sin(a) or -cos(a): a polynomial, chosen by the last bits of q.
fn sg_sine(a: f32, q: f32) -> f32 {
  let t2 = bitcast<u32>(q);
  let t7 = a * a;
  let t22 = t7 * (t7 * (t7 * (2.4433128e-05f * t7 - 0.0013887316f) + 0.041666646f) - 0.5f) + 1.0f;
  let t39 = select(a + a * t7 * (t7 * (0.00833216f - 0.00019515256f * t7) - 0.16666655f), a, abs(a) < 1e-04f);
  return bitcast<f32>(bitcast<u32>(select(t39, t22, 0u < (t2 & 1u))) ^ ((t2 & 2u) << 30u));
}

// The sine of |x| > 3,000 less k quarter turns, and of these.
fn sg_far_sin(x: f32) -> f32 {
  return sg_sine(sg_far_angle(x), sg_far_quarters(x));
}

// The sine of x less k quarter turns, and of these.
fn sg_sin(x: f32) -> f32 {
  if (3000.0f < abs(x)) { return sg_far_sin(x); }
  let t4 = 0.63661975f * x + 1.2582912e+07f;
  let t11 = bitcast<f32>(bitcast<u32>(bitcast<f32>(bitcast<u32>(t4) + params.zero) - 1.2582912e+07f) + params.zero);
  let t26 = bitcast<f32>(bitcast<u32>(bitcast<f32>(bitcast<u32>(bitcast<f32>(bitcast<u32>(x - 1.5705566f * t11) + params.zero) - 0.00023967028f * t11) + params.zero) - 1.5890691e-08f * t11) + params.zero) - 2.563344e-12f * t11;
  return sg_sine(t26, t4);
}

// the length of a row of scratch: the points, rounded up to whole workgroups
fn stride() -> u32 { return (params.count + 63u) / 64u * 64u; }

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let first = group.x * 64u;
  let cell = first + local;
  let point = min(cell, params.count - 1u);
  let x_quad = x[point];
  let x3 = x_quad.w;
  let s0 = scratch[0u * stride() + cell];
  let t1 = s0.x;
  let t2 = s0.y;
  let t3 = s0.z;
  let t4 = s0.w;
  let t5 = t1 + x3 * t1;                                // z = functions.sin(z * x + z)
  let t6 = sg_sin(t5);
  let t7 = sg_cos(t5);
  let t8 = t1 * t7;
  let t9 = (t7 + x3 * t7) * sg_cos(t2);
  let t10 = t3 * t9;
  let x2 = x_quad.z;
  let t11 = (t9 + x2 * t9) * sg_cos(t4);
  scratch[2u * stride() + cell] = vec4<f32>(t11, 0.0f, 0.0f, 0.0f);
  if (cell < params.count) {
    loss[cell] = t6;
  }
  let rows = min(64u, params.count - first);
  tile[local * 2u] = t10;
  tile[local * 2u + 1u] = t8;
  workgroupBarrier();
  if (rows == 64u) {
    grad[first * 4u + 2u + local + local / 2u * 2u] = tile[local];
    grad[first * 4u + 2u + 64u + local + (64u + local) / 2u * 2u] = tile[64u + local];
  } else {
    for (var k = local; k < rows * 2u; k += 64u) { grad[first * 4u + 2u + k + k / 2u * 2u] = tile[k]; }
  }
}

// dense_cut: loss and gradient
// in: x (B, 4); out: loss (B, 1), grad (B, 4); float32, C order, one invocation a point
// 31 operations and 36 bytes a point; math: accurate
// kernel 3 of 3: one shader of this length compiles slowly, so the graph
// is cut where few values are alive; 7 values cross through scratch memory

struct Params { count: u32, zero: u32, infinity: f32, nan: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> loss: array<f32>;
@group(0) @binding(3) var<storage, read_write> grad: array<f32>;
@group(0) @binding(4) var<storage, read_write> scratch: array<vec4<f32>>;
var<workgroup> tile: array<f32, 128>;

// 12582912 + k, k modulo 4 the quarter turns nearest to x, for 3,000 < |x| < inf.
fn sg_far_quarters(x: f32) -> f32 {
  let t1 = bitcast<u32>(x);
  let t3 = t1 & 0x7fffffffu;
  let t7 = (t3 & 0x7fffffu) | 0x800000u;
  let t11 = (t3 >> 23u) - 120u;
  let t15 = 0u < (t11 & 32u);
  let t21 = select(0x4e441529u, 0xfc2757d1u, t15);
  let t23 = select(0xfc2757d1u, 0xf534ddc0u, t15);
  let t31 = 0u < (t11 & 64u);
  let t38 = 0u < (t11 & 128u);
  let t40 = select(select(select(0xa2f9836eu, 0x4e441529u, t15), t23, t31), 0xdb629599u, t38);
  let t41 = select(select(t21, select(0xf534ddc0u, 0xdb629599u, t15), t31), 0x3c439041u, t38);
  let t44 = t11 & 31u;
  let t45 = 31u - t44;
  let t54 = (t40 << t44) | ((t41 >> 1u) >> t45);
  let t58 = (t41 << t44) | ((select(select(t23, select(0xdb629599u, 0x3c439041u, t15), t31), 0xfe5163abu, t38) >> 1u) >> t45);
  let t60 = t7 >> 16u;
  let t62 = t7 & 0xffffu;
  let t63 = t58 >> 16u;
  let t64 = t58 & 0xffffu;
  let t68 = t60 * t64 + ((t62 * t64) >> 16u);
  let t76 = t60 * t63 + ((t68 >> 16u) + ((t62 * t63 + (0xffffu & t68)) >> 16u));
  let t81 = t7 * ((select(select(select(0u, 0xa2f9836eu, t15), t21, t31), 0xf534ddc0u, t38) << t44) | ((t40 >> 1u) >> t45));
  let t82 = t54 >> 16u;
  let t83 = t54 & 0xffffu;
  let t87 = t60 * t83 + ((t62 * t83) >> 16u);
  let t95 = t60 * t82 + ((t87 >> 16u) + ((t62 * t82 + (0xffffu & t87)) >> 16u));
  let t101 = (t81 + (select(0u, 1u, (t76 + t7 * t54) < t76) + t95) + 0x20000000u) >> 30u;
  return bitcast<f32>(select(t101, 0u - t101, 0x7fffffffu < t1) + 0x4b400000u);
}

// x less the nearest multiple of pi/2, for 3,000 < |x| < inf; NaN beyond.
fn sg_far_angle(x: f32) -> f32 {
  let t1 = bitcast<u32>(x);
  let t3 = t1 & 0x7fffffffu;
  let t7 = (t3 & 0x7fffffu) | 0x800000u;
  let t11 = (t3 >> 23u) - 120u;
  let t15 = 0u < (t11 & 32u);
  let t21 = select(0x4e441529u, 0xfc2757d1u, t15);
  let t23 = select(0xfc2757d1u, 0xf534ddc0u, t15);
  let t31 = 0u < (t11 & 64u);
  let t38 = 0u < (t11 & 128u);
  let t40 = select(select(select(0xa2f9836eu, 0x4e441529u, t15), t23, t31), 0xdb629599u, t38);
  let t41 = select(select(t21, select(0xf534ddc0u, 0xdb629599u, t15), t31), 0x3c439041u, t38);
  let t44 = t11 & 31u;
  let t45 = 31u - t44;
  let t54 = (t40 << t44) | ((t41 >> 1u) >> t45);
  let t58 = (t41 << t44) | ((select(select(t23, select(0xdb629599u, 0x3c439041u, t15), t31), 0xfe5163abu, t38) >> 1u) >> t45);
  let t60 = t7 >> 16u;
  let t62 = t7 & 0xffffu;
  let t63 = t58 >> 16u;
  let t64 = t58 & 0xffffu;
  let t68 = t60 * t64 + ((t62 * t64) >> 16u);
  let t76 = t60 * t63 + ((t68 >> 16u) + ((t62 * t63 + (0xffffu & t68)) >> 16u));
  let t78 = t76 + t7 * t54;
  let t82 = t54 >> 16u;
  let t83 = t54 & 0xffffu;
  let t87 = t60 * t83 + ((t62 * t83) >> 16u);
  let t96 = select(0u, 1u, t78 < t76) + (t60 * t82 + ((t87 >> 16u) + ((t62 * t82 + (0xffffu & t87)) >> 16u)));
  let t99 = (t7 * ((select(select(select(0u, 0xa2f9836eu, t15), t21, t31), 0xf534ddc0u, t38) << t44) | ((t40 >> 1u) >> t45)) + t96) << 2u;
  let t102 = t99 | (t78 >> 30u);
  let t105 = 0u - (t102 >> 31u);
  let t106 = t102 ^ t105;
  let t107 = (t78 << 2u) ^ t105;
  let t117 = 1.5258789e-05f * f32(t106 >> 16u);
  let t129 = 1.5707964f * (2.3283064e-10f * f32(0xffffu & t106) + (3.5527137e-15f * f32(t107 >> 16u) + 5.421011e-20f * f32(0xffffu & t107)));
  let t141 = bitcast<f32>(((t1 ^ t102) & 0x80000000u) ^ bitcast<u32>(bitcast<f32>(bitcast<u32>(1.5703125f * t117) + params.zero) + bitcast<f32>(bitcast<u32>(0.0004838268f * t117 + t129) + params.zero)));
  return select(params.nan, t141, (bitcast<u32>(x) & 0x7fffffffu) < 0x7f800000u);
}

// cos(a), -sin(a), -cos(a) or sin(a): a polynomial, chosen by the last bits of q.
fn sg_cosine(a: f32, q: f32) -> f32 {
  let t2 = bitcast<u32>(q);
  let t7 = a * a;
  let t24 = select(a + a * t7 * (t7 * (0.00833216f - 0.00019515256f * t7) - 0.16666655f), a, abs(a) < 1e-04f);
  let t39 = t7 * (t7 * (t7 * (2.4433128e-05f * t7 - 0.0013887316f) + 0.041666646f) - 0.5f) + 1.0f;
  return bitcast<f32>(bitcast<u32>(select(t39, t24, 0u < (t2 & 1u))) ^ (((t2 + 1u) & 2u) << 30u));
}

// The cosine of |x| > 3,000 less k quarter turns, and of these.
fn sg_far_cos(x: f32) -> f32 {
  return sg_cosine(sg_far_angle(x), sg_far_quarters(x));
}

// The cosine of x less k quarter turns, and of these.
fn sg_cos(x: f32) -> f32 {
  if (3000.0f < abs(x)) { return sg_far_cos(x); }
  let t4 = 0.63661975f * x + 1.2582912e+07f;
  let t11 = bitcast<f32>(bitcast<u32>(bitcast<f32>(bitcast<u32>(t4) + params.zero) - 1.2582912e+07f) + params.zero);
  let t26 = bitcast<f32>(bitcast<u32>(bitcast<f32>(bitcast<u32>(bitcast<f32>(bitcast<u32>(x - 1.5705566f * t11) + params.zero) - 0.00023967028f * t11) + params.zero) - 1.5890691e-08f * t11) + params.zero) - 2.563344e-12f * t11;
  return sg_cosine(t26, t4);
}

// the length of a row of scratch: the points, rounded up to whole workgroups
fn stride() -> u32 { return (params.count + 63u) / 64u * 64u; }

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let first = group.x * 64u;
  let cell = first + local;
  let point = min(cell, params.count - 1u);
  let s1 = scratch[1u * stride() + cell];
  let t1 = s1.x;
  let t2 = s1.y;
  let s2 = scratch[2u * stride() + cell];
  let t3 = s2.x;
  let t4 = t1 * t3;                                     // z = functions.sin(z * x + z)
  let x_quad = x[point];
  let x1 = x_quad.y;
  let t5 = (t3 + x1 * t3) * sg_cos(t2);
  let x0 = x_quad.x;
  let t6 = t5 + x0 * (2.0f * t5);
  let rows = min(64u, params.count - first);
  tile[local * 2u] = t6;
  tile[local * 2u + 1u] = t4;
  workgroupBarrier();
  if (rows == 64u) {
    grad[first * 4u + local + local / 2u * 2u] = tile[local];
    grad[first * 4u + 64u + local + (64u + local) / 2u * 2u] = tile[64u + local];
  } else {
    for (var k = local; k < rows * 2u; k += 64u) { grad[first * 4u + k + k / 2u * 2u] = tile[k]; }
  }
}
