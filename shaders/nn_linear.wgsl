//## y = x W^T + b, then perhaps GELU: x [rows, inner], W [columns, inner] as PyTorch stores it.
//##
//## A workgroup of 16 x 16 invocations makes a tile of 16*ROWS_EACH x 64 of y; each invocation holds
//## ROWS_EACH rows of 4 columns in registers. 16 values of `inner` at a time lie in workgroup memory, both
//## operands transposed so that an invocation reads its 4 columns as one vec4. No subgroups needed.

const DEPTH = 16u;
const TILE_ROWS = 16u * ROWS_EACH;
const TILE_COLUMNS = 64u;

var<workgroup> x_tile: array<f32, DEPTH * TILE_ROWS>;
var<workgroup> weight_tile: array<vec4<f32>, DEPTH * TILE_COLUMNS / 4u>;

//# if ACTIVATION == "gelu"
// GELU by the error function: x * Phi(x), Hendrycks & Gimpel 2016 (https://arxiv.org/abs/1606.08415).
// erfc(|x|/sqrt(2)) after Abramowitz & Stegun 7.1.26, |error| <= 1.5e-7; the negative side takes erfc
// itself, not 1 - erf, so nothing cancels there.
fn gelu(x: vec4<f32>) -> vec4<f32> {
  let z = abs(x) * 0.70710678118654752;
  let t = 1.0 / (1.0 + 0.3275911 * z);
  let polynomial =
    ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
  let tail = 0.5 * polynomial * exp(-z * z);
  return x * select(1.0 - tail, tail, x < vec4(0.0));
}

//# endif
@compute @workgroup_size(256)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) lane: u32,
) {
  let tile = group.x + group.y * groups.x;
  let row_base = tile / params.column_tiles * TILE_ROWS;
  let column_base = tile % params.column_tiles * TILE_COLUMNS;
  let lane_column = lane % 16u;
  let lane_row = lane / 16u;
  // 16 lanes read 16 neighbours along `inner`: consecutive addresses in both operands.
  let depth_lane = lane % DEPTH;
  let load_lane = lane / DEPTH;

//# for r in range(ROWS_EACH)
  var sum{{ r }} = vec4<f32>();
//# endfor

  for (var base = 0u; base < params.inner; base += DEPTH) {
    let inner = base + depth_lane;
    let inside = inner < params.inner;
//# for r in range(ROWS_EACH)
    {
      let local = load_lane + {{ 16 * r }}u;
      let row = row_base + local;
      var value = 0.0;
      if inside && row < params.rows {
        value = x[params.x_first + row * params.inner + inner];
      }
      x_tile[depth_lane * TILE_ROWS + local] = value;
    }
//# endfor
    {
      // Lane `load_lane` brings columns 4*load_lane to 4*load_lane + 3, one vec4 of the tile.
      let column = column_base + 4u * load_lane;
      var value = vec4<f32>();
//# for c in range(4)
      if inside && column + {{ c }}u < params.columns {
        value.{{ "xyzw"[c] }} = weight[params.weight_first + (column + {{ c }}u) * params.inner + inner];
      }
//# endfor
      weight_tile[depth_lane * (TILE_COLUMNS / 4u) + load_lane] = value;
    }
    workgroupBarrier();
    for (var k = 0u; k < DEPTH; k++) {
      let w = weight_tile[k * (TILE_COLUMNS / 4u) + lane_column];
//# for r in range(ROWS_EACH)
      sum{{ r }} = fma(vec4(x_tile[k * TILE_ROWS + lane_row + {{ 16 * r }}u]), w, sum{{ r }});
//# endfor
    }
    workgroupBarrier();
  }

  let column = column_base + 4u * lane_column;
//# if HAS_BIAS
  var shift = vec4<f32>();
//# for c in range(4)
  if column + {{ c }}u < params.columns {
    shift.{{ "xyzw"[c] }} = bias[params.bias_first + column + {{ c }}u];
  }
//# endfor
//# endif
//# for r in range(ROWS_EACH)
  {
    let row = row_base + lane_row + {{ 16 * r }}u;
    var y = sum{{ r }};
//# if HAS_BIAS
    y += shift;
//# endif
//# if ACTIVATION == "gelu"
    y = gelu(y);
//# endif
    if row < params.rows {
//# for c in range(4)
      if column + {{ c }}u < params.columns {
        out[row * params.columns + column + {{ c }}u] = y.{{ "xyzw"[c] }};
      }
//# endfor
    }
  }
//# endfor
}
