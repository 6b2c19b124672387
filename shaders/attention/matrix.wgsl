//## FlashAttention-2 (Dao, arXiv 2307.08691) with subgroup matrices: float16 operands, float32 sums
//## (WGSL's chromium_experimental_subgroup_matrix, https://github.com/gpuweb/gpuweb/blob/main/proposals/subgroup-matrix.md).
//##
//## A workgroup has SUBGROUPS subgroups of 32, in teams of one or two (`team`). A team owns 16 · team query rows. All teams
//## go through the keys BK at a time, which are staged in workgroup memory with the values.
//##
//## Every member of a team keeps the query of all its rows in registers, as matrices. It multiplies them by its own
//## part of a tile's keys, and the rows' weights by its own part of the values' columns: of two members each reads half of
//## the operands that one would read. For the softmax each member has 16 of the rows. Their scores go through workgroup
//## memory, where two invocations share a row, and come back as float16 weights: in the same place, or, where a member
//## may store its next scores while another still reads the weights, in memory of their own (`weights_apart`). Two
//## barriers order memory in each turn, that is for each tile of keys:
//##   products of query and keys, scores stored
//##   barrier: scores are read, the next keys and this tile's values staged, those behind them asked for; scores become
//##     weights
//##   barrier: weights · values are added
//## With `in_turn` keys and values take turns in the same workgroup memory, so that more workgroups fit into a core, and
//## the next keys are staged between two more barriers when the values have been read.
//##
//## Which scores and weights of a row are whose: lib/matrix_rows.wgsl. Where weights lie in their scores' place there is no
//## barrier between reading them and storing the next scores: both are operations of the whole subgroup, one after the
//## other, on memory that no other subgroup touches.
//##
//## A result matrix is opaque, so its rows can be rescaled only through memory. A row's weights are therefore not relative
//## to its maximum but to a reference, which may lie below it: float16 has room for weights up to 2^15, and a weight's
//## relative error does not depend on its size. There are two kinds of turns:
//##   moving turns   find each row's maximum, and move its reference up where that is more than `slack` powers of two above
//##                  it. A uniform load in place of the second barrier says whether one moved; then acc is rescaled.
//##   steady turns   neither find a maximum nor mask anything. They do not move references.
//## Moving turns come first: the tiles of which some row does not see every key, and the first tile. All others are steady
//## turns. In them the workgroup looks at times whether a weight became too large for float16; if so it begins again, with
//## moving turns only. So a call whose scores rise by more than 2^12 to 2^16 after those tiles takes up to a third longer
//## than one of moving turns alone. Where a mod, a mask or a softcap shapes scores all turns are moving ones.
//##
//## A weight of zero would make NaN of a value that is not finite, in a row that does not see it. So where keys are hidden
//## moving turns leave such halves of values out, and seen_numbers_not_finite finds those that a row sees afterwards. Where
//## keys are only hidden past the last one (`fills_up`), values are zeros there.
//##
//## row_sum adds the rounded weights, so that the weights in use sum to one: then a rounding error of a weight moves
//## the output only as far as its value differs from the output. The LSE adds the unrounded weights.
//##
//## Both products may be computed transposed, as keys · query and values · weights, each invocation then having numbers of
//## a column where it had some of a row. Memory has a line for each row either way. Reading weights as matrices has no
//## conflicts of banks where lines are an odd number of entries (of 16 bytes) apart; storing scores has none where that is
//## an even number, or odd and the scores transposed. So the products are `transposed` where weights lie in their scores'
//## place. Where they lie apart each has its own lines, and scores are stored in half as many instructions as rows.
//##
//## Every offset of a matrix in memory is constant (what belongs to a subgroup or a team is an array of its own): Tint then
//## knows that it is in bounds; otherwise it would put each load into a branch.
//# from "lib/storage.wgsl" import half_types
//# from "lib/exp.wgsl" import exp_of with context
//# from "lib/query_tile.wgsl" import find_query_tile with context
//# from "lib/matrix_rows.wgsl" import row_arguments, find_row, turned_lines, hide_unseen with context
//# set head_blocks = (D + 15) // 16
//# set value_blocks = (DV + 15) // 16
//# set key_blocks = BK // 16
//## Blocks of 16 keys, and of 16 columns of the values, that a member of a team multiplies.
//# set own_keys = key_blocks // team
//# set own_values = (value_blocks + team - 1) // team
//## Vec4s of scores that an invocation has of its row.
//# set span4 = BK // 8
//# set values = "keys" if in_turn else "values"
//# set transposed = not weights_apart
//# set weights = "weights[team_number]" if weights_apart else "scores[number - side]"
//## How often the loops over tiles are written out. The driver writes out a loop eight times where the kernel is short;
//## what is written out here it leaves as it is (bench/NOTES.md).
//# set steady_written_out = 2 if in_turn and not hides else 1
//# set moving_written_out = 1 if keeps_references else 2
//## Entries of workgroup memory have 16 bytes: four scores, eight halves. Lines are one entry longer than what
//## they hold, so that eight neighbours of a column spread over all banks. A line of scores has a row of each of the
//## team's blocks of 16. Unless `transposed` it is two entries longer than these, and neighbours are the two invocations of
//## a row: then neither storing nor reading scores has conflicts (bench/NOTES.md).
//# set key_pitch = 2 * head_blocks + 1
//# set value_pitch = 2 * own_values + 1
//# set scores_of_block = 4 * own_keys
//# set score_pitch = team * scores_of_block + (2 if weights_apart else 1)
//# set weight_pitch = 2 * key_blocks + 1 if weights_apart else score_pitch
//## From the weights of one of the team's blocks to those of the next.
//# set weights_of_block = 16 * weight_pitch if weights_apart else scores_of_block
//# set partner = "1u" if weights_apart else "16u"
//## How memory's lines lie in matrices of sums, of the query, of weights and of values; and how in those of keys.
//# set along = "col_major" if transposed else "row_major"
//# set across = "row_major" if transposed else "col_major"
//# set key_loads = (BK * 2 * head_blocks + WORKGROUP - 1) // WORKGROUP
//# set value_loads = (BK * 2 * value_blocks + WORKGROUP - 1) // WORKGROUP
{{ half_types(dtypes) }}
//# include "lib/score.wgsl"
//# include "lib/row_end.wgsl"
//# include "lib/sequences.wgsl"
// Operands: of rows, the query's or the weights', and of columns, which are keys or the values' columns.
alias OfRows = subgroup_matrix_{{ "right" if transposed else "left" }}<f16, 16, 16>;
alias OfColumns = subgroup_matrix_{{ "left" if transposed else "right" }}<f16, 16, 16>;
alias Result = subgroup_matrix_result<f32, 16, 16>;
//# set keys_room = 16 * own_keys * key_pitch
//# set values_room = BK * value_pitch
// Each member's part.
var<workgroup> keys: array<array<vec4<u32>, {{ [keys_room, values_room] | max if in_turn else keys_room }}>, {{ team }}>;
//# if not in_turn
var<workgroup> values: array<array<vec4<u32>, {{ values_room }}>, {{ team }}>;
//# endif
// The scores that a subgroup computed, as float32.
var<workgroup> scores: array<array<vec4<u32>, {{ 16 * score_pitch }}>, SUBGROUPS>;
//# if weights_apart
// A team's weights as float16.
var<workgroup> weights: array<array<vec4<u32>, {{ 16 * team * weight_pitch }}>, {{ SUBGROUPS // team }}>;
//# endif
// The number of the last moving turn in which the reference moved of a row that already has sums.
var<workgroup> moved: atomic<u32>;
//# if hides
// Whether values that are not finite were left out.
var<workgroup> left_out: atomic<u32>;
//# endif
//# if keeps_references
// In place of a turn: references cannot be kept.
const NOT_STEADY = 0xffffffffu;
// The largest finite float16.
const LARGEST_WEIGHT = 65504.0;
// So many turns with references that stay are taken before the workgroup looks whether its weights became too large.
const LOOKS_AFTER = 16u;
//# endif

{{ turned_lines() }}

//# if hides

/// Halves that are not finite become zero, so that weights of zero leave none of them in a row that does not see them.
fn finite_halves(eight: vec4<u32>) -> vec4<u32> {
  let low = select(vec4<u32>(0xffffu), vec4<u32>(), (eight & vec4<u32>(0x7c00u)) == vec4<u32>(0x7c00u));
  let high = select(vec4<u32>(0xffff0000u), vec4<u32>(), (eight & vec4<u32>(0x7c000000u)) == vec4<u32>(0x7c000000u));
  let finite = eight & (low | high);
  if (any(finite != eight)) {
    atomicStore(&left_out, 1u);
  }
  return finite;
}

/// The sum of the numbers d … d+3 that are not finite of the values that query i sees; it decides what the output is.
fn seen_numbers_not_finite(at: Sequence, h: u32, i: u32, begin: u32, end: u32, d: u32) -> vec4<f32> {
  let query_row = params.query_first + dot(params.query_strides.xyz, vec3<u32>(at.b, h, at.query_begin + i));
  let key_head = params.key_first + dot(params.key_strides.xyz, vec3<u32>(at.b, h / params.group, at.key_begin));
  let value_head = params.value_first + dot(params.value_strides.xyz, vec3<u32>(at.b, h / params.group, at.key_begin));
  var sum = vec4<f32>();
  var value = vec4<f32>();
  var product = 0.0;
  // One loop over the vec4s of all keys: with loops in one another the driver no longer writes out the kernel's own ones,
  // which are a quarter slower then (bench/NOTES.md).
  for (var n = 0u; n < (end - begin) * D4; n++) {
    let j = begin + n / D4;
    if (n % D4 == 0u) {
      value = value_at4(value_head + j * params.value_strides.z, params.value_strides.w, d);
      product = 0.0;
      if (all(are_finite(value))) {
        n += D4 - 1u;
        continue;
      }
    }
    let four = query_at4(query_row, params.query_strides.w, 4u * (n % D4)) * params.query_scale;
    product += dot(four, key_at4(key_head + j * params.key_strides.z, params.key_strides.w, 4u * (n % D4)));
    if (n % D4 == D4 - 1u && !is_hidden(score(product, at.b, h, i, j, i32(i) + at.shift, at.keys))) {
      sum += select(value, vec4<f32>(), are_finite(value));
    }
  }
  return sum;
}
//# endif
//##
//## Elements 8n … 8n+7 of a row as they are stored, zeros past its end.
//# macro row_reader(name, layout, length)
fn {{ name }}_halves(first: u32, stride: u32, n: u32) -> vec4<u32> {
//# if layout == "packed8"
//#   if length % 16
  return select(vec4<u32>(), {{ name }}[(first >> 3u) + min(n, {{ length // 8 - 1 }}u)], n < {{ length // 8 }}u);
//#   else
  return {{ name }}[(first >> 3u) + n];
//#   endif
//# elif layout == "packed4"
  let at = (first >> 2u) + 2u * n;
  var v = vec4<u32>();
  if (8u * n < {{ length }}u) {
    v = vec4<u32>({{ name }}[at], 0u, 0u);
  }
  if (8u * n + 4u < {{ length }}u) {
    v = vec4<u32>(v.xy, {{ name }}[at + 1u]);
  }
  return v;
//# else
  var v = vec4<u32>();
//#   for c in range(8)
  if (8u * n + {{ c }}u < {{ length }}u) {
    let i = first + (8u * n + {{ c }}u) * stride;
    v[{{ c // 2 }}] |= (({{ name }}[i >> 1u] >> (16u * (i & 1u))) & 0xffffu) << {{ 16 * (c % 2) }}u;
  }
//#   endfor
  return v;
//# endif
}
//# endmacro
{{ row_reader("query", query_layout, D) }}
{{ row_reader("key", key_layout, D) }}
{{ row_reader("value", value_layout, DV) }}
//# if hides
{{ row_reader("out", out_layout, DV) }}
//# endif
//# for name in ("query", "key", "value") + (("out",) if hides else ())
/// Elements d … d+3 of a row.
fn {{ name }}_at4(first: u32, stride: u32, d: u32) -> vec4<f32> {
  let eight = {{ name }}_halves(first, stride, d >> 3u);
  let four = select(eight.xy, eight.zw, (d & 4u) != 0u);
  return vec4<f32>(unpack2x16float(four.x), unpack2x16float(four.y));
}
//# endfor

/// Writes vec4s n and n + 1, n an even number, of the row of the output that begins at `first`.
fn out_put8(first: u32, n: u32, x: vec4<f32>, y: vec4<f32>) {
  let half_a = vec4<f16>(x);
  let half_b = vec4<f16>(y);
  let at = (first >> 2u) + n;
//# if out_layout == "packed8"
  out[at / 2u] = vec4<u32>(bitcast<vec2<u32>>(half_a), bitcast<vec2<u32>>(half_b));
//# else
  out[at] = bitcast<vec2<u32>>(half_a);
  if (n + 1u < DV4) {
    out[at + 1u] = bitcast<vec2<u32>>(half_b);
  }
//# endif
}
//##
//## The line of the n-th entry that an invocation stages, and which entry of the line it is, of lines of `blocks` matrices.
//## Where a workgroup stages whole lines at a time the latter is the same for all n, which spares registers.
//# macro entry_line(n, blocks)
//# if WORKGROUP % (2 * blocks)
(thread_index + {{ n * WORKGROUP }}u) / {{ 2 * blocks }}u
//#- else
(thread_index / {{ 2 * blocks }}u + {{ n * (WORKGROUP // (2 * blocks)) }}u)
//#- endif
//#- endmacro
//# macro entry_of_line(n, blocks)
//# if WORKGROUP % (2 * blocks)
(thread_index + {{ n * WORKGROUP }}u) % {{ 2 * blocks }}u
//#- else
thread_index % {{ 2 * blocks }}u
//#- endif
//#- endmacro
//##
//## Asks memory for the lines from `first` on; those past the last are read from the last.
//# macro load_lines(name, blocks, loads, first)
//# for n in range(loads)
      {
        let line = min({{ first }} + {{ entry_line(n, blocks) }}, end - 1u);
        {{ name }}_ahead[{{ n }}] = {{ name }}_halves({{ name }}_head + line * params.{{ name }}_strides.z, params.{{ name }}_strides.w, {{ entry_of_line(n, blocks) }});
      }
//# endfor
//# endmacro
//##
//## Stages lines of which `loads` entries were asked for, number `first` and those behind it; the query's go where keys do.
//## Those past the last are zeros where `tile` names the first line's number.
//# macro store_lines(name, blocks, loads, leaves_out=false, first=0, tile="")
//# for n in range(loads)
//#   set eight = name ~ "_ahead[" ~ (first + n) ~ "]"
      {
//#   if (n + 1) * WORKGROUP > BK * 2 * blocks
        if (thread_index + {{ n * WORKGROUP }}u < {{ BK * 2 * blocks }}u) {
//#   endif
//#   if name == "value"
        let line = turned({{ entry_line(n, blocks) }});
        let column = {{ entry_of_line(n, blocks) }};
//#     if tile
        let eight = select(vec4<u32>(), {{ eight }}, {{ tile }} + {{ entry_line(n, blocks) }} < end);
//#     else
        let eight = {{ "finite_halves(" ~ eight ~ ")" if leaves_out else eight }};
//#     endif
        {{ values }}[column / {{ 2 * own_values }}u][line * {{ value_pitch }}u + column % {{ 2 * own_values }}u] = eight;
//#   else
        let line = {{ entry_line(n, blocks) }};
        keys[line / {{ 16 * own_keys }}u][line % {{ 16 * own_keys }}u * {{ key_pitch }}u + {{ entry_of_line(n, blocks) }}] = {{ eight }};
//#   endif
//#   if (n + 1) * WORKGROUP > BK * 2 * blocks
        }
//#   endif
      }
//# endfor
//# endmacro
//##
//## acc goes through the memory of the subgroup's scores, as many columns at a time as fit. The caller handles one
//## invocation's part of its row of block m, two entries at a time: entries `place` and `place` + 1 of scores[number] hold
//## columns 4n … 4n+7 of the values.
//# macro through_memory(back)
//# for round in range((own_values + own_keys - 1) // own_keys)
//#   set first = round * own_keys
//#   set count = [own_keys, own_values - first] | min
//#   for m in range(team)
//#     for c in range(count)
    subgroupMatrixStore<{{ along }}>(&scores[number], {{ scores_of_block * m + 4 * c }}u, acc_{{ m }}_{{ first + c }}, {{ score_pitch }}u);
//#     endfor
//#   endfor
    workgroupBarrier();
//#   for m in range(team)
    for (var c = 0u; c < {{ 2 * own_keys }}u; c += 2u) {
      let place = own_line * {{ score_pitch }}u + {{ scores_of_block * m }}u + part * {{ 2 * own_keys }}u + c;
      let n = {{ 4 * first }}u + part * {{ 2 * own_keys }}u + c + {{ 4 * own_values }}u * side;
{{ caller(m, "place", "n") }}
    }
//#   endfor
    workgroupBarrier();
//#   if back
//#     for m in range(team)
//#       for c in range(count)
    acc_{{ m }}_{{ first + c }} = subgroupMatrixLoad<Result, {{ along }}>(&scores[number], {{ scores_of_block * m + 4 * c }}u, {{ score_pitch }}u);
//#       endfor
//#     endfor
    workgroupBarrier();
//#   endif
//# endfor
//# endmacro
//##
//## The entry behind a line of a subgroup's scores, where it leaves the factor of its row that the team's others need to
//## know. A team of one keeps it in registers: through memory head dim 256 takes half as long again (bench/NOTES.md).
//# macro said_of(subgroup)
scores[{{ subgroup }}][own_line * {{ score_pitch }}u + {{ score_pitch - 1 }}u]
//#- endmacro
//##
//## sum + the product of an operand of rows and one of columns.
//# macro product(rows, columns, sum)
subgroupMatrixMultiplyAccumulate({{ columns ~ ", " ~ rows if transposed else rows ~ ", " ~ columns }}, {{ sum }})
//#- endmacro
//##
//## What the first turn expects: its keys staged, its values and the next keys asked for.
//# macro stage_first_keys()
{{ load_lines("key", head_blocks, key_loads, tile_of("0u")) }}
{{ store_lines("key", head_blocks, key_loads) }}
{{ load_lines("key", head_blocks, key_loads, tile_of("1u")) }}
{{ load_lines("value", value_blocks, value_loads, tile_of("0u")) }}
    workgroupBarrier();
//# endmacro
//##
//## exp of a vec4 of this row's scores, less the row's reference.
//# macro weight_of(score, is_scaled)
{{ exp_of(score ~ " - reference" if is_scaled else "fma(" ~ score ~ ", vec4<f32>(params.query_scale), vec4<f32>(-reference))") }}
//#- endmacro
//##
//## The first key of the tile of a turn: turns begin with tile `start`, and with the first one after the last.
//# macro tile_of(turn)
begin + BK * select(start + {{ turn }}, start + {{ turn }} - turns, start + {{ turn }} >= turns)
//#- endmacro
//##
//## Multiplies acc of each row with its `rescale`.
//# macro rescale_acc()
//# if team > 1
      if (part == 0u) {
        {{ said_of("number") }} = bitcast<vec4<u32>>(vec4<f32>(rescale));
      }
//# endif
//# if not weights_apart
      // The weights make room for acc meanwhile.
//#   for m in range(key_blocks)
      let weights_{{ m }} = {{ weights }}[own_weights + {{ 2 * m }}u];
//#   endfor
      workgroupBarrier();
//# endif
//# call(m, place, n) through_memory(True)
      let factor = {{ "bitcast<vec4<f32>>(" ~ said_of("number - side + " ~ m ~ "u") ~ ")" if team > 1 else "rescale" }};
//#   for next in range(2)
      scores[number][{{ place }} + {{ next }}u] = bitcast<vec4<u32>>(bitcast<vec4<f32>>(scores[number][{{ place }} + {{ next }}u]) * factor);
//#   endfor
//# endcall
//# if not weights_apart
//#   for m in range(key_blocks)
      {{ weights }}[own_weights + {{ 2 * m }}u] = weights_{{ m }};
//#   endfor
      workgroupBarrier();
//# endif
//# endmacro
//##
//## One turn: `tile` is the first key of its tile. Where references may move (`moves`), scores are scaled and masked
//## before the maximum is taken; elsewhere all of them are seen, and the exponent's multiply-add scales them.
//# macro take_tile(tile, next, next_but_one, is_last, moves)
    {
//# for m in range(team)
//#   for k in range(own_keys)
      var s_{{ m }}_{{ k }} = Result();
//#   endfor
//# endfor
//# for d in range(head_blocks)
//#   for k in range(own_keys)
      {
        let k = subgroupMatrixLoad<OfColumns, {{ across }}>(&keys[side], {{ 16 * k * key_pitch + 2 * d }}u, {{ key_pitch }}u);
//#     for m in range(team)
        s_{{ m }}_{{ k }} = {{ product("query_" ~ m ~ "_" ~ d, "k", "s_" ~ m ~ "_" ~ k) }};
//#     endfor
      }
//#   endfor
//# endfor
//# for m in range(team)
//#   for k in range(own_keys)
      subgroupMatrixStore<{{ along }}>(&scores[number], {{ scores_of_block * m + 4 * k }}u, s_{{ m }}_{{ k }}, {{ score_pitch }}u);
//#   endfor
//# endfor
    }
    workgroupBarrier();
//# for c in range(span4)
//#   set member = 2 * c // scores_of_block
    s[{{ c }}] = bitcast<vec4<f32>>(scores[number - side + {{ member }}u][own_scores + {{ 2 * c % scores_of_block }}u]){{ " * params.query_scale" if moves }};
//# endfor
//# if not in_turn
{{ store_lines("key", head_blocks, key_loads) }}
//# endif
{{ store_lines("value", value_blocks, value_loads, moves and hides, tile=tile if moves and fills_up else "") }}
//## All loads of a turn stand together: what waits for one of them waits for all that are on their way. The driver moves
//## loads down to where their numbers are used, behind barriers too, where they are waited for; not those behind a
//## condition. With the code of a mask beside them registers are short, and what is gained is lost again.
//# set asked_early = keeps_references or not hides
//# if asked_early
    if (!({{ is_last }})) {
//# endif
//# if not in_turn
{{ load_lines("key", head_blocks, key_loads, next_but_one) }}
//# endif
{{ load_lines("value", value_blocks, value_loads, next) }}
//# if asked_early
    }
//# endif
//# if moves
{{ mask_scores(tile) }}
{{ move_references() }}
//# endif
    var sum4 = vec4<f32>();
//# if return_lse
    var unrounded_sum4 = vec4<f32>();
//# endif
//# for c in range(0, span4, 2)
    {
      let p = {{ weight_of("s[" ~ c ~ "]", moves) }};
      let q = {{ weight_of("s[" ~ (c + 1) ~ "]", moves) }};
      let half_p = vec4<f16>(p);
      let half_q = vec4<f16>(q);
      sum4 += vec4<f32>(half_p) + vec4<f32>(half_q);
//#   if return_lse
      unrounded_sum4 += p + q;
//#   endif
      {{ weights }}[own_weights + {{ c }}u] = vec4<u32>(bitcast<vec2<u32>>(half_p), bitcast<vec2<u32>>(half_q));
    }
//# endfor
    let sum = (sum4.x + sum4.y) + (sum4.z + sum4.w);
    row_sum += sum;
//# if return_lse
    unrounded_sum += (unrounded_sum4.x + unrounded_sum4.y) + (unrounded_sum4.z + unrounded_sum4.w);
//# endif
//# if moves
    // Also the barrier behind which weights, keys and values are there.
    if (workgroupUniformLoad(&moved) == moving_turn) {
{{ rescale_acc() }}
    }
//# else
    largest_sum = max(largest_sum, sum);
    workgroupBarrier();
//# endif
    {
//# for m in range(team)
//#   for k in range(key_blocks)
      let p_{{ m }}_{{ k }} = subgroupMatrixLoad<OfRows, {{ along }}>(&{{ weights }}, {{ weights_of_block * m + 2 * k }}u, {{ weight_pitch }}u);
//#   endfor
//# endfor
//# for k in range(key_blocks)
//#   for n in range(own_values)
      {
        let v = subgroupMatrixLoad<OfColumns, {{ along }}>(&{{ values }}[side], {{ 16 * k * value_pitch + 2 * n }}u, {{ value_pitch }}u);
//#     for m in range(team)
        acc_{{ m }}_{{ n }} = {{ product("p_" ~ m ~ "_" ~ k, "v", "acc_" ~ m ~ "_" ~ n) }};
//#     endfor
      }
//#   endfor
//# endfor
    }
//#   if in_turn
    workgroupBarrier();
{{ store_lines("key", head_blocks, key_loads) }}
{{ load_lines("key", head_blocks, key_loads, next_but_one) }}
    workgroupBarrier();
//#   endif
//# endmacro
//##
//## The turns from the one numbered `first` to before `until`, in which references may move.
//# macro moving_turns(first, until)
    for (var block = {{ first }}; block < {{ until }}; block += {{ moving_written_out }}u) {
//# for step in range(moving_written_out)
//#   if step
      if (block + {{ step }}u < {{ until }}) {
//#   else
      {
//#   endif
        let turn = block + {{ step }}u;
        let tile = {{ tile_of("turn") }};
{{ take_tile("tile", tile_of("(turn + 1u)"), tile_of("(turn + 2u)"), "turn + 1u >= turns", true) }}
      }
//# endfor
    }
//# endmacro
//##
//## Caps and hides this invocation's scores.
//# macro mask_scores(tile)
    let first_key = {{ tile }} + 4u * part;
//# if masks or has_score_mod
//#   for c in range(span4)
//#     for e in range(4)
    s[{{ c }}].{{ "xyzw"[e] }} = score(s[{{ c }}].{{ "xyzw"[e] }}, b, h, i, first_key + {{ 8 * c + e }}u, position, length);
//#     endfor
//#   endfor
//# else
//#   if softcap
//#     for c in range(span4)
    s[{{ c }}] = vec4<f32>(shaped(s[{{ c }}].x), shaped(s[{{ c }}].y), shaped(s[{{ c }}].z), shaped(s[{{ c }}].w));
//#     endfor
//#   endif
{{ hide_unseen(tile) }}
//# endif
//# endmacro
//##
//## Finds the row's maximum, and moves its reference where that is far above it.
//# macro move_references()
    moving_turn++;
    var max4 = s[0];
//# for c in range(1, span4)
    max4 = max(max4, s[{{ c }}]);
//# endfor
    var new_max = max(max(max4.x, max4.y), max(max4.z, max4.w));
    new_max = max(new_max, subgroupShuffleXor(new_max, {{ partner }}));
    let new_reference = select(reference, new_max, new_max > reference + {{ slack }}.0{{ " * LN_2" if natural }});
    let rescale = {{ exp_of("reference - new_reference") }};
    if (new_reference != reference && row_sum > 0.0) {
      atomicMax(&moved, moving_turn);
    }
    reference = new_reference;
    row_sum *= rescale;
//# if return_lse
    unrounded_sum *= rescale;
//# endif
//# endmacro
@compute @workgroup_size(WORKGROUP)
fn main(
{{ row_arguments() }}
) {
{{ find_query_tile() }}
{{ find_row(weights_apart) }}
  // Which team's member this subgroup is, which one of it, and of which of the team's rows this invocation has a part.
  let team_number = number / {{ team }}u;
  let side = number % {{ team }}u;
  let own_scores = row * {{ score_pitch }}u + side * {{ scores_of_block }}u + part;
//# if weights_apart
  // The line of this row's weights, and of acc: lines of four neighbouring rows have one between them, so that their
  // weights are stored without conflicts of banks.
  let own_line = (row & 8u) | ((row & 3u) << 1u) | ((row & 4u) >> 2u);
//# else
  let own_line = row;
//# endif
  let own_weights = own_line * {{ weight_pitch }}u + side * {{ weights_of_block }}u + part;
  let i = first_row + number * 16u + row;
  // Rows behind the last one have its query, and see what it sees.
  let position = min(i32(i) + shift, last_position);

  let turns = (max(begin, end) - begin + BK - 1u) / BK;
//# if keeps_references
  // Steady turns are those of the tiles of which every row sees every key, but for the first tile.
  let seen_from = u32(max(last_position - params.window_left, i32(begin))) - begin;
  let seen_until = u32(max(min(first_position + params.window_right + 1, i32(end)), i32(begin))) - begin;
  let first_steady = max((seen_from + BK - 1u) / BK, 1u);
  let steady_turns = max(seen_until / BK, first_steady) - first_steady;
  let steady_end = begin + seen_until / BK * BK;
  let start = select(0u, seen_until / BK, steady_turns > 0u);
//# else
  const start = 0u;
//# endif

  var key_ahead: array<vec4<u32>, {{ key_loads }}>;
  var value_ahead: array<vec4<u32>, {{ value_loads }}>;
  var s: array<vec4<f32>, {{ span4 }}>;
  // A row's reference, and its sums of exp2(score - reference) over this invocation's columns.
  var reference = LOWEST;
  var row_sum = 0.0;
//# if return_lse
  var unrounded_sum = 0.0;
//# endif
//# for m in range(team)
//#   for n in range(own_values)
  var acc_{{ m }}_{{ n }} = Result();
//#   endfor
//#   for d in range(head_blocks)
  var query_{{ m }}_{{ d }} = OfRows();
//#   endfor
//# endfor

  // All of the query is asked for at once.
  var query_ahead: array<vec4<u32>, {{ BQ // BK * key_loads }}>;
  if (begin < end) {
//# for turn in range(BQ // BK)
//#   for n in range(key_loads)
    {
      let line = min(first_row + {{ turn * BK }}u + {{ entry_line(n, head_blocks) }}, last_row);
      query_ahead[{{ turn * key_loads + n }}] = query_halves(query_head + line * params.query_strides.z, params.query_strides.w, {{ entry_of_line(n, head_blocks) }});
    }
//#   endfor
//# endfor
  }
  if (begin < end) {
    // It goes to registers through the memory of the keys.
//# for turn in range(BQ // BK)
{{ store_lines("query", head_blocks, key_loads, first=turn * key_loads) }}
    workgroupBarrier();
//#   for own in range(key_blocks)
//#     set block = turn * key_blocks + own
    if (team_number == {{ block // team }}u) {
//#     for d in range(head_blocks)
      query_{{ block % team }}_{{ d }} = subgroupMatrixLoad<OfRows, {{ along }}>(&keys[{{ own // own_keys }}], {{ 16 * (own % own_keys) * key_pitch + 2 * d }}u, {{ key_pitch }}u);
//#     endfor
    }
//#   endfor
    workgroupBarrier();
//# endfor
{{ stage_first_keys() }}
  }

  // Counts the turns in which references may move.
  var moving_turn = 0u;
//# if not keeps_references
{{ moving_turns("0u", "turns") }}
//# else
  var first_turn = 0u;
  var moving_until = turns - steady_turns;
  // The second time only where the references that the first turns set cannot be kept.
  for (var attempt = 0u; attempt < 2u; attempt++) {
{{ moving_turns("first_turn", "moving_until") }}
    if (moving_until == turns) {
      break;
    }
    first_turn = moving_until;
    moving_until = turns;
    // Not with >, which NaN would pass.
    if (!(abs(reference) <= 0x1p20f)) {
      atomicStore(&moved, NOT_STEADY);
    }
    if (workgroupUniformLoad(&moved) != NOT_STEADY) {
      var is_steady = true;
      for (var block = begin + BK * (start + first_turn - turns); block < steady_end && is_steady; block += LOOKS_AFTER * BK) {
        let block_end = min(block + LOOKS_AFTER * BK, steady_end);
        var largest_sum = 0.0;
        for (var first = block; first < block_end; first += {{ steady_written_out }}u * BK) {
//#   for step in range(steady_written_out)
//#     if step
          if (first + {{ step }}u * BK < block_end) {
//#     else
          {
//#     endif
            let tile = first + {{ step }}u * BK;
{{ take_tile("tile", "tile + BK", "tile + 2u * BK", "tile + BK >= steady_end", false) }}
          }
//#   endfor
        }
        // A weight that float16 has no room for is an infinity there, or the largest number (SwiftShader makes it NaN).
        if (largest_sum >= LARGEST_WEIGHT || !is_finite(row_sum)) {
          atomicStore(&moved, NOT_STEADY);
        }
        is_steady = workgroupUniformLoad(&moved) != NOT_STEADY;
      }
      if (is_steady) {
        break;
      }
      // From the beginning.
      first_turn = 0u;
      reference = LOWEST;
      row_sum = 0.0;
//#   if return_lse
      unrounded_sum = 0.0;
//#   endif
//#   for m in range(team)
//#     for n in range(own_values)
      acc_{{ m }}_{{ n }} = Result();
//#     endfor
//#   endfor
{{ stage_first_keys() }}
    }
    atomicStore(&moved, 0u);
  }
//# endif

  row_sum += subgroupShuffleXor(row_sum, {{ partner }});
  let factor = row_end(h, reference, row_sum).x;
  workgroupBarrier();
//# if team > 1
  if (part == 0u) {
    {{ said_of("number") }} = bitcast<vec4<u32>>(vec4<f32>(factor));
  }
//# endif
//# if hides
  var is_complete = atomicLoad(&left_out) == 0u;
//# endif
//# call(m, place, n) through_memory(False)
      let end_factor = {{ "bitcast<vec4<f32>>(" ~ said_of("number - side + " ~ m ~ "u") ~ ").x" if team > 1 else "factor" }};
      let end_i = i - 16u * side + {{ 16 * m }}u;
      if (end_i <= last_row && {{ n }} < DV4) {
        let four = bitcast<vec4<f32>>(scores[number][{{ place }}]) * end_factor;
        let next_four = bitcast<vec4<f32>>(scores[number][{{ place }} + 1u]) * end_factor;
//# if hides
        if (is_finite(end_factor) && !all(are_finite(four) & are_finite(next_four))) {
          is_complete = false;
        }
//# endif
        out_put8(dot(params.out_strides.xyz, vec3<u32>(b, h, end_i)), {{ n }}, four, next_four);
      }
//# endcall
//# if hides
//#   set own_vec4s = 2 * own_keys * ((own_values + own_keys - 1) // own_keys)
  if (!is_complete) {
    // All of this invocation's vec4s once more, in pairs, of which the second may lie past the row's end.
    var first_four = vec4<f32>();
    for (var e = 0u; e < {{ team * own_vec4s }}u; e++) {
      let m = e / {{ own_vec4s }}u;
      let c = e % {{ own_vec4s }}u;
      let n = c / {{ 2 * own_keys }}u * {{ 4 * own_keys }}u + part * {{ 2 * own_keys }}u + c % {{ 2 * own_keys }}u + {{ 4 * own_values }}u * side;
      let row_factor = {{ "bitcast<vec4<f32>>(" ~ said_of("number - side + m") ~ ").x" if team > 1 else "factor" }};
      let end_i = i - 16u * side + 16u * m;
      if (end_i <= last_row && n / 2u * 2u < DV4 && is_finite(row_factor)) {
        let first = dot(params.out_strides.xyz, vec3<u32>(b, h, end_i));
        let lost = seen_numbers_not_finite(at, h, end_i, begin, end, 4u * n);
        let four = select(lost, out_at4(first, 1u, 4u * n), are_finite(lost));
        if (n % 2u == 0u) {
          first_four = four;
        } else {
          out_put8(first, n - 1u, first_four, four);
        }
      }
    }
  }
//# endif
//# if return_lse
  unrounded_sum += subgroupShuffleXor(unrounded_sum, {{ partner }});
  if (i <= last_row && part == 0u) {
    store_lse((b * params.heads + h) * params.queries + i, row_end(h, reference, unrounded_sum));
  }
//# endif
}
