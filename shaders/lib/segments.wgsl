//## Reads the rows of a cache by segments: a segment is what one load brings, some neighbouring numbers of a row as
//## they lie in memory. Its numbers are taken out later, since any arithmetic on a load would wait for it.
//##
//## segment_reader(name, dtype, length, row, wide) defines for the buffer `name`
//##   name_segment             the type of a segment: 8 numbers where `wide` (half types or codes), else 4
//##   name_load(first, e)      the segment of a row from its element e on; `first` is the row's first element, or word
//##   name_vec4_0(segment, e)  its first four numbers; name_vec4_1 gives the other four of a wide segment
//##   name_scale(first)        for codes with `wide`: the factor of all numbers of the row
//## Import with context: needs `unrolled`. Where that holds, a code is cut out by a remainder: browsers then see that
//## it is below the table's end, and do not clamp the index. A software adapter would divide for it, and gets a mask.
//## `row` is what Format.row() in kernels/quantization/turboquant.py gives, or none for floats. Codes need row_tables.
//# from "lib/turboquant.wgsl" import row_reader, row_table
//# from "lib/integer_rows.wgsl" import integer_segments
//##
//# macro segment_reader(name, dtype, length, row, wide)
//# if dtype in ("int8", "q8_0", "q4_0")
{{ integer_segments(name, dtype, length, wide) }}
//# elif not wide
alias {{ name }}_segment = vec4<f32>;
{{ row_reader(name, dtype, True, length, row, True) }}
fn {{ name }}_load(first: u32, e: u32) -> {{ name }}_segment {
  return {{ name }}_at4(first, 1u, e);
}
fn {{ name }}_vec4_0(segment: {{ name }}_segment, e: u32) -> vec4<f32> {
  return segment;
}
//# elif not row
alias {{ name }}_segment = vec4<u32>;
fn {{ name }}_load(first: u32, e: u32) -> {{ name }}_segment {
  return {{ name }}[(first + e) >> 3u];
}
//#   for n in range(2)
fn {{ name }}_vec4_{{ n }}(segment: {{ name }}_segment, e: u32) -> vec4<f32> {
  return vec4<f32>(widen_{{ dtype }}(segment[{{ 2 * n }}]), widen_{{ dtype }}(segment[{{ 2 * n + 1 }}]));
}
//#   endfor
//# else
{{ row_table(name, row.bits) }}
//#   set straddles = 32 % (8 * row.bits) != 0
alias {{ name }}_segment = {{ "vec2<u32>" if straddles else "u32" }};
fn {{ name }}_load(first: u32, e: u32) -> {{ name }}_segment {
  let word = first + 1u + ((e * {{ row.bits }}u) >> 5u);
  return {{ name ~ "_segment(" ~ name ~ "[word], " ~ name ~ "[word + 1u])" if straddles else name ~ "[word]" }};
}
fn {{ name }}_scale(first: u32) -> f32 {
  return bitcast<f32>({{ name }}[first]);
}
//#   for n in range(2)
fn {{ name }}_vec4_{{ n }}(segment: {{ name }}_segment, e: u32) -> vec4<f32> {
  let shift = (e * {{ row.bits }}u) & 31u;
//#     if straddles
  // Shifted twice, since a shift by 32 would shift by 0.
  let codes = (segment.x >> shift) | ((segment.y << 1u) << (31u - shift));
//#     else
  let codes = segment >> shift;
//#     endif
//#     set code_of = "% " ~ 2 ** row.bits if unrolled else "& " ~ (2 ** row.bits - 1)
  return vec4<f32>(
//#     for code in range(4 * n, 4 * n + 4)
    {{ name }}_numbers[(codes >> {{ code * row.bits }}u) {{ code_of }}u],
//#     endfor
  );
}
//#   endfor
//# endif
//# endmacro
