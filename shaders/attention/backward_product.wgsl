//## The query's gradient from the gradients ds of the scores that attention/backward.wgsl stored:
//## d_query = scale · Σ ds key. A workgroup owns BQ queries and goes through the keys VALUE_KEYS at a time.
//##
//## What is stored is not written where no key of a tile sees the query, so what lies outside the window is not taken.
//## lib/stored_scores.wgsl has the layout of what is stored, lib/tiles.wgsl that of rows and columns, and the product.
//# from "lib/storage.wgsl" import writer
//# from "lib/blocks.wgsl" import each
//# from "lib/tiles.wgsl" import vec4_reader, store_values, multiply_values, add_shares, lanes with context
//# from "lib/gradient_tile.wgsl" import find_gradient_tile with context
//# from "lib/seen_gradient.wgsl" import seen_gradient with context
//# from "lib/store_gradient.wgsl" import store with context
//# include "lib/score_gradient.wgsl"
//# include "lib/stored_scores.wgsl"
//# for name, dtype in writes
{{ writer(name, dtype) }}
//# endfor

{{ vec4_reader("key", D4) }}
{{ seen_gradient("d_query", "key", True, " * params.grad_scale") }}
//# set weight_loads = (VALUE_KEYS * BQ // 4 + WORKGROUP - 1) // WORKGROUP
//# set key_loads = (VALUE_KEYS * D4 + WORKGROUP - 1) // WORKGROUP
//# set across = (D4 + lanes - 1) // lanes
const VALUES_0 = 0u;
const WEIGHTS_0 = 0u;
// In vec4s, one more than the data, so that neighbours spread over the banks.
const WEIGHT_PITCH = {{ BQ // 4 + 1 }}u;
var<workgroup> stage: array<vec4<f32>, VALUE_KEYS * {{ D4 }}u>;
var<workgroup> weights: array<vec4<f32>, VALUE_KEYS * WEIGHT_PITCH>;

//## Asks for the keys from `first` on and their score gradients.
//# macro load(first)
//# call(n) each("n", weight_loads, unrolled)
      let e = thread_index + {{ n }} * WORKGROUP;
      let j = {{ first }} + e / (BQ / 4u);
      let four = first_row / 4u + e % (BQ / 4u);
      let key_row = min(j, end - 1u);
      let found = score_gradients[stored_head + stored_row(at, key_row) + clamp(four, first_four(at, key_row), query_fours(at) - 1u)];
//#   if hides
      let position = 4 * i32(four) + shift;
      let seen = vec4<bool>(
        in_window(position, i32(j), length), in_window(position + 1, i32(j), length),
        in_window(position + 2, i32(j), length), in_window(position + 3, i32(j), length));
      asked[{{ n }}] = select(vec4<f32>(), found, seen);
//#   else
      asked[{{ n }}] = select(vec4<f32>(), found, j < end);
//#   endif
//# endcall
//# call(n) each("n", key_loads, unrolled)
      let e = thread_index + {{ n }} * WORKGROUP;
      staged[{{ n }}] = key_vec4(key_head, {{ first }} + e / {{ D4 }}u, end - 1u, e % {{ D4 }}u);
//# endcall
//# endmacro
//##
//# macro store_score_gradients()
//# call(n) each("n", weight_loads, unrolled)
      let e = thread_index + {{ n }} * WORKGROUP;
//#   if VALUE_KEYS * BQ // 4 % WORKGROUP
      if (e < VALUE_KEYS * (BQ / 4u)) {
//#   endif
        weights[e / (BQ / 4u) * WEIGHT_PITCH + e % (BQ / 4u)] = asked[{{ n }}];
//#   if VALUE_KEYS * BQ // 4 % WORKGROUP
      }
//#   endif
//# endcall
//# endmacro
@compute @workgroup_size(TX, TY)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_id) local: vec3<u32>,
) {
{{ find_gradient_tile(True, True) }}
  let first_row = tile_of_rows * BQ;
  let tx = local.x;
  let ty = local.y;
  let thread_index = ty * TX + tx;
  let last_row = min(first_row + BQ, row_count) - 1u;
  let begin = u32(max(0, i32(first_row) + shift - params.window_left));
  let end = u32(max(0, min(length, i32(last_row) + shift + params.window_right + 1)));
  let stored_head = launched_head * params.stored_length;
  let key_head = params.key_first + dot(params.key_strides.xyz, vec3<u32>(b, head / params.group, at.key_begin));

  var acc: array<vec4<f32>, ROWS * {{ across }}u>;
  var factors: array<vec4<f32>, ROWS / 4u>;
  var columns: array<vec4<f32>, {{ across }}>;
  var asked: array<vec4<f32>, {{ weight_loads }}>;
  var staged: array<vec4<f32>, {{ key_loads }}>;
  // Memory is asked for the next keys before these are computed.
  if (begin < end) {
{{ load("begin") }}
  }
  for (var first = begin; first < end; first += VALUE_KEYS) {
    workgroupBarrier();
{{ store_score_gradients() }}
{{ store_values(D4, 0) }}
    workgroupBarrier();
    if (first + VALUE_KEYS < end) {
{{ load("(first + VALUE_KEYS)") }}
    }
{{ multiply_values("acc", D4, 0, 0, VALUE_KEYS) }}
  }
//# if SHARES > 1
{{ add_shares("acc", D4, lanes, False) }}
//# endif
{{ store("d_query", "acc", D4, " * params.grad_scale") }}
}
