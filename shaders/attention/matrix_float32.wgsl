//## float32 attention on subgroup matrices of float16: each number is the sum of two halves, `upper` and `lower`, and a
//## product upper · upper + upper · lower + lower · upper, which is exact to 2^-21 of it. So it takes three products of
//## matrices, as TF32 and bfloat16 do elsewhere (Ootomo and Yokota, arXiv 2203.03341); sums are float32.
//##
//## Matrix units cut sums off instead of rounding them. An error that grows with the number of terms would be left, so
//## every TURNS_SUMMED tiles of keys acc is taken out of the matrices and added to `sums`, in registers.
//##
//## A workgroup has SUBGROUPS subgroups of 32, each with 16 query rows, whose halves stay in registers. All go through the
//## keys BK at a time, whose halves are staged in workgroup memory, as those of the values are. Scores go through workgroup
//## memory too, where two invocations share a row (lib/matrix_rows.wgsl), and come back as two halves of each weight, in
//## the same place: the upper ones first. A turn, that is a tile of keys, has two barriers:
//##   products of query and keys, scores stored
//##   barrier: scores are read, the next keys and this tile's values staged, those behind them asked for; scores become
//##     weights
//##   barrier: weights · values are added
//## As in attention/matrix.wgsl there is none before the next scores are stored, on memory of the same subgroup. With
//## `in_turn` keys and values take turns in the same workgroup memory, so that more workgroups fit into a core, and the next
//## keys are staged between two more barriers when the values have been read.
//##
//## A row's weights are relative to its maximum in the first tile that it sees, and do not move: float16 has room for
//## weights of 2^15 times as much. What has no room, in weights or in the numbers times SCALE, and numbers so small that
//## halves would lose digits of them, make the tile unfit: its entry of `unfit` becomes 1, and attention/tiled.wgsl computes it
//## in float32 afterwards. So NaN and infinities need no care here, but that none is overlooked.
//##
//## The TURNS_SUMMED turns after which acc is taken out are steady ones where every row sees all of their keys and has seen
//## one before them: then nothing is masked and no maximum looked for.
//# from "lib/storage.wgsl" import reader, writer, half_types
//# from "lib/exp.wgsl" import exp_of with context
//# from "lib/query_tile.wgsl" import find_query_tile with context
//# from "lib/matrix_rows.wgsl" import row_arguments, find_row, turned_lines, hide_unseen with context
//# set head_blocks = (D + 15) // 16
//# set value_blocks = (DV + 15) // 16
//# set key_blocks = BK // 16
//## Vec4s of scores that an invocation has of its row.
//# set span4 = BK // 8
//## Lines of eight halves an entry, one longer than what they hold; lines of scores two: eight neighbours then spread over
//## all banks, and matrices are stored without conflicts (bench/NOTES.md).
//# set key_pitch = 2 * head_blocks + 1
//# set value_pitch = 2 * value_blocks + 1
//# set values = "keys" if in_turn else "values"
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
var<workgroup> keys: array<vec4<u32>, {{ 2 * BK * ([key_pitch, value_pitch] | max if in_turn else key_pitch) }}>;
//# if not in_turn
var<workgroup> values: array<vec4<u32>, {{ 2 * BK * value_pitch }}>;
//# endif
var<workgroup> scores: array<array<vec4<u32>, {{ 16 * score_pitch }}>, SUBGROUPS>;
var<workgroup> seen: atomic<u32>;

{{ turned_lines() }}

/// Numbers of a float16's digits, the nearest ones. Not by converting there and back, which drivers leave out.
fn upper_part(x: vec4<f32>) -> vec4<f32> {
  return bitcast<vec4<f32>>((bitcast<vec4<u32>>(x) + vec4<u32>(0x1000u)) & vec4<u32>(0xffffe000u));
}

/// Halves of eight numbers as they lie in memory.
struct Halves {
  upper: vec4<u32>,
  lower: vec4<u32>,
}

fn halves(x: vec4<f32>, y: vec4<f32>) -> Halves {
  let upper_x = upper_part(x);
  let upper_y = upper_part(y);
  let lower_x = x - upper_x;
  let lower_y = y - upper_y;
  let half_a = vec4<f16>(upper_x);
  let half_b = vec4<f16>(upper_y);
  let half_c = vec4<f16>(lower_x);
  let half_d = vec4<f16>(lower_y);
  return Halves(
    vec4<u32>(bitcast<vec2<u32>>(half_a), bitcast<vec2<u32>>(half_b)),
    vec4<u32>(bitcast<vec2<u32>>(half_c), bitcast<vec2<u32>>(half_d)),
  );
}

/// The largest size of eight numbers.
fn size_of(x: vec4<f32>, y: vec4<f32>) -> f32 {
  let four = max(abs(x), abs(y));
  return max(max(four.x, four.y), max(four.z, four.w));
}

/// What the largest size says of the query, the keys or the values.
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
//# macro load_lines(name, blocks, loads, first)
//# for n in range(loads)
      {
        let e = thread_index + {{ n }}u * WORKGROUP;
        let line = min({{ first }} + e / {{ 2 * blocks }}u, end - 1u);
        {{ name }}_ahead[{{ n }}] = {{ name }}_eight({{ name }}_head + line * params.{{ name }}_strides.z, params.{{ name }}_strides.w, e % {{ 2 * blocks }}u);
      }
//# endfor
//# endmacro
//##
//## Stages lines of `from`, from number `first` of it on, and notes the largest size among them.
//# macro store_lines(from, memory, blocks, loads, size, turns=false, first=0)
//# set pitch = 2 * blocks + 1
//# for n in range(loads)
      {
        let e = thread_index + {{ n }}u * WORKGROUP;
        let line = {{ "turned(e / " ~ 2 * blocks ~ "u)" if turns else "e / " ~ 2 * blocks ~ "u" }};
//#   set last_ones = (n + 1) * WORKGROUP > BK * 2 * blocks
        {{ "if (e < " ~ BK * 2 * blocks ~ "u) " if last_ones }}{
          let x = {{ from }}[{{ first + n }}][0] * SCALE;
          let y = {{ from }}[{{ first + n }}][1] * SCALE;
          {{ size }} = max({{ size }}, size_of(x, y));
          let pair = halves(x, y);
          let entry = line * {{ pitch }}u + e % {{ 2 * blocks }}u;
          {{ memory }}[entry] = pair.upper;
          {{ memory }}[entry + {{ BK * pitch }}u] = pair.lower;
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
//##
//## One turn: `tile` is the first key of its tile.
//# macro take_tile(is_steady)
    {
//# for k in range(key_blocks)
      var s_{{ k }} = Result();
//# endfor
//# for d in range(head_blocks)
//#   for k in range(key_blocks)
      {
        let k = subgroupMatrixLoad<Right, col_major>(&keys, {{ 16 * k * key_pitch + 2 * d }}u, {{ key_pitch }}u);
        s_{{ k }} = subgroupMatrixMultiplyAccumulate(upper_query_{{ d }}, k, s_{{ k }});
        s_{{ k }} = subgroupMatrixMultiplyAccumulate(lower_query_{{ d }}, k, s_{{ k }});
        let rest = subgroupMatrixLoad<Right, col_major>(&keys, {{ (BK + 16 * k) * key_pitch + 2 * d }}u, {{ key_pitch }}u);
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
//# if not in_turn
{{ store_lines("key_ahead", "keys", head_blocks, key_loads, "largest_key") }}
//# endif
{{ store_lines("value_ahead", values, value_blocks, value_loads, "largest_value", turns=true) }}
    if (tile + BK < end) {
{{ load_lines("value", value_blocks, value_loads, "tile + BK") }}
//# if not in_turn
{{ load_lines("key", head_blocks, key_loads, "tile + 2u * BK") }}
//# endif
    }
//#   if not is_steady
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
//#   endif
    var sum4 = vec4<f32>();
//# for c in range(0, span4, 2)
    {
      let p = {{ exp_of("s[" ~ c ~ "] - reference") }};
      let q = {{ exp_of("s[" ~ (c + 1) ~ "] - reference") }};
      sum4 += p + q;
      let pair = halves(p, q);
      scores[number][own + {{ c }}u] = pair.upper;
      scores[number][own + {{ span4 + c }}u] = pair.lower;
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
        let v = subgroupMatrixLoad<Right, row_major>(&{{ values }}, {{ 16 * k * value_pitch + 2 * n }}u, {{ value_pitch }}u);
        acc_{{ n }} = subgroupMatrixMultiplyAccumulate(upper_weights_{{ k }}, v, acc_{{ n }});
        acc_{{ n }} = subgroupMatrixMultiplyAccumulate(lower_weights_{{ k }}, v, acc_{{ n }});
        let rest = subgroupMatrixLoad<Right, row_major>(&{{ values }}, {{ (BK + 16 * k) * value_pitch + 2 * n }}u, {{ value_pitch }}u);
        acc_{{ n }} = subgroupMatrixMultiplyAccumulate(upper_weights_{{ k }}, rest, acc_{{ n }});
      }
//#   endfor
//# endfor
    }
//# if in_turn
    workgroupBarrier();
{{ store_lines("key_ahead", "keys", head_blocks, key_loads, "largest_key") }}
    if (tile + BK < end) {
{{ load_lines("key", head_blocks, key_loads, "tile + 2u * BK") }}
    }
    workgroupBarrier();
//# endif
//# endmacro
@compute @workgroup_size(WORKGROUP)
fn main(
{{ row_arguments() }}
) {
{{ find_query_tile() }}
{{ find_row(true) }}
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
  var largest_query = 0.0;
  var largest_key = 0.0;
  var largest_value = 0.0;
  // Of an invocation's weights in a turn.
  var largest_sum = 0.0;
//# for n in range(value_blocks)
  var acc_{{ n }} = Result();
//# endfor
//# for d in range(head_blocks)
  var upper_query_{{ d }} = Left();
  var lower_query_{{ d }} = Left();
//# endfor

  // The query, the first keys and their values are asked for at once.
  var query_ahead: array<array<vec4<f32>, 2>, {{ BQ // BK * key_loads }}>;
  if (begin < end) {
//# for pass in range(BQ // BK)
//#   for n in range(key_loads)
    {
      let e = thread_index + {{ n }}u * WORKGROUP;
      let line = min(first_row + {{ pass * BK }}u + e / {{ 2 * head_blocks }}u, last_row);
      query_ahead[{{ pass * key_loads + n }}] = query_eight(query_head + line * params.query_strides.z, params.query_strides.w, e % {{ 2 * head_blocks }}u);
    }
//#   endfor
//# endfor
{{ load_lines("key", head_blocks, key_loads, "begin") }}
{{ load_lines("value", value_blocks, value_loads, "begin") }}
  }
  if (begin < end) {
    // The query goes to registers through the memory of the keys.
//# for pass in range(BQ // BK)
{{ store_lines("query_ahead", "keys", head_blocks, key_loads, "largest_query", first=pass * key_loads) }}
    workgroupBarrier();
//#   for block in range(key_blocks)
    if (number == {{ pass * key_blocks + block }}u) {
//#     for d in range(head_blocks)
      upper_query_{{ d }} = subgroupMatrixLoad<Left, row_major>(&keys, {{ 16 * block * key_pitch + 2 * d }}u, {{ key_pitch }}u);
      lower_query_{{ d }} = subgroupMatrixLoad<Left, row_major>(&keys, {{ (BK + 16 * block) * key_pitch + 2 * d }}u, {{ key_pitch }}u);
//#     endfor
    }
//#   endfor
    workgroupBarrier();
//# endfor
{{ store_lines("key_ahead", "keys", head_blocks, key_loads, "largest_key") }}
{{ load_lines("key", head_blocks, key_loads, "begin + BK") }}
    workgroupBarrier();
  }
  // Whether a row may see its first key in this turn.
  var looks = true;
  for (var block = begin; block < end; block += TURNS_SUMMED * BK) {
    let block_end = min(end, block + TURNS_SUMMED * BK);
    // Whether every row sees every key of these tiles, and has a reference.
    let is_steady = !looks && block + TURNS_SUMMED * BK <= end && i32(block_end) - 1 <= first_position + params.window_right
      && i32(block) >= last_position - params.window_left;
    if (is_steady) {
      for (var tile = block; tile < block_end; tile += BK) {
{{ take_tile(true) }}
      }
    } else {
      for (var tile = block; tile < block_end; tile += BK) {
{{ take_tile(false) }}
      }
    }
{{ take_sums() }}
  }

  row_sum += subgroupShuffleXor(row_sum, 1u);
  let end_of_row = row_end(h, reference, row_sum);
  var found = seen_of(QUERY, largest_query) | seen_of(KEYS, largest_key) | seen_of(VALUES, largest_value);
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
