/** The elements of "Edit the score": presets, the editor, the map before and after, and the WGSL. */

import { fill, h } from '../dom.js';
import { editorHint } from './elements.js';
import { PRESETS } from '../editor/presets.js';
import { explained } from '../term.js';

const ABOUT = 'A Python function of one score, traced into every kernel. The maps of this page follow while you type.';

/**
 * @param {HTMLElement} element
 * @param {{ stop: () => void, use: (source: string) => void, applyNow: () => void, showWgsl: () => void }} actions
 */
export function buildEdit(element, actions) {
  const presets = PRESETS.map(({ name, source }) =>
    h('button', { class: 'button compact', type: 'button', disabled: true, 'aria-pressed': 'false', onclick: () => actions.use(source) }, name),
  );
  const box = h('div', { class: 'editor edit-text' });
  const status = h('p', { class: 'edit-status small', role: 'status' }, ' ');
  const stop = h('button', { class: 'button', type: 'button', hidden: true, onclick: actions.stop }, 'Stop');
  const apply = h('button', { class: 'button primary', type: 'button', hidden: true, onclick: actions.applyNow }, 'Apply', h('kbd', null, 'Ctrl ↵'));
  const before = smallMap('As it is');
  const after = smallMap('As you write it');
  const wgsl = h('code');
  const whole = h('input', { type: 'checkbox', onchange: actions.showWgsl });
  fill(
    element,
    h(
      'header',
      null,
      h(
        'div',
        null,
        h('h2', null, 'Edit the score'),
        h('p', null, explained(ABOUT, 'score', 'kernel')),
      ),
      h('div', { class: 'examples', role: 'group', 'aria-label': 'Presets' }, presets),
    ),
    h('div', { class: 'edit-body' }, box, h('div', { class: 'edit-maps' }, before.element, after.element)),
    h('div', { class: 'edit-outcome' }, stop, apply, status, editorHint()),
    h(
      'details',
      { class: 'edit-wgsl' },
      h('summary', null, 'The WGSL that it became'),
      h('label', { class: 'small muted' }, whole, ' with the kernel around it'),
      h('pre', { class: 'shader', tabIndex: 0, role: 'region', 'aria-label': 'Traced WGSL' }, wgsl),
    ),
  );
  return { element, presets, box, status, stop, apply, before, after, wgsl, whole };
}

/** @param {string} what */
function smallMap(what) {
  const canvas = h('canvas', { width: 1, height: 1, role: 'img' });
  const of = h('span');
  return {
    canvas,
    element: h('figure', null, canvas, h('figcaption', { class: 'muted small' }, what, of)),
    /** @param {number} layer @param {number} head */
    name(layer, head) {
      of.textContent = ` · layer ${layer}, head ${head}`;
      canvas.setAttribute('aria-label', `${what}: the map of layer ${layer}, head ${head}`);
    },
  };
}
