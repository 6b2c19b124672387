/** Completions: the names of the public API with their signatures. */

/** @param {string} label @param {string} detail @param {string} [type] */
const word = (label, detail, type = 'function') => ({ label, detail, type });

const MASKING = 'causal=, window=, softcap=, mask=, kv_lengths=, score_mod=, mask_mod=';

/** @type {Record<string, { label: string, detail: string, type: string }[]>} */
export const API = {
  pa: [
    word('attention', `(query, key, value, *, ${MASKING}, variant=, return_lse=)`),
    word('attention_weights', '(query, key, lse, *, rows=, columns=, heads=, size=, pool=, colormap=)'),
    word('decode_attention', '(query, cache, *, window=, softcap=, splits=, return_lse=)'),
    word('decode_partials', '(query, cache, *, splits=)'),
    word('attention_backward', '(grad_out, query, key, value, out, lse, *, …)'),
    word('varlen_attention', '(query, key, value, cu_seqlens_q, cu_seqlens_k, *, causal=, window=)'),
    word('varlen_attention_backward', '(grad_out, query, key, value, out, lse, cu_seqlens_q, cu_seqlens_k, *, …)'),
    word('scaled_dot_product_attention', '(query, key, value, attn_mask=None, …)'),
    word('KVCache', '(batch, kv_heads, capacity, head_dim, *, dtype=)', 'class'),
    word('request_device', 'await pa.request_device()'),
    word('default_device', '()'),
    word('where', '(condition, a, b)'),
    word('exp', '(x)'),
    word('log', '(x)'),
    word('tanh', '(x)'),
    word('sqrt', '(x)'),
    word('abs', '(x)'),
    word('minimum', '(a, b)'),
    word('maximum', '(a, b)'),
    word('reference', 'the float64 numpy oracle', 'namespace'),
    word('models', 'real models', 'namespace'),
    word('onnx', 'the Attention operator of ONNX', 'namespace'),
    word('turboquant', 'keys and values of 1 to 4 bits', 'namespace'),
    word('DeviceLostError', '', 'class'),
    word('GPUOutOfMemoryError', '', 'class'),
    word('GPUValidationError', '', 'class'),
    word('ShaderError', '', 'class'),
    word('WebGPUUnavailableError', '', 'class'),
  ],
  'pa.reference': [
    word('attention', `(query, key, value, *, ${MASKING}, return_lse=, compute_dtype=)`),
    word('attention_weights', `(query, key, *, ${MASKING}, compute_dtype=)`),
    word('decode_attention', '(query, keys, values, *, window=, softcap=)'),
  ],
  'pa.onnx': [word('attention', '(Q, K, V, attn_mask=None, past_key=None, past_value=None, …)')],
  'pa.turboquant': [word('quantize', '(x, bits)'), word('dequantize', '(packed)')],
  'pa.models': [word('load', 'await pa.models.load("minilm", progress=)'), word('load_sample', '(data)')],
  device: [
    word('tensor', '(array, dtype=None)'),
    word('empty', '(shape, dtype="float32")'),
    word('timer', 'with device.timer() as timer'),
    word('record', 'with device.record() as program'),
    word('synchronize', 'await device.synchronize()'),
    word('memory_allocated', '()'),
    word('clear_pipelines', '()'),
    word('destroy', '()'),
    word('info', 'vendor, architecture, features, limits', 'property'),
    word('lost', 'whether it is gone', 'property'),
  ],
  model: [
    word('encode', 'await model.encode(text, return_weights=)'),
    word('trace', 'await model.trace(text)'),
    word('tokenize', '(text)'),
  ],
};
