//## The turn of rotary position embeddings (RoPE: Su et al., arXiv 2104.09864).

/// A pair of a head's numbers, turned by the angle with this cosine and sine.
fn turned(pair: vec2<f32>, angle: vec2<f32>) -> vec2<f32> {
  return vec2<f32>(pair.x * angle.x - pair.y * angle.y, pair.x * angle.y + pair.y * angle.x);
}
