/**
 * What the panels share: the source, what of it is in focus, and how it is coloured.
 *
 * @typedef {import('./types').SourceInfo} SourceInfo
 * @typedef {object} State
 * @property {SourceInfo | null} source
 * @property {number} sourceNumber counts the sources, so that an answer about an earlier one can be told
 * @property {number} layer
 * @property {number} head
 * @property {number} query row under the cursor
 * @property {number} key column under the cursor
 * @property {import('./types').Style} style
 * @property {import('./runtime/client.js').Info | null} info
 */

/** @typedef {ReturnType<typeof createStore>} Store */

/** @param {State} initial */
export function createStore(initial) {
  let state = Object.freeze({ ...initial });
  /** @type {Set<{ keys: (keyof State)[], listener: (state: Readonly<State>) => void }>} */
  const subscriptions = new Set();

  return {
    get state() {
      return state;
    },

    /** @param {Partial<State>} patch */
    set(patch) {
      const changed = /** @type {(keyof State)[]} */ (Object.keys(patch)).filter((key) => patch[key] !== state[key]);
      if (!changed.length) return;
      state = Object.freeze({ ...state, ...patch });
      for (const { keys, listener } of [...subscriptions]) {
        if (keys.some((key) => changed.includes(key))) listener(state);
      }
    },

    /**
     * @param {(keyof State)[]} keys
     * @param {(state: Readonly<State>) => void} listener called after one of them changed
     */
    on(keys, listener) {
      subscriptions.add({ keys, listener });
    },
  };
}
