/** The KL divergence of each token as a line for each cache. */

import { formatCount } from '../format.js';
import { klPath, klPosition, nameCache } from './write-words.js';

/** @typedef {import('./write-compare.js').Line} Line */

const [NARROWEST, HEIGHT] = [120, 200]; // of the plot in CSS pixels
const ROOM = { left: 40, right: 8, top: 8, bottom: 22 };
const TICKS = [1e-6, 1e-4, 1e-2, 1];
const SVG = 'http://www.w3.org/2000/svg';

/** @param {Line[]} lines @param {number} room the chart's width in CSS pixels */
export function drawChart(lines, room) {
  const width = Math.max(NARROWEST, room - ROOM.left - ROOM.right);
  const tokens = Math.max(...lines.map(({ found }) => found.kl.length));
  const outer = { width: width + ROOM.left + ROOM.right, height: HEIGHT + ROOM.top + ROOM.bottom };
  const grid = TICKS.flatMap((kl) => {
    const y = ROOM.top + HEIGHT * (1 - klPosition(kl));
    return [
      draw('path', { class: 'grid', d: `M${ROOM.left} ${y}H${ROOM.left + width}` }),
      draw('text', { x: ROOM.left - 6, y: y + 4, 'text-anchor': 'end' }, kl === 1 ? '1' : `10${superscript(Math.log10(kl))}`),
    ];
  });
  const ends = [
    draw('text', { x: ROOM.left, y: outer.height - 6 }, 'token 1'),
    draw('text', { x: ROOM.left + width, y: outer.height - 6, 'text-anchor': 'end' }, formatCount(tokens)),
  ];
  const paths = lines.map(({ choice, found }, index) => {
    const d = klPath(found.kl, (width * (found.kl.length - 1)) / Math.max(1, tokens - 1), HEIGHT);
    const path = draw('path', { class: choice.ring ? 'kl-line dashed' : 'kl-line', d, transform: `translate(${ROOM.left} ${ROOM.top})` });
    path.style.setProperty('--line', String(index));
    path.append(draw('title', {}, nameCache(choice)));
    return path;
  });
  const label = 'Line chart of the KL divergence over the text; the table beside it has the means.';
  return draw('svg', { viewBox: `0 0 ${outer.width} ${outer.height}`, role: 'img', 'aria-label': label }, ...grid, ...ends, ...paths);
}

/** @param {number} exponent */
function superscript(exponent) {
  return String(exponent).replace('-', '⁻').replace(/\d/gu, (digit) => '⁰¹²³⁴⁵⁶⁷⁸⁹'[Number(digit)]);
}

/** @param {string} tag @param {Record<string, string | number>} attributes @param {...(Node | string)} children */
function draw(tag, attributes, ...children) {
  const element = /** @type {SVGElement} */ (document.createElementNS(SVG, tag));
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}
