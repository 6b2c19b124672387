//## The two products of register-tiled attention, forward and backward, all arithmetic in f32.
//## Import with context: needs TX, TY, ROWS, BQ, BK, DEPTH4, VALUE_KEYS, BUFFERS, WORKGROUP, SHARES (see Tile in
//## py_attn/kernels/attention/tiles.py), `unrolled`, and `woven`: whether neighbours belong to two rows and one column.
//##
//## A workgroup of TX × TY invocations owns BQ = TY·ROWS rows and goes through the columns BK at a time.
//## Invocation (tx, ty) holds the scores of its rows 4·(ty + TY·i) + 0…3 with its columns
//## 4·(tx + TX·g) + 0…3 in registers. Operands are staged DEPTH4 vec4s of the head dim at a time with the
//## head dim outermost (a chunk), coefficients and values VALUE_KEYS columns at a time with the columns
//## outermost (a part), so that both products are sums of outer products of vec4s. Column
//## 4·(tx + TX·g) + c lies in slot (4g + c)·TX + tx of coefficients and values.
//##
//## Narrow values would give an invocation few products for each vec4 that it reads. With SHARES groups of lanes in
//## place of TX lanes it owns SHARES times as many of their columns, and sums the products of one slot in SHARES only;
//## add_shares then adds up what the groups of a row have.
//##
//## Memory is asked for a chunk or a part before the one before it is computed. With one buffer all invocations wait
//## for each other before and after it is staged, while the other workgroups of a core keep it busy. A tile so large
//## that it has the core to itself takes two buffers: a chunk or part is computed from one, by turns, while the next is
//## staged in the other and the one after that is asked for, so that all wait only once. The next tile's first ones
//## follow the last of this tile (`next_tile` says where it begins); `prime_lines` and `prime_values` bring those of the
//## tile that comes first. The loops then hold two steps, one for each buffer, and ask without a condition: behind one,
//## compilers copy what was asked for, and so wait for it.
//##
//## Lines past the last are read from the last one, if there may be any. Products are fma. Indices are sums and products of
//## constants, remainders and loop counters that go up by one: Tint then knows them to be within their arrays
//## and leaves out the clamp that it puts around every other index.
//##
//## The per-invocation arrays are indexed by constants where `unrolled`, which puts them in registers; a
//## software adapter's compiler prefers loops.
//##
//## The kernel must have these names: thread_index, tx, ty; first_row, last_row; tile (the first column of BK), end
//## (past the last); X_head, the first element of the head of operand X, and X_vec4 from vec4_reader.
//# from "lib/blocks.wgsl" import each
//# set column_pitch = BK // 4 + 1
//# set row_pitch = BQ // 4 + 1
//# set column_loads = (BK * DEPTH4 + WORKGROUP - 1) // WORKGROUP
//# set row_loads = (BQ * DEPTH4 + WORKGROUP - 1) // WORKGROUP
//# set columns_vec4s = 4 * DEPTH4 * column_pitch
//# set rows_vec4s = 4 * DEPTH4 * row_pitch
//# set parts = BK // VALUE_KEYS
//# set lanes = TX // SHARES
//## How much of a step is computed before the next one is staged: as `lines_before` of products and `values_before` of
//## accumulate, or else so much. Compilers place loads where they like, and how long before its use a load is placed
//## depends on this; these values were the best on the H200 (bench/NOTES.md).
//# set usual_values_before = {16: VALUE_KEYS // 4, 32: VALUE_KEYS // 2}
//# set values_before_of_others = VALUE_KEYS * 3 // 8
//##
//## Workgroup memory: `wide4` is the widest operand of accumulate in vec4s; `resident4` is the head dim of
//## rows that stay staged, in vec4s, or 0.
//##
//## stage, one buffer: lines or values | resident rows.
//## stage, two buffers: values of even parts | values of odd parts, or lines of odd chunks | lines of even chunks |
//## resident rows. Lines of odd chunks are done with when odd parts come, and the other way round; the first chunk of a
//## tile is staged while the last part of the tile before is in use.
//# macro tile_memory(wide4, resident4)
//# set values = VALUE_KEYS * wide4
//# set lines = columns_vec4s + (0 if resident4 else rows_vec4s)
//# set lines_0 = [2 * values, values + lines] | max if BUFFERS == 2 else 0
//# set resident_rows = lines_0 + lines if BUFFERS == 2 else [values, lines] | max
//# set chunks = (resident4 + DEPTH4 - 1) // DEPTH4
const SCORES = {{ BK // (4 * TX) }}u;
// In vec4s, one more than the data, so that neighbours spread over the banks.
const COLUMN_PITCH = {{ column_pitch }}u;
const ROW_PITCH = {{ row_pitch }}u;
// Two more where neighbours belong to two rows, of which there is room in any case.
const WEIGHT_PITCH = {{ BQ // 4 + (2 if woven else 1) }}u;
const LINES_0 = {{ lines_0 }}u;
const VALUES_0 = 0u;
const WEIGHTS_0 = 0u;
//# if BUFFERS == 2
const LINES_1 = {{ values }}u;
const VALUES_1 = {{ values }}u;
const WEIGHTS_1 = VALUE_KEYS * WEIGHT_PITCH;
//# endif
//# if resident4
const RESIDENT_ROWS = {{ resident_rows }}u;
//# endif
var<workgroup> stage: array<vec4<f32>, {{ resident_rows + chunks * rows_vec4s }}>;
var<workgroup> weights: array<vec4<f32>, {{ BUFFERS }}u * VALUE_KEYS * {{ BQ // 4 + 2 }}u>;
//# endmacro
//##
//## fn X_vec4: vec4 d of line n of an operand of `d4` vec4s; of line `last` where n is beyond it, if that may be
//## (`bounded`).
//# macro vec4_reader(name, d4, bounded=True)
fn {{ name }}_vec4(head: u32, n: u32, last: u32, d: u32) -> vec4<f32> {
  return {{ name }}_at4(head + {{ "min(n, last)" if bounded else "n" }} * params.{{ name }}_strides.z, params.{{ name }}_strides.w, 4u * {{ "min(d, " ~ (d4 - 1) ~ "u)" if d4 % (BUFFERS * DEPTH4) else "d" }});
}
//# endmacro
//##
//## Registers that products and accumulate share.
//# macro tile_registers(wide4)
  var factors: array<vec4<f32>, ROWS / 4u>;
  var columns: array<vec4<f32>, {{ [BK // (4 * TX), (wide4 + lanes - 1) // lanes] | max }}>;
  var lines: array<vec4<f32>, {{ column_loads + row_loads }}>;
  var staged: array<vec4<f32>, {{ (VALUE_KEYS * wide4 + WORKGROUP - 1) // WORKGROUP }}>;
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
//## Stages all of the rows' head dim, for products with resident rows.
//# macro stage_rows(row, d4)
//# set chunks = (d4 + DEPTH4 - 1) // DEPTH4
//# call(n) each("n", row_loads * chunks, unrolled)
  let e = thread_index + {{ n }} * WORKGROUP;
  if (e < BQ * DEPTH4 * {{ chunks }}u) {
{{ put("RESIDENT_ROWS", "ROW_PITCH", "BQ", row ~ "_vec4(" ~ row ~ "_head, first_row + " ~ line.format("BQ") ~ ", last_row, " ~ vec4_of_line.format("BQ") ~ ")") }}
  }
//# endcall
//# endmacro
//##
//## Asks for the lines of one chunk, from vec4 `depth` on, of the tile that begins at column `first`.
//# macro load_lines(row, column, depth, first, resident)
//# call(n) each("n", column_loads, unrolled)
        let e = thread_index + {{ n }} * WORKGROUP;
        lines[{{ n }}] = {{ column }}_vec4({{ column }}_head, {{ first }} + {{ line.format("BK") }}, end - 1u, {{ depth }} + {{ vec4_of_line.format("BK") }});
//# endcall
//# if not resident
//#   call(n) each("n", row_loads, unrolled)
        let e = thread_index + {{ n }} * WORKGROUP;
        lines[{{ column_loads }}u + {{ n }}] = {{ row }}_vec4({{ row }}_head, first_row + {{ line.format("BQ") }}, last_row, {{ depth }} + {{ vec4_of_line.format("BQ") }});
//#   endcall
//# endif
//# endmacro
//##
//# macro store_lines(buffer, resident)
//# call(n) each("n", column_loads, unrolled)
      let e = thread_index + {{ n }} * WORKGROUP;
//#   if BK * DEPTH4 % WORKGROUP
      if (e < BK * DEPTH4) {
//#   endif
{{ put("LINES_" ~ buffer, "COLUMN_PITCH", "BK", "lines[" ~ n ~ "]") }}
//#   if BK * DEPTH4 % WORKGROUP
      }
//#   endif
//# endcall
//# if not resident
//#   call(n) each("n", row_loads, unrolled)
      let e = thread_index + {{ n }} * WORKGROUP;
//#     if BQ * DEPTH4 % WORKGROUP
      if (e < BQ * DEPTH4) {
//#     endif
{{ put("LINES_" ~ buffer ~ " + " ~ columns_vec4s ~ "u", "ROW_PITCH", "BQ", "lines[" ~ column_loads ~ "u + " ~ n ~ "]") }}
//#     if BQ * DEPTH4 % WORKGROUP
      }
//#     endif
//#   endcall
//# endif
//# endmacro
//##
//## acc += factors · columnsᵀ, with `across` vec4s of columns. Successive products share a row or a column: with `order`
//## "rows" they go row by row, every other one backwards, with "columns" column by column likewise, with "vec4s" row by row
//## through one vec4 of columns after the other. GPUs that keep an operand then read two registers instead of three, in
//## one cycle instead of two. Which order is the fastest depends on what else the kernel contains (bench/NOTES.md).
//# macro add_outer_product(acc, across, order)
//# if unrolled
//#   set together = 1 if order == "vec4s" else across
//#   for first in range(0, across, together)
//#     set lines, places = (4 * together, ROWS) if order == "columns" else (ROWS, 4 * together)
//#     for n in range(lines * places)
//#       set line, place = n // places, n % places
//#       set turned = places - 1 - place if line % 2 else place
//#       set r, c = (turned, line) if order == "columns" else (line, turned)
//#       set o = first + c // 4
      {{ acc }}[{{ r * across + o }}u][{{ c % 4 }}] = fma(factors[{{ r // 4 }}][{{ r % 4 }}], columns[{{ o }}][{{ c % 4 }}], {{ acc }}[{{ r * across + o }}u][{{ c % 4 }}]);
//#     endfor
//#   endfor
//# else
//#   call(o) each("o", across, unrolled)
//#     call(r) each("r", ROWS, unrolled)
      {{ acc }}[{{ r }} * {{ across }}u + {{ o }}] = fma(vec4<f32>(factors[{{ r }} / 4u][{{ r }} % 4u]), columns[{{ o }}], {{ acc }}[{{ r }} * {{ across }}u + {{ o }}]);
//#     endcall
//#   endcall
//# endif
//# endmacro
//##
//## scores += the outer products of `count` numbers of the head dim, from `begin` on in the chunk.
//# macro multiply_lines(scores, d4, buffer, begin, count, resident, order)
//# set rows_at = "RESIDENT_ROWS + 4u * DEPTH4 * chunk * ROW_PITCH" if resident else "LINES_" ~ buffer ~ " + " ~ columns_vec4s ~ "u"
//# call(n) each("n", count, unrolled)
      let d = {{ begin }}u + {{ n }};
//#   if d4 % (BUFFERS * DEPTH4)
      if (4u * DEPTH4 * chunk + d < {{ 4 * d4 }}u) {
//#   endif
//#   call(i) each("i", ROWS // 4, unrolled)
      factors[{{ i }}] = stage[{{ rows_at }} + d * ROW_PITCH + {{ i }} * TY + ty];
//#   endcall
//#   call(g) each("g", BK // (4 * TX), unrolled)
      columns[{{ g }}] = stage[LINES_{{ buffer }} + d * COLUMN_PITCH + {{ g }} * TX + tx];
//#   endcall
{{ add_outer_product(scores, BK // (4 * TX), order) }}
//#   if d4 % (BUFFERS * DEPTH4)
      }
//#   endif
//# endcall
//# endmacro
//##
//## With two buffers, asks for what comes two steps later; behind the last step of this tile come the first of the
//## next.
//# macro look_ahead(step, steps, next_tile)
      let next = {{ step }} + 2u;
      let over = next >= {{ steps }}u;
      let ahead = select(next, next - {{ steps }}u, over);
      let ahead_tile = select(tile, {{ next_tile }}, over);
{{ caller("ahead", "ahead_tile") }}
//# endmacro
//##
//## With two buffers, what the first tile's products expect: the first chunk staged and the second asked for.
//# macro prime_lines(row, column, resident=False, first="begin")
{{ load_lines(row, column, "0u", first, resident) }}
{{ store_lines(0, resident) }}
{{ load_lines(row, column, "DEPTH4", first, resident) }}
//# endmacro
//##
//## scores = rows · columnsᵀ over a head dim of `d4` vec4s, in an order of add_outer_product.
//# macro products(scores, row, column, d4, resident=False, next_tile="tile + BK", lines_before=1, order="vec4s")
//# set chunks = (d4 + DEPTH4 - 1) // DEPTH4
//# call(n) each("n", ROWS * BK // (4 * TX), unrolled)
    {{ scores }}[{{ n }}] = vec4<f32>();
//# endcall
//# if BUFFERS == 2
//#   set pairs = (chunks + 1) // 2
//#   set before = [lines_before, 4 * DEPTH4] | min
    for (var pair = 0u; pair < {{ pairs }}u; pair++) {
//#   for buffer in (0, 1)
      {
      let chunk = 2u * pair + {{ buffer }}u;
      workgroupBarrier();
{{ multiply_lines(scores, d4, buffer, 0, before, resident, order) }}
{{ store_lines(1 - buffer, resident) }}
//#     call(ahead, first) look_ahead("chunk", 2 * pairs, next_tile)
{{ load_lines(row, column, ahead ~ " * DEPTH4", first, resident) }}
//#     endcall
{{ multiply_lines(scores, d4, buffer, before, 4 * DEPTH4 - before, resident, order) }}
      }
//#   endfor
    }
//# else
{{ load_lines(row, column, "0u", "tile", resident) }}
    for (var chunk = 0u; chunk < {{ chunks }}u; chunk++) {
      workgroupBarrier();
{{ store_lines(0, resident) }}
      workgroupBarrier();
//#   if chunks > 1
      if (chunk + 1u < {{ chunks }}u) {
{{ load_lines(row, column, "(chunk + 1u) * DEPTH4", "tile", resident) }}
      }
//#   endif
{{ multiply_lines(scores, d4, 0, 0, 4 * DEPTH4, resident, order) }}
    }
//# endif
//# endmacro
//##
//## Asks for the values of one part of the tile that begins at column `first`. What differs between invocations is kept
//## apart from the part, so that little is left to compute once a part.
//# macro load_values(column, d4, part, first)
//# call(n) each("n", (VALUE_KEYS * d4 + WORKGROUP - 1) // WORKGROUP, unrolled)
//#   if WORKGROUP % d4 == 0
        let slot = thread_index / {{ d4 }}u + {{ n }} * {{ WORKGROUP // d4 }}u;
        let d = thread_index % {{ d4 }}u;
//#   else
        let slot = (thread_index + {{ n }} * WORKGROUP) / {{ d4 }}u;
        let d = (thread_index + {{ n }} * WORKGROUP) % {{ d4 }}u;
//#   endif
        let coefficient = {{ part }} * (VALUE_KEYS / TX) + slot / TX;
        let number = {{ first }} + 4u * (slot % TX) + 4u * TX * (coefficient / 4u) + coefficient % 4u;
        staged[{{ n }}] = {{ column }}_vec4({{ column }}_head, number, end - 1u, d);
//# endcall
//# endmacro
//##
//# macro store_values(d4, buffer)
//# call(n) each("n", (VALUE_KEYS * d4 + WORKGROUP - 1) // WORKGROUP, unrolled)
      let e = thread_index + {{ n }} * WORKGROUP;
//#   if VALUE_KEYS * d4 % WORKGROUP
      if (e < VALUE_KEYS * {{ d4 }}u) {
//#   endif
        stage[VALUES_{{ buffer }} + e] = staged[{{ n }}];
//#   if VALUE_KEYS * d4 % WORKGROUP
      }
//#   endif
//# endcall
//# endmacro
//##
//## The coefficients of the columns of `part`, one of `choice`. Their index must be constant, so every part has its own
//## branch.
//# macro store_weights(coefficients, part, choice, buffer)
//# for p in choice
      if ({{ part }} == {{ p }}u) {
//#   call(n) each("n", VALUE_KEYS // TX, unrolled)
//#     call(i) each("i", ROWS // 4, unrolled)
        let number = {{ p }}u * (VALUE_KEYS / TX) + {{ n }};
        let at = 4u * {{ i }} * SCORES + number / 4u;
        let c = number % 4u;
        weights[WEIGHTS_{{ buffer }} + ({{ n }} * TX + tx) * WEIGHT_PITCH + {{ i }} * TY + ty] = vec4<f32>(
          {{ coefficients }}[at][c], {{ coefficients }}[at + SCORES][c],
          {{ coefficients }}[at + 2u * SCORES][c], {{ coefficients }}[at + 3u * SCORES][c]);
//#     endcall
//#   endcall
      }
//# endfor
//# endmacro
//##
//## acc += the outer products of `count` columns, from `begin` on in the part.
//# macro multiply_values(acc, d4, buffer, begin, count)
//# set across = (d4 + lanes - 1) // lanes
//# call(n) each("n", count // SHARES, unrolled)
//#   if SHARES > 1
      let k = {{ begin }}u + SHARES * {{ n }} + tx / {{ lanes }}u;
      let lane = tx % {{ lanes }}u;
//#   else
      let k = {{ begin }}u + {{ n }};
      let lane = tx;
//#   endif
//#   call(i) each("i", ROWS // 4, unrolled)
      factors[{{ i }}] = weights[WEIGHTS_{{ buffer }} + k * WEIGHT_PITCH + {{ i }} * TY + ty];
//#   endcall
//#   call(o) each("o", across, unrolled)
      columns[{{ o }}] = stage[VALUES_{{ buffer }} + k * {{ d4 }}u + {{ o }} * {{ lanes }}u + lane];
//#   endcall
{{ add_outer_product(acc, across, "columns" if BUFFERS == 2 else "vec4s") }}
//# endcall
//# endmacro
//##
//## With two shares: adds up the sums of the invocations whose thread indices differ by `bit`, by shuffles or through
//## workgroup memory. Sum r · ceil(d4 / TX) + o of acc is then that of row r and column o·TX + tx: an invocation keeps
//## every other of its columns and gives the others away.
//# macro add_shares(acc, d4, bit, by_shuffles)
//# set across = (d4 + lanes - 1) // lanes
//# set columns = (d4 + TX - 1) // TX
  let second_share = tx >= {{ lanes }}u;
//#   for r in range(ROWS)
//#     for o in range(columns)
  {
    let even = {{ acc }}[{{ r * across + 2 * o }}u];
    let odd = {{ acc ~ "[" ~ (r * across + 2 * o + 1) ~ "u]" if 2 * o + 1 < across else "vec4<f32>()" }};
    let kept = select(even, odd, second_share);
    let given = select(odd, even, second_share);
//#     if by_shuffles
    {{ acc }}[{{ r * columns + o }}u] = kept + subgroupShuffleXor(given, {{ bit }}u);
//#     else
    workgroupBarrier();
    stage[thread_index] = given;
    workgroupBarrier();
    {{ acc }}[{{ r * columns + o }}u] = kept + stage[thread_index ^ {{ bit }}u];
//#     endif
  }
//#     endfor
//#   endfor
//# endmacro
//##
//## With two buffers, what the first tile's accumulate expects: the first part staged and the second asked for.
//# macro prime_values(column, d4, first="begin")
{{ load_values(column, d4, "0u", first) }}
{{ store_values(d4, 0) }}
{{ load_values(column, d4, "1u", first) }}
//# endmacro
//##
//## acc += coefficients · columns, with `d4` vec4s each. With one buffer its first part has to be asked for before:
//## load_values(column, d4, "0u", "tile").
//# macro accumulate(acc, coefficients, column, d4, next_tile="tile + BK", values_before=none)
//# if BUFFERS == 2
//#   set wanted = values_before or usual_values_before.get(d4, values_before_of_others)
//#   set before = [wanted, VALUE_KEYS] | min // SHARES * SHARES
{{ store_weights(coefficients, "0u", (0,), 0) }}
    for (var pair = 0u; pair < {{ parts // 2 }}u; pair++) {
//#   for buffer in (0, 1)
      {
      let part = 2u * pair + {{ buffer }}u;
      workgroupBarrier();
{{ multiply_values(acc, d4, buffer, 0, before) }}
{{ store_weights(coefficients, "part + 1u", range(1 + buffer, parts, 2), 1 - buffer) }}
{{ store_values(d4, 1 - buffer) }}
//#     call(ahead, first) look_ahead("part", parts, next_tile)
{{ load_values(column, d4, ahead, first) }}
//#     endcall
{{ multiply_values(acc, d4, buffer, before, VALUE_KEYS - before) }}
      }
//#   endfor
    }
//# else
    for (var part = 0u; part < {{ parts }}u; part++) {
      workgroupBarrier();
{{ store_weights(coefficients, "part", range(parts), 0) }}
{{ store_values(d4, 0) }}
      workgroupBarrier();
//#   if parts > 1
      if (part + 1u < {{ parts }}u) {
{{ load_values(column, d4, "(part + 1u)", "tile") }}
      }
//#   endif
{{ multiply_values(acc, d4, 0, 0, VALUE_KEYS) }}
    }
//# endif
//# endmacro
//##
//## The numbers in its tile of an invocation's row and column {0}.
//# set row_number = "4u * (ty + TY * ({0} / 4u)) + {0} % 4u"
//# set column_number = "4u * (tx + TX * ({0} / 4u)) + {0} % 4u"
