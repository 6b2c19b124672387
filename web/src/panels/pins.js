/** The pinned cells of the large map, each with its weight in the head in focus. */

import { fill, h, icon, ICONS } from '../dom.js';
import { formatToken, formatWeight } from '../format.js';
import { showOf } from '../reading.js';
import { createRows } from '../rows.js';
import { tokenMark } from './elements.js';
import { tableMenu } from './table-menu.js';
import { pinsTable } from './tables.js';

/** @typedef {import('../store.js').Cell} Cell */

const HINT = {
  mouse: 'Click a cell to pin it; Shift+click pins several.',
  touch: 'Tap a cell to pin it; “Keep several” pins more than one.',
};

/**
 * @param {import('../api.js').Api} api
 * @param {import('../store.js').Store} store
 */
export function mountPins(api, store) {
  const rows = createRows(api, store);
  const several = h('input', { type: 'checkbox' });
  const chips = h('ul', { class: 'pins-list', 'aria-label': 'Pinned cells' });
  const hint = h('p', { class: 'muted small' }, matchMedia('(pointer: coarse)').matches ? HINT.touch : HINT.mouse);
  const clear = h('button', { class: 'button compact', type: 'button', onclick: () => store.set({ pins: [] }) }, 'Let all go');
  const table = tableMenu('Pinned cells', () => {
    const { source, pins } = store.state;
    const known = pins.map(({ query, key }) => ({ query, key, weight: rows.peek(query)?.weights[key] }));
    return source && pinsTable(source.tokens, known, showOf(store.state) === 'gradient');
  });
  const element = h(
    'div',
    { class: 'pins' },
    hint,
    chips,
    clear,
    table,
    h('label', { class: 'check small pins-several', title: 'A click pins another cell beside those that are pinned' }, several, 'Keep several'),
  );

  const draw = () => {
    const { source, pins } = store.state;
    hint.hidden = pins.length > 0;
    clear.hidden = pins.length < 2;
    table.hidden = !pins.length;
    fill(chips, source ? pins.map((one) => chip(store, source.tokens, one, rows.peek(one.query)?.weights[one.key])) : []);
    for (const { query } of pins) if (source && !rows.peek(query)) void rows.fetch(query).then(draw, () => {});
  };
  store.on(['sourceNumber', 'edit', 'layer', 'head', 'style', 'over', 'pins', 'query', 'key'], draw);
  return {
    element,
    /** Whether the next pin stands beside the others. */
    get several() {
      return several.checked;
    },
  };
}

/** @param {import('../store.js').Store} store @param {string[]} tokens @param {Cell} cell @param {number | undefined} weight */
function chip(store, tokens, { query, key }, weight) {
  const { pins, query: row, key: column } = store.state;
  const name = `${formatToken(tokens[query])} to ${formatToken(tokens[key])}`;
  return h(
    'li',
    { class: 'pin', 'aria-current': row === query && column === key ? 'true' : null },
    h(
      'button',
      { class: 'pin-cell', type: 'button', title: `row ${query}, column ${key}`, onclick: () => store.set({ query, key }) },
      tokenMark(tokens[query], query),
      ' → ',
      tokenMark(tokens[key], key),
      h('span', { class: 'number' }, weight === undefined ? '…' : formatWeight(weight)),
    ),
    h(
      'button',
      {
        class: 'pin-drop',
        type: 'button',
        'aria-label': `Let the pin ${name} go`,
        onclick: () => store.set({ pins: pins.filter((one) => one.query !== query || one.key !== key) }),
      },
      icon(ICONS.close),
    ),
  );
}
