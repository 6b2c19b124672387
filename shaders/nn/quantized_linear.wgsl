//## y = W v for a quantised matrix W [ROWS, INNER] and up to TOKENS_EACH tokens at a time, with what stands before and
//## behind it in a layer of a language model.
//##
//## v is one of (`prologue`)
//##   rms_norm   x[row] / sqrt(mean(x[row]²) + epsilon) · norm (RMSNorm, https://arxiv.org/abs/1910.07467). The factor is
//##              the same for a whole token, so it is applied to y: invocations that go along x sum up its squares too.
//##   inputs     inputs[t]
//##   partials   the outputs of a decode's splits, combined by each split's maximum and sum as decode/reduce.wgsl does
//## where the latter two may be multiplied by a factor for each head (`has_head_scale`). y goes (`epilogue`)
//##   residual   into x[row], added to what is there
//##   rope       to the query, the keys and the values of an attention: the first rows of W are the query heads' and the
//##              next ones the key heads'. Both are rotated by the token's position, pairs (2i, 2i + 1) together (RoPE,
//##              https://arxiv.org/abs/2104.09864). The last rows are the value heads'.
//##   gated      to out, as silu(gate) · up, where W's rows are gate 0, up 0, gate 1, … (SwiGLU,
//##              https://arxiv.org/abs/2002.05202)
//##   plain      to out
//##
//## LANES invocations, a team, share ROWS_EACH rows of W: of the parts of a row (WORDS words of a block, so 8 or 32
//## weights, see lib/quantized.wgsl) each takes every LANES-th. At a step it takes AHEAD parts, and asks for all their
//## codes before it uses the first. Sums over a team go through shuffles or workgroup memory. ROWS_EACH is even, so that
//## an invocation has both rows of a pair. With one lane no invocation waits for another.
//# if subgroups
//#   from "lib/thread_index.wgsl" import thread_index_memory, thread_index_arguments, find_thread_index, swapped with context
//# endif
//# include "lib/quantized.wgsl"
//# set parts = INNER // 32 * (4 // WORDS)
//# set tokens = range(TOKENS_EACH)
//# set rows = range(ROWS_EACH)
//# set vec4s = range(2 * WORDS)
//# set shares = LANES > 1
//# set squares = prologue == "rms_norm"
//## The numbers that a team adds up.
//# set sums = namespace(names=[])
//# for t in tokens
//#   for r in rows
//#     set sums.names = sums.names + ["sum" ~ r ~ "_" ~ t]
//#   endfor
//#   if squares
//#     set sums.names = sums.names + ["squares" ~ t]
//#   endif
//# endfor
//# set steps = (parts + LANES * AHEAD - 1) // (LANES * AHEAD)
//## Of the parts that an invocation takes at a step, how many lie within the row for every lane at every step.
//# set inside = AHEAD - (steps * LANES * AHEAD - parts + LANES - 1) // LANES
//# if prologue == "partials"
//#   include "lib/math.wgsl"
//# endif
//# include "lib/linear_ends.wgsl"

const TEAMS = WORKGROUP / LANES;
const BLOCKS_OF_ROW = INNER / 32u;
const PARTS = BLOCKS_OF_ROW * {{ 4 // WORDS }}u;
const ROW_TILES = (ROWS + ROWS_EACH - 1u) / ROWS_EACH;
//# if subgroups
{{ thread_index_memory() }}
//# elif shares
var<workgroup> exchanged: array<f32, WORKGROUP * {{ sums.names | length }}>;
//# endif
//# if stages
var<workgroup> staged: array<vec4<f32>, INNER / 4u>;
//# endif

//##
//## Vec4 v of part n within the token's row, in vec4s: vec4s of a part are numbered word by word, low before high.
//# macro vec4_of_row(n, v)
8u * block{{ n }} + word{{ n }} + {{ v // 2 + v % 2 * 4 }}u
//#- endmacro
//##
//## Part n: its block and its first word.
//# macro find_part(n)
  let part{{ n }} = {{ "min(" if n >= inside }}first_part + {{ n * LANES }}u + lane{{ ", PARTS - 1u)" if n >= inside }};
  let block{{ n }} = part{{ n }} / {{ 4 // WORDS }}u;
  let word{{ n }} = part{{ n }} % {{ 4 // WORDS }}u;
//# endmacro
//##
//## Asks for the codes and scales of part n of all rows.
//# macro load_codes(n)
//#   for r in rows
  let b{{ n }}_{{ r }} = row{{ r }} * BLOCKS_OF_ROW + block{{ n }};
//#     for half in ("low", "high") if half == "low" or format == "Q8_0"
//#       if WORDS == 4
  let {{ half }}{{ n }}_{{ r }} = {{ half }}_words(b{{ n }}_{{ r }});
//#       else
  let {{ half }}{{ n }}_{{ r }} = {{ half }}_word(b{{ n }}_{{ r }}, word{{ n }});
//#       endif
//#     endfor
  let scale{{ n }}_{{ r }} = block_scale(b{{ n }}_{{ r }});
//#   endfor
//# endmacro
//##
//## Vec4 `at` of the outputs of an attention, from those of its splits.
//# macro combined_partials(name, at)
  {
    // All loads are asked for before the first is used.
    let first = {{ at }} / (D / 4u) * SPLITS;
    let column = params.partial_out_first / 4u + {{ at }} % (D / 4u);
//# for s in range(SPLITS)
    let partial_row{{ s }} = partial_rows[params.partial_rows_first / 2u + first + {{ s }}u];
    let partial{{ s }} = partial_out[column + (first + {{ s }}u) * (D / 4u)];
//# endfor
    var row_max = LOWEST;
//# for s in range(SPLITS)
    row_max = max(row_max, partial_row{{ s }}.x);
//# endfor
    var row_sum = 0.0;
//# for s in range(SPLITS)
    let weight{{ s }} = partial_row{{ s }}.y * exp2(partial_row{{ s }}.x - row_max);
    row_sum += weight{{ s }};
    {{ name }} += weight{{ s }} * partial{{ s }};
//# endfor
    {{ name }} *= select(1.0 / row_sum, 0.0, row_sum == 0.0);
  }
//# endmacro
//##
//## Where teams share a workgroup they combine the partials once for all of them.
//# macro stage_partials()
  for (var at = thread_index; at < INNER / 4u; at += WORKGROUP) {
    var sum = vec4<f32>();
{{ combined_partials("sum", "at") }}
    staged[at] = sum;
  }
  workgroupBarrier();
//# endmacro
//##
//## Loads them, multiplied by CODE_UNITS; total{n}_{t} is the sum of what they were before.
//# macro load_tokens(n)
//#   if squares
//#     for i in vec4s
  let norm{{ n }}_{{ i }} = norm[params.norm_first / 4u + {{ vec4_of_row(n, i) }}];
//#     endfor
//#   endif
//#   for t in tokens
//#     set v = "x" ~ n ~ "_" ~ t ~ "_"
//#     for i in vec4s
//#       if prologue == "partials" and not stages
  var {{ v }}{{ i }} = vec4<f32>();
{{ combined_partials(v ~ i, "(" ~ vec4_of_row(n, i) ~ ")") }}
//#       elif prologue == "partials"
  var {{ v }}{{ i }} = staged[{{ vec4_of_row(n, i) }}];
//#       else
  var {{ v }}{{ i }} = {{ "x" if squares else "inputs" }}[first_of_token{{ t }} + {{ vec4_of_row(n, i) }}];
//#       endif
//#     endfor
  var total{{ n }}_{{ t }} = vec4<f32>();
//#     for i in vec4s
//#       if has_head_scale
  {{ v }}{{ i }} = scaled({{ v }}{{ i }}, block{{ n }} * 32u / D);
//#       endif
//#       if n >= inside
  {{ v }}{{ i }} = select(vec4<f32>(), {{ v }}{{ i }}, first_part + {{ n * LANES }}u + lane < PARTS);
//#       endif
//#       if squares
  squares{{ t }} += dot({{ v }}{{ i }}, {{ v }}{{ i }});
  {{ v }}{{ i }} *= norm{{ n }}_{{ i }};
//#       endif
  total{{ n }}_{{ t }} += {{ v }}{{ i }};
  {{ v }}{{ i }} *= CODE_UNITS;
//#     endfor
//#   endfor
//# endmacro
//##
//## sum{r}_{t}: the product of row r and token t, as far as this invocation takes it.
//# macro multiply(n)
//#   for r in rows
  {
//#     for t in tokens
    var product{{ t }} = 0.0;
//#     endfor
//#     for w in range(WORDS)
//#       set word = "[" ~ w ~ "]" if WORDS == 4 else ""
    let low{{ w }} = low_codes(low{{ n }}_{{ r }}{{ word }});
    let high{{ w }} = high_codes({{ "high" if format == "Q8_0" else "low" }}{{ n }}_{{ r }}{{ word }});
//#       for t in tokens
    product{{ t }} += dot(low{{ w }}, x{{ n }}_{{ t }}_{{ 2 * w }}) + dot(high{{ w }}, x{{ n }}_{{ t }}_{{ 2 * w + 1 }});
//#       endfor
//#     endfor
//#     for t in tokens
    sum{{ r }}_{{ t }} = fma(scale{{ n }}_{{ r }}.x, product{{ t }}, sum{{ r }}_{{ t }});
//#       if format == "Q4_1"
    sum{{ r }}_{{ t }} = fma(scale{{ n }}_{{ r }}.y, dot(total{{ n }}_{{ t }}, vec4<f32>(1.0)), sum{{ r }}_{{ t }});
//#       endif
//#     endfor
  }
//#   endfor
//# endmacro
//##
//## Adds up the sums of a team; its first lane has them then.
//# macro sum_over_team()
//#   if subgroups
//#     for name in sums.names
//#       for bit in (1, 2, 4, 8, 16, 32) if bit < LANES
  {{ name }} += {{ swapped(name, bit) }};
//#       endfor
//#     endfor
//#   else
//#     for name in sums.names
  exchanged[{{ loop.index0 }}u * WORKGROUP + thread_index] = {{ name }};
//#     endfor
  workgroupBarrier();
  if (lane == 0u) {
    for (var other = 1u; other < LANES; other++) {
//#     for name in sums.names
      {{ name }} += exchanged[{{ loop.index0 }}u * WORKGROUP + thread_index + other];
//#     endfor
    }
  }
//#   endif
//# endmacro

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
//# if subgroups
{{ thread_index_arguments() }}
//# else
  @builtin(local_invocation_index) thread_index: u32,
//# endif
) {
//# if subgroups
{{ find_thread_index() }}
//# endif
  let lane = thread_index % LANES;
  let team = (group.x + group.y * groups.x) * TEAMS + thread_index / LANES;
  // Rows and tokens past the end repeat the last one, so that the loop needs no branches.
//# for r in rows
  let row{{ r }} = min(team % ROW_TILES * ROWS_EACH + {{ r }}u, ROWS - 1u);
//# endfor
//# for t in tokens
  let token{{ t }} = min(team / ROW_TILES * TOKENS_EACH + {{ t }}u, params.count - 1u);
//#   if squares
  let first_of_token{{ t }} = (params.x_first + token_row(token{{ t }}) * INNER) / 4u;
//#   elif prologue == "inputs"
  let first_of_token{{ t }} = (params.inputs_first + token{{ t }} * INNER) / 4u;
//#   endif
//# endfor
//# for name in sums.names
  var {{ name }} = 0.0;
//# endfor

//# if stages and steps > 1
{{ stage_partials() }}
//# endif
  // Counted by ones: Tint then sees that the loop ends and adds no guard of its own.
  for (var step = 0u; step < {{ steps }}u; step++) {
    let first_part = step * (LANES * AHEAD);
//# for n in range(AHEAD)
{{ find_part(n) }}
{{ load_codes(n) }}
//# endfor
//# if stages and steps == 1
    // The codes are on their way meanwhile.
{{ stage_partials() }}
//# endif
//# for n in range(AHEAD)
{{ load_tokens(n) }}
//# endfor
//# for n in range(AHEAD)
{{ multiply(n) }}
//# endfor
  }

//# if shares
  // What a result is added to or turned by is on its way while the sums are exchanged.
//#   for t in tokens
//#     for r in rows if r % 2 == 0
  let before{{ r }}_{{ t }} = before_store(token{{ t }}, row{{ r }});
//#     endfor
//#   endfor
{{ sum_over_team() }}
  if (lane != 0u) {
    return;
  }
//#   for t in tokens
  if (team / ROW_TILES * TOKENS_EACH + {{ t }}u < params.count) {
//#     if squares
    let factor = inverseSqrt(squares{{ t }} / f32(INNER) + params.epsilon);
//#     endif
//#     for r in rows if r % 2 == 0
    if (team % ROW_TILES * ROWS_EACH + {{ r }}u < ROWS) {
      let y = vec2<f32>(sum{{ r }}_{{ t }}, sum{{ r + 1 }}_{{ t }}){{ " * factor" if squares }};
      store(token{{ t }}, row{{ r }}, y, before{{ r }}_{{ t }});
    }
//#     endfor
  }
//#   endfor
//# else
  // Written once for all results: once for each would be most of what a software adapter compiles.
  var pairs = array<vec2<f32>, {{ TOKENS_EACH * ROWS_EACH // 2 }}>(
//#   for t in tokens
//#     for r in rows if r % 2 == 0
    vec2<f32>(sum{{ r }}_{{ t }}, sum{{ r + 1 }}_{{ t }}),
//#     endfor
//#   endfor
  );
//#   if squares
  var squares = array<f32, TOKENS_EACH>(
//#     for t in tokens
    squares{{ t }},
//#     endfor
  );
//#   endif
  for (var t = 0u; t < TOKENS_EACH; t++) {
    let token = team / ROW_TILES * TOKENS_EACH + t;
    for (var r = 0u; r < ROWS_EACH / 2u; r++) {
      let row = team % ROW_TILES * ROWS_EACH + 2u * r;
      if (token < params.count && row < ROWS) {
        let y = pairs[t * (ROWS_EACH / 2u) + r]{{ " * inverseSqrt(squares[t] / f32(INNER) + params.epsilon)" if squares }};
        store(token, row, y, before_store(token, row));
      }
    }
  }
//# endif
}
