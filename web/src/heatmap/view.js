/**
 * Which part of a square map is on screen: plain arithmetic, no drawing. Points are in fractions of the plot, from 0
 * to 1 to the right and down.
 *
 * @typedef {{ x: number, y: number, span: number }} View first column and row at the left and top edge, and how many
 *   cells fit across; all may be fractions
 * @typedef {{ x: number, y: number }} Point
 */

const MIN_SPAN = 4; // cells

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
 * Zooms so that the cell at a point stays there.
 * @param {View} view @param {number} factor above 1 enlarges
 * @param {Point} at @param {number} length
 */
export function zoom(view, factor, at, length) {
  const span = clamp({ ...view, span: view.span / factor }, length).span;
  return clamp({ x: view.x + at.x * (view.span - span), y: view.y + at.y * (view.span - span), span }, length);
}

/** @param {View} view @param {number} dx cells @param {number} dy cells @param {number} length */
export function pan(view, dx, dy, length) {
  return clamp({ ...view, x: view.x + dx, y: view.y + dy }, length);
}

/** Moves a view by the least that brings a cell into it. @param {View} view @param {number} row @param {number} column @param {number} length */
export function reveal(view, row, column, length) {
  const x = Math.min(Math.max(view.x, column + 1 - view.span), column);
  const y = Math.min(Math.max(view.y, row + 1 - view.span), row);
  return x === view.x && y === view.y ? view : clamp({ ...view, x, y }, length);
}

/** The cells that a view shows, also in part. @param {View} view @param {number} length */
export function visible(view, length) {
  /** @param {number} from @returns {[number, number]} */
  const range = (from) => [
    Math.max(0, Math.floor(from + 1e-6)),
    Math.min(length, Math.ceil(from + view.span - 1e-6)),
  ];
  return { rows: range(view.y), columns: range(view.x) };
}

/** The cell at a point, or null outside of the plot. @param {View} view @param {Point} at */
export function cellAt(view, { x, y }) {
  if (x < 0 || y < 0 || x >= 1 || y >= 1) return null;
  return { row: Math.floor(view.y + y * view.span), column: Math.floor(view.x + x * view.span) };
}

/** The centre of a cell, or the plot's where the cell is out of view. @param {View} view @param {number} row @param {number} column */
export function centreOf(view, row, column) {
  const at = { x: (column + 0.5 - view.x) / view.span, y: (row + 0.5 - view.y) / view.span };
  const inside = at.x >= 0 && at.x <= 1 && at.y >= 0 && at.y <= 1;
  return inside ? at : { x: 0.5, y: 0.5 };
}

/** Drags the map along with a pointer. @param {View} view @param {Point} from @param {Point} to @param {number} length */
export function drag(view, from, to, length) {
  return pan(view, (from.x - to.x) * view.span, (from.y - to.y) * view.span, length);
}

/**
 * Zooms with two fingers, one of which has moved.
 * @param {View} view @param {Point} from @param {Point} to of the finger that moved
 * @param {Point} other finger @param {number} length
 */
export function pinch(view, from, to, other, length) {
  const distance = (/** @type {Point} */ point) => Math.hypot(point.x - other.x, point.y - other.y);
  const centre = { x: (to.x + other.x) / 2, y: (to.y + other.y) / 2 };
  return zoom(view, distance(to) / Math.max(distance(from), 0.01), centre, length);
}
