/** A rendered shader: its constants, and its highlighted text. */

import { fill, h, icon, ICONS } from '../dom.js';
import { formatCount } from '../format.js';
import { highlight } from '../editor/wgsl.js';

const NOTHING = '// After a run, the WGSL that was rendered for it is shown here.';
const COPIED_MS = 1200;

/** @param {HTMLElement} element @param {((measured: import('../types').Measurement) => void) | null} [onEdit] forks the kernel that is shown */
export function mountShader(element, onEdit = null) {
  const title = h('h3', null, 'WGSL');
  const constants = h('dl', { class: 'constants' });
  const listing = h('div', { class: 'constants-box', tabIndex: 0, role: 'region', 'aria-label': 'Constants', hidden: true }, constants);
  const code = h('code');
  let wgsl = '';
  const copy = h(
    'button',
    { class: 'button compact', type: 'button', disabled: true, onclick: () => void toClipboard(copy, wgsl) },
    icon(ICONS.copy),
    'Copy',
  );
  /** @type {import('../types').Measurement | null} */
  let shown = null;
  const edit = h(
    'button',
    { class: 'button compact', type: 'button', disabled: true, onclick: () => shown && onEdit?.(shown), title: 'Change it and time your version beside it' },
    'Edit this WGSL',
  );
  const text = h('pre', { class: 'shader', tabIndex: 0, role: 'region', 'aria-label': 'Rendered WGSL' }, code);
  fill(element, h('div', { class: 'shader-head' }, title, h('div', { class: 'shader-buttons' }, onEdit && edit, copy)), listing, text);

  /** @param {import('../types').Measurement | null} measured null, or one without WGSL, shows where it will be */
  function show(measured) {
    wgsl = measured?.wgsl ?? '';
    shown = measured;
    copy.disabled = !wgsl;
    edit.disabled = !wgsl;
    element.dataset.empty = String(!wgsl);
    title.textContent = measured && wgsl ? titleOf(measured) : 'WGSL';
    const listed = wgsl ? Object.entries(measured?.constants ?? {}) : [];
    listing.hidden = !listed.length;
    fill(constants, listed.map(([name, value]) => h('div', null, h('dt', null, name), h('dd', null, value))));
    fill(code, wgsl ? highlight(wgsl) : h('span', { class: 'wgsl-comment' }, NOTHING));
    if (wgsl) text.scrollTop = 0;
  }
  show(null);
  return { show };
}

/** @param {import('../types').Measurement} measured */
function titleOf({ kernel, variant, workgroups }) {
  return `${kernel} · ${variant} · ${workgroups.map(formatCount).join(' × ')} workgroups`;
}

/** @param {HTMLButtonElement} button that says so for a moment @param {string} text */
async function toClipboard(button, text) {
  await navigator.clipboard.writeText(text);
  button.lastChild?.replaceWith('Copied');
  setTimeout(() => button.lastChild?.replaceWith('Copy'), COPIED_MS);
}
