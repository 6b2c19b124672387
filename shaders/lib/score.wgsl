//## The meaning of attention's arguments, the same for every kernel.
//##
//## Needs: `softcap`, `has_lengths`, `has_score_mod`, `has_mask_mod`, `has_prob_mod` (bool), `mask_kind` ("none",
//## "bool" or a float dtype), `masks` (whether a mask or a mask_mod hides keys), `in_cache` (whether the keys are a
//## cache's entries) and `has_kept` (whether it keeps its first ones, see lib/cache.wgsl).
//##
//## Scores are in units of log2, so that softmax is exp2: the query comes scaled by scale·log2(e). With a score_mod or
//## a float mask they are in natural units (`natural`): what these say is used as it is, since a factor would overflow,
//## or round scores far from zero differently than another kernel does. lib/exp.wgsl has exp of the difference of two
//## scores.
//## Where each batch element has a length of its own (`has_totals`), lib/cache.wgsl has these as variables.
//# set of_cache = "" if in_cache and has_totals else "params."
//# if mask_kind not in ("none", "bool")
//#   from "lib/storage.wgsl" import reader
{{ reader("mask", mask_kind, False, 1) }}
//# endif
//# include "lib/math.wgsl"
//# if has_score_mod or has_mask_mod or has_prob_mod
//# include "lib/mods.wgsl"
//# endif

/// How many keys batch element b has.
fn key_count(b: u32) -> i32 {
//# if has_lengths
  return clamp(lengths[params.lengths_first + b * params.lengths_stride], 0, i32(params.keys));
//# else
  return i32(params.keys);
//# endif
}

/// What to add to a query's index to get its position among the keys.
fn query_shift(length: i32) -> i32 {
  return select(length - i32(params.queries), 0, params.top_left != 0u);
}

/// Softcap; the query was scaled for it.
fn shaped(dot: f32) -> f32 {
//# if softcap
  return params.score_scale * accurate_tanh(dot);
//# else
  return dot;
//# endif
}

/// Whether the key at j is within the window of a query at `position`, and there at all.
fn in_window(position: i32, j: i32, length: i32) -> bool {
//# if has_kept
  // Between the kept entries and the others params.dropped positions are gone.
  if (j < i32(params.kept)) {
    return (j < length) & (j <= position + {{ of_cache }}dropped + params.window_right);
  }
//# endif
  // Not with &&, which branches.
  return (j < length) & (j >= position - params.window_left) & (j <= position + params.window_right);
}
//# if in_cache and (has_score_mod or has_mask_mod)

/// The position of entry j of a cache, counted from its first append.
fn cached_position(j: u32) -> i32 {
  return select(i32(j) + {{ of_cache }}dropped, i32(j), j < params.kept);
}
//# set mod_arguments = "i32(b), i32(h), i32(i) + " ~ of_cache ~ "query_position, cached_position(j)"
//# else
//# set mod_arguments = "i32(b), i32(h), i32(i), i32(j)"
//# endif

//# if mask_kind == "bool"
fn mask_value(b: u32, h: u32, i: u32, j: u32) -> bool {
  let at = params.mask_first + dot(params.mask_strides, vec4<u32>(b, h, i, j));
  return ((mask[at >> 2u] >> (8u * (at & 3u))) & 0xffu) != 0u;
}

//# elif mask_kind != "none"
fn mask_value(b: u32, h: u32, i: u32, j: u32) -> f32 {
  return mask_at(params.mask_first + dot(params.mask_strides, vec4<u32>(b, h, i, j)));
}

//# endif
//# if masks
/// Whether the mask and mask_mod let query i see key j.
fn mask_allows(b: u32, h: u32, i: u32, j: u32) -> bool {
//#   if has_mask_mod
  if (!mask_mod({{ mod_arguments }})) {
    return false;
  }
//#   endif
//#   if mask_kind == "bool"
  return mask_value(b, h, i, j);
//#   elif mask_kind != "none"
  return !is_hidden(mask_value(b, h, i, j));
//#   else
  return true;
//#   endif
}

//# endif
/// The score of query i and key j from their scaled dot product, minus infinity where i may not see j.
fn score(dot: f32, b: u32, h: u32, i: u32, j: u32, position: i32, length: i32) -> f32 {
  if (!in_window(position, i32(j), length)) {
    return params.empty_lse;
  }
//# if masks
  if (!mask_allows(b, h, i, j)) {
    return params.empty_lse;
  }
//# endif
//# if has_score_mod
  let s = score_mod(shaped(dot), {{ mod_arguments }});
//# else
  let s = shaped(dot);
//# endif
  return s{{ " + mask_value(b, h, i, j)" if mask_kind not in ("none", "bool") }};
}
