/** A map as a figure on white: title, axis labels, map and colour bar, without what the pointer and the visitor have marked. */

import { formatTick } from '../format.js';
import { draw } from './draw.js';
import { FONT, labelRoom, shorten } from './labels.js';
import { STRIP_ROOM } from './margins.js';
import { textWidth } from './measure.js';

/**
 * @typedef {object} Figure
 * @property {string} title of the text @property {string} subtitle such as "Layer 5, head 11"
 * @property {string} meaning of the colours, such as "Attention weight (√ scale)"
 * @property {{ canvas: HTMLCanvasElement, ticks: { value: number, at: number }[], isSigned: boolean }} legend 256 colours in a row
 * @property {string[]} tokens @property {import('./view.js').View} view
 * @property {import('./margins.js').Strips | null} [margins] strips beside the plot
 * @property {import('./draw.js').Picture} picture in colours for a white ground
 */

/** @type {import('./draw.js').Theme} */
export const PAPER = { ink: '#1a1a1a', muted: '#444', line: '#b8b8b8', accent: '#1a1a1a', sunken: '#fff', surface: '#fff' };
export const SANS = 'system-ui, "Segoe UI", Helvetica, Arial, sans-serif';
export const MARGIN = 16; // CSS pixels, as all lengths here
export const HEAD = 50; // the title's and the subtitle's lines
export const FOOT = 62; // the colour bar with its ticks and its name
const SIDE = 520; // of the plot at least
const CELL = 16; // of a cell at least, up to MOST
const MOST = 1040;
const BAR = { width: 260, height: 10 };

/** The figure's size in CSS pixels, and where its plot lies. @param {Pick<Figure, 'tokens' | 'view' | 'margins'>} figure */
export function layOut({ tokens, view, margins }) {
  const room = labelRoom(tokens, (text) => textWidth(text, FONT));
  const side = Math.min(Math.max(SIDE, CELL * view.span), MOST);
  const [left, top] = [MARGIN + room, MARGIN + HEAD + room];
  const beside = margins ? STRIP_ROOM : 0;
  return { left, top, side, beside, width: left + side + beside + MARGIN, height: top + side + beside + FOOT + MARGIN };
}

/** @param {import('./draw.js').Pen} pen @param {Figure} figure */
export function drawFigure(pen, figure) {
  const { left, top, side, beside, width, height } = layOut(figure);
  const { tokens, view, picture, margins } = figure;
  draw(pen, { width, height, background: PAPER.surface, left, top, side, view, tokens, picture, margins: margins ?? null, row: -1, column: -1, theme: PAPER, plain: true });
  drawTitle(pen, figure, width);
  drawBar(pen, figure, left, top + side + beside + 16);
}

/** @param {import('./draw.js').Pen} pen @param {{ title: string, subtitle: string }} figure @param {number} width of the whole figure */
export function drawTitle(pen, { title, subtitle }, width) {
  const fit = (/** @type {string} */ text) => shorten(text, (part) => pen.measureText(part).width, width - 2 * MARGIN);
  pen.textAlign = 'left';
  pen.textBaseline = 'middle';
  pen.fillStyle = PAPER.ink;
  pen.font = `600 15px ${SANS}`;
  pen.fillText(fit(title), MARGIN, MARGIN + 8);
  pen.fillStyle = PAPER.muted;
  pen.font = `13px ${SANS}`;
  pen.fillText(fit(subtitle), MARGIN, MARGIN + 30);
}

/**
 * The colour bar with its ticks and its name.
 * @param {import('./draw.js').Pen} pen @param {Pick<Figure, 'legend' | 'meaning'>} figure @param {number} left @param {number} top
 */
export function drawBar(pen, { legend, meaning }, left, top) {
  pen.imageSmoothingEnabled = false;
  pen.drawImage(legend.canvas, left, top, BAR.width, BAR.height);
  pen.strokeStyle = PAPER.line;
  pen.lineWidth = 1;
  pen.strokeRect(left - 0.5, top - 0.5, BAR.width + 1, BAR.height + 1);
  pen.fillStyle = PAPER.muted;
  pen.font = `11px ${SANS}`;
  pen.textAlign = 'center';
  for (const { value, at } of legend.ticks) {
    pen.fillRect(left + at * BAR.width - 0.5, top + BAR.height, 1, 4);
    pen.fillText(formatTick(value, legend.isSigned), left + at * BAR.width, top + BAR.height + 12);
  }
  pen.textAlign = 'left';
  pen.fillText(meaning, left, top + BAR.height + 30);
}
