/** What caches do to the written text, against float32: figures, and the KL divergence of each token as a chart. */

import { fill, h } from '../dom.js';
import { formatBytes, formatCount, formatError, shortError } from '../format.js';
import { tableCaption, tableHead } from './elements.js';
import { tableMenu } from './table-menu.js';
import { textCachesTable } from './tables.js';
import { drawChart } from './write-chart.js';
import { comparedCaches, formatPercent, nameCache } from './write-words.js';

/**
 * @typedef {import('../types').CacheChoice} CacheChoice
 * @typedef {import('../types').WriteComparison} WriteComparison
 * @typedef {{ choice: CacheChoice, found: WriteComparison }} Line
 */

const CAPTION = 'KL divergence from float32 in nats over the text, token by token; the scale is logarithmic.';
const INTRODUCTION = 'Scores the text again over every cache: how much it changes what the model expects at each token.';

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
    h('div', { class: 'caches-head' }, h('h3', null, 'What the cache does to this text'), start, tableMenu('These caches', () => textCachesTable(lines.map(({ choice, found }) => ({ name: nameCache(choice), found, mean: meanOf(found) }))))),
    note,
    h('div', { class: 'write-compare-body', hidden: true }, figure, h('div', { class: 'scroll-x', tabIndex: 0, role: 'region', 'aria-label': 'Caches' }, table)),
  );
  const box = /** @type {HTMLElement} */ (element.lastElementChild);
  let running = 0;
  /** @type {Line[]} */
  let lines = [];
  // Drawn anew for another width, so that the words in it keep their size.
  const draw = () => lines.length && fill(figure, drawChart(lines, figure.clientWidth), h('figcaption', { class: 'muted small' }, CAPTION));
  let width = 0;
  new ResizeObserver(() => {
    if (figure.clientWidth && figure.clientWidth !== width) draw();
    width = figure.clientWidth;
  }).observe(figure);

  async function run() {
    const mine = ++running;
    const { length, choice } = given();
    lines = [];
    start.disabled = true;
    element.setAttribute('aria-busy', 'true');
    box.hidden = false;
    try {
      const caches = comparedCaches(length, choice);
      for (const [index, each] of caches.entries()) {
        note.textContent = `Scoring ${formatCount(length)} tokens: ${nameCache(each)} …`;
        const found = await api.compare(each, index < caches.length - 1);
        if (mine !== running) return;
        lines.push({ choice: each, found });
        fill(body, lines.map(comparisonLine));
        draw();
      }
      note.textContent = lines.length ? describe(lines) : 'The text is longer than the context; choose a ring to compare.';
    } catch (error) {
      if (mine === running) note.textContent = `The caches could not be compared: ${shortError(error)}`;
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
      note.textContent = !lines.length ? INTRODUCTION : 'These are earlier figures. Compare scores the text as it is now.';
    },
  };
}

/** @param {Line[]} lines */
function describe(lines) {
  const [none, kept] = [0, 4].map((sinks) => lines.find(({ choice }) => choice.ring && choice.sink_tokens === sinks)?.found);
  if (!none || !kept) return 'A text longer than twice a ring would also show what a ring without its first tokens does.';
  return `Without the first tokens the ring’s perplexity is ${none.perplexity.toFixed(1)}, with four of them ${kept.perplexity.toFixed(1)}.`;
}

/** The mean KL divergence. @param {WriteComparison} found */
function meanOf({ kl }) {
  return kl.reduce((sum, each) => sum + each, 0) / (kl.length || 1);
}

/** @param {Line} line @param {number} index */
function comparisonLine({ choice, found }, index) {
  return h(
    'tr',
    { style: { '--line': index } },
    h('th', { scope: 'row' }, h('i', { class: choice.ring ? 'swatch kl-line dashed' : 'swatch kl-line' }), nameCache(choice)),
    h('td', { class: 'number' }, formatBytes(found.bytes)),
    h('td', { class: 'number' }, found.perplexity.toFixed(2)),
    h('td', { class: 'number' }, formatPercent(found.equal)),
    h('td', { class: 'number' }, formatError(meanOf(found))),
  );
}
