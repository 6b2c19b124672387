//## Y = X Wᵀ for a quantised matrix W [ROWS, INNER] and many tokens, with what stands before and behind it in a layer of
//## a language model: prologue and epilogue as in nn/quantized_linear.wgsl, from inputs or with RMSNorm.
//##
//## A workgroup computes a tile of TILE_TOKENS × TILE_ROWS. It goes along INNER a block of 32 weights at a time: tokens
//## and weights, widened, are staged in workgroup memory with the 32 outermost, so that the product is a sum of outer
//## products of vec4s. Memory is asked for the next block before this one is computed. Invocation (tx, ty) holds in
//## registers the sums of the tile's tokens 4·(ty + TY·i) + 0…3 (i < TOKENS_EACH / 4) with its rows 4·(tx + TX·g) + 0…3
//## (g < ROWS_EACH / 4). SLICES invocations share them: each takes its part of the 32, and the first adds them up at the
//## end, so that a small tile can have large registers and enough invocations too.
//##
//## Tokens and rows past the end repeat the last one, so that the loop needs no branches.
//# from "lib/blocks.wgsl" import each
//# include "lib/quantized.wgsl"
//# include "lib/linear_ends.wgsl"
//# set squares = prologue == "rms_norm"
//# set has_high = format == "Q8_0"
//# set token_items = TILE_TOKENS * 8
//# set row_items = TILE_ROWS * 4
//# set token_loads = (token_items + WORKGROUP - 1) // WORKGROUP
//# set row_loads = (row_items + WORKGROUP - 1) // WORKGROUP
//# set across = ROWS_EACH // 4
//# set token_pitch = TILE_TOKENS // 4 + 1
//# set row_pitch = TILE_ROWS // 4 + 1
const TX = TILE_ROWS / ROWS_EACH;
const TY = TILE_TOKENS / TOKENS_EACH;
const BLOCKS_OF_ROW = INNER / 32u;
const ROW_TILES = (ROWS + TILE_ROWS - 1u) / TILE_ROWS;
// In vec4s, one more than the data, so that neighbours spread over the banks.
const TOKEN_PITCH = {{ token_pitch }}u;
const ROW_PITCH = {{ row_pitch }}u;
const WEIGHTS = 32u * TOKEN_PITCH;
var<workgroup> stage: array<vec4<f32>, {{ [32 * (token_pitch + row_pitch), TILE_TOKENS * TILE_ROWS // 4 if SLICES > 1 else 0] | max }}>;
//# if squares
// What each vec4 of a block adds to a token's sum of squares.
var<workgroup> squares_of: array<f32, {{ token_items }}>;
//# endif
//##
//## Neighbours take two of the `line`s' parts, then go on to the next line: then they write to different banks. Declares
//## the line and the part of entry e.
//# macro find_entry(n, lines)
    let e = thread_index + {{ n * WORKGROUP }}u;
    let line = (e / 2u) % {{ lines }}u;
    let part = 2u * (e / {{ 2 * lines }}u) + e % 2u;
//# endmacro
//##
//## Asks for the tokens' vec4s and the weights' codes and scales of one block.
//# macro load(block)
//# for n in range(token_loads)
    v{{ n }} = {{ "x" if squares else "inputs" }}[token_first{{ n }} + 8u * {{ block }}];
//#   if squares
    norm{{ n }} = norm[norm_first{{ n }} + 8u * {{ block }}];
//#   endif
//# endfor
//# for n in range(row_loads)
    low{{ n }} = low_word(block_first{{ n }} + {{ block }}, word{{ n }});
//#   if has_high
    high{{ n }} = high_word(block_first{{ n }} + {{ block }}, word{{ n }});
//#   endif
    scale{{ n }} = block_scale(block_first{{ n }} + {{ block }});
//# endfor
//# endmacro
//##
//# macro put(first, pitch, value)
//# for c in range(4)
      stage[{{ first }} + {{ c }}u * {{ pitch }} + line / 4u][line % 4u] = {{ value }}[{{ c }}];
//# endfor
//# endmacro
//##
//## Stages what was asked for, which is of `block`.
//# macro store_stage(block)
//# for n in range(token_loads)
    {{ "if (thread_index + " ~ n * WORKGROUP ~ "u < " ~ token_items ~ "u) " if token_items % WORKGROUP }}{
{{ find_entry(n, TILE_TOKENS) }}
//#   if has_head_scale
      v{{ n }} = scaled(v{{ n }}, {{ block }} * 32u / D);
//#   endif
//#   if squares
      squares{{ n }} += dot(v{{ n }}, v{{ n }});
      v{{ n }} *= norm{{ n }};
//#   endif
{{ put("4u * part * TOKEN_PITCH", "TOKEN_PITCH", "v" ~ n) }}
    }
//# endfor
//# for n in range(row_loads)
    {{ "if (thread_index + " ~ n * WORKGROUP ~ "u < " ~ row_items ~ "u) " if row_items % WORKGROUP }}{
{{ find_entry(n, TILE_ROWS) }}
      let low = fma(low_codes(low{{ n }}) * CODE_UNITS, vec4<f32>(scale{{ n }}.x), vec4<f32>(scale{{ n }}.y));
      let high = fma(high_codes({{ "high" if has_high else "low" }}{{ n }}) * CODE_UNITS, vec4<f32>(scale{{ n }}.x), vec4<f32>(scale{{ n }}.y));
{{ put("WEIGHTS + 4u * part * ROW_PITCH", "ROW_PITCH", "low") }}
{{ put("WEIGHTS + (16u + 4u * part) * ROW_PITCH", "ROW_PITCH", "high") }}
    }
//# endfor
//# endmacro
//##
//## The sums += the outer products of the staged block, as far as this slice takes it. Every other token takes its four
//## products in reverse order: then successive products share a weight (lib/tiles.wgsl).
//# macro multiply()
//# call(n) each("n", 32 // SLICES, unrolled)
      let k = {{ "slice * " ~ (32 // SLICES) ~ "u + " if SLICES > 1 }}{{ n }};
//#   for i in range(TOKENS_EACH // 4)
      let t{{ i }} = stage[k * TOKEN_PITCH + {{ i }}u * TY + ty];
//#   endfor
//#   for g in range(across)
      let w{{ g }} = stage[WEIGHTS + k * ROW_PITCH + {{ g }}u * TX + tx];
//#   endfor
//#   for g in range(across)
//#     for r in range(TOKENS_EACH)
//#       if unrolled
//#         for c in ((3, 2, 1, 0) if r % 2 else (0, 1, 2, 3))
      sum{{ r }}_{{ g }}[{{ c }}] = fma(t{{ r // 4 }}[{{ r % 4 }}], w{{ g }}[{{ c }}], sum{{ r }}_{{ g }}[{{ c }}]);
//#         endfor
//#       else
      sum{{ r }}_{{ g }} = fma(vec4<f32>(t{{ r // 4 }}[{{ r % 4 }}]), w{{ g }}, sum{{ r }}_{{ g }});
//#       endif
//#     endfor
//#   endfor
//# endcall
//# endmacro

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) group: vec3<u32>,
  @builtin(num_workgroups) groups: vec3<u32>,
  @builtin(local_invocation_index) thread_index: u32,
) {
  let tile = group.x + group.y * groups.x;
  let tile_row = tile % ROW_TILES * TILE_ROWS;
  let tile_token = tile / ROW_TILES * TILE_TOKENS;
  if (tile_token >= params.count) {
    return;
  }
//# if TILE_TOKENS // TOKENS_EACH % 2 == 0
  // Neighbours take the same rows of weights and other tokens, see attention/tiled.wgsl.
  let tx = thread_index / 2u % TX;
  let ty = thread_index % 2u + 2u * (thread_index / (2u * TX) % (TY / 2u));
//# else
  let tx = thread_index % TX;
  let ty = thread_index / TX % TY;
//# endif
  let slice = thread_index / (TX * TY);
//# for n in range(token_loads)
  var v{{ n }} = vec4<f32>();
//#   if squares
  var norm{{ n }} = vec4<f32>();
  var squares{{ n }} = 0.0;
//#   endif
  var token_first{{ n }} = 0u;
  var norm_first{{ n }} = 0u;
  {
{{ find_entry(n, TILE_TOKENS) }}
    let t = min(tile_token + line, params.count - 1u);
    let from_part = min(part, 7u);
//#   if squares
    token_first{{ n }} = (params.x_first + token_row(t) * INNER) / 4u + from_part;
    norm_first{{ n }} = params.norm_first / 4u + from_part;
//#   else
    token_first{{ n }} = (params.inputs_first + t * INNER) / 4u + from_part;
//#   endif
  }
//# endfor
//# for n in range(row_loads)
  var low{{ n }} = 0u;
//#   if has_high
  var high{{ n }} = 0u;
//#   endif
  var scale{{ n }} = vec2<f32>();
  var block_first{{ n }} = 0u;
  var word{{ n }} = 0u;
  {
{{ find_entry(n, TILE_ROWS) }}
    block_first{{ n }} = min(tile_row + line, ROWS - 1u) * BLOCKS_OF_ROW;
    word{{ n }} = min(part, 3u);
  }
//# endfor
//# for r in range(TOKENS_EACH)
//#   for g in range(across)
  var sum{{ r }}_{{ g }} = vec4<f32>();
//#   endfor
//# endfor

{{ load("0u") }}
  for (var b = 0u; b < BLOCKS_OF_ROW; b++) {
    workgroupBarrier();
{{ store_stage("b") }}
    workgroupBarrier();
    // Without a condition: behind one, compilers copy what was asked for, and so wait for it.
    let next = min(b + 1u, BLOCKS_OF_ROW - 1u);
{{ load("next") }}
{{ multiply() }}
  }

//# if squares
//#   for n in range(token_loads)
  {{ "if (thread_index + " ~ n * WORKGROUP ~ "u < " ~ token_items ~ "u) " if token_items % WORKGROUP }}{
{{ find_entry(n, TILE_TOKENS) }}
    squares_of[part * {{ TILE_TOKENS }}u + line] = squares{{ n }};
  }
//#   endfor
  workgroupBarrier();
//# endif
//# for s in range(1, SLICES)
  workgroupBarrier();
  if (slice == {{ s }}u) {
//#   for r in range(TOKENS_EACH)
//#     for g in range(across)
    stage[{{ r * across + g }}u * (TX * TY) + thread_index % (TX * TY)] = sum{{ r }}_{{ g }};
//#     endfor
//#   endfor
  }
  workgroupBarrier();
  if (slice == 0u) {
//#   for r in range(TOKENS_EACH)
//#     for g in range(across)
    sum{{ r }}_{{ g }} += stage[{{ r * across + g }}u * (TX * TY) + thread_index % (TX * TY)];
//#     endfor
//#   endfor
  }
//# endfor
//# if SLICES > 1
  if (slice != 0u) {
    return;
  }
//# endif
//# for r in range(TOKENS_EACH)
  {
    let line = 4u * (ty + TY * {{ r // 4 }}u) + {{ r % 4 }}u;
    if (tile_token + line < params.count) {
//#   if squares
      var total = 0.0;
      for (var part = 0u; part < 8u; part++) {
        total += squares_of[part * {{ TILE_TOKENS }}u + line];
      }
      let factor = inverseSqrt(total / f32(INNER) + params.epsilon);
//#   endif
//#   for g in range(across)
//#     for c in (0, 2)
      let row{{ g }}_{{ c }} = tile_row + 4u * (tx + TX * {{ g }}u) + {{ c }}u;
      if (row{{ g }}_{{ c }} < ROWS) {
        let y = sum{{ r }}_{{ g }}.{{ "xy" if c == 0 else "zw" }}{{ " * factor" if squares }};
        let row = row{{ g }}_{{ c }};
        store(tile_token + line, row, y, before_store(tile_token + line, row));
      }
//#     endfor
//#   endfor
    }
  }
//# endfor
}
