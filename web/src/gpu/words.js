/**
 * The words of a program, as Python (py_attn/gpu/program.py) writes them: a stream of u32, one record per dispatch:
 *
 *   pipeline, params offset, params size, x, y, z, count, then count × (buffer, byte offset, byte size)
 */

const HEADER_WORDS = 7;
const BINDING_WORDS = 3;

/**
 * @typedef {object} DispatchRecord
 * @property {number} pipeline handle
 * @property {number} offset of the params, in bytes
 * @property {number} size of the params, in bytes
 * @property {[number, number, number]} grid workgroups in x, y and z
 * @property {Uint32Array} bindings (buffer handle, byte offset, byte size) of each, a part of the words
 */

/** @param {Uint32Array} words @returns {DispatchRecord[]} */
export function decodeWords(words) {
  const records = [];
  for (let at = 0; at < words.length; ) {
    const begin = at + HEADER_WORDS;
    const end = begin + BINDING_WORDS * words[at + 6];
    records.push({
      pipeline: words[at],
      offset: words[at + 1],
      size: words[at + 2],
      grid: /** @type {[number, number, number]} */ ([words[at + 3], words[at + 4], words[at + 5]]),
      bindings: words.subarray(begin, end),
    });
    at = end;
  }
  return records;
}
