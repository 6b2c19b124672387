/** What caches do to the written text, against float32: figures, and the KL divergence of each token as a chart. */

import { fill, h } from '../dom.js';
import { formatBytes, formatCount, formatError, shortError } from '../format.js';
import { tableCaption, tableHead } from './elements.js';
import { comparedCaches, formatPercent, klPath, klPosition, nameCache } from './write-words.js';

/**
 * @typedef {import('../types').CacheChoice} CacheChoice
 * @typedef {import('../types').WriteComparison} WriteComparison
 * @typedef {{ choice: CacheChoice, found: WriteComparison }} Line
 */

const [WIDTH, HEIGHT] = [600, 200]; // of the plot, in units of the drawing
const ROOM = { left: 40, right: 8, top: 8, bottom: 22 };
const TICKS = [1e-6, 1e-4, 1e-2, 1];
const INTRODUCTION = 'Scores the text again over every cache: how much it changes what the model expects at each token.';
const SVG = 'http://www.w3.org/2000/svg';

/**
 * @param {import('./write-api.js').WriteApi} api
 * @param {() => { length: number, choice: CacheChoice }} given what is compared
 */
export function mountCompare(api, given) {
  const start = h('button', { class: 'button compact', type: 'button', disabled: true, onclick: () => void run() }, 'Compare');
  const note = h('p', { class: 'muted small', role: 'status' }, INTRODUCTION);
  const body = h('tbody');
  const figure = h('figure', { class: 'kl-chart' });
  const head = tableHead([
    { label: 'Cache' },
    { label: 'Bytes', numeric: true },
    { label: 'Perplexity', title: 'of this text: lower is better', numeric: true },
    { label: 'Same next', title: 'share of positions where the likeliest next token is the same as with float32', numeric: true },
    { label: 'KL', title: 'mean KL divergence from float32 in nats a token', numeric: true },
  ]);
  const table = h('table', null, tableCaption('Caches compared on the written text'), head, body);
  const element = h(
    'section',
    { class: 'write-compare', 'aria-label': 'Caches on this text' },
    h('div', { class: 'caches-head' }, h('h3', null, 'What the cache does to this text'), start),
    note,
    h('div', { class: 'write-compare-body', hidden: true }, figure, h('div', { class: 'scroll-x', tabIndex: 0, role: 'region', 'aria-label': 'Caches' }, table)),
  );
  const box = /** @type {HTMLElement} */ (element.lastElementChild);
  let running = 0;

  async function run() {
    const mine = ++running;
    const { length, choice } = given();
    /** @type {Line[]} */
    const lines = [];
    start.disabled = true;
    element.setAttribute('aria-busy', 'true');
    box.hidden = false;
    try {
      for (const each of comparedCaches(length, choice)) {
        note.textContent = `Scoring ${formatCount(length)} tokens: ${nameCache(each)} …`;
        const found = await api.compare(each);
        if (mine !== running) return;
        lines.push({ choice: each, found });
        fill(body, lines.map(comparisonLine));
        fill(figure, chart(lines), h('figcaption', { class: 'muted small' }, 'KL divergence from float32 in nats over the text, token by token; the scale is logarithmic.'));
      }
      note.textContent = lines.length ? describe(lines) : 'The text is longer than the context; choose a ring to compare.';
    } catch (error) {
      note.textContent = `The caches could not be compared: ${shortError(error)}`;
    } finally {
      element.setAttribute('aria-busy', 'false');
      if (mine === running) start.disabled = false;
    }
  }

  return {
    element,
    /** The text has changed, so what was compared is about an earlier one. @param {boolean} able */
    reset(able) {
      running++;
      start.disabled = !able;
      note.textContent = box.hidden ? INTRODUCTION : 'These are earlier figures. Compare scores the text as it is now.';
    },
  };
}

/** @param {Line[]} lines */
function describe(lines) {
  const [none, kept] = [0, 4].map((sinks) => lines.find(({ choice }) => choice.ring && choice.sink_tokens === sinks)?.found);
  if (!none || !kept) return 'A text longer than twice a ring would also show what a ring without its first tokens does.';
  return `Without the first tokens the ring’s perplexity is ${none.perplexity.toFixed(1)}, with four of them ${kept.perplexity.toFixed(1)}.`;
}

/** @param {Line} line @param {number} index */
function comparisonLine({ choice, found }, index) {
  const mean = found.kl.reduce((sum, kl) => sum + kl, 0) / (found.kl.length || 1);
  return h(
    'tr',
    { style: { '--line': index } },
    h('th', { scope: 'row' }, h('i', { class: choice.ring ? 'swatch kl-line dashed' : 'swatch kl-line' }), nameCache(choice)),
    h('td', { class: 'number' }, formatBytes(found.bytes)),
    h('td', { class: 'number' }, found.perplexity.toFixed(2)),
    h('td', { class: 'number' }, formatPercent(found.equal)),
    h('td', { class: 'number' }, formatError(mean)),
  );
}

/** @param {Line[]} lines */
function chart(lines) {
  const tokens = Math.max(...lines.map(({ found }) => found.kl.length));
  const outer = { width: WIDTH + ROOM.left + ROOM.right, height: HEIGHT + ROOM.top + ROOM.bottom };
  const grid = TICKS.flatMap((kl) => {
    const y = ROOM.top + HEIGHT * (1 - klPosition(kl));
    return [
      draw('path', { class: 'grid', d: `M${ROOM.left} ${y}H${ROOM.left + WIDTH}` }),
      draw('text', { x: ROOM.left - 6, y: y + 4, 'text-anchor': 'end' }, kl === 1 ? '1' : `10${superscript(Math.log10(kl))}`),
    ];
  });
  const ends = [
    draw('text', { x: ROOM.left, y: outer.height - 6 }, 'token 1'),
    draw('text', { x: ROOM.left + WIDTH, y: outer.height - 6, 'text-anchor': 'end' }, formatCount(tokens)),
  ];
  const paths = lines.map(({ choice, found }, index) => {
    const d = klPath(found.kl, (WIDTH * (found.kl.length - 1)) / Math.max(1, tokens - 1), HEIGHT);
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
