/**
 * How tokens are read: the positions of a source whose word pieces are merged, or whose special tokens are hidden,
 * against those of the tokens themselves.
 *
 * @typedef {import('./types').SourceInfo} SourceInfo
 * @typedef {import('./store.js').Focus} Focus
 */

/** All tokens, however they are read. @param {SourceInfo} source */
export function allTokens({ base, tokens }) {
  return base?.tokens ?? tokens;
}

/** The last token that a position stands for. @param {SourceInfo} source @param {number} position */
export function tokenAt({ base }, position) {
  return base ? base.stops[position] - 1 : position;
}

/** The position that stands for a token, or else the nearest before it. @param {SourceInfo} source @param {number} token */
export function positionOf({ base }, token) {
  if (!base) return token;
  const after = base.starts.findIndex((start) => start > token);
  return Math.max(0, (after < 0 ? base.starts.length : after) - 1);
}

/** The weights of a row by tokens: each piece of a word has the word's weight, a hidden token none. @param {SourceInfo} source @param {ArrayLike<number>} weights */
export function byToken({ base, tokens }, weights) {
  const found = new Float32Array(base?.tokens.length ?? tokens.length);
  if (!base) found.set(weights);
  else base.starts.forEach((start, i) => found.fill(weights[i], start, base.stops[i]));
  return found;
}

/**
 * The same focus in a source whose tokens are read in another way; pins on tokens that are hidden there are let go.
 * @param {SourceInfo} from @param {SourceInfo} to @param {Focus} focus @returns {Focus}
 */
export function refocus(from, to, focus) {
  const first = (/** @type {number} */ position) => from.base?.starts[position] ?? position;
  const move = (/** @type {number} */ position) => positionOf(to, first(position));
  const isShown = (/** @type {number} */ position) => !to.base || to.base.starts[move(position)] <= first(position) && first(position) < to.base.stops[move(position)];
  const pins = focus.pins
    .filter(({ query, key }) => isShown(query) && isShown(key))
    .map(({ query, key }) => ({ query: move(query), key: move(key) }));
  const isFirst = (/** @type {import('./store.js').Cell} */ pin, /** @type {number} */ at) =>
    pins.findIndex(({ query, key }) => query === pin.query && key === pin.key) === at;
  return { ...focus, query: move(focus.query), key: move(focus.key), pins: pins.filter(isFirst), view: null };
}

/** @param {import('./store.js').Reading} a @param {import('./store.js').Reading} b */
export function isSame(a, b) {
  return a.words === b.words && a.special === b.special;
}

/** What is shown of the maps: a rollout multiplies weights, and has no gradients. @param {Pick<import('./store.js').State, 'over' | 'style'>} state @returns {import('./types').Show} */
export function showOf({ over, style }) {
  return over === 'rollout' ? 'weights' : (style.show ?? 'weights');
}
