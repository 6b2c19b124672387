/** Texts in few characters of an address: compressed (RFC 1951), then base64 with - and _ (RFC 4648, section 5). */

/** Longer texts are not packed. */
export const MAX_TEXT = 200_000;
/** Longer packed texts are not unpacked. */
export const MAX_PACKED = 60_000;

/** Thrown for a text that is too long, or is no packed text. */
export class PackedTextError extends Error {
  name = 'PackedTextError';
}

/**
 * @param {string} text
 * @returns {Promise<string>} letters, digits, - and _; '' for ''
 */
export async function packText(text) {
  if (text.length > MAX_TEXT) throw new PackedTextError(`The text has ${text.length} characters, and ${MAX_TEXT} are the most.`);
  if (!text) return '';
  const bytes = await through(new TextEncoder().encode(text), new CompressionStream('deflate-raw'), Infinity);
  let binary = '';
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary).replace(/\+/gu, '-').replace(/\//gu, '_').replace(/=+$/u, '');
}

/**
 * @param {string} packed what `packText` gave
 * @returns {Promise<string>}
 */
export async function unpackText(packed) {
  if (packed.length > MAX_PACKED) throw new PackedTextError(`The packed text has ${packed.length} characters, and ${MAX_PACKED} are the most.`);
  if (!packed) return '';
  if (!/^[\w-]+$/u.test(packed)) throw new PackedTextError('This is no packed text: it has other characters than letters, digits, - and _.');
  try {
    const binary = atob(packed.replace(/-/gu, '+').replace(/_/gu, '/'));
    const bytes = Uint8Array.from(binary, (character) => character.charCodeAt(0));
    // A few bytes can stand for gigabytes, so no more is unpacked than a text may have.
    const text = await through(bytes, new DecompressionStream('deflate-raw'), 4 * MAX_TEXT);
    return new TextDecoder('utf-8', { fatal: true }).decode(text);
  } catch (error) {
    if (error instanceof PackedTextError) throw error;
    throw new PackedTextError('This is no packed text, or a part of it is missing.');
  }
}

/**
 * @param {Uint8Array<ArrayBuffer>} bytes @param {GenericTransformStream} stream @param {number} most bytes of the result
 * @returns {Promise<Uint8Array>}
 */
async function through(bytes, stream, most) {
  const reader = /** @type {ReadableStream<Uint8Array>} */ (new Blob([bytes]).stream().pipeThrough(/** @type {any} */ (stream))).getReader();
  /** @type {Uint8Array[]} */
  const parts = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    if (size > most) {
      await reader.cancel().catch(() => {});
      throw new PackedTextError(`The text is longer than ${MAX_TEXT} characters.`);
    }
    parts.push(value);
  }
  const all = new Uint8Array(size);
  parts.reduce((at, part) => (all.set(part, at), at + part.length), 0);
  return all;
}
