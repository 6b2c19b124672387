/** The tokens as running text, coloured by the weights of the chosen one. */

import { fill, h } from '../dom.js';
import { formatCount, formatToken, formatWeight } from '../format.js';
import { pin } from '../store.js';
import { nameOf } from './legend.js';
import { colorAt, drawnHeads, meanOf, pageOf, position, SCREEN_HUES } from './shade.js';

/** Tokens on the page at once; a longer text is shown in parts. */
export const MOST_TOKENS = 1000;

/**
 * @typedef {object} Given what the view is drawn from
 * @property {import('./weights.js').Found | undefined} found undefined until the weights are there
 * @property {number[]} on places of the heads that are drawn
 * @property {Uint8Array} legend 256 colours
 * @property {boolean} isSigned
 */

/** @param {import('../store.js').Store} store */
export function mountSentence(store) {
  const list = h('div', { class: 'sentence-tokens', role: 'listbox', 'aria-orientation': 'horizontal' });
  const said = h('span', { class: 'muted small' });
  const earlier = h('button', { class: 'button compact', type: 'button', onclick: () => turn(-1) }, 'Earlier tokens');
  const later = h('button', { class: 'button compact', type: 'button', onclick: () => turn(1) }, 'Later tokens');
  const pages = h('p', { class: 'sentence-pages', hidden: true }, said, earlier, later);
  const element = h('div', { class: 'sentence-view' }, list, pages);
  /** @type {HTMLElement[]} */
  let spans = [];
  /** What stands in `spans`. */
  let part = /** @type {[number, number]} */ ([0, 0]);
  /** @type {string[] | null} */
  let tokens = null;
  /** @type {Given | null} */
  let given = null;
  /** The token that was chosen when it was drawn last. */
  let last = -1;

  const chosen = () => (store.state.direction === 'from' ? store.state.query : store.state.key);
  /** The cell of a token and the chosen one. @param {number} index */
  const cellOf = (index) =>
    store.state.direction === 'from' ? { query: store.state.query, key: index } : { query: index, key: store.state.key };

  /** @param {number} index */
  const choose = (index) => {
    const to = Math.min(Math.max(index, 0), (store.state.source?.length ?? 1) - 1);
    store.set(store.state.direction === 'from' ? { query: to, hover: null } : { key: to, hover: null });
  };

  /** @param {EventTarget | null} target */
  const indexOf = (target) => {
    const option = target instanceof Element ? target.closest('[role=option]') : null;
    return option ? part[0] + spans.indexOf(/** @type {HTMLElement} */ (option)) : -1;
  };

  /** @param {number} by pages */
  const turn = (by) => {
    const { source } = store.state;
    if (source) show(pageOf(part[0] + by * MOST_TOKENS, MOST_TOKENS, source.length));
    paint();
  };

  /** Puts a part of the text on the page. @param {[number, number]} wanted */
  const show = (wanted) => {
    const { source } = store.state;
    if (!source) return;
    if (tokens === source.tokens && wanted[0] === part[0] && wanted[1] === part[1]) return;
    [tokens, part] = [source.tokens, wanted];
    spans = tokens.slice(...part).map((token) => h('span', { class: 'sentence-token', role: 'option', tabIndex: -1 }, h('bdi', { dir: 'auto' }, formatToken(token))));
    fill(list, spans);
    pages.hidden = source.length <= MOST_TOKENS;
    said.textContent = `Tokens ${formatCount(part[0])} to ${formatCount(part[1] - 1)} of ${formatCount(source.length)} are shown.`;
    earlier.disabled = part[0] === 0;
    later.disabled = part[1] === source.length;
  };

  const paint = () => {
    const { source, direction, style, pins } = store.state;
    if (!source || !given) return;
    const { found, on, legend, isSigned } = given;
    const heads = drawnHeads(store.state);
    const rows = found?.rows.length === heads.length ? on.map((place) => found.rows[place]) : null;
    const mean = rows && meanOf(rows, source.length);
    const token = (/** @type {number} */ index) => formatToken(source.tokens[index]);
    const at = (/** @type {number} */ weight) => position(weight, style.scale, found?.maximum ?? 1);
    list.setAttribute('aria-label', direction === 'from' ? `Tokens by how much “${token(chosen())}” attends to them` : `Tokens by how much they attend to “${token(chosen())}”`);
    const kept = new Set(pins.filter((one) => (direction === 'from' ? one.query : one.key) === chosen()).map((one) => (direction === 'from' ? one.key : one.query)));
    const entry = chosen() >= part[0] && chosen() < part[1] ? chosen() : part[0];
    list.setAttribute('aria-busy', String(!mean));
    spans.forEach((span, i) => {
      const index = part[0] + i;
      span.tabIndex = index === entry ? 0 : -1;
      span.setAttribute('aria-selected', String(index === chosen()));
      span.classList.toggle('pinned', kept.has(index));
      if (!mean || !rows) return;
      const share = at(mean[index]);
      const { ground, ink } = colorAt(legend, isSigned ? 0.5 + 0.5 * Math.sign(mean[index]) * share : share);
      span.style.setProperty('--ground', ground);
      span.style.setProperty('--ink-on', ink);
      Object.assign(span.style, strips(on, rows.map((row) => row[index]), at));
      const figures = on.length > 1 ? on.map((place, k) => `${nameOf(heads[place])} ${formatWeight(rows[k][index])}`).join(', ') : formatWeight(mean[index]);
      span.title = `${token(index)} (position ${index}): ${figures}`;
      span.setAttribute('aria-label', span.title);
    });
  };

  list.addEventListener('click', (event) => {
    const index = indexOf(event.target);
    if (index < 0) return;
    if (event.shiftKey || event.ctrlKey || event.metaKey) pin(store, cellOf(index), true);
    else choose(index);
  });
  list.addEventListener('pointerover', (event) => {
    const index = event.pointerType === 'mouse' ? indexOf(event.target) : -1;
    if (index >= 0) store.set({ hover: cellOf(index) });
  });
  list.addEventListener('pointerleave', () => store.set({ hover: null }));
  list.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const to = destination(event.key, chosen(), spans, part, store.state.source?.length ?? 0);
    if (to !== undefined) {
      choose(to);
      spans[chosen() - part[0]]?.focus();
    } else if (event.key === 'Enter' || event.key === ' ') pin(store, { query: store.state.query, key: store.state.key }, true);
    else if (event.key === 'Escape' && store.state.pins.length) store.set({ pins: [] });
    else return;
    event.preventDefault();
  });

  return {
    element,

    /** @param {Given} now */
    draw(now) {
      const { source } = store.state;
      if (!source) return;
      given = now;
      // Another part that was turned to stays, until another token is chosen.
      if (tokens !== source.tokens || last !== chosen()) show(pageOf(chosen(), MOST_TOKENS, source.length));
      last = chosen();
      paint();
    },

    /** The tokens that are on the page: first and last + 1. */
    get part() {
      return part;
    },
  };
}

/**
 * A strip below a token for each head, as long as its weight is large.
 * @param {number[]} on places of the heads @param {number[]} weights @param {(weight: number) => number} at
 */
function strips(on, weights, at) {
  const color = (/** @type {number} */ place, /** @type {number} */ i) => (weights[i] < 0 ? 'var(--against)' : SCREEN_HUES[place]);
  return {
    paddingBottom: `${2 + 4 * on.length}px`,
    backgroundImage: on.map((place, i) => `linear-gradient(${color(place, i)}, ${color(place, i)})`).join(', '),
    backgroundSize: on.map((_, i) => `${(100 * at(weights[i])).toFixed(1)}% 3px`).join(', '),
    backgroundPosition: on.map((_, i) => `0 calc(100% - ${4 * (on.length - 1 - i)}px)`).join(', '),
  };
}

/**
 * The token that a key leads to; undefined where it leads nowhere.
 * @param {string} key @param {number} from @param {HTMLElement[]} spans @param {[number, number]} part @param {number} length
 */
function destination(key, from, spans, part, length) {
  if (key === 'ArrowRight') return from + 1;
  if (key === 'ArrowLeft') return from - 1;
  if (key === 'Home') return 0;
  if (key === 'End') return length - 1;
  if (key !== 'ArrowUp' && key !== 'ArrowDown') return undefined;
  const here = spans[from - part[0]];
  if (!here) return from;
  const sign = key === 'ArrowDown' ? 1 : -1;
  const middle = here.offsetLeft + here.offsetWidth / 2;
  const beyond = spans.filter((span) => sign * (span.offsetTop - here.offsetTop) > here.offsetHeight / 2);
  if (!beyond.length) return from;
  const line = sign > 0 ? beyond[0].offsetTop : beyond[beyond.length - 1].offsetTop;
  const away = (/** @type {HTMLElement} */ span) => Math.abs(span.offsetLeft + span.offsetWidth / 2 - middle);
  const inLine = beyond.filter((span) => span.offsetTop === line);
  return part[0] + spans.indexOf(inLine.reduce((best, span) => (away(span) < away(best) ? span : best)));
}
