/** A score_mod to write: traced into the kernels while it is typed, with the map before and after beside it. */

import { fill, h, putPixels } from '../dom.js';
import { shortError } from '../format.js';
import { highlight } from '../editor/wgsl.js';
import { PRESETS } from '../editor/presets.js';
import { latest } from '../latest.js';
import { keepText, keptText } from '../storage.js';
import { buildEdit } from './edit-view.js';

const PAUSE_MS = 300; // of typing, before the text is applied
const SLOW_MS = 1000; // of applying, before Stop is offered
const SIDE = 320; // cells of the small maps at most
const NONE = PRESETS[0].source;
const UNFINISHED_TEXT = 'py-attn.edit';
const APPLIED_TEXTS = 'py-attn.applied';
const MAX_APPLIED = 20; // texts that are remembered

const UNCHANGED = 'Nothing is changed. Take a preset, or write a score_mod, a mask_mod, or both.';
const UNDEFINED = 'The text defines neither score_mod nor mask_mod, so nothing is changed.';
const SLOW = 'The text is still being applied. Stop ends it by starting Python anew; your text is kept.';
const STOPPED = 'Not applied: Python was stopped before the text had finished.';
const LEFT = 'Not applied: the text had not finished when the page was left.';
const LINKED = 'Not applied: this text came with the address of the page. Read it before you apply it.';
const BY_HAND = 'It is not applied again by itself: change it, then press Apply or Ctrl+Enter.';

/**
 * @typedef {import('../types').Edited} Edited
 * @typedef {ReturnType<typeof buildEdit>} View
 * @typedef {object} Edit the panel's state
 * @property {import('../api.js').Api} api
 * @property {import('../store.js').Store} store
 * @property {View} view
 * @property {ReturnType<typeof import('../editor/editor.js').createEditor> | null} editor
 * @property {string} text what the visitor sees
 * @property {string} applied what Python knows of it
 * @property {boolean} running whether Python is at it
 * @property {boolean} held whether a text did not finish, so that only the visitor applies the next one
 * @property {ReturnType<typeof setTimeout> | undefined} pause
 * @property {boolean} failed whether the last text was neither applied nor refused, as when the GPU is lost
 * @property {Edited | null} answer
 * @property {(text: string) => void} apply one text at a time; of those that come meanwhile only the last
 */

/**
 * @param {HTMLElement} element
 * @param {import('../api.js').Api} api
 * @param {import('../store.js').Store} store
 * @param {() => void} stop ends Python wherever it is, and starts it anew
 */
export function mountEdit(element, api, store, stop) {
  const view = buildEdit(element, {
    stop,
    use: (source) => use(edit, source),
    applyNow: () => applyNow(edit),
    showWgsl: () => showWgsl(edit),
  });
  /** @type {Edit} */
  const edit = {
    api,
    store,
    view,
    editor: null,
    text: keptText(UNFINISHED_TEXT, 'sessionStorage') || NONE,
    applied: '',
    running: false,
    held: false,
    failed: false,
    pause: undefined,
    answer: null,
    apply: latest(
      (text) => apply(edit, text),
      (error) => {
        edit.failed = true;
        say(edit, shortError(error), 'bad');
      },
    ),
  };
  fill(view.box, h('pre', { class: 'editor-wait' }, edit.text));
  pressPreset(edit);
  if (edit.text === NONE) say(edit, UNCHANGED);
  else hold(edit, LEFT);

  const paintBoth = latest(
    async (/** @type {null} */ _) => {
      await paint(edit, view.before, false);
      await paint(edit, view.after, true);
    },
    () => {},
  );
  store.on(['sourceNumber'], ({ source }) => source && opened(edit, source));
  store.on(['sourceNumber', 'layer', 'head', 'style'], ({ source, layer, head }) => {
    for (const each of [view.before, view.after]) each.name(layer, head);
    if (source && !source.growing) paintBoth(null);
  });
  return {
    openEditor: () => openEditor(edit),
    /** Whether a text waits to be applied by hand. */
    get held() {
      return edit.held;
    },
    /** Goes where an address leads. @param {string} text '' for no change of the scores */
    follow: (text) => follow(edit, text),
  };
}

/**
 * A text that the visitor has applied in this tab is applied again; one that came with a link is only shown, because it
 * is a program.
 * @param {Edit} edit @param {string} text
 */
function follow(edit, text) {
  if (text === edit.store.state.editText) return;
  if (!text || wasApplied(text)) return use(edit, text || NONE);
  edit.text = text;
  edit.editor?.set(text);
  pressPreset(edit);
  hold(edit, LINKED);
}

// What the visitor does

/** @param {Edit} edit */
async function openEditor(edit) {
  const { createEditor } = await import('../editor/editor.js');
  fill(edit.view.box);
  edit.editor = createEditor(edit.view.box, edit.text, {
    label: 'score_mod',
    onRun: () => applyNow(edit),
    onChange: (changed) => typed(edit, changed),
  });
  for (const button of edit.view.presets) button.disabled = false;
}

/** @param {Edit} edit @param {string} source */
function use(edit, source) {
  edit.text = source;
  edit.editor?.set(source);
  pressPreset(edit);
  applyNow(edit);
}

/** @param {Edit} edit @param {string} changed */
function typed(edit, changed) {
  if (changed === edit.text) return;
  edit.text = changed;
  pressPreset(edit);
  clearTimeout(edit.pause);
  if (edit.held || edit.running) keepUnfinished(changed);
  if (!edit.held) edit.pause = setTimeout(() => edit.apply(edit.text), PAUSE_MS);
}

/** Also applies what is held. @param {Edit} edit */
function applyNow(edit) {
  clearTimeout(edit.pause);
  edit.held = false;
  edit.view.apply.hidden = true;
  edit.apply(edit.text);
}

// What Python answers

/** @param {Edit} edit @param {string} text */
async function apply(edit, text) {
  const { api, store, view } = edit;
  // What was typed while a text ran that did not finish may not finish either.
  if (!store.state.source || edit.held) return;
  const wanted = text === NONE ? '' : text;
  edit.failed = false;
  const began = performance.now();
  const found = await run(edit, () => api.edit(wanted, store.state.layer), wanted);
  if (!found) return;
  if (found.error) {
    showError(edit, found.error);
    return;
  }
  edit.answer = found;
  edit.applied = wanted;
  rememberApplied(wanted);
  edit.editor?.markLine(null);
  showWgsl(edit);
  // The map beside the text comes first, then the others.
  await paint(edit, view.after, true);
  const unchanged = wanted ? UNDEFINED : UNCHANGED;
  say(edit, found.edited.length ? `${found.edited.join(' and ')} ${outcome(found, performance.now() - began)}` : unchanged);
  const { source, edit: count } = store.state;
  if (source) store.set({ source: { ...source, edited: found.edited }, edit: count + 1, editText: wanted });
}

/**
 * Python's answer about a text, or null where Python was stopped under it. What does not finish is remembered beyond a
 * reload, and Stop is offered beside what takes long.
 * @param {Edit} edit @param {() => Promise<Edited>} ask @param {string} wanted
 */
async function run(edit, ask, wanted) {
  const { element, stop } = edit.view;
  element.setAttribute('aria-busy', 'true');
  edit.running = true;
  keepUnfinished(wanted && edit.text);
  const slow = setTimeout(() => {
    stop.hidden = false;
    say(edit, SLOW);
  }, SLOW_MS);
  try {
    const found = await ask();
    keepUnfinished('');
    return found;
  } catch (error) {
    if (/** @type {Error} */ (error).name !== 'StoppedError') throw error;
    hold(edit, STOPPED);
    return null;
  } finally {
    clearTimeout(slow);
    edit.running = false;
    if (document.activeElement === stop) edit.editor?.focus();
    stop.hidden = true;
    element.setAttribute('aria-busy', 'false');
  }
}

/** @param {Edit} edit @param {NonNullable<Edited['error']>} error */
function showError(edit, { message, line, finished }) {
  edit.editor?.markLine(line ?? null);
  const said = `${line ? `Line ${line}. ` : ''}${message}`;
  if (finished) say(edit, said, 'bad');
  else hold(edit, said.replace(/\.?$/u, '.'));
}

/** From now on the text is applied by hand. @param {Edit} edit @param {string} why */
function hold(edit, why) {
  edit.held = true;
  keepUnfinished(edit.text);
  edit.view.apply.hidden = false;
  say(edit, `${why} ${BY_HAND}`, 'bad');
}

/** @param {Edit} edit @param {import('../types').SourceInfo} source */
function opened(edit, source) {
  edit.view.element.hidden = source.kind === 'weights';
  if (edit.held) return;
  if (source.editError && edit.text === edit.applied) showError(edit, source.editError);
  // A Python that was started anew knows nothing of the text.
  else if (edit.failed || (!source.edited?.length && edit.text !== NONE)) edit.apply(edit.text);
  else if (!edit.applied) say(edit, UNCHANGED);
}

// What is shown

/** @param {Edit} edit */
function pressPreset({ text, view }) {
  view.presets.forEach((button, i) => button.setAttribute('aria-pressed', String(PRESETS[i].source === text)));
}

/** @param {Edited} answer @param {number} ms */
function outcome(answer, ms) {
  const took = `${(ms / 1000).toFixed(1)} s`;
  return answer.wgsl ? `traced into WGSL, compiled and run in ${took}.` : `run by numpy in ${took}: there is no WebGPU here.`;
}

/** @param {Edit} edit @param {string} message @param {'' | 'bad'} [tone] */
function say({ view }, message, tone = '') {
  view.status.textContent = message || ' ';
  view.status.dataset.tone = tone;
}

/** @param {Edit} edit */
function showWgsl({ answer, view }) {
  const shown = view.whole.checked ? answer?.kernel : answer?.wgsl;
  const note = answer?.edited.length ? '// Without WebGPU numpy runs the function as it is.' : '// Nothing is changed yet.';
  fill(view.wgsl, shown ? highlight(shown) : h('span', { class: 'wgsl-comment' }, note));
}

/** @param {Edit} edit @param {View['before']} target @param {boolean} edited */
async function paint({ api, store }, target, edited) {
  const { source, layer, head, style, sourceNumber } = store.state;
  if (!source) return;
  const everything = [0, source.length];
  const part = { layer, head, rows: everything, columns: everything, size: [SIDE, SIDE], edited };
  const picture = await api.window(part, { ...style, show: 'weights' });
  if (store.state.sourceNumber === sourceNumber) putPixels(target.canvas, picture.rgba, picture.width, picture.height);
}

/** Whether the visitor has applied a text in this tab. @param {string} text */
function wasApplied(text) {
  return appliedTexts().includes(text);
}

/** @returns {string[]} */
function appliedTexts() {
  return JSON.parse(keptText(APPLIED_TEXTS, 'sessionStorage') || '[]');
}

/** @param {string} text */
function rememberApplied(text) {
  if (!text || wasApplied(text)) return;
  keepText(APPLIED_TEXTS, JSON.stringify([...appliedTexts(), text].slice(-MAX_APPLIED)), 'sessionStorage');
}

/** Beyond a reload, a text that has not finished. @param {string} text '' where there is none */
function keepUnfinished(text) {
  keepText(UNFINISHED_TEXT, text, 'sessionStorage');
}
