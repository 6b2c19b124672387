//## The two products of register-tiled attention, forward and backward, all arithmetic in f32.
//## Import with context: needs TX, TY, ROWS, BQ, BK, DEPTH4, VALUE_KEYS, WORKGROUP (see Tile in
//## py_attn/kernels/_tiles.py) and `unrolled`.
//##
//## A workgroup of TX × TY invocations owns BQ = TY·ROWS rows and walks along the columns BK at a time.
//## Invocation (tx, ty) holds the scores of its rows 4·(ty + TY·i) + 0…3 with its columns
//## 4·(tx + TX·g) + 0…3 in registers. Operands are staged DEPTH4 vec4s of the head dim at a time with the
//## head dim outermost, coefficients with the columns outermost, so that both products are sums of outer
//## products of vec4s. Column 4·(tx + TX·g) + c lies in slot (4g + c)·TX + tx of coefficients and values.
//##
//## What one step of staging needs is asked of memory before the step before it is computed (`staged`); lines
//## past the last are read from the last one, as a branch would have to wait for what it reads. Products are
//## fma. Indices are sums and products of constants, remainders and loop counters that go up by one: Tint
//## then knows them to be within their arrays and leaves out the clamp that it puts around every other index.
//##
//## The per-invocation arrays are indexed by constants where `unrolled`, which puts them in registers; a
//## software adapter's compiler prefers loops.
//##
//## The names around: place, tx, ty; first_row, last_row; tile (the first column of BK), end (past the last);
//## X_head, the first element of the head of operand X, and X_vec4 from vec4_reader.
//# from "lib/blocks.wgsl" import each
//# set column_pitch = BK // 4 + 1
//# set row_pitch = BQ // 4 + 1
//# set column_loads = (BK * DEPTH4 + WORKGROUP - 1) // WORKGROUP
//# set row_loads = (BQ * DEPTH4 + WORKGROUP - 1) // WORKGROUP
//##
//## Workgroup memory: `wide4` is the widest operand of accumulate in vec4s; `resident4` is the head dim of
//## rows that stay staged, in vec4s, or 0.
//# macro tile_memory(wide4, resident4)
//# set chunks = (resident4 + DEPTH4 - 1) // DEPTH4
//# set rows_vec4s = 4 * DEPTH4 * row_pitch * ([chunks, 1] | max)
//# set columns_vec4s = 4 * DEPTH4 * column_pitch
//# set values_vec4s = VALUE_KEYS * wide4
const SCORES = {{ BK // (4 * TX) }}u;
// In vec4s, one more than the data, so that neighbours spread over the banks.
const COLUMN_PITCH = {{ column_pitch }}u;
const ROW_PITCH = {{ row_pitch }}u;
const ROW_STAGE = {{ ([columns_vec4s, values_vec4s] | max) if resident4 else columns_vec4s }}u;
var<workgroup> stage: array<vec4<f32>, {{ ([columns_vec4s, values_vec4s] | max) + rows_vec4s if resident4 else [columns_vec4s + rows_vec4s, values_vec4s] | max }}>;
var<workgroup> weights: array<vec4<f32>, VALUE_KEYS * ROW_PITCH>;
//# endmacro
//##
//## fn X_vec4: vec4 d of line n of an operand of `d4` vec4s.
//# macro vec4_reader(name, d4)
fn {{ name }}_vec4(head: u32, n: u32, last: u32, d: u32) -> vec4<f32> {
  return {{ name }}_at4(head + min(n, last) * params.{{ name }}_strides.z, params.{{ name }}_strides.w, 4u * {{ "min(d, " ~ (d4 - 1) ~ "u)" if d4 % DEPTH4 else "d" }});
}
//# endmacro
//##
//## Registers that products and accumulate share.
//# macro tile_registers(wide4)
  var factors: array<vec4<f32>, ROWS / 4u>;
  var staged: array<vec4<f32>, {{ [column_loads + row_loads, (VALUE_KEYS * wide4 + WORKGROUP - 1) // WORKGROUP] | max }}>;
//# endmacro
//##
//## Neighbours take two vec4s of one line, then go on to the next line: line and vec4 of entry e of so many lines.
//# set line = "(e / 2u) % {0}"
//# set vec4_of_line = "2u * (e / (2u * {0})) + e % 2u"
//##
//# macro put(first, pitch, lines, value)
      let v = {{ value }};
      let number = {{ line.format(lines) }};
      let d = 4u * ({{ vec4_of_line.format(lines) }});
//# for c in range(4)
      stage[{{ first }} + (d + {{ c }}u) * {{ pitch }} + number / 4u][number % 4u] = v[{{ c }}];
//# endfor
//# endmacro
//##
//## Queries are scaled for the scores alone.
//# set factor_of = {"query": " * params.query_scale"}
//##
//## Stages all of the rows' head dim, for products with resident rows.
//# macro stage_rows(row, d4)
//# set chunks = (d4 + DEPTH4 - 1) // DEPTH4
//# call(n) each("n", row_loads * chunks, unrolled)
  let e = place + {{ n }} * WORKGROUP;
  if (e < BQ * DEPTH4 * {{ chunks }}u) {
{{ put("ROW_STAGE", "ROW_PITCH", "BQ", row ~ "_vec4(" ~ row ~ "_head, first_row + " ~ line.format("BQ") ~ ", last_row, " ~ vec4_of_line.format("BQ") ~ ")" ~ factor_of.get(row, "")) }}
  }
//# endcall
//# endmacro
//##
//# macro load_lines(row, column, depth, resident)
//# call(n) each("n", column_loads, unrolled)
        let e = place + {{ n }} * WORKGROUP;
        staged[{{ n }}] = {{ column }}_vec4({{ column }}_head, tile + {{ line.format("BK") }}, end - 1u, {{ depth }} + {{ vec4_of_line.format("BK") }});
//# endcall
//# if not resident
//#   call(n) each("n", row_loads, unrolled)
        let e = place + {{ n }} * WORKGROUP;
        staged[{{ column_loads }}u + {{ n }}] = {{ row }}_vec4({{ row }}_head, first_row + {{ line.format("BQ") }}, last_row, {{ depth }} + {{ vec4_of_line.format("BQ") }});
//#   endcall
//# endif
//# endmacro
//##
//# macro store_lines(row, column, resident)
//# call(n) each("n", column_loads, unrolled)
      let e = place + {{ n }} * WORKGROUP;
//#   if BK * DEPTH4 % WORKGROUP
      if (e < BK * DEPTH4) {
//#   endif
{{ put("0u", "COLUMN_PITCH", "BK", "staged[" ~ n ~ "]" ~ factor_of.get(column, "")) }}
//#   if BK * DEPTH4 % WORKGROUP
      }
//#   endif
//# endcall
//# if not resident
//#   call(n) each("n", row_loads, unrolled)
      let e = place + {{ n }} * WORKGROUP;
//#     if BQ * DEPTH4 % WORKGROUP
      if (e < BQ * DEPTH4) {
//#     endif
{{ put("ROW_STAGE", "ROW_PITCH", "BQ", "staged[" ~ column_loads ~ "u + " ~ n ~ "]" ~ factor_of.get(row, "")) }}
//#     if BQ * DEPTH4 % WORKGROUP
      }
//#     endif
//#   endcall
//# endif
//# endmacro
//##
//## scores = rows · columnsᵀ over a head dim of `d4` vec4s.
//# macro products(scores, row, column, d4, resident=False)
//# set chunks = (d4 + DEPTH4 - 1) // DEPTH4
//# call(n) each("n", ROWS * BK // (4 * TX), unrolled)
    {{ scores }}[{{ n }}] = vec4<f32>();
//# endcall
{{ load_lines(row, column, "0u", resident) }}
    for (var chunk = 0u; chunk < {{ chunks }}u; chunk++) {
      workgroupBarrier();
{{ store_lines(row, column, resident) }}
      workgroupBarrier();
//# if chunks > 1
      if (chunk + 1u < {{ chunks }}u) {
{{ load_lines(row, column, "(chunk + 1u) * DEPTH4", resident) }}
      }
//# endif
//# call(d) each("d", 4 * DEPTH4, unrolled)
//#   if d4 % DEPTH4
      if (4u * DEPTH4 * chunk + {{ d }} < {{ 4 * d4 }}u) {
//#   endif
//#   call(i) each("i", ROWS // 4, unrolled)
      factors[{{ i }}] = stage[ROW_STAGE + ({{ "4u * DEPTH4 * chunk + " if resident }}{{ d }}) * ROW_PITCH + {{ i }} * TY + ty];
//#   endcall
//#   call(g) each("g", BK // (4 * TX), unrolled)
      let v = stage[{{ d }} * COLUMN_PITCH + {{ g }} * TX + tx];
//#     call(r) each("r", ROWS, unrolled)
      {{ scores }}[{{ r }} * SCORES + {{ g }}] = fma(vec4<f32>(factors[{{ r }} / 4u][{{ r }} % 4u]), v, {{ scores }}[{{ r }} * SCORES + {{ g }}]);
//#     endcall
//#   endcall
//#   if d4 % DEPTH4
      }
//#   endif
//# endcall
    }
//# endmacro
//##
//# macro load_values(column, d4, part)
//# call(n) each("n", (VALUE_KEYS * d4 + WORKGROUP - 1) // WORKGROUP, unrolled)
        let e = place + {{ n }} * WORKGROUP;
        let slot = {{ part }} * VALUE_KEYS + e / {{ d4 }}u;
        let number = tile + 4u * (slot % TX + TX * (slot / (4u * TX))) + (slot / TX) % 4u;
        staged[{{ n }}] = {{ column }}_vec4({{ column }}_head, number, end - 1u, e % {{ d4 }}u);
//# endcall
//# endmacro
//##
//# macro store_values(d4)
//# call(n) each("n", (VALUE_KEYS * d4 + WORKGROUP - 1) // WORKGROUP, unrolled)
      let e = place + {{ n }} * WORKGROUP;
//#   if VALUE_KEYS * d4 % WORKGROUP
      if (e < VALUE_KEYS * {{ d4 }}u) {
//#   endif
        stage[e] = staged[{{ n }}];
//#   if VALUE_KEYS * d4 % WORKGROUP
      }
//#   endif
//# endcall
//# endmacro
//##
//## The coefficients of one part's columns. Their index must be constant, so every part has its own branch.
//# macro store_weights(coefficients)
//# call(p) each("p", BK // VALUE_KEYS, unrolled)
      if (part == {{ p }}) {
//#   call(n) each("n", VALUE_KEYS // TX, unrolled)
//#     call(i) each("i", ROWS // 4, unrolled)
        let number = {{ p }} * (VALUE_KEYS / TX) + {{ n }};
        let at = 4u * {{ i }} * SCORES + number / 4u;
        let c = number % 4u;
        weights[({{ n }} * TX + tx) * ROW_PITCH + {{ i }} * TY + ty] = vec4<f32>(
          {{ coefficients }}[at][c], {{ coefficients }}[at + SCORES][c],
          {{ coefficients }}[at + 2u * SCORES][c], {{ coefficients }}[at + 3u * SCORES][c]);
//#     endcall
//#   endcall
      }
//# endcall
//# endmacro
//##
//## sums += coefficients · columns, with `d4` vec4s each; `loaded`: load_values(column, d4, "0u") has been called.
//# macro accumulate(sums, coefficients, column, d4, loaded=False)
//# set across = (d4 + TX - 1) // TX
//# if not loaded
{{ load_values(column, d4, "0u") }}
//# endif
    for (var part = 0u; part < {{ BK // VALUE_KEYS }}u; part++) {
      workgroupBarrier();
{{ store_weights(coefficients) }}
{{ store_values(d4) }}
      workgroupBarrier();
//# if BK > VALUE_KEYS
      if (part + 1u < {{ BK // VALUE_KEYS }}u) {
{{ load_values(column, d4, "(part + 1u)") }}
      }
//# endif
//# call(k) each("k", VALUE_KEYS, unrolled)
//#   call(i) each("i", ROWS // 4, unrolled)
      factors[{{ i }}] = weights[{{ k }} * ROW_PITCH + {{ i }} * TY + ty];
//#   endcall
//#   call(o) each("o", across, unrolled)
      let v = stage[{{ k }} * {{ d4 }}u + {{ o }} * TX + tx];
//#     call(r) each("r", ROWS, unrolled)
      {{ sums }}[{{ r }} * {{ across }}u + {{ o }}] = fma(vec4<f32>(factors[{{ r }} / 4u][{{ r }} % 4u]), v, {{ sums }}[{{ r }} * {{ across }}u + {{ o }}]);
//#     endcall
//#   endcall
//# endcall
    }
//# endmacro
//##
//## The numbers in its tile of an invocation's row and column {0}.
//# set row_number = "4u * (ty + TY * ({0} / 4u)) + {0} % 4u"
//# set column_number = "4u * (tx + TX * ({0} / 4u)) + {0} % 4u"
