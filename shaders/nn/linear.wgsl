//## y = x W + b, then perhaps GELU: x [rows, inner], W [inner, columns].
//##
//## Each invocation holds ROWS_EACH rows of 8 columns (two groups of 4) in registers and goes along `inner`
//## four values at a time; 16 x 4 invocations make a tile of 4*ROWS_EACH x 128. Neighbours read neighbouring
//## columns of W and the same x, and the caches do the rest: staging both in workgroup memory, the textbook
//## way, took 3 to 20 times as long on a software adapter, where barriers are dear.
//##
//## PACKED: everything divides by 4 and is read and written as vec4; otherwise element by element.

const TILE_ROWS = 4u * ROWS_EACH;
const TILE_COLUMNS = 128u;

// Four neighbours of x from `at` on, of which `left` exist; zeros stand for the others.
fn x_at(at: u32, left: u32) -> vec4<f32> {
//# if PACKED
  return x[at / 4u];
//# else
  var value = vec4<f32>();
  for (var i = 0u; i < min(left, 4u); i++) {
    value[i] = x[at + i];
  }
  return value;
//# endif
}

fn weight_at(row: u32, column: u32) -> vec4<f32> {
  let at = params.weight_first + row * params.columns + column;
//# if PACKED
  return weight[at / 4u];
//# else
  var value = vec4<f32>();
  for (var i = 0u; i < 4u && column + i < params.columns && row < params.inner; i++) {
    value[i] = weight[at + i];
  }
  return value;
//# endif
}

//# if HAS_BIAS
fn bias_at(column: u32) -> vec4<f32> {
//# if PACKED
  return bias[(params.bias_first + column) / 4u];
//# else
  var value = vec4<f32>();
  for (var i = 0u; i < 4u && column + i < params.columns; i++) {
    value[i] = bias[params.bias_first + column + i];
  }
  return value;
//# endif
}

//# endif
fn put(row: u32, column: u32, value: vec4<f32>) {
  let at = row * params.columns + column;
//# if PACKED
  out[at / 4u] = value;
//# else
  for (var i = 0u; i < 4u && column + i < params.columns; i++) {
    out[at + i] = value[i];
  }
//# endif
}

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
@compute @workgroup_size(64)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) thread_index: u32,
) {
  let tile = group.x + group.y * groups.x;
  let row_base = tile / params.column_tiles * TILE_ROWS + thread_index / 16u * ROWS_EACH;
  let column_base = tile % params.column_tiles * TILE_COLUMNS + thread_index % 16u * 4u;
  if row_base >= params.rows || column_base >= params.columns {
    return;
  }
  // Rows and columns past the end repeat the last one, so that the loop needs no branches.
  let last_column = (params.columns - 1u) / 4u * 4u;
//# for c in range(2)
  let column{{ c }} = min(column_base + {{ 64 * c }}u, last_column);
//# endfor
//# for r in range(ROWS_EACH)
  let x{{ r }}_first = params.x_first + min(row_base + {{ r }}u, params.rows - 1u) * params.inner;
//# for c in range(2)
  var sum{{ r }}_{{ c }} = vec4<f32>();
//# endfor
//# endfor

  for (var k = 0u; k < params.inner; k += 4u) {
//# for c in range(2)
//# for i in range(4)
    let w{{ i }}_{{ c }} = weight_at(k + {{ i }}u, column{{ c }});
//# endfor
//# endfor
//# for r in range(ROWS_EACH)
    let x{{ r }} = x_at(x{{ r }}_first + k, params.inner - k);
//# for c in range(2)
//# for i in range(4)
    sum{{ r }}_{{ c }} = fma(vec4(x{{ r }}[{{ i }}]), w{{ i }}_{{ c }}, sum{{ r }}_{{ c }});
//# endfor
//# endfor
//# endfor
  }

//# for c in range(2)
  if column_base + {{ 64 * c }}u < params.columns {
//# if HAS_BIAS
    let shift = bias_at(column{{ c }});
//# endif
//# for r in range(ROWS_EACH)
    if row_base + {{ r }}u < params.rows {
      var y = sum{{ r }}_{{ c }};
//# if HAS_BIAS
      y += shift;
//# endif
//# if ACTIVATION == "gelu"
      y = gelu(y);
//# endif
      put(row_base + {{ r }}u, column{{ c }}, y);
    }
//# endfor
  }
//# endfor
}
