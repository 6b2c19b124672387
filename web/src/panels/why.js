/** Why this number? The steps from the chosen query and key to their weight, shown where the visitor asks for them. */

import { fill, h } from '../dom.js';
import { formatError, formatToken, formatWeight, shortError } from '../format.js';
import { latest } from '../latest.js';
import { tableMenu } from './table-menu.js';
import { whyTable } from './tables.js';
import { bars } from './why-bars.js';

/**
 * @typedef {import('../types').Explanation} Explanation
 * @typedef {import('../store.js').State} State
 */

const OF_ONE_HEAD = 'These steps lead to the weight of one head; the map shows several taken together. Choose “This head” above the map.';
const FORMULA = 'weight = exp(score − largest score) ÷ sum over the row of exp(score − largest score)';

/**
 * @param {HTMLElement} element to which the section is added
 * @param {import('../api.js').Api} api
 * @param {import('../store.js').Store} store
 */
export function mountWhy(element, api, store) {
  const body = h('div', { class: 'why-body', 'aria-live': 'polite' });
  const details = h('details', { class: 'why' }, h('summary', null, 'Why this number?'), body);
  element.append(details);
  const load = latest(
    async (/** @type {State} */ state) => {
      const { source, sourceNumber, layer, head, query, key, edit } = state;
      if (!source || !details.open) return;
      if (state.over !== 'head') {
        fill(body, h('p', { class: 'muted' }, OF_ONE_HEAD));
        return;
      }
      body.setAttribute('aria-busy', 'true');
      const found = await api.explain({ layer, head, query, key });
      const now = store.state;
      const isSame = now.sourceNumber === sourceNumber && now.edit === edit;
      if (isSame) fill(body, ...explain(found, source, { layer, head, query, key }));
      body.setAttribute('aria-busy', 'false');
    },
    (error) => {
      body.setAttribute('aria-busy', 'false');
      fill(body, h('p', { class: 'muted' }, shortError(error)));
    },
  );
  const update = () => details.open && load(store.state);
  details.addEventListener('toggle', update);
  store.on(['sourceNumber', 'edit', 'layer', 'head', 'query', 'key', 'over'], update);
}

/** @param {Explanation} found @param {import('../types').SourceInfo} source @param {{ layer: number, head: number, query: number, key: number }} cell */
function explain(found, source, { layer, head, query, key }) {
  const cell = `${formatToken(source.tokens[query])} → ${formatToken(source.tokens[key])}`;
  const engine = source.engine === 'webgpu' ? 'WGSL' : 'numpy in float32';
  const error = Math.abs(found.computed - found.weight);
  return [
    h('p', { class: 'muted small' }, `The steps for ${cell} in float64. ${FORMULA}.`),
    bars(found),
    h('div', { class: 'why-menu' }, tableMenu('The steps', () => whyTable(steps(found), `L${layer}H${head}-${query}-${key}`))),
    h(
      'table',
      { class: 'why-steps' },
      h(
        'tbody',
        null,
        steps(found).map(({ what, figure, note }) =>
          h('tr', null, h('th', { scope: 'row' }, what, note && h('span', { class: 'muted small' }, ` ${note}`)), h('td', { class: 'number' }, figure)),
        ),
      ),
    ),
    h('p', { class: 'muted small' }, `The map’s ${formatWeight(found.computed)} was computed by ${engine}; it differs from float64 by ${formatError(error)}.`),
  ];
}

/**
 * The steps that apply, in their order.
 * @param {Explanation} found
 * @returns {{ what: string, figure: string, value: number, note?: string }[]}
 */
export function steps(found) {
  const { products, kvHead, dot, scale, scaled, softcap, capped, modded, bias, hiddenBy, score, rowMax, exp, rowSum, visible, weight } = found;
  const count = products.length;
  const line = (/** @type {string} */ what, /** @type {number} */ value, note = '') => ({ what, value, figure: figure(value), note });
  const lines = [
    line('query · key', dot, `the sum of ${count} products, one a dimension${kvHead == null ? '' : `; keys of KV head ${kvHead}`}`),
    line('× scale', scaled, `1/√${count} = ${figure(scale)}`),
  ];
  if (capped != null) lines.push(line('softcap', capped, `${softcap} · tanh(score ÷ ${softcap})`));
  if (modded != null) lines.push(line('your score_mod', modded, 'what it returns'));
  if (hiddenBy.length) lines.push(line('hidden', -Infinity, `by ${hiddenBy.join('; ')}`));
  else if (bias) lines.push(line('+ mask', bias, 'a number that is added'), line('score', score));
  lines.push(
    line('exp(score − largest score)', exp, visible ? `the row’s largest score is ${figure(rowMax)}` : 'the row sees no key'),
    line('÷ the row’s sum', rowSum, `over the ${visible} keys that this query sees`),
    { what: '= weight', value: weight, figure: formatWeight(weight), note: '' },
  );
  return lines;
}

/** Five digits that count, with a true minus. @param {number} value */
function figure(value) {
  if (!Number.isFinite(value)) return value < 0 ? '−∞' : Number.isNaN(value) ? 'NaN' : '∞';
  const size = Math.abs(value);
  const text = size !== 0 && (size < 1e-3 || size >= 1e5) ? size.toExponential(3) : size.toFixed(4);
  return value < 0 ? `−${text}` : text;
}
