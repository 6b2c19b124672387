/** The visitor's own kernels: an editor for one of them at a time, checked by the WGSL compiler while it is typed. */

import { fill, h } from '../dom.js';
import { shortError } from '../format.js';
import { latest } from '../latest.js';
import { changed, describeFailure, freeName, isSameText, MAX_FORKS, summarize } from './fork-list.js';

/**
 * @typedef {import('../store.js').Fork} Fork
 * @typedef {import('../types').WgslMessage} WgslMessage
 *
 * @typedef {object} Forks the panel's state
 * @property {import('../api.js').Api} api
 * @property {import('../store.js').Store} store
 * @property {ReturnType<typeof buildView>} view
 * @property {(fork: Fork) => Promise<string>} time resolves with what to say about it
 * @property {() => string[]} taken names of all rows
 * @property {(from: string, to: string) => void} renamed
 * @property {string} open name of the fork in the editor, '' for none
 * @property {ReturnType<typeof import('../editor/editor.js').createEditor> | null} editor
 * @property {ReturnType<typeof setTimeout> | undefined} pause of typing
 * @property {(fork: Fork) => void} check
 */

const PAUSE_MS = 350; // of typing, before the text is compiled
const MAX_MESSAGES = 20;
const PLAN = 'It runs with the plan of the kernel that it was forked from: the same buffers, params and number of workgroups.';

/**
 * @param {import('../api.js').Api} api
 * @param {import('../store.js').Store} store
 * @param {Pick<Forks, 'time' | 'taken' | 'renamed'>} panel
 */
export function mountForks(api, store, { time, taken, renamed }) {
  const view = buildView({
    time: () => void run(forks),
    copy: () => void copy(forks),
    remove: () => remove(forks),
    close: () => show(forks, ''),
    rename: (name) => rename(forks, name),
  });
  /** @type {Forks} */
  const forks = {
    api,
    store,
    view,
    time,
    taken,
    renamed,
    open: '',
    editor: null,
    pause: undefined,
    check: latest(
      (fork) => check(forks, fork),
      (error) => say(forks, shortError(error), 'bad'),
    ),
  };
  // Others may put forks into the store, or take them out: an address does.
  store.on(['forks'], ({ forks: all }) => {
    const fork = all.find(({ name }) => name === forks.open);
    if (forks.open && !fork) show(forks, '');
    else if (fork && forks.editor && forks.editor.text !== fork.text) forks.editor.set(fork.text);
  });
  return {
    element: view.element,
    /** @param {string} name of the fork to edit */
    show: (name) => show(forks, name),
    /** Makes a fork of a kernel that ran. @param {string} of its row @param {string} text */
    add: (of, text) => add(forks, of, text),
    /** @param {boolean} busy whether something is being timed */
    setBusy(busy) {
      view.start.disabled = busy;
    },
  };
}

/** @param {{ time: () => void, copy: () => void, remove: () => void, close: () => void, rename: (name: string) => void }} actions */
function buildView(actions) {
  const name = h('input', { class: 'input fork-name', 'aria-label': 'Name of your kernel', maxLength: 40, spellcheck: false, onchange: () => actions.rename(name.value) });
  const of = h('span', { class: 'muted small' });
  const start = h('button', { class: 'button primary', type: 'button', onclick: actions.time }, 'Time it', h('kbd', null, 'Ctrl ↵'));
  const button = (/** @type {string} */ label, /** @type {() => void} */ onclick, /** @type {string} */ title) =>
    h('button', { class: 'button compact', type: 'button', onclick, title }, label);
  const box = h('div', { class: 'editor fork-text' });
  const status = h('p', { class: 'small fork-status', role: 'status' }, ' ');
  const messages = h('ol', { class: 'wgsl-messages small', 'aria-label': 'What the WGSL compiler says' });
  const outcome = h('p', { class: 'small fork-status', role: 'status' }, ' ');
  const copyButton = button('Copy as Python', actions.copy, 'A cell for the console or a notebook that runs this text and checks it against float64');
  const element = h(
    'section',
    { class: 'fork', hidden: true, 'aria-label': 'Your kernel' },
    h('div', { class: 'shader-head' }, h('div', { class: 'fork-title' }, name, of), h('div', { class: 'shader-buttons' }, copyButton, button('Remove', actions.remove, 'Remove this kernel'), button('Close', actions.close, 'Close the editor; the kernel stays in the table'))),
    box,
    status,
    messages,
    h('div', { class: 'edit-outcome' }, start, outcome),
    h('p', { class: 'muted small' }, `${PLAN} Escape, then Tab leaves the editor.`),
  );
  return { element, name, of, start, box, status, messages, outcome, copyButton };
}

/** @param {Forks} forks @returns {Fork | undefined} */
function current({ store, open }) {
  return store.state.forks.find(({ name }) => name === open);
}

/** @param {Forks} forks @param {string} of @param {string} text */
function add(forks, of, text) {
  const { store, taken } = forks;
  const mine = store.state.forks.find((fork) => fork.name === of);
  // A row that is a fork itself is opened, or forked once more.
  if (mine && isSameText(mine.text, text)) return show(forks, mine.name);
  if (store.state.forks.length >= MAX_FORKS) {
    forks.view.element.hidden = false;
    return tell(forks, `There are ${MAX_FORKS} kernels of your own already. Remove one first.`, 'bad');
  }
  const origin = mine?.of ?? of;
  const name = freeName(`yours · ${origin}`, taken());
  store.set({ forks: [...store.state.forks, { name, of: origin, text }] });
  return show(forks, name);
}

/** Opens the editor on a fork, or closes it. @param {Forks} forks @param {string} name '' closes it */
async function show(forks, name) {
  const { view } = forks;
  forks.open = name;
  clearTimeout(forks.pause);
  const fork = current(forks);
  view.element.hidden = !fork;
  if (!fork) return;
  view.name.value = fork.name;
  view.of.textContent = `forked from ${fork.of}`;
  tell(forks, '');
  say(forks, '');
  fill(view.messages);
  await openEditor(forks);
  if (forks.open !== name) return;
  if (forks.editor?.text !== fork.text) forks.editor?.set(fork.text);
  view.element.scrollIntoView({ block: 'nearest' });
  forks.editor?.focus();
  forks.check(fork);
}

/** @param {Forks} forks */
async function openEditor(forks) {
  if (forks.editor) return;
  const { createEditor } = await import('../editor/editor.js');
  forks.editor ??= createEditor(forks.view.box, current(forks)?.text ?? '', {
    label: 'WGSL of your kernel',
    language: 'wgsl',
    onRun: () => void run(forks),
    onChange: (text) => typed(forks, text),
  });
}

/** @param {Forks} forks @param {string} text */
function typed(forks, text) {
  const { store, open } = forks;
  const fork = current(forks);
  if (!fork || fork.text === text) return;
  store.set({ forks: changed(store.state.forks, open, { text }) });
  clearTimeout(forks.pause);
  forks.pause = setTimeout(() => {
    const now = current(forks);
    if (now) forks.check(now);
  }, PAUSE_MS);
}

/** Has the text compiled, and shows what the compiler says. @param {Forks} forks @param {Fork} fork */
async function check(forks, fork) {
  const { messages } = await forks.api.checkWgsl(fork.text);
  if (forks.open === fork.name && current(forks)?.text === fork.text) showMessages(forks, messages);
}

/** @param {Forks} forks @param {WgslMessage[]} messages */
function showMessages(forks, messages) {
  const { editor, view } = forks;
  const sorted = [...messages].sort((a, b) => Number(b.kind === 'error') - Number(a.kind === 'error') || a.line - b.line);
  // Where a line has both, its error shows.
  const marks = new Map([...sorted].reverse().filter(({ kind, line }) => line && kind !== 'info').map(({ line, kind }) => [line, { line, kind }]));
  editor?.markLines([...marks.values()]);
  say(forks, summarize(messages), messages.some(({ kind }) => kind === 'error') ? 'bad' : '');
  const more = sorted.length - MAX_MESSAGES;
  fill(view.messages, sorted.slice(0, MAX_MESSAGES).map((one) => messageItem(forks, one)), more > 0 && h('li', { class: 'muted' }, `${more} more`));
}

/** @param {Forks} forks @param {WgslMessage} message */
function messageItem({ editor }, { kind, message, line, column }) {
  const place = line > 0 && h('button', { class: 'link', type: 'button', onclick: () => editor?.goTo(line, column) }, `Line ${line}`);
  return h('li', { class: kind === 'error' ? 'not-ok' : '' }, place, place && ': ', h('span', null, message.trim()));
}

/** @param {Forks} forks */
async function run(forks) {
  const { view } = forks;
  const fork = current(forks);
  if (!fork || view.start.disabled) return;
  tell(forks, '');
  /** @type {[string, ('' | 'bad')?]} */
  let said;
  try {
    said = [await forks.time(fork)];
  } catch (error) {
    said = [describeFailure(/** @type {Error} */ (error), shortError(error)), 'bad'];
  }
  if (forks.open === fork.name) tell(forks, ...said);
}

/** @param {Forks} forks */
async function copy(forks) {
  const { api, store, view } = forks;
  const fork = current(forks);
  if (!fork) return;
  try {
    const { source } = await api.wgslCell({ layer: store.state.layer, of: fork.of, wgsl: fork.text, name: fork.name });
    view.element.dataset.cell = source;
    await navigator.clipboard.writeText(source);
    tell(forks, 'The cell is copied: paste it into the console below, or into a notebook.');
  } catch (error) {
    tell(forks, `It could not be copied: ${shortError(error)}`, 'bad');
  }
}

/** @param {Forks} forks */
function remove(forks) {
  const { store, open } = forks;
  show(forks, '');
  store.set({ forks: store.state.forks.filter(({ name }) => name !== open) });
}

/** @param {Forks} forks @param {string} wanted */
function rename(forks, wanted) {
  const { store, open, view, taken } = forks;
  const name = freeName(wanted, taken().filter((one) => one !== open));
  view.name.value = name;
  if (name === open) return;
  forks.open = name;
  forks.renamed(open, name);
  store.set({ forks: changed(store.state.forks, open, { name }) });
}

/** What the compiler says. @param {Forks} forks @param {string} text @param {'' | 'bad'} [tone] */
function say({ view: { status } }, text, tone = '') {
  status.textContent = text || ' ';
  status.dataset.tone = tone;
}

/** What became of a run. @param {Forks} forks @param {string} text @param {'' | 'bad'} [tone] */
function tell({ view: { outcome } }, text, tone = '') {
  outcome.textContent = text || ' ';
  outcome.dataset.tone = tone;
}
