/** Weights that are written into the cells of a map, where these are wide enough. */

import { withMinus } from '../format.js';
import { FONT } from './labels.js';

/** @typedef {{ values: ArrayLike<number>, rgba: ArrayLike<number> }} Written the weights of a picture's cells and their colours, row by row */

/** CSS pixels: a cell is wide enough from here on. */
export const WRITTEN_FROM = 34;
const SMALL = FONT.replace('12px', '11px');
const LETTER = 6.7; // CSS pixels of SMALL
const MOST_DECIMALS = 4;
const BLACK = '#000';
const WHITE = '#fff';

/** @param {import('./draw.js').Pen} pen @param {Pick<import('./draw.js').Scene, 'picture' | 'left' | 'top' | 'side' | 'view' | 'theme'>} scene */
export function drawWritten(pen, { picture, left, top, side, view, theme }) {
  const cell = side / view.span;
  if (!picture?.written || cell < WRITTEN_FROM) return;
  const { rows, columns, written } = picture;
  const decimals = decimalsFor(cell, Array.from(written.values).some((value) => value < 0));
  pen.font = SMALL;
  pen.textAlign = 'center';
  pen.textBaseline = 'middle';
  for (let row = rows[0], i = 0; row < rows[1]; row++) {
    for (let column = columns[0]; column < columns[1]; column++, i++) {
      const value = written.values[i];
      if (Number.isNaN(value)) continue;
      const [red, green, blue, alpha] = Array.from({ length: 4 }, (_, channel) => written.rgba[4 * i + channel]);
      pen.fillStyle = alpha ? inkOn(red, green, blue) : theme.ink;
      pen.fillText(cellFigure(value, decimals), left + (column + 0.5 - view.x) * cell, top + (row + 0.5 - view.y) * cell);
    }
  }
}

/** How many decimals fit into a cell. @param {number} cell its side in CSS pixels @param {boolean} isSigned */
export function decimalsFor(cell, isSigned) {
  const letters = Math.floor((cell - 5) / LETTER);
  return Math.max(1, Math.min(MOST_DECIMALS, letters - 2 - Number(isSigned)));
}

/** @param {number} value @param {number} decimals */
export function cellFigure(value, decimals) {
  if (value === 0) return '0';
  const text = value.toFixed(decimals);
  return withMinus(Number(text) === 0 ? text.replace('-', '') : text);
}

/** Black or white, whichever is read better on a colour: the contrast is 4.58 at least (WCAG 2.2, relative luminance). @param {number} red of 255 @param {number} green @param {number} blue */
export function inkOn(red, green, blue) {
  return contrast(luminance(red, green, blue), 0) >= contrast(luminance(red, green, blue), 1) ? BLACK : WHITE;
}

/** @param {number} a @param {number} b relative luminances */
export function contrast(a, b) {
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}

/** @param {number} red of 255 @param {number} green @param {number} blue */
export function luminance(red, green, blue) {
  const [r, g, b] = [red, green, blue].map((value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
