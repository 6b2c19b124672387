/** Colours of weights from a colour map of 256, on the square root scale that the small maps use. */

/** The byte at which a weight's colour begins. @param {number} weight from 0 to 1; what is outside is clipped */
export function colorOffset(weight) {
  return 4 * Math.round(255 * Math.sqrt(clip(weight)));
}

/** The same in a colour map whose middle is 0. @param {number} difference from -1 to 1; what is outside is clipped */
export function signedColorOffset(difference) {
  const root = Math.sign(difference) * Math.sqrt(clip(Math.abs(difference)));
  return 4 * Math.round(127.5 + 127.5 * root);
}

/**
 * The weights of a cache above their differences from another cache's, as two rows of pixels.
 * @param {Float32Array} weights @param {Float32Array} others
 * @param {Uint8Array} colors @param {Uint8Array} signed 256 RGBA colours each
 * @returns {Uint8Array<ArrayBuffer>} RGBA
 */
export function comparisonPixels(weights, others, colors, signed) {
  const pixels = new Uint8Array(8 * weights.length);
  weights.forEach((weight, i) => {
    copyColor(pixels, i, colors, colorOffset(weight));
    copyColor(pixels, weights.length + i, signed, signedColorOffset(weight - others[i]));
  });
  return pixels;
}

/**
 * A square map of which some rows are known.
 * @param {number} length @param {Iterable<{ position: number, first: number, weights: Float32Array }>} rows
 * @param {Uint8Array} colors 256 RGBA colours
 * @returns {Uint8Array<ArrayBuffer>} RGBA, transparent where nothing is known
 */
export function rowPixels(length, rows, colors) {
  const pixels = new Uint8Array(4 * length * length);
  for (const { position, first, weights } of rows) {
    weights.forEach((weight, i) => copyColor(pixels, position * length + first + i, colors, colorOffset(weight)));
  }
  return pixels;
}

/** @param {Uint8Array} pixels @param {number} pixel @param {Uint8Array} colors @param {number} offset */
function copyColor(pixels, pixel, colors, offset) {
  for (let channel = 0; channel < 4; channel++) pixels[4 * pixel + channel] = colors[offset + channel];
}

/** @param {number} value */
function clip(value) {
  return Math.min(Math.max(value, 0), 1);
}
