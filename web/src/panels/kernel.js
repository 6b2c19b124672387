/** The attention call of the layer in focus: timed part by part, checked against float64, and its WGSL. */

import { fill, h } from '../dom.js';
import { isLoss, shortError } from '../format.js';
import { explained } from '../term.js';
import { field, heading, select } from './elements.js';
import { isSameText } from './fork-list.js';
import { describeAdapter, describeMeasurement, namesToRun, withTiming } from './measured.js';
import { mountShader } from './shader.js';
import { tableMenu } from './table-menu.js';
import { timingsTable } from './tables.js';
import { timingLines, timingTable } from './timings.js';
import { describeShape } from './wording.js';

/**
 * @typedef {import('../runtime/client.js').Info} Info
 * @typedef {import('../types').Measurement} Measurement
 * @typedef {import('../store.js').Fork} Fork
 *
 * @typedef {{ stop: () => void, mountForks: typeof import('./forks.js').mountForks }} Own `stop` ends Python wherever it is,
 *   and starts it anew; `mountForks` comes from outside, so that a notebook's front end has no editor in it
 *
 * @typedef {object} Panel
 * @property {import('../api.js').Api} api
 * @property {import('../store.js').Store} store
 * @property {ReturnType<typeof buildView>} view
 * @property {ReturnType<typeof mountShader>} shader
 * @property {ReturnType<typeof import('./forks.js').mountForks> | null} forks null where nobody can edit kernels
 * @property {(() => void) | undefined} stop ends Python wherever it is
 * @property {string[]} variants of this adapter
 * @property {Record<string, import('../worker.js').OperationInfo>} operations beside attention itself
 * @property {Map<string, Measurement[]>} kept what was measured of the source that is open, by edit and layer
 * @property {number} keptOf the number of that source
 * @property {{ cancelled: boolean } | null} running
 * @property {{ sourceNumber: number, key: string } | null} target what is being measured
 * @property {boolean} lost whether the last run ended with the loss of the GPU
 * @property {string} shown name of the row whose WGSL is shown
 */

const LOST = 'The GPU was lost while a kernel ran. Press Run to begin again.';
const RUNS = [3, 5, 10, 20, 50];
/** @type {Measurement[]} one value, so that setting it twice is no change */
const NONE = [];
const PATIENCE_MS = 5000; // after Cancel, before ending Python is offered

/**
 * @param {HTMLElement} element
 * @param {import('../api.js').Api} api
 * @param {import('../store.js').Store} store
 * @param {Own} [own] where kernels can be edited
 */
export function mountKernel(element, api, store, own) {
  const view = buildView({ choose: (variant) => store.set({ variant }), cancel: () => cancel(panel), table: () => timingsTable(store.state.timings, store.state.layer) });
  fill(element, ...view.parts);
  /** @type {Panel} */
  const panel = {
    api,
    store,
    view,
    shader: mountShader(view.shader, own ? (measured) => panel.forks?.add(measured.variant, measured.wgsl) : null),
    forks: own ? own.mountForks(api, store, {
          time: (fork) => timeFork(panel, fork),
          taken: () => names(panel),
          renamed: (from, to) => renamed(panel, from, to),
        }) : null,
    stop: own?.stop,
    variants: [],
    operations: {},
    kept: new Map(),
    keptOf: -1,
    running: null,
    target: null,
    lost: false,
    shown: '',
  };
  if (panel.forks) view.shader.after(panel.forks.element);

  view.form.addEventListener('submit', (event) => {
    event.preventDefault();
    void run(panel);
  });
  store.on(['info'], ({ info }) => info && showInfo(panel, info));
  store.on(['variant'], ({ variant }) => choose(panel, variant));
  store.on(['timings', 'forks'], () => drawTimings(panel));
  store.on(['sourceNumber', 'edit', 'layer'], ({ source }) => source && showSource(panel));
}

/** @param {{ choose: (variant: string) => void, cancel: () => void, table: () => import('../table-text.js').Table }} actions */
function buildView(actions) {
  const variant = select('Variant', [], '', actions.choose);
  const runs = select('Runs', RUNS.map((n) => [String(n), String(n)]), '5');
  const start = h('button', { class: 'button primary', type: 'submit', disabled: true }, 'Run');
  const cancelling = h('button', { class: 'button', type: 'button', disabled: true, onclick: actions.cancel }, 'Cancel');
  const buttons = h('div', { class: 'form-buttons' }, start, cancelling);
  const form = h('form', { class: 'row-form' }, field('Variant', variant), field('Runs', runs), buttons);
  const adapter = h('p', { class: 'muted small adapter-line' }, ' ');
  const main = timingTable('Variant', ['', 'own']);
  const more = timingTable('Operation', ['operations']);
  const others = h(
    'details',
    { class: 'other-operations', hidden: true },
    h('summary', null, 'Other operations'),
    h('div', { class: 'scroll-x', tabIndex: 0, role: 'region', 'aria-label': 'Timings of other operations' }, more.table),
  );
  const note = h('p', { class: 'muted small kernel-note', role: 'status' }, ' ');
  const shader = h('div');
  const about = 'The attention call of the layer in focus. Every run uploads and compiles anew.';
  const parts = [
    h('header', null, heading('Kernel', ...explained(about, 'attention', 'layer')), form),
    h('div', { class: 'beside-menu' }, adapter, tableMenu('Timings', actions.table)),
    h('div', { class: 'scroll-x', tabIndex: 0, role: 'region', 'aria-label': 'Timings' }, main.table),
    others,
    note,
    shader,
  ];
  const [variants, own] = main.bodies;
  return { parts, form, variant, runs, start, cancelling, adapter, variants, own, others, operations: more.bodies[0], note, shader };
}

/** What this adapter can run. @param {Panel} panel @param {Info} info */
function showInfo(panel, info) {
  const { view, store } = panel;
  panel.variants = info.variants;
  panel.operations = info.operations ?? {};
  panel.kept.clear();
  store.set({ timings: NONE });
  fill(view.variant, choices(panel));
  choose(panel, store.state.variant);
  view.others.hidden = !Object.keys(panel.operations).length;
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

/** The names of all rows. @param {Panel} panel */
function names({ store, variants, operations }) {
  return [...variants, ...Object.keys(operations), ...store.state.forks.map(({ name }) => name)];
}

/** What results belong to, of a source. @param {import('../store.js').State} state */
function keyOf({ source, editText, layer }) {
  return JSON.stringify([appliedOf({ source, editText }), layer]);
}

/** What the visitor's text makes of a source, which is the same where the same text is applied again. @param {Pick<import('../store.js').State, 'source' | 'editText'>} state */
function appliedOf({ source, editText }) {
  return `${source?.edited}: ${editText}`;
}

/** Shows what was measured of the layer, if anything was. @param {Panel} panel */
function showSource(panel) {
  const { view, store, shader, kept } = panel;
  const { state } = store;
  const { source, sourceNumber, layer } = state;
  if (!source) return;
  if (panel.keptOf !== sourceNumber) kept.clear();
  panel.keptOf = sourceNumber;
  view.start.disabled = panel.running !== null;
  const timings = kept.get(keyOf(state)) ?? NONE;
  store.set({ timings });
  if (!panel.running) view.note.textContent = `Layer ${layer}: ${describeShape(source)}.${panel.lost ? ` ${LOST}` : timings.length ? '' : ' Press Run.'}`;
  shader.show(timings.find(({ variant }) => variant === panel.shown) ?? null);
  drawTimings(panel);
}

/** @param {Panel} panel */
function drawTimings(panel) {
  const { view, store, variants, operations } = panel;
  const { timings, forks } = store.state;
  const found = new Map(timings.map((one) => [one.variant, one]));
  const line = (/** @type {string} */ name) => {
    const measured = found.get(name);
    const operation = operations[name];
    const open = measured?.wgsl ? () => showShader(panel, measured) : null;
    const title = operation ? `${operation.call}: ${operation.about}` : '';
    return { name, label: operation?.label ?? name, title, measured, open };
  };
  const [builtIn, own] = timingLines([variants.map(line), forks.filter(({ of }) => !operations[of]).map((fork) => forkLine(panel, fork, found))], true);
  fill(view.variants, builtIn);
  fill(view.own, own);
  const [others] = timingLines([[...Object.keys(operations).map(line), ...forks.filter(({ of }) => operations[of]).map((fork) => forkLine(panel, fork, found))]], false);
  fill(view.operations, others);
}

/** @param {Panel} panel @param {Fork} fork @param {Map<string, Measurement>} found @returns {import('./timings.js').Line} */
function forkLine({ forks }, { name, of, text }, found) {
  const measured = found.get(name);
  const old = measured && !isSameText(text, measured.wgsl);
  return {
    name,
    label: name,
    title: `Your kernel, forked from ${of}`,
    remark: old ? 'changed since it was timed' : measured ? '' : 'not timed yet',
    measured,
    open: forks && (() => void forks.show(name)),
  };
}

/** @param {Panel} panel @param {Measurement} measured */
function showShader(panel, measured) {
  panel.shown = measured.variant;
  panel.shader.show(measured);
}

/** What was measured of a kernel of the visitor's own goes by its new name. @param {Panel} panel @param {string} from @param {string} to */
function renamed({ store, kept }, from, to) {
  for (const [key, timings] of kept) {
    kept.set(key, timings.map((one) => (one.variant === from ? { ...one, variant: to } : one)));
  }
  store.set({ timings: kept.get(keyOf(store.state)) ?? NONE });
}

// Running

/** @param {Panel} panel */
async function run(panel) {
  const { view, variants, operations } = panel;
  const asked = namesToRun(view.variant.value, variants, Object.keys(operations));
  if (asked.some((name) => operations[name])) view.others.open = true;
  try {
    await measureAll(panel, asked);
  } catch (error) {
    panel.lost = isLoss(error);
    view.note.textContent = panel.lost ? LOST : `The kernel could not be run: ${shortError(error)}`;
  }
}

/** @param {Panel} panel @param {string[]} asked names of variants or operations */
async function measureAll(panel, asked) {
  const { api, store, view, operations } = panel;
  await whileRunning(panel, async (isWanted) => {
    const { source, layer } = store.state;
    const runs = Number(view.runs.value);
    for (const name of asked) {
      const measured = await api.measure(layer, name, runs, (_, done, total) => progress(panel, name, done, total));
      if (!measured || !source) return 'Cancelled. What was measured before is kept.';
      keep(panel, measured, name === asked[0]);
      view.note.textContent = describeMeasurement(measured, operations[name], source, layer);
      if (!isWanted()) return view.note.textContent;
    }
    return view.note.textContent ?? '';
  });
}

/** Times a kernel of the visitor's own; resolves with what to say about it. @param {Panel} panel @param {Fork} fork */
async function timeFork(panel, { name, of, text }) {
  const { api, store, view } = panel;
  let said = '';
  await whileRunning(panel, async () => {
    const { layer } = store.state;
    const given = { layer, of, wgsl: text, name, repeats: Number(view.runs.value) };
    const measured = await api.runWgsl(given, (_, done, total) => progress(panel, name, done, total));
    if (measured) keep(panel, measured, false);
    said = measured ? `${verdict(measured)} ${measured.fixed ?? ''}`.trim() : 'Cancelled.';
    return `${name}: ${said}`;
  });
  return said || 'Something else is being timed.';
}

/** @param {Measurement} measured */
function verdict({ ok, error, plain }) {
  if (ok) return `It computes the same: its error against float64 is at most twice that of plain float32 numpy (${plain.toExponential(1)}).`;
  if (Number.isNaN(error)) return 'It computes something else: a part of the output is NaN, as it was before the kernel ran, or became so.';
  return `It computes something else: its error against float64 is ${error.toExponential(1)}, where plain float32 numpy has ${plain.toExponential(1)}.`;
}

/**
 * Times something, unless something is being timed. What it returns is said.
 * @param {Panel} panel @param {(isWanted: () => boolean) => Promise<string>} work asks whether to go on
 */
async function whileRunning(panel, work) {
  const { store, view, forks } = panel;
  const { source, sourceNumber } = store.state;
  if (!source || panel.running) return;
  const applied = appliedOf(store.state);
  const running = { cancelled: false };
  panel.running = running;
  panel.lost = false;
  panel.target = { sourceNumber, key: keyOf(store.state) };
  view.start.disabled = true;
  view.cancelling.disabled = false;
  forks?.setBusy(true);
  // Python has another source, or another score_mod, from then on.
  const isOpen = () => store.state.sourceNumber === sourceNumber && appliedOf(store.state) === applied;
  const isWanted = () => !running.cancelled && isOpen();
  try {
    view.note.textContent = await work(isWanted);
  } finally {
    panel.running = null;
    view.start.disabled = false;
    view.cancelling.disabled = true;
    view.cancelling.textContent = 'Cancel';
    forks?.setBusy(false);
    if (!isOpen()) showSource(panel);
  }
}

/** @param {Panel} panel @param {string} name @param {number} done @param {number} total */
function progress({ view, running }, name, done, total) {
  view.note.textContent = `${name}: run ${done + 1} of ${total} …${running?.cancelled ? ' It is the last one.' : ''}`;
}

/** Keeps a result with the layer that it was measured on. @param {Panel} panel @param {Measurement} measured @param {boolean} first */
function keep(panel, measured, first) {
  const { store, kept, target } = panel;
  if (!target || store.state.sourceNumber !== target.sourceNumber) return;
  const timings = withTiming(kept.get(target.key) ?? NONE, measured);
  kept.set(target.key, timings);
  if (keyOf(store.state) !== target.key) return;
  store.set({ timings });
  if (first) showShader(panel, measured);
}

/** After the current run; where that does not end, a second press ends Python. @param {Panel} panel */
function cancel(panel) {
  const { api, view, running, stop } = panel;
  if (!running) return;
  if (running.cancelled) {
    if (view.cancelling.textContent !== 'Cancel') stop?.();
    return;
  }
  running.cancelled = true;
  view.note.textContent = 'It ends after the current run …';
  void api.cancelMeasure().catch(() => {});
  if (!stop) return;
  setTimeout(() => {
    if (panel.running !== running) return;
    view.cancelling.textContent = 'Stop Python';
    view.note.textContent = 'The current run does not end. “Stop Python” ends it: Python starts anew, and your texts are kept.';
  }, PATIENCE_MS);
}
