/**
 * The words of a program, as Python (py_attn/gpu/recorder.py) writes them: a stream of u32, one record per dispatch:
 *
 *   pipeline, params size, x, y, z, count, then count × (buffer, byte offset, byte size)
 *
 * The params of all records lie in one block of bytes, in order, each from the next multiple of PARAMS_ALIGNMENT on.
 */

const HEADER_WORDS = 6;
const BINDING_WORDS = 3;
const PARAMS_ALIGNMENT = 256;

/**
 * @typedef {object} DispatchRecord
 * @property {number} pipeline handle
 * @property {number} offset of the params, in bytes
 * @property {number} size of the params, in bytes
 * @property {[number, number, number]} grid workgroups in x, y and z
 * @property {Uint32Array} buffers (handle, byte offset, byte size) of each
 */

/** @param {Uint32Array} words @returns {DispatchRecord[]} */
export function decodeWords(words) {
  /** @type {DispatchRecord[]} */
  const records = [];
  let offset = 0;
  for (let at = 0; at < words.length; ) {
    const [pipeline, size, x, y, z, count] = words.subarray(at, at + HEADER_WORDS);
    const begin = at + HEADER_WORDS;
    const end = begin + BINDING_WORDS * count;
    records.push({ pipeline, offset, size, grid: [x, y, z], buffers: words.slice(begin, end) });
    offset += Math.ceil(size / PARAMS_ALIGNMENT) * PARAMS_ALIGNMENT;
    at = end;
  }
  return records;
}
