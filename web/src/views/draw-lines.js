/** Two columns of tokens with lines between them, with any pen that has the methods of a canvas' 2D context. */

import { formatToken } from '../format.js';
import { FONT, shorten } from '../heatmap/labels.js';
import { position } from './shade.js';

/**
 * @typedef {object} Links
 * @property {ArrayLike<number>} head place among the hues
 * @property {ArrayLike<number>} query @property {ArrayLike<number>} key @property {ArrayLike<number>} weight
 *
 * @typedef {{ side: 'query' | 'key', index: number }} Pointed
 *
 * @typedef {object} Scene lengths in CSS pixels
 * @property {number} left where the drawing begins @property {number} top @property {number} width @property {number} height
 * @property {number} scrolled how far the first token lies above the drawing
 * @property {number} row the height of a token
 * @property {number} room for tokens at each side
 * @property {string[]} tokens
 * @property {Links} links the strongest first
 * @property {string[]} hues
 * @property {import('../types').Style['scale']} scale @property {number} maximum
 * @property {number} query the chosen tokens, -1 for none @property {number} key
 * @property {Pointed | null} pointed
 * @property {readonly import('../store.js').Cell[]} pins
 * @property {import('../heatmap/draw.js').Theme} theme
 */

const GAP = 8; // between a token and its lines
const THICKEST = 3;
const FAINTEST = 0.03; // of the scale: what is fainter is not seen

/** The tokens in view: first and last + 1. @param {Pick<Scene, 'scrolled' | 'height' | 'row'>} scene @param {number} length @returns {[number, number]} */
export function inView({ scrolled, height, row }, length) {
  return [Math.min(Math.max(0, Math.floor(scrolled / row)), length), Math.min(Math.ceil((scrolled + height) / row), length)];
}

/** The token at a point of the drawing, or null between the columns. @param {Pick<Scene, 'scrolled' | 'row' | 'room' | 'width'>} scene @param {number} x @param {number} y @param {number} length @returns {Pointed | null} */
export function tokenAt({ scrolled, row, room, width }, x, y, length) {
  const index = Math.floor((y + scrolled) / row);
  if (index < 0 || index >= length) return null;
  if (x <= room + GAP) return { side: 'query', index };
  return x >= width - room - GAP ? { side: 'key', index } : null;
}

/** @param {import('../heatmap/draw.js').Pen} pen @param {Scene} scene */
export function drawLines(pen, scene) {
  const { left, top, width, height } = scene;
  pen.save();
  pen.beginPath();
  pen.rect(left, top, width, height);
  pen.clip();
  drawLinks(pen, scene);
  drawPins(pen, scene);
  const view = inView(scene, scene.tokens.length);
  for (let index = view[0]; index < view[1]; index++) drawTokens(pen, scene, index);
  pen.restore();
}

/** Where a token's lines end. @param {Scene} scene @param {number} index */
const middle = ({ top, scrolled, row }, index) => top + (index + 0.5) * row - scrolled;

/** @param {import('../heatmap/draw.js').Pen} pen @param {Scene} scene */
function drawLinks(pen, scene) {
  const { left, width, room, links, hues, scale, maximum, pointed, top, height, row } = scene;
  const isSeveral = hues.length > 1;
  const [from, to] = [left + room + GAP, left + width - room - GAP];
  // The strongest come last, so that they are drawn above the others.
  for (let i = links.weight.length - 1; i >= 0; i--) {
    const [query, key, head] = [links.query[i], links.key[i], links.head[i]];
    if (pointed && (pointed.side === 'query' ? query : key) !== pointed.index) continue;
    const at = position(links.weight[i], scale, maximum);
    // Lines of several heads between the same tokens lie beside each other.
    const beside = (head - (hues.length - 1) / 2) * Math.min(2.5, row / 3 / hues.length) * Number(isSeveral);
    const [begin, end] = [middle(scene, query) + beside, middle(scene, key) + beside];
    if (at < FAINTEST || Math.max(begin, end) < top || Math.min(begin, end) > top + height) continue;
    pen.globalAlpha = Math.min(1, at);
    pen.strokeStyle = hues[head];
    pen.lineWidth = 0.4 + (THICKEST - 0.4) * at;
    pen.setLineDash(links.weight[i] < 0 ? [4, 3] : []);
    pen.beginPath();
    pen.moveTo(from, begin);
    pen.lineTo(to, end);
    pen.stroke();
  }
  pen.globalAlpha = 1;
  pen.setLineDash([]);
}

/** @param {import('../heatmap/draw.js').Pen} pen @param {Scene} scene */
function drawPins(pen, scene) {
  const { left, width, room, pins, theme } = scene;
  pen.strokeStyle = theme.ink;
  pen.lineWidth = 1.25;
  pen.setLineDash([1.5, 3]);
  for (const { query, key } of pins) {
    pen.beginPath();
    pen.moveTo(left + room + GAP, middle(scene, query));
    pen.lineTo(left + width - room - GAP, middle(scene, key));
    pen.stroke();
  }
  pen.setLineDash([]);
}

/** A token at both sides. @param {import('../heatmap/draw.js').Pen} pen @param {Scene} scene @param {number} index */
function drawTokens(pen, scene, index) {
  const { left, width, room, row, tokens, query, key, pointed, theme } = scene;
  const y = middle(scene, index);
  pen.textBaseline = 'middle';
  for (const side of /** @type {const} */ (['query', 'key'])) {
    const isChosen = index === (side === 'query' ? query : key);
    const isPointed = pointed?.side === side && pointed.index === index;
    const x = side === 'query' ? left + room : left + width - room;
    pen.font = isChosen || isPointed ? `600 ${FONT}` : FONT;
    pen.textAlign = side === 'query' ? 'right' : 'left';
    const text = shorten(formatToken(tokens[index]), (part) => pen.measureText(part).width, room - GAP);
    if (isChosen) {
      const long = Math.min(room - 1, pen.measureText(text).width + 9);
      pen.strokeStyle = theme.accent;
      pen.lineWidth = 1.5;
      pen.strokeRect(side === 'query' ? x - long + 4.5 : x - 4.5, y - row / 2 + 1.5, long, row - 3);
    }
    pen.fillStyle = isChosen || isPointed ? theme.accent : theme.muted;
    pen.fillText(text, x, y);
  }
}
