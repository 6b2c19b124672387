//## float32 attention on subgroup matrices of float16: each number is the sum of two halves, `upper` and `lower`, and a
//## product upper · upper + upper · lower + lower · upper, which is exact to 2^-21 of it. So it takes three products of
//## matrices, as TF32 and bfloat16 do elsewhere (Ootomo and Yokota, arXiv 2203.03341); sums are float32.
//##
//## Matrix units cut sums off instead of rounding them. An error that grows with the number of terms would be left, so
//## every TURNS_SUMMED tiles of keys acc is taken out of the matrices and added to `sums`, in registers.
//##
//## A workgroup has SUBGROUPS subgroups of 32, each with 16 query rows, whose halves stay in registers. All go through the
//## keys BK at a time; keys and values take turns in the same workgroup memory. Scores go through workgroup memory too,
//## where two invocations share a row (lib/matrix_rows.wgsl), and come back as two halves of each weight, in the same
//## place: the upper ones first. A turn:
//##   products of query and keys, scores stored
//##   barrier: scores are read, values staged; scores become weights
//##   barrier: weights · values are added
//##   barrier: the next keys are staged; barrier
//##
//## A row's weights are relative to its maximum in the first tile that it sees, and do not move: float16 has room for
//## weights of 2^15 times as much. What has no room, in weights or in the numbers times SCALE, and numbers so small that
//## halves would lose digits of them, make the tile unfit: its entry of `unfit` becomes 1, and attention/tiled.wgsl computes it
//## in float32 afterwards. So NaN and infinities need no care here, but that none is overlooked.
//# from "lib/storage.wgsl" import reader, writer, half_types
//# from "lib/exp.wgsl" import exp_of with context
//# from "lib/query_tile.wgsl" import find_query_tile with context
//# from "lib/matrix_rows.wgsl" import turned_lines, hide_unseen with context
//# set head_blocks = (D + 15) // 16
//# set value_blocks = (DV + 15) // 16
//# set key_blocks = BK // 16
//## Vec4s of scores that an invocation has of its row.
//# set span4 = BK // 8
//## Lines of eight halves an entry, one longer than what they hold; lines of scores two: eight neighbours then spread over
//## all banks, and matrices are stored without conflicts (bench/NOTES.md).
//# set pitch = 2 * ([head_blocks, value_blocks] | max) + 1
//# set score_pitch = BK // 4 + 2
//## Of eight numbers, an invocation's of a tile.
//# set key_loads = (BK * 2 * head_blocks + WORKGROUP - 1) // WORKGROUP
//# set value_loads = (BK * 2 * value_blocks + WORKGROUP - 1) // WORKGROUP
{{ half_types(dtypes) }}
{{ reader("query", query_dtype, query_packed, D) }}
{{ reader("key", key_dtype, key_packed, D) }}
{{ reader("value", value_dtype, value_packed, DV) }}
{{ writer("out", "float32") }}
//# include "lib/score.wgsl"
//# include "lib/row_end.wgsl"
//# include "lib/sequences.wgsl"
alias Left = subgroup_matrix_left<f16, 16, 16>;
alias Right = subgroup_matrix_right<f16, 16, 16>;
alias Result = subgroup_matrix_result<f32, 16, 16>;
/// On all numbers, so that halves have room for what is smaller than 1.
const SCALE = 64.0;
/// The largest finite float16, and how large the largest number must be: the sum of two halves is off by 2^-25 at least,
/// which is then 2^-22 of it.
const LARGEST = 65504.0;
const SMALLEST = 0x1p-3f;
// Bits of `seen`: something is unfit; the query, the keys or the values have numbers, and some that are not too small.
const UNFIT = 1u;
const QUERY = 2u;
const KEYS = 4u;
const VALUES = 8u;
const SIZE = 8u;
var<workgroup> upper: array<vec4<u32>, {{ BK * pitch }}>;
var<workgroup> lower: array<vec4<u32>, {{ BK * pitch }}>;
var<workgroup> scores: array<array<vec4<u32>, {{ 16 * score_pitch }}>, SUBGROUPS>;
var<workgroup> seen: atomic<u32>;
// The largest size of what this invocation staged last: of queries, of keys or of values.
var<private> largest: f32;

{{ turned_lines() }}

/// Numbers of a float16's digits, the nearest ones. Not by converting there and back, which drivers leave out.
fn upper_part(x: vec4<f32>) -> vec4<f32> {
  return bitcast<vec4<f32>>((bitcast<vec4<u32>>(x) + vec4<u32>(0x1000u)) & vec4<u32>(0xffffe000u));
}

//##
//## Writes the halves of two vec4s of numbers, eight to an entry.
//# macro put_halves(first, second, upper_entry, lower_entry)
    let upper_x = upper_part({{ first }});
    let upper_y = upper_part({{ second }});
    let lower_x = {{ first }} - upper_x;
    let lower_y = {{ second }} - upper_y;
    let half_a = vec4<f16>(upper_x);
    let half_b = vec4<f16>(upper_y);
    let half_c = vec4<f16>(lower_x);
    let half_d = vec4<f16>(lower_y);
    {{ upper_entry }} = vec4<u32>(bitcast<vec2<u32>>(half_a), bitcast<vec2<u32>>(half_b));
    {{ lower_entry }} = vec4<u32>(bitcast<vec2<u32>>(half_c), bitcast<vec2<u32>>(half_d));
//# endmacro
/// Stages eight numbers of a line as halves.
fn stage(entry: u32, first: vec4<f32>, second: vec4<f32>) {
  let x = first * SCALE;
  let y = second * SCALE;
  let size = max(abs(x), abs(y));
  largest = max(largest, max(max(size.x, size.y), max(size.z, size.w)));
{{ put_halves("x", "y", "upper[entry]", "lower[entry]") }}
}

/// What `largest` says of the query, the keys or the values.
fn seen_of(which: u32, size: f32) -> u32 {
  // Not with >, which NaN would pass.
  let fits = select(UNFIT, 0u, size < LARGEST);
  return fits | select(0u, which, size > 0.0) | select(0u, which * SIZE, size >= SMALLEST);
}
//##
//# macro chunk_reader(name, length)
/// Numbers 8n … 8n+7 of a row, zeros past its end.
fn {{ name }}_eight(row: u32, stride: u32, n: u32) -> array<vec4<f32>, 2> {
//# if length % 16
  var eight: array<vec4<f32>, 2>;
  if (8u * n < {{ length }}u) {
    eight[0] = {{ name }}_at4(row, stride, 8u * n);
  }
  if (8u * n + 4u < {{ length }}u) {
    eight[1] = {{ name }}_at4(row, stride, 8u * n + 4u);
  }
  return eight;
//# else
  return array<vec4<f32>, 2>({{ name }}_at4(row, stride, 8u * n), {{ name }}_at4(row, stride, 8u * n + 4u));
//# endif
}
//# endmacro
{{ chunk_reader("query", D) }}
{{ chunk_reader("key", D) }}
{{ chunk_reader("value", DV) }}
//##
//## Asks memory for the lines from `first` on; those past the last one are read from it.
//# macro load_lines(into, name, blocks, loads, first, last)
//# for n in range(loads)
      {
        let e = thread_index + {{ n }}u * WORKGROUP;
        let line = min({{ first }} + e / {{ 2 * blocks }}u, {{ last }});
        {{ into }}[{{ n }}] = {{ name }}_eight({{ name }}_head + line * params.{{ name }}_strides.z, params.{{ name }}_strides.w, e % {{ 2 * blocks }}u);
      }
//# endfor
//# endmacro
//##
//# macro store_lines(from, blocks, loads, turns=false)
//# for n in range(loads)
      {
        let e = thread_index + {{ n }}u * WORKGROUP;
        let line = {{ "turned(e / " ~ 2 * blocks ~ "u)" if turns else "e / " ~ 2 * blocks ~ "u" }};
//#   set last_ones = (n + 1) * WORKGROUP > BK * 2 * blocks
        {{ "if (e < " ~ BK * 2 * blocks ~ "u) " if last_ones }}{
          stage(line * {{ pitch }}u + e % {{ 2 * blocks }}u, {{ from }}[{{ n }}][0], {{ from }}[{{ n }}][1]);
        }
      }
//# endfor
//# endmacro
//##
//## Adds acc to the invocation's part of its row's sums, and begins again with zeros.
//# macro take_sums()
//# for first in range(0, value_blocks, key_blocks)
//#   set count = [key_blocks, value_blocks - first] | min
//#   for n in range(count)
    subgroupMatrixStore<row_major>(&scores[number], {{ 4 * n }}u, acc_{{ first + n }}, {{ score_pitch }}u);
    acc_{{ first + n }} = Result();
//#   endfor
    workgroupBarrier();
//#   for c in range(2 * count)
    sums[{{ 2 * first + c }}] += bitcast<vec4<f32>>(scores[number][own + {{ 2 * c }}u]);
//#   endfor
    workgroupBarrier();
//# endfor
//# endmacro
@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(subgroup_id) number: u32,
  @builtin(subgroup_invocation_id) lane: u32,
) {
{{ find_query_tile() }}
  let thread_index = (number * 32u + lane) % WORKGROUP;
  let row = lane / 2u % 16u;
  let part = lane % 2u;
  let own = row * {{ score_pitch }}u + part;
  let i = first_row + number * 16u + row;
  // Rows behind the last one have its query, and see what it sees.
  let position = min(i32(i) + shift, last_position);

  var key_ahead: array<array<vec4<f32>, 2>, {{ key_loads }}>;
  var value_ahead: array<array<vec4<f32>, 2>, {{ value_loads }}>;
  var s: array<vec4<f32>, {{ span4 }}>;
  var sums: array<vec4<f32>, {{ 2 * value_blocks }}>;
  var reference = LOWEST;
  var row_sum = 0.0;
  // Of 16 weights of a turn.
  var largest_sum = 0.0;
  var found = 0u;
//# for n in range(value_blocks)
  var acc_{{ n }} = Result();
//# endfor
//# for d in range(head_blocks)
  var upper_query_{{ d }} = Left();
  var lower_query_{{ d }} = Left();
//# endfor

  if (begin < end) {
    // The query goes to registers through the memory of the keys.
//# for pass in range(BQ // BK)
{{ load_lines("key_ahead", "query", head_blocks, key_loads, "first_row + " ~ pass * BK ~ "u", "last_row") }}
{{ store_lines("key_ahead", head_blocks, key_loads) }}
    workgroupBarrier();
//#   for block in range(key_blocks)
    if (number == {{ pass * key_blocks + block }}u) {
//#     for d in range(head_blocks)
      upper_query_{{ d }} = subgroupMatrixLoad<Left, row_major>(&upper, {{ 16 * block * pitch + 2 * d }}u, {{ pitch }}u);
      lower_query_{{ d }} = subgroupMatrixLoad<Left, row_major>(&lower, {{ 16 * block * pitch + 2 * d }}u, {{ pitch }}u);
//#     endfor
    }
//#   endfor
    workgroupBarrier();
//# endfor
    found |= seen_of(QUERY, largest);
    largest = 0.0;
{{ load_lines("key_ahead", "key", head_blocks, key_loads, "begin", "end - 1u") }}
{{ store_lines("key_ahead", head_blocks, key_loads) }}
{{ load_lines("key_ahead", "key", head_blocks, key_loads, "begin + BK", "end - 1u") }}
{{ load_lines("value_ahead", "value", value_blocks, value_loads, "begin", "end - 1u") }}
    workgroupBarrier();
  }
  var largest_key = largest;
  var largest_value = 0.0;

  // Whether a row may see its first key in this turn.
  var looks = true;
  var turn = 0u;
  for (var tile = begin; tile < end; tile += BK) {
    {
//# for k in range(key_blocks)
      var s_{{ k }} = Result();
//# endfor
//# for d in range(head_blocks)
//#   for k in range(key_blocks)
      {
        let k = subgroupMatrixLoad<Right, col_major>(&upper, {{ 16 * k * pitch + 2 * d }}u, {{ pitch }}u);
        s_{{ k }} = subgroupMatrixMultiplyAccumulate(upper_query_{{ d }}, k, s_{{ k }});
        s_{{ k }} = subgroupMatrixMultiplyAccumulate(lower_query_{{ d }}, k, s_{{ k }});
        let rest = subgroupMatrixLoad<Right, col_major>(&lower, {{ 16 * k * pitch + 2 * d }}u, {{ pitch }}u);
        s_{{ k }} = subgroupMatrixMultiplyAccumulate(upper_query_{{ d }}, rest, s_{{ k }});
      }
//#   endfor
//# endfor
//# for k in range(key_blocks)
      subgroupMatrixStore<row_major>(&scores[number], {{ 4 * k }}u, s_{{ k }}, {{ score_pitch }}u);
//# endfor
    }
    workgroupBarrier();
//# for c in range(span4)
    s[{{ c }}] = bitcast<vec4<f32>>(scores[number][own + {{ 2 * c }}u]) * (params.query_scale / (SCALE * SCALE));
//# endfor
    largest = 0.0;
{{ store_lines("value_ahead", value_blocks, value_loads, true) }}
    largest_value = max(largest_value, largest);
    if (tile + BK < end) {
{{ load_lines("value_ahead", "value", value_blocks, value_loads, "tile + BK", "end - 1u") }}
    }
    let first_key = tile + 4u * part;
{{ hide_unseen("tile") }}
    if (looks || !all_visible) {
      var max4 = s[0];
//# for c in range(1, span4)
      max4 = max(max4, s[{{ c }}]);
//# endfor
      var row_max = max(max(max4.x, max4.y), max(max4.z, max4.w));
      row_max = max(row_max, subgroupShuffleXor(row_max, 1u));
      reference = select(reference, max(reference, row_max), reference == LOWEST);
    }
    looks = !all_visible;
    var sum4 = vec4<f32>();
//# for c in range(0, span4, 2)
    {
      let p = {{ exp_of("s[" ~ c ~ "] - reference") }};
      let q = {{ exp_of("s[" ~ (c + 1) ~ "] - reference") }};
      sum4 += p + q;
{{ put_halves("p", "q", "scores[number][own + " ~ c ~ "u]", "scores[number][own + " ~ (span4 + c) ~ "u]") }}
    }
//# endfor
    let sum = (sum4.x + sum4.y) + (sum4.z + sum4.w);
    row_sum += sum;
    largest_sum = max(largest_sum, sum);
    workgroupBarrier();
    {
//# for k in range(key_blocks)
      let upper_weights_{{ k }} = subgroupMatrixLoad<Left, row_major>(&scores[number], {{ 2 * k }}u, {{ score_pitch }}u);
      let lower_weights_{{ k }} = subgroupMatrixLoad<Left, row_major>(&scores[number], {{ span4 + 2 * k }}u, {{ score_pitch }}u);
//# endfor
//# for k in range(key_blocks)
//#   for n in range(value_blocks)
      {
        let v = subgroupMatrixLoad<Right, row_major>(&upper, {{ 16 * k * pitch + 2 * n }}u, {{ pitch }}u);
        acc_{{ n }} = subgroupMatrixMultiplyAccumulate(upper_weights_{{ k }}, v, acc_{{ n }});
        acc_{{ n }} = subgroupMatrixMultiplyAccumulate(lower_weights_{{ k }}, v, acc_{{ n }});
        let rest = subgroupMatrixLoad<Right, row_major>(&lower, {{ 16 * k * pitch + 2 * n }}u, {{ pitch }}u);
        acc_{{ n }} = subgroupMatrixMultiplyAccumulate(upper_weights_{{ k }}, rest, acc_{{ n }});
      }
//#   endfor
//# endfor
    }
    workgroupBarrier();
    turn++;
    if (turn % TURNS_SUMMED == 0u || tile + BK >= end) {
{{ take_sums() }}
    }
    largest = 0.0;
    if (tile + BK < end) {
{{ store_lines("key_ahead", head_blocks, key_loads) }}
    }
    largest_key = max(largest_key, largest);
    if (tile + 2u * BK < end) {
{{ load_lines("key_ahead", "key", head_blocks, key_loads, "tile + 2u * BK", "end - 1u") }}
    }
    workgroupBarrier();
  }

  row_sum += subgroupShuffleXor(row_sum, 1u);
  let end_of_row = row_end(h, reference, row_sum);
  found |= seen_of(KEYS, largest_key) | seen_of(VALUES, largest_value);
  if (!(largest_sum < LARGEST) || !is_finite(row_sum)) {
    found |= UNFIT;
  }
  let out_row = dot(params.out_strides.xyz, vec3<u32>(b, h, i));
//# for c in range(2 * value_blocks)
  {
    let four = sums[{{ c }}] * (end_of_row.x / SCALE);
    if (!all(are_finite(four))) {
      found |= UNFIT;
    }
    let n = {{ 2 * c }}u + part;
    if (i <= last_row && n < DV4) {
      out_put4(out_row + 4u * n, four);
    }
  }
//# endfor
//# if return_lse
  if (i <= last_row && part == 0u) {
    store_lse((b * params.heads + h) * params.queries + i, end_of_row);
  }
//# endif
  atomicOr(&seen, found);
  workgroupBarrier();
  if (thread_index == 0u) {
    let all_found = atomicLoad(&seen);
    let sizes = QUERY | KEYS | VALUES;
    let too_small = (all_found & sizes) & ~((all_found / SIZE) & sizes);
    unfit[work] = select(0u, 1u, (all_found & UNFIT) != 0u || too_small != 0u);
  }
}
