/** Words for what the visitor points with. */

const coarse = globalThis.matchMedia?.('(pointer: coarse)');

/** Whether fingers, not a mouse, are the main way to point. */
export function isTouch() {
  return coarse?.matches ?? false;
}

/** "Click" or "Tap", as it begins a sentence. */
export function Click() {
  return isTouch() ? 'Tap' : 'Click';
}
