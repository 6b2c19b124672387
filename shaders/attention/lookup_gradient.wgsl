//## The gradient of a tensor that score_mod looks things up in, at any indices. A workgroup goes through rows of scores
//## WORKGROUP keys at a time: each invocation computes one key's contributions, then each adds up those of its own
//## elements of the tensor, every WORKGROUP-th one. No two write to one place, so there are no atomics, and the order of
//## the sum is fixed. Each workgroup has a copy of the tensor's gradient to itself, which sum_parts.wgsl adds up.
//##
//## Needs: `lookups`, the numbers of the look-ups: score_mod_slope_N is the score's derivative with respect to the N-th,
//## score_mod_place_N the element that it reads.
//# include "lib/score_gradient.wgsl"
const NOWHERE = 0xffffffffu;
var<workgroup> places: array<u32, WORKGROUP>;
var<workgroup> terms: array<f32, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn main(
  @builtin(workgroup_id) workgroup: vec3<u32>,
  @builtin(num_workgroups) workgroups: vec3<u32>,
  @builtin(local_invocation_index) thread_index: u32,
) {
  let part = workgroup.x + workgroup.y * workgroups.x;
  if (part >= params.parts) {
    return;
  }
  let own = part * params.part_length;
  for (var n = thread_index; n < params.part_length; n += WORKGROUP) {
    out[own + n] = 0.0;
  }
  for (var unit = part; unit < params.units; unit += params.parts) {
//# if varlen
    // A unit is one head of a tile of a packed sequence's queries.
    let at = sequence_of(unit % params.tiles);
    let h = unit / params.tiles;
    let begin = at.tile * TILE_ROWS;
    let end = select(0u, min(begin + TILE_ROWS, at.queries), at.b < params.batch);
//# else
    // A unit is one row.
    let at = sequence(unit / params.queries / params.heads);
    let h = unit / params.queries % params.heads;
    let begin = unit % params.queries;
    let end = begin + 1u;
//# endif
    for (var i = begin; i < end; i++) {
      let position = i32(i) + at.shift;
      let first_key = u32(max(0, position - params.window_left));
      let end_key = u32(max(0, min(at.keys, position + params.window_right + 1)));
      for (var tile = first_key; tile < end_key; tile += WORKGROUP) {
        let j = tile + thread_index;
        var found = ScoreGradient();
        if (j < end_key) {
          found = score_gradient(at, h, i, j);
        }
//# for n in lookups
        workgroupBarrier();
        {
          var place = NOWHERE;
          var term = 0.0;
          // Nothing comes from a hidden score, whatever the derivative is there.
          if (found.gradient != 0.0) {
            place = score_mod_place_{{ n }}(found.score, i32(at.b), i32(h), i32(i), i32(j));
            term = found.gradient * score_mod_slope_{{ n }}(found.score, i32(at.b), i32(h), i32(i), i32(j));
          }
          places[thread_index] = place;
          terms[thread_index] = term;
          workgroupBarrier();
          // Neighbours often read the same element, so that they are added up before they go there.
          var same = NOWHERE;
          var sum = 0.0;
          for (var n = 0u; n < WORKGROUP; n++) {
            let next = places[n];
            if (next == NOWHERE || next % WORKGROUP != thread_index) {
              continue;
            }
            if (next != same) {
              if (same != NOWHERE) {
                out[own + same] += sum;
              }
              same = next;
              sum = 0.0;
            }
            sum += terms[n];
          }
          if (same != NOWHERE) {
            out[own + same] += sum;
          }
        }
//# endfor
      }
    }
  }
}
