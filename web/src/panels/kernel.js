/** The attention call of the layer in focus: timed part by part, checked against float64, and its WGSL. */

import { fill, h } from '../dom.js';
import { shortError } from '../format.js';
import { explained } from '../term.js';
import { field, heading, select } from './elements.js';
import { describeAdapter, describeMeasurement, namesToRun, withTiming } from './measured.js';
import { mountShader } from './shader.js';
import { timingLine, timingTable } from './timings.js';
import { describeShape } from './wording.js';

/**
 * @typedef {import('../runtime/client.js').Info} Info
 *
 * @typedef {object} Panel
 * @property {import('../api.js').Api} api
 * @property {import('../store.js').Store} store
 * @property {ReturnType<typeof buildView>} view
 * @property {ReturnType<typeof mountShader>} shader
 * @property {string[]} variants of this adapter
 * @property {Record<string, import('../worker.js').OperationInfo>} operations beside attention itself
 */

const RUNS = [3, 5, 10, 20, 50];
/** @type {import('../types').Measurement[]} one value, so that setting it twice is no change */
const NONE = [];

/**
 * @param {HTMLElement} element
 * @param {import('../api.js').Api} api
 * @param {import('../store.js').Store} store
 */
export function mountKernel(element, api, store) {
  const view = buildView((variant) => store.set({ variant }));
  fill(element, ...view.parts);
  /** @type {Panel} */
  const panel = { api, store, view, shader: mountShader(view.shader), variants: [], operations: {} };

  view.form.addEventListener('submit', (event) => {
    event.preventDefault();
    void run(panel);
  });
  store.on(['info'], ({ info }) => info && showInfo(panel, info));
  store.on(['variant'], ({ variant }) => choose(panel, variant));
  store.on(['timings'], () => drawTimings(panel));
  store.on(['sourceNumber', 'edit', 'layer'], ({ source, layer }) => source && showSource(panel, source, layer));
}

/** @param {(variant: string) => void} onVariant */
function buildView(onVariant) {
  const variant = select('Variant', [], '', onVariant);
  const runs = select('Runs', RUNS.map((n) => [String(n), String(n)]), '5');
  const start = h('button', { class: 'button primary', type: 'submit', disabled: true }, 'Run');
  const form = h('form', { class: 'row-form' }, field('Variant', variant), field('Runs', runs), start);
  const adapter = h('p', { class: 'muted small adapter-line' }, ' ');
  const { table, variants, operations } = timingTable();
  const note = h('p', { class: 'muted small kernel-note', role: 'status' }, ' ');
  const shader = h('div');
  const about = 'The attention call of the layer in focus. Every run uploads and compiles anew.';
  const parts = [
    h('header', null, heading('Kernel', ...explained(about, 'attention', 'layer')), form),
    adapter,
    h('div', { class: 'scroll-x', tabIndex: 0, role: 'region', 'aria-label': 'Timings' }, table),
    note,
    shader,
  ];
  return { parts, form, variant, runs, start, adapter, variants, operations, note, shader };
}

/** What this adapter can run. @param {Panel} panel @param {Info} info */
function showInfo(panel, info) {
  const { view, store } = panel;
  panel.variants = info.variants;
  panel.operations = info.operations ?? {};
  store.set({ timings: NONE });
  fill(view.variant, choices(panel));
  choose(panel, store.state.variant);
  view.adapter.textContent = describeAdapter(info);
  drawTimings(panel);
}

/** @param {Panel} panel */
function choices({ variants, operations }) {
  const more = Object.entries(operations);
  return [
    variants.length > 1 && h('option', { value: 'all' }, 'all variants'),
    ...variants.map((name) => h('option', { value: name }, name)),
    more.length > 0 &&
      h(
        'optgroup',
        { label: 'Other operations' },
        h('option', { value: 'operations' }, 'all of these'),
        more.map(([name, { label }]) => h('option', { value: name }, label)),
      ),
  ];
}

/** Chooses a variant, or the first one where this adapter lacks it. @param {Panel} panel @param {string} name */
function choose({ view: { variant } }, name) {
  variant.value = name;
  if (!variant.value) variant.selectedIndex = 0;
}

/** @param {Panel} panel @param {import('../types').SourceInfo} source @param {number} layer */
function showSource(panel, source, layer) {
  const { view, store, shader } = panel;
  view.start.disabled = false;
  store.set({ timings: NONE });
  view.note.textContent = `Layer ${layer}: ${describeShape(source)}. Press Run.`;
  shader.show(null);
  drawTimings(panel);
}

/** @param {Panel} panel */
function drawTimings({ view, store, shader, variants, operations }) {
  const results = new Map(store.state.timings.map((one) => [one.variant, one]));
  const lines = (/** @type {string[]} */ names) =>
    names.map((name) => timingLine(name, operations[name], results.get(name), (measured) => shader.show(measured)));
  fill(view.variants, lines(variants));
  fill(view.operations, lines(Object.keys(operations)));
}

/** @param {Panel} panel */
async function run(panel) {
  const { view, store } = panel;
  if (!store.state.source) return;
  view.start.disabled = true;
  try {
    await measureAll(panel);
  } catch (error) {
    view.note.textContent = `The kernel could not be run: ${shortError(error)}`;
  } finally {
    view.start.disabled = false;
  }
}

/** @param {Panel} panel */
async function measureAll({ api, store, view, shader, variants, operations }) {
  const { source, layer, sourceNumber } = store.state;
  if (!source) return;
  const names = namesToRun(view.variant.value, variants, Object.keys(operations));
  const runs = Number(view.runs.value);
  for (const name of names) {
    const measured = await api.measure(layer, name, runs, (_, done, total) => {
      view.note.textContent = `${name}: run ${done + 1} of ${total} …`;
    });
    if (store.state.sourceNumber !== sourceNumber || store.state.layer !== layer) return;
    store.set({ timings: withTiming(store.state.timings, measured) });
    if (name === names[0]) shader.show(measured);
    view.note.textContent = describeMeasurement(measured, operations[name], source, layer);
  }
}
