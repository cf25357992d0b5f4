// four bells: loss and gradient over rows
// in: 12 parameters, rows (N, 2); out: sums over rows of loss (1), grad (12)
// 41 operations and 8 bytes a row, 12 operations once; float32, C order; math: fast

struct Params { count: u32, zero: u32, infinity: f32, nan: f32 }

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read> rows: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> parameters: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> partials: array<f32>;
var<workgroup> tile: array<f32, 3328>;

// what the rows need of the parameters
var<private> a0: f32;
var<private> b0: f32;
var<private> a1: f32;
var<private> b1: f32;
var<private> a2: f32;
var<private> b2: f32;
var<private> a3: f32;
var<private> b3: f32;
var<private> t15: f32;
var<private> t22: f32;
var<private> t30: f32;
var<private> t38: f32;

// the sums of an invocation: of blocks of 8 rows, and of these
var<private> sum0: f32; var<private> total0: f32;  // loss
var<private> sum1: f32; var<private> total1: f32;  // grad[0]
var<private> sum2: f32; var<private> total2: f32;  // grad[1]
var<private> sum3: f32; var<private> total3: f32;  // grad[2]
var<private> sum4: f32; var<private> total4: f32;  // grad[3]
var<private> sum5: f32; var<private> total5: f32;  // grad[4]
var<private> sum6: f32; var<private> total6: f32;  // grad[5]
var<private> sum7: f32; var<private> total7: f32;  // grad[6]
var<private> sum8: f32; var<private> total8: f32;  // grad[7]
var<private> sum9: f32; var<private> total9: f32;  // grad[8]
var<private> sum10: f32; var<private> total10: f32;  // grad[9]
var<private> sum11: f32; var<private> total11: f32;  // grad[10]
var<private> sum12: f32; var<private> total12: f32;  // grad[11]

// adds what a row contributes
fn add_row(time: f32, count: f32) {
  let t16 = (time - b0) * t15;                          // model = sum(p[k] * sg.exp(-(((r[0] - p[k + 1]) / p[k + 2]) ** 2)) for...
  let t19 = exp(-(t16 * t16));
  let t23 = (time - b1) * t22;
  let t26 = exp(-(t23 * t23));
  let t31 = (time - b2) * t30;
  let t34 = exp(-(t31 * t31));
  let t39 = (time - b3) * t38;
  let t42 = exp(-(t39 * t39));
  let t45 = a0 * t19 + a1 * t26 + a2 * t34 + a3 * t42 - count;  // return (model - r[1]) ** 2
  let t46 = t45 * t45;
  sum0 += t46;
  let t77 = t42 * t45;
  sum10 += t77;
  let t78 = t39 * t77;
  sum11 += t78;
  let t80 = t39 * t78;
  sum12 += t80;
  let t81 = t34 * t45;
  sum7 += t81;
  let t82 = t31 * t81;
  sum8 += t82;
  let t84 = t31 * t82;
  sum9 += t84;
  let t85 = t26 * t45;
  sum4 += t85;
  let t86 = t23 * t85;
  sum5 += t86;
  let t88 = t23 * t86;
  sum6 += t88;
  let t89 = t19 * t45;
  sum1 += t89;
  let t90 = t16 * t89;
  sum2 += t90;
  let t92 = t16 * t90;
  sum3 += t92;
}

// writes the sums of rows of the tile, of 256 numbers each, step apart
fn add_tile(count: u32, to: u32, step: u32, local: u32) {
  workgroupBarrier();
  var part = 0.0f;
  if (local < 16u * count) {
    let at = local / 16u * 256u + local % 16u;
    for (var k = at; k < at + 256u; k += 64u) {
      part += (tile[k] + tile[k + 16u]) + (tile[k + 32u] + tile[k + 48u]);
    }
  }
  workgroupBarrier();
  if (local < 16u * count) { tile[local] = part; }
  workgroupBarrier();
  if (local < count) {
    part = 0.0f;
    for (var k = 16u * local; k < 16u * local + 16u; k += 4u) {
      part += (tile[k] + tile[k + 1u]) + (tile[k + 2u] + tile[k + 3u]);
    }
    partials[to + local * step] = part;
  }
}

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>,
        @builtin(num_workgroups) groups: vec3<u32>,
        @builtin(local_invocation_index) local: u32) {
  let quad0 = parameters[0u];
  a0 = quad0.x;
  b0 = quad0.y;
  a1 = quad0.w;
  let quad1 = parameters[1u];
  b1 = quad1.x;
  a2 = quad1.z;
  b2 = quad1.w;
  let quad2 = parameters[2u];
  a3 = quad2.y;
  b3 = quad2.z;
  let c0 = quad0.z;
  t15 = 1.0f / c0;                                      // model = sum(p[k] * sg.exp(-(((r[0] - p[k + 1]) / p[k + 2]) ** 2)) for...
  let c1 = quad1.y;
  t22 = 1.0f / c1;
  let c2 = quad2.x;
  t30 = 1.0f / c2;
  let c3 = quad2.w;
  t38 = 1.0f / c3;
  // every stride-th load of the table
  let stride = groups.x * 256u;
  let loads = (params.count + 1u) / 2u;
  for (var first = group.x * 256u + local; first < loads; first += 4u * stride) {
    if (first + 3u * stride < params.count / 2u) {  // all loads come before the work
      let load0 = rows[first];
      let load1 = rows[first + 1u * stride];
      let load2 = rows[first + 2u * stride];
      let load3 = rows[first + 3u * stride];
      add_row(load0.x, load0.y);
      add_row(load0.z, load0.w);
      add_row(load1.x, load1.y);
      add_row(load1.z, load1.w);
      add_row(load2.x, load2.y);
      add_row(load2.z, load2.w);
      add_row(load3.x, load3.y);
      add_row(load3.z, load3.w);
    } else {
      let end = min(first + 4u * stride, loads);
      for (var at = first; at < end; at += stride) {
        let loaded = rows[at];
        add_row(loaded.x, loaded.y);
        if (2u * at + 1u < params.count) { add_row(loaded.z, loaded.w); }
      }
    }
    total0 += sum0; sum0 = 0.0f;
    total1 += sum1; sum1 = 0.0f;
    total2 += sum2; sum2 = 0.0f;
    total3 += sum3; sum3 = 0.0f;
    total4 += sum4; sum4 = 0.0f;
    total5 += sum5; sum5 = 0.0f;
    total6 += sum6; sum6 = 0.0f;
    total7 += sum7; sum7 = 0.0f;
    total8 += sum8; sum8 = 0.0f;
    total9 += sum9; sum9 = 0.0f;
    total10 += sum10; sum10 = 0.0f;
    total11 += sum11; sum11 = 0.0f;
    total12 += sum12; sum12 = 0.0f;
  }
  tile[local] = total0;
  tile[256u + local] = total1;
  tile[512u + local] = total2;
  tile[768u + local] = total3;
  tile[1024u + local] = total4;
  tile[1280u + local] = total5;
  tile[1536u + local] = total6;
  tile[1792u + local] = total7;
  tile[2048u + local] = total8;
  tile[2304u + local] = total9;
  tile[2560u + local] = total10;
  tile[2816u + local] = total11;
  tile[3072u + local] = total12;
  add_tile(13u, 13u + group.x, groups.x, local);
  if (group.x == 0u && local == 0u) {  // factors of the sums
    let t95 = 4.0f * (a0 * t15);
    let t96 = 4.0f * (a1 * t22);
    let t97 = 4.0f * (a2 * t30);
    let t98 = 4.0f * (a3 * t38);
    partials[0u] = 1.0f;
    partials[1u] = 2.0f;
    partials[2u] = t95;
    partials[3u] = t95;
    partials[4u] = 2.0f;
    partials[5u] = t96;
    partials[6u] = t96;
    partials[7u] = 2.0f;
    partials[8u] = t97;
    partials[9u] = t97;
    partials[10u] = 2.0f;
    partials[11u] = t98;
    partials[12u] = t98;
  }
}
