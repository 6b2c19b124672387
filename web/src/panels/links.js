/** The chosen row in words and figures, for those who cannot see the map and those who want numbers. */

import { fill, h } from '../dom.js';
import { formatWeight } from '../format.js';
import { createRows } from '../rows.js';
import { tokenMark } from './focus.js';

const SHOWN = 8;

/**
 * @param {HTMLElement} element
 * @param {import('../api.js').Api} api
 * @param {import('../store.js').Store} store
 */
export function mountLinks(element, api, store) {
  const rows = createRows(api, store);
  const figure = h('th', { scope: 'col', class: 'number' }, 'Weight');
  const heading = h('h2', null, 'Strongest links');
  const subtitle = h('p', { class: 'links-row' }, ' ');
  const body = h('tbody');
  const table = h(
    'table',
    { class: 'links-table' },
    h('caption', { class: 'sr-only' }, 'Keys that the chosen query attends to most'),
    h(
      'thead',
      null,
      h('tr', null, h('th', { scope: 'col' }, 'Key'), figure),
    ),
    body,
  );
  const spoken = h('p', { class: 'sr-only', role: 'status', 'aria-live': 'polite' });
  const rest = h('p', { class: 'muted small' }, ' ');
  fill(element, h('header', null, h('div', null, heading, subtitle)), table, rest, spoken);
  fill(body, Array.from({ length: SHOWN }, () => line(null, null)));

  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;

  function update() {
    const { source, query, style } = store.state;
    if (!source) return;
    const shares = style.show === 'gradient';
    const known = rows.peek();
    if (!known) {
      rows.ask(update);
      return;
    }
    const { links } = known;
    figure.textContent = shares ? 'Share of the output' : 'Weight';
    fill(subtitle, tokenMark(source.tokens[query], query), ` at position ${query} ${shares ? 'gets its output from' : 'attends to'}`);
    const top = Math.abs(links[0]?.weight) || 1;
    fill(
      body,
      Array.from({ length: SHOWN }, (_, i) => {
        const link = links[i];
        if (!link) return line(null, null);
        const row = line(
          h('button', { type: 'button', class: 'link', onclick: () => store.set({ key: link.key }) }, tokenMark(source.tokens[link.key], link.key), String(link.key) !== source.tokens[link.key] && h('span', { class: 'muted small' }, ` ${link.key}`)),
          formatWeight(link.weight),
          Math.abs(link.weight) / top,
          link.weight < 0,
        );
        return row;
      }),
    );
    const sum = links.reduce((total, { weight }) => total + weight, 0);
    const others = known.weights.reduce((count, weight) => count + Number(weight !== 0), 0) - links.length;
    rest.textContent = !links.length
      ? 'This row may see nothing: its weights are all zero.'
      : others > 0
        ? `Together ${(100 * sum).toFixed(1)} % of the ${shares ? 'output' : 'row'}; the rest is spread over ${others} more keys.`
        : 'These are all that the row sees.';
    clearTimeout(timer);
    // Spoken once the cursor rests, not at every cell on the way.
    timer = setTimeout(() => {
      const said = links.slice(0, 3).map((link) => `${source.tokens[link.key]} ${formatWeight(link.weight)}`);
      spoken.textContent = `${source.tokens[query]} ${shares ? 'gets its output from' : 'attends to'} ${said.join(', ')}`;
    }, 500);
  }

  store.on(['sourceNumber', 'edit', 'layer', 'head', 'query', 'style'], update);
  return { destroy: () => clearTimeout(timer) };
}

/** @param {Node | null} key @param {string | null} weight @param {number} [share] @param {boolean} [against] */
function line(key, weight, share = 0, against = false) {
  return h(
    'tr',
    { style: { '--share': share }, class: against ? 'against' : '' },
    h('td', null, key ?? ' '),
    h('td', { class: 'number' }, weight ?? ' '),
  );
}
