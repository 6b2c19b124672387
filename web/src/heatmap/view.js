/**
 * Which part of a square map is on screen: plain arithmetic, no drawing.
 *
 * @typedef {{ x: number, y: number, span: number }} View first column and row at the left and top edge, and how many
 *   cells fit across; all may be fractions
 */

export const MIN_SPAN = 4;

/** @param {number} length @returns {View} */
export function fit(length) {
  return { x: 0, y: 0, span: length };
}

/** Keeps a view inside its map. @param {View} view @param {number} length @returns {View} */
export function clamp(view, length) {
  const span = Math.min(Math.max(view.span, Math.min(MIN_SPAN, length)), length);
  const limit = length - span;
  return { x: Math.min(Math.max(view.x, 0), limit), y: Math.min(Math.max(view.y, 0), limit), span };
}

/**
 * Zooms so that the point stays where it is.
 * @param {View} view @param {number} factor above 1 comes nearer
 * @param {{ x: number, y: number }} at from 0 to 1 across the plot
 * @param {number} length
 */
export function zoom(view, factor, at, length) {
  const span = clamp({ ...view, span: view.span / factor }, length).span;
  return clamp({ x: view.x + at.x * (view.span - span), y: view.y + at.y * (view.span - span), span }, length);
}

/** @param {View} view @param {number} dx cells @param {number} dy cells @param {number} length */
export function pan(view, dx, dy, length) {
  return clamp({ ...view, x: view.x + dx, y: view.y + dy }, length);
}

/** Moves a view just so far that a cell is inside. @param {View} view @param {number} row @param {number} column @param {number} length */
export function reveal(view, row, column, length) {
  const x = Math.min(Math.max(view.x, column + 1 - view.span), column);
  const y = Math.min(Math.max(view.y, row + 1 - view.span), row);
  return x === view.x && y === view.y ? view : clamp({ ...view, x, y }, length);
}

/** The whole cells that a view touches. @param {View} view @param {number} length */
export function visible(view, length) {
  /** @param {number} from @returns {[number, number]} */
  const range = (from) => [
    Math.max(0, Math.floor(from + 1e-6)),
    Math.min(length, Math.ceil(from + view.span - 1e-6)),
  ];
  return { rows: range(view.y), columns: range(view.x) };
}
