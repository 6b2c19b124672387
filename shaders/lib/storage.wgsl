//## Reading and writing elements of any storage type as f32.
//##
//## reader(name, dtype, packed, length) defines for the buffer `name`
//##   name_at(i)               element i
//##   name_at4(first, stride, d)  elements d … d+3 of the vector of `length` elements that begins at
//##                            `first`; zero past its end
//## `packed`: vectors are contiguous and begin at multiples of 4, and the buffer is declared with
//## 4 elements an entry. writer(name, dtype) defines name_put4(i, v) for such a buffer.
//# macro reader(name, dtype, packed, length)
//# if packed
//#   if dtype == "float32"
fn {{ name }}_at(i: u32) -> f32 {
  return {{ name }}[i >> 2u][i & 3u];
}
fn {{ name }}_at4(first: u32, stride: u32, d: u32) -> vec4<f32> {
  return {{ name }}[(first + d) >> 2u];
}
//#   else
fn {{ name }}_at(i: u32) -> f32 {
  return widen_{{ dtype }}({{ name }}[i >> 2u][(i >> 1u) & 1u])[i & 1u];
}
fn {{ name }}_at4(first: u32, stride: u32, d: u32) -> vec4<f32> {
  let pair = {{ name }}[(first + d) >> 2u];
  return vec4<f32>(widen_{{ dtype }}(pair.x), widen_{{ dtype }}(pair.y));
}
//#   endif
//# else
fn {{ name }}_at(i: u32) -> f32 {
//#   if dtype in ("float16", "bfloat16")
  return widen_{{ dtype }}({{ name }}[i >> 1u])[i & 1u];
//#   else
  return f32({{ name }}[i]);
//#   endif
}
fn {{ name }}_at4(first: u32, stride: u32, d: u32) -> vec4<f32> {
  var v = vec4<f32>();
  let i = first + d * stride;
  v.x = {{ name }}_at(i);
//#   for n in (1, 2, 3)
//#     if length % 4 == 0
  v[{{ n }}] = {{ name }}_at(i + {{ n }}u * stride);
//#     else
  if (d + {{ n }}u < {{ length }}u) {
    v[{{ n }}] = {{ name }}_at(i + {{ n }}u * stride);
  }
//#     endif
//#   endfor
  return v;
}
//# endif
//# endmacro
//##
//# macro writer(name, dtype)
fn {{ name }}_put4(i: u32, v: vec4<f32>) {
//# if dtype == "float32"
  {{ name }}[i >> 2u] = v;
//# else
  {{ name }}[i >> 2u] = vec2<u32>(narrow_{{ dtype }}(v.xy), narrow_{{ dtype }}(v.zw));
//# endif
}
//# endmacro
//##
//## The two half types: two elements to a u32, low bits first, rounded to nearest even.
//# macro half_types(dtypes)
//# if "float16" in dtypes
fn widen_float16(word: u32) -> vec2<f32> {
  return unpack2x16float(word);
}
// pack2x16float may round either way and may not overflow to infinity; this is the same everywhere.
fn float16_bits(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  let sign = (bits >> 16u) & 0x8000u;
  let size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) {
    return sign | 0x7e00u;
  }
  if (size >= 0x477ff000u) {
    return sign | 0x7c00u;
  }
  if (size < 0x38800000u) {
    // Below 2^-14 the steps are 2^-24, which is what f32 rounds to just above 0.5.
    return sign | (bitcast<u32>(bitcast<f32>(size) + 0.5) - 0x3f000000u);
  }
  return sign | ((size - 0x38000000u + 0xfffu + ((size >> 13u) & 1u)) >> 13u);
}
fn narrow_float16(v: vec2<f32>) -> u32 {
  return float16_bits(v.x) | (float16_bits(v.y) << 16u);
}
//# endif
//# if "bfloat16" in dtypes
fn widen_bfloat16(word: u32) -> vec2<f32> {
  return vec2<f32>(bitcast<f32>(word << 16u), bitcast<f32>(word & 0xffff0000u));
}
fn bfloat16_bits(x: f32) -> u32 {
  let bits = bitcast<u32>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return (bits >> 16u) | 0x40u;
  }
  return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}
fn narrow_bfloat16(v: vec2<f32>) -> u32 {
  return bfloat16_bits(v.x) | (bfloat16_bits(v.y) << 16u);
}
//# endif
//# endmacro
