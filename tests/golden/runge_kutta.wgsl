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
  let t15 = t14 * t14 + t13 * t13;
  var x_bar = 2.0f * t14;                               // end = sg.fori_loop(0, 150, step, {"x": v[4], "y": v[5]})
  var y_bar = 2.0f * t13;
  var b_bar = 0.0f;
  var a_bar = 0.0f;
  var d_bar = 0.0f;
  var c_bar = 0.0f;
  for (var k = 150u; k > 0u;) {
    k -= 1u;
    let t16 = 0.0016666667f * x_bar;                    // return {n: s[n] + 0.01 / 6 * (k1[n] + 2 * k2[n] + 2 * k3[n] + k4[n]) ...
    let t17 = -0.0016666667f * x_bar;                   // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let y_2 = scratch[(y_kept_0 + k) * stride + cell];
    let x_2 = scratch[(x_kept_1 + k) * stride + cell];
    let t18 = c * x_2;
    let t19 = y_2 + 0.005f * (y_2 * t18 - d * y_2);     // return {n: s[n] + dt * k[n] for n in s}
    let t20 = b * x_2;                                  // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t21 = x_2 + 0.005f * (a * x_2 - y_2 * t20);     // return {n: s[n] + dt * k[n] for n in s}
    let t22 = c * t21;                                  // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t23 = y_2 + 0.005f * (t19 * t22 - d * t19);     // return {n: s[n] + dt * k[n] for n in s}
    let t24 = b * t21;                                  // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t25 = x_2 + 0.005f * (a * t21 - t19 * t24);     // return {n: s[n] + dt * k[n] for n in s}
    let t26 = c * t25;                                  // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t27 = y_2 + 0.01f * (t23 * t26 - d * t23);      // return {n: s[n] + dt * k[n] for n in s}
    let t28 = t17 * t27;                                // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t29 = 0.0016666667f * y_bar;                    // return {n: s[n] + 0.01 / 6 * (k1[n] + 2 * k2[n] + 2 * k3[n] + k4[n]) ...
    let t30 = t27 * t29;                                // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t31 = b * t28 + (c * t30 + a * t16);            // return {n: s[n] + dt * k[n] for n in s}
    let t32 = 0.0033333334f * x_bar;                    // return {n: s[n] + 0.01 / 6 * (k1[n] + 2 * k2[n] + 2 * k3[n] + k4[n]) ...
    let t33 = 0.01f * t31 + t32;                        // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t34 = t23 * t33;
    let t35 = 0.0033333334f * y_bar;                    // return {n: s[n] + 0.01 / 6 * (k1[n] + 2 * k2[n] + 2 * k3[n] + k4[n]) ...
    let t36 = b * t25;                                  // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t37 = x_2 + 0.01f * (a * t25 - t23 * t36);      // return {n: s[n] + dt * k[n] for n in s}
    let t38 = -0.0016666667f * y_bar;                   // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t39 = t17 * (b * t37) + (t29 * (c * t37) + d * t38);  // return {n: s[n] + dt * k[n] for n in s}
    let t40 = t35 + 0.01f * t39;                        // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t41 = t23 * t40;
    let t42 = c * t41 + a * t33 - b * t34;              // return {n: s[n] + dt * k[n] for n in s}
    let t43 = t32 + 0.005f * t42;                       // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t44 = t26 * t40 - d * t40 - t33 * t36;          // return {n: s[n] + dt * k[n] for n in s}
    let t45 = t35 + 0.005f * t44;                       // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t46 = t22 * t45 - d * t45 - t24 * t43;          // return {n: s[n] + dt * k[n] for n in s}
    let t47 = t29 + 0.005f * t46;                       // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t48 = y_2 * t47;
    let t49 = t19 * t43;
    let t50 = t19 * t45;
    let t51 = c * t50 + a * t43 - b * t49;              // return {n: s[n] + dt * k[n] for n in s}
    let t52 = t16 + 0.005f * t51;                       // return {"x": v[0] * x - v[1] * x * y, "y": v[2] * x * y - v[3] * y}
    let t53 = y_2 * t52;
    x_bar = x_bar + t31 + (t42 + c * t48) + (t51 + a * t52 - b * t53);
    y_bar = y_bar + t39 + (t44 + t46) + (t18 * t47 - d * t47 - t20 * t52);
    b_bar = b_bar + (t28 * t37 - t25 * t34 + (-(t21 * t49) - x_2 * t53));
    a_bar = a_bar + (t16 * t37 + t25 * t33 + (t21 * t43 + x_2 * t52));
    d_bar = d_bar + (t27 * t38 - t41 + (-t50 - t48));
    c_bar = c_bar + (t30 * t37 + t25 * t41 + (t21 * t50 + x_2 * t48));
  }
  if (cell < params.count) {
    loss[cell] = t15;
    grad[cell * 6u] = a_bar;
    grad[cell * 6u + 1u] = b_bar;
    grad[cell * 6u + 2u] = c_bar;
    grad[cell * 6u + 3u] = d_bar;
    grad[cell * 6u + 4u] = x_bar;
    grad[cell * 6u + 5u] = y_bar;
  }
}
