//## Decode over tiles of 4-bit codes (lib/code_tiles.wgsl): as decode/split.wgsl, with products by subgroup matrices of
//## 8-bit integers. Each split writes its normalised output, still rotated, and its maximum and sum, which
//## decode/reduce.wgsl combines, or its LSE.
//##
//## A workgroup of four subgroups of 32 computes four query rows of a key/value head over TILES tiles of 128 keys, or
//## with `loops` over several runs of so many tiles with an online softmax. Numbers of queries are integers of 24 bits
//## but for a factor of their row, and so are a run's weights times the scales of their values. A matrix of 16 × 32 bytes
//## has byte p of row r in its row 4 p + r; the other matrix has the bytes of codes (lib/code_tiles.wgsl). So the sums of
//## products are exact, and sum = 65536 · sum of byte 2 + 256 · sum of byte 1 + sum of byte 0, the lower bytes being signed.
//## Where bytes of codes lie around MIDDLE and not around 0, MIDDLE times the sum of the integers is taken away.
//##
//##   Scores: subgroup w takes keys 32 w … 32 w + 31 of each tile, 16 at a time.
//##   Sums of values: subgroup w takes numbers 32 w … 32 w + 31 of the output for all keys of each tile.
//##   Softmax, weights, output: invocation `lane` of a subgroup has row lane / 8, and of its subgroup's 32 keys or
//##   numbers the four from 4 · (lane % 8) on.
//##
//## Workgroup memory holds the 12 rows of bytes of the queries, later those of a tile's weights, and for each subgroup
//## `stage`: 16 unpacked rows of codes, or the products of 32 of them. Memory is asked for `ahead` halves of a tile at a
//## time. Keys are taken in the order in which they lie; where a ring is turned (`turned`) their entries
//## follow from the slots. Slots past the cache's end are read, whatever is there, and hidden.
//# from "lib/storage.wgsl" import reader, writer, half_types
//# from "lib/exp.wgsl" import exp_of with context
//# from "lib/turboquant.wgsl" import rotation_in_subgroup with context
//# from "lib/splits.wgsl" import find_split, find_query, head_of, query_of with context
//# from "lib/thread_index.wgsl" import thread_index_arguments, swapped with context
{{ half_types(dtypes) }}
{{ reader("query", query_dtype, query_packed, D) }}
{{ writer("out", "float32") }}
//# include "lib/score.wgsl"
//# include "lib/row_end.wgsl"
//# include "lib/cache.wgsl"
//# include "lib/code_tiles.wgsl"
{{ rotation_in_subgroup(false) }}
//# set of_cache = "" if has_totals else "params."
//# set element = "b" if has_totals else ""
//# set asks_each_key = masks or has_score_mod or has_kept
//# set halves = 2 * TILES
//# set ahead = 3
alias Left = subgroup_matrix_left<i8, 32, 16>;
alias Right = subgroup_matrix_right<i8, 16, 32>;
alias Result = subgroup_matrix_result<i32, 16, 16>;
const ROWS = 4u;
//## Vec4s: of a tile, and of a row of bytes, of unpacked codes or of products in workgroup memory, with a gap that spares
//## conflicts of its banks.
const TILE_VEC4S = TILE_WORDS / 4u;
const BYTES_PITCH = 9u;
const PRODUCTS_PITCH = 10u;
const STAGE = 16u * PRODUCTS_PITCH;
const BYTES = 3u * ROWS * BYTES_PITCH;
// The largest integer of three bytes, but for what rounding may add to it.
const LARGEST = 8355584.0;
// Of a byte of codes, less MIDDLE: its number over its row's scale.
const BYTE = {{ half_step / (8 if uniform else 2) }}f;
//# if not uniform
const MIDDLE = 38;
//# endif
var<workgroup> memory: array<vec4<u32>, BYTES + 4u * STAGE>;
// The rows' factors first; later of each subgroup and row its maximum, sum and largest weight times scale.
var<workgroup> ends: array<vec4<f32>, 4u * ROWS>;

//# if not uniform
/// The upper halves of eight codes' bytes in each word. The lower two bits of a code are its group: groups 0 to 2 are
/// neighbouring bytes, 16 g + 16 to 16 g + 28 in fours; group 3 has those at the ends, 2, 10, 66 and 74.
fn upper_halves(codes: vec4<u32>) -> vec4<u32> {
  let groups = codes & vec4<u32>(0x33333333u);
  return (codes | vec4<u32>(0x33333333u)) & (groups + vec4<u32>(0x11111111u));
}

/// The lower halves of these bytes.
fn lower_halves(codes: vec4<u32>, upper: vec4<u32>) -> vec4<u32> {
  return ~(upper | (codes ^ vec4<u32>(0xeeeeeeeeu)));
}

//# endif
/// The low three bytes of four integers: the four bytes 0, then the bytes 1, then the bytes 2.
fn bytes_of(t: vec4<u32>) -> vec3<u32> {
  let x01 = (t.x & 0x00ff00ffu) | ((t.y << 8u) & 0xff00ff00u);
  let x23 = (t.z & 0x00ff00ffu) | ((t.w << 8u) & 0xff00ff00u);
  let y01 = ((t.x >> 8u) & 0xffu) | (t.y & 0xff00u);
  let y23 = ((t.z >> 8u) & 0xffu) | (t.w & 0xff00u);
  return vec3<u32>((x01 & 0xffffu) | (x23 << 16u), y01 | (y23 << 16u), (x01 >> 16u) | (x23 & 0xffff0000u));
}

/// Sums of products, from those with the bytes of a row's integers{{ " and the sum of these" if not uniform }}.
fn sum_of(byte_2: vec4<i32>, byte_1: vec4<i32>, byte_0: vec4<i32>{{ ", integers: vec2<i32>" if not uniform }}) -> vec4<f32> {
//# if uniform
  return fma(vec4<f32>(byte_2), vec4<f32>(65536.0), vec4<f32>(byte_1 * 256 + byte_0));
//# else
  let away = MIDDLE * integers;
  return fma(vec4<f32>(byte_2 - away.x), vec4<f32>(65536.0), vec4<f32>(byte_1 * 256 + byte_0 - away.y));
//# endif
}
//# if not uniform

/// Integers as x · 65536 + y, whose products with MIDDLE have room in 32 bits.
fn parts_of(integers: u32) -> vec2<i32> {
  return vec2<i32>(bitcast<i32>(integers) >> 16u, i32(integers & 0xffffu));
}

/// A word of an invocation's own in the gaps between a subgroup's rows of products. A sum that eight invocations have is
/// written by all of them, since a branch for one of them would take a quarter of the kernel's time (bench/NOTES.md).
fn gap_of(subgroup: u32, lane: u32) -> u32 {
  return BYTES + subgroup * STAGE + lane / 2u * PRODUCTS_PITCH + 8u + lane % 2u;
}
//# endif

fn largest_of(v: vec4<u32>) -> u32 {
  return max(max(v.x, v.y), max(v.z, v.w));
}

/// For each of four keys whether its score hides it, without branches.
fn hidden4(s: vec4<f32>) -> vec4<bool> {
  return vec4<bool>(is_hidden(s.x), is_hidden(s.y), is_hidden(s.z), is_hidden(s.w));
}
//# if turned

/// The entries in four slots, the oldest being entry 0.
fn entries_of(slot: vec4<i32>, start: i32) -> vec4<i32> {
  let kept = i32(params.kept);
  let entry = slot - start;
  let around = select(entry, entry + (i32(params.capacity) - kept), entry < vec4<i32>(kept));
  return {{ "select(around, slot, slot < vec4<i32>(kept))" if has_kept else "around" }};
}
//# endif
//##
//## Unpacks the codes of 16 keys or numbers, of which this invocation has `first` of the first eight and `second` of the
//## others, into its subgroup's stage.
//# macro stage_codes(first, second)
//#   for half in (first, second)
//#     set place = "own_stage + " ~ loop.index0 * 8 ~ "u * BYTES_PITCH"
//#     if uniform
    memory[{{ place }}] = ({{ half }} & high_halves) | middle;
    memory[{{ place }} + 1u] = (({{ half }} << vec4<u32>(4u)) & high_halves) | middle;
//#     else
    {
      let upper = upper_halves({{ half }});
      let lower = lower_halves({{ half }}, upper);
      // One instruction each: of the first where a bit of `high_halves` is 1, otherwise of the second.
      let lower_down = lower >> vec4<u32>(4u);
      memory[{{ place }}] = ((upper ^ lower_down) & high_halves) ^ lower_down;
      memory[{{ place }} + 1u] = (((upper << vec4<u32>(4u)) ^ lower) & high_halves) ^ lower;
    }
//#     endif
//#   endfor
//# endmacro
//##
//## Adds the products of four matrices of rows' bytes with the 16 staged keys or numbers to `sums`.
//# macro multiply_staged(rows, sums)
//#   for n in range(4)
    {
      let staged = subgroupMatrixLoad<Right, col_major>(&memory, stage + {{ 2 * n }}u, BYTES_PITCH);
      {{ sums }} = subgroupMatrixMultiplyAccumulate({{ rows }}_{{ n }}, staged, {{ sums }});
    }
//#   endfor
//# endmacro
//##
//# macro load_rows(name)
//#   for n in range(4)
    {{ name }}_{{ n }} = subgroupMatrixLoad<Left, row_major>(&memory, {{ 2 * n }}u, BYTES_PITCH);
//#   endfor
//# endmacro
//##
//## Asks for a half of a tile: of the run's keys, 16 of this subgroup's, then of its values, 16 numbers of its part of the
//## output. Halves are counted over both.
//# macro load_half(n)
//#   if n < 2 * halves
//#     set codes, name, i = ("key", "k", n) if n < halves else ("value", "v", n - halves)
    {{ name }}{{ i }}_0 = {{ codes }}[run + own_codes + {{ i // 2 }}u * TILE_VEC4S + {{ i % 2 * 64 }}u];
    {{ name }}{{ i }}_1 = {{ codes }}[run + own_codes + {{ i // 2 }}u * TILE_VEC4S + {{ i % 2 * 64 + 32 }}u];
//#   endif
//# endmacro
//##
//## s_t: the scores of row r and four keys of the t-th tile of the run, from the staged products.
//# macro find_scores(t)
    {
      let byte_2 = bitcast<vec4<i32>>(memory[own_products + 2u * ROWS * PRODUCTS_PITCH]);
      let byte_1 = bitcast<vec4<i32>>(memory[own_products + ROWS * PRODUCTS_PITCH]);
      let byte_0 = bitcast<vec4<i32>>(memory[own_products]);
      let sum = sum_of(byte_2, byte_1, byte_0{{ ", query_integers" if not uniform }});
      let product = sum * factor * key_scale_{{ t }};
      let slot = vec4<i32>(i32((tile + {{ t }}u) * TILE_ROWS + subgroup * 32u + quad * 4u)) + vec4<i32>(0, 1, 2, 3);
      let entry = {{ "entries_of(slot, start)" if turned else "slot" }};
//#   if asks_each_key
      for (var n = 0u; n < 4u; n++) {
        let e = u32(entry[n]);
        let masked = score(product[n], b, own_head, own_query, e, position, length);
        let seen = {{ "(slot[n] < length) & is_behind_padding(e, padding)" if has_left_padding else "slot[n] < length" }};
        s_{{ t }}[n] = select(params.empty_lse, masked, seen);
      }
//#   else
//#     for n in range(4)
      s_{{ t }}[{{ n }}] = shaped(product[{{ n }}]);
//#     endfor
      let seen = (entry >= vec4<i32>(lowest)) & (entry <= vec4<i32>(highest)){{ " & (slot < vec4<i32>(length))" if turned }};
      s_{{ t }} = select(vec4<f32>(params.empty_lse), s_{{ t }}, seen);
//#   endif
      row_max = max(row_max, max(max(s_{{ t }}.x, s_{{ t }}.y), max(s_{{ t }}.z, s_{{ t }}.w)));
    }
//# endmacro
//##
//## Puts the bytes of the t-th tile's weights times scales where the queries' bytes were.
//# macro stage_weights(t)
    {
      // Added to 2^23, whose lowest bit counts 1, the lower bits of a float are the rounded integer.
      let whole = bitcast<vec4<u32>>(fma(s_{{ t }} * to_1, vec4<f32>(LARGEST), vec4<f32>(8388608.0)));
      let words = bytes_of(whole + vec4<u32>(0x8080u));
//#   if not uniform
      integers += (whole.x + whole.y) + (whole.z + whole.w);
//#   endif
      memory[own_weights][own_part] = words.x ^ 0x80808080u;
      memory[own_weights + ROWS * BYTES_PITCH][own_part] = words.y ^ 0x80808080u;
      memory[own_weights + 2u * ROWS * BYTES_PITCH][own_part] = words.z;
    }
//# endmacro

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
{{ thread_index_arguments() }}
) {
{{ find_split() }}
  // From the subgroup's own number: offsets of matrices must be uniform in a subgroup, which compilers believe of this.
  let subgroup = subgroup_number % 4u;
  let lane = subgroup_lane % 32u;
  let r = lane / 8u;
  let quad = lane % 8u;
  // With a 0 that the compiler does not know: two known constants would take another instruction.
  let zero = params.zero;
//# if uniform
  let high_halves = vec4<u32>(0xf0f0f0f0u);
  let middle = vec4<u32>(0x08080808u | zero);
//# else
  let high_halves = vec4<u32>(0xf0f0f0f0u | zero);
//# endif
  let rows = params.group * params.queries;
  let length = i32(cache_length({{ element }}));
  let shift = query_shift(length);
//# if turned
  let start = i32(cache_start({{ element }}));
//# endif
//# if has_totals
  find_cache(b);
//# endif
//# if has_left_padding
  let padding = padding_of(b);
//# endif
  // The row of this invocation, and what it sees.
  let own_row = min(row_tile * ROWS + r, rows - 1u);
  let own_head = {{ head_of("own_row") }};
  let own_query = {{ query_of("own_row") }};
  let position = i32(own_query) + shift;
//# if not asks_each_key
//#   if has_left_padding
  let lowest = max(position - params.window_left, padding - {{ of_cache }}dropped);
//#   else
  let lowest = position - params.window_left;
//#   endif
  let highest = min(length - 1, position + params.window_right);
//# endif

  // Where this invocation's parts of keys, numbers of values, scales and products are.
  let stage = BYTES + subgroup * STAGE;
  let own_stage = stage + (lane / 4u) * BYTES_PITCH + (lane % 4u) * 2u;
  let own_products = stage + r * PRODUCTS_PITCH + quad;
  let own_weights = r * BYTES_PITCH + subgroup * 2u + quad / 4u;
  let own_part = quad % 4u;
  let first_tile = (b * params.kv_heads + kv_head) * tiles_of(params.capacity);
  var tile = params.first_tile + split * params.split_first;
  let own_codes = subgroup * 128u + lane;
  let own_scales = TILE_ROWS * GROUP_WORDS / 4u + subgroup * 8u + quad;
//# for name in ("k", "v")
//#   for i in range(halves)
  var {{ name }}{{ i }}_0 = vec4<u32>();
  var {{ name }}{{ i }}_1 = vec4<u32>();
//#   endfor
//# endfor
//# if not loops
  let run = (first_tile + tile) * TILE_VEC4S;
//#   for i in range(ahead)
{{ load_half(i) }}
//#   endfor
//# endif

  {
    // Without a branch, in which compilers would wait for memory: rows past the end have the last query.
    let row = min(row_tile * ROWS + subgroup, rows - 1u);
{{ find_query("row") }}
    var four = query_at4(at, params.query_strides.w, 4u * lane) * params.query_scale;
    four = rotate(four, subgroup_lane, ROUNDS + zero);
    // Compared as bits, in which infinities and NaN are the largest: the row then has a factor that is not finite.
    var largest_bits = largest_of(bitcast<vec4<u32>>(four) & vec4<u32>(0x7fffffffu));
//# for bit in (1, 2, 4, 8, 16)
    largest_bits = max(largest_bits, {{ swapped("largest_bits", bit) }});
//# endfor
    let largest = bitcast<f32>(max(largest_bits, 0x0da24260u));
    let whole = bitcast<vec4<u32>>(vec4<i32>(round(four * (LARGEST / largest))));
    let words = bytes_of(whole + vec4<u32>(0x808080u)) ^ vec3<u32>(0x80808080u);
//# for byte in range(3)
    memory[({{ byte }}u * ROWS + subgroup) * BYTES_PITCH + lane / 4u][lane % 4u] = words[{{ byte }}];
//# endfor
    ends[subgroup].w = largest * (BYTE / LARGEST);
//# if not uniform
    var integers = (whole.x + whole.y) + (whole.z + whole.w);
//#   for bit in (1, 2, 4, 8, 16)
    integers += {{ swapped("integers", bit) }};
//#   endfor
    memory[gap_of(subgroup, lane)].x = integers;
//# endif
  }
  workgroupBarrier();
  let factor = ends[r].w;
//# for name in ("q", "w")
//#   for n in range(4)
  var {{ name }}_{{ n }} = Left();
//#   endfor
//# endfor
{{ load_rows("q") }}
//# if not uniform
  // Subgroup r has the r-th row.
  let query_integers = parts_of(memory[gap_of(r, lane)].x);
//# endif
  workgroupBarrier();
//# if loops
  var all_max = LOWEST;
  var all_sum = 0.0;
  var out4 = vec4<f32>();
  for (var step = 0u; step < params.steps; step++) {
    let run = (first_tile + tile) * TILE_VEC4S;
//#   for i in range(ahead)
{{ load_half(i) }}
//#   endfor
//# endif
  var row_max = LOWEST;
//# for t in range(TILES)
  var s_{{ t }} = vec4<f32>();
//# endfor
//# for i in range(halves)
//#   set t = i // 2
{{ stage_codes("k" ~ i ~ "_0", "k" ~ i ~ "_1") }}
{{ load_half(i + ahead) }}
//#   if i % 2 == 0
    let key_scale_{{ t }} = bitcast<vec4<f32>>(key[run + {{ t }}u * TILE_VEC4S + own_scales]);
//#   endif
    workgroupBarrier();
    var products_{{ i }} = Result();
{{ multiply_staged("q", "products_" ~ i) }}
//#   if i % 2 == 0
    workgroupBarrier();
//#   else
    // The products take the place of the second half's codes: all invocations have read these, since the products are
    // the whole subgroup's.
    subgroupMatrixStore<row_major>(&memory, stage, products_{{ i - 1 }}, PRODUCTS_PITCH);
    subgroupMatrixStore<row_major>(&memory, stage + 4u, products_{{ i }}, PRODUCTS_PITCH);
    workgroupBarrier();
{{ find_scores(t) }}
    workgroupBarrier();
//#   endif
//# endfor
//# for t in range(TILES)
    let value_scale_{{ t }} = bitcast<vec4<f32>>(value[run + {{ t }}u * TILE_VEC4S + own_scales]);
//# endfor
//# for bit in (1, 2, 4)
    row_max = max(row_max, {{ swapped("row_max", bit) }});
//# endfor
    var sum4 = vec4<f32>();
    var top4 = vec4<u32>();
//# for t in range(TILES)
    {
      // Nothing of a hidden key counts, whatever its scale is.
      let scale = select(value_scale_{{ t }}, vec4<f32>(), hidden4(s_{{ t }}));
      s_{{ t }} = {{ exp_of("s_" ~ t ~ " - row_max") }};
      sum4 += s_{{ t }};
      s_{{ t }} *= scale;
      top4 = max(top4, bitcast<vec4<u32>>(s_{{ t }}));
    }
//# endfor
    var row_sum = (sum4.x + sum4.y) + (sum4.z + sum4.w);
    // As bits, in which NaN is the largest: it must not be lost.
    var top_bits = largest_of(top4);
//# for bit in (1, 2, 4)
    row_sum += {{ swapped("row_sum", bit) }};
    top_bits = max(top_bits, {{ swapped("top_bits", bit) }});
//# endfor
    if (quad == 0u) {
      ends[subgroup * ROWS + r] = vec4<f32>(row_max, row_sum, bitcast<f32>(top_bits), 0.0);
    }
    workgroupBarrier();
//# for n in range(4)
    let end_{{ n }} = ends[{{ n }}u * ROWS + r];
//# endfor
    let run_max = max(max(end_0.x, end_1.x), max(end_2.x, end_3.x));
    let rescale4 = {{ exp_of("vec4<f32>(end_0.x, end_1.x, end_2.x, end_3.x) - run_max") }};
    let run_sum = dot(rescale4, vec4<f32>(end_0.y, end_1.y, end_2.y, end_3.y));
    let run_top = bitcast<f32>(largest_of(bitcast<vec4<u32>>(rescale4 * vec4<f32>(end_0.z, end_1.z, end_2.z, end_3.z))));
    // Not with a factor that rounds to an infinity.
    let to_1 = {{ exp_of("row_max - run_max") }} / max(run_top, 1e-37);
//# if not uniform
    // Floats from 2^23 on, which are added as bits, count 0x4b000000 too much each.
    var integers = {{ -4 * TILES * 0x4b000000 % 2 ** 32 }}u;
//# endif
    var sums_0 = Result();
    var sums_1 = Result();
//# for i in range(halves)
//#   if i % 2 == 0
{{ stage_weights(i // 2) }}
//#   endif
{{ stage_codes("v" ~ i ~ "_0", "v" ~ i ~ "_1") }}
{{ load_half(halves + i + ahead) }}
    workgroupBarrier();
//#   if i % 2 == 0
{{ load_rows("w") }}
//#   endif
{{ multiply_staged("w", "sums_" ~ i % 2) }}
//#   if i + 1 < halves
    workgroupBarrier();
//#   endif
//# endfor
    subgroupMatrixStore<row_major>(&memory, stage, sums_0, PRODUCTS_PITCH);
    subgroupMatrixStore<row_major>(&memory, stage + 4u, sums_1, PRODUCTS_PITCH);
//# if not uniform
//#   for bit in (1, 2, 4)
    integers += {{ swapped("integers", bit) }};
//#   endfor
    memory[gap_of(subgroup, lane)].x = integers;
//# endif
    workgroupBarrier();
    let byte_2 = bitcast<vec4<i32>>(memory[own_products + 2u * ROWS * PRODUCTS_PITCH]);
    let byte_1 = bitcast<vec4<i32>>(memory[own_products + ROWS * PRODUCTS_PITCH]);
    let byte_0 = bitcast<vec4<i32>>(memory[own_products]);
//# if not uniform
    var weight_integers = vec2<i32>();
//#   for n in range(4)
    weight_integers += parts_of(memory[gap_of({{ n }}u, lane)].x);
//#   endfor
//# endif
    // Normalised at once, so that nothing overflows.
    let run_factor = select(0.0, run_top / run_sum * (BYTE / LARGEST), run_sum != 0.0);
    let run_out = sum_of(byte_2, byte_1, byte_0{{ ", weight_integers" if not uniform }}) * run_factor;
//# if loops
    let new_max = max(all_max, run_max);
    let old_sum = all_sum * {{ exp_of("all_max - new_max") }};
    let added_sum = run_sum * {{ exp_of("run_max - new_max") }};
    all_max = new_max;
    all_sum = old_sum + added_sum;
    let share = select(0.0, added_sum / all_sum, all_sum != 0.0);
    out4 = fma(out4, vec4<f32>(1.0 - share), run_out * share);
    tile += params.split_stride;
    workgroupBarrier();
  }
//# else
  let all_max = run_max;
  let all_sum = run_sum;
  let out4 = run_out;
//# endif

  let row = row_tile * ROWS + r;
  if (row < rows) {
    let n = ((b * params.heads + own_head) * params.queries + own_query) * params.splits + split;
    let end_of_row = row_end(own_head, all_max, all_sum);
    out_put4(4u * (n * (D / 4u) + subgroup * 8u + quad), select(vec4<f32>(not_a_number()), out4, is_finite(all_sum)));
    if (subgroup == 0u && quad == 0u) {
//# if is_partial
      partial_rows[n] = end_of_row.zw;
//# else
      store_lse(n, end_of_row);
//# endif
    }
  }
}
