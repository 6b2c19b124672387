/** Draws a map with its axes, with any pen that has the methods of a canvas' 2D context. */

import { formatToken } from '../format.js';
import { axisLabels, labelFont, shorten } from './labels.js';
import { drawMargins } from './margins.js';
import { drawWritten } from './written.js';

/**
 * @typedef {object} Theme
 * @property {string} ink @property {string} muted @property {string} line @property {string} accent
 * @property {string} sunken @property {string} surface
 *
 * @typedef {{ canvas: HTMLCanvasElement, rows: [number, number], columns: [number, number],
 *   written?: import('./written.js').Written | null }} Picture `written`: what may be written into its cells
 *
 * @typedef {object} Scene
 * @property {number} width of the canvas in CSS pixels
 * @property {number} [height] its height, the width unless given
 * @property {number} left where the plot begins @property {number} top @property {number} side of the plot
 * @property {import('./view.js').View} view
 * @property {string[]} tokens
 * @property {Picture | null} picture the cells that were coloured last
 * @property {number} row @property {number} column of the chosen cell
 * @property {import('./map.js').Cell | null} [hover] the cell under the pointer
 * @property {import('./map.js').Cell[]} [pins]
 * @property {import('./margins.js').Strips | null} [margins] what is drawn below the map and at its right
 * @property {boolean} [plain] whether no cell is marked, as in a figure for a paper
 * @property {Theme} theme
 * @property {string} [background] none on screen, where the panel behind it is seen
 *
 * @typedef {Pick<CanvasRenderingContext2D, 'save' | 'restore' | 'translate' | 'rotate' | 'beginPath' | 'moveTo' |
 *   'lineTo' | 'rect' | 'stroke' | 'clearRect' | 'fillRect' | 'strokeRect' | 'lineWidth' | 'font' | 'textAlign' |
 *   'textBaseline' | 'imageSmoothingEnabled' | 'globalAlpha'> & { setLineDash(lengths: number[]): void,
 *   fillStyle: any, strokeStyle: any, clip(): void, fillText(text: string, x: number, y: number): void,
 *   measureText(text: string): { width: number },
 *   drawImage(image: HTMLCanvasElement, x: number, y: number, width: number, height: number): void }} Pen what
 *   draws: a canvas' 2D context, or an object with the same methods, such as an SvgPen
 */

const GRID_FROM = 14; // CSS pixels: smaller cells are drawn without a grid
const NO_CELL = -1e9;
const BESIDE_BELOW = 8; // CSS pixels: of smaller cells the outline is drawn outside

/** @param {Pen} context @param {Scene} scene */
export function draw(context, scene) {
  const { left, top, side, theme } = scene;
  context.clearRect(0, 0, scene.width, scene.width);
  if (scene.background) {
    context.fillStyle = scene.background;
    context.fillRect(0, 0, scene.width, scene.height ?? scene.width);
  }
  context.fillStyle = theme.sunken;
  context.fillRect(left, top, side, side);
  context.save();
  context.beginPath();
  context.rect(left, top, side, side);
  context.clip();
  drawPicture(context, scene);
  if (scene.tokens.length && !scene.plain) drawCells(context, scene);
  context.restore();
  context.strokeStyle = theme.line;
  context.lineWidth = 1;
  context.strokeRect(left - 0.5, top - 0.5, side + 1, side + 1);
  drawRowLabels(context, scene);
  drawColumnLabels(context, scene);
  drawMargins(context, scene);
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
  if (cell >= GRID_FROM) drawGrid(context, { left, top, side, view, theme });
  drawWritten(context, { picture, left, top, side, view, theme });
}

/** A line of background between cells. @param {Pen} context @param {Pick<Scene, 'left' | 'top' | 'side' | 'view' | 'theme'>} scene */
function drawGrid(context, { left, top, side, view, theme }) {
  const cell = side / view.span;
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

/** Pinned cells, the chosen one with its row and column, and the cell under the pointer. @param {Pen} context @param {Scene} scene */
function drawCells(context, scene) {
  const { left, top, side, view, row, column, hover, pins = [], theme } = scene;
  const cell = side / view.span;
  const x = left + (column - view.x) * cell;
  const y = top + (row - view.y) * cell;
  // Beside small cells, so that the weights of the row and the column stay visible.
  const gap = cell < BESIDE_BELOW ? 1.5 : 0;
  context.strokeStyle = theme.accent;
  context.lineWidth = 1.25;
  context.strokeRect(left - 2, y - gap, side + 4, cell + 2 * gap);
  context.strokeRect(x - gap, top - 2, cell + 2 * gap, side + 4);
  for (const one of pins) outline(context, scene, one, theme.ink, 2);
  outline(context, scene, { row, column }, theme.accent, 2.25);
  if (hover) outline(context, scene, hover, theme.accent, 1.25);
}

/** @param {Pen} context @param {Scene} scene @param {import('./map.js').Cell} at @param {string} color @param {number} width */
function outline(context, { left, top, side, view, theme }, { row, column }, color, width) {
  const cell = side / view.span;
  const halo = width + 1.75;
  const gap = cell < BESIDE_BELOW ? halo / 2 : 0;
  const [x, y, size] = [left + (column - view.x) * cell - gap, top + (row - view.y) * cell - gap, cell + 2 * gap];
  context.strokeStyle = theme.surface;
  context.lineWidth = halo;
  context.strokeRect(x, y, size, size);
  context.strokeStyle = color;
  context.lineWidth = width;
  context.strokeRect(x, y, size, size);
}

/** @param {Pen} context @param {Scene} scene */
function drawRowLabels(context, { left, top, side, view, tokens, theme, row, hover, plain }) {
  context.textAlign = 'right';
  const labels = axisLabels({ first: view.y, span: view.span, count: tokens.length, side, chosen: plain ? NO_CELL : (hover?.row ?? row) });
  drawLabels(context, tokens, theme, { labels, font: labelFont(side / view.span) }, (at) => [left - 8, top + at, 0]);
}

/** @param {Pen} context @param {Scene} scene */
function drawColumnLabels(context, { left, top, side, view, tokens, theme, column, hover, plain }) {
  context.textAlign = 'left';
  const labels = axisLabels({ first: view.x, span: view.span, count: tokens.length, side, chosen: plain ? NO_CELL : (hover?.column ?? column) });
  drawLabels(context, tokens, theme, { labels, font: labelFont(side / view.span) }, (at) => [left + at, top - 8, -Math.PI / 2]);
}

/**
 * @param {Pen} context @param {string[]} tokens @param {Theme} theme
 * @param {{ labels: ReturnType<typeof axisLabels>, font: string }} axis
 * @param {(at: number) => [number, number, number]} place x, y and turn of a label at a distance along its axis
 */
function drawLabels(context, tokens, theme, { labels, font }, place) {
  context.textBaseline = 'middle';
  for (const { index, at, chosen } of labels) {
    context.font = chosen ? `600 ${font}` : font;
    write(context, tokens[index], place(at), chosen ? theme.accent : theme.muted);
  }
}

/** @param {Pen} context @param {string} token @param {[number, number, number]} place @param {string} color */
function write(context, token, [x, y, turn], color) {
  context.save();
  context.translate(x, y);
  context.rotate(turn);
  context.fillStyle = color;
  context.fillText(shorten(formatToken(token), (text) => context.measureText(text).width), 0, 0);
  context.restore();
}
