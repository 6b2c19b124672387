//## The end of a gradient's kernel: what an invocation has summed goes to memory, and what is not finite is computed once
//## more. Import with context: needs what lib/tiles.wgsl and lib/seen_gradient.wgsl need, and of the kernel the names
//## at, b, head, begin, end, length, first_row, row_count, tx and ty.
//# from "lib/blocks.wgsl" import each
//# from "lib/tiles.wgsl" import row_number with context
//##
//## Writes the gradients of the workgroup's rows. Rows behind a sequence's last key get zeros: the tensors may hold
//## anything there, and 0 · NaN is NaN.
//# macro store(name, acc, d4, factor)
//# set by_query = name == "d_query"
//# set across = (d4 + TX - 1) // TX
//# set stored = "{}" if by_query else "select(vec4<f32>(), {}, i32(n) < length)"
  {
  var lost = false;
//# call(r) each("r", ROWS, unrolled)
  let n = first_row + {{ row_number.format(r) }};
  if (n < row_count) {
    let to = dot(params.{{ name }}_strides.xyz, vec3<u32>(b, head, {{ "at.query_begin" if by_query else "at.key_begin" }} + n));
//#   call(o) each("o", across, unrolled)
    if ({{ o }} * TX + tx < {{ d4 }}u) {
      let four = {{ stored.format(acc ~ "[" ~ r ~ " * " ~ across ~ "u + " ~ o ~ "]" ~ factor) }};
      lost = lost | !all(are_finite(four));
      {{ name }}_put4(to + 4u * ({{ o }} * TX + tx), four);
    }
//#   endcall
  }
//# endcall
  // A loop over the registers would move them to memory for all that is above, so each is asked in turn for its number.
  for (var e = 0u; lost && e < {{ ROWS * across }}u; e++) {
    var four = vec4<f32>();
//# call(r) each("r", ROWS, unrolled)
//#   call(o) each("o", across, unrolled)
    if (e == {{ r }} * {{ across }}u + {{ o }}) {
      four = {{ acc }}[{{ r }} * {{ across }}u + {{ o }}]{{ factor }};
    }
//#   endcall
//# endcall
    let n = first_row + {{ row_number.format("(e / " ~ across ~ "u)") }};
    let column = e % {{ across }}u * TX + tx;
    if (n < row_count && column < {{ d4 }}u && !all(are_finite(four)){{ "" if by_query else " && i32(n) < length" }}) {
      four = seen_{{ name }}(at, head, n, begin, max(begin, end), 4u * column, four);
      let to = dot(params.{{ name }}_strides.xyz, vec3<u32>(b, head, {{ "at.query_begin" if by_query else "at.key_begin" }} + n));
      {{ name }}_put4(to + 4u * column, four);
    }
  }
  }
//# endmacro
