/** The decoding step once more over smaller caches: their bytes, times and errors, and what they change in the map. */

import { context2d, fill, h } from '../dom.js';
import { formatBytes, formatError, formatTime, shortError } from '../format.js';
import { latest } from '../latest.js';

/** @typedef {import('../types').CacheStep} CacheStep */

const CACHES = /** @type {[string, string, string][]} */ ([
  ['float32', 'float32', ''],
  ['float16', 'float16', 'two numbers a word'],
  ['turboquant4', '4 bits', 'TurboQuant'],
  ['turboquant3', '3 bits', 'TurboQuant'],
  ['turboquant2', '2 bits', 'TurboQuant'],
]);
const PAUSE_MS = 250; // of stepping, before the caches follow

/**
 * @param {import('../api.js').Api} api
 * @param {import('../store.js').Store} store
 */
export function mountCaches(api, store) {
  const start = h('button', { class: 'button compact', type: 'button', disabled: true, onclick: () => begin() }, 'Compare');
  const rows = CACHES.map(([dtype, name, about]) => row(dtype, name, about));
  const note = h('p', { class: 'muted small caches-note', role: 'status' }, INTRODUCTION);
  const element = h(
    'section',
    { class: 'caches', 'aria-label': 'Caches side by side' },
    h('div', { class: 'caches-head' }, h('h3', null, 'The same step with smaller caches'), start),
    h(
      'div',
      { class: 'scroll-x', tabIndex: 0, role: 'region', 'aria-label': 'Caches' },
      h(
        'table',
        null,
        h('caption', { class: 'sr-only' }, 'Bytes, time and error of a decoding step by the dtype of its cache'),
        h(
          'thead',
          null,
          h(
            'tr',
            null,
            h('th', { scope: 'col' }, 'Cache'),
            h('th', { scope: 'col', class: 'number' }, 'Bytes'),
            h('th', { scope: 'col', class: 'number', title: 'all dispatches together, median of three' }, 'Step'),
            h('th', { scope: 'col', class: 'number', title: '‖out − float64‖ / ‖float64‖, all heads' }, 'Output error'),
            h('th', { scope: 'col', class: 'number', title: 'largest difference of a weight of this head to float64' }, 'Weights off by'),
          ),
        ),
        rows.map(({ body }) => body),
      ),
    ),
    note,
  );

  let active = false;
  /** @type {{ position: number, capacity: number } | null} */
  let at = null;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;

  const run = latest(
    async (/** @type {{ position: number, capacity: number }} */ wanted) => {
      const { layer, head, sourceNumber, style } = store.state;
      element.setAttribute('aria-busy', 'true');
      const [colors, signed] = await Promise.all([
        api.legend(style.colormap, 'sqrt'),
        api.legend(style.colormap, 'sqrt', 'gradient'),
      ]);
      /** @type {CacheStep | null} */
      let first = null;
      for (const one of rows) {
        const step = await api.decodeCache({ layer, head, dtype: one.dtype, ...wanted });
        if (store.state.sourceNumber !== sourceNumber || at !== wanted) break;
        first ??= step;
        one.show(step, first, colors.rgba, signed.rgba);
      }
      element.setAttribute('aria-busy', 'false');
      if (first && at === wanted) note.textContent = explain(first);
    },
    (error) => {
      element.setAttribute('aria-busy', 'false');
      note.textContent = `Could not be compared: ${shortError(error)}`;
    },
  );

  function begin() {
    active = true;
    if (at) run(at);
  }

  /** @param {CacheStep} first */
  function explain(first) {
    const clock = !first.time
      ? 'Without WebGPU numpy computes the same, and there is no time worth showing.'
      : first.clock === 'gpu'
        ? 'Times by GPU timestamps.'
        : 'Times by wall clock.';
    const stored = store.state.source?.kind === 'sample' ? ' The sample’s numbers were stored as float16, so that cache loses nothing.' : '';
    return `Under each cache: head ${store.state.head + 1}’s weights, and below them what differs from float32’s (blue: less). ${clock}${stored}`;
  }

  store.on(['sourceNumber'], ({ source }) => {
    active = false;
    at = null;
    start.disabled = !source;
    note.textContent = INTRODUCTION;
    for (const one of rows) one.clear();
  });

  return {
    element,

    /** What is decoded now; once it was asked for, the comparison follows. @param {number} position @param {number} capacity */
    follow(position, capacity) {
      const wanted = (at = { position, capacity });
      clearTimeout(timer);
      if (active) timer = setTimeout(() => at === wanted && run(wanted), PAUSE_MS);
    },
  };
}

const INTRODUCTION =
  'What a cache of fewer bits takes, how long the step lasts, and how far its output and its weights are from float64.';

/** @param {string} dtype @param {string} name @param {string} about */
function row(dtype, name, about) {
  const cells = Array.from({ length: 4 }, () => h('td', { class: 'number' }, '·'));
  const strip = h('canvas', { width: 1, height: 2, role: 'img', 'aria-label': `Weights over the ${name} cache` });
  const body = h(
    'tbody',
    { dataset: { dtype } },
    h('tr', null, h('th', { scope: 'row' }, name, about && h('span', { class: 'muted small' }, ` ${about}`)), cells),
    h('tr', { class: 'strip' }, h('td', { colSpan: 5 }, strip)),
  );

  /** @param {CacheStep} step @param {CacheStep} first @param {Uint8Array} colors @param {Uint8Array} signed */
  function show(step, first, colors, signed) {
    const smaller = first.nbytes / step.nbytes;
    fill(cells[0], formatBytes(step.nbytes), smaller > 1 && h('span', { class: 'muted small' }, ` ÷ ${smaller.toFixed(1)}`));
    cells[1].textContent = step.time == null ? '–' : formatTime(step.time);
    cells[2].textContent = formatError(step.relative);
    cells[2].title = `largest of a number: ${formatError(step.error)}`;
    cells[3].textContent = formatError(step.change);
    paint(step.weights, first.weights, colors, signed);
  }

  /** @param {Float32Array} weights @param {Float32Array} plain @param {Uint8Array} colors @param {Uint8Array} signed */
  function paint(weights, plain, colors, signed) {
    strip.width = weights.length;
    strip.height = 2;
    const context = context2d(strip);
    const image = context.createImageData(weights.length, 2);
    const root = (/** @type {number} */ x) => Math.sign(x) * Math.sqrt(Math.min(Math.abs(x), 1));
    weights.forEach((weight, i) => {
      const above = 4 * Math.round(255 * root(weight));
      const below = 4 * Math.round(127.5 + 127.5 * root(weight - plain[i]));
      image.data.set(colors.subarray(above, above + 4), 4 * i);
      image.data.set(signed.subarray(below, below + 4), 4 * (weights.length + i));
    });
    context.putImageData(image, 0, 0);
  }

  function clear() {
    for (const cell of cells) cell.textContent = '·';
    strip.width = 1;
  }
  return { dtype, body, show, clear };
}
