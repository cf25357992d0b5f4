// four bells: loss and gradient over rows
// in: 12 parameters, rows (N, 2); out: sums over rows of loss (1), grad (12)
// 41 operations and 8 bytes a row, 12 operations once; float32, C order; math: fast

struct Params { count: u32, zero: u32, infinity: f32, nan: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> rows: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read> parameters: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> partials: array<f32>;
var<workgroup> tile: array<f32, 3328>;
var<private> sums: array<f32, 13>;
var<private> t1: f32;
var<private> t2: f32;
var<private> t3: f32;
var<private> t4: f32;
var<private> a0: f32;
var<private> b0: f32;
var<private> a1: f32;
var<private> b1: f32;
var<private> a2: f32;
var<private> b2: f32;
var<private> a3: f32;
var<private> b3: f32;

fn add_row(time: f32, count: f32) {
  let t5 = t1 * (time - b0);                            // model = sum(p[k] * sg.exp(-(((r[0] - p[k + 1]) / p[k + 2]) ** 2)) for...
  let t6 = exp(-(t5 * t5));
  let t7 = t2 * (time - b1);
  let t8 = exp(-(t7 * t7));
  let t9 = t3 * (time - b2);
  let t10 = exp(-(t9 * t9));
  let t11 = t4 * (time - b3);
  let t12 = exp(-(t11 * t11));
  let t13 = a0 * t6 + a1 * t8 + a2 * t10 + a3 * t12 - count;  // return (model - r[1]) ** 2
  sums[0u] += t13 * t13;
  let t14 = t12 * t13;
  sums[10u] += t14;
  let t15 = t11 * t14;
  sums[11u] += t15;
  sums[12u] += t11 * t15;
  let t16 = t10 * t13;
  sums[7u] += t16;
  let t17 = t9 * t16;
  sums[8u] += t17;
  sums[9u] += t9 * t17;
  let t18 = t8 * t13;
  sums[4u] += t18;
  let t19 = t7 * t18;
  sums[5u] += t19;
  sums[6u] += t7 * t19;
  let t20 = t6 * t13;
  sums[1u] += t20;
  let t21 = t5 * t20;
  sums[2u] += t21;
  sums[3u] += t5 * t21;
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) local: u32) {
  let cell = group.x * 256u + local;
  var totals: array<f32, 13>;
  let parameters_quad = parameters[0u];
  let c0 = parameters_quad.z;
  t1 = 1.0f / c0;                                       // model = sum(p[k] * sg.exp(-(((r[0] - p[k + 1]) / p[k + 2]) ** 2)) for...
  let parameters_quad_2 = parameters[1u];
  let c1 = parameters_quad_2.y;
  t2 = 1.0f / c1;
  let parameters_quad_3 = parameters[2u];
  let c2 = parameters_quad_3.x;
  t3 = 1.0f / c2;
  let c3 = parameters_quad_3.w;
  t4 = 1.0f / c3;
  a0 = parameters_quad.x;
  b0 = parameters_quad.y;
  a1 = parameters_quad.w;
  b1 = parameters_quad_2.x;
  a2 = parameters_quad_2.z;
  b2 = parameters_quad_2.w;
  a3 = parameters_quad_3.y;
  b3 = parameters_quad_3.z;
  let jump = groups.x * 256u;
  let loads = ((params.count + 1u) / 2u + (jump - 1u) - cell) / jump;
  sums = array<f32, 13>();
  totals = array<f32, 13>();
  let blocks = (loads + 3u) / 4u;
  let end = params.count / 2u;
  var start = cell;
  for (var block = 0u; block < blocks; block += 1u) {
    let last = min(loads, block * 4u + 4u);
    let load1 = jump + start;
    let load2 = start + jump * 2u;
    let load3 = start + jump * 3u;
    if (load3 < end) {
      let rows_quad = rows[start];
      let rows_quad_2 = rows[load1];
      let rows_quad_3 = rows[load2];
      let rows_quad_4 = rows[load3];
      add_row(rows_quad.x, rows_quad.y);
      add_row(rows_quad.z, rows_quad.w);
      add_row(rows_quad_2.x, rows_quad_2.y);
      add_row(rows_quad_2.z, rows_quad_2.w);
      add_row(rows_quad_3.x, rows_quad_3.y);
      add_row(rows_quad_3.z, rows_quad_3.w);
      add_row(rows_quad_4.x, rows_quad_4.y);
      add_row(rows_quad_4.z, rows_quad_4.w);
    } else {
      for (var k = block * 4u; k < last; k += 1u) {
        let load = cell + jump * k;
        let rows_quad = rows[load];
        add_row(rows_quad.x, rows_quad.y);
        if ((load * 2u + 1u) < params.count) {
          add_row(rows_quad.z, rows_quad.w);
        }
      }
    }
    totals[0u] += sums[0u];
    totals[1u] += sums[1u];
    totals[2u] += sums[2u];
    totals[3u] += sums[3u];
    totals[4u] += sums[4u];
    totals[5u] += sums[5u];
    totals[6u] += sums[6u];
    totals[7u] += sums[7u];
    totals[8u] += sums[8u];
    totals[9u] += sums[9u];
    totals[10u] += sums[10u];
    totals[11u] += sums[11u];
    totals[12u] += sums[12u];
    sums = array<f32, 13>();
    start = start + jump * 4u;
  }
  tile[local] = totals[0u];
  tile[local + 256u] = totals[1u];
  tile[local + 512u] = totals[2u];
  tile[local + 768u] = totals[3u];
  tile[local + 1024u] = totals[4u];
  tile[local + 1280u] = totals[5u];
  tile[local + 1536u] = totals[6u];
  tile[local + 1792u] = totals[7u];
  tile[local + 2048u] = totals[8u];
  tile[local + 2304u] = totals[9u];
  tile[local + 2560u] = totals[10u];
  tile[local + 2816u] = totals[11u];
  tile[local + 3072u] = totals[12u];
  workgroupBarrier();
  let t22 = (local & 15u) + local / 16u * 256u;
  var t23: f32;
  if (local < 208u) {
    var c = 0.0f;
    for (var k = 0u; k < 4u; k += 1u) {
      let t24 = t22 + k * 64u;
      let t25 = tile[t24];
      let t26 = tile[t24 + 16u];
      let t27 = tile[t24 + 32u];
      let t28 = tile[t24 + 48u];
      c = c + (t25 + t26 + (t27 + t28));
    }
    t23 = c;
  } else {
    t23 = 0.0f;
  }
  workgroupBarrier();
  if (local < 208u) {
    tile[local] = t23;
  }
  workgroupBarrier();
  if (local < 13u) {
    var c = 0.0f;
    for (var k = 0u; k < 4u; k += 1u) {
      let t29 = local * 16u + k * 4u;
      let t30 = tile[t29];
      let t31 = tile[t29 + 1u];
      let t32 = tile[t29 + 2u];
      let t33 = tile[t29 + 3u];
      c = c + (t30 + t31 + (t32 + t33));
    }
    partials[group.x + 13u + local * groups.x] = c;
  }
  if (cell < 1u) {
    let t34 = 4.0f * (t1 * a0);
    let t35 = 4.0f * (t2 * a1);
    let t36 = 4.0f * (t3 * a2);
    let t37 = 4.0f * (t4 * a3);
    partials[0u] = 1.0f;
    partials[1u] = 2.0f;
    partials[2u] = t34;
    partials[3u] = t34;
    partials[4u] = 2.0f;
    partials[5u] = t35;
    partials[6u] = t35;
    partials[7u] = 2.0f;
    partials[8u] = t36;
    partials[9u] = t36;
    partials[10u] = 2.0f;
    partials[11u] = t37;
    partials[12u] = t37;
  }
}
