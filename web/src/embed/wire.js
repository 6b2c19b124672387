/**
 * Arrays on their way between a notebook's kernel and its front end: JSON with the bytes beside it, as
 * py_attn/remote/protocol.py describes it.
 */

const TYPES = /** @type {Record<string, any>} */ ({
  bool: Uint8Array,
  uint8: Uint8Array,
  int8: Int8Array,
  uint16: Uint16Array,
  int16: Int16Array,
  float16: Uint16Array, // its bits: nothing here computes
  uint32: Uint32Array,
  int32: Int32Array,
  float32: Float32Array,
  float64: Float64Array,
  int64: BigInt64Array,
  uint64: BigUint64Array,
});
const NAMES = new Map(Object.entries(TYPES).filter(([name]) => !['bool', 'float16'].includes(name)).map(([name, type]) => [type, name]));

/** The bytes under whatever a host delivers a buffer as. @param {ArrayBuffer | ArrayBufferView | null | undefined} buffer @returns {Uint8Array<ArrayBuffer>} */
export function bytesOf(buffer) {
  if (!buffer) return new Uint8Array();
  if (ArrayBuffer.isView(buffer)) {
    return new Uint8Array(/** @type {ArrayBuffer} */ (buffer.buffer), buffer.byteOffset, buffer.byteLength);
  }
  return new Uint8Array(buffer);
}

/** @param {any} value @param {(ArrayBuffer | ArrayBufferView)[]} buffers @returns {any} */
export function unpack(value, buffers) {
  if (Array.isArray(value)) return value.map((item) => unpack(item, buffers));
  if (!value || typeof value !== 'object') return value;
  if ('$buffer' in value) {
    const Type = TYPES[value.dtype];
    if (!Type) throw new Error(`arrays of ${value.dtype} are not understood here`);
    const bytes = bytesOf(buffers[value.$buffer]);
    // A message may put a buffer at any offset; typed arrays want theirs aligned.
    const aligned = bytes.byteOffset % Type.BYTES_PER_ELEMENT ? bytes.slice() : bytes;
    return new Type(aligned.buffer, aligned.byteOffset, aligned.byteLength / Type.BYTES_PER_ELEMENT);
  }
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, unpack(item, buffers)]));
}

/** @param {any} value @param {ArrayBufferView[]} buffers gets the bytes @returns {any} what JSON can hold of it */
export function pack(value, buffers) {
  if (ArrayBuffer.isView(value)) {
    buffers.push(value);
    const { length } = /** @type {Uint8Array} */ (value);
    return { $buffer: buffers.length - 1, dtype: NAMES.get(value.constructor) ?? 'uint8', shape: [length ?? value.byteLength] };
  }
  if (Array.isArray(value)) return value.map((item) => pack(item, buffers));
  if (!value || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, pack(item, buffers)]));
}
