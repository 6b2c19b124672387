/** The exact weights of a map's rows, cached so that moving the pointer along a row fetches them once. */

import { latest } from './latest.js';

const KEPT = 256;

/** @type {WeakMap<object, ReturnType<typeof build>>} shared by all panels of a store */
const made = new WeakMap();

/**
 * @param {import('./api.js').Api} api
 * @param {import('./store.js').Store} store
 */
export function createRows(api, store) {
  const known = made.get(store) ?? build(api, store);
  made.set(store, known);
  return known;
}

/**
 * @param {import('./api.js').Api} api
 * @param {import('./store.js').Store} store
 */
function build(api, store) {
  /** @type {Map<string, import('./types').Row>} */
  const kept = new Map();
  /** @type {Set<() => void>} */
  let waiting = new Set();
  const name = () => {
    const { sourceNumber, edit, layer, head, query, style } = store.state;
    return `${sourceNumber}/${edit}/${layer}/${head}/${query}/${style.show}`;
  };

  const load = latest(
    async () => {
      const { layer, head, query, style } = store.state;
      const wanted = name();
      if (!kept.has(wanted)) {
        const row = await api.row(layer, head, query, style.show ?? 'weights');
        kept.set(wanted, row);
        const oldest = kept.keys().next().value;
        if (kept.size > KEPT && oldest) kept.delete(oldest);
      }
      if (name() !== wanted) return;
      const told = waiting;
      waiting = new Set();
      for (const tell of told) tell();
    },
    () => waiting.clear(),
  );

  return {
    /** The row under the cursor, if it is known already. */
    peek: () => kept.get(name()),

    /** Fetches the row under the cursor, then calls `tell`. @param {() => void} tell */
    ask(tell) {
      waiting.add(tell);
      load(undefined);
    },
  };
}
