/** The exact weights of one token in all heads that are shown together. */

import { latest } from '../latest.js';
import { showOf } from '../reading.js';
import { createRows } from '../rows.js';
import { drawnHeads } from './shade.js';

/**
 * @typedef {{ rows: Float32Array[], maximum: number }} Found the weights by head, and the one that has the last colour
 */

const KEPT = 64;

/**
 * @param {import('../api.js').Api} api @param {import('../store.js').Store} store
 * @param {(error: unknown) => void} onError
 */
export function createTokenWeights(api, store, onError) {
  const single = createRows(api, store);
  /** @type {Map<string, Found>} */
  const kept = new Map();

  /** @param {number} position @param {import('../store.js').Direction} direction */
  const name = (position, direction) => {
    const { sourceNumber, edit, over, style } = store.state;
    return [sourceNumber, edit, over, showOf(store.state), style.range, JSON.stringify(drawnHeads(store.state)), position, direction].join('/');
  };

  /** One row of the head in focus is known to other panels, and to the picture that came with the page. @param {import('../store.js').Direction} direction */
  const isSingleRow = (direction) =>
    direction === 'from' && store.state.style.range !== 'map' && drawnHeads(store.state).length === 1;

  /** @param {number} position @param {import('../store.js').Direction} direction @returns {Found | undefined} */
  const peek = (position, direction) => {
    if (!isSingleRow(direction)) return kept.get(name(position, direction));
    const row = single.peek(position);
    return row && { rows: [row.weights], maximum: 1 };
  };

  /** @param {number} position @param {import('../store.js').Direction} direction */
  const load = async (position, direction) => {
    if (isSingleRow(direction)) return single.fetch(position);
    const { state } = store;
    const wanted = name(position, direction);
    const heads = drawnHeads(state);
    const given = { heads: heads.map(({ layer, head }) => [layer, head]), position, direction };
    const { weights, maximum } = await api.tokenWeights({ ...given, show: showOf(state), over: state.over, range: state.style.range ?? 'unit' });
    const length = weights.length / heads.length;
    kept.set(wanted, { rows: heads.map((_, i) => weights.subarray(i * length, (i + 1) * length)), maximum });
    const oldest = kept.keys().next().value;
    if (kept.size > KEPT && oldest) kept.delete(oldest);
    return undefined;
  };

  return {
    /** The weights, if they are known already. */
    peek,

    /**
     * Gives a function that fetches weights, one request at a time, and then calls `tell`.
     * @param {() => void} tell
     */
    lane: (tell) => {
      const run = latest(
        async (/** @type {{ position: number, direction: import('../store.js').Direction }} */ { position, direction }) => {
          const { source } = store.state;
          if (!source || position >= source.length) return;
          const wanted = name(position, direction);
          if (!peek(position, direction)) await load(position, direction);
          if (name(position, direction) === wanted) tell();
        },
        onError,
      );
      return (/** @type {number} */ position, /** @type {import('../store.js').Direction} */ direction) => run({ position, direction });
    },
  };
}
