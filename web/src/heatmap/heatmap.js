/** A square map that can be pointed at, walked over with the keyboard, zoomed and panned. */

import { context2d, h } from '../dom.js';
import { draw, labelRoom } from './draw.js';
import { clamp, fit, pan, reveal, visible, zoom } from './view.js';

/**
 * @typedef {object} Listeners
 * @property {(row: number, column: number) => void} onCursor
 * @property {() => void} onView something else is visible now, or at another size
 *
 * @typedef {{ canvas: HTMLCanvasElement, rows: [number, number], columns: [number, number] }} Picture
 */

const KEY_STEPS = /** @type {Record<string, [number, number]>} */ ({
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  PageUp: [-10, 0],
  PageDown: [10, 0],
});

/**
 * @param {HTMLElement} element
 * @param {Listeners} listeners
 */
export function mountHeatmap(element, { onCursor, onView }) {
  const canvas = h('canvas', {
    class: 'heatmap',
    tabIndex: 0,
    role: 'application',
    'aria-roledescription': 'heat map',
    'aria-label': 'Attention map',
  });
  element.append(canvas);
  const context = context2d(canvas);
  /** @type {string[]} */
  let tokens = [];
  let view = fit(1);
  /** @type {Picture | null} */
  let picture = null;
  let row = 0;
  let column = 0;
  let width = 0;
  let room = 40;
  let frame = 0;
  /** @type {import('./draw.js').Theme | null} */
  let theme = null;

  const side = () => Math.max(40, width - room - 3);
  const redraw = () => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      if (width) draw(context, scene());
    });
  };

  /** @returns {import('./draw.js').Scene} */
  function scene() {
    theme ??= readTheme(element);
    return { width, left: room, top: room, side: side(), view, tokens, picture, row, column, theme };
  }

  function resize() {
    const box = Math.floor(element.clientWidth);
    const ratio = devicePixelRatio || 1;
    if (!box || (box === width && canvas.width === Math.round(box * ratio))) return;
    width = box;
    canvas.style.height = `${box}px`;
    canvas.width = Math.round(box * ratio);
    canvas.height = Math.round(box * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    redraw();
    onView();
  }
  const sizes = new ResizeObserver(resize);
  sizes.observe(element);

  /** @param {import('./view.js').View} next */
  function setView(next) {
    if (next.x === view.x && next.y === view.y && next.span === view.span) return;
    view = next;
    canvas.style.touchAction = view.span < tokens.length ? 'none' : 'pan-y';
    redraw();
    onView();
  }

  /** @param {number} toRow @param {number} toColumn */
  function moveCursor(toRow, toColumn) {
    if (!tokens.length) return;
    const last = tokens.length - 1;
    const [r, c] = [Math.min(Math.max(toRow, 0), last), Math.min(Math.max(toColumn, 0), last)];
    if (r === row && c === column) return;
    row = r;
    column = c;
    redraw();
    onCursor(row, column);
  }

  /** @param {{ clientX: number, clientY: number }} event from 0 to 1 across the plot */
  function place(event) {
    const box = canvas.getBoundingClientRect();
    return { x: (event.clientX - box.left - room) / side(), y: (event.clientY - box.top - room) / side() };
  }

  /** @param {number} factor @param {{ x: number, y: number }} [at] */
  function zoomBy(factor, at) {
    const cell = { x: (column + 0.5 - view.x) / view.span, y: (row + 0.5 - view.y) / view.span };
    const inside = cell.x >= 0 && cell.x <= 1 && cell.y >= 0 && cell.y <= 1;
    setView(zoom(view, factor, at ?? (inside ? cell : { x: 0.5, y: 0.5 }), tokens.length));
  }

  canvas.addEventListener('keydown', (event) => {
    const step = KEY_STEPS[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (step && event.shiftKey) {
      const cells = Math.max(1, view.span / 8);
      setView(pan(view, Math.sign(step[1]) * cells, Math.sign(step[0]) * cells, tokens.length));
    } else if (step) {
      moveCursor(row + step[0], column + step[1]);
      setView(reveal(view, row, column, tokens.length));
    } else if (event.key === 'Home') moveCursor(row, 0);
    else if (event.key === 'End') moveCursor(row, tokens.length - 1);
    else if (event.key === '+' || event.key === '=') zoomBy(1.5);
    else if (event.key === '-') zoomBy(1 / 1.5);
    else if (event.key === '0') setView(fit(tokens.length));
    else return;
    event.preventDefault();
  });

  canvas.addEventListener(
    'wheel',
    (event) => {
      // A page that scrolls should not get stuck on the map: it zooms once it was chosen, or with Ctrl (as pinching does).
      if (!event.ctrlKey && !event.metaKey && !canvas.matches(':focus')) return;
      const at = place(event);
      if (at.x < 0 || at.y < 0) return;
      event.preventDefault();
      zoomBy(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.002)), at);
    },
    { passive: false },
  );

  /** @type {Map<number, { x: number, y: number }>} fingers on the map */
  const pointers = new Map();
  canvas.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    pointers.set(event.pointerId, place(event));
    canvas.setPointerCapture(event.pointerId);
    pointAt(event);
  });
  canvas.addEventListener('pointermove', (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) return pointAt(event);
    const now = place(event);
    const others = [...pointers].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
    pointers.set(event.pointerId, now);
    if (others.length) {
      const [other] = others;
      const distance = (/** @type {{ x: number, y: number }} */ p) => Math.hypot(p.x - other.x, p.y - other.y);
      const centre = { x: (now.x + other.x) / 2, y: (now.y + other.y) / 2 };
      setView(zoom(view, distance(now) / Math.max(distance(before), 0.01), centre, tokens.length));
    } else if (event.pointerType === 'mouse' && event.buttons & 1 && view.span < tokens.length) {
      setView(pan(view, (before.x - now.x) * view.span, (before.y - now.y) * view.span, tokens.length));
    } else if (view.span < tokens.length) {
      setView(pan(view, (before.x - now.x) * view.span, (before.y - now.y) * view.span, tokens.length));
    } else pointAt(event);
  });
  for (const type of ['pointerup', 'pointercancel']) {
    canvas.addEventListener(type, (event) => pointers.delete(/** @type {PointerEvent} */ (event).pointerId));
  }

  /** @param {PointerEvent} event */
  function pointAt(event) {
    const { x, y } = place(event);
    if (x < 0 || y < 0 || x >= 1 || y >= 1) return;
    moveCursor(Math.floor(view.y + y * view.span), Math.floor(view.x + x * view.span));
  }

  return {
    canvas,

    /** Begins with another source. @param {string[]} given */
    setTokens(given) {
      tokens = given;
      room = labelRoom(tokens);
      picture = null;
      view = fit(tokens.length);
      canvas.style.touchAction = 'pan-y';
      row = Math.min(row, tokens.length - 1);
      column = Math.min(column, tokens.length - 1);
      redraw();
    },

    /** @param {Picture | null} given */
    setPicture(given) {
      picture = given;
      redraw();
    },

    /** @param {number} toRow @param {number} toColumn */
    setCursor(toRow, toColumn) {
      if (toRow === row && toColumn === column) return;
      [row, column] = [toRow, toColumn];
      setView(reveal(view, row, column, tokens.length));
      redraw();
    },

    /** The cells on screen, and how many pixels there are for them. */
    visible() {
      return { ...visible(view, tokens.length), pixels: Math.floor(side() * Math.min(devicePixelRatio || 1, 2)), width };
    },

    scene,
    zoomBy,
    fit: () => setView(clamp(fit(tokens.length), tokens.length)),

    /** Draws again in the colours that hold now. */
    recolor() {
      theme = null;
      redraw();
    },

    destroy() {
      sizes.disconnect();
      cancelAnimationFrame(frame);
      frame = -1; // what comes late draws nothing any more
    },
  };
}

/**
 * The colours that the style sheet has for this place. A custom property is text; only as the value of a real property
 * is it a colour that a canvas understands.
 * @param {HTMLElement} element
 * @returns {import('./draw.js').Theme}
 */
function readTheme(element) {
  const probe = h('span', { hidden: true });
  element.append(probe);
  const style = getComputedStyle(probe);
  const color = (/** @type {string} */ name) => {
    probe.style.color = `var(--${name})`;
    return style.color;
  };
  const theme = {
    ink: color('ink'),
    muted: color('muted'),
    line: color('line'),
    accent: color('accent'),
    sunken: color('sunken'),
    surface: color('surface'),
  };
  probe.remove();
  return theme;
}
