/** Keyboard, wheel and pointers over a heat map. */

import { hoverOver, isZoomed, moveCursor, place, revealCursor, setView, zoomBy } from './map.js';
import { cellAt, drag, fit, pan, pinch } from './view.js';

/** @typedef {import('./map.js').HeatMap} HeatMap */

const KEY_STEPS = /** @type {Record<string, [number, number]>} */ ({
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  PageUp: [-10, 0],
  PageDown: [10, 0],
});
/** How far a pointer may move between pressing and releasing to be a click, in CSS pixels. */
const CLICK = 5;

/** @param {HeatMap} map */
export function listenToGestures(map) {
  const { canvas } = map;
  canvas.addEventListener('keydown', (event) => {
    if (onKey(map, event)) event.preventDefault();
  });
  canvas.addEventListener('wheel', (event) => onWheel(map, event), { passive: false });
  listenToPointers(map);
}

/** @param {HeatMap} map @param {KeyboardEvent} event @returns {boolean} whether the key means something here */
function onKey(map, event) {
  const step = KEY_STEPS[event.key];
  const length = map.tokens.length;
  if (event.ctrlKey || event.metaKey || event.altKey) return false;
  if (step && event.shiftKey) {
    const cells = Math.max(1, map.view.span / 8);
    setView(map, pan(map.view, Math.sign(step[1]) * cells, Math.sign(step[0]) * cells, length));
  } else if (step) {
    moveCursor(map, map.row + step[0], map.column + step[1]);
    revealCursor(map);
  } else if (event.key === 'Home') moveCursor(map, map.row, 0);
  else if (event.key === 'End') moveCursor(map, map.row, length - 1);
  else if (event.key === '+' || event.key === '=') zoomBy(map, 1.5);
  else if (event.key === '-') zoomBy(map, 1 / 1.5);
  else if (event.key === '0') setView(map, fit(length));
  else if (event.key === 'Enter' || event.key === ' ') map.listeners.onPin({ row: map.row, column: map.column }, true);
  else if (event.key === 'Escape' && map.pins.length) map.listeners.onRelease();
  else return false;
  return true;
}

/** @param {HeatMap} map @param {WheelEvent} event */
function onWheel(map, event) {
  // Scrolling the page must not stop at the map, so the wheel zooms only once the map has the focus, or with Ctrl
  // (which is how browsers report pinching on a touchpad).
  if (!event.ctrlKey && !event.metaKey && !map.canvas.matches(':focus')) return;
  const at = place(map, event);
  if (at.x < 0 || at.y < 0) return;
  event.preventDefault();
  zoomBy(map, Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.002)), at);
}

/** @param {HeatMap} map */
function listenToPointers(map) {
  const { canvas } = map;
  /** @type {Map<number, import('./view.js').Point>} by id, those that are pressed */
  const pressed = new Map();
  /** Where a press began that may become a click. @type {{ id: number, x: number, y: number } | null} */
  let click = null;
  canvas.addEventListener('pointerdown', (event) => {
    if (event.button !== 0) return;
    click = pressed.size ? null : { id: event.pointerId, x: event.clientX, y: event.clientY };
    pressed.set(event.pointerId, place(map, event));
    canvas.setPointerCapture(event.pointerId);
    pointAt(map, event);
  });
  canvas.addEventListener('pointermove', (event) => {
    if (click && Math.hypot(event.clientX - click.x, event.clientY - click.y) > CLICK) click = null;
    onMove(map, pressed, event);
  });
  canvas.addEventListener('pointerup', (event) => {
    pressed.delete(event.pointerId);
    if (click?.id === event.pointerId) pinAt(map, event);
    click = null;
    if (event.pointerType !== 'mouse') hoverOver(map, null);
  });
  canvas.addEventListener('pointercancel', (event) => {
    pressed.delete(event.pointerId);
    click = null;
    hoverOver(map, null);
  });
  canvas.addEventListener('pointerleave', () => hoverOver(map, null));
}

/** @param {HeatMap} map @param {Map<number, import('./view.js').Point>} pressed @param {PointerEvent} event */
function onMove(map, pressed, event) {
  const from = pressed.get(event.pointerId);
  if (!from) return pointAt(map, event);
  const to = place(map, event);
  const [other] = [...pressed].filter(([id]) => id !== event.pointerId).map(([, point]) => point);
  pressed.set(event.pointerId, to);
  if (other) setView(map, pinch(map.view, from, to, other, map.tokens.length));
  else if (isZoomed(map)) setView(map, drag(map.view, from, to, map.tokens.length));
  else pointAt(map, event);
  return undefined;
}

/** @param {HeatMap} map @param {PointerEvent} event */
function pointAt(map, event) {
  hoverOver(map, cellAt(map.view, place(map, event)));
}

/** @param {HeatMap} map @param {PointerEvent} event */
function pinAt(map, event) {
  const cell = cellAt(map.view, place(map, event));
  const exists = cell && cell.row < map.tokens.length && cell.column < map.tokens.length;
  if (exists) map.listeners.onPin(cell, event.shiftKey || event.ctrlKey || event.metaKey);
}
