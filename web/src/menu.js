/** A button that opens a short list of actions. */

import { fill, h, icon } from './dom.js';

const SAID_MS = 4000;

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
  // Where the list would leave the window at its left, it begins with its button.
  box.addEventListener('toggle', () => {
    if (!box.open) return;
    box.classList.remove('from-start');
    const { left } = /** @type {Element} */ (box.lastElementChild).getBoundingClientRect();
    box.classList.toggle('from-start', left < 4);
  });
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

/** A menu that says for a moment what became of a click. @param {HTMLElement} list as {@link menu} makes it */
export function saying(list) {
  const said = h('span', { class: 'menu-said small', role: 'status' });
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  return {
    element: h('div', { class: 'menu-box' }, list, said),
    /** @param {string} text */
    say(text) {
      clearTimeout(timer);
      fill(said, text);
      timer = setTimeout(() => fill(said), SAID_MS);
    },
  };
}
