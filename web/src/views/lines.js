/** Tokens in two columns, queries at the left and keys at the right, with a line for each link. */

import { context2d, h } from '../dom.js';
import { formatCount, shortError } from '../format.js';
import { FONT, labelRoom } from '../heatmap/labels.js';
import { textWidth } from '../heatmap/measure.js';
import { readTheme } from '../heatmap/theme.js';
import { latest } from '../latest.js';
import { showOf } from '../reading.js';
import { pin } from '../store.js';
import { drawLines, inView, tokenAt } from './draw-lines.js';
import { drawnHeads, SCREEN_HUES } from './shade.js';

/** @typedef {import('./draw-lines.js').Pointed} Pointed */
/** @typedef {import('./draw-lines.js').Links} Links */
/** @typedef {{ links: Links, drawn: number, count: number, maximum: number, asked: string, isPart: boolean }} Known what was found last */

/** Lines that are drawn at once: more are no picture any more, and slow. */
export const MOST_LINES = 1500;
/** Weights that are looked through for them at once. */
const MOST_SEARCHED = 1 << 23;
const ROW = 22; // CSS pixels
const TOUCH_ROW = 28;
/** Parts of a long text are asked for in steps of so many tokens, so that scrolling asks seldom. */
const STEP = 16;
const NONE = { head: [], query: [], key: [], weight: [] };

/**
 * @param {import('../api.js').Api} api @param {import('../store.js').Store} store
 * @param {{ weights: ReturnType<typeof import('./weights.js').createTokenWeights>, on: () => number[],
 *   onWeights: () => void, onMaximum: (maximum: number) => void }} shared `onWeights`: the weights of a token are there
 */
export function mountLines(api, store, { weights, on, onWeights, onMaximum }) {
  const canvas = h('canvas', { class: 'lines', tabIndex: 0, role: 'application', 'aria-roledescription': 'line view' });
  const sizer = h('div', { class: 'lines-sizer' }, canvas);
  const scroll = h('div', { class: 'lines-scroll' }, sizer);
  const box = h('input', { type: 'checkbox', onchange: () => update() });
  const only = h('label', { class: 'check small' }, box, 'Lines of the chosen token only');
  const note = h('p', { class: 'muted small lines-note', role: 'status' }, ' ');
  const element = h(
    'div',
    { class: 'lines-view' },
    h('div', { class: 'lines-head muted small', 'aria-hidden': 'true' }, h('span', null, 'Queries'), h('span', null, 'Keys')),
    scroll,
    note,
  );
  const context = context2d(canvas);
  const row = matchMedia('(pointer: coarse)').matches ? TOUCH_ROW : ROW;
  /** @type {Pointed | null} */
  let pointed = null;
  /** @type {Known | null} */
  let known = null;
  /** The links of one token. @type {{ rows: Float32Array[], name: string, links: Links } | null} */
  let own = null;
  /** @type {string[] | null} */
  let tokens = null;
  /** The colours that apply, null when they have to be read again. @type {Pick<import('./draw-lines.js').Scene, 'hues' | 'theme'> | null} */
  let paint = null;
  let room = 60;
  let frame = 0;
  let width = 0;

  const isShown = () => store.state.openAs === 'lines' && store.state.source !== null;

  /** The token whose lines alone are drawn. @returns {Pointed | null} */
  const alone = () => {
    if (pointed) return pointed;
    const { direction, query, key } = store.state;
    if (!box.checked) return null;
    return direction === 'from' ? { side: 'query', index: query } : { side: 'key', index: key };
  };

  const place = () => ({ left: 0, top: 0, width, height: scroll.clientHeight, scrolled: scroll.scrollTop, row, room });

  /** What of the maps is looked through for the strongest links. */
  const wanted = () => {
    const { source } = store.state;
    if (!source) return null;
    const heads = drawnHeads(store.state);
    const places = on().filter((index) => index < heads.length);
    const [first, last] = inView(place(), source.length);
    const rows = [Math.floor(first / STEP) * STEP, Math.min(source.length, Math.max(1, Math.ceil(last / STEP)) * STEP)];
    const isPart = places.length * (rows[1] - rows[0]) * source.length > MOST_SEARCHED;
    const { sourceNumber, edit, over, style } = store.state;
    const given = {
      heads: places.map((index) => [heads[index].layer, heads[index].head]),
      rows,
      columns: isPart ? rows : [0, source.length],
      most: MOST_LINES,
      show: showOf(store.state),
      over,
      range: style.range ?? 'unit',
    };
    return { given, places, isPart, asked: JSON.stringify([sourceNumber, edit, given]) };
  };

  const load = latest(
    async () => {
      const ask = isShown() ? wanted() : null;
      if (!ask?.given.heads.length || ask.asked === known?.asked) return redraw();
      scroll.setAttribute('aria-busy', 'true');
      const found = await api.strongest(ask.given);
      scroll.setAttribute('aria-busy', 'false');
      if (wanted()?.asked !== ask.asked) return;
      const { query, key, weight, count, maximum } = found;
      const links = { head: Array.from(found.head, (index) => ask.places[index]), query, key, weight };
      known = { links, drawn: weight.length, count, maximum, asked: ask.asked, isPart: ask.isPart };
      scroll.dataset.lines = String(weight.length);
      onMaximum(maximum);
      say();
      redraw();
    },
    (error) => {
      scroll.setAttribute('aria-busy', 'false');
      known = null;
      note.textContent = `The lines could not be computed: ${shortError(error)}`;
      redraw();
    },
  );

  const say = () => {
    const { source } = store.state;
    if (!known || !source) return;
    if (box.checked) {
      note.textContent = 'Only links of the chosen token are drawn.';
      return;
    }
    const { drawn, count, isPart } = known;
    const isAll = drawn === count;
    const whole = inView(place(), source.length);
    const where = whole[1] - whole[0] >= source.length ? '' : isPart ? ' between tokens on screen' : ' from queries on screen';
    note.textContent = isAll
      ? `All ${formatCount(count)} links${where} that are not zero are drawn.`
      : `The ${formatCount(drawn)} strongest of ${formatCount(count)} links${where} are drawn; point at a token to see its own.`;
  };

  /** The links that are drawn. @param {Pointed | null} of */
  const linksOf = (of) => {
    if (!known) return NONE;
    const found = of && weights.peek(of.index, of.side === 'query' ? 'from' : 'to');
    if (!found) return known.links;
    const name = [of.side, of.index, on()].join('/');
    if (own?.rows !== found.rows || own.name !== name) own = { rows: found.rows, name, links: linksOfToken(of, found.rows, on()) };
    return own.links;
  };

  const scene = () => {
    const { style, query, key, pins } = store.state;
    const of = alone();
    return {
      ...place(), tokens: tokens ?? [], links: linksOf(of), scale: style.scale, maximum: known?.maximum ?? 1, query, key, pointed: of, pins,
      ...(paint ??= { hues: hues(element, drawnHeads(store.state).length), theme: readTheme(element) }),
    };
  };

  const redraw = () => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      if (!isShown() || !width) return;
      context.clearRect(0, 0, canvas.width, canvas.height);
      drawLines(context, scene());
      canvas.dataset.place = [room, row, scroll.scrollTop].join(' ');
    });
  };

  const resize = () => {
    const { source } = store.state;
    width = scroll.clientWidth;
    if (!width || !source) return;
    sizer.style.height = `${source.length * row}px`;
    const height = Math.min(scroll.clientHeight, source.length * row);
    const ratio = devicePixelRatio || 1;
    canvas.style.height = `${height}px`;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    load(undefined);
    redraw();
  };

  /** Brings a token into view. @param {number} index */
  const reveal = (index) => {
    const at = index * row;
    if (at < scroll.scrollTop) scroll.scrollTop = at;
    else if (at + row > scroll.scrollTop + scroll.clientHeight) scroll.scrollTop = at + row - scroll.clientHeight;
  };

  const update = () => {
    const { source } = store.state;
    if (!isShown() || !source) return;
    if (tokens !== source.tokens) {
      tokens = source.tokens;
      room = Math.min(labelRoom(tokens, (text) => textWidth(text, FONT)), Math.max(60, width * 0.34 || 104));
      pointed = known = own = null;
      note.textContent = 'The strongest links are being looked for.';
      resize();
      reveal(store.state.direction === 'from' ? store.state.query : store.state.key);
    }
    paint = null;
    askAlone();
    load(undefined);
    say();
    redraw();
  };

  const askAlone = () => {
    const of = alone();
    if (of) ask(of.index, of.side === 'query' ? 'from' : 'to');
  };

  const ask = weights.lane(() => {
    redraw();
    onWeights();
  });

  /** @param {Pointed | null} to */
  const point = (to) => {
    if (to?.side === pointed?.side && to?.index === pointed?.index) return;
    pointed = to;
    const { query, key } = store.state;
    store.set({ hover: to && (to.side === 'query' ? { query: to.index, key } : { query, key: to.index }) });
    askAlone();
    redraw();
  };

  /** @param {Pointed} to */
  const choose = ({ side, index }) => {
    store.set({ ...(side === 'query' ? { query: index, direction: 'from' } : { key: index, direction: 'to' }), hover: null });
    reveal(index);
  };

  listen(canvas, {
    tokenAt: (x, y) => tokenAt(place(), x, y, store.state.source?.length ?? 0),
    point,
    choose,
    move: (by) => {
      const { direction, query, key, source } = store.state;
      const last = (source?.length ?? 1) - 1;
      const index = Math.min(Math.max((direction === 'from' ? query : key) + by, 0), last);
      choose({ side: direction === 'from' ? 'query' : 'key', index });
    },
    turn: (direction) => store.set({ direction }),
    pin: (at) => {
      const { query, key } = store.state;
      pin(store, at ? { query, key, [at.side]: at.index } : { query, key }, true);
    },
    release: () => store.state.pins.length > 0 && (store.set({ pins: [] }), true),
  });
  scroll.addEventListener('scroll', () => (load(undefined), say(), redraw()));
  const sizes = new ResizeObserver(resize);
  sizes.observe(scroll);

  return {
    element,
    only,
    update,
    reveal,
    scene,
    destroy() {
      sizes.disconnect();
      cancelAnimationFrame(frame);
      frame = -1;
    },
  };
}

/** The hues of so many heads as a canvas understands them. @param {HTMLElement} element @param {number} count */
function hues(element, count) {
  const probe = h('span', { hidden: true, class: 'hue-probe' });
  element.append(probe);
  const style = getComputedStyle(probe);
  const found = SCREEN_HUES.slice(0, count).map((hue) => {
    probe.style.color = hue;
    return style.color;
  });
  probe.remove();
  return found;
}

/** The links of a token, the strongest first, as many as are drawn at most. @param {Pointed} of @param {Float32Array[]} rows one a head @param {number[]} on places of the heads that are drawn */
export function linksOfToken({ side, index }, rows, on) {
  const links = on.flatMap((head) => Array.from(rows[head] ?? [], (weight, other) => ({ head, other, weight }))).filter(({ weight }) => weight !== 0);
  links.sort((a, b) => Math.abs(b.weight) - Math.abs(a.weight));
  links.splice(MOST_LINES);
  const other = links.map((link) => link.other);
  const self = links.map(() => index);
  return {
    head: links.map(({ head }) => head),
    query: side === 'query' ? self : other,
    key: side === 'query' ? other : self,
    weight: links.map(({ weight }) => weight),
  };
}

/**
 * Pointers and keys over the canvas.
 * @param {HTMLCanvasElement} canvas
 * @param {{ tokenAt: (x: number, y: number) => Pointed | null, point: (to: Pointed | null) => void, choose: (to: Pointed) => void,
 *   move: (by: number) => void, turn: (direction: import('../store.js').Direction) => void, pin: (at?: Pointed) => void,
 *   release: () => boolean }} act
 */
function listen(canvas, act) {
  const at = (/** @type {MouseEvent} */ event) => {
    const box = canvas.getBoundingClientRect();
    return act.tokenAt(event.clientX - box.left, event.clientY - box.top);
  };
  canvas.addEventListener('pointermove', (event) => event.pointerType === 'mouse' && act.point(at(event)));
  canvas.addEventListener('pointerleave', () => act.point(null));
  canvas.addEventListener('click', (event) => {
    const to = at(event);
    if (!to) return;
    if (event.shiftKey || event.ctrlKey || event.metaKey) act.pin(to);
    else act.choose(to);
  });
  const steps = /** @type {Record<string, number>} */ ({ ArrowUp: -1, ArrowDown: 1, PageUp: -10, PageDown: 10, Home: -Infinity, End: Infinity });
  canvas.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in steps) act.move(steps[event.key]);
    else if (event.key === 'ArrowLeft') act.turn('from');
    else if (event.key === 'ArrowRight') act.turn('to');
    else if (event.key === 'Enter' || event.key === ' ') act.pin();
    else if (event.key !== 'Escape' || !act.release()) return;
    event.preventDefault();
  });
}
