/** The strips beside a map: how much attention each key receives, below it, and the entropy of each row, at its right. */

import { FONT } from './labels.js';

/**
 * @typedef {object} Strips
 * @property {ArrayLike<number>} received by each key: the mean of its column
 * @property {ArrayLike<number>} entropy of each row in bits
 */

/** What the strips take at the right and below, in CSS pixels. */
export const STRIP_ROOM = 46;
const GAP = 7;
const BAR = 22; // the length of the largest bar
const SMALL = FONT.replace('12px', '10.5px');

/** @param {import('./draw.js').Pen} context @param {import('./draw.js').Scene} scene */
export function drawMargins(context, { margins, left, top, side, view, row, column, hover, theme }) {
  if (!margins) return;
  const { received, entropy } = margins;
  const mostReceived = largest(received);
  const mostEntropy = largest(entropy);
  const [below, right] = [top + side + GAP, left + side + GAP];
  for (const { at, size, value, chosen } of bars(received, mostReceived, view.x, view.span, side, hover?.column ?? column)) {
    context.fillStyle = chosen ? theme.accent : theme.muted;
    context.fillRect(left + at, below, size, value * BAR);
  }
  for (const { at, size, value, chosen } of bars(entropy, mostEntropy, view.y, view.span, side, hover?.row ?? row)) {
    context.fillStyle = chosen ? theme.accent : theme.muted;
    context.fillRect(right, top + at, value * BAR, size);
  }
  context.font = SMALL;
  context.fillStyle = theme.muted;
  context.textAlign = 'left';
  context.textBaseline = 'middle';
  context.fillText(`attention received, up to ${figure(mostReceived)}`, left, below + BAR + 9);
  context.save();
  context.translate(right + BAR + 9, top);
  context.rotate(Math.PI / 2);
  context.fillText(`entropy, up to ${figure(mostEntropy)} bits`, 0, 0);
  context.restore();
}

/**
 * A bar for each cell in view, or for each pixel where cells are smaller.
 * @param {ArrayLike<number>} values @param {number} most that has the longest bar
 * @param {number} first @param {number} span cells in view, which may be fractions
 * @param {number} side of the plot @param {number} chosen
 * @returns {{ at: number, size: number, value: number, chosen: boolean }[]} `value` from 0 to 1
 */
export function bars(values, most, first, span, side, chosen) {
  const cell = side / span;
  const per = cell < 1 ? 1 / cell : 1; // cells that share a bar
  const found = [];
  for (let from = Math.floor(first / per) * per; from < Math.min(values.length, first + span); from += per) {
    const [start, end] = [Math.max(0, Math.floor(from)), Math.min(values.length, Math.max(Math.floor(from) + 1, Math.floor(from + per)))];
    let value = 0;
    for (let i = start; i < end; i++) value = Math.max(value, values[i]);
    const at = Math.max(0, (from - first) * cell);
    const until = Math.min(side, (from + per - first) * cell - (cell >= 4 ? 1 : 0));
    if (until > at) found.push({ at, size: until - at, value: most > 0 ? value / most : 0, chosen: start <= chosen && chosen < end });
  }
  return found;
}

/** @param {ArrayLike<number>} values */
function largest(values) {
  let most = 0;
  for (let i = 0; i < values.length; i++) most = Math.max(most, values[i]);
  return most;
}

/** @param {number} value */
function figure(value) {
  return value >= 0.01 || value === 0 ? value.toFixed(2) : value.toPrecision(1);
}
