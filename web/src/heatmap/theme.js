/** The colours that a map is drawn with. */

import { h } from '../dom.js';

const NAMES = /** @type {const} */ (['ink', 'muted', 'line', 'accent', 'sunken', 'surface']);

/**
 * The colours of the style sheet that apply to an element. A custom property is only text; as the value of `color` it
 * is resolved to a colour that a canvas accepts.
 * @param {HTMLElement} element
 * @returns {import('./draw.js').Theme}
 */
export function readTheme(element) {
  // With the visitor's own colours `color` is theirs, whatever the style sheet says; here it stays the style sheet's.
  const probe = h('span', { hidden: true, style: { 'forced-color-adjust': 'none' } });
  element.append(probe);
  const style = getComputedStyle(probe);
  const colors = NAMES.map((name) => {
    probe.style.color = `var(--${name})`;
    return [name, style.color];
  });
  probe.remove();
  return Object.fromEntries(colors);
}
