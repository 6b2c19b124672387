/** The sentence and the lines as figures on white: title, heads with their hues, colour bar. */

import { formatToken } from '../format.js';
import { drawBar, drawTitle, HEAD, MARGIN, PAPER, SANS } from '../heatmap/figure.js';
import { FONT, shorten } from '../heatmap/labels.js';
import { textWidth } from '../heatmap/measure.js';
import { drawLines } from './draw-lines.js';
import { colorAt, meanOf, PAPER_HUES, position } from './shade.js';

/**
 * @typedef {import('../heatmap/export.js').Drawing} Drawing
 * @typedef {import('../heatmap/draw.js').Pen} Pen
 * @typedef {{ title: string, subtitle: string, heads: { name: string, hue: string }[] }} About heads: none for a single map
 *
 * @typedef {object} SentenceFigure
 * @property {string[]} tokens that are shown
 * @property {number} chosen which of them, or none
 * @property {Float32Array[]} rows their weights by head @property {string[]} hues of the heads
 * @property {number} maximum @property {import('../types').Style['scale']} scale
 * @property {Uint8Array} colors 256, for white
 * @property {Pick<import('../heatmap/figure.js').Figure, 'legend' | 'meaning'>} bar
 */

const WIDTH = 760; // CSS pixels, as all lengths here
const LINE = 26; // of text without its strips
const STRIP = 4; // with the gap above it
const PAD = 5; // of a token at each side
const GAP = 4; // between tokens
const LEGEND = 24; // the line with the heads
const FOOT = 58;

/** @param {About} about @param {SentenceFigure} figure @returns {Drawing} */
export function sentenceDrawing(about, figure) {
  const step = LINE + STRIP * figure.hues.length + 4;
  const boxes = flow(figure.tokens.map((token) => textWidth(formatToken(token), FONT) + 2 * PAD), WIDTH - 2 * MARGIN);
  const top = MARGIN + HEAD + (about.heads.length ? LEGEND : 0);
  const below = top + step * ((boxes.at(-1)?.line ?? 0) + 1);
  const height = below + FOOT + MARGIN;
  return {
    width: WIDTH,
    height,
    title: `${about.title} – ${about.subtitle}`,
    draw: (pen) => {
      ground(pen, WIDTH, height, about);
      const mean = meanOf(figure.rows, figure.tokens.length);
      boxes.forEach(({ x, line, width }, i) => drawToken(pen, figure, i, mean[i], { x: MARGIN + x, y: top + line * step, width }));
      drawBar(pen, figure.bar, MARGIN, below + 8);
    },
  };
}

/** Where tokens stand in running text. @param {number[]} widths @param {number} most the width of a line */
export function flow(widths, most) {
  let [x, line] = [0, 0];
  return widths.map((wide) => {
    const width = Math.min(wide, most);
    if (x > 0 && x + width > most) [x, line] = [0, line + 1];
    const box = { x, line, width };
    x += width + GAP;
    return box;
  });
}

/** @param {Pen} pen @param {SentenceFigure} figure @param {number} index @param {number} mean @param {{ x: number, y: number, width: number }} box */
function drawToken(pen, { tokens, chosen, rows, hues, maximum, scale, colors, bar }, index, mean, { x, y, width }) {
  const at = position(mean, scale, maximum);
  const { ground: fill, ink } = colorAt(colors, bar.legend.isSigned ? 0.5 + 0.5 * Math.sign(mean) * at : at);
  pen.fillStyle = fill;
  pen.fillRect(x, y, width, 20);
  if (index === chosen) {
    pen.strokeStyle = PAPER.ink;
    pen.lineWidth = 1.5;
    pen.strokeRect(x - 1, y - 1, width + 2, 22);
  }
  pen.fillStyle = ink;
  pen.font = FONT;
  pen.textAlign = 'left';
  pen.textBaseline = 'middle';
  pen.fillText(shorten(formatToken(tokens[index]), (part) => pen.measureText(part).width, width - 2 * PAD + 1), x + PAD, y + 10.5);
  rows.forEach((row, i) => {
    pen.fillStyle = hues[i];
    pen.fillRect(x, y + 23 + STRIP * i, width * position(row[index], scale, maximum), 3);
  });
}

/** @param {About} about @param {import('./draw-lines.js').Scene} scene @param {string[]} hues for white @returns {Drawing} */
export function linesDrawing(about, scene, hues) {
  const width = Math.min(Math.max(scene.width, 420), WIDTH);
  const top = MARGIN + HEAD + (about.heads.length ? LEGEND : 0);
  const tall = Math.min(scene.height, scene.tokens.length * scene.row - scene.scrolled);
  const height = top + tall + MARGIN;
  return {
    width,
    height,
    title: `${about.title} – ${about.subtitle}`,
    draw: (pen) => {
      ground(pen, width, height, about);
      drawLines(pen, { ...scene, left: MARGIN, top, width: width - 2 * MARGIN, height: tall, hues, pins: [], query: -1, key: -1, theme: PAPER });
    },
  };
}

/** White, with the title and the heads. @param {Pen} pen @param {number} width @param {number} height @param {About} about */
function ground(pen, width, height, about) {
  pen.fillStyle = PAPER.surface;
  pen.fillRect(0, 0, width, height);
  drawTitle(pen, about, width);
  let x = MARGIN;
  pen.font = `12px ${SANS}`;
  for (const { name, hue } of about.heads) {
    pen.fillStyle = hue;
    pen.fillRect(x, MARGIN + HEAD, 10, 10);
    pen.fillStyle = PAPER.muted;
    pen.fillText(name, x + 15, MARGIN + HEAD + 5.5);
    x += 15 + pen.measureText(name).width + 16;
  }
}

/** The hues of heads on white. @param {number[]} places */
export const paperHues = (places) => places.map((place) => PAPER_HUES[place]);
