/** The margins of the large map: how much attention each key receives, and the entropy of each row. */

import { h } from '../dom.js';
import { formatWeight, shortError } from '../format.js';
import { latest } from '../latest.js';
import { showOf } from '../reading.js';

const TITLE = 'Below the map: the mean attention that each key receives. At its right: the entropy of each row, 0 bits where it attends to one key only.';

/**
 * @param {import('../api.js').Api} api
 * @param {import('../store.js').Store} store
 * @param {() => ReturnType<typeof import('../heatmap/heatmap.js').mountHeatmap>} map
 */
export function mountMargins(api, store, map) {
  const box = h('input', { type: 'checkbox', onchange: () => begin() });
  const label = h('label', { class: 'check small margins-choice', title: TITLE }, box, 'Margins');
  const figures = h('p', { class: 'muted small margin-figures', hidden: true }, ' ');
  /** @type {import('../types').Margins | null} */
  let margins = null;

  const load = latest(
    async () => {
      const { sourceNumber, edit, layer, head, over } = store.state;
      const found = await api.margins(layer, head, over);
      const now = store.state;
      const isOld = now.sourceNumber !== sourceNumber || now.edit !== edit || now.layer !== layer || now.over !== over;
      if (isOld || (over === 'head' && now.head !== head) || !isShown()) return;
      margins = found;
      const rows = found.columnSum.length;
      map().setMargins(true, { received: found.columnSum.map((sum) => sum / rows), entropy: found.entropy });
      tell();
    },
    (error) => {
      map().setMargins(isShown(), null);
      figures.textContent = shortError(error);
    },
  );

  const isShown = () => box.checked && showOf(store.state) === 'weights';

  const begin = () => {
    figures.hidden = !isShown();
    if (!isShown() || !store.state.source) return map().setMargins(false, null);
    if (!margins) map().setMargins(true, null);
    load(undefined);
  };

  const tell = () => {
    if (!margins || !isShown()) return;
    const { query, key } = store.state.hover ?? store.state;
    const { rowSum, columnSum, entropy } = margins;
    if (query >= rowSum.length || key >= rowSum.length) return;
    figures.textContent =
      `Row: entropy ${entropy[query].toFixed(2)} bits, sum ${rowSum[query].toFixed(4)}. ` +
      `Column: receives ${formatWeight(columnSum[key] / rowSum.length)} on average, ${columnSum[key].toFixed(2)} in all.`;
  };

  store.on(['sourceNumber', 'edit', 'layer', 'head', 'over', 'style'], () => {
    box.disabled = showOf(store.state) !== 'weights';
    label.classList.toggle('inactive', box.disabled);
    begin();
  });
  store.on(['query', 'key', 'hover'], tell);
  return { label, figures };
}
