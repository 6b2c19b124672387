/** Draws a map with its axes on a 2D canvas. */

import { context2d } from '../dom.js';
import { formatToken } from '../format.js';

/**
 * @typedef {object} Theme
 * @property {string} ink @property {string} muted @property {string} line @property {string} accent
 * @property {string} sunken @property {string} surface
 *
 * @typedef {object} Scene
 * @property {number} width of the canvas in CSS pixels (it is as high as it needs to be)
 * @property {number} left where the plot begins @property {number} top @property {number} side of the plot
 * @property {import('./view.js').View} view
 * @property {string[]} tokens
 * @property {{ canvas: HTMLCanvasElement, rows: [number, number], columns: [number, number] } | null} picture
 * @property {number} row @property {number} column of the cursor
 * @property {Theme} theme
 * @property {string} [background] none on screen, where the panel shows through
 *
 * @typedef {Pick<CanvasRenderingContext2D, 'save' | 'restore' | 'translate' | 'rotate' | 'beginPath' | 'moveTo' |
 *   'lineTo' | 'rect' | 'stroke' | 'clearRect' | 'fillRect' | 'strokeRect' | 'measureText' | 'lineWidth' | 'font' |
 *   'textAlign' | 'textBaseline' | 'imageSmoothingEnabled'> & {
 *   fillStyle: any, strokeStyle: any, clip(): void, fillText(text: string, x: number, y: number): void,
 *   drawImage(image: HTMLCanvasElement, x: number, y: number, width: number, height: number): void }} Pen what
 *   draws: a canvas' context, or something that does the same elsewhere
 */

const FONT = '12px ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", monospace';
const LABEL_STEP = 14; // pixels between labels at the least
const MAX_LABEL = 104;

/** How much room the labels need. @param {string[]} tokens */
export function labelRoom(tokens) {
  measuring ??= context2d(document.createElement('canvas'));
  measuring.font = FONT;
  let widest = 24;
  // Of a long text a part is enough: labels that turn out longer are shortened.
  for (const token of [...tokens.slice(0, 600), ...tokens.slice(-20)]) widest = Math.max(widest, measuring.measureText(formatToken(token)).width);
  return Math.ceil(Math.min(widest, MAX_LABEL)) + 10;
}

/** @type {CanvasRenderingContext2D | null} */
let measuring = null;

/** @param {Pen} context @param {Scene} scene */
export function draw(context, scene) {
  const { left, top, side, view, theme } = scene;
  context.clearRect(0, 0, scene.width, top + side + 2);
  if (scene.background) {
    context.fillStyle = scene.background;
    context.fillRect(0, 0, scene.width, scene.width);
  }
  context.fillStyle = theme.sunken;
  context.fillRect(left, top, side, side);
  context.save();
  context.beginPath();
  context.rect(left, top, side, side);
  context.clip();
  drawPicture(context, scene);
  if (scene.tokens.length) drawCursor(context, scene);
  context.restore();
  context.strokeStyle = theme.line;
  context.lineWidth = 1;
  context.strokeRect(left - 0.5, top - 0.5, side + 1, side + 1);
  drawLabels(context, scene, view.y, (at) => [left - 8, at, 0], scene.row);
  drawLabels(context, scene, view.x, (at) => [at, top - 8, -Math.PI / 2], scene.column);
}

/** @param {Pen} context @param {Scene} scene */
function drawPicture(context, { picture, left, top, side, view, theme }) {
  if (!picture) return;
  const cell = side / view.span;
  const x = left + (picture.columns[0] - view.x) * cell;
  const y = top + (picture.rows[0] - view.y) * cell;
  const width = (picture.columns[1] - picture.columns[0]) * cell;
  const height = (picture.rows[1] - picture.rows[0]) * cell;
  context.imageSmoothingEnabled = false;
  context.drawImage(picture.canvas, x, y, width, height);
  if (cell < 14) return;
  // A hair of background between cells that are large enough.
  context.strokeStyle = theme.surface;
  context.lineWidth = 1;
  context.beginPath();
  for (let column = Math.ceil(view.x); column < view.x + view.span; column++) {
    const at = Math.round(left + (column - view.x) * cell) - 0.5;
    context.moveTo(at, top);
    context.lineTo(at, top + side);
  }
  for (let row = Math.ceil(view.y); row < view.y + view.span; row++) {
    const at = Math.round(top + (row - view.y) * cell) - 0.5;
    context.moveTo(left, at);
    context.lineTo(left + side, at);
  }
  context.stroke();
}

/** @param {Pen} context @param {Scene} scene */
function drawCursor(context, { left, top, side, view, row, column, theme }) {
  const cell = side / view.span;
  const x = left + (column - view.x) * cell;
  const y = top + (row - view.y) * cell;
  context.strokeStyle = theme.accent;
  context.lineWidth = 1.25;
  context.strokeRect(left - 2, y, side + 4, Math.max(cell, 1));
  context.strokeRect(x, top - 2, Math.max(cell, 1), side + 4);
  context.strokeStyle = theme.surface;
  context.lineWidth = 4;
  context.strokeRect(x, y, cell, cell);
  context.strokeStyle = theme.accent;
  context.lineWidth = 2.25;
  context.strokeRect(x, y, cell, cell);
}

/**
 * @param {Pen} context
 * @param {Scene} scene
 * @param {number} first of the view along this axis
 * @param {(at: number) => [number, number, number]} place x, y and turn of a label whose cell is centred at `at`
 * @param {number} chosen
 */
function drawLabels(context, { left, top, side, view, tokens, theme }, first, place, chosen) {
  const cell = side / view.span;
  const origin = place(0)[2] === 0 ? top : left;
  const step = roundStep(LABEL_STEP / cell);
  context.font = FONT;
  context.textAlign = place(0)[2] === 0 ? 'right' : 'left';
  context.textBaseline = 'middle';
  const begin = Math.ceil(first / step - 1e-6) * step;
  for (let index = begin; index < Math.min(tokens.length, first + view.span); index += step) {
    const at = origin + (index + 0.5 - first) * cell;
    // The chosen label is written last, over whatever is near it.
    const near = Math.abs(index - chosen) * cell < LABEL_STEP;
    if (!near && at > origin && at < origin + side) write(context, tokens[index], place(at), theme.muted);
  }
  const at = origin + (chosen + 0.5 - first) * cell;
  if (chosen < tokens.length && at > origin - 1 && at < origin + side + 1) {
    context.font = `600 ${FONT}`;
    write(context, tokens[chosen], place(at), theme.accent);
  }
}

/** 1, 2 or 5 times a power of ten, at least as much as is asked for. @param {number} least */
function roundStep(least) {
  for (let ten = 1; ; ten *= 10) {
    for (const digit of [1, 2, 5]) if (digit * ten >= least) return digit * ten;
  }
}

/** @param {Pen} context @param {string} token @param {[number, number, number]} place @param {string} color */
function write(context, token, [x, y, turn], color) {
  context.save();
  context.translate(x, y);
  context.rotate(turn);
  context.fillStyle = color;
  context.fillText(shorten(context, formatToken(token)), 0, 0);
  context.restore();
}

/** @param {Pen} context @param {string} text */
function shorten(context, text) {
  if (context.measureText(text).width <= MAX_LABEL) return text;
  const letters = [...text];
  while (letters.length > 1 && context.measureText(`${letters.join('')}…`).width > MAX_LABEL) letters.pop();
  return `${letters.join('')}…`;
}
