/** A score_mod to write: traced into the kernels while it is typed, with the map before and after beside it. */

import { fill, h, putPixels } from '../dom.js';
import { shortError } from '../format.js';
import { highlight } from '../editor/wgsl.js';
import { PRESETS } from '../editor/presets.js';
import { latest } from '../latest.js';

const PAUSE_MS = 300; // of typing, before the text is tried
const SIDE = 320; // cells of the small maps at most
const NONE = PRESETS[0].source;

/**
 * @param {HTMLElement} element
 * @param {import('../api.js').Api} api
 * @param {import('../store.js').Store} store
 */
export function mountEdit(element, api, store) {
  const presets = PRESETS.map(({ name, source }) =>
    h('button', { class: 'button compact', type: 'button', disabled: true, 'aria-pressed': 'false', onclick: () => use(source) }, name),
  );
  const box = h('div', { class: 'editor edit-text' });
  const status = h('p', { class: 'edit-status small', role: 'status' }, ' ');
  const before = map('As it is');
  const after = map('As you write it');
  const wgsl = h('code');
  const whole = h('input', { type: 'checkbox', onchange: () => showWgsl() });
  fill(
    element,
    h(
      'header',
      null,
      h(
        'div',
        null,
        h('h2', null, 'Edit the score'),
        h('p', null, 'A Python function of one score, traced into every kernel. The maps of this page follow while you type.'),
      ),
      h('div', { class: 'examples', role: 'group', 'aria-label': 'Presets' }, presets),
    ),
    h('div', { class: 'edit-body' }, box, h('div', { class: 'edit-maps' }, before.element, after.element)),
    status,
    h(
      'details',
      { class: 'edit-wgsl' },
      h('summary', null, 'The WGSL that it became'),
      h('label', { class: 'small muted' }, whole, ' with the kernel around it'),
      h('pre', { class: 'shader', tabIndex: 0, 'aria-label': 'Traced WGSL' }, wgsl),
    ),
  );

  let text = NONE;
  let applied = ''; // what Python knows of it
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  /** @type {ReturnType<typeof import('../editor/editor.js').createEditor> | null} */
  let editor = null;
  /** @type {import('../types').Edited | null} */
  let answer = null;
  fill(box, h('pre', { class: 'editor-wait' }, text));
  press();

  async function openEditor() {
    const { createEditor } = await import('../editor/editor.js');
    fill(box);
    editor = createEditor(box, text, { label: 'score_mod', onRun: () => apply(text), onChange: (changed) => typed(changed) });
    for (const button of presets) button.disabled = false;
  }

  /** @param {string} source */
  function use(source) {
    text = source;
    editor?.set(source);
    clearTimeout(timer);
    press();
    apply(text);
  }

  /** @param {string} changed */
  function typed(changed) {
    if (changed === text) return;
    text = changed;
    press();
    clearTimeout(timer);
    timer = setTimeout(() => apply(text), PAUSE_MS);
  }

  function press() {
    presets.forEach((button, i) => button.setAttribute('aria-pressed', String(PRESETS[i].source === text)));
  }

  const apply = latest(
    async (/** @type {string} */ given) => {
      if (!store.state.source) return;
      element.setAttribute('aria-busy', 'true');
      const began = performance.now();
      const wanted = given === NONE ? '' : given;
      const found = await api.edit(wanted, store.state.layer);
      element.setAttribute('aria-busy', 'false');
      if (found.error) {
        editor?.markLine(found.error.line ?? null);
        say(`${found.error.line ? `Line ${found.error.line}. ` : ''}${found.error.message}`, 'bad');
        return;
      }
      answer = found;
      applied = wanted;
      editor?.markLine(null);
      showWgsl();
      // The map beside the text comes first, then the others.
      await paint(after, true);
      say(found.edited.length ? `${found.edited.join(' and ')} ${how(performance.now() - began)}` : NOTHING[wanted ? 'defined' : 'edited']);
      const { source, edit } = store.state;
      if (source) store.set({ source: { ...source, edited: found.edited }, edit: edit + 1 });
    },
    (error) => {
      element.setAttribute('aria-busy', 'false');
      say(shortError(error), 'bad');
    },
  );

  /** @param {number} ms */
  function how(ms) {
    const took = `${(ms / 1000).toFixed(1)} s`;
    return answer?.wgsl ? `traced into WGSL, compiled and run in ${took}.` : `run by numpy in ${took}: there is no WebGPU here.`;
  }

  /** @param {string} message @param {'' | 'bad'} [tone] */
  function say(message, tone = '') {
    status.textContent = message || ' ';
    status.dataset.tone = tone;
  }

  function showWgsl() {
    const shown = whole.checked ? answer?.kernel : answer?.wgsl;
    fill(wgsl, shown ? highlight(shown) : h('span', { class: 'wgsl-comment' }, answer?.edited.length ? '// Without WebGPU numpy runs the function as it is.' : '// Nothing is changed yet.'));
  }

  /** @param {ReturnType<typeof map>} target @param {boolean} edited */
  async function paint(target, edited) {
    const { source, layer, head, style, sourceNumber } = store.state;
    if (!source) return;
    const everything = [0, source.length];
    const part = { layer, head, rows: everything, columns: everything, size: [SIDE, SIDE], edited };
    const picture = await api.window(part, { ...style, show: 'weights' });
    if (store.state.sourceNumber === sourceNumber) putPixels(target.canvas, picture.rgba, picture.width, picture.height);
  }

  const paintBoth = latest(
    async (/** @type {boolean} */ all) => {
      if (all) await paint(before, false);
      await paint(after, true);
    },
    () => {},
  );

  store.on(['sourceNumber'], ({ source }) => {
    if (!source) return;
    element.hidden = source.kind === 'weights';
    // A Python that was started anew, or a source that it does not fit, knows nothing of the text.
    if (!source.edited?.length && text !== NONE) apply(text);
    else if (!applied) say(NOTHING.edited);
  });
  store.on(['sourceNumber', 'layer', 'head', 'style'], ({ source, layer, head }) => {
    for (const each of [before, after]) each.name(layer, head);
    if (source) paintBoth(true);
  });
  return { openEditor };
}

const NOTHING = {
  edited: 'Nothing is changed. Take a preset, or write a score_mod, a mask_mod, or both.',
  defined: 'The text defines neither score_mod nor mask_mod, so nothing is changed.',
};

/** @param {string} what */
function map(what) {
  const canvas = h('canvas', { width: 1, height: 1, role: 'img' });
  const of = h('span');
  return {
    canvas,
    element: h('figure', null, canvas, h('figcaption', { class: 'muted small' }, what, of)),
    /** @param {number} layer @param {number} head */
    name(layer, head) {
      of.textContent = ` · layer ${layer + 1}, head ${head + 1}`;
      canvas.setAttribute('aria-label', `${what}: the map of layer ${layer + 1}, head ${head + 1}`);
    },
  };
}
