// runge_kutta: loss and gradient
// in: x (B, 6); out: loss (B, 1), grad (B, 6); float32, C order, one invocation a point
// 52 bytes a point; math: accurate

struct Params { count: u32, zero: u32, infinity: f32, nan: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> x_in: array<f32>;
@group(0) @binding(2) var<storage, read_write> loss: array<f32>;
@group(0) @binding(3) var<storage, read_write> grad: array<f32>;
@group(0) @binding(4) var<storage, read_write> scratch: array<f32>;

const y_kept_0 = 0u;  // 150 numbers of scratch
const x_kept_1 = 150u;  // 150 numbers of scratch

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let cell = group.x * 64u + local;
  let stride = (params.count + 63u) / 64u * 64u;
  let point = min(cell, params.count - 1u);
  let b = x_in[point * 6u + 1u];
  let a = x_in[point * 6u];
  let d = x_in[point * 6u + 3u];
  let c = x_in[point * 6u + 2u];
  var x = x_in[point * 6u + 4u];                        // end = sg.fori_loop(0, 150, step, {"x": v[4], "y": v[5]})
  var y = x_in[point * 6u + 5u];
  for (var k = 0u; k < 150u; k += 1u) {
    let t1 = a * x - y * (b * x);                       // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t2 = x + 0.005f * t1;                           // return {n: s[n] + dt * k[n] for n in s}
    let t3 = y * (c * x) - d * y;                       // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t4 = y + 0.005f * t3;                           // return {n: s[n] + dt * k[n] for n in s}
    let t5 = a * t2 - b * t2 * t4;                      // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t6 = x + 0.005f * t5;                           // return {n: s[n] + dt * k[n] for n in s}
    let t7 = t4 * (c * t2) - d * t4;                    // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t8 = y + 0.005f * t7;                           // return {n: s[n] + dt * k[n] for n in s}
    let t9 = a * t6 - b * t6 * t8;                      // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t10 = x + 0.01f * t9;                           // return {n: s[n] + dt * k[n] for n in s}
    let t11 = t8 * (c * t6) - d * t8;                   // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t12 = y + 0.01f * t11;                          // return {n: s[n] + dt * k[n] for n in s}
    scratch[(y_kept_0 + k) * stride + cell] = y;
    scratch[(x_kept_1 + k) * stride + cell] = x;
    x = x + 0.0016666667f * (2.0f * t9 + (t1 + 2.0f * t5) + (a * t10 - b * t10 * t12));  // return {n: s[n] + 0.01 / 6 * (k1[n] + 2 * k2[n] + 2 * k3[n] + k4[n]) ...
    y = y + 0.0016666667f * (2.0f * t11 + (t3 + 2.0f * t7) + (t12 * (c * t10) - d * t12));
  }
  let t13 = y - 1.0f;                                   // return (end["x"] - 1) ** 2 + (end["y"] - 1) ** 2
  let t14 = x - 1.0f;
  var x_bar = 2.0f * t14;                               // end = sg.fori_loop(0, 150, step, {"x": v[4], "y": v[5]})
  var y_bar = 2.0f * t13;
  var b_bar = 0.0f;
  var a_bar = 0.0f;
  var d_bar = 0.0f;
  var c_bar = 0.0f;
  for (var k = 150u; k > 0u;) {
    k -= 1u;
    let t15 = 0.0016666667f * x_bar;                    // return {n: s[n] + 0.01 / 6 * (k1[n] + 2 * k2[n] + 2 * k3[n] + k4[n]) ...
    let t16 = -0.0016666667f * x_bar;                   // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let y_2 = scratch[(y_kept_0 + k) * stride + cell];
    let x_2 = scratch[(x_kept_1 + k) * stride + cell];
    let t17 = c * x_2;
    let t18 = y_2 + 0.005f * (y_2 * t17 - d * y_2);     // return {n: s[n] + dt * k[n] for n in s}
    let t19 = b * x_2;                                  // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t20 = x_2 + 0.005f * (a * x_2 - y_2 * t19);     // return {n: s[n] + dt * k[n] for n in s}
    let t21 = c * t20;                                  // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t22 = y_2 + 0.005f * (t18 * t21 - d * t18);     // return {n: s[n] + dt * k[n] for n in s}
    let t23 = b * t20;                                  // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t24 = x_2 + 0.005f * (a * t20 - t18 * t23);     // return {n: s[n] + dt * k[n] for n in s}
    let t25 = c * t24;                                  // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t26 = y_2 + 0.01f * (t22 * t25 - d * t22);      // return {n: s[n] + dt * k[n] for n in s}
    let t27 = t16 * t26;                                // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t28 = 0.0016666667f * y_bar;                    // return {n: s[n] + 0.01 / 6 * (k1[n] + 2 * k2[n] + 2 * k3[n] + k4[n]) ...
    let t29 = t26 * t28;                                // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t30 = b * t27 + (c * t29 + a * t15);            // return {n: s[n] + dt * k[n] for n in s}
    let t31 = 0.0033333334f * x_bar;                    // return {n: s[n] + 0.01 / 6 * (k1[n] + 2 * k2[n] + 2 * k3[n] + k4[n]) ...
    let t32 = 0.01f * t30 + t31;                        // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t33 = t22 * t32;
    let t34 = 0.0033333334f * y_bar;                    // return {n: s[n] + 0.01 / 6 * (k1[n] + 2 * k2[n] + 2 * k3[n] + k4[n]) ...
    let t35 = b * t24;                                  // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t36 = x_2 + 0.01f * (a * t24 - t22 * t35);      // return {n: s[n] + dt * k[n] for n in s}
    let t37 = -0.0016666667f * y_bar;                   // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t38 = t16 * (b * t36) + (t28 * (c * t36) + d * t37);  // return {n: s[n] + dt * k[n] for n in s}
    let t39 = t34 + 0.01f * t38;                        // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t40 = t22 * t39;
    let t41 = c * t40 + a * t32 - b * t33;              // return {n: s[n] + dt * k[n] for n in s}
    let t42 = t31 + 0.005f * t41;                       // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t43 = t25 * t39 - d * t39 - t32 * t35;          // return {n: s[n] + dt * k[n] for n in s}
    let t44 = t34 + 0.005f * t43;                       // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t45 = t21 * t44 - d * t44 - t23 * t42;          // return {n: s[n] + dt * k[n] for n in s}
    let t46 = t28 + 0.005f * t45;                       // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t47 = y_2 * t46;
    let t48 = t18 * t42;
    let t49 = t18 * t44;
    let t50 = c * t49 + a * t42 - b * t48;              // return {n: s[n] + dt * k[n] for n in s}
    let t51 = t15 + 0.005f * t50;                       // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t52 = y_2 * t51;
    x_bar = x_bar + t30 + (t41 + c * t47) + (t50 + a * t51 - b * t52);
    y_bar = y_bar + t38 + (t43 + t45) + (t17 * t46 - d * t46 - t19 * t51);
    b_bar = b_bar + (t27 * t36 - t24 * t33 + (-(t20 * t48) - x_2 * t52));
    a_bar = a_bar + (t15 * t36 + t24 * t32 + (t20 * t42 + x_2 * t51));
    d_bar = d_bar + (t26 * t37 - t40 + (-t49 - t47));
    c_bar = c_bar + (t29 * t36 + t24 * t40 + (t20 * t49 + x_2 * t47));
  }
  let t53 = t13 * t13 + t14 * t14;                      // return (end["x"] - 1) ** 2 + (end["y"] - 1) ** 2
  if (cell < params.count) {
    loss[cell] = t53;
    grad[cell * 6u] = a_bar;
    grad[cell * 6u + 1u] = b_bar;
    grad[cell * 6u + 2u] = c_bar;
    grad[cell * 6u + 3u] = d_bar;
    grad[cell * 6u + 4u] = x_bar;
    grad[cell * 6u + 5u] = y_bar;
  }
}
