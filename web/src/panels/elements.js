/** Elements that several panels use. */

import { h, icon } from '../dom.js';
import { formatToken } from '../format.js';

/** A small button with an icon. @param {string} label @param {string} path of the icon @param {() => void} onClick */
export function iconButton(label, path, onClick) {
  return h(
    'button',
    { class: 'button icon compact', type: 'button', 'aria-label': label, title: label, onclick: onClick },
    icon(path),
  );
}

/** In a message that something has failed. @param {() => void} onClick */
export function retryButton(onClick) {
  return h('button', { class: 'button compact', type: 'button', onclick: onClick }, 'Retry');
}

/** A token as text of any script, with its position as a tooltip. @param {string} token @param {number} index */
export function tokenMark(token, index) {
  return h('bdi', { class: 'token', dir: 'auto', title: `position ${index}` }, formatToken(token));
}

/** A panel's heading. @param {string} title @param {...import('../dom.js').Child} about */
export function heading(title, ...about) {
  return h('div', null, h('h2', null, title), h('p', null, ...about));
}

/** How the keyboard leaves an editor, in which Tab indents. */
export function editorHint() {
  return h('span', { class: 'muted small editor-leave' }, h('kbd', null, 'Esc'), ', then ', h('kbd', null, 'Tab'), ' leaves the editor.');
}

/** A control with its label above it. @param {string} label @param {HTMLElement} control */
export function field(label, control) {
  return h('label', { class: 'field' }, label, control);
}

/**
 * @param {string} label @param {[value: string, label: string][]} options @param {string} chosen
 * @param {(value: string) => void} [onChange]
 */
export function select(label, options, chosen, onChange = () => {}) {
  const element = h(
    'select',
    { 'aria-label': label, onchange: () => onChange(element.value) },
    options.map(([value, name]) => h('option', { value, selected: value === chosen }, name)),
  );
  return element;
}

/** The head of a table. @param {{ label: string, title?: string, numeric?: boolean, swatch?: string }[]} columns */
export function tableHead(columns) {
  const cells = columns.map(({ label, title = '', numeric = false, swatch }) =>
    h(
      'th',
      { scope: 'col', class: numeric ? 'number' : '', title },
      swatch !== undefined && h('i', { class: `swatch ${swatch}` }),
      label,
    ),
  );
  return h('thead', null, h('tr', null, cells));
}

/** A hint for screen readers what a table holds. @param {string} text */
export function tableCaption(text) {
  return h('caption', { class: 'sr-only' }, text);
}
