/** A rendered shader: its constants, and the text with colours. */

import { fill, h, icon, ICONS } from '../dom.js';
import { formatCount } from '../format.js';
import { highlight } from '../editor/wgsl.js';

/** @param {HTMLElement} element */
export function mountShader(element) {
  const title = h('h3', null, 'WGSL');
  const constants = h('dl', { class: 'constants' });
  const code = h('code');
  const copy = h(
    'button',
    { class: 'button compact', type: 'button', disabled: true, onclick: () => void toClipboard() },
    icon(ICONS.copy),
    'Copy',
  );
  const text = h('pre', { class: 'shader', tabIndex: 0, 'aria-label': 'Rendered WGSL' }, code);
  fill(element, h('div', { class: 'shader-head' }, title, copy), constants, text);
  let wgsl = '';

  async function toClipboard() {
    await navigator.clipboard.writeText(wgsl);
    copy.lastChild?.replaceWith('Copied');
    setTimeout(() => copy.lastChild?.replaceWith('Copy'), 1200);
  }

  /** @param {import('../types').Measurement | null} m */
  function show(m) {
    wgsl = m?.wgsl ?? '';
    copy.disabled = !wgsl;
    element.dataset.empty = String(!wgsl);
    if (!m || !wgsl) {
      title.textContent = 'WGSL';
      fill(constants);
      fill(code, h('span', { class: 'wgsl-comment' }, '// The shader as it was rendered for this call appears here after a run.'));
      return;
    }
    title.textContent = `${m.kernel} · ${m.variant} · ${m.workgroups.map(formatCount).join(' × ')} workgroups`;
    fill(
      constants,
      Object.entries(m.constants).map(([name, value]) => h('div', null, h('dt', null, name), h('dd', null, value))),
    );
    fill(code, highlight(wgsl));
    text.scrollTop = 0;
  }
  show(null);
  return { show };
}
