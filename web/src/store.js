/**
 * What the panels share: the source, what of it is in focus, and how it is coloured.
 *
 * @typedef {import('./types').SourceInfo} SourceInfo
 * @typedef {object} State
 * @property {SourceInfo | null} source
 * @property {import('./address.js').Input} input what the visitor asks for; the source follows it once it is computed
 * @property {Writing} writing what the Write panel has, which it follows when it is changed elsewhere
 * @property {number} sourceNumber counts the sources, so that an answer about an earlier one can be recognised
 * @property {number} layer
 * @property {number} head
 * @property {number} query row of the chosen cell, which the panels, links and files speak about
 * @property {number} key column of the chosen cell
 * @property {Cell | null} hover the cell under the pointer, which only the readout beside the map follows
 * @property {readonly Cell[]} pins cells that are kept, in the order in which they were pinned; they hold for all heads
 * @property {import('./heatmap/view.js').View | null} view what is on screen of the large map, null for all of it
 * @property {Over} over whose map is shown: the head's, a mean over heads, or the attention rollout up to the layer
 * @property {Reading} reading how tokens are read
 * @property {readonly Head[]} heads that are kept, in the order in which they were chosen: the sentence and the lines show them
 *   beside the head in focus
 * @property {'map' | 'sentence' | 'lines'} openAs how the head in focus is drawn
 * @property {Direction} direction whether the sentence and the lines speak of what a token attends to (the query's row), or of
 *   which tokens attend to it (the key's column)
 * @property {Compare | null} compare what the head in focus is compared with
 * @property {string} editText the score_mod and mask_mod that are applied, '' for none
 * @property {readonly Fork[]} forks kernels that the visitor has edited
 * @property {number} painted number of the source whose overview was painted last
 * @property {number} edit counts what the visitor's score_mod has changed in the source
 * @property {import('./types').Style} style
 * @property {import('./runtime/client.js').Info | null} info
 * @property {string} variant of the kernel that is timed, or "all"
 * @property {import('./types').Measurement[]} timings of the layer in focus, one a variant
 *
 * @typedef {{ packed: string, begun: number }} Writing `packed`: all of it as an address has it, '' for the beginning
 *   (panels/write-state.js); `begun` counts the steps that Back can take back
 * @typedef {{ query: number, key: number }} Cell
 * @typedef {{ layer: number, head: number }} Head
 * @typedef {'from' | 'to'} Direction
 * @typedef {'head' | 'layer' | 'all' | 'rollout'} Over
 * @typedef {{ words: boolean, special: 'show' | 'hide' | 'renormalise' }} Reading whether word pieces are merged into
 *   words, and what becomes of special tokens
 * @typedef {{ with: 'head', layer: number, head: number } | { with: 'text', text: string } | { with: 'unedited' } |
 *   { with: 'cache', dtype: string }} Compare
 * @typedef {{ name: string, of: string, text: string }} Fork a kernel's WGSL, and the variant that it began as
 *
 * @typedef {Pick<State, 'layer' | 'head' | 'heads' | 'query' | 'key' | 'pins' | 'view'>} Focus what of a source is looked at
 *
 * @typedef {object} Store
 * @property {Readonly<State>} state
 * @property {(patch: Partial<State>) => void} set
 * @property {(keys: (keyof State)[], listener: (state: Readonly<State>) => void) => () => void} on calls the
 *   listener after one of the keys changed, until the function that it gives back is called
 *
 * @typedef {Store & { call: import('./api.js').Call }} Model what a view shows: its state, and the calls to Python
 */

/** @type {State} */
export const BEGINNING = {
  source: null,
  input: { kind: 'sample' },
  writing: { packed: '', begun: 0 },
  sourceNumber: 0,
  layer: 0,
  head: 0,
  query: 0,
  key: 0,
  hover: null,
  pins: [],
  view: null,
  over: 'head',
  reading: { words: false, special: 'show' },
  heads: [],
  openAs: 'map',
  direction: 'from',
  compare: null,
  editText: '',
  forks: [],
  painted: 0,
  edit: 0,
  style: { colormap: 'rocket', scale: 'sqrt', pool: 'max' },
  info: null,
  variant: 'all',
  timings: [],
};

/** @param {Partial<State>} [initial] @returns {Store} */
export function createStore(initial) {
  let state = Object.freeze({ ...BEGINNING, ...initial });
  /** @type {Set<{ keys: (keyof State)[], listener: (state: Readonly<State>) => void }>} */
  const subscriptions = new Set();

  return {
    get state() {
      return state;
    },

    set(patch) {
      const changed = /** @type {(keyof State)[]} */ (Object.keys(patch)).filter((key) => patch[key] !== state[key]);
      if (!changed.length) return;
      state = Object.freeze({ ...state, ...patch });
      for (const { keys, listener } of [...subscriptions]) {
        if (keys.some((key) => changed.includes(key))) listener(state);
      }
    },

    on(keys, listener) {
      const subscription = { keys, listener };
      subscriptions.add(subscription);
      return () => subscriptions.delete(subscription);
    },
  };
}

/** @param {import('./api.js').Call} call @param {Partial<State>} [initial] @returns {Model} */
export function createModel(call, initial) {
  return Object.assign(createStore(initial), { call });
}

/**
 * Opens another source; the focus stays where it is, within what the new source has.
 * @param {Store} store @param {SourceInfo} source @param {Partial<State>} [focus] where else it is to be
 */
export function openSource(store, source, focus) {
  const before = store.state;
  // A text that grows is zoomed as before; another source is shown whole.
  const grows = source.kind === 'written' && before.source?.kind === 'written';
  const view = grows ? before.view : null;
  store.set({
    source,
    sourceNumber: before.sourceNumber + 1,
    ...within({ ...focusOf(before), view, ...focus }, source),
    hover: null,
    timings: [],
  });
}

/** @param {Focus} state @returns {Focus} */
export function focusOf({ layer, head, heads, query, key, pins, view }) {
  return { layer, head, heads, query, key, pins, view };
}

/** The nearest focus that a source has. @param {Focus} focus @param {SourceInfo} source @returns {Focus} */
export function within({ layer, head, heads: kept, query, key, pins, view }, { layers, heads, length }) {
  const clamp = (/** @type {number} */ index, /** @type {number} */ count) => Math.min(Math.max(index, 0), count - 1);
  return {
    layer: clamp(layer, layers),
    head: clamp(head, heads),
    heads: kept.filter((one) => one.layer < layers && one.head < heads),
    query: clamp(query, length),
    key: clamp(key, length),
    pins: pins.filter((one) => one.query < length && one.key < length),
    view,
  };
}

/**
 * Pins a cell and chooses it; a cell that is pinned already is let go.
 * @param {Store} store @param {Cell} cell @param {boolean} several whether the other pins stay
 */
export function pin(store, { query, key }, several) {
  const { pins } = store.state;
  const others = pins.filter((one) => one.query !== query || one.key !== key);
  const isPinned = others.length < pins.length;
  if (isPinned) store.set({ pins: others, query, key });
  else store.set({ pins: [...(several ? others : []), { query, key }], query, key });
}

/** As many heads as there are hues that people tell apart (py_attn/viewer/panels/views.py). */
export const MAX_HEADS = 8;

/** The heads that are shown together: those that are kept, and the one in focus. @param {Pick<State, 'layer' | 'head' | 'heads'>} state @returns {Head[]} */
export function shownHeads({ layer, head, heads }) {
  if (heads.some((one) => isHead(one, { layer, head }))) return [...heads];
  return [...heads.slice(0, MAX_HEADS - 1), { layer, head }];
}

/**
 * Shows a head beside the others, or lets it go; the last one stays.
 * @param {Store} store @param {Head} head @returns {boolean} whether there was room for it
 */
export function toggleHead(store, head) {
  const shown = shownHeads(store.state);
  const others = shown.filter((one) => !isHead(one, head));
  if (others.length === shown.length) {
    if (shown.length >= MAX_HEADS) return false;
    store.set({ heads: [...shown, head] });
  } else {
    const { layer, head: index } = others.length && isHead(head, store.state) ? others[0] : store.state;
    store.set({ heads: others.length > 1 ? others : [], layer, head: index });
  }
  return true;
}

/** Keeps the head in focus, so that others are shown beside it, or lets it go. @param {Store} store */
export function keepHead(store) {
  const { layer, head, heads } = store.state;
  const others = heads.filter((one) => !isHead(one, { layer, head }));
  if (others.length < heads.length) store.set({ heads: others });
  else if (heads.length < MAX_HEADS) store.set({ heads: [...heads, { layer, head }] });
}

/** @param {Head} one @param {Head} other */
export function isHead(one, other) {
  return one.layer === other.layer && one.head === other.head;
}

/**
 * A store as one view sees it. When the view ends, so do its subscriptions, and its state has no source any more, so
 * that work still in progress for the view stops.
 * @param {Store} store
 */
export function scopedStore(store) {
  /** @type {Set<() => void>} */
  const ends = new Set();
  /** @type {(() => void)[]} */
  const first = [];
  /** @type {Readonly<State> | null} */
  let last = null;

  return {
    get state() {
      return last ?? store.state;
    },

    set: (/** @type {Partial<State>} */ patch) => {
      if (!last) store.set(patch);
    },

    /** @type {Store['on']} */
    on(keys, listener) {
      const end = store.on(keys, listener);
      ends.add(end);
      first.push(() => listener(store.state));
      return () => {
        ends.delete(end);
        end();
      };
    },

    /** Calls every listener with the state as it is. */
    begin() {
      for (const tell of first.splice(0)) tell();
    },

    end() {
      for (const end of ends) end();
      ends.clear();
      last = Object.freeze({ ...store.state, source: null, sourceNumber: -1 });
    },
  };
}
