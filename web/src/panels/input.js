/** What to look at: a sentence, a text that a language model writes, synthetic input, or the visitor's own data. */

import { choose, fill, h, segmented } from '../dom.js';
import { describeFailure, formatBytes, shortError } from '../format.js';
import { retryButton } from './elements.js';
import { buildLoading } from './loading.js';
import { mountSynthetic } from './synthetic.js';

/**
 * @typedef {object} Actions what the page does when it is asked to
 * @property {(text: string) => Promise<void>} openText
 * @property {(shape: import('../types').SyntheticShape) => Promise<void>} openSynthetic
 * @property {() => Promise<void>} openSample
 * @property {(onProgress: (stage: string, loaded: number, total: number) => void) => Promise<boolean>} loadModel
 * @property {() => void} cancelModel
 * @property {(text: string) => boolean} isAtHand whether a text can be shown without loading a model
 * @property {(shown: boolean) => void} showWrite shows or hides the panel of the language model
 * @property {import('./own-data.js').Actions} ownData
 *
 * @typedef {object} Panel
 * @property {HTMLElement} element
 * @property {import('../store.js').Store} store
 * @property {Actions} actions
 * @property {ReturnType<typeof buildView>} view
 * @property {ReturnType<typeof mountSynthetic>} form of synthetic input
 * @property {string} sample the text of the sample
 * @property {string} shown the text whose maps are shown
 * @property {string} said to the visitor, '' for nothing
 * @property {Promise<ReturnType<typeof import('./own-data.js').mountOwnData>> | null} own loaded when it is first shown
 * @property {boolean} busy
 * @property {'' | 'waiting' | 'ready'} python whether Python is there, or what is in the field waits for it
 * @property {ReturnType<typeof setTimeout> | undefined} timer until what was typed is run
 */

const MODEL_BYTES = 90_868_376;
const PAUSE_MS = 700; // without typing, before the sentence is run
const MAX_HEIGHT = 180; // CSS pixels of the text
const MAX_QUOTED = 60; // characters of a sentence
const WRITING =
  'SmolLM2, a language model of 135 million weights, writes on our prefill and decode kernels. All maps below show what its heads attend to.';
const EMPTY = 'Type a few words first: there is nothing to attend to in an empty sentence.';

/**
 * @param {HTMLElement} element
 * @param {import('../store.js').Store} store
 * @param {Actions} actions
 */
export function mountInput(element, store, actions) {
  const view = buildView((mode) => show(panel, mode), actions.cancelModel);
  fill(element, ...view.parts);
  /** @type {Panel} */
  const panel = {
    element,
    store,
    actions,
    view,
    form: mountSynthetic(view.synthetic, (shape) => {
      store.set({ input: { kind: 'synthetic', shape } });
      void run(panel, () => actions.openSynthetic(shape));
    }),
    sample: '',
    shown: '',
    said: '',
    own: null,
    busy: false,
    python: '',
    timer: undefined,
  };
  listen(panel);

  return {
    /** The page shows the sample, and Python is still to come. @param {string} text */
    begin: (text) => begin(panel, text),
    /** Python is ready and shows the sample. @param {string} text */
    ready: (text) => ready(panel, text),
    /** Whether the text is not the sample, so that it comes from an earlier visit or a link. */
    get pending() {
      return view.area.value !== panel.sample;
    },
    /** Whether the text can be shown without loading a model. */
    get isAtHand() {
      return actions.isAtHand(view.area.value);
    },
    /** Goes where an address leads. @param {import('../address.js').Input} input */
    follow: (input) => follow(panel, input),
    /** Shows again what the visitor has put in, after a new device or a new Python. */
    replay: async () => replay(panel),
    /** Runs what is in the field, unless that is under way. */
    start: async () => {
      if (!panel.busy && !view.submit.disabled) await start(panel);
    },
    /** @param {string} mode */
    show: (mode) => show(panel, mode),
    /** Shows files that were dropped on the page. @param {File[]} files */
    openFiles: async (files) => {
      reveal(panel, 'file');
      (await ownData(panel)).open(files);
    },
  };
}

/** @param {(mode: string) => void} onMode @param {() => void} onCancel */
function buildView(onMode, onCancel) {
  const modes = [
    { value: 'sentence', label: 'Sentence' },
    { value: 'write', label: 'Write', title: 'a language model writes a text' },
    { value: 'synthetic', label: 'Synthetic' },
    { value: 'file', label: 'Your data', title: 'a file with queries and keys, or with attentions' },
  ];
  const mode = segmented('Input', modes, 'sentence', onMode);
  const area = h('textarea', {
    class: 'sentence',
    rows: 1,
    dir: 'auto',
    spellcheck: false,
    'aria-label': 'Sentence',
    placeholder: 'Type a sentence',
    maxLength: 100_000,
  });
  const submit = h('button', { class: 'button primary', type: 'submit' }, 'Show attention');
  const form = h('form', { class: 'sentence-form' }, area, submit);
  const sentence = h('div', { class: 'sentence-box' }, form);
  const synthetic = h('div', { hidden: true });
  const own = h('div', { class: 'own-data', hidden: true });
  const writing = h('p', { class: 'input-about muted', hidden: true }, WRITING);
  const loading = buildLoading(onCancel);
  const message = h('p', { class: 'input-message small', role: 'status' }, ' ');
  const foot = h('div', { class: 'input-foot' }, loading.element, message);
  const parts = [mode, sentence, synthetic, own, writing, foot];
  return { parts, mode, area, submit, form, sentence, synthetic, own, writing, foot, loading, message };
}

/** @param {Panel} panel */
function listen(panel) {
  const { area, form } = panel.view;
  new ResizeObserver(() => grow(panel)).observe(form);
  area.addEventListener('input', () => typed(panel));
  area.addEventListener('keydown', (event) => {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
  form.addEventListener('submit', (event) => {
    event.preventDefault();
    if (!panel.busy) void start(panel);
  });
}

/** @param {Panel} panel @param {string} text */
function begin(panel, text) {
  const { input } = panel.store.state;
  panel.sample = text;
  panel.shown = text;
  panel.view.area.value = input.kind === 'text' ? input.text : text;
  grow(panel);
  label(panel);
}

/** @param {Panel} panel @param {string} text */
function ready(panel, text) {
  const waited = panel.python === 'waiting';
  panel.python = 'ready';
  if (text !== panel.sample) begin(panel, text);
  label(panel);
  const { input } = panel.store.state;
  const asked = input.kind !== 'sample' && input.kind !== 'text';
  // What was chosen before Python was there waits for it already.
  if (asked && !panel.view.sentence.hidden) follow(panel, input);
  else if (waited && !panel.view.sentence.hidden) void start(panel);
}

/** @param {Panel} panel @param {import('../address.js').Input} input */
function follow(panel, input) {
  const { view, form, actions, sample } = panel;
  if (input.kind === 'synthetic') form.set(input.shape);
  if (input.kind === 'synthetic' || input.kind === 'write') return show(panel, input.kind);
  if (input.kind === 'file') {
    reveal(panel, 'file');
    panel.store.set({ input });
    void ownData(panel).then((own) => own.reopen(input.name));
    return undefined;
  }
  if (input.kind === 'python') return missing(panel, input);
  view.area.value = input.kind === 'text' ? input.text : sample;
  if (view.sentence.hidden) show(panel, 'sentence');
  else if (view.area.value === sample || actions.isAtHand(view.area.value)) void start(panel);
  grow(panel);
  label(panel);
  panel.store.set({ input });
}

/** What a cell has shown is gone with its Python, or was replaced since. @param {Panel} panel @param {Extract<import('../address.js').Input, { name: string }>} input */
async function missing(panel, input) {
  const { view, actions, sample, store } = panel;
  view.area.value = sample;
  reveal(panel, 'sentence');
  grow(panel);
  store.set({ input });
  if (store.state.source?.title !== sample) await run(panel, actions.openSample, sample);
  say(panel, `“${shorten(input.name)}” was shown here by a cell of the console. The page does not keep what Python has made: run the cell again to see it. The sample is shown instead.`);
}

/** @param {Panel} panel */
function replay(panel) {
  const { store, view, sample, actions } = panel;
  const { input } = store.state;
  if (!view.writing.hidden) return undefined;
  // What was made, as its fields may hold something else by now.
  if (input.kind === 'synthetic') return run(panel, () => actions.openSynthetic(input.shape));
  if (input.kind === 'file') return ownData(panel).then((own) => own.reopen());
  if (input.kind === 'python') return missing(panel, input);
  const { value } = view.area;
  return value !== sample && value.trim() && actions.isAtHand(value) ? start(panel) : undefined;
}

/** Loads the panel of own data when it is first needed. @param {Panel} panel */
function ownData(panel) {
  panel.own ??= import('./own-data.js').then(({ mountOwnData }) => mountOwnData(panel.view.own, panel.actions.ownData));
  return panel.own;
}

/** Shows the controls of one way to put something in. @param {Panel} panel @param {string} mode */
function reveal(panel, mode) {
  const { view } = panel;
  choose(view.mode, mode);
  view.sentence.hidden = mode !== 'sentence';
  view.synthetic.hidden = mode !== 'synthetic';
  view.own.hidden = mode !== 'file';
  view.writing.hidden = mode !== 'write';
  view.foot.hidden = mode === 'write' || mode === 'file';
  panel.actions.showWrite(mode === 'write');
  say(panel, '');
}

/** Changes to a sentence, a written text, synthetic input or own data. @param {Panel} panel @param {string} mode */
function show(panel, mode) {
  const { view, actions, form, sample } = panel;
  reveal(panel, mode);
  // What was shown stays until a file is opened.
  if (mode === 'file') {
    void ownData(panel).then((own) => own.reopen());
    return;
  }
  panel.store.set({ input: mode === 'write' ? { kind: 'write' } : inputOf(panel) });
  if (mode === 'write') return;
  if (mode === 'synthetic') form.submit();
  else if (!view.area.value || view.area.value === sample) void run(panel, actions.openSample, sample);
  else if (actions.isAtHand(view.area.value)) void start(panel);
}

/** What the sentence's field asks for. @param {Panel} panel @returns {import('../address.js').Input} */
function inputOf({ view, sample }) {
  const text = view.area.value;
  return text.trim() && text !== sample ? { kind: 'text', text } : { kind: 'sample' };
}

/** @param {Panel} panel */
function typed(panel) {
  const { value } = panel.view.area;
  grow(panel);
  label(panel);
  panel.store.set({ input: inputOf(panel) });
  clearTimeout(panel.timer);
  if (!value.trim()) {
    say(panel, EMPTY);
    return;
  }
  if (!panel.busy) say(panel, '');
  if (panel.actions.isAtHand(value)) panel.timer = setTimeout(() => !panel.busy && void start(panel), PAUSE_MS);
}

/** Runs the sentence, once its model is loaded. @param {Panel} panel @returns {Promise<void>} */
async function start(panel) {
  const { actions, sample, view } = panel;
  clearTimeout(panel.timer);
  const text = view.area.value;
  if (!text.trim()) return say(panel, EMPTY);
  if (panel.store.state.input.kind === 'python') panel.store.set({ input: inputOf(panel) });
  if (panel.python !== 'ready') {
    panel.python = 'waiting';
    return label(panel);
  }
  if (text === sample) return run(panel, actions.openSample, text);
  if (!actions.isAtHand(text) && !(await load(panel))) return undefined;
  await run(panel, () => actions.openText(text), text);
  // What was typed meanwhile comes next.
  if (view.area.value !== text && view.area.value.trim()) void start(panel);
  return undefined;
}

/** @param {Panel} panel @param {() => Promise<void>} work @param {string} [text] whose maps it shows, if it is a sentence */
async function run(panel, work, text = '') {
  const { element, store } = panel;
  panel.busy = true;
  element.setAttribute('aria-busy', 'true');
  try {
    await work();
    panel.shown = text;
    say(panel, store.state.source?.note ?? '');
  } catch (error) {
    say(panel, shortError(error), 'bad');
  } finally {
    panel.busy = false;
    element.setAttribute('aria-busy', 'false');
    label(panel);
  }
}

/** @param {Panel} panel @returns {Promise<boolean>} whether the model is there */
async function load(panel) {
  const { view } = panel;
  const { loading, submit } = view;
  submit.disabled = true;
  loading.element.hidden = false;
  say(panel, '');
  loading.show('weights', 0, MODEL_BYTES);
  try {
    if (await panel.actions.loadModel(loading.show)) return true;
    say(panel, 'Loading was cancelled. The sample is still shown; press the button to load again.');
  } catch (error) {
    say(panel, describeFailure(error, 'The model file'), 'bad');
    view.message.append(' ', retryButton(() => void start(panel)));
  } finally {
    loading.element.hidden = true;
    submit.disabled = false;
  }
  return false;
}

/** @param {Panel} panel @param {string} text @param {'' | 'bad'} [tone] */
function say(panel, text, tone = '') {
  panel.said = text;
  panel.view.message.dataset.tone = tone;
  showMessage(panel);
}

/** @param {Panel} panel */
function label(panel) {
  const { view, sample, actions } = panel;
  const text = view.area.value;
  const needsModel = text !== sample && !actions.isAtHand(text);
  const action = needsModel ? `Load MiniLM (${formatBytes(MODEL_BYTES)}) and show` : 'Show attention';
  view.submit.textContent = panel.python === 'waiting' ? 'Follows when Python is ready' : action;
  showMessage(panel);
}

/** What was said last; or, where the maps speak of another sentence than the field, that they do. @param {Panel} panel */
function showMessage({ view, said, sample, shown, store }) {
  const { input } = store.state;
  const asked = input.kind === 'text' ? input.text : sample;
  const differs = shown && !view.sentence.hidden && asked !== shown;
  const other = differs ? `The maps below still show “${shorten(shown)}”. Press “${view.submit.textContent}” for your sentence.` : '';
  view.message.textContent = said || other || ' ';
}

/** @param {string} text */
function shorten(text) {
  return text.length > MAX_QUOTED ? `${text.slice(0, MAX_QUOTED).trimEnd()}…` : text;
}

/** Makes the field as high as its text. @param {Panel} panel */
function grow({ view: { area } }) {
  area.style.height = 'auto';
  area.style.height = `${Math.min(area.scrollHeight + 2, MAX_HEIGHT)}px`;
}
