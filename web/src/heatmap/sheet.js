/** The maps of many heads as one figure on white: layers as rows, heads as columns, with one colour bar. */

import { drawBar, drawTitle, HEAD, MARGIN, PAPER, SANS } from './figure.js';

/**
 * @typedef {object} Sheet
 * @property {string} title of the text @property {string} subtitle
 * @property {string} meaning of the colours
 * @property {import('./figure.js').Figure['legend']} legend
 * @property {string[]} notes sentences below the maps
 * @property {number} layer the first one
 * @property {number} heads of a layer
 * @property {HTMLCanvasElement[]} maps of all heads, layer by layer
 */

const GAP = 4;
const LABEL = { left: 34, top: 20 };
const LEAST = 40; // the side of a map, so that it still can be read
const MOST = 160;
const MOST_ALONE = 320; // of a single layer's
const ACROSS = 1000; // all maps together, where they are not the least
const DOWN = 2400;
const NARROWEST = 440; // for the colour bar and the words
const LINE = 16;
const BAR = 62;

/**
 * How many maps stand in a row, how large they are, and where. The heads of a single layer fill several rows.
 * @param {{ layers: number, heads: number }} shape
 */
export function arrangeMaps({ layers, heads }) {
  const alone = layers === 1;
  const columns = alone ? Math.min(heads, Math.max(2, Math.ceil(Math.sqrt(1.4 * heads)))) : heads;
  const rows = alone ? Math.ceil(heads / columns) : layers;
  const fits = Math.min(ACROSS / columns, DOWN / rows) - GAP;
  const side = Math.floor(Math.max(LEAST, Math.min(alone ? MOST_ALONE : MOST, fits)));
  const [left, top] = [MARGIN + (alone ? 0 : LABEL.left), MARGIN + HEAD + (alone ? 0 : LABEL.top)];
  const down = side + GAP + (alone ? LABEL.top : 0);
  const at = (/** @type {number} */ index) => ({
    x: left + (index % columns) * (side + GAP),
    y: top + Math.floor(index / columns) * down + (alone ? LABEL.top : 0),
  });
  return { alone, columns, rows, side, left, top, at, right: left + columns * (side + GAP) - GAP, bottom: top + rows * down - GAP };
}

/** @param {Sheet} sheet */
function shapeOf({ maps, heads }) {
  return { layers: maps.length / heads, heads };
}

/** The figure's size in CSS pixels. @param {Sheet} sheet @param {(text: string, font: string) => number} measure */
export function sizeOfSheet(sheet, measure) {
  const { right, bottom } = arrangeMaps(shapeOf(sheet));
  const width = Math.max(right + MARGIN, NARROWEST);
  const lines = linesOf(sheet, width, measure).length;
  return { width, height: bottom + LINE + BAR + lines * LINE + MARGIN };
}

/** @param {Sheet} sheet @param {number} width @param {(text: string, font: string) => number} measure */
function linesOf({ notes }, width, measure) {
  const font = `11px ${SANS}`;
  return notes.flatMap((note) => wrap(note, (text) => measure(text, font), width - 2 * MARGIN));
}

/** A text in lines that fit. @param {string} text @param {(text: string) => number} measure @param {number} room */
export function wrap(text, measure, room) {
  /** @type {string[]} */
  const lines = [];
  for (const word of text.split(' ')) {
    const longer = lines.length ? `${lines.at(-1)} ${word}` : word;
    if (lines.length && measure(longer) <= room) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

/** @param {import('./draw.js').Pen} pen @param {Sheet} sheet @param {(text: string, font: string) => number} measure */
export function drawSheet(pen, sheet, measure) {
  const { width, height } = sizeOfSheet(sheet, measure);
  const place = arrangeMaps(shapeOf(sheet));
  pen.fillStyle = PAPER.surface;
  pen.fillRect(0, 0, width, height);
  drawTitle(pen, sheet, width);
  sheet.maps.forEach((map, index) => {
    const { x, y } = place.at(index);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(map, x, y, place.side, place.side);
    pen.strokeStyle = PAPER.line;
    pen.lineWidth = 1;
    pen.strokeRect(x - 0.5, y - 0.5, place.side + 1, place.side + 1);
  });
  drawLabels(pen, sheet, place);
  drawBar(pen, sheet, MARGIN, place.bottom + LINE);
  pen.font = `11px ${SANS}`;
  linesOf(sheet, width, measure).forEach((line, i) => pen.fillText(line, MARGIN, place.bottom + LINE + BAR + (i + 0.5) * LINE));
}

/** @param {import('./draw.js').Pen} pen @param {Sheet} sheet @param {ReturnType<typeof arrangeMaps>} place */
function drawLabels(pen, { layer, heads, maps }, { alone, side, at, left, top }) {
  pen.font = `12px ${SANS}`;
  pen.fillStyle = PAPER.muted;
  pen.textBaseline = 'middle';
  pen.textAlign = 'center';
  for (let head = 0; head < heads; head++) {
    const { x, y } = at(head);
    pen.fillText(`H${head}`, x + side / 2, (alone ? y : top) - 10);
  }
  pen.textAlign = 'right';
  for (let row = 0; row < maps.length / heads && !alone; row++) {
    pen.fillText(`L${layer + row}`, left - 8, at(row * heads).y + side / 2);
  }
  pen.textAlign = 'left';
}
