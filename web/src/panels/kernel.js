/** The attention call of the layer in focus, timed part by part, checked, and its shader to read. */

import { fill, h } from '../dom.js';
import { formatCount, formatError, formatRange, formatTime, shortError } from '../format.js';
import { mountShader } from './shader.js';

/** @typedef {import('../types').Part} Part */

const PARTS = /** @type {[Part, string, string][]} */ ([
  ['upload', 'Upload', 'Q, K and V into GPU memory, until the queue is empty'],
  ['compile', 'Compile', 'WGSL to a pipeline'],
  ['dispatch', 'Dispatch', 'the kernel itself'],
  ['readback', 'Read-back', 'the output into numpy'],
]);

/** @type {import('../types').Measurement[]} */
const NONE = [];

/**
 * @param {HTMLElement} element
 * @param {import('../api.js').Api} api
 * @param {import('../store.js').Store} store
 */
export function mountKernel(element, api, store) {
  const subtitle = h('p', null, 'The layer in focus, run from nothing each time: no upload and no pipeline is kept.');
  const variant = h('select', { 'aria-label': 'Variant', onchange: () => store.set({ variant: variant.value }) });
  const repeats = h(
    'select',
    { 'aria-label': 'Runs' },
    [3, 5, 10, 20, 50].map((n) => h('option', { value: String(n), selected: n === 5 }, String(n))),
  );
  const start = h('button', { class: 'button primary', type: 'submit', disabled: true }, 'Run');
  const form = h(
    'form',
    { class: 'row-form' },
    h('label', { class: 'field' }, 'Variant', variant),
    h('label', { class: 'field' }, 'Runs', repeats),
    start,
  );
  const adapter = h('p', { class: 'muted small adapter-line' }, ' ');
  const body = h('tbody');
  const others = h('tbody', { class: 'operations' });
  const table = h(
    'table',
    { class: 'timings' },
    h('caption', { class: 'sr-only' }, 'Median times of each part of an attention call, and its error'),
    h(
      'thead',
      null,
      h(
        'tr',
        null,
        h('th', { scope: 'col' }, 'Variant'),
        PARTS.map(([part, name, title]) =>
          h('th', { scope: 'col', class: 'number', title }, h('i', { class: `swatch ${part}` }), name),
        ),
        h('th', { scope: 'col', class: 'number', title: 'largest absolute error against float64' }, 'Error'),
      ),
    ),
    body,
    others,
  );
  const note = h('p', { class: 'muted small kernel-note', role: 'status' }, ' ');
  const shader = h('div');
  fill(
    element,
    h('header', null, h('div', null, h('h2', null, 'Kernel'), subtitle), form),
    adapter,
    h('div', { class: 'scroll-x', tabIndex: 0, role: 'region', 'aria-label': 'Timings' }, table),
    note,
    shader,
  );
  const shaderView = mountShader(shader);

  let names = /** @type {string[]} */ ([]);
  /** @type {Record<string, import('../worker.js').OperationInfo>} */
  let operations = {};

  function draw() {
    const results = new Map(store.state.timings.map((one) => [one.variant, one]));
    const lines = (/** @type {string[]} */ shown) =>
      shown.map((name) => line(name, operations[name], results.get(name), () => shaderView.show(results.get(name) ?? null)));
    fill(body, lines(names));
    fill(others, lines(Object.keys(operations)));
  }

  form.addEventListener('submit', (event) => {
    event.preventDefault();
    void run();
  });

  /** @param {string} name one that this adapter lacks leaves the first choice */
  function choose(name) {
    variant.value = name;
    if (!variant.value) variant.selectedIndex = 0;
  }

  async function run() {
    const { source, layer, sourceNumber } = store.state;
    if (!source) return;
    const wanted = { all: names, operations: Object.keys(operations) }[variant.value] ?? [variant.value];
    start.disabled = true;
    const runs = Number(repeats.value);
    try {
      for (const name of wanted) {
        const answer = await api.measure(layer, name, runs, (_, done, total) => {
          note.textContent = `${name}: run ${done + 1} of ${total} …`;
        });
        if (store.state.sourceNumber !== sourceNumber || store.state.layer !== layer) return;
        store.set({ timings: [...store.state.timings.filter((one) => one.variant !== answer.variant), answer] });
        if (name === wanted[0]) shaderView.show(answer);
        note.textContent = explain(answer, operations[name], source, layer);
      }
    } catch (error) {
      note.textContent = `Could not be run: ${shortError(error)}`;
    } finally {
      start.disabled = false;
    }
  }

  store.on(['info'], ({ info }) => {
    if (!info) return;
    names = info.variants;
    operations = info.operations ?? {};
    const more = Object.entries(operations);
    store.set({ timings: NONE });
    fill(
      variant,
      names.length > 1 && h('option', { value: 'all' }, 'all variants'),
      names.map((name) => h('option', { value: name }, name)),
      more.length > 0 &&
        h(
          'optgroup',
          { label: 'Other operations' },
          h('option', { value: 'operations' }, 'all of these'),
          more.map(([name, { label }]) => h('option', { value: name }, label)),
        ),
    );
    choose(store.state.variant);
    adapter.textContent = describeAdapter(info);
    draw();
  });
  store.on(['variant'], (state) => choose(state.variant));
  store.on(['timings'], draw);
  store.on(['sourceNumber', 'edit', 'layer'], ({ source, layer }) => {
    if (!source) return;
    start.disabled = false;
    store.set({ timings: NONE });
    note.textContent = `Layer ${layer + 1}: ${shapeOf(source)}${edits(source)}. Press Run.`;
    shaderView.show(null);
    draw();
  });
}

/** @param {import('../types').SourceInfo} source */
function shapeOf(source) {
  const heads = source.heads === source.kvHeads ? `${source.heads} heads` : `${source.heads} heads over ${source.kvHeads}`;
  return `${heads}, ${formatCount(source.length)} × ${formatCount(source.length)}, head dim ${source.headDim}, float32`;
}

/** @param {import('../types').SourceInfo} source */
function edits({ edited = [] }) {
  return edited.length ? `, with your ${edited.join(' and ')}` : '';
}

/** @param {import('../runtime/client.js').Info} info */
function describeAdapter(info) {
  if (!info.webgpu) return 'No WebGPU here: the numpy reference is timed instead.';
  return info.software
    ? `${info.adapter}. This is a software adapter: the CPU does the work, so the times say nothing about a GPU.`
    : `${info.adapter}.`;
}

/**
 * @param {import('../types').Measurement} m
 * @param {import('../worker.js').OperationInfo | undefined} operation
 * @param {import('../types').SourceInfo} source
 * @param {number} layer
 */
function explain(m, operation, source, layer) {
  const all = m.rows === m.allRows;
  const clock =
    m.clock === 'gpu' ? 'dispatch by GPU timestamps, the rest by wall clock' : 'all by wall clock, the browser’s messaging included';
  const medians = `Medians of ${m.repeats} runs with their quartiles; ${clock}.`;
  const plain = `plain numpy in float32 has ${formatError(m.plain)}.`;
  if (operation) {
    const part = all ? '' : `, the first ${formatCount(m.rows)} positions`;
    return `${operation.call}: ${operation.about}. Layer ${layer + 1}${part}. ${medians} Error: largest difference to float64; ${plain}`;
  }
  const rows = all ? 'all rows' : `${formatCount(m.rows)} of ${formatCount(m.allRows)} rows`;
  return `Layer ${layer + 1}: ${shapeOf(source)}${edits(source)}. ${medians} Error: largest difference to float64 over ${rows}; ${plain}`;
}

/**
 * @param {string} name
 * @param {import('../worker.js').OperationInfo | undefined} operation
 * @param {import('../types').Measurement | null | undefined} m
 * @param {() => void} onShow
 */
function line(name, operation, m, onShow) {
  const label = operation?.label ?? name;
  const total = m ? Object.values(m.parts).reduce((sum, { median }) => sum + median, 0) : 0;
  return h(
    'tr',
    { dataset: { name } },
    h(
      'th',
      { scope: 'row', title: operation ? `${operation.call}: ${operation.about}` : '' },
      m?.wgsl ? h('button', { type: 'button', class: 'link', onclick: onShow, title: 'Show its WGSL' }, label) : label,
      h(
        'div',
        { class: 'stack', 'aria-hidden': 'true' },
        m && PARTS.map(([part]) => h('i', { class: part, style: { '--share': (m.parts[part]?.median ?? 0) / total } })),
      ),
    ),
    PARTS.map(([part]) => {
      const spread = m?.parts[part];
      return h(
        'td',
        { class: 'number' },
        spread ? formatTime(spread.median) : m ? '–' : '·',
        h('div', { class: 'spread' }, spread ? formatRange(spread.low, spread.high) : ' '),
      );
    }),
    h(
      'td',
      { class: 'number' },
      m ? h('span', { class: m.ok ? 'ok' : 'not-ok' }, formatError(m.error)) : '·',
      h('div', { class: 'spread' }, m ? (m.ok ? '≤ 2 × plain' : '> 2 × plain') : ' '),
    ),
  );
}
