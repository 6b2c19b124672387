/** Which tokens are written along an axis, where, and how much of each: plain arithmetic, no drawing. */

import { formatToken } from '../format.js';

/** @typedef {(text: string) => number} Measure the width of a text in CSS pixels */

export const FONT = '12px ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace';
const FONT_SIZE = 12; // CSS pixels, of FONT
const SMALLEST = 9; // CSS pixels, of a font that makes room for every label
export const MAX_LABEL = 104; // CSS pixels; longer tokens are shortened
const MIN_LABEL = 24;
const MARGIN = 10; // between the labels and the plot
const LABEL_STEP = 14; // CSS pixels between two labels at least

/** How much room the labels need beside the plot. @param {string[]} tokens @param {Measure} measure */
export function labelRoom(tokens, measure) {
  // Measuring every token of a long text takes too long; labels that turn out wider are shortened.
  const measured = [...tokens.slice(0, 600), ...tokens.slice(-20)];
  const widest = measured.reduce((width, token) => Math.max(width, measure(formatToken(token))), MIN_LABEL);
  return Math.ceil(Math.min(widest, MAX_LABEL)) + MARGIN;
}

/** The size of the labels in CSS pixels: smaller where that leaves every cell its label. @param {number} cell its side in CSS pixels */
export function labelSize(cell) {
  const fitting = Math.floor((2 * FONT_SIZE * cell) / LABEL_STEP) / 2;
  return fitting >= SMALLEST ? Math.min(fitting, FONT_SIZE) : FONT_SIZE;
}

/** The font of the labels of cells of a side in CSS pixels. @param {number} cell */
export function labelFont(cell) {
  return FONT.replace(`${FONT_SIZE}px`, `${labelSize(cell)}px`);
}

/**
 * The labels of an axis: every n-th token where cells are small, without those that the chosen one would cover.
 * @param {{ first: number, span: number, count: number, side: number, chosen: number }} axis the first cell in view
 *   and how many fit (both may be fractions), the number of tokens, the length of the axis in CSS pixels, and the
 *   token to emphasise
 * @returns {{ index: number, at: number, chosen: boolean }[]} `at` is the centre of the token's cell; the chosen
 *   label comes last, so that it is drawn above the others
 */
export function axisLabels({ first, span, count, side, chosen }) {
  const cell = side / span;
  const room = labelSize(cell) < FONT_SIZE ? cell : LABEL_STEP; // between two labels
  const step = roundStep(room / cell);
  const centre = (/** @type {number} */ index) => (index + 0.5 - first) * cell;
  const labels = [];
  for (let index = Math.max(0, Math.ceil(first / step - 1e-6)) * step; index < Math.min(count, first + span); index += step) {
    const at = centre(index);
    const covered = Math.abs(index - chosen) * cell < room - 1e-6;
    if (!covered && at > 0 && at < side) labels.push({ index, at, chosen: false });
  }
  const at = centre(chosen);
  if (chosen < count && at > -1 && at < side + 1) labels.push({ index: chosen, at, chosen: true });
  return labels;
}

/** The smallest of 1, 2, 5, 10, 20, 50 … that is not below `least`. @param {number} least */
export function roundStep(least) {
  for (let ten = 1; ; ten *= 10) {
    for (const digit of [1, 2, 5]) if (digit * ten >= least) return digit * ten;
  }
}

/** A text that fits, cut between characters. @param {string} text @param {Measure} measure @param {number} [room] CSS pixels */
export function shorten(text, measure, room = MAX_LABEL) {
  if (measure(text) <= room) return text;
  const letters = [...text];
  while (letters.length > 1 && measure(`${letters.join('')}…`) > room) letters.pop();
  return `${letters.join('')}…`;
}
