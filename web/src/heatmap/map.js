/** The state of a heat map and what changes it; heatmap.js mounts it, gestures.js listens to the visitor. */

import { paperPicture } from '../paper.js';
import { draw } from './draw.js';
import { PAPER } from './figure.js';
import { FONT, labelRoom } from './labels.js';
import { STRIP_ROOM } from './margins.js';
import { textWidth } from './measure.js';
import { readTheme } from './theme.js';
import { centreOf, clamp, fit, reveal, visible, zoom } from './view.js';

/**
 * @typedef {object} Listeners
 * @property {(row: number, column: number) => void} onChoose the keyboard has moved to another cell
 * @property {(cell: Cell | null) => void} onHover the pointer is over another cell, or over none
 * @property {(cell: Cell, several: boolean) => void} onPin a cell was clicked, tapped, or chosen with Enter;
 *   `several`: beside those that are pinned already
 * @property {() => void} onRelease no cell is to be pinned any more
 * @property {() => void} onView another part of the map is visible now, or it has another size
 *
 * @typedef {{ row: number, column: number }} Cell
 *
 * @typedef {object} HeatMap
 * @property {HTMLElement} element that the canvas fills
 * @property {HTMLCanvasElement} canvas
 * @property {CanvasRenderingContext2D} context
 * @property {Listeners} listeners
 * @property {string[]} tokens
 * @property {import('./view.js').View} view
 * @property {import('./draw.js').Picture | null} picture the cells that were coloured last
 * @property {number} row @property {number} column of the chosen cell
 * @property {Cell | null} hover the cell under the pointer
 * @property {Cell[]} pins
 * @property {boolean} hasMargins whether there is room for strips beside the plot
 * @property {import('./margins.js').Strips | null} margins
 * @property {number} width of the canvas in CSS pixels, 0 before it is laid out
 * @property {number} room for labels beside and above the plot, in CSS pixels
 * @property {import('./draw.js').Theme | null} theme null when it has to be read again
 * @property {number} frame the animation frame that will draw, 0 for none, -1 once the map is destroyed
 */

/** @param {HTMLElement} element @param {HTMLCanvasElement} canvas @param {CanvasRenderingContext2D} context @param {Listeners} listeners @returns {HeatMap} */
export function createMap(element, canvas, context, listeners) {
  return {
    element,
    canvas,
    context,
    listeners,
    tokens: [],
    view: fit(1),
    picture: null,
    row: 0,
    column: 0,
    hover: null,
    pins: [],
    hasMargins: false,
    margins: null,
    width: 0,
    room: 40,
    theme: null,
    frame: 0,
  };
}

/** The plot's side in CSS pixels. @param {HeatMap} map */
function sideOf({ width, room, hasMargins }) {
  return Math.max(40, width - room - 3 - (hasMargins ? STRIP_ROOM : 0));
}

/** @param {HeatMap} map @returns {import('./draw.js').Scene} */
export function sceneOf(map) {
  map.theme ??= readTheme(map.element);
  const { width, room, view, tokens, row, column, hover, pins, margins, theme } = map;
  const picture = theme === PAPER ? paperPicture(map.picture) : map.picture;
  return { width, left: room, top: room, side: sideOf(map), view, tokens, picture, row, column, hover, pins, margins, theme };
}

/** Draws in the next frame. @param {HeatMap} map */
export function redraw(map) {
  map.frame ||= requestAnimationFrame(() => {
    map.frame = 0;
    drawNow(map);
  });
}

/** @param {HeatMap} map */
function drawNow(map) {
  if (!map.width) return;
  const scene = sceneOf(map);
  draw(map.context, scene);
  // Where the plot lies on the canvas in CSS pixels, and how many cells fit across: for tests and for what a page lays over it.
  map.canvas.dataset.plot = [scene.left, scene.top, scene.side, scene.view.span].join(' ');
}

/** For paper, which is white whatever the theme is; there is no next frame before it is printed. @param {HeatMap} map @param {boolean} isPaper */
export function drawFor(map, isPaper) {
  map.theme = isPaper ? PAPER : null;
  drawNow(map);
}

/** Adapts the canvas to the size of its element. @param {HeatMap} map */
export function resize(map) {
  const { element, canvas } = map;
  const box = Math.floor(element.clientWidth);
  const ratio = devicePixelRatio || 1;
  const pixels = Math.round(box * ratio);
  if (!box || (box === map.width && canvas.width === pixels)) return;
  map.width = box;
  canvas.style.height = `${box}px`;
  canvas.width = canvas.height = pixels;
  map.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  redraw(map);
  map.listeners.onView();
}

/** Begins with another source. @param {HeatMap} map @param {string[]} tokens */
export function setTokens(map, tokens) {
  const last = tokens.length - 1;
  Object.assign(map, { tokens, room: labelRoom(tokens, (text) => textWidth(text, FONT)), picture: null, margins: null, view: fit(tokens.length) });
  map.row = Math.min(map.row, last);
  map.column = Math.min(map.column, last);
  map.hover = null;
  allowScrolling(map);
  redraw(map);
}

/** Goes on with a text that is longer or shorter now: what is on screen stays where it is. @param {HeatMap} map @param {string[]} tokens */
export function growTokens(map, tokens) {
  const { picture, view, room } = map;
  const zoomed = isZoomed(map);
  setTokens(map, tokens);
  map.room = Math.max(room, map.room);
  const fits = picture && Math.max(picture.rows[1], picture.columns[1]) <= tokens.length;
  Object.assign(map, { picture: fits ? picture : null, view: zoomed ? clamp(view, tokens.length) : map.view });
  allowScrolling(map);
}

/** @param {HeatMap} map @param {import('./view.js').View} view */
export function setView(map, view) {
  const { x, y, span } = map.view;
  if (view.x === x && view.y === y && view.span === span) return;
  map.view = view;
  allowScrolling(map);
  redraw(map);
  map.listeners.onView();
}

/** Whether there is anything outside of the view. @param {HeatMap} map */
export function isZoomed({ view, tokens }) {
  return view.span < tokens.length;
}

/** A finger scrolls the page over the whole map, and pans a zoomed one. @param {HeatMap} map */
function allowScrolling(map) {
  map.canvas.style.touchAction = isZoomed(map) ? 'none' : 'pan-y';
}

/** Chooses a cell, or the nearest one that exists. @param {HeatMap} map @param {number} row @param {number} column */
export function moveCursor(map, row, column) {
  if (!map.tokens.length) return;
  const last = map.tokens.length - 1;
  const to = { row: Math.min(Math.max(row, 0), last), column: Math.min(Math.max(column, 0), last) };
  if (to.row === map.row && to.column === map.column) return;
  Object.assign(map, to);
  redraw(map);
  map.listeners.onChoose(to.row, to.column);
}

/** The pointer is over a cell, or over none. @param {HeatMap} map @param {Cell | null} cell */
export function hoverOver(map, cell) {
  const to = cell && cell.row < map.tokens.length && cell.column < map.tokens.length ? cell : null;
  if (to?.row === map.hover?.row && to?.column === map.hover?.column) return;
  map.hover = to;
  redraw(map);
  map.listeners.onHover(to);
}

/** Brings the chosen cell into view. @param {HeatMap} map */
export function revealCursor(map) {
  setView(map, reveal(map.view, map.row, map.column, map.tokens.length));
}

/** @param {HeatMap} map @param {number} factor @param {import('./view.js').Point} [at] by default the chosen cell, where it is in view */
export function zoomBy(map, factor, at = centreOf(map.view, map.row, map.column)) {
  setView(map, zoom(map.view, factor, at, map.tokens.length));
}

/** Where an event is, in fractions of the plot. @param {HeatMap} map @param {{ clientX: number, clientY: number }} event */
export function place(map, event) {
  const box = map.canvas.getBoundingClientRect();
  const side = sideOf(map);
  return { x: (event.clientX - box.left - map.room) / side, y: (event.clientY - box.top - map.room) / side };
}

/** The cells on screen, and how many pixels there are for them. @param {HeatMap} map */
export function onScreen(map) {
  const pixels = Math.floor(sideOf(map) * Math.min(devicePixelRatio || 1, 2));
  return { ...visible(map.view, map.tokens.length), pixels, width: map.width };
}
