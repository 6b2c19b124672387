/** How weights become colours and lengths: plain arithmetic. */

import { shownHeads } from '../store.js';

/** The log scale spans this many decades below the maximum, as in py_attn/colormaps.py. */
const DECADES = 4;

/**
 * A hue for each of the heads that are shown together, for light and for dark. The first two are of Okabe and Ito (2008),
 * each other one is as far as possible from those before it for every kind of colour vision (web/tests/views.test.js
 * simulates them after Machado et al. 2009), with a contrast of at least 3 to its ground.
 */
export const HUES = [
  ['#0072b2', '#56b4e9'],
  ['#d55e00', '#f0803c'],
  ['#8800ff', '#8822ff'],
  ['#bb8888', '#ffffdd'],
  ['#772200', '#ffcc00'],
  ['#001177', '#996666'],
  ['#664455', '#3366bb'],
  ['#220000', '#aabbbb'],
];
/** On paper, which is white. */
export const PAPER_HUES = HUES.map(([light]) => light);
/** On screen, as CSS. */
export const SCREEN_HUES = HUES.map(([light, dark]) => `light-dark(${light}, ${dark})`);

/**
 * Where a weight lies on a scale, from 0 to 1; of a negative share, its distance from 0.
 * @param {number} value @param {import('../types').Style['scale']} scale @param {number} maximum the weight at 1
 */
export function position(value, scale, maximum) {
  const share = Math.min(Math.abs(value) / maximum, 1);
  if (!(share > 0)) return 0;
  if (scale === 'sqrt') return Math.sqrt(share);
  return scale === 'log' ? Math.max(0, 1 + Math.log10(share) / DECADES) : share;
}

/**
 * The colour of a weight among the 256 of a legend, and the ink that is read best on it.
 * @param {Uint8Array | Uint8ClampedArray} legend RGBA @param {number} at from 0 to 1
 */
export function colorAt(legend, at) {
  const index = 4 * Math.round(255 * Math.min(Math.max(at, 0), 1));
  const [red, green, blue] = legend.subarray(index, index + 3);
  return { ground: `rgb(${red},${green},${blue})`, ink: luminance(red, green, blue) > 0.179 ? '#000' : '#fff' };
}

/** Relative luminance (WCAG 2.2) of an sRGB colour. @param {...number} channels from 0 to 255 */
function luminance(...channels) {
  const [red, green, blue] = channels.map((channel) => {
    const share = channel / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** The mean over heads of their weights of each token. @param {ArrayLike<number>[]} rows one a head @param {number} length @returns {Float32Array} */
export function meanOf(rows, length) {
  const mean = new Float32Array(length);
  for (const row of rows) for (let i = 0; i < length; i++) mean[i] += row[i] / rows.length;
  return mean;
}

/** The heads whose weights are drawn: of a map over several heads there is only one. @param {import('../store.js').State} state */
export function drawnHeads(state) {
  return state.over === 'head' ? shownHeads(state) : [{ layer: state.layer, head: state.head }];
}

/** The part of a long text, so many tokens long, that has a token in it. @param {number} index @param {number} most @param {number} length @returns {[number, number]} */
export function pageOf(index, most, length) {
  const first = Math.floor(index / most) * most;
  return [first, Math.min(first + most, length)];
}
