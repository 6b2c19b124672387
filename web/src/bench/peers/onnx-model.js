/**
 * ONNX models of one node, written as protocol buffers by hand: small enough not to need a library or a file.
 * Field numbers are those of onnx.proto.
 */

/**
 * @typedef {{ name: string, type: number, shape: (number | string)[] }} Value
 * @typedef {{ op: string, inputs: Value[], outputs: Value[], attributes: Record<string, number> }} Node
 */

export const FLOAT = 1;
export const INT32 = 6;
export const FLOAT16 = 10;

const text = new TextEncoder();

/** @param {number} n @returns {number[]} */
function varint(n) {
  const bytes = [];
  for (; n > 127; n = Math.floor(n / 128)) bytes.push((n % 128) | 128);
  return [...bytes, n];
}

/** @param {number} field @param {number} n */
function integer(field, n) {
  return [...varint(field << 3), ...varint(n)];
}

/** @param {number} field @param {string | number[]} content */
function chunk(field, content) {
  const bytes = typeof content === 'string' ? [...text.encode(content)] : content;
  return [...varint((field << 3) | 2), ...varint(bytes.length), ...bytes];
}

/** @param {number} field @param {Value} value */
function valueInfo(field, { name, type, shape }) {
  const dims = shape.flatMap((size) => chunk(1, typeof size === 'number' ? integer(1, size) : chunk(2, size)));
  const tensor = [...integer(1, type), ...chunk(2, dims)];
  return chunk(field, [...chunk(1, name), ...chunk(2, chunk(1, tensor))]);
}

/**
 * A model of one node of Microsoft's domain.
 * @param {Node} node an input named '' is left out
 */
export function model({ op, inputs, outputs, attributes }) {
  const node = [
    ...inputs.flatMap(({ name }) => chunk(1, name)),
    ...outputs.flatMap(({ name }) => chunk(2, name)),
    ...chunk(3, 'attention'),
    ...chunk(4, op),
    ...Object.entries(attributes).flatMap(([name, value]) =>
      chunk(5, [...chunk(1, name), ...integer(3, value), ...integer(20, 2)]),
    ),
    ...chunk(7, 'com.microsoft'),
  ];
  const graph = [
    ...chunk(1, node),
    ...chunk(2, 'bench'),
    ...inputs.filter(({ name }) => name).flatMap((value) => valueInfo(11, value)),
    ...outputs.flatMap((value) => valueInfo(12, value)),
  ];
  const opsets = [
    ...chunk(8, [...chunk(1, ''), ...integer(2, 21)]),
    ...chunk(8, [...chunk(1, 'com.microsoft'), ...integer(2, 1)]),
  ];
  return Uint8Array.from([...integer(1, 10), ...chunk(2, 'py-attn'), ...chunk(7, graph), ...opsets]);
}

/**
 * com.microsoft.MultiHeadAttention on [B, S, H·D].
 * @param {{ batch: number, heads: number, queries: number, keys: number, head_dim: number, causal: boolean }} shape
 * @param {number} type
 */
export function multiHeadAttention({ batch, heads, queries, keys, head_dim, causal }, type) {
  const width = heads * head_dim;
  return model({
    op: 'MultiHeadAttention',
    inputs: [
      { name: 'query', type, shape: [batch, queries, width] },
      { name: 'key', type, shape: [batch, keys, width] },
      { name: 'value', type, shape: [batch, keys, width] },
    ],
    outputs: [{ name: 'output', type, shape: [batch, queries, width] }],
    attributes: { num_heads: heads, ...(causal ? { unidirectional: 1 } : {}) },
  });
}

/**
 * com.microsoft.GroupQueryAttention of one new position at the end of a cache of `keys`.
 * @param {{ batch: number, heads: number, kv_heads: number, keys: number, head_dim: number }} shape
 * @param {number} type
 */
export function groupQueryAttention({ batch, heads, kv_heads, keys, head_dim }, type) {
  const cache = [batch, kv_heads, keys, head_dim];
  const row = (/** @type {number} */ count) => [batch, 1, count * head_dim];
  return model({
    op: 'GroupQueryAttention',
    inputs: [
      { name: 'query', type, shape: row(heads) },
      { name: 'key', type, shape: row(kv_heads) },
      { name: 'value', type, shape: row(kv_heads) },
      { name: 'past_key', type, shape: cache },
      { name: 'past_value', type, shape: cache },
      { name: 'seqlens_k', type: INT32, shape: [batch] },
      { name: 'total_sequence_length', type: INT32, shape: [1] },
    ],
    outputs: [
      { name: 'output', type, shape: row(heads) },
      { name: 'present_key', type, shape: cache },
      { name: 'present_value', type, shape: cache },
    ],
    attributes: { num_heads: heads, kv_num_heads: kv_heads },
  });
}
