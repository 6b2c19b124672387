/** The exact weights of a head's rows, cached so that moving the pointer along a row fetches them once. */

import { latest } from './latest.js';
import { showOf } from './reading.js';

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
  /** @param {number} query */
  const name = (query) => {
    const { sourceNumber, edit, layer, head, over } = store.state;
    return `${sourceNumber}/${edit}/${layer}/${head}/${query}/${over}/${showOf(store.state)}`;
  };

  /** @param {number} query */
  const load = async (query) => {
    const { layer, head, over } = store.state;
    const wanted = name(query);
    if (kept.has(wanted)) return;
    kept.set(wanted, await api.row(layer, head, query, showOf(store.state), over));
    const oldest = kept.keys().next().value;
    if (kept.size > KEPT && oldest) kept.delete(oldest);
  };

  /** Fetches one row at a time, and tells those who wait for it. @param {() => number} current the row that is wanted now */
  const lane = (current) => {
    /** @type {Set<() => void>} */
    let waiting = new Set();
    const run = latest(
      async () => {
        const query = current();
        const wanted = name(query);
        await load(query);
        if (name(current()) !== wanted) return;
        const told = waiting;
        waiting = new Set();
        for (const tell of told) tell();
      },
      () => waiting.clear(),
    );
    return (/** @type {() => void} */ tell) => {
      waiting.add(tell);
      run(undefined);
    };
  };

  const chosen = () => store.state.query;
  const pointed = () => store.state.hover?.query ?? store.state.query;
  return {
    /** A row, by default the chosen cell's, if it is known already. @param {number} [query] */
    peek: (query = chosen()) => kept.get(name(query)),

    /** Fetches a row. @param {number} query */
    fetch: load,

    /** Fetches the chosen cell's row, then calls `tell`. */
    ask: lane(chosen),

    /** Fetches the row under the pointer, then calls `tell`. */
    askHover: lane(pointed),
  };
}
