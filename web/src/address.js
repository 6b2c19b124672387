/**
 * The state of the page as the fragment of its address, and back: `#text=Hello%20world&layer=3&head=1`.
 *
 * A field stands in the fragment only where it differs from the page's beginning. Reading checks every field: one that
 * has no meaning is left out and named. What a fragment asks for still has to fit the source, which is not known here.
 */

import { BEGINNING, MAX_HEADS } from './store.js';

/**
 * @typedef {import('./store.js').State} State
 * @typedef {import('./types').SyntheticShape} SyntheticShape
 *
 * @typedef {{ kind: 'sample' | 'write' } | { kind: 'text', text: string } | { kind: 'synthetic', shape: SyntheticShape } |
 *   { kind: 'file' | 'python', name: string }} Input what the maps are computed from; `python`: what a cell of the console shows
 *
 * @typedef {Pick<State, 'layer' | 'head' | 'heads' | 'query' | 'key' | 'pins' | 'view' | 'over' | 'reading' | 'openAs' |
 *   'direction' | 'compare' | 'style' | 'writing'>} Look what of it is looked at, and how
 *
 * @typedef {Look & { input: Input, mod: string, wgsl: string }} Address `mod` is the text of a score_mod, `wgsl` that of
 *   kernels, packed; both '' for none
 */

/** Longer texts are not put into an address: browsers and chats cut long ones. */
export const MAX_TEXT = 4000;
const MAX_PACKED = 16_000;
const MAX_PINS = 32;
const MAX_INDEX = 1_000_000;
/** Many times as many as there are fields: more parts of a fragment are not read. */
const MAX_PARTS = 200;
const SYNTHETIC = /** @type {(keyof SyntheticShape)[]} */ (['length', 'heads', 'kv_heads', 'head_dim', 'mask', 'window', 'softcap', 'seed']);
const OVER = /** @type {const} */ (['head', 'layer', 'all', 'rollout']);
const AS = /** @type {const} */ (['map', 'sentence', 'lines']);
const DIRECTIONS = /** @type {const} */ (['from', 'to']);
const MASKS = ['causal', 'none', 'padding', 'documents', 'alibi'];
const STYLE = {
  colormap: ['rocket', 'magma', 'viridis'],
  scale: ['linear', 'sqrt', 'log'],
  pool: ['max', 'mean'],
  show: ['weights', 'gradient'],
  range: ['unit', 'map'],
};
/** Halves of a character, which a text cut in its middle has, and encodeURIComponent refuses. */
const LONE_SURROGATES = /[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/gu;
/** A link to a place on the page, such as #kernel. */
const SECTION = /^#[a-z-]+$/u;
const CACHES = ['float32', 'float16', 'bfloat16', 'turboquant4', 'turboquant3', 'turboquant2', 'turboquant1'];

/** Thrown by a field that has no meaning. */
class Meaningless extends Error {}

/** @param {unknown} condition @returns {asserts condition} */
function must(condition) {
  if (!condition) throw new Meaningless();
}

/** @param {string} text */
function index(text) {
  must(/^\d{1,7}$/u.test(text));
  const value = Number(text);
  must(value <= MAX_INDEX);
  return value;
}

/** @param {string} text */
function finite(text) {
  must(text.length <= 24 && /^-?\d+(\.\d+)?(e-?\d+)?$/u.test(text));
  const value = Number(text);
  must(Number.isFinite(value));
  return value;
}

/** @template {string} T @param {string} text @param {readonly T[]} words @returns {T} */
function oneOf(text, words) {
  must(words.includes(/** @type {T} */ (text)));
  return /** @type {T} */ (text);
}

/** @param {string} text @param {number} longest */
function shortText(text, longest) {
  must(text.length <= longest);
  return text;
}

/** @param {string} text as packed-text.js writes it */
function packedText(text) {
  must(text.length <= MAX_PACKED && /^[\w-]*$/u.test(text));
  return text;
}

/** @param {number} value with the six digits that a view needs */
const short = (value) => String(Number(value.toPrecision(6)));

/** A colour map without the direction that light or dark gives it. @param {string} name */
const plain = (name) => name.replace(/_r$/u, '');

/**
 * @typedef {object} Field
 * @property {(address: Address, start: Address) => string | null} write null where nothing is to be said
 * @property {(text: string) => Partial<Address>} read throws Meaningless
 */

/** @param {'layer' | 'head' | 'query' | 'key'} name @returns {Field} */
const indexField = (name) => ({
  write: (address, start) => (address[name] === start[name] ? null : String(address[name])),
  read: (text) => ({ [name]: index(text) }),
});

/** The fields, in the order in which an address has them. @type {Record<string, Field>} */
const FIELDS = {
  text: {
    write: ({ input }) => (input.kind === 'text' && input.text.length <= MAX_TEXT ? input.text : null),
    read: (text) => ({ input: text.trim() ? { kind: 'text', text: shortText(text, MAX_TEXT) } : { kind: 'sample' } }),
  },
  synthetic: {
    write: ({ input }) => (input.kind === 'synthetic' ? SYNTHETIC.map((name) => input.shape[name] ?? '').join(',') : null),
    read: (text) => ({ input: { kind: 'synthetic', shape: readShape(text.split(',')) } }),
  },
  file: {
    write: ({ input }) => (input.kind === 'file' ? input.name.slice(0, 200) : null),
    read: (text) => ({ input: { kind: 'file', name: shortText(text, 200) } }),
  },
  python: {
    write: ({ input }) => (input.kind === 'python' ? input.name.slice(0, 200) : null),
    read: (text) => ({ input: { kind: 'python', name: shortText(text, 200) } }),
  },
  write: {
    write: ({ input, writing: { packed } }) => (input.kind === 'write' ? (packed && packed.length <= MAX_PACKED ? `1.${packed}` : '1') : null),
    read: (text) => {
      must(text === '1' || text.startsWith('1.'));
      return { input: { kind: 'write' }, writing: { packed: packedText(text.slice(2)), begun: 0 } };
    },
  },
  layer: indexField('layer'),
  head: indexField('head'),
  heads: {
    write: ({ heads }) => (heads.length ? heads.map(({ layer, head }) => `${layer}.${head}`).join(',') : null),
    read: (text) => ({ heads: readHeads(text.split(',')) }),
  },
  query: indexField('query'),
  key: indexField('key'),
  pins: {
    write: ({ pins }) => (pins.length ? pins.slice(-MAX_PINS).map(({ query, key }) => `${query}.${key}`).join(',') : null),
    read: (text) => ({ pins: readPins(text.split(',')) }),
  },
  view: {
    write: ({ view }) => (view ? [view.x, view.y, view.span].map(short).join(',') : null),
    read: (text) => ({ view: readView(text.split(',').map(finite)) }),
  },
  style: {
    write: ({ style }, start) => {
      const given = styleWords(style);
      return given === styleWords(start.style) ? null : given;
    },
    read: (text) => ({ style: readStyle(text.split(',')) }),
  },
  over: {
    write: ({ over }) => (over === 'head' ? null : over),
    read: (text) => ({ over: oneOf(text, OVER) }),
  },
  words: {
    write: ({ reading }) => (reading.words ? '1' : null),
    read: (text) => {
      must(text === '1');
      return /** @type {any} */ ({ reading: { words: true } });
    },
  },
  special: {
    write: ({ reading }) => (reading.special === 'show' ? null : reading.special),
    read: (text) => /** @type {any} */ ({ reading: { special: oneOf(text, ['show', 'hide', 'renormalise']) } }),
  },
  as: {
    write: ({ openAs }) => (openAs === 'map' ? null : openAs),
    read: (text) => ({ openAs: oneOf(text, AS) }),
  },
  direction: {
    write: ({ direction }) => (direction === 'from' ? null : direction),
    read: (text) => ({ direction: oneOf(text, DIRECTIONS) }),
  },
  compare: {
    write: ({ compare }) => compare && writeCompare(compare),
    read: (text) => ({ compare: readCompare(text) }),
  },
  mod: {
    write: ({ mod }) => (mod && mod.length <= MAX_TEXT ? mod : null),
    read: (text) => ({ mod: shortText(text, MAX_TEXT) }),
  },
  wgsl: {
    write: ({ wgsl }) => (wgsl && wgsl.length <= MAX_PACKED ? wgsl : null),
    read: (text) => ({ wgsl: packedText(text) }),
  },
};

/** @param {string[]} parts @returns {SyntheticShape} */
function readShape(parts) {
  must(parts.length === SYNTHETIC.length);
  const [length, heads, kvHeads, headDim, mask, window, softcap, seed] = parts;
  return {
    length: index(length),
    heads: index(heads),
    kv_heads: index(kvHeads),
    head_dim: index(headDim),
    mask: oneOf(mask, MASKS),
    window: window === '' ? null : index(window),
    softcap: softcap === '' ? null : finite(softcap),
    seed: index(seed),
  };
}

/** @param {string[]} parts */
function readPins(parts) {
  must(parts.length <= MAX_PINS);
  return parts.map(readPair).map(([query, key]) => ({ query, key }));
}

/** @param {string[]} parts */
function readHeads(parts) {
  must(parts.length <= MAX_HEADS && new Set(parts).size === parts.length);
  return parts.map(readPair).map(([layer, head]) => ({ layer, head }));
}

/** @param {string} part such as "5.11" */
function readPair(part) {
  const pair = part.split('.');
  must(pair.length === 2);
  return pair.map(index);
}

/** @param {number[]} numbers */
function readView([x, y, span, ...more]) {
  must(span > 0 && x >= 0 && y >= 0 && !more.length && Math.max(x, y, span) <= MAX_INDEX);
  return { x, y, span };
}

/** @param {import('./types').Style} style */
function styleWords({ colormap, scale, pool, show = 'weights', range = 'unit' }) {
  return [plain(colormap), scale, pool, show, range].join(',');
}

/** @param {string[]} words @returns {import('./types').Style} */
function readStyle(words) {
  must(words.length === Object.keys(STYLE).length);
  const entries = Object.entries(STYLE).map(([name, known], i) => [name, oneOf(words[i], known)]);
  return Object.fromEntries(entries);
}

/** @param {NonNullable<State['compare']>} compare */
function writeCompare(compare) {
  if (compare.with === 'head') return `head,${compare.layer},${compare.head}`;
  if (compare.with === 'text') return `text,${compare.text.slice(0, MAX_TEXT)}`;
  return compare.with === 'cache' ? `cache,${compare.dtype}` : 'unedited';
}

/** @param {string} text @returns {State['compare']} */
function readCompare(text) {
  const [kind, ...rest] = text.split(',');
  if (kind === 'head') {
    must(rest.length === 2);
    return { with: 'head', layer: index(rest[0]), head: index(rest[1]) };
  }
  if (kind === 'text') return { with: 'text', text: shortText(rest.join(','), MAX_TEXT) };
  if (kind === 'cache') return { with: 'cache', dtype: oneOf(rest.join(','), CACHES) };
  must(kind === 'unedited' && !rest.length);
  return { with: 'unedited' };
}

/** The state in which the page begins; where it differs from that of the store, the page says so. @param {Partial<Address>} [other] @returns {Address} */
export function startAddress(other) {
  const { layer, head, heads, query, key, pins, view, over, reading, openAs, direction, compare, style, writing } = BEGINNING;
  const look = { layer, head, heads, query, key, pins, view, over, reading, openAs, direction, compare, style, writing };
  return { input: { kind: 'sample' }, ...look, mod: '', wgsl: '', ...other };
}

/**
 * The fragment for an address, '' for the page's beginning.
 * @param {Address} address @param {Address} start the page's beginning
 */
export function encode(address, start) {
  const parts = Object.entries(FIELDS).flatMap(([name, { write }]) => {
    const value = write(address, start);
    return value === null ? [] : [`${name}=${escape(value)}`];
  });
  return parts.length ? `#${parts.join('&')}` : '';
}

/** Readable in an address bar, and kept by what looks for links in a text. @param {string} value */
function escape(value) {
  return encodeURIComponent(value.replace(LONE_SURROGATES, '\uFFFD')).replace(/%2C/gu, ',').replace(/[!'()*]/gu, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
}

/**
 * What a fragment asks for.
 * @param {string} fragment @param {Address} start what holds where it says nothing
 * @returns {{ address: Address, problems: string[] }} `problems`: the names of the fields that had no meaning
 */
export function decode(fragment, start) {
  /** @type {Address} */
  let address = { ...start };
  /** @type {string[]} */
  const problems = [];
  if (SECTION.test(fragment)) return { address, problems };
  const parts = fragment.replace(/^#/u, '').split('&', MAX_PARTS + 1).filter(Boolean);
  if (parts.length > MAX_PARTS) problems.push(parts.splice(MAX_PARTS)[0].slice(0, 24));
  for (const part of parts) {
    const at = part.indexOf('=');
    const name = at < 0 ? part : part.slice(0, at);
    try {
      must(Object.hasOwn(FIELDS, name) && at > 0);
      const patch = FIELDS[name].read(decodeURIComponent(part.slice(at + 1)));
      if (patch.reading) patch.reading = { ...address.reading, ...patch.reading };
      address = { ...address, ...patch };
    } catch (error) {
      if (!(error instanceof Meaningless || error instanceof URIError)) throw error;
      problems.push(name.slice(0, 24));
    }
  }
  return { address, problems };
}
