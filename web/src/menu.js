/** A button that opens a short list of actions. */

import { h, icon } from './dom.js';

/**
 * @param {string} label
 * @param {string} path of its icon
 * @param {{ label: string, title: string, act: () => void }[]} actions
 */
export function menu(label, path, actions) {
  const box = h(
    'details',
    { class: 'menu' },
    h('summary', { class: 'button icon compact', 'aria-label': label, title: label }, icon(path)),
    h(
      'div',
      { class: 'menu-list' },
      actions.map(({ label: name, title, act }) =>
        h('button', { type: 'button', title, onclick: () => [close(), act()] }, name),
      ),
    ),
  );
  const close = () => (box.open = false);
  box.addEventListener('focusout', (event) => {
    if (!box.contains(/** @type {Node | null} */ (event.relatedTarget))) close();
  });
  box.addEventListener('keydown', (event) => {
    if (event.key !== 'Escape' || !box.open) return;
    event.stopPropagation();
    close();
    box.querySelector('summary')?.focus();
  });
  return box;
}
