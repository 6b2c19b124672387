//## Rows of a cache that are kept as integers (Integers in kernels/decode/formats.py). Of the formats
//##
//##   int8   x = q · scale    q of 8 bits, signed; the scale is given for a head, and is not in the row
//##   q8_0   x = q · d        q of 8 bits, signed; d of float16 for each block of 32 numbers
//##   q4_0   x = (q - 8) · d  q of 4 bits
//##
//## a row has the d of its blocks first, two to a word, then the integers in order, low bits first.
//## integer_segments(name, dtype, length, wide) defines what segment_reader in lib/segments.wgsl does: a segment is the
//## words of eight numbers, or of four, and behind them the word with their d.
//# macro integer_segments(name, dtype, length, wide)
//# set per_word = 8 if dtype == "q4_0" else 4
//# set scale_words = 0 if dtype == "int8" else ((length + 31) // 32 + 1) // 2
//# set words = 2 if wide and per_word == 4 else 1
//# set parts = words + (dtype != "int8")
alias {{ name }}_segment = {{ "u32" if parts == 1 else "vec" ~ parts ~ "<u32>" }};
fn {{ name }}_load(first: u32, e: u32) -> {{ name }}_segment {
  let word = first + {{ scale_words }}u + e / {{ per_word }}u;
  return {{ name }}_segment(
//#   for n in range(words)
    {{ name }}[word + {{ n }}u],
//#   endfor
//#   if dtype != "int8"
    {{ name }}[first + e / 64u],
//#   endif
  );
}
//#   for n in range(2 if wide else 1)
fn {{ name }}_vec4_{{ n }}(segment: {{ name }}_segment, e: u32) -> vec4<f32> {
//#     if per_word == 8
  let codes = (vec4<u32>(segment.x >> {{ "16u" if n else "((e & 4u) * 4u)" }}) >> vec4<u32>(0u, 4u, 8u, 12u)) & vec4<u32>(15u);
  let numbers = vec4<f32>(bitcast<vec4<i32>>(codes) - 8);
//#     else
  let codes = vec4<u32>(segment{{ "[" ~ n ~ "]" if parts > 1 }}) << vec4<u32>(24u, 16u, 8u, 0u);
  let numbers = vec4<f32>(bitcast<vec4<i32>>(codes) >> vec4<u32>(24u));
//#     endif
//#     if dtype == "int8"
  return numbers;
//#     else
  return numbers * unpack2x16float(segment[{{ words }}])[(e / 32u) & 1u];
//#     endif
}
//#   endfor
//# endmacro
//##
//## What defines cache_put4 as a writer of lib/storage.wgsl does, for "int8": numbers over their scale, rounded to the
//## nearest, ties to even. NaN becomes 0.
//# macro int8_writer()
fn cache_put4(i: u32, v: vec4<f32>) {
  let is_number = (bitcast<vec4<u32>>(v) & vec4<u32>(0x7fffffffu)) <= vec4<u32>(0x7f800000u);
  let whole = select(vec4<f32>(), clamp(round(v), vec4<f32>(-128.0), vec4<f32>(127.0)), is_number);
  let codes = bitcast<vec4<u32>>(vec4<i32>(whole)) & vec4<u32>(0xffu);
  cache[i >> 2u] = dot(codes, vec4<u32>(1u, 1u << 8u, 1u << 16u, 1u << 24u));
}
//# endmacro
