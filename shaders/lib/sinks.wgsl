//## Attention sinks: a learned logit of each head that takes its share of the softmax and has no value
//## (GPT-OSS; the idea is StreamingLLM's, arXiv 2309.17453).
//## Needs: `sinks_dtype` and the binding `sinks`.
//# from "lib/storage.wgsl" import reader
{{ reader("sinks", sinks_dtype, False, 1) }}
/// The sink of head h, a natural logit; -inf has no share.
fn sink_of(h: u32) -> f32 {
  return sinks_at(params.sinks_first + h * params.sinks_stride);
}

